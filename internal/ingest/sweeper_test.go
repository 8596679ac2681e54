package ingest_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/ingest"
	"github.com/hindsight-memory/hindsight/internal/memory"
)

// surroundings are what a sweeper is handed: the real record behind hooks, and the three other ports as recorders of
// calls; what is behind those in a program needs a broker.
type surroundings struct {
	*record
	registry *prometheus.Registry

	mu       sync.Mutex
	looks    int
	written  []memory.Task
	requests []memory.ReflectionRequest
	live     map[memory.TaskKey]memory.Working
	puts     int
	deletes  []string
	bookmark time.Time
	saves    int
	// Hooks, called without mu; nil does nothing.
	onTouched  func() error
	onRead     func(keys []memory.TaskKey) error
	onInsert   func(tasks []memory.Task) error
	onRequest  func(requests []memory.ReflectionRequest) error
	onWorking  func() error
	onBookmark func() error
	// logs is where warnings go; nil is the test's log.
	logs *slog.Logger
	// ahead is how far the store's clock seems to be ahead of the test's.
	ahead time.Duration
	// patience, if set, is how long a reflection is waited for that never comes.
	patience time.Duration
	// settling, if set, is how many unsettled tasks are looked at in one look.
	settling int
	// watched counts the unsettled tasks that were looked at, by the number of the look, and seen by the task.
	watched map[int]int
	seen    map[memory.TaskKey]int
}

func newSurroundings(t *testing.T) *surroundings {
	t.Helper()
	return &surroundings{record: newRecord(t), registry: prometheus.NewRegistry(), live: map[memory.TaskKey]memory.Working{}, watched: map[int]int{}, seen: map[memory.TaskKey]int{}}
}

func call[T any](hook func(T) error, with T) error {
	if hook == nil {
		return nil
	}
	return hook(with)
}

func callPlain(hook func() error) error {
	if hook == nil {
		return nil
	}
	return hook()
}

func (s *surroundings) Touched(ctx context.Context, since time.Time) (time.Time, []memory.Touch, error) {
	now, touched, err := s.record.Touched(ctx, since)
	err = errors.Join(err, callPlain(s.onTouched))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looks++
	return now.Add(s.ahead), touched, err
}

func (s *surroundings) TaskEvents(ctx context.Context, keys []memory.TaskKey) (map[memory.TaskKey][]memory.StoredEvent, error) {
	if err := call(s.onRead, keys); err != nil {
		return nil, err
	}
	return s.record.TaskEvents(ctx, keys)
}

func (s *surroundings) Reflections(ctx context.Context, keys []memory.TaskKey) (map[memory.TaskKey]memory.TaskReflection, error) {
	s.mu.Lock()
	s.watched[s.looks] += len(keys)
	for _, key := range keys {
		s.seen[key]++
	}
	s.mu.Unlock()
	return s.record.Reflections(ctx, keys)
}

func (s *surroundings) InsertTasks(ctx context.Context, tasks []memory.Task) error {
	if err := call(s.onInsert, tasks); err != nil {
		return err
	}
	if err := s.record.InsertTasks(ctx, tasks); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.written = append(s.written, tasks...)
	return nil
}

func (s *surroundings) Request(_ context.Context, requests []memory.ReflectionRequest) error {
	if err := call(s.onRequest, requests); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, requests...)
	return nil
}

func (s *surroundings) PutWorking(_ context.Context, w memory.Working) error {
	if err := callPlain(s.onWorking); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.puts++
	s.live[memory.TaskKey{Namespace: w.Namespace, TaskID: w.TaskID}] = w
	return nil
}

func (s *surroundings) DeleteWorking(_ context.Context, key memory.TaskKey) error {
	if err := callPlain(s.onWorking); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deletes = append(s.deletes, key.TaskID)
	delete(s.live, key)
	return nil
}

func (s *surroundings) Load(context.Context) (time.Time, error) {
	err := callPlain(s.onBookmark)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bookmark, err
}

func (s *surroundings) Save(_ context.Context, at time.Time) error {
	if err := callPlain(s.onBookmark); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bookmark, s.saves = at, s.saves+1
	return nil
}

// goAhead puts the store's clock forward.
func (s *surroundings) goAhead(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead += d
}

// asked lists the requests so far by message id, a provisional one marked.
func (s *surroundings) asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]string, len(s.requests))
	for i, r := range s.requests {
		out[i] = r.MessageID()
		if !r.Closed {
			out[i] += " provisional"
		}
	}
	return out
}

// rows lists the states written so far as task and revision.
func (s *surroundings) rows() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]string, len(s.written))
	for i, t := range s.written {
		out[i] = fmt.Sprintf("%s/%s/%d", t.Namespace, t.TaskID, t.Revision)
	}
	return out
}

func (s *surroundings) working(namespace, task string) (memory.Working, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w, found := s.live[memory.TaskKey{Namespace: namespace, TaskID: task}]
	return w, found
}

