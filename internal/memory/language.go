package memory

import "unicode"

// Language is the language that lessons are worded in. Names, tools and quotes stay as they are.
type Language string

// Languages that the evidence critic words lessons in.
const (
	LanguageEnglish Language = "en"
	LanguageChinese Language = "zh"
)

// LanguageOf tells by their script what language texts are in: Chinese where a good part of the words are Han characters
// and there is no kana, else English, which also stands in for all others. Names of tools among Chinese text do not
// make it English.
func LanguageOf(texts ...string) Language {
	han, kana, words := 0, 0, 0
	inWord := false
	for _, text := range texts {
		for _, r := range text {
			switch {
			case unicode.Is(unicode.Han, r):
				han++
				inWord = false
			case unicode.In(r, unicode.Hiragana, unicode.Katakana, unicode.Hangul):
				kana++
				inWord = false
			case unicode.IsLetter(r) || r == '_':
				if !inWord {
					words++
				}
				inWord = true
			default:
				inWord = false
			}
		}
		inWord = false
	}
	if han > 0 && kana*5 < han && han*10 >= (han+words)*3 {
		return LanguageChinese
	}
	return LanguageEnglish
}
