package events

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Errors of a [Publisher]; test with errors.Is.
var (
	// ErrQueueFull means that the publisher holds as many events as it may and none was confirmed in time: NATS is away
	// or the stream is full. The event is dropped; the agent should go on.
	ErrQueueFull = errors.New("publisher's queue is full")
	// ErrClosed means that the publisher was closed.
	ErrClosed = errors.New("publisher is closed")
	// ErrNotConfirmed means that the stream has not confirmed all events. They may have been stored all the same.
	ErrNotConfirmed = errors.New("events are not confirmed")
)

// DropReason is why an event was not published.
type DropReason string

// The reasons of a [Drop].
const (
	// DropInvalid and DropTooLarge are events that [Prepare] refuses.
	DropInvalid  DropReason = "invalid"
	DropTooLarge DropReason = "too_large"
	// DropQueueFull is an event for which there was no room within MaxBlock.
	DropQueueFull DropReason = "queue_full"
	// DropExpired is an event that was not confirmed within MaxAge.
	DropExpired DropReason = "expired"
	// DropRefused is an event that the server will never take: it exceeds a limit of the server or the stream, or the
	// agent's user may not publish for this namespace.
	DropRefused DropReason = "refused"
	// DropClosed is an event that came after Close, or was not confirmed when Close ended.
	DropClosed DropReason = "closed"
)

// Drop is one event that was given up.
type Drop struct {
	Event  Event
	Reason DropReason
	// Err says why in a sentence; it is never nil.
	Err error
}

// PublisherOptions are the options of [NewPublisher]; the zero value is good for an agent.
type PublisherOptions struct {
	// MaxQueueEvents bounds the events that wait or are on their way. Default 10,000.
	MaxQueueEvents int
	// MaxQueueBytes bounds their encoded size; at least [MaxEventBytes]. Default 32 MiB.
	MaxQueueBytes int
	// MaxPending bounds the events that are on their way, unconfirmed. Default 256.
	MaxPending int
	// MaxBlock bounds how long Publish waits for room in the queue. Default 5 ms; negative means not at all.
	MaxBlock time.Duration
	// MaxAge is when an event that cannot be delivered is given up. Default 1 hour.
	MaxAge time.Duration
	// AckTimeout is how long a confirmation may take before the event is sent again. Default 5 s.
	AckTimeout time.Duration
	// MaxBackoff bounds the pause between tries; it begins at 100 ms, doubles, and is jittered. Default 5 s.
	MaxBackoff time.Duration
	// OnDrop, if set, is told each event that is given up: by Publish itself when that refuses the event, otherwise by
	// the publisher's own goroutine. It must be quick and must not call Flush or Close. A panic in it is caught.
	OnDrop func(Drop)
	// Logger is told when publishing begins to fail and when it works again. Default: none.
	Logger *slog.Logger
	// NATSOptions are added to the publisher's own, for credentials and TLS. They win over them.
	NATSOptions []nats.Option
}

const (
	minBackoff = 100 * time.Millisecond
	// writeTimeout bounds a write to a server that does not read, since nothing else can interrupt it.
	writeTimeout = 2 * time.Second
	// pingInterval finds a dead connection after three silent ones.
	pingInterval = 20 * time.Second
	dialTimeout  = 2 * time.Second
)

