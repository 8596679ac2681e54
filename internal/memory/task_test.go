package memory_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/memory"
)

func TestMain(m *testing.M) {
	flag.Bool("update", false, "write the golden files in testdata")
	os.Exit(m.Run())
}

func updateGolden() bool { return flag.Lookup("update").Value.String() == "true" }

// noon is when the tasks of these tests begin.
func noon() time.Time { return time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC) }

// event is one event of the task "refund-7"; its data is JSON.
func event(id string, second int, kind events.Kind, data string) events.Event {
	return events.Event{
		ID: id, Namespace: "acme.support", AgentID: "agent-1", SessionID: "session-1", TaskID: "refund-7",
		Time: noon().Add(time.Duration(second) * time.Second), Kind: kind, Data: json.RawMessage(data),
	}
}

func started(id string, second int, data string) events.Event {
	return event(id, second, events.KindTaskStarted, data)
}

func message(id string, second int, data string) events.Event {
	return event(id, second, events.KindMessage, data)
}

func step(id string, second int, data string) events.Event {
	return event(id, second, events.KindStepFinished, data)
}

func finished(id string, second int, data string) events.Event {
	return event(id, second, events.KindTaskFinished, data)
}

func feedback(id string, second int, data string) events.Event {
	return event(id, second, events.KindFeedback, data)
}

// numbered gives the events the producer's numbers.
func numbered(seqs []int64, evs ...events.Event) []events.Event {
	for i := range evs {
		evs[i].Seq = seqs[i]
	}
	return evs
}

// tools lists the tools of a task's steps with their numbers.
func tools(t memory.Task) []string {
	out := make([]string, len(t.Steps))
	for i, s := range t.Steps {
		out[i] = fmt.Sprintf("%d %s %s", s.Step, s.Tool, s.Status)
	}
	return out
}

func TestStepsComeInOrder(t *testing.T) {
	t.Parallel()
	const ok = `{"tool":"%s","status":"success"}`
	a, b, c := fmt.Sprintf(ok, "a"), fmt.Sprintf(ok, "b"), fmt.Sprintf(ok, "c")
	for _, test := range []struct {
		name string
		evs  []events.Event
		want []string
	}{
		{"by time without numbers", []events.Event{step("3", 3, c), step("1", 1, a), step("2", 2, b)}, []string{"1 a success", "2 b success", "3 c success"}},
		{
			"by the producer's sequence against the time",
			numbered([]int64{3, 1, 2}, step("3", 1, c), step("1", 2, a), step("2", 3, b)),
			[]string{"1 a success", "2 b success", "3 c success"},
		},
		{
			"by time when one event has no sequence",
			numbered([]int64{3, 0, 2}, step("3", 1, c), step("1", 2, a), step("2", 3, b)),
			[]string{"1 c success", "2 a success", "3 b success"},
		},
		{
			"by sequence within one instant",
			numbered([]int64{3, 1, 2, 0}, step("x", 1, c), step("y", 1, a), step("z", 1, b), message("m", 0, `{"role":"user"}`)),
			[]string{"1 a success", "2 b success", "3 c success"},
		},
		{"by id when nothing else tells", []events.Event{step("3", 1, c), step("1", 1, a), step("2", 1, b)}, []string{"1 a success", "2 b success", "3 c success"}},
		{
			"the producer's step numbers",
			[]events.Event{step("1", 1, `{"step":2,"tool":"a","status":"success"}`), step("2", 2, `{"step":5,"tool":"b","status":"failure"}`)},
			[]string{"2 a success", "5 b failure"},
		},
		{
			"the producer's step numbers against the time",
			[]events.Event{step("1", 1, `{"step":2,"tool":"b","status":"success"}`), step("2", 2, `{"step":1,"tool":"a","status":"success"}`)},
			[]string{"1 a success", "2 b success"},
		},
		{
			"own numbers when the producer's repeat",
			[]events.Event{step("1", 1, `{"step":4,"tool":"a","status":"success"}`), step("2", 2, `{"step":4,"tool":"b","status":"success"}`)},
			[]string{"1 a success", "2 b success"},
		},
		{
			"own numbers when one has none",
			[]events.Event{step("1", 1, `{"step":4,"tool":"a","status":"success"}`), step("2", 2, b)},
			[]string{"1 a success", "2 b success"},
		},
		{
			"a negative number is none",
			[]events.Event{step("1", 1, `{"step":-4,"tool":"a","status":"success"}`), step("2", 2, `{"step":9,"tool":"b","status":"success"}`)},
			[]string{"1 a success", "2 b success"},
		},
		{
			"two reports of one call, the number in the second",
			[]events.Event{
				step("1", 1, `{"call_id":"k","tool":"a","status":"success"}`), step("2", 2, `{"step":7,"call_id":"k","tool":"a","status":"success"}`),
				step("3", 3, `{"step":9,"tool":"b","status":"success"}`),
			},
			[]string{"7 a success", "9 b success"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := tools(memory.BuildTask(test.evs, false)); !reflect.DeepEqual(got, test.want) {
				t.Errorf("steps %q, want %q", got, test.want)
			}
		})
	}
}

