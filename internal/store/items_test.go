package store_test

import (
	"testing"

	"github.com/hindsight-memory/hindsight/internal/store/storetest"
)

func TestItemConformance(t *testing.T) {
	t.Parallel()
	storetest.RunItems(t, func(t *testing.T) storetest.ItemStore {
		t.Helper()
		return migrated(t)
	})
}
