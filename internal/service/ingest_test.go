package service_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/bus"
	"github.com/hindsight-memory/hindsight/internal/engine/enginetest"
	"github.com/hindsight-memory/hindsight/internal/memory"
	"github.com/hindsight-memory/hindsight/internal/service"
)

// requests reads the stream REFLECT as a reflector would find it.
func requests(t *testing.T, env map[string]string) []memory.ReflectionRequest {
	t.Helper()
	nc, err := nats.Connect(env["HINDSIGHT_NATS_URL"])
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), bus.StreamReflect)
	if err != nil {
		t.Fatal(err)
	}
	var out []memory.ReflectionRequest
	for seq := uint64(1); seq <= stream.CachedInfo().State.LastSeq; seq++ {
		raw, err := stream.GetMsg(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		var r memory.ReflectionRequest
		if err := json.Unmarshal(raw.Data, &r); err != nil {
			t.Fatal(err)
		}
		if got, want := raw.Header.Get(jetstream.MsgIDHeader), r.MessageID(); got != want {
			t.Errorf("message id %q, want %q", got, want)
		}
		if raw.Subject != bus.ReflectSubject(r.Namespace) {
			t.Errorf("request of namespace %s on %s", r.Namespace, raw.Subject)
		}
		out = append(out, r)
	}
	return out
}

// live listens to the live view.
func live(t *testing.T, env map[string]string) func() []string {
	t.Helper()
	nc, err := nats.Connect(env["HINDSIGHT_NATS_URL"])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	var mu sync.Mutex
	var seen []string
	if _, err := nc.Subscribe(events.LiveSubjects, func(m *nats.Msg) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, m.Subject)
	}); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return func() []string { mu.Lock(); defer mu.Unlock(); return slices.Clone(seen) }
}

func working(t *testing.T, conn *bus.Conn, task string) (memory.Working, bool) {
	t.Helper()
	raw, err := conn.GetWorking(t.Context(), "acme.support", task)
	if errors.Is(err, bus.ErrNotFound) {
		return memory.Working{}, false
	}
	if err != nil {
		t.Fatal(err)
	}
	var w memory.Working
	if err := json.Unmarshal(raw, &w); err != nil {
		t.Fatal(err)
	}
	return w, true
}

func TestIngestFromEndToEnd(t *testing.T) {
	t.Parallel()
	env := environment(t)
	p := open(t, env, "one")
	agent, shown := publisher(t, env), live(t, env)
	run(t, p, service.Ingest)

	publish(t, agent, started("a"), step("a", 1, events.StatusFailure))
	eventually(t, "working memory of a live task", func() bool { w, found := working(t, agent, "a"); return found && w.Step == 1 })
	if w, _ := working(t, agent, "a"); w.State != "step 1: pay failed" || w.Goal != "refund it" {
		t.Errorf("working memory %+v", w)
	}
	publish(t, agent, step("a", 2, events.StatusSuccess), finished("a"))
	key := memory.TaskKey{Namespace: "acme.support", TaskID: "a"}
	eventually(t, "the closed task", func() bool {
		states, err := p.Store.TaskStates(t.Context(), []memory.TaskKey{key})
		return err == nil && states[key].Closed
	})
	task, err := p.Store.Task(t.Context(), key)
	if err != nil || !task.Closed || task.Revision != 9 || task.Status != events.StatusSuccess || len(task.Steps) != 2 || task.Errors != 1 {
		t.Errorf("task %+v, %v", task, err)
	}
	asked := requests(t, env)
	if len(asked) == 0 || asked[len(asked)-1] != (memory.ReflectionRequest{Namespace: "acme.support", TaskID: "a", Revision: 9, Closed: true}) {
		t.Errorf("requests for reflection %+v", asked)
	}
	if asked[0].Closed {
		t.Errorf("no provisional request after the failed step: %+v", asked)
	}
	if w, found := working(t, agent, "a"); found {
		t.Errorf("the task is closed and its working memory is %+v", w)
	}
	eventually(t, "an empty stream", func() bool { return messages(t, agent, bus.StreamTraces) == 0 })
	if n := messages(t, agent, bus.StreamDeadLetter); n != 0 {
		t.Errorf("%d dead letters", n)
	}
	eventually(t, "the live view", func() bool { return len(shown()) == 4 })
	if got, want := shown()[0], events.LiveSubject("acme.support", events.KindTaskStarted); got != want {
		t.Errorf("the live view was shown %s first, want %s", got, want)
	}
}

