package evaluate

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/hindsight-memory/hindsight/internal/evaluate/report"
)

// ReplayPage tells the result of a replay with charts. command is what repeats it.
func ReplayPage(r Report, command string) report.Page {
	f := figures(r.Figures)
	return report.Page{
		Title: "Replay: was the right lesson served before it was needed?",
		Lead: fmt.Sprintf("Of %s error events that repeat one of an earlier run, a lesson about that very error was served before %s (%s). "+
			"Of %s silent failures on a goal that had failed before, one that names what the run did again was served before %s (%s).",
			f.whole("error_events_repeated"), f.whole("error_events_covered"), f.percent("error_events_covered_of_repeated"),
			f.whole("silent_failures_again"), f.whole("silent_failures_covered"), f.percent("silent_failures_covered_of_again")),
		NotShown: []string{
			"This is coverage and not effect: the recorded agents never saw an answer. Nothing here says that they would have heeded one, or that it would have helped.",
		},
		Headlines: []report.Headline{
			{Value: f.percent("error_events_covered_of_repeated"), Label: "of repeated error events covered"},
			{Value: f.percent("silent_failures_covered_of_again"), Label: "of silent failures on a goal that failed before covered; the data allow " + f.percent("silent_failures_ceiling_same_difference")},
			{Value: f.percent("check_precision"), Label: "of items served before a call matched what followed"},
			{Value: f.whole("tokens_per_task"), Label: "tokens a task, all answers together"},
		},
		Sections: []report.Section{f.coverage(), f.precision(), f.curve(), f.split(), {Title: "Where it falls short", Examples: r.Examples}},
		Method: []string{
			"Recorded runs in the order of time. Before each run retrieve_similar was asked with its goal, before each call check_action with tool and parameters, by MCP. " +
				fmt.Sprintf("After at most %s runs these were imported, reflected, merged, and rules were drawn. A second run of a goal was asked about after the first was learnt.", f.whole("learn_every")),
			"An error event is covered by an item that names its tool and was drawn from a call of that tool that failed with the same error, values masked. A silent failure is covered by an item from an earlier run of its goal that advises about what the run did or left out again, as an earlier failure did and an earlier success did not.",
		},
		Limits: []string{
			"The ceiling of silent failures that repeat a difference is generous: any other value of a parameter counts as a difference.",
			"What an agent would tell while it works is not known to the memory: a run is learnt as a whole.",
		},
		Command: command,
		Made:    fmt.Sprintf("%s runs, %s calls, %s of the runs failed.", f.whole("runs"), f.whole("calls"), f.whole("failed_runs")),
	}
}

type figures map[string]float64

// value is a figure, or nothing that a chart draws.
func (f figures) value(name string) float64 {
	if v, there := f[name]; there {
		return v
	}
	return math.NaN()
}

func (f figures) whole(name string) string {
	return strconv.FormatFloat(math.Round(f[name]), 'f', 0, 64)
}

func (f figures) percent(name string) string {
	v, there := f[name]
	if !there {
		return "–"
	}
	return strconv.FormatFloat(100*v, 'f', 0, 64) + " %"
}

func (f figures) bar(label, name, note string) report.Bar {
	return report.Bar{Label: label, Value: f[name], Low: math.NaN(), High: math.NaN(), Note: note}
}

func (f figures) coverage() report.Section {
	return report.Section{
		Title: "Coverage, beside what the data allow",
		Bars: &report.Bars{Title: "Failures", Bars: []report.Bar{
			f.bar("error events", "error_events", ""),
			f.bar("… met before", "error_events_repeated", "ceiling"),
			f.bar("… covered", "error_events_covered", ""),
			f.bar("… at the start", "error_events_covered_by_run", ""),
			f.bar("… before the call", "error_events_covered_by_call", ""),
			f.bar("silent failures", "silent_failures", ""),
			f.bar("… goal failed before", "silent_failures_again", "ceiling"),
			f.bar("… and succeeded before", "silent_failures_again_after_success", "ceiling"),
			f.bar("… and repeats a difference", "silent_failures_again_same_difference", "ceiling"),
			f.bar("… covered", "silent_failures_covered", ""),
			f.bar("failed runs", "failed_runs", ""),
			f.bar("… that repeat something", "failed_runs_repeating", "ceiling"),
			f.bar("… covered", "failed_runs_covered", ""),
		}},
	}
}

func (f figures) precision() report.Section {
	rows := [][]string{}
	for _, row := range [][2]string{
		{"items before a call that matched what followed", "check_precision"},
		{"items before a call about errors, where the call failed so", "check_precision_about_errors"},
		{"calls warned of that failed, with whatever error", "calls_warned_precision"},
		{"calls that worked and were warned of", "calls_worked_warned_share"},
		{"items at the start whose tool was called", "start_precision"},
		{"items at the start that were right about a failure that followed", "start_matched_share"},
	} {
		rows = append(rows, []string{row[0], f.percent(row[1])})
	}
	return report.Section{Title: "Precision", Table: &report.Table{Head: []string{"", "share"}, Rows: rows}}
}

func (f figures) curve() report.Section {
	lines := report.Lines{Title: "Share covered of what repeats", X: "tenth of the stream", Y: "share"}
	lines.Decimals = 2
	for _, series := range [][2]string{{"error events", "error_events_covered_of_repeated"}, {"silent failures", "silent_failures_covered_of_again"}, {"failed runs", "failed_runs_covered_of_repeating"}} {
		s := report.Series{Name: series[0]}
		for d := 1; d <= deciles; d++ {
			if v := f.value(fmt.Sprintf("decile_%02d_%s", d, series[1])); !math.IsNaN(v) {
				s.Points = append(s.Points, report.Point{X: float64(d), Y: v, Low: math.NaN(), High: math.NaN()})
			}
		}
		lines.Series = append(lines.Series, s)
	}
	return report.Section{Title: "Over time", Lines: &lines}
}

func (f figures) split() report.Section {
	table := report.Table{Head: []string{"", "all", "goal seen before", "new goal"}}
	for _, name := range []string{
		"error_events_repeated", "error_events_covered", "error_events_covered_of_repeated", "silent_failures", "silent_failures_again", "silent_failures_covered",
		"silent_failures_covered_of_again", "check_precision", "start_precision", "tokens_per_task", "tokens_texts_per_task",
	} {
		row := []string{strings.ReplaceAll(name, "_", " ")}
		for _, suffix := range []string{"", "_" + memorised, "_" + generalised} {
			if slices.ContainsFunc([]string{"_of_", "precision"}, func(part string) bool { return strings.Contains(name, part) }) {
				row = append(row, f.percent(name+suffix))
			} else {
				row = append(row, f.whole(name+suffix))
			}
		}
		table.Rows = append(table.Rows, row)
	}
	return report.Section{Title: "Memorised and generalised", Table: &table}
}
