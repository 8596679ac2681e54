package evaluate

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/memory"
)

const (
	// deciles is how many parts the learning curve has.
	deciles = 10
	// examplesOfAKind bounds the examples of each way in which the product falls short.
	examplesOfAKind = 6
	// tagLastWrite marks a lesson that names the last change of a failed run of which nothing more is known.
	tagLastWrite = string(memory.FindingLastWrite)
)

// replayScorer goes through the stream a second time, beside the answers.
type replayScorer struct {
	answers map[string]runAnswers
	// events and runs find what evidence names.
	events map[string]recordedCall
	owners map[string]*recordedRun
	runs   map[string]*recordedRun

	// seen holds in which batch an error was first met, goals the earlier runs of a goal.
	seen  map[errorKey]int
	goals map[string][]*recordedRun

	tokens   tokenCounter
	figures  map[string]float64
	examples map[string][]string
}

// scoreReplay compares what was served with what followed.
func scoreReplay(stream [][]*recordedRun, answers map[string]runAnswers) (Report, error) {
	s := &replayScorer{
		answers: answers, events: map[string]recordedCall{}, owners: map[string]*recordedRun{}, runs: map[string]*recordedRun{},
		seen: map[errorKey]int{}, goals: map[string][]*recordedRun{}, figures: map[string]float64{}, examples: map[string][]string{},
	}
	for _, name := range counted() { // A figure is there although nothing was counted.
		s.figures[name], s.figures[name+"_"+memorised], s.figures[name+"_"+generalised] = 0, 0, 0
	}
	total := 0
	for _, batch := range stream {
		total += len(batch)
		for _, r := range batch {
			s.runs[r.taskID] = r
			for _, c := range r.calls {
				s.events[c.eventID], s.owners[c.eventID] = c, r
			}
		}
	}
	done := 0
	for n, batch := range stream {
		for _, r := range batch {
			if err := s.run(r, n, done*deciles/total+1); err != nil {
				return Report{}, err
			}
			done++
		}
	}
	s.figures["runs"], s.figures["batches"] = float64(total), float64(len(stream))
	s.shares()
	examples := []string{}
	for _, kind := range slices.Sorted(maps.Keys(s.examples)) {
		examples = append(examples, s.examples[kind]...)
	}
	return Report{Suite: "replay", Figures: s.figures, Examples: examples}, nil
}

// counted lists the figures that are counts, for all tasks and for either split.
func counted() []string {
	return []string{
		"error_events", "error_events_repeated", "error_events_repeated_environment", "error_events_learnt", "error_events_covered",
		"error_events_covered_by_run", "error_events_covered_by_call", "silent_failures", "silent_failures_first_covered", "silent_failures_again",
		"silent_failures_again_after_success", "silent_failures_again_same_difference", "silent_failures_covered", "silent_failures_covered_by_run",
		"silent_failures_covered_by_call", "failed_runs", "failed_runs_repeating", "failed_runs_covered", "tasks", "calls", "tokens", "tokens_start",
		"tokens_calls", "tokens_texts", "start_items", "start_items_tool_occurs", "start_items_matched", "check_items", "check_items_about_errors",
		"check_items_matched_error", "check_items_matched_silent", "calls_answered", "calls_warned", "calls_warned_failed", "calls_worked", "calls_worked_warned",
	}
}

// count adds to a figure, and to the same of the tasks whose goal was seen before or was not, and of the decile.
func (s *replayScorer) count(name, split string, decile int, n int) {
	s.figures[name] += float64(n)
	s.figures[name+"_"+split] += float64(n)
	if decile > 0 {
		s.figures[fmt.Sprintf("decile_%02d_%s", decile, name)] += float64(n)
	}
}

func (s *replayScorer) example(kind, format string, args ...any) {
	if len(s.examples[kind]) < examplesOfAKind {
		s.examples[kind] = append(s.examples[kind], kind+": "+fmt.Sprintf(format, args...))
	}
}

