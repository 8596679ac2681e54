package evaluate

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/memory"
)

// played makes a recorded run out of calls such as `book {"cabin":"economy"}`, a failed one with ` ! its error`.
func played(id, goal string, status events.Status, calls ...string) *recordedRun {
	r := &recordedRun{taskID: id, goalID: goal, goal: "please " + goal, taskType: "t", status: status}
	for i, text := range calls {
		text, message, failed := strings.Cut(text, " ! ")
		tool, parameters, _ := strings.Cut(text, " ")
		c := recordedCall{
			eventID: fmt.Sprintf("%s/%d", id, i), tool: tool, parameters: json.RawMessage(parameters), status: events.StatusSuccess,
			values: parameterValues(json.RawMessage(parameters)),
		}
		if failed {
			c.status, c.message, c.signature = events.StatusFailure, message, memory.ErrorSignature(message)
		}
		r.calls = append(r.calls, c)
	}
	return r
}

// answersTo is what was served about a run; n of its calls are answered with nothing unless given.
func answersTo(r *recordedRun, start []servedItem, calls map[int][]servedItem) runAnswers {
	a := runAnswers{Run: r.taskID, Start: servedAnswer{Items: start, Tokens: 100}, Calls: make([]servedAnswer, len(r.calls))}
	for i := range a.Calls {
		a.Calls[i] = servedAnswer{Items: calls[i], Tokens: 10}
	}
	return a
}

func scored(t *testing.T, stream [][]*recordedRun, answers ...runAnswers) map[string]float64 {
	t.Helper()
	byRun := map[string]runAnswers{}
	for _, a := range answers {
		byRun[a.Run] = a
	}
	report, err := scoreReplay(stream, byRun)
	if err != nil {
		t.Fatal(err)
	}
	return report.Figures
}

func want(t *testing.T, figures map[string]float64, wanted map[string]float64) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if have, there := figures[name]; have != wanted[name] || !there {
			t.Errorf("%s = %v, want %v", name, have, wanted[name])
		}
	}
}

const amountError = "Error: amount 5 is not 7"

// TestAnErrorIsCoveredOnlyByALessonAboutIt: what names another tool, another error, or does not name the tool to the reader
// says nothing about it, and a lesson that was served before another call came at the wrong moment.
func TestAnErrorIsCoveredOnlyByALessonAboutIt(t *testing.T) {
	t.Parallel()
	first := played("first", "a", events.StatusFailure, `pay {"amount":5} ! `+amountError, `pay {"amount":5} ! Error: no such card`, `look {"amount":5} ! `+amountError)
	again := played("again", "b", events.StatusFailure, `look {}`, `pay {"amount":8} ! Error: amount 8 is not 9`)
	lesson := servedItem{ID: "x", Layer: memory.LayerSnapshot, Text: "Lesson: when calling `pay`, add up", Tool: "pay", Failed: true, TaskID: "first", Evidence: []string{"first/0"}}
	changed := func(change func(*servedItem)) []servedItem {
		item := lesson
		change(&item)
		return []servedItem{item}
	}
	tests := map[string]struct {
		start         []servedItem
		calls         map[int][]servedItem
		byRun, byCall float64
	}{
		"at the start":         {start: []servedItem{lesson}, byRun: 1},
		"before the call":      {calls: map[int][]servedItem{1: {lesson}}, byCall: 1},
		"before another call":  {calls: map[int][]servedItem{0: {lesson}}},
		"another error":        {start: changed(func(i *servedItem) { i.Evidence = []string{"first/1"} })},
		"another tool":         {start: changed(func(i *servedItem) { i.Tool, i.Text, i.Evidence = "look", "`look`", []string{"first/2"} })},
		"the tool is not said": {start: changed(func(i *servedItem) { i.Text = "Lesson: when calling `pay_all`, add up" })},
		"about a success":      {start: changed(func(i *servedItem) { i.Failed = false })},
		"a rule":               {start: []servedItem{{Layer: memory.LayerRule, Text: "`pay`", Tool: "pay", Failed: true, Signature: memory.ErrorSignature(amountError)}}, byRun: 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := scored(t, [][]*recordedRun{{first}, {again}}, answersTo(first, nil, nil), answersTo(again, test.start, test.calls))
			covered := max(test.byRun, test.byCall)
			want(t, got, map[string]float64{
				"error_events": 4, "error_events_repeated": 1, "error_events_learnt": 1, "error_events_repeated_generalised": 1, "error_events_covered": covered,
				"error_events_covered_by_run": test.byRun, "error_events_covered_by_call": test.byCall, "error_events_covered_of_repeated": covered,
				"failed_runs": 2, "failed_runs_repeating": 1, "failed_runs_covered": covered,
				"start_items": float64(len(test.start)), "start_items_matched": test.byRun, "check_items_matched_error": test.byCall,
			})
		})
	}
}

