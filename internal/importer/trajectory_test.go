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

// TestBadTrajectories: one bad line is one problem that names the field, and its neighbours are read.
func TestBadTrajectories(t *testing.T) {
	t.Parallel()
	step := func(fields map[string]any) map[string]any {
		return map[string]any{"steps": []any{map[string]any{"type": "message", "role": "user", "content": "hi"}, fields}}
	}
	call := func(field string, value any) map[string]any {
		out := map[string]any{"type": "tool_call", "tool": "look"}
		out[field] = value
		return step(out)
	}
	for name, c := range map[string]struct {
		change map[string]any
		reason string
		says   string
	}{
		"no source":                 {map[string]any{"source": nil}, "missing_field", "source is missing"},
		"empty run":                 {map[string]any{"run": ""}, "missing_field", "run is empty"},
		"no trial":                  {map[string]any{"trial": nil}, "missing_field", "trial is missing"},
		"no task_id":                {map[string]any{"task_id": nil}, "missing_field", "task_id is missing"},
		"no steps":                  {map[string]any{"steps": nil}, "missing_field", "steps is missing"},
		"source a number":           {map[string]any{"source": 3}, "wrong_type", "source is not a text"},
		"trial a list":              {map[string]any{"trial": []int{1}}, "wrong_type", "trial is neither a text nor a number"},
		"task_id a boolean":         {map[string]any{"task_id": true}, "wrong_type", "task_id"},
		"steps an object":           {map[string]any{"steps": map[string]any{}}, "wrong_type", "steps is not a list"},
		"steps a text":              {map[string]any{"steps": "none"}, "wrong_type", "steps is not a list"},
		"a step is a text":          {map[string]any{"steps": []any{"hi"}}, "wrong_type", "steps[0] is not an object"},
		"a step is null":            {map[string]any{"steps": []any{nil}}, "wrong_type", "steps[0] is not an object"},
		"no step type":              {step(map[string]any{"content": "x"}), "missing_field", "steps[1].type is missing"},
		"unknown step type":         {step(map[string]any{"type": "thought"}), "unknown_step_type", `steps[1].type is "thought"`},
		"step type a number":        {step(map[string]any{"type": 7}), "wrong_type", "steps[1].type"},
		"no tool":                   {call("tool", nil), "missing_field", "steps[1].tool is missing"},
		"blank tool":                {call("tool", " "), "missing_field", "steps[1].tool is missing"},
		"tool a list":               {call("tool", []int{}), "wrong_type", "steps[1].tool is not a text"},
		"by a number":               {call("by", 1), "wrong_type", "steps[1].by"},
		"latency a text":            {call("latency_ms", "fast"), "wrong_type", "steps[1].latency_ms is not a number"},
		"at a number":               {call("at", 1700000000), "wrong_type", "steps[1].at"},
		"at no time":                {call("at", "yesterday"), "bad_time", `"yesterday"`},
		"at in the far future":      {call("at", "2199-01-01T00:00:00Z"), "invalid_event", "future"},
		"at before 1970":            {call("at", "0001-01-02T00:00:00Z"), "invalid_event", "1970"},
		"role a number":             {step(map[string]any{"type": "message", "role": 1}), "wrong_type", "steps[1].role"},
		"started_at no time":        {map[string]any{"started_at": "noon"}, "bad_time", "started_at"},
		"outcome a text":            {map[string]any{"outcome": "won"}, "wrong_type", "outcome is not an object"},
		"success a text":            {map[string]any{"outcome": map[string]any{"success": "yes"}}, "wrong_type", "outcome.success"},
		"reward a text":             {map[string]any{"outcome": map[string]any{"reward": "1"}}, "wrong_type", "outcome.reward"},
		"duration a text":           {map[string]any{"outcome": map[string]any{"duration_s": "1"}}, "wrong_type", "outcome.duration_s"},
		"a duration of ten decades": {map[string]any{"outcome": map[string]any{"duration_s": 1e300}}, "invalid_event", "future"},
		"arguments too deep": {
			call("args", json.RawMessage(strings.Repeat(`{"a":`, 100)+"1"+strings.Repeat("}", 100))), "invalid_event", "nested deeper",
		},
		"arguments too large": {call("args", many(100, 20_000)), "too_large", "at most"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			content := trajectory(t, map[string]any{"trial": 100}) + trajectory(t, c.change) + trajectory(t, map[string]any{"trial": 101})
			records, problems := read(t, newImporter(t, nil), write(t, []byte(content)))
			if len(records) != 2 || len(problems) != 1 {
				t.Fatalf("%d records, problems %v", len(records), problems)
			}
			p := problems[0]
			if p.Line != 2 || p.Skipped || p.Reason != c.reason || !strings.Contains(p.Err.Error(), c.says) {
				t.Errorf("problem %+v; want %s with %q", p, c.reason, c.says)
			}
		})
	}
}

