package reflect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/memory"
)

// maxBatchSiblings bounds how many tasks of all goals of a batch are looked at, the latest first.
const maxBatchSiblings = 2000

// reading remembers what was read for the tasks of one batch, so that what several of them need is read once.
type reading struct {
	*Reflector
	siblings map[[2]string][]memory.Task // by namespace and goal
	known    map[[3]string][]memory.Snapshot
	standing map[memory.TaskKey]standing
}

// standing is what the record holds of one task.
type standing struct {
	snapshots []memory.Snapshot
	memories  []memory.Memory
}

func (r *Reflector) reading() *reading {
	return &reading{
		Reflector: r, siblings: map[[2]string][]memory.Task{}, known: map[[3]string][]memory.Snapshot{}, standing: map[memory.TaskKey]standing{},
	}
}

// readStanding reads what the record holds of all the tasks.
func (b *reading) readStanding(ctx context.Context, keys []memory.TaskKey) error {
	ids := map[string][]string{}
	for _, key := range keys {
		ids[key.Namespace] = append(ids[key.Namespace], key.TaskID)
		b.standing[key] = standing{}
	}
	for namespace, tasks := range ids {
		filter := memory.ItemFilter{Namespace: namespace, TaskIDs: tasks}
		snapshots, err := b.opts.Items.Snapshots(ctx, filter)
		if err != nil {
			return fmt.Errorf("read the snapshots of %d tasks: %w", len(tasks), err)
		}
		memories, err := b.opts.Items.Memories(ctx, filter)
		if err != nil {
			return fmt.Errorf("read the memories of %d tasks: %w", len(tasks), err)
		}
		for _, s := range snapshots {
			key := memory.TaskKey{Namespace: namespace, TaskID: s.TaskID}
			had := b.standing[key]
			had.snapshots = append(had.snapshots, s)
			b.standing[key] = had
		}
		for _, m := range memories {
			key := memory.TaskKey{Namespace: namespace, TaskID: m.TaskID}
			had := b.standing[key]
			had.memories = append(had.memories, m)
			b.standing[key] = had
		}
	}
	return nil
}

// readSiblings reads the latest tasks of goals.
func (b *reading) readSiblings(ctx context.Context, namespace string, goals []string) error {
	for _, goal := range goals {
		b.siblings[[2]string{namespace, goal}] = nil
	}
	for t, err := range b.opts.Tasks.Tasks(ctx, memory.TaskFilter{Namespace: namespace, GoalIDs: goals, Newest: true, Limit: maxBatchSiblings}) {
		if err != nil {
			return fmt.Errorf("read tasks of %d goals: %w", len(goals), err)
		}
		key := [2]string{namespace, t.GoalID}
		if had := b.siblings[key]; len(had) <= maxSiblings {
			b.siblings[key] = append(had, t)
		}
	}
	return nil
}

