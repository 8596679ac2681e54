package events

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func scanSeeds() []string {
	deep := func(n int) string { return strings.Repeat(`[`, n) + strings.Repeat(`]`, n) }
	return []string{
		`{}`, `[]`, `{"a":[1,-0,0.5,1e9,1E-3,-12.25e+7],"b":{"c":null,"d":true,"e":false}}`, `"x"`, `""`, ` {"a" : 1 } `, `[1, 2]`, `{"a":1}` + "\n",
		`"\u00e9\ud83d\ude00\"\\\/\b\f\n\r\t"`, `"\ud800"`, `"日本"`, "\"\xff\"", "\"a\nb\"", "\"a\tb\"", `"\x"`, `"\u12g4"`, `"\u12`, `"`, `"\`,
		`01`, `-`, `-01`, `1.`, `.5`, `1e`, `1e+`, `+1`, `1x`, `tru`, `truex`, `nul`, `NaN`, `{"a"}`, `{"a":}`, `{"a":1,}`, `[1,]`, `[,1]`, `{,}`, `{1:2}`,
		`[1}`, `{"a":1]`, `{}{}`, `{"a":1 "b":2}`, `[1 2]`, ``, ` `, `{`, `[`, `{"a`, `{"a":`, `{"a":1`, `"a"b`, deep(63), deep(64), deep(65), deep(64) + "]",
	}
}

// FuzzIsCompact compares the scanner with the standard library: what it passes is valid, compact JSON in UTF-8, and what
// it refuses is not, or nested deeply.
func FuzzIsCompact(f *testing.F) {
	for _, s := range scanSeeds() {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		small, err := compact(raw)
		want := err == nil && string(small) == string(raw) && utf8.Valid(raw) && depth(raw) <= MaxDepth
		if got := isCompact(raw); got != want {
			t.Fatalf("isCompact(%q) = %t, want %t", raw, got, want)
		}
	})
}

// FuzzDecodePlain compares the fast way to read an envelope with the way for any envelope.
func FuzzDecodePlain(f *testing.F) {
	for _, s := range scanSeeds() {
		f.Add([]byte(s))
		f.Add([]byte(`{"id":` + s + `}`))
		f.Add([]byte(`{"data":` + s + `,"seq":7,"other":` + s + `}`))
		f.Add([]byte(`{"seq":` + s + `,"time":"2026-01-31T09:30:00Z"}`))
	}
	for _, s := range []string{
		`{"id":"1","namespace":"acme.support","agent_id":"a","session_id":"s","user_id":"u","task_id":"t","goal_id":"g","seq":3,"time":"2026-01-31T09:30:00.125Z","kind":"message","data":{"role":"user"}}`,
		` { "id" : "1" , "kind" : "x" , "data" : { "a" : [ ] } , "more" : [ 1 , 2 ] } `,
		`{"id":"1","id":"2","seq":4,"seq":null,"data":{},"data":null,"kind":"a","kind":null,"x":1,"x":2}`,
		`{"id":1}`, `{"ID":"1","Kind":"x"}`, `{"i\u0064":"1"}`, `{"id":"\u0031"}`, `{"time":"yesterday"}`, `{"time":""}`, `{"":null}`, `{"id":"1"}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, plain := decodePlain(raw)
		if !plain {
			return
		}
		want, err := decodeFields(raw)
		if err != nil {
			t.Fatalf("decodePlain takes %q, which is refused: %v", raw, err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("decodePlain(%q) = %+v, want %+v", raw, got, want)
		}
	})
}

// TestDecodePlainTakesOrdinaryEvents would fail if the fast way were never taken, which nothing else would show.
func TestDecodePlainTakesOrdinaryEvents(t *testing.T) {
	t.Parallel()
	for _, s := range []string{
		`{"id":"1","namespace":"acme","agent_id":"a","session_id":"s","task_id":"t","time":"2026-01-31T09:30:00.125Z","kind":"message","data":{"content":"\"\u00e9\n"}}`,
		`{"id":"日本","seq":12,"user_id":null,"data":{"a":[1,{"b":null}]},"x":{"y":"z"}}`,
	} {
		if _, plain := decodePlain([]byte(s)); !plain {
			t.Errorf("decodePlain refuses %s", s)
		}
	}
}

// FuzzOrdinaryID checks that an id which is passed at a glance is one that masking keeps.
func FuzzOrdinaryID(f *testing.F) {
	for _, s := range []string{
		"", "abc", "task-2026-01-31", "sk-ant-0123456789012345678901234", "ghp_012345678901234567890123456", "-----BEGIN", "eyJhbGciOiJ9",
		"hs_0123456789abcdefABCDEF01", "AKIAIOSFODNN7EXAMPLE", "password=abc123", "a b", "0191e3a0-7bcd-7def-8123-456789abcdef",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, id string) {
		if ordinaryID(id) && MaskText(id) != id {
			t.Fatalf("%q looks ordinary and is masked as %q", id, MaskText(id))
		}
	})
}

// FuzzAccept compares Accept with Prepare: the same event, the same refusal.
func FuzzAccept(f *testing.F) {
	for _, s := range scanSeeds() {
		f.Add("message", s, "")
		f.Add("custom_kind", `{"a":`+s+`}`, s)
	}
	f.Add("step_finished", `{"tool":"t","status":"success","result":"`+strings.Repeat("x", MaxTextBytes)+`"}`, `"`+strings.Repeat("y", 2000)+`"`)
	f.Fuzz(func(t *testing.T, kind, data, extra string) {
		e := Event{ID: "1", Namespace: "acme", AgentID: "a", SessionID: "s", TaskID: "t", Time: scanNow(), Kind: Kind(kind), Data: json.RawMessage(data)}
		if extra != "" {
			e.Extra = map[string]json.RawMessage{"x": json.RawMessage(extra)}
		}
		accepted, err := Accept(e, scanNow())
		prepared, raw, prepareErr := Prepare(e, scanNow())
		if (err == nil) != (prepareErr == nil) || err != nil && err.Error() != prepareErr.Error() {
			t.Fatalf("Accept = %v, Prepare = %v", err, prepareErr)
		}
		if !reflect.DeepEqual(accepted, prepared) {
			t.Fatalf("Accept = %+v, Prepare = %+v", accepted, prepared)
		}
		if err == nil && len(raw) > accepted.wireLimit() {
			t.Fatalf("the event has %d bytes, more than the limit of %d", len(raw), accepted.wireLimit())
		}
	})
}

func scanNow() time.Time { return time.Date(2026, 1, 31, 9, 30, 0, 0, time.UTC) }

// BenchmarkTake is what the ingestor does to a message.
func BenchmarkTake(b *testing.B) {
	step := `{"id":"1-1764505048140000000-123456","namespace":"bench","agent_id":"agent-3","session_id":"session-5144","task_id":"task-1-1764505048140000000-5144","goal_id":"goal-144","seq":13,"time":"2026-01-31T09:29:00.125Z","kind":"step_finished","data":{"tool":"tool_7","parameters":{"order":"o-123456"},"status":"success","result":"` +
		strings.Repeat("item 1234 size 12 colour 3; ", 40) + `","execution_time_ms":120}}`
	message := `{"id":"1-1764505048140000000-123457","namespace":"bench","agent_id":"agent-3","session_id":"session-5144","task_id":"task-1-1764505048140000000-5144","goal_id":"goal-144","seq":14,"time":"2026-01-31T09:29:00.126Z","kind":"message","data":{"role":"assistant","content":"` +
		strings.Repeat("item 1234 size 12 colour 3; ", 14) + `","turn":14}}`
	header := map[string][]string{"Nats-Msg-Id": {"bench/1-1764505048140000000-123456"}}
	for name, raw := range map[string][]byte{"step": []byte(step), "message": []byte(message)} {
		b.Run("decode/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Decode(header, raw); err != nil {
					b.Fatal(err)
				}
			}
		})
		e, err := Decode(header, raw)
		if err != nil {
			b.Fatal(err)
		}
		b.Run("prepare/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := Prepare(e, scanNow()); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("mask/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Mask(e.Data)
			}
		})
		b.Run("kind/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := validateKind(e); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
