package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// probeTimeout bounds all probes of one readiness request.
const probeTimeout = 5 * time.Second

// Probe is one thing that must work for a process to be ready.
type Probe struct {
	Name  string
	Check func(ctx context.Context) error
	// Optional is what the process serves without: that it is away is told, and the process is ready.
	Optional bool
}

// errUnused means that the process has no use for what a probe asks about.
var errUnused = errors.New("not used")

// Probes of the connections: publishers would be served, an aggregating query works, and a vector is searched. Without
// the last nothing is lost and every question is answered, so that a process stays ready.
func (p *Parts) Probes() []Probe {
	return []Probe{
		{Name: "nats", Check: p.Bus.Ready}, {Name: "clickhouse", Check: p.Store.Ready}, {Name: "index", Check: p.indexReady, Optional: true},
	}
}

// indexReady searches a vector, once a service of this process has a use for the index.
func (p *Parts) indexReady(ctx context.Context) error {
	space := p.used.Load()
	if space == nil {
		return errUnused
	}
	return space.index.Ready(ctx)
}

// errStarting is the answer of a process that still waits for its servers.
var errStarting = errors.New("starting: waiting for the servers")

// Readiness holds a process's probes. Until they are set the process is starting, which is healthy but not ready. It is
// safe for concurrent use.
type Readiness struct{ probes atomic.Pointer[[]Probe] }

// Set gives the probes, once the parts they ask exist.
func (r *Readiness) Set(probes []Probe) { r.probes.Store(&probes) }

// starting says what the process waits for, which is its answer until that changes or probes are set.
func (r *Readiness) starting(why error) {
	r.Set([]Probe{{Name: "start", Check: func(context.Context) error { return why }}})
}

func (r *Readiness) get() []Probe {
	if probes := r.probes.Load(); probes != nil {
		return *probes
	}
	return []Probe{{Name: "start", Check: func(context.Context) error { return errStarting }}}
}

// Health serves /healthz (the process runs), /readyz (its parts answer: 200, else 503 with each part's state) and
// /metrics (Prometheus) on a listener until ctx ends. It shows nothing of what is remembered.
func Health(ctx context.Context, ln net.Listener, registry *prometheus.Registry, readiness *Readiness, logger *slog.Logger) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"status": "ok"}, logger)
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		status, parts := ready(r.Context(), readiness.get())
		writeJSON(w, status, parts, logger)
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	return serveHTTP(ctx, ln, &http.Server{
		Handler: mux, ReadHeaderTimeout: probeTimeout, ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
	})
}

// serveHTTP serves on a listener until ctx ends, and then lets requests that are under way finish, within a bound.
func serveHTTP(ctx context.Context, ln net.Listener, server *http.Server) error {
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(ln) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve on %s: %w", ln.Addr(), err)
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTimeout)
	defer cancel()
	err := server.Shutdown(stop)
	if errors.Is(err, context.DeadlineExceeded) { // a client that holds a stream open does not hold the process
		err = server.Close()
	}
	if served := <-failed; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	if err != nil {
		return fmt.Errorf("stop serving on %s: %w", ln.Addr(), err)
	}
	return nil
}

// ready asks all parts at once, so that one which hangs does not take the time of the others.
func ready(ctx context.Context, probes []Probe) (int, map[string]string) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	failed := make([]error, len(probes))
	var asked sync.WaitGroup
	for i, p := range probes {
		asked.Go(func() { failed[i] = p.Check(ctx) })
	}
	asked.Wait()
	status, parts := http.StatusOK, map[string]string{}
	for i, p := range probes {
		switch {
		case errors.Is(failed[i], errUnused):
		case failed[i] == nil:
			parts[p.Name] = "ok"
		default:
			parts[p.Name] = failed[i].Error()
			if !p.Optional {
				status = http.StatusServiceUnavailable
			}
		}
	}
	return status, parts
}

func writeJSON(w http.ResponseWriter, status int, body any, logger *slog.Logger) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		logger.Debug("health answer not sent", "error", err)
	}
}
