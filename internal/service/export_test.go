package service

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hindsight-memory/hindsight/internal/bus"
	"github.com/hindsight-memory/hindsight/internal/consolidate"
	"github.com/hindsight-memory/hindsight/internal/mcpserver"
	"github.com/hindsight-memory/hindsight/internal/memory"
)

// IngestTraces is the ingestor alone, with its own patience (timeout is that of an insert): that of [Ingest] would take a test minutes.
func IngestTraces(o bus.WorkerOptions, timeout time.Duration) Service {
	return func(ctx context.Context, p *Parts) error {
		all := p.traceOptions()
		all.MaxAttempts, all.MinBackoff, all.MaxBackoff = o.MaxAttempts, o.MinBackoff, o.MaxBackoff
		worker, err := p.traceWorker(all, timeout)
		if err != nil {
			return err
		}
		return worker.Run(ctx)
	}
}

// RequestReflection puts one request on the queue, as the sweeper does.
func RequestReflection(ctx context.Context, p *Parts, r memory.ReflectionRequest) error {
	return reflections{p.Bus}.Request(ctx, []memory.ReflectionRequest{r})
}

// NewIndex is an index over another as services have it. end closes it.
func NewIndex(inner memory.VectorIndex, logger *slog.Logger) (over memory.VectorIndex, end func() error, err error) {
	x, err := newIndex(inner, func() error { return nil }, time.Second, prometheus.NewRegistry(), logger)
	if err != nil {
		return nil, nil, err
	}
	return x, x.close, nil
}

// NewRebuilt is an index over another as a rebuild has it. end closes it.
func NewRebuilt(inner memory.VectorIndex, logger *slog.Logger) (over memory.VectorIndex, end func() error, err error) {
	x, err := newIndex(inner, func() error { return nil }, time.Second, prometheus.NewRegistry(), logger)
	if err != nil {
		return nil, nil, err
	}
	return rebuilt{x}, x.close, nil
}

// NamespaceOf is tested by itself: no stream accepts most of what a subject can be.
func NamespaceOf(subject string) string { return namespaceOf(subject) }

// NewAuthenticator is that of a door, with a clock that a test can turn.
func NewAuthenticator(record tokenReader, now func() time.Time) mcpserver.Authenticator {
	return newTokens(record, now)
}

// UseIndex puts another index in the place of the one that the settings name, before anybody uses it, and has what it
// missed repaired soon after it is back. A nil one leaves the index that there is.
func UseIndex(p *Parts, inner memory.VectorIndex) error {
	space, err := p.Space()
	if err != nil {
		return err
	}
	if inner != nil {
		space.index.inner = inner
	}
	const grace = 100 * time.Millisecond
	p.grace, space.index.settle = grace, 2*grace
	return nil
}

// Scheduler makes what runs the consolidation jobs out of the parts.
func (p *Parts) Scheduler(ctx context.Context) (*consolidate.Scheduler, error) {
	return p.scheduler(ctx, p.Registry, &atomic.Bool{})
}