func TestRejectedMessagesBecomeDeadLetters(t *testing.T) {
	t.Parallel()
	env := environment(t)
	p, agent := open(t, env, "one"), publisher(t, env)
	run(t, p, service.Ingest)
	spoofed := messageOf(t, step("a", 3, events.StatusSuccess))
	spoofed.Subject = events.Subject("mallory", events.KindStepFinished)
	bad := []bus.Message{
		{Subject: events.Subject("acme.support", events.KindMessage), ID: "1", Data: []byte("not json")},
		messageOf(t, event("a", "role", 1, events.KindMessage, `{"role":"robot"}`)),
		spoofed,
	}
	if _, err := agent.PublishAll(t.Context(), append(bad, messageOf(t, started("a")), messageOf(t, finished("a")))); err != nil {
		t.Fatal(err)
	}
	var rows []memory.DeadLetter
	eventually(t, "three dead letters as rows", func() bool {
		var err error
		rows, err = p.Store.DeadLetters(t.Context(), memory.DeadLetterFilter{})
		return err == nil && len(rows) == len(bad)
	})
	letters, err := agent.DeadLetters(t.Context(), bus.DeadLetterQuery{})
	if err != nil || len(letters) != len(bad) {
		t.Fatalf("%d dead letters in the stream, %v", len(letters), err)
	}
	// The namespace is that of the subject: only there does the broker check who may publish.
	want := map[string][2]string{"malformed": {"acme.support", bad[0].Subject}, "invalid": {"acme.support", bad[1].Subject}, "subject_mismatch": {"mallory", bad[2].Subject}}
	for _, row := range rows {
		if got := [2]string{row.Namespace, row.Subject}; got != want[row.Reason] || row.OriginStream != bus.StreamTraces || row.Error == "" || row.Attempts != 1 {
			t.Errorf("row %+v, want namespace and subject %q", row, want[row.Reason])
		}
		at := slices.IndexFunc(letters, func(l bus.DeadLetter) bool { return l.ID == row.ID })
		if at < 0 || string(letters[at].Payload) != string(row.Payload) || letters[at].Reason != row.Reason {
			t.Errorf("row %+v has no such letter in the stream: %+v", row, letters)
		}
	}
	eventually(t, "the task that the good neighbours make", func() bool { return health(t, p).TasksClosed == 1 })
	if h := health(t, p); h.Events != 2 || h.DeadLetters != 3 {
		t.Errorf("the record holds %+v", h)
	}
	eventually(t, "an empty stream", func() bool { return messages(t, agent, bus.StreamTraces) == 0 })
}

// TestALetterThatCantBeStoredHoldsUpNoOther: whoever may write to the stream of dead letters can put anything there.
func TestALetterThatCantBeStoredHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	env := environment(t)
	p, agent := open(t, env, "one"), publisher(t, env)
	letter := func(id, at string) bus.Message {
		return bus.Message{Subject: "hindsight.v1.deadletter.trace.acme.~.message", Data: []byte(`{}`), Header: map[string][]string{
			"Hindsight-Letter-Id": {id}, "Hindsight-Origin-Stream": {bus.StreamTraces}, "Hindsight-Origin-Subject": {"hindsight.v1.trace.acme.~.message"},
			"Hindsight-Origin-Sequence": {"1"}, "Hindsight-Reason": {"invalid"}, "Hindsight-Error": {"e"}, "Hindsight-Attempts": {"1"}, "Hindsight-Time": {at},
		}}
	}
	msgs := []bus.Message{
		letter("good", "2026-01-31T12:00:00Z"), letter("bad", "1066-10-14T09:00:00Z"),
		{Subject: "hindsight.v1.deadletter.x", Data: []byte("?")},
		letter("also good", "2026-01-31T12:00:00Z"),
	}
	if _, err := agent.PublishAll(t.Context(), msgs); err != nil {
		t.Fatal(err)
	}
	run(t, p, service.Ingest)
	eventually(t, "the two good letters", func() bool { return health(t, p).DeadLetters == 2 })
	eventually(t, "nothing to wait for", func() bool {
		stats, err := agent.Stats(t.Context())
		if err != nil {
			return false
		}
		for _, s := range stats {
			for _, c := range s.Consumers {
				if s.Stream == bus.StreamDeadLetter && (c.Pending > 0 || c.AckPending > 0) {
					return false
				}
			}
		}
		return true
	})
}

