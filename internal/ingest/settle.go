package ingest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hindsight-memory/hindsight/internal/memory"
)

// What is learnt from a task depends on its siblings and peers and on whether an earlier task met its errors. A task that closes may
// so change what is to be learnt from others that were reflected before. The sweeper, which alone says what is reflected,
// looks which tasks those are, and asks again for those whose reflection rests on something else than it would now. The
// same tasks lead to the same lessons in the end, in whatever order they closed.

const (
	// settleChunk is how many tasks are looked at together.
	settleChunk = 1000
	// settlePatience is how long a task is watched whose reflection does not come: then it is asked for once more, behind
	// whatever holds it up, and left alone.
	settlePatience = 10 * time.Minute
	// settleFor bounds one look at them, since no task is closed meanwhile: the next one goes on where it ended.
	settleFor = 2 * time.Second
	// settleShare bounds the part of the store's work: after a look at them that took d, tasks rest for settleShare × d, but
	// not longer than maxSettleRest.
	settleShare   = 4
	maxSettleRest = 5 * time.Second
)

// unsettled is a task that is watched until its reflection rests on what it is to rest on.
type unsettled struct {
	// since is when it was last found to be watched, and last when the latest event was recorded of the task for which it is,
	// both by the store's clock.
	since, last time.Time
	// spread says that it was found out which others it concerns. changed says that it was closed before with other events.
	spread, changed bool
	// asked is the settling that was asked for last.
	asked string
}

// watchSettling has a task looked at that was closed; changed says that it was closed before.
func (w *watch) watchSettling(key memory.TaskKey, now, last time.Time, changed bool) {
	u := w.unsettled[key]
	if u == nil {
		u = &unsettled{last: last}
		w.unsettled[key] = u
	}
	u.since, u.spread, u.changed = now, false, u.changed || changed
	if last.Before(u.last) {
		u.last = last
	}
}

// settle finds out whom the tasks that closed concern, and asks for the reflections that rest on something else than they
// would now. A full queue is waited for.
func (w *watch) settle(ctx context.Context, now time.Time) error {
	defer func() { w.unsettledTasks.Set(float64(len(w.unsettled))) }()
	if len(w.unsettled) == 0 || now.Before(w.settleAt) {
		return nil
	}
	began := time.Now()
	if err := w.spread(ctx, now); err != nil {
		return fmt.Errorf("find out whom closed tasks concern: %w", err)
	}
	for chunk := range slices.Chunk(w.round(), w.settleChunk) {
		err := w.settleSome(ctx, now, chunk)
		if errors.Is(err, memory.ErrQueueFull) {
			break // The next look goes on.
		}
		if err != nil {
			return fmt.Errorf("settle %d tasks: %w", len(chunk), err)
		}
		w.settledTo = chunk[len(chunk)-1]
		if time.Since(began) > w.settleFor {
			break
		}
	}
	w.settleAt = now.Add(min(settleShare*time.Since(began), maxSettleRest))
	return nil
}

// round gives the unsettled tasks in order, beginning behind where the last look ended.
func (w *watch) round() []memory.TaskKey {
	keys := slices.SortedFunc(maps.Keys(w.unsettled), byKey)
	at, found := slices.BinarySearchFunc(keys, w.settledTo, byKey)
	if found {
		at++
	}
	return slices.Concat(keys[at:], keys[:at])
}

