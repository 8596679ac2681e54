package reflect

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/memory"
)

// Who wrote an item, in its versions.
const (
	writerReflector = "reflector"
	writerKeeper    = "keeper"
)

// criticEvidence is who reflected when no model did.
const criticEvidence = "evidence"

// Reasons for which something was not kept, beside those of [memory.Analyse].
const (
	dropForgotten = "forgotten"
	dropGate      = "quality_gate"
	dropTrust     = "trust_gate"
)

// Options are the parts of a [Reflector]; those without a remark are required.
type Options struct {
	Tasks  TaskReader
	Ledger Ledger
	Items  ItemReader
	Writer ItemWriter
	// Index and Embedder may be nil: items are then found by words only.
	Index    VectorIndex
	Embedder Embedder
	// Reflection words lessons and Extraction finds memories; either may be nil, which leaves it to the evidence critic.
	Reflection Model
	Extraction Model
	// Examples replace the built-in examples of good lessons in what the model is asked, for a domain of one's own.
	Examples   []Example
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	// MinImportance is the threshold under which nothing is kept; 0 means memory.DefaultMinImportance.
	MinImportance float64
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Reflector turns revisions of tasks into snapshots and memories. Several goroutines may use it at once.
type Reflector struct {
	opts     Options
	indexing indexing
	metrics  metrics
}

type metrics struct {
	reflections *prometheus.CounterVec
	findings    *prometheus.CounterVec
	dropped     *prometheus.CounterVec
	fallbacks   *prometheus.CounterVec
	seconds     prometheus.Histogram
}

// New checks the options and registers the metrics.
func New(opts Options) (*Reflector, error) {
	if opts.Tasks == nil || opts.Ledger == nil || opts.Items == nil || opts.Writer == nil || opts.Logger == nil || opts.Registerer == nil {
		return nil, errors.New("new reflector: Tasks, Ledger, Items, Writer, Logger and Registerer are required")
	}
	if (opts.Index == nil) != (opts.Embedder == nil) {
		return nil, errors.New("new reflector: give both Index and Embedder or neither")
	}
	if opts.MinImportance < 0 || opts.MinImportance > 1 {
		return nil, fmt.Errorf("new reflector: MinImportance %v must be between 0 and 1", opts.MinImportance)
	}
	for i, e := range opts.Examples {
		if e.Evidence == "" || e.Lesson == "" {
			return nil, fmt.Errorf("new reflector: example %d needs evidence and lesson", i+1)
		}
	}
	if len(opts.Examples) == 0 {
		opts.Examples = examples()
	}
	opts.Now = clock(opts.Now)
	r := &Reflector{
		opts: opts, indexing: indexing{opts.Items, opts.Writer, opts.Index, opts.Embedder},
		metrics: metrics{
			reflections: prometheus.NewCounterVec(prometheus.CounterOpts{
				Name: "hindsight_reflections_total", Help: "Task revisions reflected, by who worded the lessons.",
			}, []string{"by"}),
			findings: prometheus.NewCounterVec(prometheus.CounterOpts{
				Name: "hindsight_reflection_kept_total", Help: "Decisions kept, by why they matter.",
			}, []string{"kind"}),
			dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
				Name: "hindsight_reflection_dropped_total", Help: "Decisions not kept, by reason.",
			}, []string{"reason"}),
			fallbacks: prometheus.NewCounterVec(prometheus.CounterOpts{
				Name: "hindsight_reflection_fallbacks_total", Help: "Reflections in which the evidence critic stood in for the model, by reason.",
			}, []string{"reason"}),
			seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
				Name: "hindsight_reflection_seconds", Help: "Duration of one reflection.", Buckets: prometheus.ExponentialBuckets(0.01, 4, 8),
			}),
		},
	}
	for _, c := range []prometheus.Collector{r.metrics.reflections, r.metrics.findings, r.metrics.dropped, r.metrics.fallbacks, r.metrics.seconds} {
		if err := opts.Registerer.Register(c); err != nil {
			return nil, fmt.Errorf("register reflection metrics: %w", err)
		}
	}
	if opts.Embedder == nil {
		opts.Logger.Info("no embedding model: what is learnt is found by words only")
	}
	return r, nil
}

// Plan is what a reflection stores, before it is stored.
type Plan struct {
	Namespace string            `json:"namespace"`
	TaskID    string            `json:"task_id"`
	Revision  uint64            `json:"revision"`
	Closed    bool              `json:"closed"`
	Snapshots []memory.Snapshot `json:"snapshots"`
	Memories  []memory.Memory   `json:"memories"`
	// Superseded are items of earlier revisions that this one does not have.
	Superseded []string `json:"superseded,omitempty"`
	// Discarded are decisions that were looked at and not kept.
	Discarded []Discarded `json:"discarded,omitempty"`
	// Dropped counts all that was not kept, by reason.
	Dropped map[string]int `json:"dropped,omitempty"`
	// ReflectedBy is evidence or the model's name; Fallback says why the evidence critic stood in for the model.
	ReflectedBy string `json:"reflected_by"`
	Fallback    string `json:"fallback,omitempty"`
	// Basis is the hash of what it rests on beside the task.
	Basis string `json:"basis,omitempty"`

	// kept counts snapshots and memories, unchanged holds those that the record has already as they are.
	kept         int
	unchanged    map[string]bool
	oldSnapshots []memory.Snapshot
	oldMemories  []memory.Memory
	relations    []memory.Relation
	kinds        []memory.FindingKind
	// outline is the task, and concerned says that its reflection rests on others at all.
	outline   memory.TaskOutline
	concerned bool
}

