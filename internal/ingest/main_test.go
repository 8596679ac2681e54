package ingest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/engine/enginetest"
	"github.com/hindsight-memory/hindsight/internal/store"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if err := enginetest.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stop the shared engine:", err)
		code = 1
	}
	http.DefaultClient.CloseIdleConnections()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// patience bounds every wait of these tests; none is expected to come near it.
const patience = time.Minute

// eventually waits for a condition.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-ctx.Done():
			t.Fatalf("not within %s: %s", patience, what)
		case <-tick.C:
		}
	}
}

// record is a real, empty record with a database of its own.
type record struct {
	*store.ClickHouse
	url, database string
}

func newRecord(tb testing.TB) *record {
	tb.Helper()
	url := enginetest.ClickHouse(tb)
	r := &record{url: url, database: enginetest.Database(tb, url)}
	r.ClickHouse = openStore(tb, url, r.database)
	if err := r.Migrate(tb.Context(), store.MigrateOptions{}); err != nil {
		tb.Fatal(err)
	}
	return r
}

func openStore(tb testing.TB, url, database string) *store.ClickHouse {
	tb.Helper()
	c, err := store.Open(store.Options{URL: url, Database: database})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := c.Close(); err != nil {
			tb.Error(err)
		}
	})
	return c
}

// exec runs a statement, formatted as by fmt.Sprintf.
func (r *record) exec(tb testing.TB, format string, args ...any) string {
	tb.Helper()
	return enginetest.Exec(tb, r.url, fmt.Sprintf(format, args...))
}

// logger writes warnings to the test's log.
func logger(tb testing.TB) *slog.Logger {
	tb.Helper()
	return slog.New(slog.NewTextHandler(tb.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// noon is when the tasks of these tests happened; the record has a clock of its own.
func noon() time.Time { return time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC) }

// event is one event of a task in namespace acme.support; its id is unique if task and name are.
func event(task, name string, second int, kind events.Kind, data string) events.Event {
	return events.Event{
		ID: task + "/" + name, Namespace: "acme.support", AgentID: "agent-1", SessionID: "session-1", TaskID: task,
		Time: noon().Add(time.Duration(second) * time.Second), Kind: kind, Data: json.RawMessage(data),
	}
}

func started(task string) events.Event {
	return event(task, "start", 0, events.KindTaskStarted, `{"task_type":"refund","goal":"refund it"}`)
}

func step(task string, n int, status events.Status) events.Event {
	return event(task, fmt.Sprint("step", n), n, events.KindStepFinished, fmt.Sprintf(`{"tool":"pay","status":%q,"result":"r%d"}`, status, n))
}

func finished(task string) events.Event {
	return event(task, "end", 100, events.KindTaskFinished, `{"status":"success","confirmed_by":"system"}`)
}