func TestStartComesFirstAndEndLastWithinAnInstant(t *testing.T) {
	t.Parallel()
	start, note := started("z", 0, `{"goal":"g"}`), message("a", 0, `{"role":"user","content":"c"}`)
	start.GoalID, start.Seq, note.GoalID = "of the start", 5, "of the message"
	if got := memory.BuildTask([]events.Event{note, start}, false).GoalID; got != "of the start" {
		t.Errorf("goal_id %q, want that of the start", got)
	}
	end := finished("a", 0, `{"status":"success"}`)
	end.GoalID, note.ID = "of the end", "b"
	if got := memory.BuildTask([]events.Event{end, note}, false).GoalID; got != "of the message" {
		t.Errorf("goal_id %q, want that of the message", got)
	}
}

// everything is a task in which something of every kind happens.
func everything() []events.Event {
	evs := []events.Event{
		started("e01", 0, `{"task_type":"refund","goal":"Refund order 7 & 8","input_summary":"two orders","available_tools":["lookup","pay"],"parent_task_id":"batch-1"}`),
		message("e02", 1, `{"role":"user","content":"Please refund <both> orders"}`),
		step("e03", 2, `{"tool":"lookup","parameters":{"order":7},"status":"success","result":"found","execution_time_ms":12,"call_id":"c1","reasoning":"look first"}`),
		step("e04", 3, `{"tool":"pay","parameters":{"order":7,"amount":"12"},"status":"failure","error_type":"bad_amount","error_message":"amount must be a number","call_id":"c2"}`),
		step("e05", 3, `{"tool":"pay","status":"success","execution_time_ms":80,"call_id":"c2"}`),
		step("e06", 4, `{"tool":"cancel","status":"success","actor":"user"}`),
		feedback("e07", 5, `{"kind":"correction","comment":"12.50, not 12"}`),
		feedback("e08", 5, `{"kind":"rating","value":4}`),
		step("e09", 6, `{"tool":"pay","parameters":{"amount":12.5},"status":"success","result":{"paid":12.5}}`),
		event("e10", 7, events.KindRecallServed, `{"items":[{"id":"s-1"},{"id":"s-2"},{"id":"s-1"}]}`),
		event("e11", 7, events.KindItemWritten, `{"content":"x"}`),
		event("e12", 8, "coffee_break", `{"minutes":5}`),
		finished("e13", 9, `{"status":"success","score":0.5,"reason":"paid","confirmed_by":"agent"}`),
		finished("e14", 10, `{"status":"partial","score":0.75,"reason":"one of two","confirmed_by":"system"}`),
		finished("e15", 11, `{"status":"success","confirmed_by":"agent"}`),
	}
	for i := range evs {
		evs[i].UserID, evs[i].GoalID = "user-1", "goal-1"
	}
	return evs
}

