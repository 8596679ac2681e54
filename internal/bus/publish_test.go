package bus_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hindsight-memory/hindsight/internal/bus"
)

func port(t *testing.T, address string) int {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(u.Port())
	if err != nil {
		t.Fatal(err)
	}
	return n
}

const traceSubject = "hindsight.v1.trace.acme.~.message"

func messages(n int) []bus.Message {
	msgs := make([]bus.Message, n)
	for i := range msgs {
		msgs[i] = bus.Message{Subject: traceSubject, ID: fmt.Sprint("acme/", i), Data: fmt.Appendf(nil, `{"n":%d}`, i)}
	}
	return msgs
}

func TestPublishAllCountsDuplicates(t *testing.T) {
	t.Parallel()
	s, conn := open(t)
	_, js := s.raw(t)
	msgs := messages(3000)
	if dup, err := conn.PublishAll(t.Context(), msgs); err != nil || dup != 0 {
		t.Fatalf("PublishAll = %d, %v, want 0, nil", dup, err)
	}
	if dup, err := conn.PublishAll(t.Context(), msgs[:100]); err != nil || dup != 100 {
		t.Fatalf("PublishAll again = %d, %v, want 100, nil", dup, err)
	}
	if dup, err := conn.Publish(t.Context(), msgs[7]); err != nil || !dup {
		t.Fatalf("Publish again = %v, %v, want true, nil", dup, err)
	}
	if got := count(t, js, bus.StreamTraces); got != 3000 {
		t.Fatalf("stream holds %d messages, want 3000", got)
	}
}

func TestPublishAllWaitsForServer(t *testing.T) {
	t.Parallel()
	s, conn := open(t)
	s.stop(t)
	done := make(chan error, 1)
	go func() {
		_, err := conn.PublishAll(t.Context(), messages(500))
		done <- err
	}()
	s.start(t)
	if err := receive(t, "PublishAll returns", done); err != nil {
		t.Fatalf("PublishAll = %v, want nil once the server is back", err)
	}
	_, js := s.raw(t)
	if got := count(t, js, bus.StreamTraces); got != 500 {
		t.Fatalf("stream holds %d messages, want 500", got)
	}
}

func TestPublishWithoutServer(t *testing.T) {
	t.Parallel()
	s, conn := open(t)
	s.stop(t)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, err := conn.Publish(ctx, messages(1)[0]); !errors.Is(err, bus.ErrUnavailable) {
		t.Errorf("Publish = %v, want ErrUnavailable", err)
	}
	if _, err := conn.PublishAll(ctx, messages(10)); !errors.Is(err, bus.ErrUnavailable) {
		t.Errorf("PublishAll = %v, want ErrUnavailable", err)
	}
	if err := conn.Ready(ctx); !errors.Is(err, bus.ErrUnavailable) {
		t.Errorf("Ready = %v, want ErrUnavailable", err)
	}
	s.start(t)
}

