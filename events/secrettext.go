package events

import (
	"bytes"
	"encoding/base64"
	"strings"
)

// maskText replaces the secrets that show by their form in a text. It repeats until nothing changes.
func maskText(s []byte) ([]byte, bool) {
	changed := false
	for range maxMaskPasses {
		out, again := maskTextOnce(s)
		if !again {
			break
		}
		s, changed = out, true
	}
	return s, changed
}

// maskTextOnce walks the text once, word by word: every form that is recognised begins at a word, so that ordinary
// text costs one table look-up a byte.
func maskTextOnce(s []byte) ([]byte, bool) {
	if len(s) < minSecretText {
		return s, false
	}
	var out []byte
	done := 0
	for i := 0; i < len(s); {
		if !isWord[s[i]] {
			i++
			continue
		}
		start := i
		for i < len(s) && isWord[s[i]] {
			i++
		}
		if !worthALook(s, start, i) {
			continue
		}
		found, ok := recognise(s, start, i)
		if !ok {
			continue
		}
		out = append(out, s[done:found.from]...)
		out = append(append(append(out, maskedPrefix...), found.kind...), ']')
		done, i = found.to, found.to
	}
	if done == 0 {
		return s, false
	}
	return append(out, s[done:]...), true
}

// worthALook is a cheap test that most words of ordinary text fail: whether [recognise] could find anything at s[start:end].
func worthALook(s []byte, start, end int) bool {
	if end-start >= 10 || s[start] == '-' {
		return true // Long enough for a token; a flag or the head of a private key.
	}
	if end == len(s) {
		return false
	}
	switch s[end] {
	case ' ', '\t':
		first, next := s[start]|0x20, skipBlanks(s, end)
		return first == 'b' || next < len(s) && (s[next] == '=' || s[next] == ':')
	case ':', '=', '"', '\'', '`', '\\', ']', '.':
		return true
	}
	return false
}

// isWord holds the bytes that words are made of: letters, digits, - and _.
var isWord = func() (table [256]bool) {
	for c := range table {
		table[c] = isLetter(byte(c)) || isDigit(byte(c)) || c == '-' || c == '_'
	}
	return table
}()

// found is a part of a text that is to be masked.
type found struct {
	from, to int
	kind     string
}

// recognise looks at the word s[start:end] and what follows it.
func recognise(s []byte, start, end int) (found, bool) {
	if start > 0 && s[start-1] == '\\' && (s[start] == 'n' || s[start] == 't' || s[start] == 'r') && end-start > 1 {
		start++ // An escaped line break in JSON or code that is held as text.
	}
	word := s[start:end]
	if to, kind := tokenForm(s, word, end); kind != "" {
		return found{start, to, kind}, true
	}
	if end >= len(s) {
		return found{}, false
	}
	switch s[end] {
	case ' ', '\t':
		if f, ok := spaced(s, word, end); ok {
			return f, true
		}
	case ':':
		if bytes.HasPrefix(s[end:], []byte("://")) {
			return userinfo(s, end+3)
		}
	}
	return assignment(s, start, end)
}

// form is a token that is known by how it begins.
type form struct {
	prefix string
	// least is the smallest length of the whole word, exactly its only one where it is not 0.
	least, exactly int
	kind           string
}

// forms are the token formats that providers document, the longer prefix first. Each word is looked up by its first
// byte, see [tokenForm].
var forms = func() (table [256][]form) {
	for _, f := range []form{
		{"sk-ant-", 24, 0, "anthropic_key"},
		{"sk-or-v1-", 32, 0, secretAPIKey},
		{"sk-", 20, 0, secretAPIKey},
		{"sk_live_", 20, 0, "stripe_key"},
		{"sk_test_", 20, 0, "stripe_key"},
		{"rk_live_", 20, 0, "stripe_key"},
		{"rk_test_", 20, 0, "stripe_key"},
		{"whsec_", 24, 0, "stripe_key"},
		{"AKIA", 0, 20, "aws_key"},
		{"ASIA", 0, 20, "aws_key"},
		{"ghp_", 24, 0, "github_token"},
		{"gho_", 24, 0, "github_token"},
		{"ghu_", 24, 0, "github_token"},
		{"ghs_", 24, 0, "github_token"},
		{"ghr_", 24, 0, "github_token"},
		{"github_pat_", 31, 0, "github_token"},
		{"glpat-", 20, 0, "gitlab_token"},
		{"xoxa-", 15, 0, "slack_token"},
		{"xoxb-", 15, 0, "slack_token"},
		{"xoxe-", 15, 0, "slack_token"},
		{"xoxo-", 15, 0, "slack_token"},
		{"xoxp-", 15, 0, "slack_token"},
		{"xoxr-", 15, 0, "slack_token"},
		{"xoxs-", 15, 0, "slack_token"},
		{"xapp-", 20, 0, "slack_token"},
		{"AIza", 35, 0, "google_key"},
		{"hf_", 30, 0, "huggingface_token"},
		{"npm_", 34, 0, "npm_token"},
		{"pypi-", 40, 0, "pypi_token"},
		{"gsk_", 32, 0, secretAPIKey},
		{"xai-", 32, 0, secretAPIKey},
		{"pplx-", 32, 0, secretAPIKey},
		{"nvapi-", 32, 0, secretAPIKey},
		{"tvly-", 24, 0, secretAPIKey},
		{"lsv2_", 32, 0, secretAPIKey},
		{"dop_v1_", 40, 0, secretToken},
		{"dckr_pat_", 24, 0, secretToken},
		{"shpat_", 30, 0, secretToken},
		{"hs_", 24, 0, "hindsight_token"},
	} {
		table[f.prefix[0]] = append(table[f.prefix[0]], f)
	}
	return table
}()

