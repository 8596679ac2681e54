package events

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
)

// Prepare makes an event fit to leave the process and encodes it. Every door uses it: the publisher, the importer, the
// receivers of foreign traces, and the ingestor once more, because a foreign publisher may have skipped it.
//
// It fills in what may be filled in (an id, the time), masks secrets, cuts texts longer than [MaxTextBytes], validates
// against now, and encodes. The same complete event always gives the same bytes, and preparing twice changes nothing.
// The error is [ErrInvalid] or [ErrTooLarge].
func Prepare(e Event, now time.Time) (Event, []byte, error) {
	if e.ID == "" {
		id, err := uuid.NewV7()
		if err != nil {
			return e, nil, fmt.Errorf("make an event id: %w", err)
		}
		e.ID = id.String()
	}
	if e.Time.IsZero() {
		e.Time = now
	}
	e.Time = e.Time.UTC().Truncate(time.Millisecond)
	if len(e.Data) == 0 || string(e.Data) == "null" {
		e.Data = json.RawMessage("{}")
	}
	if err := e.validateEnvelope(now); err != nil {
		return e, nil, err
	}
	if !json.Valid(e.Data) {
		return e, nil, fmt.Errorf("%w: data is not a JSON object", ErrInvalid)
	}
	e.Data = cutTexts(Mask(e.Data))
	for name, value := range e.Extra {
		if !json.Valid(value) {
			return e, nil, fmt.Errorf("%w: field %q is not JSON", ErrInvalid, name)
		}
		masked := Mask(value)
		if isSecretKey(name) {
			masked = maskAll(value)
		}
		if !bytes.Equal(masked, value) {
			e.Extra = withField(e.Extra, name, masked)
		}
	}
	if err := validateData(e); err != nil {
		return e, nil, err
	}
	raw, err := e.MarshalJSON()
	if err != nil {
		return e, nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if len(raw) > MaxEventBytes {
		return e, nil, fmt.Errorf("%w: it has %d bytes, the limit is %d (1 MiB): shorten its data or split it into several events",
			ErrTooLarge, len(raw), MaxEventBytes)
	}
	return e, raw, nil
}

// withField gives a copy of the fields with one replaced, so that the caller's map stays as it was.
func withField(fields map[string]json.RawMessage, name string, value json.RawMessage) map[string]json.RawMessage {
	out := make(map[string]json.RawMessage, len(fields))
	for k, v := range fields {
		out[k] = v
	}
	out[name] = value
	return out
}

// CutText shortens a text to at most limit bytes and says how much is gone: `…[cut N bytes]`. It never splits a
// character. A text within the limit is returned as it is.
func CutText(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	// The marker has its own length; the longest one is reserved so that the result is within the limit.
	keep := max(0, limit-len(cutMarker(len(s))))
	for keep > 0 && !utf8.RuneStart(s[keep]) {
		keep--
	}
	return s[:keep] + cutMarker(len(s)-keep)
}

func cutMarker(n int) string { return fmt.Sprintf("…[cut %d bytes]", n) }

// cutTexts shortens every string in valid JSON that is longer than [MaxTextBytes], and a `result` that is a longer
// object or list, which becomes the beginning of its text.
func cutTexts(raw json.RawMessage) json.RawMessage {
	if len(raw) <= MaxTextBytes {
		return raw
	}
	out := rewriteStrings(raw, func(s stringToken) (string, bool) {
		if s.isKey || len(s.raw) <= MaxTextBytes {
			return "", false
		}
		text := s.text()
		cut := CutText(text, MaxTextBytes)
		return cut, cut != text
	})
	if len(out) <= MaxTextBytes {
		return out
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(out, &fields) != nil || len(fields["result"]) <= MaxTextBytes || strings.HasPrefix(string(fields["result"]), `"`) {
		return out
	}
	short, err := encode(CutText(string(fields["result"]), MaxTextBytes))
	if err != nil {
		return out
	}
	return bytes.Replace(out, fields["result"], short, 1)
}
