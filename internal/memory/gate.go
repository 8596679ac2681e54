package memory

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// Reasons for which a lesson does not pass [Gate]; test with errors.Is.
var (
	ErrTooShort      = errors.New("the lesson is too short to be specific")
	ErrEmptyPraise   = errors.New("the lesson is praise or good advice without content")
	ErrNamesNothing  = errors.New("the lesson names no tool, parameter, error or condition")
	ErrNotGrounded   = errors.New("the lesson names something that its evidence does not have")
	ErrNoInstruction = errors.New("the lesson does not say what to do")
	ErrInstructs     = errors.New("the lesson holds something that must not enter an item")
)

const minLesson = 10

// Evidence is what a lesson is checked against.
type Evidence struct {
	// Text is all that the evidence says.
	Text string
	// Vocabulary are the tools and parameters in it.
	Vocabulary []string
	// Error is the error it is about, or empty.
	Error string
}

var (
	praise = regexp.MustCompile(`(?i)\b(?:good|great|excellent|nice|amazing|fantastic|perfect|outstanding|solid) (?:job|work|effort|performance|execution)\b|\bwell done\b|\bkeep (?:it )?up\b|\bkeep up the\b|\b(?:be|stay) (?:more )?(?:careful|cautious|attentive|mindful|thorough|diligent)\b|\btry (?:harder|again|your best)\b|\bdo (?:better|your best)\b|\bpay (?:more )?attention\b|\bdouble[- ]check everything\b|\blearn from (?:this|your|the) (?:mistake|error|experience)s?\b|\b(?:task|agent|it|everything) (?:was |were )?(?:completed|done|handled|executed|performed|went) (?:very )?(?:successfully|well|smoothly|perfectly|efficiently)\b|\bno (?:issues|problems|lesson)\b|做得(?:很|非常)?好|干得(?:漂亮|好)|表现(?:很|非常)?(?:好|出色|优秀)|完成得(?:很|非常)?好|任务(?:已)?(?:顺利|成功|圆满)完成|继续保持|再接再厉|继续努力|(?:要|请|应)?(?:更加?|多)?(?:小心|仔细|谨慎|注意|认真|细心)(?:一点|一些|些)?(?:[。！!]|$)|吸取教训|下次(?:注意|努力|加油)|buen trabajo|bien hecho|sigue así|bon travail|bien joué|continuez ainsi|gute arbeit|gut gemacht|weiter so|ottimo lavoro|ben fatto|bom trabalho|muito bem|よくでき|頑張|お疲れ|素晴らしい|잘했|수고|отличная работа|молодец|хорошая работа|أحسنت|عمل جيد`)
	// condition is a word that says when.
	condition   = regexp.MustCompile(`(?i)\b(?:when|whenever|if|before|after|unless|until|while|once|because|in case|every time|instead of|only)\b|当|如果|若|时(?:候)?|之前|之后|前先|除非|一旦|每次|遇到|对于|而不是|quand|lorsque|wenn|bevor|cuando|antes|quando|prima|если|когда|перед|場合|とき|前に|면|때`)
	instruction = regexp.MustCompile(`(?i)\b(?:use|call|pass|give|check|ask|set|add|remove|make|avoid|do not|don't|never|always|must|should|need(?:s)? to|verify|confirm|look (?:up|it|them|for)|read|fetch|get|retry|wait|prefer|include|replace|convert|split|stop|choose|send|provide|rename|write|format|call|compute|calculate|sum|compare|search|follow|take|try|keep|start|run|apply|limit|filter|tell|offer|hand|transfer|leave|skip|ensure|specify|require|validate|query|change|repeat|fix|enable|disable|install|create|delete|update|omit|query)\b|应当?|必须|需要|需|先|请|使用|改用|调用|检查|核对|核实|确认|不要|不能|避免|勿|务必|传入?|传递|设置?|设为|添加|增加|加上|去掉|删除|询问|查询|获取|读取|换成|改成|改为|按|比较|补充|补上|重命名|停止|告诉|用|让`)
	// mark is what a lesson puts between signs: names in backquotes, quotes.
	backquoted = regexp.MustCompile("`([^`]{1,120})`")
	quotation  = regexp.MustCompile(`"([^"]{1,400})"|“([^”]{1,400})”|「([^」]{1,400})」`)
	named      = regexp.MustCompile(`[A-Za-z][\w-]*(?:[_.][\w-]+)+|\b[a-z]+(?:[A-Z][a-z0-9]+)+\b|\b[A-Za-z]+[-_]?\d[\w-]*\b|\b\d[\d,]*(?:\.\d+)?\b`)
	abbreviate = map[string]bool{"e.g": true, "i.e": true, "etc.": true}
)

// Gate checks a lesson against its evidence: specific (long enough, no empty praise, names a tool, a parameter, an error
// or a condition), actionable (says what to do) and grounded (every tool, parameter, code, identifier, number and quote
// in it occurs in the evidence). Placeholders such as <amount> stand for anything.
func Gate(lesson string, e Evidence) error {
	text := strings.TrimSpace(lesson)
	if utf8.RuneCountInString(text) < minLesson {
		return ErrTooShort
	}
	if InstructsAgent(text) {
		return fmt.Errorf("%w: it tries to instruct the agent", ErrInstructs)
	}
	if _, found := CleanExternal(text); len(found) > 0 {
		return fmt.Errorf("%w: %s", ErrInstructs, strings.Join(found, ", "))
	}
	names := namesSomething(text, e)
	if praise.MatchString(text) && !names {
		return ErrEmptyPraise
	}
	if !names && !condition.MatchString(text) {
		return ErrNamesNothing
	}
	if !names && !sharesWords(text, e.Text) {
		return ErrNamesNothing
	}
	if readable(text) && !instruction.MatchString(text) {
		return ErrNoInstruction
	}
	return grounded(text, e)
}

