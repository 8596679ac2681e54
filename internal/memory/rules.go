package memory

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hindsight-memory/hindsight/events"
)

// ConditionKind says what one condition of a predicate is about.
type ConditionKind string

// Kinds of conditions. The first group is about a call, the second about the course of a task.
const (
	// ConditionPresent and ConditionAbsent: the call has, or has not, the parameter Path.
	ConditionPresent ConditionKind = "present"
	ConditionAbsent  ConditionKind = "absent"
	// ConditionFormat: what stands at Path is of the kind Format, as [Shape] names it.
	ConditionFormat ConditionKind = "format"
	// ConditionShape: the parameters have the shape Shape, all of it.
	ConditionShape ConditionKind = "shape"
	// ConditionWithout: no call of Tool has succeeded earlier in the task.
	ConditionWithout ConditionKind = "without"

	// ConditionUsed and ConditionUnused: the task calls Tool, or never does.
	ConditionUsed   ConditionKind = "used"
	ConditionUnused ConditionKind = "unused"
	// ConditionOrder: the task calls Tool, and after its first call of it Then for the first time.
	ConditionOrder ConditionKind = "order"
	// ConditionError: a call of Tool fails with ErrorSignature.
	ConditionError ConditionKind = "error"
	// ConditionUnrepaired: a call of Tool fails with ErrorSignature, and none of Tool succeeds after it.
	ConditionUnrepaired ConditionKind = "unrepaired"
)

// Condition is one thing that must hold. Which fields count depends on its kind.
type Condition struct {
	Is             ConditionKind     `json:"is"`
	Path           string            `json:"path,omitempty"`
	Format         string            `json:"format,omitempty"`
	Shape          map[string]string `json:"shape,omitempty"`
	Tool           string            `json:"tool,omitempty"`
	Then           string            `json:"then,omitempty"`
	ErrorSignature string            `json:"error_signature,omitempty"`
}

// Predicate is the condition of a rule for a program. Its JSON is what [Rule].Predicate holds:
//
//	{"call": "book_flight", "all": [{"is": "without", "tool": "get_user"}, {"is": "absent", "path": "payments[].id"}]}
//	{"all": [{"is": "error", "tool": "book_flight", "error_signature": "payment does not add up"}]}
//
// With Call it is about a call of that tool that is about to be made, else about the course of a whole task.
type Predicate struct {
	Call string      `json:"call,omitempty"`
	All  []Condition `json:"all"`
}

// ErrPredicate means that a predicate cannot be read.
var ErrPredicate = errors.New("predicate cannot be read")

// ParsePredicate reads a predicate. What it does not know is [ErrPredicate]: a rule that is only half understood would
// warn of the wrong calls.
func ParsePredicate(raw json.RawMessage) (Predicate, error) {
	var p Predicate
	if err := json.Unmarshal(raw, &p); err != nil {
		return Predicate{}, fmt.Errorf("%w: %w", ErrPredicate, err)
	}
	if len(p.All) == 0 {
		return Predicate{}, fmt.Errorf("%w: it has no condition", ErrPredicate)
	}
	for _, c := range p.All {
		var complete bool
		switch c.Is {
		case ConditionPresent, ConditionAbsent:
			complete = p.Call != "" && c.Path != ""
		case ConditionFormat:
			complete = p.Call != "" && c.Path != "" && c.Format != ""
		case ConditionShape:
			complete = p.Call != ""
		case ConditionWithout:
			complete = p.Call != "" && c.Tool != ""
		case ConditionUsed, ConditionUnused:
			complete = p.Call == "" && c.Tool != ""
		case ConditionOrder:
			complete = p.Call == "" && c.Tool != "" && c.Then != "" && c.Tool != c.Then
		case ConditionError, ConditionUnrepaired:
			complete = p.Call == "" && c.Tool != "" && c.ErrorSignature != ""
		}
		if !complete {
			return Predicate{}, fmt.Errorf("%w: condition %q is not known, incomplete or not of this kind of predicate", ErrPredicate, c.Is)
		}
	}
	return p, nil
}

