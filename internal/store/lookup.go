package store

import (
	"context"
	"fmt"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/hindsight-memory/hindsight/internal/memory"
)

const (
	// MinPrefix is how many bytes of an id are needed to find it by its beginning.
	MinPrefix = 8
	// maxMatches bounds the answer to a short prefix.
	maxMatches = 100
)

// Lookup finds the tasks and events with an id, or, when there are none, those whose id begins with it, if it has at
// least [MinPrefix] bytes; at most 100 of each. Several matches mean that the id is ambiguous. Without namespaces it
// looks in all of them, which only an operator may. The error is [ErrNotFound] when nothing matches.
func (c *ClickHouse) Lookup(ctx context.Context, id string, namespaces ...string) ([]memory.Match, error) {
	comparisons := []string{"%s = ?"}
	if len(id) >= MinPrefix {
		comparisons = append(comparisons, "startsWith(%s, ?)")
	}
	for _, comparison := range comparisons {
		var byTask, byEvent conditions
		for column, where := range map[string]*conditions{"task_id": &byTask, "event_id": &byEvent} {
			where.addIf(len(namespaces) > 0, "namespace IN ?", namespaces)
			where.addIf(true, fmt.Sprintf(comparison, column), id)
		}
		query := fmt.Sprintf(`SELECT 'task' AS kind, task_id AS id, namespace, task_id, min(time) AS at FROM trace_events WHERE %[1]s GROUP BY namespace, task_id
				ORDER BY namespace, task_id LIMIT %[3]d
			UNION ALL
			SELECT 'event', event_id, namespace, task_id, min(time) FROM trace_events WHERE %[2]s GROUP BY namespace, task_id, event_id
				ORDER BY namespace, task_id, event_id LIMIT %[3]d`, &byTask, &byEvent, maxMatches)
		matches, err := c.matches(ctx, "SELECT kind, id, namespace, task_id, at FROM ("+query+") ORDER BY kind DESC, namespace, task_id, id",
			append(byTask.args, byEvent.args...))
		if err != nil {
			return nil, err
		}
		if len(matches) > 0 {
			return matches, nil
		}
	}
	return nil, fmt.Errorf("%w: nothing has the id %q, or begins with it (at least %d characters are needed for that)", ErrNotFound, id, MinPrefix)
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