// namesSomething reports a lesson that names a word of the vocabulary or the error.
func namesSomething(text string, e Evidence) bool {
	lower := strings.ToLower(text)
	for _, w := range e.Vocabulary {
		if len(w) > 1 && holds(lower, strings.ToLower(w)) {
			return true
		}
	}
	if code := errorCode.FindString(e.Error); code != "" && strings.Contains(lower, strings.ToLower(code)) {
		return true
	}
	words := strings.FieldsFunc(strings.ToLower(placeholder.ReplaceAllString(e.Error, " ")), func(r rune) bool { return !unicode.IsLetter(r) })
	hit := 0
	for _, w := range words {
		if len(w) > 3 && strings.Contains(lower, w) {
			hit++
		}
	}
	return hit >= 2
}

// sharesWords reports that a lesson speaks of what its evidence speaks of: two words of content, or Chinese pairs.
func sharesWords(text, evidence string) bool {
	evidence = strings.ToLower(evidence)
	hit := 0
	for _, w := range strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) }) {
		runes := []rune(w)
		if unicode.Is(unicode.Han, runes[0]) {
			for i := 0; i+2 <= len(runes); i++ {
				if strings.Contains(evidence, string(runes[i:i+2])) {
					hit++
				}
			}
		} else if len(runes) > 4 && strings.Contains(evidence, w) {
			hit++
		}
	}
	return hit >= 2
}

// readable reports a text in a language whose instructions are recognised: English or Chinese.
func readable(text string) bool {
	han, latin, other := 0, 0, 0
	for _, r := range text {
		switch {
		case unicode.Is(unicode.Han, r):
			han++
		case unicode.In(r, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Cyrillic, unicode.Arabic, unicode.Thai, unicode.Hebrew, unicode.Devanagari, unicode.Greek):
			other++
		case r < utf8.RuneSelf && unicode.IsLetter(r):
			latin++
		}
	}
	if other > 0 && other*4 > han+latin {
		return false
	}
	if han > 0 {
		return true
	}
	return len(englishWord.FindAllString(text, 2)) == 2
}

var englishWord = regexp.MustCompile(`(?i)\b(?:the|and|with|for|when|before|of|to|was|it|this|that|by|from)\b`)

// Grounded checks only the last of what [Gate] checks: that every tool, parameter, code, identifier, number and quote in a
// text occurs in the evidence.
func Grounded(text string, e Evidence) error { return grounded(text, e) }

// grounded checks all that a lesson names.
func grounded(text string, e Evidence) error {
	evidence := normal(e.Text + "\n" + e.Error + "\n" + strings.Join(e.Vocabulary, "\n"))
	// A quote is of the text as it is or without its values; the latter is needed seldom and costs much.
	abstracted := sync.OnceValue(func() string { return normal(AbstractError(e.Text, e.Vocabulary...)) })
	in := func(part string) bool { return occurs(evidence, part) || occurs(abstracted(), part) }
	rest := text
	for _, m := range backquoted.FindAllStringSubmatch(text, -1) {
		if !in(m[1]) {
			return fmt.Errorf("%w: `%s`", ErrNotGrounded, m[1])
		}
	}
	for _, m := range quotation.FindAllStringSubmatch(text, -1) {
		quoted := m[1] + m[2] + m[3]
		if !in(quoted) {
			return fmt.Errorf("%w: %q", ErrNotGrounded, quoted)
		}
	}
	rest = backquoted.ReplaceAllString(rest, " ")
	rest = quotation.ReplaceAllString(rest, " ")
	rest = placeholder.ReplaceAllString(rest, " ")
	for _, name := range named.FindAllString(rest, -1) {
		name = strings.TrimRight(name, ".-")
		if abbreviate[strings.ToLower(name)] {
			continue
		}
		if !holds(evidence, strings.ToLower(name)) {
			return fmt.Errorf("%w: %s", ErrNotGrounded, name)
		}
	}
	return nil
}

func normal(s string) string {
	s = strings.NewReplacer(`\"`, `'`, `"`, `'`, "`", "'", "[].", ".", "[]", "").Replace(s)
	return strings.ToLower(strings.TrimSpace(blanks.ReplaceAllString(s, " ")))
}

// occurs finds a quote in a text; placeholders and the cut mark … stand for anything.
func occurs(text, quote string) bool {
	parts := splitQuote.Split(normal(quote), -1)
	parts = slices.DeleteFunc(parts, func(p string) bool { return strings.Trim(p, " ,.;:'") == "" })
	at := 0
	for _, p := range parts {
		p = strings.TrimSpace(p)
		i := strings.Index(text[at:], p)
		if i < 0 {
			return false
		}
		at += i + len(p)
	}
	return true
}

var splitQuote = regexp.MustCompile(`<[a-z_ ]+>|…`)
