package ingest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/ingest"
	"github.com/hindsight-memory/hindsight/internal/memory"
)

// show is a live view that remembers what it was shown.
type show struct {
	mu    sync.Mutex
	seen  []string
	fails error
}

func (s *show) Show(subject string, data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, subject+" "+string(data))
	return s.fails
}

// metric sums a metric's samples whose labels have all the given values.
func metric(t *testing.T, registry *prometheus.Registry, name string, labels ...string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			var values []string
			for _, pair := range m.GetLabel() {
				values = append(values, pair.GetValue())
			}
			if !slices.ContainsFunc(labels, func(l string) bool { return !slices.Contains(values, l) }) {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

func newIngestor(t *testing.T, opts ingest.IngestorOptions) (*ingest.Ingestor, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewRegistry()
	opts.Registerer, opts.Logger = registry, logger(t)
	i, err := ingest.NewIngestor(opts)
	if err != nil {
		t.Fatal(err)
	}
	return i, registry
}

// deliver publishes an event as a producer does that sends what it has.
func deliver(t *testing.T, e events.Event) ingest.Delivery {
	t.Helper()
	raw, err := e.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	return ingest.Delivery{Subject: events.Subject(e.Namespace, e.Kind), Data: raw}
}

func deliverAll(t *testing.T, evs ...events.Event) []ingest.Delivery {
	t.Helper()
	out := make([]ingest.Delivery, len(evs))
	for i, e := range evs {
		out[i] = deliver(t, e)
	}
	return out
}

// ids lists the events of a task that are stored.
func ids(t *testing.T, r *record, task string) []string {
	t.Helper()
	key := memory.TaskKey{Namespace: "acme.support", TaskID: task}
	stored, err := r.StoredEventIDs(t.Context(), []memory.TaskKey{key})
	if err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(stored[key]))
}

func TestABatchIsStored(t *testing.T) {
	t.Parallel()
	r, live := newRecord(t), &show{}
	i, registry := newIngestor(t, ingest.IngestorOptions{Writer: r, Live: live})
	evs := []events.Event{
		started("a"), event("a", "m", 1, events.KindMessage, `{"role":"user","content":"a < b & c"}`), step("a", 2, events.StatusFailure),
		event("a", "f", 3, events.KindFeedback, `{"kind":"correction"}`), event("a", "r", 4, events.KindRecallServed, `{"items":[{"id":"s"}]}`),
		event("a", "w", 5, events.KindItemWritten, `{}`), event("a", "c", 6, events.KindItemChanged, `{}`), finished("a"),
	}
	evs[1].Extra = map[string]json.RawMessage{"later": json.RawMessage(`{"x":[1]}`)}
	batch := deliverAll(t, evs...)
	for n, err := range i.Handle(t.Context(), batch) {
		if err != nil {
			t.Errorf("verdict on %s: %v", evs[n].ID, err)
		}
	}
	key := memory.TaskKey{Namespace: "acme.support", TaskID: "a"}
	stored, err := r.TaskEvents(t.Context(), []memory.TaskKey{key})
	if err != nil {
		t.Fatal(err)
	}
	if got := memory.Envelopes(stored[key]); !reflect.DeepEqual(got, evs) {
		t.Errorf("stored %+v\nwant   %+v", got, evs)
	}
	want := make([]string, len(evs))
	for n, d := range batch {
		want[n] = events.LiveSubject(evs[n].Namespace, evs[n].Kind) + " " + string(d.Data)
	}
	if !slices.Equal(live.seen, want) {
		t.Errorf("live view saw %q\nwant %q", live.seen, want)
	}
	for _, kind := range events.Kinds() {
		if got := metric(t, registry, "hindsight_ingest_events_total", string(kind)); got != 1 {
			t.Errorf("%v events of kind %s counted, want 1", got, kind)
		}
	}
	if got := metric(t, registry, "hindsight_ingest_unknown_kinds_total"); got != 0 {
		t.Errorf("%v unknown kinds counted", got)
	}
}

func TestAnEmptyBatch(t *testing.T) {
	t.Parallel()
	i, _ := newIngestor(t, ingest.IngestorOptions{Writer: newRecord(t)})
	if got := i.Handle(t.Context(), nil); len(got) != 0 {
		t.Errorf("verdicts %v", got)
	}
}

// oversized is an event that stays over the limit after its texts were cut.
func oversized(task string) events.Event {
	parts := make([]string, 20)
	for n := range parts {
		parts[n] = fmt.Sprintf(`"part%d":%q`, n, strings.Repeat("x", 60_000))
	}
	return event(task, "big", 1, events.KindStepFinished, `{"tool":"read","status":"success",`+strings.Join(parts, ",")+`}`)
}

func TestRejectedMessagesTakeNoNeighbourAlong(t *testing.T) {
	t.Parallel()
	r, live := newRecord(t), &show{}
	i, registry := newIngestor(t, ingest.IngestorOptions{Writer: r, Live: live})
	good := deliver(t, started("a"))
	change := func(change func(e *events.Event)) ingest.Delivery {
		e := step("a", 1, events.StatusSuccess)
		change(&e)
		return deliver(t, e)
	}
	on := func(subject string) ingest.Delivery {
		d := deliver(t, step("a", 1, events.StatusSuccess))
		d.Subject = subject
		return d
	}
	future := time.Now().Add(25 * time.Hour)
	batch := []struct {
		name   string
		d      ingest.Delivery
		reason string // empty: it is stored
		is     error
	}{
		{"good", good, "", nil},
		{"no JSON", ingest.Delivery{Subject: good.Subject, Data: []byte("not json")}, "malformed", events.ErrMalformed},
		{"nothing", ingest.Delivery{Subject: good.Subject}, "malformed", events.ErrMalformed},
		{"a list", ingest.Delivery{Subject: good.Subject, Data: []byte("[]")}, "malformed", events.ErrMalformed},
		{"no time", ingest.Delivery{Subject: good.Subject, Data: []byte(`{"time":"yesterday"}`)}, "malformed", events.ErrMalformed},
		{"half a CloudEvent", ingest.Delivery{Subject: good.Subject, Header: map[string][]string{"ce-id": {"1"}}, Data: []byte("{}")}, "malformed", events.ErrMalformed},
		{"no task", change(func(e *events.Event) { e.TaskID = "" }), "invalid", events.ErrInvalid},
		{"no agent", change(func(e *events.Event) { e.AgentID = "" }), "invalid", events.ErrInvalid},
		{"bad status", change(func(e *events.Event) { e.Data = json.RawMessage(`{"tool":"a","status":"maybe"}`) }), "invalid", events.ErrInvalid},
		{"bad namespace", change(func(e *events.Event) { e.Namespace = "Acme" }), "invalid", events.ErrInvalid},
		{"far future", change(func(e *events.Event) { e.Time = future }), "invalid", events.ErrInvalid},
		{"before 1970", change(func(e *events.Event) { e.Time = time.Unix(-1, 0) }), "invalid", events.ErrInvalid},
		{"too large", deliver(t, oversized("a")), "too_large", events.ErrTooLarge},
		{"another namespace", on(events.Subject("other.support", events.KindStepFinished)), "subject_mismatch", events.ErrSubject},
		{"another team", on(events.Subject("acme", events.KindStepFinished)), "subject_mismatch", events.ErrSubject},
		{"another kind", on(events.Subject("acme.support", events.KindMessage)), "subject_mismatch", events.ErrSubject},
		{"no subject of events", on("hindsight.v1.trace.acme"), "subject_mismatch", events.ErrSubject},
		{"good again", deliver(t, step("a", 2, events.StatusSuccess)), "", nil},
	}
	deliveries := make([]ingest.Delivery, len(batch))
	for n, b := range batch {
		deliveries[n] = b.d
	}
	reasons := map[string]float64{}
	for n, err := range i.Handle(t.Context(), deliveries) {
		b := batch[n]
		if b.reason == "" {
			if err != nil {
				t.Errorf("%s: %v", b.name, err)
			}
			continue
		}
		reasons[b.reason]++
		rejection := (*ingest.Rejection)(nil)
		if !errors.As(err, &rejection) || rejection.Reason != b.reason || !errors.Is(err, b.is) || !strings.HasPrefix(err.Error(), b.reason+": ") {
			t.Errorf("%s: %v, want a rejection as %s", b.name, err, b.reason)
		}
	}
	if got, want := ids(t, r, "a"), []string{"a/start", "a/step2"}; !slices.Equal(got, want) {
		t.Errorf("stored %q, want %q", got, want)
	}
	if len(live.seen) != 2 {
		t.Errorf("live view saw %q", live.seen)
	}
	for reason, want := range reasons {
		if got := metric(t, registry, "hindsight_ingest_rejected_total", reason); got != want {
			t.Errorf("%v rejections counted as %s, want %v", got, reason, want)
		}
	}
	if health, err := r.Health(t.Context(), ""); err != nil || health.Events != 2 {
		t.Errorf("the record holds %+v, %v; want 2 events", health, err)
	}
}

// TestWhatHasNoIDOrTimeIsNotMadeUp protects redelivery: what is filled in here would be something else each time.
func TestWhatHasNoIDOrTimeIsNotMadeUp(t *testing.T) {
	t.Parallel()
	r := newRecord(t)
	i, _ := newIngestor(t, ingest.IngestorOptions{Writer: r})
	const rest = `"namespace":"acme.support","agent_id":"a","session_id":"s","task_id":"a","kind":"message","data":{"role":"user","content":"c"}}`
	for _, missing := range []string{`{"id":"1",`, `{"time":"2026-01-31T12:00:00Z",`, `{"id":"","time":"2026-01-31T12:00:00Z",`, `{"id":"1","time":"",`} {
		d := ingest.Delivery{Subject: events.Subject("acme.support", events.KindMessage), Data: []byte(missing + rest)}
		rejection := (*ingest.Rejection)(nil)
		if err := i.Handle(t.Context(), []ingest.Delivery{d})[0]; !errors.As(err, &rejection) || rejection.Reason != "invalid" {
			t.Errorf("%s…: %v, want a rejection as invalid", missing, err)
		}
	}
	if got := ids(t, r, "a"); len(got) != 0 {
		t.Errorf("stored %q", got)
	}
}

// TestOneRowThatTheStoreRejects passes every check of events, but not the store's: it stops at the year 2261.
func TestOneRowThatTheStoreRejects(t *testing.T) {
	t.Parallel()
	r := newRecord(t)
	now := func() time.Time { return time.Date(2290, 1, 1, 0, 0, 0, 0, time.UTC) }
	i, registry := newIngestor(t, ingest.IngestorOptions{Writer: r, Now: now})
	for _, bad := range []int{0, 57, 99} {
		task := fmt.Sprint("task", bad)
		var evs []events.Event
		for n := range 100 {
			evs = append(evs, step(task, n, events.StatusSuccess))
		}
		evs[bad].Time = time.Date(2285, 1, 1, 0, 0, 0, 0, time.UTC)
		for n, err := range i.Handle(t.Context(), deliverAll(t, evs...)) {
			rejection := (*ingest.Rejection)(nil)
			if n != bad && err != nil {
				t.Errorf("row %d of the batch with bad row %d: %v", n, bad, err)
			} else if n == bad && (!errors.As(err, &rejection) || rejection.Reason != "rejected_by_store" || !errors.Is(err, memory.ErrRejected)) {
				t.Errorf("bad row %d: %v, want a rejection by the store", bad, err)
			}
		}
		if got := ids(t, r, task); len(got) != 99 || slices.Contains(got, evs[bad].ID) {
			t.Errorf("bad row %d: %d rows stored, want the 99 others", bad, len(got))
		}
	}
	if got := metric(t, registry, "hindsight_ingest_events_total"); got != 297 {
		t.Errorf("%v events counted as stored, want 297", got)
	}
}

func TestNothingIsLostWhileTheStoreIsAway(t *testing.T) {
	t.Parallel()
	r, live := newRecord(t), &show{}
	batch := append(deliverAll(t, started("a"), step("a", 1, events.StatusSuccess)), ingest.Delivery{Data: []byte("not json")})
	away, registry := newIngestor(t, ingest.IngestorOptions{Writer: openStore(t, "http://127.0.0.1:1", "away"), Live: live})
	rejection := (*ingest.Rejection)(nil)
	for n, err := range away.Handle(t.Context(), batch) {
		if n == 2 && !errors.As(err, &rejection) {
			t.Errorf("what can never be stored: %v, want a rejection all the same", err)
		}
		if n < 2 && (!errors.Is(err, memory.ErrUnavailable) || errors.As(err, &rejection)) {
			t.Errorf("event %d: %v, want ErrUnavailable", n, err)
		}
	}
	if got := metric(t, registry, "hindsight_ingest_events_total", "task_started"); got != 0 || len(live.seen) != 0 {
		t.Errorf("%v counted as stored, live view saw %q", got, live.seen)
	}
	back, _ := newIngestor(t, ingest.IngestorOptions{Writer: r})
	for n, err := range back.Handle(t.Context(), batch)[:2] {
		if err != nil {
			t.Errorf("event %d, delivered again: %v", n, err)
		}
	}
	if got := ids(t, r, "a"); len(got) != 2 {
		t.Errorf("stored %q", got)
	}
}

// writer stands for a record in a state that a real one can't be brought into on demand.
type writer func(ctx context.Context, evs []events.Event) error

func (w writer) InsertEvents(ctx context.Context, evs []events.Event) error { return w(ctx, evs) }

// steps makes a batch of n deliveries.
func steps(t *testing.T, n int) []ingest.Delivery {
	t.Helper()
	evs := make([]events.Event, n)
	for i := range evs {
		evs[i] = step("a", i, events.StatusSuccess)
	}
	return deliverAll(t, evs...)
}

// TestATableThatTakesNoRowIsToBlameItself: what fails for every row says nothing about any of them.
func TestATableThatTakesNoRowIsToBlameItself(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		rows     int
		good     string // the id of the one event that is taken
		rejected int
	}{
		{rows: 20, rejected: 20},
		{rows: 21},
		{rows: 100},
		{rows: 100, good: "a/step0", rejected: 99},
		{rows: 100, good: "a/step99", rejected: 99},
	} {
		t.Run(fmt.Sprintf("%d rows of which %q is good", test.rows, test.good), func(t *testing.T) {
			t.Parallel()
			i, registry := newIngestor(t, ingest.IngestorOptions{Writer: writer(func(_ context.Context, evs []events.Event) error {
				if len(evs) == 1 && evs[0].ID == test.good {
					return nil
				}
				return fmt.Errorf("%w: type mismatch", memory.ErrRejected)
			})})
			rejected := 0
			for n, err := range i.Handle(t.Context(), steps(t, test.rows)) {
				rejection := (*ingest.Rejection)(nil)
				switch {
				case errors.As(err, &rejection):
					rejected++
				case fmt.Sprint("a/step", n) == test.good:
					if err != nil {
						t.Errorf("the good row: %v", err)
					}
				case !errors.Is(err, memory.ErrUnavailable) || errors.Is(err, memory.ErrRejected):
					t.Errorf("row %d: %v, want ErrUnavailable or a rejection", n, err)
				}
			}
			if rejected != test.rejected {
				t.Errorf("%d rows rejected, want %d", rejected, test.rejected)
			}
			if got := metric(t, registry, "hindsight_ingest_rejected_total"); got != float64(test.rejected) {
				t.Errorf("%v rejections counted, want %d", got, test.rejected)
			}
		})
	}
}