// times of a sweeper that closes what is finished soon and nothing else.
func soon() ingest.SweeperOptions {
	return ingest.SweeperOptions{Idle: time.Hour, Quiet: 50 * time.Millisecond, Interval: 10 * time.Millisecond}
}

// sweep runs a sweeper until the returned function is called or the test ends.
func (s *surroundings) sweep(t *testing.T, o ingest.SweeperOptions, overlap time.Duration) (stop func()) {
	t.Helper()
	o.Store, o.Reflections, o.Working, o.Bookmark = s, s, s, s
	o.Logger, o.Registerer = logger(t), s.registry
	if s.logs != nil {
		o.Logger = s.logs
	}
	sweeper, err := ingest.NewSweeper(o)
	if err != nil {
		t.Fatal(err)
	}
	sweeper.SetOverlap(overlap)
	if s.patience > 0 {
		sweeper.SetPatience(s.patience)
	}
	if s.settling > 0 {
		sweeper.SetSettling(s.settling, 0)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- sweeper.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run = %v, want the end of its context", err)
		}
		s.registry = prometheus.NewRegistry()
	})
	t.Cleanup(stop)
	return stop
}

// looksMore waits for some more looks, each of which is over when the next begins.
func (s *surroundings) looksMore(t *testing.T, n int) {
	t.Helper()
	count := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.looks
	}
	until := count() + n + 1
	eventually(t, fmt.Sprintf("%d more looks", n), func() bool { return count() >= until })
}

func (s *surroundings) insert(t *testing.T, evs ...events.Event) {
	t.Helper()
	if err := s.InsertEvents(t.Context(), evs); err != nil {
		t.Fatal(err)
	}
}

// silence waits until nothing was recorded for so long, by the store's clock.
func (s *surroundings) silence(t *testing.T, d time.Duration) {
	t.Helper()
	eventually(t, "silence", func() bool {
		ms := s.exec(t, "SELECT dateDiff('millisecond', max(recorded_at), now64(3, 'UTC')) FROM %s.trace_events", s.database)
		n, err := strconv.Atoi(strings.TrimSpace(ms))
		return err == nil && time.Duration(n)*time.Millisecond > d
	})
}

// task reads a task with the state that was written.
func (s *surroundings) task(t *testing.T, namespace, id string) memory.Task {
	t.Helper()
	task, err := s.Task(t.Context(), memory.TaskKey{Namespace: namespace, TaskID: id})
	if err != nil {
		t.Fatal(err)
	}
	return task
}

func (s *surroundings) eventuallyClosed(t *testing.T, id string, revision uint64) memory.Task {
	t.Helper()
	eventually(t, fmt.Sprintf("task %s closed with revision %d", id, revision), func() bool {
		return slices.Contains(s.rows(), fmt.Sprintf("acme.support/%s/%d", id, revision))
	})
	return s.task(t, "acme.support", id)
}

func wantStrings(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s %q, want %q", what, got, want)
	}
}

func TestAFinishedTaskIsClosed(t *testing.T) {
	t.Parallel()
	s := newSurroundings(t)
	s.insert(t, started("a"), step("a", 1, events.StatusSuccess), finished("a"))
	patient := soon()
	patient.Quiet = time.Hour
	stop := s.sweep(t, patient, time.Minute)
	s.looksMore(t, 5)
	stop()
	wantStrings(t, "while it was not quiet for long enough, rows", s.rows(), []string{})

	s.sweep(t, soon(), time.Minute)
	task := s.eventuallyClosed(t, "a", 7)
	if !task.Closed || task.Status != events.StatusSuccess || task.Certainty != memory.CertaintyConfirmed || task.Events != 3 {
		t.Errorf("task %+v", task)
	}
	s.looksMore(t, 3)
	wantStrings(t, "requests", s.asked(), []string{"acme.support/a/7"})
	wantStrings(t, "rows", s.rows(), []string{"acme.support/a/7"})
	if got := metric(t, s.registry, "hindsight_tasks_closed_total", "finished"); got != 1 {
		t.Errorf("%v tasks counted as finished, want 1", got)
	}
	if got := metric(t, s.registry, "hindsight_tasks_open"); got != 0 {
		t.Errorf("%v tasks counted as open, want 0", got)
	}
}

func TestASilentTaskIsClosedAsUnknown(t *testing.T) {
	t.Parallel()
	s := newSurroundings(t)
	s.insert(t, started("a"), step("a", 1, events.StatusSuccess))
	o := soon()
	o.Idle = 200 * time.Millisecond
	s.sweep(t, o, time.Minute)
	task := s.eventuallyClosed(t, "a", 5)
	if !task.Closed || task.Status != events.StatusUnknown || task.Certainty != memory.CertaintyInferred {
		t.Errorf("task %+v", task)
	}
	wantStrings(t, "requests", s.asked(), []string{"acme.support/a/5"})
	if got := metric(t, s.registry, "hindsight_tasks_closed_total", "idle"); got != 1 {
		t.Errorf("%v tasks counted as idle, want 1", got)
	}
}

