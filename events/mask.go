package events

import (
	"bytes"
	"encoding/json"
	"strings"
)

// Kinds of secrets, as they appear in `[masked:<kind>]`.
const (
	secretPassword      = "password"
	secretSecret        = "secret"
	secretAPIKey        = "api_key"
	secretToken         = "token"
	secretKey           = "key"
	secretPrivateKey    = "private_key"
	secretAuthorization = "authorization"
	secretCookie        = "cookie"
	secretCredential    = "credential"
	secretURLPassword   = "url_password"
)

const (
	maskedPrefix = "[masked:"
	// maxMaskLevel bounds how many times JSON inside a string inside JSON is followed; deeper it is read as text.
	maxMaskLevel = 4
	// maxMaskDepth bounds the recursion, as encoding/json does; deeper JSON is read as text.
	maxMaskDepth = 10_000
	// maxMaskPasses bounds the repetition that makes masking idempotent; two suffice in all but contrived input.
	maxMaskPasses = 8
	// minSecretText is the shortest string that can hold a secret recognised by its form.
	minSecretText = 6
)

// Mask replaces every secret that it recognises in a JSON value by `[masked:<kind>]`: values of fields whose name says
// so (`password`, `api_key`, `Authorization`, …, at any depth, in `{"name": …, "value": …}` pairs, and in JSON that is
// held in a string), and text of a known form (provider keys, JWTs, private keys, passwords in URLs, `name=value`).
//
// Everything else keeps its bytes: numbers keep their digits and objects their order. When nothing is masked, raw
// itself is returned. Booleans, null and empty strings are never masked. Bytes that are not JSON are masked as
// [MaskText] would. Masking again changes nothing.
func Mask(raw json.RawMessage) json.RawMessage {
	return MaskField("", raw)
}

// MaskField is [Mask] for the value of a field: the field's name counts as well.
func MaskField(name string, raw json.RawMessage) json.RawMessage {
	if masked, ok := maskJSON(raw, secretName([]byte(name)), 0); ok {
		return masked
	}
	text, _ := maskText(raw)
	return text
}

// MaskText replaces the secrets in a plain text, such as an error message or the output of a command. A text that is
// JSON is masked as JSON.
func MaskText(text string) string {
	if len(text) < minSecretText {
		return text
	}
	var m masker
	if masked, changed := m.text([]byte(text)); changed {
		return string(masked)
	}
	return text
}

// maskID replaces a secret that is used as an id by a digest of it, so that two such ids stay different.
func maskID(id string) string {
	if !ordinaryID(id) && MaskText(id) != id {
		return "masked-" + digest(id)
	}
	return id
}

// ordinaryID reports whether an id is a single word that begins like no token, which [MaskText] never replaces. It only
// saves time: six ids of every event pass here.
func ordinaryID(id string) bool {
	if len(id) < minSecretText {
		return true
	}
	for i := range len(id) {
		if !isWord[id[i]] {
			return false
		}
	}
	if id[0] == '-' {
		return false
	}
	for _, f := range forms[id[0]] {
		if strings.HasPrefix(id, f.prefix) {
			return false
		}
	}
	return true
}

// maskJSON masks JSON until nothing changes any more: a replacement can, in contrived input, put text next to each
// other that only then has the form of a secret. It reports false for what is not JSON.
func maskJSON(raw []byte, kind string, level int) ([]byte, bool) {
	for range maxMaskPasses {
		m := masker{raw: raw, level: level}
		if end := m.value(0, kind); m.bad || skipSpace(raw, end) != len(raw) {
			return nil, false
		}
		if m.done == 0 {
			break
		}
		raw = append(m.out, raw[m.done:]...)
	}
	return raw, true
}

// masker walks JSON and copies it with replacements; while there is none, nothing is copied.
//
// It finds its way through valid JSON without checking all of it, which would cost as much again as the walk. What it
// cannot follow is bad, and then its output is worthless.
type masker struct {
	raw   []byte
	out   []byte
	done  int // raw[:done] is in out already
	level int // how many strings this JSON is inside of
	depth int
	bad   bool
}