// Discarded is a decision that was not kept, and why.
type Discarded struct {
	Kind   memory.FindingKind `json:"kind"`
	Step   int                `json:"step"`
	Tool   string             `json:"tool"`
	Lesson string             `json:"lesson,omitempty"`
	Reason string             `json:"reason"`
}

// Plan looks at a task as it is and says what a reflection would store and drop. It stores nothing. The error is
// memory.ErrNotFound when there is no such task.
func (r *Reflector) Plan(ctx context.Context, key memory.TaskKey) (Plan, error) {
	b, task, evs, err := r.load(ctx, memory.ReflectionRequest{Namespace: key.Namespace, TaskID: key.TaskID, Closed: true})
	if err != nil {
		return Plan{}, err
	}
	return b.plan(ctx, task, evs, task.Revision, true)
}

// Reflect reflects one revision of a task and stores what comes of it. Repeating it changes nothing as long as its siblings
// and what is known of its errors are the same; a revision that is older than one that was reflected is left alone. The error is memory.ErrNotFound when the task has no events (it was
// erased), memory.ErrRejected when the record can never take what came of it, and otherwise to be tried again.
func (r *Reflector) Reflect(ctx context.Context, request memory.ReflectionRequest) (memory.TaskReflection, error) {
	key := keyOf(request)
	last, err := r.opts.Ledger.Reflections(ctx, []memory.TaskKey{key})
	if err != nil {
		return memory.TaskReflection{}, fmt.Errorf("read what was reflected of task %q: %w", key.TaskID, err)
	}
	done, was := last[key]
	if !was {
		return r.reflect(ctx, request, nil)
	}
	if done.Revision > request.Revision {
		return done, nil
	}
	return r.reflect(ctx, request, &done)
}

// Again reflects a task anew although its revision was reflected already on the same basis, because the critics or the
// model may have changed. Its versions replace those of the same revision.
func (r *Reflector) Again(ctx context.Context, request memory.ReflectionRequest) (memory.TaskReflection, error) {
	return r.reflect(ctx, request, nil)
}

// reflect reflects a revision unless it is what was done before, on the same basis.
func (r *Reflector) reflect(ctx context.Context, request memory.ReflectionRequest, done *memory.TaskReflection) (memory.TaskReflection, error) {
	began := time.Now()
	b, task, evs, err := r.load(ctx, request)
	if err != nil {
		return memory.TaskReflection{}, err
	}
	if done != nil && b.stillHolds(request, *done) {
		return *done, nil
	}
	p, err := b.plan(ctx, task, evs, request.Revision, request.Closed)
	if err != nil {
		return memory.TaskReflection{}, err
	}
	if err := r.finish(ctx, []*Plan{&p}, began); err != nil {
		return memory.TaskReflection{}, err
	}
	return r.reflectionOf(&p), nil
}

func (r *Reflector) count(p *Plan, took time.Duration) {
	by := "model"
	if p.ReflectedBy == criticEvidence {
		by = criticEvidence
	}
	r.metrics.reflections.WithLabelValues(by).Inc()
	if p.Fallback != "" {
		r.metrics.fallbacks.WithLabelValues(p.Fallback).Inc()
	}
	for _, k := range p.kinds {
		r.metrics.findings.WithLabelValues(string(k)).Inc()
	}
	for reason, n := range p.Dropped {
		r.metrics.dropped.WithLabelValues(reason).Add(float64(n))
	}
	r.metrics.seconds.Observe(took.Seconds())
}

// load reads the task and what the record holds of it.
func (r *Reflector) load(ctx context.Context, request memory.ReflectionRequest) (*reading, memory.Task, []events.Event, error) {
	key := keyOf(request)
	stored, err := r.opts.Tasks.TaskEvents(ctx, []memory.TaskKey{key})
	if err != nil {
		return nil, memory.Task{}, nil, fmt.Errorf("read task %q: %w", key.TaskID, err)
	}
	task, evs, err := built(request, stored[key])
	if err != nil {
		return nil, memory.Task{}, nil, err
	}
	b := r.reading()
	if err := b.readBases(ctx, []memory.Task{task}); err != nil {
		return nil, memory.Task{}, nil, err
	}
	return b, task, evs, b.readStanding(ctx, []memory.TaskKey{key})
}

