package events

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// CloudEventTypePrefix may stand before the kind in a CloudEvent's type: `dev.hindsight.step_finished` and
// `step_finished` are the same kind.
const CloudEventTypePrefix = "dev.hindsight."

const (
	ceHeaderPrefix = "ce-"
	// ceExtraPrefix keeps attributes of a CloudEvent apart from the fields of the envelope.
	ceExtraPrefix = "ce_"

	mediaCloudEvent      = "application/cloudevents"
	mediaCloudEventJSON  = "application/cloudevents+json"
	mediaCloudEventBatch = "application/cloudevents-batch"
)

// Decode reads one event from a message of NATS or a request of HTTP: the native envelope, or a CloudEvent 1.x in
// structured or binary mode. It checks form only; [Event.Validate] checks meaning. The error is [ErrMalformed].
// Names of headers are matched without regard to case. header may be nil, and neither argument is kept.
//
// The content type `application/cloudevents+json` means structured mode. So does a body that has `specversion` and no
// `kind`, since the first CloudEvents binding of NATS had no headers. Headers that begin with `ce-` mean binary mode.
// Everything else is native.
//
// A CloudEvent becomes an event like this:
//
//   - type is the kind, with or without [CloudEventTypePrefix];
//   - the extension attributes namespace, agentid, sessionid, taskid, goalid, userid and seq are the envelope's fields;
//   - time is time;
//   - data is data, and has to be JSON;
//   - the id is [CloudEventID] of source and id, since a CloudEvent's id is unique for its source only;
//   - every other attribute, and the original source and id, are kept in [Event.Extra] under `ce_` and their name.
func Decode(header map[string][]string, body []byte) (Event, error) {
	h, err := newHeaders(header)
	if err != nil {
		return Event{}, err
	}
	switch media := h.mediaType("content-type"); {
	case media == mediaCloudEventJSON || media == mediaCloudEvent:
		return decodeStructured(body)
	case strings.HasPrefix(media, mediaCloudEventBatch):
		return Event{}, fmt.Errorf("%w: content type %s: a batch is not one event: send each by itself", ErrMalformed, media)
	case strings.HasPrefix(media, mediaCloudEvent+"+"):
		return Event{}, fmt.Errorf("%w: content type %s: of the structured formats only %s is read", ErrMalformed, media, mediaCloudEventJSON)
	case h.binaryMode():
		return decodeBinary(h, body)
	}
	if e, plain := decodePlain(body); plain { // A native one: it has no specversion.
		return e, nil
	}
	if headerless(body) {
		return decodeStructured(body)
	}
	return decodeFields(body)
}

// CloudEventID is the event id of a CloudEvent: `ce-` and 32 hexadecimal digits that depend on both source and id.
// A hash, because the two together may be longer than [MaxIDBytes] and no separator is forbidden in both of them.
func CloudEventID(source, id string) string {
	sum := sha256.Sum256([]byte(strconv.Itoa(len(source)) + ":" + source + id))
	return ceHeaderPrefix + hex.EncodeToString(sum[:16])
}

// headerless recognises a structured CloudEvent that came without a content type.
func headerless(body []byte) bool {
	// Cheap first: nearly every message is native and is parsed once only.
	if !bytes.Contains(body, []byte(`"specversion"`)) {
		return false
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(body, &fields) != nil {
		return false
	}
	_, native := fields["kind"]
	_, foreign := fields["specversion"]
	return foreign && !native
}

// decodeStructured reads the JSON format of CloudEvents.
func decodeStructured(body []byte) (Event, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		return Event{}, fmt.Errorf("%w: CloudEvent: %w", ErrMalformed, err)
	}
	data, err := structuredData(fields)
	if err != nil {
		return Event{}, err
	}
	attributes := make(map[string]string, len(fields))
	for name, raw := range fields {
		switch name {
		case "data", "data_base64":
			continue
		}
		if string(raw) == "null" {
			continue
		}
		// Attributes are strings, numbers or booleans; the numbers and booleans are written as in binary mode.
		if raw[0] == '{' || raw[0] == '[' {
			return Event{}, fmt.Errorf("%w: CloudEvent: attribute %s is neither a string, a number nor a boolean", ErrMalformed, name)
		}
		attributes[name] = Text(raw)
	}
	return fromCloudEvent(attributes, data)
}

// structuredData takes the data out of the JSON format, where bytes may travel as base64.
func structuredData(fields map[string]json.RawMessage) (json.RawMessage, error) {
	data, encoded := fields["data"], fields["data_base64"]
	if string(data) == "null" {
		data = nil
	}
	if len(encoded) == 0 || string(encoded) == "null" {
		return data, nil
	}
	if len(data) > 0 {
		return nil, fmt.Errorf("%w: CloudEvent: it has both data and data_base64", ErrMalformed)
	}
	var text string
	if err := json.Unmarshal(encoded, &text); err != nil {
		return nil, fmt.Errorf("%w: CloudEvent: data_base64: %w", ErrMalformed, err)
	}
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("%w: CloudEvent: data_base64: %w", ErrMalformed, err)
	}
	return raw, nil
}

// decodeBinary reads the binary mode: attributes in headers, data as the body.
func decodeBinary(h headers, body []byte) (Event, error) {
	attributes := make(map[string]string, len(h))
	for name, value := range h {
		if attribute, found := strings.CutPrefix(name, ceHeaderPrefix); found {
			attributes[attribute] = headerValue(value)
		}
	}
	// HTTP says the type of the data in Content-Type, NATS in ce-datacontenttype.
	if _, given := attributes["datacontenttype"]; !given && h["content-type"] != "" {
		attributes["datacontenttype"] = h["content-type"]
	}
	return fromCloudEvent(attributes, bytes.Clone(body))
}

