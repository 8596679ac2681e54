package events

import "bytes"

// maybeToken is the kind of fields such as `token` and `ci_token`, which hold a credential or a word: the value decides.
const maybeToken = "maybe_token"

// settleKind decides a kind by the value where the name alone does not.
func settleKind(kind string, value []byte) string {
	if kind != maybeToken {
		return kind
	}
	if looksRandom(value) {
		return secretToken
	}
	return ""
}

// looksRandom reports whether a value has the form of an opaque token: 16 or more characters without blanks, letters and
// digits among them.
func looksRandom(value []byte) bool {
	var letter, digit bool
	for _, c := range value {
		switch {
		case isLetter(c):
			letter = true
		case isDigit(c):
			digit = true
		case c <= ' ' || c >= 0x7f:
			return false
		}
	}
	return len(value) >= 16 && letter && digit
}

// secretName says of which kind the value of a field is by the field's name, or "" when it is no secret. Words may be
// parted by case or by - _ . and blanks, and other words may stand before: `x-api-key`, `openaiApiKey`, `DB_PASSWORD`.
// The name must *end* in the telling words: `password_policy`, `secretary` and `max_tokens` are no secrets.
func secretName(name []byte) string {
	for _, word := range [...]string{"密码", "口令", "密钥", "令牌"} {
		if bytes.HasSuffix(name, []byte(word)) {
			return secretPassword
		}
	}
	var n normalName
	n.set(name)
	if n.len < 3 {
		return ""
	}
	compact := n.buf[:n.len]
	switch compact[n.len-1] {
	case 'd': // password, passwd, pwd
		if n.endsIn("password") || n.endsIn("passwd") || n.endsIn("pwd") && n.len > 3 { // PWD is the shell's folder.
			return secretPassword
		}
	case 'e':
		switch {
		case n.endsIn("passphrase"), n.endsIn("passcode"):
			return secretPassword
		case string(compact) == "cookie", string(compact) == "setcookie", n.endsIn("sessioncookie"), n.endsIn("authcookie"):
			return secretCookie
		}
	case 's':
		return n.plural()
	case 'l':
		if n.endsIn("credential") {
			return secretCredential
		}
	case 't':
		if n.endsIn("secret") {
			return secretSecret
		}
	case 'y':
		return n.key()
	case 'n':
		return n.tokenOrAuthorization()
	}
	return ""
}

func (n *normalName) plural() string {
	switch {
	case n.endsIn("passwords"):
		return secretPassword
	case n.endsIn("secrets"):
		return secretSecret
	case n.endsIn("apikeys"):
		return secretAPIKey
	case n.endsIn("credentials"):
		return secretCredential
	case string(n.buf[:n.len]) == "cookies":
		return secretCookie
	}
	return ""
}

func (n *normalName) key() string {
	switch {
	case n.endsIn("apikey"), n.endsIn("subscriptionkey"):
		return secretAPIKey
	case n.endsIn("privatekey"):
		return secretPrivateKey
	case n.endsIn("secretkey"), n.endsIn("secretaccesskey"), n.endsIn("signingkey"), n.endsIn("encryptionkey"),
		n.endsIn("accountkey"), n.endsIn("masterkey"), n.endsIn("sharedaccesskey"):
		return secretKey
	}
	return ""
}

func (n *normalName) tokenOrAuthorization() string {
	switch string(n.buf[:n.len]) {
	case "authorization", "proxyauthorization", "xauthorization", "httpauthorization":
		return secretAuthorization
	}
	if !n.endsIn("token") {
		return ""
	}
	for _, kind := range [...]string{
		"accesstoken", "refreshtoken", "idtoken", "authtoken", "bearertoken", "sessiontoken", "securitytoken", "apitoken",
		"secrettoken", "oauthtoken", "bottoken", "usertoken", "deploytoken", "jwttoken", "csrftoken", "xsrftoken",
		"githubtoken", "ghtoken", "gitlabtoken", "slacktoken", "npmtoken", "hftoken", "vaulttoken", "hindsighttoken",
	} {
		if n.endsIn(kind) {
			return secretToken
		}
	}
	for _, harmless := range [...]string{
		"nexttoken", "pagetoken", "continuationtoken", "cursortoken", "synctoken", "resumetoken", "eostoken", "bostoken",
		"padtoken", "unktoken", "septoken", "masktoken", "clstoken", "idempotencytoken",
	} {
		if n.endsIn(harmless) {
			return ""
		}
	}
	return maybeToken
}

// normalName is a field's name in lower case without separators, with a bit for each byte that begins a word.
type normalName struct {
	buf    [64]byte
	len    int
	begins uint64
}

func (n *normalName) set(name []byte) {
	if len(name) > len(n.buf) {
		name = name[len(name)-len(n.buf):] // Only the end tells.
	}
	begin := true
	for i, c := range name {
		switch {
		case c == '_' || c == '-' || c == '.' || c == ' ' || c == '/' || c == ':':
			begin = true
			continue
		case 'A' <= c && c <= 'Z':
			if i > 0 && (isLower(name[i-1]) || isDigit(name[i-1]) || i+1 < len(name) && isLower(name[i+1])) {
				begin = true
			}
			c |= 0x20
		}
		if begin {
			n.begins |= 1 << n.len
		}
		begin = false
		n.buf[n.len] = c
		n.len++
	}
}

// endsIn reports whether the name ends in the words, given without separators, and a word begins there.
func (n *normalName) endsIn(words string) bool {
	at := n.len - len(words)
	return at >= 0 && n.begins&(1<<at) != 0 && bytes.HasSuffix(n.buf[:n.len], []byte(words))
}

func isLower(c byte) bool { return 'a' <= c && c <= 'z' }

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isLetter(c byte) bool { return isLower(c | 0x20) }
