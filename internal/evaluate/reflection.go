package evaluate

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hindsight-memory/hindsight/internal/importer"
	"github.com/hindsight-memory/hindsight/internal/memory"
)

// labelledRun is a recorded run with what a person says went wrong. What is not needed to place a step is not read.
type labelledRun struct {
	steps []labelledStep
	// failures are none when nobody judged the run.
	failures []labelledFailure
	// root is the failure that a person calls the root cause; nil when there is none.
	root *labelledFailure
	raw  []byte
	// place is the file and line, for examples.
	place string
}

type labelledStep struct {
	Type string `json:"type"`
	By   string `json:"by"`
	Tool string `json:"tool"`
}

type labelledFailure struct {
	ID int `json:"failure_id"`
	// Step counts original messages from 1.
	Step     int    `json:"step_number"`
	Category string `json:"failure_category"`
}

func parseLabelled(line []byte) (labelledRun, error) {
	var l struct {
		Steps  []labelledStep `json:"steps"`
		Labels struct {
			Human *struct {
				Failures []labelledFailure `json:"failures"`
				Root     *struct {
					ID int `json:"failure_id"`
				} `json:"root_cause"`
			} `json:"human"`
		} `json:"labels"`
	}
	if err := json.Unmarshal(line, &l); err != nil {
		return labelledRun{}, fmt.Errorf("it is not a run: %w", err)
	}
	if len(l.Steps) == 0 {
		return labelledRun{}, errors.New("a run without steps")
	}
	run := labelledRun{steps: l.Steps, raw: bytes.Clone(line)}
	human := l.Labels.Human
	if human == nil {
		return run, nil
	}
	run.failures = human.Failures
	for i, f := range human.Failures {
		if f.Step < 1 {
			return labelledRun{}, fmt.Errorf("step_number %d of a label: it must be at least 1", f.Step)
		}
		if human.Root != nil && f.ID == human.Root.ID {
			run.root = &human.Failures[i]
		}
	}
	if human.Root != nil && run.root == nil {
		return labelledRun{}, fmt.Errorf("root_cause names failure %d, which is not there", human.Root.ID)
	}
	return run, nil
}

// Widths of the steps of a run in the count of original messages, in which a system prompt comes first.
const (
	systemPrompt   = 1
	messagesOfCall = 2
	// labelTolerance is by how many messages a label and a decision may differ.
	labelTolerance = 1
)

// calls gives the number of the first original message of each decision of the agent, in their order.
func (r labelledRun) calls() []int {
	var out []int
	at := systemPrompt + 1
	for _, s := range r.steps {
		if s.Type != "tool_call" {
			at++
			continue
		}
		if s.By != "user" {
			out = append(out, at)
		}
		at += messagesOfCall
	}
	return out
}

// on reports whether the failure is one of the messages of a call, by its first.
func (f labelledFailure) on(call int) bool { return f.Step >= call && f.Step < call+messagesOfCall }

// meets reports whether a call, by its first message, is where a person saw the failure: one of its messages, or the one
// before or after.
func (f labelledFailure) meets(call int) bool {
	return f.Step >= call-labelTolerance && f.Step <= call+messagesOfCall-1+labelTolerance
}

// ReflectionOptions say what is reflected.
type ReflectionOptions struct {
	ProductOptions
	// Files are recorded runs (the trajectory format) of which some have labels.human.
	Files []string
}

const reflectionNamespace = "reflection"

// ReflectionLabels lets the product reflect recorded runs, without the labels, which the import never reads, and says
// whether the decisions that it keeps are where people see the root cause.
func ReflectionLabels(ctx context.Context, o ReflectionOptions) (report Report, err error) {
	report = newReport("reflection", 0)
	var runs []labelledRun
	for _, path := range o.Files {
		in, err := readFile(path, parseLabelled)
		if err != nil {
			return report, err
		}
		for _, r := range in.good {
			r.value.place = fmt.Sprintf("%s line %d", filepath.Base(path), r.line)
			runs = append(runs, r.value)
		}
		in.tell(&report)
	}
	if !slices.ContainsFunc(runs, func(r labelledRun) bool { return r.root != nil }) {
		return report, fmt.Errorf("%w in %s: no run has a root cause in labels.human", ErrInput, strings.Join(o.Files, ", "))
	}
	kept, err := reflected(ctx, o.ProductOptions, runs)
	if err != nil {
		return report, err
	}
	scoreReflection(&report, runs, kept)
	return report, nil
}

