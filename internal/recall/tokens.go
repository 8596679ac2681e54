package recall

import "unicode"

// EstimateTokens is about how many tokens a model reads a text as: a quarter of a token for a letter of an alphabet,
// one for an ideograph or syllable. Against o200k_base it errs on the high side for English and is near for Chinese; a
// budget needs no more, and a table of two megabytes is not loaded for it.
func EstimateTokens(text string) int {
	quarters := 0
	for _, r := range text {
		switch {
		case unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul):
			quarters += 4
		case unicode.IsLetter(r) || unicode.IsSpace(r):
			quarters++
		default: // digits and signs rarely share a token
			quarters += 2
		}
	}
	return (quarters + 3) / 4
}
