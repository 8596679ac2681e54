package reflect_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/engine/enginetest"
	"github.com/hindsight-memory/hindsight/internal/memory"
	"github.com/hindsight-memory/hindsight/internal/reflect"
	"github.com/hindsight-memory/hindsight/internal/store"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.database != nil {
		if err := shared.database.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "close the shared record:", err)
			code = 1
		}
	}
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

// namespace is what scripts are written in; each rig moves them to a namespace of its own.
const namespace = "acme"

// shared is one real record for all tests: making one takes longer than most of them. Each has a namespace of its own.
var shared struct {
	once     sync.Once
	database *store.ClickHouse
	err      error
}

func newRecord(tb testing.TB) *store.ClickHouse {
	tb.Helper()
	shared.once.Do(func() {
		shared.database, shared.err = store.Open(store.Options{URL: enginetest.ClickHouse(tb), Database: "reflect_test"})
		if shared.err == nil {
			shared.err = shared.database.Migrate(context.Background(), store.MigrateOptions{})
		}
	})
	if shared.err != nil {
		tb.Fatalf("make the shared record: %v", shared.err)
	}
	return shared.database
}

// put stores the events of tasks and their closed states.
func (r *rig) put(tb testing.TB, scripts ...*script) {
	tb.Helper()
	for _, s := range scripts {
		for i := range s.evs {
			s.evs[i].Namespace = r.namespace
		}
		must(tb, r.InsertEvents(tb.Context(), s.evs))
		must(tb, r.InsertTasks(tb.Context(), []memory.Task{s.task()}))
	}
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// logger writes warnings to the test's log.
func logger(tb testing.TB) *slog.Logger {
	tb.Helper()
	return slog.New(slog.NewTextHandler(tb.Output(), &slog.HandlerOptions{Level: slog.LevelError}))
}

// space is an embedder and an index that keep what they were given: what is tested is what reaches them, and when.
type space struct {
	mu      sync.Mutex
	entries map[string]memory.IndexEntry
	deleted []string
	away    error
	broken  error
}

func newSpace() *space { return &space{entries: map[string]memory.IndexEntry{}} }

func (s *space) Identity(context.Context) (string, error) { return "test/4", s.fault() }

func (s *space) fault() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.away
}

func (s *space) setAway(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = err
}

func (s *space) Embed(_ context.Context, texts []string) ([][]float32, error) {
	if err := s.fault(); err != nil {
		return nil, err
	}
	out := make([][]float32, len(texts))
	for i, text := range texts {
		h := fnv.New64a()
		_, _ = h.Write([]byte(text))
		angle := float64(h.Sum64()%1000) / 1000 * 2 * math.Pi
		out[i] = []float32{float32(math.Cos(angle)), float32(math.Sin(angle)), 0, 0}
	}
	return out, nil
}

func (s *space) Upsert(_ context.Context, entries []memory.IndexEntry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil {
		return s.broken
	}
	for _, e := range entries {
		s.entries[e.ID] = e
	}
	return nil
}

func (s *space) Delete(_ context.Context, _ string, ids []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		delete(s.entries, id)
		s.deleted = append(s.deleted, id)
	}
	return nil
}

func (s *space) has(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, has := s.entries[id]
	return has
}

// rig is a reflector and a keeper over a real record.
type rig struct {
	*store.ClickHouse
	namespace string
	space     *space
	reflector *reflect.Reflector
	keeper    *reflect.Keeper
}

func newRig(tb testing.TB, edit ...func(*reflect.Options)) *rig {
	tb.Helper()
	r := &rig{ClickHouse: newRecord(tb), namespace: "t" + strings.ToLower(rand.Text()[:12]), space: newSpace()}
	registry := prometheus.NewRegistry()
	opts := reflect.Options{
		Tasks: r.ClickHouse, Ledger: r.ClickHouse, Items: r.ClickHouse, Writer: r.ClickHouse, Index: r.space, Embedder: r.space, Logger: logger(tb), Registerer: registry,
	}
	for _, f := range edit {
		f(&opts)
	}
	var err error
	r.reflector, err = reflect.New(opts)
	must(tb, err)
	r.keeper, err = reflect.NewKeeper(reflect.KeeperOptions{
		Events: r.ClickHouse, Items: r.ClickHouse, Writer: r.ClickHouse, Index: r.space, Embedder: r.space, Logger: logger(tb), Registerer: registry,
	})
	must(tb, err)
	return r
}

