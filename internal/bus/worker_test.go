package bus_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/hindsight-memory/hindsight/internal/bus"
)

var errBroken = errors.New("broken")

// options are those of a worker that retries at once.
func options() bus.WorkerOptions {
	return bus.WorkerOptions{
		Stream: bus.StreamTraces, Durable: "ingestor", BatchWait: 20 * time.Millisecond,
		MinBackoff: time.Millisecond, MaxBackoff: 20 * time.Millisecond, DrainTimeout: 5 * time.Second,
	}
}

// run starts a worker; stop ends it and returns what Run returned.
func run(t *testing.T, conn *bus.Conn, o bus.WorkerOptions, h bus.Handler) (stop func() error) {
	t.Helper()
	w, err := conn.NewWorker(o, h)
	if err != nil {
		t.Fatalf("NewWorker: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return receive(t, "worker stops", done)
	})
	t.Cleanup(func() {
		if err := stop(); err != nil && !t.Failed() && !errors.Is(err, bus.ErrDrainTimeout) {
			t.Errorf("Run: %v", err)
		}
	})
	return stop
}

// calls counts how often the handler saw each message, by its ID.
type calls struct {
	mu    sync.Mutex
	seen  map[string]int // by id
	said  map[string]struct{}
	sizes []int
}

func (c *calls) add(batch []bus.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen == nil {
		c.seen, c.said = make(map[string]int), make(map[string]struct{})
	}
	for _, m := range batch {
		c.seen[m.ID]++
		c.said[string(m.Data)] = struct{}{}
	}
	c.sizes = append(c.sizes, len(batch))
}

func (c *calls) of(id string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen[id]
}

// distinct counts messages by what they say: an orphan comes again under
// another id.
func (c *calls) distinct() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.said)
}

// total counts what was handled again once more.
func (c *calls) total() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, size := range c.sizes {
		n += size
	}
	return n
}

