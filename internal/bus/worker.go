package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
)

const (
	// pullWait is how long an idle worker's request stands; stopping waits
	// for it, because leaving it behind could strand a message until AckWait.
	pullWait = 500 * time.Millisecond
	// suspectAfter is after how many failures a message is kept away from
	// those that did not fail.
	suspectAfter = 2
	// batchBytes bounds a batch, its first message aside.
	batchBytes = 32 << 20
	// backlogWait is how long a batch may take to arrive when all of it is waiting already.
	backlogWait = time.Second
	// minAckWait leaves room for three signs of life.
	minAckWait = 100 * time.Millisecond
	// abortGrace is what a handler has to return once its context is
	// cancelled.
	abortGrace = time.Second
	// letterTimeout bounds the publishing of dead letters.
	letterTimeout = 10 * time.Second
)

// Handler handles a batch and gives a verdict for each message, in order: nil
// for what is done for good, [Discard], [Wait], or any other error for an
// attempt that failed. Messages may come twice and in any order. It must return
// soon after ctx ends.
type Handler func(ctx context.Context, batch []Message) []error

// WorkerOptions configures [Conn.NewWorker].
type WorkerOptions struct {
	// Stream and Durable name the stream and the consumer that all replicas
	// share. Required.
	Stream, Durable string
	// FilterSubject limits what is delivered. Default: all of the stream.
	FilterSubject string
	// BatchSize is how many messages the handler gets at most, up to 33 MiB
	// of them. Default 1.
	BatchSize int
	// BatchWait is how long to collect a batch after its first message.
	// Default 50 ms; it must be less than AckWait.
	BatchWait time.Duration
	// AckWait is after what silence of this process its messages go to
	// another one; a handler may take any time. At least 100 ms, default
	// 30 s.
	AckWait time.Duration
	// Concurrency is how many batches are handled at once. Default 1.
	Concurrency int
	// MaxAckPending is how many messages may be out at once, over all
	// replicas and those that wait for another attempt included. Default
	// 2 × BatchSize × Concurrency + 1000.
	MaxAckPending int
	// MaxAttempts is after how many failures a message becomes a dead
	// letter. Default 5. One that failed only beside others gets another
	// attempt on its own first.
	MaxAttempts int
	// MinBackoff and MaxBackoff bound the wait before another attempt, which
	// doubles each time. Default 500 ms and 1 min.
	MinBackoff, MaxBackoff time.Duration
	// DrainTimeout is what running handlers have when the worker stops.
	// Default 20 s.
	DrainTimeout time.Duration
	// Logger defaults to that of the connection, Registerer to none.
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

func (o *WorkerOptions) complete(c *Conn) error {
	for _, n := range []*int{&o.BatchSize, &o.Concurrency} {
		if *n == 0 {
			*n = 1
		}
	}
	for _, d := range []struct {
		value    *time.Duration
		standard time.Duration
	}{
		{&o.BatchWait, 50 * time.Millisecond},
		{&o.AckWait, 30 * time.Second},
		{&o.MinBackoff, 500 * time.Millisecond},
		{&o.MaxBackoff, max(time.Minute, o.MinBackoff)},
		{&o.DrainTimeout, 20 * time.Second},
	} {
		if *d.value == 0 {
			*d.value = d.standard
		}
	}
	if o.MaxAttempts == 0 {
		o.MaxAttempts = 5
	}
	if o.MaxAckPending == 0 {
		o.MaxAckPending = 2*o.BatchSize*o.Concurrency + 1000
	}
	if o.Logger == nil {
		o.Logger = c.log
	}
	switch {
	case o.Stream == "" || o.Durable == "":
		return errors.New("both Stream and Durable are required")
	case o.BatchSize < 0 || o.Concurrency < 0 || o.MaxAttempts < 0:
		return errors.New("BatchSize, Concurrency and MaxAttempts may not be negative")
	case o.MaxAckPending < o.BatchSize*o.Concurrency:
		return fmt.Errorf("MaxAckPending %d cannot fill %d batches of %d", o.MaxAckPending, o.Concurrency, o.BatchSize)
	case o.AckWait < minAckWait:
		return fmt.Errorf("AckWait %s must be at least %s", o.AckWait, minAckWait)
	case o.BatchWait < 0 || o.BatchWait >= o.AckWait:
		return fmt.Errorf("BatchWait %s must not be negative and be less than AckWait %s", o.BatchWait, o.AckWait)
	case o.MinBackoff < 0 || o.MaxBackoff < o.MinBackoff || o.DrainTimeout < 0:
		return errors.New("MinBackoff, MaxBackoff and DrainTimeout may not be negative, nor MaxBackoff less than MinBackoff")
	}
	return nil
}

// Worker hands the messages of a consumer to a handler.
type Worker struct {
	conn    *Conn
	o       WorkerOptions
	handle  Handler
	metrics metrics
	ledger  ledger
	stuck   atomic.Int64 // handlers that did not return when told to

	mu       sync.Mutex
	consumer jetstream.Consumer // nil until it is known to exist; guarded by mu
	created  time.Time          // of the stream; guarded by mu
}

// NewWorker prepares a worker; nothing happens before Run.
func (c *Conn) NewWorker(o WorkerOptions, h Handler) (*Worker, error) {
	if h == nil {
		return nil, errors.New("new worker: the handler is nil")
	}
	if err := o.complete(c); err != nil {
		return nil, fmt.Errorf("new worker: %w", err)
	}
	o.Logger = o.Logger.With("stream", o.Stream, "durable", o.Durable)
	m, err := newMetrics(o.Registerer, o.Stream, o.Durable)
	if err != nil {
		return nil, fmt.Errorf("new worker: %w", err)
	}
	return &Worker{conn: c, o: o, handle: h, metrics: m}, nil
}

// Run works until ctx ends. Then it takes no more messages, lets running
// handlers finish within DrainTimeout, cancels those left with the cause
// [ErrDrainTimeout], and gives back at once whatever is not done. It returns
// nil when all were done, ErrDrainTimeout when some were given back for that
// reason, and another error when it cannot work at all: the connection was
// closed, or the server refuses the consumer as it is configured. A server
// that is away, a stream that does not exist yet and a consumer that somebody
// deletes are waited for.
func (w *Worker) Run(ctx context.Context) error {
	g, intake := errgroup.WithContext(ctx)
	work, abort := context.WithCancelCause(context.WithoutCancel(ctx))
	defer abort(nil)
	finished := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-intake.Done():
		case <-finished:
			return
		}
		timer := time.NewTimer(w.o.DrainTimeout)
		defer timer.Stop()
		select {
		case <-timer.C:
			abort(ErrDrainTimeout)
		case <-finished:
		}
	})
	for range w.o.Concurrency {
		g.Go(func() error { return w.loop(intake, work) })
	}
	g.Go(func() error { w.adopt(intake); return nil })
	err := g.Wait()
	close(finished)
	watch.Wait()
	w.conn.flush(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("work on stream %s as %s: %w", w.o.Stream, w.o.Durable, err)
	case w.stuck.Load() > 0:
		return fmt.Errorf("work on stream %s as %s: %w of %s: %d handlers go on although their context ended; their messages were given back",
			w.o.Stream, w.o.Durable, ErrDrainTimeout, w.o.DrainTimeout, w.stuck.Load())
	case work.Err() != nil:
		return fmt.Errorf("work on stream %s as %s: %w of %s: what was not done was given back", w.o.Stream, w.o.Durable, ErrDrainTimeout, w.o.DrainTimeout)
	}
	return nil
}

