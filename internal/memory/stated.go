package memory

import (
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/hindsight-memory/hindsight/events"
)

var (
	rememberText   = regexp.MustCompile(`(?i)^(?:(?:please|hi|hello|hey|also|and|ok|okay|so|by the way)[,:]?\s+)*(?:(?:please\s+)?(?:remember|keep in mind|note for the future|don'?t forget|make a note)(?:\s+that|\s*[:,])?\s+)(.{6,})$`)
	everyTime      = regexp.MustCompile(`(?i)\b(?:always|never|every time|each time|whenever|from now on|in (?:the )?future)\b`)
	rememberTo     = regexp.MustCompile(`(?i)^to\s+`)
	fromNowOn      = regexp.MustCompile(`(?i)^(?:please[,:]?\s+)?(?:from now on|going forward|in (?:the )?future|next time|whenever you|every time you)\b[,:]?\s*(.{6,})$`)
	alwaysText     = regexp.MustCompile(`(?i)^(?:please[,:]?\s+)?(always|never)\s+([a-z]+)\b.{4,}$`)
	preferText     = regexp.MustCompile(`(?i)^(?:(?:also|and|but|well|actually|generally|usually|in general)[,:]?\s+)*(?:i\s+(?:always\s+|usually\s+|generally\s+|really\s+|strongly\s+|normally\s+)?(?:prefer|like|love|hate|dislike|don[’']?t like|do not like)\s+|my (?:preference|preferred [a-z ]{2,30}|favou?rite [a-z ]{2,30}) is\s+)(.{3,})$`)
	deictic        = regexp.MustCompile(`(?i)\b(?:this|that|these|those|it|them|option|first one|second|third|one you|above|the (?:same|other|new|cheapest|latter|former)|instead|for now|today|tomorrow|right now|if possible|to (?:proceed|continue|speak|talk|cancel|keep|exchange|return|go|know|have|get|see|change|book|check|be))\b`)
	rememberZH     = regexp.MustCompile(`^(?:请|麻烦|帮我|你)*(?:记住|记一下|记下|牢记|记得)(?:一下)?[：:，, ]*(.{3,})$`)
	fromNowZH      = regexp.MustCompile(`^(?:请|麻烦|那)?(?:以后|今后|从现在起|从今以后|往后|下次)(?:都|请|要|就|统一)?[：:，, ]*(.{3,})$`)
	alwaysZH       = regexp.MustCompile(`^(?:请)?(?:总是|始终|一律|永远不要|绝不要|千万不要|务必)(.{3,})$`)
	preferZH       = regexp.MustCompile(`^(?:我|本人)(?:个人)?(?:一般|通常|一直|总是|比较|更|最|很)*(?:喜欢|偏好|偏爱|不喜欢|讨厌|习惯(?:用|使用|于)?)(.{2,})$`)
	deicticZH      = regexp.MustCompile(`这个|那个|这些|那些|第[一二三四五]个|上面|刚才|这次|今天|现在|它`)
	factIs         = regexp.MustCompile(`(?i)^((?:my|our|the)\s+[^,.;:]{2,60}?|[A-Z][\w-]*(?:\s+[\w-]+){0,4}?)\s+(?:is|are|was|=)\s+(.{1,120})$`)
	factIsZH       = regexp.MustCompile(`^((?:我|我们|我家|公司|本公司)?(?:的)?[\p{Han}\w]{1,20}?)(?:是|为|叫|：|:|=)(.{1,80})$`)
	notAVerb       = map[string]bool{"mind": true, "happy": true, "a": true, "the": true, "been": true, "had": true, "have": true, "heard": true, "was": true, "is": true, "ever": true, "again": true, "good": true, "nice": true, "thought": true, "seen": true, "did": true, "got": true, "received": true, "wanted": true, "in": true, "on": true, "that": true, "so": true, "and": true, "knew": true, "worked": true, "works": true, "asked": true, "booked": true, "ordered": true}
	clauseBoundary = regexp.MustCompile(`[.!?;]+(?:\s+|$)|[。！？；\n]+`)
	negative       = regexp.MustCompile(`(?i)\b(?:hate|dislike|don[’']?t like|do not like|never)\b|不喜欢|讨厌|不要`)
)