// TestAStopLosesNothing stops in the middle of the work; what was not done is done after the next start.
func TestAStopLosesNothing(t *testing.T) {
	t.Parallel()
	env := environment(t)
	env["HINDSIGHT_INGEST_BATCH"] = "20"
	agent := publisher(t, env)
	first := open(t, env, "one")
	const n = 400
	publish(t, agent, tasks("task", n)...)
	stop := run(t, first, service.Ingest)
	eventually(t, "the first rows", func() bool { return health(t, first).Events > 0 })
	stop()
	left := messages(t, agent, bus.StreamTraces)
	if h := health(t, first); h.Events+int64(left) < 3*n {
		t.Errorf("%d events stored and %d in the stream, want %d together", h.Events, left, 3*n)
	}
	t.Logf("stopped with %d of %d messages left", left, 3*n)

	second := open(t, env, "one")
	run(t, second, service.Ingest)
	eventually(t, "all tasks closed", func() bool { return health(t, second).TasksClosed == n })
	if h := health(t, second); h.Events != 3*n || h.TasksOpen != 0 || h.DeadLetters != 0 {
		t.Errorf("the record holds %+v", h)
	}
	eventually(t, "an empty stream", func() bool { return messages(t, agent, bus.StreamTraces) == 0 })
	seen := map[string]bool{}
	for _, r := range requests(t, env) {
		if seen[r.MessageID()] {
			t.Errorf("request %s twice", r.MessageID())
		}
		seen[r.MessageID()] = true
	}
	if len(seen) < n {
		t.Errorf("%d requests for %d tasks", len(seen), n)
	}
}

func TestTwoInstancesShareTheWorkAndOneSweeps(t *testing.T) {
	t.Parallel()
	env := environment(t)
	env["HINDSIGHT_INGEST_BATCH"] = "5"
	agent := publisher(t, env)
	parts := []*service.Parts{open(t, env, "one"), open(t, env, "two")}
	stops := []func(){run(t, parts[0], service.Ingest), run(t, parts[1], service.Ingest)}
	looks := func(i int) float64 { return metric(t, parts[i].Registry, "hindsight_sweep_seconds") }
	stored := func(i int) float64 { return metric(t, parts[i].Registry, "hindsight_ingest_events_total") }
	waves := 0
	eventually(t, "both store", func() bool {
		publish(t, agent, tasks(fmt.Sprint("wave", waves, "-"), 20)...)
		waves++
		return stored(0) > 0 && stored(1) > 0
	})
	eventually(t, "all closed", func() bool { return health(t, parts[0]).TasksClosed == int64(waves*20) })
	if (looks(0) > 0) == (looks(1) > 0) {
		t.Errorf("%v and %v looks: one of them has to sweep, and one only", looks(0), looks(1))
	}
	if got := stored(0) + stored(1); got != float64(waves*60) {
		t.Errorf("%v events written for %d published", got, waves*60)
	}
	leader := 0
	if looks(1) > 0 {
		leader = 1
	}
	stops[leader]()
	publish(t, agent, tasks("after-", 20)...)
	eventually(t, "the other sweeps", func() bool { return health(t, parts[0]).TasksClosed == int64(waves*20+20) })
	if looks(1-leader) == 0 {
		t.Error("the other instance has not looked, and yet tasks are closed")
	}
	closed := metric(t, parts[0].Registry, "hindsight_tasks_closed_total") + metric(t, parts[1].Registry, "hindsight_tasks_closed_total")
	if h := health(t, parts[0]); h.DeadLetters != 0 || h.TasksOpen != 0 || closed < float64(h.TasksClosed) {
		t.Errorf("the record holds %+v; %v closings counted", h, closed)
	}
}

