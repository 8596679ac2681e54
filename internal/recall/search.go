package recall

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/hindsight-memory/hindsight/internal/memory"
)

const (
	// perSearch is how many candidates each search may bring.
	perSearch = 20
	// maxRecent is how many memories of an entity are looked at.
	maxRecent = 50
	// maxAsOf is how many items of each layer an answer about the past is chosen from.
	maxAsOf = 5000
)

// ranked is what was found, best first, before it is cut to the answer.
type ranked struct {
	items   []Item
	notices []string
}

// pool collects candidates of concurrent searches.
type pool struct {
	mu      sync.Mutex
	found   map[string]*candidate
	notices []string
	// merged leads from an item to the one that it was merged into.
	merged map[string]string
}

func newPool() *pool { return &pool{found: map[string]*candidate{}, merged: map[string]string{}} }

// candidate is an item that some search found.
type candidate struct {
	id       string
	layer    memory.Layer
	lexical  float64
	exact    []string
	byVector bool
	// direct are hits that need no similarity: an entity, a rule, one hop from another.
	direct bool
}

func (p *pool) get(id string, layer memory.Layer) *candidate {
	c := p.found[id]
	if c == nil {
		c = &candidate{id: id, layer: layer}
		p.found[id] = c
	}
	return c
}

func (p *pool) notice(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.Contains(p.notices, text) {
		p.notices = append(p.notices, text)
	}
}

func (p *pool) ids(layer memory.Layer) []string {
	var ids []string
	for _, c := range p.found {
		if c.layer == layer {
			ids = append(ids, c.id)
		}
	}
	slices.Sort(ids)
	return ids
}

// search answers from candidates of all searches.
func (s *Service) search(ctx context.Context, q Question, way Way) (ranked, error) {
	p := newPool()
	vector, err := s.collect(ctx, q, way, p)
	if err != nil {
		return ranked{}, err
	}
	if err := s.follow(ctx, q, p); err != nil {
		return ranked{}, err
	}
	var (
		loaded  map[string]record
		cosines map[string][]memory.TextSimilarity
		uses    map[string]memory.ItemUse
	)
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		loaded, err = s.load(gctx, q, p)
		return err
	})
	g.Go(func() (err error) {
		cosines, err = s.cosines(gctx, q, vector, p)
		return err
	})
	g.Go(func() (err error) {
		if uses, err = s.o.Items.Uses(gctx, q.Namespace, slices.Sorted(maps.Keys(p.found))); err != nil {
			return fmt.Errorf("count recalls: %w", err)
		}
		return nil
	})
	if err := g.Wait(); err != nil {
		return ranked{}, err //nolint:wrapcheck // Each says what it was doing.
	}
	return s.rank(q, way, p, loaded, s.similarities(p, loaded, cosines), uses), nil
}

