package events_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/engine"
)

// patience bounds every wait; no test should ever need it.
const patience = 30 * time.Second

// broker is a real NATS server with the stream TRACES.
type broker struct {
	url    string
	port   int
	dir    string
	nats   *engine.NATS
	nc     *nats.Conn
	stream jetstream.Stream
}

// tracesConfig is the stream as the services set it up, with limits that suit a test.
func tracesConfig(change ...func(*jetstream.StreamConfig)) jetstream.StreamConfig {
	c := jetstream.StreamConfig{
		Name: "TRACES", Subjects: []string{events.TraceSubjects}, Retention: jetstream.WorkQueuePolicy,
		Discard: jetstream.DiscardNew, MaxBytes: 64 << 20, Storage: jetstream.FileStorage,
	}
	for _, f := range change {
		f(&c)
	}
	return c
}

func newBroker(t *testing.T, change ...func(*jetstream.StreamConfig)) *broker {
	t.Helper()
	b := &broker{dir: t.TempDir()}
	b.start(t)
	b.createStream(t, change...)
	return b
}

func (b *broker) start(t *testing.T) {
	t.Helper()
	n, err := engine.StartNATS(t.Context(), engine.NATSOptions{DataDir: b.dir, Port: b.port})
	if err != nil {
		t.Fatal(err)
	}
	b.nats, b.url = n, n.URL()
	u, err := url.Parse(b.url)
	if err != nil {
		t.Fatal(err)
	}
	if b.port, err = strconv.Atoi(u.Port()); err != nil {
		t.Fatal(err)
	}
	b.nc, err = nats.Connect(b.url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.stop(t) })
}

func (b *broker) stop(t *testing.T) {
	t.Helper()
	b.nc.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := b.nats.Stop(ctx); err != nil {
		t.Error(err)
	}
}

func (b *broker) createStream(t *testing.T, change ...func(*jetstream.StreamConfig)) {
	t.Helper()
	js, err := jetstream.New(b.nc)
	if err != nil {
		t.Fatal(err)
	}
	b.stream, err = js.CreateOrUpdateStream(t.Context(), tracesConfig(change...))
	if err != nil {
		t.Fatal(err)
	}
}

// messages counts what is stored.
func (b *broker) messages(t *testing.T) int {
	t.Helper()
	info, err := b.stream.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return int(info.State.Msgs)
}

// drain takes every stored message away, checks it, and returns how often each event id came.
func (b *broker) drain(t *testing.T) map[string]int {
	t.Helper()
	c, err := b.stream.CreateOrUpdateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: "test", AckPolicy: jetstream.AckExplicitPolicy})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for {
		batch, err := c.FetchNoWait(1000)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for m := range batch.Messages() {
			n++
			e, err := events.Decode(m.Headers(), m.Data())
			if err != nil {
				t.Fatal(err)
			}
			if err := e.CheckSubject(m.Subject()); err != nil {
				t.Error(err)
			}
			if err := e.Validate(time.Now()); err != nil {
				t.Error(err)
			}
			if id := m.Headers().Get(nats.MsgIdHdr); id != e.MessageID() {
				t.Errorf("message id %q, want %q", id, e.MessageID())
			}
			got[e.ID]++
			if err := m.DoubleAck(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if err := batch.Error(); err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return got
		}
	}
}

// drops collects what OnDrop is told.
type drops struct {
	mu  sync.Mutex
	all []events.Drop
}

func (d *drops) add(drop events.Drop) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = append(d.all, drop)
}

func (d *drops) list() []events.Drop {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]events.Drop(nil), d.all...)
}

