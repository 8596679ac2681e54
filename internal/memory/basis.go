package memory

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hindsight-memory/hindsight/events"
)

// What is learnt from a task depends on the task and on two things about others: what its siblings did, and whether its
// errors were met before. Both are told by the tasks themselves and by the times at which they happened, never by what is
// remembered at the moment. [Bases] gives them, with a hash by which to see that they have changed.

const (
	// siblingsBefore and siblingsAfter are with how many siblings of one outcome a task is compared at most: those that
	// began next before and after it. A bound on both sides is one on how many tasks a further sibling concerns.
	siblingsBefore = 10
	siblingsAfter  = 10
	// maxSightings bounds how many errors of one task are looked up.
	maxSightings = 100
	// sightingsPerError is how many of the first tasks that met an error are looked at: the first may be outdated, or the
	// one that asks.
	sightingsPerError = 4
)

// Sighting is an error that a task met: at which tool, and when first.
type Sighting struct {
	Tool      string
	Signature string
	At        time.Time
}

// TaskOutline is of a task what others are told by.
type TaskOutline struct {
	Key       TaskKey
	GoalID    string
	TaskType  string
	Revision  uint64
	Closed    bool
	Finished  bool
	Status    events.Status
	Certainty Certainty
	StartedAt time.Time
	// Tools are those that were called, each once, by first use.
	Tools []string
	// Sightings are ordered by tool and signature, each once.
	Sightings []Sighting
}

// OutlineOf draws the outline of a task.
func OutlineOf(t Task) TaskOutline {
	return TaskOutline{
		Tools: toolNames(t), Key: TaskKey{Namespace: t.Namespace, TaskID: t.TaskID}, GoalID: t.GoalID, TaskType: t.TaskType, Revision: t.Revision, Closed: t.Closed,
		Finished: t.Finished, Status: t.Status, Certainty: t.Certainty, StartedAt: t.StartedAt, Sightings: Sightings(t),
	}
}

// Sightings are the errors of a task, each once, ordered by tool and signature.
func Sightings(t Task) []Sighting {
	first := map[string]Sighting{}
	for _, s := range t.Steps {
		signature := ErrorSignature(cmp.Or(s.ErrorMessage, s.ErrorType))
		if s.Status != events.StatusFailure || signature == "" {
			continue
		}
		key := KnownKey(s.Tool, signature)
		if had, is := first[key]; !is || s.Time.Before(had.At) {
			first[key] = Sighting{Tool: s.Tool, Signature: signature, At: s.Time.Truncate(time.Millisecond)}
		}
	}
	out := make([]Sighting, 0, len(first))
	for _, key := range slices.Sorted(maps.Keys(first)) {
		if len(out) == maxSightings {
			break
		}
		out = append(out, first[key])
	}
	return out
}

// ErrorKey names an error among the tasks of one type.
type ErrorKey struct {
	Namespace string
	TaskType  string
	Tool      string
	Signature string
}

// TaskSighting says which task met an error, and when first.
type TaskSighting struct {
	TaskID string
	At     time.Time
}

// Compare orders sightings: by time, and by task where that is the same.
func (s TaskSighting) Compare(other TaskSighting) int {
	return cmp.Or(s.At.Compare(other.At), strings.Compare(s.TaskID, other.TaskID))
}

// before reports that a sighting comes before another.
func (s TaskSighting) before(other TaskSighting) bool { return s.Compare(other) < 0 }

// BasisReader tells of closed tasks, as their last written states say.
type BasisReader interface {
	// Outlines gives those of the tasks that are closed.
	Outlines(ctx context.Context, keys []TaskKey) (map[TaskKey]TaskOutline, error)
	// OutlinesOfGoals gives the closed tasks of goals of which somebody said that they succeeded or failed, in any order.
	OutlinesOfGoals(ctx context.Context, namespace string, goals []string) ([]TaskOutline, error)
	// FirstSightings gives the first tasks that met an error, at most so many for each, the earliest first; some may be
	// outdated.
	FirstSightings(ctx context.Context, keys []ErrorKey, most int) (map[ErrorKey][]TaskSighting, error)
	// NearTasks gives for each question the tasks next to it by their start, at most so many on each side, the earliest first
	// and without itself; some may be outdated.
	NearTasks(ctx context.Context, questions []NearTask, each int) ([][]TaskSighting, error)
}

// Basis is what the reflection of one task rests on beside the task itself.
type Basis struct {
	// Siblings are the tasks to compare it with, by start.
	Siblings []TaskOutline
	// Peers are tasks of its type that succeeded and called the same tools, by start; only for a task that failed.
	Peers []TaskOutline
	// Known holds the errors that an earlier task of the type has met, by [KnownKey].
	Known map[string]bool
}

// Hash names the basis: it is the same if and only if the siblings and peers, in the same revisions, and what is known are.
func (b Basis) Hash() string {
	parts := make([]string, 0, 2*len(b.Siblings)+len(b.Known)+1)
	for _, s := range b.Siblings {
		parts = append(parts, s.Key.TaskID, strconv.FormatUint(s.Revision, 10))
	}
	parts = append(parts, "")
	parts = append(parts, slices.Sorted(maps.Keys(b.Known))...)
	if len(b.Peers) > 0 {
		parts = append(parts, "")
	}
	for _, p := range b.Peers {
		parts = append(parts, p.Key.TaskID, strconv.FormatUint(p.Revision, 10))
	}
	return HashID(parts...)
}