const (
	memorised   = "memorised"
	generalised = "generalised"
)

// run scores one run, and then counts it among the earlier ones.
func (s *replayScorer) run(r *recordedRun, batch, decile int) error {
	a := s.answers[r.taskID]
	earlier := s.goals[r.goalID]
	split := generalised
	if r.goalID != "" && len(earlier) > 0 {
		split = memorised
	}
	s.count("tasks", split, 0, 1)
	s.count("calls", split, 0, len(r.calls))
	tokens := a.Start.Tokens
	s.count("tokens_start", split, 0, a.Start.Tokens)
	for _, c := range a.Calls {
		tokens += c.Tokens
		s.count("tokens_calls", split, 0, c.Tokens)
	}
	texts := 0
	for _, answer := range a.all() {
		for _, item := range answer.Items {
			n, err := s.tokens.count(item.Text)
			if err != nil {
				return err
			}
			texts += n
		}
	}
	s.count("tokens_texts", split, 0, texts)
	s.count("tokens", split, decile, tokens)
	s.count("tasks_in_curve", split, decile, 1)
	s.figures["tokens_task_max"] = max(s.figures["tokens_task_max"], float64(tokens))
	for _, answer := range a.all() {
		if answer.Notice != "" && len(answer.Items) > 0 { // Such as that a search did not answer in time.
			s.figures["answers_with_notice"]++
		}
	}
	repeating, covered := s.errors(r, a, batch, split, decile)
	d := silentDifference(r, earlier)
	if r.failed() {
		s.count("failed_runs", split, 0, 1)
		if r.silent() {
			again, served := s.silent(r, a, d, split, decile)
			repeating, covered = repeating || again, covered || served
		}
		if repeating {
			s.count("failed_runs_repeating", split, decile, 1)
		}
		if covered {
			s.count("failed_runs_covered", split, decile, 1)
		}
	}
	s.precision(r, a, d, split)

	for _, c := range r.calls {
		if _, known := s.seen[c.key()]; c.failed() && !known {
			s.seen[c.key()] = batch
		}
	}
	if r.goalID != "" {
		s.goals[r.goalID] = append(earlier, r)
	}
	return nil
}

// errors scores the calls that failed: whether the same error had been met in an earlier run, and whether an item that is
// about it was served before.
func (s *replayScorer) errors(r *recordedRun, a runAnswers, batch int, split string, decile int) (repeating, covered bool) {
	for i, c := range r.calls {
		if !c.failed() {
			continue
		}
		s.count("error_events", split, decile, 1)
		first, known := s.seen[c.key()]
		if !known {
			continue
		}
		repeating = true
		s.count("error_events_repeated", split, decile, 1)
		if memory.EnvironmentFault("", c.message) != memory.FaultNone {
			s.count("error_events_repeated_environment", split, 0, 1)
		}
		if first < batch {
			s.count("error_events_learnt", split, decile, 1)
		}
		byRun := slices.ContainsFunc(a.Start.Items, func(item servedItem) bool { return s.about(item, c.key()) })
		byCall := i < len(a.Calls) && slices.ContainsFunc(a.Calls[i].Items, func(item servedItem) bool { return s.about(item, c.key()) })
		if byRun {
			s.count("error_events_covered_by_run", split, 0, 1)
		}
		if byCall {
			s.count("error_events_covered_by_call", split, 0, 1)
		}
		if byRun || byCall {
			covered = true
			s.count("error_events_covered", split, decile, 1)
			continue
		}
		var served []servedItem
		if i < len(a.Calls) {
			served = a.Calls[i].Items
		}
		s.example("missed error", "%s line %d call %d: %s %s answered %q (%s); before the call was served: %s", r.path, r.line, i+1, c.tool,
			events.CutText(string(c.parameters), 200), events.CutText(c.message, 160), learntWhen(first, batch), told(served))
	}
	return repeating, covered
}