// newPublisher makes a publisher that is closed with the test and whose books must then balance.
func newPublisher(t *testing.T, url string, opts events.PublisherOptions) (*events.Publisher, *drops) {
	t.Helper()
	told := &drops{}
	if opts.OnDrop == nil {
		opts.OnDrop = told.add
	}
	p, err := events.NewPublisher(url, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = p.Close(ctx)
		s := p.Stats()
		sum := s.Published + s.Duplicates
		for _, d := range told.list() {
			if d.Err == nil {
				t.Errorf("a drop without an error: %+v", d)
			}
		}
		for reason, n := range s.Dropped {
			switch reason {
			case events.DropExpired, events.DropRefused, events.DropClosed:
				sum += n
			case events.DropInvalid, events.DropTooLarge, events.DropQueueFull:
			}
		}
		if sum < s.Accepted || s.Queued != 0 || s.QueuedBytes != 0 {
			t.Errorf("the books do not balance: %+v", s)
		}
	})
	return p, told
}

func event(id string) events.Event {
	return events.Event{
		ID: id, Namespace: "acme", AgentID: "a", SessionID: "s", TaskID: "t", Kind: events.KindMessage,
		Data: json.RawMessage(`{"role":"user","content":"hello"}`),
	}
}

func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// until polls a condition.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	ctx := deadline(t)
	for !condition() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("never happened: %s", what)
		}
	}
}

// freePort is a port on which nothing listens.
func freePort(t *testing.T) int {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port
}

func address(port int) string { return "nats://127.0.0.1:" + strconv.Itoa(port) }

func mustPublish(t *testing.T, p *events.Publisher, e events.Event) {
	t.Helper()
	if err := p.Publish(t.Context(), e); err != nil {
		t.Fatal(err)
	}
}

func TestPublisherDeliversEachEventOnce(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	p, told := newPublisher(t, b.url, events.PublisherOptions{})
	const writers, each = 4, 250
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				if err := p.Publish(t.Context(), event(fmt.Sprintf("%d-%d", w, i))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if err := p.Flush(deadline(t)); err != nil {
		t.Fatal(err)
	}
	s := p.Stats()
	if s.Accepted != writers*each || s.Published != writers*each || s.Duplicates != 0 || s.Queued != 0 || len(s.Dropped) != 0 {
		t.Errorf("stats = %+v", s)
	}
	if !s.Connected || s.LastError != nil {
		t.Errorf("connected = %t, last error = %v", s.Connected, s.LastError)
	}
	got := b.drain(t)
	if len(got) != writers*each {
		t.Errorf("%d events arrived, want %d", len(got), writers*each)
	}
	if err := p.Close(deadline(t)); err != nil {
		t.Error(err)
	}
	if d := told.list(); len(d) != 0 {
		t.Errorf("drops: %v", d)
	}
}

func TestPublisherFillsInIDAndTime(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	p, _ := newPublisher(t, b.url, events.PublisherOptions{})
	for range 2 {
		mustPublish(t, p, event(""))
	}
	if err := p.Close(deadline(t)); err != nil {
		t.Fatal(err)
	}
	if got := b.drain(t); len(got) != 2 || got[""] != 0 {
		t.Errorf("ids = %v", got)
	}
}

func TestPublisherStartsWithoutNATS(t *testing.T) {
	t.Parallel()
	b := &broker{dir: t.TempDir(), port: freePort(t)}
	p, told := newPublisher(t, address(b.port), events.PublisherOptions{MaxBackoff: 50 * time.Millisecond})
	for i := range 100 {
		mustPublish(t, p, event(strconv.Itoa(i)))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := p.Flush(ctx); !errors.Is(err, events.ErrNotConfirmed) || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "100") {
		t.Errorf("Flush = %v, want 100 not confirmed", err)
	}
	if s := p.Stats(); s.Connected || s.Queued != 100 || s.QueuedBytes == 0 {
		t.Errorf("stats = %+v", s)
	}
	until(t, "the failure shows in Stats", func() bool { return p.Stats().LastError != nil })

	b.start(t)
	until(t, "the publisher connects", func() bool { return p.Stats().Connected })
	until(t, "a try fails, since there is no stream either", func() bool { return p.Stats().Retries > 0 })
	b.createStream(t)
	if err := p.Flush(deadline(t)); err != nil {
		t.Fatal(err)
	}
	if got := b.drain(t); len(got) != 100 {
		t.Errorf("%d events arrived, want 100", len(got))
	}
	if s := p.Stats(); s.LastError != nil || len(told.list()) != 0 {
		t.Errorf("stats = %+v, drops = %v", s, told.list())
	}
}

func TestPublisherLosesNothingWhenNATSRestarts(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	p, told := newPublisher(t, b.url, events.PublisherOptions{MaxBackoff: 50 * time.Millisecond, AckTimeout: time.Second})
	stop := make(chan struct{})
	var published int
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(200 * time.Microsecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				if err := p.Publish(t.Context(), event(strconv.Itoa(published))); err != nil {
					t.Error(err)
					return
				}
				published++
			}
		}
	})
	confirmed := func() uint64 { s := p.Stats(); return s.Published + s.Duplicates }
	for range 2 {
		before := confirmed()
		until(t, "events are confirmed", func() bool { return confirmed() > before+50 })
		b.stop(t)
		until(t, "events pile up", func() bool { return p.Stats().Queued > 300 })
		b.start(t)
		b.createStream(t)
	}
	before := confirmed()
	until(t, "events are confirmed again", func() bool { return confirmed() > before+50 })
	close(stop)
	wg.Wait()
	if err := p.Close(deadline(t)); err != nil {
		t.Fatal(err)
	}
	got := b.drain(t)
	for i := range published {
		if n := got[strconv.Itoa(i)]; n != 1 {
			t.Errorf("event %d arrived %d times", i, n)
		}
	}
	if len(told.list()) != 0 {
		t.Errorf("drops: %v", told.list())
	}
	t.Logf("%d events, %+v", published, p.Stats())
}