// reflect reflects the closed state of a task.
func (r *rig) reflect(tb testing.TB, s *script) memory.TaskReflection {
	tb.Helper()
	out, err := r.reflector.Reflect(tb.Context(), r.request(s, true))
	must(tb, err)
	return out
}

func (r *rig) request(s *script, closed bool) memory.ReflectionRequest {
	return memory.ReflectionRequest{Namespace: r.namespace, TaskID: s.id, Revision: memory.Revision(len(s.evs), closed), Closed: closed}
}

func (r *rig) snapshots(tb testing.TB, taskID string) []memory.Snapshot {
	tb.Helper()
	out, err := r.Snapshots(tb.Context(), memory.ItemFilter{Namespace: r.namespace, TaskIDs: []string{taskID}})
	must(tb, err)
	slices.SortFunc(out, func(a, b memory.Snapshot) int { return a.Step - b.Step })
	return out
}

func (r *rig) snapshot(tb testing.TB, taskID string) memory.Snapshot {
	tb.Helper()
	all := r.snapshots(tb, taskID)
	if len(all) != 1 {
		tb.Fatalf("%d snapshots of %s, want 1", len(all), taskID)
	}
	return all[0]
}

// versions counts the stored versions of an item.
func (r *rig) versions(tb testing.TB, id string) int {
	tb.Helper()
	uses, err := r.Uses(tb.Context(), r.namespace, []string{id})
	must(tb, err)
	return uses[id].VersionNum
}

// script builds the events of one task, one after the other.
type script struct {
	id, goalID string
	evs        []events.Event
}

func newScript(id, goalID, goal string) *script {
	s := &script{id: id, goalID: goalID}
	return s.add(events.KindTaskStarted, events.TaskStarted{TaskType: "booking", Goal: goal})
}

func (s *script) add(kind events.Kind, data any) *script {
	raw, err := events.EncodeData(data)
	if err != nil {
		panic(err)
	}
	n := len(s.evs)
	s.evs = append(s.evs, events.Event{
		ID: fmt.Sprintf("%s/%d", s.id, n), Namespace: namespace, AgentID: "a", SessionID: s.id, UserID: "u", TaskID: s.id, GoalID: s.goalID,
		Time: time.Date(2026, 1, 31, 12, 0, n, 0, time.UTC), Kind: kind, Data: raw,
	})
	return s
}

func (s *script) ok(tool, parameters, result string) *script {
	raw, err := json.Marshal(result)
	if err != nil {
		panic(err)
	}
	return s.add(events.KindStepFinished, events.StepFinished{Tool: tool, Parameters: json.RawMessage(parameters), Status: events.StatusSuccess, Result: raw})
}

func (s *script) fail(tool, parameters, message string) *script {
	return s.add(events.KindStepFinished, events.StepFinished{Tool: tool, Parameters: json.RawMessage(parameters), Status: events.StatusFailure, ErrorType: "tool_error", ErrorMessage: message})
}

func (s *script) user(text string) *script {
	return s.add(events.KindMessage, events.Message{Role: events.RoleUser, Content: text})
}

func (s *script) end(status events.Status) *script {
	return s.add(events.KindTaskFinished, events.TaskFinished{Status: status, ConfirmedBy: events.ConfirmedBySystem})
}

func (s *script) task() memory.Task { return memory.BuildTask(s.evs, true) }

// payment is a task with a lesson.
func payment(id string) *script {
	return newScript(id, "", "Book a flight for Mia on May 20, 2026").
		fail("book", `{"user_id":"mia_3668","payments":[{"payment_id":"card_1","amount":250},{"payment_id":"card_2","amount":5}]}`, "payment amount does not add up, total price is 305, but paid 255").
		ok("book", `{"user_id":"mia_3668","payments":[{"payment_id":"card_1","amount":250},{"payment_id":"card_2","amount":55}]}`, "booked").
		end(events.StatusSuccess)
}