func learntWhen(first, batch int) string {
	if first < batch {
		return fmt.Sprintf("learnt %d batches before", batch-first)
	}
	return "met before in the same batch only, and so not learnt yet"
}

// about reports an item that names the tool, and whose evidence is a call of that tool that failed with that error.
func (s *replayScorer) about(item servedItem, key errorKey) bool {
	if !item.Failed || item.Tool != key.tool || !names(item.Text, key.tool) {
		return false
	}
	return item.Signature == key.signature || slices.ContainsFunc(item.Evidence, func(id string) bool { return s.events[id].key() == key })
}

// aboutErrors reports an item that is about a call that fails with an error.
func (s *replayScorer) aboutErrors(item servedItem) bool {
	return item.Failed && (item.Signature != "" || slices.ContainsFunc(item.Evidence, func(id string) bool { return s.events[id].tool == item.Tool && s.events[id].failed() }))
}

// names reports a name that stands in a text as a whole word.
func names(text, name string) bool {
	for from := 0; name != ""; {
		at := strings.Index(text[from:], name)
		if at < 0 {
			return false
		}
		start := from + at
		end := start + len(name)
		if (start == 0 || !wordByte(text[start-1])) && (end == len(text) || !wordByte(text[end])) {
			return true
		}
		from = start + 1
	}
	return false
}

func wordByte(b byte) bool {
	return b == '_' || '0' <= b && b <= '9' || 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z'
}

// difference is one way in which a run did otherwise than one of its goal that succeeded: it left a tool out, used one that
// the other did not, or gave a parameter other values. parameter is empty but for the last.
type difference struct {
	how, tool, parameter string
}

const (
	leftOut = "left out"
	extra   = "extra"
	valued  = "values"
)

// differences lists how a run differs from one that succeeded.
func differences(r, succeeded *recordedRun) map[difference]bool {
	out := map[difference]bool{}
	for _, c := range succeeded.calls {
		if !r.uses(c.tool) {
			out[difference{leftOut, c.tool, ""}] = true
			continue
		}
		for path := range c.values {
			mine, theirs := valuesOf(r, c.tool, path), valuesOf(succeeded, c.tool, path)
			if !overlap(mine, theirs) {
				out[difference{valued, c.tool, path}] = true
			}
		}
	}
	for _, c := range r.calls {
		if !succeeded.uses(c.tool) {
			out[difference{extra, c.tool, ""}] = true
			continue
		}
		for path := range c.values {
			if len(valuesOf(succeeded, c.tool, path)) == 0 {
				out[difference{valued, c.tool, path}] = true
			}
		}
	}
	return out
}

func valuesOf(r *recordedRun, tool, path string) map[string]bool {
	out := map[string]bool{}
	for _, c := range r.calls {
		if c.tool == tool {
			maps.Copy(out, c.values[path])
		}
	}
	return out
}

func overlap(a, b map[string]bool) bool {
	for v := range a {
		if b[v] {
			return true
		}
	}
	return false
}

// silentState is what earlier runs of its goal allow to be said about a run.
type silentState struct {
	// failedBefore and succeededBefore tell whether earlier runs of the goal failed and succeeded.
	failedBefore, succeededBefore bool
	// again are the differences that the run shares with an earlier one that failed, to an earlier one that succeeded.
	again map[difference]bool
}

// silentDifference finds what a run does again that runs of its goal that failed did, against those that succeeded. Two runs
// of a goal are never in one batch, so that all earlier ones were learnt when the run was asked about.
func silentDifference(r *recordedRun, earlier []*recordedRun) silentState {
	out := silentState{again: map[difference]bool{}}
	for _, e := range earlier {
		out.failedBefore = out.failedBefore || e.failed()
		out.succeededBefore = out.succeededBefore || e.status == events.StatusSuccess
	}
	if !r.failed() {
		return out
	}
	for _, good := range earlier {
		if good.status != events.StatusSuccess {
			continue
		}
		mine := differences(r, good)
		for _, bad := range earlier {
			if !bad.failed() {
				continue
			}
			for d := range differences(bad, good) {
				if mine[d] {
					out.again[d] = true
				}
			}
		}
	}
	return out
}

