package store

import (
	"context"
	"fmt"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// ItemIDs lists the ids of all items but summaries, whatever their status, in order: at most so many, those after the
// given one, so that a namespace can be gone through page by page. The limit must be at least 1.
func (c *ClickHouse) ItemIDs(ctx context.Context, namespace, after string, limit int) ([]string, error) {
	if namespace == "" {
		return nil, ErrNamespace
	}
	if limit < 1 {
		return nil, fmt.Errorf("%w: list items: limit %d: it must be at least 1", ErrOptions, limit)
	}
	var ids []string
	err := c.query(ctx, "list items", fmt.Sprintf("SELECT item_id FROM item_texts WHERE namespace = ? AND item_id > ? ORDER BY item_id LIMIT 1 BY item_id LIMIT %d", limit),
		[]any{namespace, after}, func(rows driver.Rows) error {
			var id string
			err := rows.Scan(&id)
			ids = append(ids, id)
			return err
		})
	return ids, err
}
