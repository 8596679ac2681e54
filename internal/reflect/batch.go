package reflect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/memory"
)

// siblingsPerRead is how many siblings are read at once.
const siblingsPerRead = 50

// reading remembers what was read for the tasks of one batch, so that what several of them need is read once.
type reading struct {
	*Reflector
	bases    map[memory.TaskKey]memory.Basis
	siblings map[memory.TaskKey]memory.Task
	peers    map[memory.TaskKey]memory.Peer
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
		Reflector: r, bases: map[memory.TaskKey]memory.Basis{}, siblings: map[memory.TaskKey]memory.Task{}, peers: map[memory.TaskKey]memory.Peer{}, known: map[[3]string][]memory.Snapshot{}, standing: map[memory.TaskKey]standing{},
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

// readBases reads what the reflections of the tasks rest on.
func (b *reading) readBases(ctx context.Context, tasks []memory.Task) error {
	outlines := make([]memory.TaskOutline, len(tasks))
	for i, t := range tasks {
		outlines[i] = memory.OutlineOf(t)
	}
	bases, err := memory.Bases(ctx, b.opts.Tasks, outlines)
	if err != nil {
		return fmt.Errorf("find out what the reflection of %d tasks rests on: %w", len(tasks), err)
	}
	maps.Copy(b.bases, bases)
	return nil
}

// stillHolds reports that what was done is what a request asks for: the same revision, on what is the basis now.
func (b *reading) stillHolds(request memory.ReflectionRequest, done memory.TaskReflection) bool {
	return done.Revision > request.Revision || done.Revision == request.Revision && done.Basis == b.bases[keyOf(request)].Hash()
}

// siblingsOf gives the siblings of a basis with their steps.
func (b *reading) siblingsOf(ctx context.Context, basis memory.Basis) ([]memory.Task, error) {
	keys := make([]memory.TaskKey, len(basis.Siblings))
	for i, s := range basis.Siblings {
		keys[i] = s.Key
	}
	if err := b.readSiblings(ctx, keys); err != nil {
		return nil, err
	}
	out := make([]memory.Task, 0, len(keys))
	for _, key := range keys {
		if t, is := b.siblings[key]; is {
			out = append(out, t)
		}
	}
	// One order, whatever the record's.
	slices.SortFunc(out, func(a, b memory.Task) int {
		return cmp.Or(a.EndedAt.Compare(b.EndedAt), strings.Compare(a.TaskID, b.TaskID))
	})
	return out, nil
}

// peersOf gives the peers of a basis with their steps.
func (b *reading) peersOf(ctx context.Context, basis memory.Basis) ([]memory.Peer, error) {
	keys := make([]memory.TaskKey, len(basis.Peers))
	for i, p := range basis.Peers {
		keys[i] = p.Key
	}
	if err := b.readSiblings(ctx, keys); err != nil {
		return nil, err
	}
	out := make([]memory.Peer, 0, len(keys))
	for _, key := range keys {
		if p, is := b.peers[key]; is {
			out = append(out, p)
		}
	}
	return out, nil
}

// readSiblings reads tasks that were not read yet.
func (b *reading) readSiblings(ctx context.Context, keys []memory.TaskKey) error {
	var missing []memory.TaskKey
	for _, key := range keys {
		if _, read := b.siblings[key]; !read && !slices.Contains(missing, key) {
			missing = append(missing, key)
		}
	}
	for most := siblingsPerRead; len(missing) > 0; {
		chunk := missing[:min(len(missing), most)]
		stored, err := b.opts.Tasks.TaskEvents(ctx, chunk)
		if errors.Is(err, memory.ErrTooMuch) && len(chunk) > 1 {
			most = len(chunk) / 2
			continue
		}
		if err != nil {
			return fmt.Errorf("read %d siblings: %w", len(chunk), err)
		}
		for _, key := range chunk {
			if evs := memory.Envelopes(stored[key]); len(evs) > 0 { // else it was erased
				b.siblings[key] = memory.BuildTask(evs, true)
				b.peers[key] = memory.NewPeer(b.siblings[key], evs)
			}
		}
		missing = missing[len(chunk):]
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
	keys = slices.DeleteFunc(keys, func(key memory.TaskKey) bool { return last[key].Revision > requests[highest[key]].Revision })
	if len(keys) == 0 {
		return errs
	}
	stored, err := r.opts.Tasks.TaskEvents(ctx, keys)
	if errors.Is(err, memory.ErrTooMuch) && len(keys) > 1 {
		for _, key := range keys { // each by itself is small enough, or cannot be read at all
			_, errs[highest[key]] = r.Reflect(ctx, requests[highest[key]])
		}
		return errs
	}
	if err != nil {
		return fail(fmt.Errorf("read %d tasks: %w", len(keys), err))
	}
	b := r.reading()
	tasks := make([]memory.Task, 0, len(keys))
	for _, key := range keys {
		task, _, err := built(requests[highest[key]], stored[key])
		if err != nil {
			errs[highest[key]] = err
			continue
		}
		tasks = append(tasks, task)
	}
	if err := b.readBases(ctx, tasks); err != nil {
		return fail(err)
	}
	tasks = slices.DeleteFunc(tasks, func(t memory.Task) bool {
		done, was := last[taskKey(t)]
		return was && b.stillHolds(requests[highest[taskKey(t)]], done)
	})
	if len(tasks) == 0 {
		return errs
	}
	keys = keys[:0]
	var siblings []memory.TaskKey
	for _, t := range tasks {
		keys = append(keys, taskKey(t))
		for _, s := range slices.Concat(b.bases[taskKey(t)].Siblings, b.bases[taskKey(t)].Peers) {
			siblings = append(siblings, s.Key)
		}
	}
	if err := b.readStanding(ctx, keys); err != nil {
		return fail(err)
	}
	if err := b.readSiblings(ctx, siblings); err != nil {
		return fail(err)
	}
	plans := make([]*Plan, 0, len(keys))
	from := make([]int, 0, len(keys)) // plans[k] is of requests[from[k]]
	began := time.Now()
	for _, task := range tasks {
		at := highest[taskKey(task)]
		p, err := b.plan(ctx, task, memory.Envelopes(stored[taskKey(task)]), requests[at].Revision, requests[at].Closed)
		if err != nil {
			errs[at] = err
			continue
		}
		plans, from = append(plans, &p), append(from, at)
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
	if err == nil {
		r.renew(ctx, plans, func(k int) error {
			_, err := r.Reflect(ctx, requests[from[k]])
			return err
		}, func(k int, err error) { errs[from[k]] = err })
	}
	return errs
}

// renew reflects those of the tasks again whose basis has changed while they were reflected: another reflection of the same
// task, on what is the basis now, may have been written meanwhile, and nobody watches the task any more.
func (r *Reflector) renew(ctx context.Context, plans []*Plan, again func(k int) error, failed func(k int, err error)) {
	var outlines []memory.TaskOutline
	var of []int
	for k, p := range plans {
		if p.Closed && p.concerned {
			outlines, of = append(outlines, p.outline), append(of, k)
		}
	}
	if len(outlines) == 0 {
		return
	}
	bases, err := memory.Bases(ctx, r.opts.Tasks, outlines)
	for i, k := range of {
		switch {
		case err != nil:
			failed(k, fmt.Errorf("find out whether what the reflection of task %q rests on has changed: %w", plans[k].TaskID, err))
		case bases[outlines[i].Key].Hash() != plans[k].Basis:
			if err := again(k); err != nil {
				failed(k, err)
			}
		}
	}
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
		Kept: p.kept, Dropped: p.Dropped, Basis: p.Basis, RecordedAt: r.opts.Now().UTC(),
	}
}

func keyOf(request memory.ReflectionRequest) memory.TaskKey {
	return memory.TaskKey{Namespace: request.Namespace, TaskID: request.TaskID}
}

func taskKey(t memory.Task) memory.TaskKey {
	return memory.TaskKey{Namespace: t.Namespace, TaskID: t.TaskID}
}

// built is the task of a request, from its events.
func built(request memory.ReflectionRequest, stored []memory.StoredEvent) (memory.Task, []events.Event, error) {
	evs := memory.Envelopes(stored)
	if len(evs) == 0 {
		return memory.Task{}, nil, fmt.Errorf("reflect task %q of namespace %s: %w", request.TaskID, request.Namespace, memory.ErrNotFound)
	}
	return memory.BuildTask(evs, request.Closed), evs, nil
}
