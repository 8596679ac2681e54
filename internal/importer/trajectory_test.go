package importer_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/importer"
	"github.com/hindsight-memory/hindsight/internal/memory"
)

const namespace = "test.team"

// testNow is the clock of all tests.
func testNow() time.Time { return time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC) }

// newImporter makes an importer with the tests' clock and namespace; change may be nil.
func newImporter(tb testing.TB, change func(*importer.Options)) *importer.Importer {
	tb.Helper()
	o := importer.Options{Namespace: namespace, Now: testNow}
	if change != nil {
		change(&o)
	}
	im, err := importer.New(o)
	if err != nil {
		tb.Fatalf("New: %v", err)
	}
	return im
}

// write puts a file into a fresh directory.
func write(tb testing.TB, content []byte) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "input")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		tb.Fatal(err)
	}
	return path
}

func zip(tb testing.TB, content []byte) []byte {
	tb.Helper()
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	if _, err := z.Write(content); err != nil {
		tb.Fatal(err)
	}
	if err := z.Close(); err != nil {
		tb.Fatal(err)
	}
	return buf.Bytes()
}

// read gathers what a file gives, and checks what holds for every item.
func read(tb testing.TB, im *importer.Importer, path string) (records []importer.Record, problems []importer.Problem) {
	tb.Helper()
	late := time.Date(2200, time.January, 1, 0, 0, 0, 0, time.UTC) // Recorded runs may be younger than testNow.
	var before int64
	for item := range im.Read(tb.Context(), path) {
		if (item.Record == nil) == (item.Problem == nil) {
			tb.Fatalf("an item has both or neither of record and problem: %+v", item)
		}
		if item.BytesRead < before || item.BytesTotal > 0 && item.BytesRead > item.BytesTotal {
			tb.Fatalf("%d bytes read of %d, after %d", item.BytesRead, item.BytesTotal, before)
		}
		before = item.BytesRead
		if p := item.Problem; p != nil {
			if p.Path != path || p.Err == nil || p.Reason == "" {
				tb.Fatalf("incomplete problem %+v", p)
			}
			problems = append(problems, *p)
			continue
		}
		r := *item.Record
		if r.Path != path || r.Line < 1 || len(r.Events) == 0 || len(r.Events) != len(r.Encoded) {
			tb.Fatalf("incomplete record %+v", r)
		}
		for i, e := range r.Events {
			if err := e.Validate(late); err != nil {
				tb.Fatalf("line %d, event %d: %v", r.Line, i, err)
			}
			if (memory.TaskKey{Namespace: e.Namespace, TaskID: e.TaskID}) != r.Key {
				tb.Fatalf("line %d, event %d is of task %s, not %v", r.Line, i, e.TaskID, r.Key)
			}
			var back events.Event
			if err := back.UnmarshalJSON(r.Encoded[i]); err != nil || back.ID != e.ID {
				tb.Fatalf("line %d, event %d: the bytes give %q, %v, want event %q", r.Line, i, back.ID, err, e.ID)
			}
		}
		records = append(records, r)
	}
	return records, problems
}

// readOne reads content that is expected to be one good line.
func readOne(tb testing.TB, content string) importer.Record {
	tb.Helper()
	records, problems := read(tb, newImporter(tb, nil), write(tb, []byte(content)))
	if len(records) != 1 || len(problems) != 0 {
		tb.Fatalf("%d records, problems %v; want one record", len(records), problems)
	}
	return records[0]
}

