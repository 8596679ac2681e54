package events_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/hindsight-memory/hindsight/events"
)

func compileSchema(tb testing.TB) *jsonschema.Schema {
	tb.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(events.JSONSchema()))
	if err != nil {
		tb.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	const name = "urn:hindsight:schema:trace-event:v1"
	if err := c.AddResource(name, doc); err != nil {
		tb.Fatal(err)
	}
	s, err := c.Compile(name)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func bySchema(tb testing.TB, s *jsonschema.Schema, raw string) error {
	tb.Helper()
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(raw))
	if err != nil {
		tb.Fatalf("%v: %s", err, raw)
	}
	return s.Validate(v)
}

func byGo(raw string) error {
	e, err := events.Decode(nil, []byte(raw))
	if err != nil {
		return err
	}
	return e.Validate(noon())
}

// change gives a good event of the kind as JSON with the pairs of field and raw value put in; `data.` leads into the
// data, and an empty value removes the field.
func change(tb testing.TB, kind string, pairs ...string) string {
	tb.Helper()
	fields := map[string]json.RawMessage{
		"id": json.RawMessage(`"e1"`), "namespace": json.RawMessage(`"acme"`), "agent_id": json.RawMessage(`"a"`),
		"session_id": json.RawMessage(`"s"`), "task_id": json.RawMessage(`"t"`),
		"time": json.RawMessage(`"2026-01-31T09:30:00.000Z"`), "kind": json.RawMessage(`"` + kind + `"`),
	}
	data := map[string]json.RawMessage{}
	for name, value := range map[string]map[string]string{
		"message":       {"role": `"user"`},
		"step_finished": {"tool": `"get"`, "status": `"success"`},
		"task_finished": {"status": `"success"`},
		"feedback":      {"kind": `"rating"`},
	}[kind] {
		data[name] = json.RawMessage(value)
	}
	put := func(into map[string]json.RawMessage, name, value string) {
		if value == "" {
			delete(into, name)
			return
		}
		into[name] = json.RawMessage(value)
	}
	whole := ""
	for i := 0; i < len(pairs); i += 2 {
		switch name, inData := strings.CutPrefix(pairs[i], "data."); {
		case inData:
			put(data, name, pairs[i+1])
		case name == "data":
			whole = pairs[i+1]
			if whole == "" {
				whole = "absent"
			}
		default:
			put(fields, name, pairs[i+1])
		}
	}
	if whole == "" {
		raw, err := json.Marshal(data)
		if err != nil {
			tb.Fatal(err)
		}
		whole = string(raw)
	}
	if whole != "absent" {
		fields["data"] = json.RawMessage(whole)
	}
	raw, err := json.Marshal(fields)
	if err != nil {
		tb.Fatal(err)
	}
	return string(raw)
}

func quoted(s string) string {
	raw, err := json.Marshal(s)
	if err != nil {
		return `""`
	}
	return string(raw)
}

