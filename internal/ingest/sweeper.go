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
	// sweepChunk is how many tasks are read and written at once at most. Every insert makes files, which are merged later,
	// and every read opens those of all columns: few are cheaper. What is read is held in memory.
	sweepChunk = 400
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
	// rereadBase and rereadPerEvent are how long a live task is left alone after it was read: every reading is of the
	// whole task, so that a task with an event every second would cost more at each look the longer it lives. With these,
	// an ordinary task is 2 s old at most, and one of 50,000 events is read about every three minutes. A failure or a
	// correction, and the end, do not wait.
	rereadBase     = 2 * time.Second
	rereadPerEvent = rereadBase / 500
	// blockedEvery is the time between two warnings that nothing can be closed.
	blockedEvery = time.Minute
	// failuresInARow is after how many tasks that failed one after the other, each alone, no further ones are tried: the
	// store or the queue is to blame.
	failuresInARow = 10
	// minSetAside and maxSetAside bound how long a task that fails alone is left alone; it doubles each time.
	minSetAside = 30 * time.Second
	maxSetAside = 30 * time.Minute
)

// TaskStore is what the sweeper needs of the record.
type TaskStore interface {
	memory.BasisReader
	// Reflections gives that of the highest revision of each task; one that was never reflected is left out.
	Reflections(ctx context.Context, keys []memory.TaskKey) (map[memory.TaskKey]memory.TaskReflection, error)
	// Touched lists the tasks with events recorded at or after since, and the store's clock.
	Touched(ctx context.Context, since time.Time) (now time.Time, touched []memory.Touch, err error)
	// TaskEvents gives all distinct events of the tasks, or memory.ErrTooMuch when those of several tasks are too large.
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
	// Request returns once every request is kept; the same revision twice is kept once. The error is
	// memory.ErrQueueFull when the queue takes no more; some of the requests may have been kept.
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
	// blocked is 1 while the queue of reflections takes no more.
	blocked prometheus.Gauge
	// unsettledTasks counts tasks whose reflection is watched, settlings those that were asked for again.
	unsettledTasks prometheus.Gauge
	settlings      prometheus.Counter
	// overlap is [sweepOverlap] but in tests.
	overlap time.Duration
	// patience is [settlePatience] but in tests.
	patience time.Duration
	// settleChunk and settleFor are the constants of these names but in tests.
	settleChunk int
	settleFor   time.Duration
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
		opts: opts, overlap: sweepOverlap, patience: settlePatience, settleChunk: settleChunk, settleFor: settleFor,
		closed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hindsight_tasks_closed_total", Help: "Task revisions closed, by cause (finished, idle).",
		}, []string{"cause"}),
		looks: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "hindsight_sweep_seconds", Help: "Duration of one look for tasks to close.", Buckets: prometheus.ExponentialBuckets(0.005, 4, 8),
		}),
		open: prometheus.NewGauge(prometheus.GaugeOpts{Name: "hindsight_tasks_open", Help: "Tasks that the sweeper sees open."}),
		blocked: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "hindsight_sweep_blocked", Help: "1 while no task can be closed because the stream REFLECT is full, else 0.",
		}),
		unsettledTasks: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "hindsight_tasks_unsettled", Help: "Closed tasks that wait for their reflection, or for one that takes later tasks into account.",
		}),
		settlings: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "hindsight_tasks_settled_total", Help: "Reflections asked for again because a later task has changed what they rest on.",
		}),
	}
	for _, c := range []prometheus.Collector{s.closed, s.looks, s.open, s.blocked, s.unsettledTasks, s.settlings} {
		if err := opts.Registerer.Register(c); err != nil {
			return nil, fmt.Errorf("register sweeper metrics: %w", err)
		}
	}
	return s, nil
}