func TestPublisherHoldsBackWhenTheStreamIsFull(t *testing.T) {
	t.Parallel()
	b := newBroker(t, func(c *jetstream.StreamConfig) { c.MaxMsgs = 10 })
	p, told := newPublisher(t, b.url, events.PublisherOptions{MaxQueueEvents: 20, MaxBackoff: 20 * time.Millisecond})
	// The stream takes 10, the queue 20; after that, events are refused.
	const accepted = 30
	for i := range accepted {
		mustPublish(t, p, event(strconv.Itoa(i)))
		if i == 9 {
			if err := p.Flush(deadline(t)); err != nil {
				t.Fatal(err)
			}
		}
	}
	until(t, "a try fails", func() bool { return p.Stats().LastError != nil })
	err := p.Publish(t.Context(), event("30"))
	if !errors.Is(err, events.ErrQueueFull) || !strings.Contains(err.Error(), "maximum messages exceeded") {
		t.Fatalf("Publish = %v, want ErrQueueFull and why", err)
	}
	if d := told.list(); len(d) != 1 || d[0].Reason != events.DropQueueFull || d[0].Event.ID != "30" || !errors.Is(d[0].Err, events.ErrQueueFull) {
		t.Errorf("drops = %+v", d)
	}
	s := p.Stats()
	if s.Published != 10 || s.Queued != 20 || s.Dropped[events.DropQueueFull] != 1 || b.messages(t) != 10 {
		t.Errorf("stats = %+v, the stream has %d", s, b.messages(t))
	}
	got := map[string]int{}
	until(t, "everything accepted arrives", func() bool {
		for id, n := range b.drain(t) {
			got[id] += n
		}
		return len(got) >= accepted
	})
	mustPublish(t, p, event("31"))
	if err := p.Close(deadline(t)); err != nil {
		t.Fatal(err)
	}
	for id, n := range b.drain(t) {
		got[id] += n
	}
	for i := range 32 {
		want := 1
		if i == 30 {
			want = 0
		}
		if n := got[strconv.Itoa(i)]; n != want {
			t.Errorf("event %d arrived %d times, want %d", i, n, want)
		}
	}
}

