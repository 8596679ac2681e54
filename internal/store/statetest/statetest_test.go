package statetest_test

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/engine/enginetest"
	"github.com/hindsight-memory/hindsight/internal/memory"
	"github.com/hindsight-memory/hindsight/internal/store"
	"github.com/hindsight-memory/hindsight/internal/store/statetest"
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

// TestDigestTellsWhatIsAndNotHow writes the same twice in another order and at another time: the states are equal until
// something else is said.
func TestDigestTellsWhatIsAndNotHow(t *testing.T) {
	t.Parallel()
	url := enginetest.ClickHouse(t)
	record, err := store.Open(store.Options{URL: url, Database: enginetest.Database(t, url)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := record.Close(); err != nil {
			t.Error(err)
		}
	})
	must(t, record.Migrate(t.Context(), store.MigrateOptions{}))
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	states := map[string]statetest.State{}
	for _, namespace := range []string{"one", "two"} {
		evs := []events.Event{
			{ID: "a", Namespace: namespace, TaskID: "t", GoalID: "g", Time: at, Kind: events.KindTaskStarted, Data: []byte(`{"task_type":"refund"}`)},
			{ID: "b", Namespace: namespace, TaskID: "t", Time: at.Add(time.Second), Kind: events.KindTaskFinished, Data: []byte(`{"status":"success"}`)},
		}
		item := memory.Memory{
			MemoryID: "m", Namespace: namespace, Timestamp: at, MemoryType: memory.MemoryFact, Entity: "seat", Value: "aisle", Operation: memory.OperationAdd, Content: "aisle",
			ValidFrom: at, Judged: memory.Judged{Evidence: []string{"a"}, Trust: memory.TrustUserStated, Confidence: 0.8, Status: memory.ItemActive},
			Version: memory.Version{TaskRevision: 5, Writer: "reflector", WriterKind: memory.WriterMachine},
		}
		if namespace == "two" {
			slices.Reverse(evs)
			item.Confidence = 0.1
			must(t, record.InsertMemories(t.Context(), []memory.Memory{item}))
			item.Confidence, item.Version.Seq = 0.8, 7
		}
		must(t, record.InsertEvents(t.Context(), evs))
		must(t, record.InsertTasks(t.Context(), []memory.Task{memory.BuildTask(evs, true)}))
		must(t, record.InsertMemories(t.Context(), []memory.Memory{item}))
		must(t, record.InsertVectors(t.Context(), []memory.ItemVector{
			{Namespace: namespace, Model: "m/2", ItemID: "m", TextHash: memory.TextHash("aisle"), Layer: memory.LayerMemory, Vector: []float32{1, 0}},
		}))
		must(t, record.InsertReflections(t.Context(), []memory.TaskReflection{{Namespace: namespace, TaskID: "t", Revision: 5, Closed: true, ReflectedBy: "evidence"}}))
		states[namespace] = digest(t, record, namespace)
	}
	// A namespace is part of every task and item, and of what its events hash to: nothing else differs.
	if n := len(states["one"].Lines); n != 6 || len(states["two"].Lines) != n {
		t.Fatalf("%d and %d lines: %q", n, len(states["two"].Lines), states["one"].Lines)
	}
	if diff := states["one"].Without("task", "memory").Diff(states["two"].Without("task", "memory")); len(diff) > 0 {
		t.Errorf("order and time show: %q", diff)
	}
	must(t, record.InsertEvents(t.Context(), []events.Event{
		{ID: "c", Namespace: "one", TaskID: "t", Time: at, Kind: events.KindMessage, Data: []byte(`{"role":"user","content":"hello"}`)},
	}))
	after := digest(t, record, "one")
	if diff := states["one"].Diff(after); len(diff) != 3 || after.Sum() == states["one"].Sum() { // the event, and the task before and after
		t.Errorf("a further event differs by %q", diff)
	}
}

func digest(t *testing.T, record *store.ClickHouse, namespace string) statetest.State {
	t.Helper()
	state, err := statetest.Digest(t.Context(), record, namespace)
	if err != nil {
		t.Fatal(err)
	}
	return state
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
