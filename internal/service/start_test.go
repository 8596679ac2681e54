package service_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/hindsight-memory/hindsight/internal/bus"
	"github.com/hindsight-memory/hindsight/internal/config"
	"github.com/hindsight-memory/hindsight/internal/engine/enginetest"
	"github.com/hindsight-memory/hindsight/internal/service"
	"github.com/hindsight-memory/hindsight/internal/store"
)

// start runs a process until it ends by itself.
func start(t *testing.T, env map[string]string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return service.Run(ctx, service.Options{
		Config: load(t, env), Name: "test", Holder: "one", Port: freePort(t), PortSetting: "HINDSIGHT_HEALTH_PORT", Logger: logger(t),
		Ready: func() { t.Error("it is ready") },
	}, service.Ingest)
}

// TestAProcessRefusesToStart when an address, a server or the schema does not fit, whether or not the other server is
// there; what is wrong is said with the setting that names it.
func TestAProcessRefusesToStart(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(web.Close)
	const natsAway, recordAway = "nats://127.0.0.1:1", "http://127.0.0.1:1"
	for _, test := range []struct {
		name   string
		change func(env map[string]string)
		want   error
		words  string
	}{
		{"the address of NATS", func(env map[string]string) { env["HINDSIGHT_NATS_URL"] = "nats://a b" }, config.ErrInvalid, "HINDSIGHT_NATS_URL"},
		{"the address of ClickHouse", func(env map[string]string) { env["HINDSIGHT_CLICKHOUSE_URL"] = "127.0.0.1" }, config.ErrInvalid, "HINDSIGHT_CLICKHOUSE_URL"},
		{"no NATS behind it", func(env map[string]string) {
			env["HINDSIGHT_NATS_URL"], env["HINDSIGHT_CLICKHOUSE_URL"] = "nats://"+web.Listener.Addr().String(), recordAway
		}, bus.ErrStranger, "HINDSIGHT_NATS_URL"},
		{"no ClickHouse behind it", func(env map[string]string) {
			env["HINDSIGHT_NATS_URL"], env["HINDSIGHT_CLICKHOUSE_URL"] = natsAway, web.URL
		}, store.ErrStranger, "HINDSIGHT_CLICKHOUSE_URL"},
		{"a newer schema", func(env map[string]string) {
			migrate(t, env)
			record(t, env, "INSERT INTO schema_migrations (version, name, sha256) VALUES (9999, 'later', 'abc')")
			env["HINDSIGHT_NATS_URL"] = natsAway
		}, store.ErrSchemaNewer, "9999"},
		{"a changed migration", func(env map[string]string) {
			migrate(t, env)
			record(t, env, "INSERT INTO schema_migrations (version, name, sha256, applied_at) VALUES (2, 'other', 'abc', now64(3) + INTERVAL 1 HOUR)")
		}, store.ErrSchemaChanged, "0002"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			env := environment(t)
			broker := env["HINDSIGHT_NATS_URL"]
			test.change(env)
			err := start(t, env)
			if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.words) {
				t.Errorf("Run = %v, want %v with %s", err, test.want, test.words)
			}
			env["HINDSIGHT_NATS_URL"] = broker
			if n := messages(t, publisher(t, env), bus.StreamTraces); n != -1 && n != 0 {
				t.Errorf("it has made streams, although it does not start")
			}
		})
	}
}

func migrate(t *testing.T, env map[string]string) {
	t.Helper()
	st, err := store.Open(store.Options{URL: env["HINDSIGHT_CLICKHOUSE_URL"], Database: env["HINDSIGHT_CLICKHOUSE_DATABASE"]})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = st.Close() }()
	if err := st.Migrate(t.Context(), store.MigrateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// record runs a statement in the database of an environment.
func record(t *testing.T, env map[string]string, statement string) {
	t.Helper()
	enginetest.Exec(t, env["HINDSIGHT_CLICKHOUSE_URL"], strings.Replace(statement, "schema_migrations", env["HINDSIGHT_CLICKHOUSE_DATABASE"]+".schema_migrations", 1))
}

// TestBothAreWaitedFor and named, as soon as both are known to be away.
func TestBothAreWaitedFor(t *testing.T) {
	t.Parallel()
	env := environment(t)
	env["HINDSIGHT_NATS_URL"], env["HINDSIGHT_CLICKHOUSE_URL"] = "nats://127.0.0.1:1", "http://127.0.0.1:1"
	why := make(chan string, 100)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case said := <-why:
				if strings.Contains(said, "waiting for NATS at nats://127.0.0.1:1") && strings.Contains(said, "waiting for ClickHouse at http://127.0.0.1:1") && strings.Count(said, "refused") == 2 {
					cancel()
				}
			}
		}
	}()
	_, err := service.Open(ctx, &service.Parts{Config: load(t, env), Holder: "one", Logger: logger(t)}, "test", func(err error) { why <- err.Error() })
	if !errors.Is(context.Cause(ctx), context.Canceled) || !errors.Is(err, context.Canceled) && !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("Open = %v; %v", err, context.Cause(ctx))
	}
}
