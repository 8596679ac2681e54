package memory

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hindsight-memory/hindsight/events"
)

const (
	// peersEach is with how many peers a task is compared for one tool on each side of its start.
	peersEach = 4
	// maxPeerTools is for how many of its tools: those that failed, then the last.
	maxPeerTools = 4
	// sparePeers is how many more are read, since some may be outdated.
	sparePeers = 2
	// concernedEach is how many failed tasks a further success concerns for one tool on each side of its start.
	concernedEach = 10
)

// NearTask asks for tasks of a type that called a tool and ended with a status, next to a moment; a task that began at that
// moment comes before or after by its id.
type NearTask struct {
	Namespace, TaskType, Tool string
	Status                    events.Status
	At                        time.Time
	TaskID                    string
}

// comparable reports a task that is compared with peers: it failed, as somebody saw.
func (t TaskOutline) comparable() bool {
	return t.Closed && t.Finished && t.counts() && t.TaskType != "" && t.Status == events.StatusFailure
}

// peerTools are the tools of a task by which its peers are found.
func (t TaskOutline) peerTools() []string {
	var out []string
	add := func(tool string) {
		if len(out) < maxPeerTools && !slices.Contains(out, tool) && !isThought(tool) && !isHandOver(tool) {
			out = append(out, tool)
		}
	}
	for _, s := range t.Sightings {
		add(s.Tool)
	}
	for _, tool := range slices.Backward(t.Tools) {
		if does(Step{Tool: tool}) {
			add(tool)
		}
	}
	return out
}

func (t TaskOutline) near(tool string, status events.Status) NearTask {
	return NearTask{Namespace: t.Key.Namespace, TaskType: t.TaskType, Tool: tool, Status: status, At: t.StartedAt, TaskID: t.Key.TaskID}
}

// peersNear gives for those of the tasks that failed the peers to compare them with, by start.
func peersNear(ctx context.Context, r BasisReader, tasks []TaskOutline) (map[TaskKey][]TaskOutline, error) {
	var questions []NearTask
	for _, t := range tasks {
		if !t.comparable() {
			continue
		}
		for _, tool := range t.peerTools() {
			questions = append(questions, t.near(tool, events.StatusSuccess))
		}
	}
	if len(questions) == 0 {
		return nil, nil
	}
	found, err := r.NearTasks(ctx, questions, peersEach+sparePeers)
	if err != nil {
		return nil, fmt.Errorf("find tasks like %d others: %w", len(tasks), err)
	}
	named := map[TaskKey]bool{}
	for i, list := range found {
		for _, s := range list {
			named[TaskKey{questions[i].Namespace, s.TaskID}] = true
		}
	}
	outlines, err := r.Outlines(ctx, slices.Collect(maps.Keys(named)))
	if err != nil {
		return nil, fmt.Errorf("read %d tasks like others: %w", len(named), err)
	}
	out := map[TaskKey][]TaskOutline{}
	for i, q := range questions {
		mine := TaskSighting{TaskID: q.TaskID, At: q.At}
		key := TaskKey{q.Namespace, q.TaskID}
		var before, after []TaskOutline
		for _, s := range found[i] {
			p, is := outlines[TaskKey{q.Namespace, s.TaskID}]
			if !is || !p.Finished || !p.counts() || p.Status != q.Status || p.TaskType != q.TaskType || !p.StartedAt.Equal(s.At) || !slices.Contains(p.Tools, q.Tool) {
				continue // It is another task by now.
			}
			if s.before(mine) {
				before = append(before, p)
			} else {
				after = append(after, p)
			}
		}
		for _, p := range slices.Concat(before[max(0, len(before)-peersEach):], after[:min(peersEach, len(after))]) {
			if !slices.ContainsFunc(out[key], func(o TaskOutline) bool { return o.Key == p.Key }) {
				out[key] = append(out[key], p)
			}
		}
	}
	for _, of := range out {
		slices.SortFunc(of, byStart)
	}
	return out, nil
}

// ConcernedPeers finds the failed tasks that are to be compared with tasks that closed, each with the one that concerns it:
// those between which and it there are not enough others. changed says which of them were closed before and so may have
// been compared already.
func ConcernedPeers(ctx context.Context, r BasisReader, closed []TaskOutline, changed func(TaskKey) bool) (map[TaskKey]TaskKey, error) {
	var questions []NearTask
	var by []TaskOutline
	for _, t := range closed {
		succeeded := t.Finished && t.counts() && t.Status == events.StatusSuccess
		if t.TaskType == "" || !succeeded && !changed(t.Key) {
			continue
		}
		for _, tool := range t.Tools {
			if isThought(tool) || isHandOver(tool) {
				continue
			}
			questions = append(questions, t.near(tool, events.StatusFailure), t.near(tool, events.StatusSuccess))
			by = append(by, t, t)
		}
	}
	if len(questions) == 0 {
		return nil, nil
	}
	found, err := r.NearTasks(ctx, questions, concernedEach)
	if err != nil {
		return nil, fmt.Errorf("find failed tasks like %d others: %w", len(closed), err)
	}
	out := map[TaskKey]TaskKey{}
	for i := 0; i < len(questions); i += 2 {
		mine := TaskSighting{TaskID: questions[i].TaskID, At: questions[i].At}
		for _, s := range found[i] {
			between := 0
			for _, other := range found[i+1] {
				if s.before(other) && other.before(mine) || mine.before(other) && other.before(s) {
					between++
				}
			}
			if between < peersEach+sparePeers || changed(by[i].Key) {
				out[TaskKey{questions[i].Namespace, s.TaskID}] = by[i].Key
			}
		}
	}
	return out, nil
}
