package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/hindsight-memory/hindsight/internal/evaluate/simulate/agent"
	"github.com/hindsight-memory/hindsight/internal/evaluate/simulate/script"
)

// answered is a memory that always says the same.
type answered struct {
	start, check string
	feedback     []string
}

func (m *answered) Recall(context.Context, script.Task) (string, error) { return m.start, nil }

func (m *answered) Check(context.Context, script.Task, script.Call) (string, error) {
	return m.check, nil
}

func (m *answered) Feedback(_ context.Context, _ script.Task, item string, helpful bool) error {
	m.feedback = append(m.feedback, fmt.Sprintf("%s:%t", item, helpful))
	return nil
}

func says(t *testing.T, text string) string {
	t.Helper()
	raw, err := json.Marshal(map[string]any{"items": []map[string]string{{"id": "item", "text": text}}})
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func task() script.Task {
	return script.Task{
		ID: "task", Type: "booking", Goal: "Book a table",
		Tools: []script.Tool{{Name: "book_table", Parameters: []string{"date", "guests", "area"}}, {Name: "open_day", Parameters: []string{"date"}}, {Name: "reserve_table", Parameters: []string{"date"}}},
		Plan:  []script.Call{{Tool: "book_table", Parameters: map[string]any{"date": "20/03/2026", "guests": 12.0, "area": "inside"}}},
		Facts: map[string]any{"date": "20/03/2026", "host": "Mara", "token": "t-1"},
	}
}

// accepts is a tool that takes one call only.
func accepts(tool, want string) agent.Tools {
	return func(call script.Call) script.Result {
		if call.Tool != tool {
			return script.Result{OK: true, Value: map[string]any{"token": "from-" + call.Tool}}
		}
		if script.Canonical(call.Parameters) == want {
			return script.Result{OK: true}
		}
		return script.Result{ErrorType: "Error", Message: "E1"}
	}
}

// TestTextsAreFollowed: what a text says is what the agent does, however it is put.
func TestTextsAreFollowed(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"Lesson: When calling `book_table`, write `date` as `YYYY-MM-DD`, not as `DD/MM/YYYY`; otherwise it answers \"E1\".": `{"area":"inside","date":"2026-03-20","guests":12}`,
		"Lesson: `book_table`: date must be in ISO 8601":                                                                     `{"area":"inside","date":"2026-03-20","guests":12}`,
		"教训: 调用 `book_table` 时，`date` 应写成 `YYYY-MM-DD`，而不是 `DD/MM/YYYY`；否则它会返回“E1”。":                                         `{"area":"inside","date":"2026-03-20","guests":12}`,
		"Lesson: When calling `book_table`, set `area` to `terrace` rather than `inside`.":                                   `{"area":"terrace","date":"20/03/2026","guests":12}`,
		"教训: 当 `book_table` 返回“E1”时，`area` 设为 `terrace`，而不是 `inside`：这样做之后调用成功。":                                             `{"area":"terrace","date":"20/03/2026","guests":12}`,
		"Known: when using book_table, guests must be at most 8":                                                             `{"area":"inside","date":"20/03/2026","guests":8}`,
		"Lesson: When calling `book_table`, name the parameter `zone`, not `area`.":                                          `{"date":"20/03/2026","guests":12,"zone":"inside"}`,
		"Lesson: When calling `book_table`, leave `area` out.":                                                               `{"date":"20/03/2026","guests":12}`,
		"Lesson: When calling `book_table`, add `host`.":                                                                     `{"area":"inside","date":"20/03/2026","guests":12,"host":"Mara"}`,
		"Lesson: When calling `book_table`, add `tip` (`none` worked).":                                                      `{"area":"inside","date":"20/03/2026","guests":12,"tip":"none"}`,
		"Lesson: When calling `book_table`, pass `guests` as a text, not as a number.":                                       `{"area":"inside","date":"20/03/2026","guests":"12"}`,
		"教训: 调用 `book_table` 时，`guests` 应传文本，而不是数字。":                                                                         `{"area":"inside","date":"20/03/2026","guests":"12"}`,
		"Lesson: When calling `book_table`, add `token` (take it from the result of `open_day`).":                            `{"area":"inside","date":"20/03/2026","guests":12,"token":"from-open_day"}`,
	} {
		memory := &answered{check: says(t, text)}
		a := agent.Agent{Obedience: 1, Memory: memory}
		steps, err := a.Run(t.Context(), task(), accepts("book_table", want))
		if err != nil {
			t.Fatal(err)
		}
		last := steps[len(steps)-1]
		if !last.Result.OK || !last.Followed || !slices.Equal(memory.feedback, []string{"item:true"}) {
			t.Errorf("%s\n the agent called %s, feedback %v", text, script.Canonical(last.Call.Parameters), memory.feedback)
		}
	}
}

