// Package storetest is the conformance suite of the repository: what every implementation must do, whatever it stores
// in. An implementation's own test calls [Run].
package storetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/memory"
)

// Store is what the suite needs of an implementation.
type Store interface {
	InsertEvents(ctx context.Context, evs []events.Event) error
	StoredEventIDs(ctx context.Context, keys []memory.TaskKey) (map[memory.TaskKey]map[string]struct{}, error)
	Touched(ctx context.Context, since time.Time) (now time.Time, touched []memory.Touch, err error)
	TaskEvents(ctx context.Context, keys []memory.TaskKey) (map[memory.TaskKey][]memory.StoredEvent, error)
	InsertTasks(ctx context.Context, tasks []memory.Task) error
	TaskStates(ctx context.Context, keys []memory.TaskKey) (map[memory.TaskKey]memory.TaskState, error)
	Task(ctx context.Context, key memory.TaskKey) (memory.Task, error)
	Tasks(ctx context.Context, filter memory.TaskFilter) iter.Seq2[memory.Task, error]
	InsertDeadLetters(ctx context.Context, letters []memory.DeadLetter) error
	DeadLetters(ctx context.Context, filter memory.DeadLetterFilter) ([]memory.DeadLetter, error)
	Event(ctx context.Context, namespace, id string) (memory.StoredEvent, error)
	Lookup(ctx context.Context, id string, namespaces ...string) ([]memory.Match, error)
	Health(ctx context.Context, namespace string) (memory.Health, error)
	CountUnknownKinds(ctx context.Context, namespace string) (map[string]int64, error)
	Query(ctx context.Context, statement, format string, w io.Writer) error
}

// Features are the differences between implementations that are allowed.
type Features struct {
	// NoFreeQueries means that Query is not possible on this connection.
	NoFreeQueries bool
}

// Run checks an implementation. newStore returns an empty store of its own for each test, with its schema in place.
func Run(t *testing.T, f Features, newStore func(*testing.T) Store) {
	tests := []struct {
		name string
		run  func(*testing.T, Store)
	}{
		{"EventsRoundTrip", eventsRoundTrip},
		{"RandomEventsRoundTrip", randomEvents},
		{"StoringAgainChangesNothing", storingAgain},
		{"ManyMonthsInOneBatch", manyMonths},
		{"NothingIsStoredWhenARowIsRejected", rejectedRow},
		{"LateEventReopensItsTask", lateEvent},
		{"TouchedCountsWhatArrived", touched},
		{"HighestRevisionCounts", revisions},
		{"TasksAreFilteredAndOrdered", taskFilters},
		{"TasksWithoutEventsKeepTheirState", stateWithoutEvents},
		{"NamespacesAreApart", namespaces},
		{"OnlyTheAskedTaskOfANamespace", pairs},
		{"DeadLettersRoundTrip", deadLetters},
		{"LookupByIDAndPrefix", lookup},
		{"HealthCountsDistinctThings", health},
		{"ArgumentsAreNotRetained", arguments},
		{"WritersDoNotDisturbEachOther", concurrency},
		{"CancelledContext", cancelled},
		{"NothingAskedNothingDone", nothing},
	}
	if !f.NoFreeQueries {
		tests = append(tests, []struct {
			name string
			run  func(*testing.T, Store)
		}{
			{"QueryFormats", queryFormats},
			{"QueryOnlyReads", queryOnlyReads},
		}...)
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t, newStore(t))
		})
	}
}

// start is when the events of the suite happen.
func start() time.Time { return time.Date(2026, 3, 1, 12, 30, 0, 125e6, time.UTC) }

func event(namespace, task, id string, kind events.Kind, after time.Duration, data string) events.Event {
	return events.Event{
		ID: id, Namespace: namespace, AgentID: "agent", SessionID: "session-" + task, TaskID: task,
		Time: start().Add(after), Kind: kind, Data: json.RawMessage(data),
	}
}

// oneTask is a finished task with a failed step, a call by the user, and a correction.
func oneTask(namespace, task string) []events.Event {
	return []events.Event{
		event(namespace, task, task+"-1", events.KindTaskStarted, 0, `{"task_type":"refund","goal":"refund it","available_tools":["look","pay"]}`),
		event(namespace, task, task+"-2", events.KindMessage, time.Second, `{"role":"user","content":"please"}`),
		event(namespace, task, task+"-3", events.KindStepFinished, 2*time.Second, `{"tool":"pay","parameters":{"amount":"x"},"status":"failure","error_type":"ValueError","error_message":"amount 12 is bad","execution_time_ms":7}`),
		event(namespace, task, task+"-4", events.KindStepFinished, 3*time.Second, `{"tool":"look","status":"failure","actor":"user"}`),
		event(namespace, task, task+"-5", events.KindStepFinished, 4*time.Second, `{"tool":"pay","parameters":{"amount":12},"status":"success","result":{"ok":true}}`),
		event(namespace, task, task+"-6", events.KindFeedback, 5*time.Second, `{"kind":"correction","comment":"numbers"}`),
		event(namespace, task, task+"-7", events.KindTaskFinished, 6*time.Second, `{"status":"success","score":0.5,"reason":"done","confirmed_by":"system"}`),
	}
}

func key(namespace, task string) memory.TaskKey {
	return memory.TaskKey{Namespace: namespace, TaskID: task}
}

