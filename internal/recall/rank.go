package recall

import (
	"cmp"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/hindsight-memory/hindsight/internal/memory"
)

// rank scores what was loaded and orders it, best first: items that hold an exact code of the question before all
// others, then by score. Items that say the same are one.
func (s *Service) rank(q Question, way Way, p *pool, loaded map[string]record, similarity map[string]float64, uses map[string]memory.ItemUse) ranked {
	now := cmp.Or(q.AsOf, s.o.Clock())
	ruled := map[string]bool{} // tools that an active rule is about
	for _, r := range loaded {
		if r.item.Layer == memory.LayerRule && r.tool != "" {
			ruled[r.tool] = true
		}
	}
	quoting := manyWords(q.Text)
	nearest := 0.0 // of the lessons that can be acted upon
	for id, r := range loaded {
		if r.item.Layer == memory.LayerSnapshot && (len(p.found[id].exact) > 0 || r.usable(q, similarity[id])) {
			nearest = max(nearest, similarity[id])
		}
	}
	type entry struct {
		record
		exact bool
	}
	var entries []entry
	for id, r := range loaded {
		c := p.found[id]
		near := similarity[id]
		quoted := quoting && c.lexical >= quotedShare
		if near < q.MinScore && len(c.exact) == 0 && !c.direct && !quoted {
			continue
		}
		if len(c.exact) == 0 && (!r.usable(q, near) || !c.direct && !quoted && r.remote(q, near, nearest)) {
			continue
		}
		use := uses[id]
		first := use.FirstSeen
		if first.IsZero() {
			first = r.recorded
		}
		age := now.Sub(first)
		idle := age
		if !use.LastHit.IsZero() {
			idle = now.Sub(use.LastHit)
		}
		preset := q.Preset
		if way == WayFact && r.item.Layer == memory.LayerMemory && preset == memory.PresetExperience {
			preset = memory.PresetFact
		}
		r.item.Similarity = near
		r.item.CreatedAt = first
		r.item.Score, r.item.Parts = memory.Score(preset, s.o.Weights, memory.Scored{
			Similarity: near, Confidence: r.Confidence, Importance: r.Importance, Trust: r.Trust, Age: age, Idle: idle, Hits: use.Hits,
			Failed: r.failed, RuleHit: r.item.Layer == memory.LayerRule || ruled[r.tool],
		})
		if c.lexical > 0 {
			r.item.Parts["words"] = c.lexical
		}
		if len(c.exact) > 0 {
			r.item.Parts["exact_codes"] = float64(len(c.exact))
		}
		r.item.Note = joinNotes(r.item.Note, ageNote(age))
		entries = append(entries, entry{record: r, exact: len(c.exact) > 0})
	}
	slices.SortFunc(entries, func(a, b entry) int {
		if a.exact != b.exact {
			if a.exact {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(b.item.Score, a.item.Score), strings.Compare(a.item.ID, b.item.ID))
	})
	out := ranked{notices: p.notices}
	at := map[string]int{}
	for _, e := range entries {
		if canonical, merged := loaded[p.merged[e.item.ID]]; merged {
			e.signature = canonical.signature // members of one lesson are one, however each is worded
		}
		if i, same := at[e.signature]; same {
			out.items[i].Seen += e.item.Seen
			continue
		}
		at[e.signature] = len(out.items)
		out.items = append(out.items, e.item)
	}
	return out
}

const (
	// sameSimilarity is the calibrated similarity from which two situations are one, well above where texts begin to say the
	// same (0.79 with the local model). Such a lesson is shown to who has other tools, too: its tool may have a new name.
	sameSimilarity = 0.9
	// remoteShare is which part of the way from the threshold of relatedness to the nearest lesson another must have come.
	remoteShare = 0.4
)

// usable reports what somebody with the tools of the question can act upon. A lesson about a call that failed takes its
// tool; one about the outcome of a task, or a rule about tasks, one that it names. Who lists no tools may have any.
func (r record) usable(q Question, near float64) bool {
	if q.Context == nil || len(q.Context.AvailableTools) == 0 || r.tool == "" || near >= sameSimilarity {
		return true
	}
	if r.item.Layer != memory.LayerSnapshot && r.item.Layer != memory.LayerRule {
		return true
	}
	whole := !r.failed && !r.ofCall
	named := whole && q.TaskType != "" && r.item.TaskType == q.TaskType && !quotedName.MatchString(r.item.Lesson) && !namesTool(r.item.Lesson, r.tool)
	return named || slices.ContainsFunc(q.Context.AvailableTools, func(tool string) bool {
		return sameTool(tool, r.tool) || whole && namesTool(r.item.Lesson, bareTool(tool))
	})
}

// remote reports a lesson that is related to the question, and so much less than another that it would only fill the
// answer. One about a tool that the question lists, from a task of its type, is not: it is about another call.
func (r record) remote(q Question, near, nearest float64) bool {
	if r.item.Layer != memory.LayerSnapshot || q.MinScore < 0 || near-DefaultMinScore >= remoteShare*(nearest-DefaultMinScore) {
		return false
	}
	return q.Context == nil || q.TaskType == "" || r.item.TaskType != q.TaskType ||
		!slices.ContainsFunc(q.Context.AvailableTools, func(tool string) bool { return sameTool(tool, r.tool) })
}

// bareTool is the name of a tool without that of its server, which clients put before it.
func bareTool(tool string) string {
	if at := strings.LastIndex(tool, "__"); at >= 0 && at+2 < len(tool) {
		tool = tool[at+2:]
	}
	return tool[strings.LastIndexAny(tool, "./:")+1:]
}

func sameTool(a, b string) bool { return a == b || bareTool(a) == bareTool(b) }

// namesTool finds the name of a tool in a text as a whole word.
func namesTool(text, tool string) bool {
	inName := func(r rune) bool {
		return r == '_' || unicode.IsDigit(r) || unicode.IsLetter(r) && !unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana)
	}
	return tool != "" && slices.Contains(strings.FieldsFunc(text, func(r rune) bool { return r == '`' || !inName(r) && !strings.ContainsRune(tool, r) }), tool)
}

