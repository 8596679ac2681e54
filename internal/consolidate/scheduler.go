package consolidate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/robfig/cron/v3"

	"github.com/hindsight-memory/hindsight/internal/memory"
)

// Names of jobs.
const (
	// JobMerge links what says the same and settles contradictions.
	JobMerge = "merge"
	// JobInduce draws rules from what recurs.
	JobInduce = "induce"
	// JobSweep puts away what nobody needs.
	JobSweep = "sweep"
	// JobConsistency brings the vector index up to what the record holds.
	JobConsistency = "consistency"
)

// Jobs lists the names of all jobs.
func Jobs() []string { return []string{JobMerge, JobInduce, JobSweep, JobConsistency} }

// ErrUnknownJob means that there is no job of that name.
var ErrUnknownJob = errors.New("unknown job")

// ErrStopped means that the scheduler ended before it could run a job.
var ErrStopped = errors.New("the scheduler has stopped")

// Options are the parts of a [Scheduler]. Record, Lead, Holder, Logger and Registerer are required.
type Options struct {
	Record Record
	// Lead waits for the lease of the jobs and runs the function while it is held, again whenever it was lost, until the
	// function returns nil or ctx ends.
	Lead func(ctx context.Context, run func(ctx context.Context, lease Lease) error) error
	// Holder names this process in the runs that it makes.
	Holder     string
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	// Clock is [time.Now] by default.
	Clock func() time.Time
	// Meaning names the embedding model whose vectors are compared, and its cosines. Without a model, which is no error,
	// or when it is nil, only the same words say the same. While the model is away there is no merge.
	Meaning func(ctx context.Context) (model string, thresholds memory.Thresholds, err error)
	// Index is the vector index that is kept as the record says, and Embed makes vectors of what has none. They are
	// given together or not at all.
	Index VectorIndex
	Embed func(ctx context.Context, texts []string) ([][]float32, error)
	// Grace is how long after a write the index may lack it; 0 means [DefaultGrace]. Making vectors may take 30 times as long.
	Grace time.Duration
	// Schedules are cron expressions (UTC) or "@every 1m"; empty ones mean every minute for merge, 03:00 for induce,
	// 04:00 for sweep and every 10 minutes for consistency.
	MergeSchedule       string
	InduceSchedule      string
	SweepSchedule       string
	ConsistencySchedule string
	// MaxTasks is how many tasks of a namespace rules are drawn from, the newest; 0 means 50,000.
	MaxTasks int
}

// Report says what a run of a job did, over all namespaces.
type Report struct {
	Job string `json:"job"`
	// Runs are those that wrote something.
	Runs []memory.Run `json:"runs"`
	// Counts adds up what the runs counted.
	Counts map[string]uint64 `json:"counts"`
}

// Scheduler runs the jobs when their time has come, one at a time, in the one process that leads.
type Scheduler struct {
	o         Options
	jobs      map[string]func(ctx context.Context, w *work) error
	schedules map[string]cron.Schedule

	mu sync.Mutex // guards orders
	// orders take jobs to be run by hand while Run runs; nil otherwise. ended is closed when it ends.
	orders chan order
	ended  chan struct{}

	runs     *prometheus.CounterVec
	skipped  *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	lastDone *prometheus.GaugeVec
}

// order is a job to run by hand.
type order struct {
	ctx   context.Context //nolint:containedctx // it travels with the request over a channel, to the one goroutine that runs jobs
	job   string
	reply chan result
}

type result struct {
	report Report
	err    error
}