func mustInsert(t *testing.T, s Store, evs ...events.Event) {
	t.Helper()
	if err := s.InsertEvents(t.Context(), evs); err != nil {
		t.Fatalf("InsertEvents: %v", err)
	}
}

// mustWrite derives the task from its events and writes its state.
func mustWrite(t *testing.T, s Store, evs []events.Event, closed bool) memory.Task {
	t.Helper()
	task := memory.BuildTask(evs, closed)
	if err := s.InsertTasks(t.Context(), []memory.Task{task}); err != nil {
		t.Fatalf("InsertTasks: %v", err)
	}
	return task
}

func mustTaskEvents(t *testing.T, s Store, keys ...memory.TaskKey) map[memory.TaskKey][]memory.StoredEvent {
	t.Helper()
	got, err := s.TaskEvents(t.Context(), keys)
	if err != nil {
		t.Fatalf("TaskEvents: %v", err)
	}
	return got
}

func mustTasks(t *testing.T, s Store, filter memory.TaskFilter) []memory.Task {
	t.Helper()
	var out []memory.Task
	for task, err := range s.Tasks(t.Context(), filter) {
		if err != nil {
			t.Fatalf("Tasks(%+v): %v", filter, err)
		}
		out = append(out, task)
	}
	return out
}

func wire(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// sameEvent compares two events byte for byte, their data as it was written and not only as it is encoded.
func sameEvent(t *testing.T, got, want events.Event) {
	t.Helper()
	if got, want := wire(t, got), wire(t, want); got != want {
		t.Errorf("event came back changed\ngot  %.400s\nwant %.400s", got, want)
	}
	if len(want.Data) > 0 && !bytes.Equal(got.Data, want.Data) {
		t.Errorf("data came back changed\ngot  %.400q\nwant %.400q", got.Data, want.Data)
	}
	if !got.Time.Equal(want.Time) || got.Time.Location() != time.UTC {
		t.Errorf("time came back as %s, want %s", got.Time, want.Time.UTC())
	}
}

func eventsRoundTrip(t *testing.T, s Store) {
	awkward := "退款 🧾 \u2028\u2029 \t\"'`\\ \x00 <b>&amp; ${x} {y:String} ? -- /* */ ; \u202e עברית é"
	text, err := json.Marshal(awkward)
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("長い結果🙂", 200_000/16)
	evs := []events.Event{
		{
			ID: "full", Namespace: "tenant.team", AgentID: awkward, SessionID: awkward, UserID: awkward, TaskID: awkward, GoalID: awkward, Seq: 1 << 60,
			Time: start(), Kind: events.KindStepFinished,
			Data:  json.RawMessage(`{ "tool":"a", "status":"failure", "step": 3, "error_message":` + string(text) + `, "execution_time_ms":9007199254740993, "new": {"deep":[1,2.50,1e400,null]}, "tool":"a" }`),
			Extra: map[string]json.RawMessage{"later": json.RawMessage(`{"a":[1,"` + "\u2028" + `"]}`), "n": json.RawMessage("null"), "": json.RawMessage(`""`), "a.b": text},
		},
		{ID: "bare", Namespace: "t", AgentID: "a", SessionID: "s", TaskID: "bare", Time: start(), Kind: events.KindMessage},
		{ID: "wrong data", Namespace: "t", AgentID: "a", SessionID: "s", TaskID: "wrong", Time: start(), Kind: events.KindStepFinished, Data: json.RawMessage(`{"tool":7,"status":[]}`)},
		{ID: "unknown kind", Namespace: "t", AgentID: "a", SessionID: "s", TaskID: "unknown", Time: start(), Kind: "dream", Data: json.RawMessage(`{"x":1}`)},
		{ID: "long", Namespace: "t", AgentID: "a", SessionID: "s", TaskID: "long", Time: start(), Kind: events.KindMessage, Data: json.RawMessage(`{"role":"user","content":"` + long + `"}`)},
		{ID: "first", Namespace: "t", AgentID: "a", SessionID: "s", TaskID: "first", Time: time.Unix(0, 0).UTC(), Kind: events.KindMessage, Data: json.RawMessage(`{}`)},
		{ID: "last", Namespace: "t", AgentID: "a", SessionID: "s", TaskID: "last", Time: time.Date(2261, 12, 31, 23, 59, 59, 999e6, time.UTC), Kind: events.KindMessage, Data: json.RawMessage(`{}`)},
		{ID: "zone", Namespace: "t", AgentID: "a", SessionID: "s", TaskID: "zone", Time: start().In(time.FixedZone("", 5*3600+1800)), Kind: events.KindMessage, Data: json.RawMessage(`{}`)},
	}
	for _, kind := range events.Kinds() {
		evs = append(evs, event("t", "kinds", "kind "+string(kind), kind, 0, `{"task_type":"x","role":"user","tool":"y","status":"success","kind":"rating","value":1}`))
	}
	mustInsert(t, s, evs...)
	var keys []memory.TaskKey
	for _, e := range evs {
		keys = append(keys, key(e.Namespace, e.TaskID))
	}
	got := mustTaskEvents(t, s, keys...)
	for _, want := range evs {
		found := false
		for _, e := range got[key(want.Namespace, want.TaskID)] {
			if e.ID != want.ID {
				continue
			}
			found = true
			sameEvent(t, e.Event, want)
			if e.RecordedAt.IsZero() || e.RecordedAt.Location() != time.UTC {
				t.Errorf("event %q was recorded at %s", e.ID, e.RecordedAt)
			}
		}
		if !found {
			t.Errorf("event %q is not there", want.ID)
		}
		one, err := s.Event(t.Context(), want.Namespace, want.ID)
		if err != nil {
			t.Errorf("Event(%q): %v", want.ID, err)
			continue
		}
		sameEvent(t, one.Event, want)
	}
}

// randomEvents stores many events of random bytes, well formed or not, in one batch: the store keeps what it is given.
func randomEvents(t *testing.T, s Store) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // Tests need no secrecy.
	const alphabet = "\x00\n\r\t\"'`\\?{}[]:,0123aé\xff\xe2\x80\xa8"
	text := func() string {
		b := make([]byte, random.IntN(24))
		for i := range b {
			b[i] = alphabet[random.IntN(len(alphabet))]
		}
		return string(b)
	}
	kinds := append(events.Kinds(), "dream")
	last := time.Date(2261, 12, 31, 0, 0, 0, 0, time.UTC).UnixMilli()
	evs := map[string]events.Event{}
	for i := range 150 {
		e := events.Event{
			ID: strconv.Itoa(i) + text(), Namespace: "t", TaskID: "task" + text(), AgentID: text(), SessionID: text(), UserID: text(), GoalID: text(),
			Seq: random.Int64() - random.Int64(), Time: time.UnixMilli(random.Int64N(last)).UTC(), Kind: kinds[random.IntN(len(kinds))],
			Data: json.RawMessage("x" + text()),
		}
		if random.IntN(2) == 0 {
			e.Extra = map[string]json.RawMessage{text(): json.RawMessage(text()), "x" + text(): json.RawMessage(text())}
		}
		evs[e.ID] = e
	}
	mustInsert(t, s, slices.Collect(maps.Values(evs))...)
	var keys []memory.TaskKey
	for _, e := range evs {
		keys = append(keys, key("t", e.TaskID))
	}
	count := 0
	for k, stored := range mustTaskEvents(t, s, keys...) {
		for _, got := range stored {
			count++
			if want := evs[got.ID]; !reflect.DeepEqual(got.Event, want) || k.TaskID != want.TaskID {
				t.Errorf("event came back changed\ngot  %+v\nwant %+v", got.Event, want)
			}
		}
	}
	if count != len(evs) {
		t.Errorf("got %d events, want %d", count, len(evs))
	}
}