// reflected gives for each run the decisions that the product kept, by their number, from 1; nil for a run that it refused.
func reflected(ctx context.Context, o ProductOptions, runs []labelledRun) (kept [][]int, err error) {
	var lines bytes.Buffer
	for _, r := range runs {
		lines.Write(r.raw)
		lines.WriteByte('\n')
	}
	ids, err := taskIDs(ctx, lines.Bytes(), len(runs))
	if err != nil {
		return nil, err
	}
	m, err := startMeasured(ctx, o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.close()) }()
	o.Logger.Info("reflecting", "runs", len(runs))
	if err := m.imported(ctx, reflectionNamespace, importer.FormatTrajectory, lines.Bytes()); err != nil {
		return nil, fmt.Errorf("import the runs: %w", err)
	}
	snapshots, err := m.store.Snapshots(ctx, memory.ItemFilter{
		Namespace: reflectionNamespace, Statuses: []memory.ItemStatus{memory.ItemActive, memory.ItemPendingReview},
	})
	if err != nil {
		return nil, fmt.Errorf("read what was kept: %w", err)
	}
	byTask := map[string][]int{}
	for _, s := range snapshots {
		byTask[s.TaskID] = append(byTask[s.TaskID], s.Step)
	}
	kept = make([][]int, len(runs))
	for i, id := range ids {
		kept[i] = slices.Sorted(slices.Values(byTask[id]))
	}
	return kept, nil
}

// taskIDs gives the task that each of the lines becomes; empty for a line that cannot be imported.
func taskIDs(ctx context.Context, lines []byte, n int) ([]string, error) {
	im, err := importer.New(importer.Options{Format: importer.FormatTrajectory, Namespace: reflectionNamespace, Stdin: bytes.NewReader(lines)})
	if err != nil {
		return nil, fmt.Errorf("set up the import: %w", err)
	}
	ids := make([]string, n)
	for item := range im.Read(ctx, "-") {
		if r := item.Record; r != nil && r.Line <= n {
			ids[r.Line-1] = r.Key.TaskID
		}
	}
	return ids, nil
}

// scoreReflection compares what was kept with the labels.
func scoreReflection(report *Report, runs []labelledRun, kept [][]int) {
	var root, ceiling, exact, all proportion
	byCategory, ceilingByCategory := map[string]*proportion{}, map[string]*proportion{}
	decisions, needless, chance, calls := 0, 0, 0.0, 0
	for i, run := range runs {
		if run.root == nil {
			continue
		}
		messages := run.calls()
		var at []int // the first messages of the kept decisions
		for _, step := range kept[i] {
			if step >= 1 && step <= len(messages) {
				at = append(at, messages[step-1])
			}
		}
		there := len(slices.DeleteFunc(slices.Clone(messages), func(m int) bool { return !run.root.meets(m) }))
		hit := slices.ContainsFunc(at, run.root.meets)
		category := slug(run.root.Category)
		if byCategory[category] == nil {
			byCategory[category], ceilingByCategory[category] = &proportion{}, &proportion{}
		}
		root.add(hit)
		ceiling.add(there > 0)
		exact.add(slices.ContainsFunc(messages, run.root.on))
		byCategory[category].add(hit)
		ceilingByCategory[category].add(there > 0)
		for _, f := range run.failures {
			all.add(slices.ContainsFunc(at, f.meets))
		}
		for _, m := range at {
			decisions++
			if !run.root.meets(m) {
				needless++
			}
		}
		chance += hitByChance(len(messages), there, len(at))
		calls += len(messages)
		report.Examples = append(report.Examples, fmt.Sprintf("%s: %s: root cause (%s) at message %d, decisions kept at messages %v of %v",
			run.place, foundWord(hit), cmp.Or(run.root.Category, "no category"), run.root.Step, at, messages))
	}
	report.Figures["runs"], report.Figures["runs_with_root_cause"] = float64(len(runs)), float64(root.of)
	report.Figures["calls_of_labelled_runs"], report.Figures["decisions_kept"] = float64(calls), float64(decisions)
	report.shareInterval("root_cause_found", root)
	report.shareInterval("root_cause_ceiling", ceiling)
	report.share("root_cause_is_a_call", exact)
	report.Figures["root_cause_found_by_chance"] = chance / float64(root.of)
	report.share("any_failure_found", all)
	report.share("decisions_kept_that_are_no_root_cause", proportion{needless, decisions})
	for category, p := range byCategory {
		report.Figures["category_"+category+"_runs"] = float64(p.of)
		report.share("category_"+category+"_found", *p)
		report.share("category_"+category+"_ceiling", *ceilingByCategory[category])
	}
}

func foundWord(hit bool) string {
	if hit {
		return "found"
	}
	return "not found"
}

// hitByChance is how likely one of kept decisions, drawn from all, would be one of those that count.
func hitByChance(all, count, kept int) float64 {
	miss := 1.0
	for i := range min(kept, all) {
		miss *= max(0, float64(all-count-i)) / float64(all-i)
	}
	return 1 - miss
}

// slug makes a name of words.
func slug(text string) string {
	words := strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') })
	return cmp.Or(strings.Join(words, "_"), "none")
}
