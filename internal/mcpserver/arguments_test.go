package mcpserver_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/mcpserver"
	"github.com/hindsight-memory/hindsight/internal/memory"
	"github.com/hindsight-memory/hindsight/internal/recall"
)

// What models and clients really send.
func TestReadArgumentsAreTolerant(t *testing.T) {
	t.Parallel()
	w := &world{}
	session := inMemory(t, newServer(t, w), mcpserver.ToolsetCore, admin())
	day := time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC)
	asker := recall.Asker{AgentID: "token-1", Door: "mcp"}
	plain := recall.Question{Namespace: "acme.ops", Text: "x", Preset: memory.PresetExperience, Asker: asker}
	with := func(change func(*recall.Question)) recall.Question {
		q := plain
		change(&q)
		return q
	}
	for sent, want := range map[string]recall.Question{
		`{"current_context":"x"}`: plain,
		`{"current_context":"x","top_k":null,"min_score":null,"as_of":null,"task_id":null}`:                                 plain,
		`{"current_context":"x","top_k":0,"min_score":0,"as_of":"","task_id":"","session_id":""}`:                           plain,
		`{"current_context":"x","top_k":"","min_score":[],"as_of":0}`:                                                       plain,
		`{"current_context":"x","wait_for_previous":true,"namespace":"other","identity":{"scope":4},"security_risk":"low"}`: plain,
		`{"current_context":"x","top_k":"7","min_score":"0.25"}`:                                                            with(func(q *recall.Question) { q.TopK, q.MinScore = 7, 0.25 }),
		`{"current_context":"x","top_k":7.0,"min_score":-1}`:                                                                with(func(q *recall.Question) { q.TopK, q.MinScore = 7, -1 }),
		`{"current_context":"x","top_k":5000}`:                                                                              with(func(q *recall.Question) { q.TopK = recall.MaxTopK }),
		`{"current_context":"x","as_of":"2026-01-31"}`:                                                                      with(func(q *recall.Question) { q.AsOf = day }),
		`{"current_context":"x","as_of":"2026-01-31T01:00:00+01:00"}`:                                                       with(func(q *recall.Question) { q.AsOf = day }),
		`{"current_context":"x","task_id":42,"session_id":"s"}`:                                                             with(func(q *recall.Question) { q.TaskID, q.SessionID = "42", "s" }),
		`{"current_context":12}`:            with(func(q *recall.Question) { q.Text = "12" }),
		`{"current_context":"先看 🙂 \u2028"}`: with(func(q *recall.Question) { q.Text = "先看 🙂 \u2028" }),
		`{"current_context":{"task_type":"refund","input_summary":null,"available_tools":"pay","more":1}}`:                         with(func(q *recall.Question) { q.Text, q.Context = "", contextOf("refund", "", "pay") }),
		`{"current_context":"{\"task_type\":\"refund\",\"input_summary\":\"pay\",\"available_tools\":\"[\\\"a\\\",\\\"b\\\"]\"}"}`: with(func(q *recall.Question) { q.Text, q.Context = "", contextOf("refund", "pay", "a", "b") }),
	} {
		served(t, session, "retrieve_similar", json.RawMessage(sent))
		got := w.questions[len(w.questions)-1]
		if fmt.Sprintf("%+v %+v", got, got.Context) != fmt.Sprintf("%+v %+v", withoutPointer(got, want), want.Context) {
			t.Errorf("%s\ngot  %+v %+v\nwant %+v %+v", sent, got, got.Context, want, want.Context)
		}
	}
	for sent, part := range map[string]string{
		`{}`:                                                                   "current_context is missing",
		`{"current_context":""}`:                                               "current_context is missing",
		`{"current_context":{}}`:                                               "current_context is missing",
		`{"current_context":"x","top_k":"many"}`:                               `top_k: "many" is not a number`,
		`{"current_context":"x","top_k":1.5}`:                                  "top_k: 1.5 is not a whole number",
		`{"current_context":"x","top_k":{"n":1}}`:                              "top_k: it is not a number",
		`{"current_context":"x","as_of":"yesterday"}`:                          "as_of:",
		`{"current_context":"x","min_score":"NaN"}`:                            "min_score:",
		`{"current_context":"x","task_id":"~unjoined"}`:                        "task_id:",
		`{"current_context":"x","session_id":"a\u0000b"}`:                      "session_id:",
		`{"current_context":"x","task_id":"` + strings.Repeat("i", 600) + `"}`: "task_id:",
	} {
		contains(t, refused(t, session, "retrieve_similar", json.RawMessage(sent), "arguments"), part)
	}
	contains(t, refused(t, session, "memory_search", map[string]any{"query": "x", "memory_type": "vibes"}, "arguments"), `memory_type: "vibes" is none of all, fact`)
	served(t, session, "check_action", map[string]any{"tool": "pay", "parameters": `{"amount": 12, "to": null}`})
	if got := string(w.actions[0].Parameters); got != `{"amount":12,"to":null}` {
		t.Errorf("parameters %s", got)
	}
	for _, parameters := range []any{"not JSON", 5, []any{1}} {
		contains(t, refused(t, session, "check_action", map[string]any{"tool": "pay", "parameters": parameters}, "arguments"), "parameters: it is not a JSON object")
	}
}