func TestPublisherHoldsBackByBytes(t *testing.T) {
	t.Parallel()
	p, _ := newPublisher(t, address(freePort(t)), events.PublisherOptions{MaxQueueBytes: events.MaxEventBytes, MaxBlock: -1})
	e := event("")
	e.Data = json.RawMessage(`{"role":"user","content":"` + strings.Repeat("word ", 10_000) + `"}`)
	accepted := 0
	var err error
	for err == nil && accepted < 1000 {
		if err = p.Publish(t.Context(), e); err == nil {
			accepted++
		}
	}
	s := p.Stats()
	if !errors.Is(err, events.ErrQueueFull) || accepted != 19 || s.QueuedBytes > events.MaxEventBytes || s.QueuedBytes < events.MaxEventBytes-60_000 {
		t.Errorf("%d accepted, %d bytes, %v", accepted, s.QueuedBytes, err)
	}
}

func TestPublisherWaitsForRoom(t *testing.T) {
	t.Parallel()
	b := &broker{dir: t.TempDir(), port: freePort(t)}
	p, _ := newPublisher(t, address(b.port), events.PublisherOptions{
		MaxQueueEvents: 1, MaxBlock: patience, MaxBackoff: 20 * time.Millisecond,
	})
	mustPublish(t, p, event("1"))

	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Publish(cancelled, event("2")); !errors.Is(err, events.ErrQueueFull) {
		t.Errorf("with a cancelled context: %v, want ErrQueueFull", err)
	}

	result := make(chan error, 1)
	go func() { result <- p.Publish(t.Context(), event("3")) }()
	b.start(t)
	b.createStream(t)
	select {
	case err := <-result:
		if err != nil {
			t.Errorf("when there is room again: %v", err)
		}
	case <-deadline(t).Done():
		t.Fatal("Publish waits for ever")
	}
	if err := p.Flush(deadline(t)); err != nil {
		t.Fatal(err)
	}
	if err := p.Publish(cancelled, event("4")); err != nil {
		t.Errorf("with a cancelled context and room: %v, want it accepted", err)
	}
	if err := p.Close(deadline(t)); err != nil {
		t.Fatal(err)
	}
	if got := b.drain(t); len(got) != 3 || got["2"] != 0 {
		t.Errorf("arrived: %v, want 1, 3 and 4", got)
	}
}

func TestPublisherIsIdempotent(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	one, _ := newPublisher(t, b.url, events.PublisherOptions{})
	two, _ := newPublisher(t, b.url, events.PublisherOptions{})
	for i := range 50 {
		mustPublish(t, one, event(strconv.Itoa(i)))
		mustPublish(t, two, event(strconv.Itoa(i)))
		other := event(strconv.Itoa(i))
		other.Namespace = "acme.web"
		mustPublish(t, two, other) // The same id in another namespace is another event.
	}
	for _, p := range []*events.Publisher{one, two} {
		if err := p.Close(deadline(t)); err != nil {
			t.Fatal(err)
		}
	}
	a, c := one.Stats(), two.Stats()
	if a.Published+c.Published != 100 || a.Duplicates+c.Duplicates != 50 {
		t.Errorf("stats = %+v and %+v", a, c)
	}
	if n := b.messages(t); n != 100 {
		t.Errorf("the stream has %d messages, want 100", n)
	}
}

func TestPublisherRefusesWhatPrepareRefuses(t *testing.T) {
	t.Parallel()
	p, told := newPublisher(t, address(freePort(t)), events.PublisherOptions{})
	large := event("large")
	parts := make([]string, 20)
	for i := range parts {
		parts[i] = fmt.Sprintf(`"%d":"%s"`, i, strings.Repeat("word ", 12_000))
	}
	large.Kind, large.Data = "vendor_thing", json.RawMessage("{"+strings.Join(parts, ",")+"}")
	bad := event("bad")
	bad.Namespace = "Not A Namespace"
	broken := event("broken")
	broken.Data = json.RawMessage("{")
	if err := p.Publish(t.Context(), large); !errors.Is(err, events.ErrTooLarge) {
		t.Errorf("large: %v", err)
	}
	if err := p.Publish(t.Context(), bad); !errors.Is(err, events.ErrInvalid) {
		t.Errorf("bad: %v", err)
	}
	if err := p.Publish(t.Context(), broken); !errors.Is(err, events.ErrInvalid) {
		t.Errorf("broken: %v", err)
	}
	if s := p.Stats(); s.Accepted != 0 || s.Dropped[events.DropInvalid] != 2 || s.Dropped[events.DropTooLarge] != 1 {
		t.Errorf("stats = %+v", s)
	}
	var ids []string
	for _, d := range told.list() {
		ids = append(ids, d.Event.ID+" "+string(d.Reason))
	}
	if got, want := strings.Join(ids, ", "), "large too_large, bad invalid, broken invalid"; got != want {
		t.Errorf("drops = %s, want %s", got, want)
	}
}

