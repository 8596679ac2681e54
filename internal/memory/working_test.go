package memory_test

import (
	"encoding/json"
	"reflect"
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