// JSON is the canonical form: equal predicates have equal bytes.
func (p Predicate) JSON() json.RawMessage {
	p.All = slices.Clone(p.All)
	slices.SortFunc(p.All, func(a, b Condition) int { return strings.Compare(a.key(), b.key()) })
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false) // signatures are full of <value>
	if err := encoder.Encode(p); err != nil {
		panic(fmt.Sprintf("memory: encode a predicate: %v", err)) // strings and maps of strings always encode
	}
	return bytes.TrimSpace(out.Bytes())
}

func (c Condition) key() string {
	shape := make([]string, 0, len(c.Shape))
	for _, path := range slices.Sorted(maps.Keys(c.Shape)) {
		shape = append(shape, path, c.Shape[path])
	}
	return strings.Join(append([]string{string(c.Is), c.Path, c.Format, c.Tool, c.Then, c.ErrorSignature}, shape...), "\x00")
}

// Applies says whether a rule is about a call that is about to be made.
type Applies string

// Answers of [RuleApplies].
const (
	AppliesYes Applies = "yes"
	AppliesNo  Applies = "no"
	// AppliesUnknown means that it depends on what is not known: the earlier steps, or the rest of the task.
	AppliesUnknown Applies = "unknown"
)

// RuleApplies says whether the rule with this predicate is about a call of tool with these parameters, made after the
// earlier steps of its task. earlier is nil where they are not known, and empty but not nil where there are none. What
// the rest of a task will bring is never known, so that a rule about what a task leaves out is at best unknown. A
// predicate that cannot be read applies to nothing.
func RuleApplies(predicate json.RawMessage, tool string, parameters json.RawMessage, earlier []Step) Applies {
	p, err := ParsePredicate(predicate)
	if err != nil {
		return AppliesNo
	}
	if p.Call != "" && p.Call != tool {
		return AppliesNo
	}
	shape := Shape(parameters)
	out := AppliesYes
	for _, c := range p.All {
		switch c.applies(tool, shape, earlier) {
		case AppliesNo:
			return AppliesNo
		case AppliesUnknown:
			out = AppliesUnknown
		case AppliesYes:
		}
	}
	return out
}

func (c Condition) applies(tool string, shape map[string]string, earlier []Step) Applies {
	before := func(holds func(Step) bool) Applies {
		if earlier == nil {
			return AppliesUnknown
		}
		return yesNo(slices.ContainsFunc(earlier, holds))
	}
	switch c.Is {
	case ConditionPresent:
		return yesNo(hasPath(shape, c.Path))
	case ConditionAbsent:
		return yesNo(!hasPath(shape, c.Path))
	case ConditionFormat:
		return yesNo(shape[c.Path] == c.Format)
	case ConditionShape:
		return yesNo(SameShape(shape, c.Shape))
	case ConditionWithout:
		switch before(func(s Step) bool { return s.Tool == c.Tool && s.Status == events.StatusSuccess }) {
		case AppliesYes:
			return AppliesNo
		case AppliesNo:
			return AppliesYes
		case AppliesUnknown:
		}
		return AppliesUnknown
	case ConditionUsed:
		if tool == c.Tool {
			return AppliesYes
		}
		return before(func(s Step) bool { return s.Tool == c.Tool })
	case ConditionUnused:
		if tool == c.Tool || before(func(s Step) bool { return s.Tool == c.Tool }) == AppliesYes {
			return AppliesNo
		}
		return AppliesUnknown
	case ConditionOrder:
		if tool != c.Then || before(func(s Step) bool { return s.Tool == c.Then }) == AppliesYes {
			return AppliesNo
		}
		return before(func(s Step) bool { return s.Tool == c.Tool })
	case ConditionError, ConditionUnrepaired:
		if tool != c.Tool {
			return AppliesNo // What failed before matters to the next try.
		}
		if earlier == nil {
			return AppliesUnknown
		}
		return yesNo(c.met(earlier))
	}
	return AppliesNo
}

func yesNo(yes bool) Applies {
	if yes {
		return AppliesYes
	}
	return AppliesNo
}