// TestSilenceIsMeasuredByTheStoresClock: the store may be a machine whose clock is wrong.
func TestSilenceIsMeasuredByTheStoresClock(t *testing.T) {
	t.Parallel()
	s := newSurroundings(t)
	s.insert(t, started("a"))
	stop := s.sweep(t, soon(), time.Minute)
	s.looksMore(t, 3)
	stop()
	wantStrings(t, "before the hour has passed, requests", s.asked(), []string{})
	s.goAhead(2 * time.Hour)
	s.sweep(t, soon(), time.Minute)
	s.eventuallyClosed(t, "a", 3)
}

func TestALateEventReopensATask(t *testing.T) {
	t.Parallel()
	s := newSurroundings(t)
	s.insert(t, started("a"), finished("a"))
	s.sweep(t, soon(), time.Minute)
	s.eventuallyClosed(t, "a", 5)
	s.insert(t, step("a", 1, events.StatusFailure))
	if task := s.eventuallyClosed(t, "a", 7); !task.Closed || task.Errors != 1 || task.Events != 3 {
		t.Errorf("with the late step: %+v", task)
	}
	late := event("a", "judged", 200, events.KindTaskFinished, `{"status":"failure","confirmed_by":"user"}`)
	s.insert(t, late)
	if task := s.eventuallyClosed(t, "a", 9); task.Status != events.StatusFailure {
		t.Errorf("with the user's word: %+v", task)
	}
	closed := slices.DeleteFunc(s.asked(), func(id string) bool { return strings.HasSuffix(id, "provisional") })
	wantStrings(t, "requests", closed, []string{"acme.support/a/5", "acme.support/a/7", "acme.support/a/9"})
}

// TestALateEventAfterTheTaskWasForgotten needs the record to know what memory does not.
func TestALateEventAfterTheTaskWasForgotten(t *testing.T) {
	t.Parallel()
	s := newSurroundings(t)
	s.insert(t, started("a"), finished("a"))
	s.sweep(t, soon(), time.Second)
	s.eventuallyClosed(t, "a", 5)
	s.silence(t, 1500*time.Millisecond)
	s.looksMore(t, 5)
	s.insert(t, step("a", 1, events.StatusSuccess))
	s.eventuallyClosed(t, "a", 7)
	wantStrings(t, "requests", s.asked(), []string{"acme.support/a/5", "acme.support/a/7"})
}

// TestARowThatIsSeenLate has been recorded before, by the store's clock, a row that was seen before it: its insert took
// longer. Its time of arrival says nothing new.
func TestARowThatIsSeenLate(t *testing.T) {
	t.Parallel()
	s := newSurroundings(t)
	s.insert(t, started("a"), finished("a"))
	s.sweep(t, soon(), time.Minute)
	s.eventuallyClosed(t, "a", 5)
	s.exec(t, `INSERT INTO %[1]s.trace_events SELECT * REPLACE ('a/slow' AS event_id, recorded_at - INTERVAL 5 MILLISECOND AS recorded_at)
		FROM (SELECT * FROM %[1]s.trace_events WHERE event_id = 'a/start')`, s.database)
	wantStrings(t, "stored", ids(t, s.record, "a"), []string{"a/end", "a/slow", "a/start"})
	s.looksMore(t, 2)
	s.goAhead(2 * time.Minute) // no insert can be so slow
	if task := s.eventuallyClosed(t, "a", 7); task.Events != 3 {
		t.Errorf("task %+v", task)
	}
	s.looksMore(t, 10)
	wantStrings(t, "requests", s.asked(), []string{"acme.support/a/5", "acme.support/a/7"})
}

func TestProvisionalRequests(t *testing.T) {
	t.Parallel()
	s := newSurroundings(t)
	s.sweep(t, soon(), time.Minute)
	s.insert(t, started("a"), step("a", 1, events.StatusFailure))
	eventually(t, "a request after a failed step", func() bool { return len(s.asked()) == 1 })
	s.insert(t, step("a", 2, events.StatusSuccess))
	eventually(t, "the state after a good step", func() bool { return slices.Contains(s.rows(), "acme.support/a/6") })
	s.insert(t, event("a", "f", 3, events.KindFeedback, `{"kind":"correction","comment":"not so"}`))
	eventually(t, "a request after a correction", func() bool { return len(s.asked()) == 2 })
	s.insert(t, event("a", "g", 4, events.KindFeedback, `{"kind":"rating","value":1}`))
	eventually(t, "the state after a rating", func() bool { return slices.Contains(s.rows(), "acme.support/a/10") })
	s.looksMore(t, 3)
	wantStrings(t, "requests", s.asked(), []string{"acme.support/a/4 provisional", "acme.support/a/8 provisional"})
	if task := s.task(t, "acme.support", "a"); task.Closed {
		t.Error("the task was closed")
	}
}

