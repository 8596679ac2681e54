package service_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/bus"
	"github.com/hindsight-memory/hindsight/internal/consolidate"
	"github.com/hindsight-memory/hindsight/internal/importer"
	"github.com/hindsight-memory/hindsight/internal/service"
	"github.com/hindsight-memory/hindsight/internal/store/statetest"
)

// story builds the events of one task, a second apart.
type story struct{ evs []events.Event }

func tell(n int, id, goal, agent, text string) *story {
	s := &story{}
	s.evs = append(s.evs, events.Event{
		Namespace: "acme.support", TaskID: id, GoalID: goal, AgentID: agent, SessionID: "session-" + id, UserID: "user-1",
		Time: time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC).Add(time.Duration(n) * time.Hour),
	})
	return s.add(events.KindTaskStarted, events.TaskStarted{TaskType: "booking", Goal: text})
}

func (s *story) add(kind events.Kind, data any) *story {
	raw, err := events.EncodeData(data)
	if err != nil {
		panic(err)
	}
	e := s.evs[len(s.evs)-1]
	if e.ID != "" {
		e.Time = e.Time.Add(time.Second)
		s.evs = append(s.evs, e)
	}
	e.ID, e.Kind, e.Data = fmt.Sprintf("%s/%d", e.TaskID, len(s.evs)), kind, raw
	s.evs[len(s.evs)-1] = e
	return s
}

func (s *story) call(tool, parameters, result string) *story {
	raw, err := json.Marshal(result)
	if err != nil {
		panic(err)
	}
	return s.add(events.KindStepFinished, events.StepFinished{Tool: tool, Parameters: json.RawMessage(parameters), Status: events.StatusSuccess, Result: raw})
}

func (s *story) fail(tool, parameters, message string) *story {
	return s.add(events.KindStepFinished, events.StepFinished{Tool: tool, Parameters: json.RawMessage(parameters), Status: events.StatusFailure, ErrorType: "tool_error", ErrorMessage: message})
}

func (s *story) user(text string) *story {
	return s.add(events.KindMessage, events.Message{Role: events.RoleUser, Content: text})
}

func (s *story) end(status events.Status) []events.Event {
	return s.add(events.KindTaskFinished, events.TaskFinished{Status: status, ConfirmedBy: events.ConfirmedBySystem}).evs
}

