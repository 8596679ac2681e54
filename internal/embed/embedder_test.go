package embed_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hindsight-memory/hindsight/internal/embed"
	"github.com/hindsight-memory/hindsight/internal/memory"
)

// gate is a model for the tests of scheduling: each call shows its texts on
// calls and waits until it is let go.
type gate struct {
	calls chan []string
	open  chan error
	free  bool // does not wait
	panic bool

	mu     sync.Mutex
	closed int
	ended  int // calls whose ctx ended
}

func newGate() *gate { return &gate{calls: make(chan []string, 100), open: make(chan error)} }

func (g *gate) Name() string                           { return "Gate: Model" }
func (g *gate) Dimension(context.Context) (int, error) { return 4, nil }

func (g *gate) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	g.calls <- slices.Clone(texts)
	if g.panic {
		panic("a model's panic")
	}
	if !g.free {
		select {
		case err := <-g.open:
			if err != nil {
				return nil, err
			}
		case <-ctx.Done():
			g.mu.Lock()
			g.ended++
			g.mu.Unlock()
			return nil, context.Cause(ctx)
		}
	}
	vectors := make([][]float32, len(texts))
	for i, t := range texts {
		if strings.HasPrefix(t, "bad") {
			return nil, errors.New("bad text")
		}
		vectors[i] = serverVector(t, 4)
	}
	return vectors, nil
}

func (g *gate) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed++
	return nil
}

func newEmbedder(t *testing.T, m embed.Model, o embed.Options) *embed.Embedder {
	t.Helper()
	e, err := embed.New(m, o)
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

// next returns the texts of the next call to the model.
func (g *gate) next(t *testing.T) []string {
	t.Helper()
	select {
	case texts := <-g.calls:
		return texts
	case <-time.After(10 * time.Second):
		t.Fatal("the model was not called")
		return nil
	}
}

// until polls a condition.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	deadline := time.After(10 * time.Second)
	for !condition() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("never: %s", what)
		}
	}
}

// embedLater embeds in the background and returns where the error will come.
func embedLater(ctx context.Context, e *embed.Embedder, p embed.Priority, texts ...string) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := e.Embed(ctx, p, texts...)
		done <- err
	}()
	return done
}

func numbered(prefix string, n int) []string {
	texts := make([]string, n)
	for i := range texts {
		texts[i] = fmt.Sprintf("%s %d", prefix, i)
	}
	return texts
}

func TestQuestionOvertakesBackgroundWork(t *testing.T) {
	t.Parallel()
	g := newGate()
	e := newEmbedder(t, g, embed.Options{Chunk: 2, Parallel: 1})
	work := embedLater(t.Context(), e, embed.Background, numbered("work", 6)...)
	if got := g.next(t); !slices.Equal(got, []string{"work 0", "work 1"}) {
		t.Fatalf("the first call has %q, want one chunk", got)
	}
	question := embedLater(t.Context(), e, embed.Interactive, "question", "work 5")
	until(t, "the question is queued", func() bool { return e.Stats().Joined == 1 })
	g.open <- nil
	if got := g.next(t); !slices.Equal(got, []string{"question", "work 5"}) {
		t.Fatalf("after one chunk the model got %q, want the question and the text that it shares with the work", got)
	}
	g.open <- nil
	if err := <-question; err != nil {
		t.Fatal(err)
	}
	for _, want := range [][]string{{"work 2", "work 3"}, {"work 4"}} {
		if got := g.next(t); !slices.Equal(got, want) {
			t.Fatalf("then the model got %q, want %q", got, want)
		}
		g.open <- nil
	}
	if err := <-work; err != nil {
		t.Fatal(err)
	}
}

func TestEqualTextsAreEmbeddedOnce(t *testing.T) {
	t.Parallel()
	g := newGate()
	e := newEmbedder(t, g, embed.Options{Parallel: 1})
	first := embedLater(t.Context(), e, embed.Background, "same", "  same\n", "same")
	if got := g.next(t); !slices.Equal(got, []string{"same"}) {
		t.Fatalf("the model got %q, want the text once", got)
	}
	second := embedLater(t.Context(), e, embed.Interactive, "same")
	until(t, "the second caller waits for the same text", func() bool { return e.Stats().Joined == 3 })
	g.open <- nil
	if err := errors.Join(<-first, <-second); err != nil {
		t.Fatal(err)
	}
	a, err := e.Embed(t.Context(), embed.Interactive, "same")
	if err != nil {
		t.Fatal(err)
	}
	a[0][0] = 99 // the caller's own
	b, err := e.Embed(t.Context(), embed.Interactive, "same")
	if err != nil || b[0][0] == 99 {
		t.Errorf("a caller has changed what is remembered (%v)", err)
	}
	if s := e.Stats(); s.Embedded != 1 || s.Hits != 2 || s.Cached != 1 {
		t.Errorf("Stats = %+v, want 1 embedded, 2 hits", s)
	}
}

