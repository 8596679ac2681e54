package evaluate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/embed"
	"github.com/hindsight-memory/hindsight/internal/memory"
	"github.com/hindsight-memory/hindsight/internal/recall"
	"github.com/hindsight-memory/hindsight/internal/store"
)

// RecallOptions choose the size of the bench.
type RecallOptions struct {
	// Executable is the program itself.
	Executable string
	// Sizes are the numbers of snapshots in memory; empty means 1,000 and 10,000.
	Sizes []int
	// Questions is how many are asked at each size; 0 means 200.
	Questions int
	// Seed makes snapshots, vectors and questions.
	Seed int64
	// Milvus, if it has an address, holds the vectors instead of ClickHouse. What the bench makes there it removes.
	Milvus store.MilvusOptions
	// EngineSetting answers for the setting HINDSIGHT_ENGINES_DIR, where the local embedding model is.
	EngineSetting func(name string) string
	// Logger is told what is being measured.
	Logger *slog.Logger
}

const (
	// loadBatch is how many snapshots are written at once.
	loadBatch = 2_000
	// rawNearest is what the raw engine is asked for: as many as recall asks it for.
	rawNearest = 20
	// servedBefore is how many earlier answers the record holds at most, since every recall counts how often its items
	// were shown.
	servedBefore = 10_000
	// embeddings is how many texts the real model is measured with.
	embeddings = 20
	// settleTimeout bounds how long ClickHouse may merge and index what was loaded.
	settleTimeout = 30 * time.Minute
)

// Recall measures how long an answer takes at several sizes of memory: Recall and Check of the product against the real
// record and index, with generated vectors, so that the embedding model is apart; a bare vector search in the same
// ClickHouse; and the local embedding model by itself.
func Recall(ctx context.Context, o RecallOptions) (report Report, err error) {
	if len(o.Sizes) == 0 {
		o.Sizes = []int{1_000, 10_000}
	}
	if o.Questions <= 0 {
		o.Questions = 200
	}
	p, err := start(ctx, o.Executable, "--engines-only")
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	if err := p.ready(ctx, p.clickhouse+"/ping"); err != nil {
		return report, err
	}
	report = Report{Suite: "recall", Seed: o.Seed, Figures: map[string]float64{"questions": float64(o.Questions)}, Examples: []string{}}
	for _, size := range o.Sizes {
		if size < 1 {
			return report, fmt.Errorf("measure recall: a size of %d: it must be at least 1", size)
		}
		if err := recallAt(ctx, p, o, size, &report); err != nil {
			return report, fmt.Errorf("measure recall at %d snapshots: %w", size, err)
		}
	}
	report.Figures["resident_bytes"] = float64(p.resident())
	o.Logger.Info("measuring the embedding model", "texts", embeddings)
	if err := embedding(ctx, o, &report); err != nil {
		return report, fmt.Errorf("measure the embedding model: %w", err)
	}
	return report, nil
}

