package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hindsight-memory/hindsight/internal/bus"
	"github.com/hindsight-memory/hindsight/internal/consolidate"
)

// consolidatorLease is the key of the lease under which one consolidator runs its jobs. It lasts longer than the
// sweeper's, since a job that loses it has to begin anew.
const (
	consolidatorLease = "consolidator"
	consolidatorTTL   = 30 * time.Second
	// orderTimeout is how long somebody may listen for an order whose end nobody waits for.
	orderTimeout = 2 * time.Second
	// leaseWait is how long who runs a job by himself waits for the lease before he asks again whether somebody leads:
	// longer than one who has died may seem to hold it.
	leaseWait = consolidatorTTL + 5*time.Second
	// orderPause is the pause before an order that nobody has answered is given again.
	orderPause = 500 * time.Millisecond
)

// Consolidate runs the jobs on their schedules while this process leads, until ctx ends.
func Consolidate(ctx context.Context, p *Parts) error {
	p.leading.Store(true)
	defer p.leading.Store(false)
	scheduler, err := p.scheduler(ctx, p.Registry, &atomic.Bool{})
	if err != nil {
		if ctx.Err() != nil {
			return nil // It was asked to end.
		}
		return err
	}
	if space := p.used.Load(); space != nil {
		space.index.owe(true) // Whoever knew what the index had missed may have been killed.
	}
	if err := scheduler.Run(ctx); err != nil {
		return fmt.Errorf("consolidate: %w", err)
	}
	return nil
}

// orderSubject is where the process that leads the consolidation takes orders to run a job.
const orderSubject = "hindsight.v1.control.consolidate"

// ordered is the answer to an order.
type ordered struct {
	Report consolidate.Report `json:"report"`
	Error  string             `json:"error,omitempty"`
	// Unknown means that there is no such job.
	Unknown bool `json:"unknown,omitempty"`
}

// Consolidation runs one job now: in the process that leads, if there is one, else in this one. If that process ends over
// it, the job is ordered again: a job that was interrupted has left nothing.
func (p *Parts) Consolidation(ctx context.Context, job string) (consolidate.Report, error) {
	var scheduler *consolidate.Scheduler
	var leads atomic.Bool
	for {
		raw, err := p.Bus.Request(ctx, orderSubject, []byte(job))
		if !errors.Is(err, bus.ErrNotFound) && (!errors.Is(err, bus.ErrUnavailable) || ctx.Err() != nil) {
			return obeyed(raw, err)
		}
		if errors.Is(err, bus.ErrNotFound) && p.leading.Load() { // This process is about to take orders.
			select {
			case <-ctx.Done():
				return consolidate.Report{}, fmt.Errorf("order the job: %w", ctx.Err())
			case <-time.After(orderPause):
			}
			continue
		}
		if errors.Is(err, bus.ErrUnavailable) {
			p.Logger.Warn("whoever was to run the job is not heard any more; ordering it again", "job", job, "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(orderPause):
			}
			continue
		}
		if scheduler == nil {
			p.Logger.Info("nobody leads the consolidation: the job runs here", "job", job)
			// Its metrics are nobody's: those of the process belong to the service.
			if scheduler, err = p.scheduler(ctx, prometheus.NewRegistry(), &leads); err != nil {
				return consolidate.Report{}, err
			}
		}
		report, err := runHere(ctx, scheduler, job, &leads)
		if !errors.Is(err, errAnotherLeads) {
			return report, err
		}
	}
}

// errAnotherLeads means that the lease was not to be had: somebody has it, who may take orders by now.
var errAnotherLeads = errors.New("another process leads the consolidation")

// runHere runs a job in this process. It gives up while it waits for the lease, so that whoever has it can be asked.
func runHere(ctx context.Context, scheduler *consolidate.Scheduler, job string, leads *atomic.Bool) (consolidate.Report, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer cancel(nil)
	watch.Go(func() {
		tick := time.NewTicker(orderPause)
		defer tick.Stop()
		for since := time.Now(); ; {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			switch {
			case leads.Load():
				since = time.Now()
			case time.Since(since) > leaseWait:
				cancel(errAnotherLeads)
			}
		}
	})
	report, err := scheduler.RunJob(ctx, job)
	return report, err //nolint:wrapcheck // It says which job.
}

// obeyed reads the answer to an order.
func obeyed(raw []byte, err error) (consolidate.Report, error) {
	if err != nil {
		return consolidate.Report{}, fmt.Errorf("order the job: %w", err)
	}
	var answer ordered
	if err := json.Unmarshal(raw, &answer); err != nil {
		return consolidate.Report{}, fmt.Errorf("read the report of the job: %w", err)
	}
	switch {
	case answer.Unknown:
		return answer.Report, fmt.Errorf("%w: %s", consolidate.ErrUnknownJob, answer.Error)
	case answer.Error != "":
		return answer.Report, errors.New(answer.Error)
	}
	return answer.Report, nil
}

// scheduler makes what runs the consolidation jobs out of the parts, and says in leads whether it holds the lease. The error
// may be that of an embedding model or an index that cannot be used as they are.
func (p *Parts) scheduler(ctx context.Context, registerer prometheus.Registerer, leads *atomic.Bool) (*consolidate.Scheduler, error) {
	var scheduler *consolidate.Scheduler
	o := consolidate.Options{
		Record: p.Store, Holder: p.Holder, Logger: p.Logger, Registerer: registerer,
		MergeSchedule: p.Config.MergeSchedule, InduceSchedule: p.Config.InduceSchedule, ConsistencySchedule: p.Config.ConsistencySchedule,
		Lead: func(ctx context.Context, run func(context.Context, consolidate.Lease) error) error {
			return p.Bus.RunLeased(ctx, consolidatorLease, p.Holder, consolidatorTTL, func(ctx context.Context, lease *bus.Lease) error {
				leads.Store(true)
				defer leads.Store(false)
				stop, err := p.Bus.Respond(ctx, orderSubject, func(ctx context.Context, data []byte) []byte { return p.obey(ctx, scheduler, string(data)) })
				if err != nil {
					return err
				}
				defer stop()
				return run(ctx, lease)
			})
		},
	}
	space, err := p.Space()
	if err != nil {
		return nil, err
	}
	if space != nil {
		o.Meaning, o.Index, o.Embed, o.Grace = space.meaning, space.index, items{space}.Embed, p.grace
	}
	if err := space.Start(ctx); err != nil {
		return nil, err
	}
	scheduler, err = consolidate.New(o)
	if err != nil {
		return nil, fmt.Errorf("set up consolidation: %w", err)
	}
	return scheduler, nil
}

// orderRepair has the process that leads bring the index up to what the record holds. It does not wait for the end.
func (p *Parts) orderRepair(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, orderTimeout)
	defer cancel()
	_, err := p.Bus.Request(ctx, orderSubject, []byte(consolidate.JobConsistency))
	if err != nil && !errors.Is(err, bus.ErrWorking) {
		return fmt.Errorf("order the consistency job: %w", err)
	}
	return nil
}

// obey runs a job for another process.
func (p *Parts) obey(ctx context.Context, scheduler *consolidate.Scheduler, job string) []byte {
	report, err := scheduler.RunJob(ctx, job)
	answer := ordered{Report: report, Unknown: errors.Is(err, consolidate.ErrUnknownJob)}
	if err != nil {
		answer.Error = err.Error()
	}
	raw, err := json.Marshal(answer)
	if err != nil {
		p.Logger.Error("cannot report a job", "job", job, "error", err)
		return []byte(`{"error":"the report of the job cannot be encoded: see the log"}`)
	}
	return raw
}
