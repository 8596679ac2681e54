package evaluate

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/memory"
	"github.com/hindsight-memory/hindsight/internal/recall"
)

// expectation is a question of a user with what an answer should show, and what not: ids of items, or pieces of their text.
type expectation struct {
	Namespace string   `yaml:"namespace"`
	Question  string   `yaml:"question"`
	TaskType  string   `yaml:"task_type"`
	Expect    []string `yaml:"expect"`
	NotExpect []string `yaml:"not_expect"`
}

func (e expectation) check() error {
	if err := events.ValidateNamespace(e.Namespace); err != nil {
		return err //nolint:wrapcheck // It says what a namespace must be.
	}
	if strings.TrimSpace(e.Question) == "" {
		return errors.New("question is missing")
	}
	if len(e.Expect)+len(e.NotExpect) == 0 {
		return errors.New("expect and not_expect are both empty")
	}
	for _, text := range slices.Concat(e.Expect, e.NotExpect) {
		if strings.TrimSpace(text) == "" {
			return errors.New("an expectation is empty: it would be in every item")
		}
	}
	return nil
}

// maxQuestionsFile is how large a file of questions may be, in bytes.
const maxQuestionsFile = 16 << 20

// readExpectations reads a list of questions. One that cannot be asked is counted and named, and costs no other; a file that
// is no list at all is an error that names the line.
func readExpectations(path string, r io.Reader) (input[expectation], error) {
	in := input[expectation]{path: path}
	raw, err := io.ReadAll(io.LimitReader(r, maxQuestionsFile+1))
	if err != nil {
		return in, fmt.Errorf("read %s: %w", path, err)
	}
	if len(raw) > maxQuestionsFile {
		return in, fmt.Errorf("%w in %s: it is larger than %d bytes", ErrInput, path, maxQuestionsFile)
	}
	var list []yaml.Node
	if err := yaml.NewDecoder(bytes.NewReader(raw)).Decode(&list); err != nil {
		if errors.Is(err, io.EOF) {
			return in, in.check()
		}
		return in, fmt.Errorf("%w in %s: it is not a list of questions: %w", ErrInput, path, err)
	}
	for _, node := range list {
		var e expectation
		err := node.Decode(&e)
		if err == nil {
			err = e.check()
		}
		if err != nil {
			in.refuse(node.Line, err)
			continue
		}
		in.good = append(in.good, numbered[expectation]{node.Line, e})
	}
	return in, in.check()
}

// Asked is what the suite recall asks.
type Asked interface {
	Recall(ctx context.Context, q recall.Question) (recall.Answer, error)
}

// Questions asks an installation the questions of a file (YAML) and says at which place the items stand that were expected,
// and for those that are missing why. items looks for what was not shown.
func Questions(ctx context.Context, path string, asked Asked, items memory.ItemReader) (Report, error) {
	report := newReport("recall", 0)
	file, err := os.Open(path)
	if err != nil {
		return report, fmt.Errorf("read questions: %w", err)
	}
	defer file.Close() //nolint:errcheck // It was only read.
	in, err := readExpectations(path, file)
	if err != nil {
		return report, err
	}
	e := &examiner{asked: asked, items: items, reasons: map[string]int{}, stored: map[string][]storedItem{}}
	for _, q := range in.good {
		if err := e.examine(ctx, q); err != nil {
			return report, fmt.Errorf("question on line %d of %s: %w", q.line, path, err)
		}
	}
	report.Figures["questions"] = float64(len(in.good))
	report.shareInterval("hit1", e.hit1)
	report.shareInterval("hit5", e.hit5)
	report.share("expected_shown", e.shown)
	report.share("unexpected_shown", e.unwanted)
	if e.hit1.of > 0 {
		report.Figures["mrr"] = e.reciprocal / float64(e.hit1.of)
	}
	report.Figures["tokens_mean"], report.Figures["items_mean"] = float64(e.tokens)/float64(len(in.good)), float64(e.count)/float64(len(in.good))
	for _, reason := range missReasons() {
		report.Figures["missed_"+reason] = float64(e.reasons[reason])
	}
	report.Examples = append(report.Examples, firstOf(e.examples, 5*maxExamples)...)
	in.tell(&report)
	return report, nil
}

