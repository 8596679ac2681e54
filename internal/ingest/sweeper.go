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
	// sweepShare bounds the sweeper's part of the store's work: after a look that took d it rests for sweepShare × d, but
	// not longer than maxRest, so that a backlog is worked off.
	sweepShare = 9
	maxRest    = 10 * time.Second
	// maxLive is how many live tasks have their working memory refreshed in one look, the latest first. Those with a
	// failure or a correction come on top.
	maxLive = 200
	// failuresInARow is after how many tasks that failed one after the other, each alone, no further ones are tried: the
	// store or the queue is to blame.
	failuresInARow = 10
	// minSetAside and maxSetAside bound how long a task that fails alone is left alone; it doubles each time.
	minSetAside = 30 * time.Second
	maxSetAside = 30 * time.Minute
)

// TaskStore is what the sweeper needs of the record.
type TaskStore interface {
	// Touched lists the tasks with events recorded at or after since, and the store's clock.
	Touched(ctx context.Context, since time.Time) (now time.Time, touched []memory.Touch, err error)
	// TaskEvents gives all distinct events of the tasks.
	TaskEvents(ctx context.Context, keys []memory.TaskKey) (map[memory.TaskKey][]memory.StoredEvent, error)
	// StoredEventIDs tells which events of the tasks are stored; it costs much less than TaskEvents.
	StoredEventIDs(ctx context.Context, keys []memory.TaskKey) (map[memory.TaskKey]map[string]struct{}, error)
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
	// overlap is [sweepOverlap] but in tests.
	overlap time.Duration
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
		opts: opts, overlap: sweepOverlap,
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
	defer s.open.Set(0) // It is another's count from here on.
	failures := 0
	for {
		began := time.Now()
		err := w.look(ctx)
		if ctx.Err() != nil {
			return fmt.Errorf("sweeper stopped: %w", context.Cause(ctx))
		}
		pause := max(s.opts.Interval, min(sweepShare*time.Since(began), maxRest))
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

// watched is what the sweeper remembers of one task between two looks. Its times are the store's.
type watched struct {
	key memory.TaskKey
	// last is when the latest known event was recorded.
	last time.Time
	// seen is the value of last up to which the state is written; zero when none was written yet.
	seen time.Time
	// events is the number of events in that state.
	events int
	// finished says that an end is among the events.
	finished bool
	// urgent says that a failure or a correction is among what arrived after seen.
	urgent bool
	// closed says that the state up to seen is written as closed.
	closed bool
	// settled says that a closed state has every event that was recorded up to last, however long its insert took.
	settled bool
	// failures counts how often the task failed alone, and until is how long it is left alone for that.
	failures int
	until    time.Time
}

// watch is one run of the sweeper.
type watch struct {
	*Sweeper
	tasks map[memory.TaskKey]*watched
	// since is where the next look begins; zero before the first.
	since time.Time
	saved time.Time
	// failed says that writing tasks failed in the look before.
	failed bool
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
			task.last, task.closed, task.settled = t.LastRecordedAt, false, false
			task.urgent = task.urgent || t.Failures > 0 || t.Corrections > 0
		}
		task.finished = task.finished || t.Finished > 0
	}
	if err := w.review(ctx, now); err != nil {
		return err
	}
	for chunk := range slices.Chunk(w.due(now), sweepChunk) {
		err := w.write(ctx, now, chunk)
		if err != nil && w.failed && ctx.Err() == nil {
			err = w.writeAlone(ctx, now, chunk)
		}
		w.failed = err != nil
		if err != nil {
			return err
		}
	}
	return w.advance(ctx, now)
}

// review looks again at closed tasks once no insert from before their closing can be running any more. A row that was
// seen late does not show otherwise: by its time of arrival it is older than what was seen before.
func (w *watch) review(ctx context.Context, now time.Time) error {
	var closed []*watched
	for _, t := range w.tasks {
		if t.closed && !t.settled && now.Sub(t.last) >= w.overlap {
			closed = append(closed, t)
		}
	}
	slices.SortFunc(closed, byArrival)
	for chunk := range slices.Chunk(closed, sweepChunk) {
		stored, err := w.opts.Store.StoredEventIDs(ctx, keysOf(chunk))
		if err != nil {
			return fmt.Errorf("review closed tasks: %w", err)
		}
		for _, t := range chunk {
			t.closed = len(stored[t.key]) <= t.events
			t.settled = t.closed
		}
	}
	return nil
}

// due lists the tasks to read now: those with a failure or correction, those that may be closed, and of the others with
// news the latest.
func (w *watch) due(now time.Time) []*watched {
	var urgent, over, live []*watched
	for _, t := range w.tasks {
		switch {
		case t.closed, t.until.After(now):
		case w.over(now, t):
			over = append(over, t)
		case t.finished || !t.last.After(t.seen):
		case t.urgent:
			urgent = append(urgent, t)
		default:
			live = append(live, t)
		}
	}
	for _, tasks := range [][]*watched{urgent, over, live} {
		slices.SortFunc(tasks, byArrival)
	}
	return slices.Concat(urgent, over, live[max(0, len(live)-maxLive):])
}

func byArrival(a, b *watched) int {
	return cmp.Or(a.last.Compare(b.last), cmp.Compare(a.key.Namespace, b.key.Namespace), cmp.Compare(a.key.TaskID, b.key.TaskID))
}

