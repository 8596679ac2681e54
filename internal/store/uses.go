package store

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"golang.org/x/sync/errgroup"

	"github.com/hindsight-memory/hindsight/internal/memory"
)

// Uses counts how often items were shown and judged. An item counts as shown when a recall answered with it and did not
// withhold it; feedback counts when its value is true (helpful) or false. Items of which no version counts are left out.
func (c *ClickHouse) Uses(ctx context.Context, namespace string, ids []string) (map[string]memory.ItemUse, error) {
	if namespace == "" {
		return nil, ErrNamespace
	}
	out := make(map[string]memory.ItemUse, len(ids))
	for chunk := range slices.Chunk(ids, idsPerQuery) {
		shown := make(map[string]memory.ItemUse, len(chunk))
		g, gctx := errgroup.WithContext(ctx)
		g.Go(func() error { return c.versions(gctx, namespace, chunk, out) })
		g.Go(func() error { return c.hits(gctx, namespace, chunk, shown) })
		if err := g.Wait(); err != nil {
			return nil, err //nolint:wrapcheck // Each says what it was doing.
		}
		for id, hit := range shown {
			if use, is := out[id]; is {
				use.Hits, use.LastHit, use.Helpful, use.Unhelpful = hit.Hits, hit.LastHit, hit.Helpful, hit.Unhelpful
				out[id] = use
			}
		}
	}
	return out, nil
}

// versions fills in when each item was recorded first and how many versions it has.
func (c *ClickHouse) versions(ctx context.Context, namespace string, ids []string, out map[string]memory.ItemUse) error {
	counts := visible(time.Time{})
	var parts []string
	var args []any
	for _, table := range []itemTable{textTable(), summaryTable()} { // The texts are those of all other layers.
		parts = append(parts, fmt.Sprintf("SELECT %[1]s AS id, task_revision, writer, seq, recorded_at FROM %[2]s WHERE namespace = ? AND %[1]s IN ? AND %[3]s",
			table.id, table.name, counts.String()))
		args = append(args, namespace, ids)
	}
	query := "SELECT id, min(recorded_at), uniqExact(task_revision, writer, seq) FROM (" + strings.Join(parts, " UNION ALL ") + ") GROUP BY id"
	return c.query(ctx, "count versions", query, args, func(rows driver.Rows) error {
		var id string
		var use memory.ItemUse
		var n uint64
		if err := rows.Scan(&id, &use.FirstSeen, &n); err != nil {
			return err
		}
		use.FirstSeen, use.VersionNum = use.FirstSeen.UTC(), int(min(n, math.MaxInt32))
		out[id] = use
		return nil
	})
}

// hits fills in how often each item was shown and judged.
func (c *ClickHouse) hits(ctx context.Context, namespace string, ids []string, out map[string]memory.ItemUse) error {
	const query = `SELECT id, toInt64(sum(hits)), max(last), toInt64(sum(helpful)), toInt64(sum(unhelpful)) FROM (
			SELECT item_id AS id, uniqExact(recall_id) AS hits, max(time) AS last, 0 AS helpful, 0 AS unhelpful
			FROM item_hits WHERE namespace = ? AND item_id IN ? GROUP BY item_id
			UNION ALL
			SELECT target, 0, toDateTime64(0, 3, 'UTC'), uniqExactIf(feedback_id, feedback.helpful), uniqExactIf(feedback_id, NOT feedback.helpful)
			FROM feedback WHERE namespace = ? AND target IN ? AND feedback.helpful IS NOT NULL GROUP BY target
		) GROUP BY id`
	return c.query(ctx, "count uses", query, []any{namespace, ids, namespace, ids}, func(rows driver.Rows) error {
		var id string
		var hits, helpful, unhelpful int64
		var last time.Time
		if err := rows.Scan(&id, &hits, &last, &helpful, &unhelpful); err != nil {
			return err
		}
		use := memory.ItemUse{Hits: int(hits), Helpful: int(helpful), Unhelpful: int(unhelpful)}
		if hits > 0 {
			use.LastHit = last.UTC()
		}
		out[id] = use
		return nil
	})
}