// TestAnyOrderAndCopiesGiveTheSameTask is the property that lets events arrive late, twice and shuffled.
func TestAnyOrderAndCopiesGiveTheSameTask(t *testing.T) {
	t.Parallel()
	withSequence := everything()
	for i := range withSequence {
		withSequence[i].Seq = int64(len(withSequence) - i)
	}
	oneInstant := everything()
	for i := range oneInstant {
		oneInstant[i].Time = noon()
	}
	// A producer that breaks the rule that an event never changes still gets one answer.
	changed := everything()
	other := changed[3]
	other.Data = json.RawMessage(`{"step":3,"tool":"pay","status":"failure","error_type":"other"}`)
	another := changed[0]
	another.Seq, another.Time = 9, noon().Add(-time.Hour)
	changed = append(changed, other, another)
	for _, test := range []struct {
		name string
		evs  []events.Event
	}{{"times", everything()}, {"sequence", withSequence}, {"one instant", oneInstant}, {"changed copies", changed}} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			want := memory.BuildTask(test.evs, true)
			for seed := range uint64(500) {
				random := rand.New(rand.NewPCG(seed, 1))
				evs := slices.Clone(test.evs)
				for range random.IntN(10) {
					evs = append(evs, test.evs[random.IntN(len(test.evs))])
				}
				random.Shuffle(len(evs), func(i, j int) { evs[i], evs[j] = evs[j], evs[i] })
				before := slices.Clone(evs)
				if got := memory.BuildTask(evs, true); !reflect.DeepEqual(got, want) {
					t.Fatalf("seed %d\ngot  %+v\nwant %+v", seed, got, want)
				}
				if !reflect.DeepEqual(evs, before) {
					t.Fatalf("seed %d: the argument was changed", seed)
				}
			}
		})
	}
}

func TestLateEventsCount(t *testing.T) {
	t.Parallel()
	evs := everything()
	without := memory.BuildTask(evs[1:], true)
	if without.Goal != "Please refund <both> orders" || without.TaskType != "" || without.StartedAt != noon().Add(time.Second) {
		t.Errorf("without its start: goal %q, type %q, from %s", without.Goal, without.TaskType, without.StartedAt)
	}
	with := memory.BuildTask(append(evs[1:], evs[0]), true)
	if with.Goal != "Refund order 7 & 8" || with.TaskType != "refund" || with.StartedAt != noon() || with.Revision != without.Revision+2 {
		t.Errorf("with its start: goal %q, type %q, from %s, revision %d after %d", with.Goal, with.TaskType, with.StartedAt, with.Revision, without.Revision)
	}
	if with.Duration() != 11*time.Second {
		t.Errorf("duration %s, want 11s", with.Duration())
	}
}

func TestGoal(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		evs  []events.Event
		want string
	}{
		{"of the start", []events.Event{started("1", 0, `{"goal":"g"}`), message("2", 1, `{"role":"user","content":"m"}`)}, "g"},
		{"the first user message", []events.Event{
			message("1", 0, `{"role":"system","content":"s"}`), message("2", 1, `{"role":"assistant","content":"a"}`),
			message("3", 2, `{"role":"user","content":"u"}`), message("4", 3, `{"role":"user","content":"v"}`), started("5", 4, `{"task_type":"x"}`),
		}, "u"},
		{"not an empty message", []events.Event{message("1", 0, `{"role":"user","content":""}`), message("2", 1, `{"role":"user","content":"u"}`)}, "u"},
		{"of the first start that has one", []events.Event{started("1", 0, `{}`), started("2", 1, `{"goal":"second"}`), started("3", 2, `{"goal":"third"}`)}, "second"},
		{"none", []events.Event{step("1", 0, `{"tool":"a","status":"success"}`)}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := memory.BuildTask(test.evs, false).Goal; got != test.want {
				t.Errorf("goal %q, want %q", got, test.want)
			}
		})
	}
}

