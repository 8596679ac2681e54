package recall

import (
	"regexp"
	"slices"

	"github.com/hindsight-memory/hindsight/internal/memory"
)

var (
	asksWhereWeAre = regexp.MustCompile(`(?i)\bwhere (?:are|were|did) we\b|\bwhat(?:'s| is) (?:the )?(?:status|progress|left|pending)\b|进展|进行到|到哪(?:里|儿|一步)?了|还剩(?:什么|哪些)`)
	asksBefore     = regexp.MustCompile(`(?i)\b(?:previous(?:ly)?|formerly|used to be|before (?:that|it changed)|earlier value|old value|history of)\b|之前(?:是|的)|以前(?:是|的)|原来(?:是|的)|变更历史`)
)

// wayOf chooses how to answer: an entity has facts, "where are we" a summary, "what was it before" a history; anything
// else is answered from experience.
func wayOf(q Question) Way {
	switch {
	case q.SessionID != "" && len(q.Layers) == 0 && asksWhereWeAre.MatchString(q.Text):
		return WaySummary
	case q.Entity != "" && asksBefore.MatchString(q.Text):
		return WayHistory
	case q.Entity != "" || len(q.MemoryTypes) > 0 || slices.Equal(q.Layers, []memory.Layer{memory.LayerMemory}):
		return WayFact
	default:
		return WayExperience
	}
}
