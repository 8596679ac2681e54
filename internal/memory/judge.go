package memory

import (
	"fmt"
	"math"
	"regexp"
	"strings"

	"github.com/hindsight-memory/hindsight/events"
)

// RevisionOutlasting is the task revision of a version that outlasts every reflection of its task: that by which an item
// was forgotten or restored.
const RevisionOutlasting = math.MaxInt64

// DefaultMinImportance is the importance under which nothing is kept.
const DefaultMinImportance = 0.3

const (
	// maxFirstConfidence is the most that one task can give.
	maxFirstConfidence = 0.6
	// maxOpinionConfidence is the most that opinions alone can give: only independent confirmation leads further.
	maxOpinionConfidence = 0.9
	// maxExternalConfidence is the most for what rests on foreign text alone.
	maxExternalConfidence = 0.3
	maxConfidence         = 0.99
)

var emotion = regexp.MustCompile(`(?i)\b(?:frustrat\w+|annoy\w+|angry|upset|ridiculous|unacceptable|terrible|awful|disappoint\w+|furious|useless|waste of (?:my )?time|seriously|ugh|wtf|come on|fed up|again\?!?|for the (?:second|third|last) time)\b|!{2,}|太(?:差|烂|慢|离谱|过分)|生气|气死|失望|无语|烦死|受不了|到底|怎么又|又错|荒唐|浪费时间`)

// judge gives a finding its importance and confidence, each with reasons.
func (a *analyser) judge(f *Finding) {
	f.Importance, f.ImportanceReasons = 0, nil
	add := func(points float64, reason string) {
		f.Importance += points
		f.ImportanceReasons = append(f.ImportanceReasons, fmt.Sprintf("%+.2f %s", points, reason))
	}
	switch f.Kind {
	case FindingCorrection:
		add(0.75, "a user corrected the step")
	case FindingRepaired:
		add(0.55, "a call failed and what repaired it is known")
	case FindingRepeated:
		add(0.5, "a call failed again unchanged")
	case FindingUnrepaired:
		add(0.4, "a call failed and was not repaired")
	case FindingDiverged:
		add(0.45, "tasks of the same goal succeeded otherwise")
	case FindingDecisive:
		add(0.4, "the goal failed before")
	case FindingLastWrite:
		add(0.25, "the last change of a failed task")
	}
	if failed(a.task) {
		add(0.1, "the task failed")
	}
	if f.Repeats > 1 {
		add(0.05, "the error came more than once")
	}
	if a.emotional(f) {
		add(0.1, "the user was upset")
	}
	if f.Signature != "" {
		if a.opts.Known[KnownKey(f.Step.Tool, f.Signature)] {
			add(-0.05, "the error is known")
		} else {
			add(0.05, "the error is new")
		}
	}
	f.Importance = round2(min(1, max(0, f.Importance)))

	first := func(points float64, reason string) {
		f.Confidence += points
		f.ConfidenceReasons = append(f.ConfidenceReasons, fmt.Sprintf("%+.2f %s", points, reason))
	}
	f.Confidence, f.ConfidenceReasons = 0, nil
	switch f.Kind {
	case FindingCorrection:
		first(0.6, "a user said so")
	case FindingRepaired:
		first(0.5, "the working call shows it")
		if f.Repeats > 1 {
			first(0.05, "several failing calls agree")
		}
		if knownSource(f.Changes) {
			first(0.05, "where the new value came from is known")
		}
	case FindingUnrepaired, FindingRepeated:
		first(0.35, "only the failure is known")
		if len(f.Missing) > 0 || len(f.Uneven) > 0 {
			first(0.15, "the error says what it wants")
		}
	case FindingDiverged, FindingDecisive:
		first(0.35, "one task of the goal against another")
		if f.Siblings > 1 {
			first(min(0.15, 0.05*float64(f.Siblings-1)), "several tasks of the goal agree")
		}
	case FindingLastWrite:
		first(0.25, "that the task failed is all that is known")
	}
	if !a.task.Closed {
		first(-0.15, "the task is not over")
	}
	if f.Trust == TrustExternal && f.Confidence > maxExternalConfidence {
		first(maxExternalConfidence-f.Confidence, "it rests on external text alone")
	}
	f.Confidence = round2(min(maxFirstConfidence, max(0.05, f.Confidence)))
}

func knownSource(changes []Change) bool {
	for _, c := range changes {
		if c.Source != SourceUnknown {
			return true
		}
	}
	return false
}

// emotional looks for an upset user in the messages after the step, up to the next two.
func (a *analyser) emotional(f *Finding) bool {
	after, n := false, 0
	for _, m := range a.line {
		switch {
		case m.eventID == f.Step.EventID:
			after = true
		case after && m.step == -1 && m.message.Role == events.RoleUser:
			if emotion.MatchString(m.message.Content) {
				return true
			}
			if n++; n == 2 {
				return false
			}
		}
	}
	return false
}

func round2(x float64) float64 { return math.Round(x*100) / 100 }

// Opinion is what someone said about an item.
type Opinion string

// Opinions.
const (
	OpinionHelpful   Opinion = "helpful"
	OpinionUnhelpful Opinion = "unhelpful"
	// OpinionApproved and OpinionCorrected are a user's and weigh more.
	OpinionApproved  Opinion = "approved"
	OpinionCorrected Opinion = "corrected"
)

// ApplyFeedback gives the confidence after an opinion, and the reason. Praise never leads past 0.9: only independent
// confirmation does. A user's correction weighs more than anything else.
func ApplyFeedback(confidence float64, o Opinion) (after float64, reason string) {
	c := clamp(confidence)
	toward := func(limit, share float64) float64 { return max(c, c+(limit-c)*share) }
	switch o {
	case OpinionHelpful:
		after = toward(maxOpinionConfidence, 0.15)
	case OpinionApproved:
		after = toward(maxOpinionConfidence, 0.4)
	case OpinionUnhelpful:
		after = c * 0.8
	case OpinionCorrected:
		after = c * 0.4
	default:
		return c, ""
	}
	return clamp(after), fmt.Sprintf("%+.2f %s", after-c, strings.ReplaceAll(string(o), "_", " "))
}

// ApplySupport gives the confidence after tasks have confirmed or refuted an item. Independent are tasks of other goals
// or agents than those counted before; each takes a quarter of what is missing to certainty, a refutation a third of what
// there is. From 0.6, five independent confirmations lead past 0.9.
func ApplySupport(confidence float64, independent, refuting int) (after float64, reason string) {
	c := clamp(confidence)
	after = 1 - (1-c)*math.Pow(0.75, float64(max(independent, 0)))
	after = min(after, max(c, maxConfidence)) * math.Pow(2.0/3, float64(max(refuting, 0)))
	return clamp(after), fmt.Sprintf("%+.2f confirmed by %d, refuted by %d", after-c, max(independent, 0), max(refuting, 0))
}

func clamp(c float64) float64 {
	if math.IsNaN(c) {
		return 0
	}
	return min(1, max(0, c))
}
