package events_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/hindsight-memory/hindsight/events"
)

func TestParseTime(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"2026-01-31T09:30:00Z":                "2026-01-31T09:30:00.000Z",
		"2026-01-31T09:30:00.1Z":              "2026-01-31T09:30:00.100Z",
		"2026-01-31T09:30:00.1239Z":           "2026-01-31T09:30:00.123Z",
		"2026-01-31T09:30:00.123999999Z":      "2026-01-31T09:30:00.123Z",
		"2026-01-31T09:30:00+05:30":           "2026-01-31T04:00:00.000Z",
		"2026-01-31T23:30:00-01:00":           "2026-02-01T00:30:00.000Z",
		"2026-01-31T09:30:00-00:00":           "2026-01-31T09:30:00.000Z",
		"2026-01-31T09:30:00":                 "2026-01-31T09:30:00.000Z",
		"2026-01-31T09:30:00.999999999":       "2026-01-31T09:30:00.999Z",
		"2026-01-31 09:30:00":                 "2026-01-31T09:30:00.000Z",
		"2026-01-31 09:30:00.25":              "2026-01-31T09:30:00.250Z",
		"2024-02-29T00:00:00Z":                "2024-02-29T00:00:00.000Z",
		"1969-12-31T23:59:59.9999Z":           "1969-12-31T23:59:59.999Z",
		"0001-01-01T00:00:00Z":                "0001-01-01T00:00:00.000Z",
		"":                                    "",
		"2026-01-31":                          "",
		"2026-02-29T00:00:00Z":                "",
		"2026-01-31T24:00:00Z":                "",
		"2026-01-31T09:30:60Z":                "",
		"2026-01-31T09:30:00 Z":               "",
		"2026-01-31T09:30:00+0100":            "",
		"2026-01-31T09:30:00z":                "",
		"1769851800":                          "",
		"yesterday":                           "",
		"2026-01-31T09:30:00Z\n":              "",
		"+2026-01-31T09:30:00Z":               "",
		"12026-01-31T09:30:00Z":               "",
		"2026-01-31T09:30:00.Z":               "",
		"2026-01-31T09:30:00+99:99":           "",
		"2026-01-31T09:30:00.125+01:00[Zone]": "",
	} {
		got, err := events.ParseTime(in)
		if want == "" {
			if err == nil {
				t.Errorf("ParseTime(%q) = %s, want an error", in, got)
			}
			continue
		}
		if err != nil || got.Format(events.TimeFormat) != want || got.Location() != time.UTC {
			t.Errorf("ParseTime(%q) = %s, %v; want %s", in, got, err, want)
		}
	}
}

func TestSubject(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		namespace   string
		kind        events.Kind
		trace, live string
	}{
		{"acme", events.KindMessage, "hindsight.v1.trace.acme.~.message", "hindsight.v1.live.acme.~.message"},
		{"acme.web", events.KindStepFinished, "hindsight.v1.trace.acme.web.step_finished", "hindsight.v1.live.acme.web.step_finished"},
		{"a_-9", "vendor_thing", "hindsight.v1.trace.a_-9.~.vendor_thing", "hindsight.v1.live.a_-9.~.vendor_thing"},
	} {
		if got := events.Subject(c.namespace, c.kind); got != c.trace {
			t.Errorf("Subject = %q, want %q", got, c.trace)
		}
		if got := events.LiveSubject(c.namespace, c.kind); got != c.live {
			t.Errorf("LiveSubject = %q, want %q", got, c.live)
		}
		if !strings.HasPrefix(c.trace, strings.TrimSuffix(events.TraceSubjects, ">")) ||
			!strings.HasPrefix(c.live, strings.TrimSuffix(events.LiveSubjects, ">")) {
			t.Errorf("%q and %q are not under %q and %q", c.trace, c.live, events.TraceSubjects, events.LiveSubjects)
		}
	}
}

func TestCheckSubject(t *testing.T) {
	t.Parallel()
	e := events.Event{Namespace: "acme", Kind: events.KindMessage}
	if err := e.CheckSubject("hindsight.v1.trace.acme.~.message"); err != nil {
		t.Errorf("its own subject: %v", err)
	}
	for _, subject := range []string{
		"", "hindsight.v1.trace.acme.message", "hindsight.v1.trace.acme.web.message", "hindsight.v1.trace.other.~.message",
		"hindsight.v1.trace.acme.~.feedback", "hindsight.v1.live.acme.~.message", "hindsight.v1.trace.acme.~.message.x",
		"HINDSIGHT.v1.trace.acme.~.message",
	} {
		err := e.CheckSubject(subject)
		if !errors.Is(err, events.ErrSubject) {
			t.Errorf("CheckSubject(%q) = %v, want ErrSubject", subject, err)
			continue
		}
		if !strings.Contains(err.Error(), "hindsight.v1.trace.acme.~.message") {
			t.Errorf("the error does not say where the event belongs: %v", err)
		}
	}
}