// many makes an object of n texts of some size each.
func many(n, size int) map[string]string {
	out := map[string]string{}
	for i := range n {
		out[strings.Repeat("k", i+1)] = strings.Repeat("v ", size/2)
	}
	return out
}

func TestTrajectoryIdentity(t *testing.T) {
	t.Parallel()
	id := func(change map[string]any) string { return readOne(t, trajectory(t, change)).Key.TaskID }
	base := id(nil)
	if len(base) != 32 || strings.Trim(base, "0123456789abcdef") != "" {
		t.Errorf("task id %q is not 32 hexadecimal digits", base)
	}
	for _, same := range []map[string]any{
		{"trial": "2"},
		{"trial": json.RawMessage("2.0")},
		{"trial": json.RawMessage("20e-1")},
		{"labels": nil},
		{"task": nil},
		{"outcome": nil},
		{"steps": []any{}},
		{"started_at": "2025-01-01T00:00:00"},
	} {
		if got := id(same); got != base {
			t.Errorf("%v changes the task id", same)
		}
	}
	seen := map[string]bool{base: true}
	for _, other := range []map[string]any{
		{"trial": 3},
		{"trial": -2},
		{"task_id": "t8"},
		{"run": "model-b"},
		{"source": "shop/return"},
		{"source": "shop/returnsm", "run": "odel-a"},
		{"trial": "t7", "task_id": "2"},
		{"trial": 2.5},
	} {
		got := id(other)
		if seen[got] {
			t.Errorf("%v has the task id of another", other)
		}
		seen[got] = true
	}
	if a, b := id(map[string]any{"task_id": 0}), id(map[string]any{"task_id": "0"}); a != b {
		t.Error(`task ids 0 and "0" differ`)
	}
}

func TestLongNames(t *testing.T) {
	t.Parallel()
	run := strings.Repeat("é", 300) + "\n"
	source := strings.Repeat("s", 511)
	a := readOne(t, trajectory(t, map[string]any{"run": run + "a", "source": source})).Events[0]
	b := readOne(t, trajectory(t, map[string]any{"run": run + "b", "source": source})).Events[0]
	if a.AgentID == b.AgentID || !strings.HasPrefix(a.AgentID, "ééé") || !strings.HasPrefix(a.GoalID, "sss") {
		t.Errorf("agents %q and %q, goal %q", a.AgentID, b.AgentID, a.GoalID)
	}
	for in, want := range map[string]string{
		"":                       "",
		"plain":                  "plain",
		strings.Repeat("x", 512): strings.Repeat("x", 512),
	} {
		if got := importer.LimitID(in); got != want {
			t.Errorf("LimitID(%q) = %q", in, got)
		}
	}
}