// Reasons for which an expected item is not in an answer.
const (
	missedNotFound = "not_found" // no search brings it, or there is none
	missedMinScore = "below_min_score"
	missedBudget   = "cut_by_budget"
	missedTopK     = "ranked_below_top_k"
	missedWithheld = "withheld" // held for review, quarantined, superseded or otherwise not shown to anybody
	missedMerged   = "said_by_another"
)

func missReasons() []string {
	return []string{missedNotFound, missedMinScore, missedBudget, missedTopK, missedWithheld, missedMerged}
}

// wideTopK and wideBudget are those of a question that asks for all that would be found.
const (
	wideTopK   = recall.MaxTopK
	wideBudget = 1 << 20
)

// examiner asks questions one by one and counts.
type examiner struct {
	asked    Asked
	items    memory.ItemReader
	reasons  map[string]int
	examples []string
	// stored holds what was read of a namespace to look for what was not shown.
	stored map[string][]storedItem

	hit1, hit5, shown, unwanted proportion
	reciprocal                  float64
	tokens, count               int
}

func (e *examiner) examine(ctx context.Context, n numbered[expectation]) error {
	q := n.value
	question := recall.Question{Namespace: q.Namespace, Text: q.Question, TaskType: q.TaskType}
	answer, err := e.asked.Recall(ctx, question)
	if err != nil {
		return fmt.Errorf("recall: %w", err)
	}
	e.tokens, e.count = e.tokens+answer.Tokens, e.count+len(answer.Items)
	for _, text := range q.NotExpect {
		place := placeOf(answer.Items, text)
		e.unwanted.add(place > 0)
		if place > 0 {
			e.examples = append(e.examples, fmt.Sprintf("shown although it should not be, line %d: %q → place %d: %s", n.line, q.Question, place, text))
		}
	}
	if len(q.Expect) == 0 {
		return nil
	}
	best := 0
	for _, text := range q.Expect {
		place := placeOf(answer.Items, text)
		e.shown.add(place > 0)
		if place > 0 && (best == 0 || place < best) {
			best = place
		}
		if place == 0 {
			reason, detail, err := e.why(ctx, question, text)
			if err != nil {
				return err
			}
			e.reasons[reason]++
			e.examples = append(e.examples, fmt.Sprintf("missed, line %d: %q → %s: %s%s", n.line, q.Question, text, strings.ReplaceAll(reason, "_", " "), detail))
		}
	}
	e.hit1.add(best == 1)
	e.hit5.add(best > 0 && best <= 5)
	if best > 0 {
		e.reciprocal += 1 / float64(best)
	}
	return nil
}

// placeOf is the place, from 1, of the first item that an expectation names; 0 when there is none.
func placeOf(items []recall.Item, expected string) int {
	for i, item := range items {
		if item.ID == expected || says(item.Text+"\n"+item.Lesson+"\n"+item.When, expected) {
			return i + 1
		}
	}
	return 0
}

// says reports whether a text holds a piece of text, whatever the case and the spaces.
func says(text, piece string) bool {
	return strings.Contains(plain(text), plain(piece))
}

func plain(text string) string { return strings.ToLower(strings.Join(strings.Fields(text), " ")) }

