package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/memory"
)

const (
	outlineColumns = `namespace, task_id, goal_id, task_type, revision, finished, status, certainty, started_at, tools, failed_tools, failed_signatures, failed_at`
	// tasksPerGoal is how many tasks of a goal are looked at, the latest.
	tasksPerGoal = 5000
	// errorsPerQuery bounds the length of a statement, as a signature has up to 300 bytes.
	errorsPerQuery = 200
)

func scanOutline(rows driver.Rows) (memory.TaskOutline, error) {
	t := memory.TaskOutline{Closed: true}
	var status, certainty string
	var tools, signatures []string
	var at []time.Time
	err := rows.Scan(&t.Key.Namespace, &t.Key.TaskID, &t.GoalID, &t.TaskType, &t.Revision, &t.Finished, &status, &certainty, &t.StartedAt, &t.Tools, &tools, &signatures, &at)
	if err != nil {
		return t, err //nolint:wrapcheck // The query says what was read.
	}
	t.Status, t.Certainty, t.StartedAt = events.Status(status), memory.Certainty(certainty), t.StartedAt.UTC()
	for i := range min(len(tools), len(signatures), len(at)) {
		t.Sightings = append(t.Sightings, memory.Sighting{Tool: tools[i], Signature: signatures[i], At: at[i].UTC()})
	}
	return t, nil
}

