package service_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/bus"
	"github.com/hindsight-memory/hindsight/internal/config"
	"github.com/hindsight-memory/hindsight/internal/engine/enginetest"
	"github.com/hindsight-memory/hindsight/internal/memory"
	"github.com/hindsight-memory/hindsight/internal/service"
	"github.com/hindsight-memory/hindsight/internal/store/milvustest"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if err := enginetest.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stop the shared engine:", err)
		code = 1
	}
	if err := milvustest.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stop the shared Milvus:", err)
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
const patience = 2 * time.Minute

// eventually waits for a condition.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-ctx.Done():
			t.Fatalf("not within %s: %s", patience, what)
		case <-tick.C:
		}
	}
}

// logger writes warnings to the test's log.
func logger(t *testing.T) *slog.Logger {
	t.Helper()
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// environment is a real broker and a real record, fresh for one test, as the variables that name them.
func environment(t *testing.T) map[string]string {
	t.Helper()
	clickhouse := enginetest.ClickHouse(t)
	return map[string]string{
		"HINDSIGHT_DATA_DIR": t.TempDir(), "HINDSIGHT_NATS_URL": enginetest.NATS(t), "HINDSIGHT_CLICKHOUSE_URL": clickhouse,
		"HINDSIGHT_CLICKHOUSE_DATABASE": enginetest.Database(t, clickhouse), "HINDSIGHT_TASK_QUIET": "100ms", "HINDSIGHT_TASK_IDLE": "1h",
		"HINDSIGHT_SWEEP_INTERVAL": "100ms", "HINDSIGHT_EMBEDDER": "none", "HINDSIGHT_TRACES_MAX_BYTES": strconv.Itoa(64 << 20),
	}
}

func load(t *testing.T, env map[string]string) *config.Config {
	t.Helper()
	cfg, err := config.Load(func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// open opens connections as a process of the given name does.
func open(t *testing.T, env map[string]string, holder string) *service.Parts {
	t.Helper()
	p, err := service.Open(t.Context(), &service.Parts{Config: load(t, env), Holder: holder, Registry: prometheus.NewRegistry(), Logger: logger(t)}, "test", func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// run runs a service until the returned function is called or the test ends; it must drain without an error.
func run(t *testing.T, p *service.Parts, s service.Service) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- s(ctx, p) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the service ended with: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// publisher is a connection of an agent that publishes.
func publisher(t *testing.T, env map[string]string) *bus.Conn {
	t.Helper()
	conn, err := bus.Connect(t.Context(), bus.Options{URL: env["HINDSIGHT_NATS_URL"], Name: "agent", Logger: logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

// event is one event of a task in namespace acme.support.
func event(task, name string, second int, kind events.Kind, data string) events.Event {
	return events.Event{
		ID: task + "/" + name, Namespace: "acme.support", AgentID: "agent-1", SessionID: "session-1", TaskID: task,
		Time: time.Date(2026, 1, 31, 12, 0, second, 0, time.UTC), Kind: kind, Data: []byte(data),
	}
}

func started(task string) events.Event {
	return event(task, "start", 0, events.KindTaskStarted, `{"task_type":"refund","goal":"refund it"}`)
}

func step(task string, n int, status events.Status) events.Event {
	return event(task, fmt.Sprint("step", n), 1, events.KindStepFinished, fmt.Sprintf(`{"tool":"pay","status":%q,"result":"r%d"}`, status, n))
}

func finished(task string) events.Event {
	return event(task, "end", 59, events.KindTaskFinished, `{"status":"success","confirmed_by":"system"}`)
}

func messageOf(t *testing.T, e events.Event) bus.Message {
	t.Helper()
	raw, err := e.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	return bus.Message{Subject: events.Subject(e.Namespace, e.Kind), ID: e.MessageID(), Data: raw}
}

func publish(t *testing.T, conn *bus.Conn, evs ...events.Event) {
	t.Helper()
	msgs := make([]bus.Message, len(evs))
	for i, e := range evs {
		msgs[i] = messageOf(t, e)
	}
	if _, err := conn.PublishAll(t.Context(), msgs); err != nil {
		t.Fatal(err)
	}
}

// tasks are n whole tasks, three events each.
func tasks(prefix string, n int) []events.Event {
	var evs []events.Event
	for i := range n {
		id := fmt.Sprintf("%s%04d", prefix, i)
		evs = append(evs, started(id), step(id, 1, events.StatusSuccess), finished(id))
	}
	return evs
}

// health asks the record, which may not answer at the moment.
func health(t *testing.T, p *service.Parts) memory.Health {
	t.Helper()
	h, err := p.Store.Health(t.Context(), "")
	if err != nil {
		t.Log("health:", err)
	}
	return h
}

// messages counts what a stream holds; -1 while nobody answers.
func messages(t *testing.T, conn *bus.Conn, stream string) int {
	t.Helper()
	stats, err := conn.Stats(t.Context())
	if err != nil {
		return -1
	}
	for _, s := range stats {
		if s.Stream == stream {
			return int(s.Messages)
		}
	}
	return -1
}

// metric sums a metric's samples whose labels have all the given values; of a histogram it counts the observations.
func metric(t *testing.T, registry *prometheus.Registry, name string, labels ...string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			var values []string
			for _, pair := range m.GetLabel() {
				values = append(values, pair.GetValue())
			}
			if !slices.ContainsFunc(labels, func(l string) bool { return !slices.Contains(values, l) }) {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}

// inFrontOf starts a proxy for a URL like http://host:port and returns it with its own URL.
func inFrontOf(t *testing.T, url string) (*enginetest.Proxy, string) {
	t.Helper()
	scheme, target, _ := strings.Cut(url, "://")
	p := enginetest.NewProxy(t, target)
	return p, scheme + "://" + p.Addr()
}
