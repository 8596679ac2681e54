package evaluate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/engine/enginetest"
	"github.com/hindsight-memory/hindsight/internal/memory"
)

// trial makes up tasks of sessions that differ, so that the tasks of one are alike, with a known effect on success.
func trial(seed uint64, sessions int, share, effect float64) []UpliftTask {
	random := rand.New(rand.NewPCG(seed, 7))
	base := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var tasks []UpliftTask
	for s := range sessions {
		held := random.Float64() < share
		p := 0.3 + 0.4*random.Float64()
		if !held {
			p += effect
		}
		for range 1 + random.IntN(6) {
			tasks = append(tasks, UpliftTask{
				Session: fmt.Sprintf("session-%d", s), At: base.Add(time.Duration(s) * time.Minute), Withheld: held,
				Success: random.Float64() < p, Repeated: random.Float64() < 0.3,
			})
		}
	}
	return tasks
}

// TestUpliftIntervalsKeepTheirPromise: of 100 trials the interval must hold the true effect in 90 at least, by clusters of
// tasks that are alike.
func TestUpliftIntervalsKeepTheirPromise(t *testing.T) {
	t.Parallel()
	for _, effect := range []float64{0, 0.1} {
		covered, nothing := 0, 0
		for seed := range uint64(100) {
			r := CompareGroups(trial(seed, 200, 0.3, effect), UpliftOptions{})
			if r.Figures["success_effect_low"] <= effect && effect <= r.Figures["success_effect_high"] {
				covered++
			}
			if r.Figures["repeat_failure_effect_low"] <= 0 && 0 <= r.Figures["repeat_failure_effect_high"] {
				nothing++
			}
		}
		t.Logf("effect %v: %d of 100 intervals hold it; %d hold the effect of 0 on repeated failures", effect, covered, nothing)
		if covered < 90 || nothing < 90 {
			t.Errorf("effect %v: covered %d and %d of 100, want 90", effect, covered, nothing)
		}
	}
}

// TestUpliftSampleSize: a trial of the size that was reckoned for an effect finds it about as often as was promised.
func TestUpliftSampleSize(t *testing.T) {
	t.Parallel()
	const effect = 0.15
	need := CompareGroups(trial(1, 2000, 0.5, effect), UpliftOptions{Effect: effect}).Figures["success_sessions_needed"]
	if need < 50 || need > 1000 {
		t.Fatalf("%v sessions are needed", need)
	}
	found := 0
	for seed := range uint64(200) {
		if CompareGroups(trial(1000+seed, int(need), 0.5, effect), UpliftOptions{}).Figures["success_effect_low"] > 0 {
			found++
		}
	}
	t.Logf("%v sessions: found in %d of 200", need, found)
	if found < 140 || found > 185 {
		t.Errorf("with %v sessions the effect was found in %d of 200, want about 160", need, found)
	}
}

func TestUpliftClaimsNothingWithoutGrounds(t *testing.T) {
	t.Parallel()
	all := trial(1, 100, 0, 0.1)
	r := CompareGroups(all, UpliftOptions{})
	if _, claimed := r.Figures["success_effect"]; claimed || !strings.HasPrefix(r.Examples[0], "no control group: nothing can be claimed") {
		t.Errorf("without a control group: %v, %q", r.Figures, r.Examples)
	}
	if r.Figures["success_sessions_needed"] < 100 {
		t.Errorf("a trial is planned with %v sessions", r.Figures["success_sessions_needed"])
	}
	r = CompareGroups(trial(1, 30, 0.3, 0.1), UpliftOptions{})
	if _, claimed := r.Figures["success_effect"]; claimed || !strings.HasPrefix(r.Examples[0], "too few sessions: nothing can be claimed") {
		t.Errorf("with few sessions: %v, %q", r.Figures, r.Examples)
	}
	r = CompareGroups(nil, UpliftOptions{})
	for name, value := range r.Figures {
		if math.IsNaN(value) || math.IsInf(value, 0) {
			t.Errorf("without tasks: %s is %v", name, value)
		}
	}
	// The control group exists in the second half of the time only; a session is in both groups.
	tasks := trial(2, 200, 0.3, 0)
	early := trial(3, 50, 0, 0)
	for i := range early {
		early[i].Session, early[i].At = "early-"+early[i].Session, early[i].At.AddDate(-1, 0, 0)
	}
	tasks = append(append(tasks, early...), UpliftTask{Session: "both", At: tasks[20].At, Withheld: true}, UpliftTask{Session: "both", At: tasks[20].At})
	r = CompareGroups(tasks, UpliftOptions{})
	if r.Figures["tasks_outside_the_trial"] < float64(len(early)) || r.Figures["sessions_mixed"] != 1 || r.Figures["treated_sessions"]+r.Figures["control_sessions"] > 200 {
		t.Errorf("figures %v", r.Figures)
	}
}