func TestPublisherDropsWhatTheStreamWillNeverTake(t *testing.T) {
	t.Parallel()
	b := newBroker(t, func(c *jetstream.StreamConfig) { c.MaxMsgSize = 600 })
	p, told := newPublisher(t, b.url, events.PublisherOptions{})
	for i := range 9 {
		e := event(strconv.Itoa(i))
		if i%3 == 0 {
			e.Data = json.RawMessage(`{"role":"user","content":"` + strings.Repeat("word ", 200) + `"}`)
		}
		mustPublish(t, p, e)
	}
	if err := p.Close(deadline(t)); err != nil {
		t.Fatal(err)
	}
	if s := p.Stats(); s.Published != 6 || s.Dropped[events.DropRefused] != 3 {
		t.Errorf("stats = %+v", s)
	}
	if got := b.drain(t); len(got) != 6 {
		t.Errorf("arrived: %v", got)
	}
	for _, d := range told.list() {
		if d.Reason != events.DropRefused || !strings.Contains(d.Err.Error(), "message size exceeds maximum") || d.Event.Namespace != "acme" {
			t.Errorf("drop = %+v", d)
		}
	}
}

// TestPublisherDropsWhatItMayNotPublish: the server never answers a message it does not permit, so that such events
// would hold up all others until they expire.
func TestPublisherDropsWhatItMayNotPublish(t *testing.T) {
	t.Parallel()
	all := &server.Permissions{}
	agent := &server.Permissions{Publish: &server.SubjectPermission{Allow: []string{"hindsight.v1.trace.acme.~.>"}}}
	srv, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true,
		Users: []*server.User{
			{Username: "admin", Password: "admin-pass", Permissions: all},
			{Username: "agent", Password: "agent-pass", Permissions: agent},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	if !srv.ReadyForConnections(patience) {
		t.Fatal("the server is not ready")
	}
	admin, err := nats.Connect(srv.ClientURL(), nats.UserInfo("admin", "admin-pass"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(admin.Close)
	b := &broker{nc: admin}
	b.createStream(t)

	p, told := newPublisher(t, srv.ClientURL(), events.PublisherOptions{
		AckTimeout: 300 * time.Millisecond, NATSOptions: []nats.Option{nats.UserInfo("agent", "agent-pass")},
	})
	for i := range 10 {
		e := event(strconv.Itoa(i))
		if i%2 == 0 {
			e.Namespace = "other"
		}
		mustPublish(t, p, e)
	}
	if err := p.Close(deadline(t)); err != nil {
		t.Fatal(err)
	}
	if s := p.Stats(); s.Published != 5 || s.Dropped[events.DropRefused] != 5 {
		t.Errorf("stats = %+v", s)
	}
	for _, d := range told.list() {
		if d.Event.Namespace != "other" || !errors.Is(d.Err, nats.ErrPermissionViolation) {
			t.Errorf("drop = %+v", d)
		}
	}
}

func TestPublisherGivesUpOldEvents(t *testing.T) {
	t.Parallel()
	p, told := newPublisher(t, address(freePort(t)), events.PublisherOptions{MaxAge: 20 * time.Millisecond})
	for i := range 3 {
		mustPublish(t, p, event(strconv.Itoa(i)))
	}
	if err := p.Flush(deadline(t)); err != nil {
		t.Fatal(err)
	}
	until(t, "three are told", func() bool { return len(told.list()) == 3 })
	for i, d := range told.list() {
		if d.Reason != events.DropExpired || d.Event.ID != strconv.Itoa(i) || !strings.Contains(d.Err.Error(), "no connection") {
			t.Errorf("drop = %+v", d)
		}
	}
	if s := p.Stats(); s.Dropped[events.DropExpired] != 3 || s.Queued != 0 {
		t.Errorf("stats = %+v", s)
	}
}

func TestPublisherCloseReportsWhatRemained(t *testing.T) {
	t.Parallel()
	p, told := newPublisher(t, address(freePort(t)), events.PublisherOptions{})
	for i := range 3 {
		mustPublish(t, p, event(strconv.Itoa(i)))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	for range 2 {
		if err := p.Close(ctx); !errors.Is(err, events.ErrNotConfirmed) || !strings.Contains(err.Error(), "3 of them") {
			t.Errorf("Close = %v, want 3 not confirmed", err)
		}
	}
	if err := p.Publish(t.Context(), event("late")); !errors.Is(err, events.ErrClosed) {
		t.Errorf("Publish = %v, want ErrClosed", err)
	}
	if err := p.Flush(t.Context()); err != nil {
		t.Errorf("Flush = %v", err)
	}
	d := told.list()
	if len(d) != 4 || d[0].Event.ID != "0" || d[2].Event.ID != "2" || d[3].Event.ID != "late" {
		t.Fatalf("drops = %+v", d)
	}
	for _, drop := range d {
		if drop.Reason != events.DropClosed || !errors.Is(drop.Err, events.ErrClosed) {
			t.Errorf("drop = %+v", drop)
		}
	}
	if s := p.Stats(); s.Dropped[events.DropClosed] != 4 || s.Queued != 0 || s.Connected {
		t.Errorf("stats = %+v", s)
	}
}

func TestPublisherCloseWakesBlockedPublish(t *testing.T) {
	t.Parallel()
	p, _ := newPublisher(t, address(freePort(t)), events.PublisherOptions{MaxQueueEvents: 1, MaxBlock: patience})
	mustPublish(t, p, event("1"))
	result := make(chan error, 1)
	go func() { result <- p.Publish(t.Context(), event("2")) }()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Close(ctx); !errors.Is(err, events.ErrNotConfirmed) {
		t.Errorf("Close = %v", err)
	}
	select {
	case err := <-result:
		if !errors.Is(err, events.ErrClosed) {
			t.Errorf("Publish = %v, want ErrClosed", err)
		}
	case <-deadline(t).Done():
		t.Fatal("Publish waits for ever")
	}
}

func TestPublisherMethodsRace(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	p, _ := newPublisher(t, b.url, events.PublisherOptions{MaxQueueEvents: 50, MaxPending: 8})
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 200 {
				err := p.Publish(t.Context(), event(fmt.Sprintf("%d-%d", w, i)))
				if err != nil && !errors.Is(err, events.ErrQueueFull) && !errors.Is(err, events.ErrClosed) {
					t.Error(err)
				}
				if i%50 == 0 {
					_ = p.Flush(deadline(t))
				}
				_ = p.Stats()
				if w == 0 && i == 150 {
					wg.Go(func() {
						if err := p.Close(deadline(t)); err != nil {
							t.Error(err)
						}
					})
				}
			}
		})
	}
	wg.Wait()
	s := p.Stats()
	if got := b.drain(t); uint64(len(got)) != s.Accepted {
		t.Errorf("%d arrived, %d were accepted", len(got), s.Accepted)
	}
}

// TestPublisherIsNotHeldUpByASilentServer: a server that accepts connections and says nothing is worse than none.
func TestPublisherIsNotHeldUpByASilentServer(t *testing.T) {
	t.Parallel()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	p, _ := newPublisher(t, "nats://"+l.Addr().String(), events.PublisherOptions{})
	mustPublish(t, p, event("1"))
	if took := time.Since(began); took > time.Second {
		t.Errorf("the first event took %s", took)
	}
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := p.Close(ctx); !errors.Is(err, events.ErrNotConfirmed) {
		t.Errorf("Close = %v", err)
	}
	_ = l.Close()
	_ = conn.Close()
}

func TestPublisherSurvivesAPanickingOnDrop(t *testing.T) {
	t.Parallel()
	b := newBroker(t, func(c *jetstream.StreamConfig) { c.MaxMsgSize = 600 })
	p, _ := newPublisher(t, b.url, events.PublisherOptions{OnDrop: func(events.Drop) { panic("agent's fault") }})
	if err := p.Publish(t.Context(), events.Event{}); !errors.Is(err, events.ErrInvalid) {
		t.Errorf("Publish = %v", err)
	}
	large := event("large")
	large.Data = json.RawMessage(`{"role":"user","content":"` + strings.Repeat("word ", 200) + `"}`)
	mustPublish(t, p, large)
	mustPublish(t, p, event("small"))
	if err := p.Close(deadline(t)); err != nil {
		t.Fatal(err)
	}
	if got := b.drain(t); len(got) != 1 || got["small"] != 1 {
		t.Errorf("arrived: %v", got)
	}
}

func TestNilPublisherIsClosed(t *testing.T) {
	t.Parallel()
	var p *events.Publisher
	if err := p.Publish(t.Context(), event("1")); !errors.Is(err, events.ErrClosed) {
		t.Errorf("Publish = %v", err)
	}
	if err := errors.Join(p.Flush(t.Context()), p.Close(t.Context())); err != nil {
		t.Error(err)
	}
	if s := p.Stats(); s.Accepted != 0 || s.Dropped == nil {
		t.Errorf("stats = %+v", s)
	}
}

func TestNewPublisherChecksItsArguments(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		url  string
		opts events.PublisherOptions
		say  string
	}{
		"events":   {"", events.PublisherOptions{MaxQueueEvents: -1}, "MaxQueueEvents"},
		"bytes":    {"", events.PublisherOptions{MaxQueueBytes: events.MaxEventBytes - 1}, "MaxQueueBytes"},
		"pending":  {"", events.PublisherOptions{MaxPending: -1}, "MaxPending"},
		"age":      {"", events.PublisherOptions{MaxAge: -1}, "MaxAge"},
		"ack":      {"", events.PublisherOptions{AckTimeout: -1}, "AckTimeout"},
		"back-off": {"", events.PublisherOptions{MaxBackoff: -1}, "MaxBackoff"},
		"URL":      {"nats://user:hunter2@host:port", events.PublisherOptions{}, "invalid port"},
		"option":   {"", events.PublisherOptions{NATSOptions: []nats.Option{nats.RootCAs("/does/not/exist")}}, "no such file"},
	} {
		p, err := events.NewPublisher(c.url, c.opts)
		if err == nil {
			_ = p.Close(t.Context())
			t.Errorf("%s: no error", name)
			continue
		}
		if !strings.Contains(err.Error(), c.say) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: error %q", name, err)
		}
	}
}

func BenchmarkPublisher(b *testing.B) {
	srv, err := engine.StartNATS(b.Context(), engine.NATSOptions{DataDir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = srv.Stop(context.Background()) })
	nc, err := nats.Connect(srv.URL())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := js.CreateStream(b.Context(), tracesConfig(func(c *jetstream.StreamConfig) { c.MaxBytes = 4 << 30 })); err != nil {
		b.Fatal(err)
	}
	p, err := events.NewPublisher(srv.URL(), events.PublisherOptions{MaxBlock: patience})
	if err != nil {
		b.Fatal(err)
	}
	e := event("")
	e.Kind, e.Data = events.KindStepFinished, json.RawMessage(`{"tool":"get","status":"success","result":"`+strings.Repeat("word ", 400)+`"}`)
	b.ResetTimer()
	for range b.N {
		if err := p.Publish(b.Context(), e); err != nil {
			b.Fatal(err)
		}
	}
	if err := p.Close(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}