// TestOtherToolsAreCalled follows texts about other tools.
func TestOtherToolsAreCalled(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"Lesson: When calling `book_table`, call `open_day` first; otherwise it answers \"E1\".":                                              {"open_day", "book_table"},
		"教训: 调用 `book_table` 时，先调用 `open_day`；否则它会返回“E1”。":                                                                                    {"open_day", "book_table"},
		"Lesson: When `book_table` answers \"E1\", use `reserve_table` (with `date`) instead; that worked.":                                   {"reserve_table"},
		"教训: 当 `book_table` 返回“E1”时，改用 `reserve_table`（参数 `date`）：这样做之后调用成功。":                                                                 {"reserve_table"},
		"Lesson: For a request like \"Book a table\": call `open_day` (with `date`); 2 tasks of this goal succeeded so and this one failed.":  {"book_table", "open_day"},
		"教训: 对于“订一张桌子”这类请求，要调用 `open_day`：同一目标下有 2 个任务这样做而成功，此任务失败了。":                                                                         {"book_table", "open_day"},
		"Lesson: For a request like \"Book a table\": do not call `book_table`; 2 tasks of this goal succeeded so and this one failed.":       {},
		"Situation: call `open_day` first\nDecision: book_table {}\nResult: failed\nLesson: Make sure that this does not apply: `book_table`": {"book_table"},
	} {
		a := agent.Agent{Obedience: 1, Memory: &answered{start: says(t, text)}}
		steps, err := a.Run(t.Context(), task(), func(script.Call) script.Result { return script.Result{OK: true} })
		if err != nil {
			t.Fatal(err)
		}
		called := make([]string, len(steps))
		for i, s := range steps {
			called[i] = s.Call.Tool
		}
		if !slices.Equal(called, want) {
			t.Errorf("%s\n the agent called %v: want %v", text, called, want)
		}
	}
}

// TestWrongAdviceIsDropped: after it failed the agent tells so and does as it always does.
func TestWrongAdviceIsDropped(t *testing.T) {
	t.Parallel()
	memory := &answered{check: says(t, "Lesson: When calling `book_table`, set `area` to `roof` rather than `inside`.")}
	a := agent.Agent{Obedience: 1, Memory: memory}
	steps, err := a.Run(t.Context(), task(), accepts("book_table", script.Canonical(task().Plan[0].Parameters)))
	if err != nil {
		t.Fatal(err)
	}
	if len(steps) != 2 || steps[0].Result.OK || !steps[0].Followed || !steps[1].Result.OK || steps[1].Followed || !slices.Equal(memory.feedback, []string{"item:false"}) {
		t.Errorf("steps %+v, feedback %v", steps, memory.feedback)
	}
}

// TestOthersAdviceIsIgnored: about another tool, by an agent that never obeys, or that is no text at all.
func TestOthersAdviceIsIgnored(t *testing.T) {
	t.Parallel()
	wrong := says(t, "Lesson: When calling `book_table`, leave `area` out.")
	for name, a := range map[string]agent.Agent{
		"another tool":   {Obedience: 1, Memory: &answered{check: says(t, "Lesson: When calling `open_day`, leave `area` out.")}},
		"never obeys":    {Obedience: 0, Memory: &answered{check: wrong}},
		"no JSON":        {Obedience: 1, Memory: &answered{check: "leave area out"}},
		"without memory": {Obedience: 1},
	} {
		steps, err := a.Run(t.Context(), task(), func(script.Call) script.Result { return script.Result{OK: true} })
		if err != nil || len(steps) != 1 || script.Canonical(steps[0].Call.Parameters) != script.Canonical(task().Plan[0].Parameters) {
			t.Errorf("%s: %+v, %v", name, steps, err)
		}
	}
}

// TestOutagesAreWaitedFor: the same call again, three times in all, and no other.
func TestOutagesAreWaitedFor(t *testing.T) {
	t.Parallel()
	calls := 0
	a := agent.Agent{}
	steps, err := a.Run(t.Context(), task(), func(script.Call) script.Result {
		calls++
		return script.Result{ErrorType: "HTTPError", Message: "503 Service Unavailable"}
	})
	if err != nil || calls != 3 || len(steps) != 3 {
		t.Errorf("%d calls, %v: want 3", calls, err)
	}
}

func FuzzTextsOfAMemory(f *testing.F) {
	f.Add(`{"items":[{"id":"1","text":"Lesson: When calling ` + "`book_table`" + `, add ` + "`host`" + `."}]}`)
	f.Add(`{"items":[{"text":"教训: 先调用 open_day"}]}`)
	f.Add("{")
	f.Fuzz(func(t *testing.T, text string) {
		a := agent.Agent{Obedience: 1, Memory: &answered{start: text, check: text}}
		steps, err := a.Run(t.Context(), task(), accepts("book_table", "nothing is right"))
		if err != nil || len(steps) > 40 {
			t.Errorf("%d steps, %v", len(steps), err)
		}
	})
}