func TestCallsOfTheUserAreMessages(t *testing.T) {
	t.Parallel()
	task := memory.BuildTask([]events.Event{
		step("1", 1, `{"step":1,"tool":"toggle","status":"failure","actor":"user","call_id":"k"}`),
		step("2", 2, `{"step":1,"tool":"toggle","status":"success","actor":"agent","call_id":"k"}`),
		message("3", 3, `{"role":"user","content":"done"}`),
	}, false)
	if got := tools(task); !reflect.DeepEqual(got, []string{"1 toggle success"}) || task.Messages != 2 || task.Errors != 0 {
		t.Errorf("steps %q, messages %d, errors %d", got, task.Messages, task.Errors)
	}
}

func TestReportsOfOneCallAreOneStep(t *testing.T) {
	t.Parallel()
	const good = `{"tool":"run","call_id":"k","status":"success","parameters":{"cmd":"make"},"result":"ok","execution_time_ms":5,"reasoning":"why"}`
	const bad = `{"tool":"run","call_id":"k","status":"failure","result":"exit 2","error_type":"exit","error_message":"exit status 2"}`
	merged := memory.Step{
		Step: 1, Tool: "run", Parameters: json.RawMessage(`{"cmd":"make"}`), Status: events.StatusFailure, Result: "exit 2", ErrorType: "exit",
		ErrorMessage: "exit status 2", ExecutionTimeMS: 5, Reasoning: "why", CallID: "k", EventID: "1", Time: noon().Add(time.Second),
	}
	for _, test := range []struct {
		name string
		evs  []events.Event
		want []memory.Step
	}{
		{"the failure second", []events.Event{step("1", 1, good), step("2", 2, bad)}, []memory.Step{merged}},
		{"the failure first", []events.Event{step("1", 1, bad), step("2", 2, good)}, []memory.Step{merged}},
		{"three reports", []events.Event{step("1", 1, good), step("2", 2, bad), step("3", 3, good)}, []memory.Step{merged}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			task := memory.BuildTask(test.evs, false)
			if !reflect.DeepEqual(task.Steps, test.want) {
				t.Errorf("got  %+v\nwant %+v", task.Steps, test.want)
			}
			if task.Errors != 1 {
				t.Errorf("%d errors, want 1: the call failed once", task.Errors)
			}
		})
	}
	other := memory.BuildTask([]events.Event{
		step("1", 1, `{"tool":"a","call_id":"k","status":"success"}`), step("2", 2, `{"tool":"b","call_id":"k","status":"success"}`),
		step("3", 3, `{"tool":"a","call_id":"k","status":"failure"}`),
		step("4", 4, `{"tool":"a","status":"success"}`), step("5", 5, `{"tool":"a","status":"success"}`),
	}, false)
	if got, want := tools(other), []string{"1 a failure", "2 b success", "3 a success", "4 a success"}; !reflect.DeepEqual(got, want) {
		t.Errorf("calls of other tools or without an id: steps %q, want %q", got, want)
	}
}

