package engine_test

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hindsight-memory/hindsight/internal/engine/enginetest"
)

func TestNATSServesJetStream(t *testing.T) {
	t.Parallel()
	nc, err := nats.Connect(enginetest.NATS(t))
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	defer nc.Close()
	if got := nc.MaxPayload(); got != 1<<20 {
		t.Errorf("MaxPayload = %d, want 1 MiB", got)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}}); err != nil {
		t.Fatalf("create stream: %v", err)
	}
	ack, err := js.Publish(t.Context(), "s.a", []byte("x"))
	if err != nil || ack.Sequence != 1 {
		t.Fatalf("publish = %+v, %v; want sequence 1", ack, err)
	}
}
