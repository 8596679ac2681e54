package bus_test

import (
	"slices"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/hindsight-memory/hindsight/internal/bus"
)

func TestPublishCoreAskingTellsWhoListens(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	conn := s.connect(t)
	msgs := []bus.Message{
		{Subject: "hindsight.v1.live.a.~.message", Data: []byte("1")},
		{Subject: "hindsight.v1.live.b.~.message", Data: []byte("2")},
		{Subject: "hindsight.v1.live.a.~.feedback", Data: []byte("3")},
	}
	ask := func(want ...bool) {
		t.Helper()
		if heard, err := conn.PublishCoreAsking(t.Context(), msgs); err != nil || !slices.Equal(heard, want) {
			t.Fatalf("PublishCoreAsking = %v, %v, want %v", heard, err, want)
		}
	}
	ask(false, false, false)

	// The listener has a connection of its own and never answers.
	listener, err := nats.Connect(s.current.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	sub, err := listener.SubscribeSync("hindsight.v1.live.a.>")
	if err != nil {
		t.Fatal(err)
	}
	if err := listener.Flush(); err != nil {
		t.Fatal(err)
	}
	ask(true, false, true)
	for _, want := range []string{"1", "3"} {
		m, err := sub.NextMsg(patience)
		if err != nil || string(m.Data) != want {
			t.Fatalf("the listener got %v, %v, want %s", m, err, want)
		}
	}

	if err := sub.Unsubscribe(); err != nil {
		t.Fatal(err)
	}
	if err := listener.Flush(); err != nil {
		t.Fatal(err)
	}
	ask(false, false, false)
}