func TestGoldenEventsFitTheSchema(t *testing.T) {
	t.Parallel()
	s := compileSchema(t)
	for name, e := range golden(t) {
		raw, err := e.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if err := bySchema(t, s, string(raw)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSchemaAndGoAgree tries both sides of every rule.
func TestSchemaAndGoAgree(t *testing.T) {
	t.Parallel()
	s := compileSchema(t)
	type row struct {
		kind  string
		pairs []string
		valid bool
	}
	ok := func(kind string, pairs ...string) row { return row{kind, pairs, true} }
	bad := func(kind string, pairs ...string) row { return row{kind, pairs, false} }
	long := func(n int) string { return quoted(strings.Repeat("x", n)) }

	rows := []row{
		ok("message"), ok("step_finished"), ok("task_started"), ok("task_finished"), ok("feedback"),
		ok("item_written"), ok("item_changed"), ok("recall_served"), ok("vendor_thing"),

		ok("vendor_thing", "data", ""), ok("vendor_thing", "data", "null"), bad("vendor_thing", "data", "[]"),
		bad("vendor_thing", "data", `"{}"`), bad("vendor_thing", "data", "1"), bad("item_written", "data", "[]"),
		bad("message", "data", ""), bad("message", "data", "null"), bad("message", "data", "{}"), bad("message", "data", "[]"),
		bad("step_finished", "data", ""), bad("task_finished", "data", ""), bad("feedback", "data", ""), ok("task_started", "data", ""),

		ok("message", "whatever", "[1]"), ok("message", "data.whatever", "[1]"), ok("message", "seq", "null"),
		ok("message", "seq", "0"), ok("message", "seq", "9223372036854775807"), bad("message", "seq", "9223372036854775808"),
		bad("message", "seq", "-1"), bad("message", "seq", `"1"`), bad("message", "seq", "1.5"), bad("message", "seq", "true"),

		ok("message", "namespace", `"a"`), ok("message", "namespace", `"a_-9.b_-9"`),
		ok("message", "namespace", quoted(strings.Repeat("a", 64)+"."+strings.Repeat("b", 64))),
		bad("message", "namespace", quoted(strings.Repeat("a", 65))), bad("message", "namespace", quoted("a."+strings.Repeat("b", 65))),
		bad("message", "namespace", `""`), bad("message", "namespace", `"a."`), bad("message", "namespace", `".a"`),
		bad("message", "namespace", `"a.b.c"`), bad("message", "namespace", `"A"`), bad("message", "namespace", `"a b"`),
		bad("message", "namespace", `"a*"`), bad("message", "namespace", `"a.>"`), bad("message", "namespace", `"~"`),
		bad("message", "namespace", `"a\n"`), bad("message", "namespace", `"é"`), bad("message", "namespace", `1`),
		bad("message", "namespace", ""),

		ok("message", "kind", `"x"`), ok("message", "kind", quoted(strings.Repeat("k", 64))),
		bad("message", "kind", quoted(strings.Repeat("k", 65))), bad("message", "kind", `""`), bad("message", "kind", ""),
		bad("message", "kind", `"Message"`), bad("message", "kind", `"_x"`), bad("message", "kind", `"1x"`),
		bad("message", "kind", `"a.b"`), bad("message", "kind", `"a-b"`), bad("message", "kind", `"message\n"`), bad("message", "kind", "1"),
		bad("message", "kind", "null"),

		ok("message", "time", `"2026-01-31T09:30:00Z"`), ok("message", "time", `"2026-01-31T09:30:00.123456789+01:00"`),
		ok("message", "time", `"2026-01-31T09:30:00"`), ok("message", "time", `"2026-01-31 09:30:00.5"`),
		ok("message", "time", `"1970-01-01T00:00:00Z"`), bad("message", "time", `"1969-12-31T23:59:59Z"`),
		bad("message", "time", ""), bad("message", "time", "null"), bad("message", "time", `""`), bad("message", "time", "1769851800"),
		bad("message", "time", `"2026-01-31"`), bad("message", "time", `"2026-13-01T00:00:00Z"`), bad("message", "time", `"2026-01-32T00:00:00Z"`),
		bad("message", "time", `"2026-01-31T24:00:00Z"`), bad("message", "time", `"2026-01-31T09:60:00Z"`),
		bad("message", "time", `"2026-01-31T09:30:60Z"`), bad("message", "time", `"2026-01-31T09:30:00z"`),
		bad("message", "time", `" 2026-01-31T09:30:00Z"`), bad("message", "time", `"2026-01-31T09:30:00Z "`),

		ok("message", "data.role", `"assistant"`), ok("message", "data.role", `"system"`), bad("message", "data.role", `"tool"`),
		bad("message", "data.role", `""`), bad("message", "data.role", ""), bad("message", "data.role", "null"), bad("message", "data.role", "1"),
		ok("message", "data.content", "null"), bad("message", "data.content", "[]"),
		ok("message", "data.turn", "-1"), ok("message", "data.turn", "null"), bad("message", "data.turn", `"1"`),

		bad("step_finished", "data.tool", ""), bad("step_finished", "data.tool", `""`), bad("step_finished", "data.tool", "null"),
		bad("step_finished", "data.tool", "1"), ok("step_finished", "data.status", `"failure"`),
		bad("step_finished", "data.status", `"partial"`), bad("step_finished", "data.status", `"error"`), bad("step_finished", "data.status", ""),
		ok("step_finished", "data.parameters", `{"a":1}`), ok("step_finished", "data.parameters", "null"),
		bad("step_finished", "data.parameters", "[]"), bad("step_finished", "data.parameters", `"{}"`),
		ok("step_finished", "data.result", "[1]"), ok("step_finished", "data.result", `"x"`), ok("step_finished", "data.result", "null"),
		ok("step_finished", "data.step", "0"), bad("step_finished", "data.step", "-1"), bad("step_finished", "data.step", `"1"`),
		ok("step_finished", "data.execution_time_ms", "0"), bad("step_finished", "data.execution_time_ms", "-1"),
		bad("step_finished", "data.execution_time_ms", "1.5"), ok("step_finished", "data.actor", `"user"`), ok("step_finished", "data.actor", `""`),
		ok("step_finished", "data.actor", "null"), bad("step_finished", "data.actor", `"system"`), bad("step_finished", "data.error_type", "404"),

		ok("task_started", "data.available_tools", `["a",null]`), ok("task_started", "data.available_tools", "null"),
		bad("task_started", "data.available_tools", `"a"`), bad("task_started", "data.available_tools", "[1]"),
		ok("task_started", "data.attributes", `{"a":[1]}`), bad("task_started", "data.attributes", "[]"), bad("task_started", "data.goal", "{}"),

		ok("task_finished", "data.status", `"partial"`), ok("task_finished", "data.status", `"cancelled"`), ok("task_finished", "data.status", `"unknown"`),
		bad("task_finished", "data.status", `"done"`), bad("task_finished", "data.status", ""),
		ok("task_finished", "data.score", "-0.5"), ok("task_finished", "data.score", "null"), bad("task_finished", "data.score", `"1"`),
		ok("task_finished", "data.confirmed_by", `"agent"`), ok("task_finished", "data.confirmed_by", `""`),
		bad("task_finished", "data.confirmed_by", `"nobody"`),

		ok("feedback", "data.kind", `"correction"`), ok("feedback", "data.kind", `"approval"`), ok("feedback", "data.kind", `"rejection"`),
		bad("feedback", "data.kind", `"like"`), bad("feedback", "data.kind", ""), ok("feedback", "data.value", "5"), bad("feedback", "data.target", "5"),
	}
	limit := map[string]int{"id": 128, "agent_id": 512, "session_id": 512, "task_id": 512}
	for _, name := range slices.Sorted(maps.Keys(limit)) {
		rows = append(rows, bad("message", name, ""), bad("message", name, `""`), bad("message", name, "null"), bad("message", name, "1"),
			ok("message", name, long(limit[name])), bad("message", name, long(limit[name]+1)), bad("message", name, `"a\u0000b"`), bad("message", name, `"a\nb"`),
			bad("message", name, `"\u007f"`), ok("message", name, `"a b/日本"`))
	}
	rows = append(rows, bad("message", "id", `" a"`), bad("message", "id", `"a "`), bad("message", "id", `" "`),
		ok("message", "id", `"a  b"`), ok("message", "task_id", `" a "`))
	for _, name := range []string{"user_id", "goal_id"} {
		rows = append(rows, ok("message", name, ""), ok("message", name, `""`), ok("message", name, "null"), bad("message", name, "1"),
			ok("message", name, long(512)), bad("message", name, long(513)), bad("message", name, `"a\tb"`))
	}
	for _, r := range rows {
		raw := change(t, r.kind, r.pairs...)
		if err := byGo(raw); (err == nil) != r.valid {
			t.Errorf("Go: valid = %t, want %t (%v): %s", err == nil, r.valid, err, raw)
		}
		if err := bySchema(t, s, raw); (err == nil) != r.valid {
			t.Errorf("schema: valid = %t, want %t (%v): %s", err == nil, r.valid, err, raw)
		}
	}
}

// TestSchemaIsLooserWhereItMust pins the rules that a schema cannot say: it lets pass what Go refuses, never the
// other way round.
func TestSchemaIsLooserWhereItMust(t *testing.T) {
	t.Parallel()
	s := compileSchema(t)
	for name, raw := range map[string]string{
		"bytes of an id":        change(t, "message", "id", quoted(strings.Repeat("日", 43))),
		"a clock":               change(t, "message", "time", `"2026-02-01T12:00:01Z"`),
		"a day of the calendar": change(t, "message", "time", `"2026-02-30T00:00:00Z"`),
		"depth":                 change(t, "vendor_thing", "data.x", strings.Repeat("[", events.MaxDepth)+strings.Repeat("]", events.MaxDepth)),
		"integers as written":   change(t, "message", "seq", "1.0"),
	} {
		if err := byGo(raw); err == nil {
			t.Errorf("%s: Go accepts %s", name, raw)
		}
		if err := bySchema(t, s, raw); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSchemaNamesEveryField compares the schema with the types, so that neither gets a field alone.
func TestSchemaNamesEveryField(t *testing.T) {
	t.Parallel()
	var doc struct {
		Properties map[string]json.RawMessage
		Defs       map[string]struct {
			Properties map[string]json.RawMessage
		} `json:"$defs"`
	}
	if err := json.Unmarshal(events.JSONSchema(), &doc); err != nil {
		t.Fatal(err)
	}
	full := golden(t)
	for def, name := range map[string]string{
		"taskStarted": "task_started", "message": "message", "stepFinished": "step_finished",
		"taskFinished": "task_finished", "feedback": "feedback",
	} {
		var data map[string]json.RawMessage
		if err := json.Unmarshal(full[name].Data, &data); err != nil {
			t.Fatal(err)
		}
		if got, want := fieldNames(doc.Defs[def].Properties), fieldNames(data); got != want {
			t.Errorf("%s: the schema has %s, the type %s", name, got, want)
		}
	}
	raw, err := full["message"].MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	var envelope map[string]json.RawMessage
	if err := json.Unmarshal(raw, &envelope); err != nil {
		t.Fatal(err)
	}
	if got, want := fieldNames(doc.Properties), fieldNames(envelope); got != want {
		t.Errorf("envelope: the schema has %s, the type %s", got, want)
	}
}

// fieldNames relies on fmt, which prints maps in the order of their keys.
func fieldNames(m map[string]json.RawMessage) string {
	names := make(map[string]struct{}, len(m))
	for name := range m {
		names[name] = struct{}{}
	}
	return fmt.Sprint(names)
}

func TestJSONSchemaGivesACopy(t *testing.T) {
	t.Parallel()
	events.JSONSchema()[0] = 'x'
	if got := events.JSONSchema()[0]; got != '{' {
		t.Errorf("the schema was changed by a caller: it begins with %q", got)
	}
}