// TestABatchThatTakesTooLongIsHalved: written whole again it would take as long again.
func TestABatchThatTakesTooLongIsHalved(t *testing.T) {
	t.Parallel()
	var sizes []int
	i, registry := newIngestor(t, ingest.IngestorOptions{InsertTimeout: 50 * time.Millisecond, Writer: writer(
		func(ctx context.Context, evs []events.Event) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			sizes = append(sizes, len(evs))
			if len(evs) > 3 {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})})
	for n, err := range i.Handle(t.Context(), steps(t, 10)) {
		if err != nil {
			t.Errorf("row %d: %v", n, err)
		}
	}
	if want := []int{10, 5, 2, 3, 5, 2, 3}; !slices.Equal(sizes, want) {
		t.Errorf("inserts of %v rows, want %v", sizes, want)
	}
	if got := metric(t, registry, "hindsight_ingest_events_total"); got != 10 {
		t.Errorf("%v events counted as stored, want 10", got)
	}
}

// TestAStoreThatHangsIsNotAskedRowByRow: when one row alone takes too long, the size of the batch is not the reason.
func TestAStoreThatHangsIsNotAskedRowByRow(t *testing.T) {
	t.Parallel()
	calls := 0
	i, _ := newIngestor(t, ingest.IngestorOptions{InsertTimeout: time.Millisecond, Writer: writer(
		func(ctx context.Context, _ []events.Event) error {
			calls++
			<-ctx.Done()
			return ctx.Err()
		})})
	rejection := (*ingest.Rejection)(nil)
	for n, err := range i.Handle(t.Context(), steps(t, 64)) {
		if !errors.Is(err, context.DeadlineExceeded) || errors.As(err, &rejection) {
			t.Errorf("row %d: %v, want the end of the time", n, err)
		}
	}
	if calls != 7 {
		t.Errorf("%d inserts, want 7: one for each halving of 64", calls)
	}
	calls = 0
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	if err := i.Handle(ctx, steps(t, 64))[0]; !errors.Is(err, context.DeadlineExceeded) || calls != 1 {
		t.Errorf("after the caller's own time was over: %v, %d inserts, want one", err, calls)
	}
}

