package importer

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/hindsight-memory/hindsight/events"
)

// isNull reports whether a field is absent or null, which mean the same.
func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// decodeObject reads a JSON object into a struct.
func decodeObject(what string, raw []byte, into any) error {
	if err := checkObject(what, raw); err != nil {
		return err
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return problemf(ReasonInvalidJSON, "%s is not valid JSON: %w", what, err)
	}
	return nil
}

// checkObject tells broken JSON from JSON that is something else than an object.
func checkObject(what string, raw []byte) error {
	if !bytes.HasPrefix(bytes.TrimLeft(raw, " \t\r\n"), []byte("{")) && json.Valid(raw) {
		return problemf(ReasonNotAnObject, "%s is not a JSON object", what)
	}
	return nil
}

// decodeName reads a field that has to be there: a text that is not empty or, where number says so, a number.
func decodeName(field string, raw json.RawMessage, number bool) (string, error) {
	if isNull(raw) {
		return "", problemf(ReasonMissingField, "%s is missing", field)
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		if text == "" {
			return "", problemf(ReasonMissingField, "%s is empty", field)
		}
		return text, nil
	}
	var n json.Number
	if number && json.Unmarshal(raw, &n) == nil {
		return canonicalNumber(n), nil
	}
	if number {
		return "", problemf(ReasonWrongType, "%s is neither a text nor a number", field)
	}
	return "", problemf(ReasonWrongType, "%s is not a text", field)
}

// decodeText reads a field that is a text or not there.
func decodeText(field string, raw json.RawMessage) (string, error) {
	var text string
	if isNull(raw) {
		return "", nil
	}
	if err := json.Unmarshal(raw, &text); err != nil {
		return "", problemf(ReasonWrongType, "%s is not a text", field)
	}
	return text, nil
}

// decodeNumber reads a field that is a number or not there.
func decodeNumber(field string, raw json.RawMessage) (value float64, given bool, err error) {
	if isNull(raw) {
		return 0, false, nil
	}
	if err := json.Unmarshal(raw, &value); err != nil {
		return 0, false, problemf(ReasonWrongType, "%s is not a number", field)
	}
	return value, true, nil
}

// compactText gives a value as a person would read it, with other JSON than a text in its shortest form.
func compactText(raw json.RawMessage) string {
	text := events.Text(raw)
	if len(raw) == 0 || raw[0] == '"' {
		return text
	}
	var compact bytes.Buffer
	if json.Compact(&compact, raw) != nil {
		return text
	}
	if text == "" {
		return ""
	}
	return compact.String()
}

// stepField names a field of a step for a message: steps[3].tool.
func stepField(i int, field string) string {
	if field == "" {
		return fmt.Sprintf("steps[%d]", i)
	}
	return fmt.Sprintf("steps[%d].%s", i, field)
}
