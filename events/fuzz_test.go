package events_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"regexp"
	"testing"

	"github.com/hindsight-memory/hindsight/events"
)

// FuzzDecode feeds Decode what a stranger may send. It must not panic, must refuse only with ErrMalformed, and an event
// that it reads must survive being written and read again. What Validate then accepts, the schema accepts too.
func FuzzDecode(f *testing.F) {
	for _, e := range golden(f) {
		raw, err := e.MarshalJSON()
		if err != nil {
			f.Fatal(err)
		}
		f.Add("", "", "", "", "", raw)
		f.Add("application/json", "1", "/agents/a", "dev.hindsight."+string(e.Kind), "2026-01-31T09:30:00Z", []byte(e.Data))
	}
	f.Add("application/cloudevents+json; charset=utf-8", "", "", "", "", []byte(structured(`,"x":true`)))
	f.Add("", "", "", "", "", []byte(structured(`,"data":null,"data_base64":"e30="`)))
	f.Add("application/cloudevents-batch+json", "", "", "", "", []byte("[]"))
	f.Add("", "1", "a", "\xff", "", []byte("{}"))
	f.Add("text/plain", `"a\"b"`, "%E6%97%A5", "x", "", []byte("null"))
	f.Add("", "", "", "", "", []byte(`{"id":"\ud800","time":"9999-12-31T23:59:59-01:00","data":{"a":"`+"\xff"+`"}}`))
	f.Add("", "", "", "", "", []byte(change(f, "step_finished", "data.tool", `"\u0000"`)))

	s := compileSchema(f)
	plain := regexp.MustCompile(`^[a-z0-9_]*$`)
	f.Fuzz(func(t *testing.T, contentType, id, source, kind, when string, body []byte) {
		header := map[string][]string{}
		for name, value := range map[string]string{
			"Content-Type": contentType, "ce-id": id, "ce-source": source, "ce-type": kind, "ce-time": when,
		} {
			if value != "" {
				header[name] = []string{value}
			}
		}
		if id != "" {
			header["ce-specversion"] = []string{"1.0"}
		}
		before := bytes.Clone(body)
		e, err := events.Decode(header, body)
		if !bytes.Equal(before, body) {
			t.Fatal("Decode changed the body")
		}
		if err != nil {
			if !errors.Is(err, events.ErrMalformed) {
				t.Fatalf("Decode = %v, want ErrMalformed", err)
			}
			return
		}
		if year := e.Time.Year(); year < 0 || year > 9999 {
			return // a zone moved it out of what RFC 3339 can write; Validate refuses it
		}
		raw, err := e.MarshalJSON()
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		again, err := events.Decode(nil, raw)
		if err != nil {
			t.Fatalf("what was written cannot be read: %v: %s", err, raw)
		}
		twice, err := again.MarshalJSON()
		if err != nil || !bytes.Equal(raw, twice) {
			t.Fatalf("a round trip changed it, %v:\n%s\n%s", err, raw, twice)
		}

		// Of a name that is given twice, or in another case, the types of Go and the schema may take different ones.
		var data map[string]any
		if e.Validate(noon()) != nil || json.Unmarshal(again.Data, &data) != nil {
			return
		}
		for name := range data {
			if !plain.MatchString(name) {
				return
			}
		}
		if again.Data, err = json.Marshal(data); err != nil {
			return // a number beyond float64
		}
		if again.Validate(noon()) != nil {
			return
		}
		if raw, err = again.MarshalJSON(); err != nil {
			t.Fatal(err)
		}
		if err := bySchema(t, s, string(raw)); err != nil {
			t.Fatalf("Validate accepts what the schema refuses: %v: %s", err, raw)
		}
	})
}

// FuzzParseTime checks that a time that is read can be written and read again.
func FuzzParseTime(f *testing.F) {
	for _, s := range []string{"2026-01-31T09:30:00.125Z", "2026-01-31 09:30:00", "1969-12-31T23:59:59.9999-07:00", "", "0000-01-01T00:00:00Z"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := events.ParseTime(s)
		if err != nil || got.Year() < 0 || got.Year() > 9999 {
			return
		}
		again, err := events.ParseTime(got.Format(events.TimeFormat))
		if err != nil || !again.Equal(got) {
			t.Fatalf("%q is %s, and that is %s, %v", s, got, again, err)
		}
	})
}
