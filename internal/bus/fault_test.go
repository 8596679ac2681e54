package bus_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hindsight-memory/hindsight/internal/bus"
)

// never is an AckWait that no test lives to see: a message that is stranded,
// not given back, fails the test.
const never = time.Hour

func empty(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	eventually(t, "the stream is empty", func() bool { return count(t, js, bus.StreamTraces) == 0 })
}

// workInProgress is a handler that reports each message and waits for leave.
func workInProgress() (handler bus.Handler, running chan string, leave chan struct{}) {
	running, leave = make(chan string, 1000), make(chan struct{})
	return func(_ context.Context, batch []bus.Message) []error {
		for _, m := range batch {
			running <- m.ID
		}
		<-leave
		return make([]error, len(batch))
	}, running, leave
}

func TestStopFinishesWhatRuns(t *testing.T) {
	t.Parallel()
	s, conn := open(t)
	_, js := s.raw(t)
	publish(t, conn, messages(50))
	o := options()
	o.AckWait, o.DrainTimeout = never, never
	handler, running, leave := workInProgress()
	stop := run(t, conn, o, handler)
	mine := receive(t, "a message is handled", running)
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()

	// The rest must reach another replica while this one still finishes.
	var others calls
	stopOther := run(t, s.connect(t), o, func(_ context.Context, batch []bus.Message) []error {
		others.add(batch)
		return make([]error, len(batch))
	})
	eventually(t, "another replica has taken all that waited", func() bool { return others.distinct() == 49 })
	close(leave)
	if err := receive(t, "worker stops", stopped); err != nil {
		t.Errorf("Run = %v, want nil", err)
	}
	empty(t, js)
	if err := stopOther(); err != nil {
		t.Errorf("Run = %v, want nil", err)
	}
	if others.of(mine) != 0 {
		t.Errorf("message %s was handled twice although its handler finished", mine)
	}
}

func TestStopGivesBackWhatIsUnfinished(t *testing.T) {
	t.Parallel()
	for name, ignores := range map[string]bool{"handler obeys": false, "handler ignores its context": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, conn := open(t)
			_, js := s.raw(t)
			publish(t, conn, messages(20))
			o := options()
			o.AckWait, o.DrainTimeout, o.BatchSize = never, 50*time.Millisecond, 10
			running, release := make(chan context.Context, 10), make(chan struct{})
			t.Cleanup(func() { close(release) })
			stop := run(t, conn, o, func(ctx context.Context, batch []bus.Message) []error {
				running <- ctx
				if ignores {
					<-release
				} else {
					<-ctx.Done()
				}
				errs := make([]error, len(batch))
				for i := range errs {
					errs[i] = ctx.Err()
				}
				return errs
			})
			ctx := receive(t, "a batch is handled", running)
			if err := stop(); !errors.Is(err, bus.ErrDrainTimeout) {
				t.Errorf("Run = %v, want ErrDrainTimeout", err)
			}
			if cause := context.Cause(ctx); !errors.Is(cause, bus.ErrDrainTimeout) {
				t.Errorf("cause %v, want ErrDrainTimeout", cause)
			}
			var others calls
			run(t, conn, o, func(_ context.Context, batch []bus.Message) []error {
				others.add(batch)
				return make([]error, len(batch))
			})
			empty(t, js)
			if got := others.distinct(); got != 20 {
				t.Errorf("another worker got %d messages, want all 20", got)
			}
			if got := letters(t, conn, 0); len(got) != 0 {
				t.Errorf("stopping made dead letters: %v", got)
			}
		})
	}
}