// spread finds the tasks that newly closed ones concern: those that are compared with them, by goal or by type, and those that were the first
// to meet an error of theirs.
func (w *watch) spread(ctx context.Context, now time.Time) error {
	var fresh []memory.TaskKey
	for key, u := range w.unsettled {
		if !u.spread {
			fresh = append(fresh, key)
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	outlines, err := w.opts.Store.Outlines(ctx, fresh)
	if err != nil {
		return fmt.Errorf("read %d tasks: %w", len(fresh), err)
	}
	closed := slices.Collect(maps.Values(outlines))
	concerned := map[memory.TaskKey]time.Time{} // with the last arrival of the task that concerns it
	concern := func(key memory.TaskKey, by memory.TaskOutline) {
		last := w.unsettled[by.Key].last
		if had, is := concerned[key]; !is || last.Before(had) {
			concerned[key] = last
		}
	}
	goals, err := memory.GoalsOf(ctx, w.opts.Store, closed)
	if err != nil {
		return err //nolint:wrapcheck // It says what was read.
	}
	for _, of := range goals {
		arrived := map[memory.TaskKey]memory.TaskOutline{}
		var changed []memory.TaskOutline
		for _, t := range of {
			u := w.unsettled[t.Key]
			if u == nil || u.spread {
				continue
			}
			arrived[t.Key] = t
			if u.changed {
				changed = append(changed, t)
			}
		}
		for _, t := range of {
			for _, sibling := range goals.SiblingsOf(t) {
				if s, is := arrived[sibling.Key]; is {
					concern(t.Key, s)
				}
			}
			for _, s := range changed {
				if s.Key != t.Key {
					concern(t.Key, s)
				}
			}
		}
	}
	peers, err := memory.ConcernedPeers(ctx, w.opts.Store, closed, func(key memory.TaskKey) bool { return w.unsettled[key].changed })
	if err != nil {
		return err //nolint:wrapcheck // It says what was read.
	}
	for key, of := range peers {
		concern(key, outlines[of])
	}
	by := map[memory.ErrorKey][]memory.TaskOutline{}
	most := 0
	for _, t := range closed {
		for _, s := range t.Sightings {
			key := memory.ErrorKey{Namespace: t.Key.Namespace, TaskType: t.TaskType, Tool: s.Tool, Signature: s.Signature}
			by[key] = append(by[key], t)
			most = max(most, len(by[key]))
		}
	}
	if len(by) > 0 {
		// All but the first of those that were there before knew already that they are not the first.
		seen, err := w.opts.Store.FirstSightings(ctx, slices.Collect(maps.Keys(by)), most+3)
		if err != nil {
			return fmt.Errorf("look up %d errors: %w", len(by), err)
		}
		for key, list := range seen {
			for _, s := range list {
				first := memory.TaskKey{Namespace: key.Namespace, TaskID: s.TaskID}
				if u := w.unsettled[first]; u == nil || u.spread {
					concern(first, by[key][0])
				}
			}
		}
	}
	for _, key := range fresh {
		w.unsettled[key].spread, w.unsettled[key].changed = true, false
	}
	for key, last := range concerned {
		u := w.unsettled[key]
		if u == nil {
			u = &unsettled{last: last, spread: true}
			w.unsettled[key] = u
		}
		u.since = now
		if last.Before(u.last) {
			u.last = last
		}
	}
	return nil
}

// settleSome asks for the reflections that are to be made again, and lets those go that are as they would be now.
func (w *watch) settleSome(ctx context.Context, now time.Time, keys []memory.TaskKey) error {
	outlines, err := w.opts.Store.Outlines(ctx, keys)
	if err != nil {
		return fmt.Errorf("read tasks: %w", err)
	}
	done, err := w.opts.Store.Reflections(ctx, keys)
	if err != nil {
		return fmt.Errorf("read what was reflected: %w", err)
	}
	var reflected, late []memory.TaskOutline
	for _, key := range keys {
		t, closed := outlines[key]
		patient := now.Sub(w.unsettled[key].since) < w.patience
		switch {
		case !closed || done[key].Revision > t.Revision:
			delete(w.unsettled, key) // It is open again, or is just being closed: it comes back then.
		case done[key].Revision == t.Revision:
			reflected = append(reflected, t)
		case !patient:
			late = append(late, t)
		}
	}
	bases, err := memory.Bases(ctx, w.opts.Store, slices.Concat(reflected, late))
	if err != nil {
		return err //nolint:wrapcheck // It says what was read.
	}
	var requests []memory.ReflectionRequest
	for _, t := range slices.Concat(reflected, late) {
		u, basis, was := w.unsettled[t.Key], bases[t.Key].Hash(), done[t.Key]
		settling := basis + "/" + strconv.FormatInt(was.RecordedAt.UnixMilli(), 10)
		switch {
		case was.Revision == t.Revision && was.Basis == basis:
			delete(w.unsettled, t.Key)
			continue
		case u.asked == settling && now.Sub(u.since) >= w.patience:
			delete(w.unsettled, t.Key) // It waits in the queue, or is a dead letter.
			continue
		case u.asked == settling:
			continue
		}
		requests = append(requests, memory.ReflectionRequest{
			Namespace: t.Key.Namespace, TaskID: t.Key.TaskID, Revision: t.Revision, Closed: true, Settle: settling,
		})
	}
	if len(requests) == 0 {
		return nil
	}
	if err := w.opts.Reflections.Request(ctx, requests); err != nil {
		return fmt.Errorf("ask for reflection: %w", err)
	}
	w.settlings.Add(float64(len(requests)))
	for _, r := range requests {
		u := w.unsettled[memory.TaskKey{Namespace: r.Namespace, TaskID: r.TaskID}]
		u.asked, u.since = r.Settle, now
	}
	return nil
}

func byKey(a, b memory.TaskKey) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.TaskID, b.TaskID))
}
