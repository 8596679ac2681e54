package reflect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
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

// maxSiblings is how many other tasks of a goal a task is compared with, the latest first.
const maxSiblings = 20

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

	oldSnapshots []memory.Snapshot
	oldMemories  []memory.Memory
	relations    []memory.Relation
	kinds        []memory.FindingKind
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
	return b.plan(ctx, task, evs, task.Revision, true, 0)
}

// Reflect reflects one revision of a task and stores what comes of it. Repeating it changes nothing; a revision that is
// older than one that was reflected is left alone. The error is memory.ErrNotFound when the task has no events (it was
// erased), memory.ErrRejected when the record can never take what came of it, and otherwise to be tried again.
func (r *Reflector) Reflect(ctx context.Context, request memory.ReflectionRequest) (memory.TaskReflection, error) {
	key := keyOf(request)
	last, err := r.opts.Ledger.Reflections(ctx, []memory.TaskKey{key})
	if err != nil {
		return memory.TaskReflection{}, fmt.Errorf("read what was reflected of task %q: %w", key.TaskID, err)
	}
	if done, was := last[key]; was && done.Revision >= request.Revision {
		return done, nil
	}
	return r.reflect(ctx, request, 0)
}

// Again reflects a task anew although its revision was reflected already, because the critics, the model or the task's
// siblings may have changed. Its versions replace those of the same revision.
func (r *Reflector) Again(ctx context.Context, request memory.ReflectionRequest) (memory.TaskReflection, error) {
	return r.reflect(ctx, request, uint64(max(r.opts.Now().UnixMilli(), 1)))
}

func (r *Reflector) reflect(ctx context.Context, request memory.ReflectionRequest, seq uint64) (memory.TaskReflection, error) {
	began := time.Now()
	b, task, evs, err := r.load(ctx, request)
	if err != nil {
		return memory.TaskReflection{}, err
	}
	p, err := b.plan(ctx, task, evs, request.Revision, request.Closed, seq)
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
	return b, task, evs, b.readStanding(ctx, []memory.TaskKey{key})
}

// plan decides what is to be stored.
func (b *reading) plan(ctx context.Context, task memory.Task, evs []events.Event, revision uint64, closed bool, seq uint64) (Plan, error) {
	siblings, err := b.siblingsOf(ctx, task)
	if err != nil {
		return Plan{}, err
	}
	held, err := b.held(ctx, task)
	if err != nil {
		return Plan{}, err
	}
	a := memory.Analyse(task, siblings, evs, memory.AnalysisOptions{Known: held.errors, MinImportance: b.opts.MinImportance})
	p := Plan{
		Namespace: task.Namespace, TaskID: task.TaskID, Revision: revision, Closed: closed, ReflectedBy: criticEvidence, Dropped: a.Dropped,
		Snapshots: []memory.Snapshot{}, Memories: []memory.Memory{},
	}
	d := drafter{reading: b, task: task, evs: evs, analysis: a, held: held, plan: &p, version: memory.Version{
		TaskRevision: revision, Writer: writerReflector, WriterKind: memory.WriterMachine, Seq: seq,
	}}
	if err := d.snapshots(ctx); err != nil {
		return Plan{}, err
	}
	if err := d.memories(ctx); err != nil {
		return Plan{}, err
	}
	d.keepStanding()
	return p, nil
}

// siblingsOf are the other finished tasks of the goal.
func (b *reading) siblingsOf(ctx context.Context, task memory.Task) ([]memory.Task, error) {
	if task.GoalID == "" {
		return nil, nil
	}
	goal := [2]string{task.Namespace, task.GoalID}
	if _, read := b.siblings[goal]; !read {
		if err := b.readSiblings(ctx, task.Namespace, []string{task.GoalID}); err != nil {
			return nil, err
		}
	}
	var out []memory.Task
	for _, t := range b.siblings[goal] {
		if t.TaskID != task.TaskID && t.Finished {
			out = append(out, t)
		}
	}
	// One order, whatever the record's.
	slices.SortFunc(out, func(a, b memory.Task) int {
		return cmp.Or(a.EndedAt.Compare(b.EndedAt), strings.Compare(a.TaskID, b.TaskID))
	})
	return out, nil
}

// held is what memory holds about the tools that failed in a task.
type held struct {
	errors  map[string]bool
	lessons []string
}

// maxHeld is how many lessons on a tool are looked at.
const maxHeld = 50

func (b *reading) held(ctx context.Context, task memory.Task) (held, error) {
	out := held{errors: map[string]bool{}}
	seen := map[string]bool{}
	for _, s := range task.Steps {
		if s.Status != events.StatusFailure || seen[s.Tool] || len(seen) == 10 {
			continue
		}
		seen[s.Tool] = true
		snapshots, err := b.knownOf(ctx, task, s.Tool)
		if err != nil {
			return held{}, err
		}
		for _, known := range snapshots {
			if known.TaskID == task.TaskID {
				continue
			}
			out.errors[memory.KnownKey(s.Tool, memory.ErrorSignature(cmp.Or(known.Outcome.ErrorMessage, known.Outcome.ErrorType)))] = true
			if known.Reflection != nil && len(out.lessons) < 10 && !slices.Contains(out.lessons, known.Reflection.Lesson) {
				out.lessons = append(out.lessons, known.Reflection.Lesson)
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

// store writes in the order in which each part can be repeated: the record, then vectors and index.
func (r *Reflector) store(ctx context.Context, plans []*Plan) error {
	var snapshots []memory.Snapshot
	var memories []memory.Memory
	var relations []memory.Relation
	for _, p := range plans {
		snapshots = append(append(snapshots, p.Snapshots...), p.oldSnapshots...)
		memories = append(append(memories, p.Memories...), p.oldMemories...)
		relations = append(relations, p.relations...)
	}
	if len(snapshots) > 0 {
		if err := r.opts.Writer.InsertSnapshots(ctx, snapshots); err != nil {
			return fmt.Errorf("store %d snapshots: %w", len(snapshots), err)
		}
	}
	if len(memories) > 0 {
		if err := r.opts.Writer.InsertMemories(ctx, memories); err != nil {
			return fmt.Errorf("store %d memories: %w", len(memories), err)
		}
	}
	if len(relations) > 0 {
		if err := r.opts.Writer.InsertRelations(ctx, relations); err != nil {
			return fmt.Errorf("store %d relations: %w", len(relations), err)
		}
	}
	return r.indexing.put(ctx, snapshots, memories)
}