// collect runs the searches side by side. One that is away costs a notice, not the answer, unless it is the record.
func (s *Service) collect(ctx context.Context, q Question, way Way, p *pool) (vector []float32, err error) {
	bounded, cancel := context.WithTimeout(ctx, s.o.Deadline)
	defer cancel()
	g, gctx := errgroup.WithContext(ctx)
	if q.Text != "" {
		if s.o.Embedder == nil {
			p.notice(lackModel.notice(q.Text))
		} else {
			g.Go(func() error {
				var err error
				vector, err = s.byVector(bounded, q, p)
				return s.optional(gctx, q, p, err)
			})
		}
		g.Go(func() error { return s.byWords(gctx, q, p) })
	}
	if wants(q, memory.LayerRule) && way == WayExperience {
		g.Go(func() error { return s.byRules(gctx, q, p) })
	}
	if q.Entity != "" && wants(q, memory.LayerMemory) {
		g.Go(func() error { return s.byEntity(gctx, q, p) })
	}
	if q.TaskType != "" && q.Text == "" && wants(q, memory.LayerSnapshot) {
		g.Go(func() error { return s.byTags(gctx, q, p) })
	}
	if !q.AsOf.IsZero() {
		g.Go(func() error { return s.everything(gctx, q, p) })
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return vector, nil
}

// errIndex marks what went wrong after the question had its vector.
var errIndex = errors.New("search vectors")

// optional turns the failure of the vector search, which an answer can do without, into a notice.
func (s *Service) optional(ctx context.Context, q Question, p *pool, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil { // it is the question that ended
		return context.Cause(ctx)
	}
	late := errors.Is(err, context.DeadlineExceeded)
	lacking := lackModelNow
	switch {
	case errors.Is(err, ErrNoModel):
		p.notice(lackModel.notice(q.Text))
		return nil
	case errors.Is(err, errIndex) && late:
		lacking = lackIndexLate
	case errors.Is(err, errIndex):
		lacking = lackIndex
	case late:
		lacking = lackModelLate
	}
	if errors.Is(err, memory.ErrUnavailable) { // whoever watches it has told
		s.o.Logger.Debug("a recall is answered without vector search", "error", err)
	} else {
		s.o.Logger.Warn("a search of a recall failed; answering without it", "search", "vector search", "error", err)
	}
	p.notice(lacking.notice(q.Text))
	return nil
}

// byVector searches the index. It gives the vector of the question even when the index does not answer.
func (s *Service) byVector(ctx context.Context, q Question, p *pool) ([]float32, error) {
	vector, err := s.o.Embedder.Embed(ctx, memory.QuestionText(q.TaskType, q.Text))
	if err != nil {
		return nil, fmt.Errorf("embed the question: %w", err)
	}
	if !q.AsOf.IsZero() {
		return vector, nil // the index knows only the present
	}
	queries := []memory.VectorQuery{{Namespace: q.Namespace, Vector: vector, Layers: q.Layers, Limit: perSearch}}
	if q.TaskType != "" {
		typed := queries[0]
		typed.TaskType = q.TaskType
		queries = append(queries, typed)
	}
	g, gctx := errgroup.WithContext(ctx)
	for _, query := range queries {
		g.Go(func() error {
			hits, err := s.o.Index.Search(gctx, query)
			if err != nil {
				return fmt.Errorf("%w: %w", errIndex, err)
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			for _, hit := range hits {
				p.get(hit.ID, hit.Layer).byVector = true
			}
			return nil
		})
	}
	return vector, g.Wait() //nolint:wrapcheck // Wrapped above.
}

func (s *Service) byWords(ctx context.Context, q Question, p *pool) error {
	hits, err := s.o.Items.Lexical(ctx, memory.LexicalQuery{
		Namespace: q.Namespace, Text: q.Text, Layers: q.Layers, Statuses: active, Limit: perSearch,
	})
	if err != nil {
		return fmt.Errorf("search words: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, hit := range hits {
		c := p.get(hit.ID, hit.Layer)
		c.lexical, c.exact = hit.Score, hit.Exact
	}
	return nil
}

func (s *Service) byRules(ctx context.Context, q Question, p *pool) error {
	if q.TaskType == "" {
		return nil
	}
	rules, err := s.o.Items.Rules(ctx, memory.ItemFilter{
		Namespace: q.Namespace, TaskType: q.TaskType, Statuses: active, AsOf: q.AsOf, Limit: perSearch,
	})
	if err != nil {
		return fmt.Errorf("read rules: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range rules {
		p.get(r.RuleID, memory.LayerRule).direct = true
	}
	return nil
}

func (s *Service) byEntity(ctx context.Context, q Question, p *pool) error {
	memories, err := s.o.Items.Memories(ctx, memory.ItemFilter{
		Namespace: q.Namespace, Entity: q.Entity, Statuses: active, AsOf: q.AsOf, Newest: true, Limit: maxRecent,
	})
	if err != nil {
		return fmt.Errorf("read memories: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range memories {
		p.get(m.MemoryID, memory.LayerMemory).direct = true
	}
	return nil
}

func (s *Service) byTags(ctx context.Context, q Question, p *pool) error {
	snapshots, err := s.o.Items.Snapshots(ctx, memory.ItemFilter{
		Namespace: q.Namespace, TaskType: q.TaskType, Statuses: active, AsOf: q.AsOf, Newest: true, Limit: maxRecent,
	})
	if err != nil {
		return fmt.Errorf("read snapshots: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, snapshot := range snapshots {
		p.get(snapshot.SnapshotID, memory.LayerSnapshot).direct = true
	}
	return nil
}

// everything makes candidates of all that was active at a moment of the past, since no index knows it.
func (s *Service) everything(ctx context.Context, q Question, p *pool) error {
	filter := memory.ItemFilter{Namespace: q.Namespace, Statuses: active, AsOf: q.AsOf, Newest: true, Limit: maxAsOf}
	snapshots, err := s.o.Items.Snapshots(ctx, filter)
	if err != nil {
		return fmt.Errorf("read snapshots: %w", err)
	}
	memories, err := s.o.Items.Memories(ctx, filter)
	if err != nil {
		return fmt.Errorf("read memories: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, snapshot := range snapshots {
		p.get(snapshot.SnapshotID, memory.LayerSnapshot)
	}
	for _, m := range memories {
		p.get(m.MemoryID, memory.LayerMemory)
	}
	if len(snapshots) == maxAsOf || len(memories) == maxAsOf {
		p.notices = append(p.notices, fmt.Sprintf("answered from the newest %d items of that time", maxAsOf))
	}
	return nil
}

// follow adds what is one relation away: the canonical item for a merged one, items about the same entity, what a rule
// was derived from.
func (s *Service) follow(ctx context.Context, q Question, p *pool) error {
	if len(p.found) == 0 || !q.AsOf.IsZero() {
		return nil
	}
	relations, err := s.o.Items.Relations(ctx, q.Namespace, slices.Sorted(maps.Keys(p.found)))
	if err != nil {
		return fmt.Errorf("read relations: %w", err)
	}
	for _, r := range relations {
		from, known := p.found[r.FromID]
		if r.Removed || !known {
			continue
		}
		switch r.Kind {
		case memory.RelationMergedInto, memory.RelationSameEntity:
			if r.Kind == memory.RelationMergedInto {
				p.merged[r.FromID] = r.ToID
			}
			to := p.get(r.ToID, from.layer)
			to.lexical, to.byVector, to.direct = max(to.lexical, from.lexical), to.byVector || from.byVector, to.direct || from.direct
			to.exact = cmpSlices(to.exact, from.exact)
		case memory.RelationDerivedFrom, memory.RelationContradicts, memory.RelationSupersedes:
		}
	}
	return nil
}

func cmpSlices(a, b []string) []string {
	if len(a) > 0 {
		return a
	}
	return b
}

// cosines compares the question with the vectors of every candidate.
func (s *Service) cosines(ctx context.Context, q Question, vector []float32, p *pool) (map[string][]memory.TextSimilarity, error) {
	if vector == nil {
		return nil, nil
	}
	cosines, err := s.o.Items.Similarities(ctx, q.Namespace, s.o.Embedder.Identity(), vector, slices.Sorted(maps.Keys(p.found)), q.AsOf)
	if err != nil {
		return nil, fmt.Errorf("compare vectors: %w", err)
	}
	return cosines, nil
}

// similarities gives the calibrated similarity of every candidate: from the vector of its text, or of its newest one while
// that has none yet; else the share of the question's words that the item holds.
func (s *Service) similarities(p *pool, loaded map[string]record, cosines map[string][]memory.TextSimilarity) map[string]float64 {
	out := make(map[string]float64, len(p.found))
	for id, c := range p.found {
		out[id] = c.lexical
		texts := cosines[id]
		if len(texts) == 0 {
			continue
		}
		at := max(0, slices.IndexFunc(texts, func(t memory.TextSimilarity) bool { return t.TextHash == loaded[id].textHash }))
		out[id] = s.o.Embedder.Calibrated(texts[at].Cosine)
	}
	return out
}

// record is a candidate as the record has it now.
type record struct {
	item Item
	// textHash names the text that is embedded; empty for what has no vector.
	textHash string
	memory.Judged
	failed bool
	// ofCall is true for a rule about calls of its tool.
	ofCall    bool
	signature string // what makes two items say the same
	tool      string
	recorded  time.Time
}

// load reads every candidate from the record. What is not active, or not there, drops out: an index may be stale.
func (s *Service) load(ctx context.Context, q Question, p *pool) (map[string]record, error) {
	filter := func(layer memory.Layer) memory.ItemFilter {
		return memory.ItemFilter{Namespace: q.Namespace, IDs: p.ids(layer), Statuses: active, AsOf: q.AsOf}
	}
	var fromSnapshots, fromMemories, fromRules map[string]record
	g, gctx := errgroup.WithContext(ctx)
	if f := filter(memory.LayerSnapshot); len(f.IDs) > 0 && wants(q, memory.LayerSnapshot) {
		g.Go(func() error {
			snapshots, err := s.o.Items.Snapshots(gctx, f)
			if err != nil {
				return fmt.Errorf("read snapshots: %w", err)
			}
			fromSnapshots = make(map[string]record, len(snapshots))
			for _, snapshot := range snapshots {
				if snapshot.Reflection != nil {
					fromSnapshots[snapshot.SnapshotID] = ofSnapshot(snapshot)
				}
			}
			return nil
		})
	}
	if f := filter(memory.LayerMemory); len(f.IDs) > 0 && wants(q, memory.LayerMemory) {
		g.Go(func() error {
			memories, err := s.o.Items.Memories(gctx, f)
			if err != nil {
				return fmt.Errorf("read memories: %w", err)
			}
			now := cmp.Or(q.AsOf, s.o.Clock())
			fromMemories = make(map[string]record, len(memories))
			for _, m := range memories {
				if fits(m, q, now) {
					fromMemories[m.MemoryID] = ofMemory(m, now)
				}
			}
			return nil
		})
	}
	if f := filter(memory.LayerRule); len(f.IDs) > 0 && wants(q, memory.LayerRule) {
		g.Go(func() error {
			rules, err := s.o.Items.Rules(gctx, f)
			if err != nil {
				return fmt.Errorf("read rules: %w", err)
			}
			fromRules = make(map[string]record, len(rules))
			for _, r := range rules {
				fromRules[r.RuleID] = ofRule(r)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err //nolint:wrapcheck // Each says what it was doing.
	}
	out := make(map[string]record, len(p.found))
	for _, layer := range []map[string]record{fromSnapshots, fromMemories, fromRules} {
		maps.Copy(out, layer)
	}
	return out, nil
}

// fits keeps memories that may be shown: of the types asked for, true now, and either stated or seen often enough.
func fits(m memory.Memory, q Question, now time.Time) bool {
	switch {
	case len(q.MemoryTypes) > 0 && !slices.Contains(q.MemoryTypes, m.MemoryType):
		return false
	case m.Operation == memory.OperationDelete:
		return false
	case m.ValidTo != nil && !now.Before(*m.ValidTo):
		return false
	default:
		return true
	}
}

// active are the statuses that may be shown.
var active = []memory.ItemStatus{memory.ItemActive}

func wants(q Question, layer memory.Layer) bool {
	return len(q.Layers) == 0 || slices.Contains(q.Layers, layer)
}
