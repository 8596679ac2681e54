package embed

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/sync/semaphore"

	"github.com/hindsight-memory/hindsight/internal/memory"
)

// Priority says who waits for a vector.
type Priority int

const (
	// Background is work that nobody waits for: reflection, reindexing.
	Background Priority = iota
	// Interactive is a question that an agent or a person waits for. It goes
	// before all background work that has not begun.
	Interactive
	priorities
)

// Options are the settings of [Embedder].
type Options struct {
	// CacheTexts and CacheBytes bound the vectors that are remembered, by
	// number and by the size of texts and vectors; 0 means 20,000 and 32 MiB.
	CacheTexts int
	CacheBytes int64
	// Queue is the most texts that may wait or be embedded at a time, for each
	// priority; who comes later waits for room. 0 means 1,024.
	Queue int
	// Chunk and ChunkBytes bound one call to the model by texts and by their
	// size (a single text may be larger). A question waits for one such call at
	// most. 0 means 4 texts and 1 KiB for [Local], up to about half a second,
	// and 32 texts and 256 KiB for anything else.
	Chunk, ChunkBytes int
	// Parallel is how many calls to the model run at a time; 0 means
	// [LocalOptions.Threads] for [Local] and 4 for anything else.
	Parallel int
	// Timeout bounds one call to the model; 0 means 5 minutes.
	Timeout time.Duration
}

// Embedder is the front of a model. It is safe for concurrent use and must be
// closed.
type Embedder struct {
	model Model
	o     Options
	slots [priorities]*semaphore.Weighted

	stop    context.CancelCauseFunc // ends all calls to the model
	workers sync.WaitGroup
	closing sync.Once
	closed  chan struct{}
	failure error // of closing the model; read after closed

	mu        sync.Mutex
	ready     *sync.Cond // something is queued, or closing
	stopped   bool
	dimension int
	cache     *simplelru.LRU[string, []float32]
	bytes     int64
	flights   map[string]*flight // queued or running, joined by equal texts
	queues    [priorities]*list.List
	stats     Stats
}

// flight is one text on its way. Its fields are guarded by Embedder.mu; vector
// and err do not change once done is closed.
type flight struct {
	text     string
	waiters  int
	priority Priority
	element  *list.Element // in its queue; nil once it runs
	call     *modelCall    // nil while it is queued
	done     chan struct{}
	vector   []float32
	err      error
}

// modelCall is one call to the model.
type modelCall struct {
	wanted int // flights that somebody waits for
	cancel context.CancelFunc
}

// Stats are counts since the start, and what is in memory now.
type Stats struct {
	// Hits were answered from memory, Joined by a text that was on its way
	// already, Embedded by the model, Failed by an error.
	Hits, Joined, Embedded, Failed uint64
	// Queued texts wait for the model; Cached are remembered, CachedBytes in
	// size.
	Queued, Cached int
	CachedBytes    int64
}

// New starts an embedder, which owns model from then on. It does not load the
// model; see [Embedder.Warm].
func New(model Model, o Options) (*Embedder, error) {
	if model == nil {
		return nil, errors.New("an embedder needs a model; use None for none")
	}
	if o.CacheTexts < 0 || o.CacheBytes < 0 || o.Queue < 0 || o.Chunk < 0 || o.ChunkBytes < 0 || o.Parallel < 0 || o.Timeout < 0 {
		return nil, errors.New("a number in the settings of the embedder is negative")
	}
	chunk, chunkBytes, parallel := 32, 256<<10, 4
	inner := model
	if k, is := model.(*kept); is {
		inner = k.Model
	}
	if l, ok := inner.(*Local); ok {
		chunk, chunkBytes, parallel = 4, 1<<10, l.threads
	}
	o.CacheTexts = cmp.Or(o.CacheTexts, 20_000)
	o.CacheBytes = cmp.Or(o.CacheBytes, 32<<20)
	o.Queue = cmp.Or(o.Queue, 1024)
	o.Chunk = cmp.Or(o.Chunk, chunk)
	o.ChunkBytes = cmp.Or(o.ChunkBytes, chunkBytes)
	o.Parallel = cmp.Or(o.Parallel, parallel)
	o.Timeout = cmp.Or(o.Timeout, 5*time.Minute)
	e := &Embedder{model: model, o: o, closed: make(chan struct{}), flights: map[string]*flight{}}
	e.ready = sync.NewCond(&e.mu)
	for p := range e.queues {
		e.queues[p] = list.New()
		e.slots[p] = semaphore.NewWeighted(int64(o.Queue))
	}
	cache, err := simplelru.NewLRU(o.CacheTexts, func(text string, v []float32) { e.bytes -= size(text, v) })
	if err != nil {
		return nil, fmt.Errorf("make the cache of vectors: %w", err)
	}
	e.cache = cache
	work, stop := context.WithCancelCause(context.Background())
	e.stop = stop
	for range o.Parallel {
		e.workers.Go(func() { e.work(work) })
	}
	return e, nil
}