// TestWhatWasNotLearntYetIsToldApart: the ceiling of the data and that of the replay's own pace are two figures.
func TestWhatWasNotLearntYetIsToldApart(t *testing.T) {
	t.Parallel()
	a := played("1", "a", events.StatusFailure, `pay {} ! `+amountError, `pay {} ! `+amountError)
	b := played("2", "b", events.StatusFailure, `pay {} ! `+amountError)
	got := scored(t, [][]*recordedRun{{a, b}}, answersTo(a, nil, nil), answersTo(b, nil, nil))
	want(t, got, map[string]float64{"error_events": 3, "error_events_repeated": 1, "error_events_learnt": 0, "error_events_covered": 0})
}

// TestASilentFailureIsCoveredOnlyByWhatItDoesAgain.
func TestASilentFailureIsCoveredOnlyByWhatItDoesAgain(t *testing.T) {
	t.Parallel()
	bad := played("bad", "g", events.StatusFailure, `find {"id":"1"}`, `book {"cabin":"business","seat":"1"}`, `mail {}`)
	good := played("good", "g", events.StatusSuccess, `find {"id":"1"}`, `confirm {}`, `book {"cabin":"economy","seat":"2"}`)
	again := played("again", "g", events.StatusFailure, `find {"id":"1"}`, `book {"cabin":"business","seat":"2"}`, `mail {}`)
	other := played("other", "h", events.StatusFailure, `mail {}`)
	diverged := func(said string) servedItem {
		return servedItem{
			Layer: memory.LayerSnapshot, Text: "Situation: `confirm` `mail` cabin\nDecision: book {\"cabin\":\"business\"}\nResult: succeeded\nLesson: " + said,
			Tool: "book", Tags: []string{string(memory.FindingDiverged)}, TaskID: "bad", Evidence: []string{"bad/1"},
		}
	}
	lastWrite := func(said string) servedItem {
		item := diverged(said)
		item.Tags = []string{tagLastWrite}
		return item
	}
	from := func(task string, item servedItem) servedItem {
		item.TaskID = task
		return item
	}
	rule := func(evidence, predicate string) servedItem {
		return servedItem{Layer: memory.LayerRule, Text: "Do: confirm", Evidence: []string{evidence}, Predicate: json.RawMessage(predicate)}
	}
	tests := map[string]struct {
		start []servedItem
		calls map[int][]servedItem
		want  float64
	}{
		"what was left out":                 {start: []servedItem{diverged("call `confirm`")}, want: 1},
		"what the other did not call":       {start: []servedItem{diverged("do not call `mail`")}, want: 1},
		"a value":                           {start: []servedItem{diverged("`book`: set `cabin` to economy")}, want: 1},
		"from the run that succeeded":       {start: []servedItem{from("good", diverged("call `confirm`"))}, want: 1},
		"before the call that it is about":  {calls: map[int][]servedItem{1: {diverged("`book`: set `cabin` to economy")}}, want: 1},
		"after the call that it is about":   {calls: map[int][]servedItem{2: {diverged("`book`: set `cabin` to economy")}}},
		"a value that is right this time":   {start: []servedItem{diverged("`book`: set `seat` to another")}},
		"a call that is made this time":     {start: []servedItem{diverged("call `find`")}},
		"only that it was the last change":  {start: []servedItem{lastWrite("`mail` was the last change, and `book` has a `cabin`")}},
		"told in the situation but no more": {start: []servedItem{diverged("be careful")}},
		"of another goal":                   {start: []servedItem{from("other", diverged("call `confirm`"))}},
		"a rule that is broken":             {start: []servedItem{rule("bad/1", `{"all":[{"is":"unused","tool":"confirm"}]}`)}, want: 1},
		"a rule of other goals":             {start: []servedItem{rule("other/0", `{"all":[{"is":"unused","tool":"confirm"}]}`)}},
		"a rule that is kept":               {start: []servedItem{rule("bad/1", `{"all":[{"is":"unused","tool":"find"}]}`)}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := scored(t, [][]*recordedRun{{bad}, {good}, {other}, {again}},
				answersTo(bad, nil, nil), answersTo(good, nil, nil), answersTo(other, nil, nil), answersTo(again, test.start, test.calls))
			want(t, got, map[string]float64{
				"silent_failures": 3, "silent_failures_again": 1, "silent_failures_again_after_success": 1, "silent_failures_again_same_difference": 1,
				"silent_failures_covered": test.want, "silent_failures_covered_of_again": test.want, "failed_runs_covered": test.want, "failed_runs_repeating": 1,
			})
		})
	}
}