func TestOutcome(t *testing.T) {
	t.Parallel()
	by := func(id string, second int, status, who string) events.Event {
		return finished(id, second, fmt.Sprintf(`{"status":%q,"confirmed_by":%q,"reason":%q}`, status, who, "said "+id))
	}
	for _, test := range []struct {
		name      string
		evs       []events.Event
		status    events.Status
		certainty memory.Certainty
		reason    string
	}{
		{"nobody said", []events.Event{message("1", 1, `{"role":"user"}`)}, "unknown", memory.CertaintyInferred, ""},
		{"the agent", []events.Event{by("1", 1, "success", "agent")}, "success", memory.CertaintyReported, "said 1"},
		{"nobody named is the agent", []events.Event{by("1", 1, "failure", "")}, "failure", memory.CertaintyReported, "said 1"},
		{"the system", []events.Event{by("1", 1, "failure", "system")}, "failure", memory.CertaintyConfirmed, "said 1"},
		{"the user over all", []events.Event{by("1", 1, "failure", "user"), by("2", 2, "success", "system"), by("3", 3, "success", "agent")}, "failure", memory.CertaintyConfirmed, "said 1"},
		{"the system over the agent", []events.Event{by("1", 1, "partial", "system"), by("2", 2, "success", "agent"), by("3", 3, "success", "")}, "partial", memory.CertaintyConfirmed, "said 1"},
		{"the later of equals", []events.Event{by("1", 1, "failure", "system"), by("2", 2, "success", "system")}, "success", memory.CertaintyConfirmed, "said 2"},
		{"the later of agents", []events.Event{by("1", 1, "success", "agent"), by("2", 2, "cancelled", "")}, "cancelled", memory.CertaintyReported, "said 2"},
		{"an end without an outcome", []events.Event{by("1", 1, "unknown", "")}, "unknown", memory.CertaintyInferred, "said 1"},
		{"the agent does not know", []events.Event{by("1", 1, "unknown", "agent")}, "unknown", memory.CertaintyReported, "said 1"},
		{"the system does not know", []events.Event{by("1", 1, "unknown", "system")}, "unknown", memory.CertaintyConfirmed, "said 1"},
		{"unreadable says nothing", []events.Event{finished("1", 1, `{"status":[]}`)}, "unknown", memory.CertaintyInferred, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for _, evs := range [][]events.Event{test.evs, reversed(test.evs)} {
				task := memory.BuildTask(evs, false)
				if task.Status != test.status || task.Certainty != test.certainty || task.Reason != test.reason {
					t.Errorf("%s, %s, %q, want %s, %s, %q", task.Status, task.Certainty, task.Reason, test.status, test.certainty, test.reason)
				}
				if want := test.reason != ""; task.Finished != want {
					t.Errorf("finished %v, want %v", task.Finished, want)
				}
			}
		})
	}
}

func reversed(evs []events.Event) []events.Event {
	evs = slices.Clone(evs)
	slices.Reverse(evs)
	return evs
}

func TestARepeatedStartFillsGapsOnly(t *testing.T) {
	t.Parallel()
	task := memory.BuildTask([]events.Event{
		started("1", 1, `{"task_type":"a","available_tools":[]}`), started("2", 2, `{"task_type":"b","input_summary":"i","available_tools":["x"],"parent_task_id":"p"}`),
	}, false)
	if task.TaskType != "a" || task.InputSummary != "i" || task.ParentTaskID != "p" || !slices.Equal(task.AvailableTools, []string{"x"}) {
		t.Errorf("%+v", task)
	}
}

func TestRecalls(t *testing.T) {
	t.Parallel()
	recall := func(id string, second int, data string) events.Event {
		return event(id, second, events.KindRecallServed, data)
	}
	task := memory.BuildTask([]events.Event{
		recall("1", 1, `{"items":[{"id":"a","score":1},{"id":""},{"score":2}]}`), recall("2", 2, `{"items":[{"id":"b"},{"id":"a"}],"withheld":true}`),
		recall("3", 3, `{"items":[],"withheld":false}`), recall("4", 4, `{"items":"?"}`),
	}, false)
	if !slices.Equal(task.Recalled, []string{"a", "b"}) || !task.Withheld {
		t.Errorf("recalled %q, withheld %v", task.Recalled, task.Withheld)
	}
}

// TestDataThatDoesNotDecode is stored raw; it counts as an event and says nothing.
func TestDataThatDoesNotDecode(t *testing.T) {
	t.Parallel()
	for _, data := range []string{"", "null", "[]", `"x"`, "7", "{", "\x00", `{"tool":1,"role":1,"status":1,"kind":1,"items":1,"goal":1}`} {
		evs := make([]events.Event, 0, len(events.Kinds())+1)
		for i, kind := range append(events.Kinds(), "coffee_break") {
			evs = append(evs, event(strconv.Itoa(i), i, kind, data))
		}
		task := memory.BuildTask(evs, true)
		if task.Events != 9 || task.Revision != 19 || task.Corrections != 0 || task.Errors != 0 || task.Goal != "" {
			t.Errorf("data %q: %+v", data, task)
		}
		if _, err := json.Marshal(task); err != nil {
			t.Errorf("data %q: %v", data, err)
		}
	}
}