// maxStated is how many things one task may state, and maxStatedRunes how long each may be.
const (
	maxStated      = 20
	maxStatedRunes = 300
)

// statedIn finds what users explicitly asked to remember, or said they prefer. It takes no hints: what is not said in
// such words is not taken.
func statedIn(line []moment) []Stated {
	var out []Stated
	seen := map[string]bool{}
	for _, m := range line {
		if m.step != -1 || m.message.Role != events.RoleUser || utf8.RuneCountInString(m.message.Content) > 4000 {
			continue
		}
		ordinal := 0
		for _, sentence := range clauseBoundary.Split(m.message.Content, -1) {
			s, is := statement(strings.TrimSpace(sentence))
			if !is || seen[s.Content] || len(out) == maxStated || InstructsAgent(sentence) {
				continue
			}
			seen[s.Content] = true
			s.EventID, s.Ordinal, s.Turn = m.eventID, ordinal, m.message.Turn
			ordinal++
			out = append(out, s)
		}
	}
	return out
}

// statement reads one sentence.
func statement(sentence string) (Stated, bool) {
	n := utf8.RuneCountInString(sentence)
	if n < 5 || n > maxStatedRunes {
		return Stated{}, false
	}
	if m := rememberText.FindStringSubmatch(sentence); m != nil {
		return remembered(m[1], sentence)
	}
	if m := rememberZH.FindStringSubmatch(sentence); m != nil {
		return remembered(m[1], sentence)
	}
	for _, p := range []*regexp.Regexp{fromNowOn, fromNowZH, alwaysZH} {
		if m := p.FindStringSubmatch(sentence); m != nil && !strings.HasSuffix(sentence, "?") {
			return Stated{MemoryType: MemoryProcedure, Entity: "procedure", Value: m[1], Content: sentence, OnPurpose: true}, true
		}
	}
	if m := alwaysText.FindStringSubmatch(sentence); m != nil && !notAVerb[strings.ToLower(m[2])] {
		return Stated{MemoryType: MemoryProcedure, Entity: "procedure", Value: sentence, Content: sentence, OnPurpose: true}, true
	}
	return preference(sentence, false)
}

func preference(sentence string, onPurpose bool) (Stated, bool) {
	for _, p := range []struct{ text, pointing *regexp.Regexp }{{preferText, deictic}, {preferZH, deicticZH}} {
		m := p.text.FindStringSubmatch(sentence)
		if m == nil || !onPurpose && p.pointing.MatchString(m[1]) {
			continue
		}
		value := m[1]
		if negative.MatchString(sentence) {
			value = sentence
		}
		return Stated{MemoryType: MemoryPreference, Entity: "user", Value: value, Content: sentence, OnPurpose: onPurpose}, true
	}
	return Stated{}, false
}

// remembered reads what is to be remembered: a preference, a procedure, or a fact about something.
func remembered(what, sentence string) (Stated, bool) {
	what = strings.TrimSpace(what)
	if rememberTo.MatchString(what) && !everyTime.MatchString(what) {
		return Stated{}, false // That is part of this task, and not to be remembered beyond it.
	}
	if s, is := preference(what, true); is {
		s.Content = sentence
		return s, true
	}
	for _, p := range []*regexp.Regexp{fromNowOn, fromNowZH, alwaysText, alwaysZH, rememberTo} {
		if p.MatchString(what) {
			return Stated{MemoryType: MemoryProcedure, Entity: "procedure", Value: what, Content: sentence, OnPurpose: true}, true
		}
	}
	out := Stated{MemoryType: MemoryFact, Entity: "user", Value: what, Content: sentence, OnPurpose: true}
	for _, p := range []*regexp.Regexp{factIs, factIsZH} {
		if m := p.FindStringSubmatch(what); m != nil {
			out.Entity, out.Value = entityName(m[1]), strings.TrimSpace(m[2])
			break
		}
	}
	return out, true
}

// entityName takes the article or possessive off.
func entityName(s string) string {
	s = strings.TrimSpace(s)
	lower := strings.ToLower(s)
	for _, prefix := range []string{"my ", "our ", "the ", "我们的", "我的", "我家的", "我", "本"} {
		if rest, found := strings.CutPrefix(lower, prefix); found && strings.TrimSpace(rest) != "" {
			return strings.TrimSpace(s[len(s)-len(rest):])
		}
	}
	return s
}
