package store

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/hindsight-memory/hindsight/internal/memory"
	"github.com/hindsight-memory/hindsight/schema"
)

var _ memory.VectorIndex = (*Vectors)(nil)

// ErrNotPrepared means that [Vectors.Prepare] has not said yet which model is in use.
var ErrNotPrepared = errors.New("vector index not prepared: no embedding model was named yet")

const (
	// indexFrom is from how many entries of one namespace on the HNSW index is made and asked. Below, comparing with
	// every vector of the namespace is exact and about as fast. Measured with 384 dimensions on two shared cores, 20
	// nearest: 12 ms for 1,000 entries, 25 ms for 10,000 and 210 ms for 100,000 by comparing; 20 ms for 100,000 by HNSW. To
	// build the index takes over a minute for 100,000 entries, and again whenever parts are merged, so that a laptop
	// should not pay for what it does not need.
	indexFrom = 20_000
	// fetchFactor is how many times the limit the index looks at before conditions take entries away, and fetchMost the
	// server's own limit (max_limit_for_vector_search_queries).
	fetchFactor = 16
	// countAge is how long the number of entries of a namespace is believed.
	countAge = time.Minute
	// entriesPerInsert bounds the memory of one insert.
	entriesPerInsert = 2000
)

// Vectors is the vector index in ClickHouse itself: a table for each model. Use [NewVectors]; it is safe for concurrent
// use. An entry is replaced by writing a later row; a search never returns a row that was replaced, whether or not the
// server has merged it away.
type Vectors struct {
	c *ClickHouse
	// indexFrom is [indexFrom], and indexParts false, but in tests. It says whether a part is indexed when it is inserted.
	indexFrom  uint64
	indexParts bool

	mu        sync.Mutex
	table     string // empty: not prepared
	dimension int
	indexed   bool
	counts    map[string]entryCount
}

type entryCount struct {
	entries uint64
	at      time.Time
}

// NewVectors returns the index that lives in the same database as the record.
func NewVectors(c *ClickHouse) *Vectors {
	return &Vectors{c: c, indexFrom: indexFrom, counts: map[string]entryCount{}}
}

var notSlug = regexp.MustCompile(`[^a-z0-9]+`)

// vectorsTable names the table of a model. The hash keeps models apart whose names differ in what a table's name
// cannot hold.
func vectorsTable(model string) string {
	const longest = 48
	slug := strings.Trim(notSlug.ReplaceAllString(strings.ToLower(model), "_"), "_")
	sum := sha256.Sum256([]byte(model))
	return "vectors_" + strings.Trim(slug[:min(len(slug), longest)], "_") + "_" + hex.EncodeToString(sum[:4])
}

const vectorsDDL = `CREATE TABLE IF NOT EXISTS %[1]s /* ON CLUSTER */
(
    namespace  LowCardinality(String),
    id         String CODEC(ZSTD(1)),
    layer      LowCardinality(String),
    task_type  LowCardinality(String),
    tools      Array(LowCardinality(String)),
    error_type LowCardinality(String),
    outcome    LowCardinality(String),
    trust      LowCardinality(String),
    status     LowCardinality(String),
    created_at DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    text_hash  String CODEC(ZSTD(1)),
    vector     Array(Float32) CODEC(NONE),
    written_at DateTime64(6, 'UTC') DEFAULT now64(6, 'UTC') CODEC(Delta, ZSTD(1)),
    CONSTRAINT dimension CHECK length(vector) = %[2]d
)
ENGINE = ReplacingMergeTree(written_at)
ORDER BY (namespace, id)
SETTINGS index_granularity = 1024
COMMENT %[3]s`

// Prepare makes the table of a model if it is missing and uses it from then on. The error is [ErrDimension] when the
// table is of vectors of another dimension.
func (v *Vectors) Prepare(ctx context.Context, model string, dimension int) error {
	if model == "" || dimension < 1 {
		return fmt.Errorf("%w: prepare the vector index: model %q with %d dimensions", ErrOptions, model, dimension)
	}
	table := vectorsTable(model)
	variant, err := v.variant(ctx)
	if err != nil {
		return err
	}
	comment := fmt.Sprintf("Vectors of %s, %d dimensions", model, dimension)
	ddl := variant.Render(fmt.Sprintf(vectorsDDL, table, dimension, quoted(comment)))
	bounded, cancel := v.c.bound(ctx)
	defer cancel()
	if err := translate(ctx, "create table "+table, v.c.conn.Exec(bounded, ddl)); err != nil {
		return err
	}
	var have string
	var indexed bool
	err = v.c.query(ctx, "look at table "+table, `SELECT comment, name IN (SELECT table FROM system.data_skipping_indices WHERE database = currentDatabase() AND type = 'vector_similarity')
		FROM system.tables WHERE database = currentDatabase() AND name = ?`, []any{table}, func(rows driver.Rows) error {
		return rows.Scan(&have, &indexed)
	})
	if err != nil {
		return err
	}
	if have != comment {
		return fmt.Errorf("%w: the vectors of this model have %d dimensions now, but its index (table %s) holds %q. "+
			"The model behind the name was changed: give the new one another name, or run `hindsight reindex` after dropping that table",
			ErrDimension, dimension, table, have)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.table != table {
		clear(v.counts)
	}
	v.table, v.dimension, v.indexed = table, dimension, indexed
	return nil
}

// quoted is a text as a literal, for statements that take no parameters.
func quoted(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s) + "'"
}