func TestCacheIsBounded(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]embed.Options{"texts": {CacheTexts: 10}, "bytes": {CacheBytes: 2300}} {
		e := newEmbedder(t, &gate{calls: make(chan []string, 1000), free: true}, o)
		for _, text := range numbered("text", 100) {
			if _, err := e.Embed(t.Context(), embed.Background, text); err != nil {
				t.Fatal(err)
			}
		}
		if s := e.Stats(); s.Cached != 10 || s.CachedBytes > 2300 {
			t.Errorf("%s: Stats = %+v, want 10 cached", name, s)
		}
		if _, err := e.Embed(t.Context(), embed.Background, "text 99"); err != nil || e.Stats().Hits != 1 {
			t.Errorf("%s: the latest text is not remembered (%v)", name, err)
		}
	}
}

func TestEndOfWaiting(t *testing.T) {
	t.Parallel()
	g := newGate()
	e := newEmbedder(t, g, embed.Options{Chunk: 1, Parallel: 1})
	ctx, cancel := context.WithCancel(t.Context())
	running := embedLater(ctx, e, embed.Background, "running")
	g.next(t)
	impatient, leave := context.WithCancel(t.Context())
	queued := embedLater(impatient, e, embed.Interactive, "queued")
	until(t, "a text is queued", func() bool { return e.Stats().Queued == 1 })
	leave()
	// Before the model is free: who leaves at the same moment may be too late.
	until(t, "the text has left the queue", func() bool { return e.Stats().Queued == 0 })
	cancel()
	for _, done := range []<-chan error{running, queued} {
		if err := <-done; !errors.Is(err, memory.ErrUnavailable) || !errors.Is(err, context.Canceled) {
			t.Errorf("Embed = %v, want ErrUnavailable and Canceled", err)
		}
	}
	until(t, "the call that runs for nobody is cancelled", func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.ended == 1
	})
	again := embedLater(t.Context(), e, embed.Interactive, "running")
	if got := g.next(t); !slices.Equal(got, []string{"running"}) {
		t.Fatalf("the model got %q; what nobody waits for should not be begun", got)
	}
	g.open <- nil
	if err := <-again; err != nil {
		t.Fatal(err)
	}
}

func TestQueueIsBounded(t *testing.T) {
	t.Parallel()
	g := newGate()
	e := newEmbedder(t, g, embed.Options{Chunk: 1, Parallel: 1, Queue: 2})
	ctx, cancel := context.WithCancel(t.Context())
	var work []<-chan error
	for _, text := range numbered("work", 3) {
		work = append(work, embedLater(ctx, e, embed.Background, text))
	}
	g.next(t)
	until(t, "one text waits", func() bool { return e.Stats().Queued == 1 })
	// The queue of questions is another one.
	question := embedLater(t.Context(), e, embed.Interactive, "question")
	until(t, "the question waits too", func() bool { return e.Stats().Queued == 2 })
	g.open <- nil
	if got := g.next(t); !slices.Equal(got, []string{"question"}) {
		t.Fatalf("the model got %q, want the question", got)
	}
	g.open <- nil
	if err := <-question; err != nil {
		t.Fatal(err)
	}
	cancel()
	failed := 0
	for _, done := range work {
		if err := <-done; err != nil {
			failed++
			if !errors.Is(err, memory.ErrUnavailable) {
				t.Errorf("Embed = %v, want ErrUnavailable", err)
			}
		}
	}
	if failed != 2 {
		t.Errorf("%d of 3 failed, want 2", failed)
	}
}

func TestManyTextsOfOneCaller(t *testing.T) {
	t.Parallel()
	g := &gate{calls: make(chan []string, 1000), free: true}
	e := newEmbedder(t, g, embed.Options{Queue: 8, Chunk: 3})
	texts := numbered("text", 100)
	got, err := e.Embed(t.Context(), embed.Background, texts...)
	if err != nil || len(got) != len(texts) {
		t.Fatalf("%d vectors, %v", len(got), err)
	}
	again, err := e.Embed(t.Context(), embed.Background, "text 73")
	if err != nil || !slices.Equal(got[73], again[0]) {
		t.Errorf("the vectors are not in the order of the texts (%v)", err)
	}
}