// recallAt measures at one size, in a database of its own, so that the raw search needs no condition.
func recallAt(ctx context.Context, p *program, o RecallOptions, size int, report *Report) (err error) {
	st, err := store.Open(store.Options{URL: p.clickhouse, Database: "bench_" + strconv.Itoa(size)})
	if err != nil {
		return fmt.Errorf("open the record: %w", err)
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	if err := st.Migrate(ctx, store.MigrateOptions{}); err != nil {
		return fmt.Errorf("create the schema: %w", err)
	}
	index, raw, closeIndex, err := o.index(p, st, size) //nolint:contextcheck // A connection lives until it is closed.
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeIndex(context.WithoutCancel(ctx))) }()
	if err := index.Prepare(ctx, recallModel, recallDimension); err != nil {
		return fmt.Errorf("prepare the index: %w", err)
	}
	set := newRecallSet(o.Seed)
	o.Logger.Info("loading", "snapshots", size)
	began := time.Now()
	if err := load(ctx, st, index, set, size); err != nil {
		return err
	}
	loaded := time.Since(began)
	if err := settle(ctx, st); err != nil {
		return err
	}
	settled := time.Since(began)
	questions := make([]asked, o.Questions)
	for i := range questions {
		questions[i] = set.question(i, size)
	}
	parts := newStopwatch(st, index)
	service, err := recall.New(recall.Options{
		Items: parts, Index: parts.index(), Embedder: givenVectors{}, Recorder: unrecorded{}, Logger: o.Logger,
	})
	if err != nil {
		return fmt.Errorf("set up recall: %w", err)
	}
	o.Logger.Info("asking", "snapshots", size, "questions", len(questions))
	figure := func(name string, value float64) { report.Figures[fmt.Sprintf(name, size)] = value }
	figure("load_%d_seconds", loaded.Seconds())
	figure("load_and_index_%d_seconds", settled.Seconds())
	bare, err := raw(ctx, questions)
	if err != nil {
		return fmt.Errorf("ask the raw engine: %w", err)
	}
	searches, err := searchAll(ctx, index, questions)
	if err != nil {
		return err
	}
	parts.reset()
	answers, found, example, err := askAll(ctx, service, set, questions)
	if err != nil {
		return err
	}
	for name, times := range parts.taken() {
		figure("recall_%d_part_"+name+"_p50_ms", percentile(times, 50))
	}
	checks, known, err := checkAll(ctx, service, questions)
	if err != nil {
		return err
	}
	for name, times := range map[string][]time.Duration{"raw_vector_search": bare, "vector_search": searches, "recall": answers, "check": checks} {
		for _, p := range []int{50, 95, 99} {
			figure(fmt.Sprintf("%s_%%d_p%d_ms", name, p), percentile(times, p))
		}
	}
	figure("ratio_recall_%d_to_raw", percentile(answers, 50)/percentile(bare, 50))
	figure("ratio_vector_search_%d_to_raw", percentile(searches, 50)/percentile(bare, 50))
	figure("recall_%d_first_item_fits_ratio", float64(found)/float64(len(questions)))
	figure("check_%d_known_ratio", float64(known)/float64(len(questions)))
	report.Examples = append(report.Examples, example)
	return nil
}

// bareSearch asks a server for the nearest vectors by its driver alone.
type bareSearch func(ctx context.Context, questions []asked) ([]time.Duration, error)

// index makes the vector index that is measured, and the bare search beside it. closeIndex removes what was made
// outside the bench's own engines.
func (o RecallOptions) index(p *program, st *store.ClickHouse, size int) (index memory.VectorIndex, raw bareSearch, closeIndex func(context.Context) error, err error) {
	if o.Milvus.Address == "" {
		raw = func(ctx context.Context, questions []asked) ([]time.Duration, error) {
			return rawSearch(ctx, p.clickhouse, st, questions)
		}
		return store.NewVectors(st), raw, func(context.Context) error { return nil }, nil
	}
	options := o.Milvus
	options.Prefix = fmt.Sprintf("bench_%d_%d", os.Getpid(), size)
	milvus, err := store.OpenMilvus(options)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("open the index: %w", err)
	}
	raw = func(ctx context.Context, questions []asked) ([]time.Duration, error) {
		return timed(questions, func(q asked) (int, error) { return milvus.BareSearch(ctx, q.vector, rawNearest) })
	}
	return milvus, raw, func(ctx context.Context) error {
		err := milvus.Drop(ctx)
		if errors.Is(err, store.ErrNotPrepared) {
			err = nil
		}
		return errors.Join(err, milvus.Close())
	}, nil
}

// searchAll asks the product's index what the bare search is asked, with the conditions that recall gives it.
func searchAll(ctx context.Context, index memory.VectorIndex, questions []asked) ([]time.Duration, error) {
	return timed(questions, func(q asked) (int, error) {
		found, err := index.Search(ctx, memory.VectorQuery{Namespace: recallNamespace, Vector: q.vector, Statuses: []memory.ItemStatus{memory.ItemActive}, Limit: rawNearest})
		return len(found), err
	})
}

// timed asks every question; one that finds nothing is an error, since its time says nothing.
func timed(questions []asked, ask func(asked) (int, error)) ([]time.Duration, error) {
	times := make([]time.Duration, 0, len(questions))
	for _, q := range questions {
		began := time.Now()
		n, err := ask(q)
		if err != nil {
			return nil, fmt.Errorf("search: %w", err)
		}
		if n == 0 {
			return nil, errors.New("a search found nothing")
		}
		times = append(times, time.Since(began))
	}
	return times, nil
}