// variant is how the record's own tables were made.
func (v *Vectors) variant(ctx context.Context) (schema.Variant, error) {
	var out schema.Variant
	err := v.c.query(ctx, "look at table item_vectors", "SELECT startsWith(engine, 'Replicated') FROM system.tables WHERE database = currentDatabase() AND name = 'item_vectors'",
		nil, func(rows driver.Rows) error { return rows.Scan(&out.Replicated) })
	return out, err
}

// prepared tells which table to use.
func (v *Vectors) prepared() (table string, dimension int, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.table == "" {
		return "", 0, ErrNotPrepared
	}
	return v.table, v.dimension, nil
}

func (v *Vectors) fits(table string, dimension int, vector []float32) string {
	if len(vector) != dimension {
		return fmt.Sprintf("its vector has %d dimensions, the index (table %s) %d: it is of another model than the one that the index was prepared for; restart with the model that made it, or run `hindsight reindex`",
			len(vector), table, dimension)
	}
	return badVector(vector)
}

// Upsert writes entries; the last one of an id counts. They can be found once it has returned. The error is a
// [RowError] for an entry that cannot be stored, an [ErrDimension] as well when its dimension is wrong; then nothing was
// stored.
func (v *Vectors) Upsert(ctx context.Context, entries []memory.IndexEntry) error {
	table, dimension, err := v.prepared()
	if err != nil {
		return err
	}
	last := make(map[[2]string]int, len(entries))
	for i, e := range entries {
		if e.Namespace == "" || e.ID == "" {
			return &RowError{Index: i, ID: e.ID, Reason: "namespace and id must not be empty: they are its key"}
		}
		if reason := unstorable(e.CreatedAt); reason != "" {
			return &RowError{Index: i, ID: e.ID, Reason: reason}
		}
		if reason := v.fits(table, dimension, e.Vector); reason != "" {
			err := &RowError{Index: i, ID: e.ID, Reason: reason}
			if len(e.Vector) != dimension {
				return fmt.Errorf("%w: %w", ErrDimension, err)
			}
			return err
		}
		last[[2]string{e.Namespace, e.ID}] = i
	}
	rows := make([]memory.IndexEntry, 0, len(last))
	namespaces := map[string]struct{}{}
	for i, e := range entries {
		if last[[2]string{e.Namespace, e.ID}] == i {
			rows = append(rows, e)
			namespaces[e.Namespace] = struct{}{}
		}
	}
	// Parts are indexed when they are merged: to index each small part on insert would only be work to do again.
	ctx = clickhouse.Context(ctx, clickhouse.WithSettings(clickhouse.Settings{"materialize_skip_indexes_on_insert": v.indexParts}))
	for chunk := range slices.Chunk(rows, entriesPerInsert) {
		if err := v.c.insert(ctx, table, "namespace, id, layer, task_type, tools, error_type, outcome, trust, status, created_at, text_hash, vector", len(chunk),
			func(b driver.Batch, i int) error {
				e := chunk[i]
				return b.Append(e.Namespace, e.ID, string(e.Layer), e.TaskType, notNil(e.Tools), e.ErrorType, e.Outcome, string(e.Trust),
					string(e.Status), e.CreatedAt, e.TextHash, e.Vector)
			}); err != nil {
			return err
		}
	}
	return v.indexIfLarge(ctx, table, namespaces)
}

// indexIfLarge makes the HNSW index once a namespace has become so large that it is worth it. The server builds it in
// the background.
func (v *Vectors) indexIfLarge(ctx context.Context, table string, namespaces map[string]struct{}) error {
	v.mu.Lock()
	indexed := v.indexed
	v.mu.Unlock()
	if indexed {
		return nil
	}
	for namespace := range namespaces {
		n, err := v.count(ctx, table, namespace)
		if err != nil {
			return err
		}
		if n >= v.indexFrom {
			return v.makeIndex(ctx, table)
		}
	}
	return nil
}

