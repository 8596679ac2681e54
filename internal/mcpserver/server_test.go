package mcpserver_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/hindsight-memory/hindsight/internal/mcpserver"
	"github.com/hindsight-memory/hindsight/internal/memory"
)

func TestRetrieveSimilarAndCheckAction(t *testing.T) {
	t.Parallel()
	w := &world{answer: answerWith("Situation: a refund\nDecision: pay {}\nResult: failed\nLesson: look first")}
	session := inMemory(t, newServer(t, w), mcpserver.ToolsetCore, admin())

	got := served(t, session, "retrieve_similar", map[string]any{
		"current_context": map[string]any{"task_type": "refund", "input_summary": "pay back 12", "available_tools": []string{"pay"}},
		"top_k":           3, "task_id": "t-1", "session_id": "s-1",
	})
	items, _ := got["items"].([]any)
	if len(items) != 1 {
		t.Fatalf("%d items, want 1: %v", len(items), got)
	}
	item, _ := items[0].(map[string]any)
	for name, want := range map[string]any{
		"id": "item-0", "layer": "snapshot", "trust": "agent_inferred", "created_at": "2026-03-01T10:00:00Z", "confidence": 0.6, "importance": 0.5,
		"source": "memory://item/item-0", "score": 0.912,
	} {
		if item[name] != want {
			t.Errorf("%s is %v, want %v", name, item[name], want)
		}
	}
	q := w.questions[0]
	if q.Namespace != "acme.ops" || q.Context == nil || q.Context.TaskType != "refund" || q.TopK != 3 || q.TaskID != "t-1" || q.SessionID != "s-1" ||
		q.Door != "mcp" || q.AgentID != "token-1" || q.Preset != memory.PresetExperience {
		t.Errorf("asked %+v", q)
	}

	got = served(t, session, "check_action", map[string]any{"tool": "pay", "parameters": map[string]any{"amount": json.Number("12345678901234567890")}})
	if got["known"] != true {
		t.Errorf("known is %v", got["known"])
	}
	if a := w.actions[0]; a.Tool != "pay" || string(a.Parameters) != `{"amount":12345678901234567890}` || a.TaskID != "" {
		t.Errorf("checked %+v %s", a, a.Parameters)
	}
	w.answer.Items = nil
	if got = served(t, session, "check_action", map[string]any{"tool": "pay"}); got["known"] != false || len(got["items"].([]any)) != 0 || got["about_texts"] != nil {
		t.Errorf("nothing is known, and the answer is %v", got)
	}
}

// What has succeeded in the task is known from its working memory, and looked up only when it matters.
func TestCheckActionKnowsWhatHasSucceeded(t *testing.T) {
	t.Parallel()
	w := &world{working: map[string]string{
		"acme.ops/t-1": `{"task_id":"t-1","artifacts":{"verify":"{}","look_up":"x"}}`, "acme.ops/t-2": `not JSON`, "other/t-3": `{"artifacts":{"verify":""}}`,
	}}
	session := inMemory(t, newServer(t, w), mcpserver.ToolsetCore, admin())
	for task, want := range map[string][]string{"t-1": {"look_up", "verify"}, "t-2": nil, "t-3": nil, "": nil} {
		served(t, session, "check_action", map[string]any{"tool": "pay", "task_id": task})
		a := w.actions[len(w.actions)-1]
		if (a.Succeeded != nil) != (task != "") {
			t.Errorf("task %q: it can be asked: %v", task, a.Succeeded != nil)
			continue
		}
		if a.Succeeded == nil {
			continue
		}
		if got := a.Succeeded(t.Context()); !slices.Equal(got, want) {
			t.Errorf("task %q: %v has succeeded, want %v", task, got, want)
		}
	}
	served(t, session, "check_action", map[string]any{"tool": "pay", "task_id": "t-1"})
	w.err = memory.ErrUnavailable
	if got := w.actions[len(w.actions)-1].Succeeded(t.Context()); got != nil {
		t.Errorf("working memory is away, and %v has succeeded", got)
	}
}
