package store

import (
	"context"
	"slices"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/memory"
)

// shownIn are the states of tasks that are over and in which items were shown.
const shownIn = "namespace = ? AND closed AND NOT withheld AND notEmpty(recalled)"

// ShownSince names the items that were shown in tasks whose end was recorded since a moment, in order; a zero time does not
// restrict.
func (c *ClickHouse) ShownSince(ctx context.Context, namespace string, since time.Time) ([]string, error) {
	if namespace == "" {
		return nil, ErrNamespace
	}
	query, args := "SELECT DISTINCT arrayJoin(recalled) AS item FROM tasks FINAL WHERE "+shownIn, []any{namespace}
	if !since.IsZero() {
		query, args = query+" AND recorded_at >= fromUnixTimestamp64Milli(?, 'UTC')", append(args, since.UnixMilli())
	}
	var out []string
	err := c.query(ctx, "find what was shown", query+" ORDER BY item", args, func(rows driver.Rows) error {
		var id string
		err := rows.Scan(&id)
		out = append(out, id)
		return err //nolint:wrapcheck // The query says what was read.
	})
	return out, err
}

// ShownIn names, for each item, the tasks that are over and in which it was shown: at most so many, those that ended last.
// Items that were shown in none are left out.
func (c *ClickHouse) ShownIn(ctx context.Context, namespace string, ids []string, limit int) (map[string][]string, error) {
	if namespace == "" {
		return nil, ErrNamespace
	}
	out := make(map[string][]string, len(ids))
	const query = `SELECT item, arrayMap(t -> t.2, arraySlice(arrayReverseSort(groupArray((ended_at, task_id))), 1, ?)) FROM (
			SELECT arrayJoin(arrayFilter(i -> i IN ?, recalled)) AS item, ended_at, task_id FROM tasks FINAL WHERE ` + shownIn + `
		) GROUP BY item`
	for chunk := range slices.Chunk(ids, idsPerQuery) {
		err := c.query(ctx, "find where items were shown", query, []any{limit, chunk, namespace}, func(rows driver.Rows) error {
			var id string
			var tasks []string
			err := rows.Scan(&id, &tasks)
			out[id] = tasks
			return err //nolint:wrapcheck // The query says what was read.
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// FailureShares gives, by type, the share of finished tasks that somebody said had failed: 0 to 1, drawn toward a half where
// there are few (Laplace's rule of succession).
func (c *ClickHouse) FailureShares(ctx context.Context, namespace string) (map[string]float64, error) {
	if namespace == "" {
		return nil, ErrNamespace
	}
	out := map[string]float64{}
	const query = "SELECT task_type, (countIf(status = ? AND certainty != ?) + 1) / (count() + 2) FROM tasks FINAL WHERE namespace = ? AND closed GROUP BY task_type"
	err := c.query(ctx, "count tasks that fail", query, []any{string(events.StatusFailure), string(memory.CertaintyInferred), namespace}, func(rows driver.Rows) error {
		var taskType string
		var share float64
		err := rows.Scan(&taskType, &share)
		out[taskType] = share
		return err //nolint:wrapcheck // The query says what was read.
	})
	return out, err
}