// stories are tasks that concern each other: siblings of which some fail, errors that come again, corrections, and
// statements that replace or contradict each other.
func stories() [][]events.Event {
	var out [][]events.Event
	n := 0
	next := func(id, goal, agent, text string) *story {
		n++
		return tell(n, id, goal, agent, text)
	}
	for g := range 3 {
		goal := fmt.Sprintf("goal-%d", g)
		text := fmt.Sprintf("Book a flight for customer %d and add a bag", g)
		for trial := range 5 {
			s := next(fmt.Sprintf("%s-%d", goal, trial), goal, fmt.Sprintf("agent-%d", trial%2), text)
			s.call("get_user", fmt.Sprintf(`{"user_id":"mia_%d"}`, g), "mia, card_1")
			switch (g + trial) % 5 {
			case 0: // fails, and knows not why
				out = append(out, s.call("book_flight", `{"user_id":"mia","cabin":"economy"}`, "booked").end(events.StatusFailure))
			case 1: // an error that it repairs
				out = append(out, s.fail("book_flight", `{"user_id":"mia","cabin":"business"}`, "seat 12A is not available in cabin business").
					call("book_flight", `{"user_id":"mia","cabin":"economy"}`, "booked").call("add_bag", `{"user_id":"mia","bags":1}`, "added").end(events.StatusSuccess))
			case 2: // the same error, never repaired, so that only siblings show what works
				out = append(out, s.fail("book_flight", `{"user_id":"mia","cabin":"business"}`, "seat 14C is not available in cabin business").
					fail("add_bag", `{"user_id":"mia"}`, "bags is required").end(events.StatusFailure))
			case 3: // does it right at once
				out = append(out, s.call("book_flight", `{"user_id":"mia","cabin":"economy"}`, "booked").call("add_bag", `{"user_id":"mia","bags":1}`, "added").end(events.StatusSuccess))
			default: // is corrected
				out = append(out, s.call("book_flight", `{"user_id":"mia","cabin":"first"}`, "booked").user("No, I meant economy, not first class.").
					call("book_flight", `{"user_id":"mia","cabin":"economy"}`, "booked").end(events.StatusSuccess))
			}
		}
	}
	for i := range 6 { // the same error without a goal, by several agents, said differently the other way round in the end
		s := next(fmt.Sprintf("export-%d", i), "", fmt.Sprintf("agent-%d", i%3), "Export the report")
		s.fail("export", fmt.Sprintf(`{"format":"xls","rows":%d}`, 100*i), "format xls is not supported, use csv")
		if i%2 == 0 {
			s.call("export", fmt.Sprintf(`{"format":"csv","rows":%d}`, 100*i), "done")
		}
		out = append(out, s.end(events.StatusSuccess))
	}
	for i, said := range []string{
		"Remember that our office is Berlin.", "Remember that our office is Paris.", "I prefer window seats.", "I don't prefer window seats.",
		"Remember that our office is Berlin.", "From now on always send the invoice as PDF.", "I prefer window seats.", "Remember that our office is Rome.",
	} {
		s := next(fmt.Sprintf("said-%d", i), "", "agent-1", "Talk about travel")
		out = append(out, s.user(said).call("note", `{"text":"ok"}`, "noted").end(events.StatusSuccess))
	}
	return out
}

// settled waits until everything published is stored, reflected, and nothing is to be reflected again.
func settled(t *testing.T, parts []*service.Parts, tasks int) {
	t.Helper()
	eventually(t, "a settled record", func() bool {
		for _, stream := range []string{bus.StreamTraces, bus.StreamReflect, bus.StreamWrites} {
			if messages(t, parts[0].Bus, stream) != 0 {
				return false
			}
		}
		if h := health(t, parts[0]); int(h.TasksClosed) != tasks || h.TasksOpen != 0 {
			return false
		}
		n, err := parts[0].Store.Unreflected(t.Context(), "")
		if err != nil || n > 0 {
			return false
		}
		for _, p := range parts {
			if metric(t, p.Registry, "hindsight_tasks_unsettled") > 0 {
				return false
			}
		}
		return messages(t, parts[0].Bus, bus.StreamReflect) == 0
	})
}

