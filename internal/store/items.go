package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/hindsight-memory/hindsight/internal/memory"
)

var (
	_ memory.ItemReader = (*ClickHouse)(nil)
	_ memory.ItemWriter = (*ClickHouse)(nil)
)

// ErrNamespace means that a question about items does not say whose. Nothing was asked of the server.
var ErrNamespace = errors.New("no namespace given: items are read in one namespace at a time")

// idsPerQuery bounds how many ids stand in one statement: they stand there twice, have up to 128 bytes as a rule, and
// the server takes statements of 256 KiB by default.
const idsPerQuery = 300

// itemTable describes a table of versions. A column that a table does not have is empty, and a filter by it lets
// nothing pass.
type itemTable struct {
	layer memory.Layer
	name  string
	// id is the column that names the item, and time the one by which items are ordered.
	id, time string
	// columns are written, in the order of the values; recorded_at is added on reading.
	columns                                                          string
	taskType, taskID, goalID, sessionID, tool, errorType, memoryType string
	entity                                                           bool
}

// versionKey names one write of an item: the sorting key of all four tables after the namespace.
type versionKey struct {
	namespace, id string
	taskRevision  uint64
	writer        string
	seq           uint64
}

// write is a version that is about to be written.
type write struct {
	key        versionKey
	writerKind memory.WriterKind
	runID      string
	values     []any
}

// newWrite checks what all items have in common. The reason is empty when there is nothing wrong.
func newWrite(namespace, id string, v memory.Version, evidence []string, times []time.Time, numbers []float64) (write, string) {
	switch {
	case namespace == "" || id == "":
		return write{}, "namespace and id must not be empty: they are its key"
	case v.Writer == "":
		return write{}, "the version says no writer"
	case v.WriterKind != memory.WriterMachine && v.WriterKind != memory.WriterPerson:
		return write{}, fmt.Sprintf("the kind of its writer is %q: it must be %q or %q", v.WriterKind, memory.WriterMachine, memory.WriterPerson)
	case len(evidence) == 0:
		return write{}, "it names no evidence: an item without the events that it was drawn from cannot be checked"
	}
	for _, t := range times {
		if reason := unstorable(t); reason != "" {
			return write{}, reason
		}
	}
	for _, n := range numbers {
		if math.IsNaN(n) || math.IsInf(n, 0) {
			return write{}, fmt.Sprintf("%v is no number that can be stored", n)
		}
	}
	return write{
		key:        versionKey{namespace: namespace, id: id, taskRevision: v.TaskRevision, writer: v.Writer, seq: v.Seq},
		writerKind: v.WriterKind, runID: v.RunID,
	}, ""
}

// insertVersions writes those versions that are not there yet. The table would replace an equal row by the later one,
// and with it the moment at which the version was recorded, so that a write that is repeated could overtake a version
// in between: it looks first. Two that repeat a write in the same instant both write it; that does no harm, since
// nothing lies between them.
func (c *ClickHouse) insertVersions(ctx context.Context, table itemTable, writes []write) error {
	there, err := c.versionsThere(ctx, table, writes)
	if err != nil {
		return err
	}
	missing := make([]*write, 0, len(writes))
	for i := range writes {
		w := &writes[i]
		if run, is := there[w.key]; is {
			if run != w.runID {
				return &RowError{Index: i, ID: w.key.id, Reason: fmt.Sprintf(
					"run %q has written this version (task revision %d, writer %q, seq %d) already, and now run %q does: each run must count its writes by numbers of its own",
					run, w.key.taskRevision, w.key.writer, w.key.seq, w.runID)}
			}
			continue
		}
		there[w.key] = w.runID
		missing = append(missing, w)
	}
	for chunk := range slices.Chunk(missing, itemsPerInsert) {
		if err := c.insert(ctx, table.name, table.columns, len(chunk), func(b driver.Batch, i int) error {
			return b.Append(chunk[i].values...)
		}); err != nil {
			return err
		}
	}
	return nil
}

// itemsPerInsert bounds the memory of one insert.
const itemsPerInsert = 2000

