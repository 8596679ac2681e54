package embed

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// MaxTextBytes is the most of a text that is embedded; the rest is cut off on
// a rune boundary. A model may take less: [Local] takes 512 tokens, which is
// about 2,000 letters of English or 700 Chinese characters.
const MaxTextBytes = 8192

// Clean returns text as it is embedded: valid UTF-8 in composed form, each run
// of white space and control characters one space, none at the ends, and at
// most maxBytes bytes, cut on a rune boundary. It returns [ErrEmptyText] when
// nothing visible is left.
func Clean(text string, maxBytes int) (string, error) {
	text = norm.NFC.String(strings.ToValidUTF8(text, "\uFFFD"))
	var b strings.Builder
	b.Grow(min(len(text), maxBytes))
	visible, space := false, false
	for _, r := range text {
		if unicode.IsSpace(r) || unicode.IsControl(r) {
			space = b.Len() > 0
			continue
		}
		need := utf8.RuneLen(r)
		if space {
			need++
		}
		if b.Len()+need > maxBytes {
			break
		}
		if space {
			b.WriteByte(' ')
			space = false
		}
		b.WriteRune(r)
		if r != utf8.RuneError && !unicode.Is(unicode.Cf, r) && !unicode.Is(unicode.M, r) {
			visible = true
		}
	}
	if !visible {
		return "", ErrEmptyText
	}
	return b.String(), nil
}

// cut returns the longest prefix of text, on a rune boundary, of at most n
// bytes.
func cut(text string, n int) string {
	if n >= len(text) {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

// Language guesses the language of text from its script: zh, ja, ko, ru, ar,
// en for Latin letters and for no letters at all, or "" for any other script.
// The script with the most letters wins, where a Han, kana or hangul character
// counts three (it says about as much as three letters). Any kana makes Han
// Japanese. That is enough to choose a mean; it does not tell French from
// English or Ukrainian from Russian.
func Language(text string) string {
	var han, kana, hangul, cyrillic, arabic, latin, other int
	for _, r := range text {
		switch {
		case r < utf8.RuneSelf:
			if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
				latin++
			}
		case !unicode.IsLetter(r):
		case unicode.Is(unicode.Han, r):
			han += 3
		case unicode.In(r, unicode.Hiragana, unicode.Katakana):
			kana += 3
		case unicode.Is(unicode.Hangul, r):
			hangul += 3
		case unicode.Is(unicode.Cyrillic, r):
			cyrillic++
		case unicode.Is(unicode.Arabic, r):
			arabic++
		case unicode.Is(unicode.Latin, r):
			latin++
		default:
			other++
		}
	}
	east := "zh"
	if kana > 0 {
		east = "ja"
	}
	best, most := "en", latin
	for _, c := range []struct {
		language string
		letters  int
	}{{east, han + kana}, {"ko", hangul}, {"ru", cyrillic}, {"ar", arabic}, {"", other}} {
		if c.letters > most {
			best, most = c.language, c.letters
		}
	}
	return best
}