// silent scores a failed run without an error of a tool. again reports one on a goal that failed before.
func (s *replayScorer) silent(r *recordedRun, a runAnswers, d silentState, split string, decile int) (again, covered bool) {
	s.count("silent_failures", split, decile, 1)
	if !d.failedBefore {
		if s.explainsAt(r, a, d) != "" { // Only a rule, drawn from other goals, can.
			s.count("silent_failures_first_covered", split, 0, 1)
		}
		return false, false
	}
	s.count("silent_failures_again", split, decile, 1)
	if d.succeededBefore {
		s.count("silent_failures_again_after_success", split, decile, 1)
	}
	if len(d.again) > 0 {
		s.count("silent_failures_again_same_difference", split, decile, 1)
	}
	switch s.explainsAt(r, a, d) {
	case "run":
		s.count("silent_failures_covered_by_run", split, 0, 1)
	case "call":
		s.count("silent_failures_covered_by_call", split, 0, 1)
	default:
		kind := "missed silent failure, no earlier success"
		if len(d.again) > 0 {
			kind = "missed silent failure that repeats a difference"
		} else if d.succeededBefore {
			kind = "missed silent failure that differs otherwise"
		}
		s.example(kind, "%s line %d: goal %s %q; does again %s; at the start was served: %s", r.path, r.line, r.goalID, events.CutText(r.goal, 120), listed(d.again), told(a.Start.Items))
		return true, false
	}
	s.count("silent_failures_covered", split, decile, 1)
	return true, true
}

// explainsAt says where an item was served that explains a silent failure: run, call or nowhere.
func (s *replayScorer) explainsAt(r *recordedRun, a runAnswers, d silentState) string {
	if slices.ContainsFunc(a.Start.Items, func(item servedItem) bool { return s.explains(r, item, d, 0) }) {
		return "run"
	}
	for i, answer := range a.Calls {
		if slices.ContainsFunc(answer.Items, func(item servedItem) bool { return s.explains(r, item, d, i) }) {
			return "call"
		}
	}
	return ""
}

// explains reports an item that names, before call at is made, what a run that fails does again: one drawn from an earlier
// run of its goal that names a difference, or a rule that was drawn from an earlier run of the goal, or from others where the
// goal is new, and that the run breaks.
func (s *replayScorer) explains(r *recordedRun, item servedItem, d silentState, at int) bool {
	if item.Layer == memory.LayerRule {
		if item.Failed || d.failedBefore && !slices.ContainsFunc(item.Evidence, func(id string) bool { return s.ofGoal(s.owners[id], r) }) {
			return false
		}
		p, err := memory.ParsePredicate(item.Predicate)
		return err == nil && p.Call == "" && p.HoldsForTask(r.steps())
	}
	if !s.ofGoal(s.runs[item.TaskID], r) || s.aboutErrors(item) {
		return false
	}
	said := advice(item.Text)
	for d := range d.again {
		if !names(item.Text, d.tool) {
			continue
		}
		onlyLast := slices.Contains(item.Tags, tagLastWrite)
		switch {
		case d.how == leftOut && names(said, d.tool),
			d.how == extra && !onlyLast && names(said, d.tool) && callsFrom(r, d.tool, at),
			d.how == valued && !onlyLast && names(said, lastOfPath(d.parameter)) && callsFrom(r, d.tool, at):
			return true
		}
	}
	return false
}

// ofGoal reports that another run had the goal of r.
func (s *replayScorer) ofGoal(other, r *recordedRun) bool {
	return other != nil && r.goalID != "" && other.goalID == r.goalID && other.taskID != r.taskID
}

// callsFrom reports that the run calls a tool, and not before call at.
func callsFrom(r *recordedRun, tool string, at int) bool {
	first := slices.IndexFunc(r.calls, func(c recordedCall) bool { return c.tool == tool })
	return first >= at
}