// metric is the value of a worker's counter or gauge.
func metric(t *testing.T, registry *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			m := family.GetMetric()[0]
			return m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

func publish(t *testing.T, conn *bus.Conn, msgs []bus.Message) {
	t.Helper()
	if _, err := conn.PublishAll(t.Context(), msgs); err != nil {
		t.Fatalf("PublishAll: %v", err)
	}
}

// letters waits until there are n dead letters.
func letters(t *testing.T, conn *bus.Conn, n int) []bus.DeadLetter {
	t.Helper()
	var got []bus.DeadLetter
	eventually(t, fmt.Sprint(n, " dead letters"), func() bool {
		var err error
		if got, err = conn.DeadLetters(t.Context(), bus.DeadLetterQuery{Limit: 1000}); err != nil {
			t.Fatalf("DeadLetters: %v", err)
		}
		return len(got) >= n
	})
	if len(got) != n {
		t.Fatalf("%d dead letters, want %d", len(got), n)
	}
	return got
}

func TestWorkerDelivers(t *testing.T) {
	t.Parallel()
	s, conn := open(t)
	_, js := s.raw(t)
	msgs := messages(250)
	msgs[3].Header = map[string][]string{"ce-Type": {"a", "b"}}
	publish(t, conn, msgs)
	o := options()
	o.BatchSize = 100
	registry := prometheus.NewRegistry()
	o.Registerer = registry
	var seen calls
	var third bus.Message
	stop := run(t, conn, o, func(_ context.Context, batch []bus.Message) []error {
		seen.add(batch)
		for _, m := range batch {
			if m.ID == msgs[3].ID {
				third = m
			}
		}
		return make([]error, len(batch))
	})
	eventually(t, "stream empty", func() bool { return count(t, js, bus.StreamTraces) == 0 })
	if err := stop(); err != nil {
		t.Fatalf("Run = %v, want nil", err)
	}
	if got := seen.distinct(); got != 250 {
		t.Errorf("handler saw %d messages, want 250", got)
	}
	if got := slices.Max(seen.sizes); got != 100 {
		t.Errorf("largest batch %d, want 100", got)
	}
	if third.Subject != traceSubject || string(third.Data) != `{"n":3}` || third.Sequence != 4 || third.Attempt != 1 ||
		!slices.Equal(third.Header["ce-Type"], []string{"a", "b"}) || time.Since(third.Time) > time.Hour || third.Time.Location() != time.UTC {
		t.Errorf("delivered %+v", third)
	}
	for name, want := range map[string]float64{
		"hindsight_bus_deliveries_total": 250, "hindsight_bus_acked_total": 250, "hindsight_bus_in_flight": 0,
	} {
		if got := metric(t, registry, name); got != want {
			t.Errorf("%s = %v, want %v", name, got, want)
		}
	}
	if _, err := conn.NewWorker(o, func(context.Context, []bus.Message) []error { return nil }); err != nil {
		t.Errorf("a second worker on the same registry: %v", err)
	}
}

func TestWorkerRetriesWithDelay(t *testing.T) {
	t.Parallel()
	_, conn := open(t)
	publish(t, conn, messages(1))
	o := options()
	o.MinBackoff, o.MaxBackoff = 300*time.Millisecond, 300*time.Millisecond
	type attempt struct {
		number int
		at     time.Time
	}
	attempts := make(chan attempt, 10)
	run(t, conn, o, func(_ context.Context, batch []bus.Message) []error {
		attempts <- attempt{batch[0].Attempt, time.Now()}
		if batch[0].Attempt < 3 {
			return []error{errBroken}
		}
		return []error{nil}
	})
	var before time.Time
	for want := 1; want <= 3; want++ {
		got := receive(t, "attempt", attempts)
		if got.number != want {
			t.Fatalf("Attempt = %d, want %d", got.number, want)
		}
		// Two thirds of the back-off is the least that jitter leaves.
		if want > 1 && got.at.Sub(before) < 190*time.Millisecond {
			t.Fatalf("attempt %d came after %s, want a delay of 200 ms at least", want, got.at.Sub(before))
		}
		before = got.at
	}
}

func TestWorkerDiscardsAtOnce(t *testing.T) {
	t.Parallel()
	s, conn := open(t)
	_, js := s.raw(t)
	msgs := messages(3)
	msgs[1].Header = map[string][]string{"ce-id": {"7"}}
	msgs[1].Data = []byte("\x00raw\xff")
	publish(t, conn, msgs)
	var seen calls
	o := options()
	o.BatchSize = 10
	run(t, conn, o, func(_ context.Context, batch []bus.Message) []error {
		seen.add(batch)
		verdicts := make([]error, len(batch))
		for i, m := range batch {
			if m.ID == msgs[1].ID {
				verdicts[i] = fmt.Errorf("read: %w", bus.Discard("malformed", errBroken))
			}
		}
		return verdicts
	})
	eventually(t, "stream empty", func() bool { return count(t, js, bus.StreamTraces) == 0 })
	got := letters(t, conn, 1)[0]
	if seen.of(msgs[1].ID) != 1 {
		t.Errorf("handled %d times, want once", seen.of(msgs[1].ID))
	}
	if got.Stream != bus.StreamTraces || got.Subject != traceSubject || got.Sequence != 2 || got.MessageID != msgs[1].ID ||
		got.Reason != "malformed" || got.Error != "read: malformed: broken" || got.Attempts != 1 || string(got.Payload) != "\x00raw\xff" ||
		!slices.Equal(got.Header["ce-id"], []string{"7"}) || got.ID == "" || time.Since(got.Time) > time.Hour {
		t.Errorf("dead letter %+v", got)
	}
}

// The letter must be stored before the original goes: while the dead letters
// take none, the original must stay.
func TestOriginalStaysWithoutLetter(t *testing.T) {
	t.Parallel()
	s, conn := open(t)
	_, js := s.raw(t)
	if err := js.DeleteStream(t.Context(), bus.StreamDeadLetter); err != nil {
		t.Fatal(err)
	}
	publish(t, conn, messages(1))
	tries := make(chan struct{}, 100)
	run(t, conn, options(), func(context.Context, []bus.Message) []error {
		select {
		case tries <- struct{}{}:
		default:
		}
		return []error{bus.Discard("malformed", nil)}
	})
	receive(t, "first try", tries)
	receive(t, "second try, after the letter could not be written", tries)
	if got := count(t, js, bus.StreamTraces); got != 1 {
		t.Fatalf("stream holds %d messages, want the original", got)
	}
	if err := conn.EnsureStreams(t.Context(), bus.StreamConfig{}); err != nil {
		t.Fatal(err)
	}
	letters(t, conn, 1)
	eventually(t, "stream empty", func() bool { return count(t, js, bus.StreamTraces) == 0 })
}

func TestWorkerGivesUp(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fail   func() []error
		reason string
	}{
		"error":        {func() []error { return []error{errBroken} }, bus.ReasonExhausted},
		"panic":        {func() []error { panic("out of cheese") }, bus.ReasonPanic},
		"no verdict":   {func() []error { return nil }, bus.ReasonExhausted},
		"two verdicts": {func() []error { return []error{nil, nil} }, bus.ReasonExhausted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, conn := open(t)
			_, js := s.raw(t)
			msgs := messages(1)
			publish(t, conn, msgs)
			o := options()
			o.MaxAttempts = 3
			var seen calls
			run(t, conn, o, func(_ context.Context, batch []bus.Message) []error {
				seen.add(batch)
				return test.fail()
			})
			got := letters(t, conn, 1)[0]
			if got.Reason != test.reason || got.Attempts != 3 || seen.of(msgs[0].ID) != 3 || got.Error == "" {
				t.Errorf("letter %+v after %d tries, want reason %s after 3", got, seen.of(msgs[0].ID), test.reason)
			}
			eventually(t, "stream empty", func() bool { return count(t, js, bus.StreamTraces) == 0 })
		})
	}
}

