package simulate

import (
	"fmt"
	"math"
	"strings"

	"github.com/hindsight-memory/hindsight/internal/evaluate/report"
	"github.com/hindsight-memory/hindsight/internal/evaluate/simulate/world"
)

// Page tells a summary to a person. command is how it was made, and made says with what and when.
func (s *Summary) Page(command, made string) report.Page {
	f := s.Figures
	page := report.Page{
		Title: "Does the memory help? A simulation", Command: command, Made: made, Lead: s.lead(),
		NotShown: []string{
			"How much a language model would be helped: the agent is scripted. It reads a fixed list of instructions out of the texts and obeys with a set probability; a model reads more, and obeys otherwise.",
			"How often such failures happen in your tasks: the mix of failure classes was written for this test.",
			"Whether the right lesson is found among many like it: each class has a tool of its own, and a stream has tens of tasks, not thousands.",
		},
		Method: s.method(), Limits: limits(),
	}
	for _, h := range []struct{ name, label string }{
		{"repeat_reduction_check_vs_none", "fewer repeated failures with the memory asked before each call than without a memory"},
		{"repeat_reduction_check_vs_start", "fewer than with the memory asked at the start of a task only"},
		{"planted_out_of_service_within_30", "of the planted wrong lessons that were shown went out of service within 30 recalls"},
	} {
		if v, has := f[h.name]; has {
			headline := report.Headline{Value: percent(v), Label: h.label}
			if low, is := f[h.name+"_low"]; is {
				headline.Interval = fmt.Sprintf("95 %%: %s to %s", percent(low), percent(f[h.name+"_high"]))
			}
			page.Headlines = append(page.Headlines, headline)
		}
	}
	page.Sections = append(page.Sections, s.success(), s.repeated(), s.kinds(), s.obedience(), s.planted())
	if len(s.Examples) > 0 {
		page.Sections = append(page.Sections, report.Section{Title: "Calls that were made otherwise", Text: []string{"The goal, what the memory said first, the call and what came back."}, Examples: s.Examples})
	}
	return page
}

func (s *Summary) lead() string {
	f := s.Figures
	if _, has := f["repeat_reduction_check_vs_none"]; !has {
		return "Not all arms were run, so that nothing can be said about what the memory changes."
	}
	return fmt.Sprintf("Over %.0f streams of %.0f tasks, an agent that asks before each call and obeys with probability %.2g repeats %s of its failures less than without a memory "+
		"(95 %%: %s to %s); %.0f %% of its tasks succeed instead of %.0f %%.", f["seeds"], f["tasks_per_stream"], f["obey"], percent(f["repeat_reduction_check_vs_none"]),
		percent(f["repeat_reduction_check_vs_none_low"]), percent(f["repeat_reduction_check_vs_none_high"]), 100*f["success_check"], 100*f["success_none"])
}

func percent(v float64) string {
	if math.IsNaN(v) {
		return "–"
	}
	return strings.Replace(fmt.Sprintf("%.0f %%", 100*v), "-", "−", 1)
}

// label names an arm for a person.
func label(a Arm) string {
	switch a {
	case ArmNone:
		return "no memory"
	case ArmStart:
		return "asked at task start"
	case ArmCheck:
		return "start and each call"
	case ArmHarmful:
		return "20 % wrong, guard on"
	case ArmUnguarded:
		return "20 % wrong, guard off"
	case ArmPerfect:
		return "perfect memory, each call"
	case ArmPerfectStart:
		return "perfect memory, task start"
	default:
		return string(a)
	}
}

// bars draws one figure of each arm, times factor.
func (s *Summary) bars(title, figure, unit string, factor float64, decimals int) *report.Bars {
	b := &report.Bars{Title: title, Unit: unit, Decimals: decimals}
	for _, arm := range s.options.Arms {
		name := figure + "_" + string(arm)
		if v, has := s.Figures[name]; has {
			b.Bars = append(b.Bars, s.bar(label(arm), name, v, factor))
		}
	}
	return b
}

