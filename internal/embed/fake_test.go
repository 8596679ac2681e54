package embed_test

import (
	"encoding/json"
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hindsight-memory/hindsight/internal/embed"
)

const serverDimension = 16

// serverVector is what the test server answers for a text: the same for the
// same text, and not of length 1.
func serverVector(text string, dimension int) []float32 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text))
	r := rand.New(rand.NewPCG(h.Sum64(), 1))
	v := make([]float32, dimension)
	for i := range v {
		v[i] = float32(r.NormFloat64())
	}
	return v
}

// openAIServer speaks the embeddings part of OpenAI's protocol. Before it
// answers, it asks first whether to do something else; first returns true when
// it has written the answer.
type openAIServer struct {
	*httptest.Server
	first    func(w http.ResponseWriter, request int, input []string) bool
	requests atomic.Int64

	mu     sync.Mutex
	inputs [][]string
	keys   []string
}

func newOpenAIServer(t *testing.T, first func(w http.ResponseWriter, request int, input []string) bool) *openAIServer {
	t.Helper()
	s := &openAIServer{first: first}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/embeddings", s.embeddings)
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

func (s *openAIServer) embeddings(w http.ResponseWriter, r *http.Request) {
	n := int(s.requests.Add(1))
	var body struct {
		Input []string `json:"input"`
		Model string   `json:"model"`
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil || body.Model != "test-model" {
		answerError(w, http.StatusBadRequest, "bad request")
		return
	}
	s.mu.Lock()
	s.inputs, s.keys = append(s.inputs, body.Input), append(s.keys, r.Header.Get("Authorization"))
	s.mu.Unlock()
	if s.first != nil && s.first(w, n, body.Input) {
		return
	}
	vectors := make([][]float32, len(body.Input))
	for i, text := range body.Input {
		vectors[i] = serverVector(text, serverDimension)
	}
	answerVectors(w, vectors)
}

func answerVectors(w http.ResponseWriter, vectors [][]float32) {
	type datum struct {
		Object    string    `json:"object"`
		Index     int       `json:"index"`
		Embedding []float32 `json:"embedding"`
	}
	data := make([]datum, len(vectors))
	for i, v := range vectors {
		data[len(vectors)-1-i] = datum{"embedding", i, v} // in the wrong order on purpose: index counts
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"object": "list", "model": "test-model", "data": data})
}

func answerError(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"message": message, "type": "test"}})
}

// openEndpoint opens an endpoint on s with short pauses; change may be nil.
func openEndpoint(t *testing.T, s *openAIServer, change func(*embed.EndpointOptions)) *embed.Endpoint {
	t.Helper()
	o := embed.EndpointOptions{BaseURL: s.URL + "/v1", Key: "secret-key-of-the-test", Model: "test-model", RetryFrom: 1, RetryTo: 1000}
	if change != nil {
		change(&o)
	}
	e, err := embed.NewEndpoint(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}