// load writes snapshots, their vectors, the index and earlier answers by the product's own ways.
func load(ctx context.Context, st *store.ClickHouse, index memory.VectorIndex, set *recallSet, size int) error {
	for from := 0; from < size; from += loadBatch {
		n := min(loadBatch, size-from)
		snapshots, vectors, entries := make([]memory.Snapshot, n), make([]memory.ItemVector, n), make([]memory.IndexEntry, n)
		for i := range n {
			s := set.snapshot(from + i)
			vector, hash := set.vector(set.random(6, from+i), set.situation(from+i)), memory.TextHash(memory.SnapshotText(s))
			snapshots[i] = s
			vectors[i] = memory.ItemVector{Namespace: s.Namespace, Model: recallModel, ItemID: s.SnapshotID, TextHash: hash, Layer: memory.LayerSnapshot, Vector: vector}
			entries[i] = memory.IndexEntry{
				ID: s.SnapshotID, Namespace: s.Namespace, Layer: memory.LayerSnapshot, TaskType: s.TaskContext.TaskType, Tools: []string{s.Decision.ToolSelected},
				ErrorType: s.Outcome.ErrorType, Outcome: string(s.Outcome.Status), Trust: s.Trust, Status: s.Status, CreatedAt: s.Timestamp, TextHash: hash, Vector: vector,
			}
		}
		if err := st.InsertSnapshots(ctx, snapshots); err != nil {
			return fmt.Errorf("write snapshots: %w", err)
		}
		if err := st.InsertVectors(ctx, vectors); err != nil {
			return fmt.Errorf("write vectors: %w", err)
		}
		if err := index.Upsert(ctx, entries); err != nil {
			return fmt.Errorf("index: %w", err)
		}
	}
	served := make([]events.Event, min(size, servedBefore))
	for i := range served {
		random := set.random(7, i)
		items := make([]events.RecallItem, recall.DefaultTopK)
		for k := range items {
			items[k] = events.RecallItem{ID: set.snapshotID(random.IntN(size)), Layer: string(memory.LayerSnapshot), Score: random.Float64()}
		}
		served[i] = events.Event{
			ID: fmt.Sprintf("recall-%d", i), Namespace: recallNamespace, AgentID: "agent", SessionID: fmt.Sprintf("session-%d", i), TaskID: fmt.Sprintf("task-%d", i),
			Time: set.base.Add(time.Duration(i) * time.Minute), Kind: events.KindRecallServed,
			Data: data(events.RecallServed{TaskID: fmt.Sprintf("task-%d", i), Question: "an earlier question", Items: items}),
		}
	}
	for batch := range slices.Chunk(served, benchBatch) {
		if err := st.InsertEvents(ctx, batch); err != nil {
			return fmt.Errorf("write earlier answers: %w", err)
		}
	}
	return nil
}

// settle waits until ClickHouse has merged and indexed what was written: what is measured is a memory at rest.
func settle(ctx context.Context, st *store.ClickHouse) error {
	const busy = `SELECT (SELECT count() FROM system.merges WHERE database = currentDatabase()) +
		(SELECT count() FROM system.mutations WHERE database = currentDatabase() AND NOT is_done)`
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	const quiet = 10 // Looks in a row that see no work.
	for idle := 0; idle < quiet; {
		var out bytes.Buffer
		if err := st.Query(ctx, busy, "TSV", &out); err != nil {
			return fmt.Errorf("look whether ClickHouse is at rest: %w", err)
		}
		idle++
		if strings.TrimSpace(out.String()) != "0" {
			idle = 0
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until ClickHouse is at rest: %w", ctx.Err())
		case <-time.After(samplePause):
		}
	}
	return nil
}

func askAll(ctx context.Context, service *recall.Service, set *recallSet, questions []asked) (times []time.Duration, found int, example string, err error) {
	for i, q := range questions {
		began := time.Now()
		answer, err := service.Recall(withVector(ctx, q.vector), recall.Question{Namespace: recallNamespace, Text: q.text, TaskType: q.taskType})
		if err != nil {
			return nil, 0, "", fmt.Errorf("recall: %w", err)
		}
		times = append(times, time.Since(began))
		if answer.Notice != "" && len(answer.Items) > 0 {
			return nil, 0, "", fmt.Errorf("recall answered with a notice, so that its time says little: %s", answer.Notice)
		}
		if len(answer.Items) == 0 {
			continue
		}
		if _, tool, _, _ := set.parts(q.situation); strings.Contains(answer.Items[0].Text, tool) {
			found++
		}
		if i == 0 {
			example = q.text + " → " + answer.Items[0].Lesson
		}
	}
	return times, found, example, nil
}