const (
	// quotedShare is the share of a question's words, weighted by how rare they are, from which an item counts as quoted:
	// a question that repeats an error message is about it, however little its situation looks like the item's.
	quotedShare = 0.7
	// quotedWords is how many words make a quotation; one or two are in many items.
	quotedWords = 3
)

// manyWords reports whether a text has enough words for a quotation; two ideographs count as one.
func manyWords(text string) bool {
	words, halves, inside := 0, 0, false
	for _, r := range text {
		switch {
		case unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul):
			halves++
			inside = false
		case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_':
			if !inside {
				words++
			}
			inside = true
		default:
			inside = false
		}
	}
	return words+halves/2 >= quotedWords
}

// oldAge is the age from which an item says that it is old: whole snapshots are kept for as long (design §10).
const oldAge = 90 * 24 * time.Hour

func ageNote(age time.Duration) string {
	if age < oldAge {
		return ""
	}
	return "older than 90 days: check that it still holds"
}

func joinNotes(a, b string) string {
	switch {
	case a == "":
		return b
	case b == "":
		return a
	default:
		return a + "; " + b
	}
}

// answer cuts what was ranked to the number of items and the budget. The first item is always shown, cut if it must be.
func (s *Service) answer(found ranked, way Way, topK, budget int) Answer {
	a := Answer{Items: []Item{}, Way: way}
	for _, item := range found.items {
		if len(a.Items) == topK {
			break
		}
		tokens := EstimateTokens(item.Text)
		if a.Tokens+tokens > budget {
			if len(a.Items) > 0 {
				continue // a shorter one may still fit
			}
			item.Text = cutToTokens(item.Text, budget)
			tokens = EstimateTokens(item.Text)
		}
		a.Items = append(a.Items, item)
		a.Tokens += tokens
	}
	notices := found.notices
	if len(a.Items) == 0 {
		notices = append(notices, "nothing is known about this yet")
	}
	a.Notice = strings.Join(notices, "; ")
	return a
}

// cutToTokens shortens a text to a budget, on a rune.
func cutToTokens(text string, budget int) string {
	runes := []rune(text)
	for low, high := 0, len(runes); ; {
		if low >= high {
			return string(runes[:low]) + "…"
		}
		middle := (low + high + 1) / 2
		if EstimateTokens(string(runes[:middle])) < budget {
			low = middle
		} else {
			high = middle - 1
		}
	}
}