// size is what a remembered vector takes in memory: its text, its numbers and
// about what a list entry and a map entry cost.
func size(text string, v []float32) int64 { return int64(len(text)) + 4*int64(len(v)) + 200 }

// Name is the name of the model.
func (e *Embedder) Name() string { return e.model.Name() }

// Warm loads the model, or asks the endpoint for its dimension, and returns
// when that has been done or has failed. Run it in the background at the start;
// until it has returned, questions wait for the model as long as their ctx
// allows.
func (e *Embedder) Warm(ctx context.Context) error {
	_, err := e.Dimension(ctx)
	return err
}

// Dimension is the length of the vectors. The first call loads the model.
func (e *Embedder) Dimension(ctx context.Context) (int, error) {
	e.mu.Lock()
	dimension, stopped := e.dimension, e.stopped
	e.mu.Unlock()
	switch {
	case stopped:
		return 0, ErrClosed
	case dimension > 0:
		return dimension, nil
	}
	dimension, err := e.model.Dimension(ctx)
	if err != nil {
		return 0, fmt.Errorf("load the embedding model: %w", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.dimension == 0 {
		e.dimension = dimension
	}
	return e.dimension, nil
}

// Identity names the model, its dimension and the version of what is done to
// its vectors, as in multilingual-e5-small-q4/384/v1. Vectors may be compared
// only when their identities are equal. It consists of [a-z0-9_/.-]. The first
// call loads the model.
func (e *Embedder) Identity(ctx context.Context) (string, error) {
	dimension, err := e.Dimension(ctx)
	if err != nil {
		return "", err
	}
	return identity(e.model, dimension), nil
}

// Embed returns a vector of length 1 for each text, in order; the caller may
// change them. Each text counts up to about [MaxTextBytes], or what the model
// looks at. It returns [ErrEmptyText] for a text with nothing to read, and what
// wraps memory.ErrUnavailable when ctx ends first or the model is away; both
// without any vector.
func (e *Embedder) Embed(ctx context.Context, p Priority, texts ...string) ([][]float32, error) {
	if p != Background && p != Interactive {
		return nil, fmt.Errorf("embed with priority %d: there is no such priority", p)
	}
	cleaned := make([]string, len(texts))
	for i, t := range texts {
		c, err := Clean(t, MaxTextBytes)
		if err != nil {
			return nil, fmt.Errorf("text %d of %d: %w", i+1, len(texts), err)
		}
		cleaned[i] = c
	}
	vectors := make([][]float32, 0, len(texts))
	// In windows, so that many texts of one caller leave room for others'.
	for window := range slices.Chunk(cleaned, max(1, min(e.o.Queue/2, 256))) {
		got, err := e.window(ctx, p, window)
		if err != nil {
			return nil, err
		}
		vectors = append(vectors, got...)
	}
	return vectors, nil
}

func (e *Embedder) window(ctx context.Context, p Priority, texts []string) ([][]float32, error) {
	if vectors := e.remembered(texts); vectors != nil {
		return vectors, nil
	}
	n := int64(len(texts))
	if err := e.slots[p].Acquire(ctx, n); err != nil {
		return nil, unavailable(ctx, "too many texts wait to be embedded; ask again in a moment")
	}
	defer e.slots[p].Release(n)
	flights, err := e.join(p, texts)
	if err != nil {
		return nil, err
	}
	vectors := make([][]float32, len(flights))
	for i, f := range flights {
		select {
		case <-f.done:
			err = f.err
		case <-ctx.Done():
			err = unavailable(ctx, "the text was not embedded in time; ask again in a moment")
		}
		if err != nil {
			e.leave(flights[i:])
			return nil, err
		}
		vectors[i] = slices.Clone(f.vector)
	}
	return vectors, nil
}

// remembered returns the vectors of texts when all are in the cache.
func (e *Embedder) remembered(texts []string) [][]float32 {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped {
		return nil
	}
	vectors := make([][]float32, len(texts))
	for i, t := range texts {
		if !e.cache.Contains(t) {
			return nil
		}
		v, _ := e.cache.Get(t)
		vectors[i] = slices.Clone(v)
	}
	e.stats.Hits += uint64(len(texts))
	return vectors
}

// join puts the caller on a flight for each text: one that has landed when the
// vector is remembered, the one that is on its way, or a new one.
func (e *Embedder) join(p Priority, texts []string) ([]*flight, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped {
		return nil, ErrClosed
	}
	flights := make([]*flight, len(texts))
	for i, t := range texts {
		if v, ok := e.cache.Get(t); ok {
			e.stats.Hits++
			f := &flight{text: t, vector: v, done: make(chan struct{})}
			close(f.done)
			flights[i] = f
			continue
		}
		f := e.flights[t]
		switch {
		case f == nil:
			f = &flight{text: t, priority: p, done: make(chan struct{})}
			f.element = e.queues[p].PushBack(f)
			e.flights[t] = f
			e.ready.Signal()
		case f.element != nil && f.priority < p:
			e.queues[f.priority].Remove(f.element)
			f.priority, f.element = p, e.queues[p].PushBack(f)
			e.stats.Joined++
		default:
			e.stats.Joined++
		}
		f.waiters++
		flights[i] = f
	}
	return flights, nil
}

// leave takes the caller off flights that it no longer waits for. What nobody
// waits for is not begun, and a call that is running for nobody is cancelled.
func (e *Embedder) leave(flights []*flight) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, f := range flights {
		if f.waiters == 0 {
			continue // it had landed when the caller came
		}
		f.waiters--
		if f.waiters > 0 || e.flights[f.text] != f {
			continue
		}
		delete(e.flights, f.text)
		if f.element != nil {
			e.queues[f.priority].Remove(f.element)
			f.element = nil
			continue
		}
		f.call.wanted--
		if f.call.wanted == 0 {
			f.call.cancel()
		}
	}
}

// work calls the model for what is queued until ctx ends.
func (e *Embedder) work(ctx context.Context) {
	for {
		flights, call, callCtx := e.next(ctx)
		if flights == nil {
			return
		}
		e.fly(callCtx, flights)
		call.cancel()
	}
}

// next waits for work and takes one chunk of it: questions first. It returns
// nil when the embedder is closed.
func (e *Embedder) next(ctx context.Context) ([]*flight, *modelCall, context.Context) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for {
		if e.stopped {
			return nil, nil, nil
		}
		for p := priorities - 1; p >= 0; p-- {
			queue := e.queues[p]
			if queue.Len() == 0 {
				continue
			}
			callCtx, cancel := context.WithTimeout(ctx, e.o.Timeout)
			call := &modelCall{cancel: cancel}
			var flights []*flight
			bytes := 0
			for queue.Len() > 0 && len(flights) < e.o.Chunk {
				f := queue.Front().Value.(*flight) //nolint:forcetypeassert // only flights are put in.
				bytes += len(f.text)
				if bytes > e.o.ChunkBytes && len(flights) > 0 {
					break
				}
				queue.Remove(f.element)
				f.element, f.call = nil, call
				flights = append(flights, f)
			}
			call.wanted = len(flights)
			return flights, call, callCtx
		}
		e.ready.Wait()
	}
}

