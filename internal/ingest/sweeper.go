package ingest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hindsight-memory/hindsight/internal/memory"
)

const (
	// sweepChunk is how many tasks are read and written at once.
	sweepChunk = 200
	// sweepOverlap is how far back each look reaches over the last one: longer than any insert may take, because a row
	// carries the time at which its insert began and is seen only when it ended.
	sweepOverlap = 60 * time.Second
	// sweepShare bounds the sweeper's part of the store's work: after a look that took d it rests for at least
	// sweepShare × d.
	sweepShare = 4
	// maxLive is how many live tasks have their working memory refreshed in one look, the latest first.
	maxLive = 200
)

// TaskStore is what the sweeper needs of the record.
type TaskStore interface {
	// Touched lists the tasks with events recorded at or after since, and the store's clock.
	Touched(ctx context.Context, since time.Time) (now time.Time, touched []memory.Touch, err error)
	// TaskEvents gives all distinct events of the tasks.
	TaskEvents(ctx context.Context, keys []memory.TaskKey) (map[memory.TaskKey][]memory.StoredEvent, error)
	// TaskStates gives the newest written state of the tasks that have one.
	TaskStates(ctx context.Context, keys []memory.TaskKey) (map[memory.TaskKey]memory.TaskState, error)
	// InsertTasks writes states; the highest revision of a task is the current one.
	InsertTasks(ctx context.Context, tasks []memory.Task) error
}

// ReflectionQueue takes requests for reflection.
type ReflectionQueue interface {
	// Request returns once every request is kept; the same revision twice is kept once.
	Request(ctx context.Context, requests []memory.ReflectionRequest) error
}

// WorkingStore keeps the working memory of live tasks.
type WorkingStore interface {
	PutWorking(ctx context.Context, w memory.Working) error
	DeleteWorking(ctx context.Context, key memory.TaskKey) error
}

// Bookmark remembers how far the sweeper has come, beyond its own life.
type Bookmark interface {
	// Load gives the zero time when nothing was saved.
	Load(ctx context.Context) (time.Time, error)
	Save(ctx context.Context, t time.Time) error
}

// SweeperOptions are the parts and times of a [Sweeper]; all but the times are required.
type SweeperOptions struct {
	Store       TaskStore
	Reflections ReflectionQueue
	Working     WorkingStore
	Bookmark    Bookmark
	Logger      *slog.Logger
	Registerer  prometheus.Registerer
	// Idle is the silence since the last arrival after which a task without an end is closed; 0 means 15 minutes.
	Idle time.Duration
	// Quiet is the silence after which a task with an end is closed; 0 means 2 seconds.
	Quiet time.Duration
	// Interval is the pause between two looks; 0 means 1 second.
	Interval time.Duration
}

// Sweeper closes tasks: those that have finished, after a short quiet time, and those that were silent for long. It is
// the one owner of a task's state, so that no two writers can disagree on it.
type Sweeper struct {
	opts   SweeperOptions
	closed *prometheus.CounterVec
	looks  prometheus.Histogram
	open   prometheus.Gauge
}

// NewSweeper checks the options and registers the metrics.
func NewSweeper(opts SweeperOptions) (*Sweeper, error) {
	if opts.Store == nil || opts.Reflections == nil || opts.Working == nil || opts.Bookmark == nil || opts.Logger == nil || opts.Registerer == nil {
		return nil, errors.New("new sweeper: Store, Reflections, Working, Bookmark, Logger and Registerer are required")
	}
	opts.Idle = cmp.Or(opts.Idle, 15*time.Minute)
	opts.Quiet = cmp.Or(opts.Quiet, 2*time.Second)
	opts.Interval = cmp.Or(opts.Interval, time.Second)
	s := &Sweeper{
		opts: opts,
		closed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hindsight_tasks_closed_total", Help: "Task revisions closed, by cause (finished, idle).",
		}, []string{"cause"}),
		looks: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "hindsight_sweep_seconds", Help: "Duration of one look for tasks to close.", Buckets: prometheus.ExponentialBuckets(0.005, 4, 8),
		}),
		open: prometheus.NewGauge(prometheus.GaugeOpts{Name: "hindsight_tasks_open", Help: "Tasks that the sweeper sees open."}),
	}
	for _, c := range []prometheus.Collector{s.closed, s.looks, s.open} {
		if err := opts.Registerer.Register(c); err != nil {
			return nil, fmt.Errorf("register sweeper metrics: %w", err)
		}
	}
	return s, nil
}

