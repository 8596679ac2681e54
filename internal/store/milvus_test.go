package store_test

import (
	"testing"

	"github.com/hindsight-memory/hindsight/internal/memory"
	"github.com/hindsight-memory/hindsight/internal/store"
	"github.com/hindsight-memory/hindsight/internal/store/milvustest"
	"github.com/hindsight-memory/hindsight/internal/store/storetest"
)

func openMilvus(t *testing.T, opts store.MilvusOptions) *store.Milvus {
	t.Helper()
	m, err := store.OpenMilvus(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func TestVectorIndexConformanceMilvus(t *testing.T) {
	t.Parallel()
	address := milvustest.Address(t)
	f := vectorFeatures()
	f.Approximate = 0.9
	storetest.RunVectorIndex(t, f, func(t *testing.T) memory.VectorIndex {
		t.Helper()
		return openMilvus(t, store.MilvusOptions{Address: address, Prefix: "test"})
	})
}