func (m *masker) replace(from, to int, with []byte) {
	if m.out == nil {
		m.out = make([]byte, 0, len(m.raw)+64)
	}
	m.out = append(append(m.out, m.raw[m.done:from]...), with...)
	m.done = to
}

// fail makes every loop of the walk end.
func (m *masker) fail() int {
	m.bad = true
	return len(m.raw)
}

// value handles the value that begins at or after i, and returns the index behind it. kind is not empty when the name
// of a field around it says that it is a secret.
func (m *masker) value(i int, kind string) int {
	i = skipSpace(m.raw, i)
	if i >= len(m.raw) || m.depth > maxMaskDepth {
		return m.fail()
	}
	c := m.raw[i]
	if c != '"' {
		kind = settleKind(kind, nil)
	}
	switch c {
	case '{', '[':
		m.depth++
		if c == '{' {
			i = m.object(i, kind)
		} else {
			i = m.array(i, kind)
		}
		m.depth--
		return i
	case '"':
		return m.str(i, literalEnd(m.raw, i), kind)
	default:
		end := i
		for end < len(m.raw) && !isDelimiter(m.raw[end]) {
			end++
		}
		if word := string(m.raw[i:end]); word == "true" || word == "false" || word == "null" {
			return end
		}
		for _, b := range m.raw[i:end] {
			if !isDigit(b) && b != '.' && b != '-' && b != '+' && b|0x20 != 'e' {
				return m.fail()
			}
		}
		if kind != "" {
			m.replace(i, end, []byte(`"`+maskedPrefix+kind+`]"`))
		}
		return end
	}
}

func (m *masker) object(i int, kind string) int {
	i = skipSpace(m.raw, i+1)
	if m.at(i) == '}' {
		return i + 1
	}
	var pair string // The kind that a `name` member announces for the `value` member behind it.
	for {
		end := literalEnd(m.raw, i)
		colon := skipSpace(m.raw, end)
		if m.at(i) != '"' || m.at(colon) != ':' {
			return m.fail()
		}
		name := unquote(m.raw[i:end])
		m.str(i, end, "")
		of := kind
		if of == "" {
			of = secretName(name)
		}
		if of == "" && isValueName(name) {
			of = pair
		}
		i = skipSpace(m.raw, colon+1)
		if isNameName(name) && m.at(i) == '"' {
			pair = secretName(unquote(m.raw[i:literalEnd(m.raw, i)]))
		}
		i = skipSpace(m.raw, m.value(i, of))
		switch m.at(i) {
		case '}':
			return i + 1
		case ',':
			i = skipSpace(m.raw, i+1)
		default:
			return m.fail()
		}
	}
}

func (m *masker) array(i int, kind string) int {
	i = skipSpace(m.raw, i+1)
	if m.at(i) == ']' {
		return i + 1
	}
	for {
		i = skipSpace(m.raw, m.value(i, kind))
		switch m.at(i) {
		case ']':
			return i + 1
		case ',':
			i++
		default:
			return m.fail()
		}
	}
}

// at is the byte at i, or 0 behind the end.
func (m *masker) at(i int) byte {
	if i < len(m.raw) {
		return m.raw[i]
	}
	return 0
}

func (m *masker) str(i, end int, kind string) int {
	literal := m.raw[i:end]
	if len(literal) < 2 || literal[len(literal)-1] != '"' {
		return m.fail()
	}
	if kind = settleKind(kind, literal[1:len(literal)-1]); kind != "" {
		if len(literal) > 2 && !isMasked(literal[1:len(literal)-1]) {
			m.replace(i, end, []byte(`"`+maskedPrefix+kind+`]"`))
		}
		return end
	}
	if len(literal) < minSecretText+2 {
		return end
	}
	if masked, changed := m.text(unquote(literal)); changed {
		m.replace(i, end, quote(string(masked)))
	}
	return end
}

