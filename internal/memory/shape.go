package memory

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// maxShapePaths bounds how many paths of one call's parameters are compared.
const maxShapePaths = 200

// formats tell texts apart by how they are written, the first match counting.
var formats = []struct {
	name    string
	pattern *regexp.Regexp
}{
	{"date_iso", regexp.MustCompile(`^\d{4}-\d{2}-\d{2}$`)},
	{"time_iso", regexp.MustCompile(`^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}`)},
	{"date", regexp.MustCompile(`^\d{1,4}[/.年-]\d{1,2}[/.月-]\d{1,4}日?$`)},
	{"email", regexp.MustCompile(`^[^@\s]+@[^@\s]+\.[^@\s]+$`)},
	{"url", regexp.MustCompile(`^[a-z][a-z0-9+.-]*://`)},
	{"uuid", regexp.MustCompile(`^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$`)},
	{"integer", regexp.MustCompile(`^[+-]?\d+$`)},
	{"decimal", regexp.MustCompile(`^[+-]?\d+[.,]\d+$`)},
	{"amount", regexp.MustCompile(`^(?:[$€£¥￥]|(?i:usd|eur|gbp|cny|rmb))\s*[\d.,]+$|^[\d.,]+\s*(?:[$€£¥￥元]|(?i:usd|eur|gbp|cny|rmb))$`)},
	{"path", regexp.MustCompile(`^[./~]?[\w.-]*(?:/[\w.-]+)+/?$`)},
	{"marked_id", regexp.MustCompile(`^#\w+$`)},
	{"id", regexp.MustCompile(`^[A-Za-z]*[_-]?(?:[A-Za-z0-9]+[_-])*[A-Za-z0-9]*\d[A-Za-z0-9_-]*$`)},
	{"word", regexp.MustCompile(`^[\p{L}_-]+$`)},
}

// TextFormat names how a text is written: empty, date_iso, email, integer, id, word, text and so on. Two texts of one
// format may differ in their values only.
func TextFormat(s string) string {
	if s = strings.TrimSpace(s); s == "" {
		return "empty"
	}
	for _, f := range formats {
		if f.pattern.MatchString(s) {
			return f.name
		}
	}
	return "text"
}

// Shape says for each path of a call's parameters what kind of value stands there and how it is written, without the
// value: {"items[].id": "string:id", "amount": "number"}. Elements of an array share a path. The first 200 paths count.
// Parameters that are not a JSON object have no shape.
func Shape(parameters json.RawMessage) map[string]string {
	decoder := json.NewDecoder(bytes.NewReader(parameters))
	decoder.UseNumber()
	var v map[string]any
	if decoder.Decode(&v) != nil {
		return nil
	}
	shape := make(map[string]string, len(v))
	addShape(shape, "", v)
	return shape
}

func addShape(shape map[string]string, path string, v any) {
	if len(shape) >= maxShapePaths {
		return
	}
	put := func(kind string) {
		if path == "" {
			return
		}
		if had, ok := shape[path]; ok && had != kind {
			kind = "mixed"
		}
		shape[path] = kind
	}
	switch v := v.(type) {
	case map[string]any:
		if len(v) == 0 {
			put("object:empty")
		}
		for name, inner := range v {
			addShape(shape, strings.TrimPrefix(path+"."+name, "."), inner)
		}
	case []any:
		if len(v) == 0 {
			put("array:empty")
		}
		for _, inner := range v {
			addShape(shape, path+"[]", inner)
		}
	case string:
		put("string:" + TextFormat(v))
	case json.Number:
		put("number")
	case bool:
		put("boolean")
	case nil:
		put("null")
	default:
		put(fmt.Sprintf("%T", v))
	}
}

// SameShape reports whether two calls have the same parameters, each of the same kind and written in the same way. Two
// calls without any parameters have the same shape.
func SameShape(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for path, kind := range a {
		if other, there := b[path]; !there || !SameKind(other, kind) {
			return false
		}
	}
	return true
}

// SameKind reports whether two values of a [Shape] are of one kind and written in the same way. Words and longer texts
// are both free text. An empty kind stands for a parameter that is not there.
func SameKind(a, b string) bool {
	free := func(kind string) string {
		if kind == "string:word" {
			return "string:text"
		}
		return kind
	}
	return free(a) == free(b)
}