func checkAll(ctx context.Context, service *recall.Service, questions []asked) (times []time.Duration, known int, err error) {
	for _, q := range questions {
		began := time.Now()
		answer, err := service.Check(ctx, recall.Action{Namespace: recallNamespace, Tool: q.tool, Parameters: q.parameters})
		if err != nil {
			return nil, 0, fmt.Errorf("check: %w", err)
		}
		times = append(times, time.Since(began))
		if len(answer.Items) > 0 {
			known++
		}
	}
	return times, known, nil
}

// rawSearch asks ClickHouse for the nearest vectors of the index and nothing else, by the driver alone.
func rawSearch(ctx context.Context, url string, st *store.ClickHouse, questions []asked) ([]time.Duration, error) {
	var out bytes.Buffer
	if err := st.Query(ctx, "SELECT name FROM system.tables WHERE database = currentDatabase() AND startsWith(name, 'vectors_')", "TSV", &out); err != nil {
		return nil, fmt.Errorf("find the index: %w", err)
	}
	conn, err := clickhouse.Open(&clickhouse.Options{
		Addr: []string{strings.TrimPrefix(url, "http://")}, Protocol: clickhouse.HTTP, Auth: clickhouse.Auth{Database: st.Database()},
	})
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	defer conn.Close() //nolint:errcheck // The measurement is over.
	times := make([]time.Duration, 0, len(questions))
	for _, q := range questions {
		text, err := json.Marshal(q.vector)
		if err != nil {
			return nil, fmt.Errorf("encode a vector: %w", err)
		}
		query := fmt.Sprintf("SELECT id, cosineDistance(vector, %s) AS distance FROM %s ORDER BY distance LIMIT %d", text, strings.TrimSpace(out.String()), rawNearest)
		began := time.Now()
		if err := rawRows(ctx, conn, query); err != nil {
			return nil, err
		}
		times = append(times, time.Since(began))
	}
	return times, nil
}