func (o PublisherOptions) withDefaults() (PublisherOptions, error) {
	for _, n := range []struct {
		name  string
		value *int
		byDef int
	}{
		{"MaxQueueEvents", &o.MaxQueueEvents, 10_000},
		{"MaxQueueBytes", &o.MaxQueueBytes, 32 << 20},
		{"MaxPending", &o.MaxPending, 256},
	} {
		if *n.value < 0 {
			return o, fmt.Errorf("%s is %d: it must not be negative", n.name, *n.value)
		}
		if *n.value == 0 {
			*n.value = n.byDef
		}
	}
	if o.MaxQueueBytes < MaxEventBytes {
		return o, fmt.Errorf("MaxQueueBytes is %d: it must be at least %d, the size of one event", o.MaxQueueBytes, MaxEventBytes)
	}
	if o.MaxBlock == 0 {
		o.MaxBlock = 5 * time.Millisecond
	}
	for _, d := range []struct {
		name  string
		value *time.Duration
		byDef time.Duration
	}{
		{"MaxAge", &o.MaxAge, time.Hour},
		{"AckTimeout", &o.AckTimeout, 5 * time.Second},
		{"MaxBackoff", &o.MaxBackoff, 5 * time.Second},
	} {
		if *d.value < 0 {
			return o, fmt.Errorf("%s is %s: it must not be negative", d.name, *d.value)
		}
		if *d.value == 0 {
			*d.value = d.byDef
		}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

// Stats are the counts of a [Publisher] since it was made. When nothing is queued, Accepted is the sum of Published,
// Duplicates and the drops of accepted events (expired, refused, and closed ones that were queued).
type Stats struct {
	// Accepted counts the events that Publish took.
	Accepted uint64
	// Published counts the events that the stream confirmed as new.
	Published uint64
	// Duplicates counts the events that the stream confirmed as already there: published before by someone else, or by
	// an earlier try whose confirmation was lost.
	Duplicates uint64
	// Retries counts the tries that failed and were repeated.
	Retries uint64
	// Dropped counts the events given up, by reason.
	Dropped map[DropReason]uint64
	// Queued and QueuedBytes are what waits or is on its way now.
	Queued, QueuedBytes int
	// Connected says whether there is a connection to NATS now.
	Connected bool
	// LastError is why the latest try failed; nil when the latest one worked.
	LastError error
}

// Publisher publishes trace events to JetStream from within an agent, in the background. It never blocks the agent for
// longer than MaxBlock, never fails it because NATS is away, and never grows without bound. An event that it accepted
// is confirmed by the stream, or told to OnDrop; the id of the event keeps a repeated try from being stored twice.
// Events are sent in the order of Publish; only one whose try failed may arrive after its successors.
//
// Its methods may be called from several goroutines. A nil Publisher is a closed one.
type Publisher struct {
	opts PublisherOptions
	nc   *nats.Conn
	js   jetstream.JetStream

	wake  chan struct{} // an event was queued
	nudge chan struct{} // the connection changed, or Close was called: do not wait any longer
	kill  chan struct{} // closed when the time of Close is over
	done  chan struct{} // closed when the goroutine has ended

	killOnce   sync.Once
	background atomic.Bool // set once NewPublisher does not wait any longer for the connection

	mu sync.Mutex
	// queue holds the events in order; the first sent of them are on their way. Publish appends, and only the goroutine
	// removes.
	queue    []*queued
	sent     int
	bytes    int
	closed   bool
	stats    Stats // without what is computed
	remained int
	// progress is closed and replaced when events have left the queue and someone waits for that.
	progress chan struct{}
	waiting  int
	// denied says for which subjects the server has refused the right to publish on this connection.
	denied map[string]error
}

// queued is an accepted event.
type queued struct {
	number   uint64 // as counted by Stats.Accepted
	subject  string
	id       string
	raw      []byte
	accepted time.Time
	future   jetstream.PubAckFuture // of the latest try
}

// NewPublisher makes a publisher for the servers of url, several separated by commas; empty means this machine's. It
// returns at once and connects in the background, for as long as it takes. The error is about the arguments.
func NewPublisher(url string, options PublisherOptions) (*Publisher, error) {
	opts, err := options.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("make publisher: %w", err)
	}
	if url == "" {
		url = nats.DefaultURL
	}
	p := &Publisher{
		opts: opts,
		wake: make(chan struct{}, 1), nudge: make(chan struct{}, 1), kill: make(chan struct{}), done: make(chan struct{}),
		progress: make(chan struct{}),
		stats:    Stats{Dropped: map[DropReason]uint64{}},
		denied:   map[string]error{},
	}
	p.nc, err = nats.Connect(url, append(p.natsOptions(), opts.NATSOptions...)...)
	if err != nil {
		return nil, fmt.Errorf("make publisher: connect to NATS: %w", withoutURL(err))
	}
	p.background.Store(true)
	p.js, err = jetstream.New(p.nc, jetstream.WithPublishAsyncTimeout(opts.AckTimeout),
		// The publisher counts itself; the library must never stall it.
		jetstream.WithPublishAsyncMaxPending(opts.MaxPending+1))
	if err != nil {
		p.nc.Close()
		return nil, fmt.Errorf("make publisher: open JetStream: %w", err)
	}
	go p.run()
	return p, nil
}

// natsOptions make a connection that is never given up and that buffers nothing itself.
func (p *Publisher) natsOptions() []nats.Option {
	changed := func(*nats.Conn) {
		p.mu.Lock()
		clear(p.denied) // rights may be others now
		p.mu.Unlock()
		signal(p.nudge)
	}
	return []nats.Option{
		nats.Name("hindsight-publisher"),
		nats.SetCustomDialer(p.dialer()),
		nats.SkipHostLookup(), // the dialer does it, in the background
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.IgnoreAuthErrorAbort(), // a token may be renewed
		nats.CustomReconnectDelay(func(round int) time.Duration {
			// The very first connection comes this way as well, and should not wait.
			if round <= 1 {
				return jittered(minBackoff / 10)
			}
			return jittered(p.backoff(round - 1))
		}),
		nats.ReconnectBufSize(-1), // the queue is the only buffer, so that each event is accounted for
		nats.PingInterval(pingInterval),
		nats.FlusherTimeout(writeTimeout),
		nats.ConnectHandler(changed),
		nats.ReconnectHandler(changed),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { p.noteDenied(err) }),
	}
}