// tokenForm says where a token that begins with word ends, and of which kind it is.
func tokenForm(s, word []byte, end int) (to int, kind string) {
	switch {
	case word[0] == '-':
		return privateKey(s, word, end)
	case word[0] == 'e' && len(word) >= 10 && bytes.HasPrefix(word, []byte("eyJ")):
		return jwt(s, end)
	case end < len(s) && s[end] == '.' && (string(word) == "ya29" || string(word) == "SG"):
		if next := wordEnd(s, end+1); next-end > 20 {
			for next < len(s)-1 && s[next] == '.' && isWord[s[next+1]] {
				next = wordEnd(s, next+1)
			}
			return next, secretToken
		}
	}
	if len(word) < 15 {
		return 0, ""
	}
	for _, f := range forms[word[0]] {
		if !bytes.HasPrefix(word, []byte(f.prefix)) {
			continue
		}
		rest := word[len(f.prefix):]
		if f.exactly > 0 {
			if len(word) == f.exactly && !bytes.ContainsFunc(rest, func(r rune) bool { return r >= 'a' || r == '-' || r == '_' }) {
				return end, f.kind
			}
			continue
		}
		// Words joined by dashes are no key: keys are drawn at random and hold digits or capitals.
		if len(word) >= f.least && bytes.ContainsFunc(rest, func(r rune) bool { return r < 'a' && r != '-' && r != '_' }) {
			return end, f.kind
		}
	}
	return 0, ""
}

// jwt recognises a signed or encrypted token whose first part ends at end.
func jwt(s []byte, end int) (to int, kind string) {
	parts, at := 1, end
	for at+1 < len(s) && s[at] == '.' && isWord[s[at+1]] && parts < 5 {
		next := wordEnd(s, at+1)
		if next-at-1 < 8 {
			break
		}
		at, parts = next, parts+1
	}
	if parts >= 3 || parts == 2 && bytes.HasPrefix(s[end:], []byte(".eyJ")) {
		return at, "jwt"
	}
	return 0, ""
}

// privateKey recognises a PEM block of a private key, whole or without its end.
func privateKey(s, word []byte, end int) (to int, kind string) {
	if !bytes.HasSuffix(word, []byte("-----BEGIN")) {
		return 0, ""
	}
	head := s[end:min(len(s), end+48)]
	label, _, closed := bytes.Cut(head, []byte("-----"))
	if !closed || !bytes.Contains(label, []byte("PRIVATE KEY")) {
		return 0, ""
	}
	at := bytes.Index(s[end:], []byte("-----END"))
	if at < 0 {
		return len(s), secretPrivateKey
	}
	at += end + len("-----END")
	if closing := bytes.Index(s[at:], []byte("-----")); closing >= 0 {
		return at + closing + len("-----"), secretPrivateKey
	}
	return len(s), secretPrivateKey
}

func wordEnd(s []byte, i int) int {
	for i < len(s) && isWord[s[i]] {
		i++
	}
	return i
}