// TestSeveralIngestorsCanFillTheirBatches however large those of this one are: all share one consumer, and what it lets
// out at once must not depend on which of them came last.
func TestSeveralIngestorsCanFillTheirBatches(t *testing.T) {
	t.Parallel()
	env := environment(t)
	env["HINDSIGHT_INGEST_BATCH"] = "10"
	run(t, open(t, env, "one"), service.Ingest)
	nc, err := nats.Connect(env["HINDSIGHT_NATS_URL"])
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	var consumer jetstream.Consumer
	eventually(t, "the ingestor's consumer", func() bool {
		consumer, err = js.Consumer(t.Context(), bus.StreamTraces, "ingestor")
		return err == nil
	})
	if got := consumer.CachedInfo().Config.MaxAckPending; got < 2*50_000 {
		t.Errorf("MaxAckPending = %d, want two of the largest batches at least", got)
	}
}

// TestTheStoreIsAwayForAWhile: nothing becomes a dead letter for it, however the store is away.
func TestTheStoreIsAwayForAWhile(t *testing.T) {
	t.Parallel()
	for name, w := range map[string]enginetest.Weather{"refuses": enginetest.Refused, "hangs": enginetest.Silent} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := environment(t)
			var between *enginetest.Proxy
			between, env["HINDSIGHT_CLICKHOUSE_URL"] = inFrontOf(t, env["HINDSIGHT_CLICKHOUSE_URL"])
			p, agent := open(t, env, "one"), publisher(t, env)
			// The real service would try less often and wait longer: five attempts that fail make a dead letter.
			run(t, p, service.IngestTraces(bus.WorkerOptions{
				MaxAttempts: 1, MinBackoff: 10 * time.Millisecond, MaxBackoff: 20 * time.Millisecond,
			}, 200*time.Millisecond))
			between.Turn(w)
			publish(t, agent, tasks("task", 20)...)
			rejected := messageOf(t, event("a", "role", 1, events.KindMessage, `{"role":"robot"}`))
			if _, err := agent.PublishAll(t.Context(), []bus.Message{rejected}); err != nil {
				t.Fatal(err)
			}
			retried := func() float64 { return metric(t, p.Registry, "hindsight_bus_retried_total") }
			eventually(t, "several attempts", func() bool { return retried() > 200 })
			between.Turn(enginetest.Fine)
			eventually(t, "everything stored", func() bool { return health(t, p).Events == 60 })
			eventually(t, "an empty stream", func() bool { return messages(t, agent, bus.StreamTraces) == 0 })
			letters, err := agent.DeadLetters(t.Context(), bus.DeadLetterQuery{})
			if err != nil || len(letters) != 1 || letters[0].Reason != "invalid" {
				t.Errorf("dead letters %+v, %v; want only the one that can never be stored", letters, err)
			}
		})
	}
}

// TestAnOutageOfTheStore is the whole service: the store goes away and comes back while events arrive.
func TestAnOutageOfTheStore(t *testing.T) {
	t.Parallel()
	env := environment(t)
	var between *enginetest.Proxy
	between, env["HINDSIGHT_CLICKHOUSE_URL"] = inFrontOf(t, env["HINDSIGHT_CLICKHOUSE_URL"])
	p, agent := open(t, env, "one"), publisher(t, env)
	run(t, p, service.Ingest)
	publish(t, agent, tasks("before-", 20)...)
	eventually(t, "tasks before", func() bool { return health(t, p).TasksClosed == 20 })
	between.Turn(enginetest.Refused)
	publish(t, agent, tasks("during-", 20)...)
	bad := bus.Message{Subject: events.Subject("acme.support", events.KindMessage), ID: "bad", Data: []byte("not json")}
	if _, err := agent.PublishAll(t.Context(), []bus.Message{bad}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a dead letter that can't be a row yet, and attempts", func() bool {
		return messages(t, agent, bus.StreamDeadLetter) == 1 && between.Attempts() > 10
	})
	between.Turn(enginetest.Fine)
	publish(t, agent, tasks("after-", 20)...)
	eventually(t, "everything there", func() bool {
		h := health(t, p)
		return h.TasksClosed == 60 && h.DeadLetters == 1
	})
	if h := health(t, p); h.Events != 180 || h.TasksOpen != 0 {
		t.Errorf("the record holds %+v", h)
	}
	eventually(t, "an empty stream", func() bool { return messages(t, agent, bus.StreamTraces) == 0 })
	if n := messages(t, agent, bus.StreamDeadLetter); n != 1 {
		t.Errorf("%d dead letters, want the one that can never be stored", n)
	}
}

