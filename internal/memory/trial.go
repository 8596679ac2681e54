package memory

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/hindsight-memory/hindsight/events"
)

// Trials counts what later tasks show about a lesson that says which parameters a call should have instead.
type Trials struct {
	// Worked are calls made as the lesson says that worked, in tasks that did not fail.
	Worked int
	// Refused are calls made as the lesson says that failed with the error that it was to prevent, or with one that speaks of
	// what it changed.
	Refused int
	// Failed are calls made as the lesson says that worked, in tasks that failed all the same.
	Failed int
	// Needless are calls made as the lesson warns of that worked, in tasks that did not fail.
	Needless int
	// Again are calls made as the lesson warns of that failed with the same error.
	Again int
}

// Tried reports that anything was shown at all.
func (t Trials) Tried() bool { return t != Trials{} }

// String says the trials in words, for a person.
func (t Trials) String() string {
	type count struct {
		n    int
		what string
	}
	var out []string
	for _, calls := range []struct {
		made string
		of   []count
	}{
		{"calls made as it says: ", []count{{t.Refused, "refused"}, {t.Failed, "in failed tasks"}, {t.Worked, "worked"}}},
		{"calls made as it warns of: ", []count{{t.Needless, "worked"}, {t.Again, "failed"}}},
	} {
		var said []string
		for _, c := range calls.of {
			if c.n > 0 {
				said = append(said, fmt.Sprintf("%d %s", c.n, c.what))
			}
		}
		if len(said) > 0 {
			out = append(out, calls.made+strings.Join(said, ", "))
		}
	}
	return strings.Join(out, "; ")
}

// A Repair is a call that failed and one that worked, as a lesson sets them against each other.
type Repair struct {
	tool, signature string
	failing, work   flat
	failingShape    map[string]string
	workShape       map[string]string
	// paths are the parameters in which the two differ, those that the error speaks of if there are such.
	paths []string
}

// RepairOf finds what a lesson sets against each other: its own decision, and the call of the same tool that worked among
// the steps that are its evidence. Is is false where there is no such call, or where it differs in nothing.
func RepairOf(s Snapshot, steps []Step) (c Repair, is bool) {
	if s.Reflection == nil || s.Reflection.IsOptimal {
		return c, false
	}
	failing := s.Decision.Parameters
	own := Step{Tool: s.Decision.ToolSelected, Parameters: failing, Status: s.Outcome.Status, ErrorType: s.Outcome.ErrorType, ErrorMessage: s.Outcome.ErrorMessage}
	for _, step := range slices.Backward(steps) {
		if step.Tool != own.Tool || step.Status != events.StatusSuccess || !slices.Contains(s.Evidence, step.EventID) {
			continue
		}
		changes := differences(failing, step.Parameters, errorText(own))
		spoken := slices.ContainsFunc(changes, func(c Change) bool { return c.Related })
		for _, change := range changes {
			if spoken && !change.Related {
				continue
			}
			for _, path := range []string{change.Parameter, change.FromName} {
				if path != "" && !slices.Contains(c.paths, path) {
					c.paths = append(c.paths, path)
				}
			}
		}
		if len(c.paths) == 0 {
			continue
		}
		c.tool, c.failing, c.work = own.Tool, flatten(failing), flatten(step.Parameters)
		c.failingShape, c.workShape = Shape(failing), Shape(step.Parameters)
		if own.Status == events.StatusFailure {
			c.signature = StepSignature(own)
		}
		return c, true
	}
	return c, false
}

// With adds what one later task shows. A value is told by its form where the two calls differ in that, else by itself: what
// is particular to one task shows nothing about another.
func (t Trials) With(c Repair, task Task) Trials {
	taskFailed := failed(task)
	followed, before := false, false
	for _, s := range task.Steps {
		if s.Tool != c.tool || s.Status == events.StatusFailure && EnvironmentFault(s.ErrorType, errorText(s)) != FaultNone {
			continue
		}
		works := s.Status == events.StatusSuccess
		switch {
		case !followed && c.like(s.Parameters, c.work, c.workShape, c.failing, c.failingShape):
			followed = true
			switch {
			case works && taskFailed:
				t.Failed++
			case works:
				t.Worked++
			case c.signature != "" && StepSignature(s) == c.signature || c.spokenOf(errorText(s)):
				t.Refused++
			}
		case !before && c.like(s.Parameters, c.failing, c.failingShape, c.work, c.workShape):
			before = true
			switch {
			case works && !taskFailed && !followed:
				t.Needless++
			case !works && c.signature != "" && StepSignature(s) == c.signature:
				t.Again++
			}
		}
	}
	return t
}

// like reports a call that is as one of the two in all that they differ in.
func (c Repair) like(parameters json.RawMessage, one flat, oneShape map[string]string, other flat, otherShape map[string]string) bool {
	call, shape := flatten(parameters), Shape(parameters)
	for _, path := range c.paths {
		_, inOne := one.leaves[path]
		_, inOther := other.leaves[path]
		_, inCall := call.leaves[path]
		switch {
		case inOne != inCall:
			return false
		case !inOne: // It is left out in both.
		case inOther && SameKind(oneShape[path], otherShape[path]) || !inOther && oneShape[path] == "":
			if !sameLeaves(one.leaves[path], call.leaves[path]) {
				return false
			}
		case !SameKind(oneShape[path], shape[path]):
			return false
		}
	}
	return true
}

// spokenOf reports an error that names what the two calls differ in.
func (c Repair) spokenOf(text string) bool {
	text = strings.ToLower(text)
	return slices.ContainsFunc(c.paths, func(path string) bool {
		_, is := wordAt(text, strings.ToLower(cmp.Or(lastName(strings.TrimSuffix(path, "[]")), path)))
		return is
	})
}

// Doubt is how probable it is, 0 to 1, that a lesson is wrong: by Bayes' rule from its confidence, which is the probability
// that it is right before it was tried, and from what the trials show. failureShare is how many tasks of its type fail, 0 to
// 1: where half of them fail in any case, one more says little.
//
// How probable each trial is if the lesson is right, and if it is wrong, is chosen and not measured: it says that a right
// lesson is hardly ever refused, that what it warns of works one time in five (since it may depend on what the lesson does
// not know), and that a wrong one prevents nothing.
func Doubt(confidence float64, t Trials, failureShare float64) float64 {
	c := min(0.95, max(0.05, clamp(confidence)))
	fails := min(0.95, max(0.05, clamp(failureShare)))
	odds := (1 - c) / c
	for _, trial := range []struct {
		n            int
		right, wrong float64
	}{
		{t.Worked, 1 - fails, 0.3 * (1 - fails)},
		{t.Failed, fails, max(fails, 0.9)},
		{t.Refused, 0.05, 0.5},
		{t.Needless, 0.2, 0.9},
		{t.Again, 0.8, 0.1},
	} {
		for range trial.n {
			odds *= trial.wrong / trial.right
		}
	}
	return odds / (1 + odds)
}

// DoubtRefuted is the doubt from which on a lesson is taken out of service.
const DoubtRefuted = 0.8