// versionsThere tells which versions of the items are stored, with the run that wrote each.
func (c *ClickHouse) versionsThere(ctx context.Context, table itemTable, writes []write) (map[versionKey]string, error) {
	ids := map[string][]string{}
	seen := map[[2]string]struct{}{}
	for _, w := range writes {
		item := [2]string{w.key.namespace, w.key.id}
		if _, is := seen[item]; !is {
			seen[item] = struct{}{}
			ids[w.key.namespace] = append(ids[w.key.namespace], w.key.id)
		}
	}
	there := make(map[versionKey]string, len(writes))
	query := fmt.Sprintf("SELECT namespace, %[1]s, task_revision, writer, seq, run_id FROM %[2]s WHERE namespace = ? AND %[1]s IN ?", table.id, table.name)
	for namespace, all := range ids {
		for chunk := range slices.Chunk(all, idsPerQuery) {
			err := c.query(ctx, "look for versions in "+table.name, query, []any{namespace, chunk}, func(rows driver.Rows) error {
				var k versionKey
				var run string
				if err := rows.Scan(&k.namespace, &k.id, &k.taskRevision, &k.writer, &k.seq, &run); err != nil {
					return err
				}
				there[k] = run
				return nil
			})
			if err != nil {
				return nil, err
			}
		}
	}
	return there, nil
}

// visible is what lets a version count: it was recorded by then, and so was the end of the run that wrote it.
func visible(asOf time.Time) conditions {
	var where conditions
	if asOf.IsZero() {
		where.addIf(true, "(run_id = '' OR run_id IN (SELECT run_id FROM consolidation_runs FINAL WHERE status = 'committed'))")
		return where
	}
	where.addIf(true, "recorded_at <= fromUnixTimestamp64Milli(?, 'UTC')", asOf.UnixMilli())
	where.addIf(true, "(run_id = '' OR run_id IN (SELECT run_id FROM consolidation_runs FINAL WHERE status = 'committed' AND committed_at <= fromUnixTimestamp64Milli(?, 'UTC')))", asOf.UnixMilli())
	return where
}

// currentOrder ranks the versions of an item; the greatest is current.
const currentOrder = "(writer_kind = 'person', task_revision, recorded_at, writer, seq)"

// of gives the conditions of a filter that a version fulfils or not. It is false when none can.
func (table itemTable) of(f memory.ItemFilter) (where conditions, can bool) {
	can = true
	need := func(asked bool, column, part string, arg any) {
		if asked && column == "" {
			can = false
		}
		if asked && column != "" {
			where.addIf(true, column+part, arg)
		}
	}
	need(f.TaskType != "", table.taskType, " = ?", f.TaskType)
	need(len(f.TaskIDs) > 0, table.taskID, " IN ?", f.TaskIDs)
	need(f.GoalID != "", table.goalID, " = ?", f.GoalID)
	need(f.SessionID != "", table.sessionID, " = ?", f.SessionID)
	need(f.Tool != "", table.tool, " = ?", f.Tool)
	need(f.ErrorType != "", table.errorType, " = ?", f.ErrorType)
	need(f.MemoryType != "", table.memoryType, " = ?", string(f.MemoryType))
	if f.Entity != "" {
		can = can && table.entity
		where.addIf(table.entity, "(entity = ? OR has(entities, ?))", f.Entity, f.Entity)
	}
	if len(f.Statuses) > 0 {
		where.addIf(true, "status IN ?", strs(f.Statuses))
	}
	where.addIf(!f.RecordedSince.IsZero(), "recorded_at >= fromUnixTimestamp64Milli(?, 'UTC')", max(f.RecordedSince.UnixMilli(), 0))
	return where, can
}

func strs[S ~string](in []S) []string {
	out := make([]string, len(in))
	for i, s := range in {
		out[i] = string(s)
	}
	return out
}

