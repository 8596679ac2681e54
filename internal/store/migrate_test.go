package store_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hindsight-memory/hindsight/internal/engine/enginetest"
	"github.com/hindsight-memory/hindsight/internal/store"
	"github.com/hindsight-memory/hindsight/schema"
)

// migrations makes as many migrations of a table each.
func migrations(n int) []schema.Migration {
	var out []schema.Migration
	for i := range n {
		out = append(out, schema.Migration{
			Version: uint32(i + 1), Name: fmt.Sprintf("table_%d", i+1), SHA256: strings.Repeat(strconv.Itoa(i+1), 64),
			Statements: []string{fmt.Sprintf("CREATE TABLE IF NOT EXISTS t%d /* ON CLUSTER */ (a Int8) ENGINE = MergeTree ORDER BY a", i+1)},
		})
	}
	return out
}

func missingDatabase(t *testing.T) (serverURL, database string) {
	t.Helper()
	serverURL = enginetest.ClickHouse(t)
	database = enginetest.Database(t, serverURL)
	enginetest.Exec(t, serverURL, "DROP DATABASE "+database+" SYNC")
	return serverURL, database
}

func TestMigrateCreatesTheDatabaseAndIsDoneOnce(t *testing.T) {
	t.Parallel()
	serverURL, database := missingDatabase(t)
	c := open(t, serverURL, database)
	if err := c.Ping(t.Context()); err != nil {
		t.Fatalf("Ping before the database exists: %v", err)
	}
	if err := c.Ready(t.Context()); !errors.Is(err, store.ErrSchemaOlder) {
		t.Fatalf("Ready before the migrations = %v, want ErrSchemaOlder", err)
	}
	if _, err := c.Health(t.Context(), ""); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "migrations") {
		t.Errorf("reading before the migrations = %v, want ErrUnavailable that says so", err)
	}
	for range 2 {
		if err := c.Migrate(t.Context(), store.MigrateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := c.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	known, err := schema.Migrations()
	if err != nil {
		t.Fatal(err)
	}
	if got := enginetest.Exec(t, serverURL, "SELECT count(), uniqExact(version) FROM "+database+".schema_migrations"); got != fmt.Sprintf("%d\t%d\n", len(known), len(known)) {
		t.Errorf("applied migrations: %q, want each of %d once", got, len(known))
	}
}

func TestMigrateRefusesWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	serverURL, database := missingDatabase(t)
	c := open(t, serverURL, database)
	three := migrations(3)
	if err := c.Migrate(t.Context(), store.MigrateOptions{Migrations: three}); err != nil {
		t.Fatal(err)
	}
	err := c.Migrate(t.Context(), store.MigrateOptions{Migrations: three[:2]})
	if !errors.Is(err, store.ErrSchemaNewer) || !strings.Contains(err.Error(), "0003") || !strings.Contains(err.Error(), "0002") {
		t.Errorf("an older program = %v, want ErrSchemaNewer that names both versions", err)
	}
	changed := slices.Clone(three)
	changed[1].SHA256 = strings.Repeat("f", 64)
	err = c.Migrate(t.Context(), store.MigrateOptions{Migrations: changed})
	if !errors.Is(err, store.ErrSchemaChanged) || !strings.Contains(err.Error(), "0002_table_2.sql") {
		t.Errorf("a changed file = %v, want ErrSchemaChanged that names it", err)
	}
	if err := c.Ready(t.Context()); err == nil {
		t.Error("Ready with a schema of other migrations succeeded")
	}
}

func TestMigrateContinuesAfterAFailure(t *testing.T) {
	t.Parallel()
	serverURL, database := missingDatabase(t)
	c := open(t, serverURL, database)
	broken := migrations(3)
	broken[1].Statements = append(broken[1].Statements, "CREATE TABLE IF NOT EXISTS t9 (a Nonsense) ENGINE = MergeTree ORDER BY a")
	err := c.Migrate(t.Context(), store.MigrateOptions{Migrations: broken})
	if err == nil || !strings.Contains(err.Error(), "0002_table_2.sql, statement 2 of 2") || !strings.Contains(err.Error(), "Nonsense") {
		t.Fatalf("a broken migration = %v, want the file, the statement and the reason", err)
	}
	if got := enginetest.Exec(t, serverURL, "SELECT max(version) FROM "+database+".schema_migrations"); got != "1\n" {
		t.Errorf("applied up to %s, want 1", got)
	}
	if err := c.Migrate(t.Context(), store.MigrateOptions{Migrations: migrations(3)}); err != nil {
		t.Fatalf("the repaired migration: %v", err)
	}
}

