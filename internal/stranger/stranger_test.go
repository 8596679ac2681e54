package stranger_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hindsight-memory/hindsight/internal/engine/enginetest"
	"github.com/hindsight-memory/hindsight/internal/stranger"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if err := enginetest.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stop the shared engine:", err)
		code = 1
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

func address(url string) string {
	_, host, _ := strings.Cut(url, "://")
	return host
}

func TestAt(t *testing.T) {
	t.Parallel()
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	for _, test := range []struct {
		name, address string
		want          stranger.Kind
		words         string
	}{
		{"NATS", address(enginetest.NATS(t)), stranger.NATS, "a NATS server"},
		{"ClickHouse", address(enginetest.ClickHouse(t)), stranger.HTTP, "200 OK"},
		{"HTTP", plain.Listener.Addr().String(), stranger.HTTP, "404 Not Found"},
		{"HTTP/2", speaker(t, "\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x05\x00\x00\x40\x00"), stranger.HTTP2, "Milvus"},
		{"greeting", speaker(t, "SSH-2.0-OpenSSH_9.6\r\n"), stranger.Other, "SSH-2.0-OpenSSH_9.6"},
		{"TLS alert", speaker(t, "\x15\x03\x01\x00\x02\x02\x16"), stranger.TLS, "TLS"},
		{"closes", speaker(t, ""), stranger.Unknown, ""},
		{"nobody", "127.0.0.1:1", stranger.Unknown, ""},
		{"no address", "nowhere", stranger.Unknown, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got := stranger.At(t.Context(), test.address)
			if got.Kind != test.want || !strings.Contains(got.Words, test.words) || (got.Words == "") != (test.words == "") {
				t.Errorf("At = %d %q, want kind %d and %q", got.Kind, got.Words, test.want, test.words)
			}
		})
	}
}

// TestAFrozenServerIsNoStranger: it may be the right one, that starts or swaps.
func TestAFrozenServerIsNoStranger(t *testing.T) {
	t.Parallel()
	ln := listen(t)
	if got := stranger.At(t.Context(), ln.Addr().String()); got.Kind != stranger.Unknown {
		t.Errorf("At = %+v, want nothing", got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if got := stranger.At(ctx, ln.Addr().String()); got.Kind != stranger.Unknown {
		t.Errorf("At = %+v after its end, want nothing", got)
	}
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	return ln
}

// speaker is a server that says one thing to everybody and closes.
func speaker(t *testing.T, words string) string {
	t.Helper()
	ln := listen(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte(words))
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = ln.Close()
		<-done
	})
	return ln.Addr().String()
}
