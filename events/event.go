package events

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"
)

// Kind says what an event tells. Kinds outside the constants below are legal: they are stored raw and counted.
type Kind string

// The kinds that this version knows.
const (
	KindTaskStarted  Kind = "task_started"
	KindMessage      Kind = "message"
	KindStepFinished Kind = "step_finished"
	KindTaskFinished Kind = "task_finished"
	KindFeedback     Kind = "feedback"
	KindItemWritten  Kind = "item_written"
	KindItemChanged  Kind = "item_changed"
	KindRecallServed Kind = "recall_served"
)

// Kinds returns every kind that has a defined meaning, in the order of the documentation.
func Kinds() []Kind {
	return []Kind{
		KindTaskStarted, KindMessage, KindStepFinished, KindTaskFinished,
		KindFeedback, KindItemWritten, KindItemChanged, KindRecallServed,
	}
}

// Known reports whether the kind has a defined meaning.
func (k Kind) Known() bool { return slices.Contains(Kinds(), k) }

// TimeFormat is how times are written on the wire: RFC 3339, UTC, always three decimals.
const TimeFormat = "2006-01-02T15:04:05.000Z07:00"

// Event is the envelope of one trace event. Times are UTC with millisecond precision.
type Event struct {
	// ID makes the event unique within its namespace; at most [MaxIDBytes] bytes. Publishing it twice changes nothing.
	ID string
	// Namespace says whose memory this is: `tenant` or `tenant.team`.
	Namespace string
	AgentID   string
	SessionID string
	// UserID is optional.
	UserID string
	TaskID string
	// GoalID is optional: tasks with one goal id try the same thing.
	GoalID string
	// Seq is a hint for the order within the task; 0 means that the producer does not number.
	Seq  int64
	Time time.Time
	Kind Kind
	// Data is a JSON object whose fields depend on Kind; see the Data types. Unknown fields are kept.
	Data json.RawMessage
	// Extra holds envelope fields that this version does not know, by name.
	Extra map[string]json.RawMessage
}

// wireFields are the names of the known fields; everything else in an envelope is Extra.
func wireFields() []string {
	return []string{
		"id", "namespace", "agent_id", "session_id", "user_id", "task_id",
		"goal_id", "seq", "time", "kind", "data",
	}
}

// ErrMalformed means that bytes are not an event's JSON at all.
var ErrMalformed = errors.New("malformed event")

// MarshalJSON writes the envelope with its known fields first, in a fixed order, then the unknown ones by name.
// Its bytes are what travels; [json.Marshal] around it would escape <, > and & as well.
func (e Event) MarshalJSON() ([]byte, error) {
	data := json.RawMessage("{}")
	if isCompact(e.Data) {
		data = e.Data
	} else if len(e.Data) > 0 {
		var buf bytes.Buffer
		if err := json.Compact(&buf, e.Data); err != nil {
			return nil, fmt.Errorf("encode event %q: field data: %w", e.ID, err)
		}
		data = buf.Bytes()
	}
	extra := make(map[string]json.RawMessage, len(e.Extra))
	for name, raw := range e.Extra {
		var value bytes.Buffer
		if err := json.Compact(&value, raw); err != nil {
			return nil, fmt.Errorf("encode event %q: field %q: %w", e.ID, name, err)
		}
		extra[name] = value.Bytes()
	}
	e.Data, e.Extra = data, extra
	return e.wire(), nil
}

// wire is [Event.MarshalJSON] for an event whose data and extra fields are compact JSON already. It is written by hand,
// because the general encoder would read them through twice more, and every event passes here several times.
func (e Event) wire() []byte {
	out := make([]byte, 0, 512+len(e.Data))
	for _, f := range []struct {
		name, value string
		optional    bool
	}{
		{`{"id":`, e.ID, false},
		{`,"namespace":`, e.Namespace, false},
		{`,"agent_id":`, e.AgentID, false},
		{`,"session_id":`, e.SessionID, false},
		{`,"user_id":`, e.UserID, true},
		{`,"task_id":`, e.TaskID, false},
		{`,"goal_id":`, e.GoalID, true},
	} {
		if f.optional && f.value == "" {
			continue
		}
		out = append(out, f.name...)
		out = appendText(out, f.value)
	}
	if e.Seq != 0 {
		out = append(out, `,"seq":`...)
		out = strconv.AppendInt(out, e.Seq, 10)
	}
	out = append(out, `,"time":"`...)
	out = e.Time.UTC().AppendFormat(out, TimeFormat) // Nothing in it needs escaping.
	out = append(out, `","kind":`...)
	out = appendText(out, string(e.Kind))
	out = append(out, `,"data":`...)
	out = append(out, e.Data...)
	if len(e.Extra) == 0 {
		return append(out, '}')
	}
	for _, name := range slices.Sorted(maps.Keys(e.Extra)) {
		out = append(out, ',')
		out = appendText(out, name)
		out = append(out, ':')
		out = append(out, e.Extra[name]...)
	}
	return append(out, '}')
}