// loop fetches and handles batches until intake ends. work outlives intake: it
// is what handlers run under.
func (w *Worker) loop(intake, work context.Context) error {
	for failures := 0; intake.Err() == nil; {
		consumer, created, err := w.open(intake)
		if err == nil {
			var b *batch
			b, err = w.fetch(intake, consumer, created)
			if len(b.deliveries) > 0 {
				failures = 0
				w.process(intake, work, b)
			}
			b.close()
		}
		if err == nil || intake.Err() != nil {
			continue
		}
		if fatal(w.conn, err) {
			return err
		}
		// Whatever it was, the consumer may be gone with it.
		w.reopen(consumer)
		failures++
		wait := delay(failures, retryLow, retryHigh)
		w.o.Logger.Warn("cannot fetch; trying again", "error", err, "retry_in", wait)
		pause(intake, wait)
	}
	return nil
}

// fatal reports whether waiting cannot help.
func fatal(c *Conn, err error) bool {
	if c.nc.IsClosed() {
		return true
	}
	switch apiCode(err) {
	case codeConsumerNotUnique, codeConsumerUnfiltered, jetstream.JSErrCodeConsumerCreate, codeInvalidConfig,
		jetstream.JSErrCodeConsumerNameExists, jetstream.JSErrCodeMaximumConsumersLimit:
		return true
	default:
		return errors.Is(err, jetstream.ErrInvalidConsumerName) || errors.Is(err, jetstream.ErrInvalidStreamName)
	}
}

