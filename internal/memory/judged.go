package memory

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// What an item is worth has three parts, which come at different times and in any order: what its reflection found, what
// people said about it since, and how many independent voices say the same. The parts are told apart by the reasons of the
// confidence, so that each can be changed without the others: in the end only the parts count, and not their order.

var (
	voicesReason  = regexp.MustCompile(`^seen by (\d+) independent voices; ([0-9.e+-]+) without them$`)
	opinionReason = regexp.MustCompile(`^[+-]\d+\.\d\d (helpful|unhelpful|approved|corrected)$`)
)

// Unsupported gives the judgement without what independent voices add to it, and how many voices those were; 1 where
// nothing was added.
func Unsupported(j Judged) (own Judged, voices int) {
	for i, reason := range j.ConfidenceReasons {
		m := voicesReason.FindStringSubmatch(reason)
		if m == nil {
			continue
		}
		n, err := strconv.Atoi(m[1])
		confidence, badNumber := strconv.ParseFloat(m[2], 64)
		if err != nil || badNumber != nil {
			continue
		}
		j.Confidence, j.ConfidenceReasons = confidence, slices.Delete(slices.Clone(j.ConfidenceReasons), i, i+1)
		return j, n
	}
	return j, 1
}

// Supported gives the judgement as so many independent voices make it, whatever number it was before.
func Supported(j Judged, voices int) Judged {
	own, _ := Unsupported(j)
	if voices <= 1 {
		return own
	}
	after, _ := ApplySupport(own.Confidence, voices-1, 0)
	own.ConfidenceReasons = append(slices.Clone(own.ConfidenceReasons), fmt.Sprintf("seen by %d independent voices; %s without them", voices, strconv.FormatFloat(own.Confidence, 'g', -1, 64)))
	own.Confidence = after
	return own
}

// WithOpinion gives the judgement after somebody's opinion, which an event holds.
func WithOpinion(j Judged, o Opinion, eventID string) Judged {
	own, voices := Unsupported(j)
	after, reason := ApplyFeedback(own.Confidence, o)
	own.Confidence = after
	own.ConfidenceReasons = append(slices.Clone(own.ConfidenceReasons), reason)
	own.Evidence = append(slices.Clone(own.Evidence), eventID)
	return Supported(own, voices)
}

// Renewed gives what a later reflection found with what others said about the item since the one before: opinions, with
// the events that hold them, voices, and that the item was replaced or contradicted.
func Renewed(found, before Judged) Judged {
	old, voices := Unsupported(before)
	var opinions []Opinion
	for _, reason := range old.ConfidenceReasons {
		if m := opinionReason.FindStringSubmatch(reason); m != nil {
			opinions = append(opinions, Opinion(m[1]))
		}
	}
	// Events that hold opinions are the last of the evidence, one for each.
	holding := old.Evidence[max(0, len(old.Evidence)-len(opinions)):]
	for i, o := range opinions {
		if i < len(holding) {
			found = WithOpinion(found, o, holding[i])
		}
	}
	if Overruled(before) || Refuted(before) {
		found.Status, found.StatusReason = before.Status, before.StatusReason
	}
	return Supported(found, voices)
}

// Reasons for which an item is superseded by another; the id of that follows.
const (
	ReasonContradicted = "contradicted by "
	ReasonReplaced     = "replaced by "
)

// Overruled reports an item that is superseded because of another one. That holds as long as the other does.
func Overruled(j Judged) bool {
	return j.Status == ItemSuperseded && (strings.HasPrefix(j.StatusReason, ReasonContradicted) || strings.HasPrefix(j.StatusReason, ReasonReplaced))
}

// ReasonRefuted is why an item is out of service that later tasks have shown to be wrong; how they did follows.
const ReasonRefuted = "refuted: "

// Refuted reports an item that is out of service because later tasks have shown it to be wrong. That holds until a person
// says otherwise: what is not shown is not tried.
func Refuted(j Judged) bool {
	return j.Status == ItemSuperseded && strings.HasPrefix(j.StatusReason, ReasonRefuted)
}
