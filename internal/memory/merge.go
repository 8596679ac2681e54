package memory

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
)

// Thresholds are cosines of one embedding model: from Related on two texts are about the same matter, from Duplicate on
// they say the same.
type Thresholds struct {
	Related   float64
	Duplicate float64
}

// Statement is what counts when two lessons are compared.
type Statement struct {
	Tool         string `json:"tool"`
	ErrorType    string `json:"error_type"`
	ErrorMessage string `json:"error_message"`
	Lesson       string `json:"lesson"`
	AppliesWhen  string `json:"applies_when"`
}

// StatementOf gives what a snapshot states. One without a reflection states nothing.
func StatementOf(s Snapshot) Statement {
	out := Statement{
		Tool: s.Decision.ToolSelected, ErrorType: s.Outcome.ErrorType, ErrorMessage: s.Outcome.ErrorMessage, AppliesWhen: s.AppliesWhen,
	}
	if s.Reflection != nil {
		out.Lesson = s.Reflection.Lesson
	}
	return out
}

// Subject names what a statement is about: tool and error, without values. Only statements of one subject are compared.
func (s Statement) Subject() string {
	return strings.ToLower(s.Tool) + "\x00" + strings.ToLower(s.ErrorType) + "\x00" + ErrorSignature(s.ErrorMessage)
}

// Words is the lesson without case, spaces and punctuation: two of the same words say the same, if all else agrees.
func (s Statement) Words() string { return bareText(s.Lesson) }

// Likeness says how two statements stand to each other.
type Likeness string

// Likenesses.
const (
	// LikenessNone means that they have nothing to do with each other, or apply to different conditions.
	LikenessNone Likeness = "none"
	// LikenessRelated means that they are about the same matter and do not say the same.
	LikenessRelated Likeness = "related"
	// LikenessSame means that they say the same.
	LikenessSame Likeness = "same"
	// LikenessOpposed means that they are about the same matter and say the opposite.
	LikenessOpposed Likeness = "opposed"
)

// Compare tells how two statements stand to each other. Whatever the similarity, they say the same only if tool, error
// and condition agree and neither names a number, a parameter, a negation or a direction that the other does not: texts
// with the same words and another decision are not the same. similarity is the cosine of their vectors, and below -1
// where there is none; then only the same words say the same.
func Compare(a, b Statement, similarity float64, t Thresholds) Likeness {
	if a.Lesson == "" || b.Lesson == "" || a.Subject() != b.Subject() {
		return LikenessNone
	}
	sameText := bareText(a.Lesson) == bareText(b.Lesson)
	if sameText {
		similarity = 1
	}
	if similarity < t.Related || similarity < -1 {
		return LikenessNone
	}
	if !agree(a.AppliesWhen, b.AppliesWhen) {
		return LikenessNone
	}
	switch {
	case sameText:
		return LikenessSame
	case opposed(a.Lesson, b.Lesson):
		return LikenessOpposed
	case similarity >= t.Duplicate && !toldApart(a.Lesson, b.Lesson):
		return LikenessSame
	default:
		return LikenessRelated
	}
}

// agree reports that two conditions are the same: nothing in them tells them apart, and most of the words are shared. A
// statement that applies always is not one that applies sometimes.
func agree(a, b string) bool {
	if bareText(a) == bareText(b) {
		return true
	}
	return bareText(a) != "" && bareText(b) != "" && !toldApart(a, b) && overlap(words(a), words(b)) >= 0.7
}

var (
	markWord = regexp.MustCompile(`[A-Za-z]+(?:[_.][A-Za-z0-9]+)+|[a-z]+(?:[A-Z][a-z0-9]+)+|<[a-z_ ]+>|\d+(?:[.,]\d+)*`)
	negation = regexp.MustCompile(`(?i)\b(?:not|no|never|without|cannot|none|neither|nor|avoid|don't|doesn't|isn't|aren't|won't|can't|mustn't|shouldn't|didn't)\b|[不没無无未勿莫]|别|禁止|避免`)
	// directions are pairs of words that turn a statement round.
	directions = [][2]*regexp.Regexp{
		{regexp.MustCompile(`(?i)\bbefore\b|\bfirst\b|之前|先`), regexp.MustCompile(`(?i)\bafter\b|之后|后`)},
		{regexp.MustCompile(`(?i)\b(?:add|include|append)\b|添加|增加`), regexp.MustCompile(`(?i)\b(?:remove|omit|drop|exclude|delete)\b|删除|去掉|省略`)},
		{
			regexp.MustCompile(`(?i)\b(?:increase|raise|more|larger|higher|above|over|longer)\b|提高|增大|更多|更大|高于`),
			regexp.MustCompile(`(?i)\b(?:decrease|lower|reduce|fewer|less|smaller|below|under|shorter)\b|降低|减小|减少|更少|更小|低于`),
		},
		{regexp.MustCompile(`(?i)\b(?:enable|allow|start|open)\b|启用|允许|开启`), regexp.MustCompile(`(?i)\b(?:disable|forbid|stop|close)\b|禁用|关闭`)},
	}
)

