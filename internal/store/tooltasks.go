package store

import (
	"context"
	"math"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// ToolTasks counts the tasks in which an agent called a tool, about: of events from since on, and of those that were
// recorded by asOf. Zero times do not restrict.
func (c *ClickHouse) ToolTasks(ctx context.Context, namespace, tool string, since, asOf time.Time) (int, error) {
	if namespace == "" {
		return 0, ErrNamespace
	}
	var where conditions
	where.addIf(true, "namespace = ?", namespace)
	where.addIf(true, "kind = 'step_finished' AND actor != 'user' AND tool = ?", tool)
	where.addIf(!since.IsZero(), "time >= fromUnixTimestamp64Milli(?, 'UTC')", since.UnixMilli())
	where.addIf(!asOf.IsZero(), "recorded_at <= fromUnixTimestamp64Milli(?, 'UTC')", asOf.UnixMilli())
	n := 0
	err := c.query(ctx, "count tasks that call a tool", "SELECT uniq(task_id) FROM trace_events WHERE "+where.String(), where.args, func(rows driver.Rows) error {
		var tasks uint64
		err := rows.Scan(&tasks)
		n = int(min(tasks, math.MaxInt32))
		return err //nolint:wrapcheck // The query says what was read.
	})
	return n, err
}