// Run looks for tasks until ctx ends. The caller holds the lease and ends ctx when it is lost. A failing store or queue
// is waited for; Run returns ctx's error only.
func (s *Sweeper) Run(ctx context.Context) error {
	w := &watch{Sweeper: s, tasks: map[memory.TaskKey]*watched{}, unsettled: map[memory.TaskKey]*unsettled{}, most: sweepChunk}
	defer s.open.Set(0) // It is another's count from here on.
	defer s.blocked.Set(0)
	defer s.unsettledTasks.Set(0)
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
	// events is the number of events in that state, and read when they were read.
	events int
	read   time.Time
	// finished says that an end is among the events.
	finished bool
	// urgent says that a failure or a correction has arrived since the task was read, the latest of all at urgentAt.
	urgent   bool
	urgentAt time.Time
	// working says that a working memory was put and not deleted yet.
	working bool
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
	// most is how many tasks are read at once: less than [sweepChunk] while they are large.
	most int
	// failed says that writing tasks failed in the look before.
	failed bool
	// warned is when a full queue was last warned of, zero while it is not full.
	warned time.Time
	// unsettled are closed tasks whose reflection is watched, and settleAt is when they are looked at again.
	unsettled map[memory.TaskKey]*unsettled
	settleAt  time.Time
	// settledTo is where the last look at them ended.
	settledTo memory.TaskKey
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
		}
		if t.UrgentAt.After(task.urgentAt) {
			task.urgentAt, task.urgent = t.UrgentAt, true
		}
		task.finished = task.finished || t.Finished > 0
	}
	if err := w.review(ctx, now); err != nil {
		return err
	}
	var full error
	for due := w.due(now); len(due) > 0; {
		n := min(len(due), w.most)
		chunk := due[:n:n]
		due = due[n:]
		w.most = min(w.most+w.most/8+1, sweepChunk)
		if full != nil { // Those that need no request go on; the others would be read in vain.
			chunk = slices.DeleteFunc(chunk, func(t *watched) bool { return t.urgent || w.over(now, t) })
		}
		err := w.write(ctx, now, chunk)
		if err != nil && w.failed && ctx.Err() == nil && !errors.Is(err, memory.ErrQueueFull) {
			err = w.writeAlone(ctx, now, chunk)
		}
		if errors.Is(err, memory.ErrQueueFull) {
			full, err = err, nil
		}
		w.failed = err != nil
		if err != nil {
			return err
		}
	}
	w.report(full)
	if err := w.settle(ctx, now); err != nil {
		return err
	}
	return w.advance(ctx, now)
}

// report tells the operator that the queue is full, and again that it no longer is. That is no failure of this look: the
// tasks stay due, and are closed by the first look that finds room.
func (w *watch) report(full error) {
	switch {
	case full == nil:
		w.blocked.Set(0)
		if !w.warned.IsZero() {
			w.opts.Logger.Info("tasks are closed again: the stream REFLECT takes requests")
		}
		w.warned = time.Time{}
	case time.Since(w.warned) >= blockedEvery:
		w.opts.Logger.Warn("no task can be closed: the stream REFLECT is full; run a reflector that works off its requests, "+
			"or raise the stream's limits; closing goes on by itself then", "stream", "REFLECT", "error", full)
		w.warned = time.Now()
		fallthrough
	default:
		w.blocked.Set(1)
	}
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
		case t.finished:
		case t.urgent:
			urgent = append(urgent, t)
		case !t.last.After(t.seen) || now.Sub(t.read) < rereadBase+time.Duration(t.events)*rereadPerEvent:
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
	var last, full error // last is of those that failed in a row until the end
	succeeded, inARow := 0, 0
	for _, t := range chunk {
		if full != nil && (t.urgent || w.over(now, t)) {
			continue
		}
		if last = w.write(ctx, now, []*watched{t}); last == nil {
			succeeded, inARow = succeeded+1, 0
			continue
		}
		if errors.Is(last, memory.ErrQueueFull) { // It was read, and waits for no fault of its own.
			full, succeeded, inARow = last, succeeded+1, 0
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
	return full
}

// change is a state that is not written yet, with what it replaces and what is to be remembered once it is written.
type change struct {
	task   memory.Task
	before memory.TaskState
	after  *watched
}

// request is what to ask for the change's reflection, if it needs one.
func (c change) request() (r memory.ReflectionRequest, needed bool) {
	return memory.ReflectionRequest{
		Namespace: c.task.Namespace, TaskID: c.task.TaskID, Revision: c.task.Revision, Closed: c.task.Closed,
	}, c.task.Closed || c.task.Errors > c.before.Errors || c.task.Corrections > c.before.Corrections
}

// write derives the tasks' states from the record and writes what is new: first the request for reflection, then the
// row, so that a crash between the two repeats the request (which changes nothing) and never loses it. What is
// remembered of the tasks changes at the end only, so that after an error everything is done again. Tasks that are too
// large to be held in memory together are written in parts. With memory.ErrQueueFull all is written that needs no request
// or whose request was kept.
func (w *watch) write(ctx context.Context, now time.Time, due []*watched) error {
	if len(due) == 0 {
		return nil
	}
	keys := keysOf(due)
	evs, err := w.opts.Store.TaskEvents(ctx, keys)
	if errors.Is(err, memory.ErrTooMuch) && len(due) > 1 {
		half := len(due) / 2
		w.most = half
		full := w.write(ctx, now, due[:half])
		if full != nil && !errors.Is(full, memory.ErrQueueFull) {
			return full
		}
		if err := w.write(ctx, now, due[half:]); err != nil {
			return err
		}
		return full
	}
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
			changes = append(changes, change{task, before, &after[i]})
		}
	}
	refused, full := w.ask(ctx, changes)
	if full != nil && !errors.Is(full, memory.ErrQueueFull) {
		return fmt.Errorf("ask for reflection: %w", full)
	}
	if err := w.publish(ctx, slices.DeleteFunc(changes, func(c change) bool { return refused[c.after.key] })); err != nil {
		return err
	}
	for i, t := range due {
		if refused[t.key] {
			continue
		}
		// One whose state was written before may have been closed by another sweeper, which had no time for more.
		if before := written[t.key]; after[i].closed {
			w.watchSettling(t.key, now, after[i].last, before.Closed && before.Events != after[i].events)
		}
		*t = after[i]
	}
	return full
}

