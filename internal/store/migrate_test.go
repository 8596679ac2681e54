package store_test

import (
	"testing"

	"github.com/hindsight-memory/hindsight/internal/engine/enginetest"
	"github.com/hindsight-memory/hindsight/internal/store"
)

func open(t *testing.T, url, database string) *store.ClickHouse {
	t.Helper()
	c, err := store.Open(store.Options{URL: url, Database: database})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func TestMigrateTwice(t *testing.T) {
	t.Parallel()
	url := enginetest.ClickHouse(t)
	c := open(t, url, enginetest.Database(t, url))
	for range 2 {
		if err := c.Migrate(t.Context(), store.MigrateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
}