// TestProvisionalRequestsDoNotWaitForOthers: only so many live tasks are read in one look, but all that failed.
func TestProvisionalRequestsDoNotWaitForOthers(t *testing.T) {
	t.Parallel()
	s := newSurroundings(t)
	s.insert(t, started("failing"), step("failing", 1, events.StatusFailure))
	s.insert(t, started("corrected"), event("corrected", "f", 3, events.KindFeedback, `{"kind":"correction"}`))
	s.silence(t, time.Millisecond)
	var busy []events.Event
	for n := range ingest.MaxLive + 50 {
		busy = append(busy, started(fmt.Sprint("busy", n)))
	}
	s.insert(t, busy...)
	o := soon()
	o.Interval = time.Hour // a single look
	s.sweep(t, o, time.Minute)
	eventually(t, "two requests", func() bool { return len(s.asked()) == 2 })
}

func TestWorkingMemory(t *testing.T) {
	t.Parallel()
	s := newSurroundings(t)
	s.sweep(t, soon(), time.Minute)
	s.insert(t, started("a"), step("a", 1, events.StatusSuccess))
	eventually(t, "working memory of a live task", func() bool { _, found := s.working("acme.support", "a"); return found })
	w, _ := s.working("acme.support", "a")
	want := memory.Working{
		Namespace: "acme.support", TaskID: "a", SessionID: "session-1", Goal: "refund it", Step: 1, State: "step 1: pay succeeded",
		Artifacts: map[string]string{"pay": "r1"}, UpdatedAt: noon().Add(time.Second),
	}
	if !reflect.DeepEqual(w, want) {
		t.Errorf("working memory %+v, want %+v", w, want)
	}
	s.insert(t, step("a", 2, events.StatusFailure))
	eventually(t, "working memory after another step", func() bool {
		w, _ := s.working("acme.support", "a")
		return w.State == "step 2: pay failed"
	})
	s.insert(t, finished("a"))
	s.eventuallyClosed(t, "a", 9)
	if w, found := s.working("acme.support", "a"); found {
		t.Errorf("the task is closed and has the working memory %+v", w)
	}
}

// TestWorkingMemoryGoesBeforeTheRow: a crash between the two must leave the work to be done again, and not undone.
func TestWorkingMemoryGoesBeforeTheRow(t *testing.T) {
	t.Parallel()
	s := newSurroundings(t)
	s.insert(t, started("a"))
	stop := s.sweep(t, soon(), time.Minute)
	eventually(t, "working memory", func() bool { _, found := s.working("acme.support", "a"); return found })
	stop()
	s.insert(t, finished("a"))
	s.onInsert = func([]memory.Task) error {
		if _, found := s.working("acme.support", "a"); found {
			t.Error("the row of the closed task is written and its working memory is still there")
		}
		return nil
	}
	s.sweep(t, soon(), time.Minute)
	s.eventuallyClosed(t, "a", 5)
}

// TestNoWorkingMemoryIsDeletedThatNeverWas: importing a million tasks must not purge a million keys.
func TestNoWorkingMemoryIsDeletedThatNeverWas(t *testing.T) {
	t.Parallel()
	s := newSurroundings(t)
	s.insert(t, started("imported"), finished("imported"))
	s.silence(t, 100*time.Millisecond)
	stop := s.sweep(t, soon(), time.Minute)
	s.eventuallyClosed(t, "imported", 5)
	s.insert(t, step("imported", 1, events.StatusSuccess))
	s.eventuallyClosed(t, "imported", 7)
	s.insert(t, started("lived"))
	eventually(t, "working memory", func() bool { _, found := s.working("acme.support", "lived"); return found })
	s.onWorking = failsOnce(errors.New("no working memory today"))
	s.insert(t, finished("lived"))
	s.eventuallyClosed(t, "lived", 5)
	s.insert(t, step("lived", 1, events.StatusSuccess))
	s.eventuallyClosed(t, "lived", 7)
	stop()
	wantStrings(t, "deleted", s.deletes, []string{"lived"})
}

func TestWorkingMemoryIsNoReasonToWait(t *testing.T) {
	t.Parallel()
	s := newSurroundings(t)
	s.onWorking = func() error { return errors.New("no working memory today") }
	s.sweep(t, soon(), time.Minute)
	s.insert(t, started("a"), step("a", 1, events.StatusFailure))
	eventually(t, "a provisional request", func() bool { return len(s.asked()) == 1 })
	s.insert(t, finished("a"))
	s.eventuallyClosed(t, "a", 7)
}

// once makes a hook fail at its first call.
func once[T any](err error) func(T) error {
	var first sync.Once
	return func(T) error {
		var out error
		first.Do(func() { out = err })
		return out
	}
}

// failsOnce is once for a hook without an argument.
func failsOnce(err error) func() error {
	hook := once[struct{}](err)
	return func() error { return hook(struct{}{}) }
}

