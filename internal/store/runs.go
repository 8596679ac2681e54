package store

import (
	"context"
	"strconv"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/hindsight-memory/hindsight/internal/memory"
)

const runColumns = "job, run_id, version, status, fence, holder, namespace, started_at, committed_at, counts, error"

// InsertRun writes a state of a run; of several the highest Version counts. From a committed state on, what the run
// wrote counts as well. A committed state says when. The error may be a [RowError].
func (c *ClickHouse) InsertRun(ctx context.Context, run memory.Run) error {
	reason := unstorable(run.StartedAt)
	switch {
	case run.Job == "" || run.RunID == "":
		reason = "job and run must not be empty: they are its key"
	case run.Status == memory.RunCommitted && run.CommittedAt == nil:
		reason = "it is committed, but does not say when: nothing could be asked as of a moment"
	case run.CommittedAt != nil && reason == "":
		reason = unstorable(*run.CommittedAt)
	}
	if reason != "" {
		return &RowError{ID: run.RunID, Reason: reason}
	}
	counts := run.Counts
	if counts == nil {
		counts = map[string]uint64{}
	}
	return c.insert(ctx, "consolidation_runs", runColumns, 1, func(b driver.Batch, _ int) error {
		return b.Append(run.Job, run.RunID, run.Version, string(run.Status), run.Fence, run.Holder, run.Namespace, run.StartedAt, run.CommittedAt, counts, run.Error)
	})
}

// Runs returns the newest state of each run of a job, or of all jobs when it is empty, the latest start first. Limit 0
// means all.
func (c *ClickHouse) Runs(ctx context.Context, job string, limit int) ([]memory.Run, error) {
	var where conditions
	where.addIf(job != "", "job = ?", job)
	query := "SELECT " + runColumns + " FROM consolidation_runs FINAL WHERE " + where.String() + " ORDER BY started_at DESC, run_id DESC"
	if limit > 0 {
		query += " LIMIT " + strconv.Itoa(limit)
	}
	var out []memory.Run
	err := c.query(ctx, "read runs", query, where.args, func(rows driver.Rows) error {
		var r memory.Run
		var status string
		if err := rows.Scan(&r.Job, &r.RunID, &r.Version, &status, &r.Fence, &r.Holder, &r.Namespace, &r.StartedAt, &r.CommittedAt, &r.Counts, &r.Error); err != nil {
			return err
		}
		r.Status, r.StartedAt = memory.RunStatus(status), r.StartedAt.UTC()
		if r.CommittedAt != nil {
			at := r.CommittedAt.UTC()
			r.CommittedAt = &at
		}
		if len(r.Counts) == 0 {
			r.Counts = nil
		}
		out = append(out, r)
		return nil
	})
	return out, err
}