// open returns the consumer, making it if need be, and when its stream was
// created.
func (w *Worker) open(ctx context.Context) (jetstream.Consumer, time.Time, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.consumer != nil {
		return w.consumer, w.created, nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	stream, err := w.conn.js.Stream(ctx, w.o.Stream)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("open stream: %w", translate(err))
	}
	consumer, err := stream.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{
		Durable:       w.o.Durable,
		FilterSubject: w.o.FilterSubject,
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       w.o.AckWait,
		MaxAckPending: w.o.MaxAckPending,
		// The worker counts attempts itself. A limit here would leave the
		// message in the stream, invisible to everybody.
		MaxDeliver: -1,
	})
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("open consumer: %w", translate(err))
	}
	if created := stream.CachedInfo().Created; !created.Equal(w.created) {
		w.ledger.clear()
		w.created = created
	}
	w.consumer = consumer
	return consumer, w.created, nil
}

// reopen makes the next open look again, unless that has happened already.
func (w *Worker) reopen(failed jetstream.Consumer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.consumer == failed {
		w.consumer = nil
	}
}

// fetch waits for a message and collects those that follow it. Its requests
// are not bound to ctx but short: a request that is given up may leave a
// message behind that nobody works on until AckWait.
func (w *Worker) fetch(ctx context.Context, consumer jetstream.Consumer, created time.Time) (*batch, error) {
	b := w.newBatch(created)
	first, err := consumer.Fetch(1, jetstream.FetchMaxWait(pullWait))
	if err = b.take(first, err); err != nil || len(b.deliveries) == 0 || w.o.BatchSize == 1 || ctx.Err() != nil {
		return b, err
	}
	wait := w.o.BatchWait
	if b.deliveries[0].pending >= uint64(w.o.BatchSize-1) { //nolint:gosec // A checked option, at least 1.
		// There is a whole batch to be had, which only has to be carried over: what is handed on in large batches costs
		// the store much less, and no message has to wait for one that is not there yet.
		wait = max(wait, min(backlogWait, w.o.AckWait/3))
	}
	rest, err := consumer.Fetch(w.o.BatchSize-1, jetstream.FetchMaxWait(wait), jetstream.FetchMaxBytes(batchBytes))
	return b, b.take(rest, err)
}

// process hands a batch to the handler and settles each of its messages.
func (w *Worker) process(intake, work context.Context, b *batch) {
	if intake.Err() != nil { // arrived while stopping
		b.settle(work, b.deliveries, repeat(errNotTried, len(b.deliveries)))
		return
	}
	var together, suspect []*delivery
	for _, d := range b.deliveries {
		if w.ledger.get(d.Sequence).failures >= min(suspectAfter, w.o.MaxAttempts) {
			suspect = append(suspect, d)
		} else {
			together = append(together, d)
		}
	}
	if len(together) > 0 {
		verdicts := w.call(work, together)
		if brokenBatch(verdicts) && len(together) > 1 {
			w.o.Logger.Warn("the handler failed on a batch as a whole; looking for the messages that make it fail",
				"messages", len(together), "error", verdicts[0])
			half := len(together) / 2
			w.isolate(work, b, together[:half])
			w.isolate(work, b, together[half:])
		} else {
			b.settle(work, together, verdicts)
		}
	}
	if len(suspect) > 0 {
		w.isolate(work, b, suspect)
	}
}

