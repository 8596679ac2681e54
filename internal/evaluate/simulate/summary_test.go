package simulate_test

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/hindsight-memory/hindsight/internal/evaluate/report"
	"github.com/hindsight-memory/hindsight/internal/evaluate/simulate"
	"github.com/hindsight-memory/hindsight/internal/evaluate/simulate/world"
)

// cell makes a stream of one class of which the tasks fail as said: f fails, e fails for the environment, m is misled.
func cell(arm simulate.Arm, seed uint64, obey float64, tasks string) simulate.Result {
	r := simulate.Result{Cell: simulate.Cell{Arm: arm, Seed: seed, Obey: obey}}
	for _, t := range tasks {
		one := simulate.TaskResult{Class: "class", Kind: world.Format, Success: true, Calls: 2, Tokens: 100}
		switch t {
		case 'f':
			one.Success, one.Failed = false, map[string]world.Kind{"class": world.Format}
		case 'e':
			one.Class, one.Kind, one.Success, one.Failed = "outage", world.Environment, false, map[string]world.Kind{"outage": world.Environment}
		case 'm':
			one.Failed = map[string]world.Kind{"class/" + world.Misled: world.Format}
		}
		r.Tasks = append(r.Tasks, one)
	}
	return r
}

func TestFiguresAreWhatTheySay(t *testing.T) {
	t.Parallel()
	o := simulate.Options{Obey: 0.8, Tasks: 6, Arms: simulate.Arms(), Sensitivity: []float64{1}, SensitivitySeeds: 1, Seeds: 2}
	planted := cell(simulate.ArmHarmful, 1, 0.8, "fmm...")
	planted.Planted = []simulate.Planted{{Item: "a", Shown: 5, Out: true, OutAfter: 4}, {Item: "b", Shown: 40, Out: true, OutAfter: 35}, {Item: "c", Shown: 2}, {Item: "d"}}
	s := simulate.Summarise(o, []simulate.Result{
		cell(simulate.ArmNone, 1, 0.8, "ffffee"), // 3 repeats, and 1 of the environment
		cell(simulate.ArmNone, 2, 0.8, "ffff.."), // 3
		cell(simulate.ArmStart, 1, 0.8, "fff.ee"),
		cell(simulate.ArmStart, 2, 0.8, "ff...."),
		cell(simulate.ArmCheck, 1, 0.8, "ff..ee"), // 1, and 1
		cell(simulate.ArmCheck, 2, 0.8, "f....."), // 0
		planted, cell(simulate.ArmHarmful, 2, 0.8, "f....."),
		cell(simulate.ArmCheck, 1, 1, "f...ee"),
	})
	for name, want := range map[string]float64{
		"repeats_per_stream_none": 3.5, "repeats_per_stream_check": 1, "repeat_reduction_check_vs_none": 1 - 2.0/7, "repeat_reduction_check_vs_none_learnable": 1 - 1.0/6,
		"repeat_reduction_check_vs_start": 1 - 2.0/4, "success_none": 2.0 / 12, "success_check": 7.0 / 12, "success_delta_check_points": 100 * 5.0 / 12,
		"success_delta_min_points": 100 * 3.0 / 12, "repeat_failure_rate_none": 7.0 / 9, "misled_per_100_tasks_harmful": 100 * 2.0 / 12, "tokens_per_task_check": 100,
		"planted_lessons": 4, "planted_shown": 3, "planted_out_of_service": 0.5, "planted_out_of_service_within_30": 1.0 / 3, "planted_shown_30_times": 1,
		"repeat_reduction_check_vs_none_obey_100": 1 - 1.0/4, "repeat_reduction_check_vs_none_obey_100_seeds": 1, "seeds": 2,
	} {
		if got, has := s.Figures[name]; !has || math.Abs(got-want) > 1e-9 {
			t.Errorf("%s is %v: want %v", name, got, want)
		}
	}
	for name, v := range s.Figures {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			t.Errorf("%s is %v", name, v)
		}
		low, has := s.Figures[name+"_low"]
		if high := s.Figures[name+"_high"]; has && !(low <= v && v <= high) {
			t.Errorf("%s: %v is not between %v and %v", name, v, low, high)
		}
	}
	if low, high := s.Figures["repeat_reduction_check_vs_none_low"], s.Figures["repeat_reduction_check_vs_none_high"]; low != 0.5 || high != 1 {
		t.Errorf("the interval over two streams is %v to %v: want those of the streams, 0.5 and 1", low, high)
	}
	var page bytes.Buffer
	if err := report.Write(&page, s.Page("hindsight eval simulate", "today")); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"repeats 71 % of its failures less", "the agent is scripted", "hindsight eval simulate", "within 30 recalls", "<svg"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the report does not hold %q", want)
		}
	}
}

func TestNothingIsSaidOfArmsThatWereNotRun(t *testing.T) {
	t.Parallel()
	s := simulate.Summarise(simulate.Options{Obey: 0.8, Tasks: 1, Arms: []simulate.Arm{simulate.ArmNone}, Seeds: 1}, []simulate.Result{cell(simulate.ArmNone, 1, 0.8, "f")})
	if _, has := s.Figures["repeat_reduction_check_vs_none"]; has {
		t.Error("there is a figure of an arm that was not run")
	}
	var page bytes.Buffer
	if err := report.Write(&page, s.Page("", "")); err != nil || !strings.Contains(page.String(), "nothing can be said") {
		t.Errorf("%v\n%s", err, page.String())
	}
}
