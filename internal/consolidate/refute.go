package consolidate

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hindsight-memory/hindsight/internal/memory"
)

const (
	// trialsOfLesson is how many tasks a lesson is tried by, the last ones.
	trialsOfLesson = 100
	// tasksPerRead is how many tasks are held in memory at once.
	tasksPerRead = 500
)

// refute takes lessons out of service that the tasks in which they were shown prove wrong. It looks only at lessons that
// were shown in tasks that ended since the last merge, and at all of the tasks in which these were shown: what comes out
// depends on the record alone, and not on how often it is looked at. What nobody was shown harms nobody; and what the agent
// did not ask for in the name of a task cannot be joined with how that ended.
func refute(ctx context.Context, w *work, since time.Time) error {
	shown, err := w.record.ShownSince(ctx, w.namespace, since)
	if err != nil {
		return fmt.Errorf("find lessons to try: %w", err)
	}
	if len(shown) == 0 {
		return nil
	}
	all, err := w.record.Snapshots(ctx, memory.ItemFilter{Namespace: w.namespace, IDs: shown, Statuses: active})
	if err != nil {
		return fmt.Errorf("read lessons that were shown: %w", err)
	}
	lessons := slices.DeleteFunc(all, func(s memory.Snapshot) bool {
		return memory.Decided(s.Version) || s.Trust == memory.TrustUserStated || s.Reflection == nil || s.Reflection.IsOptimal
	})
	if len(lessons) == 0 {
		return nil
	}
	shares, err := w.record.FailureShares(ctx, w.namespace)
	if err != nil {
		return fmt.Errorf("count tasks that fail: %w", err)
	}
	ids := make([]string, len(lessons))
	for i, s := range lessons {
		ids[i] = s.SnapshotID
	}
	where, err := w.record.ShownIn(ctx, w.namespace, ids, trialsOfLesson)
	if err != nil {
		return fmt.Errorf("find where lessons were shown: %w", err)
	}
	var refuted []memory.Snapshot
	for len(lessons) > 0 { // As many at a time as few tasks suffice for.
		n, tasks := 0, map[string]memory.Task{}
		for n < len(lessons) && len(tasks) < tasksPerRead {
			for _, id := range append([]string{lessons[n].TaskID}, where[lessons[n].SnapshotID]...) {
				tasks[id] = memory.Task{}
			}
			n++
		}
		if err := w.readTasks(ctx, tasks); err != nil {
			return err
		}
		for _, s := range lessons[:n] {
			repair, is := memory.RepairOf(s, tasks[s.TaskID].Steps)
			if !is {
				continue
			}
			var trials memory.Trials
			for _, id := range where[s.SnapshotID] {
				if id != s.TaskID {
					trials = trials.With(repair, tasks[id])
				}
			}
			if trials.Tried() && memory.Doubt(s.Confidence, trials, shares[s.TaskContext.TaskType]) >= memory.DoubtRefuted {
				s.Status, s.StatusReason = memory.ItemSuperseded, memory.ReasonRefuted+trials.String()
				refuted = append(refuted, s)
			}
		}
		lessons = lessons[n:]
	}
	members, err := w.membersOf(ctx, refuted)
	if err != nil {
		return err
	}
	w.count("refuted", len(refuted)+len(members))
	return w.snapshots(ctx, append(refuted, members...))
}

// membersOf gives the lessons that stand behind refuted ones, since they say the same, refuted as well.
func (w *work) membersOf(ctx context.Context, refuted []memory.Snapshot) ([]memory.Snapshot, error) {
	if len(refuted) == 0 {
		return nil, nil
	}
	reasons := map[string]string{}
	var ids []string
	for _, s := range refuted {
		reasons[s.SnapshotID] = s.StatusReason
		ids = append(ids, s.SnapshotID)
	}
	relations, err := w.record.Relations(ctx, w.namespace, ids)
	if err != nil {
		return nil, fmt.Errorf("find what says the same as refuted lessons: %w", err)
	}
	reasonOf := map[string]string{}
	ids = nil
	for _, r := range relations {
		if r.Kind == memory.RelationMergedInto && reasons[r.ToID] != "" && reasons[r.FromID] == "" {
			reasonOf[r.FromID] = reasons[r.ToID]
			ids = append(ids, r.FromID)
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	members, err := w.record.Snapshots(ctx, memory.ItemFilter{Namespace: w.namespace, IDs: ids, Statuses: active})
	if err != nil {
		return nil, fmt.Errorf("read what says the same as refuted lessons: %w", err)
	}
	members = slices.DeleteFunc(members, func(s memory.Snapshot) bool { return memory.Decided(s.Version) || s.Trust == memory.TrustUserStated })
	for i := range members {
		members[i].Status, members[i].StatusReason = memory.ItemSuperseded, reasonOf[members[i].SnapshotID]
	}
	return members, nil
}

// readTasks fills in the tasks of some ids; those that are not there stay empty.
func (w *work) readTasks(ctx context.Context, tasks map[string]memory.Task) error {
	ids := make([]string, 0, len(tasks))
	for id := range tasks {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for t, err := range w.record.Tasks(ctx, memory.TaskFilter{Namespace: w.namespace, TaskIDs: ids}) {
		if err != nil {
			return fmt.Errorf("read tasks that try lessons: %w", err)
		}
		tasks[t.TaskID] = t
	}
	return nil
}
