package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hindsight-memory/hindsight/internal/memory"
	"github.com/hindsight-memory/hindsight/internal/store"
)

// Patience with a vector index. The record is never waited for here: whatever an index does not take or give is repaired,
// or answered without it.
const (
	// indexWatch is how often an index that answers is looked at, so that an outage is known before a question meets it.
	indexWatch = 10 * time.Second
	// indexMinPause and indexMaxPause are the pauses between two looks at one that is away.
	indexMinPause = 250 * time.Millisecond
	indexMaxPause = 5 * time.Second
	// indexSearch bounds a search that has no deadline; one that has gets half of what is left.
	indexSearch = time.Second
	// indexWrite bounds writing. It is under the time that a message may be in hand.
	indexWrite = 10 * time.Second
	// indexList bounds listing a namespace, which takes longer the more it holds; each request that it consists of has a bound
	// of its own, so that one that is not answered does not take so long.
	indexList = 10 * time.Minute
	// indexRebuild is how long a rebuild waits for an index that has gone away to take what it did not.
	indexRebuild = 2 * time.Minute
	// indexPrepare bounds making a collection ready, which loads what it holds.
	indexPrepare = 3 * time.Minute
	// indexStart is what a service that begins waits for the index, to find out whether it can be used at all.
	indexStart = 5 * time.Second
	// settleFactor is how many times the grace of writers an index must have been back before a repair.
	settleFactor = 2
	// leastSearch is what a search must have had before its silence says anything about the index: under it, the machine may
	// have been busy with the question's embedding.
	leastSearch = 500 * time.Millisecond
)

// index is a vector index that may be away: it is made ready by itself once the model is known, a call that it does not
// answer costs one caller a bounded time and the others nothing, and a watcher finds out when it is back. Its errors are
// [memory.ErrUnavailable] for all that may pass. It must be closed; it is safe for concurrent use.
type index struct {
	inner  memory.VectorIndex
	end    func() error // closes it
	logger *slog.Logger
	// settle is how long it must have been back before what it missed is repaired: longer than the grace of those who
	// write, so that all of it is found at once.
	settle time.Duration
	// repair asks for what the index missed to be written again; it may be nil. When it fails it is asked again.
	repair func(ctx context.Context) error

	late prometheus.Counter // entries that were not written

	preparing chan struct{} // holds one token: the right to prepare
	kick      chan struct{} // wakes the watcher

	mu        sync.Mutex
	model     string // empty until the model is known
	dimension int
	prepared  bool
	since     time.Time // when it went away; zero while it answers
	why       error
	owed      bool // something was not written, or may be lost: a repair is due while the index answers
	stop      context.CancelFunc
	watcher   sync.WaitGroup
}

var _ memory.VectorIndex = (*index)(nil)

func newIndex(inner memory.VectorIndex, end func() error, settle time.Duration, registerer prometheus.Registerer, logger *slog.Logger) (*index, error) {
	x := &index{
		inner: inner, end: end, logger: logger, settle: settle, preparing: make(chan struct{}, 1), kick: make(chan struct{}, 1),
		late: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "hindsight_index_deferred_total", Help: "Entries that were not written because the vector index was away; the consistency job writes them once it is back.",
		}),
	}
	x.preparing <- struct{}{}
	up := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "hindsight_index_up", Help: "Whether the vector index answers, as this process knows it: 0 while it is away.",
	}, func() float64 {
		if x.away() != nil {
			return 0
		}
		return 1
	})
	for _, c := range []prometheus.Collector{x.late, up} {
		if err := registerer.Register(c); err != nil {
			return nil, fmt.Errorf("register index metrics: %w", err)
		}
	}
	return x, nil
}

// openIndex makes the index that the settings name: one in Milvus, or else in ClickHouse. It connects to nothing. close
// ends its own connection, if it has one.
func (p *Parts) openIndex() (inner memory.VectorIndex, closeIndex func() error, err error) {
	if p.Config.MilvusAddr == "" {
		return store.NewVectors(p.Store), func() error { return nil }, nil
	}
	milvus, err := store.OpenMilvus(store.MilvusOptions{
		Address: p.Config.MilvusAddr, Token: p.Config.MilvusToken, TLS: p.Config.MilvusTLS == "on", Prefix: p.Config.MilvusPrefix,
	})
	if err != nil {
		return nil, nil, fmt.Errorf("set up the vector index in Milvus (HINDSIGHT_MILVUS_ADDR): %w", err)
	}
	return milvus, milvus.Close, nil
}

// ping asks a server of its own whether it is the right one, without a model.
func (x *index) ping(ctx context.Context) error {
	if server, is := x.inner.(interface {
		Ping(ctx context.Context) error
	}); is {
		return server.Ping(ctx) //nolint:wrapcheck // It says who answers and what to do.
	}
	return nil
}

