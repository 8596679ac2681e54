package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/memory"
)

const taskColumns = `namespace, task_id, revision, goal_id, session_id, user_id, agent_id, parent_task_id, task_type, goal,
	input_summary, available_tools, status, certainty, reason, score, closed, finished, events, messages, errors,
	corrections, started_at, ended_at, recalled, withheld`

// taskSummaryColumns are derived from the task's steps and not read back.
const taskSummaryColumns = `steps, duration_ms, tools, error_types, failed_tools, failed_signatures, failed_at`

// InsertTasks writes states of tasks, without their steps. Of all states of a task the one with the highest revision
// counts, so that they may be written in any order and again. The error may be a [RowError].
func (c *ClickHouse) InsertTasks(ctx context.Context, tasks []memory.Task) error {
	for i, t := range tasks {
		if t.Namespace == "" || t.TaskID == "" {
			return &RowError{Index: i, ID: t.TaskID, Reason: "namespace and task_id must not be empty: they are its key"}
		}
		for _, at := range []time.Time{t.StartedAt, t.EndedAt} {
			if reason := unstorable(at); reason != "" {
				return &RowError{Index: i, ID: t.TaskID, Reason: reason}
			}
		}
	}
	for chunk := range slices.Chunk(tasks, maxInsertRows) {
		if err := c.insert(ctx, "tasks", taskColumns+", "+taskSummaryColumns, len(chunk), func(b driver.Batch, i int) error {
			return b.Append(taskValues(chunk[i])...)
		}); err != nil {
			return err
		}
	}
	return nil
}

func taskValues(t memory.Task) []any {
	tools, errorTypes := []string{}, []string{}
	for _, s := range t.Steps {
		if !slices.Contains(tools, s.Tool) {
			tools = append(tools, s.Tool)
		}
		if s.ErrorType != "" && !slices.Contains(errorTypes, s.ErrorType) {
			errorTypes = append(errorTypes, s.ErrorType)
		}
	}
	sightings := memory.Sightings(t)
	failedTools, signatures, failedAt := make([]string, len(sightings)), make([]string, len(sightings)), make([]time.Time, len(sightings))
	for i, s := range sightings {
		failedTools[i], signatures[i], failedAt[i] = s.Tool, s.Signature, s.At
	}
	return []any{
		t.Namespace, t.TaskID, t.Revision, t.GoalID, t.SessionID, t.UserID, t.AgentID, t.ParentTaskID, t.TaskType, t.Goal,
		t.InputSummary, notNil(t.AvailableTools), string(t.Status), string(t.Certainty), t.Reason, t.Score, t.Closed, t.Finished,
		int64(t.Events), int64(t.Messages), int64(t.Errors), int64(t.Corrections), t.StartedAt, t.EndedAt, notNil(t.Recalled),
		t.Withheld, int64(len(t.Steps)), t.Duration().Milliseconds(), tools, errorTypes, failedTools, signatures, failedAt,
	}
}

func notNil(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}