func storingAgain(t *testing.T, s Store) {
	evs := oneTask("t", "a")
	letter := memory.DeadLetter{ID: "l", Namespace: "t", Reason: "invalid", Payload: []byte("x"), Time: start()}
	var before string
	for range 3 {
		mustInsert(t, s, evs...)
		mustWrite(t, s, evs, true)
		if err := s.InsertDeadLetters(t.Context(), []memory.DeadLetter{letter}); err != nil {
			t.Fatal(err)
		}
		stored := mustTaskEvents(t, s, key("t", "a"))[key("t", "a")]
		ids, err := s.StoredEventIDs(t.Context(), []memory.TaskKey{key("t", "a")})
		if err != nil {
			t.Fatal(err)
		}
		h, err := s.Health(t.Context(), "t")
		if err != nil {
			t.Fatal(err)
		}
		h.LastArrival = time.Time{}
		_, touched, err := s.Touched(t.Context(), time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range touched {
			if touched[i].UrgentAt.IsZero() {
				t.Error("the failed step does not show as urgent")
			}
			touched[i].LastRecordedAt, touched[i].UrgentAt = time.Time{}, time.Time{}
		}
		letters, err := s.DeadLetters(t.Context(), memory.DeadLetterFilter{})
		if err != nil {
			t.Fatal(err)
		}
		now := fmt.Sprint(len(stored), len(ids[key("t", "a")]), h, touched, len(letters), wire(t, mustTasks(t, s, memory.TaskFilter{})))
		if before != "" && now != before {
			t.Errorf("storing the same again changed what is read\nbefore %s\nafter  %s", before, now)
		}
		before = now
	}
	if len(mustTaskEvents(t, s, key("t", "a"))[key("t", "a")]) != len(evs) {
		t.Error("events are not there once each")
	}
}

func manyMonths(t *testing.T, s Store) {
	var evs []events.Event
	for month := range 260 {
		e := event("t", "old", fmt.Sprintf("m%d", month), events.KindMessage, 0, `{"role":"user","content":"x"}`)
		e.Time = time.Date(1990, time.Month(1+month), 1, 0, 0, 0, 0, time.UTC)
		evs = append(evs, e)
	}
	// The order in a batch must not matter.
	slices.Reverse(evs[:130])
	mustInsert(t, s, evs...)
	if got := len(mustTaskEvents(t, s, key("t", "old"))[key("t", "old")]); got != len(evs) {
		t.Errorf("got %d events of as many months, want %d", got, len(evs))
	}
}

func rejectedRow(t *testing.T, s Store) {
	good := event("t", "a", "good", events.KindMessage, 0, `{}`)
	for name, bad := range map[string]func(*events.Event){
		"before 1970":  func(e *events.Event) { e.Time = time.Unix(-1, 0) },
		"year 2262":    func(e *events.Event) { e.Time = time.Date(2262, 1, 1, 0, 0, 0, 0, time.UTC) },
		"no time":      func(e *events.Event) { e.Time = time.Time{} },
		"no id":        func(e *events.Event) { e.ID = "" },
		"no namespace": func(e *events.Event) { e.Namespace = "" },
	} {
		e := event("t", "a", "bad", events.KindMessage, 0, `{}`)
		bad(&e)
		if err := s.InsertEvents(t.Context(), []events.Event{good, e}); !errors.Is(err, memory.ErrRejected) {
			t.Errorf("%s: InsertEvents = %v, want ErrRejected", name, err)
		}
	}
	if got := mustTaskEvents(t, s, key("t", "a")); len(got) != 0 {
		t.Errorf("something of a rejected batch was stored: %v", got)
	}
	if err := s.InsertTasks(t.Context(), []memory.Task{{Namespace: "t", TaskID: "a"}}); !errors.Is(err, memory.ErrRejected) {
		t.Errorf("InsertTasks without times = %v, want ErrRejected", err)
	}
}

func lateEvent(t *testing.T, s Store) {
	evs := oneTask("t", "a")
	mustInsert(t, s, evs[:5]...)
	mustWrite(t, s, evs[:5], true)
	if got := mustTasks(t, s, memory.TaskFilter{}); len(got) != 1 || !got[0].Closed || got[0].Status != events.StatusUnknown {
		t.Fatalf("before: %+v", got)
	}
	mustInsert(t, s, evs[5:]...)
	for _, filter := range []memory.TaskFilter{{}, {OpenOnly: true}, {Status: events.StatusSuccess}} {
		got := mustTasks(t, s, filter)
		if len(got) != 1 || got[0].Closed || got[0].Events != 7 || got[0].Status != events.StatusSuccess {
			t.Errorf("%+v: an event that came late is not in its task: %+v", filter, got)
		}
	}
	want := mustWrite(t, s, evs, true)
	if got, err := s.Task(t.Context(), key("t", "a")); err != nil || wire(t, got) != wire(t, want) {
		t.Errorf("Task = %s, %v, want %s", wire(t, got), err, wire(t, want))
	}
}

func touched(t *testing.T, s Store) {
	now, got, err := s.Touched(t.Context(), time.Time{})
	if err != nil || len(got) != 0 || now.IsZero() || now.Location() != time.UTC {
		t.Fatalf("Touched of an empty store = %s, %v, %v", now, got, err)
	}
	mustInsert(t, s, oneTask("t", "a")...)
	mustInsert(t, s, oneTask("t", "a")...) // Copies do not count.
	mustInsert(t, s, event("u", "a", "x", events.KindMessage, 0, `{"role":"user"}`))
	_, got, err = s.Touched(t.Context(), now)
	if err != nil || len(got) != 2 {
		t.Fatalf("Touched = %+v, %v, want two tasks", got, err)
	}
	for _, touch := range got {
		if touch.LastRecordedAt.Before(now) {
			t.Errorf("%v was recorded at %s, before it was written", touch.Key, touch.LastRecordedAt)
		}
		want := memory.Touch{Key: touch.Key, LastRecordedAt: touch.LastRecordedAt}
		if touch.Key.Namespace == "t" {
			want.Finished, want.UrgentAt = 1, touch.LastRecordedAt // All of it was recorded at once.
		}
		if touch != want {
			t.Errorf("got %+v, want %+v", touch, want)
		}
	}
	later := got[len(got)-1].LastRecordedAt.Add(time.Millisecond)
	if _, got, err := s.Touched(t.Context(), later); err != nil || len(got) != 0 {
		t.Errorf("Touched after everything = %+v, %v", got, err)
	}
}

func revisions(t *testing.T, s Store) {
	evs := oneTask("t", "a")
	old := memory.BuildTask(evs[:3], false)
	current := memory.BuildTask(evs, true)
	// The newer state comes first: order of writing does not matter.
	for _, task := range []memory.Task{current, old} {
		if err := s.InsertTasks(t.Context(), []memory.Task{task}); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.TaskStates(t.Context(), []memory.TaskKey{key("t", "a"), key("t", "none")})
	want := memory.TaskState{Revision: 15, Closed: true, Events: 7, Errors: 1, Corrections: 1}
	if err != nil || len(got) != 1 || got[key("t", "a")] != want {
		t.Errorf("TaskStates = %+v, %v, want only %+v", got, err, want)
	}
}

func taskFilters(t *testing.T, s Store) {
	var all [][]events.Event
	for i := range 5 {
		evs := oneTask("t", fmt.Sprintf("task%d", i))
		for j := range evs {
			evs[j].Time = evs[j].Time.Add(time.Duration(i) * time.Hour)
			evs[j].GoalID = fmt.Sprintf("goal%d", i%2)
		}
		all = append(all, evs)
	}
	all[3][0].Data = json.RawMessage(`{"task_type":"cancel"}`)
	all[4][6].Data = json.RawMessage(`{"status":"failure"}`)
	for i, evs := range slices.Backward(all) {
		mustInsert(t, s, evs...)
		if i%2 == 0 {
			mustWrite(t, s, evs, true) // The others have events only.
		}
	}
	at := func(i int) time.Time { return start().Add(time.Duration(i) * time.Hour) }
	for _, test := range []struct {
		name   string
		filter memory.TaskFilter
		want   string
	}{
		{"all in order of start", memory.TaskFilter{}, "01234"},
		{"newest first", memory.TaskFilter{Newest: true}, "43210"},
		{"limit", memory.TaskFilter{Limit: 2}, "01"},
		{"newest with limit", memory.TaskFilter{Newest: true, Limit: 3}, "432"},
		{"limit after the filter", memory.TaskFilter{Status: events.StatusFailure, Limit: 1}, "4"},
		{"type", memory.TaskFilter{TaskType: "cancel"}, "3"},
		{"status", memory.TaskFilter{Status: events.StatusSuccess}, "0123"},
		{"open", memory.TaskFilter{OpenOnly: true}, "13"},
		{"session", memory.TaskFilter{SessionID: "session-task2"}, "2"},
		{"goal", memory.TaskFilter{GoalID: "goal1"}, "13"},
		{"ids", memory.TaskFilter{TaskIDs: []string{"task4", "task1", "none"}}, "14"},
		{"since", memory.TaskFilter{Since: at(3)}, "34"},
		{"since just after a start", memory.TaskFilter{Since: at(3).Add(time.Millisecond)}, "4"},
		{"until", memory.TaskFilter{Until: at(2)}, "01"},
		{"all together", memory.TaskFilter{Namespace: "t", TaskIDs: []string{"task0", "task2"}, TaskType: "refund", Status: events.StatusSuccess, GoalID: "goal0", SessionID: "session-task2", Since: at(1), Until: at(4)}, "2"},
		{"nothing", memory.TaskFilter{TaskType: "none"}, ""},
	} {
		var got strings.Builder
		for _, task := range mustTasks(t, s, test.filter) {
			got.WriteString(strings.TrimPrefix(task.TaskID, "task"))
			i := slices.IndexFunc(all, func(evs []events.Event) bool { return evs[0].TaskID == task.TaskID })
			if want := memory.BuildTask(all[i], i%2 == 0); wire(t, task) != wire(t, want) {
				t.Errorf("%s:\ngot  %s\nwant %s", test.name, wire(t, task), wire(t, want))
			}
		}
		if got.String() != test.want {
			t.Errorf("%s: got tasks %q, want %q", test.name, got.String(), test.want)
		}
	}
	if _, err := s.Task(t.Context(), key("t", "none")); !errors.Is(err, memory.ErrNotFound) {
		t.Errorf("Task of nothing = %v, want ErrNotFound", err)
	}
	for task, err := range s.Tasks(t.Context(), memory.TaskFilter{}) {
		if err != nil || task.TaskID != "task0" {
			t.Errorf("the first task is %q, %v", task.TaskID, err)
		}
		break // Whoever has seen enough may stop.
	}
}

func stateWithoutEvents(t *testing.T, s Store) {
	evs := oneTask("t", "a")
	want := mustWrite(t, s, evs, true)
	got := mustTasks(t, s, memory.TaskFilter{Status: events.StatusSuccess})
	if len(got) != 1 || got[0].Goal != want.Goal || got[0].Revision != want.Revision || !got[0].Closed || len(got[0].Steps) != 0 || *got[0].Score != 0.5 {
		t.Errorf("got %+v", got)
	}
}

func namespaces(t *testing.T, s Store) {
	for _, ns := range []string{"one", "two"} {
		evs := oneTask(ns, "same")
		evs[0].Data = json.RawMessage(`{"task_type":"` + ns + `"}`)
		mustInsert(t, s, evs...)
		mustInsert(t, s, event(ns, "same", "dream", "dream_"+events.Kind(ns), 0, `{}`))
		mustWrite(t, s, evs[:len(ns)], false)
		if err := s.InsertDeadLetters(t.Context(), []memory.DeadLetter{{ID: ns, Namespace: ns, Time: start()}}); err != nil {
			t.Fatal(err)
		}
	}
	one := key("one", "same")
	for _, got := range mustTaskEvents(t, s, one) {
		for _, e := range got {
			if e.Namespace != "one" {
				t.Errorf("TaskEvents gave an event of namespace %q", e.Namespace)
			}
		}
	}
	if got := mustTaskEvents(t, s, one); len(got) != 1 || len(got[one]) != 8 {
		t.Errorf("TaskEvents = %d tasks, %d events", len(got), len(got[one]))
	}
	if ids, err := s.StoredEventIDs(t.Context(), []memory.TaskKey{one}); err != nil || len(ids) != 1 || len(ids[one]) != 8 {
		t.Errorf("StoredEventIDs = %v, %v", ids, err)
	}
	if states, err := s.TaskStates(t.Context(), []memory.TaskKey{one}); err != nil || len(states) != 1 || states[one].Events != 3 {
		t.Errorf("TaskStates = %v, %v", states, err)
	}
	if got := mustTasks(t, s, memory.TaskFilter{Namespace: "one"}); len(got) != 1 || got[0].TaskType != "one" {
		t.Errorf("Tasks = %+v", got)
	}
	if got := mustTasks(t, s, memory.TaskFilter{}); len(got) != 2 {
		t.Errorf("Tasks of all namespaces: %d, want 2", len(got))
	}
	if task, err := s.Task(t.Context(), one); err != nil || task.TaskType != "one" {
		t.Errorf("Task = %+v, %v", task, err)
	}
	if e, err := s.Event(t.Context(), "one", "same-1"); err != nil || e.Namespace != "one" {
		t.Errorf("Event = %+v, %v", e, err)
	}
	if _, err := s.Event(t.Context(), "three", "same-1"); !errors.Is(err, memory.ErrNotFound) {
		t.Errorf("Event of another namespace = %v, want ErrNotFound", err)
	}
	if got, err := s.Lookup(t.Context(), "same", "one"); err != nil || len(got) != 1 || got[0].Namespace != "one" {
		t.Errorf("Lookup = %+v, %v", got, err)
	}
	if got, err := s.Lookup(t.Context(), "same"); err != nil || len(got) != 2 {
		t.Errorf("Lookup in all namespaces = %+v, %v", got, err)
	}
	if _, err := s.Lookup(t.Context(), "same", "three"); !errors.Is(err, memory.ErrNotFound) {
		t.Errorf("Lookup in another namespace = %v, want ErrNotFound", err)
	}
	if h, err := s.Health(t.Context(), "one"); err != nil || h.Events != 8 || h.TasksOpen != 1 || h.UnknownKinds != 1 || h.DeadLetters != 1 {
		t.Errorf("Health = %+v, %v", h, err)
	}
	if kinds, err := s.CountUnknownKinds(t.Context(), "one"); err != nil || !maps.Equal(kinds, map[string]int64{"dream_one": 1}) {
		t.Errorf("CountUnknownKinds = %v, %v", kinds, err)
	}
	if letters, err := s.DeadLetters(t.Context(), memory.DeadLetterFilter{Namespace: "one"}); err != nil || len(letters) != 1 || letters[0].ID != "one" {
		t.Errorf("DeadLetters = %+v, %v", letters, err)
	}
}

// pairs asks for (one, x) and (two, y): neither (one, y) nor (two, x) may come.
func pairs(t *testing.T, s Store) {
	for _, ns := range []string{"one", "two"} {
		for _, task := range []string{"x", "y"} {
			mustInsert(t, s, oneTask(ns, task)...)
			mustWrite(t, s, oneTask(ns, task), false)
		}
	}
	keys := []memory.TaskKey{key("one", "x"), key("two", "y")}
	got := mustTaskEvents(t, s, keys...)
	ids, err := s.StoredEventIDs(t.Context(), keys)
	if err != nil {
		t.Fatal(err)
	}
	states, err := s.TaskStates(t.Context(), keys)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range []memory.TaskKey{key("one", "y"), key("two", "x")} {
		_, inIDs := ids[k]
		_, inStates := states[k]
		if len(got[k]) > 0 || inIDs || inStates {
			t.Errorf("%v was not asked for", k)
		}
	}
	if len(got) != 2 || len(ids) != 2 || len(states) != 2 {
		t.Errorf("got %d, %d and %d tasks, want 2 each", len(got), len(ids), len(states))
	}
}

func deadLetters(t *testing.T, s Store) {
	letters := []memory.DeadLetter{
		{ID: "old", OriginStream: "TRACES", Subject: "a.b", Reason: "malformed", Error: "not JSON 退", Payload: []byte{0, 1, 0xff, '"'}, Attempts: 5, Time: start()},
		{ID: "new", Namespace: "t", OriginStream: "TRACES", Subject: "a.c", Reason: "invalid", Payload: []byte{}, Time: start().Add(time.Hour)},
	}
	if err := s.InsertDeadLetters(t.Context(), letters); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		filter memory.DeadLetterFilter
		want   []string
	}{
		{memory.DeadLetterFilter{}, []string{"new", "old"}},
		{memory.DeadLetterFilter{Limit: 1}, []string{"new"}},
		{memory.DeadLetterFilter{Reason: "malformed"}, []string{"old"}},
		{memory.DeadLetterFilter{IDs: []string{"old", "none"}}, []string{"old"}},
		{memory.DeadLetterFilter{Since: start().Add(time.Minute)}, []string{"new"}},
		{memory.DeadLetterFilter{Namespace: "t"}, []string{"new"}},
	} {
		got, err := s.DeadLetters(t.Context(), test.filter)
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, l := range got {
			ids = append(ids, l.ID)
			i := slices.IndexFunc(letters, func(w memory.DeadLetter) bool { return w.ID == l.ID })
			if wire(t, l) != wire(t, letters[i]) {
				t.Errorf("got %s, want %s", wire(t, l), wire(t, letters[i]))
			}
		}
		if !slices.Equal(ids, test.want) {
			t.Errorf("%+v: got %v, want %v", test.filter, ids, test.want)
		}
	}
	if err := s.InsertDeadLetters(t.Context(), []memory.DeadLetter{{Time: start()}}); !errors.Is(err, memory.ErrRejected) {
		t.Errorf("a letter without id = %v, want ErrRejected", err)
	}
}

func lookup(t *testing.T, s Store) {
	mustInsert(t, s, oneTask("t", "0123456789ab")...)
	mustInsert(t, s, oneTask("t", "0123456799cd")...)
	for _, test := range []struct {
		id   string
		want []memory.MatchKind
	}{
		{"0123456789ab", []memory.MatchKind{memory.MatchTask}},
		{"0123456789ab-3", []memory.MatchKind{memory.MatchEvent}},
		{"0123456789ab-", slices.Repeat([]memory.MatchKind{memory.MatchEvent}, 7)},
		{"01234567", append(slices.Repeat([]memory.MatchKind{memory.MatchTask}, 2), slices.Repeat([]memory.MatchKind{memory.MatchEvent}, 14)...)},
		{"0123456", nil},
		{"%", nil},
		{"________", nil},
	} {
		got, err := s.Lookup(t.Context(), test.id)
		if test.want == nil && !errors.Is(err, memory.ErrNotFound) || test.want != nil && err != nil {
			t.Errorf("Lookup(%q) = %v", test.id, err)
		}
		var kinds []memory.MatchKind
		for _, m := range got {
			kinds = append(kinds, m.Kind)
			if m.Namespace != "t" || m.TaskID == "" || m.Time.Before(start()) {
				t.Errorf("Lookup(%q) gave %+v", test.id, m)
			}
		}
		if !slices.Equal(kinds, test.want) {
			t.Errorf("Lookup(%q) = %v, want %v", test.id, kinds, test.want)
		}
	}
}

func health(t *testing.T, s Store) {
	if h, err := s.Health(t.Context(), ""); err != nil || h != (memory.Health{}) {
		t.Fatalf("Health of an empty store = %+v, %v", h, err)
	}
	for i := range 3 {
		evs := oneTask("t", fmt.Sprintf("task%d", i))
		mustInsert(t, s, evs...)
		mustInsert(t, s, evs...)
		mustWrite(t, s, evs[:6], i == 0)
		if i > 0 {
			mustWrite(t, s, evs, i == 1)
		}
	}
	mustInsert(t, s, event("t", "task0", "odd", "dream", 0, `{}`), event("u", "task0", "odd", "vision", 0, `{}`))
	h, err := s.Health(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if age := time.Since(h.LastArrival); age < -time.Hour || age > time.Hour {
		t.Errorf("last arrival %s", h.LastArrival)
	}
	h.LastArrival = time.Time{}
	if want := (memory.Health{Events: 23, TasksOpen: 2, TasksClosed: 2, UnknownKinds: 2}); h != want {
		t.Errorf("Health = %+v, want %+v", h, want)
	}
	if kinds, err := s.CountUnknownKinds(t.Context(), ""); err != nil || !maps.Equal(kinds, map[string]int64{"dream": 1, "vision": 1}) {
		t.Errorf("CountUnknownKinds = %v, %v", kinds, err)
	}
}

func arguments(t *testing.T, s Store) {
	e := event("t", "a", "x", events.KindMessage, 0, `{"role":"user","content":"abc"}`)
	e.Extra = map[string]json.RawMessage{"f": json.RawMessage(`"abc"`)}
	want := wire(t, e)
	evs := []events.Event{e}
	task := memory.BuildTask(oneTask("t", "b"), true)
	wantTask := task.Goal
	tasks := []memory.Task{task}
	letters := []memory.DeadLetter{{ID: "l", Payload: []byte("abc"), Time: start()}}
	mustInsert(t, s, evs...)
	if err := errors.Join(s.InsertTasks(t.Context(), tasks), s.InsertDeadLetters(t.Context(), letters)); err != nil {
		t.Fatal(err)
	}
	copy(evs[0].Data, `{"role":"xxxx","content":"xxx"}`)
	evs[0].Extra["f"] = json.RawMessage(`"x"`)
	tasks[0].AvailableTools[0], tasks[0].Goal = "changed", "changed"
	copy(letters[0].Payload, "xxx")
	first := mustTaskEvents(t, s, key("t", "a"))[key("t", "a")]
	if got := wire(t, first[0].Event); got != want {
		t.Errorf("the event changed with the argument: %s", got)
	}
	if got := mustTasks(t, s, memory.TaskFilter{TaskIDs: []string{"b"}}); len(got) != 1 || got[0].Goal != wantTask || got[0].AvailableTools[0] != "look" {
		t.Errorf("the task changed with the argument: %+v", got)
	}
	if got, err := s.DeadLetters(t.Context(), memory.DeadLetterFilter{}); err != nil || string(got[0].Payload) != "abc" {
		t.Errorf("the letter changed with the argument: %+v, %v", got, err)
	}
	// What was read is the reader's own as well.
	copy(first[0].Data, `{"role":"xxxx"`)
	if got := wire(t, mustTaskEvents(t, s, key("t", "a"))[key("t", "a")][0].Event); got != want {
		t.Errorf("the event changed with an earlier result: %s", got)
	}
}

func concurrency(t *testing.T, s Store) {
	const writers, rounds = 4, 3
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			for r := range rounds {
				// Each event is written by two writers at about the same time.
				evs := oneTask("t", fmt.Sprintf("task%d-%d", w/2, r))
				if err := s.InsertEvents(t.Context(), evs); err != nil {
					t.Error(err)
				}
				if err := s.InsertTasks(t.Context(), []memory.Task{memory.BuildTask(evs, true)}); err != nil {
					t.Error(err)
				}
				for _, err := range s.Tasks(t.Context(), memory.TaskFilter{Limit: 2}) {
					if err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	group.Wait()
	got := mustTasks(t, s, memory.TaskFilter{})
	if len(got) != writers/2*rounds {
		t.Errorf("got %d tasks, want %d", len(got), writers/2*rounds)
	}
	for _, task := range got {
		if task.Events != 7 || !task.Closed {
			t.Errorf("task %s has %d events, closed %v", task.TaskID, task.Events, task.Closed)
		}
	}
}

func cancelled(t *testing.T, s Store) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	keys := []memory.TaskKey{key("t", "a")}
	calls := map[string]func() error{
		"InsertEvents": func() error { return s.InsertEvents(ctx, oneTask("t", "a")) },
		"InsertTasks":  func() error { return s.InsertTasks(ctx, []memory.Task{memory.BuildTask(oneTask("t", "a"), true)}) },
		"InsertDeadLetters": func() error {
			return s.InsertDeadLetters(ctx, []memory.DeadLetter{{ID: "l", Time: start()}})
		},
		"StoredEventIDs": func() error { _, err := s.StoredEventIDs(ctx, keys); return err },
		"Touched":        func() error { _, _, err := s.Touched(ctx, time.Time{}); return err },
		"TaskEvents":     func() error { _, err := s.TaskEvents(ctx, keys); return err },
		"TaskStates":     func() error { _, err := s.TaskStates(ctx, keys); return err },
		"Task":           func() error { _, err := s.Task(ctx, keys[0]); return err },
		"Tasks": func() error {
			for _, err := range s.Tasks(ctx, memory.TaskFilter{}) {
				if err != nil {
					return err
				}
			}
			return nil
		},
		"DeadLetters": func() error { _, err := s.DeadLetters(ctx, memory.DeadLetterFilter{}); return err },
		"Event":       func() error { _, err := s.Event(ctx, "t", "x"); return err },
		"Lookup":      func() error { _, err := s.Lookup(ctx, "x"); return err },
		"Health":      func() error { _, err := s.Health(ctx, ""); return err },
	}
	for name, call := range calls {
		// It is the caller who gave up: the store is not unavailable, and nothing was rejected or missing.
		if err := call(); !errors.Is(err, context.Canceled) || errors.Is(err, memory.ErrUnavailable) || errors.Is(err, memory.ErrRejected) || errors.Is(err, memory.ErrNotFound) {
			t.Errorf("%s with a cancelled context = %v, want context.Canceled", name, err)
		}
	}
	if got := mustTaskEvents(t, s, keys...); len(got) != 0 {
		t.Errorf("a cancelled call stored something: %v", got)
	}
}

func nothing(t *testing.T, s Store) {
	if err := errors.Join(s.InsertEvents(t.Context(), nil), s.InsertTasks(t.Context(), nil), s.InsertDeadLetters(t.Context(), nil)); err != nil {
		t.Errorf("inserting nothing: %v", err)
	}
	if got := mustTaskEvents(t, s); len(got) != 0 {
		t.Errorf("TaskEvents of nothing = %v", got)
	}
	if got := mustTasks(t, s, memory.TaskFilter{}); len(got) != 0 {
		t.Errorf("Tasks of an empty store = %v", got)
	}
}

func queryFormats(t *testing.T, s Store) {
	for _, test := range []struct{ statement, format, want string }{
		{"SELECT 1 AS a, 'x,\"y' AS b", "CSV", "1,\"x,\"\"y\"\n"},
		{"SELECT 1 AS a, '退' AS b;\n", "JSONEachRow", "{\"a\":1,\"b\":\"退\"}\n"},
		{"SELECT 1 AS a FORMAT TSVWithNames", "CSV", "a\n1\n"},
		{"SELECT '?' || '\\'' AS a -- what?\n", "TSVRaw", "?'\n"},
		{"SELECT count() FROM trace_events", "TSV", "0\n"},
		{"SELECT sum(number) FROM numbers(10) SETTINGS max_threads = 1", "TSV", "45\n"},
	} {
		var out bytes.Buffer
		if err := s.Query(t.Context(), test.statement, test.format, &out); err != nil || out.String() != test.want {
			t.Errorf("Query(%q, %s) = %q, %v, want %q", test.statement, test.format, out.String(), err, test.want)
		}
	}
	var out bytes.Buffer
	if err := s.Query(t.Context(), "SELECT 1 AS answer", "", &out); err != nil || !strings.Contains(out.String(), "answer") {
		t.Errorf("Query in the default format = %q, %v", out.String(), err)
	}
	for statement, word := range map[string]string{
		"SELECT nonsense": "nonsense",
		"SELECT throwIf(number = 3, 'odd error') FROM numbers(10)": "odd error",
		"SELEC 1": "SELEC",
		"":        "empty",
	} {
		out.Reset()
		err := s.Query(t.Context(), statement, "CSV", &out)
		if err == nil || !strings.Contains(err.Error(), word) || out.Len() > 0 {
			t.Errorf("Query(%q) = %q, %v, want an error with %q", statement, out.String(), err, word)
		}
		if errors.Is(err, memory.ErrUnavailable) {
			t.Errorf("Query(%q): %v says that the store is unavailable", statement, err)
		}
	}
	if err := s.Query(t.Context(), "SELECT 1", "CSV", failingWriter{}); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("Query to a writer that fails = %v, want its error", err)
	}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

func queryOnlyReads(t *testing.T, s Store) {
	mustInsert(t, s, oneTask("t", "a")...)
	for _, statement := range []string{
		"INSERT INTO trace_events (namespace) VALUES ('x')",
		"ALTER TABLE trace_events DELETE WHERE true",
		"DELETE FROM trace_events WHERE true",
		"TRUNCATE TABLE trace_events",
		"DROP TABLE trace_events",
		"CREATE TABLE x (a Int8) ENGINE = Memory",
		"OPTIMIZE TABLE trace_events",
		"SYSTEM FLUSH LOGS",
		"SET readonly = 0",
		"SELECT 1 SETTINGS readonly = 0",
	} {
		if err := s.Query(t.Context(), statement, "CSV", io.Discard); err == nil {
			t.Errorf("Query(%q) was let through", statement)
		}
	}
	if got := mustTaskEvents(t, s, key("t", "a"))[key("t", "a")]; len(got) != 7 {
		t.Errorf("%d events are left of 7", len(got))
	}
}