// wireLimit is a number of bytes that [Event.wire] does not exceed.
func (e Event) wireLimit() int {
	const (
		fixed   = 256 // The names of the fields, the time and the number.
		escaped = 6   // What a byte of a text takes at most.
	)
	texts := len(e.ID) + len(e.Namespace) + len(e.AgentID) + len(e.SessionID) + len(e.UserID) + len(e.TaskID) + len(e.GoalID) + len(e.Kind)
	size := fixed + escaped*texts + len(e.Data)
	for name, value := range e.Extra {
		size += escaped*len(name) + len(value) + len(`,"":`)
	}
	return size
}

// appendText appends a JSON string.
func appendText(out []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= 0x7f {
			return append(out, quote(s)...)
		}
	}
	out = append(out, '"')
	out = append(out, s...)
	return append(out, '"')
}

// encode writes JSON without escaping <, > and &, which only make logs and diffs unreadable.
func encode(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("encode JSON: %w", err)
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

// UnmarshalJSON reads an envelope. It checks form only (types, time); [Event.Validate] checks meaning.
// Names are matched exactly, null stands for an absent field, and a time without a zone is taken as UTC.
func (e *Event) UnmarshalJSON(raw []byte) error {
	out, plain := decodePlain(raw)
	if !plain {
		var err error
		if out, err = decodeFields(raw); err != nil {
			return err
		}
	}
	*e = out
	return nil
}

// decodeFields reads any envelope.
func decodeFields(raw []byte) (Event, error) {
	var fields map[string]json.RawMessage
	if err := unmarshal(raw, &fields); err != nil {
		return Event{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if fields == nil {
		return Event{}, fmt.Errorf("%w: it is null, not an object", ErrMalformed)
	}
	var out Event
	var when, kind string
	for _, f := range []struct {
		name string
		into *string
	}{
		{"id", &out.ID},
		{"namespace", &out.Namespace},
		{"agent_id", &out.AgentID},
		{"session_id", &out.SessionID},
		{"user_id", &out.UserID},
		{"task_id", &out.TaskID},
		{"goal_id", &out.GoalID},
		{"time", &when},
		{"kind", &kind},
	} {
		if err := takeText(fields, f.name, f.into); err != nil {
			return Event{}, err
		}
	}
	out.Kind = Kind(kind)
	if value, given := fields["seq"]; given {
		delete(fields, "seq")
		if err := json.Unmarshal(value, &out.Seq); err != nil {
			return Event{}, fmt.Errorf("%w: field seq: %w", ErrMalformed, err)
		}
	}
	if data := fields["data"]; len(data) > 0 && string(data) != "null" {
		out.Data = data
	}
	delete(fields, "data")
	if when != "" {
		t, err := ParseTime(when)
		if err != nil {
			return Event{}, fmt.Errorf("%w: field time: %w", ErrMalformed, err)
		}
		out.Time = t
	}
	if len(fields) > 0 {
		out.Extra = fields
	}
	return out, nil
}

// ParseTime reads RFC 3339 with or without a fraction and, for producers that leave the zone out, without a zone,
// which means UTC. The result is UTC, cut to milliseconds.
func ParseTime(s string) (time.Time, error) {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999"} {
		if t, err := time.Parse(layout, s); err == nil {
			return t.UTC().Truncate(time.Millisecond), nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is not an RFC 3339 time such as 2026-01-31T09:30:00.000Z", s)
}

// takeText moves a text out of the fields. Most are plain and are copied without another decoder.
func takeText(fields map[string]json.RawMessage, name string, into *string) error {
	value, given := fields[name]
	if !given {
		return nil
	}
	delete(fields, name)
	if len(value) >= 2 && value[0] == '"' && bytes.IndexByte(value, '\\') < 0 && utf8.Valid(value) {
		*into = string(value[1 : len(value)-1])
		return nil
	}
	if err := unmarshal(value, into); err != nil {
		return fmt.Errorf("%w: field %s: %w", ErrMalformed, name, err)
	}
	return nil
}