// outcome publishes tasks in an order drawn from a seed, to several reflectors and with consolidation in between and
// reflectors that come and go, or, for seed 0, in order and to one at a time; and gives the state that it comes to.
func outcome(t *testing.T, seed uint64, tasks [][]events.Event) statetest.State {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	env := environment(t)
	reflectors := 3
	tasks = slices.Clone(tasks)
	if seed == 0 {
		reflectors, env["HINDSIGHT_REFLECT_CONCURRENCY"] = 1, "1"
	} else {
		r.Shuffle(len(tasks), func(i, j int) { tasks[i], tasks[j] = tasks[j], tasks[i] })
	}
	parts := []*service.Parts{open(t, env, "ingestor")}
	run(t, parts[0], service.Ingest)
	stops := make([]func(), reflectors)
	for i := range reflectors {
		p := open(t, env, fmt.Sprintf("reflector-%d", i))
		parts = append(parts, p)
		stops[i] = run(t, p, service.Reflect)
	}
	jobs := open(t, env, "consolidator")
	scheduler, err := jobs.Scheduler(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	consolidated := func(job string) int {
		report, err := scheduler.RunJob(t.Context(), job)
		if err != nil {
			t.Fatal(err)
		}
		return len(report.Runs)
	}
	conn := publisher(t, env)
	done := 0
	for len(tasks) > 0 {
		n := min(len(tasks), 1+r.IntN(len(tasks)))
		if seed == 0 {
			n = len(tasks)
		}
		var evs []events.Event
		for _, task := range tasks[:n] {
			evs = append(evs, task...)
		}
		if seed != 0 {
			r.Shuffle(len(evs), func(i, j int) { evs[i], evs[j] = evs[j], evs[i] })
		}
		publish(t, conn, evs...)
		done, tasks = done+n, tasks[n:]
		if seed == 0 {
			continue
		}
		if r.IntN(2) == 0 { // the later ones find the earlier ones closed and reflected
			settled(t, parts, done)
		}
		if r.IntN(2) == 0 {
			consolidated(consolidate.JobMerge)
		}
		if i := r.IntN(reflectors); r.IntN(2) == 0 {
			stops[i]()
			parts[1+i] = open(t, env, fmt.Sprintf("reflector-%d", i))
			stops[i] = run(t, parts[1+i], service.Reflect)
		}
	}
	settled(t, parts, done)
	for range 4 { // until it finds nothing more to do
		if consolidated(consolidate.JobMerge) == 0 {
			break
		}
	}
	if n := consolidated(consolidate.JobMerge); n != 0 {
		t.Errorf("seed %d: merging goes on for ever", seed)
	}
	consolidated(consolidate.JobInduce)
	state, err := statetest.Digest(t.Context(), parts[0].Store, "acme.support")
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// TestTheSameTasksComeToTheSame processes the same tasks in one order by one reflector, and in other orders by three,
// with consolidation in between: what is remembered in the end must be the same.
func TestTheSameTasksComeToTheSame(t *testing.T) {
	t.Parallel()
	sameOutcome(t, stories(), 2)
}

// TestRecordedRunsComeToTheSame does so with recorded runs.
func TestRecordedRunsComeToTheSame(t *testing.T) {
	t.Parallel()
	dir := os.Getenv("HINDSIGHT_TEST_DATA")
	if dir == "" {
		t.Skip("HINDSIGHT_TEST_DATA is not set: the recorded runs are not there")
	}
	im, err := importer.New(importer.Options{Namespace: "acme.support"})
	if err != nil {
		t.Fatal(err)
	}
	byGoal := map[string]int{}
	var tasks [][]events.Event
	for item := range im.Read(t.Context(), filepath.Join(dir, "traces", "tau_airline_gpt4o.jsonl.gz")) {
		if item.Problem != nil {
			t.Fatalf("%+v", item.Problem)
		}
		goal := item.Record.Events[0].GoalID
		if byGoal[goal] == 0 && len(byGoal) == 12 {
			continue
		}
		byGoal[goal]++
		tasks = append(tasks, item.Record.Events)
	}
	t.Logf("%d tasks of %d goals", len(tasks), len(byGoal))
	sameOutcome(t, tasks, 1)
}

func sameOutcome(t *testing.T, tasks [][]events.Event, seeds uint64) {
	t.Helper()
	want := outcome(t, 0, tasks)
	kinds := map[string]int{}
	for _, line := range want.Lines {
		kind, _, _ := strings.Cut(line, " ")
		kinds[kind]++
	}
	t.Logf("state %s: %v", want.Sum(), kinds)
	if kinds["snapshot"] < 10 || kinds["relation"] == 0 {
		t.Errorf("hardly anything was learnt, so that nothing is compared: %v", kinds)
	}
	for seed := uint64(1); seed <= seeds; seed++ {
		began := time.Now()
		got := outcome(t, seed, tasks)
		diff := want.Diff(got)
		t.Logf("seed %d: %d lines differ, %s", seed, len(diff), time.Since(began).Round(100*time.Millisecond))
		if len(diff) > 0 {
			t.Errorf("seed %d comes to another state (%s, not %s): %d lines differ\n%s", seed, got.Sum(), want.Sum(), len(diff), strings.Join(diff[:min(len(diff), 40)], "\n"))
		}
	}
}
