package store_test

import (
	"strings"
	"testing"
	"time"

	"github.com/hindsight-memory/hindsight/internal/engine/enginetest"
	"github.com/hindsight-memory/hindsight/internal/memory"
	"github.com/hindsight-memory/hindsight/internal/store"
	"github.com/hindsight-memory/hindsight/internal/store/storetest"
)

func vectorFeatures() storetest.VectorFeatures {
	return storetest.VectorFeatures{WrongDimension: store.ErrDimension, NoNamespace: store.ErrNamespace, NotPrepared: store.ErrNotPrepared}
}

func TestVectorIndexConformance(t *testing.T) {
	t.Parallel()
	c := migrated(t)
	storetest.RunVectorIndex(t, vectorFeatures(), func(*testing.T) memory.VectorIndex { return store.NewVectors(c) })
}

// TestVectorIndexConformanceHNSW runs the suite where the index is asked from the first entry on.
func TestVectorIndexConformanceHNSW(t *testing.T) {
	t.Parallel()
	c := migrated(t)
	f := vectorFeatures()
	f.Approximate = 0.9
	storetest.RunVectorIndex(t, f, func(*testing.T) memory.VectorIndex {
		v := store.NewVectors(c)
		v.IndexFromTheFirst()
		return v
	})
}

// TestTheServerUsesTheIndex pins the shape of the statement: a condition on the sorting key would compare with every
// vector.
func TestTheServerUsesTheIndex(t *testing.T) {
	t.Parallel()
	url := enginetest.ClickHouse(t)
	c := migrated(t)
	v := store.NewVectors(c)
	v.IndexFromTheFirst()
	if err := v.Prepare(t.Context(), "m", 2); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"a", "b"} { // The first makes the index, the second is in it.
		if err := v.Upsert(t.Context(), []memory.IndexEntry{{ID: id, Namespace: "t", CreatedAt: time.Unix(1, 0), Vector: []float32{1, 0.5}}}); err != nil {
			t.Fatal(err)
		}
	}
	table := strings.TrimSpace(enginetest.Exec(t, url, "SELECT table FROM system.data_skipping_indices WHERE database = '"+c.Database()+"' AND type = 'vector_similarity'"))
	if !strings.HasPrefix(table, "vectors_m_") {
		t.Fatalf("no table has an HNSW index, but %q", table)
	}
	plan := enginetest.Exec(t, url, "EXPLAIN indexes = 1 SELECT id, cosineDistance(vector, CAST('[1,0.5]' AS Array(Float32))) AS distance FROM "+c.Database()+"."+table+
		" WHERE concat(namespace, '') = 't' ORDER BY distance LIMIT 1 SETTINGS vector_search_filter_strategy = 'postfilter'")
	if !strings.Contains(plan, "vector_similarity") {
		t.Errorf("the index is not used:\n%s", plan)
	}
}
