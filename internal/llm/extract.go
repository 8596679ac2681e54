package llm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// maxStarts is how many braces are tried as the beginning of the answer.
const maxStarts = 40

// compile reads a schema.
func compile(schema json.RawMessage) (*jsonschema.Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return nil, fmt.Errorf("read the schema: %w", err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("answer.json", doc); err != nil {
		return nil, fmt.Errorf("read the schema: %w", err)
	}
	compiled, err := c.Compile("answer.json")
	if err != nil {
		return nil, fmt.Errorf("compile the schema: %w", err)
	}
	return compiled, nil
}

// extract finds the JSON object in what a model said and checks it. Of several, the first valid one counts. The error is
// the complaint to tell the model: that of the object that looked most like an answer.
func extract(said string, schema *jsonschema.Schema, synonyms map[string]string) (json.RawMessage, error) {
	said = strings.ToValidUTF8(said, "\uFFFD")
	complaint := errors.New("there is no JSON object in it")
	if strings.TrimSpace(said) == "" {
		return nil, errors.New("it is empty")
	}
	longest := 0
	for start, n := 0, 0; n < maxStarts; n++ {
		i := strings.IndexByte(said[start:], '{')
		if i < 0 {
			break
		}
		start += i
		end := objectEnd(said[start:])
		if end < 0 {
			if longest == 0 {
				complaint = errors.New("its JSON object is not complete; keep the answer shorter")
			}
			start++
			continue
		}
		candidate := dropTrailingCommas(said[start : start+end])
		answer, err := check(candidate, schema, synonyms)
		if err == nil {
			return answer, nil
		}
		if end > longest {
			longest, complaint = end, err
		}
		start++
	}
	return nil, complaint
}

// objectEnd is the length of the object that a text begins with, or -1 when it does not end.
func objectEnd(s string) int {
	depth, inText := 0, false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case inText && c == '\\':
			i++
		case c == '"':
			inText = !inText
		case inText:
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return -1
}

// dropTrailingCommas removes commas before a closing bracket, outside of texts.
func dropTrailingCommas(s string) string {
	var b strings.Builder
	b.Grow(len(s))
	inText := false
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case inText && c == '\\' && i+1 < len(s):
			b.WriteByte(c)
			i++
			c = s[i]
		case c == '"':
			inText = !inText
		case c == ',' && !inText:
			rest := strings.TrimLeft(s[i+1:], " \t\r\n")
			if rest != "" && (rest[0] == '}' || rest[0] == ']') {
				continue
			}
		}
		b.WriteByte(c)
	}
	return b.String()
}

// check decodes, renames and validates one object.
func check(text string, schema *jsonschema.Schema, synonyms map[string]string) (json.RawMessage, error) {
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("its JSON cannot be read: %w", err)
	}
	value = rename(value, synonyms)
	if err := schema.Validate(value); err != nil {
		return nil, fmt.Errorf("its JSON does not follow the schema: %w", err)
	}
	out, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("write the answer: %w", err)
	}
	return out, nil
}

// rename gives members their right names, at every level, unless there is one of that name.
func rename(v any, synonyms map[string]string) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, member := range v {
			out[key] = rename(member, synonyms)
		}
		for key := range v {
			to := synonyms[strings.ToLower(key)]
			if _, taken := out[to]; to != "" && to != key && !taken {
				out[to] = out[key]
				delete(out, key)
			}
		}
		return out
	case []any:
		for i := range v {
			v[i] = rename(v[i], synonyms)
		}
		return v
	default:
		return v
	}
}

// cutBytes shortens a text to at most n bytes, between runes.
func cutBytes(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}