func TestOutcomes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		outcome any
		want    string
	}{
		"success":       {map[string]any{"success": true, "reward": 1}, `{"status":"success","score":1,"confirmed_by":"system"}`},
		"failure":       {map[string]any{"success": false, "reward": 0.0, "reason": "max_steps"}, `{"status":"failure","score":0,"reason":"max_steps","confirmed_by":"system"}`},
		"unknown":       {map[string]any{"success": json.RawMessage("null"), "reward": json.RawMessage("null")}, `{"status":"unknown"}`},
		"reward alone":  {map[string]any{"reward": 0.5}, `{"status":"unknown","score":0.5}`},
		"none":          {nil, `{"status":"unknown"}`},
		"null":          {json.RawMessage("null"), `{"status":"unknown"}`},
		"reason a list": {map[string]any{"success": true, "reason": []string{"a", "b"}}, `{"status":"success","reason":"[\"a\",\"b\"]","confirmed_by":"system"}`},
	} {
		r := readOne(t, trajectory(t, map[string]any{"outcome": c.outcome}))
		if got := string(r.Events[len(r.Events)-1].Data); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// TestSteps covers how single steps are mapped.
func TestSteps(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ step, want string }{
		"role of a developer":     {`{"type":"message","role":"developer","content":"be brief"}`, `{"role":"system","content":"be brief","original_role":"developer"}`},
		"role of a human":         {`{"type":"message","role":"Human","content":"hi"}`, `{"role":"user","content":"hi","original_role":"Human"}`},
		"role of a tool":          {`{"type":"message","role":"tool","content":"out"}`, `{"role":"assistant","content":"out","original_role":"tool"}`},
		"no role":                 {`{"type":"message","content":"out"}`, `{"role":"assistant","content":"out"}`},
		"no content":              {`{"type":"message","role":"user","content":null}`, `{"role":"user","content":""}`},
		"content in parts":        {`{"type":"message","role":"user","content":[ {"text": "a"} ]}`, `{"role":"user","content":"[{\"text\":\"a\"}]"}`},
		"no arguments":            {`{"type":"tool_call","tool":"x"}`, `{"step":1,"tool":"x","parameters":{},"status":"success","actor":"agent"}`},
		"arguments in a text":     {`{"type":"tool_call","tool":"x","args":" {\"a\": 1} "}`, `{"step":1,"tool":"x","parameters":{"a":1},"status":"success","actor":"agent"}`},
		"arguments a plain text":  {`{"type":"tool_call","tool":"x","args":"ls -l"}`, `{"step":1,"tool":"x","parameters":{"value":"ls -l"},"status":"success","actor":"agent"}`},
		"arguments a list":        {`{"type":"tool_call","tool":"x","args":[1, 2]}`, `{"step":1,"tool":"x","parameters":{"value":[1,2]},"status":"success","actor":"agent"}`},
		"arguments broken":        {`{"type":"tool_call","tool":"x","args":"{\"a\":"}`, `{"step":1,"tool":"x","parameters":{"value":"{\"a\":"},"status":"success","actor":"agent"}`},
		"result an object":        {`{"type":"tool_call","tool":"x","result":{"a": 1}}`, `{"step":1,"tool":"x","parameters":{},"status":"success","result":{"a":1},"actor":"agent"}`},
		"a negative latency":      {`{"type":"tool_call","tool":"x","latency_ms":-5}`, `{"step":1,"tool":"x","parameters":{},"status":"success","actor":"agent"}`},
		"an error that is empty":  {`{"type":"tool_call","tool":"x","error":""}`, `{"step":1,"tool":"x","parameters":{},"status":"failure","error_type":"tool_error","actor":"agent"}`},
		"an error and a result":   {`{"type":"tool_call","tool":"x","error":"ValueError: no","result":"r"}`, `{"step":1,"tool":"x","parameters":{},"status":"failure","result":"r","error_type":"ValueError","error_message":"ValueError: no","actor":"agent"}`},
		"an error that is JSON":   {`{"type":"tool_call","tool":"x","error":{"a": 1}}`, `{"step":1,"tool":"x","parameters":{},"status":"failure","error_type":"tool_error","error_message":"{\"a\":1}","actor":"agent"}`},
		"a user's call":           {`{"type":"tool_call","tool":"x","by":"user","args":{"a": 1},"result":{"b": 2}}`, `{"role":"user","content":"x {\"a\":1} → {\"b\":2}"}`},
		"a user's failing call":   {`{"type":"tool_call","tool":"x","by":"user","error":"Error: no"}`, `{"role":"user","content":"x {} → Error: no"}`},
		"fields nobody has named": {`{"type":"tool_call","tool":"x","labels":"CANARY","task":"CANARY"}`, `{"step":1,"tool":"x","parameters":{},"status":"success","actor":"agent"}`},
	} {
		r := readOne(t, trajectory(t, map[string]any{"steps": json.RawMessage("[" + c.step + "]")}))
		if got := string(r.Events[1].Data); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, c.want)
		}
	}
}

