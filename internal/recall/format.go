package recall

import (
	"cmp"
	"encoding/json"
	"regexp"
	"strings"
	"time"
	"unicode"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/memory"
)

const (
	// lineBytes bounds one line of an item; the whole is found under its id.
	lineBytes = 600
	// parameterBytes bounds the parameters that are shown.
	parameterBytes = 200
)

// labels are the words before the lines of an item, in the item's language.
type labels struct{ situation, decision, result, lesson, failed, succeeded, rule, when, action, unless, fact string }

var (
	english = labels{"Situation", "Decision", "Result", "Lesson", "failed", "succeeded", "Rule", "When", "Do", "Not when", "Known"}
	chinese = labels{"情境", "决策", "结果", "教训", "失败", "成功", "规则", "适用于", "做法", "不适用于", "已知"}
)

// quoted is what a text takes over from elsewhere: names, and the words of tools.
var quoted = regexp.MustCompile("`[^`]*`|\"[^\"]*\"|“[^”]*”")

// labelsFor chooses Chinese labels for a text whose own words are mostly Chinese.
func labelsFor(text string) labels {
	text = quoted.ReplaceAllString(text, "")
	han, letters := 0, 0
	for _, r := range text {
		switch {
		case unicode.Is(unicode.Han, r):
			han++
		case unicode.IsLetter(r):
			letters++
		}
	}
	if han*2 > letters { // one ideograph says as much as several letters
		return chinese
	}
	return english
}

// line is one line of an item: its text stays on it.
func line(label, text string) string {
	text = strings.Join(strings.Fields(text), " ")
	return label + ": " + events.CutText(text, lineBytes)
}

func ofSnapshot(s memory.Snapshot) record {
	l := labelsFor(s.Reflection.Lesson)
	result := l.succeeded
	if s.Outcome.Status != events.StatusSuccess {
		result = strings.TrimSpace(l.failed + " " + strings.TrimSpace(s.Outcome.ErrorType+" "+s.Outcome.ErrorMessage))
	}
	text := strings.Join([]string{
		line(l.situation, cmp.Or(s.Situation, s.TaskContext.InputSummary)),
		line(l.decision, s.Decision.ToolSelected+" "+compactParameters(s.Decision.Parameters)),
		line(l.result, result),
		line(l.lesson, s.Reflection.Lesson),
	}, "\n")
	return record{
		textHash: memory.TextHash(memory.SnapshotText(s)),
		item: Item{
			ID: s.SnapshotID, Layer: memory.LayerSnapshot, TaskType: s.TaskContext.TaskType, Text: text, Lesson: s.Reflection.Lesson,
			When: s.AppliesWhen, Trust: s.Trust, Confidence: s.Confidence, Importance: s.Importance, Seen: 1,
		},
		Judged: s.Judged, failed: s.Outcome.Status != events.StatusSuccess, tool: s.Decision.ToolSelected, recorded: s.Version.RecordedAt,
		signature: "snapshot\x00" + s.Decision.ToolSelected + "\x00" + normalised(s.Reflection.Lesson),
	}
}

// warningBytes bounds the error that a warning quotes.
const warningBytes = 160

// warning is a snapshot as it is shown right before a call: the lesson, with the tool and the error where it names neither.
// Where it was learnt is of no use then.
func warning(s memory.Snapshot) string {
	l, lesson := labelsFor(s.Reflection.Lesson), strings.Join(strings.Fields(s.Reflection.Lesson), " ")
	if !strings.Contains(lesson, s.Decision.ToolSelected) {
		lesson = "`" + s.Decision.ToolSelected + "`: " + lesson
	}
	text := events.CutText(lesson, lineBytes)
	if s.Outcome.Status == events.StatusSuccess {
		return text
	}
	message, _, _ := strings.Cut(s.Outcome.ErrorMessage, "\n")
	message = strings.TrimPrefix(strings.TrimSpace(message), "Error: ")
	quoted := normalised(lesson)
	if message == "" || strings.Contains(quoted, normalised(message)) || strings.Contains(quoted, normalised(memory.AbstractError(message))) {
		return text
	}
	return text + "\n" + line(l.result, l.failed+" "+events.CutText(message, warningBytes))
}

// ruleWarning is a rule as it is shown right before a call.
func ruleWarning(r memory.Rule) string {
	l := labelsFor(r.Rule)
	return line(l.rule, r.Rule) + "\n" + line(l.action, r.Action)
}

func compactParameters(raw json.RawMessage) string {
	if text := string(raw); text != "" && text != "{}" {
		return events.CutText(text, parameterBytes)
	}
	return "{}"
}

func ofMemory(m memory.Memory, now time.Time) record {
	l := labelsFor(m.Content)
	note := ""
	if m.ValidTo != nil && m.ValidTo.Sub(now) < 7*24*time.Hour {
		note = "expires " + m.ValidTo.UTC().Format(time.DateOnly)
	}
	return record{
		textHash: memory.TextHash(memory.MemoryText(m)),
		item: Item{
			ID: m.MemoryID, Layer: memory.LayerMemory, TaskType: m.TaskType, MemoryType: m.MemoryType,
			Text: line(l.fact, m.Content), Lesson: m.Content, When: m.TaskType, Trust: m.Trust, Confidence: m.Confidence,
			Importance: m.Importance, Seen: 1, Note: note,
		},
		Judged: m.Judged, failed: m.MemoryType == memory.MemoryCorrection, tool: m.Tool, recorded: m.Version.RecordedAt,
		signature: "memory\x00" + normalised(m.Content),
	}
}

func ofRule(r memory.Rule) record {
	l := labelsFor(r.Rule)
	lines := []string{line(l.rule, r.Rule), line(l.when, r.Condition), line(l.action, r.Action)}
	if r.DoesNotApplyWhen != "" {
		lines = append(lines, line(l.unless, r.DoesNotApplyWhen))
	}
	return record{
		item: Item{
			ID: r.RuleID, Layer: memory.LayerRule, TaskType: r.TaskType, Text: strings.Join(lines, "\n"), Lesson: r.Action, When: r.Condition,
			Trust: r.Trust, Confidence: r.Confidence, Importance: r.Importance, Seen: r.Support,
		},
		Judged: r.Judged, tool: r.Tool, ofCall: r.Kind == memory.RuleCall, recorded: r.Version.RecordedAt, signature: "rule\x00" + normalised(r.Rule),
	}
}

// normalised is what two items that say the same have in common: their letters and digits.
func normalised(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return unicode.ToLower(r)
		}
		return -1
	}, text)
}
