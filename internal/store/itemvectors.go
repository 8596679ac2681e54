package store

import (
	"context"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/hindsight-memory/hindsight/internal/memory"
)

// ErrDimension means that a vector does not have as many numbers as its model's others. It is an [ErrRejected]: the
// model behind the identity has changed, or the wrong one was asked.
var ErrDimension = fmt.Errorf("%w: wrong dimension of a vector", ErrRejected)

// badVector says why a vector can be neither stored nor searched with, or nothing.
func badVector(vector []float32) string {
	var length float64
	for _, x := range vector {
		if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
			return "its vector holds something that is no number"
		}
		length += float64(x) * float64(x)
	}
	if length == 0 {
		return "its vector is empty or has no direction"
	}
	return ""
}

// vectorText is the vector as ClickHouse reads it; the driver would write numbers that are parsed one by one.
func vectorText(vector []float32) string {
	b := append(make([]byte, 0, 12*len(vector)), '[')
	for i, x := range vector {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendFloat(b, float64(x), 'g', -1, 32)
	}
	return string(append(b, ']'))
}

// vectorsPerInsert bounds the memory of one insert and of one page of [ClickHouse.VectorsOf].
const vectorsPerInsert = 2000

// InsertVectors stores vectors of texts. Storing one again changes nothing: the first of (namespace, model, item, text)
// counts. The error may be a [RowError].
func (c *ClickHouse) InsertVectors(ctx context.Context, vectors []memory.ItemVector) error {
	for i, v := range vectors {
		reason := badVector(v.Vector)
		if v.Namespace == "" || v.Model == "" || v.ItemID == "" || v.TextHash == "" {
			reason = "namespace, model, item and text must not be empty: they are its key"
		}
		if reason != "" {
			return &RowError{Index: i, ID: v.ItemID, Reason: reason}
		}
	}
	for chunk := range slices.Chunk(vectors, vectorsPerInsert) {
		if err := c.insert(ctx, "item_vectors", "namespace, model, item_id, text_hash, layer, vector", len(chunk), func(b driver.Batch, i int) error {
			v := chunk[i]
			return b.Append(v.Namespace, v.Model, v.ItemID, v.TextHash, string(v.Layer), v.Vector)
		}); err != nil {
			return err
		}
	}
	return nil
}

