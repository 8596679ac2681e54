package events

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
)

// Prepare is the edge step that every door (publisher, importer, OTLP, HTTP) takes an event through. It returns the
// event as it will be stored, and its bytes on the wire.
//
// It fills what may be filled (an empty id with a UUIDv7, a zero time with now, absent data with {}), masks secrets
// (see [Mask]; an id that is a secret becomes a digest of it), cuts texts over [MaxTextBytes] (a result that is not a
// text and longer becomes the beginning of its JSON), repairs broken UTF-8, and validates. The error is [ErrInvalid],
// or [ErrTooLarge] for an event over [MaxEventBytes] even then. now is the clock of the door.
//
// A complete event gives the same bytes every time, and preparing it again changes nothing. The data of the event that
// is returned may be the very bytes that were given.
func Prepare(e Event, now time.Time) (Event, []byte, error) {
	e, err := prepare(e, now)
	if err != nil {
		return Event{}, nil, err
	}
	raw := e.wire()
	if len(raw) > MaxEventBytes {
		return Event{}, nil, fmt.Errorf("%w: event %q has %d bytes, at most %d are allowed: shorten its data or split it into several events",
			ErrTooLarge, e.ID, len(raw), MaxEventBytes)
	}
	return e, raw, nil
}

// Accept is [Prepare] for whoever stores the event and has no use for its bytes on the wire, which it does not make
// unless it must to know their number.
func Accept(e Event, now time.Time) (Event, error) {
	e, err := prepare(e, now)
	if err != nil {
		return Event{}, err
	}
	if e.wireLimit() > MaxEventBytes {
		e, _, err = Prepare(e, now)
	}
	return e, err
}

func prepare(e Event, now time.Time) (Event, error) {
	if e.ID == "" {
		id, err := uuid.NewV7()
		if err != nil {
			return Event{}, fmt.Errorf("make an event id: %w", err)
		}
		e.ID = id.String()
	}
	if e.Time.IsZero() {
		e.Time = now
	}
	e.Time = e.Time.UTC().Truncate(time.Millisecond)
	for _, id := range []*string{&e.ID, &e.AgentID, &e.SessionID, &e.UserID, &e.TaskID, &e.GoalID} {
		*id = maskID(*id)
	}
	if len(bytes.TrimSpace(e.Data)) == 0 || string(bytes.TrimSpace(e.Data)) == "null" {
		e.Data = json.RawMessage("{}")
	}
	if !isCompact(e.Data) || e.Data[0] != '{' { // Else it has the shape already, too.
		data, err := compact(e.Data)
		if err != nil {
			return Event{}, fmt.Errorf("%w: data is not a JSON object", ErrInvalid)
		}
		if err := validateShape(data); err != nil {
			return Event{}, err
		}
		e.Data = data
	}
	e.Data = prepareData(e.Kind, e.Data)
	if len(e.Extra) > 0 {
		extra := make(map[string]json.RawMessage, len(e.Extra))
		for _, name := range slices.Sorted(maps.Keys(e.Extra)) { // In order, should two names become one.
			safe := MaskText(toUTF8(name))
			value, err := compact(e.Extra[name])
			if err != nil {
				return Event{}, fmt.Errorf("%w: extra field %q is not JSON", ErrInvalid, safe)
			}
			extra[safe] = cutStrings(MaskField(name, value))
		}
		e.Extra = extra
	}
	if err := e.validateEnvelope(now); err != nil {
		return Event{}, err
	}
	if err := validateKind(e); err != nil {
		return Event{}, err
	}
	return e, nil
}

func prepareData(kind Kind, data json.RawMessage) json.RawMessage {
	data = Mask(data)
	if kind == KindStepFinished || kind == KindTaskFinished {
		data = cutResult(data)
	}
	return cutStrings(data)
}

// compact takes the blanks out of JSON and makes it valid UTF-8. The error means that it is no JSON.
func compact(raw json.RawMessage) (json.RawMessage, error) {
	var buf bytes.Buffer
	buf.Grow(len(raw))
	if err := json.Compact(&buf, raw); err != nil {
		return nil, fmt.Errorf("compact JSON: %w", err)
	}
	if utf8.Valid(buf.Bytes()) {
		return buf.Bytes(), nil
	}
	return bytes.ToValidUTF8(buf.Bytes(), []byte("\uFFFD")), nil
}

// cutStrings cuts the texts in valid JSON that are too long, and writes those with surrogate escapes anew: half a pair
// is U+FFFD from here on, since strict readers refuse it.
func cutStrings(raw json.RawMessage) json.RawMessage {
	if len(raw) <= MaxTextBytes && !bytes.Contains(raw, []byte(`\ud`)) && !bytes.Contains(raw, []byte(`\uD`)) {
		return raw
	}
	return eachString(raw, func(literal []byte) []byte {
		surrogates := bytes.Contains(literal, []byte(`\ud`)) || bytes.Contains(literal, []byte(`\uD`))
		if !surrogates && len(literal) <= MaxTextBytes {
			return nil
		}
		return quote(CutText(string(unquote(literal)), MaxTextBytes))
	})
}

// cutResult turns a long `result` that is not a text into a text, which can be cut.
func cutResult(data json.RawMessage) json.RawMessage {
	var fields map[string]json.RawMessage
	if len(data) <= MaxTextBytes || json.Unmarshal(data, &fields) != nil {
		return data
	}
	result := fields["result"]
	if len(result) <= MaxTextBytes || result[0] == '"' {
		return data
	}
	fields["result"] = quote(CutText(string(result), MaxTextBytes))
	out, err := encode(fields)
	if err != nil {
		return data
	}
	return out
}

// CutText shortens a text to at most limit bytes and says how much is gone: `…[cut N bytes]`. It never splits a
// character. A text within the limit is returned as it is; a limit too small for the marker leaves the marker alone.
func CutText(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	keep := max(0, limit-len(cutMarker(len(s)))) // The longest marker is allowed for.
	for keep > 0 && !utf8.RuneStart(s[keep]) {
		keep--
	}
	return s[:keep] + cutMarker(len(s)-keep)
}

func cutMarker(n int) string { return fmt.Sprintf("…[cut %d bytes]", n) }

func toUTF8(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return string(bytes.ToValidUTF8([]byte(s), []byte("\uFFFD")))
}

// digest names a text that must not be shown: the first 128 bits of its SHA-256, in hexadecimal.
func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:16])
}