// fromCloudEvent maps the attributes of a CloudEvent; it may change them and keeps data.
func fromCloudEvent(attributes map[string]string, data json.RawMessage) (Event, error) {
	take := func(name string) string {
		value := attributes[name]
		delete(attributes, name)
		return value
	}
	source, id := attributes["source"], attributes["id"] // they stay, and so are kept
	version, kind := take("specversion"), take("type")
	for _, required := range []struct{ name, value string }{
		{"specversion", version}, {"id", id}, {"source", source}, {"type", kind},
	} {
		if required.value == "" {
			return Event{}, fmt.Errorf("%w: CloudEvent: attribute %s is missing", ErrMalformed, required.name)
		}
	}
	if version != "1" && !strings.HasPrefix(version, "1.") {
		return Event{}, fmt.Errorf("%w: CloudEvent: specversion %q: versions 1.x are read", ErrMalformed, version)
	}
	data = bytes.TrimSpace(data)
	if contentType := attributes["datacontenttype"]; len(data) > 0 && !isJSON(contentType) {
		return Event{}, fmt.Errorf("%w: CloudEvent: datacontenttype %q: data has to be JSON", ErrMalformed, contentType)
	}
	if len(data) > 0 && !json.Valid(data) {
		return Event{}, fmt.Errorf("%w: CloudEvent: data is not JSON", ErrMalformed)
	}
	if len(data) == 0 || string(data) == "null" {
		data = nil
	}
	e := Event{
		ID: CloudEventID(source, id), Namespace: take("namespace"), AgentID: take("agentid"),
		SessionID: take("sessionid"), UserID: take("userid"), TaskID: take("taskid"), GoalID: take("goalid"),
		Kind: Kind(strings.TrimPrefix(kind, CloudEventTypePrefix)), Data: data,
	}
	if when := take("time"); when != "" {
		t, err := ParseTime(when)
		if err != nil {
			return Event{}, fmt.Errorf("%w: CloudEvent: attribute time: %w", ErrMalformed, err)
		}
		e.Time = t
	}
	if seq := take("seq"); seq != "" {
		n, err := strconv.ParseInt(seq, 10, 64)
		if err != nil {
			return Event{}, fmt.Errorf("%w: CloudEvent: attribute seq %q is not an integer", ErrMalformed, seq)
		}
		e.Seq = n
	}
	e.Extra = make(map[string]json.RawMessage, len(attributes))
	for name, value := range attributes {
		raw, err := encode(value)
		if err != nil {
			return Event{}, fmt.Errorf("%w: CloudEvent: attribute %s: %w", ErrMalformed, name, err)
		}
		e.Extra[ceExtraPrefix+name] = raw
	}
	return e, nil
}

// isJSON reports whether a content type says JSON; none at all means JSON.
func isJSON(contentType string) bool {
	if contentType == "" {
		return true
	}
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil && !errors.Is(err, mime.ErrInvalidMediaParameter) {
		return false
	}
	return strings.HasSuffix(media, "/json") || strings.HasSuffix(media, "+json")
}

// headers are the headers of one message by lower-case name, one value each.
type headers map[string]string

// newHeaders folds the case of names. A header that decides what the event is must not have two values: which of them
// counts would depend on the order of a map.
func newHeaders(in map[string][]string) (headers, error) {
	var names []string
	for name := range in {
		if strings.EqualFold(name, "content-type") || len(name) >= len(ceHeaderPrefix) && strings.EqualFold(name[:len(ceHeaderPrefix)], ceHeaderPrefix) {
			names = append(names, name)
		}
	}
	if len(names) == 0 { // As with nearly every message.
		return nil, nil
	}
	slices.Sort(names)
	out := make(headers, len(names))
	for _, name := range names {
		lower := strings.ToLower(name)
		for _, value := range in[name] {
			value = strings.TrimSpace(value)
			if before, given := out[lower]; given && before != value {
				return nil, fmt.Errorf("%w: header %s has two values, %q and %q", ErrMalformed, lower, before, value)
			}
			out[lower] = value
		}
	}
	return out, nil
}

// mediaType is a content type without its parameters, in lower case; empty when there is none.
func (h headers) mediaType(name string) string {
	media, _, _ := strings.Cut(h[name], ";")
	return strings.ToLower(strings.TrimSpace(media))
}

// binaryMode looks for the attributes that every CloudEvent has; one is enough, so that a CloudEvent that lacks
// another is called by its name and not read as a broken native event.
func (h headers) binaryMode() bool {
	for _, name := range []string{"specversion", "id", "source", "type"} {
		if _, given := h[ceHeaderPrefix+name]; given {
			return true
		}
	}
	return false
}

// headerValue undoes what the bindings do to a value so that it fits a header: double quotes, then percent-encoding.
// A value that is not percent-encoded after all is taken as it stands; bytes that are not UTF-8 are replaced.
func headerValue(value string) string {
	if len(value) >= 2 && value[0] == '"' && value[len(value)-1] == '"' {
		var plain strings.Builder
		escaped := false
		for _, c := range []byte(value[1 : len(value)-1]) {
			if c == '\\' && !escaped {
				escaped = true
				continue
			}
			escaped = false
			plain.WriteByte(c)
		}
		value = plain.String()
	}
	if plain, err := url.PathUnescape(value); err == nil {
		value = plain
	}
	return strings.ToValidUTF8(value, "\ufffd")
}
