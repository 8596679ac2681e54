package bus_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/hindsight-memory/hindsight/internal/bus"
)

func TestRequest(t *testing.T) {
	t.Parallel()
	_, conn := open(t)
	const subject = "hindsight.v1.control.test"
	if _, err := conn.Request(t.Context(), subject, nil); !errors.Is(err, bus.ErrNotFound) {
		t.Errorf("Request with nobody there = %v, want ErrNotFound", err)
	}
	stop, err := conn.Respond(t.Context(), subject, func(_ context.Context, data []byte) []byte { return append([]byte("did "), data...) })
	if err != nil {
		t.Fatal(err)
	}
	for _, order := range []string{"merge", "induce"} {
		if answer, err := conn.Request(t.Context(), subject, []byte(order)); err != nil || string(answer) != "did "+order {
			t.Errorf("Request(%s) = %q, %v", order, answer, err)
		}
	}
	stop()
	if _, err := conn.Request(t.Context(), subject, nil); !errors.Is(err, bus.ErrNotFound) {
		t.Errorf("Request after stop = %v, want ErrNotFound", err)
	}
}

// TestRequestOfOneWhoEnds: one who ends over the work, or takes a request and is never heard again, is not waited for.
func TestRequestOfOneWhoEnds(t *testing.T) {
	t.Parallel()
	server, asking := open(t)
	taken := make(chan struct{}, 1)
	stop, err := server.connect(t).Respond(t.Context(), "hindsight.v1.control.ends", func(ctx context.Context, _ []byte) []byte {
		taken <- struct{}{}
		<-ctx.Done()
		return []byte("given up")
	})
	if err != nil {
		t.Fatal(err)
	}
	dead, _ := server.raw(t)
	sub, err := dead.Subscribe("hindsight.v1.control.dead", func(*nats.Msg) {})
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Unsubscribe() //nolint:errcheck // Its connection is closed next.
	if err := dead.Flush(); err != nil {
		t.Fatal(err)
	}
	answers := make(chan error, 2)
	for _, subject := range []string{"hindsight.v1.control.ends", "hindsight.v1.control.dead"} {
		go func() {
			_, err := asking.Request(t.Context(), subject, nil)
			answers <- err
		}()
	}
	<-taken
	stop()
	for range 2 {
		if err := <-answers; !errors.Is(err, bus.ErrUnavailable) {
			t.Errorf("a request of one who has ended = %v, want ErrUnavailable", err)
		}
	}
}

// TestRequestThatIsWorkedOn: several are worked on at once, and who stops waiting knows that it was taken.
func TestRequestThatIsWorkedOn(t *testing.T) {
	t.Parallel()
	_, conn := open(t)
	const subject = "hindsight.v1.control.test"
	finish := make(chan struct{})
	stop, err := conn.Respond(t.Context(), subject, func(ctx context.Context, data []byte) []byte {
		if string(data) == "finish" {
			close(finish)
		}
		select {
		case <-finish:
		case <-ctx.Done():
		}
		return data
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	for patience := 50 * time.Millisecond; ; patience *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		_, err := conn.Request(ctx, subject, []byte("long"))
		cancel()
		if errors.Is(err, bus.ErrWorking) {
			break
		}
		if !errors.Is(err, context.DeadlineExceeded) || patience > time.Minute {
			t.Fatalf("a request that takes long = %v, want ErrWorking", err)
		}
	}
	if answer, err := conn.Request(t.Context(), subject, []byte("finish")); err != nil || string(answer) != "finish" {
		t.Errorf("a request beside one that takes long = %q, %v", answer, err)
	}
}
