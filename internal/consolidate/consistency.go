package consolidate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hindsight-memory/hindsight/internal/memory"
)

// DefaultGrace is how long after a write the index may lack it before that is a fault.
const DefaultGrace = 10 * time.Second

const (
	// reconcilePage is how many items are compared at once.
	reconcilePage = 500
	// embedTogether is how many texts are embedded between two reports of progress.
	embedTogether = 32
	// embedPerRun is how many texts a run of the job embeds at most: other jobs wait for it, and questions for the model.
	embedPerRun = 500
	// embedGrace is how many times as long vectors may take to be made as entries to be written.
	embedGrace = 30
)

// Repairs counts what the comparison of an index with the record has found.
type Repairs struct {
	// Checked are the items of the record that may be found.
	Checked int
	// Missing and Stale entries were written, Surplus ones taken out: those of no item, or of one that may not be found.
	// A stale entry is of another text, or says something else of its item than the record does.
	Missing, Stale, Surplus int
	// Embedded are those of the written ones that had no vector in the record.
	Embedded int
	// Waiting are items that were written a moment ago, or wait for their vectors, and were left alone.
	Waiting int
}

func (r Repairs) done() int { return r.Missing + r.Stale + r.Surplus }

// Reconciler makes a vector index hold what the record says: each item that may be found, by its current text, status
// and tags, and nothing else. Vectors come from the record; only what has none there is embedded. It goes through a
// namespace in pages, holding in memory no more than the stamps of the index. Writers may go on meanwhile: doing it twice
// changes nothing, and a repair that a writer overtook is found by the next one.
type Reconciler struct {
	Record interface {
		memory.ItemReader
		VectorRecord
	}
	Index VectorIndex
	// Model is the identity of the embedding model, and Embed makes its vectors.
	Model string
	Embed func(ctx context.Context, texts []string) ([][]float32, error)
	// Rewrite writes every entry again, whatever the index says it holds. DryRun only counts.
	Rewrite, DryRun bool
	// Grace is how long after its last version an item is left alone, since its writer is about to do the same; one without a
	// vector for 30 times as long. MaxEmbedded bounds what is embedded; 0 does not.
	Grace       time.Duration
	MaxEmbedded int
	Clock       func() time.Time
	// Progress is told the counts so far; it may be nil.
	Progress func(Repairs)
}

// Reconcile goes through one namespace. What was repaired before an error stays so, and is counted.
func (r Reconciler) Reconcile(ctx context.Context, namespace string) (Repairs, error) {
	x := reconciling{Reconciler: r, namespace: namespace, began: r.Clock()}
	err := x.run(ctx)
	return x.repairs, err
}

// reconciling goes through one namespace.
type reconciling struct {
	Reconciler
	namespace string
	// began is when the index was asked what it holds: what was written since it cannot know.
	began   time.Time
	held    map[string]string // stamps of entries that are not accounted for yet
	repairs Repairs
	// unembedded is why nothing is embedded any more: what has a vector does not wait for it.
	unembedded error
}

// indexed is an item as the index should have it; findable is false when it should not.
type indexed struct {
	entry    memory.IndexEntry
	text     string
	findable bool
	recorded time.Time
	missing  bool // the index has no entry of it
}

func (x *reconciling) run(ctx context.Context) (err error) {
	if x.held, err = x.Index.TextHashes(ctx, x.namespace); err != nil {
		return fmt.Errorf("list the index: %w", err)
	}
	for after := ""; ; {
		ids, err := x.Record.ItemIDs(ctx, x.namespace, after, reconcilePage)
		if err != nil {
			return fmt.Errorf("list items: %w", err)
		}
		if len(ids) == 0 {
			break
		}
		if err := x.page(ctx, ids); err != nil {
			return err
		}
		after = ids[len(ids)-1]
	}
	if err := x.strange(ctx); err != nil {
		return err
	}
	return x.unembedded
}