// text masks a decoded string: as JSON where it holds JSON, else by form.
func (m *masker) text(s []byte) ([]byte, bool) {
	trimmed := bytes.TrimSpace(s)
	if len(trimmed) > 1 && m.level < maxMaskLevel {
		first, last := trimmed[0], trimmed[len(trimmed)-1]
		if first == '{' && last == '}' || first == '[' && last == ']' {
			if masked, ok := maskJSON(s, "", m.level+1); ok {
				return masked, &masked[0] != &s[0]
			}
		}
	}
	return maskText(s)
}

func isMasked(s []byte) bool {
	return bytes.HasPrefix(s, []byte(maskedPrefix)) && bytes.HasSuffix(s, []byte("]"))
}

// isNameName and isValueName recognise the two halves of headers, environment variables and attributes that are
// written as a list of pairs.
func isNameName(name []byte) bool {
	switch string(name) {
	case "name", "key", "header", "Name", "Key":
		return true
	}
	return false
}

func isValueName(name []byte) bool {
	switch string(name) {
	case "value", "values", "Value", "Values":
		return true
	}
	return false
}

func isDelimiter(c byte) bool {
	return c == ',' || c == '}' || c == ']' || c == ' ' || c == '\n' || c == '\r' || c == '\t'
}

func skipSpace(raw []byte, i int) int {
	for i < len(raw) && (raw[i] == ' ' || raw[i] == '\n' || raw[i] == '\r' || raw[i] == '\t') {
		i++
	}
	return i
}

// literalEnd returns the index behind the string literal that begins at raw[i], or the end of raw when it is open.
func literalEnd(raw []byte, i int) int {
	for i++; i < len(raw); i++ {
		if i = skipPlain(raw, i); i == len(raw) {
			break
		}
		switch raw[i] {
		case '"':
			return i + 1
		case '\\':
			i++
		}
	}
	return len(raw)
}

// unquote decodes a string literal with its quotes. Without escapes the result is a part of the literal, not a copy.
func unquote(literal []byte) []byte {
	if len(literal) < 2 {
		return nil
	}
	inner := literal[1 : len(literal)-1]
	at := bytes.IndexByte(inner, '\\')
	if at < 0 {
		return inner
	}
	out := make([]byte, 0, len(inner))
	for at >= 0 && at+1 < len(inner) {
		out = append(out, inner[:at]...)
		if inner[at+1] == 'u' { // Surrogate pairs and the like are left to the standard library.
			var rest string
			if err := json.Unmarshal([]byte(`"`+string(inner[at:])+`"`), &rest); err != nil {
				return append(out, inner[at:]...) // Not in valid JSON.
			}
			return append(out, rest...)
		}
		out = append(out, unescaped(inner[at+1]))
		inner = inner[at+2:]
		at = bytes.IndexByte(inner, '\\')
	}
	return append(out, inner...)
}

func unescaped(c byte) byte {
	if at := strings.IndexByte("ntrbf", c); at >= 0 {
		return "\n\t\r\b\f"[at]
	}
	return c // One of " \ and /.
}

// quote encodes a string as the rest of the package does: without escaping <, > and &.
func quote(s string) []byte {
	raw, err := encode(s)
	if err != nil {
		return []byte(`"` + maskedPrefix + secretSecret + `]"`) // A string always encodes; if not, nothing may leak.
	}
	return raw
}

// eachString replaces the string values of valid JSON (not the names of fields) by what edit returns, and keeps all
// other bytes. edit is given the literal with its quotes and returns nil to keep it.
func eachString(raw []byte, edit func(literal []byte) []byte) []byte {
	var out []byte
	done := 0
	for i := 0; ; {
		at := bytes.IndexByte(raw[i:], '"')
		if at < 0 {
			break
		}
		start := i + at
		i = literalEnd(raw, start)
		if next := skipSpace(raw, i); next < len(raw) && raw[next] == ':' {
			continue
		}
		if with := edit(raw[start:i]); with != nil {
			out = append(append(out, raw[done:start]...), with...)
			done = i
		}
	}
	if done == 0 {
		return raw
	}
	return append(out, raw[done:]...)
}