func (s *Summary) bar(label, name string, value, factor float64) report.Bar {
	bar := report.Bar{Label: label, Value: factor * value, Low: math.NaN(), High: math.NaN()}
	if low, has := s.Figures[name+"_low"]; has {
		bar.Low, bar.High = factor*low, factor*s.Figures[name+"_high"]
	}
	return bar
}

func (s *Summary) success() report.Section {
	t := &report.Table{Head: []string{"arm", "success", "against no memory", "calls a task", "recalls a task", "tokens a task", "followed a task", "misled in 100 tasks"}}
	for _, arm := range s.options.Arms {
		name := string(arm)
		delta := "–"
		if v, has := s.Figures["success_delta_"+name+"_points"]; has {
			delta = fmt.Sprintf("%+.1f points (%+.1f … %+.1f)", v, s.Figures["success_delta_"+name+"_points_low"], s.Figures["success_delta_"+name+"_points_high"])
		}
		t.Rows = append(t.Rows, []string{
			label(arm), percent(s.Figures["success_"+name]), delta, fmt.Sprintf("%.2f", s.Figures["calls_per_task_"+name]), fmt.Sprintf("%.2f", s.Figures["recalls_per_task_"+name]),
			fmt.Sprintf("%.0f", s.Figures["tokens_per_task_"+name]), fmt.Sprintf("%.2f", s.Figures["followed_per_task_"+name]), fmt.Sprintf("%.1f", s.Figures["misled_per_100_tasks_"+name]),
		})
	}
	return report.Section{Title: "Tasks that succeed", Bars: s.bars("share of tasks that succeed, with 95 % intervals over streams", "success", "%", 100, 1), Table: t}
}

func (s *Summary) repeated() report.Section {
	return report.Section{
		Title: "Failures that are repeated",
		Text:  []string{"A failure is repeated when the same agent has failed in the same class before, in an earlier task of the stream. All kinds count, also those of the environment, which no memory can prevent, and those to which only wrong advice has led."},
		Bars:  s.bars("repeated failures in a stream, with 95 % intervals", "repeats_per_stream", "", 1, 1),
		Table: &report.Table{Title: "Where a class had failed before, it failed again in", Head: []string{"arm", "share of tasks"}, Rows: s.rates()},
	}
}

func (s *Summary) rates() [][]string {
	var rows [][]string
	for _, arm := range s.options.Arms {
		name := "repeat_failure_rate_" + string(arm)
		if v, has := s.Figures[name]; has {
			rows = append(rows, []string{label(arm), fmt.Sprintf("%s (%s … %s)", percent(v), percent(s.Figures[name+"_low"]), percent(s.Figures[name+"_high"]))})
		}
	}
	return rows
}

func (s *Summary) kinds() report.Section {
	b := &report.Bars{Title: "fewer repeated failures than without a memory, asked before each call, by kind of failure", Unit: "%"}
	t := &report.Table{Head: []string{"repeated failures in a stream"}}
	for _, arm := range s.options.Arms {
		t.Head = append(t.Head, label(arm))
	}
	for _, kind := range world.Kinds() {
		name := "repeat_reduction_check_vs_none_" + string(kind)
		if v, has := s.Figures[name]; has {
			b.Bars = append(b.Bars, s.bar(strings.ReplaceAll(string(kind), "_", " "), name, v, 100))
		}
		row := []string{strings.ReplaceAll(string(kind), "_", " ")}
		for _, arm := range s.options.Arms {
			row = append(row, fmt.Sprintf("%.1f", s.Figures["repeats_per_stream_"+string(arm)+"_"+string(kind)]))
		}
		t.Rows = append(t.Rows, row)
	}
	return report.Section{
		Title: "By kind of failure",
		Text:  []string{"Below zero the memory adds failures. For one-off failures nothing that was learnt is right later; for those of the environment no lesson is right at all."},
		Bars:  b, Table: t,
	}
}

