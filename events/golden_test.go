package events_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hindsight-memory/hindsight/events"
)

func updateGolden() bool { return flag.Lookup("update").Value.String() == "true" }

func TestMain(m *testing.M) {
	flag.Bool("update", false, "write the golden files in testdata")
	flag.Parse()
	goleak.VerifyTestMain(m)
}

// noon is a fixed clock, a little after every golden event.
func noon() time.Time { return time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC) }

// golden are the events whose bytes on the wire are kept in testdata.
func golden(tb testing.TB) map[string]events.Event {
	tb.Helper()
	data := func(v any) json.RawMessage {
		raw, err := events.EncodeData(v)
		if err != nil {
			tb.Fatal(err)
		}
		return raw
	}
	with := func(kind events.Kind, data json.RawMessage, more ...func(*events.Event)) events.Event {
		e := events.Event{
			ID: "0194bc8a-0000-7000-8000-000000000001", Namespace: "acme.web", AgentID: "agent-1", SessionID: "session-1",
			UserID: "user-1", TaskID: "task-1", GoalID: "goal-1", Seq: 3,
			Time: time.Date(2026, 1, 31, 9, 30, 0, 125e6, time.UTC), Kind: kind, Data: data,
		}
		for _, change := range more {
			change(&e)
		}
		return e
	}
	score := 0.75
	return map[string]events.Event{
		"task_started": with(events.KindTaskStarted, data(events.TaskStarted{
			TaskType: "refund", Goal: "Give the money for order A-17 back", InputSummary: "order A-17, paid by card",
			AvailableTools: []string{"get_order", "refund"}, ParentTaskID: "task-0",
			Attributes: map[string]json.RawMessage{"model": json.RawMessage(`"m-1"`), "budget": json.RawMessage(`1.50`)},
		})),
		"message": with(events.KindMessage, data(events.Message{Role: events.RoleUser, Content: "Please <refund> me & thanks.", Turn: 1})),
		"step_finished": with(events.KindStepFinished, data(events.StepFinished{
			Step: 2, Tool: "refund", Parameters: json.RawMessage(`{"order":"A-17","amount":12.50}`),
			Reasoning: "The order is paid.", Status: events.StatusFailure, Result: json.RawMessage(`{"accepted":false}`),
			ErrorType: "LimitExceeded", ErrorMessage: "amount is over 10.00", ExecutionTimeMS: 42, CallID: "call-2",
			Actor: events.ActorAgent,
		})),
		"task_finished": with(events.KindTaskFinished, data(events.TaskFinished{
			Status: events.StatusPartial, Score: &score, Result: json.RawMessage(`"half of it"`),
			Reason: "the limit", ConfirmedBy: events.ConfirmedBySystem,
		})),
		"feedback": with(events.KindFeedback, data(events.Feedback{
			Target: "step-2", Kind: events.FeedbackCorrection, Value: json.RawMessage(`"split the amount"`), Comment: "see the manual",
		})),
		"item_written":  with(events.KindItemWritten, json.RawMessage(`{"content":"refunds over 10.00 need two calls","memory_type":"procedure"}`)),
		"item_changed":  with(events.KindItemChanged, json.RawMessage(`{"id":"m-1","operation":"delete","reason":"out of date"}`)),
		"recall_served": with(events.KindRecallServed, json.RawMessage(`{"question":"refund fails","items":[{"id":"r-1","score":0.9}],"withheld":false}`)),
		"unknown_kind":  with("vendor_thing", json.RawMessage(`{"anything":[1,2.50,1e3,null,true]}`)),
		"extra_fields": with(events.KindMessage, json.RawMessage(`{"role":"assistant","content":"","mood":{"b":1,"a":2}}`), func(e *events.Event) {
			e.Extra = map[string]json.RawMessage{
				"zone": json.RawMessage(`"eu"`), "attempt": json.RawMessage(`{"n":2,"of":12345678901234567890}`), "<&>": json.RawMessage(`null`),
			}
		}),
		"every_script": with(events.KindMessage, data(events.Message{
			Role:    events.RoleUser,
			Content: "退款失败 払い戻し 환불 \u202e استرداد 👩‍👩‍👧 e\u0301 \u2028 \u2029 \u0000 \u001f \" \\ / \ufffd",
		}), func(e *events.Event) {
			e.ID, e.TaskID, e.UserID = "事件-👍", "タスク/1", "användare"
			e.Extra = map[string]json.RawMessage{"備考": json.RawMessage(`"\u2028 😀"`)}
		}),
		"smallest": {
			ID: "1", Namespace: "a", AgentID: "a", SessionID: "s", TaskID: "t", Kind: "x",
			Time: time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC),
		},
	}
}

// TestGoldenEvents catches every change of the wire format. After a wanted change: go test ./events -update.
func TestGoldenEvents(t *testing.T) {
	t.Parallel()
	all := golden(t)
	for name, e := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			raw, err := e.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", "golden", name+".json")
			if updateGolden() {
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, append(raw, '\n'), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if got := string(raw) + "\n"; got != string(want) {
				t.Errorf("the wire format changed:\n got %s\nwant %s", got, want)
			}

			back, err := events.Decode(nil, want)
			if err != nil {
				t.Fatal(err)
			}
			if len(e.Data) == 0 {
				e.Data = json.RawMessage("{}")
			}
			if !reflect.DeepEqual(back, e) {
				t.Errorf("read back:\n got %+v\nwant %+v", back, e)
			}
			if err := e.Validate(noon()); err != nil {
				t.Errorf("Validate: %v", err)
			}
			prepared, encoded, err := events.Prepare(e, noon())
			if err != nil {
				t.Fatalf("Prepare: %v", err)
			}
			if got := string(encoded) + "\n"; got != string(want) {
				t.Errorf("Prepare changed it:\n got %s\nwant %s", got, want)
			}
			if !reflect.DeepEqual(prepared, e) {
				t.Errorf("Prepare changed it:\n got %+v\nwant %+v", prepared, e)
			}
		})
	}
	t.Run("every kind has one and no file is left over", func(t *testing.T) {
		if updateGolden() {
			t.Skip("the files are being written")
		}
		t.Parallel()
		for _, kind := range events.Kinds() {
			if _, found := all[string(kind)]; !found {
				t.Errorf("no golden event of kind %s", kind)
			}
		}
		files, err := filepath.Glob("testdata/golden/*.json")
		if err != nil || len(files) != len(all) {
			t.Errorf("%d files for %d events, %v", len(files), len(all), err)
		}
		for _, file := range files {
			if _, found := all[strings.TrimSuffix(filepath.Base(file), ".json")]; !found {
				t.Errorf("%s belongs to no event", file)
			}
		}
	})
}