// TestAFullQueueHoldsUpTheClosingOnly, and only until there is room for single requests.
func TestAFullQueueHoldsUpTheClosingOnly(t *testing.T) {
	t.Parallel()
	s := newSurroundings(t)
	var mu sync.Mutex
	room := 0
	setRoom := func(n int) {
		mu.Lock()
		defer mu.Unlock()
		room = n
	}
	s.onRequest = func(requests []memory.ReflectionRequest) error {
		mu.Lock()
		defer mu.Unlock()
		if len(requests) > room {
			return fmt.Errorf("%w: REFLECT", memory.ErrQueueFull)
		}
		room -= len(requests)
		return nil
	}
	var logs strings.Builder // read after the sweeper has ended
	s.logs = slog.New(slog.NewTextHandler(&logs, &slog.HandlerOptions{Level: slog.LevelInfo}))
	var evs []events.Event
	for _, id := range []string{"a", "b", "c"} {
		evs = append(evs, started(id), finished(id))
	}
	s.insert(t, evs...)
	s.insert(t, started("live"), step("live", 1, events.StatusSuccess), started("bad"))
	s.onRead = func(keys []memory.TaskKey) error { // It is set aside all the same.
		if slices.ContainsFunc(keys, func(k memory.TaskKey) bool { return k.TaskID == "bad" }) {
			return memory.ErrUnavailable
		}
		return nil
	}
	s.insert(t, started("failing"), step("failing", 1, events.StatusFailure))
	s.silence(t, 100*time.Millisecond)
	blocked := func() float64 { return metric(t, s.registry, "hindsight_sweep_blocked") }
	stop := s.sweep(t, soon(), time.Minute)
	eventually(t, "working memory of a live task", func() bool { _, found := s.working("acme.support", "live"); return found })
	s.looksMore(t, 3)
	wantStrings(t, "while the queue is full, rows", s.rows(), []string{"acme.support/live/4"})
	if blocked() != 1 {
		t.Error("the full queue does not show in the metrics")
	}
	setRoom(3)
	eventually(t, "rows for those that found room", func() bool { return len(s.rows()) == 4 })
	s.looksMore(t, 3)
	wantStrings(t, "requests", s.asked(), []string{"acme.support/failing/4 provisional", "acme.support/a/5", "acme.support/b/5"})
	if len(s.rows()) != 4 || blocked() != 1 {
		t.Errorf("rows %q, blocked %v; one task has found no room yet", s.rows(), blocked())
	}
	setRoom(100)
	s.eventuallyClosed(t, "c", 5)
	eventually(t, "the metric to recover", func() bool { return blocked() == 0 })
	stop()
	if got := logs.String(); strings.Count(got, "REFLECT is full") != 1 || !strings.Contains(got, "tasks are closed again") {
		t.Errorf("log %s, want one warning and its end", got)
	}
}

// TestALiveTaskIsNotReadAtEachLook: it is read whole each time, and this one is long.
func TestALiveTaskIsNotReadAtEachLook(t *testing.T) {
	t.Parallel()
	s := newSurroundings(t)
	const length = 15_000 // it is left alone for 62 s
	evs := make([]events.Event, length)
	for n := range evs {
		evs[n] = event("a", fmt.Sprint("m", n), n, events.KindMessage, `{"role":"user","content":"and"}`)
	}
	s.insert(t, evs...)
	s.sweep(t, soon(), 2*time.Hour)
	row := func(events int) string { return fmt.Sprintf("acme.support/a/%d", 2*events) }
	eventually(t, "the first state", func() bool { return len(s.rows()) == 1 })
	s.insert(t, step("a", length, events.StatusSuccess))
	s.looksMore(t, 3)
	wantStrings(t, "after a little more, rows", s.rows(), []string{row(length)})
	s.insert(t, step("a", length+1, events.StatusFailure))
	eventually(t, "the state after a failure", func() bool { return len(s.rows()) == 2 })
	s.insert(t, step("a", length+2, events.StatusSuccess))
	s.looksMore(t, 3)
	wantStrings(t, "with a failure that is known, rows", s.rows(), []string{row(length), row(length + 2)})
	s.goAhead(2 * time.Minute)
	eventually(t, "the state after a while", func() bool { return len(s.rows()) == 3 })
	wantStrings(t, "rows", s.rows(), []string{row(length), row(length + 2), row(length + 3)})
}

// TestTasksThatAreTooLargeTogether are read in parts, however many those are.
func TestTasksThatAreTooLargeTogether(t *testing.T) {
	t.Parallel()
	s := newSurroundings(t)
	s.onRead = func(keys []memory.TaskKey) error {
		if len(keys) > 3 {
			return fmt.Errorf("read events: %w", memory.ErrTooMuch)
		}
		return nil
	}
	var evs []events.Event
	for n := range 20 {
		id := fmt.Sprint("task", n)
		evs = append(evs, started(id), finished(id))
	}
	s.insert(t, evs...)
	s.silence(t, 100*time.Millisecond)
	o := soon()
	o.Interval = time.Hour // a single look
	s.sweep(t, o, time.Minute)
	eventually(t, "all rows", func() bool { return len(s.rows()) == 20 })
}