// fly embeds the texts of one chunk. When the model refuses the chunk for good,
// each text is tried on its own, so that one bad text fails alone.
func (e *Embedder) fly(ctx context.Context, flights []*flight) {
	texts := make([]string, len(flights))
	for i, f := range flights {
		texts[i] = f.text
	}
	vectors, err := e.call(ctx, texts)
	if err != nil && len(flights) > 1 && ctx.Err() == nil && !blameless(err) {
		for _, f := range flights {
			e.fly(ctx, []*flight{f})
		}
		return
	}
	if err != nil && ctx.Err() != nil && !blameless(err) {
		err = unavailable(ctx, "the text was not embedded in time; ask again in a moment")
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, f := range flights {
		if e.flights[f.text] == f {
			delete(e.flights, f.text)
		}
		if err != nil {
			f.err = err
			e.stats.Failed++
		} else {
			f.vector = vectors[i]
			e.stats.Embedded++
			e.remember(f.text, f.vector)
		}
		close(f.done)
	}
}

// blameless says that what failed is not the texts' fault, so that it would
// fail for each of them alone.
func blameless(err error) bool {
	if r := (*refusal)(nil); errors.As(err, &r) {
		return true
	}
	return errors.Is(err, memory.ErrUnavailable) || errors.Is(err, ErrClosed) || errors.Is(err, ErrNone) || errors.Is(err, ErrNoLocal)
}

// call asks the model and checks its answer; a panic becomes an error.
func (e *Embedder) call(ctx context.Context, texts []string) (vectors [][]float32, err error) {
	defer func() {
		if p := recover(); p != nil {
			vectors, err = nil, fmt.Errorf("the embedding model panicked: %v", p)
		}
	}()
	vectors, err = e.model.Embed(ctx, texts)
	if err != nil {
		return nil, err
	}
	if len(vectors) != len(texts) {
		return nil, fmt.Errorf("%w: %d vectors for %d texts", ErrBadVector, len(vectors), len(texts))
	}
	e.mu.Lock()
	if e.dimension == 0 && len(vectors) > 0 {
		e.dimension = len(vectors[0])
	}
	dimension := e.dimension
	e.mu.Unlock()
	for _, v := range vectors {
		if len(v) != dimension {
			return nil, fmt.Errorf("%w: %d dimensions instead of %d", ErrBadVector, len(v), dimension)
		}
		if err := normalise(v); err != nil {
			return nil, err
		}
	}
	return vectors, nil
}

// remember keeps a vector, and forgets the least used ones when there are too
// many. e.mu is held.
func (e *Embedder) remember(text string, v []float32) {
	if size(text, v) > e.o.CacheBytes || e.cache.Contains(text) {
		return
	}
	e.bytes += size(text, v)
	e.cache.Add(text, v)
	for e.bytes > e.o.CacheBytes {
		e.cache.RemoveOldest()
	}
}

// Stats returns the counts so far.
func (e *Embedder) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.stats
	for _, q := range e.queues {
		s.Queued += q.Len()
	}
	s.Cached, s.CachedBytes = e.cache.Len(), e.bytes
	return s
}

// Close fails what is queued with [ErrClosed], cancels what is running, waits
// for it and closes the model. Further calls of Close wait for the first one
// and return the same.
func (e *Embedder) Close() error {
	e.closing.Do(func() {
		defer close(e.closed)
		e.mu.Lock()
		e.stopped = true
		for p, q := range e.queues {
			for ; q.Len() > 0; q.Remove(q.Front()) {
				f := q.Front().Value.(*flight) //nolint:forcetypeassert // only flights are put in.
				delete(e.flights, f.text)
				f.element, f.err = nil, ErrClosed
				close(f.done)
			}
			e.queues[p].Init()
		}
		e.ready.Broadcast()
		e.mu.Unlock()
		e.stop(ErrClosed)
		e.workers.Wait()
		if err := e.model.Close(); err != nil {
			e.failure = fmt.Errorf("close the embedding model: %w", err)
		}
	})
	<-e.closed
	return e.failure
}
