package simulate

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hindsight-memory/hindsight/internal/evaluate/simulate/script"
	"github.com/hindsight-memory/hindsight/internal/evaluate/simulate/world"
)

// perfectMemory is what no memory can surpass: it knows how each tool was last called right in the stream, is told so by the
// world and errs never, and says that and nothing else. What no task has shown yet it does not know either. The difference
// between it and an agent without a memory is what the stream, the agent's obedience and the measure allow.
type perfectMemory struct {
	checks bool
	known  map[string][]script.Edit // by tool
}

// learn takes what a finished task has shown.
func (m *perfectMemory) learn(s *world.Session) {
	if tool, edits, right := s.DoneRight(); right {
		m.known[tool] = edits
	}
}

// Recall implements [agent.Memory].
func (m *perfectMemory) Recall(_ context.Context, task script.Task) (string, error) {
	return m.answer(task, task.ToolNames())
}

// Check implements [agent.Memory].
func (m *perfectMemory) Check(_ context.Context, task script.Task, call script.Call) (string, error) {
	if !m.checks {
		return "", nil
	}
	return m.answer(task, []string{call.Tool})
}

// Feedback implements [agent.Memory]; there is nothing to find out.
func (m *perfectMemory) Feedback(context.Context, script.Task, string, bool) error { return nil }

// answer says what is known of some tools, in the form of the protocol.
func (m *perfectMemory) answer(task script.Task, tools []string) (string, error) {
	type item struct {
		ID       string `json:"id"`
		TaskType string `json:"task_type"`
		Text     string `json:"text"`
	}
	items := []item{}
	for _, tool := range slices.Sorted(maps.Keys(m.known)) {
		if edits := m.known[tool]; len(edits) > 0 && slices.Contains(tools, tool) {
			said := make([]string, len(edits))
			for i, e := range edits {
				said[i] = instruction(e)
			}
			items = append(items, item{ID: tool, TaskType: task.Type, Text: "Decision: " + tool + "\nLesson: When calling `" + tool + "`, " + strings.Join(said, ", ") + "."})
		}
	}
	raw, err := json.Marshal(map[string]any{"items": items})
	if err != nil {
		return "", fmt.Errorf("write an answer: %w", err)
	}
	return string(raw), nil
}

// instruction says an edit in words.
func instruction(e script.Edit) string {
	switch e.Op {
	case script.OpSet:
		return fmt.Sprintf("set `%s` to `%s`", e.Parameter, script.Text(e.Value))
	case script.OpAdd:
		if e.Value == nil {
			return fmt.Sprintf("add `%s`", e.Parameter)
		}
		return fmt.Sprintf("add `%s` (`%s` worked)", e.Parameter, script.Text(e.Value))
	case script.OpRemove:
		return fmt.Sprintf("leave `%s` out", e.Parameter)
	case script.OpRename:
		return fmt.Sprintf("name the parameter `%s`, not `%s`", e.Parameter, e.Name)
	case script.OpForm:
		return fmt.Sprintf("`%s` must be %s", e.Parameter, formWords(e.Form))
	case script.OpFirst:
		return fmt.Sprintf("call `%s` first", e.Tool)
	case script.OpInstead:
		return fmt.Sprintf("use `%s` instead", e.Tool)
	case script.OpAlso:
		return fmt.Sprintf("also call `%s`", e.Tool)
	case script.OpNever:
		return fmt.Sprintf("do not call `%s`", e.Tool)
	case script.OpTake:
		return fmt.Sprintf("add `%s` (take it from the result of `%s`)", e.Parameter, e.Tool)
	default:
		return ""
	}
}

// formWords names a form as a person would.
func formWords(form string) string {
	switch form {
	case script.FormText, script.FormNumber, script.FormBoolean, script.FormList:
		return "a " + form
	case script.FormCountry:
		return "a two-letter code"
	default:
		return form
	}
}