// read gives the items as they are now. Rules are not indexed, so that they are not among them.
func (x *reconciling) read(ctx context.Context, ids []string) ([]indexed, error) {
	filter := memory.ItemFilter{Namespace: x.namespace, IDs: ids}
	snapshots, err := x.Record.Snapshots(ctx, filter)
	if err != nil {
		return nil, fmt.Errorf("read snapshots: %w", err)
	}
	memories, err := x.Record.Memories(ctx, filter)
	if err != nil {
		return nil, fmt.Errorf("read memories: %w", err)
	}
	items := make([]indexed, 0, len(snapshots)+len(memories))
	add := func(e memory.IndexEntry, text string, v memory.Version) {
		e.TextHash = memory.TextHash(text)
		items = append(items, indexed{entry: e, text: text, findable: text != "", recorded: v.RecordedAt})
	}
	for _, s := range snapshots {
		e, text := memory.SnapshotEntry(s)
		add(e, text, s.Version)
	}
	for _, m := range memories {
		e, text := memory.MemoryEntry(m)
		add(e, text, m.Version)
	}
	return items, nil
}

// young reports an item whose writer may still be at work.
func (x *reconciling) young(i indexed, grace time.Duration) bool {
	return !x.Rewrite && i.recorded.After(x.began.Add(-grace))
}

// page compares some items with what the index holds of them.
func (x *reconciling) page(ctx context.Context, ids []string) error {
	items, err := x.read(ctx, ids)
	if err != nil {
		return err
	}
	var write []indexed
	var surplus []string
	for _, i := range items {
		stamp, held := x.held[i.entry.ID]
		delete(x.held, i.entry.ID)
		i.missing = !held
		if i.findable {
			x.repairs.Checked++
		}
		switch {
		case !i.findable && !held, i.findable && held && stamp == i.entry.Stamp() && !x.Rewrite:
		case x.young(i, x.Grace):
			x.repairs.Waiting++
		case i.findable:
			write = append(write, i)
		default:
			surplus = append(surplus, i.entry.ID)
		}
	}
	if err := x.remove(ctx, surplus); err != nil {
		return err
	}
	return x.write(ctx, write)
}

// write brings items into the index.
func (x *reconciling) write(ctx context.Context, items []indexed) error {
	if len(items) == 0 {
		return nil
	}
	if x.DryRun {
		x.count(items)
		return nil
	}
	ids, texts := make([]string, len(items)), make(map[string]string, len(items))
	for k, i := range items {
		ids[k], texts[i.entry.ID] = i.entry.ID, i.entry.TextHash
	}
	vectors, err := x.Record.TextVectors(ctx, x.namespace, x.Model, texts)
	if err != nil {
		return fmt.Errorf("read vectors: %w", err)
	}
	uses, err := x.Record.Uses(ctx, x.namespace, ids)
	if err != nil {
		return fmt.Errorf("read when items were first written: %w", err)
	}
	var ready, bare []indexed
	for _, i := range items {
		i.entry.CreatedAt = uses[i.entry.ID].FirstSeen
		i.entry.Vector = vectors[i.entry.ID]
		switch {
		case i.entry.Vector != nil:
			ready = append(ready, i)
		case x.unembedded != nil, x.young(i, embedGrace*x.Grace), x.MaxEmbedded > 0 && x.repairs.Embedded+len(bare) >= x.MaxEmbedded:
			x.repairs.Waiting++
		default:
			bare = append(bare, i)
		}
	}
	if err := x.upsert(ctx, ready); err != nil {
		return err
	}
	for some := range slices.Chunk(bare, embedTogether) {
		if x.unembedded == nil {
			x.unembedded = x.embed(ctx, some)
		}
		if x.unembedded != nil {
			if ctx.Err() != nil {
				return x.unembedded
			}
			x.repairs.Waiting += len(some)
			continue
		}
		if err := x.upsert(ctx, some); err != nil {
			return err
		}
	}
	return nil
}