// use says which model's vectors are searched from now on. The collection is made ready in the background.
func (x *index) use(model string, dimension int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.model == model && x.dimension == dimension {
		return
	}
	x.model, x.dimension, x.prepared = model, dimension, false
	if x.stop == nil {
		ctx, stop := context.WithCancel(context.Background())
		x.stop = stop
		x.watcher.Go(func() { x.watch(ctx) })
	}
	x.wake()
}

// close ends the watcher and the connection.
func (x *index) close() error {
	x.mu.Lock()
	stop := x.stop
	x.mu.Unlock()
	if stop != nil {
		stop()
	}
	x.watcher.Wait()
	return x.end()
}

// wake makes the watcher look at once.
func (x *index) wake() {
	select {
	case x.kick <- struct{}{}:
	default:
	}
}

// errUnknownModel means that nobody has said yet whose vectors there are.
var errUnknownModel = fmt.Errorf("%w: the vector index waits for the embedding model", memory.ErrUnavailable)

// awayError is what callers are told while the index does not answer. It is [memory.ErrUnavailable], whatever the cause
// is: a service that runs waits for the operator.
type awayError struct {
	since time.Time
	cause error
}

func (e *awayError) Error() string {
	return fmt.Sprintf("the vector index is away since %s: %v", e.since.UTC().Format(time.RFC3339), e.cause)
}

func (e *awayError) Is(target error) bool { return target == memory.ErrUnavailable }

// away is the reason why calls are not tried; nil when they are.
func (x *index) away() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.since.IsZero() {
		return nil
	}
	return &awayError{x.since, x.why}
}

// goAway notes that the index does not answer, and reports whether that is new. After a confirmed outage a repair is due:
// what the index held may be lost.
func (x *index) goAway(why error, confirmed bool) (isNew bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.why, x.owed = why, x.owed || confirmed
	if !x.since.IsZero() {
		return false
	}
	x.since = time.Now()
	x.logger.Warn("the vector index does not answer: questions are answered without it, and what it misses is written when it is back", "error", why)
	return true
}

// comeBack notes that it answers, and reports whether a repair is due.
func (x *index) comeBack() (owed bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.since.IsZero() {
		x.logger.Info("the vector index answers again", "away_seconds", time.Since(x.since).Seconds())
		x.since, x.why = time.Time{}, nil
	}
	return x.owed
}

// owe notes that a repair is due, or that it was done.
func (x *index) owe(owed bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.owed = owed
}

// watch looks whether the index answers until ctx ends, and has repaired what it missed once it does again.
func (x *index) watch(ctx context.Context) {
	pause, failures := indexWatch, 0
	var back time.Time // since when it answers, while a repair is due
	for {
		timer := time.NewTimer(pause/2 + rand.N(pause/2)) //nolint:gosec // It spreads looks, and keeps no secret.
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-x.kick:
			timer.Stop()
		case <-timer.C:
		}
		if err := x.probe(ctx); err != nil {
			if ctx.Err() != nil {
				return
			}
			x.goAway(err, true)
			pause, failures, back = min(indexMinPause<<min(failures, 10), indexMaxPause), failures+1, time.Time{}
			continue
		}
		pause, failures = indexWatch, 0
		if !x.comeBack() || x.repair == nil {
			continue
		}
		if back.IsZero() {
			back = time.Now()
		}
		if left := x.settle - time.Since(back); left > 0 {
			pause = min(max(left, indexMinPause), indexWatch)
			continue
		}
		x.owe(false) // Before it is done: what is missed meanwhile is owed anew.
		if err := x.repair(ctx); err != nil {
			x.logger.Debug("what the vector index missed is not repaired yet", "error", err)
			x.owe(true)
			continue
		}
		back = time.Time{}
	}
}

// probe searches the index, after making it ready: one that was away may have lost its collection.
func (x *index) probe(ctx context.Context) error {
	if x.away() != nil {
		x.mu.Lock()
		x.prepared = false
		x.mu.Unlock()
	}
	ctx, cancel := context.WithTimeout(ctx, indexPrepare)
	defer cancel()
	if err := x.prepare(ctx); err != nil {
		return err
	}
	return x.inner.Ready(ctx) //nolint:wrapcheck // The caller says what it is.
}