func TestKilledWorkerIsSucceeded(t *testing.T) {
	t.Parallel()
	s, conn := open(t)
	_, js := s.raw(t)
	way := newLine(t, strings.TrimPrefix(s.current.URL(), "nats://"))
	doomed, err := bus.Connect(t.Context(), bus.Options{URL: "nats://" + way.listener.Addr().String(), Logger: testLogger(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(doomed.Close)
	t.Cleanup(func() { way.cut.Store(false) })
	publish(t, conn, messages(10))
	o := options()
	o.AckWait, o.BatchSize = time.Second, 10
	handler, running, leave := workInProgress()
	stop := run(t, doomed, o, handler)
	receive(t, "the first worker has messages", running)
	way.cut.Store(true) // to the server this looks like a process that was killed or paused
	var others calls
	run(t, conn, o, func(_ context.Context, batch []bus.Message) []error {
		others.add(batch)
		return make([]error, len(batch))
	})
	empty(t, js)
	if got := others.distinct(); got == 0 {
		t.Error("no message of the killed worker came to the other")
	}
	way.cut.Store(false)
	close(leave)
	_ = stop() // its acknowledgements come too late and change nothing
	if got := count(t, js, bus.StreamTraces); got != 0 {
		t.Errorf("stream holds %d messages, want none", got)
	}
}

func TestDeletedConsumerIsMadeAnew(t *testing.T) {
	t.Parallel()
	s, conn := open(t)
	_, js := s.raw(t)
	o := options()
	o.BatchSize, o.Concurrency = 10, 2
	var seen calls
	handled := make(chan string, 1000)
	run(t, conn, o, func(_ context.Context, batch []bus.Message) []error {
		seen.add(batch)
		for _, m := range batch {
			handled <- m.ID
		}
		return make([]error, len(batch))
	})
	all := messages(40)
	for part := range 4 {
		publish(t, conn, all[part*10:part*10+10])
		for range 10 {
			receive(t, "a message is handled", handled)
		}
		empty(t, js)
		if err := js.DeleteConsumer(t.Context(), bus.StreamTraces, o.Durable); err != nil {
			t.Fatal(err)
		}
	}
	if got := seen.distinct(); got != 40 {
		t.Errorf("%d messages handled, want 40", got)
	}
}

func TestDeletedStreamIsWaitedFor(t *testing.T) {
	t.Parallel()
	s, conn := open(t)
	_, js := s.raw(t)
	var seen calls
	run(t, conn, options(), func(_ context.Context, batch []bus.Message) []error {
		seen.add(batch)
		return make([]error, len(batch))
	})
	all := messages(20)
	publish(t, conn, all[:10])
	empty(t, js)
	if err := js.DeleteStream(t.Context(), bus.StreamTraces); err != nil {
		t.Fatal(err)
	}
	if err := conn.EnsureStreams(t.Context(), bus.StreamConfig{}); err != nil {
		t.Fatal(err)
	}
	publish(t, conn, all[10:])
	empty(t, js)
	if got := seen.distinct(); got != 20 {
		t.Errorf("%d messages handled, want 20", got)
	}
}

func TestRestartOfServerWhileHandling(t *testing.T) {
	t.Parallel()
	s, conn := open(t)
	publish(t, conn, messages(1))
	handler, running, leave := workInProgress()
	o := options()
	o.AckWait = never
	run(t, conn, o, handler)
	receive(t, "the message is handled", running)
	s.stop(t)
	s.start(t)
	if err := conn.Ready(t.Context()); err != nil {
		eventually(t, "the connection is back", func() bool { return conn.Ready(t.Context()) == nil })
	}
	close(leave)
	_, js := s.raw(t)
	empty(t, js)
	if n := len(running); n != 0 {
		t.Errorf("the message was handled %d times more, want once in all", n)
	}
}

func TestRestartsOfServerUnderLoad(t *testing.T) {
	t.Parallel()
	s, conn := open(t)
	o := options()
	o.BatchSize, o.Concurrency, o.AckWait = 50, 2, 2*time.Second
	var seen calls
	run(t, conn, o, func(_ context.Context, batch []bus.Message) []error {
		seen.add(batch)
		return make([]error, len(batch))
	})
	const n = 6000
	all := messages(n)
	published := make(chan error, 1)
	go func() {
		var err error
		for at := 0; at < n && err == nil; at += 300 {
			_, err = conn.PublishAll(t.Context(), all[at:at+300])
		}
		published <- err
	}()
	for restart := range 3 {
		eventually(t, "work goes on", func() bool { return seen.distinct() > restart*n/4 })
		s.stop(t)
		s.start(t)
	}
	if err := receive(t, "all is published", published); err != nil {
		t.Fatalf("PublishAll: %v", err)
	}
	_, js := s.raw(t)
	empty(t, js)
	if got := seen.distinct(); got != n {
		t.Errorf("%d of %d messages handled", got, n)
	}
	if got := letters(t, conn, 0); len(got) != 0 {
		t.Errorf("restarts made dead letters: %v", got)
	}
}

// TestBacklogWithWorkersThatComeAndGo keeps three workers busy of which one is
// stopped and replaced at a time, in the middle of whatever it does.
func TestBacklogWithWorkersThatComeAndGo(t *testing.T) {
	t.Parallel()
	s, conn := open(t)
	_, js := s.raw(t)
	const n = 20_000
	publish(t, conn, messages(n))
	o := options()
	o.BatchSize, o.AckWait, o.DrainTimeout = 100, never, 20*time.Millisecond
	o.MaxAttempts = 1000 // failing at random must not end in a dead letter
	var (
		seen calls
		runs atomic.Int64
	)
	handler := func(ctx context.Context, batch []bus.Message) []error {
		errs := make([]error, len(batch))
		runs.Add(1)
		switch rand.IntN(20) {
		case 0: // slow: some are stopped in here
			select {
			case <-ctx.Done():
			case <-time.After(30 * time.Millisecond):
			}
		case 1:
			panic("at random")
		case 2:
			for i := range errs {
				errs[i] = bus.Wait(errBroken)
			}
			return errs
		case 3:
			errs[rand.IntN(len(errs))] = errBroken
		}
		var done []bus.Message
		for i, m := range batch {
			if errs[i] = errors.Join(errs[i], ctx.Err()); errs[i] == nil {
				done = append(done, m)
			}
		}
		seen.add(done)
		return errs
	}
	var stops []func() error
	for range 3 {
		stops = append(stops, run(t, s.connect(t), o, handler))
	}
	replaced := 0
	for last := int64(0); count(t, js, bus.StreamTraces) > 0; {
		eventually(t, "work goes on", func() bool {
			return runs.Load() >= last+20 || count(t, js, bus.StreamTraces) == 0
		})
		last = runs.Load()
		which := rand.IntN(len(stops))
		if err := stops[which](); err != nil && !errors.Is(err, bus.ErrDrainTimeout) {
			t.Fatalf("Run: %v", err)
		}
		stops[which] = run(t, s.connect(t), o, handler)
		replaced++
	}
	if got := seen.distinct(); got != n {
		t.Errorf("%d of %d messages handled", got, n)
	}
	if got := letters(t, conn, 0); len(got) != 0 {
		t.Errorf("%d dead letters, want none", len(got))
	}
	if replaced == 0 {
		t.Error("no worker was ever replaced: the backlog is too small to prove anything")
	}
	t.Logf("%d workers replaced, %d batches", replaced, runs.Load())
}

func TestStats(t *testing.T) {
	t.Parallel()
	s, conn := open(t)
	publish(t, conn, messages(30))
	o := options()
	o.BatchSize, o.AckWait = 10, never
	handler, running, leave := workInProgress()
	stop := run(t, conn, o, handler)
	receive(t, "a batch is handled", running)
	find := func() (bus.StreamStats, bus.ConsumerStats) {
		all, err := conn.Stats(t.Context())
		if err != nil {
			t.Fatalf("Stats: %v", err)
		}
		if len(all) != 4 {
			t.Fatalf("%d streams, want 4", len(all))
		}
		for _, stream := range all {
			if stream.Stream == bus.StreamTraces && len(stream.Consumers) == 1 {
				return stream, stream.Consumers[0]
			}
		}
		t.Fatalf("no stream %s with one consumer in %+v", bus.StreamTraces, all)
		return bus.StreamStats{}, bus.ConsumerStats{}
	}
	stream, consumer := find()
	if stream.Messages != 30 || stream.Bytes == 0 || stream.MaxBytes != 1<<30 || time.Since(stream.Oldest) > patience {
		t.Errorf("stream %+v, want 30 fresh messages of at most 1 GiB", stream)
	}
	if consumer.Durable != o.Durable || consumer.AckPending == 0 || consumer.Pending+uint64(consumer.AckPending) != 30 || consumer.Redelivered != 0 {
		t.Errorf("consumer %+v, want 30 messages pending or in hand", consumer)
	}
	registry := newRegistry(t, bus.NewStatsCollector(conn))
	if got := gauge(t, registry, "hindsight_bus_stream_messages", bus.StreamTraces); got != 30 {
		t.Errorf("hindsight_bus_stream_messages = %v, want 30", got)
	}
	if got := gauge(t, registry, "hindsight_bus_up"); got != 1 {
		t.Errorf("hindsight_bus_up = %v, want 1", got)
	}
	close(leave)
	eventually(t, "all is handled", func() bool { stream, _ := find(); return stream.Messages == 0 })
	if stream, consumer := find(); !stream.Oldest.IsZero() || consumer.Pending != 0 || consumer.AckPending != 0 {
		t.Errorf("stats %+v after the work, want nothing left", stream)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	s.stop(t)
	defer s.start(t)
	if _, err := conn.Stats(short(t)); !errors.Is(err, bus.ErrUnavailable) {
		t.Errorf("Stats without a server = %v, want ErrUnavailable", err)
	}
	if got := gauge(t, registry, "hindsight_bus_up"); got != 0 {
		t.Errorf("hindsight_bus_up without a server = %v, want 0", got)
	}
}

func TestStatsLeavesOutWhatIsMissing(t *testing.T) {
	t.Parallel()
	all, err := startServer(t).connect(t).Stats(t.Context())
	if err != nil || len(all) != 0 {
		t.Errorf("Stats = %v, %v, want no streams and no error", all, err)
	}
}

func TestManyDurables(t *testing.T) {
	t.Parallel()
	_, conn := open(t)
	// A limits stream has as many readers as it likes, each with all of it.
	letter := bus.Message{Subject: "hindsight.v1.deadletter.trace", Data: []byte("x")}
	if _, err := conn.Publish(t.Context(), letter); err != nil {
		t.Fatal(err)
	}
	got := make(chan string, 10)
	for i := range 2 {
		o := options()
		o.Stream, o.Durable = bus.StreamDeadLetter, fmt.Sprint("reader-", i)
		run(t, conn, o, func(_ context.Context, batch []bus.Message) []error {
			got <- o.Durable
			return make([]error, len(batch))
		})
	}
	if a, b := receive(t, "one reads", got), receive(t, "the other reads", got); a == b {
		t.Errorf("%s read twice", a)
	}
}