// currentQuery reads columns of the current versions that pass the filter.
//
// Which version is current is decided by all versions of an item, so that the filter applies after that. Where ids are
// given there are few versions, and one look at all of them is the cheapest. Otherwise, to keep from deciding it for every
// item of a namespace, items of which no version at all passes are left out before: the current one is among those that
// are looked at.
func (table itemTable) currentQuery(f memory.ItemFilter, columns string) (query string, args []any, can bool) {
	passes, can := table.of(f)
	if !can {
		return "", nil, false
	}
	var here conditions
	here.addIf(true, "namespace = ?", f.Namespace)
	here.addIf(len(f.IDs) > 0, table.id+" IN ?", f.IDs)
	counts := visible(f.AsOf)
	direction := ""
	if f.Newest {
		direction = " DESC"
	}
	if len(f.IDs) > 0 {
		query = fmt.Sprintf(`SELECT %[1]s FROM (
				SELECT * FROM %[2]s WHERE %[4]s ORDER BY %[3]s, `+currentOrder+` DESC LIMIT 1 BY %[3]s
			) WHERE %[5]s ORDER BY %[7]s%[6]s, %[3]s%[6]s`, columns, table.name, table.id, here.and(&counts), passes.String(), direction, table.time)
		args = slices.Concat(here.args, counts.args, passes.args)
	} else {
		inner := here.and(&counts)
		args = slices.Concat(here.args, passes.args, here.args, counts.args)
		if len(passes.parts) > 0 {
			inner += fmt.Sprintf(" AND %[1]s IN (SELECT %[1]s FROM %[2]s WHERE %[3]s)", table.id, table.name, here.and(&passes))
			args = slices.Concat(args, here.args, passes.args)
		}
		query = fmt.Sprintf(`SELECT %[1]s FROM %[2]s
			WHERE %[4]s AND (%[3]s, task_revision, writer, seq) IN (
				SELECT %[3]s, current.1, current.2, current.3 FROM (
					SELECT %[3]s, argMax((task_revision, writer, seq), `+currentOrder+`) AS current FROM %[2]s WHERE %[5]s GROUP BY %[3]s
				)
			)
			ORDER BY %[7]s%[6]s, %[3]s%[6]s LIMIT 1 BY %[3]s`,
			columns, table.name, table.id, here.and(&passes), inner, direction, table.time)
	}
	if f.Limit > 0 {
		query += fmt.Sprintf(" LIMIT %d", f.Limit)
	}
	return query, args, true
}

// current reads the current versions that pass the filter, in order.
func current[T any](ctx context.Context, c *ClickHouse, table itemTable, f memory.ItemFilter, scan func(driver.Rows) (T, error), at func(T) (time.Time, string)) ([]T, error) {
	if f.Namespace == "" {
		return nil, ErrNamespace
	}
	if table.layer == memory.LayerSnapshot && len(f.IDs) == 0 && len(f.TaskIDs) == 0 && f.Limit > 0 && f.Limit <= idsPerQuery {
		// Snapshots are wide: to read all that pass, of which most are cut off, costs more than to find out which first.
		ids, err := c.currentIDs(ctx, table, f)
		if err != nil || len(ids) == 0 {
			return nil, err
		}
		f.IDs = ids
	}
	var out []T
	statements := 0
	for ids := range portions(f.IDs) {
		for tasks := range portions(f.TaskIDs) {
			part := f
			part.IDs, part.TaskIDs = ids, tasks
			query, args, can := table.currentQuery(part, table.columns+", recorded_at")
			if !can {
				return nil, nil
			}
			statements++
			if err := c.query(ctx, "read "+table.name, query, args, func(rows driver.Rows) error {
				item, err := scan(rows)
				if err != nil {
					return err
				}
				out = append(out, item)
				return nil
			}); err != nil {
				return nil, err
			}
		}
	}
	if statements > 1 {
		slices.SortStableFunc(out, func(a, b T) int {
			aTime, aID := at(a)
			bTime, bID := at(b)
			order := aTime.Compare(bTime)
			if order == 0 {
				order = strings.Compare(aID, bID)
			}
			if f.Newest {
				return -order
			}
			return order
		})
		out = slices.CompactFunc(out, func(a, b T) bool {
			_, aID := at(a)
			_, bID := at(b)
			return aID == bID
		})
		if f.Limit > 0 && len(out) > f.Limit {
			out = out[:f.Limit]
		}
	}
	return out, nil
}

// currentIDs names the items whose current versions pass the filter, in order.
func (c *ClickHouse) currentIDs(ctx context.Context, table itemTable, f memory.ItemFilter) ([]string, error) {
	query, args, can := table.currentQuery(f, table.id)
	if !can {
		return nil, nil
	}
	var ids []string
	err := c.query(ctx, "look for "+table.name, query, args, func(rows driver.Rows) error {
		var id string
		err := rows.Scan(&id)
		ids = append(ids, id)
		return err
	})
	return ids, err
}

// portions cuts a list that restricts into lists that fit a statement; an empty list restricts nothing and stays one.
func portions(list []string) func(yield func([]string) bool) {
	if len(list) == 0 {
		return func(yield func([]string) bool) { yield(nil) }
	}
	return slices.Chunk(list, idsPerQuery)
}
