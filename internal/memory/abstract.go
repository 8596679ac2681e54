package memory

import (
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// replacement is one kind of value and the placeholder that stands for it.
type replacement struct {
	pattern *regexp.Regexp
	with    string
}

const months = `(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sep(?:t(?:ember)?)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)`

var (
	// The order matters: what is found first is not looked at again, since a placeholder holds no value.
	abstractions = []replacement{
		{regexp.MustCompile(`(?i)\b[a-z][a-z0-9+.-]*://[^\s<>"'` + "`" + `，。）)]+`), "<url>"},
		{regexp.MustCompile(`(?i)\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+`), "<email>"},
		{regexp.MustCompile(`(?i)\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`), "<id>"},
		// dates and times
		{regexp.MustCompile(`\b\d{4}[-/.]\d{1,2}[-/.]\d{1,2}(?:[T ]\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?)?\b`), "<date>"},
		{regexp.MustCompile(`\b\d{1,2}[/.]\d{1,2}[/.]\d{2,4}\b`), "<date>"},
		{regexp.MustCompile(`\b\d{4}-\d{2}\b`), "<date>"},
		{regexp.MustCompile(`(?i)\b` + months + `\.?\s+\d{1,2}(?:st|nd|rd|th)?\b(?:,?\s+\d{4}\b)?`), "<date>"},
		{regexp.MustCompile(`(?i)\b\d{1,2}(?:st|nd|rd|th)?\s+(?:of\s+)?` + months + `\b\.?(?:,?\s+\d{4}\b)?`), "<date>"},
		{regexp.MustCompile(`(?i)\b` + months + `\.?,?\s+\d{4}\b`), "<date>"},
		{regexp.MustCompile(`\b(?:January|February|April|June|July|August|September|October|November|December|(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day)\b`), "<date>"},
		{regexp.MustCompile(`(?i)\b(?:the )?(?:last|past|previous|next|this|current|recent|trailing)\s+(?:(?:\d+|two|three|four|five|six|seven|ten|twelve|thirty|few)\s+)?(?:hour|day|week|weekend|month|quarter|year)s?\b|\b(?:yesterday|today|tomorrow)\b|\b(?:first|second|third|fourth)\s+quarter\b(?:\s+of\s+\d{4})?|\bq[1-4]\b`), "<date>"},
		{regexp.MustCompile(`(?i)\b(?:q[1-4][ -]?\d{4}|\d{4}[ -]?q[1-4])\b`), "<date>"},
		{regexp.MustCompile(`(?:\d{2,4}|[二〇零一三四五六七八九]{4})\s*年(?:\s*(?:\d{1,2}|[一二三四五六七八九十]{1,2})\s*月(?:份)?(?:\s*(?:\d{1,2}|[一二三四五六七八九十]{1,3})\s*[日号])?|第[一二三四]季度)?`), "<date>"},
		{regexp.MustCompile(`(?:\d{1,2}|[一二三四五六七八九十]{1,2})\s*月\s*(?:\d{1,2}|[一二三四五六七八九十]{1,3})\s*[日号]`), "<date>"},
		{regexp.MustCompile(`(?:最近|过去|近|前|未来)\s*(?:\d+|[一二两三四五六七八九十百]+|几)\s*(?:个)?(?:小时|天|日|周|星期|月|季度|年)|(?:上上|上|本|这|下|当)(?:个|一)?(?:小时|周|星期|月|季度|年)(?:末|初|底)?|(?:昨天|今天|明天|前天|昨日|今日|当日|去年|今年|明年|前年)|(?:\d{1,2}|[一二三四五六七八九十]{1,2})\s*月(?:份)?|第[一二三四]季度`), "<date>"},
		{regexp.MustCompile(`(?i)\b\d{1,2}:\d{2}(?::\d{2})?(?:\s*[ap]\.?m\b\.?)?`), "<time>"},
		{regexp.MustCompile(`(?i)\b\d{1,2}\s*[ap]m\b`), "<time>"},
		// amounts of money
		{regexp.MustCompile(`(?i)(?:US\$|[$€£¥￥])\s?\d[\d,]*(?:\.\d+)?(?:\s?(?:k|m|million|thousand)\b)?`), "<amount>"},
		{regexp.MustCompile(`(?i)\b(?:USD|EUR|GBP|CNY|RMB|JPY)\s?\d[\d,]*(?:\.\d+)?`), "<amount>"},
		{regexp.MustCompile(`(?i)\b\d[\d,]*(?:\.\d+)?\s?(?:USD|EUR|GBP|CNY|RMB|JPY|dollars?|euros?|pounds?|cents?|yuan|bucks)\b`), "<amount>"},
		{regexp.MustCompile(`(?:\d[\d,]*(?:\.\d+)?|[一二两三四五六七八九十百千万]{1,8})\s?[万亿]?(?:美元|欧元|日元|英镑|人民币|元|块钱)`), "<amount>"},
		{regexp.MustCompile(`\+\d[\d ()-]{7,}\d`), "<phone>"},
		{regexp.MustCompile(`\b(?:\(\d{3}\) ?|\d{3}[-.])\d{3}[-.]\d{4}\b`), "<phone>"},
		{regexp.MustCompile(`\b\d+(?:\.\d+)?\s?[%％]`), "<percent>"},
		{regexp.MustCompile(`(?:\b[A-Za-z]:)?(?:[\\/][\w.\-]+){2,}[\\/]?`), "<path>"},
		// identifiers: words with a digit, or with a sign before them
		{regexp.MustCompile(`#[A-Za-z]*-?\d[\w-]*`), "<id>"},
		{regexp.MustCompile(`\b(?:[A-Za-z]+[\w-]*\d[\w-]*|\d+[\w-]*[A-Za-z_][\w-]*)\b`), "<id>"},
		{regexp.MustCompile(`\b(?:19|20)\d{2}\b`), "<date>"},
		{regexp.MustCompile(`\b\d{7,}\b`), "<id>"},
		{regexp.MustCompile(`\d[\d,]*(?:\.\d+)?`), "<number>"},
	}
	quotedName  = regexp.MustCompile(`"([^"\n]{1,80})"|“([^”\n]{1,80})”|「([^」\n]{1,80})」|『([^』\n]{1,80})』|《([^》\n]{1,80})》|` + "`([^`\n]{1,80})`")
	singleQuote = regexp.MustCompile(`(^|[\s(=:,\[{（：])'([^'\n]{1,80})'`)
	// identifierWord is a name that a program gave: with underscores or dots inside, or in camel case.
	identifierWord = regexp.MustCompile(`\b[A-Za-z]+(?:[_.][A-Za-z]+)+\b|\b[a-z]+(?:[A-Z][a-z]+)+\b`)
	placeholder    = regexp.MustCompile(`<[a-z_ ]+>`)
	// errorCode is what an error is called, which is the lesson and no value.
	errorCode = regexp.MustCompile(`(?i)\b(?:(?:error|err|errno|sqlstate|status|http|code|exit status|exit code|returned)(?:[ _](?:code|status|number))?[ :=#/]*\(?[A-Z]{0,6}[-_]?\d[\w.-]*|E\d{2,6}|ERR[-_]\w+|ORA-\d+|TS\d{4}|PGRST\d+|SQLSTATE\[?\w+\]?)\b|错误(?:代?码)?[ :：]*[A-Za-z]*[-_]?\d+|^\W*(?:error:\s*)?(?:[A-Z]{1,8}[-_]?\d{2,6}|[45]\d\d)\b|[\[(（](?:[A-Z]{1,8}[-_]?\d{2,6})[\])）]|\b(?:at most|at least|no more than|no less than|not exceed|up to|maximum(?: of| is)?|minimum(?: of| is)?|max(?: is)?|min(?: is)?|limit (?:is|of)|less than|greater than|more than|fewer than|between \d+ and|exactly)\s+\d[\d,.]*\d?\b|\b\d{1,4} (?:or (?:more|less|fewer)|digits?|characters?)\b|\b\d{1,4}-(?:digit|character|hour)\b|\d{1,4} ?(?:位|个字符|小时制)|(?:<=|>=|≤|≥)\s?\d+|(?:不超过|最多|最少|至少|不少于|不能超过|上限为?|下限为?|不得超过|大于|小于)\s*\d+`)
	blanks    = regexp.MustCompile(`\s+`)
)

// Abstract replaces what is particular in a text by typed placeholders: addresses, links, identifiers, dates, times,
// amounts, numbers, in English and Chinese, and names in quotes. Words of vocabulary, such as names of tools and
// parameters, stay where keep has them. It is idempotent.
func Abstract(text string, keep ...string) string {
	return abstractOutside(text, nil, keep)
}

// AbstractError is [Abstract] for the text of an error: codes of errors and of HTTP stay, for they are the lesson.
func AbstractError(text string, keep ...string) string {
	return abstractOutside(text, codes, keep)
}

// abstractTold is [AbstractError] where it is known what the instance is about: words of the tool's own stay too, which
// hold a digit and are not of the instance, such as UA-8, E.164 and 24-hour.
func abstractTold(text string, of instance, keep []string) string {
	return abstractOutside(text, func(text string) [][]int { return append(codes(text), toolWords(text, of)...) }, keep)
}

// instance is all that one task has said before a tool answered: the goal, messages, parameters and earlier results, in
// lower case.
type instance string

// has reports that a value is of the instance. Without any text nothing is known, and every value may be.
func (i instance) has(value string) bool {
	return i == "" || holds(string(i), strings.ToLower(strings.Trim(value, "#.,;: ")))
}

var (
	// toolWord is what a tool may call something by: a code, a standard, a form. A bare number is none: it may be a count of
	// the moment. The examples that a tool gives of a form are its own as well.
	toolWord = regexp.MustCompile(`\b(?:[A-Za-z]+[\w-]*\d[\w-]*|\d+[\w-]*[A-Za-z_][\w-]*)\b|\b[A-Z]{1,6}\.\d{1,5}\b|\b[A-Z]{2,6} \d{1,5}\b|[(\[]\d{1,5}[)\]]|(?i:(?:e\.g\.|for example|such as|例如|比如)[:,， ]*["'\x60]?)([\w./:+-]{2,24})`)
	// running names what numbers every call by itself.
	running = regexp.MustCompile(`(?i)\b(?:request|trace|span|correlation|session|transaction|job|run|ticket|order|reference|ref|id|no|number)[\w ]{0,6}[ :=#]+$|#$|(?:单号|编号|订单|请求|流水号|工单)[:： #]*$`)
	// labelled ends before a word that says which code, form or version, and not which thing: seat 14C is a thing.
	labelled     = regexp.MustCompile(`(?i)(?:^[^\p{L}\p{N}]*|[:：(（\[【"'“‘=,，;；]\s*|\b(?:in|as|be|is|are|was|an?|with|by|use|using|follows?|per|expected|expects|wants?|requires?|supports?|allowed|valid|code|error|err|errno|status|rule|policy|form|format|standard|version|schema|type|field|parameter|option|like|or|and|than|not)\s+|(?:为|是|用|按|如|成|码|误|式)\s*)$`)
	standard     = regexp.MustCompile(`^(?:[A-Z]{1,6}[. ]\d{1,5}|[(\[]\d{1,5}[)\]])$`)
	currencyWord = regexp.MustCompile(`^(?:USD|EUR|GBP|CNY|RMB|JPY)\b`)
)

// Of a tool's own word, how long it may be and how many digits it may have: longer ones number things.
const (
	maxToolWord       = 24
	maxToolWordDigits = 4
)

// toolWords finds the words of a tool's own in what it said.
func toolWords(text string, of instance) [][]int {
	if of == "" {
		return nil
	}
	var out [][]int
	for _, at := range toolWord.FindAllStringSubmatchIndex(text, -1) {
		from, to := at[0], at[1]
		example := at[2] >= 0
		if example {
			from, to = at[2], at[3]
		}
		word := text[from:to]
		digits := 0
		for _, r := range word {
			if '0' <= r && r <= '9' {
				digits++
			}
		}
		if len(word) > maxToolWord || of.has(strings.Trim(word, "()[]")) || currencyWord.MatchString(word) {
			continue
		}
		if !example && (digits > maxToolWordDigits || running.MatchString(text[:from]) || !standard.MatchString(word) && !labelled.MatchString(text[:from])) {
			continue
		}
		out = append(out, []int{from, to})
	}
	return out
}

// codes finds what errors are called, and limits.
func codes(text string) [][]int { return errorCode.FindAllStringIndex(text, -1) }

// AbstractLesson is [AbstractError] for a lesson, which quotes what its evidence says: quotes and names in backquotes stay,
// for they are checked against the evidence.
func AbstractLesson(text string, keep ...string) string {
	text = strings.TrimSpace(blanks.ReplaceAllString(text, " "))
	var b strings.Builder
	at := 0
	for _, q := range lessonQuote.FindAllStringIndex(text, -1) {
		b.WriteString(replaceOutside(text[at:q[0]], codes, keep))
		b.WriteString(text[q[0]:q[1]])
		at = q[1]
	}
	b.WriteString(replaceOutside(text[at:], codes, keep))
	return b.String()
}

var lessonQuote = regexp.MustCompile("`[^`]+`|\"[^\"]+\"|“[^”]+”|「[^」]+」")

// abstractOutside abstracts all but placeholders, kept words and what spare finds.
func abstractOutside(text string, spare func(string) [][]int, keep []string) string {
	text = strings.TrimSpace(blanks.ReplaceAllString(text, " "))
	text = quotedName.ReplaceAllStringFunc(text, func(q string) string {
		inner := strings.Trim(q, "\"“”「」『』《》`")
		if kept(inner, keep) || placeholder.MatchString(inner) || spare != nil && len(spare(inner)) > 0 {
			return q
		}
		return "<name>"
	})
	text = singleQuote.ReplaceAllStringFunc(text, func(q string) string {
		at := strings.IndexByte(q, '\'')
		inner := q[at+1 : len(q)-1]
		if kept(inner, keep) || placeholder.MatchString(inner) || spare != nil && len(spare(inner)) > 0 {
			return q
		}
		return q[:at] + "<name>"
	})
	return replaceOutside(text, spare, keep)
}

// replaceOutside replaces values but in placeholders, kept words and what spare finds.
func replaceOutside(text string, spare func(string) [][]int, keep []string) string {
	type span struct{ from, to int }
	var spared []span
	for _, at := range placeholder.FindAllStringIndex(text, -1) {
		spared = append(spared, span{at[0], at[1]})
	}
	if spare != nil {
		for _, at := range spare(text) {
			spared = append(spared, span{at[0], at[1]})
		}
	}
	for _, word := range keep {
		if word == "" {
			continue
		}
		for from := 0; ; {
			i := strings.Index(text[from:], word)
			if i < 0 {
				break
			}
			spared = append(spared, span{from + i, from + i + len(word)})
			from += i + len(word)
		}
	}
	slices.SortFunc(spared, func(a, b span) int { return a.from - b.from })
	var b strings.Builder
	at := 0
	for _, s := range spared {
		if s.from < at {
			continue
		}
		b.WriteString(replaceValues(text[at:s.from]))
		b.WriteString(text[s.from:s.to])
		at = s.to
	}
	b.WriteString(replaceValues(text[at:]))
	return b.String()
}

func kept(word string, keep []string) bool { return slices.Contains(keep, word) }

func replaceValues(text string) string {
	for _, r := range abstractions {
		if !strings.ContainsAny(text, "<") {
			text = r.pattern.ReplaceAllString(text, r.with)
			continue
		}
		// What was replaced already is not to be looked into.
		var b strings.Builder
		at := 0
		for _, p := range placeholder.FindAllStringIndex(text, -1) {
			b.WriteString(r.pattern.ReplaceAllString(text[at:p[0]], r.with))
			b.WriteString(text[p[0]:p[1]])
			at = p[1]
		}
		b.WriteString(r.pattern.ReplaceAllString(text[at:], r.with))
		text = b.String()
	}
	return text
}

// Cut shortens a text to at most n runes, the last of which is … where something was cut off.
func Cut(text string, n int) string {
	if utf8.RuneCountInString(text) <= n {
		return text
	}
	runes := []rune(text)
	return strings.TrimRight(string(runes[:max(n-1, 0)]), " ,;:，；：") + "…"
}