// dialFunc is a [nats.CustomDialer].
type dialFunc func(network, address string) (net.Conn, error)

// Dial implements [nats.CustomDialer].
func (f dialFunc) Dial(network, address string) (net.Conn, error) { return f(network, address) }

// dialer fails until the publisher exists: nats.Connect tries each server once before it returns, which takes seconds
// when nothing answers; its further tries run in the background.
func (p *Publisher) dialer() dialFunc {
	return func(network, address string) (net.Conn, error) {
		if !p.background.Load() {
			return nil, errors.New("connecting in the background")
		}
		ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
		defer cancel()
		var d net.Dialer
		conn, err := d.DialContext(ctx, network, address)
		if err != nil {
			return nil, fmt.Errorf("dial: %w", err)
		}
		return conn, nil
	}
}

// noteDenied remembers for which subject the server said that the agent may not publish. Nothing else tells: the
// confirmation just never comes.
func (p *Publisher) noteDenied(err error) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return
	}
	_, rest, found := strings.Cut(err.Error(), `Publish to "`)
	if !found {
		return
	}
	subject, _, _ := strings.Cut(rest, `"`)
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.denied) < p.opts.MaxPending {
		p.denied[subject] = err
	}
}

// withoutURL takes the URL, which may hold a password, out of an error.
func withoutURL(err error) error {
	if bad := (*url.Error)(nil); errors.As(err, &bad) {
		return fmt.Errorf("the URL cannot be read: %w", bad.Err)
	}
	return err
}

// Publish prepares the event ([Prepare]) and queues it. When the queue is full it waits for room, for MaxBlock at most
// and until ctx ends; ctx bounds nothing else, so that the last event of a cancelled task is published as well. The
// event's Data and Extra are not kept. Preparing takes microseconds for an ordinary event, milliseconds for a large one.
//
// The error is [ErrInvalid], [ErrTooLarge], [ErrQueueFull] or [ErrClosed]; the event is then dropped, counted and told
// to OnDrop. None of them is a reason for an agent to stop.
func (p *Publisher) Publish(ctx context.Context, e Event) error {
	if p == nil {
		return ErrClosed
	}
	reason, err := p.accept(ctx, e)
	if err != nil {
		p.mu.Lock()
		p.stats.Dropped[reason]++
		p.mu.Unlock()
		p.tell(Drop{Event: e, Reason: reason, Err: err})
	}
	return err
}

