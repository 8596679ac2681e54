package events_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/hindsight-memory/hindsight/events"
)

var prepareNow = time.Date(2026, 5, 1, 12, 0, 0, 123_456_789, time.FixedZone("somewhere", 3600))

func preparable(kind events.Kind, data string) events.Event {
	return events.Event{
		ID: "e-1", Namespace: "acme.support", AgentID: "a", SessionID: "s", TaskID: "t", Kind: kind,
		Time: prepareNow.Add(-time.Minute), Data: json.RawMessage(data),
	}
}

func mustPrepare(t *testing.T, e events.Event) (events.Event, []byte) {
	t.Helper()
	out, raw, err := events.Prepare(e, prepareNow)
	if err != nil {
		t.Fatalf("Prepare: %v", err)
	}
	return out, raw
}

func TestPrepareFillsWhatMayBeFilled(t *testing.T) {
	t.Parallel()
	for _, data := range []string{"", "null", " null\n"} {
		e := preparable(events.KindRecallServed, data)
		e.ID, e.Time = "", time.Time{}
		out, raw := mustPrepare(t, e)
		id, err := uuid.Parse(out.ID)
		if err != nil || id.Version() != 7 {
			t.Errorf("id = %q, want a UUIDv7", out.ID)
		}
		if want := time.Date(2026, 5, 1, 11, 0, 0, 123_000_000, time.UTC); !out.Time.Equal(want) || out.Time.Location() != time.UTC {
			t.Errorf("time = %v, want %v", out.Time, want)
		}
		if string(out.Data) != "{}" || !bytes.Contains(raw, []byte(`"data":{}`)) {
			t.Errorf("data %q became %s, want {}", data, out.Data)
		}
	}
}

func TestPrepareIsDeterministicAndIdempotent(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("日", events.MaxTextBytes)
	e := preparable(events.KindStepFinished, `{ "tool":"x", "status":"success", "n": 1.0, "result": "`+long+`", "parameters":{"password":"p"}, "half":"\ud800", "whole":"\ud83d\ude00" }`)
	e.Extra = map[string]json.RawMessage{"b": json.RawMessage(`{"secret": "x"}`), "a": json.RawMessage(`12345678901234567890`), "api_key": json.RawMessage(`"x"`)}
	extra := len(e.Extra)
	once, raw := mustPrepare(t, e)
	_, same := mustPrepare(t, e)
	if !bytes.Equal(raw, same) {
		t.Error("the same event gave other bytes")
	}
	twice, again := mustPrepare(t, once)
	if !bytes.Equal(raw, again) {
		t.Errorf("preparing twice changed the event:\n%.300s\n%.300s", raw, again)
	}
	var read events.Event
	if err := read.UnmarshalJSON(raw); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(read) != fmt.Sprint(twice) {
		t.Error("the event that Prepare returns is not the one that its bytes hold")
	}
	if !bytes.Contains(raw, []byte(`"n":1.0`)) || !bytes.Contains(raw, []byte(`"a":12345678901234567890`)) {
		t.Error("a number lost its digits")
	}
	if !bytes.Contains(raw, []byte("\"half\":\"\uFFFD\"")) || !bytes.Contains(raw, []byte(`"whole":"😀"`)) {
		t.Error("half a surrogate pair must become U+FFFD and a whole one must stay")
	}
	if string(e.Extra["api_key"]) != `"x"` || len(e.Extra) != extra {
		t.Error("Prepare wrote into the caller's map")
	}
}

func TestPrepareMasks(t *testing.T) {
	t.Parallel()
	const secret = "hunter2hunter2"
	key := "sk-" + alnum
	e := preparable(events.KindStepFinished, `{"tool":"login","status":"failure","parameters":{"password":"`+secret+`"},`+
		`"result":{"set-cookie":"`+secret+`"},"error_message":"401 for key `+key+`"}`)
	e.SessionID, e.Extra = key, map[string]json.RawMessage{"authorization": json.RawMessage(`"` + secret + `"`), key: json.RawMessage(`1`)}
	out, raw := mustPrepare(t, e)
	if bytes.Contains(raw, []byte(secret)) || bytes.Contains(raw, []byte(key)) {
		t.Errorf("a secret got through: %s", raw)
	}
	other := e
	other.SessionID = key + "x"
	if o, _ := mustPrepare(t, other); o.SessionID == out.SessionID || !strings.HasPrefix(out.SessionID, "masked-") {
		t.Errorf("session ids %q and %q: masked ids must stay different", out.SessionID, o.SessionID)
	}
}