// TestTheBrokerIsAwayForAWhile breaks every connection to it.
func TestTheBrokerIsAwayForAWhile(t *testing.T) {
	t.Parallel()
	env := environment(t)
	direct := publisher(t, env)
	var between *enginetest.Proxy
	between, env["HINDSIGHT_NATS_URL"] = inFrontOf(t, env["HINDSIGHT_NATS_URL"])
	p := open(t, env, "one")
	stop := run(t, p, service.Ingest)
	publish(t, direct, tasks("before-", 10)...)
	eventually(t, "tasks before", func() bool { return health(t, p).TasksClosed == 10 })
	between.Turn(enginetest.Refused)
	publish(t, direct, tasks("during-", 10)...)
	eventually(t, "attempts to connect", func() bool { return between.Attempts() > 1 })
	between.Turn(enginetest.Fine)
	eventually(t, "everything there", func() bool { return health(t, p).TasksClosed == 20 })
	stop()
	if n := messages(t, direct, bus.StreamDeadLetter); n != 0 {
		t.Errorf("%d dead letters", n)
	}
}

func TestOpenGivesUpWithItsContext(t *testing.T) {
	t.Parallel()
	for _, away := range []string{"HINDSIGHT_NATS_URL", "HINDSIGHT_CLICKHOUSE_URL"} {
		env := environment(t)
		env[away] = strings.NewReplacer("nats://", "nats://127.0.0.1:1#", "http://", "http://127.0.0.1:1#").Replace(env[away])
		env[away], _, _ = strings.Cut(env[away], "#")
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		p, err := service.Open(ctx, &service.Parts{Config: load(t, env), Holder: "one", Logger: logger(t)}, "test", func(error) {})
		cancel()
		if err == nil || p != nil {
			t.Errorf("%s is away and Open = %v, %v", away, p, err)
		}
	}
}

// TestAFullQueueOfReflections is told from a broker that is away: closing tasks must not wait for a reflector.
func TestAFullQueueOfReflections(t *testing.T) {
	t.Parallel()
	env := environment(t)
	p := open(t, env, "one")
	nc, err := nats.Connect(env["HINDSIGHT_NATS_URL"])
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), bus.StreamReflect)
	if err != nil {
		t.Fatal(err)
	}
	cfg := stream.CachedInfo().Config
	cfg.MaxBytes = 300
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	for i := 0; err == nil && i < 10; i++ {
		err = service.RequestReflection(t.Context(), p, memory.ReflectionRequest{Namespace: "acme.support", TaskID: fmt.Sprint("task", i), Revision: 3})
	}
	if !errors.Is(err, memory.ErrQueueFull) {
		t.Errorf("Request = %v, want %v", err, memory.ErrQueueFull)
	}
}

func TestNamespaceOfASubject(t *testing.T) {
	t.Parallel()
	for subject, want := range map[string]string{
		events.Subject("acme", events.KindMessage):         "acme",
		events.Subject("acme.support", events.KindMessage): "acme.support",
		bus.ReflectSubject("acme"):                         "acme",
		bus.ReflectSubject("acme.support"):                 "acme.support",
		"hindsight.v1.write.acme.support":                  "acme.support",
		bus.IndexSubject("acme"):                           "acme",
		bus.IndexSubject("acme.support"):                   "acme.support",
		"hindsight.v1.write.acme.index":                    "acme.index",
		"hindsight.v1.write.acme.support.other":            "",
		"hindsight.v1.trace.acme.message":                  "",
		"hindsight.v1.trace.acme.~.message.x":              "",
		"hindsight.v1.trace.Acme.~.message":                "",
		"hindsight.v1.trace.~.~.message":                   "",
		"hindsight.v1.write":                               "",
		"other.v1.write.acme.support":                      "",
		"":                                                 "",
	} {
		if got := service.NamespaceOf(subject); got != want {
			t.Errorf("%q is of namespace %q, want %q", subject, got, want)
		}
	}
}