// embed makes the vectors of items, and keeps them in the record.
func (x *reconciling) embed(ctx context.Context, items []indexed) error {
	texts := make([]string, len(items))
	for k, i := range items {
		texts[k] = i.text
	}
	vectors, err := x.Embed(ctx, texts)
	if err != nil {
		return fmt.Errorf("embed: %w", err)
	}
	if len(vectors) != len(texts) {
		return fmt.Errorf("embed %d items: the embedder gave %d vectors", len(texts), len(vectors))
	}
	rows := make([]memory.ItemVector, len(items))
	for k := range items {
		e := &items[k].entry
		e.Vector = vectors[k]
		rows[k] = memory.ItemVector{Namespace: e.Namespace, Model: x.Model, ItemID: e.ID, TextHash: e.TextHash, Layer: e.Layer, Vector: e.Vector}
	}
	if err := x.Record.InsertVectors(ctx, rows); err != nil {
		return fmt.Errorf("keep %d vectors: %w", len(rows), err)
	}
	x.repairs.Embedded += len(items)
	return nil
}

func (x *reconciling) upsert(ctx context.Context, items []indexed) error {
	if len(items) == 0 {
		return nil
	}
	entries := make([]memory.IndexEntry, len(items))
	for k, i := range items {
		entries[k] = i.entry
	}
	if err := x.Index.Upsert(ctx, memory.Stamped(entries)); err != nil {
		return fmt.Errorf("index %d items: %w", len(entries), err)
	}
	x.count(items)
	return nil
}

// count tells of items that are in the index now, and were not or not so.
func (x *reconciling) count(items []indexed) {
	for _, i := range items {
		if i.missing {
			x.repairs.Missing++
		} else {
			x.repairs.Stale++
		}
	}
	x.tell()
}

// strange looks again at the entries that no item was found for. Whatever the record has of them by now is left to its
// writer; the others leave the index.
func (x *reconciling) strange(ctx context.Context) error {
	ids := make([]string, 0, len(x.held))
	for id := range x.held {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for some := range slices.Chunk(ids, reconcilePage) {
		items, err := x.read(ctx, some)
		if err != nil {
			return err
		}
		came := make(map[string]bool, len(items))
		for _, i := range items {
			came[i.entry.ID] = true
		}
		if err := x.remove(ctx, slices.DeleteFunc(some, func(id string) bool { return came[id] })); err != nil {
			return err
		}
	}
	return nil
}

func (x *reconciling) remove(ctx context.Context, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	if !x.DryRun {
		if err := x.Index.Delete(ctx, x.namespace, ids); err != nil {
			return fmt.Errorf("take %d items out of the index: %w", len(ids), err)
		}
	}
	x.repairs.Surplus += len(ids)
	x.tell()
	return nil
}

func (x *reconciling) tell() {
	if x.Progress != nil {
		x.Progress(x.repairs)
	}
}

// consistency is the job that keeps the index as the record says.
type consistency struct {
	o       Options
	repairs *prometheus.CounterVec
}

func newConsistency(o Options) consistency {
	o.Grace = cmp.Or(o.Grace, DefaultGrace)
	return consistency{o: o, repairs: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "hindsight_index_repairs_total", Help: "Entries of the vector index that were not as the record says and were put right, by kind (missing, surplus, stale).",
	}, []string{"kind"})}
}

func (c consistency) run(ctx context.Context, w *work) error {
	if c.o.Index == nil {
		return nil
	}
	model, _, err := c.o.Meaning(ctx)
	if err != nil || model == "" {
		return err
	}
	r := Reconciler{
		Record: w.record, Index: c.o.Index, Model: model, Embed: c.o.Embed, Grace: c.o.Grace, MaxEmbedded: embedPerRun, Clock: w.clock,
	}
	repairs, err := r.Reconcile(ctx, w.namespace)
	for kind, n := range map[string]int{"missing": repairs.Missing, "surplus": repairs.Surplus, "stale": repairs.Stale} {
		c.repairs.WithLabelValues(kind).Add(float64(n))
		w.count(kind, n)
	}
	w.count("checked", repairs.Checked)
	w.count("embedded", repairs.Embedded)
	w.count("waiting", repairs.Waiting)
	if repairs.done() > 0 { // A run that only looked leaves no trace.
		if err := w.begin(ctx); err != nil {
			return err
		}
	}
	return err
}