// TestTheRequestComesBeforeTheRow lets the write fail once: the request is made again under the same id, and the row is
// written once.
func TestTheRequestComesBeforeTheRow(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		evs  []events.Event
		id   string
	}{
		{"closed", []events.Event{started("a"), finished("a")}, "acme.support/a/5"},
		{"provisional", []events.Event{started("a"), step("a", 1, events.StatusFailure)}, "acme.support/a/4"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newSurroundings(t)
			fail := once[[]memory.Task](memory.ErrUnavailable)
			s.onInsert = func(tasks []memory.Task) error {
				if len(tasks) > 0 && len(s.asked()) == 0 {
					t.Error("the row is written before its request was made")
				}
				if len(tasks) == 0 {
					return nil
				}
				return fail(tasks)
			}
			s.insert(t, test.evs...)
			s.sweep(t, soon(), time.Minute)
			eventually(t, "the row", func() bool { return len(s.rows()) > 0 })
			s.looksMore(t, 3)
			wantStrings(t, "rows", s.rows(), []string{test.id})
			asked := s.asked()
			for i := range asked {
				asked[i] = strings.TrimSuffix(asked[i], " provisional")
			}
			wantStrings(t, "requests", asked, []string{test.id, test.id})
			if got := metric(t, s.registry, "hindsight_tasks_closed_total"); got > 1 {
				t.Errorf("%v tasks counted as closed", got)
			}
		})
	}
}

// TestARequestThatFailsIsMadeAgain: without the request there is no row either.
func TestARequestThatFailsIsMadeAgain(t *testing.T) {
	t.Parallel()
	for _, evs := range [][]events.Event{{started("a"), finished("a")}, {started("a"), step("a", 1, events.StatusFailure)}} {
		s := newSurroundings(t)
		fail := once[[]memory.ReflectionRequest](errors.New("the queue is full"))
		s.onRequest = func(requests []memory.ReflectionRequest) error {
			if len(requests) == 0 {
				return nil
			}
			if rows := s.rows(); len(rows) > 0 {
				t.Errorf("rows %q before their request", rows)
			}
			return fail(requests)
		}
		s.insert(t, evs...)
		stop := s.sweep(t, soon(), time.Minute)
		eventually(t, "the request and the row", func() bool { return len(s.asked()) == 1 && len(s.rows()) == 1 })
		stop()
	}
}

// TestACrashBetweenRequestAndRow: the next sweeper finds everything, whether or not there is a bookmark.
func TestACrashBetweenRequestAndRow(t *testing.T) {
	t.Parallel()
	for name, forget := range map[string]bool{"with the bookmark": false, "without a bookmark": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSurroundings(t)
			s.insert(t, started("open"), step("open", 1, events.StatusSuccess))
			s.insert(t, started("before"), finished("before"))
			stop := s.sweep(t, soon(), 2*time.Second)
			s.eventuallyClosed(t, "before", 5)
			eventually(t, "a bookmark", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.saves > 0 })
			s.onInsert = func(tasks []memory.Task) error {
				if len(tasks) == 0 {
					return nil
				}
				return memory.ErrUnavailable // and the process is gone
			}
			s.insert(t, started("crashed"), step("crashed", 1, events.StatusFailure), finished("crashed"))
			eventually(t, "the request of the task that crashes", func() bool { return slices.Contains(s.asked(), "acme.support/crashed/7") })
			stop()

			s.onInsert = nil
			s.insert(t, finished("open")) // arrives while no sweeper runs
			s.silence(t, 2500*time.Millisecond)
			if forget {
				s.bookmark = time.Time{}
			}
			s.sweep(t, soon(), 2*time.Second)
			s.eventuallyClosed(t, "crashed", 7)
			s.eventuallyClosed(t, "open", 7)
			s.looksMore(t, 3)
			count := map[string]int{}
			for _, row := range s.rows() {
				count[row]++
			}
			for row, n := range count {
				if n != 1 {
					t.Errorf("%s was written %d times", row, n)
				}
			}
		})
	}
}

// TestTheBookmarkWaitsForOpenTasks: whoever begins there sees them.
func TestTheBookmarkWaitsForOpenTasks(t *testing.T) {
	t.Parallel()
	s := newSurroundings(t)
	s.patience = 100 * time.Millisecond // nobody reflects here
	s.insert(t, started("old"))
	arrived, err := s.Event(t.Context(), "acme.support", "old/start")
	if err != nil {
		t.Fatal(err)
	}
	stop := s.sweep(t, soon(), time.Second)
	for n := range 3 { // others come and go
		task := fmt.Sprint("other", n)
		s.insert(t, started(task), finished(task))
		s.eventuallyClosed(t, task, 5)
		s.silence(t, 1500*time.Millisecond)
		s.looksMore(t, 3)
	}
	stop()
	if s.saves == 0 || s.bookmark.After(arrived.RecordedAt) {
		t.Errorf("saved %d times, at %s at last, although a task is open since %s", s.saves, s.bookmark, arrived.RecordedAt)
	}
	o := soon()
	o.Idle = 100 * time.Millisecond
	stop = s.sweep(t, o, time.Second)
	s.eventuallyClosed(t, "old", 3)
	eventually(t, "the bookmark to move on", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.bookmark.After(arrived.RecordedAt) })
	stop()
}