// Similarities gives the exact cosines between the vector and each item's: one for each text that the item has had, the
// newest first, of those recorded by asOf unless that is zero. Items without a vector of the model, or with one of another
// dimension, are left out.
func (c *ClickHouse) Similarities(ctx context.Context, namespace, model string, vector []float32, ids []string, asOf time.Time) (map[string][]memory.TextSimilarity, error) {
	if namespace == "" {
		return nil, ErrNamespace
	}
	if reason := badVector(vector); reason != "" {
		return nil, fmt.Errorf("%w: compare with a vector: %s", ErrRejected, reason)
	}
	text := vectorText(vector)
	out := make(map[string][]memory.TextSimilarity, len(ids))
	for chunk := range slices.Chunk(ids, idsPerQuery) {
		where := ofItems(namespace, model, chunk)
		where.addIf(true, "length(vector) = ?", len(vector))
		where.addIf(!asOf.IsZero(), "recorded_at <= fromUnixTimestamp64Milli(?, 'UTC')", asOf.UnixMilli())
		query := `SELECT item_id, text_hash, toFloat64(1 - cosineDistance(its_vector, CAST(? AS Array(Float32)))) FROM (
				SELECT item_id, text_hash, argMin(vector, recorded_at) AS its_vector, min(recorded_at) AS recorded
				FROM item_vectors WHERE ` + where.String() + ` GROUP BY item_id, text_hash
			) ORDER BY item_id, recorded DESC, text_hash DESC`
		err := c.query(ctx, "compare vectors", query, slices.Concat([]any{text}, where.args), func(rows driver.Rows) error {
			var id string
			var text memory.TextSimilarity
			if err := rows.Scan(&id, &text.TextHash, &text.Cosine); err != nil {
				return err
			}
			text.Cosine = min(max(text.Cosine, -1), 1)
			out[id] = append(out[id], text)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

func ofItems(namespace, model string, ids []string) conditions {
	var where conditions
	where.addIf(true, "namespace = ?", namespace)
	where.addIf(true, "model = ?", model)
	where.addIf(true, "item_id IN ?", ids)
	return where
}

// StoredVectors tells of which text the newest vector of each item is, as its text hash, so that what is known is not
// embedded again. Items without a vector of the model are left out.
func (c *ClickHouse) StoredVectors(ctx context.Context, namespace, model string, ids []string) (map[string]string, error) {
	if namespace == "" {
		return nil, ErrNamespace
	}
	out := make(map[string]string, len(ids))
	for chunk := range slices.Chunk(ids, idsPerQuery) {
		where := ofItems(namespace, model, chunk)
		query := `SELECT item_id, argMax(text_hash, (recorded, text_hash)) FROM (
				SELECT item_id, text_hash, min(recorded_at) AS recorded FROM item_vectors WHERE ` + where.String() + ` GROUP BY item_id, text_hash
			) GROUP BY item_id`
		err := c.query(ctx, "look for vectors", query, where.args, func(rows driver.Rows) error {
			var id, hash string
			if err := rows.Scan(&id, &hash); err != nil {
				return err
			}
			out[id] = hash
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// VectorsOf yields all vectors of a model, item by item, an item's texts in the order in which they were recorded, so
// that the last of an item is its newest. An empty namespace means all of them, which only an operator may ask for. It
// reads in pages of about a thousand items; an error is yielded once, as the last.
func (c *ClickHouse) VectorsOf(ctx context.Context, namespace, model string) iter.Seq2[memory.ItemVector, error] {
	return func(yield func(memory.ItemVector, error) bool) {
		var afterNamespace, afterItem string
		for {
			page, err := c.vectorPage(ctx, namespace, model, afterNamespace, afterItem)
			if err != nil {
				yield(memory.ItemVector{}, err)
				return
			}
			if len(page) == 0 {
				return
			}
			for _, v := range page {
				if !yield(v, nil) {
					return
				}
			}
			last := page[len(page)-1]
			afterNamespace, afterItem = last.Namespace, last.ItemID
		}
	}
}

func (c *ClickHouse) vectorPage(ctx context.Context, namespace, model, afterNamespace, afterItem string) ([]memory.ItemVector, error) {
	const itemsPerPage = vectorsPerInsert / 2
	var where conditions
	where.addIf(namespace != "", "namespace = ?", namespace)
	where.addIf(true, "namespace >= ?", afterNamespace) // Implied by the last one: it lets the index work.
	where.addIf(true, "model = ?", model)
	where.addIf(true, "(namespace, item_id) > (?, ?)", afterNamespace, afterItem)
	query := `SELECT namespace, item_id, text_hash, any(item_vectors.layer), any(item_vectors.vector), min(item_vectors.recorded_at) AS recorded
		FROM item_vectors
		WHERE ` + where.String() + ` AND (namespace, item_id) IN (
			SELECT DISTINCT namespace, item_id FROM item_vectors WHERE ` + where.String() + fmt.Sprintf(` ORDER BY namespace, item_id LIMIT %d
		)`, itemsPerPage) + `
		GROUP BY namespace, item_id, text_hash
		ORDER BY namespace, item_id, recorded, text_hash`
	var page []memory.ItemVector
	err := c.query(ctx, "read vectors", query, slices.Concat(where.args, where.args), func(rows driver.Rows) error {
		v := memory.ItemVector{Model: model}
		var layer string
		if err := rows.Scan(&v.Namespace, &v.ItemID, &v.TextHash, &layer, &v.Vector, &v.RecordedAt); err != nil {
			return err
		}
		v.Layer, v.RecordedAt = memory.Layer(layer), v.RecordedAt.UTC()
		page = append(page, v)
		return nil
	})
	return page, err
}