func TestStudentQuantile(t *testing.T) {
	t.Parallel()
	for freedom, want := range map[float64]float64{19: 2.093, 38: 2.0244, 100: 1.984, math.Inf(1): 1.96} {
		if got := studentT975(freedom); math.Abs(got-want) > 0.002 {
			t.Errorf("%v degrees of freedom: %.4f, want %.4f", freedom, got, want)
		}
	}
}

// TestUpliftReadsTheRecord writes events of a trial with a known effect to a real ClickHouse and reads them back: the
// interval holds the effect, and the counts are those that were written.
func TestUpliftReadsTheRecord(t *testing.T) {
	t.Parallel()
	st := record(t, enginetest.ClickHouse(t))
	const effect = 0.2
	tasks := trial(11, 120, 0.5, effect)
	var evs []events.Event
	var states []memory.Task
	write := func(namespace string, n int, task UpliftTask, layer string) {
		id := fmt.Sprintf("task-%s-%d", namespace, n)
		event := func(kind events.Kind, after time.Duration, payload any) events.Event {
			return events.Event{
				ID: fmt.Sprintf("%s-%s", id, kind), Namespace: namespace, AgentID: "agent", SessionID: task.Session, TaskID: id, Time: task.At.Add(after), Kind: kind, Data: data(payload),
			}
		}
		// An error that all others have met, or one of its own.
		message := "amount is wrong"
		if !task.Repeated {
			message = strings.Map(func(r rune) rune { return r - '0' + 'a' }, strconv.Itoa(n)) // Digits would be taken for a value.
		}
		status := events.StatusFailure
		if task.Success {
			status = events.StatusSuccess
		}
		own := []events.Event{
			event(events.KindTaskStarted, 0, events.TaskStarted{TaskType: "shop", Goal: "refund"}),
			event(events.KindRecallServed, time.Second, events.RecallServed{
				TaskID: id, Question: "q", Door: "mcp", Way: "experience", Withheld: task.Withheld, Items: []events.RecallItem{{ID: "i", Layer: layer, Score: 1}},
			}),
			event(events.KindStepFinished, 2*time.Second, events.StepFinished{Step: 1, Tool: "refund", Status: events.StatusFailure, ErrorMessage: message}),
			event(events.KindTaskFinished, 3*time.Second, events.TaskFinished{Status: status, ConfirmedBy: events.ConfirmedBySystem}),
		}
		evs, states = append(evs, own...), append(states, memory.BuildTask(own, true))
	}
	first := UpliftTask{Session: "before", At: tasks[0].At.Add(-time.Hour), Repeated: true}
	write("acme", 100_000, first, "memory") // It meets the error first, and is shown facts only: it is in no group.
	for n, task := range tasks {
		write("acme", n, task, "snapshot")
	}
	write("other", 1, UpliftTask{Session: "s", At: tasks[0].At, Withheld: true}, "snapshot")
	if err := st.InsertEvents(t.Context(), evs); err != nil {
		t.Fatal(err)
	}
	if err := st.InsertTasks(t.Context(), states); err != nil {
		t.Fatal(err)
	}
	r, err := Uplift(t.Context(), st, UpliftOptions{Namespace: "acme"})
	if err != nil {
		t.Fatal(err)
	}
	want := CompareGroups(tasks, UpliftOptions{})
	wantFigures(t, r, want.Figures)
	if low, high := r.Figures["success_effect_low"], r.Figures["success_effect_high"]; low > effect || high < effect {
		t.Errorf("the interval %.3f to %.3f does not hold %v", low, high, effect)
	}
	if _, err := Uplift(t.Context(), st, UpliftOptions{Namespace: "a' OR 1"}); err == nil {
		t.Error("a namespace that is none is asked for")
	}
	r, err = Uplift(t.Context(), st, UpliftOptions{Namespace: "nobody"})
	if err != nil || !strings.HasPrefix(r.Examples[0], "no control group") {
		t.Errorf("an empty namespace: %q, %v", r.Examples, err)
	}
}