func TestNoEventsNoTask(t *testing.T) {
	t.Parallel()
	if got := memory.BuildTask(nil, true); !reflect.DeepEqual(got, memory.Task{}) {
		t.Errorf("got %+v, want the zero task", got)
	}
}

func TestRevisionOnlyGrows(t *testing.T) {
	t.Parallel()
	for n := range 10_000 {
		open, closed, next := memory.Revision(n, false), memory.Revision(n, true), memory.Revision(n+1, false)
		if open >= closed || closed >= next {
			t.Fatalf("%d events: open %d, closed %d, one more %d", n, open, closed, next)
		}
	}
	if got := memory.Revision(-1, true); got != 1 {
		t.Errorf("a negative count gives %d, want 1", got)
	}
	task := memory.BuildTask(everything(), false)
	shut := memory.CloseTask(task, true)
	if task.Closed || task.Revision != 30 || !shut.Closed || shut.Revision != 31 || memory.CloseTask(shut, false).Revision != 30 {
		t.Errorf("15 events: open %d, closed %d", task.Revision, shut.Revision)
	}
}

func TestReflectionRequestNamesOneRevision(t *testing.T) {
	t.Parallel()
	a := memory.ReflectionRequest{Namespace: "acme", TaskID: "t", Revision: 4}
	ids := map[string]bool{a.MessageID(): true}
	for _, other := range []memory.ReflectionRequest{
		{Namespace: "acme", TaskID: "t", Revision: 5, Closed: true},
		{Namespace: "acme.x", TaskID: "t", Revision: 4},
		{Namespace: "acme", TaskID: "t/4", Revision: 4},
	} {
		if ids[other.MessageID()] {
			t.Errorf("%+v has the id of another: %s", other, other.MessageID())
		}
		ids[other.MessageID()] = true
	}
}

func TestEnvelopes(t *testing.T) {
	t.Parallel()
	stored := []memory.StoredEvent{{Event: everything()[0], RecordedAt: noon()}, {Event: everything()[1]}}
	if got, want := memory.Envelopes(stored), everything()[:2]; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestTaskJSON pins the shape that `hindsight tasks --json` promises: fields may be added, none renamed. After a wanted
// change: go test ./internal/memory -update.
func TestTaskJSON(t *testing.T) {
	t.Parallel()
	for name, task := range map[string]memory.Task{
		"task":       memory.BuildTask(everything(), true),
		"small_task": memory.BuildTask([]events.Event{message("e1", 0, `{"role":"user","content":"hello"}`)}, false),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := json.MarshalIndent(task, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", name+".golden.json")
			if updateGolden() {
				if err := os.WriteFile(path, append(got, '\n'), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if string(got)+"\n" != string(want) {
				t.Errorf("the JSON changed\ngot  %s\nwant %s", got, want)
			}
		})
	}
}

// TestTaskJSONAlwaysHasItsFields covers what a program may rely on even for an empty task.
func TestTaskJSONAlwaysHasItsFields(t *testing.T) {
	t.Parallel()
	raw, err := json.Marshal(memory.BuildTask([]events.Event{step("1", 0, `{"tool":"a","status":"success"}`)}, false))
	if err != nil {
		t.Fatal(err)
	}
	var task map[string]json.RawMessage
	if err := json.Unmarshal(raw, &task); err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"namespace", "task_id", "goal_id", "session_id", "user_id", "task_type", "goal", "status", "certainty", "steps"} {
		if _, found := task[field]; !found {
			t.Errorf("field %q is missing", field)
		}
	}
	var steps []map[string]json.RawMessage
	if err := json.Unmarshal(task["steps"], &steps); err != nil || len(steps) != 1 {
		t.Fatalf("steps %s: %v", task["steps"], err)
	}
	for _, field := range []string{"step", "tool", "parameters", "status", "result", "error_type", "error_message", "execution_time_ms"} {
		if _, found := steps[0][field]; !found {
			t.Errorf("field %q of a step is missing", field)
		}
	}
	if string(steps[0]["parameters"]) != "{}" {
		t.Errorf("absent parameters are %s, want {}", steps[0]["parameters"])
	}
}