// TestPrecisionCountsEveryItem: a warning before a call that worked, or failed otherwise, is wrong.
func TestPrecisionCountsEveryItem(t *testing.T) {
	t.Parallel()
	first := played("first", "a", events.StatusFailure, `pay {} ! `+amountError)
	again := played("again", "a", events.StatusFailure, `pay {} ! `+amountError, `pay {} ! Error: no such card`, `pay {}`)
	lesson := servedItem{Layer: memory.LayerSnapshot, Text: "Lesson: `pay`", Tool: "pay", Failed: true, TaskID: "first", Evidence: []string{"first/0"}}
	fact := servedItem{Layer: memory.LayerMemory, Text: "Known: it is blue"}
	got := scored(t, [][]*recordedRun{{first}, {again}}, answersTo(first, nil, nil),
		answersTo(again, []servedItem{lesson, fact}, map[int][]servedItem{0: {lesson, fact}, 1: {lesson}, 2: {lesson}}))
	want(t, got, map[string]float64{
		"check_items": 4, "check_items_about_errors": 3, "check_items_matched_error": 1, "check_precision": 0.25, "check_unmatched_share": 0.75,
		"calls_answered": 3, "calls_warned": 3, "calls_warned_failed": 2, "calls_worked": 1, "calls_worked_warned": 1, "calls_worked_warned_share": 1,
		"start_items": 2, "start_items_tool_occurs": 1, "start_precision": 0.5, "start_items_matched": 1, "check_items_memorised": 4,
		"tokens": 100 + 10 + 100 + 30, "tokens_per_task": 120, "tokens_task_max": 130, "tokens_per_task_memorised": 130,
	})
	if _, there := got["silent_failures_covered_of_again"]; there {
		t.Error("there is a share of nothing")
	}
}

func TestBatchesHoldAGoalOnce(t *testing.T) {
	t.Parallel()
	var runs []*recordedRun
	for i, goal := range []string{"a", "b", "a", "c", "d", "e", "", ""} {
		runs = append(runs, played(strconv.Itoa(i), goal, events.StatusSuccess))
	}
	var got []string
	for _, batch := range batches(runs, 3) {
		var goals []string
		for _, r := range batch {
			goals = append(goals, r.goalID)
		}
		got = append(got, strings.Join(goals, ","))
	}
	if want := []string{"a,b", "a,c,d", "e,,"}; !slices.Equal(got, want) {
		t.Errorf("batches = %q, want %q", got, want)
	}
}