// isolate hands over ever smaller parts until those that fail stand alone, so
// that they take nothing with them; only then does their failure count. One
// that fails among n costs about 2·log2(n) calls.
func (w *Worker) isolate(work context.Context, b *batch, part []*delivery) {
	if work.Err() != nil {
		b.settle(work, part, repeat(errNotTried, len(part)))
		return
	}
	verdicts := w.call(work, part)
	if len(part) == 1 {
		b.settle(work, part, verdicts)
		return
	}
	var failed, cleared []*delivery
	var outcome []error
	for i, d := range part {
		if failedForReal(verdicts[i]) {
			failed = append(failed, d)
		} else {
			cleared, outcome = append(cleared, d), append(outcome, verdicts[i])
		}
	}
	b.settle(work, cleared, outcome)
	switch {
	case len(failed) == 0:
	case len(failed) < len(part):
		w.isolate(work, b, failed)
	default:
		half := len(failed) / 2
		w.isolate(work, b, failed[:half])
		w.isolate(work, b, failed[half:])
	}
}

// failedForReal reports whether a verdict blames the message, or one beside it.
func failedForReal(verdict error) bool {
	discard, away := (*discardError)(nil), (*waitError)(nil)
	return verdict != nil && !errors.Is(verdict, errNotTried) && !errors.As(verdict, &discard) && !errors.As(verdict, &away)
}

// brokenBatch reports whether the handler failed as a whole, so that its
// verdicts say nothing about single messages.
func brokenBatch(verdicts []error) bool {
	panicked := (*panicError)(nil)
	return errors.As(verdicts[0], &panicked) || errors.Is(verdicts[0], errVerdicts)
}

func repeat(err error, n int) []error {
	errs := make([]error, n)
	for i := range errs {
		errs[i] = err
	}
	return errs
}

// call runs the handler and returns as many verdicts as there are deliveries,
// the same for all when the handler failed as a whole. A handler that ignores
// the end of its context is left behind.
func (w *Worker) call(ctx context.Context, deliveries []*delivery) []error {
	msgs := make([]Message, len(deliveries))
	for i, d := range deliveries {
		msgs[i] = d.Message
		msgs[i].Attempt = w.ledger.get(d.Sequence).failures + 1
	}
	result := make(chan []error, 1)
	began := time.Now()
	go func() {
		defer func() {
			if value := recover(); value != nil {
				w.o.Logger.Error("handler panicked", "panic", fmt.Sprint(value), "stack", string(debug.Stack()))
				result <- repeat(&panicError{value}, len(msgs))
			}
		}()
		verdicts := w.handle(ctx, msgs)
		if len(verdicts) != len(msgs) {
			verdicts = repeat(fmt.Errorf("%w: %d for %d messages", errVerdicts, len(verdicts), len(msgs)), len(msgs))
		}
		result <- verdicts
	}()
	var verdicts []error
	select {
	case verdicts = <-result:
	case <-ctx.Done():
		timer := time.NewTimer(abortGrace)
		defer timer.Stop()
		select {
		case verdicts = <-result:
		case <-timer.C:
			w.stuck.Add(1)
			verdicts = repeat(errNotTried, len(msgs))
		}
	}
	w.metrics.seconds.Observe(time.Since(began).Seconds())
	if ctx.Err() == nil {
		return verdicts
	}
	// What failed because it was told to stop did not fail for real.
	for i, verdict := range verdicts {
		if discard := (*discardError)(nil); verdict != nil && !errors.As(verdict, &discard) {
			verdicts[i] = errNotTried
		}
	}
	return verdicts
}