// prepare makes the collection of the model ready, unless it is. A call that comes meanwhile waits.
func (x *index) prepare(ctx context.Context) error {
	select {
	case <-x.preparing:
	case <-ctx.Done():
		return fmt.Errorf("%w: the vector index is still being made ready: %w", memory.ErrUnavailable, context.Cause(ctx))
	}
	defer func() { x.preparing <- struct{}{} }()
	x.mu.Lock()
	model, dimension, prepared := x.model, x.dimension, x.prepared
	x.mu.Unlock()
	switch {
	case prepared:
		return nil
	case model == "":
		return errUnknownModel
	}
	if err := x.inner.Prepare(ctx, model, dimension); err != nil {
		return fmt.Errorf("prepare the vector index: %w", err)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.prepared = x.model == model && x.dimension == dimension
	return nil
}

// Prepare makes the collection of a model ready now, whether the index is known to be away or not. Its error is as the
// index gave it, so that who starts can tell what passes from what does not.
func (x *index) Prepare(ctx context.Context, model string, dimension int) error {
	x.use(model, dimension) //nolint:contextcheck // Its watcher ends with the index, not with whoever named the model.
	ctx, cancel := context.WithTimeout(ctx, indexPrepare)
	defer cancel()
	return x.prepare(ctx)
}

// ask makes one call, within a bound.
func (x *index) ask(ctx context.Context, bound time.Duration, call func(ctx context.Context) error) error {
	if err := x.away(); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	preparing := true
	err := x.prepare(bounded)
	if err == nil {
		preparing = false
		err = call(bounded)
	}
	late := bounded.Err() != nil
	switch {
	case err == nil || ctx.Err() != nil || errors.Is(err, errUnknownModel):
		return err //nolint:wrapcheck // The index says what it was doing.
	case preparing, late, errors.Is(err, memory.ErrUnavailable):
		if late && bound < leastSearch {
			x.wake() // Which of the two it was, a look with more time tells.
			return fmt.Errorf("%w: too little time was left for the vector index: %w", memory.ErrUnavailable, err)
		}
		if x.goAway(err, false) {
			x.wake()
		}
		return &awayError{time.Now(), err}
	default:
		return err //nolint:wrapcheck // As above.
	}
}

// Upsert writes entries.
func (x *index) Upsert(ctx context.Context, entries []memory.IndexEntry) error {
	return x.ask(ctx, indexWrite, func(ctx context.Context) error { return x.inner.Upsert(ctx, entries) })
}

// Delete removes entries.
func (x *index) Delete(ctx context.Context, namespace string, ids []string) error {
	return x.ask(ctx, indexWrite, func(ctx context.Context) error { return x.inner.Delete(ctx, namespace, ids) })
}

// Search takes half of the time that is left at most, so that there is still an answer when the index gives none.
func (x *index) Search(ctx context.Context, q memory.VectorQuery) (found []memory.Candidate, err error) {
	bound := indexSearch
	if deadline, is := ctx.Deadline(); is {
		bound = time.Until(deadline) / 2
	}
	err = x.ask(ctx, bound, func(ctx context.Context) error {
		found, err = x.inner.Search(ctx, q)
		return err
	})
	return found, err
}

// TextHashes lists what the index holds.
func (x *index) TextHashes(ctx context.Context, namespace string) (held map[string]string, err error) {
	err = x.ask(ctx, indexList, func(ctx context.Context) error {
		held, err = x.inner.TextHashes(ctx, namespace)
		return err
	})
	return held, err
}

// Ready searches a vector, unless the index is known to be away.
func (x *index) Ready(ctx context.Context) error { return x.ask(ctx, probeTimeout, x.inner.Ready) }

// deferring is the index of those who write what they have learnt. While it is away they do not wait: the record holds
// what they wrote, vectors included, words find it, and it is brought into the index when that is back. So no queue grows
// by an outage, and nobody waits for more than the record.
type deferring struct{ *index }

func (d deferring) Upsert(ctx context.Context, entries []memory.IndexEntry) error {
	return d.deferred(ctx, len(entries), d.index.Upsert(ctx, entries))
}

func (d deferring) Delete(ctx context.Context, namespace string, ids []string) error {
	return d.deferred(ctx, len(ids), d.index.Delete(ctx, namespace, ids))
}

func (d deferring) deferred(ctx context.Context, entries int, err error) error {
	if err == nil || ctx.Err() != nil || !errors.Is(err, memory.ErrUnavailable) {
		return err
	}
	d.late.Add(float64(entries))
	d.owe(true)
	return nil
}

// rebuilt is the index of whoever fills it anew: a write that it did not take is tried again once it answers, within a
// bound, since beginning anew would meet the same.
type rebuilt struct{ *index }

func (r rebuilt) Upsert(ctx context.Context, entries []memory.IndexEntry) error {
	return r.patiently(ctx, func() error { return r.index.Upsert(ctx, entries) })
}

func (r rebuilt) Delete(ctx context.Context, namespace string, ids []string) error {
	return r.patiently(ctx, func() error { return r.index.Delete(ctx, namespace, ids) })
}

func (r rebuilt) patiently(ctx context.Context, write func() error) error {
	began := time.Now()
	for {
		err := write()
		if err == nil || !errors.Is(err, memory.ErrUnavailable) || time.Since(began) > indexRebuild {
			return err
		}
		timer := time.NewTimer(indexMinPause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return err
		case <-timer.C:
		}
	}
}