func TestLongTextsMakeSmallChunks(t *testing.T) {
	t.Parallel()
	g := newGate()
	e := newEmbedder(t, g, embed.Options{Chunk: 8, ChunkBytes: 100, Parallel: 1})
	done := embedLater(t.Context(), e, embed.Background, "a", strings.Repeat("b", 99), "c", strings.Repeat("d", 500), "e")
	for _, want := range []int{2, 1, 1, 1} {
		if got := g.next(t); len(got) != want {
			t.Errorf("a call has %d texts, want %d", len(got), want)
		}
		g.open <- nil
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestOneBadTextFailsAlone(t *testing.T) {
	t.Parallel()
	g := newGate()
	e := newEmbedder(t, g, embed.Options{Chunk: 8, Parallel: 1})
	blocker := embedLater(t.Context(), e, embed.Background, "blocker")
	g.next(t)
	good := embedLater(t.Context(), e, embed.Background, "good")
	until(t, "the good text waits", func() bool { return e.Stats().Queued == 1 })
	bad := embedLater(t.Context(), e, embed.Background, "bad text")
	until(t, "the bad text waits", func() bool { return e.Stats().Queued == 2 })
	go func() {
		for range 4 { // the blocker, both together, each alone
			g.open <- nil
		}
	}()
	if err := errors.Join(<-blocker, <-good); err != nil {
		t.Errorf("the good text failed: %v", err)
	}
	if err := <-bad; err == nil || !strings.Contains(err.Error(), "bad text") {
		t.Errorf("the bad text = %v, want its own error", err)
	}
}

func TestClose(t *testing.T) {
	t.Parallel()
	g := newGate()
	e, err := embed.New(g, embed.Options{Chunk: 1, Parallel: 1})
	if err != nil {
		t.Fatal(err)
	}
	running := embedLater(t.Context(), e, embed.Background, "running")
	g.next(t)
	queued := embedLater(t.Context(), e, embed.Interactive, "queued")
	until(t, "a text is queued", func() bool { return e.Stats().Queued == 1 })
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, done := range []<-chan error{running, queued} {
		if err := <-done; !errors.Is(err, embed.ErrClosed) {
			t.Errorf("Embed = %v, want ErrClosed", err)
		}
	}
	if _, err := e.Embed(t.Context(), embed.Interactive, "later"); !errors.Is(err, embed.ErrClosed) {
		t.Errorf("Embed after Close = %v, want ErrClosed", err)
	}
	if g.closed != 1 {
		t.Errorf("the model was closed %d times", g.closed)
	}
}

func TestBadModels(t *testing.T) {
	t.Parallel()
	e := newEmbedder(t, &gate{calls: make(chan []string, 9), panic: true}, embed.Options{})
	if _, err := e.Embed(t.Context(), embed.Interactive, "a"); err == nil || !strings.Contains(err.Error(), "panicked") {
		t.Errorf("a model that panics = %v", err)
	}
	if _, err := e.Embed(t.Context(), embed.Interactive, "a", " "); !errors.Is(err, embed.ErrEmptyText) {
		t.Errorf("an empty text = %v, want ErrEmptyText", err)
	}
	if _, err := e.Embed(t.Context(), 7, "a"); err == nil {
		t.Error("an unknown priority is accepted")
	}
	none := newEmbedder(t, embed.None{}, embed.Options{})
	if _, err := none.Embed(t.Context(), embed.Interactive, "a"); !errors.Is(err, embed.ErrNone) {
		t.Errorf("no model = %v, want ErrNone", err)
	}
	if err := none.Warm(t.Context()); !errors.Is(err, embed.ErrNone) {
		t.Errorf("Warm without a model = %v, want ErrNone", err)
	}
	if _, err := embed.New(nil, embed.Options{}); err == nil {
		t.Error("nil is accepted as model")
	}
	if _, err := embed.New(embed.None{}, embed.Options{Chunk: -1}); err == nil {
		t.Error("a negative number is accepted")
	}
}

func TestIdentity(t *testing.T) {
	t.Parallel()
	id, err := newEmbedder(t, newGate(), embed.Options{}).Identity(t.Context())
	if err != nil || id != "gate--model/4/v1" {
		t.Errorf("Identity = %q, %v", id, err)
	}
	if err := embed.CheckStored(id, id); err != nil {
		t.Error(err)
	}
	if err := embed.CheckStored("", id); err != nil {
		t.Error(err)
	}
	for stored, says := range map[string]string{
		"baai/bge-m3/1024/v1":             "set EMBEDDING_MODEL back to baai/bge-m3",
		"gate--model/4/v2":                "run `hindsight reindex`",
		"gate--model/8/v1":                "run `hindsight reindex`",
		"damaged":                         "back to damaged",
		"multilingual-e5-small-q4/384/v1": "set HINDSIGHT_EMBEDDER=local",
	} {
		err := embed.CheckStored(stored, id)
		if !errors.Is(err, embed.ErrModelChanged) || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), id) {
			t.Errorf("CheckStored(%q) = %v, want ErrModelChanged that says %q", stored, err, says)
		}
	}
}