// spaced recognises what follows a word after a blank: `Bearer x`, `Basic x` and `--password x`.
func spaced(s, word []byte, end int) (found, bool) {
	from := skipBlanks(s, end)
	if from >= len(s) {
		return found{}, false
	}
	switch {
	case len(word) == 6 && strings.EqualFold(string(word), "bearer"):
		to := headerTokenEnd(s, from)
		value := s[from:to]
		alone := end == len("bearer") && len(bytes.TrimSpace(s[to:])) == 0 && len(value) >= 6 && string(value) != "tokens"
		if alone || len(value) >= 8 && bytes.ContainsFunc(value, isDigitRune) && bytes.ContainsFunc(value, isLetterRune) {
			return found{from, to, "bearer_token"}, true
		}
	case len(word) == 5 && strings.EqualFold(string(word), "basic"):
		if to := headerTokenEnd(s, from); isBasic(s[from:to]) {
			return found{from, to, "basic_auth"}, true
		}
	case bytes.HasPrefix(word, []byte("--")):
		kind := secretName(bytes.TrimLeft(word, "-"))
		if kind == "" {
			return found{}, false
		}
		v := readValue(s, from)
		kind = settleKind(kind, s[v.from:v.to])
		if kind != "" && !v.placeholder(s) && (v.quoted || v.to-v.from >= 8 || bytes.ContainsFunc(s[v.from:v.to], isNotLowerRune)) {
			return found{v.from, v.to, kind}, true
		}
	}
	return found{}, false
}

func isDigitRune(r rune) bool    { return r >= '0' && r <= '9' }
func isLetterRune(r rune) bool   { return r|0x20 >= 'a' && r|0x20 <= 'z' }
func isNotLowerRune(r rune) bool { return r < 'a' || r > 'z' }

// headerTokenEnd returns the end of the token68 text at from.
func headerTokenEnd(s []byte, from int) int {
	to := from
	for to < len(s) && (isWord[s[to]] || s[to] == '.' || s[to] == '~' || s[to] == '+' || s[to] == '/' || s[to] == '=') {
		to++
	}
	return to
}

// isBasic reports whether a text is the base64 of `user:password`.
func isBasic(s []byte) bool {
	raw, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(string(s), "="))
	if err != nil || len(raw) < 3 || !bytes.Contains(raw, []byte(":")) {
		return false
	}
	return !bytes.ContainsFunc(raw, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\uFFFD' })
}

// userinfo recognises the password in `scheme://user:password@host`; from is the index behind the slashes.
func userinfo(s []byte, from int) (found, bool) {
	to := from
	for to < len(s) && s[to] > ' ' && !bytes.ContainsRune([]byte("/?#\"'<>\\`"), rune(s[to])) {
		to++
	}
	at := bytes.LastIndexByte(s[from:to], '@')
	if at < 1 {
		return found{}, false
	}
	user, _, hasPassword := bytes.Cut(s[from:from+at], []byte(":"))
	v := value{from: from, to: from + at}
	if hasPassword {
		v.from += len(user) + 1
	} else if !looksRandom(user) {
		return found{}, false
	}
	if v.from == v.to || v.placeholder(s) {
		return found{}, false
	}
	return found{v.from, v.to, secretURLPassword}, true
}

// assignment recognises `name=value`, `name: value` and their relatives in code, settings, queries and headers; the
// name is s[start:end].
func assignment(s []byte, start, end int) (found, bool) {
	at := end
	for at < len(s) && (s[at] == '"' || s[at] == '\'' || s[at] == '`' || s[at] == '\\' || s[at] == ']') {
		at++
	}
	quotedName := at > end
	blank := at
	at = skipBlanks(s, at)
	if at >= len(s) || s[at] != '=' && s[at] != ':' {
		return found{}, false
	}
	kind := secretName(bytes.TrimLeft(s[start:end], "-"))
	if kind == "" {
		return found{}, false
	}
	tight := s[at] == '=' && at == blank
	from, ok := behindSeparator(s, at)
	if !ok {
		return found{}, false
	}
	tight = tight && from == at+1
	v := readValue(s, skipBlanks(s, from))
	if !v.quoted && isTypeName(s[v.from:v.to]) { // `password: str = "x"`
		next := skipBlanks(s, v.to)
		if next >= len(s) || s[next] != '=' {
			return found{}, false
		}
		v = readValue(s, skipBlanks(s, next+1))
	}
	if kind == secretAuthorization || kind == secretCookie {
		v = v.header(s, kind)
	}
	kind = settleKind(kind, s[v.from:v.to])
	if kind == "" || v.from == v.to || v.placeholder(s) {
		return found{}, false
	}
	if v.quoted || tight || v.convincing(s) || v.inHeader || quotedName || wholeLine(s, start, v.to) {
		return found{v.from, v.to, kind}, true
	}
	return found{}, false
}

