package service

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strconv"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"
	"golang.org/x/term"

	"github.com/hindsight-memory/hindsight/internal/config"
)

// Options say how a process runs its services.
type Options struct {
	Config *config.Config
	// Name is how the process shows up at the servers.
	Name string
	// Holder names the process as a holder of leases; see [UniqueHolder].
	Holder string
	// Port is that of health and metrics; PortSetting is the name of its setting, for the error when it is taken.
	Port        int
	PortSetting string
	Logger      *slog.Logger
	// Ready, when set, is called once the servers answer and the services begin.
	Ready func()
	// Door, when set, serves MCP from the beginning, and leads to the record once the servers answer.
	Door *Door
}

// Service runs until ctx ends and has drained when it returns.
type Service func(ctx context.Context, p *Parts) error

// Run opens the servers, waiting for those that are not there yet, and runs the services with health and metrics beside
// them, until ctx ends or one fails. Health answers from the beginning.
func Run(ctx context.Context, o Options, services ...Service) error {
	address := net.JoinHostPort(o.Config.Bind, strconv.Itoa(o.Port))
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return explainListen(err, address, "health and metrics", o.PortSetting)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	readiness := &Readiness{}
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return Health(gctx, ln, registry, readiness, o.Logger) })
	if o.Door != nil {
		g.Go(func() error { return o.Door.Serve(gctx) })
		services = append(services, o.Door.Service)
	}
	g.Go(func() error { return serve(gctx, o, registry, readiness, services) })
	err = g.Wait()
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil // Asked to end while still waiting for a server.
	}
	if err != nil {
		return fmt.Errorf("run services: %w", err)
	}
	return nil
}

// explainListen says which setting to change when the address of something can't be had.
func explainListen(err error, address, what, portSetting string) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%s for %s is taken: end the program that has it, or set %s to a free port: %w", address, what, portSetting, err)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%s for %s is not allowed: set %s to a port above 1023: %w", address, what, portSetting, err)
	default:
		return fmt.Errorf("%s can't be had for %s: HINDSIGHT_BIND must be an address of this machine, such as 127.0.0.1, or 0.0.0.0 for all: %w", address, what, err)
	}
}

func serve(ctx context.Context, o Options, registry *prometheus.Registry, readiness *Readiness, services []Service) (err error) {
	parts, err := Open(ctx, &Parts{Config: o.Config, Registry: registry, Logger: o.Logger, Holder: o.Holder}, o.Name, readiness.starting)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, parts.Close()) }()
	readiness.Set(parts.Probes())
	if o.Ready != nil {
		o.Ready()
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, s := range services {
		g.Go(func() error { return s(ctx, parts) })
	}
	return g.Wait() //nolint:wrapcheck // Each service wraps its own.
}

// UniqueHolder names this process among all that may hold a lease.
func UniqueHolder() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s:%d:%s", host, os.Getpid(), rand.Text()[:8])
}

// NewLogger logs to w at the configured level: text for a person at a terminal, JSON lines for a program.
func NewLogger(cfg *config.Config, w io.Writer) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(cfg.LogLevel)); err != nil {
		level = slog.LevelInfo // Settings are checked when they are read.
	}
	opts := &slog.HandlerOptions{Level: level}
	if IsTerminal(w) {
		return slog.New(slog.NewTextHandler(w, opts))
	}
	return slog.New(slog.NewJSONHandler(w, opts))
}

// IsTerminal reports whether a person is looking at w.
func IsTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