// TestRunsAreReadInTheirOrderAndWithoutLabels: by time where there is one, else by trial and place; what people judged and
// the script of a simulated user are nowhere in what is asked or learnt.
func TestRunsAreReadInTheirOrderAndWithoutLabels(t *testing.T) {
	t.Parallel()
	line := func(task string, trial int, started string) string {
		return fmt.Sprintf(`{"source":"s","run":"r","trial":%d,"task_id":%q,"task":"SECRET script","started_at":%s,"outcome":{"success":false},"labels":{"gold":"SECRET answer"},"steps":[`+
			`{"type":"message","role":"user","content":"goal %s"},{"type":"tool_call","tool":"pay","args":{"a":[{"b":1}],"text":"one two three four"},"error":"Error: no 5","by":"assistant"},`+
			`{"type":"tool_call","tool":"reboot","args":{},"by":"user"}]}`+"\n", trial, task, started, task)
	}
	path := filepath.Join(t.TempDir(), "runs.jsonl")
	all := line("late", 0, `"2025-01-02T00:00:00"`) + line("second", 1, "null") + line("first", 0, "null") + line("then", 0, "null") + line("early", 0, `"2025-01-01T00:00:00"`) + "{\n"
	if err := os.WriteFile(path, []byte(all), 0o600); err != nil {
		t.Fatal(err)
	}
	runs, err := readRuns(t.Context(), []string{path}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var goals []string
	for _, r := range runs {
		goals = append(goals, strings.TrimPrefix(r.goal, "goal "))
		if len(r.calls) != 1 || r.calls[0].signature != "error: no <value>" || !maps.EqualFunc(r.calls[0].values, map[string]map[string]bool{"a[].b": {"1": true}}, maps.Equal) {
			t.Errorf("calls of %s are %+v", r.goal, r.calls)
		}
		for _, raw := range r.encoded {
			if strings.Contains(string(raw), "SECRET") {
				t.Errorf("an event holds what nobody may see: %s", raw)
			}
		}
	}
	if want := []string{"first", "then", "second", "early", "late"}; !slices.Equal(goals, want) {
		t.Errorf("order %q, want %q", goals, want)
	}
}

// TestAnInterruptedLogGoesOn: a line that was cut is written again, and another replay does not use it.
func TestAnInterruptedLogGoesOn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	head := replayHead{Input: "x", Runs: 2, LearnEvery: 1, Embedder: "none"}
	log, err := openReplayLog(dir, head)
	if err != nil {
		t.Fatal(err)
	}
	if err := log.add(runAnswers{Run: "1", Start: servedAnswer{Tokens: 7}}); err != nil {
		t.Fatal(err)
	}
	if err := log.learn(0); err != nil {
		t.Fatal(err)
	}
	if err := log.add(runAnswers{Run: "2"}); err != nil {
		t.Fatal(err)
	}
	if err := log.close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, answersFile)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, info.Size()-5); err != nil {
		t.Fatal(err)
	}
	for range 2 { // The second time what was cut is whole.
		if log, err = openReplayLog(dir, head); err != nil {
			t.Fatal(err)
		}
		if log.learnt != 1 || log.answers["1"].Start.Tokens != 7 {
			t.Errorf("%d learnt, answers %+v", log.learnt, log.answers)
		}
		if err := log.add(runAnswers{Run: "2", Batch: 1}); err != nil {
			t.Fatal(err)
		}
		if err := log.close(); err != nil {
			t.Fatal(err)
		}
	}
	head.LearnEvery = 2
	if _, err := openReplayLog(dir, head); !errors.Is(err, errOtherReplay) {
		t.Errorf("the log of another replay: %v", err)
	}
}

// TestTheDataAllow counts real runs: the ceilings are those of the data, whatever is served.
func TestTheDataAllow(t *testing.T) {
	t.Parallel()
	dir := os.Getenv("HINDSIGHT_TEST_DATA")
	if dir == "" {
		t.Skip("HINDSIGHT_TEST_DATA names no folder with recorded runs")
	}
	runs, err := readRuns(t.Context(), []string{filepath.Join(dir, "traces", "tau_airline_gpt4o.jsonl.gz")}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.IsSortedFunc(runs, func(a, b *recordedRun) int {
		return a.began.Truncate(24 * time.Hour).Compare(b.began.Truncate(24 * time.Hour))
	}) {
		t.Error("the trials are not in their order")
	}
	got := scored(t, batches(runs, 10))
	want(t, got, map[string]float64{
		"runs": 150, "failed_runs": 87, "error_events": 54, "error_events_repeated": 38, "error_events_repeated_memorised": 36,
		"silent_failures": 67, "silent_failures_again": 33, "silent_failures_again_after_success": 11, "error_events_covered": 0,
	})
}

// TestEqualAnswersHaveEquallyManyTokens: what is new in each answer counts the same.
func TestEqualAnswersHaveEquallyManyTokens(t *testing.T) {
	t.Parallel()
	var c tokenCounter
	answer := func(id, mark, at, score string) int {
		n, err := c.count(`{"recall_id":"` + id + `","items":[{"score":` + score + `,"created_at":"` + at + `","text":"[memory-` + mark + ` source=x]"}]}`)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	a := answer("0190c4f2-7a1e-7d3b-9c55-1f0e8a2b6c4d", "aaaaaaaaaaaa", "2025-01-06T08:00:00Z", "0.5")
	if b := answer("ffffffff-1111-7222-8333-444444444444", "0123456789ab", "2026-11-30T23:59:59Z", "0.123"); a != b || a < 40 {
		t.Errorf("%d and %d tokens", a, b)
	}
}
