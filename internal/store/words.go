package store

import (
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Words are cut here and in migration 0006 in the same way. Scripts that are written without spaces, or with words that
// change at their ends, are cut into pairs of adjacent characters; all others into words, in lower case. A word of one
// letter says too little, and one of more than 64 bytes is no word.
var (
	unspaced = regexp.MustCompile(`[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}ー]+`)
	word     = regexp.MustCompile(`[\p{L}\p{M}\p{N}]+`)
	// compound is a word with what may stand inside of codes, paths and names.
	compound = regexp.MustCompile(`[\p{L}\p{M}\p{N}_]+(?:[-./:@#]+[\p{L}\p{M}\p{N}_]+)*`)
	decimal  = regexp.MustCompile(`^[0-9]+(?:[.,:][0-9]+)?$`)
)

const longestWord = 64

// wordsOf cuts a text into its distinct words, in the order in which they come.
func wordsOf(text string) []string {
	text = strings.ToLower(text)
	var out []string
	seen := map[string]struct{}{}
	add := func(w string) {
		if _, is := seen[w]; !is {
			seen[w] = struct{}{}
			out = append(out, w)
		}
	}
	for _, w := range word.FindAllString(unspaced.ReplaceAllString(text, " "), -1) {
		if utf8.RuneCountInString(w) > 1 && len(w) <= longestWord {
			add(w)
		}
	}
	for _, run := range unspaced.FindAllString(text, -1) {
		runes := []rune(run)
		if len(runes) == 1 {
			add(run)
		}
		for i := range len(runes) - 1 {
			add(string(runes[i : i+2]))
		}
	}
	return out
}

// isCommon says whether an English word tells nothing about what a text is about. Common words of other languages
// weigh little because they are in many items.
func isCommon(w string) bool {
	switch w {
	case "an", "and", "are", "as", "at", "be", "been", "but", "by", "can", "did", "do", "does", "for", "from", "had", "has", "have", "how", "if",
		"in", "into", "is", "it", "its", "me", "my", "of", "on", "or", "our", "should", "so", "than", "that", "the", "their", "them", "then", "there",
		"these", "they", "this", "to", "was", "we", "were", "what", "when", "where", "which", "while", "who", "why", "will", "with", "would", "you", "your":
		return true
	}
	return false
}

// questionWords are the words of a question that say what it is about: all of them when all are common.
func questionWords(text string) []string {
	all := wordsOf(text)
	telling := slices.DeleteFunc(slices.Clone(all), isCommon)
	if len(telling) == 0 {
		telling = all
	}
	return telling[:min(len(telling), maxQuestionWords)]
}

// maxQuestionWords bounds the work for a question that is a whole document.
const maxQuestionWords = 200

// identifiers are the codes and names of a question that mean one thing only: what has a digit, an underscore, or a dot
// or slash inside, what is written in CamelCase, and error codes in capitals. They come in their order, each once.
func identifiers(text string) []string {
	shouted := strings.ToUpper(text) == text
	var out []string
	for _, token := range compound.FindAllString(unspaced.ReplaceAllString(text, " "), -1) {
		if isIdentifier(token, shouted) && !slices.Contains(out, token) && len(out) < maxIdentifiers {
			out = append(out, token)
		}
	}
	return out
}

const maxIdentifiers = 32

// isIdentifier judges one token; in a text that is all in capitals they mean nothing.
func isIdentifier(token string, shouted bool) bool {
	if len(token) < 2 {
		return false
	}
	if decimal.MatchString(token) {
		// Small numbers, amounts and times are in many texts. A status code or number of an order is an identifier.
		return len(token) >= 3 && !strings.ContainsAny(token, ".,:")
	}
	if strings.ContainsAny(token, "_./0123456789") {
		return true
	}
	capitals, camel, letters, before := 0, false, 0, rune(0)
	for _, r := range token {
		if unicode.IsUpper(r) {
			capitals++
			camel = camel || unicode.IsLower(before)
		}
		if unicode.IsLetter(r) {
			letters++
		}
		before = r
	}
	if camel {
		return true
	}
	return !shouted && letters >= 5 && capitals == letters // ENOENT, EACCES
}

// heldTokens are the codes and names that a text has, in lower case.
type heldTokens map[string]struct{}

// tokensOf collects the codes and names of a text.
func tokensOf(text string) heldTokens {
	out := heldTokens{}
	for _, token := range compound.FindAllString(unspaced.ReplaceAllString(strings.ToLower(text), " "), -1) {
		out[token] = struct{}{}
		if !strings.ContainsFunc(token, unicode.IsLetter) {
			continue // Of a number or date no part is a number of its own.
		}
		for _, part := range strings.FieldsFunc(token, func(r rune) bool { return strings.ContainsRune("-./:@#", r) }) {
			if strings.ContainsFunc(part, unicode.IsLetter) {
				out[part] = struct{}{}
			}
		}
	}
	return out
}

// holds says whether the identifier is there as a whole: ERR-42 is not in ERR-421 and not in ERR-42-7. Upper and lower
// case count as the same.
func (h heldTokens) holds(identifier string) bool {
	_, is := h[strings.ToLower(identifier)]
	return is
}