// plan decides what is to be stored. What the task's reflection rests on was read before.
func (b *reading) plan(ctx context.Context, task memory.Task, evs []events.Event, revision uint64, closed bool) (Plan, error) {
	basis := b.bases[memory.TaskKey{Namespace: task.Namespace, TaskID: task.TaskID}]
	siblings, err := b.siblingsOf(ctx, basis)
	if err != nil {
		return Plan{}, err
	}
	peers, err := b.peersOf(ctx, basis)
	if err != nil {
		return Plan{}, err
	}
	a := memory.Analyse(task, siblings, evs, memory.AnalysisOptions{Known: basis.Known, Peers: peers, MinImportance: b.opts.MinImportance})
	p := Plan{
		Namespace: task.Namespace, TaskID: task.TaskID, Revision: revision, Closed: closed, ReflectedBy: criticEvidence, Dropped: a.Dropped,
		Snapshots: []memory.Snapshot{}, Memories: []memory.Memory{}, Basis: basis.Hash(), unchanged: map[string]bool{},
	}
	p.outline = memory.OutlineOf(task)
	p.concerned = task.GoalID != "" || len(p.outline.Sightings) > 0 || task.Status == events.StatusFailure
	d := drafter{reading: b, task: task, evs: evs, analysis: a, plan: &p, version: memory.Version{
		TaskRevision: revision, Writer: writerReflector, WriterKind: memory.WriterMachine,
	}}
	if err := d.snapshots(ctx); err != nil {
		return Plan{}, err
	}
	if err := d.memories(ctx); err != nil {
		return Plan{}, err
	}
	p.kept = len(p.Snapshots) + len(p.Memories)
	d.keepStanding()
	return p, nil
}

const (
	// maxHeld is how many lessons on a tool are looked at, and maxTold how many a model is told.
	maxHeld = 50
	maxTold = 10
)

// held are lessons that memory holds about the tools that failed in a task. They are for the wording of a model alone: what
// is kept never depends on what is remembered at the moment.
func (b *reading) held(ctx context.Context, task memory.Task) ([]string, error) {
	var out []string
	seen := map[string]bool{}
	for _, s := range task.Steps {
		if s.Status != events.StatusFailure || seen[s.Tool] || len(seen) == maxTold {
			continue
		}
		seen[s.Tool] = true
		snapshots, err := b.knownOf(ctx, task, s.Tool)
		if err != nil {
			return nil, err
		}
		for _, known := range snapshots {
			if known.TaskID != task.TaskID && known.Reflection != nil && len(out) < maxTold && !slices.Contains(out, known.Reflection.Lesson) {
				out = append(out, known.Reflection.Lesson)
			}
		}
	}
	return out, nil
}

// knownOf are lessons about a tool in tasks of one type, the latest first.
func (b *reading) knownOf(ctx context.Context, task memory.Task, tool string) ([]memory.Snapshot, error) {
	key := [3]string{task.Namespace, task.TaskType, tool}
	if known, read := b.known[key]; read {
		return known, nil
	}
	known, err := b.opts.Items.Snapshots(ctx, memory.ItemFilter{
		Namespace: task.Namespace, TaskType: task.TaskType, Tool: tool, Statuses: []memory.ItemStatus{memory.ItemActive}, Newest: true, Limit: maxHeld,
	})
	if err != nil {
		return nil, fmt.Errorf("read what is known about %s: %w", tool, err)
	}
	b.known[key] = known
	return known, nil
}

// store writes in the order in which each part can be repeated: the record, then vectors and index. What the record holds
// already is not written again; whether its vector is there is not known.
func (r *Reflector) store(ctx context.Context, plans []*Plan) error {
	var snapshots, newSnapshots []memory.Snapshot
	var memories, newMemories []memory.Memory
	var relations []memory.Relation
	for _, p := range plans {
		snapshots = append(append(snapshots, p.Snapshots...), p.oldSnapshots...)
		memories = append(append(memories, p.Memories...), p.oldMemories...)
		for _, s := range p.Snapshots {
			if !p.unchanged[s.SnapshotID] {
				newSnapshots = append(newSnapshots, s)
			}
		}
		for _, m := range p.Memories {
			if !p.unchanged[m.MemoryID] {
				newMemories = append(newMemories, m)
			}
		}
		newSnapshots, newMemories = append(newSnapshots, p.oldSnapshots...), append(newMemories, p.oldMemories...)
		relations = append(relations, p.relations...)
	}
	if len(newSnapshots) > 0 {
		if err := r.opts.Writer.InsertSnapshots(ctx, newSnapshots); err != nil {
			return fmt.Errorf("store %d snapshots: %w", len(newSnapshots), err)
		}
	}
	if len(newMemories) > 0 {
		if err := r.opts.Writer.InsertMemories(ctx, newMemories); err != nil {
			return fmt.Errorf("store %d memories: %w", len(newMemories), err)
		}
	}
	if len(relations) > 0 {
		if err := r.opts.Writer.InsertRelations(ctx, relations); err != nil {
			return fmt.Errorf("store %d relations: %w", len(relations), err)
		}
	}
	return r.indexing.put(ctx, snapshots, memories)
}