func TestManyMigratorsMigrateOnce(t *testing.T) {
	t.Parallel()
	serverURL, database := missingDatabase(t)
	// A migration that must not be done twice at once, nor twice in a row.
	once := migrations(2)
	once[1].Statements = append(once[1].Statements, "INSERT INTO t1 SELECT sleepEachRow(0.2) FROM numbers(1)")
	var group sync.WaitGroup
	for range 6 {
		c := open(t, serverURL, database)
		group.Go(func() {
			if err := c.Migrate(t.Context(), store.MigrateOptions{Migrations: once}); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if got := enginetest.Exec(t, serverURL, "SELECT (SELECT count() FROM "+database+".t1), (SELECT count() FROM "+database+".schema_migrations)"); got != "1\t2\n" {
		t.Errorf("rows of the migration and applied migrations: %q, want 1 and 2", got)
	}
}

// silentProxy stands between a migrator and the server. Once silent it loses every request: to the server, its client
// has died; to the client, the server is away.
type silentProxy struct {
	*httptest.Server
	silent atomic.Bool
}

func newSilentProxy(t *testing.T, serverURL string) *silentProxy {
	t.Helper()
	target, err := url.Parse(serverURL)
	if err != nil {
		t.Fatal(err)
	}
	p := &silentProxy{}
	forward := httputil.NewSingleHostReverseProxy(target)
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.silent.Load() {
			panic(http.ErrAbortHandler)
		}
		r.Host = target.Host
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(p.Close)
	return p
}

func TestAKilledMigratorIsReplaced(t *testing.T) {
	t.Parallel()
	serverURL, database := missingDatabase(t)
	proxy := newSilentProxy(t, serverURL)
	slow := migrations(2)
	slow[0].Statements = append(slow[0].Statements, "INSERT INTO t1 SELECT sleepEachRow(1) FROM numbers(1)")
	ctx, kill := context.WithCancel(t.Context())
	defer kill()
	victim := open(t, proxy.URL, database)
	dead := make(chan error, 1)
	go func() { dead <- victim.Migrate(ctx, store.MigrateOptions{Migrations: slow, LeaseExpiry: time.Second}) }()
	// It has the lease once its first table is there.
	waitFor(t, func() bool {
		return enginetest.Exec(t, serverURL, "SELECT count() FROM system.tables WHERE database = '"+database+"' AND name = 't1'") == "1\n"
	})
	proxy.silent.Store(true) // It cannot even give the lease back.
	kill()
	if err := <-dead; err == nil {
		t.Fatal("the killed migrator says that it is done")
	}
	heir := open(t, serverURL, database)
	if err := heir.Migrate(t.Context(), store.MigrateOptions{Migrations: slow, LeaseExpiry: time.Second}); err != nil {
		t.Fatal(err)
	}
	if got := enginetest.Exec(t, serverURL, "SELECT max(version) FROM "+database+".schema_migrations"); got != "2\n" {
		t.Errorf("applied up to %s, want 2", got)
	}
	if got := enginetest.Exec(t, serverURL, "SELECT name FROM system.tables WHERE database = '"+database+"' AND name LIKE '%lock%'"); got != "schema_migrations_lock_2\n" {
		t.Errorf("leases that are left: %q, want the second generation only", got)
	}
}

func TestALiveMigratorIsWaitedFor(t *testing.T) {
	t.Parallel()
	serverURL, database := missingDatabase(t)
	slow := migrations(1)
	// Longer than the lease, and that long enough for a machine that is busy: only the signs of life keep it.
	for range 2 {
		slow[0].Statements = append(slow[0].Statements, "INSERT INTO t1 SELECT sleepEachRow(1) FROM numbers(3)")
	}
	var group sync.WaitGroup
	for range 2 {
		c := open(t, serverURL, database)
		group.Go(func() {
			if err := c.Migrate(t.Context(), store.MigrateOptions{Migrations: slow, LeaseExpiry: 4 * time.Second}); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if got := enginetest.Exec(t, serverURL, "SELECT count() FROM "+database+".t1"); got != "6\n" {
		t.Errorf("%s rows, want 6: it was applied twice", strings.TrimSpace(got))
	}
}

func waitFor(t *testing.T, condition func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("waited in vain")
		}
	}
}

func TestMigrateOptionsAreChecked(t *testing.T) {
	t.Parallel()
	c := open(t, "http://127.0.0.1:1", "")
	for name, opts := range map[string]store.MigrateOptions{
		"cluster": {Variant: schema.Variant{Cluster: "x'y"}},
		"lease":   {LeaseExpiry: time.Millisecond},
	} {
		if err := c.Migrate(t.Context(), opts); !errors.Is(err, store.ErrOptions) {
			t.Errorf("%s: Migrate = %v, want ErrOptions", name, err)
		}
	}
}