func TestOutageMakesNoDeadLetters(t *testing.T) {
	t.Parallel()
	s, conn := open(t)
	_, js := s.raw(t)
	msgs := messages(20)
	publish(t, conn, msgs)
	o := options()
	o.MaxAttempts, o.BatchSize = 2, 5
	var seen calls
	const outage = 10 // deliveries, five times MaxAttempts
	run(t, conn, o, func(_ context.Context, batch []bus.Message) []error {
		seen.add(batch)
		verdicts := make([]error, len(batch))
		for i, m := range batch {
			switch n := seen.of(m.ID); {
			case n <= outage:
				verdicts[i] = fmt.Errorf("insert: %w", bus.Wait(errBroken))
			case n == outage+1: // one real failure after it must not be the last straw
				verdicts[i] = errBroken
			}
		}
		return verdicts
	})
	eventually(t, "stream empty", func() bool { return count(t, js, bus.StreamTraces) == 0 })
	letters(t, conn, 0)
	for _, m := range msgs {
		if seen.of(m.ID) < outage+2 {
			t.Errorf("%s was tried %d times, want %d", m.ID, seen.of(m.ID), outage+2)
		}
	}
}

func TestPoisonTakesNoNeighbour(t *testing.T) {
	t.Parallel()
	for name, poison := range map[string]func(n int) []error{
		"fails the batch":   func(n int) []error { return slices.Repeat([]error{errBroken}, n) },
		"panics":            func(int) []error { panic("poison") },
		"loses the verdict": func(n int) []error { return make([]error, n+1) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, conn := open(t)
			_, js := s.raw(t)
			msgs := messages(30)
			publish(t, conn, msgs)
			o := options()
			o.BatchSize = 30
			run(t, conn, o, func(_ context.Context, batch []bus.Message) []error {
				if slices.ContainsFunc(batch, func(m bus.Message) bool { return m.ID == msgs[13].ID }) {
					return poison(len(batch))
				}
				return make([]error, len(batch))
			})
			got := letters(t, conn, 1)
			if got[0].MessageID != msgs[13].ID {
				t.Errorf("dead letter of %s, want %s", got[0].MessageID, msgs[13].ID)
			}
			eventually(t, "stream empty", func() bool { return count(t, js, bus.StreamTraces) == 0 })
			letters(t, conn, 1)
		})
	}
}

func TestSlowHandlerRunsOnce(t *testing.T) {
	t.Parallel()
	s, conn := open(t)
	_, js := s.raw(t)
	msgs := messages(1)
	publish(t, conn, msgs)
	o := options()
	o.AckWait, o.Concurrency = 500*time.Millisecond, 3
	var seen calls
	run(t, conn, o, func(ctx context.Context, batch []bus.Message) []error {
		seen.add(batch)
		select {
		case <-time.After(4 * o.AckWait):
		case <-ctx.Done():
		}
		return []error{nil}
	})
	eventually(t, "stream empty", func() bool { return count(t, js, bus.StreamTraces) == 0 })
	if got := seen.of(msgs[0].ID); got != 1 {
		t.Fatalf("handled %d times, want once", got)
	}
}

