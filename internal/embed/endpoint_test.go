package embed_test

import (
	"context"
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hindsight-memory/hindsight/internal/embed"
	"github.com/hindsight-memory/hindsight/internal/memory"
)

func TestEndpointAnswersInOrder(t *testing.T) {
	t.Parallel()
	s := newOpenAIServer(t, nil)
	e := openEndpoint(t, s, func(o *embed.EndpointOptions) { o.Batch = 2 })
	texts := []string{"one", "two", "three", "four", "five"}
	vectors, err := e.Embed(t.Context(), texts)
	if err != nil {
		t.Fatal(err)
	}
	for i, text := range texts {
		want := serverVector(text, serverDimension)
		var length float64
		for _, x := range want {
			length += float64(x) * float64(x)
		}
		for k, x := range want {
			if math.Abs(float64(vectors[i][k])-float64(x)/math.Sqrt(length)) > 1e-5 {
				t.Fatalf("the vector of %q is not the server's, scaled", text)
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.inputs) != 3 || !slices.Equal(s.inputs[2], texts[4:]) {
		t.Errorf("the requests were %q, want batches of 2", s.inputs)
	}
	if s.keys[0] != "Bearer secret-key-of-the-test" {
		t.Errorf("Authorization = %q", s.keys[0])
	}
}

func TestEndpointTriesAgain(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]func(w http.ResponseWriter){
		"429": func(w http.ResponseWriter) { answerError(w, http.StatusTooManyRequests, "slow down") },
		"429 after": func(w http.ResponseWriter) {
			w.Header().Set("Retry-After", "0")
			answerError(w, http.StatusTooManyRequests, "slow down")
		},
		"500":      func(w http.ResponseWriter) { answerError(w, http.StatusInternalServerError, "oops") },
		"503 text": func(w http.ResponseWriter) { http.Error(w, "loading model", http.StatusServiceUnavailable) },
		"cut off": func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "500")
			_, _ = w.Write([]byte(`{"object":"list","data":[{"index":0,`))
		},
		"hung up": func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newOpenAIServer(t, func(w http.ResponseWriter, request int, _ []string) bool {
				if request > 2 {
					return false
				}
				first(w)
				return true
			})
			if _, err := openEndpoint(t, s, nil).Embed(t.Context(), []string{"a"}); err != nil {
				t.Fatal(err)
			}
			if n := s.requests.Load(); n != 3 {
				t.Errorf("%d requests, want 3", n)
			}
		})
	}
}