func lastOfPath(path string) string {
	return strings.TrimSuffix(path[strings.LastIndex(path, ".")+1:], "[]")
}

// told are the lines of an item that tell what happened and not what to do.
var toldLine = regexp.MustCompile(`^(?:Situation|Decision|Result|When|Not when|情境|决策|结果|适用于|不适用于): `)

// advice is what an item advises: its text without the lines that tell what was.
func advice(text string) string {
	var out []string
	for line := range strings.Lines(text) {
		if !toldLine.MatchString(line) {
			out = append(out, line)
		}
	}
	return strings.Join(out, "")
}

// precision scores each item that was served.
func (s *replayScorer) precision(r *recordedRun, a runAnswers, d silentState, split string) {
	for _, item := range a.Start.Items {
		s.count("start_items", split, 0, 1)
		if s.occurs(r, item) {
			s.count("start_items_tool_occurs", split, 0, 1)
		}
		if slices.ContainsFunc(r.calls, func(c recordedCall) bool { return c.failed() && s.about(item, c.key()) }) || r.silent() && s.explains(r, item, d, 0) {
			s.count("start_items_matched", split, 0, 1)
		}
	}
	for i, answer := range a.Calls {
		if i >= len(r.calls) {
			break
		}
		call, warned := r.calls[i], false
		for _, item := range answer.Items {
			s.count("check_items", split, 0, 1)
			if s.aboutErrors(item) {
				s.count("check_items_about_errors", split, 0, 1)
				warned = true
			}
			switch {
			case call.failed() && s.about(item, call.key()):
				s.count("check_items_matched_error", split, 0, 1)
			case r.silent() && s.explains(r, item, d, i):
				s.count("check_items_matched_silent", split, 0, 1)
			case !call.failed() && s.aboutErrors(item):
				s.example("false warning", "%s line %d call %d: %s %s worked; before it was served: %s", r.path, r.line, i+1, call.tool,
					events.CutText(string(call.parameters), 200), told([]servedItem{item}))
			case !s.aboutErrors(item):
				s.example("matched nothing", "%s line %d call %d: %s; the run ended %s; before the call was served: %s", r.path, r.line, i+1, call.tool, r.status, told([]servedItem{item}))
			}
		}
		if len(answer.Items) > 0 {
			s.count("calls_answered", split, 0, 1)
		}
		if warned {
			s.count("calls_warned", split, 0, 1)
			if call.failed() {
				s.count("calls_warned_failed", split, 0, 1)
			}
		}
		if !call.failed() {
			s.count("calls_worked", split, 0, 1)
			if warned {
				s.count("calls_worked_warned", split, 0, 1)
			}
		}
	}
}

// occurs reports that the run makes a decision that the item is about: it calls its tool, or one that its advice names.
func (s *replayScorer) occurs(r *recordedRun, item servedItem) bool {
	if item.Tool != "" {
		return r.uses(item.Tool)
	}
	said := advice(item.Text)
	return slices.ContainsFunc(r.calls, func(c recordedCall) bool { return names(said, c.tool) })
}