// Ready means that an event published now would be taken.
func TestReady(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	conn := s.connect(t)
	if err := conn.Ready(t.Context()); !errors.Is(err, bus.ErrNotFound) || !strings.Contains(err.Error(), bus.StreamTraces) {
		t.Errorf("Ready without streams = %v, want ErrNotFound naming TRACES", err)
	}
	if err := conn.EnsureStreams(t.Context(), bus.StreamConfig{TracesMaxBytes: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	if err := conn.Ready(t.Context()); err != nil {
		t.Errorf("Ready = %v, want nil", err)
	}
	_, js := s.raw(t)
	var err error
	for i := 0; err == nil; i++ {
		_, err = conn.Publish(t.Context(), bus.Message{Subject: traceSubject, ID: fmt.Sprint("ready/", i), Data: make([]byte, 4<<10)})
	}
	if !errors.Is(err, bus.ErrFull) {
		t.Fatal(err)
	}
	if err := conn.Ready(t.Context()); !errors.Is(err, bus.ErrFull) || !strings.Contains(err.Error(), bus.StreamTraces) {
		t.Errorf("Ready with a full stream = %v, want ErrFull naming TRACES", err)
	}
	stream, err := js.Stream(t.Context(), bus.StreamTraces)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := conn.Ready(t.Context()); err != nil {
		t.Errorf("Ready with room again = %v, want nil", err)
	}
	if err := js.DeleteKeyValue(t.Context(), "hindsight_state"); err != nil {
		t.Fatal(err)
	}
	if err := conn.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "hindsight_state") {
		t.Errorf("Ready without a bucket for state = %v, want an error naming it", err)
	}
}

func TestConnectNamesAddressWithoutPassword(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.stop(t)
	defer s.start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	address := fmt.Sprintf("127.0.0.1:%d", s.port)
	_, err := bus.Connect(ctx, bus.Options{URL: "nats://user:geheim@" + address})
	if !errors.Is(err, bus.ErrUnavailable) || !strings.Contains(err.Error(), address) || strings.Contains(err.Error(), "geheim") {
		t.Fatalf("Connect = %v, want ErrUnavailable naming %s and no password", err, address)
	}
	_, err = bus.Connect(ctx, bus.Options{URL: "nats://user:geheim@host:port"})
	if err == nil || errors.Is(err, bus.ErrUnavailable) || strings.Contains(err.Error(), "geheim") {
		t.Fatalf("Connect with a malformed address = %v, want an error at once and no password", err)
	}
}

func TestTooLarge(t *testing.T) {
	t.Parallel()
	s, conn := open(t)
	_, js := s.raw(t)
	msgs := messages(3)
	msgs[2].Data = make([]byte, 1<<20)
	if _, err := conn.Publish(t.Context(), msgs[2]); !errors.Is(err, bus.ErrTooLarge) {
		t.Errorf("Publish = %v, want ErrTooLarge", err)
	}
	if _, err := conn.PublishAll(t.Context(), msgs); !errors.Is(err, bus.ErrTooLarge) {
		t.Errorf("PublishAll = %v, want ErrTooLarge", err)
	}
	if got := count(t, js, bus.StreamTraces); got != 0 {
		t.Errorf("stream holds %d messages, want none of a batch with one too large", got)
	}
	msgs[2].Data = make([]byte, 1_000_000)
	if _, err := conn.PublishAll(t.Context(), msgs); err != nil {
		t.Errorf("PublishAll of 1 MB = %v, want nil", err)
	}
}

func TestEnsureStreams(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	errs := make(chan error, 4)
	for range cap(errs) { // several processes at once
		conn := s.connect(t)
		go func() { errs <- conn.EnsureStreams(t.Context(), bus.StreamConfig{TracesMaxBytes: 64 << 20}) }()
	}
	for range cap(errs) {
		if err := receive(t, "EnsureStreams returns", errs); err != nil {
			t.Fatalf("EnsureStreams: %v", err)
		}
	}
	conn := s.connect(t)
	if err := conn.EnsureStreams(t.Context(), bus.StreamConfig{TracesMaxBytes: 32 << 20}); err != nil {
		t.Fatalf("EnsureStreams with another size: %v", err)
	}
	_, js := s.raw(t)
	stream, err := js.Stream(t.Context(), bus.StreamTraces)
	if err != nil {
		t.Fatal(err)
	}
	if cfg := stream.CachedInfo().Config; cfg.MaxBytes != 32<<20 || cfg.Retention != jetstream.WorkQueuePolicy || cfg.Discard != jetstream.DiscardNew {
		t.Fatalf("TRACES = %+v, want a work queue of 32 MiB that refuses what is new", cfg)
	}
	err = conn.EnsureStreams(t.Context(), bus.StreamConfig{TracesMaxBytes: 1 << 40})
	if !errors.Is(err, bus.ErrFull) || !strings.Contains(err.Error(), "HINDSIGHT_TRACES_MAX_BYTES") {
		t.Fatalf("EnsureStreams past the server's storage = %v, want ErrFull that says what to do", err)
	}
}

func TestStreamConflict(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]jetstream.StreamConfig{
		"retention": {Name: bus.StreamTraces, Subjects: []string{"hindsight.v1.trace.>"}},
		"subjects":  {Name: bus.StreamTraces, Subjects: []string{"other.>"}, Retention: jetstream.WorkQueuePolicy},
		"overlap":   {Name: "OTHER", Subjects: []string{"hindsight.v1.trace.acme.>"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t)
			_, js := s.raw(t)
			if _, err := js.CreateStream(t.Context(), cfg); err != nil {
				t.Fatal(err)
			}
			err := s.connect(t).EnsureStreams(t.Context(), bus.StreamConfig{})
			if !errors.Is(err, bus.ErrStreamConflict) || !strings.Contains(err.Error(), "nats stream") {
				t.Fatalf("EnsureStreams = %v, want ErrStreamConflict that says what to do", err)
			}
		})
	}
}