func TestMessageIDTellsNamespacesApart(t *testing.T) {
	t.Parallel()
	a := events.Event{Namespace: "a", ID: "1"}
	b := events.Event{Namespace: "a.b", ID: "1"}
	if a.MessageID() == b.MessageID() || a.MessageID() != "a/1" {
		t.Errorf("message ids %q and %q", a.MessageID(), b.MessageID())
	}
}

func TestKindKnown(t *testing.T) {
	t.Parallel()
	for _, k := range events.Kinds() {
		if !k.Known() {
			t.Errorf("%s is not known", k)
		}
	}
	for _, k := range []events.Kind{"", "vendor_thing", "Message"} {
		if k.Known() {
			t.Errorf("%q is known", k)
		}
	}
}

// TestValidate tries what JSON cannot carry or the schema cannot say; the rest is in TestSchemaAndGoAgree.
func TestValidate(t *testing.T) {
	t.Parallel()
	nested := func(n int) json.RawMessage {
		return json.RawMessage(`{"a":` + strings.Repeat("[", n-1) + strings.Repeat("]", n-1) + `}`)
	}
	for name, c := range map[string]struct {
		change func(*events.Event)
		say    string // empty when the event is valid
	}{
		"good":                     {func(*events.Event) {}, ""},
		"id of 128 bytes":          {func(e *events.Event) { e.ID = strings.Repeat("é", 64) }, ""},
		"id of 129 bytes":          {func(e *events.Event) { e.ID = strings.Repeat("é", 64) + "x" }, "id has 129 bytes"},
		"id not UTF-8":             {func(e *events.Event) { e.ID = "a\xff" }, "id is not valid UTF-8"},
		"id ends in a wide space":  {func(e *events.Event) { e.ID = "a\u3000" }, "white space"},
		"goal id too long":         {func(e *events.Event) { e.GoalID = strings.Repeat("g", 513) }, "goal_id has 513 bytes"},
		"user id not UTF-8":        {func(e *events.Event) { e.UserID = "\xc3" }, "user_id is not valid UTF-8"},
		"no time":                  {func(e *events.Event) { e.Time = time.Time{} }, "time is missing"},
		"1970":                     {func(e *events.Event) { e.Time = time.Unix(0, 0) }, ""},
		"before 1970":              {func(e *events.Event) { e.Time = time.Unix(0, -1) }, "before 1970"},
		"24 hours ahead":           {func(e *events.Event) { e.Time = noon().Add(events.MaxFuture) }, ""},
		"more than 24 hours ahead": {func(e *events.Event) { e.Time = noon().Add(events.MaxFuture + 1) }, "check the producer's clock"},
		"negative seq":             {func(e *events.Event) { e.Seq = -1 }, "seq -1"},
		"no data":                  {func(e *events.Event) { e.Kind, e.Data = "x", nil }, ""},
		"no data but it is needed": {func(e *events.Event) { e.Data = nil }, "data.role"},
		"data after white space":   {func(e *events.Event) { e.Data = json.RawMessage(strings.Repeat(" \n", 99) + `{"role":"user"}`) }, ""},
		"data is white space":      {func(e *events.Event) { e.Data = json.RawMessage(" ") }, "not a JSON object"},
		"data is broken":           {func(e *events.Event) { e.Data = json.RawMessage(`{"role":"user"`) }, "not a JSON object"},
		"data is two values":       {func(e *events.Event) { e.Data = json.RawMessage(`{"role":"user"}{}`) }, "not a JSON object"},
		"as deep as allowed":       {func(e *events.Event) { e.Kind, e.Data = "x", nested(events.MaxDepth) }, ""},
		"too deep":                 {func(e *events.Event) { e.Kind, e.Data = "x", nested(events.MaxDepth+1) }, "deeper than 64"},
		"brackets in a text are not depth": {
			func(e *events.Event) {
				e.Kind, e.Data = "x", json.RawMessage(`{"a":"\"`+strings.Repeat("[", 99)+`\\","b":[]}`)
			}, "",
		},
		"extra":              {func(e *events.Event) { e.Extra = map[string]json.RawMessage{"x": json.RawMessage("1")} }, ""},
		"extra is no JSON":   {func(e *events.Event) { e.Extra = map[string]json.RawMessage{"x": json.RawMessage("{")} }, `"x" is not JSON`},
		"extra is empty":     {func(e *events.Event) { e.Extra = map[string]json.RawMessage{"x": nil} }, `"x" is not JSON`},
		"extra shadows":      {func(e *events.Event) { e.Extra = map[string]json.RawMessage{"kind": json.RawMessage(`"x"`)} }, "field of the envelope"},
		"extra is too deep":  {func(e *events.Event) { e.Extra = map[string]json.RawMessage{"x": nested(events.MaxDepth + 1)} }, `"x" is nested deeper`},
		"extra just so deep": {func(e *events.Event) { e.Extra = map[string]json.RawMessage{"x": nested(events.MaxDepth)} }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := golden(t)["message"]
			c.change(&e)
			err := e.Validate(noon())
			if c.say == "" {
				if err != nil {
					t.Errorf("Validate: %v", err)
				}
				return
			}
			if !errors.Is(err, events.ErrInvalid) || !strings.Contains(err.Error(), c.say) {
				t.Errorf("Validate = %v, want ErrInvalid that says %q", err, c.say)
			}
		})
	}
}

