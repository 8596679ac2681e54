package evaluate

import (
	"fmt"
	"regexp"
	"sync"

	"github.com/tiktoken-go/tokenizer/codec"
)

// What is new in each answer: names of answers, marks around texts, moments, and scores that depend on the moment.
var (
	newIDs    = regexp.MustCompile(`[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	newMarks  = regexp.MustCompile(`memory-[0-9a-f]{12}`)
	newTimes  = regexp.MustCompile(`\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d+)?Z`)
	newScores = regexp.MustCompile(`"score":[0-9.]+`)
)

// tokenCounter counts tokens as models of the o200k_base family read them; the table is made at the first use. What is new in
// each answer is replaced by something of the same form, so that equal answers have equally many. It is safe for concurrent
// use.
type tokenCounter struct {
	once  sync.Once
	codec *codec.Codec

	mu    sync.Mutex
	known map[string]int // of texts that come again and again
}

// maxKnownTexts bounds the counts that are remembered.
const maxKnownTexts = 10_000

func (c *tokenCounter) count(text string) (int, error) {
	c.once.Do(func() { c.codec, c.known = codec.NewO200kBase(), map[string]int{} })
	text = newIDs.ReplaceAllString(text, "0190c4f2-7a1e-7d3b-9c55-1f0e8a2b6c4d")
	text = newMarks.ReplaceAllString(text, "memory-3f9a1c7be2d4")
	text = newTimes.ReplaceAllString(text, "2025-01-06T08:00:00Z")
	text = newScores.ReplaceAllString(text, `"score":0.731`)
	c.mu.Lock()
	defer c.mu.Unlock()
	if n, is := c.known[text]; is {
		return n, nil
	}
	n, err := c.codec.Count(text)
	if err != nil {
		return 0, fmt.Errorf("count tokens: %w", err)
	}
	if len(c.known) < maxKnownTexts {
		c.known[text] = n
	}
	return n, nil
}