func keysOf(tasks []*watched) []memory.TaskKey {
	keys := make([]memory.TaskKey, len(tasks))
	for i, t := range tasks {
		keys[i] = t.key
	}
	return keys
}

// writeAlone writes the tasks of a chunk that failed twice one by one, so that one which can't be read or written holds
// up no other: it is set aside and tried again later, for ever. Where no task succeeds, none of them is to blame.
func (w *watch) writeAlone(ctx context.Context, now time.Time, chunk []*watched) error {
	failed := map[*watched]error{}
	var last error // of those that failed in a row until the end
	succeeded, inARow := 0, 0
	for _, t := range chunk {
		if last = w.write(ctx, now, []*watched{t}); last == nil {
			succeeded, inARow = succeeded+1, 0
			continue
		}
		failed[t] = last
		if inARow++; inARow == failuresInARow {
			break
		}
	}
	if succeeded == 0 || ctx.Err() != nil {
		return last
	}
	for t, err := range failed {
		w.opts.Logger.Warn("task can't be brought up to date, trying again later",
			"namespace", t.key.Namespace, "task_id", t.key.TaskID, "error", err)
		t.until = now.Add(min(minSetAside<<min(t.failures, 10), maxSetAside))
		t.failures++
	}
	if inARow == failuresInARow {
		return last
	}
	return nil
}

// change is a state that is not written yet, with what it replaces.
type change struct {
	task   memory.Task
	before memory.TaskState
}

// write derives the tasks' states from the record and writes what is new: first the request for reflection, then the
// row, so that a crash between the two repeats the request (which changes nothing) and never loses it. What is
// remembered of the tasks changes at the end only, so that after an error everything is done again.
func (w *watch) write(ctx context.Context, now time.Time, due []*watched) error {
	keys := keysOf(due)
	evs, err := w.opts.Store.TaskEvents(ctx, keys)
	if err != nil {
		return fmt.Errorf("read tasks' events: %w", err)
	}
	written, err := w.opts.Store.TaskStates(ctx, keys)
	if err != nil {
		return fmt.Errorf("read tasks' states: %w", err)
	}
	after := make([]watched, len(due))
	var changes []change
	for i, t := range due {
		var task memory.Task
		after[i], task = w.derive(now, *t, evs[t.key])
		if before := written[t.key]; task.Revision > before.Revision {
			changes = append(changes, change{task, before})
		}
	}
	if err := w.publish(ctx, changes); err != nil {
		return err
	}
	for i, t := range due {
		*t = after[i]
	}
	return nil
}

// derive builds a task from its events, and gives what is to be remembered of it once that is written.
func (w *watch) derive(now time.Time, t watched, evs []memory.StoredEvent) (watched, memory.Task) {
	for _, e := range evs {
		if e.RecordedAt.After(t.last) { // It arrived after the look.
			t.last = e.RecordedAt
		}
	}
	task := memory.BuildTask(memory.Envelopes(evs), false)
	t.finished = task.Finished
	t.closed = w.over(now, &t)
	t.settled = t.closed && now.Sub(t.last) >= w.overlap
	t.seen, t.events, t.urgent, t.failures = t.last, task.Events, false, 0
	if task.Events > 0 {
		task = memory.CloseTask(task, t.closed)
	}
	return t, task
}

// publish makes new states known: request, working memory of what is over, row, working memory of what lives.
func (w *watch) publish(ctx context.Context, changes []change) error {
	if len(changes) == 0 {
		return nil
	}
	var requests []memory.ReflectionRequest
	rows := make([]memory.Task, len(changes))
	for i, c := range changes {
		rows[i] = c.task
		if c.task.Closed || c.task.Errors > c.before.Errors || c.task.Corrections > c.before.Corrections {
			requests = append(requests, memory.ReflectionRequest{
				Namespace: c.task.Namespace, TaskID: c.task.TaskID, Revision: c.task.Revision, Closed: c.task.Closed,
			})
		}
	}
	if len(requests) > 0 {
		if err := w.opts.Reflections.Request(ctx, requests); err != nil {
			return fmt.Errorf("ask for reflection: %w", err)
		}
	}
	for _, task := range rows {
		if task.Closed { // Before the row, so that a crash between the two has it done again.
			w.keepWorking(ctx, task)
		}
	}
	if err := w.opts.Store.InsertTasks(ctx, rows); err != nil {
		return fmt.Errorf("write tasks: %w", err)
	}
	for _, task := range rows {
		switch {
		case !task.Closed:
			w.keepWorking(ctx, task)
		case task.Finished:
			w.closed.WithLabelValues("finished").Inc()
		default:
			w.closed.WithLabelValues("idle").Inc()
		}
	}
	return nil
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
// another sweeper would find every task that is not.
func (w *watch) advance(ctx context.Context, now time.Time) error {
	w.since = now.Add(-w.overlap)
	mark, open := w.since, 0
	for key, t := range w.tasks {
		if !t.closed {
			open++
		}
		switch {
		case !t.settled && t.last.Before(mark):
			mark = t.last
		case t.settled && t.last.Before(w.since):
			delete(w.tasks, key)
		}
	}
	w.open.Set(float64(open))
	// The bookmark only saves work after a restart, so writing it every tenth of a window is enough.
	if mark.Sub(w.saved) < w.overlap/10 {
		return nil
	}
	if err := w.opts.Bookmark.Save(ctx, mark); err != nil {
		return fmt.Errorf("save the sweeper's bookmark: %w", err)
	}
	w.saved = mark
	return nil
}