func TestMarshalRefusesWhatIsNoJSON(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*events.Event){
		"data":  func(e *events.Event) { e.Data = json.RawMessage("{") },
		"extra": func(e *events.Event) { e.Extra = map[string]json.RawMessage{"x": json.RawMessage("{")} },
	} {
		e := golden(t)["message"]
		change(&e)
		if raw, err := e.MarshalJSON(); err == nil {
			t.Errorf("%s: %s", name, raw)
		}
	}
}

func TestUnmarshalMatchesNamesExactly(t *testing.T) {
	t.Parallel()
	var e events.Event
	if err := json.Unmarshal([]byte(`{"ID":"upper","id":"lower","Kind":null,"user_id":null,"data":null}`), &e); err != nil {
		t.Fatal(err)
	}
	if e.ID != "lower" || string(e.Extra["ID"]) != `"upper"` || string(e.Extra["Kind"]) != "null" || e.UserID != "" || e.Data != nil {
		t.Errorf("event = %+v", e)
	}
}

func TestUnmarshalLeavesTheEventAloneOnError(t *testing.T) {
	t.Parallel()
	e := golden(t)["message"]
	want := golden(t)["message"]
	if err := e.UnmarshalJSON([]byte(`{"id":"new","seq":"x"}`)); !errors.Is(err, events.ErrMalformed) {
		t.Fatalf("err = %v, want ErrMalformed", err)
	}
	if !reflect.DeepEqual(e, want) {
		t.Errorf("the event became %+v", e)
	}
}

func TestDecodeData(t *testing.T) {
	t.Parallel()
	if m, err := events.DecodeData[events.Message](events.Event{}); err != nil || m != (events.Message{}) {
		t.Errorf("no data: %+v, %v", m, err)
	}
	_, err := events.DecodeData[events.Message](events.Event{ID: "e1", Kind: events.KindMessage, Data: json.RawMessage(`{"role":1}`)})
	if !errors.Is(err, events.ErrInvalid) || !strings.Contains(err.Error(), `"e1"`) {
		t.Errorf("err = %v, want ErrInvalid that names the event", err)
	}
}

func TestText(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"": "", "null": "", `"a\nb"`: "a\nb", `""`: "", "1.50": "1.50", `{"a":1}`: `{"a":1}`, "true": "true", "broken": "broken",
	} {
		if got := events.Text(json.RawMessage(in)); got != want {
			t.Errorf("Text(%s) = %q, want %q", in, got, want)
		}
	}
}

func TestEncodeDataRefusesWhatJSONCannotCarry(t *testing.T) {
	t.Parallel()
	if raw, err := events.EncodeData(make(chan int)); err == nil {
		t.Errorf("EncodeData = %s", raw)
	}
	if raw, err := events.EncodeData(events.Message{Role: "user", Content: "<&>"}); err != nil || string(raw) != `{"role":"user","content":"<&>"}` {
		t.Errorf("EncodeData = %s, %v", raw, err)
	}
}

func TestNamespaceTokens(t *testing.T) {
	t.Parallel()
	for namespace, want := range map[string]string{"acme": "acme.~", "acme.ops": "acme.ops"} {
		got := events.NamespaceTokens(namespace)
		if got != want {
			t.Errorf("NamespaceTokens(%q) = %q, want %q", namespace, got, want)
		}
		tenant, team, _ := strings.Cut(got, ".")
		if back, err := events.ParseNamespaceTokens(tenant, team); err != nil || back != namespace {
			t.Errorf("ParseNamespaceTokens(%q, %q) = %q, %v, want %q", tenant, team, back, err, namespace)
		}
	}
	for _, bad := range [][2]string{{"~", "~"}, {"Acme", "~"}, {"acme", ""}, {"", "ops"}, {"acme", "a.b"}} {
		if got, err := events.ParseNamespaceTokens(bad[0], bad[1]); err == nil {
			t.Errorf("ParseNamespaceTokens(%q) = %q, want an error", bad, got)
		}
	}
}
