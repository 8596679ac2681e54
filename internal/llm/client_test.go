package llm_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hindsight-memory/hindsight/internal/llm"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const schema = `{"type":"object","additionalProperties":false,"required":["lessons"],"properties":{"lessons":{"type":"array","items":{"type":"object","additionalProperties":false,"required":["lesson"],"properties":{"lesson":{"type":"string"}}}}}}`

// endpoint answers each request with the next of its answers, and the last one for ever. An answer that begins with a
// number is a status code and its message.
type endpoint struct {
	mu       sync.Mutex
	answers  []string
	requests []map[string]any
}

func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var request map[string]any
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	e.mu.Lock()
	answer := e.answers[min(len(e.requests), len(e.answers)-1)]
	e.requests = append(e.requests, request)
	e.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	var status int
	if n, _ := fmt.Sscanf(answer, "status %d", &status); n == 1 {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"message": answer, "type": "t"}})
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"choices": []any{map[string]any{"message": map[string]any{"role": "assistant", "content": answer}}}})
}

func (e *endpoint) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.requests)
}

func client(t *testing.T, opts llm.Options, answers ...string) (*llm.Client, *endpoint) {
	t.Helper()
	e := &endpoint{answers: answers}
	server := httptest.NewServer(e)
	t.Cleanup(server.Close)
	opts.BaseURL, opts.Model, opts.Key = server.URL+"/v1", "m", "sk-hidden-key"
	c, err := llm.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, e
}

func TestAnswer(t *testing.T) {
	t.Parallel()
	const want = `{"lessons":[{"lesson":"a, } b"}]}`
	for name, said := range map[string]string{
		"plain":           `{"lessons":[{"lesson":"a, } b"}]}`,
		"fences":          "```json\n{\"lessons\":[{\"lesson\":\"a, } b\"}]}\n```",
		"prose":           "Sure! Here {as you asked} it is: {\"lessons\":[{\"lesson\":\"a, } b\"}]} Anything else {?}",
		"thoughts":        "<think>maybe {\"x\": 1}</think>{\"lessons\":[{\"lesson\":\"a, } b\"}]}",
		"trailing commas": "{\"lessons\":[{\"lesson\":\"a, } b\",},],\n}",
		"synonym":         `{"results":[{"takeaway":"a, } b"}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, e := client(t, llm.Options{}, said)
			got, err := c.Answer(t.Context(), "role", "question", json.RawMessage(schema), map[string]string{"results": "lessons", "takeaway": "lesson"})
			if err != nil || string(got) != want {
				t.Errorf("Answer = %s, %v", got, err)
			}
			if e.count() != 1 {
				t.Errorf("%d requests", e.count())
			}
		})
	}
}

// TestGarbage: what is not valid is asked for once more with the complaint, and then refused.
func TestGarbage(t *testing.T) {
	t.Parallel()
	for name, said := range map[string]string{
		"empty": "", "prose": "I cannot do that.", "truncated": `{"lessons":[{"lesson":"a`, "invalid": `{"lessons":"none"}`, "list": `[1,2]`,
		"extra": `{"lessons":[{"lesson":"a","mood":"b"}]}`, "other": `{"answer":[]}`, "null": `null`, "braces": strings.Repeat("{", 10000),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, e := client(t, llm.Options{}, said)
			if got, err := c.Answer(t.Context(), "role", "question", json.RawMessage(schema), nil); !errors.Is(err, llm.ErrGarbage) {
				t.Errorf("Answer = %s, %v", got, err)
			}
			if e.count() != 2 {
				t.Fatalf("%d requests", e.count())
			}
			messages, _ := e.requests[1]["messages"].([]any)
			last, _ := messages[len(messages)-1].(map[string]any)
			if text, _ := last["content"].(string); !strings.Contains(text, "cannot be used") {
				t.Errorf("the second question does not complain: %v", last)
			}
		})
	}
	c, _ := client(t, llm.Options{}, "nonsense", `{"lessons":[]}`)
	if got, err := c.Answer(t.Context(), "role", "question", json.RawMessage(schema), nil); err != nil || string(got) != `{"lessons":[]}` {
		t.Errorf("after the complaint: %s, %v", got, err)
	}
}

func TestSurrogatesAndBytes(t *testing.T) {
	t.Parallel()
	c, _ := client(t, llm.Options{}, "{\"lessons\":[{\"lesson\":\"bad \\ud83d half\"}]}")
	got, err := c.Answer(t.Context(), "role", "question", json.RawMessage(schema), nil)
	if err != nil || !json.Valid(got) {
		t.Errorf("Answer = %s, %v", got, err)
	}
}

func TestUnavailable(t *testing.T) {
	t.Parallel()
	for _, status := range []string{"status 429", "status 500", "status 503"} {
		t.Run(status, func(t *testing.T) {
			t.Parallel()
			c, e := client(t, llm.Options{Patience: 1200 * time.Millisecond}, status)
			_, err := c.Answer(t.Context(), "role", "question", json.RawMessage(schema), nil)
			if !errors.Is(err, llm.ErrUnavailable) || e.count() < 2 {
				t.Errorf("%v after %d requests", err, e.count())
			}
			c, e = client(t, llm.Options{}, status, `{"lessons":[]}`)
			if _, err := c.Answer(t.Context(), "role", "question", json.RawMessage(schema), nil); err != nil || e.count() != 2 {
				t.Errorf("%v after %d requests", err, e.count())
			}
		})
	}
	c, e := client(t, llm.Options{}, "status 401 wrong key sk-hidden-key")
	_, err := c.Answer(t.Context(), "role", "question", json.RawMessage(schema), nil)
	if !errors.Is(err, llm.ErrUnavailable) || e.count() != 1 || strings.Contains(err.Error(), "sk-hidden-key") {
		t.Errorf("%v after %d requests", err, e.count())
	}
}

// TestOldServers: one that does not know schemas, or the name of the limit, is asked in its own way from then on.
func TestOldServers(t *testing.T) {
	t.Parallel()
	c, e := client(t, llm.Options{}, "status 400 response_format is not supported", "status 400 unknown max_completion_tokens", `{"lessons":[]}`)
	for range 2 {
		if _, err := c.Answer(t.Context(), "role", "question", json.RawMessage(schema), nil); err != nil {
			t.Fatal(err)
		}
	}
	if e.count() != 4 {
		t.Fatalf("%d requests", e.count())
	}
	last := e.requests[3]
	if last["response_format"] != nil || last["max_tokens"] == nil || last["max_completion_tokens"] != nil {
		t.Errorf("the last request is %v", last)
	}
	if e.requests[0]["response_format"] == nil {
		t.Error("the first request does not give the schema")
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	for _, o := range []llm.Options{
		{},
		{BaseURL: "http://x/v1"},
		{BaseURL: "ftp://x", Model: "m"},
		{BaseURL: "http://u:p@x/v1", Model: "m"},
		{BaseURL: "http://x/v1?k=v", Model: "m"},
		{BaseURL: "http://x/v1", Model: "m", Timeout: -1},
	} {
		if _, err := llm.New(o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}
