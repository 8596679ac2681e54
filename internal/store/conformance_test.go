package store_test

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/ClickHouse/clickhouse-go/v2"

	"github.com/hindsight-memory/hindsight/internal/engine/enginetest"
	"github.com/hindsight-memory/hindsight/internal/store"
	"github.com/hindsight-memory/hindsight/internal/store/storetest"
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

func migrated(t *testing.T) *store.ClickHouse {
	t.Helper()
	url := enginetest.ClickHouse(t)
	c := open(t, url, enginetest.Database(t, url))
	if err := c.Migrate(t.Context(), store.MigrateOptions{}); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestConformanceEmbedded(t *testing.T) {
	t.Parallel()
	storetest.Run(t, storetest.Features{}, func(t *testing.T) storetest.Store {
		t.Helper()
		return migrated(t)
	})
}

// TestConformanceServer runs the suite against a server of its own kind, over the protocol that its URL names.
func TestConformanceServer(t *testing.T) {
	t.Parallel()
	url := os.Getenv("HINDSIGHT_TEST_CLICKHOUSE_URL")
	if url == "" {
		t.Skip("HINDSIGHT_TEST_CLICKHOUSE_URL names no ClickHouse server to test with")
	}
	storetest.Run(t, storetest.Features{NoFreeQueries: !strings.HasPrefix(url, "http")}, func(t *testing.T) storetest.Store {
		t.Helper()
		database := "hindsight_test_" + strings.ToLower(rand.Text()[:16])
		c := open(t, url, database)
		if err := c.Migrate(t.Context(), store.MigrateOptions{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { dropDatabase(t, url, database) })
		return c
	})
}

func dropDatabase(t *testing.T, url, database string) {
	t.Helper()
	opts, err := clickhouse.ParseDSN(url)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := clickhouse.Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(conn.Exec(context.WithoutCancel(t.Context()), "DROP DATABASE IF EXISTS "+database+" SYNC"), conn.Close()); err != nil {
		t.Error(err)
	}
}