// shares adds the figures that are quotients. One without anything to divide by is left out.
func (s *replayScorer) shares() {
	share := func(name, of, by string) {
		for _, suffix := range []string{"", "_" + memorised, "_" + generalised} {
			if whole := s.figures[by+suffix]; whole > 0 {
				s.figures[name+suffix] = s.figures[of+suffix] / whole
			}
		}
	}
	share("error_events_repeated_share", "error_events_repeated", "error_events")
	share("error_events_learnt_of_repeated", "error_events_learnt", "error_events_repeated")
	share("error_events_covered_share", "error_events_covered", "error_events")
	share("error_events_covered_of_repeated", "error_events_covered", "error_events_repeated")
	share("error_events_covered_of_learnt", "error_events_covered", "error_events_learnt")
	share("error_events_covered_by_run_of_repeated", "error_events_covered_by_run", "error_events_repeated")
	share("error_events_covered_by_call_of_repeated", "error_events_covered_by_call", "error_events_repeated")
	share("silent_failures_again_share", "silent_failures_again", "silent_failures")
	share("silent_failures_ceiling_after_success", "silent_failures_again_after_success", "silent_failures_again")
	share("silent_failures_ceiling_same_difference", "silent_failures_again_same_difference", "silent_failures_again")
	share("silent_failures_covered_of_again", "silent_failures_covered", "silent_failures_again")
	share("silent_failures_covered_of_same_difference", "silent_failures_covered", "silent_failures_again_same_difference")
	share("failed_runs_covered_of_repeating", "failed_runs_covered", "failed_runs_repeating")
	share("failed_runs_covered_share", "failed_runs_covered", "failed_runs")
	share("failed_runs_repeating_share", "failed_runs_repeating", "failed_runs")
	share("tokens_per_task", "tokens", "tasks")
	share("tokens_start_per_task", "tokens_start", "tasks")
	share("tokens_calls_per_task", "tokens_calls", "tasks")
	share("tokens_texts_per_task", "tokens_texts", "tasks")
	share("start_precision", "start_items_tool_occurs", "start_items")
	share("start_matched_share", "start_items_matched", "start_items")
	share("check_precision_about_errors", "check_items_matched_error", "check_items_about_errors")
	share("calls_warned_precision", "calls_warned_failed", "calls_warned")
	share("calls_worked_warned_share", "calls_worked_warned", "calls_worked")
	for _, suffix := range []string{"", "_" + memorised, "_" + generalised} {
		if whole := s.figures["check_items"+suffix]; whole > 0 {
			s.figures["check_precision"+suffix] = (s.figures["check_items_matched_error"+suffix] + s.figures["check_items_matched_silent"+suffix]) / whole
			s.figures["check_unmatched_share"+suffix] = 1 - s.figures["check_precision"+suffix]
		}
	}
	for d := 1; d <= deciles; d++ {
		prefix := fmt.Sprintf("decile_%02d_", d)
		for name, of := range map[string][2]string{
			"error_events_covered_of_repeated": {"error_events_covered", "error_events_repeated"},
			"silent_failures_covered_of_again": {"silent_failures_covered", "silent_failures_again"},
			"failed_runs_covered_of_repeating": {"failed_runs_covered", "failed_runs_repeating"},
			"tokens_per_task":                  {"tokens", "tasks_in_curve"},
		} {
			if whole := s.figures[prefix+of[1]]; whole > 0 {
				s.figures[prefix+name] = s.figures[prefix+of[0]] / whole
			}
		}
	}
	for name := range s.figures {
		if strings.Contains(name, "tasks_in_curve") || strings.HasPrefix(name, "decile_") && strings.HasSuffix(name, "_tokens") {
			delete(s.figures, name)
		}
	}
}

// told shows items shortly.
func told(items []servedItem) string {
	if len(items) == 0 {
		return "nothing"
	}
	out := make([]string, 0, len(items))
	for _, item := range items {
		said := strings.Join(strings.Fields(advice(item.Text)), " ")
		out = append(out, fmt.Sprintf("[%s %s: %s]", item.Layer, cmp.Or(strings.Join(item.Tags, ","), "-"), events.CutText(said, 220)))
	}
	return strings.Join(out, " ")
}

// listed shows differences shortly, in a stable order.
func listed(all map[difference]bool) string {
	if len(all) == 0 {
		return "nothing that could be told from the data"
	}
	var out []string
	for d := range all {
		out = append(out, strings.TrimSpace(d.how+" "+d.tool+" "+d.parameter))
	}
	slices.Sort(out)
	if len(out) > 5 {
		out = append(out[:5], fmt.Sprintf("and %d more", len(out)-5))
	}
	return strings.Join(out, ", ")
}