func TestEndpointGivesUp(t *testing.T) {
	t.Parallel()
	data := func(body string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { _, _ = w.Write([]byte(body)) }
	}
	vectors := func(v ...[]float32) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { answerVectors(w, v) }
	}
	v, w := serverVector("v", serverDimension), serverVector("w", serverDimension)
	for name, c := range map[string]struct {
		answer   func(http.ResponseWriter)
		want     error
		says     string
		requests int64
	}{
		"always 500": {func(w http.ResponseWriter) { answerError(w, http.StatusInternalServerError, "oops") }, memory.ErrUnavailable, "oops", 3},
		"later than allowed": {
			func(w http.ResponseWriter) {
				w.Header().Set("Retry-After", "86400")
				answerError(w, http.StatusTooManyRequests, "tomorrow")
			},
			memory.ErrUnavailable, "tomorrow", 1,
		},
		"no quota": {func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = w.Write([]byte(`{"error":{"message":"You exceeded your quota","type":"insufficient_quota","code":"insufficient_quota"}}`))
		}, embed.ErrRefused, "no quota left", 1},
		"wrong key": {
			func(w http.ResponseWriter) {
				answerError(w, http.StatusUnauthorized, "Incorrect API key: secret-key-of-the-test")
			},
			embed.ErrRefused, "HINDSIGHT_LLM_API_KEY", 1,
		},
		"no model":        {func(w http.ResponseWriter) { answerError(w, http.StatusNotFound, "no such model") }, embed.ErrRefused, "EMBEDDING_MODEL", 1},
		"too long":        {func(w http.ResponseWriter) { answerError(w, http.StatusBadRequest, "input is too long") }, embed.ErrRefused, "cut texts shorter", 1},
		"page":            {data("<html>welcome</html>"), embed.ErrRefused, "usually ends in /v1", 1},
		"other JSON":      {data(`{"data": "no"}`), embed.ErrRefused, "usually ends in /v1", 1},
		"no data":         {data(`{}`), embed.ErrBadVector, "2 texts with 0 vectors", 1},
		"too few":         {vectors(v), embed.ErrBadVector, "2 texts with 1 vectors", 1},
		"too many":        {vectors(v, w, v), embed.ErrBadVector, "2 texts with 3 vectors", 1},
		"two dimensions":  {vectors(v, w[:8]), embed.ErrBadVector, "8 dimensions instead of 16", 1},
		"empty vector":    {vectors(v, nil), embed.ErrBadVector, "empty vector", 1},
		"zero vector":     {vectors(v, make([]float32, serverDimension)), embed.ErrBadVector, "length is 0", 1},
		"index twice":     {data(`{"data":[{"index":1,"embedding":[1]},{"index":1,"embedding":[1]}]}`), embed.ErrBadVector, "numbers its vectors", 1},
		"index too large": {data(`{"data":[{"index":0,"embedding":[1]},{"index":7,"embedding":[1]}]}`), embed.ErrBadVector, "numbers its vectors", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newOpenAIServer(t, func(w http.ResponseWriter, _ int, _ []string) bool { c.answer(w); return true })
			got, err := openEndpoint(t, s, func(o *embed.EndpointOptions) { o.Attempts = 3 }).Embed(t.Context(), []string{"a", "b"})
			if !errors.Is(err, c.want) || got != nil {
				t.Fatalf("Embed = %v, %v; want %v", got, err, c.want)
			}
			if !strings.Contains(err.Error(), c.says) {
				t.Errorf("the error %q does not say %q", err, c.says)
			}
			if strings.Contains(err.Error(), "secret-key") {
				t.Errorf("the error %q holds the key", err)
			}
			if n := s.requests.Load(); n != c.requests {
				t.Errorf("%d requests, want %d", n, c.requests)
			}
		})
	}
}

func TestEndpointKeepsToItsDimension(t *testing.T) {
	t.Parallel()
	s := newOpenAIServer(t, func(w http.ResponseWriter, request int, _ []string) bool {
		if request == 1 {
			return false
		}
		answerVectors(w, [][]float32{serverVector("x", 32)})
		return true
	})
	e := openEndpoint(t, s, nil)
	if n, err := e.Dimension(t.Context()); err != nil || n != serverDimension {
		t.Fatalf("Dimension = %d, %v", n, err)
	}
	if _, err := e.Embed(t.Context(), []string{"a"}); !errors.Is(err, embed.ErrBadVector) || !strings.Contains(err.Error(), "hindsight reindex") {
		t.Errorf("another dimension than before = %v, want ErrBadVector with what to do", err)
	}
	configured := openEndpoint(t, newOpenAIServer(t, nil), func(o *embed.EndpointOptions) { o.Dimension = 1024 })
	if _, err := configured.Embed(t.Context(), []string{"a"}); !errors.Is(err, embed.ErrBadVector) {
		t.Errorf("another dimension than configured = %v, want ErrBadVector", err)
	}
}

func TestEndpointServerWithoutNumbers(t *testing.T) {
	t.Parallel()
	s := newOpenAIServer(t, func(w http.ResponseWriter, _ int, _ []string) bool {
		_, _ = w.Write([]byte(`{"data":[{"embedding":[3,0]},{"embedding":[0,4]}]}`))
		return true
	})
	got, err := openEndpoint(t, s, nil).Embed(t.Context(), []string{"a", "b"})
	if err != nil || !slices.Equal(got[0], []float32{1, 0}) || !slices.Equal(got[1], []float32{0, 1}) {
		t.Errorf("Embed = %v, %v", got, err)
	}
}

