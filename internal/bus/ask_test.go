package bus_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hindsight-memory/hindsight/internal/bus"
)

func TestAsk(t *testing.T) {
	t.Parallel()
	_, conn := open(t)
	o := options()
	o.Stream, o.Durable = bus.StreamWrites, "keeper"
	run(t, conn, o, func(_ context.Context, batch []bus.Message) []error {
		for _, m := range batch {
			if err := conn.Answer(m, append([]byte("stored "), m.Data...)); err != nil {
				t.Errorf("Answer = %v", err)
			}
		}
		return make([]error, len(batch))
	})
	for _, text := range []string{"a", "b"} {
		answer, err := conn.Ask(t.Context(), bus.Message{Subject: bus.WriteSubject("acme.web"), ID: "acme/" + text, Data: []byte(text)})
		if err != nil || string(answer) != "stored "+text {
			t.Errorf("Ask = %q, %v, want %q", answer, err, "stored "+text)
		}
	}
}

// What nobody answers is stored all the same, and the asker is told so.
func TestAskUnanswered(t *testing.T) {
	t.Parallel()
	s, conn := open(t)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := conn.Ask(ctx, bus.Message{Subject: bus.WriteSubject("acme"), ID: "acme/1", Data: []byte("x")})
	if !errors.Is(err, bus.ErrUnanswered) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Ask = %v, want ErrUnanswered for the deadline", err)
	}
	_, js := s.raw(t)
	if got := count(t, js, bus.StreamWrites); got != 1 {
		t.Errorf("the stream holds %d messages, want 1", got)
	}
}

// A message cannot have its answer sent anywhere but to an inbox.
func TestAnswerGoesToInboxesOnly(t *testing.T) {
	t.Parallel()
	s, conn := open(t)
	for _, header := range []map[string][]string{nil, {"Hindsight-Answer-To": {traceSubject}}, {"Hindsight-Answer-To": {""}}} {
		if err := conn.Answer(bus.Message{Header: header}, []byte("x")); err != nil {
			t.Errorf("Answer with %v = %v, want nil", header, err)
		}
	}
	if err := conn.Ready(t.Context()); err != nil { // what was sent before has arrived
		t.Fatal(err)
	}
	_, js := s.raw(t)
	if got := count(t, js, bus.StreamTraces); got != 0 {
		t.Errorf("an answer went into the stream TRACES")
	}
}
