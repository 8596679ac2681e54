package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/hindsight-memory/hindsight/internal/memory"
)

const (
	// MinPrefix is how many bytes of an id are needed to find it by its beginning.
	MinPrefix = 8
	// maxMatches bounds the answer to a short prefix.
	maxMatches = 100
)

// Lookup finds the tasks, events, snapshots, memories and rules with an id, or, when there are none, those whose id
// begins with it, if it has at least [MinPrefix] bytes; at most 100 of each. Several matches mean that the id is
// ambiguous. Without namespaces it looks in all of them, which only an operator may. The error is [ErrNotFound] when
// nothing matches.
func (c *ClickHouse) Lookup(ctx context.Context, id string, namespaces ...string) ([]memory.Match, error) {
	comparisons := []string{"%s = ?"}
	if len(id) >= MinPrefix {
		comparisons = append(comparisons, "startsWith(%s, ?)")
	}
	for _, comparison := range comparisons {
		var parts []string
		var args []any
		for _, in := range lookedUp() {
			var where conditions
			where.addIf(len(namespaces) > 0, "namespace IN ?", namespaces)
			where.addIf(true, fmt.Sprintf(comparison, in.id), id)
			where.addIf(in.kind == memory.MatchTask, noTask)
			if in.versions {
				counts := visible(time.Time{})
				where.addIf(true, counts.String(), counts.args...)
			}
			parts = append(parts, fmt.Sprintf(`SELECT '%s' AS kind, %s AS id, namespace, %s AS of_task, min(%s) AS at FROM %s WHERE %s
				GROUP BY namespace, of_task, id ORDER BY namespace, of_task, id LIMIT %d`, in.kind, in.id, in.taskID, in.time, in.table, where.String(), maxMatches))
			args = append(args, where.args...)
		}
		matches, err := c.matches(ctx, "SELECT kind, id, namespace, of_task, at FROM ("+strings.Join(parts, " UNION ALL ")+") ORDER BY kind DESC, namespace, of_task, id", args)
		if err != nil {
			return nil, err
		}
		if len(matches) > 0 {
			return matches, nil
		}
	}
	return nil, fmt.Errorf("%w: nothing has the id %q, or begins with it (at least %d characters are needed for that)", ErrNotFound, id, MinPrefix)
}

// lookedIn is where ids are looked up.
type lookedIn struct {
	kind                    memory.MatchKind
	table, id, taskID, time string
	// versions means that rows count only once the run that wrote them is committed.
	versions bool
}

func lookedUp() []lookedIn {
	return []lookedIn{
		{kind: memory.MatchTask, table: "trace_events", id: "task_id", taskID: "task_id", time: "time"},
		{kind: memory.MatchEvent, table: "trace_events", id: "event_id", taskID: "task_id", time: "time"},
		{kind: memory.MatchSnapshot, table: "snapshots", id: "snapshot_id", taskID: "task_id", time: "timestamp", versions: true},
		{kind: memory.MatchMemory, table: "memories", id: "memory_id", taskID: "task_id", time: "timestamp", versions: true},
		{kind: memory.MatchRule, table: "rules", id: "rule_id", taskID: "''", time: "timestamp", versions: true},
	}
}

func (c *ClickHouse) matches(ctx context.Context, query string, args []any) ([]memory.Match, error) {
	var out []memory.Match
	err := c.query(ctx, "look up an id", query, args, func(rows driver.Rows) error {
		var m memory.Match
		var kind string
		if err := rows.Scan(&kind, &m.ID, &m.Namespace, &m.TaskID, &m.Time); err != nil {
			return err
		}
		m.Kind, m.Time = memory.MatchKind(kind), m.Time.UTC()
		out = append(out, m)
		return nil
	})
	return out, err
}

// Event returns one event. Of copies the one that was recorded first counts. The error is [ErrNotFound].
func (c *ClickHouse) Event(ctx context.Context, namespace, id string) (memory.StoredEvent, error) {
	var first memory.StoredEvent
	found := false
	err := c.query(ctx, "read event", "SELECT "+eventColumns+", recorded_at FROM trace_events WHERE namespace = ? AND event_id = ?", []any{namespace, id},
		func(rows driver.Rows) error {
			e, err := scanEvent(rows)
			if err != nil {
				return err
			}
			if !found || recordedBefore(e, first) {
				first, found = e, true
			}
			return nil
		})
	if err != nil {
		return memory.StoredEvent{}, err
	}
	if !found {
		return memory.StoredEvent{}, fmt.Errorf("%w: event %q in namespace %q", ErrNotFound, id, namespace)
	}
	return first, nil
}
