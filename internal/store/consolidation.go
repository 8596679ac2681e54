package store

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/hindsight-memory/hindsight/internal/memory"
)

// committedRuns are the runs whose rows count.
const committedRuns = "(run_id = '' OR run_id IN (SELECT run_id FROM consolidation_runs FINAL WHERE status = 'committed'))"

// Votes as words of the table.
const (
	voteSupport = "support"
	voteRefute  = "refute"
)

// LastRun returns the latest committed run of a job for a namespace; found is false where there is none.
func (c *ClickHouse) LastRun(ctx context.Context, job, namespace string) (run memory.Run, found bool, err error) {
	runs, err := c.runs(ctx, "job = ? AND namespace = ? AND status = 'committed' ORDER BY committed_at DESC, run_id DESC LIMIT 1", job, namespace)
	if err != nil || len(runs) == 0 {
		return memory.Run{}, false, err
	}
	return runs[0], true, nil
}

// RunningRuns lists all runs whose newest state is running, the earliest first.
func (c *ClickHouse) RunningRuns(ctx context.Context) ([]memory.Run, error) {
	return c.runs(ctx, "status = 'running' ORDER BY started_at, run_id")
}

// InsertVotes writes what tasks say about rules. Writing a vote again changes nothing. The error may be a [RowError].
func (c *ClickHouse) InsertVotes(ctx context.Context, votes []memory.Vote) error {
	for i, v := range votes {
		if v.Namespace == "" || v.RuleID == "" || v.TaskID == "" {
			return &RowError{Index: i, ID: v.RuleID, Reason: "namespace, rule and task must not be empty: they are its key"}
		}
	}
	const columns = "namespace, rule_id, task_id, run_id, task_revision, vote, goal_id, agent_id, confirmed_by, shown, event_id"
	for chunk := range slices.Chunk(votes, maxInsertRows) {
		if err := c.insert(ctx, "rule_votes", columns, len(chunk), func(b driver.Batch, i int) error {
			v, word := chunk[i], voteRefute
			if v.Support {
				word = voteSupport
			}
			return b.Append(v.Namespace, v.RuleID, v.TaskID, v.RunID, v.TaskRevision, word, v.GoalID, v.AgentID, v.ConfirmedBy, v.Shown, v.EventID)
		}); err != nil {
			return err
		}
	}
	return nil
}

// Votes returns the votes on rules that count: one a task, of committed runs, that of the highest task revision, and
// among equals the one recorded last.
func (c *ClickHouse) Votes(ctx context.Context, namespace string, ruleIDs []string) ([]memory.Vote, error) {
	if namespace == "" {
		return nil, ErrNamespace
	}
	const query = `SELECT rule_id, task_id, current.1, current.2, current.3, current.4, current.5, current.6, current.7, current.8 FROM (
			SELECT rule_id, task_id, argMax((run_id, task_revision, vote, goal_id, agent_id, confirmed_by, shown, event_id), (task_revision, recorded_at, run_id)) AS current
			FROM rule_votes WHERE namespace = ? AND rule_id IN ? AND ` + committedRuns + `
			GROUP BY rule_id, task_id
		) ORDER BY rule_id, task_id`
	var out []memory.Vote
	for chunk := range slices.Chunk(ruleIDs, idsPerQuery) {
		err := c.query(ctx, "read votes on rules", query, []any{namespace, chunk}, func(rows driver.Rows) error {
			v := memory.Vote{Namespace: namespace}
			var word string
			if err := rows.Scan(&v.RuleID, &v.TaskID, &v.RunID, &v.TaskRevision, &word, &v.GoalID, &v.AgentID, &v.ConfirmedBy, &v.Shown, &v.EventID); err != nil {
				return err
			}
			v.Support = word == voteSupport
			out = append(out, v)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Namespaces lists all namespaces that hold tasks or items, in order. Only an operator, or a job that goes through all of
// them one by one, may ask.
func (c *ClickHouse) Namespaces(ctx context.Context) ([]string, error) {
	var out []string
	err := c.query(ctx, "list namespaces", `SELECT DISTINCT namespace FROM (
			SELECT DISTINCT namespace FROM tasks
			UNION ALL SELECT DISTINCT namespace FROM snapshots
			UNION ALL SELECT DISTINCT namespace FROM memories
			UNION ALL SELECT DISTINCT namespace FROM rules
		) ORDER BY namespace`, nil, func(rows driver.Rows) error {
		var namespace string
		if err := rows.Scan(&namespace); err != nil {
			return err
		}
		out = append(out, namespace)
		return nil
	})
	return out, err
}

// ItemVectors returns the vector of the newest text of each item under a model. Items without one are left out.
func (c *ClickHouse) ItemVectors(ctx context.Context, namespace, model string, ids []string) (map[string][]float32, error) {
	if namespace == "" {
		return nil, ErrNamespace
	}
	out := make(map[string][]float32, len(ids))
	const query = `SELECT item_id, argMax(vector, (first, text_hash)) FROM (
			SELECT item_id, text_hash, argMin(item_vectors.vector, recorded_at) AS vector, min(recorded_at) AS first
			FROM item_vectors WHERE namespace = ? AND model = ? AND item_id IN ?
			GROUP BY item_id, text_hash
		) GROUP BY item_id`
	for chunk := range slices.Chunk(ids, idsPerQuery) {
		err := c.query(ctx, "read vectors", query, []any{namespace, model, chunk}, func(rows driver.Rows) error {
			var id string
			var vector []float32
			if err := rows.Scan(&id, &vector); err != nil {
				return err
			}
			out[id] = vector
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// TextVectors returns the vectors of items under a model, each of the text that its hash names. Items without one are left
// out.
func (c *ClickHouse) TextVectors(ctx context.Context, namespace, model string, texts map[string]string) (map[string][]float32, error) {
	if namespace == "" {
		return nil, ErrNamespace
	}
	out := make(map[string][]float32, len(texts))
	const query = `SELECT item_id, text_hash, argMin(item_vectors.vector, recorded_at) FROM item_vectors
		WHERE namespace = ? AND model = ? AND item_id IN ? GROUP BY item_id, text_hash`
	for chunk := range slices.Chunk(slices.Sorted(maps.Keys(texts)), idsPerQuery) {
		err := c.query(ctx, "read vectors", query, []any{namespace, model, chunk}, func(rows driver.Rows) error {
			var id, text string
			var vector []float32
			if err := rows.Scan(&id, &text, &vector); err != nil {
				return err
			}
			if texts[id] == text {
				out[id] = vector
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// VectorsSince returns the ids of the items of which a vector under a model was recorded since a moment, in order.
func (c *ClickHouse) VectorsSince(ctx context.Context, namespace, model string, since time.Time) ([]string, error) {
	if namespace == "" {
		return nil, ErrNamespace
	}
	var out []string
	err := c.query(ctx, "find new vectors", `SELECT DISTINCT item_id FROM item_vectors
			WHERE namespace = ? AND model = ? AND recorded_at >= fromUnixTimestamp64Milli(?, 'UTC') ORDER BY item_id`,
		[]any{namespace, model, max(since.UnixMilli(), 0)}, func(rows driver.Rows) error {
			var id string
			err := rows.Scan(&id)
			out = append(out, id)
			return err
		})
	return out, err
}

// limit is the clause that bounds an answer; 0 means all.
func limit(n int) string {
	if n <= 0 {
		return ""
	}
	return " LIMIT " + strconv.Itoa(n)
}
