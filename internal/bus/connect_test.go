package bus_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	natsserver "github.com/nats-io/nats-server/v2/server"

	"github.com/hindsight-memory/hindsight/internal/bus"
)

// plainServer is a nats-server with settings of its own, and without JetStream unless they ask for it.
func plainServer(t *testing.T, o natsserver.Options) *natsserver.Server {
	t.Helper()
	o.Host, o.Port, o.NoLog, o.NoSigs = "127.0.0.1", natsserver.RANDOM_PORT, true, true
	s, err := natsserver.NewServer(&o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(patience) {
		t.Fatal("the server does not start")
	}
	return s
}

// greeter is a server that greets everybody with one line and then listens.
func greeter(t *testing.T, line string) string {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var (
		mu    sync.Mutex
		conns []net.Conn
		done  = make(chan struct{})
	)
	go func() {
		defer close(done)
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, conn)
			mu.Unlock()
			_, _ = fmt.Fprint(conn, line, "\r\nPONG\r\n")
		}
	}()
	t.Cleanup(func() {
		_ = ln.Close()
		<-done
		for _, conn := range conns {
			_ = conn.Close()
		}
	})
	return ln.Addr().String()
}

// setUp does what a process does when it starts.
func setUp(ctx context.Context, t *testing.T, url string) error {
	t.Helper()
	conn, err := bus.Connect(ctx, bus.Options{URL: url, Logger: testLogger(t)})
	if err != nil {
		return err
	}
	defer conn.Close()
	return conn.EnsureStreams(ctx, bus.StreamConfig{})
}

// TestWhatIsRefused is what no waiting heals: a process that starts must say so instead of waiting.
func TestWhatIsRefused(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(web.Close)
	withUser := plainServer(t, natsserver.Options{Username: "us", Password: "hush"})
	noStream := plainServer(t, natsserver.Options{})
	narrow := plainServer(t, natsserver.Options{
		JetStream: true, StoreDir: t.TempDir(),
		Users: []*natsserver.User{{Username: "us", Password: "hush", Permissions: &natsserver.Permissions{Publish: &natsserver.SubjectPermission{Allow: []string{"hindsight.>"}}}}},
	})
	of := func(s *natsserver.Server, user string) string { return "nats://" + user + s.Addr().String() }
	for _, test := range []struct {
		name, url string
		want      error
		words     string
	}{
		{"an HTTP server", "nats://" + web.Listener.Addr().String(), bus.ErrStranger, "404 Not Found"},
		{"a server that greets otherwise", "nats://" + greeter(t, "SSH-2.0-OpenSSH_9.6"), bus.ErrStranger, "SSH-2.0"},
		{"one of several", "nats://127.0.0.1:1,nats://" + web.Listener.Addr().String(), bus.ErrStranger, "404 Not Found"},
		{"no credentials", of(withUser, ""), bus.ErrDenied, "HINDSIGHT_NATS_URL"},
		{"wrong credentials", of(withUser, "us:other@"), bus.ErrDenied, "HINDSIGHT_NATS_URL"},
		{"no permission", of(narrow, "us:hush@"), bus.ErrDenied, "permission"},
		{"no JetStream", of(noStream, ""), bus.ErrNoJetStream, "-js"},
		{"too old", "nats://" + greeter(t, `INFO {"server_id":"A","version":"2.9.25","proto":1,"headers":true,"max_payload":1048576}`), bus.ErrVersion, "2.9.25"},
		{"malformed", "nats://us:hush@a b", bus.ErrAddress, "nats://host:port"},
		{"another scheme", "http://us:hush@127.0.0.1:4222", bus.ErrAddress, "http://"},
		{"no host", "nats://us:hush@:4222", bus.ErrAddress, "no host"},
		{"no such port", "nats://127.0.0.1:4222,nats://us:hush@127.0.0.1:99999", bus.ErrAddress, "99999"},
		{"no address", "::::", bus.ErrAddress, "nats://host:port"},
		{"TLS where there is none", "tls://" + noStream.Addr().String(), bus.ErrAddress, "TLS"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			err := setUp(ctx, t, test.url)
			if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.words) || strings.Contains(err.Error(), "hush") {
				t.Errorf("got %v, want %v with %q and no password", err, test.want, test.words)
			}
		})
	}
}

// TestWhatIsWaitedFor is what time may heal, and what Waiting is told.
func TestWhatIsWaitedFor(t *testing.T) {
	t.Parallel()
	silent, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	for name, address := range map[string]string{"nobody": "127.0.0.1:1", "frozen": silent.Addr().String()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			told := 0
			_, err := bus.Connect(ctx, bus.Options{URL: "nats://" + address, Logger: testLogger(t), Waiting: func(why error) {
				if told++; why == nil || told == 2 {
					cancel()
				}
			}})
			if !errors.Is(err, bus.ErrUnavailable) || told != 2 {
				t.Errorf("Connect = %v after %d attempts, want %v after 2", err, told, bus.ErrUnavailable)
			}
		})
	}
}

// TestAServerThatComesLater is the ordinary start of several processes at once.
func TestAServerThatComesLater(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	url := s.current.URL()
	s.stop(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	waits, done := make(chan struct{}, 1000), make(chan error, 1)
	go func() {
		conn, err := bus.Connect(ctx, bus.Options{URL: url, Logger: testLogger(t), Waiting: func(error) { waits <- struct{}{} }})
		if err == nil {
			err = conn.EnsureStreams(ctx, bus.StreamConfig{})
			conn.Close()
		}
		done <- err
	}()
	receive(t, "an attempt in vain", waits)
	s.start(t)
	if err := receive(t, "the connection", done); err != nil {
		t.Error(err)
	}
}