func TestPrepareErrorsHoldNoSecret(t *testing.T) {
	t.Parallel()
	key := "sk-" + alnum
	for _, e := range []events.Event{
		preparable(events.KindMessage, `{"role":"`+key+`"}`),
		preparable(events.KindMessage, `{"role":"`+key),
		preparable(events.KindFeedback, `{"kind":["`+key+`"]}`),
		{ID: key, Namespace: "NOT VALID", AgentID: key},
	} {
		if _, _, err := events.Prepare(e, prepareNow); err == nil || strings.Contains(err.Error(), key) {
			t.Errorf("Prepare = %v, want an error without the secret", err)
		}
	}
}

func TestPrepareCutsLongTexts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ field, value string }{
		"ascii":         {"result", mustQuote(t, strings.Repeat("x", 100_000))},
		"three bytes":   {"result", `"` + strings.Repeat("日", 40_000) + `"`},
		"four bytes":    {"reasoning", `"` + strings.Repeat("😀", 30_000) + `"`},
		"escapes":       {"result", `"` + strings.Repeat(`\n`, 70_000) + `"`},
		"an object":     {"result", `{"rows":[` + strings.TrimSuffix(strings.Repeat(`{"id":1.0},`, 20_000), ",") + `]}`},
		"nested":        {"parameters", `{"a":[{"b":"` + strings.Repeat("y", 70_000) + `"}]}`},
		"unknown field": {"other", `"` + strings.Repeat("z", 70_000) + `"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, raw := mustPrepare(t, preparable(events.KindStepFinished, `{"tool":"x","status":"success","`+c.field+`":`+c.value+`}`))
			if !utf8.Valid(raw) || !json.Valid(raw) {
				t.Fatal("the event is no valid JSON any more")
			}
			if len(raw) > events.MaxTextBytes*2+1000 || !bytes.Contains(raw, []byte("…[cut ")) {
				t.Errorf("the event has %d bytes and no mark that it was cut", len(raw))
			}
			step, err := events.DecodeData[events.StepFinished](out)
			if err != nil {
				t.Fatal(err)
			}
			if text := events.Text(step.Result); len(text) > events.MaxTextBytes {
				t.Errorf("the result has %d bytes, more than %d", len(text), events.MaxTextBytes)
			}
		})
	}
}

func TestPrepareKeepsTextsAtTheLimit(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("x", events.MaxTextBytes)
	out, _ := mustPrepare(t, preparable(events.KindMessage, `{"role":"user","content":"`+text+`"}`))
	if m, err := events.DecodeData[events.Message](out); err != nil || m.Content != text {
		t.Errorf("a text of exactly the limit was changed (%v)", err)
	}
}

func TestCutTextCountsWhatIsGone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in    string
		limit int
		want  string
	}{
		{"short", 5, "short"},
		{strings.Repeat("a", 60), 30, strings.Repeat("a", 13) + "…[cut 47 bytes]"},
		{"ab" + strings.Repeat("日", 30), 25, "ab日日…[cut 84 bytes]"},
		{strings.Repeat("a", 60), 3, "…[cut 60 bytes]"},
	} {
		if got := events.CutText(c.in, c.limit); got != c.want {
			t.Errorf("CutText(%q, %d) = %q, want %q", c.in, c.limit, got, c.want)
		}
	}
}

func TestPrepareRefusesWhatIsTooLarge(t *testing.T) {
	t.Parallel()
	part := `"` + strings.Repeat("x", 60_000) + `"`
	list := strings.TrimSuffix(strings.Repeat(part+",", 20), ",")
	_, _, err := events.Prepare(preparable("custom", `{"parts":[`+list+`]}`), prepareNow)
	if !errors.Is(err, events.ErrTooLarge) || errors.Is(err, events.ErrInvalid) {
		t.Fatalf("Prepare = %v, want ErrTooLarge", err)
	}
	for _, want := range []string{"e-1", "1000000", "1200214"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error %q does not name %s", err, want)
		}
	}
}

func TestPrepareRefusesWhatIsInvalid(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat(`{"a":`, events.MaxDepth+1) + "1" + strings.Repeat("}", events.MaxDepth+1)
	for name, change := range map[string]func(*events.Event){
		"no namespace":      func(e *events.Event) { e.Namespace = "" },
		"no task":           func(e *events.Event) { e.TaskID = "" },
		"data is cut":       func(e *events.Event) { e.Data = json.RawMessage(`{"a":`) },
		"data is a list":    func(e *events.Event) { e.Data = json.RawMessage(`[1]`) },
		"data is deep":      func(e *events.Event) { e.Data = json.RawMessage(deep) },
		"extra is cut":      func(e *events.Event) { e.Extra = map[string]json.RawMessage{"a": json.RawMessage(`{`)} },
		"extra is empty":    func(e *events.Event) { e.Extra = map[string]json.RawMessage{"a": nil} },
		"extra shadows id":  func(e *events.Event) { e.Extra = map[string]json.RawMessage{"id": json.RawMessage(`"x"`)} },
		"time is in future": func(e *events.Event) { e.Time = prepareNow.Add(events.MaxFuture + time.Second) },
		"kind is no token":  func(e *events.Event) { e.Kind = "a.b" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := preparable("custom", `{}`)
			change(&e)
			if _, _, err := events.Prepare(e, prepareNow); !errors.Is(err, events.ErrInvalid) {
				t.Errorf("Prepare = %v, want ErrInvalid", err)
			}
		})
	}
}

func TestPrepareRepairsBrokenUTF8(t *testing.T) {
	t.Parallel()
	out, raw := mustPrepare(t, preparable("custom", "{\"a\":\"x\xffy\"}"))
	if !utf8.Valid(raw) || string(out.Data) != "{\"a\":\"x\uFFFDy\"}" {
		t.Errorf("data = %q", out.Data)
	}
}

func FuzzPrepare(f *testing.F) {
	for _, s := range harmless {
		f.Add("step_finished", `{"tool":"x","status":"success","result":`+s+`}`, "s-1", "extra", `"x"`)
	}
	f.Add("message", `{"role":"user","content":"`+strings.Repeat("日", 30_000)+`"}`, "sk-"+alnum, "api_key", `["x"]`)
	f.Add("x", "{\"\xff\":\"\\ud800\"}", "\xff", "\xff", `1`)
	f.Fuzz(func(t *testing.T, kind, data, session, name, value string) {
		e := preparable(events.Kind(kind), data)
		e.SessionID, e.Extra = session, map[string]json.RawMessage{name: json.RawMessage(value)}
		out, raw, err := events.Prepare(e, prepareNow)
		if err != nil {
			if !errors.Is(err, events.ErrInvalid) && !errors.Is(err, events.ErrTooLarge) {
				t.Fatalf("Prepare = %v, which is neither ErrInvalid nor ErrTooLarge", err)
			}
			return
		}
		if !json.Valid(raw) || !utf8.Valid(raw) || len(raw) > events.MaxEventBytes {
			t.Fatalf("Prepare gave %d bytes that cannot be published: %q", len(raw), raw)
		}
		if _, again, err := events.Prepare(out, prepareNow); err != nil || !bytes.Equal(raw, again) {
			t.Fatalf("preparing twice: %v\n%q\n%q", err, raw, again)
		}
		var read events.Event
		if err := read.UnmarshalJSON(raw); err != nil {
			t.Fatalf("Prepare gave bytes that are no event: %v: %q", err, raw)
		}
	})
}

func BenchmarkPrepare(b *testing.B) {
	e := preparable(events.KindStepFinished, `{"step":3,"tool":"get_order","parameters":{"order_id":"#W2378156"},"status":"success","result":"`+
		strings.Repeat(`{\"item\":\"T-Shirt\",\"price\":50.88},`, 50)+`","execution_time_ms":12}`)
	b.SetBytes(int64(len(e.Data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := events.Prepare(e, prepareNow); err != nil {
			b.Fatal(err)
		}
	}
}
