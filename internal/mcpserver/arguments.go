package mcpserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hindsight-memory/hindsight/events"
)

// errArguments means that the arguments of a call do not fit; the text says which and what would.
var errArguments = errors.New("the call cannot be made as it is")

// argumentKind is what an argument is read as.
type argumentKind int

const (
	kindText argumentKind = iota
	kindWhole
	kindNumber
	kindYesNo
	kindObject
	kindTexts
	// kindContext is a text or an object.
	kindContext
	// kindTime is an RFC 3339 text.
	kindTime
)

// argument declares one argument of a tool.
type argument struct {
	name  string
	about string
	kind  argumentKind
	// oneOf lists the values that a text may have.
	oneOf []string
	// also maps words that models write instead to the ones of oneOf.
	also map[string]string
	// fields are those of an object that are worth naming to a model; an object may have others.
	fields   []argument
	required bool
	// quiet arguments are accepted and not listed, to keep the list small.
	quiet bool
}

// arguments are the values of a call by name, each as the Go type of its kind. An absent one is not in it.
type arguments map[string]any

func (a arguments) text(name string) string                { return value[string](a, name) }
func (a arguments) whole(name string) int                  { return value[int](a, name) }
func (a arguments) number(name string) float64             { return value[float64](a, name) }
func (a arguments) object(name string) map[string]any      { return value[map[string]any](a, name) }
func (a arguments) texts(name string) []string             { return value[[]string](a, name) }
func (a arguments) time(name string) time.Time             { return value[time.Time](a, name) }
func (a arguments) given(name string) (value any, ok bool) { value, ok = a[name]; return value, ok }

func value[T any](a arguments, name string) T {
	v, _ := a[name].(T)
	return v
}

// readArguments reads what a client sent as the declared arguments. It drops what was not declared, takes null, "", []
// and 0 as absent, and accepts numbers and JSON in texts. The error is [errArguments].
func readArguments(raw json.RawMessage, declared []argument) (arguments, error) {
	given, err := readObject(raw)
	if err != nil {
		return nil, err
	}
	return fitArguments(given, declared, "")
}

func fitArguments(given map[string]any, declared []argument, prefix string) (arguments, error) {
	out := arguments{}
	for _, d := range declared {
		raw, ok := given[d.name]
		if !ok || raw == nil {
			continue
		}
		v, err := fit(raw, d)
		if err != nil {
			return nil, fmt.Errorf("%w: %s%s: %w", errArguments, prefix, d.name, err)
		}
		if v != nil {
			out[d.name] = v
		}
	}
	for _, d := range declared {
		if _, ok := out[d.name]; d.required && !ok {
			return nil, fmt.Errorf("%w: %s%s is missing: %s", errArguments, prefix, d.name, d.about)
		}
	}
	return out, nil
}

// readObject reads the arguments as a whole; some clients send the object as a text.
func readObject(raw json.RawMessage) (map[string]any, error) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || string(raw) == "null" {
		return map[string]any{}, nil
	}
	v, err := decode(raw)
	if err != nil {
		return nil, fmt.Errorf("%w: the arguments are not JSON", errArguments)
	}
	object, ok := asObject(v)
	if !ok {
		return nil, fmt.Errorf("%w: the arguments must be a JSON object", errArguments)
	}
	return object, nil
}

// decode reads exactly one JSON value and keeps numbers as they were written.
func decode(raw []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("decode JSON: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("decode JSON: more than one value")
	}
	return v, nil
}

// asObject takes an object as it is or out of a text; an empty text is an empty object.
func asObject(v any) (map[string]any, bool) {
	switch v := v.(type) {
	case map[string]any:
		return v, true
	case string:
		if strings.TrimSpace(v) == "" {
			return map[string]any{}, true
		}
		inner, err := decode([]byte(v))
		object, ok := inner.(map[string]any)
		return object, err == nil && ok
	default:
		return nil, false
	}
}

// fit turns a value into the Go type of its kind; nil means absent.
func fit(v any, d argument) (any, error) {
	switch d.kind {
	case kindText:
		return fitText(v, d.oneOf, d.also)
	case kindWhole:
		n, err := fitNumber(v)
		if err != nil || n == 0 {
			return nil, err
		}
		if n != math.Trunc(n) || math.Abs(n) > math.MaxInt32 {
			return nil, fmt.Errorf("%v is not a whole number such as 5", n)
		}
		return int(n), nil
	case kindNumber:
		n, err := fitNumber(v)
		if err != nil || n == 0 {
			return nil, err
		}
		return n, nil
	case kindYesNo:
		return fitYesNo(v)
	case kindObject:
		return fitObject(v, d.fields)
	case kindTexts:
		return fitTexts(v)
	case kindContext:
		if object, ok := asObject(v); ok {
			return fitObject(object, d.fields)
		}
		return fitText(v, nil, nil)
	case kindTime:
		return fitTime(v)
	default:
		return nil, fmt.Errorf("no kind %d of argument", d.kind) // a fault of this package
	}
}

