package store

import (
	"context"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/memory"
)

// Health returns what the record holds, of one namespace, or of all when it is empty.
func (c *ClickHouse) Health(ctx context.Context, namespace string) (memory.Health, error) {
	var where conditions
	where.addIf(namespace != "", "namespace = ?", namespace)
	query := `SELECT toInt64(sum(events)), toInt64(sum(tasks_open)), toInt64(sum(tasks_closed)), toInt64(sum(unknown_kinds)),
		toInt64(sum(dead_letters)), max(last_arrival) FROM v_health WHERE ` + where.String()
	var h memory.Health
	err := c.query(ctx, "read health", query, where.args, func(rows driver.Rows) error {
		return rows.Scan(&h.Events, &h.TasksOpen, &h.TasksClosed, &h.UnknownKinds, &h.DeadLetters, &h.LastArrival)
	})
	if err != nil {
		return memory.Health{}, err
	}
	h.LastArrival = h.LastArrival.UTC()
	if h.LastArrival.Equal(time.Unix(0, 0)) {
		h.LastArrival = time.Time{}
	}
	return h, nil
}

// CountUnknownKinds counts the distinct events of each kind that this version does not know, of one namespace, or of
// all when it is empty.
func (c *ClickHouse) CountUnknownKinds(ctx context.Context, namespace string) (map[string]int64, error) {
	var where conditions
	where.addIf(true, "kind NOT IN ?", knownKinds())
	where.addIf(namespace != "", "namespace = ?", namespace)
	out := map[string]int64{}
	err := c.query(ctx, "count unknown kinds", "SELECT kind, toInt64(uniqExact(namespace, event_id)) FROM trace_events WHERE "+where.String()+" GROUP BY kind", where.args,
		func(rows driver.Rows) error {
			var kind string
			var n int64
			if err := rows.Scan(&kind, &n); err != nil {
				return err
			}
			out[kind] = n
			return nil
		})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func knownKinds() []string {
	kinds := events.Kinds()
	out := make([]string, len(kinds))
	for i, k := range kinds {
		out[i] = string(k)
	}
	return out
}
