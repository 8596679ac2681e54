package events

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
)

// secretFields are names whose values are secrets, lower-cased and without punctuation; a field is one when its name
// is among them or ends in one of those that are long enough not to be part of an ordinary word.
var secretFields = map[string]bool{
	"password": true, "passwd": true, "pwd": true, "passphrase": true, "secret": true, "clientsecret": true,
	"secretkey": true, "secretaccesskey": true, "apikey": true, "accesstoken": true, "refreshtoken": true,
	"idtoken": true, "authtoken": true, "bearertoken": true, "sessiontoken": true, "privatekey": true,
	"authorization": true, "cookie": true, "setcookie": true, "credential": true, "credentials": true,
}

var secretEndings = []string{
	"password", "passphrase", "clientsecret", "secretkey", "secretaccesskey", "apikey", "accesstoken", "refreshtoken",
	"authtoken", "sessiontoken", "privatekey", "proxyauthorization",
}

// fieldNames is the alternation of secret field names as they appear inside texts, such as JSON in a string, a
// command line or a settings file.
const fieldNames = `[a-z0-9_.-]{0,40}(?:password|passwd|passphrase|secret[_-]?(?:access[_-]?)?key|client[_-]?secret|api[_-]?key|access[_-]?token|refresh[_-]?token|auth[_-]?token|private[_-]?key)`

// recogniser finds one kind of secret in a text.
type recogniser struct {
	kind string
	// triggers are lower-case literals of which at least one is in every text that has such a secret: looking for them
	// is far cheaper than the expression.
	triggers []string
	pattern  *regexp.Regexp
	// secret is the group that is replaced; 0 is the whole match.
	secret int
	// plausible, when set, has the last word on a match.
	plausible func(string) bool
}

// recognisers come from the formats that the issuers document for secret scanning.
var recognisers = []recogniser{
	{
		kind: "private_key", triggers: []string{"private key-----"},
		pattern: regexp.MustCompile(`-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\z)`),
	},
	{
		kind: "jwt", triggers: []string{"eyj"},
		pattern: regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}`),
	},
	{
		kind: "api_key", triggers: []string{"sk-", "sk_live_", "sk_test_", "rk_live_", "rk_test_"},
		pattern:   regexp.MustCompile(`\b(?:sk-[A-Za-z0-9_-]{20,}|[sr]k_(?:live|test)_[0-9A-Za-z]{16,})`),
		plausible: mixed,
	},
	{
		kind: "aws_key", triggers: []string{"akia", "asia"},
		pattern: regexp.MustCompile(`\b(?:AKIA|ASIA)[0-9A-Z]{16}\b`),
	},
	{
		kind:     "access_token",
		triggers: []string{"ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xox", "npm_", "hf_", "hs_"},
		pattern: regexp.MustCompile(`\b(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{22,}|glpat-[A-Za-z0-9_-]{20,}|` +
			`xox[abeoprs]-[A-Za-z0-9-]{10,}|npm_[A-Za-z0-9]{36}|hf_[A-Za-z0-9]{30,}|hs_[A-Za-z0-9_-]{20,})`),
		plausible: mixed,
	},
	{
		kind: "google_key", triggers: []string{"aiza"},
		pattern: regexp.MustCompile(`\bAIza[0-9A-Za-z_-]{35}`),
	},
	{
		kind: "authorization", triggers: []string{"bearer ", "basic "},
		pattern: regexp.MustCompile(`(?i)\b(?:bearer|basic)\s+([A-Za-z0-9._~+/=-]{16,})`), secret: 1, plausible: mixed,
	},
	{
		kind: "password", triggers: []string{"://"},
		pattern: regexp.MustCompile(`(?i)\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@"'<>]{0,100}:([^\s/@"'<>]{1,200})@`), secret: 1,
	},
	{
		kind: "secret", triggers: []string{"passw", "passphrase", "secret", "api", "token", "private"},
		pattern: regexp.MustCompile(`(?i)(?:^|[^a-z0-9])` + fieldNames + `["']?\s*[:=]\s*("[^"]{1,4096}"|'[^']{1,4096}'|[^\s"',;}&)\]]{4,})`),
		secret:  1,
	},
}

const maskOpening = "[masked:"

func masked(kind string) string { return maskOpening + kind + "]" }

// mixed tells a key from words joined by hyphens: it has a digit, and a letter.
func mixed(s string) bool {
	return strings.ContainsAny(s, "0123456789") && strings.ContainsFunc(s, func(r rune) bool { return r >= 'A' && r <= 'z' })
}

// MaskText replaces the secrets it recognises in a text by `[masked:<kind>]`.
func MaskText(text string) string {
	return maskLowered(text, strings.ToLower(text))
}

// maskLowered is MaskText for a caller that has the lower-cased text already.
func maskLowered(text, lowered string) string {
	for _, r := range recognisers {
		if !containsAny(lowered, r.triggers) {
			continue
		}
		text = r.replace(text)
	}
	return text
}