// trajectory writes a line with some fields replaced; a nil value removes the field.
func trajectory(tb testing.TB, change map[string]any) string {
	tb.Helper()
	fields := map[string]any{
		"source": "shop/returns", "run": "model-a", "trial": 2, "task_id": "t7",
		"task":    "CANARY-TASK: you are Ann and want your money back",
		"labels":  map[string]any{"gold": "CANARY-LABEL"},
		"outcome": map[string]any{"success": false, "reward": 0.25, "reason": "user_stop", "CANARY": "CANARY-OUTCOME"},
		"steps": []any{
			map[string]any{"i": 0, "type": "message", "role": "assistant", "content": "Hello, how can I help?"},
			map[string]any{"i": 1, "type": "message", "role": "user", "content": "Please return my kettle <now> & soon"},
			map[string]any{"i": 2, "type": "tool_call", "tool": "get_order", "args": map[string]any{"order": "W1"}, "result": "{\"id\": \"W1\"}", "error": nil, "by": "assistant", "latency_ms": 12.6},
			map[string]any{"i": 3, "type": "tool_call", "tool": "look_at_box", "args": map[string]any{"side": "top"}, "result": "torn", "error": nil, "by": "user"},
			map[string]any{"i": 4, "type": "tool_call", "tool": "refund", "args": map[string]any{}, "result": nil, "error": "Error: 503 Service Unavailable"},
		},
	}
	maps.Copy(fields, change)
	maps.DeleteFunc(fields, func(_ string, v any) bool { return v == nil })
	raw, err := json.Marshal(fields)
	if err != nil {
		tb.Fatal(err)
	}
	return string(raw) + "\n"
}

func TestTrajectoryMapping(t *testing.T) {
	t.Parallel()
	r := readOne(t, trajectory(t, nil))
	task := memory.BuildTask(r.Events, true)
	if len(r.Events) != 7 || task.Events != 7 {
		t.Fatalf("%d events, %d distinct; want 7", len(r.Events), task.Events)
	}
	for i, e := range r.Events {
		if e.Seq != int64(i+1) || e.Namespace != namespace || e.AgentID != "model-a" || e.SessionID != e.TaskID || e.GoalID != "shop/returns/t7" {
			t.Errorf("envelope %d: %+v", i, e)
		}
	}
	want := []struct {
		kind events.Kind
		at   string
		data string
	}{
		{
			events.KindTaskStarted, "2000-01-03T00:00:00.000Z",
			`{"task_type":"shop/returns","goal":"Please return my kettle <now> & soon","attributes":{"run":"model-a","source":"shop/returns","task_id":"t7","times":"synthesised","trial":"2"}}`,
		},
		{events.KindMessage, "2000-01-03T00:00:00.000Z", `{"role":"assistant","content":"Hello, how can I help?"}`},
		{events.KindMessage, "2000-01-03T00:00:01.000Z", `{"role":"user","content":"Please return my kettle <now> & soon","turn":1}`},
		{
			events.KindStepFinished, "2000-01-03T00:00:02.000Z",
			`{"step":1,"tool":"get_order","parameters":{"order":"W1"},"status":"success","result":"{\"id\": \"W1\"}","execution_time_ms":13,"actor":"agent"}`,
		},
		{events.KindMessage, "2000-01-03T00:00:03.000Z", `{"role":"user","content":"look_at_box {\"side\":\"top\"} → torn","turn":2}`},
		{
			events.KindStepFinished, "2000-01-03T00:00:04.000Z",
			`{"step":2,"tool":"refund","parameters":{},"status":"failure","error_type":"503","error_message":"Error: 503 Service Unavailable","actor":"agent"}`,
		},
		{events.KindTaskFinished, "2000-01-03T00:00:04.000Z", `{"status":"failure","score":0.25,"reason":"user_stop","confirmed_by":"system"}`},
	}
	for i, w := range want {
		e := r.Events[i]
		if e.Kind != w.kind || e.Time.Format(events.TimeFormat) != w.at || string(e.Data) != w.data {
			t.Errorf("event %d:\n got %s %s %s\nwant %s %s %s", i, e.Kind, e.Time.Format(events.TimeFormat), e.Data, w.kind, w.at, w.data)
		}
	}
	if all := string(bytes.Join(r.Encoded, nil)); strings.Contains(all, "CANARY") {
		t.Errorf("what no agent has seen got into the events: %s", all)
	}
}