// hasPath also finds a path that only leads to others.
func hasPath(shape map[string]string, path string) bool {
	if _, in := shape[path]; in {
		return true
	}
	for p := range shape {
		if rest, below := strings.CutPrefix(p, path); below && (strings.HasPrefix(rest, ".") || strings.HasPrefix(rest, "[]")) {
			return true
		}
	}
	return false
}

// HoldsForCall reports whether the predicate holds for a call of tool whose parameters have this [Shape], after these
// steps, which are all that came before it. It is false for one about tasks.
func (p Predicate) HoldsForCall(tool string, shape map[string]string, earlier []Step) bool {
	if p.Call == "" || tool != p.Call {
		return false
	}
	if earlier == nil {
		earlier = []Step{}
	}
	return !slices.ContainsFunc(p.All, func(c Condition) bool { return c.applies(tool, shape, earlier) != AppliesYes })
}

// HoldsForTask reports whether the predicate holds for a whole task. It is false for one about calls.
func (p Predicate) HoldsForTask(steps []Step) bool {
	return p.Call == "" && !slices.ContainsFunc(p.All, func(c Condition) bool { return !c.met(steps) })
}

// met reports whether a condition about a course of steps holds.
func (c Condition) met(steps []Step) bool {
	first := func(tool string) int { return slices.IndexFunc(steps, func(s Step) bool { return s.Tool == tool }) }
	switch c.Is {
	case ConditionUsed:
		return first(c.Tool) >= 0
	case ConditionUnused:
		return first(c.Tool) < 0
	case ConditionOrder:
		a, b := first(c.Tool), first(c.Then)
		return a >= 0 && b > a
	case ConditionError:
		return slices.ContainsFunc(steps, c.failed)
	case ConditionUnrepaired:
		last := -1
		for i, s := range steps {
			if c.failed(s) {
				last = i
			}
		}
		return last >= 0 && !slices.ContainsFunc(steps[last+1:], func(s Step) bool { return s.Tool == c.Tool && s.Status == events.StatusSuccess })
	case ConditionPresent, ConditionAbsent, ConditionFormat, ConditionShape, ConditionWithout:
	}
	return false
}

func (c Condition) failed(s Step) bool {
	return s.Tool == c.Tool && s.Status == events.StatusFailure && StepSignature(s) == c.ErrorSignature
}

// StepSignature is the [ErrorSignature] of a failed step: of its message, else of its type. It is empty for a step that
// did not fail or does not say why.
func StepSignature(s Step) string {
	if s.Status != events.StatusFailure {
		return ""
	}
	return ErrorSignature(cmp.Or(s.ErrorMessage, s.ErrorType))
}

// Contradicts reports that two predicates advise against each other: one of doing and one of leaving out the same.
func (p Predicate) Contradicts(q Predicate) bool {
	if len(p.All) != 1 || len(q.All) != 1 || p.Call != q.Call {
		return false
	}
	a, b := p.All[0], q.All[0]
	if a.Is > b.Is {
		a, b = b, a
	}
	switch {
	case a.Is == ConditionAbsent && b.Is == ConditionPresent:
		return a.Path == b.Path
	case a.Is == ConditionUnused && b.Is == ConditionUsed:
		return a.Tool == b.Tool
	case a.Is == ConditionOrder && b.Is == ConditionOrder:
		return a.Tool == b.Then && a.Then == b.Tool
	default:
		return false
	}
}

// RuleID names a rule by what it says for a program, never by its words.
func RuleID(namespace, taskType string, kind RuleKind, tool, errorSignature string, p Predicate) string {
	return HashID("rule", namespace, taskType, string(kind), tool, errorSignature, string(p.JSON()))
}

// ChangedParameters lists the paths of parameters that a working call has otherwise than the failing one, the most
// telling first.
func ChangedParameters(failing, working Step) []string {
	var out []string
	for _, c := range differences(failing.Parameters, working.Parameters, errorText(failing)) {
		if c.Parameter != "" && !freeText.MatchString(c.Parameter) && !slices.Contains(out, c.Parameter) {
			out = append(out, c.Parameter)
		}
	}
	return out
}
