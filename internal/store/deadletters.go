package store

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/hindsight-memory/hindsight/internal/memory"
)

const deadLetterColumns = "letter_id, namespace, origin_stream, subject, reason, error, payload, attempts, time"

// InsertDeadLetters stores dead letters. Storing one again replaces it. The error may be a [RowError].
func (c *ClickHouse) InsertDeadLetters(ctx context.Context, letters []memory.DeadLetter) error {
	for i, l := range letters {
		if l.ID == "" {
			return &RowError{Index: i, ID: l.ID, Reason: "id must not be empty: it is its key"}
		}
		if reason := unstorable(l.Time); reason != "" {
			return &RowError{Index: i, ID: l.ID, Reason: reason}
		}
	}
	for chunk := range slices.Chunk(letters, lettersPerInsert) {
		if err := c.insert(ctx, "dead_letters", deadLetterColumns, len(chunk), func(b driver.Batch, i int) error {
			l := chunk[i]
			return b.Append(l.ID, l.Namespace, l.OriginStream, l.Subject, l.Reason, l.Error, string(l.Payload), int64(l.Attempts), l.Time)
		}); err != nil {
			return err
		}
	}
	return nil
}

// lettersPerInsert bounds the memory of one insert: a payload may have 1 MiB.
const lettersPerInsert = 64

// DeadLetters returns dead letters, the newest first.
func (c *ClickHouse) DeadLetters(ctx context.Context, f memory.DeadLetterFilter) ([]memory.DeadLetter, error) {
	var where conditions
	where.addIf(f.Namespace != "", "namespace = ?", f.Namespace)
	where.addIf(f.Reason != "", "reason = ?", f.Reason)
	where.addIf(len(f.IDs) > 0, "letter_id IN ?", f.IDs)
	where.addIf(!f.Since.IsZero(), "time >= fromUnixTimestamp64Milli(?, 'UTC')", f.Since.UnixMilli())
	query := "SELECT " + deadLetterColumns + " FROM dead_letters FINAL WHERE " + where.String() + " ORDER BY time DESC, letter_id DESC"
	if f.Limit > 0 {
		query += " LIMIT " + strconv.Itoa(f.Limit)
	}
	var letters []memory.DeadLetter
	err := c.query(ctx, "read dead letters", query, where.args, func(rows driver.Rows) error {
		var l memory.DeadLetter
		var payload string
		var attempts int64
		if err := rows.Scan(&l.ID, &l.Namespace, &l.OriginStream, &l.Subject, &l.Reason, &l.Error, &payload, &attempts, &l.Time); err != nil {
			return err
		}
		l.Payload, l.Attempts, l.Time = []byte(payload), int(attempts), l.Time.In(time.UTC)
		letters = append(letters, l)
		return nil
	})
	return letters, err
}