// Run looks for tasks until ctx ends. The caller holds the lease and ends ctx when it is lost. A failing store or queue
// is waited for; Run returns ctx's error only.
func (s *Sweeper) Run(ctx context.Context) error {
	w := &watch{Sweeper: s, tasks: map[memory.TaskKey]*watched{}}
	failures := 0
	for {
		began := time.Now()
		err := w.look(ctx)
		if ctx.Err() != nil {
			return fmt.Errorf("sweeper stopped: %w", context.Cause(ctx))
		}
		pause := max(s.opts.Interval, sweepShare*time.Since(began))
		if err != nil {
			failures++
			pause = min(s.opts.Interval<<min(failures, 5), 30*time.Second)
			s.opts.Logger.Warn("looking for finished tasks failed, trying again", "error", err, "pause", pause)
		} else {
			failures = 0
			s.looks.Observe(time.Since(began).Seconds())
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("sweeper stopped: %w", context.Cause(ctx))
		case <-time.After(pause):
		}
	}
}

// watched is what the sweeper remembers of one task between two looks.
type watched struct {
	key memory.TaskKey
	// last is when the latest known event was recorded.
	last time.Time
	// seen is the value of last when the task was read last; zero when it was not read yet.
	seen time.Time
	// finished says that an end is among the events.
	finished bool
	// closed says that the state up to seen is written as closed.
	closed bool
}

// watch is one run of the sweeper.
type watch struct {
	*Sweeper
	tasks map[memory.TaskKey]*watched
	// since is where the next look begins; zero before the first.
	since time.Time
	saved time.Time
}

// look finds what arrived, and reads and writes the tasks that are due.
func (w *watch) look(ctx context.Context) error {
	if w.since.IsZero() {
		from, err := w.opts.Bookmark.Load(ctx)
		if err != nil {
			return fmt.Errorf("load the sweeper's bookmark: %w", err)
		}
		w.since = from
	}
	now, touched, err := w.opts.Store.Touched(ctx, w.since)
	if err != nil {
		return fmt.Errorf("find touched tasks: %w", err)
	}
	for _, t := range touched {
		task := w.tasks[t.Key]
		if task == nil {
			task = &watched{key: t.Key}
			w.tasks[t.Key] = task
		}
		if t.LastRecordedAt.After(task.last) {
			task.last, task.closed = t.LastRecordedAt, false
		}
		task.finished = task.finished || t.Finished > 0
	}
	for chunk := range slices.Chunk(w.due(now), sweepChunk) {
		if err := w.settle(ctx, now, chunk); err != nil {
			return err
		}
	}
	return w.advance(ctx, now)
}

// due lists the tasks to read now: those that may be closed, and of those with news the latest.
func (w *watch) due(now time.Time) []*watched {
	var over, live []*watched
	for _, t := range w.tasks {
		silence := now.Sub(t.last)
		switch {
		case t.closed:
		case silence >= w.opts.Idle, t.finished && silence >= w.opts.Quiet:
			over = append(over, t)
		case !t.finished && t.last.After(t.seen):
			live = append(live, t)
		}
	}
	byArrival := func(a, b *watched) int {
		return cmp.Or(a.last.Compare(b.last), cmp.Compare(a.key.Namespace, b.key.Namespace), cmp.Compare(a.key.TaskID, b.key.TaskID))
	}
	slices.SortFunc(over, byArrival)
	slices.SortFunc(live, byArrival)
	return append(over, live[max(0, len(live)-maxLive):]...)
}