func (r recogniser) replace(text string) string {
	matches := r.pattern.FindAllStringSubmatchIndex(text, -1)
	if matches == nil {
		return text
	}
	var out strings.Builder
	end := 0
	for _, m := range matches {
		from, to := m[2*r.secret], m[2*r.secret+1]
		value := text[from:to]
		if strings.Contains(value, maskOpening) || (r.plausible != nil && !r.plausible(value)) {
			continue
		}
		if len(value) > 1 && (value[0] == '"' || value[0] == '\'') { // Keep the quotes: what is around it stays readable.
			from, to = from+1, to-1
		}
		out.WriteString(text[end:from])
		out.WriteString(masked(r.kind))
		end = to
	}
	out.WriteString(text[end:])
	return out.String()
}

func containsAny(s string, needles []string) bool {
	for _, n := range needles {
		if strings.Contains(s, n) {
			return true
		}
	}
	return false
}

// quick are the literals of which at least one is in every JSON text that needs masking.
var quick = func() []string {
	out := []string{"pwd", "cookie", "credential", "authorization", `\u00`}
	for _, r := range recognisers {
		out = append(out, r.triggers...)
	}
	return out
}()

// Mask replaces the secrets in valid JSON: whole values of fields whose name says so, and what [MaskText] finds in any
// other string. Everything else stays byte for byte, so that numbers keep their digits and objects their order.
func Mask(raw json.RawMessage) json.RawMessage {
	if !containsAny(string(bytes.ToLower(raw)), quick) {
		return raw
	}
	return rewriteStrings(raw, func(s stringToken) (string, bool) {
		if s.isKey {
			return "", false
		}
		text := s.text()
		if s.secret {
			if text == "" || strings.HasPrefix(text, maskOpening) {
				return "", false
			}
			return masked("secret"), true
		}
		out := MaskText(text)
		return out, out != text
	})
}

// maskAll masks a value whose own name says that it is secret.
func maskAll(raw json.RawMessage) json.RawMessage {
	wrapped := append([]byte(`{"secret":`), raw...)
	out := Mask(append(wrapped, '}'))
	return out[len(`{"secret":`) : len(out)-1]
}

// isSecretKey tells whether a field's name says that its value is a secret.
func isSecretKey(name string) bool {
	if len(name) > 64 {
		return false
	}
	plain := strings.Map(func(r rune) rune {
		switch {
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		default:
			return -1
		}
	}, name)
	if secretFields[plain] {
		return true
	}
	for _, ending := range secretEndings {
		if strings.HasSuffix(plain, ending) {
			return true
		}
	}
	return false
}

// stringToken is one string, or one number in a secret field, of a JSON text.
type stringToken struct {
	// raw is the token as written, with its quotes.
	raw []byte
	// isKey is true for the name of a field.
	isKey bool
	// secret is true within a field whose name says that it is secret.
	secret bool
}

// text is the string's value.
func (s stringToken) text() string {
	if s.raw[0] != '"' {
		return string(s.raw)
	}
	if bytes.IndexByte(s.raw, '\\') < 0 {
		return string(s.raw[1 : len(s.raw)-1])
	}
	var out string
	if json.Unmarshal(s.raw, &out) != nil {
		return ""
	}
	return out
}

// frame is one open object or list while scanning.
type frame struct {
	object bool
	// key is true when the next string is a field's name.
	key bool
	// secret is true when everything within is secret; field when the current field is.
	secret, field bool
}

// rewriteStrings gives the valid JSON raw with every string replaced for which replace says so. Where nothing is
// replaced, raw itself is returned.
func rewriteStrings(raw json.RawMessage, replace func(stringToken) (string, bool)) json.RawMessage {
	var out bytes.Buffer
	var stack []frame
	done := 0
	put := func(from, to int, token stringToken) {
		text, change := replace(token)
		if !change {
			return
		}
		quoted, err := encode(text)
		if err != nil {
			return
		}
		out.Write(raw[done:from])
		out.Write(quoted)
		done = to
	}
	for i := 0; i < len(raw); i++ {
		top := len(stack) - 1
		secret := top >= 0 && (stack[top].secret || stack[top].field)
		switch c := raw[i]; c {
		case '{', '[':
			stack = append(stack, frame{object: c == '{', key: c == '{', secret: secret})
		case '}', ']':
			stack = stack[:max(0, top)]
		case ',':
			if top >= 0 {
				stack[top].key, stack[top].field = stack[top].object, false
			}
		case '"':
			end := stringEnd(raw, i)
			token := stringToken{raw: raw[i:end], secret: secret}
			if top >= 0 && stack[top].key {
				token.isKey, token.secret = true, false
				stack[top].key = false
				stack[top].field = isSecretKey(token.text())
			}
			put(i, end, token)
			i = end - 1
		case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
			end := i + 1
			for end < len(raw) && strings.IndexByte("+-.eE0123456789", raw[end]) >= 0 {
				end++
			}
			if secret {
				put(i, end, stringToken{raw: raw[i:end], secret: true})
			}
			i = end - 1
		}
	}
	if done == 0 {
		return raw
	}
	out.Write(raw[done:])
	return out.Bytes()
}

// stringEnd is the index after the closing quote of the string that begins at i.
func stringEnd(raw []byte, i int) int {
	for j := i + 1; j < len(raw); j++ {
		switch raw[j] {
		case '\\':
			j++
		case '"':
			return j + 1
		}
	}
	return len(raw)
}