// marks are the names of parameters and the numbers in a text.
func marks(text string) []string {
	out := markWord.FindAllString(text, -1)
	slices.Sort(out)
	return slices.Compact(out)
}

// turned reports that one of two texts is negated, or points in the other direction.
func turned(a, b string) bool {
	negated := func(text string) bool { return len(negation.FindAllString(text, -1))%2 == 1 }
	if negated(a) != negated(b) {
		return true
	}
	return slices.ContainsFunc(directions, func(d [2]*regexp.Regexp) bool {
		ax, ay, bx, by := d[0].MatchString(a), d[1].MatchString(a), d[0].MatchString(b), d[1].MatchString(b)
		return ax && !ay && by && !bx || ay && !ax && bx && !by
	})
}

// toldApart reports that two texts of similar meaning say different things: they name different parameters or numbers,
// one is turned round, or one word stands in the place of another while all others are the same.
func toldApart(a, b string) bool {
	if turned(a, b) || !slices.Equal(marks(a), marks(b)) {
		return true
	}
	x, y := words(a), words(b)
	both := inBoth(x, y)
	return both >= 3 && len(x)-both == 1 && len(y)-both == 1
}

// opposed reports that two texts have most of their words in common, and one is the other turned round.
func opposed(a, b string) bool { return overlap(words(a), words(b)) >= 0.6 && turned(a, b) }

// words are the words of a text, and the signs of one that is written without spaces; words without meaning are left out.
func words(text string) []string {
	var out []string
	for _, w := range strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '_' }) {
		if strings.ContainsFunc(w, func(r rune) bool { return unicode.Is(unicode.Han, r) }) {
			for _, r := range w {
				out = append(out, string(r))
			}
			continue
		}
		if !stopWord(w) && !negation.MatchString(w) {
			out = append(out, w)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// overlap is the share of words that two sorted lists have in common (Jaccard).
func overlap(a, b []string) float64 {
	if len(a) == 0 && len(b) == 0 {
		return 1
	}
	both := inBoth(a, b)
	return float64(both) / float64(len(a)+len(b)-both)
}

func inBoth(a, b []string) int {
	both := 0
	for _, w := range a {
		if _, in := slices.BinarySearch(b, w); in {
			both++
		}
	}
	return both
}

// Stronger reports that the claim of a is to be believed over that of b: the better trusted, then the newer.
func Stronger(a, b Claim) bool {
	if c := cmp.Compare(trustRank(a.Trust), trustRank(b.Trust)); c != 0 {
		return c > 0
	}
	return cmp.Or(a.When.Compare(b.When), cmp.Compare(a.Confidence, b.Confidence), strings.Compare(a.ID, b.ID)) > 0
}

// Claim is what is weighed when two items contradict each other.
type Claim struct {
	ID         string
	Trust      Trust
	Confidence float64
	When       time.Time
}

func trustRank(t Trust) int {
	switch t {
	case TrustUserStated:
		return 3
	case TrustAgentInferred:
		return 2
	case TrustExternal:
		return 1
	default:
		return 0
	}
}

// SameValue reports that two memories state the same value of the same entity, whatever the writing.
func SameValue(a, b Memory) bool {
	return sameThing(a, b) && bareText(cmp.Or(a.Value, a.Content)) == bareText(cmp.Or(b.Value, b.Content)) &&
		(a.Operation == OperationDelete) == (b.Operation == OperationDelete)
}

// Replaces reports that newer takes the place of older: it updates or deletes the value that older states, for the same
// entity and the same user. Two values of one entity alone are no contradiction: a person has more than one property.
func Replaces(newer, older Memory) bool {
	if !sameThing(newer, older) || older.Operation == OperationDelete || newer.MemoryID == older.MemoryID {
		return false
	}
	switch newer.Operation {
	case OperationUpdate, OperationDelete:
		old := cmp.Or(newer.OldValue, map[bool]string{true: newer.Value}[newer.Operation == OperationDelete])
		return old != "" && bareText(old) == bareText(older.Value)
	case OperationAdd:
	}
	return bareText(newer.Value) != bareText(older.Value) && opposed(newer.Content, older.Content)
}

// sameThing reports that two memories are of one kind and about one entity, type of task and tool, and of one user.
func sameThing(a, b Memory) bool {
	return a.Entity != "" && strings.EqualFold(a.Entity, b.Entity) && a.MemoryType == b.MemoryType && a.TaskType == b.TaskType &&
		a.Tool == b.Tool && a.UserID == b.UserID
}
