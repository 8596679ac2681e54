package evaluate

import (
	"strings"
	"testing"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/evaluate/report"
)

// TestTheReplayPageSaysWhatItIs: coverage is not effect, and the ceilings stand beside the figures.
func TestTheReplayPageSaysWhatItIs(t *testing.T) {
	t.Parallel()
	first := played("first", "a", events.StatusFailure, `pay {} ! `+amountError)
	again := played("again", "a", events.StatusFailure, `pay {} ! `+amountError)
	r, err := scoreReplay([][]*recordedRun{{first}, {again}}, map[string]runAnswers{"first": answersTo(first, nil, nil), "again": answersTo(again, nil, nil)})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := report.Write(&out, ReplayPage(r, "hindsight eval replay runs.jsonl")); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"coverage and not effect", "hindsight eval replay runs.jsonl", "missed error", "ceiling", "Of 1 error events", "(0 %)"} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("the page does not say %q", part)
		}
	}
}
