package store

import (
	"context"
	"slices"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/hindsight-memory/hindsight/internal/memory"
)

// InsertAudit notes who changed what. Storing an entry again changes nothing. The error may be a [RowError].
func (c *ClickHouse) InsertAudit(ctx context.Context, entries []memory.AuditEntry) error {
	for i, e := range entries {
		reason := unstorable(e.Time)
		if e.Namespace == "" || e.AuditID == "" {
			reason = "namespace and audit_id must not be empty: they are its key"
		}
		if reason != "" {
			return &RowError{Index: i, ID: e.AuditID, Reason: reason}
		}
	}
	// Entries of one call are of one moment as a rule; of a few months at most.
	for chunk := range slices.Chunk(entries, maxInsertMonths) {
		if err := c.insert(ctx, "audit", "namespace, time, audit_id, actor, actor_kind, door, action, target, target_kind, reason, before, after", len(chunk), func(b driver.Batch, i int) error {
			e := chunk[i]
			return b.Append(e.Namespace, e.Time, e.AuditID, e.Actor, e.ActorKind, e.Door, e.Action, e.Target, e.TargetKind, e.Reason, string(e.Before), string(e.After))
		}); err != nil {
			return err
		}
	}
	return nil
}