func (p *Publisher) accept(ctx context.Context, e Event) (DropReason, error) {
	prepared, raw, err := prepareSafely(e)
	switch {
	case errors.Is(err, ErrTooLarge):
		return DropTooLarge, err
	case err != nil:
		return DropInvalid, err
	}
	item := &queued{subject: Subject(prepared.Namespace, prepared.Kind), id: prepared.MessageID(), raw: raw}
	fits := func() bool {
		return p.closed || len(p.queue) < p.opts.MaxQueueEvents && p.bytes+len(raw) <= p.opts.MaxQueueBytes
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !fits() && p.opts.MaxBlock > 0 {
		ctx, cancel := context.WithTimeout(ctx, p.opts.MaxBlock)
		defer cancel()
		p.await(ctx, fits)
	}
	switch {
	case p.closed:
		return DropClosed, fmt.Errorf("publish event %q: %w", prepared.ID, ErrClosed)
	case !fits():
		err := fmt.Errorf("publish event %q: %w: it holds %d events, %d bytes", prepared.ID, ErrQueueFull, len(p.queue), p.bytes)
		if p.stats.LastError != nil {
			err = fmt.Errorf("%w; the latest try failed: %w", err, p.stats.LastError)
		}
		return DropQueueFull, err
	}
	p.stats.Accepted++
	item.number, item.accepted = p.stats.Accepted, time.Now()
	p.queue = append(p.queue, item)
	p.bytes += len(raw)
	signal(p.wake)
	return "", nil
}

// prepareSafely is Prepare, which must not take the agent down, whatever the event.
func prepareSafely(e Event) (out Event, raw []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: preparing it panicked: %v", ErrInvalid, r)
		}
	}()
	return Prepare(e, time.Now())
}

// await waits until the condition holds or ctx ends. The lock must be held, and is held again afterwards.
func (p *Publisher) await(ctx context.Context, condition func() bool) {
	p.waiting++
	defer func() { p.waiting-- }()
	for !condition() {
		progress := p.progress
		p.mu.Unlock()
		select {
		case <-progress:
			p.mu.Lock()
		case <-ctx.Done():
			p.mu.Lock()
			return
		}
	}
}

// advance wakes whoever awaits. The lock must be held.
func (p *Publisher) advance() {
	if p.waiting > 0 {
		close(p.progress)
		p.progress = make(chan struct{})
	}
}

// Flush waits until every event that was accepted before is confirmed or given up; Stats and OnDrop tell which. When
// ctx ends first, the error is [ErrNotConfirmed] and the context's, and the events stay queued.
func (p *Publisher) Flush(ctx context.Context) error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	last := p.stats.Accepted
	flushed := func() bool { return len(p.queue) == 0 || p.queue[0].number > last }
	p.await(ctx, flushed)
	if flushed() {
		return nil
	}
	n := 0
	for _, item := range p.queue {
		if item.number <= last {
			n++
		}
	}
	return notConfirmed("flush", n, p.stats.LastError, ctx.Err())
}

// Close refuses further events, waits until the queued ones are confirmed or given up, and ends the connection. When
// ctx ends first, the rest is given up: each is told to OnDrop, and the error is [ErrNotConfirmed]. Give ctx a deadline:
// without NATS it is what ends the wait. Closing again is harmless and says the same.
func (p *Publisher) Close(ctx context.Context) error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	p.closed = true
	p.advance()
	p.mu.Unlock()
	signal(p.nudge)
	select {
	case <-p.done:
	case <-ctx.Done():
		p.killOnce.Do(func() { close(p.kill) })
		<-p.done
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.remained > 0 {
		return notConfirmed("close", p.remained, p.stats.LastError, ctx.Err())
	}
	return nil
}

func notConfirmed(doing string, n int, causes ...error) error {
	err := fmt.Errorf("%s publisher: %w: %d of them", doing, ErrNotConfirmed, n)
	for _, cause := range causes {
		if cause != nil {
			err = fmt.Errorf("%w: %w", err, cause)
		}
	}
	return err
}

// Stats returns the counts as they are now.
func (p *Publisher) Stats() Stats {
	if p == nil {
		return Stats{Dropped: map[DropReason]uint64{}}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.stats
	out.Dropped = maps.Clone(out.Dropped)
	out.Queued, out.QueuedBytes = len(p.queue), p.bytes
	out.Connected = p.nc.IsConnected()
	return out
}

// tell reports a drop; a panic of the agent's function stays here.
func (p *Publisher) tell(d Drop) {
	if p.opts.OnDrop == nil {
		return
	}
	defer func() {
		if r := recover(); r != nil {
			p.opts.Logger.Error("OnDrop panicked", "panic", fmt.Sprint(r))
		}
	}()
	p.opts.OnDrop(d)
}

// signal sets a flag that is a channel of length one.
func signal(flag chan<- struct{}) {
	select {
	case flag <- struct{}{}:
	default:
	}
}