func (v *Vectors) makeIndex(ctx context.Context, table string) error {
	_, dimension, err := v.prepared()
	if err != nil {
		return err
	}
	bounded, cancel := v.c.bound(ctx)
	defer cancel()
	bounded = clickhouse.Context(bounded, clickhouse.WithSettings(clickhouse.Settings{"mutations_sync": 0, "alter_sync": 1}))
	for _, change := range []string{
		fmt.Sprintf("ADD INDEX IF NOT EXISTS nearest vector TYPE vector_similarity('hnsw', 'cosineDistance', %d) GRANULARITY 100000000", dimension),
		"MATERIALIZE INDEX nearest",
	} {
		if err := translate(ctx, "index table "+table, v.c.conn.Exec(bounded, "ALTER TABLE "+table+" "+change)); err != nil {
			return err
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.indexed = v.indexed || v.table == table
	return nil
}

// count is about how many entries a namespace has.
func (v *Vectors) count(ctx context.Context, table, namespace string) (uint64, error) {
	v.mu.Lock()
	known, is := v.counts[namespace]
	v.mu.Unlock()
	if is && time.Since(known.at) < countAge {
		return known.entries, nil
	}
	var n uint64
	err := v.c.query(ctx, "count vectors", "SELECT count() FROM "+table+" WHERE namespace = ?", []any{namespace}, func(rows driver.Rows) error { return rows.Scan(&n) })
	if err != nil {
		return 0, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.table == table {
		v.counts[namespace] = entryCount{entries: n, at: time.Now()}
	}
	return n, nil
}

// Delete removes entries. They cannot be found once it has returned.
func (v *Vectors) Delete(ctx context.Context, namespace string, ids []string) error {
	table, _, err := v.prepared()
	if err != nil {
		return err
	}
	if namespace == "" {
		return ErrNamespace
	}
	for chunk := range slices.Chunk(ids, idsPerQuery) {
		if err := v.delete(ctx, table, namespace, chunk); err != nil {
			return err
		}
	}
	return nil
}

func (v *Vectors) delete(ctx context.Context, table, namespace string, ids []string) error {
	bounded, cancel := v.c.bound(ctx)
	defer cancel()
	bounded = clickhouse.Context(bounded, clickhouse.WithSettings(clickhouse.Settings{"lightweight_deletes_sync": 2}))
	return translate(ctx, "delete from "+table, v.c.conn.Exec(bounded, "DELETE FROM "+table+" WHERE namespace = ? AND id IN ?", namespace, ids))
}

// Search returns the nearest entries, the nearest first, those of equal score by id. Scores are cosines, below 0 for what
// points away. It returns as many as Limit when as many match.
func (v *Vectors) Search(ctx context.Context, q memory.VectorQuery) ([]memory.Candidate, error) {
	table, dimension, err := v.prepared()
	if err != nil {
		return nil, err
	}
	if q.Namespace == "" {
		return nil, ErrNamespace
	}
	if q.Limit < 1 {
		return nil, fmt.Errorf("%w: search vectors: limit %d: it must be at least 1", ErrOptions, q.Limit)
	}
	if reason := v.fits(table, dimension, q.Vector); reason != "" {
		if len(q.Vector) != dimension {
			return nil, fmt.Errorf("%w: search vectors: %s", ErrDimension, reason)
		}
		return nil, fmt.Errorf("%w: search vectors: %s", ErrRejected, reason)
	}
	n, err := v.count(ctx, table, q.Namespace)
	if err != nil {
		return nil, err
	}
	if n >= v.indexFrom {
		found, err := v.searchIndex(ctx, table, q)
		if err != nil || len(found) == q.Limit {
			return found, err
		}
		// Conditions took away too many of what the index gave.
	}
	return v.searchAll(ctx, table, q)
}

func matching(q memory.VectorQuery) conditions {
	var where conditions
	where.addIf(len(q.Layers) > 0, "layer IN ?", strs(q.Layers))
	where.addIf(q.TaskType != "", "task_type = ?", q.TaskType)
	where.addIf(q.Tool != "", "has(tools, ?)", q.Tool)
	where.addIf(len(q.Statuses) > 0, "status IN ?", strs(q.Statuses))
	return where
}

// searchAll compares with every vector of the namespace. FINAL leaves out what was replaced before conditions are
// looked at.
func (v *Vectors) searchAll(ctx context.Context, table string, q memory.VectorQuery) ([]memory.Candidate, error) {
	where := matching(q)
	query := fmt.Sprintf(`SELECT id, layer, toFloat64(1 - cosineDistance(vector, CAST(? AS Array(Float32)))) AS score FROM %s FINAL
		WHERE namespace = ? AND %s ORDER BY score DESC, id LIMIT %d`, table, where.String(), q.Limit)
	found := []memory.Candidate{}
	err := v.c.query(ctx, "search vectors", query, slices.Concat([]any{vectorText(q.Vector), q.Namespace}, where.args), func(rows driver.Rows) error {
		c, err := scanCandidate(rows)
		found = append(found, c)
		return err
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

func scanCandidate(rows driver.Rows, more ...any) (memory.Candidate, error) {
	var c memory.Candidate
	var layer string
	err := rows.Scan(append([]any{&c.ID, &layer, &c.Score}, more...)...)
	c.Layer = memory.Layer(layer)
	c.Score = min(max(c.Score, -1), 1)
	return c, err
}

// searchIndex asks the HNSW index. A condition on the table's sorting key would keep the server from using it, hence the
// concat. FINAL would as well, so that what was replaced is found out by asking for the newest row of each id.
func (v *Vectors) searchIndex(ctx context.Context, table string, q memory.VectorQuery) ([]memory.Candidate, error) {
	const spare = 8 // For rows that were replaced.
	where := matching(q)
	query := fmt.Sprintf(`SELECT id, layer, toFloat64(1 - distance), written_at FROM (
			SELECT id, layer, written_at, cosineDistance(vector, CAST(? AS Array(Float32))) AS distance FROM %s
			WHERE concat(namespace, '') = ? AND %s ORDER BY distance LIMIT %d
		)`, table, where.String(), q.Limit+spare)
	type hit struct {
		memory.Candidate
		written time.Time
	}
	var hits []hit
	var ids []string
	indexed := clickhouse.Context(ctx, clickhouse.WithSettings(clickhouse.Settings{
		"vector_search_filter_strategy": "postfilter", "vector_search_index_fetch_multiplier": fetchFactor,
	}))
	err := v.c.query(indexed, "search vectors", query, slices.Concat([]any{vectorText(q.Vector), q.Namespace}, where.args), func(rows driver.Rows) error {
		var h hit
		var err error
		h.Candidate, err = scanCandidate(rows, &h.written)
		hits, ids = append(hits, h), append(ids, h.ID)
		return err
	})
	if err != nil {
		return nil, err
	}
	newest, err := v.written(ctx, table, q.Namespace, ids)
	if err != nil {
		return nil, err
	}
	found := make([]memory.Candidate, 0, len(hits))
	for _, h := range hits {
		if newest[h.ID].Equal(h.written) {
			found = append(found, h.Candidate)
			delete(newest, h.ID) // Two rows of the same instant are one entry.
		}
	}
	slices.SortStableFunc(found, func(a, b memory.Candidate) int {
		return cmp.Or(cmp.Compare(b.Score, a.Score), strings.Compare(a.ID, b.ID))
	})
	return found[:min(len(found), q.Limit)], nil
}

// written tells when the newest row of each entry was written.
func (v *Vectors) written(ctx context.Context, table, namespace string, ids []string) (map[string]time.Time, error) {
	out := make(map[string]time.Time, len(ids))
	for chunk := range slices.Chunk(ids, idsPerQuery) {
		err := v.c.query(ctx, "check vectors", "SELECT id, max(written_at) FROM "+table+" WHERE namespace = ? AND id IN ? GROUP BY id", []any{namespace, chunk}, func(rows driver.Rows) error {
			var id string
			var at time.Time
			err := rows.Scan(&id, &at)
			out[id] = at
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// TextHashes returns the text hash of every entry of a namespace.
func (v *Vectors) TextHashes(ctx context.Context, namespace string) (map[string]string, error) {
	table, _, err := v.prepared()
	if err != nil {
		return nil, err
	}
	if namespace == "" {
		return nil, ErrNamespace
	}
	out := map[string]string{}
	err = v.c.query(ctx, "read text hashes", "SELECT id, argMax(text_hash, written_at) FROM "+table+" WHERE namespace = ? GROUP BY id", []any{namespace}, func(rows driver.Rows) error {
		var id, hash string
		err := rows.Scan(&id, &hash)
		out[id] = hash
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Ready checks that a vector can be searched.
func (v *Vectors) Ready(ctx context.Context) error {
	table, dimension, err := v.prepared()
	if err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	question := make([]float32, dimension)
	question[0] = 1
	_, err = v.searchAll(bounded, table, memory.VectorQuery{Vector: question, Namespace: "~", Limit: 1})
	return err
}
