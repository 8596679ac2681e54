package events

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Kind says what an event tells. Kinds outside the constants below are legal: they are stored raw and counted.
type Kind string

// The kinds of design section 5.
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

// wire is the envelope's known fields in their order on the wire.
type wire struct {
	ID        string          `json:"id"`
	Namespace string          `json:"namespace"`
	AgentID   string          `json:"agent_id"`
	SessionID string          `json:"session_id"`
	UserID    string          `json:"user_id,omitempty"`
	TaskID    string          `json:"task_id"`
	GoalID    string          `json:"goal_id,omitempty"`
	Seq       int64           `json:"seq,omitempty"`
	Time      string          `json:"time"`
	Kind      Kind            `json:"kind"`
	Data      json.RawMessage `json:"data"`
}

// wireFields are the names in [wire]; everything else in an envelope is Extra.
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
	data := e.Data
	if len(data) == 0 {
		data = json.RawMessage("{}")
	}
	known := wire{
		ID: e.ID, Namespace: e.Namespace, AgentID: e.AgentID, SessionID: e.SessionID, UserID: e.UserID,
		TaskID: e.TaskID, GoalID: e.GoalID, Seq: e.Seq, Time: e.Time.UTC().Format(TimeFormat), Kind: e.Kind,
		Data: data,
	}
	out, err := encode(known)
	if err != nil {
		return nil, fmt.Errorf("encode event %q: %w", e.ID, err)
	}
	if len(e.Extra) == 0 {
		return out, nil
	}
	buf := bytes.NewBuffer(out[:len(out)-1])
	for _, name := range slices.Sorted(maps.Keys(e.Extra)) {
		key, err := encode(name)
		if err != nil {
			return nil, fmt.Errorf("encode event %q: field name: %w", e.ID, err)
		}
		var value bytes.Buffer
		if err := json.Compact(&value, e.Extra[name]); err != nil {
			return nil, fmt.Errorf("encode event %q: field %q: %w", e.ID, name, err)
		}
		buf.WriteByte(',')
		buf.Write(key)
		buf.WriteByte(':')
		buf.Write(value.Bytes())
	}
	buf.WriteByte('}')
	return buf.Bytes(), nil
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
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if fields == nil {
		return fmt.Errorf("%w: it is null, not an object", ErrMalformed)
	}
	var out Event
	var when string
	for _, f := range []struct {
		name string
		into any
	}{
		{"id", &out.ID},
		{"namespace", &out.Namespace},
		{"agent_id", &out.AgentID},
		{"session_id", &out.SessionID},
		{"user_id", &out.UserID},
		{"task_id", &out.TaskID},
		{"goal_id", &out.GoalID},
		{"seq", &out.Seq},
		{"time", &when},
		{"kind", &out.Kind},
		{"data", &out.Data},
	} {
		value, given := fields[f.name]
		if !given {
			continue
		}
		delete(fields, f.name)
		if err := json.Unmarshal(value, f.into); err != nil {
			return fmt.Errorf("%w: field %s: %w", ErrMalformed, f.name, err)
		}
	}
	if string(out.Data) == "null" {
		out.Data = nil
	}
	if when != "" {
		t, err := ParseTime(when)
		if err != nil {
			return fmt.Errorf("%w: field time: %w", ErrMalformed, err)
		}
		out.Time = t
	}
	if len(fields) > 0 {
		out.Extra = fields
	}
	*e = out
	return nil
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
