package service_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/hindsight-memory/hindsight/internal/bus"
	"github.com/hindsight-memory/hindsight/internal/consolidate"
)

// TestAnOrderFindsTheLeaderThatComes: while nobody listens yet, as after the one who led was killed, whoever orders a job
// waits for the lease himself, and must not go on waiting once somebody else has it and listens.
func TestAnOrderFindsTheLeaderThatComes(t *testing.T) {
	t.Parallel()
	env := environment(t)
	p, other := open(t, env, "asks"), open(t, env, "leads")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	held := make(chan struct{})
	leading, end := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		ended <- other.Bus.RunLeased(leading, "consolidator", "leads", 30*time.Second, func(ctx context.Context, _ *bus.Lease) error {
			close(held)
			<-ctx.Done()
			return context.Cause(ctx)
		})
	}()
	<-held
	told := make(heard, 1)
	p.Logger = slog.New(told)
	type result struct {
		report consolidate.Report
		err    error
	}
	answers := make(chan result, 1)
	go func() {
		report, err := p.Consolidation(ctx, consolidate.JobMerge)
		answers <- result{report, err}
	}()
	select {
	case <-told: // Nobody listened.
	case got := <-answers:
		t.Fatalf("the order was answered by nobody: %+v", got)
	}
	stop, err := other.Bus.Respond(ctx, "hindsight.v1.control.consolidate", func(context.Context, []byte) []byte {
		return []byte(`{"report":{"job":"merge","counts":{"linked":7}}}`)
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if got := <-answers; got.err != nil || got.report.Counts["linked"] != 7 {
		t.Errorf("the order = %+v, %v", got.report, got.err)
	}
	end()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// heard is a log that tells of a line which says that nobody leads.
type heard chan struct{}

func (heard) Enabled(context.Context, slog.Level) bool { return true }
func (h heard) WithAttrs([]slog.Attr) slog.Handler     { return h }
func (h heard) WithGroup(string) slog.Handler          { return h }
func (h heard) Handle(_ context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "nobody leads") {
		select {
		case h <- struct{}{}:
		default:
		}
	}
	return nil
}
