package process_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/hindsight-memory/hindsight/cmd/internal/process"
	"github.com/hindsight-memory/hindsight/internal/config"
)

// TestHealthcheck asks what answers on a port, also when the process listens on all addresses and a proxy is set.
func TestHealthcheck(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	for _, bind := range []string{"127.0.0.1", "0.0.0.0"} {
		cfg := &config.Config{Bind: bind}
		status := http.StatusOK
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/readyz" {
				t.Errorf("asked for %s", r.URL.Path)
			}
			w.WriteHeader(status)
			_, _ = w.Write([]byte(`{"clickhouse":"it is away"}`))
		}))
		ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", bind+":0")
		if err != nil {
			t.Fatal(err)
		}
		server.Listener = ln
		server.Start()
		_, port, err := net.SplitHostPort(ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		number, err := strconv.Atoi(port)
		if err != nil {
			t.Fatal(err)
		}
		if err := process.Healthcheck(t.Context(), cfg, number); err != nil {
			t.Errorf("%s, ready: %v", bind, err)
		}
		status = http.StatusServiceUnavailable
		if err := process.Healthcheck(t.Context(), cfg, number); err == nil || !strings.Contains(err.Error(), "it is away") {
			t.Errorf("%s, not ready: %v", bind, err)
		}
		server.Close()
		if err := process.Healthcheck(t.Context(), cfg, number); err == nil || !strings.Contains(err.Error(), "no answer") {
			t.Errorf("%s, gone: %v", bind, err)
		}
	}
}
