package reflect

import "github.com/hindsight-memory/hindsight/internal/memory"

// Lesson is what the evidence critic says about a finding.
func Lesson(f memory.Finding, l memory.Language) (lesson, when, cause string) {
	j := word(f, l)
	return j.Lesson, j.AppliesWhen, j.RootCause
}