func fitText(v any, oneOf []string, also map[string]string) (any, error) {
	var text string
	switch v := v.(type) {
	case string:
		text = v
	case json.Number:
		text = v.String()
	case bool:
		text = strconv.FormatBool(v)
	default:
		raw, err := encode(v)
		if err != nil {
			return nil, err
		}
		text = string(raw)
	}
	if strings.TrimSpace(text) == "" || text == "[]" {
		return nil, nil //nolint:nilnil // absent is neither a value nor an error.
	}
	if len(oneOf) == 0 {
		return text, nil
	}
	word := strings.ToLower(strings.TrimSpace(text))
	if meant, ok := also[word]; ok {
		word = meant
	}
	if !slices.Contains(oneOf, word) {
		return nil, fmt.Errorf("%q is none of %s", events.CutText(text, 100), strings.Join(oneOf, ", "))
	}
	return word, nil
}

func fitNumber(v any) (float64, error) {
	var text string
	switch v := v.(type) {
	case json.Number:
		text = v.String()
	case string:
		text = strings.TrimSpace(v)
	case []any:
		if len(v) == 0 {
			return 0, nil
		}
		return 0, errors.New("a list is not a number")
	default:
		return 0, errors.New("it is not a number")
	}
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(n) || math.IsInf(n, 0) {
		return 0, fmt.Errorf("%q is not a number", events.CutText(text, 100))
	}
	return n, nil
}

func fitYesNo(v any) (any, error) {
	switch v := v.(type) {
	case bool:
		return v, nil
	case json.Number:
		n, err := v.Float64()
		return n != 0, err
	case string:
		switch strings.ToLower(strings.TrimSpace(v)) {
		case "":
			return nil, nil //nolint:nilnil // absent is neither a value nor an error.
		case "true", "yes", "1":
			return true, nil
		case "false", "no", "0":
			return false, nil
		}
	}
	return nil, errors.New("it is neither true nor false")
}

// fitObject reads an object's known fields tolerantly and keeps the others as they are.
func fitObject(v any, fields []argument) (any, error) {
	object, ok := asObject(v)
	if list, isList := v.([]any); isList && len(list) == 0 {
		return nil, nil //nolint:nilnil // absent is neither a value nor an error.
	}
	if !ok {
		return nil, errors.New("it is not a JSON object")
	}
	if len(object) == 0 {
		return nil, nil //nolint:nilnil // absent is neither a value nor an error.
	}
	if len(fields) == 0 {
		return object, nil
	}
	known, err := fitArguments(object, fields, "field ")
	if err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), errArguments.Error()+": "))
	}
	return map[string]any(known), nil
}

func fitTexts(v any) (any, error) {
	list, ok := v.([]any)
	if !ok {
		if text, isText := v.(string); isText {
			if inner, err := decode([]byte(text)); err == nil {
				list, ok = inner.([]any)
			}
		}
		if !ok {
			list = []any{v}
		}
	}
	var out []string
	for _, element := range list {
		if element == nil {
			continue
		}
		text, err := fitText(element, nil, nil)
		if err != nil {
			return nil, err
		}
		if text, isText := text.(string); isText {
			out = append(out, text)
		}
	}
	if len(out) == 0 {
		return nil, nil //nolint:nilnil // absent is neither a value nor an error.
	}
	return out, nil
}

func fitTime(v any) (any, error) {
	text, ok := v.(string)
	if n, isNumber := v.(json.Number); isNumber && n.String() == "0" {
		return nil, nil //nolint:nilnil // absent is neither a value nor an error.
	}
	if !ok {
		return nil, errors.New("it is not a time such as 2026-01-31T09:30:00Z")
	}
	text = strings.TrimSpace(text)
	if text == "" {
		return nil, nil //nolint:nilnil // absent is neither a value nor an error.
	}
	if day, err := time.Parse(time.DateOnly, text); err == nil {
		return day.UTC(), nil
	}
	t, err := events.ParseTime(text)
	if err != nil {
		return nil, fmt.Errorf("%w", err)
	}
	return t, nil
}

// encode writes compact JSON that leaves <, > and & as they are.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("encode JSON: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