func TestWorkingAndState(t *testing.T) {
	t.Parallel()
	_, conn := open(t)
	ctx := t.Context()
	if _, err := conn.GetWorking(ctx, "acme", "task 1"); !errors.Is(err, bus.ErrNotFound) {
		t.Errorf("GetWorking = %v, want ErrNotFound", err)
	}
	if err := conn.PutWorking(ctx, "acme", "task 1", []byte("a")); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.GetWorking(ctx, "other", "task 1"); !errors.Is(err, bus.ErrNotFound) {
		t.Errorf("GetWorking in another namespace = %v, want ErrNotFound", err)
	}
	if got, err := conn.GetWorking(ctx, "acme", "task 1"); err != nil || string(got) != "a" {
		t.Errorf("GetWorking = %q, %v, want a", got, err)
	}
	for range 2 { // the second finds nothing, which is no error
		if err := conn.DeleteWorking(ctx, "acme", "task 1"); err != nil {
			t.Errorf("DeleteWorking = %v", err)
		}
	}
	if _, err := conn.GetWorking(ctx, "acme", "task 1"); !errors.Is(err, bus.ErrNotFound) {
		t.Errorf("GetWorking of what was deleted = %v, want ErrNotFound", err)
	}
	if _, err := conn.LoadState(ctx, "sweeper/cursor"); !errors.Is(err, bus.ErrNotFound) {
		t.Errorf("LoadState = %v, want ErrNotFound", err)
	}
	if err := conn.SaveState(ctx, "sweeper/cursor", []byte("b")); err != nil {
		t.Fatal(err)
	}
	if got, err := conn.LoadState(ctx, "sweeper/cursor"); err != nil || string(got) != "b" {
		t.Errorf("LoadState = %q, %v, want b", got, err)
	}
}

func TestReflectSubject(t *testing.T) {
	t.Parallel()
	for namespace, want := range map[string]string{
		"acme": "hindsight.v1.reflect.acme.~", "acme.ops": "hindsight.v1.reflect.acme.ops",
	} {
		if got := bus.ReflectSubject(namespace); got != want {
			t.Errorf("ReflectSubject(%q) = %q, want %q", namespace, got, want)
		}
	}
}

// A full stream is back-pressure: it refuses, and takes again once a worker
// has drained it.
func TestFullStream(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	conn := s.connect(t)
	if err := conn.EnsureStreams(t.Context(), bus.StreamConfig{TracesMaxBytes: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	large := func(i int) bus.Message {
		return bus.Message{Subject: traceSubject, ID: fmt.Sprint("large/", i), Data: fmt.Appendf(nil, "%0*d", 100<<10, i)}
	}
	var err error
	stored := 0
	for ; err == nil; stored++ {
		_, err = conn.Publish(t.Context(), large(stored))
	}
	stored--
	if !errors.Is(err, bus.ErrFull) || stored < 5 {
		t.Fatalf("Publish = %v after %d messages, want ErrFull after about 10", err, stored)
	}
	rest := []bus.Message{large(stored), large(stored + 1), large(stored + 2)}
	if _, err := conn.PublishAll(t.Context(), rest); !errors.Is(err, bus.ErrFull) {
		t.Fatalf("PublishAll = %v, want ErrFull", err)
	}
	// While PublishAll waits, a worker makes room.
	published := make(chan error, 1)
	go func() {
		for {
			_, err := conn.PublishAll(t.Context(), rest)
			if !errors.Is(err, bus.ErrFull) {
				published <- err
				return
			}
		}
	}()
	var seen calls
	run(t, conn, options(), func(_ context.Context, batch []bus.Message) []error {
		seen.add(batch)
		return make([]error, len(batch))
	})
	if err := receive(t, "PublishAll succeeds", published); err != nil {
		t.Fatalf("PublishAll = %v, want nil once there is room", err)
	}
	eventually(t, "all handled", func() bool { return seen.distinct() == stored+len(rest) })
	letters(t, conn, 0)
}

func TestPublishWithoutStreamSaysSo(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	conn := s.connect(t)
	if _, err := conn.Publish(t.Context(), messages(1)[0]); !errors.Is(err, bus.ErrUnavailable) || !strings.Contains(err.Error(), traceSubject) {
		t.Errorf("Publish = %v, want ErrUnavailable naming the subject", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := conn.PublishAll(ctx, messages(3)); !errors.Is(err, bus.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("PublishAll = %v, want ErrUnavailable when ctx ends", err)
	}
	if err := conn.SaveState(t.Context(), "a", nil); !errors.Is(err, bus.ErrNotFound) {
		t.Errorf("SaveState without a bucket = %v, want ErrNotFound", err)
	}
	if err := conn.PublishCore("hindsight.v1.live.x", []byte("y")); err != nil {
		t.Errorf("PublishCore with nobody listening = %v, want nil", err)
	}
}