// why asks again with each limit taken away in turn, to find out which one kept an item out.
func (e *examiner) why(ctx context.Context, q recall.Question, expected string) (reason, detail string, err error) {
	q.TopK, q.Budget = wideTopK, wideBudget
	wide, err := e.asked.Recall(ctx, q)
	if err != nil {
		return "", "", fmt.Errorf("recall with a wide budget: %w", err)
	}
	if place := placeOf(wide.Items, expected); place > recall.DefaultTopK {
		return missedTopK, fmt.Sprintf(" (place %d)", place), nil
	} else if place > 0 {
		return missedBudget, fmt.Sprintf(" (place %d)", place), nil
	}
	q.MinScore = -1
	all, err := e.asked.Recall(ctx, q)
	if err != nil {
		return "", "", fmt.Errorf("recall without a limit of similarity: %w", err)
	}
	if place := placeOf(all.Items, expected); place > 0 {
		return missedMinScore, fmt.Sprintf(" (similarity %.2f)", all.Items[place-1].Similarity), nil
	}
	stored, err := e.find(ctx, q.Namespace, expected)
	switch {
	case err != nil:
		return "", "", err
	case stored == nil:
		return missedNotFound, " (there is no such item)", nil
	case stored.status != memory.ItemActive:
		return missedWithheld, fmt.Sprintf(" (%s is %s)", stored.id, stored.status), nil
	}
	merged, err := e.items.Relations(ctx, q.Namespace, []string{stored.id})
	if err != nil {
		return "", "", fmt.Errorf("read relations: %w", err)
	}
	for _, r := range merged {
		if r.Kind == memory.RelationMergedInto && !r.Removed && r.FromID == stored.id && placeOf(all.Items, r.ToID) > 0 {
			return missedMerged, fmt.Sprintf(" (%s stands for it)", r.ToID), nil
		}
	}
	return missedNotFound, fmt.Sprintf(" (%s is there and no search brings it)", stored.id), nil
}

// storedItem is an item of the record, whatever its status.
type storedItem struct {
	id, text string
	status   memory.ItemStatus
}

// find looks in the whole namespace for an item that an expectation names; an active one before others.
func (e *examiner) find(ctx context.Context, namespace, expected string) (*storedItem, error) {
	items, read := e.stored[namespace]
	if !read {
		var err error
		if items, err = storedItems(ctx, e.items, namespace); err != nil {
			return nil, err
		}
		e.stored[namespace] = items
	}
	for i, item := range items {
		if item.id == expected || says(item.text, expected) {
			return &items[i], nil
		}
	}
	return nil, nil //nolint:nilnil // That there is none is an answer.
}

// storedItems reads all items of a namespace, active ones first.
func storedItems(ctx context.Context, items memory.ItemReader, namespace string) ([]storedItem, error) {
	filter := memory.ItemFilter{Namespace: namespace}
	var out []storedItem
	snapshots, err := items.Snapshots(ctx, filter)
	if err != nil {
		return nil, fmt.Errorf("read snapshots: %w", err)
	}
	for _, s := range snapshots {
		text := []string{s.Situation, s.TaskContext.InputSummary, s.AppliesWhen, s.Decision.ToolSelected, string(s.Decision.Parameters), s.Decision.ReasoningPath, s.Outcome.ErrorMessage}
		if s.Reflection != nil {
			text = append(text, s.Reflection.Lesson, s.Reflection.Alternative, s.Reflection.RootCause)
		}
		out = append(out, storedItem{s.SnapshotID, strings.Join(text, "\n"), s.Status})
	}
	memories, err := items.Memories(ctx, filter)
	if err != nil {
		return nil, fmt.Errorf("read memories: %w", err)
	}
	for _, m := range memories {
		out = append(out, storedItem{m.MemoryID, strings.Join([]string{m.Content, m.Entity + ": " + m.Value}, "\n"), m.Status})
	}
	rules, err := items.Rules(ctx, filter)
	if err != nil {
		return nil, fmt.Errorf("read rules: %w", err)
	}
	for _, r := range rules {
		out = append(out, storedItem{r.RuleID, strings.Join([]string{r.Rule, r.Condition, r.Action, r.DoesNotApplyWhen}, "\n"), r.Status})
	}
	rank := func(s storedItem) int {
		if s.status == memory.ItemActive {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(out, func(a, b storedItem) int { return cmp.Compare(rank(a), rank(b)) })
	return out, nil
}
