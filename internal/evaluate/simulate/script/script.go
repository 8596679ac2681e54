// Package script is what the simulated world and the scripted agent have in common: the tasks that an agent is given, the
// calls it makes, what comes back, and edits, which are ways to make a call otherwise.
//
// It knows no failure classes: what is right is known to the world alone. It does no I/O and imports nothing of ours.
package script

import (
	"encoding/json"
	"maps"
	"slices"
)

// Tool is what an agent is told of a tool.
type Tool struct {
	Name string
	// Parameters are those that a call needs, by name.
	Parameters []string
}

// Call is one call of a tool as an agent would make it.
type Call struct {
	Tool       string
	Parameters map[string]any
	// Ideas are what the agent tries of its own accord, one after the other, when the call fails and neither the error nor
	// its memory tells it what to do. Without any it gives up.
	Ideas [][]Edit
	// Variant is how the agent makes the call now and then instead of its habit; empty: never.
	Variant []Edit
}

// Task is all that an agent is given.
type Task struct {
	ID, Type, Goal string
	// Chinese tells the language of the task.
	Chinese bool
	// GoalID is the same for tasks that want the same of the same thing, however they are worded.
	GoalID string
	Tools  []Tool
	// Plan are the calls that the agent makes by default.
	Plan []Call
	// Facts are values that the goal and the agent's own knowledge give for parameters of tools that are not in the plan.
	Facts map[string]any
}

// Tool finds a tool of the task.
func (t Task) Tool(name string) (Tool, bool) {
	i := slices.IndexFunc(t.Tools, func(tool Tool) bool { return tool.Name == name })
	if i < 0 {
		return Tool{}, false
	}
	return t.Tools[i], true
}

// ToolNames lists the tools of the task.
func (t Task) ToolNames() []string {
	names := make([]string, len(t.Tools))
	for i, tool := range t.Tools {
		names[i] = tool.Name
	}
	return names
}

// Result is what a tool answers.
type Result struct {
	OK bool
	// Value is the answer of a call that worked.
	Value map[string]any
	// ErrorType and Message are set for a failure.
	ErrorType, Message string
}

// Outcome is how a task ended, as its user sees it.
type Outcome struct {
	Success bool
	// Reason is what the user complains of; it may be empty.
	Reason string
}

// Op is a way to make a call otherwise.
type Op string

// Ways to make a call otherwise.
const (
	// OpSet gives a parameter a value.
	OpSet Op = "set"
	// OpAdd gives a parameter that the call does not have; without a value the agent takes it from what it knows.
	OpAdd Op = "add"
	// OpRemove leaves a parameter out.
	OpRemove Op = "remove"
	// OpRename calls a parameter by another name.
	OpRename Op = "rename"
	// OpForm writes the value in another form.
	OpForm Op = "form"
	// OpFirst calls another tool before.
	OpFirst Op = "first"
	// OpInstead calls another tool instead.
	OpInstead Op = "instead"
	// OpAlso calls another tool before the task ends.
	OpAlso Op = "also"
	// OpNever leaves a planned call out.
	OpNever Op = "never"
	// OpTake takes the value of a parameter from the result of a tool, which is called if it was not yet.
	OpTake Op = "take"
)

// Edit is one way to make a call otherwise.
type Edit struct {
	Op        Op     `json:"op"`
	Parameter string `json:"parameter,omitempty"`
	// Value is that of OpSet and OpAdd.
	Value any `json:"value,omitempty"`
	// From is the value or form that is said to be wrong; an edit changes nothing else then.
	From string `json:"from,omitempty"`
	// Name is the old name of a renamed parameter.
	Name string `json:"name,omitempty"`
	// Form is that of OpForm; see [Convert].
	Form string `json:"form,omitempty"`
	// Tool is that of OpFirst, OpInstead, OpAlso, OpNever and OpTake.
	Tool string `json:"tool,omitempty"`
}

// OfParameters reports an edit that changes the parameters of the call by itself.
func (e Edit) OfParameters() bool {
	switch e.Op {
	case OpSet, OpAdd, OpRemove, OpRename, OpForm:
		return true
	case OpFirst, OpInstead, OpAlso, OpNever, OpTake:
		return false
	default:
		return false
	}
}

// Apply gives the parameters as the edit wants them, and whether that changes anything. known gives values for parameters
// that an edit adds without saying which value.
func Apply(parameters map[string]any, e Edit, known func(name string) (any, bool)) (map[string]any, bool) {
	present, has := parameters[e.Parameter]
	out := maps.Clone(parameters)
	switch e.Op {
	case OpSet, OpAdd:
		if e.Op == OpSet && (!has || e.From != "" && Text(present) != e.From) || e.Op == OpAdd && has {
			return parameters, false
		}
		value := e.Value
		if value == nil {
			found, is := known(e.Parameter)
			if !is {
				return parameters, false
			}
			value = found
		}
		out[e.Parameter] = like(present, value)
	case OpRemove:
		if !has {
			return parameters, false
		}
		delete(out, e.Parameter)
	case OpRename:
		old, had := parameters[e.Name]
		if !had || has {
			return parameters, false
		}
		delete(out, e.Name)
		out[e.Parameter] = old
	case OpForm:
		converted, is := Convert(present, e.Form)
		if !has || !is {
			return parameters, false
		}
		out[e.Parameter] = converted
	case OpFirst, OpInstead, OpAlso, OpNever, OpTake:
		return parameters, false
	default:
		return parameters, false
	}
	return out, Canonical(out) != Canonical(parameters)
}

// like gives a value that was read out of a text the type of the one it replaces.
func like(present, value any) any {
	text, is := value.(string)
	if !is {
		return value
	}
	switch present.(type) {
	case float64:
		if n, ok := Convert(text, FormNumber); ok {
			return n
		}
	case bool:
		if b, ok := Convert(text, FormBoolean); ok {
			return b
		}
	}
	return value
}

// Text is a value as it stands in a text.
func Text(v any) string {
	if s, is := v.(string); is {
		return s
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return string(raw)
}

// Equal compares two values with their types.
func Equal(a, b any) bool {
	return Canonical(map[string]any{"": a}) == Canonical(map[string]any{"": b})
}

// Canonical is the same for equal parameters.
func Canonical(parameters map[string]any) string {
	raw, err := json.Marshal(parameters) // sorts names
	if err != nil {
		return ""
	}
	return string(raw)
}