func rawRows(ctx context.Context, conn driver.Conn, query string) (err error) {
	rows, err := conn.Query(ctx, query)
	if err != nil {
		return fmt.Errorf("search: %w", err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	n := 0
	for rows.Next() {
		var id string
		var distance float64
		if err := rows.Scan(&id, &distance); err != nil {
			return fmt.Errorf("read: %w", err)
		}
		n++
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read: %w", err)
	}
	if n == 0 {
		return errors.New("the raw search found nothing")
	}
	return nil
}

// embedding measures the local model with texts of questions, one at a time, none of them seen before. Without the model
// there are no such figures.
func embedding(ctx context.Context, o RecallOptions, report *Report) (err error) {
	dir, err := embed.FindLocal(o.EngineSetting)
	if errors.Is(err, embed.ErrNoLocal) {
		o.Logger.Warn("there is no local embedding model to measure", "error", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("find it: %w", err)
	}
	local, err := embed.NewLocal(embed.LocalOptions{Dir: dir})
	if err != nil {
		return fmt.Errorf("set it up: %w", err)
	}
	e, err := embed.New(local, embed.Options{}) //nolint:contextcheck // It lives until it is closed.
	if err != nil {
		return errors.Join(fmt.Errorf("set it up: %w", err), local.Close())
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	began := time.Now()
	if err := e.Warm(ctx); err != nil {
		return fmt.Errorf("load it: %w", err)
	}
	report.Figures["embedding_load_seconds"] = time.Since(began).Seconds()
	set := newRecallSet(o.Seed)
	times := make([]time.Duration, 0, embeddings)
	for i := range embeddings {
		text := set.question(i, 1_000).text
		began := time.Now()
		if _, err := e.Embed(ctx, embed.Interactive, text); err != nil {
			return fmt.Errorf("embed: %w", err)
		}
		times = append(times, time.Since(began))
	}
	report.Figures["embedding_p50_ms"], report.Figures["embedding_p95_ms"] = percentile(times, 50), percentile(times, 95)
	return nil
}

// percentile is in milliseconds, by nearest rank.
func percentile(times []time.Duration, p int) float64 {
	if len(times) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(times))
	return float64(sorted[(len(sorted)*p+99)/100-1].Microseconds()) / 1000
}

// givenVectors gives each question the vector that was generated for it, whatever text recall makes of the question: the
// context carries it.
type givenVectors struct{}

type vectorKey struct{}

func withVector(ctx context.Context, vector []float32) context.Context {
	return context.WithValue(ctx, vectorKey{}, vector)
}

func (givenVectors) Embed(ctx context.Context, text string) ([]float32, error) {
	vector, is := ctx.Value(vectorKey{}).([]float32)
	if !is {
		return nil, fmt.Errorf("no vector was generated for %q", text)
	}
	return vector, nil
}

func (givenVectors) Identity() string { return recallModel }

// Calibrated is the cosine: generated vectors of different situations have none.
func (givenVectors) Calibrated(cosine float64) float64 { return max(0, cosine) }

// unrecorded takes no note of answers: the product hands them to a publisher without waiting.
type unrecorded struct{}

func (unrecorded) Record(events.Event) error { return nil }

// stopwatch tells how long each part of an answer takes. Parts that run side by side overlap.
type stopwatch struct {
	memory.ItemReader
	vectors memory.VectorIndex

	mu    sync.Mutex
	times map[string][]time.Duration
}

func newStopwatch(items memory.ItemReader, vectors memory.VectorIndex) *stopwatch {
	return &stopwatch{ItemReader: items, vectors: vectors, times: map[string][]time.Duration{}}
}

func (w *stopwatch) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.times)
}

func (w *stopwatch) taken() map[string][]time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.times
}

func (w *stopwatch) stop(part string, began time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.times[part] = append(w.times[part], time.Since(began))
}

func (w *stopwatch) Snapshots(ctx context.Context, f memory.ItemFilter) ([]memory.Snapshot, error) {
	defer w.stop("snapshots", time.Now())
	return w.ItemReader.Snapshots(ctx, f) //nolint:wrapcheck // A stopwatch adds nothing.
}

func (w *stopwatch) Rules(ctx context.Context, f memory.ItemFilter) ([]memory.Rule, error) {
	defer w.stop("rules", time.Now())
	return w.ItemReader.Rules(ctx, f) //nolint:wrapcheck // As above.
}

func (w *stopwatch) Relations(ctx context.Context, namespace string, ids []string) ([]memory.Relation, error) {
	defer w.stop("relations", time.Now())
	return w.ItemReader.Relations(ctx, namespace, ids) //nolint:wrapcheck // As above.
}

func (w *stopwatch) Uses(ctx context.Context, namespace string, ids []string) (map[string]memory.ItemUse, error) {
	defer w.stop("uses", time.Now())
	return w.ItemReader.Uses(ctx, namespace, ids) //nolint:wrapcheck // As above.
}

func (w *stopwatch) Similarities(ctx context.Context, namespace, model string, vector []float32, ids []string, asOf time.Time) (map[string][]memory.TextSimilarity, error) {
	defer w.stop("similarities", time.Now())
	return w.ItemReader.Similarities(ctx, namespace, model, vector, ids, asOf) //nolint:wrapcheck // As above.
}

func (w *stopwatch) Lexical(ctx context.Context, q memory.LexicalQuery) ([]memory.Candidate, error) {
	defer w.stop("words", time.Now())
	return w.ItemReader.Lexical(ctx, q) //nolint:wrapcheck // As above.
}

// index is the vector index with the same stopwatch.
func (w *stopwatch) index() memory.VectorIndex { return timedIndex{w.vectors, w} }

type timedIndex struct {
	memory.VectorIndex
	watch *stopwatch
}

func (t timedIndex) Search(ctx context.Context, q memory.VectorQuery) ([]memory.Candidate, error) {
	defer t.watch.stop("vectors", time.Now())
	return t.VectorIndex.Search(ctx, q) //nolint:wrapcheck // As above.
}
