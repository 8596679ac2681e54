package store

import (
	"context"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/hindsight-memory/hindsight/internal/memory"
)

const reflectionColumns = "namespace, task_id, revision, closed, reflected_by, fallback, kept, dropped, basis"

// InsertReflections notes which revisions of tasks were reflected. The error may be a [RowError].
func (c *ClickHouse) InsertReflections(ctx context.Context, reflections []memory.TaskReflection) error {
	for i, r := range reflections {
		if r.Namespace == "" || r.TaskID == "" {
			return &RowError{Index: i, ID: r.TaskID, Reason: "namespace and task_id must not be empty: they are its key"}
		}
	}
	return c.insert(ctx, "reflections", reflectionColumns, len(reflections), func(b driver.Batch, i int) error {
		r := reflections[i]
		dropped := make(map[string]int64, len(r.Dropped))
		for reason, n := range r.Dropped {
			dropped[reason] = int64(n)
		}
		return b.Append(r.Namespace, r.TaskID, r.Revision, r.Closed, r.ReflectedBy, r.Fallback, int64(r.Kept), dropped, r.Basis)
	})
}

// Reflections returns the reflection of the highest revision of each task. Tasks that were never reflected are left out.
func (c *ClickHouse) Reflections(ctx context.Context, keys []memory.TaskKey) (map[memory.TaskKey]memory.TaskReflection, error) {
	out := make(map[memory.TaskKey]memory.TaskReflection, len(keys))
	err := c.byTask(ctx, "read reflections", "SELECT "+reflectionColumns+", recorded_at FROM reflections FINAL WHERE ", keys, func(rows driver.Rows) error {
		var r memory.TaskReflection
		var kept int64
		var dropped map[string]int64
		if err := rows.Scan(&r.Namespace, &r.TaskID, &r.Revision, &r.Closed, &r.ReflectedBy, &r.Fallback, &kept, &dropped, &r.Basis, &r.RecordedAt); err != nil {
			return err
		}
		r.Kept, r.RecordedAt = int(kept), r.RecordedAt.UTC()
		if len(dropped) > 0 {
			r.Dropped = make(map[string]int, len(dropped))
		}
		for reason, n := range dropped {
			r.Dropped[reason] = int(n)
		}
		key := memory.TaskKey{Namespace: r.Namespace, TaskID: r.TaskID}
		if have, is := out[key]; !is || have.Revision < r.Revision {
			out[key] = r
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Unreflected counts the tasks whose newest written state is closed and was not reflected yet, nor a later one, in one
// namespace, or in all when it is empty.
func (c *ClickHouse) Unreflected(ctx context.Context, namespace string) (int, error) {
	var where conditions
	where.addIf(namespace != "", "namespace = ?", namespace)
	query := `SELECT toInt64(count()) FROM (SELECT namespace, task_id, revision FROM tasks FINAL WHERE closed AND ` + where.String() + `) AS written
		LEFT JOIN (SELECT namespace, task_id, max(revision) AS reflected, count() AS n FROM reflections WHERE ` + where.String() + ` GROUP BY namespace, task_id) AS done
		ON done.namespace = written.namespace AND done.task_id = written.task_id
		WHERE n = 0 OR reflected < revision`
	args := append(where.args, where.args...)
	var n int64
	err := c.query(ctx, "count unreflected tasks", query, args, func(rows driver.Rows) error { return rows.Scan(&n) })
	return int(n), err
}
