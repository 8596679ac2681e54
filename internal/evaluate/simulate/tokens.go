package simulate

import (
	"fmt"
	"regexp"
	"sync"

	"github.com/tiktoken-go/tokenizer/codec"
)

// What is another in every answer: names of answers, marks around texts, times and scores by age.
var (
	uuids  = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	marks  = regexp.MustCompile(`memory-[0-9a-f]{12}`)
	times  = regexp.MustCompile(`\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z`)
	scores = regexp.MustCompile(`"(score|similarity)":\d\.\d+`)
)

// steady replaces it by others of the same form, so that the same answer has the same number of tokens every time.
func steady(text string) string {
	text = uuids.ReplaceAllString(text, "0190c4f2-7a1e-7d3b-9c55-1f0e8a2b6c4d")
	text = marks.ReplaceAllString(text, "memory-3f9a1c7be2d4")
	text = times.ReplaceAllString(text, "2025-01-06T08:00:00Z")
	return scores.ReplaceAllString(text, `"$1":0.731`)
}

// counter counts tokens as models of the o200k_base family read them. The table is made at the first use.
type counter struct {
	mu    sync.Mutex
	codec *codec.Codec
}

func (c *counter) count(text string) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.codec == nil {
		c.codec = codec.NewO200kBase()
	}
	n, err := c.codec.Count(steady(text))
	if err != nil {
		return 0, fmt.Errorf("count tokens: %w", err)
	}
	return n, nil
}