// Outlines returns those of the tasks whose newest written state is closed.
func (c *ClickHouse) Outlines(ctx context.Context, keys []memory.TaskKey) (map[memory.TaskKey]memory.TaskOutline, error) {
	out := make(map[memory.TaskKey]memory.TaskOutline, len(keys))
	err := c.byTask(ctx, "read outlines of tasks", "SELECT "+outlineColumns+" FROM tasks FINAL WHERE closed AND ", keys, func(rows driver.Rows) error {
		t, err := scanOutline(rows)
		out[t.Key] = t
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// OutlinesOfGoals returns the tasks of goals whose newest written state is closed and of which somebody said that they
// succeeded or failed; of each goal the latest 5,000.
func (c *ClickHouse) OutlinesOfGoals(ctx context.Context, namespace string, goals []string) ([]memory.TaskOutline, error) {
	var out []memory.TaskOutline
	query := fmt.Sprintf(`SELECT %s FROM tasks FINAL
		WHERE namespace = ? AND goal_id IN ? AND closed AND finished AND status IN ('success', 'failure') AND certainty != 'inferred'
		ORDER BY started_at DESC, task_id DESC LIMIT %d BY goal_id`, outlineColumns, tasksPerGoal)
	for chunk := range slices.Chunk(goals, idsPerQuery) {
		err := c.query(ctx, "read tasks of goals", query, []any{namespace, chunk}, func(rows driver.Rows) error {
			t, err := scanOutline(rows)
			out = append(out, t)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// FirstSightings returns the first tasks that met an error, at most so many of each, the earliest first. Rows of former
// states of tasks are among them.
func (c *ClickHouse) FirstSightings(ctx context.Context, keys []memory.ErrorKey, most int) (map[memory.ErrorKey][]memory.TaskSighting, error) {
	of := map[string][]clickhouse.GroupSet{}
	for _, k := range keys {
		of[k.Namespace] = append(of[k.Namespace], clickhouse.GroupSet{Value: []any{k.TaskType, k.Tool, k.Signature}})
	}
	out := make(map[memory.ErrorKey][]memory.TaskSighting, len(keys))
	// In the order of the table: of an error that half a million tasks have met, the first are found in a tenth of the time
	// that grouping takes.
	query := fmt.Sprintf(`SELECT task_type, tool, signature, first_at, task_id FROM task_errors FINAL
		WHERE namespace = ? AND (task_type, tool, signature) IN (?)
		ORDER BY task_type, tool, signature, first_at, task_id LIMIT %d BY task_type, tool, signature`, most)
	for namespace, sets := range of {
		for chunk := range slices.Chunk(sets, errorsPerQuery) {
			err := c.query(ctx, "look up errors", query, []any{namespace, chunk}, func(rows driver.Rows) error {
				k := memory.ErrorKey{Namespace: namespace}
				var s memory.TaskSighting
				if err := rows.Scan(&k.TaskType, &k.Tool, &k.Signature, &s.At, &s.TaskID); err != nil {
					return err
				}
				s.At = s.At.UTC()
				out[k] = append(out[k], s)
				return nil
			})
			if err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

const (
	// nearPerQuery bounds how many questions one statement asks.
	nearPerQuery = 40
	// nearTogether is from how many questions of one tool on all rows between them are read at once, and nearRows how many
	// rows there may be for that.
	nearTogether = 8
	nearRows     = 20_000
)

const (
	nearWhere = `namespace = ? AND task_type = ? AND tool = ? AND status = ?`
	nearSide  = `SELECT * FROM (SELECT toUInt32(%d) AS question, started_at, task_id FROM task_calls
		WHERE ` + nearWhere + ` AND started_at %[2]s= fromUnixTimestamp64Milli(?, 'UTC') AND (started_at, task_id) %[2]s (fromUnixTimestamp64Milli(?, 'UTC'), ?)
		ORDER BY started_at %[3]s, task_id %[3]s LIMIT 1 BY started_at, task_id LIMIT %[4]d)`
	nearBetween = `SELECT * FROM (SELECT toUInt32(%d) AS question, started_at, task_id FROM task_calls
		WHERE ` + nearWhere + ` AND started_at >= fromUnixTimestamp64Milli(?, 'UTC') AND started_at <= fromUnixTimestamp64Milli(?, 'UTC')
		ORDER BY started_at, task_id LIMIT 1 BY started_at, task_id LIMIT %d)`
)

// NearTasks returns for each question the tasks next to it by their start, at most so many on each side, the earliest first
// and without the task itself. Rows of former states of tasks are among them.
func (c *ClickHouse) NearTasks(ctx context.Context, questions []memory.NearTask, each int) ([][]memory.TaskSighting, error) {
	out := make([][]memory.TaskSighting, len(questions))
	type kind struct {
		namespace, taskType, tool string
		status                    events.Status
	}
	of := map[kind][]int{}
	for n, q := range questions {
		k := kind{q.Namespace, q.TaskType, q.Tool, q.Status}
		of[k] = append(of[k], n)
	}
	var single []int
	for _, group := range of {
		if len(group) < nearTogether {
			single = append(single, group...)
			continue
		}
		all, enough, err := c.nearAll(ctx, questions, group, each)
		if err != nil {
			return nil, err
		}
		if !enough {
			single = append(single, group...)
			continue
		}
		for _, n := range group {
			out[n] = nearest(all, memory.TaskSighting{TaskID: questions[n].TaskID, At: questions[n].At}, each)
		}
	}
	for chunk := range slices.Chunk(single, nearPerQuery) {
		var parts []string
		var args []any
		for _, n := range chunk {
			q := questions[n]
			at := q.At.UnixMilli()
			parts = append(parts, fmt.Sprintf(nearSide, n, "<", "DESC", each), fmt.Sprintf(nearSide, n, ">", "ASC", each))
			for range 2 {
				args = append(args, q.Namespace, q.TaskType, q.Tool, string(q.Status), at, at, q.TaskID)
			}
		}
		err := c.near(ctx, parts, args, func(n uint32, s memory.TaskSighting) { out[n] = append(out[n], s) })
		if err != nil {
			return nil, err
		}
	}
	for _, found := range out {
		slices.SortFunc(found, memory.TaskSighting.Compare)
	}
	return out, nil
}

// nearAll reads the tasks between all questions of one kind, and so many before and after them. It is not enough when there
// are too many.
func (c *ClickHouse) nearAll(ctx context.Context, questions []memory.NearTask, group []int, each int) (all []memory.TaskSighting, enough bool, err error) {
	first, last := questions[group[0]], questions[group[0]]
	for _, n := range group {
		if q := questions[n]; q.At.Before(first.At) {
			first = q
		} else if q.At.After(last.At) {
			last = q
		}
	}
	kind := []any{first.Namespace, first.TaskType, first.Tool, string(first.Status)}
	from, to := first.At.UnixMilli(), last.At.UnixMilli()
	parts := []string{fmt.Sprintf(nearBetween, 0, nearRows+1), fmt.Sprintf(nearSide, 1, "<", "DESC", each), fmt.Sprintf(nearSide, 1, ">", "ASC", each)}
	// Before the first moment and after the last, whichever task began then.
	args := slices.Concat(kind, []any{from, to}, kind, []any{from - 1, from, ""}, kind, []any{to + 1, to, ""})
	between := 0
	err = c.near(ctx, parts, args, func(n uint32, s memory.TaskSighting) {
		if n == 0 {
			between++
		}
		all = append(all, s)
	})
	slices.SortFunc(all, memory.TaskSighting.Compare)
	return all, between <= nearRows, err
}

// near runs parts of a statement together.
func (c *ClickHouse) near(ctx context.Context, parts []string, args []any, each func(question uint32, s memory.TaskSighting)) error {
	return c.query(ctx, "find tasks that called a tool", strings.Join(parts, " UNION ALL "), args, func(rows driver.Rows) error {
		var n uint32
		var s memory.TaskSighting
		if err := rows.Scan(&n, &s.At, &s.TaskID); err != nil {
			return err
		}
		s.At = s.At.UTC()
		each(n, s)
		return nil
	})
}

// nearest picks of sightings in order those next to one on both sides.
func nearest(all []memory.TaskSighting, of memory.TaskSighting, each int) []memory.TaskSighting {
	at, is := slices.BinarySearchFunc(all, of, memory.TaskSighting.Compare)
	before := all[max(0, at-each):at]
	if is {
		at++
	}
	return slices.Concat(before, all[at:min(len(all), at+each)])
}