// New checks the options and registers the metrics.
func New(o Options) (*Scheduler, error) {
	if o.Record == nil || o.Lead == nil || o.Holder == "" || o.Logger == nil || o.Registerer == nil {
		return nil, errors.New("new scheduler: Record, Lead, Holder, Logger and Registerer are required")
	}
	if (o.Index == nil) != (o.Embed == nil) || o.Index != nil && o.Meaning == nil {
		return nil, errors.New("new scheduler: Index, Embed and Meaning belong together")
	}
	if o.Meaning == nil {
		o.Meaning = func(context.Context) (string, memory.Thresholds, error) { return "", memory.Thresholds{}, nil }
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	o.MaxTasks = cmp.Or(o.MaxTasks, 50_000)
	m := &merger{meaning: o.Meaning, since: map[string]time.Time{}}
	c := newConsistency(o)
	s := &Scheduler{
		o: o,
		jobs: map[string]func(context.Context, *work) error{
			JobMerge: m.run, JobInduce: inducer{maxTasks: o.MaxTasks}.run, JobSweep: sweep, JobConsistency: c.run,
		},
		schedules: map[string]cron.Schedule{},
		runs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hindsight_consolidation_runs_total", Help: "Runs of consolidation jobs, by job and outcome (done, failed).",
		}, []string{"job", "outcome"}),
		skipped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hindsight_consolidation_skipped_total", Help: "Times that a job was due while it still ran or waited to run.",
		}, []string{"job"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "hindsight_consolidation_seconds", Help: "Duration of a job over all namespaces.", Buckets: prometheus.ExponentialBuckets(0.01, 4, 9),
		}, []string{"job"}),
		lastDone: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "hindsight_consolidation_last_success_seconds", Help: "Unix time at which a job last ended well in this process.",
		}, []string{"job"}),
	}
	for job, spec := range map[string]string{
		JobMerge: cmp.Or(o.MergeSchedule, "@every 1m"), JobInduce: cmp.Or(o.InduceSchedule, "0 3 * * *"), JobSweep: cmp.Or(o.SweepSchedule, "0 4 * * *"),
		JobConsistency: cmp.Or(o.ConsistencySchedule, "@every 10m"),
	} {
		schedule, err := cron.ParseStandard(spec)
		if err != nil {
			return nil, fmt.Errorf("schedule of %s: %q is neither a cron expression nor like @every 1m: %w", job, spec, err)
		}
		s.schedules[job] = schedule
	}
	for _, c := range []prometheus.Collector{s.runs, s.skipped, s.seconds, s.lastDone, c.repairs} {
		if err := o.Registerer.Register(c); err != nil {
			return nil, fmt.Errorf("register consolidation metrics: %w", err)
		}
	}
	return s, nil
}

// Run runs the jobs on their schedules until ctx ends, in whichever process leads. A job that runs when ctx ends is
// stopped and leaves nothing visible. It returns nil when ctx ends, or why it cannot lead at all.
func (s *Scheduler) Run(ctx context.Context) error {
	orders, ended := make(chan order), make(chan struct{})
	s.mu.Lock()
	if s.orders != nil {
		s.mu.Unlock()
		return errors.New("run scheduler: it runs already")
	}
	s.orders, s.ended = orders, ended
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.orders = nil
		s.mu.Unlock()
		close(ended)
	}()
	err := s.o.Lead(ctx, func(ctx context.Context, lease Lease) error { return s.lead(ctx, lease, orders) })
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("lead the consolidation: %w", err)
	}
	return nil
}

// lead runs jobs while the lease is held.
func (s *Scheduler) lead(ctx context.Context, lease Lease, orders <-chan order) error {
	due := make(map[string]chan struct{}, len(s.jobs))
	wake := make(chan struct{}, 1)
	clock := cron.New(cron.WithLocation(time.UTC), cron.WithLogger(cron.DiscardLogger))
	for _, job := range Jobs() {
		waiting := make(chan struct{}, 1)
		due[job] = waiting
		clock.Schedule(s.schedules[job], cron.FuncJob(func() {
			select {
			case waiting <- struct{}{}:
			default:
				s.skipped.WithLabelValues(job).Inc()
			}
			select {
			case wake <- struct{}{}:
			default:
			}
		}))
	}
	clock.Start()
	defer func() { <-clock.Stop().Done() }()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case o := <-orders:
			report, err := s.runOrder(ctx, lease, o)
			o.reply <- result{report, err}
		case <-wake:
			for _, job := range Jobs() {
				select {
				case <-due[job]:
				default:
					continue
				}
				if _, err := s.runJob(ctx, lease, job); err != nil && ctx.Err() == nil {
					s.o.Logger.Error("a consolidation job failed; it is tried again when it is due", "job", job, "error", err)
				}
			}
		}
	}
}

// runOrder runs a job for somebody who may stop waiting.
func (s *Scheduler) runOrder(ctx context.Context, lease Lease, o order) (Report, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(o.ctx, func() { cancel(context.Cause(o.ctx)) })() //nolint:contextcheck // it ends with whichever of the two ends first
	return s.runJob(ctx, lease, o.job)
}