// ReflectAll reflects several revisions of tasks as [Reflector.Reflect] does each, reading and writing for all of them at
// once. Of several revisions of one task the highest is reflected. The errors are in the order of the requests.
func (r *Reflector) ReflectAll(ctx context.Context, requests []memory.ReflectionRequest) []error {
	errs := make([]error, len(requests))
	fail := func(err error) []error {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	highest := map[memory.TaskKey]int{}
	for i, request := range requests {
		key := keyOf(request)
		if at, again := highest[key]; !again || request.Revision > requests[at].Revision {
			highest[key] = i
		}
	}
	keys := make([]memory.TaskKey, 0, len(highest))
	for i, request := range requests { // in the order of the requests
		if key := keyOf(request); highest[key] == i {
			keys = append(keys, key)
		}
	}
	last, err := r.opts.Ledger.Reflections(ctx, keys)
	if err != nil {
		return fail(fmt.Errorf("read what was reflected of %d tasks: %w", len(keys), err))
	}
	keys = slices.DeleteFunc(keys, func(key memory.TaskKey) bool {
		done, was := last[key]
		return was && done.Revision >= requests[highest[key]].Revision
	})
	if len(keys) == 0 {
		return errs
	}
	stored, err := r.opts.Tasks.TaskEvents(ctx, keys)
	if errors.Is(err, memory.ErrTooMuch) && len(keys) > 1 {
		for _, key := range keys { // each by itself is small enough, or cannot be read at all
			_, errs[highest[key]] = r.reflect(ctx, requests[highest[key]], 0)
		}
		return errs
	}
	if err != nil {
		return fail(fmt.Errorf("read %d tasks: %w", len(keys), err))
	}
	b := r.reading()
	if err := b.readStanding(ctx, keys); err != nil {
		return fail(err)
	}
	goals := map[string][]string{}
	for _, key := range keys {
		for _, e := range stored[key] {
			if e.GoalID != "" {
				if !slices.Contains(goals[key.Namespace], e.GoalID) {
					goals[key.Namespace] = append(goals[key.Namespace], e.GoalID)
				}
				break // the first that an event names is the task's, or is read on its own below
			}
		}
	}
	for namespace, ids := range goals {
		if err := b.readSiblings(ctx, namespace, ids); err != nil {
			return fail(err)
		}
	}
	plans := make([]*Plan, 0, len(keys))
	from := make([]int, 0, len(keys)) // plans[k] is of requests[from[k]]
	began := time.Now()
	for _, key := range keys {
		at := highest[key]
		task, evs, err := built(requests[at], stored[key])
		if err == nil {
			var p Plan
			if p, err = b.plan(ctx, task, evs, requests[at].Revision, requests[at].Closed, 0); err == nil {
				plans, from = append(plans, &p), append(from, at)
				continue
			}
		}
		errs[at] = err
	}
	err = r.finish(ctx, plans, began)
	if err != nil && len(plans) > 1 { // one of them may be what cannot be stored
		for k, p := range plans {
			errs[from[k]] = r.finish(ctx, []*Plan{p}, time.Now())
		}
		return errs
	}
	for k := range plans {
		errs[from[k]] = err
	}
	return errs
}

// finish stores what plans hold, and then that they were made.
func (r *Reflector) finish(ctx context.Context, plans []*Plan, began time.Time) error {
	if len(plans) == 0 {
		return nil
	}
	if err := r.store(ctx, plans); err != nil {
		return fmt.Errorf("reflect %d tasks, the first %q: %w", len(plans), plans[0].TaskID, err)
	}
	done := make([]memory.TaskReflection, len(plans))
	for i, p := range plans {
		done[i] = r.reflectionOf(p)
	}
	if err := r.opts.Ledger.InsertReflections(ctx, done); err != nil {
		return fmt.Errorf("note that %d tasks were reflected, the first %q: %w", len(plans), plans[0].TaskID, err)
	}
	took := time.Since(began) / time.Duration(len(plans))
	for _, p := range plans {
		r.count(p, took)
	}
	return nil
}

// reflectionOf is what is noted of a plan once it is stored.
func (r *Reflector) reflectionOf(p *Plan) memory.TaskReflection {
	return memory.TaskReflection{
		Namespace: p.Namespace, TaskID: p.TaskID, Revision: p.Revision, Closed: p.Closed, ReflectedBy: p.ReflectedBy, Fallback: p.Fallback,
		Kept: len(p.Snapshots) + len(p.Memories), Dropped: p.Dropped, RecordedAt: r.opts.Now().UTC(),
	}
}

func keyOf(request memory.ReflectionRequest) memory.TaskKey {
	return memory.TaskKey{Namespace: request.Namespace, TaskID: request.TaskID}
}

// built is the task of a request, from its events.
func built(request memory.ReflectionRequest, stored []memory.StoredEvent) (memory.Task, []events.Event, error) {
	evs := memory.Envelopes(stored)
	if len(evs) == 0 {
		return memory.Task{}, nil, fmt.Errorf("reflect task %q of namespace %s: %w", request.TaskID, request.Namespace, memory.ErrNotFound)
	}
	return memory.BuildTask(evs, request.Closed), evs, nil
}
