package store

import (
	"context"

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

// Runs returns the newest state of each run of a job, or of all jobs when it is empty, the latest start first; at most n,
// and 0 means all.
func (c *ClickHouse) Runs(ctx context.Context, job string, n int) ([]memory.Run, error) {
	var where conditions
	where.addIf(job != "", "job = ?", job)
	return c.runs(ctx, where.String()+" ORDER BY started_at DESC, run_id DESC"+limit(n), where.args...)
}

// runs reads the newest states of runs; where may end with an order and a limit.
func (c *ClickHouse) runs(ctx context.Context, where string, args ...any) ([]memory.Run, error) {
	var out []memory.Run
	err := c.query(ctx, "read runs", "SELECT "+runColumns+" FROM consolidation_runs FINAL WHERE "+where, args, func(rows driver.Rows) error {
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