// RunJob runs one job now, and returns when it has ended. While [Scheduler.Run] runs in this process the job waits for
// its turn there; otherwise RunJob takes the lease for itself, so that Holder must be a name that no other process has,
// and Run must not be started meanwhile: a lease is taken at once from a holder of the same name.
// The error is [ErrUnknownJob] for a name that is not one of [Jobs].
func (s *Scheduler) RunJob(ctx context.Context, job string) (Report, error) {
	if !slices.Contains(Jobs(), job) {
		return Report{}, fmt.Errorf("%w %q: want one of %v", ErrUnknownJob, job, Jobs())
	}
	s.mu.Lock()
	orders, ended := s.orders, s.ended
	s.mu.Unlock()
	if orders == nil {
		var out result
		err := s.o.Lead(ctx, func(ctx context.Context, lease Lease) error {
			out.report, out.err = s.runJob(ctx, lease, job)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return nil // The job's own failure is not the lease's: it is not tried again.
		})
		if err != nil {
			return Report{}, fmt.Errorf("run %s: %w", job, err)
		}
		if ctx.Err() != nil && out.err == nil && out.report.Job == "" {
			return Report{}, fmt.Errorf("run %s: %w", job, context.Cause(ctx))
		}
		return out.report, out.err
	}
	reply := make(chan result, 1)
	select {
	case orders <- order{ctx: ctx, job: job, reply: reply}:
	case <-ctx.Done():
		return Report{}, fmt.Errorf("wait for the lead to run %s: %w", job, context.Cause(ctx))
	case <-ended:
		return Report{}, fmt.Errorf("run %s: %w", job, ErrStopped)
	}
	out := <-reply // runOrder ends with ctx
	return out.report, out.err
}

// runJob runs a job for every namespace. One that fails does not keep the others from theirs.
func (s *Scheduler) runJob(ctx context.Context, lease Lease, job string) (report Report, err error) {
	began := time.Now()
	defer func() {
		outcome := "done"
		if err != nil {
			outcome = "failed"
		} else {
			s.lastDone.WithLabelValues(job).Set(float64(s.o.Clock().Unix()))
		}
		s.runs.WithLabelValues(job, outcome).Inc()
		s.seconds.WithLabelValues(job).Observe(time.Since(began).Seconds())
	}()
	report = Report{Job: job, Runs: []memory.Run{}, Counts: map[string]uint64{}}
	namespaces, err := s.o.Record.Namespaces(ctx)
	if err != nil {
		return report, fmt.Errorf("list namespaces: %w", err)
	}
	slices.Sort(namespaces)
	var failures []error
	for _, namespace := range namespaces {
		if ctx.Err() != nil {
			return report, errors.Join(append(failures, context.Cause(ctx))...)
		}
		run, err := s.runNamespace(ctx, lease, job, namespace)
		if err != nil {
			failures = append(failures, fmt.Errorf("%s in namespace %s: %w", job, namespace, err))
			continue
		}
		for name, n := range run.Counts {
			report.Counts[name] += n
		}
		if run.Status == memory.RunCommitted {
			report.Runs = append(report.Runs, run)
			s.o.Logger.Info("consolidated", "job", job, "namespace", namespace, "run_id", run.RunID, "counts", run.Counts)
		}
	}
	return report, errors.Join(failures...)
}

// runNamespace runs a job for one namespace, from settling what was left to the commit.
func (s *Scheduler) runNamespace(ctx context.Context, lease Lease, job, namespace string) (run memory.Run, err error) {
	if err := recoverRuns(ctx, s.o.Record, lease); err != nil {
		return memory.Run{}, err
	}
	w := newWork(s.o.Record, lease, s.o.Clock, s.o.Holder, job, namespace)
	defer func() {
		if p := recover(); p != nil {
			s.o.Logger.Error("a consolidation job panicked", "job", job, "namespace", namespace, "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("the job panicked: %v", p)
		}
		if err != nil {
			w.fail(ctx, err)
		}
		run = w.run
	}()
	if err := s.jobs[job](ctx, w); err != nil {
		return w.run, err
	}
	return w.run, w.commit(ctx)
}