// InsertRelations stores edges between items. Storing one again changes nothing. The error may be a [RowError].
func (c *ClickHouse) InsertRelations(ctx context.Context, relations []memory.Relation) error {
	type key struct {
		namespace, from, kind, to, writer string
		seq                               uint64
	}
	keyOf := func(r memory.Relation) key {
		return key{r.Namespace, r.FromID, string(r.Kind), r.ToID, r.Writer, r.Seq}
	}
	from := map[string][]string{}
	for i, r := range relations {
		if r.Namespace == "" || r.FromID == "" || r.ToID == "" || r.Kind == "" || r.Writer == "" {
			return &RowError{Index: i, ID: r.FromID, Reason: "namespace, both items, kind and writer must not be empty: they are its key"}
		}
		if math.IsNaN(r.Weight) || math.IsInf(r.Weight, 0) {
			return &RowError{Index: i, ID: r.FromID, Reason: fmt.Sprintf("%v is no weight that can be stored", r.Weight)}
		}
		if !slices.Contains(from[r.Namespace], r.FromID) {
			from[r.Namespace] = append(from[r.Namespace], r.FromID)
		}
	}
	// Like insertVersions: a later equal row would replace the moment at which it was recorded.
	there := map[key]struct{}{}
	for namespace, all := range from {
		for chunk := range slices.Chunk(all, idsPerQuery) {
			err := c.query(ctx, "look for relations", "SELECT namespace, from_id, kind, to_id, writer, seq FROM item_relations WHERE namespace = ? AND from_id IN ?", []any{namespace, chunk},
				func(rows driver.Rows) error {
					var k key
					err := rows.Scan(&k.namespace, &k.from, &k.kind, &k.to, &k.writer, &k.seq)
					there[k] = struct{}{}
					return err
				})
			if err != nil {
				return err
			}
		}
	}
	var missing []memory.Relation
	for _, r := range relations {
		if _, is := there[keyOf(r)]; !is {
			there[keyOf(r)] = struct{}{}
			missing = append(missing, r)
		}
	}
	for chunk := range slices.Chunk(missing, itemsPerInsert) {
		if err := c.insert(ctx, "item_relations", "namespace, from_id, kind, to_id, writer, seq, run_id, removed, weight, reason", len(chunk), func(b driver.Batch, i int) error {
			r := chunk[i]
			return b.Append(r.Namespace, r.FromID, string(r.Kind), r.ToID, r.Writer, r.Seq, r.RunID, r.Removed, r.Weight, r.Reason)
		}); err != nil {
			return err
		}
	}
	return nil
}

// Relations returns the relations that hold and lead from or to the items, ordered by both ends and kind.
func (c *ClickHouse) Relations(ctx context.Context, namespace string, ids []string) ([]memory.Relation, error) {
	return c.relations(ctx, namespace, ids, false)
}

// RemovedRelations returns the relations from or to the items that were removed and not made again, in the same order.
func (c *ClickHouse) RemovedRelations(ctx context.Context, namespace string, ids []string) ([]memory.Relation, error) {
	return c.relations(ctx, namespace, ids, true)
}

func (c *ClickHouse) relations(ctx context.Context, namespace string, ids []string, removed bool) ([]memory.Relation, error) {
	if namespace == "" {
		return nil, ErrNamespace
	}
	type edge struct{ from, kind, to string }
	seen := map[edge]struct{}{}
	counts := visible(time.Time{})
	query := `SELECT from_id, kind, to_id, last.1, last.2, last.3, last.4, last.5, last.6, last.7 FROM (
			SELECT from_id, kind, to_id, argMax((removed, weight, reason, writer, seq, run_id, recorded_at), (recorded_at, writer, seq)) AS last
			FROM item_relations WHERE namespace = ? AND (from_id IN ? OR to_id IN ?) AND ` + counts.String() + ` GROUP BY from_id, kind, to_id
		) WHERE last.1 = ? ORDER BY from_id, kind, to_id`
	var out []memory.Relation
	for chunk := range slices.Chunk(ids, idsPerQuery) {
		err := c.query(ctx, "read relations", query, []any{namespace, chunk, chunk, removed}, func(rows driver.Rows) error {
			r := memory.Relation{Namespace: namespace}
			var kind string
			if err := rows.Scan(&r.FromID, &kind, &r.ToID, &r.Removed, &r.Weight, &r.Reason, &r.Writer, &r.Seq, &r.RunID, &r.RecordedAt); err != nil {
				return err
			}
			e := edge{r.FromID, kind, r.ToID}
			if _, is := seen[e]; is {
				return nil
			}
			seen[e] = struct{}{}
			r.Kind, r.RecordedAt = memory.RelationKind(kind), r.RecordedAt.UTC()
			out = append(out, r)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(out, func(a, b memory.Relation) int {
		return slices.Compare([]string{a.FromID, string(a.Kind), a.ToID}, []string{b.FromID, string(b.Kind), b.ToID})
	})
	return out, nil
}
