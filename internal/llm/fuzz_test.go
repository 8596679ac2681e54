package llm_test

import (
	"encoding/json"
	"testing"

	"github.com/hindsight-memory/hindsight/internal/llm"
)

// FuzzExtract: whatever a model says, what is taken is JSON that follows the schema.
func FuzzExtract(f *testing.F) {
	for _, seed := range []string{"", "{", `{"lessons":[]}`, "```{\"lessons\":[{\"lesson\":\"a\"}],}```", `{"lessons":[{"lesson":"\ud83d"}]}`, "{\"a\":{\"lessons\":[]}}", "\xff{\"lessons\":[]}"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, said string) {
		got, err := llm.Extract(said, json.RawMessage(schema))
		if err != nil {
			return
		}
		var answer struct {
			Lessons []struct{ Lesson *string }
		}
		if err := json.Unmarshal(got, &answer); err != nil || answer.Lessons == nil {
			t.Errorf("%q gives %s: %v", said, got, err)
		}
		for _, l := range answer.Lessons {
			if l.Lesson == nil {
				t.Errorf("%q gives a lesson without words: %s", said, got)
			}
		}
	})
}