func TestAnEndedContextIsNoRejection(t *testing.T) {
	t.Parallel()
	r := newRecord(t)
	i, _ := newIngestor(t, ingest.IngestorOptions{Writer: r})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	rejection := (*ingest.Rejection)(nil)
	if err := i.Handle(ctx, deliverAll(t, started("a")))[0]; err == nil || errors.As(err, &rejection) {
		t.Errorf("verdict %v, want an error that is no rejection", err)
	}
}

func TestRedeliveryChangesNothing(t *testing.T) {
	t.Parallel()
	r := newRecord(t)
	i, _ := newIngestor(t, ingest.IngestorOptions{Writer: r})
	key := memory.TaskKey{Namespace: "acme.support", TaskID: "a"}
	batch := deliverAll(t, started("a"), step("a", 1, events.StatusFailure), step("a", 1, events.StatusFailure), finished("a"))
	var before memory.Task
	for round := range 3 {
		if errs := slices.DeleteFunc(i.Handle(t.Context(), batch), func(err error) bool { return err == nil }); len(errs) != 0 {
			t.Fatal(errs)
		}
		task, err := r.Task(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if round == 0 {
			before = task
		}
		if !reflect.DeepEqual(task, before) || task.Events != 3 || task.Revision != 6 {
			t.Errorf("round %d: %+v, want as after the first: %+v", round, task, before)
		}
		slices.Reverse(batch)
	}
	if health, err := r.Health(t.Context(), "acme.support"); err != nil || health.Events != 3 {
		t.Errorf("the record counts %d events, %v; want 3", health.Events, err)
	}
}

func TestUnknownKindsAreStoredRawAndCounted(t *testing.T) {
	t.Parallel()
	r := newRecord(t)
	i, registry := newIngestor(t, ingest.IngestorOptions{Writer: r})
	brewed := event("a", "x", 1, "coffee_break", `{"minutes":5,"status":[],"deep":{"a":1.50}}`)
	if err := i.Handle(t.Context(), deliverAll(t, brewed))[0]; err != nil {
		t.Fatal(err)
	}
	stored, err := r.Event(t.Context(), "acme.support", brewed.ID)
	if err != nil || !reflect.DeepEqual(stored.Event, brewed) {
		t.Errorf("stored %+v, %v; want %+v", stored.Event, err, brewed)
	}
	counts, err := r.CountUnknownKinds(t.Context(), "")
	if err != nil || !maps.Equal(counts, map[string]int64{"coffee_break": 1}) {
		t.Errorf("unknown kinds %v, %v", counts, err)
	}
	if got := metric(t, registry, "hindsight_ingest_unknown_kinds_total"); got != 1 {
		t.Errorf("%v unknown kinds counted, want 1", got)
	}
	// A producer chooses the kind, so that it may not become a label.
	if got := metric(t, registry, "hindsight_ingest_events_total", "coffee_break"); got != 0 {
		t.Error("an unknown kind is a label of its own")
	}
}

func TestSecretsOfACarelessPublisherAreMasked(t *testing.T) {
	t.Parallel()
	r, live := newRecord(t), &show{}
	i, _ := newIngestor(t, ingest.IngestorOptions{Writer: r, Live: live})
	token := "ghp_" + strings.Repeat("a1B2c3", 6)
	careless := []events.Event{
		event("a", "1", 1, events.KindStepFinished, fmt.Sprintf(`{"tool":"login","status":"success","parameters":{"password":"hunter2hunter2"},"result":"token %s"}`, token)),
		event("a", "2", 2, events.KindMessage, fmt.Sprintf(`{"role":"user","content":"use %s please"}`, token)),
	}
	careless[1].Extra = map[string]json.RawMessage{"api_key": json.RawMessage(`"` + token + `"`)}
	for _, err := range i.Handle(t.Context(), deliverAll(t, careless...)) {
		if err != nil {
			t.Error(err)
		}
	}
	if got := ids(t, r, "a"); len(got) != 2 {
		t.Fatalf("stored %q", got)
	}
	rows := r.exec(t, "SELECT * FROM %s.trace_events FORMAT JSONEachRow", r.database)
	for _, secret := range []string{token, "hunter2hunter2"} {
		if strings.Contains(rows, secret) {
			t.Errorf("the record holds %q: %s", secret, rows)
		}
		if strings.Contains(strings.Join(live.seen, "\n"), secret) {
			t.Errorf("the live view was shown %q", secret)
		}
	}
	if !strings.Contains(rows, "login") || !strings.Contains(rows, "please") {
		t.Errorf("more than the secret is gone: %s", rows)
	}
}

func TestCloudEvents(t *testing.T) {
	t.Parallel()
	r := newRecord(t)
	i, _ := newIngestor(t, ingest.IngestorOptions{Writer: r})
	binary := ingest.Delivery{
		Subject: events.Subject("acme.support", events.KindStepFinished),
		Header: map[string][]string{
			"ce-specversion": {"1.0"}, "ce-id": {"7"}, "ce-source": {"/agents/1"}, "ce-type": {"dev.hindsight.step_finished"},
			"ce-time": {"2026-01-31T12:00:00Z"}, "ce-namespace": {"acme.support"}, "ce-agentid": {"agent-1"}, "ce-sessionid": {"s"},
			"ce-taskid": {"a"}, "ce-seq": {"3"}, "ce-datacontenttype": {"application/json"}, "Nats-Msg-Id": {"x"},
		},
		Data: []byte(`{"tool":"pay","status":"failure","error_type":"declined"}`),
	}
	structured := ingest.Delivery{
		Subject: events.Subject("acme.support", events.KindMessage),
		Header:  map[string][]string{"Content-Type": {"application/cloudevents+json"}},
		Data: []byte(`{"specversion":"1.0","id":"7","source":"/agents/2","type":"message","time":"2026-01-31T12:00:01Z","namespace":"acme.support",` +
			`"agentid":"agent-1","sessionid":"s","taskid":"a","data":{"role":"user","content":"hello"}}`),
	}
	for n, err := range i.Handle(t.Context(), []ingest.Delivery{binary, structured, binary}) {
		if err != nil {
			t.Errorf("delivery %d: %v", n, err)
		}
	}
	want := []string{events.CloudEventID("/agents/1", "7"), events.CloudEventID("/agents/2", "7")}
	slices.Sort(want)
	if got := ids(t, r, "a"); !slices.Equal(got, want) {
		t.Errorf("stored %q, want %q", got, want)
	}
	task, err := r.Task(t.Context(), memory.TaskKey{Namespace: "acme.support", TaskID: "a"})
	if err != nil || task.Errors != 1 || task.Goal != "hello" || task.Steps[0].ErrorType != "declined" {
		t.Errorf("task %+v, %v", task, err)
	}
}

func TestALiveViewThatFailsIsNoVerdict(t *testing.T) {
	t.Parallel()
	r := newRecord(t)
	i, registry := newIngestor(t, ingest.IngestorOptions{Writer: r, Live: &show{fails: errors.New("nobody looks")}})
	if err := i.Handle(t.Context(), deliverAll(t, started("a")))[0]; err != nil {
		t.Error(err)
	}
	if got := metric(t, registry, "hindsight_ingest_events_total"); got != 1 {
		t.Errorf("%v events counted, want 1", got)
	}
}

func TestNewIngestorChecksItsOptions(t *testing.T) {
	t.Parallel()
	complete := ingest.IngestorOptions{Writer: nowhere{}, Logger: logger(t), Registerer: prometheus.NewRegistry()}
	for name, spoil := range map[string]func(o *ingest.IngestorOptions){
		"no writer":     func(o *ingest.IngestorOptions) { o.Writer = nil },
		"no logger":     func(o *ingest.IngestorOptions) { o.Logger = nil },
		"no registerer": func(o *ingest.IngestorOptions) { o.Registerer = nil },
		"no time":       func(o *ingest.IngestorOptions) { o.InsertTimeout = -time.Second },
		"too much time": func(o *ingest.IngestorOptions) { o.InsertTimeout = time.Minute },
	} {
		o := complete
		spoil(&o)
		if _, err := ingest.NewIngestor(o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := ingest.NewIngestor(complete); err != nil {
		t.Error(err)
	}
	if _, err := ingest.NewIngestor(complete); err == nil {
		t.Error("two ingestors registered the same metrics")
	}
}

// nowhere takes every event; it stands for the record where only what is handed to it matters.
type nowhere struct{}

func (nowhere) InsertEvents(context.Context, []events.Event) error { return nil }

// FuzzHandle lets strangers publish: there is one verdict a message, and nothing passes that claims another namespace.
func FuzzHandle(f *testing.F) {
	raw, err := step("a", 1, events.StatusSuccess).MarshalJSON()
	if err != nil {
		f.Fatal(err)
	}
	subject := events.Subject("acme.support", events.KindStepFinished)
	f.Add(subject, "", raw)
	f.Add(subject, "ce-id", []byte(`{}`))
	f.Add("hindsight.v1.trace.acme.~.message", "", []byte(`{"namespace":"acme","kind":"message"}`))
	f.Add("", "content-type", []byte("\xff{"))
	f.Fuzz(func(t *testing.T, subject, header string, data []byte) {
		live := &show{}
		i, _ := newIngestor(t, ingest.IngestorOptions{Writer: nowhere{}, Live: live})
		verdicts := i.Handle(t.Context(), []ingest.Delivery{{Subject: subject, Header: map[string][]string{header: {header}}, Data: data}})
		rejection := (*ingest.Rejection)(nil)
		switch {
		case len(verdicts) != 1:
			t.Fatalf("%d verdicts", len(verdicts))
		case verdicts[0] != nil && !errors.As(verdicts[0], &rejection):
			t.Errorf("verdict %v is neither taken nor rejected", verdicts[0])
		case verdicts[0] == nil && len(live.seen) != 1:
			t.Errorf("taken and not shown: %q", live.seen)
		case verdicts[0] == nil && !strings.HasPrefix(live.seen[0], strings.Replace(subject, "hindsight.v1.trace.", "hindsight.v1.live.", 1)+" "):
			t.Errorf("came on %q and was shown as %q", subject, live.seen[0])
		}
	})
}