func TestEndpointSlow(t *testing.T) {
	t.Parallel()
	slow := func(t *testing.T) (s *openAIServer, entered chan struct{}) {
		t.Helper()
		release := make(chan struct{})
		entered = make(chan struct{}, 8)
		s = newOpenAIServer(t, func(http.ResponseWriter, int, []string) bool {
			entered <- struct{}{}
			<-release
			return false
		})
		t.Cleanup(func() { close(release) }) // before the server is closed
		return s, entered
	}
	t.Run("the caller gives up", func(t *testing.T) {
		t.Parallel()
		s, entered := slow(t)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-entered
			cancel()
		}()
		_, err := openEndpoint(t, s, nil).Embed(ctx, []string{"a"})
		if !errors.Is(err, memory.ErrUnavailable) || !errors.Is(err, context.Canceled) {
			t.Errorf("Embed = %v, want ErrUnavailable and Canceled", err)
		}
	})
	t.Run("the request times out", func(t *testing.T) {
		t.Parallel()
		s, _ := slow(t)
		e := openEndpoint(t, s, func(o *embed.EndpointOptions) { o.Timeout, o.Attempts = time.Millisecond, 2 })
		if _, err := e.Embed(t.Context(), []string{"a"}); !errors.Is(err, memory.ErrUnavailable) {
			t.Errorf("Embed = %v, want ErrUnavailable", err)
		}
	})
}

// TestEndpointBehindEmbedder protects the endpoint from being asked for each
// text when it refuses all, and good texts from the one that it refuses.
func TestEndpointBehindEmbedder(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status   int
		requests int64
	}{"key": {http.StatusUnauthorized, 1}, "text": {http.StatusBadRequest, 5}} {
		s := newOpenAIServer(t, func(w http.ResponseWriter, _ int, input []string) bool {
			if slices.Contains(input, "text 2") {
				answerError(w, c.status, "no")
				return true
			}
			return false
		})
		e := newEmbedder(t, openEndpoint(t, s, nil), embed.Options{Parallel: 1})
		if _, err := e.Embed(t.Context(), embed.Background, numbered("text", 4)...); !errors.Is(err, embed.ErrRefused) {
			t.Errorf("%s: Embed = %v, want ErrRefused", name, err)
		}
		until(t, "all texts are settled", func() bool { st := e.Stats(); return st.Embedded+st.Failed == 4 })
		if n := s.requests.Load(); n != c.requests {
			t.Errorf("%s: %d requests, want %d", name, n, c.requests)
		}
	}
}

func TestEndpointAway(t *testing.T) {
	t.Parallel()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	e, err := embed.NewEndpoint(embed.EndpointOptions{BaseURL: gone.URL, Model: "m", Attempts: 2, RetryFrom: 1, RetryTo: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Embed(t.Context(), []string{"a"}); !errors.Is(err, memory.ErrUnavailable) || !strings.Contains(err.Error(), "check that it runs") {
		t.Errorf("Embed = %v, want ErrUnavailable with what to do", err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

func TestEndpointOptions(t *testing.T) {
	t.Parallel()
	for _, o := range []embed.EndpointOptions{
		{Model: "m"},
		{BaseURL: "127.0.0.1:8080/v1", Model: "m"},
		{BaseURL: "ftp://127.0.0.1", Model: "m"},
		{BaseURL: "http://user:hidden-word@127.0.0.1/v1", Model: "m"},
		{BaseURL: "http://127.0.0.1/v1?key=hidden-word", Model: "m"},
		{BaseURL: "http://127.0.0.1/v1\x7fhidden-word", Model: "m"},
		{BaseURL: "http://127.0.0.1/v1"},
		{BaseURL: "http://127.0.0.1/v1", Model: "m", Batch: -1},
	} {
		if _, err := embed.NewEndpoint(o); err == nil || strings.Contains(err.Error(), "hidden-word") {
			t.Errorf("NewEndpoint(%+v) = %v, want an error that does not repeat a secret", o, err)
		}
	}
}