// behindSeparator returns the index behind `=`, `:`, `:=` or `=>` at s[at]; comparisons and paths are none of them.
func behindSeparator(s []byte, at int) (int, bool) {
	next := byte(0)
	if at+1 < len(s) {
		next = s[at+1]
	}
	switch {
	case s[at] == '=' && (next == '=' || next == '~'), s[at] == ':' && (next == ':' || next == '/'):
		return 0, false
	case s[at] == '=' && next == '>', s[at] == ':' && next == '=':
		return at + 2, true
	}
	return at + 1, true
}

func skipBlanks(s []byte, i int) int {
	for i < len(s) && (s[i] == ' ' || s[i] == '\t') {
		i++
	}
	return i
}

// value is s[from:to], what stands behind a name.
type value struct {
	from, to int
	quoted   bool
	inHeader bool
}

// readValue reads a quoted text without its quotes, or a word that ends at a blank or at punctuation.
func readValue(s []byte, i int) value {
	open := i
	for open < len(s) && s[open] == '\\' {
		open++
	}
	if open < len(s) && (s[open] == '"' || s[open] == '\'' || s[open] == '`') {
		closing := s[i : open+1] // With its backslashes, where the whole is escaped once more.
		v := value{from: open + 1, to: len(s), quoted: true}
		for at := v.from; at < len(s) && s[at] != '\n'; at++ {
			if bytes.HasPrefix(s[at:], closing) {
				v.to = at
				return v
			}
			if s[at] == '\\' && len(closing) == 1 {
				at++
			}
		}
		if line := bytes.IndexByte(s[v.from:], '\n'); line >= 0 {
			v.to = v.from + line
		}
		return v
	}
	to := i
	for to < len(s) && s[to] > ' ' && bytes.IndexByte([]byte("\"'`,;&)}]<>\\|"), s[to]) < 0 {
		to++
	}
	return value{from: i, to: to}
}

// header widens the value of an authorization or cookie header, which may hold blanks.
func (v value) header(s []byte, kind string) value {
	if v.quoted || v.from == v.to {
		return v
	}
	if kind == secretCookie {
		if bytes.IndexByte(s[v.from:v.to], '=') < 0 {
			return v
		}
		for v.to < len(s) && s[v.to] != '\n' && s[v.to] != '\r' && s[v.to] != '"' && s[v.to] != '\'' && s[v.to] != '\\' {
			v.to++
		}
		v.inHeader = true
		return v
	}
	switch strings.ToLower(string(s[v.from:v.to])) {
	case "bearer", "basic", "token", "digest", "apikey", "negotiate", "aws4-hmac-sha256":
		next := readValue(s, skipBlanks(s, v.to))
		if next.to > next.from && !next.placeholder(s) {
			next.inHeader = true
			return next
		}
	}
	return v
}

// placeholder reports whether the value stands for a secret and is none: a variable, a type, a mask.
func (v value) placeholder(s []byte) bool {
	text := s[v.from:v.to]
	if len(text) == 0 || bytes.HasPrefix(text, []byte(maskedPrefix)) {
		return true
	}
	if bytes.IndexByte([]byte("$<{%*"), text[0]) >= 0 {
		return true
	}
	if v.quoted {
		return false
	}
	if text[0] == '[' || text[0] == '(' || bytes.IndexByte(text, '(') >= 0 || bytes.IndexByte(text, '[') >= 0 {
		return true // Code that fetches the secret.
	}
	switch strings.ToLower(string(text)) {
	case "null", "none", "nil", "true", "false", "undefined", "=", "==", "...", "-", "|",
		"required", "optional", "missing", "invalid", "incorrect", "wrong", "expired", "empty", "hidden", "redacted":
		return true
	}
	return false
}

// convincing reports whether an unquoted word looks like a secret rather than like prose.
func (v value) convincing(s []byte) bool {
	text := s[v.from:v.to]
	digit, letter := bytes.ContainsFunc(text, isDigitRune), bytes.ContainsFunc(text, isLetterRune)
	return len(text) >= 6 && digit && letter || len(text) >= 20
}

func isTypeName(text []byte) bool {
	switch string(text) {
	case "str", "string", "String", "bytes", "int", "bool", "any", "object", "Optional":
		return true
	}
	return false
}

// wholeLine reports whether nothing but a name and a value, which ends at to, stand in the line, as in YAML.
func wholeLine(s []byte, start, to int) bool {
	for i := start - 1; i >= 0 && s[i] != '\n'; i-- {
		if s[i] != ' ' && s[i] != '\t' && s[i] != '-' {
			return false
		}
	}
	next := skipBlanks(s, to)
	return next >= len(s) || s[next] == '\n' || s[next] == '\r'
}