// settle derives the tasks' states from the record and writes what is new: first the request for reflection, then the
// row, so that a crash between the two repeats the request (which changes nothing) and never loses it.
func (w *watch) settle(ctx context.Context, now time.Time, due []*watched) error {
	keys := make([]memory.TaskKey, len(due))
	for i, t := range due {
		keys[i] = t.key
	}
	evs, err := w.opts.Store.TaskEvents(ctx, keys)
	if err != nil {
		return fmt.Errorf("read tasks' events: %w", err)
	}
	written, err := w.opts.Store.TaskStates(ctx, keys)
	if err != nil {
		return fmt.Errorf("read tasks' states: %w", err)
	}
	var requests []memory.ReflectionRequest
	var rows []memory.Task
	for _, t := range due {
		task, isNew := w.decide(now, t, evs[t.key], written[t.key])
		if !isNew {
			continue
		}
		rows = append(rows, task)
		before := written[t.key]
		if task.Closed || task.Errors > before.Errors || task.Corrections > before.Corrections {
			requests = append(requests, memory.ReflectionRequest{
				Namespace: task.Namespace, TaskID: task.TaskID, Revision: task.Revision, Closed: task.Closed,
			})
		}
	}
	if err := w.opts.Reflections.Request(ctx, requests); err != nil {
		return fmt.Errorf("ask for reflection: %w", err)
	}
	if err := w.opts.Store.InsertTasks(ctx, rows); err != nil {
		return fmt.Errorf("write tasks: %w", err)
	}
	for i := range rows {
		w.keepWorking(ctx, rows[i])
	}
	for _, t := range due {
		t.closed = w.over(now, t)
	}
	return nil
}

// decide builds the task and reports whether this state is not written yet.
func (w *watch) decide(now time.Time, t *watched, evs []memory.StoredEvent, before memory.TaskState) (memory.Task, bool) {
	task := memory.BuildTask(memory.Envelopes(evs), false)
	t.seen = t.last
	for _, e := range evs {
		if e.RecordedAt.After(t.last) { // It arrived after the look; the next one will see it.
			t.last = e.RecordedAt
		}
	}
	if task.Events == 0 {
		return task, false
	}
	t.finished = task.Finished
	task = memory.CloseTask(task, w.over(now, t))
	if task.Revision <= before.Revision {
		return task, false
	}
	if task.Closed {
		cause := "idle"
		if task.Finished {
			cause = "finished"
		}
		w.closed.WithLabelValues(cause).Inc()
	}
	return task, true
}

// over reports whether the task's silence is long enough to close it.
func (w *watch) over(now time.Time, t *watched) bool {
	silence := now.Sub(t.last)
	return silence >= w.opts.Idle || (t.finished && silence >= w.opts.Quiet)
}

// keepWorking keeps the working memory in step with the task. It is a convenience with a time to live of its own, so
// failing to write it is logged and does not hold up the record.
func (w *watch) keepWorking(ctx context.Context, task memory.Task) {
	var err error
	if task.Closed {
		err = w.opts.Working.DeleteWorking(ctx, memory.TaskKey{Namespace: task.Namespace, TaskID: task.TaskID})
	} else {
		err = w.opts.Working.PutWorking(ctx, memory.WorkingOf(task))
	}
	if err != nil && ctx.Err() == nil {
		w.opts.Logger.Warn("working memory not updated", "task_id", task.TaskID, "error", err)
	}
}

// advance moves the window on, forgets closed tasks that no window will show again, and saves a bookmark from which
// another sweeper would find every task that is still open.
func (w *watch) advance(ctx context.Context, now time.Time) error {
	w.since = now.Add(-sweepOverlap)
	mark, open := w.since, 0
	for key, t := range w.tasks {
		switch {
		case t.closed && t.last.Before(w.since):
			delete(w.tasks, key)
		case !t.closed:
			open++
			if t.last.Before(mark) {
				mark = t.last
			}
		}
	}
	w.open.Set(float64(open))
	// The bookmark only saves work after a restart, so writing it every tenth of a window is enough.
	if mark.Sub(w.saved) < sweepOverlap/10 {
		return nil
	}
	if err := w.opts.Bookmark.Save(ctx, mark); err != nil {
		return fmt.Errorf("save the sweeper's bookmark: %w", err)
	}
	w.saved = mark
	return nil
}
