package bus_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/hindsight-memory/hindsight/internal/bus"
	"github.com/hindsight-memory/hindsight/internal/engine"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait of these tests; none is expected to come near it.
const patience = 30 * time.Second

// server is a real nats-server that can be stopped and started again on its
// directory and port.
type server struct {
	dir     string
	port    int
	current *engine.NATS
}

func startServer(t *testing.T) *server {
	t.Helper()
	s := &server{dir: t.TempDir()}
	s.start(t)
	t.Cleanup(func() { s.stop(t) })
	return s
}

func (s *server) start(t *testing.T) {
	t.Helper()
	running, err := engine.StartNATS(t.Context(), engine.NATSOptions{DataDir: s.dir, Port: s.port})
	if err != nil {
		t.Fatalf("StartNATS: %v", err)
	}
	s.current = running
	if s.port == 0 {
		s.port = port(t, running.URL())
	}
}

func (s *server) stop(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	defer cancel()
	if err := s.current.Stop(ctx); err != nil {
		t.Errorf("Stop: %v", err)
	}
}

// connect opens a connection that closes before the server of the test stops.
func (s *server) connect(t *testing.T) *bus.Conn {
	t.Helper()
	conn, err := bus.Connect(t.Context(), bus.Options{URL: s.current.URL(), Name: t.Name(), Logger: testLogger(t)})
	if err != nil {
		t.Fatalf("Connect: %v", err)
	}
	t.Cleanup(conn.Close)
	return conn
}

// open is a server with Hindsight's streams and a connection to it.
func open(t *testing.T) (*server, *bus.Conn) {
	t.Helper()
	s := startServer(t)
	conn := s.connect(t)
	if err := conn.EnsureStreams(t.Context(), bus.StreamConfig{}); err != nil {
		t.Fatalf("EnsureStreams: %v", err)
	}
	return s, conn
}

// raw is a plain JetStream client, for looking behind the package.
func (s *server) raw(t *testing.T) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	nc, err := nats.Connect(s.current.URL(), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatalf("jetstream: %v", err)
	}
	return nc, js
}

// count is how many messages a stream holds.
func count(t *testing.T, js jetstream.JetStream, stream string) uint64 {
	t.Helper()
	s, err := js.Stream(t.Context(), stream)
	if err != nil {
		t.Fatalf("look at stream %s: %v", stream, err)
	}
	return s.CachedInfo().State.Msgs
}

// eventually waits until condition holds.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-deadline.C:
			t.Fatalf("not within %s: %s", patience, what)
		case <-tick.C:
		}
	}
}

// receive takes a value from a channel.
func receive[T any](t *testing.T, what string, from <-chan T) T {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case v := <-from:
		return v
	case <-timer.C:
		t.Fatalf("not within %s: %s", patience, what)
		panic("unreachable")
	}
}

// testLogger writes to the test's log, and to nowhere once the test is over.
func testLogger(t *testing.T) *slog.Logger {
	t.Helper()
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
}