func (s *Summary) obedience() report.Section {
	series := report.Series{Name: "check"}
	a := analysis{o: s.options}
	for _, p := range a.obediences() {
		name := fmt.Sprintf("repeat_reduction_check_vs_none_obey_%03d", int(math.Round(p*100)))
		if v, has := s.Figures[name]; has {
			series.Points = append(series.Points, report.Point{X: p, Y: 100 * v, Low: 100 * s.Figures[name+"_low"], High: 100 * s.Figures[name+"_high"]})
		}
	}
	return report.Section{
		Title: "How much depends on obedience",
		Text:  []string{fmt.Sprintf("Values other than %.2g were run on the first %d streams only, so that their intervals are wider.", s.options.Obey, min(s.options.SensitivitySeeds, s.options.Seeds))},
		Lines: &report.Lines{Title: "fewer repeated failures than without a memory", X: "probability with which the agent follows what it is told", Y: "%", Series: []report.Series{series}},
	}
}

func (s *Summary) planted() report.Section {
	t := &report.Table{Head: []string{"wrong lessons", "planted", "shown", "shown 30 times or more", "out of service", "within 30 recalls, of those shown"}}
	for _, arm := range []struct{ name, prefix string }{{"guard on", "planted"}, {"guard off", "unguarded_planted"}} {
		if n, has := s.Figures[arm.prefix+"_lessons"]; has {
			within := "–"
			if v, is := s.Figures[arm.prefix+"_out_of_service_within_30"]; is {
				within = percent(v)
			}
			t.Rows = append(t.Rows, []string{
				arm.name, fmt.Sprintf("%.0f", n), fmt.Sprintf("%.0f", s.Figures[arm.prefix+"_shown"]), fmt.Sprintf("%.0f", s.Figures[arm.prefix+"_shown_30_times"]),
				percent(s.Figures[arm.prefix+"_out_of_service"]), within,
			})
		}
	}
	return report.Section{
		Title: "Wrong lessons",
		Text: []string{
			"The product has no switch for what protects it from wrong lessons. With the guard off it is kept from what it could find out by: the agent gives no feedback and does not say for which task it asks, so that no answer can be joined with how the task ended.",
			"A lesson that was shown fewer than 30 times and is still in service counts as not out: the share is from below.",
		},
		Table: t,
	}
}

func (s *Summary) method() []string {
	o := s.options
	return []string{
		fmt.Sprintf("%d streams of %d tasks, about %d failure classes in all (formats, names and types of parameters, missing preconditions, order of calls, wrong tools, permissions, limits, "+
			"facts that change, failures that only the outcome shows, one-offs, faults of the environment); a third of the tasks in Chinese, a tenth in which nothing is wrong. Every arm meets the same tasks, and an agent has the same luck in each.", o.Seeds, o.Tasks, world.ClassCount()),
		"The agent makes its calls as it always does unless a text tells it otherwise. It follows what it reads about the tool at hand with the given probability, drops it when the call fails, then does what the error says, " +
			"then what its own script has next, or gives up. It reads only what the product returns over MCP; the failure class is known to the world alone.",
		fmt.Sprintf("The product runs whole in one process on embedded engines, with its local embedding model and no language model. After each task its events are published with the outcome, and the next begins when it was reflected. "+
			"The jobs of the consolidation (merge, induce, sweep) run after every %d tasks.", o.ConsolidateEvery),
		"Wrong lessons are planted before the first task as traces of another agent, in which a right call is refused and a wrong one works: a fifth of the lessons, if each failure class gives one.",
		"Intervals are 95 % percentile bootstraps over whole streams (4,000 draws): tasks of one stream are not independent. Tokens are those of whole answers in o200k_base, with random ids, marks, times and scores replaced by fixed ones of the same form.",
	}
}

func limits() []string {
	return []string{
		"The world is written by the same hands as the product. Its failure classes were fixed before the first measurement and know nothing of how lessons are worded; the agent's reader knows common wordings of instructions, among them those that the product uses.",
		"All ages are real ones: a stream is over in minutes, so that nothing grows old and no tier changes.",
		"Streams are short, and a class is met a few times: what takes long to learn, such as rules over many tasks, can show little.",
	}
}