func TestNewWorkerRefuses(t *testing.T) {
	t.Parallel()
	_, conn := open(t)
	handler := func(context.Context, []bus.Message) []error { return nil }
	for name, change := range map[string]func(*bus.WorkerOptions){
		"no stream":      func(o *bus.WorkerOptions) { o.Stream = "" },
		"no durable":     func(o *bus.WorkerOptions) { o.Durable = "" },
		"negative batch": func(o *bus.WorkerOptions) { o.BatchSize = -1 },
		"small pending":  func(o *bus.WorkerOptions) { o.BatchSize, o.MaxAckPending = 10, 9 },
		"long batch":     func(o *bus.WorkerOptions) { o.BatchWait, o.AckWait = time.Second, time.Second },
		"back-off":       func(o *bus.WorkerOptions) { o.MinBackoff, o.MaxBackoff = 2, 1 },
	} {
		o := options()
		change(&o)
		if _, err := conn.NewWorker(o, handler); err == nil {
			t.Errorf("%s: NewWorker = nil, want an error", name)
		}
	}
	if _, err := conn.NewWorker(options(), nil); err == nil {
		t.Error("NewWorker without a handler = nil, want an error")
	}
}

// Two consumers of one work queue would each get a part; the server refuses,
// and waiting would not help.
func TestSecondDurableIsFatal(t *testing.T) {
	t.Parallel()
	s, conn := open(t)
	_, js := s.raw(t)
	if _, err := js.CreateConsumer(t.Context(), bus.StreamTraces, jetstream.ConsumerConfig{Durable: "other", AckPolicy: jetstream.AckExplicitPolicy}); err != nil {
		t.Fatal(err)
	}
	w, err := conn.NewWorker(options(), func(context.Context, []bus.Message) []error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- w.Run(t.Context()) }()
	if err := receive(t, "Run returns", done); err == nil {
		t.Fatal("Run = nil, want an error")
	}
}

// Even a message that may fail only once takes nothing with it, and is found
// without handling all others one by one.
func TestIsolationIsCheap(t *testing.T) {
	t.Parallel()
	s, conn := open(t)
	_, js := s.raw(t)
	msgs := messages(512)
	publish(t, conn, msgs)
	o := options()
	o.BatchSize, o.MaxAttempts = 512, 1
	var seen calls
	run(t, conn, o, func(_ context.Context, batch []bus.Message) []error {
		seen.add(batch)
		if slices.ContainsFunc(batch, func(m bus.Message) bool { return m.ID == msgs[300].ID }) {
			return slices.Repeat([]error{errBroken}, len(batch))
		}
		return make([]error, len(batch))
	})
	got := letters(t, conn, 1)[0]
	eventually(t, "stream empty", func() bool { return count(t, js, bus.StreamTraces) == 0 })
	letters(t, conn, 1)
	seen.mu.Lock()
	defer seen.mu.Unlock()
	if got.MessageID != msgs[300].ID || seen.sizes[len(seen.sizes)-1] < 1 || len(seen.sizes) > 40 {
		t.Errorf("letter of %s after %d calls, want that of %s after about 20", got.MessageID, len(seen.sizes), msgs[300].ID)
	}
}

// Five thousand messages of 1 MB must not be five gigabytes of memory.
func TestBatchIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	s, conn := open(t)
	_, js := s.raw(t)
	const size, n = 900 << 10, 80
	msgs := messages(n)
	for i := range msgs {
		msgs[i].Data = make([]byte, size)
	}
	publish(t, conn, msgs)
	o := options()
	o.BatchSize, o.BatchWait = 5000, 2*time.Second
	var seen calls
	run(t, conn, o, func(_ context.Context, batch []bus.Message) []error {
		seen.add(batch)
		return make([]error, len(batch))
	})
	eventually(t, "stream empty", func() bool { return count(t, js, bus.StreamTraces) == 0 })
	seen.mu.Lock()
	defer seen.mu.Unlock()
	if largest := slices.Max(seen.sizes); largest*size > 34<<20 || largest < 20 {
		t.Errorf("batches of %v messages, want at most 33 MiB each and not much less", seen.sizes)
	}
}

func TestDiscardWithoutReason(t *testing.T) {
	t.Parallel()
	_, conn := open(t)
	publish(t, conn, messages(1))
	run(t, conn, options(), func(context.Context, []bus.Message) []error { return []error{bus.Discard("", nil)} })
	if got := letters(t, conn, 1)[0]; got.Reason == "" || got.Error == "" {
		t.Errorf("letter %+v, want some reason", got)
	}
}