// Bases reads what the reflections of tasks rest on now.
func Bases(ctx context.Context, r BasisReader, tasks []TaskOutline) (map[TaskKey]Basis, error) {
	goals, err := GoalsOf(ctx, r, tasks)
	if err != nil {
		return nil, err
	}
	seen, err := sightingsOf(ctx, r, tasks)
	if err != nil {
		return nil, err
	}
	peers, err := peersNear(ctx, r, tasks)
	if err != nil {
		return nil, err
	}
	out := make(map[TaskKey]Basis, len(tasks))
	for _, t := range tasks {
		b := Basis{Known: map[string]bool{}, Peers: peers[t.Key]}
		b.Siblings = goals.SiblingsOf(t)
		for _, s := range t.Sightings {
			mine := TaskSighting{TaskID: t.Key.TaskID, At: s.At}
			for _, other := range seen[ErrorKey{t.Key.Namespace, t.TaskType, s.Tool, s.Signature}] {
				if other.TaskID == t.Key.TaskID {
					continue
				}
				if other.before(mine) {
					b.Known[KnownKey(s.Tool, s.Signature)] = true
				}
				break
			}
		}
		out[t.Key] = b
	}
	return out, nil
}

// Goals holds the closed tasks of goals with an outcome that somebody saw, by start.
type Goals map[[2]string][]TaskOutline

// GoalsOf reads those of the goals of tasks.
func GoalsOf(ctx context.Context, r BasisReader, tasks []TaskOutline) (Goals, error) {
	ids := map[string][]string{}
	named := map[[2]string]bool{}
	for _, t := range tasks {
		key := [2]string{t.Key.Namespace, t.GoalID}
		if t.GoalID != "" && !named[key] {
			named[key] = true
			ids[t.Key.Namespace] = append(ids[t.Key.Namespace], t.GoalID)
		}
	}
	out := Goals{}
	for namespace, goals := range ids {
		found, err := r.OutlinesOfGoals(ctx, namespace, goals)
		if err != nil {
			return nil, fmt.Errorf("read the tasks of %d goals: %w", len(goals), err)
		}
		for _, t := range found {
			if t.Closed && t.Finished && t.counts() {
				key := [2]string{namespace, t.GoalID}
				out[key] = append(out[key], t)
			}
		}
	}
	for _, of := range out {
		slices.SortFunc(of, byStart)
	}
	return out, nil
}

func byStart(a, b TaskOutline) int {
	return cmp.Or(a.StartedAt.Compare(b.StartedAt), strings.Compare(a.Key.TaskID, b.Key.TaskID))
}

// counts reports a task of which somebody saw whether it succeeded.
func (t TaskOutline) counts() bool {
	return (t.Status == events.StatusSuccess || t.Status == events.StatusFailure) && t.Certainty != CertaintyInferred
}

// SiblingsOf chooses those that the analysis of a task compares it with: tasks of its goal that succeeded, if it failed or
// met errors; and if it succeeded itself where others failed, all of them. Of each kind the nearest by start.
func (g Goals) SiblingsOf(t TaskOutline) []TaskOutline {
	if t.GoalID == "" {
		return nil
	}
	of := g[[2]string{t.Key.Namespace, t.GoalID}]
	var out []TaskOutline
	if t.Closed && t.counts() && t.Status == events.StatusSuccess {
		out = nearest(of, t, events.StatusFailure)
	}
	failed := t.counts() && t.Status == events.StatusFailure
	if failed || len(t.Sightings) > 0 || len(out) > 0 {
		out = append(out, nearest(of, t, events.StatusSuccess)...)
	}
	slices.SortFunc(out, byStart)
	return out
}

// nearest picks, of tasks ordered by start, those of one status that began next before and after a task.
func nearest(of []TaskOutline, t TaskOutline, status events.Status) []TaskOutline {
	at, _ := slices.BinarySearchFunc(of, t, byStart)
	var out []TaskOutline
	for i, n := at-1, 0; i >= 0 && n < siblingsBefore; i-- {
		if of[i].Status == status && of[i].Key != t.Key {
			out, n = append(out, of[i]), n+1
		}
	}
	for i, n := at, 0; i < len(of) && n < siblingsAfter; i++ {
		if of[i].Status == status && of[i].Key != t.Key {
			out, n = append(out, of[i]), n+1
		}
	}
	return out
}

// sightingsOf gives the first tasks that met the errors of tasks, without what is outdated.
func sightingsOf(ctx context.Context, r BasisReader, tasks []TaskOutline) (map[ErrorKey][]TaskSighting, error) {
	asked := map[ErrorKey]bool{}
	for _, t := range tasks {
		for _, s := range t.Sightings {
			asked[ErrorKey{t.Key.Namespace, t.TaskType, s.Tool, s.Signature}] = true
		}
	}
	if len(asked) == 0 {
		return nil, nil
	}
	seen, err := r.FirstSightings(ctx, slices.Collect(maps.Keys(asked)), sightingsPerError)
	if err != nil {
		return nil, fmt.Errorf("look up %d errors: %w", len(asked), err)
	}
	named := map[TaskKey]bool{}
	for key, list := range seen {
		for _, s := range list {
			named[TaskKey{key.Namespace, s.TaskID}] = true
		}
	}
	outlines, err := r.Outlines(ctx, slices.Collect(maps.Keys(named)))
	if err != nil {
		return nil, fmt.Errorf("read %d tasks that met errors: %w", len(named), err)
	}
	for key, list := range seen {
		seen[key] = slices.DeleteFunc(list, func(s TaskSighting) bool {
			t, is := outlines[TaskKey{key.Namespace, s.TaskID}]
			return !is || t.TaskType != key.TaskType || !slices.ContainsFunc(t.Sightings, func(x Sighting) bool {
				return x.Tool == key.Tool && x.Signature == key.Signature && x.At.Equal(s.At)
			})
		})
	}
	return seen, nil
}
