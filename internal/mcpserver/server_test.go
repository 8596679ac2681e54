package mcpserver_test

import (
	"encoding/json"
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