func contextOf(taskType, summary string, tools ...string) *memory.TaskContext {
	return &memory.TaskContext{TaskType: taskType, InputSummary: summary, AvailableTools: tools}
}

// withoutPointer lets two questions be compared as texts: the pointer in want becomes that of got.
func withoutPointer(got, want recall.Question) recall.Question {
	if got.Context != nil && want.Context != nil {
		want.Context = got.Context
	}
	return want
}

// A list of arguments that is itself a text, or absent.
func TestArgumentsAsAWhole(t *testing.T) {
	t.Parallel()
	w := &world{}
	url := daemon(t, w, nil)
	token := map[string]string{"Authorization": "Bearer alpha-secret"}
	for arguments, part := range map[string]string{
		`"{\"query\":\"x\"}"`: `"isError"`, `null`: "structuredContent", `[]`: "must be a JSON object", `"x"`: "must be a JSON object",
	} {
		_, body := post(t, url, callOf("memory_search", arguments), token)
		if arguments == `"{\"query\":\"x\"}"` {
			if strings.Contains(body, part) {
				t.Errorf("%s: %s", arguments, body)
			}
			continue
		}
		if !strings.Contains(body, part) {
			t.Errorf("%s: %s", arguments, body)
		}
	}
	if len(w.questions) != 2 || w.questions[0].Text+w.questions[1].Text != "x" {
		t.Errorf("asked %+v", w.questions)
	}
}

// The session of a coding agent is in _meta, wherever it puts it; an argument says it better.
func TestMetaNamesTheSession(t *testing.T) {
	t.Parallel()
	w := &world{}
	session := inMemory(t, newServer(t, w), mcpserver.ToolsetCore, admin())
	for _, c := range []struct {
		meta      mcp.Meta
		arguments map[string]any
		task      string
		session   string
	}{
		{nil, nil, "", ""},
		{mcp.Meta{"session_id": "s", "turn_id": "t"}, nil, "", "s"},
		{mcp.Meta{"x-codex-turn-metadata": map[string]any{"session_id": "s", "task_id": "t"}}, nil, "t", "s"},
		{mcp.Meta{"x-turn": `{"session_id":"s"}`}, nil, "", "s"},
		{mcp.Meta{"sessionId": "s"}, map[string]any{"session_id": "mine"}, "", "mine"},
		{mcp.Meta{"session_id": 5, "task_id": "~unjoined"}, nil, "", ""},
		{mcp.Meta{"session_id": "a\nb"}, nil, "", ""},
	} {
		arguments := map[string]any{"query": "x"}
		maps.Copy(arguments, c.arguments)
		res, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "memory_search", Arguments: arguments, Meta: c.meta})
		if err != nil || res.IsError {
			t.Fatalf("%v: %v %v", c.meta, res, err)
		}
		if got := w.questions[len(w.questions)-1]; got.TaskID != c.task || got.SessionID != c.session {
			t.Errorf("%v: task %q, session %q", c.meta, got.TaskID, got.SessionID)
		}
	}
}

// Whatever is sent is answered, with both halves the same, and never ends the server.
func FuzzArguments(f *testing.F) {
	for _, seed := range []string{
		`{}`, `null`, `[]`, `""`, `"{}"`, `{"current_context":"x"}`, `{"current_context":{"task_type":["a",null,[]]},"top_k":"1e3"}`,
		`{"content":"x","importance":"0.9","entities":"[\"a\"]"}`, `{"tool":"t","parameters":"{\"a\":{\"b\":[1,2,{}]}}"}`, `{"top_k":1e400}`,
		`{"helpful":"YES","item_id":7}`, `{"as_of":"2026-01-31T00:00:00"}`, `{"decision":{"tool_selected":"x","parameters":[]},"outcome":"{\"status\":\"FAILED\"}","task_context":0}`,
		"{\"query\":\"\xff\xfe\"}", `{"query":"\ud800"}`, `{"a":` + strings.Repeat("[", 900) + strings.Repeat("]", 900) + `}`,
	} {
		f.Add(seed)
	}
	tools := []string{"retrieve_similar", "check_action", "get_rules", "store_snapshot", "memory_search", "memory_write", "memory_forget", "memory_feedback"}
	f.Fuzz(func(t *testing.T, sent string) {
		if !json.Valid([]byte(sent)) || strings.Count(sent, "[")+strings.Count(sent, "{") > 950 {
			t.Skip("the protocol refuses it before: it is no JSON, or too deep for the library")
		}
		w := &world{answer: answerWith("x")}
		session := inMemory(t, newServer(t, w), mcpserver.ToolsetCore, admin())
		for _, tool := range tools {
			called(t, session, tool, json.RawMessage(sent))
		}
		for _, e := range w.events {
			if _, _, err := events.Prepare(e, e.Time); err != nil {
				t.Errorf("an event that nobody takes: %v", err)
			}
		}
	})
}
