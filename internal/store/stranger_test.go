package store_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/hindsight-memory/hindsight/internal/engine/enginetest"
	"github.com/hindsight-memory/hindsight/internal/store"
)

// TestWaitingIsNoUse is about what no time heals: a process that starts must say so instead of waiting.
func TestWaitingIsNoUse(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(web.Close)
	polite := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "welcome") }))
	t.Cleanup(polite.Close)
	secured := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(secured.Close)
	broker, embedded := hostOf(enginetest.NATS(t)), hostOf(enginetest.ClickHouse(t))
	for _, test := range []struct {
		name, url string
		want      error
		words     string
	}{
		{"NATS", "http://us:hush@" + broker, store.ErrStranger, "a NATS server"},
		{"NATS, natively", "clickhouse://us:hush@" + broker, store.ErrStranger, "a NATS server"},
		{"another HTTP server", "http://us:hush@" + hostOf(web.URL), store.ErrStranger, "404 Not Found"},
		{"a polite HTTP server", "http://us:hush@" + hostOf(polite.URL), store.ErrStranger, "welcome"},
		{"HTTP, natively", "clickhouse://us:hush@" + hostOf(web.URL), store.ErrStranger, "an HTTP server"},
		{"ClickHouse's HTTP, natively", "clickhouse://us:hush@" + embedded, store.ErrStranger, "an HTTP server"},
		{"TLS, without", "http://us:hush@" + hostOf(secured.URL), store.ErrStranger, "HTTPS"},
		{"no TLS, with", "https://us:hush@" + embedded, store.ErrStranger, "without TLS"},
		{"an unknown certificate", "https://us:hush@" + hostOf(secured.URL), store.ErrStranger, "certificate"},
		{"too old", old(t, "http://"+embedded), store.ErrVersion, "24.8.1.1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			err := open(t, test.url, "").WaitReady(t.Context(), nil)
			if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.words) || strings.Contains(err.Error(), "hush") {
				t.Errorf("WaitReady = %v, want %v with %q and no password", err, test.want, test.words)
			}
		})
	}
}

// TestWhatMayStillCome is waited for: a gateway in front of a server that starts, and one that says nothing.
func TestWhatMayStillCome(t *testing.T) {
	t.Parallel()
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }))
	t.Cleanup(gateway.Close)
	frozen, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = frozen.Close() })
	for _, url := range []string{gateway.URL, "clickhouse://127.0.0.1:1", "http://" + frozen.Addr().String()} {
		t.Run(url, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			told := 0
			err := open(t, url, "").WaitReady(ctx, func(int, error) { told++; cancel() })
			if !errors.Is(err, store.ErrUnavailable) || told != 1 {
				t.Errorf("WaitReady = %v after %d attempts, want that it waits", err, told)
			}
		})
	}
}

func hostOf(raw string) string {
	_, host, _ := strings.Cut(raw, "://")
	return host
}

// old stands in front of a server and makes it say that it is of 2024.
func old(t *testing.T, serverURL string) string {
	t.Helper()
	target, err := url.Parse(serverURL)
	if err != nil {
		t.Fatal(err)
	}
	forward := httputil.NewSingleHostReverseProxy(target)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		body = bytes.ReplaceAll(body, []byte("SELECT version(), sum"), []byte("SELECT '24.8.1.1', sum"))
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL
}