// TaskStates returns the newest written state of each task. Tasks that were never written are left out.
func (c *ClickHouse) TaskStates(ctx context.Context, keys []memory.TaskKey) (map[memory.TaskKey]memory.TaskState, error) {
	out := make(map[memory.TaskKey]memory.TaskState, len(keys))
	err := c.byTask(ctx, "read revisions of tasks", "SELECT namespace, task_id, revision, closed, events, errors, corrections FROM tasks FINAL WHERE ", keys,
		func(rows driver.Rows) error {
			var key memory.TaskKey
			var s memory.TaskState
			var count, failed, corrected int64
			if err := rows.Scan(&key.Namespace, &key.TaskID, &s.Revision, &s.Closed, &count, &failed, &corrected); err != nil {
				return err
			}
			s.Events, s.Errors, s.Corrections = int(count), int(failed), int(corrected)
			out[key] = s
			return nil
		})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// writtenTasks returns the newest written rows, without steps.
func (c *ClickHouse) writtenTasks(ctx context.Context, keys []memory.TaskKey) (map[memory.TaskKey]memory.Task, error) {
	out := make(map[memory.TaskKey]memory.Task, len(keys))
	err := c.byTask(ctx, "read tasks", "SELECT "+taskColumns+" FROM tasks FINAL WHERE ", keys, func(rows driver.Rows) error {
		t := memory.Task{Steps: []memory.Step{}}
		var status, certainty string
		var count, messages, failed, corrected int64
		if err := rows.Scan(&t.Namespace, &t.TaskID, &t.Revision, &t.GoalID, &t.SessionID, &t.UserID, &t.AgentID, &t.ParentTaskID,
			&t.TaskType, &t.Goal, &t.InputSummary, &t.AvailableTools, &status, &certainty, &t.Reason, &t.Score, &t.Closed,
			&t.Finished, &count, &messages, &failed, &corrected, &t.StartedAt, &t.EndedAt, &t.Recalled, &t.Withheld); err != nil {
			return err
		}
		t.Status, t.Certainty = events.Status(status), memory.Certainty(certainty)
		t.Events, t.Messages, t.Errors, t.Corrections = int(count), int(messages), int(failed), int(corrected)
		t.StartedAt, t.EndedAt = t.StartedAt.UTC(), t.EndedAt.UTC()
		t.AvailableTools, t.Recalled = nilIfEmpty(t.AvailableTools), nilIfEmpty(t.Recalled)
		out[memory.TaskKey{Namespace: t.Namespace, TaskID: t.TaskID}] = t
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func nilIfEmpty(s []string) []string {
	if len(s) == 0 {
		return nil
	}
	return s
}

// Task returns one task with its steps, whether or not its state was written yet. The error is [ErrNotFound] when
// there is neither an event nor a state of it.
func (c *ClickHouse) Task(ctx context.Context, key memory.TaskKey) (memory.Task, error) {
	tasks, err := c.buildTasks(ctx, []memory.TaskKey{key})
	if err != nil {
		return memory.Task{}, err
	}
	if len(tasks) == 0 {
		return memory.Task{}, fmt.Errorf("%w: task %q in namespace %q", ErrNotFound, key.TaskID, key.Namespace)
	}
	return tasks[0], nil
}

// Tasks yields the tasks that pass the filter, in order of their start, namespace and id, with their steps. Each is
// built from all its events, so that it is up to date even when its state was not written yet: a task of which an event arrived
// after it was closed is open again. It reads in chunks of about 64 MiB at most, or one task; the ids of all candidates are held in memory. An error is
// yielded once, as the last.
func (c *ClickHouse) Tasks(ctx context.Context, filter memory.TaskFilter) iter.Seq2[memory.Task, error] {
	return func(yield func(memory.Task, error) bool) {
		keys, err := c.candidates(ctx, filter)
		if err != nil {
			yield(memory.Task{}, err)
			return
		}
		left, most := filter.Limit, keysPerQuery
		for len(keys) > 0 {
			n := min(len(keys), most)
			if filter.Limit > 0 {
				n = min(n, max(left, minTasksPerRead))
			}
			tasks, err := c.buildTasks(ctx, keys[:n])
			if errors.Is(err, memory.ErrTooMuch) {
				most = n / 2
				continue
			}
			if err != nil {
				yield(memory.Task{}, err)
				return
			}
			keys, most = keys[n:], min(2*most, keysPerQuery)
			for _, t := range tasks {
				if !passes(t, filter) {
					continue
				}
				if !yield(t, nil) {
					return
				}
				if left--; left == 0 {
					return
				}
			}
		}
	}
}

// minTasksPerRead keeps a small limit from reading task by task when few candidates pass the filter.
const minTasksPerRead = 20

// candidates finds the tasks that may pass: those whose written state passes, and those with an event that is newer
// than it. They come in the order in which they are yielded.
func (c *ClickHouse) candidates(ctx context.Context, f memory.TaskFilter) ([]memory.TaskKey, error) {
	var both, ofEvents, ofTasks conditions
	both.addIf(true, noTask)
	both.addIf(f.Namespace != "", "namespace = ?", f.Namespace)
	both.addIf(len(f.TaskIDs) > 0, "task_id IN ?", f.TaskIDs)
	// A task has these when any of its events has.
	both.addIf(f.SessionID != "", "session_id = ?", f.SessionID)
	both.addIf(f.GoalID != "", "goal_id = ?", f.GoalID)
	both.addIf(len(f.GoalIDs) > 0, "goal_id IN ?", f.GoalIDs)
	// A task that starts within a period has its first event there.
	ofEvents.addIf(!f.Since.IsZero(), "time >= fromUnixTimestamp64Milli(?, 'UTC')", f.Since.UnixMilli())
	ofEvents.addIf(!f.Until.IsZero(), "time < fromUnixTimestamp64Milli(?, 'UTC')", f.Until.UnixMilli())
	ofTasks.addIf(!f.Since.IsZero(), "started_at >= fromUnixTimestamp64Milli(?, 'UTC')", f.Since.UnixMilli())
	ofTasks.addIf(!f.Until.IsZero(), "started_at < fromUnixTimestamp64Milli(?, 'UTC')", f.Until.UnixMilli())
	ofTasks.addIf(f.TaskType != "", "task_type = ?", f.TaskType)
	ofTasks.addIf(f.Status != "", "status = ?", string(f.Status))
	ofTasks.addIf(f.OpenOnly, "NOT closed")

	direction := ""
	if f.Newest {
		direction = " DESC"
	}
	query := `SELECT namespace, task_id FROM (
			SELECT namespace, task_id, min(time) AS started, max(recorded_at) AS arrived, toDateTime64(0, 3, 'UTC') AS written, false AS fits
			FROM trace_events WHERE ` + both.and(&ofEvents) + ` GROUP BY namespace, task_id
			UNION ALL
			SELECT namespace, task_id, started_at, toDateTime64(0, 3, 'UTC'), recorded_at, ` + ofTasks.String() + `
			FROM tasks FINAL WHERE ` + both.String() + `
		)
		GROUP BY namespace, task_id
		HAVING max(fits) OR max(arrived) >= max(written)
		ORDER BY min(started)` + direction + `, namespace` + direction + `, task_id` + direction
	args := slices.Concat(both.args, ofEvents.args, ofTasks.args, both.args)
	var keys []memory.TaskKey
	err := c.query(ctx, "find tasks", query, args, func(rows driver.Rows) error {
		var key memory.TaskKey
		if err := rows.Scan(&key.Namespace, &key.TaskID); err != nil {
			return err
		}
		keys = append(keys, key)
		return nil
	})
	return keys, err
}

// noTask leaves out events that belong to no task: their task id begins with ~.
const noTask = "NOT startsWith(task_id, '~')"

// conditions are parts of a WHERE clause with their arguments.
type conditions struct {
	parts []string
	args  []any
}

func (c *conditions) addIf(yes bool, part string, args ...any) {
	if !yes {
		return
	}
	c.parts = append(c.parts, part)
	c.args = append(c.args, args...)
}

func (c *conditions) String() string {
	if len(c.parts) == 0 {
		return "true"
	}
	return strings.Join(c.parts, " AND ")
}

func (c *conditions) and(other *conditions) string { return c.String() + " AND " + other.String() }

// buildTasks builds the tasks from their events and written states, in the order of the keys.
func (c *ClickHouse) buildTasks(ctx context.Context, keys []memory.TaskKey) ([]memory.Task, error) {
	stored, err := c.TaskEvents(ctx, keys)
	if err != nil {
		return nil, err
	}
	written, err := c.writtenTasks(ctx, keys)
	if err != nil {
		return nil, err
	}
	tasks := make([]memory.Task, 0, len(keys))
	for _, key := range keys {
		row, wasWritten := written[key]
		if len(stored[key]) == 0 {
			if wasWritten {
				tasks = append(tasks, row) // Its events were erased; what was concluded stays.
			}
			continue
		}
		evs := memory.Envelopes(stored[key])
		closed := wasWritten && row.Closed && row.Events == len(evs)
		t := memory.BuildTask(evs, closed)
		// These texts may have passed their time to live in the events.
		t.Goal = cmp.Or(t.Goal, row.Goal)
		t.InputSummary = cmp.Or(t.InputSummary, row.InputSummary)
		tasks = append(tasks, t)
	}
	return tasks, nil
}

// passes applies the filter to the task as it is now.
func passes(t memory.Task, f memory.TaskFilter) bool {
	switch {
	case f.TaskType != "" && t.TaskType != f.TaskType,
		f.Status != "" && t.Status != f.Status,
		f.SessionID != "" && t.SessionID != f.SessionID,
		f.GoalID != "" && t.GoalID != f.GoalID,
		len(f.GoalIDs) > 0 && !slices.Contains(f.GoalIDs, t.GoalID),
		!f.Since.IsZero() && t.StartedAt.Before(f.Since),
		!f.Until.IsZero() && !t.StartedAt.Before(f.Until),
		f.OpenOnly && t.Closed:
		return false
	}
	return true
}
