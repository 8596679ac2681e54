package memory_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/memory"
)

func TestWorkingOf(t *testing.T) {
	t.Parallel()
	base := memory.Working{
		Namespace: "acme.support", TaskID: "refund-7", SessionID: "session-1", Goal: "g",
		State: "started", Artifacts: map[string]string{}, UpdatedAt: noon(),
	}
	start := started("0", 0, `{"goal":"g"}`)
	long := strings.Repeat("é", 400)
	for _, test := range []struct {
		name string
		evs  []events.Event
		want func(w *memory.Working)
	}{
		{"before the first step", nil, func(*memory.Working) {}},
		{"after a success", []events.Event{step("1", 1, `{"tool":"look","status":"success","result":"seen"}`)}, func(w *memory.Working) {
			w.Step, w.State, w.Artifacts["look"], w.UpdatedAt = 1, "step 1: look succeeded", "seen", noon().Add(time.Second)
		}},
		{"a failure leaves the last good result", []events.Event{
			step("1", 1, `{"tool":"look","status":"success","result":{"a":1}}`), step("2", 2, `{"tool":"look","status":"failure","result":"broken"}`),
		}, func(w *memory.Working) {
			w.Step, w.State, w.Artifacts["look"], w.UpdatedAt = 2, "step 2: look failed", `{"a":1}`, noon().Add(2*time.Second)
		}},
		{"the latest result of each tool, cut", []events.Event{
			step("1", 1, `{"tool":"look","status":"success","result":"old"}`), step("2", 2, `{"tool":"read","status":"success","result":"`+long+`"}`),
			step("3", 3, `{"tool":"look","status":"success","result":"new"}`),
		}, func(w *memory.Working) {
			w.Step, w.State, w.UpdatedAt = 3, "step 3: look succeeded", noon().Add(3*time.Second)
			w.Artifacts["look"], w.Artifacts["read"] = "new", events.CutText(long, 500)
		}},
		{"the producer's number", []events.Event{step("1", 1, `{"step":40,"tool":"look","status":"success"}`)}, func(w *memory.Working) {
			w.Step, w.State, w.Artifacts["look"], w.UpdatedAt = 40, "step 40: look succeeded", "", noon().Add(time.Second)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			want := base
			want.Artifacts = map[string]string{}
			test.want(&want)
			got := memory.WorkingOf(memory.BuildTask(append([]events.Event{start}, test.evs...), false))
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
			for tool, artifact := range got.Artifacts {
				if len(artifact) > 500 {
					t.Errorf("the artifact of %s has %d bytes, want at most 500", tool, len(artifact))
				}
			}
		})
	}
}

func TestWorkingJSON(t *testing.T) {
	t.Parallel()
	raw, err := json.Marshal(memory.WorkingOf(memory.BuildTask([]events.Event{started("0", 0, `{"goal":"g"}`)}, false)))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"namespace":"acme.support","task_id":"refund-7","session_id":"session-1","goal":"g","step":0,"state":"started",` +
		`"artifacts":{},"updated_at":"2026-01-31T12:00:00Z"}`
	if string(raw) != want {
		t.Errorf("got  %s\nwant %s", raw, want)
	}
}

// TestWorkingIsSmall: a task may have a goal of any length and use any number of tools.
func TestWorkingIsSmall(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 4000)
	evs := []events.Event{started("0", 0, `{"goal":"`+long+`"}`)}
	for n := range 30 {
		evs = append(evs, step(strconv.Itoa(n+1), n+1, fmt.Sprintf(`{"tool":"tool%02d","status":"success","result":"r%d"}`, n, n)))
	}
	evs = append(evs,
		step("again", 50, `{"tool":"tool00","status":"success","result":"again"}`),
		step("broken", 51, `{"tool":"tool01","status":"failure"}`))
	w := memory.WorkingOf(memory.BuildTask(evs, false))
	if w.Goal != events.CutText(long, 500) {
		t.Errorf("the goal has %d bytes, want it cut to 500: %s", len(w.Goal), w.Goal)
	}
	want := map[string]string{"tool00": "again"}
	for n := 11; n < 30; n++ {
		want[fmt.Sprintf("tool%02d", n)] = fmt.Sprint("r", n)
	}
	if !reflect.DeepEqual(w.Artifacts, want) {
		t.Errorf("artifacts %q, want the latest 20: %q", w.Artifacts, want)
	}
	if w.Step != 32 || w.State != "step 32: tool01 failed" {
		t.Errorf("step %d, %q", w.Step, w.State)
	}
}
