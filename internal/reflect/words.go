package reflect

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/hindsight-memory/hindsight/internal/memory"
)

// judgement is what a critic says about one finding.
type judgement struct {
	RootCause   string
	CauseClass  memory.CauseClass
	Alternative string
	Lesson      string
	AppliesWhen string
	IsOptimal   bool
}

// maxLesson bounds a lesson, in runes: it is one sentence to act on.
const maxLesson = 420

// word says what a finding shows, in the language of the task. It is the whole of the evidence critic: it knows nothing
// but the finding.
func word(f memory.Finding, language memory.Language) judgement {
	var w wording = english{}
	if language == memory.LanguageChinese {
		w = chinese{}
	}
	j := judgement{CauseClass: f.CauseClass, IsOptimal: f.Kind == memory.FindingDecisive}
	j.AppliesWhen = w.when(f)
	j.RootCause = w.cause(f)
	do := w.instruction(f)
	j.Alternative = strings.Join(do, w.joiner())
	j.Lesson = memory.Cut(w.lesson(f, do), maxLesson)
	return j
}

// wording is one language.
type wording interface {
	// when says in which situation a lesson applies.
	when(f memory.Finding) string
	// cause says what went wrong.
	cause(f memory.Finding) string
	// instruction says what to do, as imperatives.
	instruction(f memory.Finding) []string
	lesson(f memory.Finding, do []string) string
	joiner() string
}

// maxChanges is how many differences a lesson names.
const maxChanges = 3

// telling are the changes worth naming: those that the error speaks of where there are any, and none that says only that
// a value was another where one says more.
func telling(changes []memory.Change) []memory.Change {
	out := slices.Clone(changes)
	keep := func(worth func(memory.Change) bool) {
		if slices.ContainsFunc(out, worth) {
			out = slices.DeleteFunc(out, func(c memory.Change) bool { return !worth(c) })
		}
	}
	keep(func(c memory.Change) bool { return c.Kind == memory.ChangeTotal })
	keep(func(c memory.Change) bool { return c.Related })
	keep(func(c memory.Change) bool {
		return c.Kind == memory.ChangeRenamed || c.Kind == memory.ChangeType || c.Kind == memory.ChangeFormat || c.Kind == memory.ChangeClauses || c.Form != ""
	})
	keep(func(c memory.Change) bool {
		return c.Kind != memory.ChangeValue || c.Source != memory.SourceUnknown || !memory.Particular(c.From) && !memory.Particular(c.To)
	})
	if len(out) > maxChanges {
		out = out[:maxChanges]
	}
	return out
}

// ahead reports a repair that can be made before the call fails: another form of the call, or another call before it.
func ahead(f memory.Finding) bool {
	if len(f.Before) > 0 {
		return true
	}
	named := telling(f.Changes)
	return len(named) > 0 && !slices.ContainsFunc(named, func(c memory.Change) bool {
		return c.Kind == memory.ChangeValue && c.Form == "" || c.Kind == memory.ChangeCount || c.Source == memory.SourceError
	})
}

// speaks reports an error that says in words what is wrong; a code alone says nothing of how to avoid it.
func speaks(text string) bool {
	words, han := 0, 0
	for _, w := range strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsLetter(r) }) {
		for _, r := range w {
			if unicode.Is(unicode.Han, r) {
				han++
			}
		}
		if len(w) > 2 {
			words++
		}
	}
	return words >= 3 || han >= 4
}

// path names a parameter for a reader: payment_methods[].amount.
func path(p string) string { return "`" + p + "`" }

func names(list []string) string {
	quoted := make([]string, len(list))
	for i, n := range list {
		quoted[i] = "`" + n + "`"
	}
	return strings.Join(quoted, ", ")
}

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// capital makes the first letter of a sentence a capital.
func capital(s string) string {
	if s == "" || s[0] < 'a' || s[0] > 'z' {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// literal reports a description that is the value itself.
func literal(s string) bool { return s != "" && !strings.HasPrefix(s, "<") }

// atoi reads a count that this program wrote.
func atoi(s string) int {
	n := 0
	for _, r := range s {
		if r < '0' || r > '9' {
			return 0
		}
		n = n*10 + int(r-'0')
	}
	return n
}
