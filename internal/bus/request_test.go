package bus_test

import (
	"context"
	"errors"
	"testing"

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