func TestNothingIsWrittenForAnUnchangedTask(t *testing.T) {
	t.Parallel()
	s := newSurroundings(t)
	s.insert(t, started("a"), finished("a"), started("b"), step("b", 1, events.StatusFailure))
	s.sweep(t, soon(), time.Second)
	s.eventuallyClosed(t, "a", 5)
	eventually(t, "the state of b", func() bool { return slices.Contains(s.rows(), "acme.support/b/4") })
	s.looksMore(t, 20)
	s.insert(t, started("a"), finished("a"), step("b", 1, events.StatusFailure)) // redelivered
	s.silence(t, 1500*time.Millisecond)
	s.looksMore(t, 20)
	rows := s.rows()
	slices.Sort(rows)
	wantStrings(t, "rows", rows, []string{"acme.support/a/5", "acme.support/b/4"})
	if asked := s.asked(); len(asked) != 2 {
		t.Errorf("requests %q, want one a revision", asked)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.puts != 1 {
		t.Errorf("working memory was put %d times, want once", s.puts)
	}
}

func TestAThousandTasksInOneLook(t *testing.T) {
	t.Parallel()
	s := newSurroundings(t)
	const tasks = 1000
	var evs []events.Event
	for n := range tasks {
		id := fmt.Sprintf("task%04d", n)
		evs = append(evs, started(id), step(id, 1, events.StatusFailure), step(id, 2, events.StatusSuccess), finished(id))
	}
	s.insert(t, evs...)
	s.silence(t, 100*time.Millisecond)
	o := soon()
	o.Interval = time.Hour // a single look
	s.sweep(t, o, time.Minute)
	eventually(t, "a thousand rows", func() bool { return len(s.rows()) == tasks })
	asked, rows := s.asked(), s.rows()
	slices.Sort(asked)
	slices.Sort(rows)
	wantStrings(t, "requests", asked, rows)
	if len(slices.Compact(rows)) != tasks {
		t.Error("a task was written twice")
	}
	health, err := s.Health(t.Context(), "")
	if err != nil || health.TasksClosed != tasks || health.TasksOpen != 0 {
		t.Errorf("the record has %+v, %v", health, err)
	}
	if s.looks != 1 {
		t.Errorf("%d looks, want 1", s.looks)
	}
}

// TestManyUnsettledTasksHoldUpNoLook: those that wait for their reflections are looked at in turn, a bounded time each look.
func TestManyUnsettledTasksHoldUpNoLook(t *testing.T) {
	t.Parallel()
	s := newSurroundings(t)
	s.settling = 10
	const tasks = 35
	var evs []events.Event
	for n := range tasks {
		id := fmt.Sprintf("task%02d", n)
		evs = append(evs, started(id), finished(id))
	}
	s.insert(t, evs...)
	s.sweep(t, soon(), time.Minute)
	eventually(t, "all are closed and each is looked at twice", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, n := range s.seen {
			if n < 2 {
				return false
			}
		}
		return len(s.seen) == tasks
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	for look, n := range s.watched {
		if n > s.settling {
			t.Errorf("look %d was at %d unsettled tasks, want %d at most", look, n, s.settling)
		}
	}
}

// TestEventsThatArriveDuringALook come at the two moments at which a look could overlook them.
func TestEventsThatArriveDuringALook(t *testing.T) {
	t.Parallel()
	late := func(ctx context.Context, s *surroundings) func() error {
		return sync.OnceValue(func() error { return s.InsertEvents(ctx, []events.Event{step("a", 1, events.StatusFailure)}) })
	}
	for name, hook := range map[string]func(s *surroundings, insert func() error){
		"before the events are read": func(s *surroundings, insert func() error) {
			s.onRead = func([]memory.TaskKey) error { return insert() }
		},
		"after the events were read": func(s *surroundings, insert func() error) {
			s.onRequest = func(requests []memory.ReflectionRequest) error {
				if len(requests) == 0 {
					return nil
				}
				return insert()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSurroundings(t)
			s.insert(t, started("a"), finished("a"))
			s.silence(t, 100*time.Millisecond)
			hook(s, late(context.WithoutCancel(t.Context()), s))
			s.sweep(t, soon(), time.Minute)
			if task := s.eventuallyClosed(t, "a", 7); task.Events != 3 || task.Errors != 1 {
				t.Errorf("task %+v", task)
			}
			last := s.asked()
			if got := last[len(last)-1]; got != "acme.support/a/7" {
				t.Errorf("the last request is %s", got)
			}
		})
	}
}

func TestEqualTaskIDsInTwoNamespaces(t *testing.T) {
	t.Parallel()
	s := newSurroundings(t)
	in := func(namespace string, evs ...events.Event) {
		for i := range evs {
			evs[i].Namespace = namespace
		}
		s.insert(t, evs...)
	}
	in("one", started("a"), step("a", 1, events.StatusSuccess), finished("a"))
	in("one.team", started("a"), step("a", 1, events.StatusFailure))
	in("two", started("a"))
	s.sweep(t, soon(), time.Minute)
	eventually(t, "three states", func() bool { return len(s.rows()) == 3 })
	s.looksMore(t, 3)
	rows, asked := s.rows(), s.asked()
	slices.Sort(rows)
	slices.Sort(asked)
	wantStrings(t, "rows", rows, []string{"one.team/a/4", "one/a/7", "two/a/2"})
	wantStrings(t, "requests", asked, []string{"one.team/a/4 provisional", "one/a/7"})
	if one, team, two := s.task(t, "one", "a"), s.task(t, "one.team", "a"), s.task(t, "two", "a"); !one.Closed || team.Closed || two.Closed ||
		one.Errors != 0 || team.Errors != 1 || len(two.Steps) != 0 {
		t.Errorf("tasks %+v, %+v, %+v", one, team, two)
	}
	for namespace, want := range map[string]bool{"one": false, "one.team": true, "two": true} {
		if w, found := s.working(namespace, "a"); found != want || (found && w.Namespace != namespace) {
			t.Errorf("working memory in %s: %v, want %v: %+v", namespace, found, want, w)
		}
	}
}

// TestOneTaskHoldsUpNoOther: a task may be too large to be read, or have a row that the store does not take.
func TestOneTaskHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	isIt := func(id string) bool { return strings.HasPrefix(id, "bad") }
	for name, hook := range map[string]func(s *surroundings, bad func() error){
		"that can't be read": func(s *surroundings, bad func() error) {
			s.onRead = func(keys []memory.TaskKey) error {
				if slices.ContainsFunc(keys, func(k memory.TaskKey) bool { return isIt(k.TaskID) }) {
					return bad()
				}
				return nil
			}
		},
		"that can't be written": func(s *surroundings, bad func() error) {
			s.onInsert = func(tasks []memory.Task) error {
				if slices.ContainsFunc(tasks, func(k memory.Task) bool { return isIt(k.TaskID) }) {
					return bad()
				}
				return nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSurroundings(t)
			var mu sync.Mutex
			failing := true
			hook(s, func() error {
				mu.Lock()
				defer mu.Unlock()
				if failing {
					return memory.ErrUnavailable
				}
				return nil
			})
			evs := []events.Event{started("bad"), finished("bad"), started("bad too"), finished("bad too")}
			for n := range 10 {
				evs = append(evs, started(fmt.Sprint("good", n)), finished(fmt.Sprint("good", n)))
			}
			s.insert(t, evs...)
			s.sweep(t, soon(), time.Minute)
			for n := range 10 {
				s.eventuallyClosed(t, fmt.Sprint("good", n), 5)
			}
			mu.Lock()
			failing = false
			mu.Unlock()
			s.goAhead(time.Minute) // it is tried again later
			s.eventuallyClosed(t, "bad", 5)
			s.eventuallyClosed(t, "bad too", 5)
		})
	}
}

// TestAStoreThatIsAwayIsWaitedFor lets each port fail a few times before it works.
func TestAStoreThatIsAwayIsWaitedFor(t *testing.T) {
	t.Parallel()
	s := newSurroundings(t)
	times := func(n int) func() error {
		return func() error {
			if n--; n >= 0 {
				return memory.ErrUnavailable
			}
			return nil
		}
	}
	s.onTouched, s.onBookmark = times(3), times(3)
	read, request, insert := times(3), times(3), times(3)
	s.onRead = func([]memory.TaskKey) error { return read() }
	s.onRequest = func([]memory.ReflectionRequest) error { return request() }
	s.onInsert = func([]memory.Task) error { return insert() }
	s.insert(t, started("a"), finished("a"))
	s.sweep(t, soon(), time.Minute)
	s.eventuallyClosed(t, "a", 5)
	eventually(t, "a bookmark", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.saves > 0 })
}

func TestNewSweeperChecksItsOptions(t *testing.T) {
	t.Parallel()
	s := &surroundings{}
	complete := ingest.SweeperOptions{
		Store: s, Reflections: s, Working: s, Bookmark: s, Logger: logger(t), Registerer: prometheus.NewRegistry(),
	}
	for name, spoil := range map[string]func(o *ingest.SweeperOptions){
		"no store":       func(o *ingest.SweeperOptions) { o.Store = nil },
		"no reflections": func(o *ingest.SweeperOptions) { o.Reflections = nil },
		"no working":     func(o *ingest.SweeperOptions) { o.Working = nil },
		"no bookmark":    func(o *ingest.SweeperOptions) { o.Bookmark = nil },
		"no logger":      func(o *ingest.SweeperOptions) { o.Logger = nil },
		"no registerer":  func(o *ingest.SweeperOptions) { o.Registerer = nil },
	} {
		o := complete
		spoil(&o)
		if _, err := ingest.NewSweeper(o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := ingest.NewSweeper(complete); err != nil {
		t.Error(err)
	}
	if _, err := ingest.NewSweeper(complete); err == nil {
		t.Error("two sweepers registered the same metrics")
	}
}