// ask requests the reflections that the changes need. When the queue is full it tells which were refused. It finds that
// out one by one: rows must be written for those that were kept, or a queue that empties slowly would take the same
// requests for ever.
func (w *watch) ask(ctx context.Context, changes []change) (refused map[memory.TaskKey]bool, err error) {
	var requests []memory.ReflectionRequest
	for _, c := range changes {
		if r, needed := c.request(); needed {
			requests = append(requests, r)
		}
	}
	if len(requests) == 0 {
		return nil, nil
	}
	err = w.opts.Reflections.Request(ctx, requests)
	if !errors.Is(err, memory.ErrQueueFull) {
		return nil, err
	}
	kept := 0
	for len(requests) > 1 && kept < len(requests) {
		if err = w.opts.Reflections.Request(ctx, requests[kept:kept+1]); err != nil {
			break
		}
		kept++
	}
	refused = make(map[memory.TaskKey]bool, len(requests)-kept)
	for _, r := range requests[kept:] {
		refused[memory.TaskKey{Namespace: r.Namespace, TaskID: r.TaskID}] = true
	}
	return refused, err
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
	t.seen, t.events, t.read, t.urgent, t.failures = t.last, task.Events, now, false, 0
	if task.Events > 0 {
		task = memory.CloseTask(task, t.closed)
	}
	return t, task
}

// publish makes new states known whose reflection was asked for: working memory of what is over, row, working memory of
// what lives.
func (w *watch) publish(ctx context.Context, changes []change) error {
	if len(changes) == 0 {
		return nil
	}
	rows := make([]memory.Task, len(changes))
	for i, c := range changes {
		rows[i] = c.task
		if c.task.Closed { // Before the row, so that a crash between the two has it done again.
			w.dropWorking(ctx, c)
		}
	}
	if err := w.opts.Store.InsertTasks(ctx, rows); err != nil {
		return fmt.Errorf("write tasks: %w", err)
	}
	for _, c := range changes {
		switch {
		case !c.task.Closed:
			w.putWorking(ctx, c)
		case c.task.Finished:
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

// putWorking keeps the working memory of a live task. It is a convenience with a time to live of its own, so failing to
// write it is logged and does not hold up the record.
func (w *watch) putWorking(ctx context.Context, c change) {
	c.after.working = true // Even after an error it may have arrived.
	if err := w.opts.Working.PutWorking(ctx, memory.WorkingOf(c.task)); err != nil && ctx.Err() == nil {
		w.opts.Logger.Warn("working memory not updated", "task_id", c.task.TaskID, "error", err)
	}
}

// dropWorking deletes the working memory of a task that is over, if it can have one: this sweeper has put it, or one
// before it, which then wrote an open state. A task that came whole, as imported ones do, costs no request.
func (w *watch) dropWorking(ctx context.Context, c change) {
	if !c.after.working && (c.before.Revision == 0 || c.before.Closed) {
		return
	}
	err := w.opts.Working.DeleteWorking(ctx, memory.TaskKey{Namespace: c.task.Namespace, TaskID: c.task.TaskID})
	c.after.working = err != nil
	if err != nil && ctx.Err() == nil {
		w.opts.Logger.Warn("working memory not deleted", "task_id", c.task.TaskID, "error", err)
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
	for _, u := range w.unsettled {
		if u.last.Before(mark) {
			mark = u.last // Another sweeper has to find whom it concerns.
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