func TestGoal(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ steps, want string }{
		"after the agent's words": {`[{"type":"message","role":"assistant","content":"Hi"},{"type":"message","role":"user","content":"help"},{"type":"message","role":"user","content":"more"}]`, "help"},
		"after a blank one":       {`[{"type":"message","role":"user","content":" "},{"type":"message","role":"user","content":"help"}]`, "help"},
		"after a user's call":     {`[{"type":"tool_call","by":"user","tool":"x","role":"user","content":"no"},{"type":"message","role":"user","content":"help"}]`, "help"},
		"none":                    {`[{"type":"message","role":"assistant","content":"Hi"}]`, ""},
		"no steps":                {`[]`, ""},
	} {
		r := readOne(t, trajectory(t, map[string]any{"steps": json.RawMessage(c.steps)}))
		s, err := events.DecodeData[events.TaskStarted](r.Events[0])
		if err != nil || s.Goal != c.want {
			t.Errorf("%s: goal %q, %v; want %q", name, s.Goal, err, c.want)
		}
	}
}

func TestTimes(t *testing.T) {
	t.Parallel()
	const day = "2025-05-01T"
	for name, c := range map[string]struct {
		started  any
		trial    any
		duration any
		// at holds the times of the steps, "" for none; want those of all events.
		at, want []string
		origin   string
	}{
		"recorded": {
			started: day + "10:00:00.5", duration: 60, at: []string{day + "10:00:01.123456", day + "12:00:05+02:00", day + "10:00:09Z"},
			want: []string{"10:00:00.500", "10:00:01.123", "10:00:05.000", "10:00:09.000", "10:01:00.500"}, origin: "recorded",
		},
		"the last step after the end": {
			started: day + "10:00:00", duration: 3, at: []string{day + "10:00:07"},
			want: []string{"10:00:00.000", "10:00:07.000", "10:00:07.000"}, origin: "recorded",
		},
		"no start": {
			duration: 5, at: []string{day + "10:00:00", day + "10:00:01"},
			want: []string{"10:00:00.000", "10:00:00.000", "10:00:01.000", "10:00:05.000"}, origin: "recorded",
		},
		"a start after the first step": {
			started: day + "11:00:00", at: []string{day + "10:00:00"},
			want: []string{"10:00:00.000", "10:00:00.000", "11:00:00.000"}, origin: "recorded",
		},
		"backwards": {
			started: day + "10:00:00", at: []string{day + "10:00:05", day + "10:00:03", day + "10:00:06"},
			want: []string{"10:00:00.000", "10:00:05.000", "10:00:05.000", "10:00:06.000", "10:00:06.000"}, origin: "recorded",
		},
		"some missing": {
			started: day + "10:00:00", at: []string{"", "", day + "10:00:09", "", day + "10:00:09.5", ""},
			want: []string{"10:00:00.000", "10:00:00.000", "10:00:01.000", "10:00:09.000", "10:00:09.500", "10:00:09.500", "10:00:10.500", "10:00:10.500"}, origin: "partly_recorded",
		},
		"the first ones missing, no start": {
			at:   []string{"", "", day + "10:00:09"},
			want: []string{"10:00:07.000", "10:00:07.000", "10:00:08.000", "10:00:09.000", "10:00:09.000"}, origin: "partly_recorded",
		},
		"only the start": {
			started: day + "10:00:00", at: []string{"", ""},
			want: []string{"10:00:00.000", "10:00:00.000", "10:00:01.000", "10:00:01.000"}, origin: "partly_recorded",
		},
		"none, trial 3": {
			trial: 3, at: []string{"", ""},
			want: []string{"2000-01-04T00:00:00.000", "2000-01-04T00:00:00.000", "2000-01-04T00:00:01.000", "2000-01-04T00:00:01.000"}, origin: "synthesised",
		},
		"none, and a duration": {
			trial: 0, duration: 90.5, at: []string{""},
			want: []string{"2000-01-01T00:00:00.000", "2000-01-01T00:00:00.000", "2000-01-01T00:01:30.500"}, origin: "synthesised",
		},
		"a seed for a trial":  {trial: 123456789, want: []string{"2010-05-17T00:00:00.000", "2010-05-17T00:00:00.000"}, origin: "synthesised"},
		"a word for a trial":  {trial: "first", want: []string{"2000-01-01T00:00:00.000", "2000-01-01T00:00:00.000"}, origin: "synthesised"},
		"a negative duration": {started: day + "10:00:00", duration: -5, want: []string{"10:00:00.000", "10:00:00.000"}, origin: "recorded"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			steps := []any{}
			for _, at := range c.at {
				steps = append(steps, map[string]any{"type": "message", "role": "user", "content": "x", "at": at})
			}
			change := map[string]any{"steps": steps, "started_at": c.started, "outcome": map[string]any{"duration_s": c.duration}}
			if c.trial != nil {
				change["trial"] = c.trial
			}
			r := readOne(t, trajectory(t, change))
			got := []string{}
			for _, e := range r.Events {
				got = append(got, strings.TrimPrefix(e.Time.Format("2006-01-02T15:04:05.000"), day))
			}
			if strings.Join(got, " ") != strings.Join(c.want, " ") {
				t.Errorf("times\n got %v\nwant %v", got, c.want)
			}
			s, err := events.DecodeData[events.TaskStarted](r.Events[0])
			if err != nil || string(s.Attributes["times"]) != `"`+c.origin+`"` {
				t.Errorf("times are said to be %s, %v; want %s", s.Attributes["times"], err, c.origin)
			}
		})
	}
}

func TestErrorType(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"Error: 503 Service Unavailable":                  "503",
		"503":                                             "503",
		"404 Client Error: Not Found for url: x":          "404",
		"HTTP 429: slow down":                             "429",
		"HTTP/1.1 502 Bad Gateway":                        "502",
		"request failed with status code 500":             "500",
		"status: 401":                                     "401",
		"Error: ValueError: no such order":                "ValueError",
		"requests.exceptions.HTTPError: 503 Server Error": "HTTPError",
		"KeyError":                                        "KeyError",
		"java.lang.IllegalStateException: closed":         "IllegalStateException",
		"Error: user not found":                           "tool_error",
		"Error: payment amount does not add up, total price is 503, but paid 480": "tool_error",
		"Error: 503 items are missing":                                            "tool_error",
		"Error: 2 validation errors for Payment":                                  "tool_error",
		"Error:":                                                                  "tool_error",
		"":                                                                        "tool_error",
		"An Error: of sorts":                                                      "tool_error",
		"see HTTPError: it is bad":                                                "tool_error",
	} {
		if got := importer.ErrorType(text); got != want {
			t.Errorf("ErrorType(%q) = %q, want %q", text, got, want)
		}
	}
}
