package recall_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/memory"
	"github.com/hindsight-memory/hindsight/internal/recall"
)

// learnt is a snapshot as the reflector makes it: what worked is in its alternative.
func learnt(id, tool, parameters, errorMessage, alternative string) memory.Snapshot {
	s := snapshot("acme", id, tool, parameters, "something about "+tool, errorMessage,
		"When `"+tool+"` answers \""+errorMessage+"\", "+alternative+"; the call that did so worked.")
	s.Reflection.Alternative = alternative
	s.TaskContext.AvailableTools = []string{tool, "get_state"}
	return s
}

func check(t *testing.T, s *recall.Service, tool, parameters string) recall.Answer {
	t.Helper()
	a, err := s.Check(t.Context(), recall.Action{Namespace: "acme", Tool: tool, Parameters: []byte(parameters)})
	if err != nil {
		t.Fatalf("Check(%s %s) = %v", tool, parameters, err)
	}
	return a
}

// TestCheckIsSilentForWhatIsDoneAlready: a warning is about calls that make the mistake again, and of no others.
func TestCheckIsSilentForWhatIsDoneAlready(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.service(t, nil)
	for n, c := range []struct {
		failed, alternative string
		warned, silent      []string
	}{
		{
			`{"role":"agent","n":1}`, "set `role` to `supervisor` rather than `agent`",
			[]string{`{"role":"agent","n":2}`, `{"role":"agent"}`},
			[]string{`{"role":"supervisor","n":1}`, `{"role":"guest","n":1}`, `{"n":1}`},
		},
		{`{"role":"agent","n":1}`, "`role` 设为 `supervisor`，而不是 `agent`", []string{`{"role":"agent"}`}, []string{`{"role":"supervisor","n":1}`, `{"role":"guest"}`}},
		{`{"limit":500}`, "set `limit` to `100`", []string{`{"limit":500,"x":1}`, `{"limit":300}`}, []string{`{"limit":100}`, `{"limit":50}`, `{}`}},
		{
			`{"day":"31/12/2025"}`, "write `day` as `YYYY-MM-DD`, not as `DD/MM/YYYY`",
			[]string{`{"day":"30/11/2024"}`, `{"day":"05/06/2024"}`},
			[]string{`{"day":"2024-11-30"}`, `{"date":"30/11/2024"}`},
		},
		{`{"code":"ab12"}`, "`code` 应写成 `A-9`，而不是 `a9`", []string{`{"code":"xy7"}`}, []string{`{"code":"XY-7"}`}},
		{`{"ml":"250"}`, "pass `ml` as a number, not as a text", []string{`{"ml":"30.5"}`}, []string{`{"ml":250}`, `{"ml":1}`}},
		{`{"ml":"250"}`, "`ml` 应传数字，而不是文本", []string{`{"ml":"30"}`}, []string{`{"ml":30}`}},
		{
			`{"tags":"a, b"}`, "pass `tags` as a list (such as `[\"a\",\"b\"]`), not as a text (`a, b`)",
			[]string{`{"tags":"c, d"}`, `{"tags":"a, b"}`},
			[]string{`{"tags":["c","d"]}`},
		},
		{`{"tags":"a, b"}`, "`tags` 应传列表（例如 `[\"a\",\"b\"]`），而不是文本（`a, b`）", []string{`{"tags":"c, d"}`}, []string{`{"tags":["c","d"]}`}},
		// Forms that have a name: other values in the wrong form are warned of, and none in the right one.
		{
			`{"pause":"2 hours"}`, "write `pause` as a number of minutes, such as `120`, not as `2 hours`",
			[]string{`{"pause":"2 hours"}`, `{"pause":"3 hours"}`},
			[]string{`{"pause":120}`, `{"pause":90}`},
		},
		{
			`{"currency":"Euro"}`, "write `currency` as a three-letter currency code (ISO 4217), such as `EUR`, not as `Euro`",
			[]string{`{"currency":"Euro"}`, `{"currency":"Dollar"}`},
			[]string{`{"currency":"EUR"}`, `{"currency":"USD"}`},
		},
		{`{"amount":12.5}`, "write `amount` in minor units (cents), such as `1250`, not as `12.5`", []string{`{"amount":99.95}`}, []string{`{"amount":9995}`}},
		{`{"order":"W12"}`, "write `order` with a # in front, such as `#W12`, not as `W12`", []string{`{"order":"W77"}`}, []string{`{"order":"#W77"}`}},
		{`{"branch":"Feature one"}`, "write `branch` in kebab-case, such as `feature-one`, not as `Feature one`", []string{`{"branch":"Fix Two"}`}, []string{`{"branch":"fix-two"}`}},
		{`{"start":"3 pm"}`, "`start` 应写成24 小时制的 hh:mm（例如 `15:00`），而不是 `3 pm`", []string{`{"start":"4 pm"}`}, []string{`{"start":"16:00"}`}},
		{`{"phone":"0049 (30) 12345"}`, "`phone` 应写成E.164 格式（+ 加纯数字）（例如 `+493012345`），而不是 `0049 (30) 12345`", []string{`{"phone":"0049 (30) 777"}`}, []string{`{"phone":"+4930777"}`}},
		{`{"order":"A1"}`, "add `postcode` (ask the user which)", []string{`{"order":"B2"}`, `{"order":"B2","x":1}`}, []string{`{"order":"B2","postcode":"8010"}`}},
		{`{"order":"A1"}`, "give `postcode`, `city`, which it requires", []string{`{"order":"B2","city":"Graz"}`}, []string{`{"postcode":"8010","city":"Graz"}`}},
		{`{"order":"A1","note":"x"}`, "leave `note` out", []string{`{"order":"B2","note":"y"}`}, []string{`{"order":"B2"}`}},
		{`{"id":"A1"}`, "name the parameter `order_id`, not `id`", []string{`{"id":"B2"}`}, []string{`{"order_id":"B2"}`}},
		{`{"ids":[1,2]}`, "give `ids[]` 1 entry (it had 2)", []string{`{"ids":[7,8]}`}, []string{`{"ids":[7]}`, `{"ids":[7,8,9]}`}},
		{`{"pay":"gift_card_1"}`, "pass a <credit_card> as `pay`, not a <gift_card>", []string{`{"pay":"gift_card_99"}`}, []string{`{"pay":"credit_card_4"}`, `{"pay":"paypal"}`}},
		{`{"q":"SELECT a FROM b"}`, "add `LIMIT` to `q`", []string{`{"q":"SELECT c FROM d"}`}, []string{`{"q":"SELECT c FROM d LIMIT 5"}`}},
		{`{"q":"tool --force x"}`, "use `--dry-run` in `q` instead of `--force`", []string{`{"q":"tool --force y"}`}, []string{`{"q":"tool --dry-run y"}`, `{"q":"tool y"}`}},
		{
			`{"email":"a@b.example","zip":"1"}`, "pass another `email` (ask the user which)",
			[]string{`{"email":"a@b.example","zip":"2"}`},
			[]string{`{"email":"c@d.example","zip":"1"}`},
		},
		{`{"id":"A1"}`, "make sure that what it is asked for exists, or ask the user", []string{`{"id":"A1"}`}, []string{`{"id":"B2"}`}},
		{
			`{"old":[1,2],"new":[3]}`, "give `old` and `new` the same number of entries",
			[]string{`{"old":[1],"new":[3,4]}`, `{"old":[1]}`},
			[]string{`{"old":[5],"new":[6]}`},
		},
		{`{"old":[1,2],"new":[3]}`, "让 `old` 与 `new` 的项数相同", []string{`{"old":[1],"new":[3,4]}`}, []string{`{"old":[5],"new":[6]}`}},
		{`{"id":"A1"}`, "call `get_state` first", []string{`{"id":"A1"}`, `{"id":"B2"}`}, nil},
		{`{"a":"x","b":"y"}`, "set `a` to `p` rather than `x`; set `b` to `q` rather than `y`", []string{`{"a":"x","b":"q"}`, `{"a":"p","b":"y"}`}, []string{`{"a":"p","b":"q"}`}},
	} {
		tool := fmt.Sprint("tool_", n)
		w.keep(t, learnt(fmt.Sprint("lesson-", n), tool, c.failed, "it cannot be done", c.alternative))
		for _, parameters := range c.warned {
			if got := ids(check(t, s, tool, parameters)); len(got) != 1 {
				t.Errorf("%q after %s: %s is warned of %v, want the lesson", c.alternative, c.failed, parameters, got)
			}
		}
		for _, parameters := range c.silent {
			if got := ids(check(t, s, tool, parameters)); len(got) != 0 {
				t.Errorf("%q after %s: %s is warned of %v, want silence", c.alternative, c.failed, parameters, got)
			}
		}
	}
}

// What is wrong in one case only is worth a warning in another when it is wrong often.
func TestCheckWarnsOfWhatGoesWrongOften(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.service(t, func(o *recall.Options) { o.Calls = w.store })
	called := func(tool string, tasks int) {
		var all []events.Event
		for i := range tasks {
			data, err := events.EncodeData(events.StepFinished{Tool: tool, Parameters: []byte(`{}`), Status: events.StatusSuccess})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, events.Event{
				ID: fmt.Sprint(tool, "-", i), Namespace: "acme", AgentID: "a", SessionID: "s", TaskID: fmt.Sprint(tool, "-task-", i),
				Time: time.Now().UTC().Truncate(time.Millisecond), Kind: events.KindStepFinished, Data: data,
			})
		}
		if err := w.store.InsertEvents(t.Context(), all); err != nil {
			t.Fatal(err)
		}
	}
	for _, tool := range []string{"rarely", "often"} {
		for i := range 2 {
			w.keep(t, learnt(fmt.Sprint(tool, i), tool, fmt.Sprintf(`{"id":"A%d"}`, i), fmt.Sprintf("A%d not found", i), "pass another `id`"+[]string{"", " (ask the user which)"}[i]))
		}
	}
	called("rarely", 30)
	called("often", 10)
	if got := ids(check(t, s, "rarely", `{"id":"B7"}`)); len(got) != 0 {
		t.Errorf("2 of 30 tasks failed so, and a call with another value is warned of %v", got)
	}
	a := check(t, s, "often", `{"id":"B7"}`)
	if len(a.Items) != 1 || a.Items[0].Seen != 2 {
		t.Errorf("2 of 10 tasks failed so, and a call with another value is warned of %v, want one item seen twice", a.Items)
	}
	if got := ids(check(t, s, "often", `{"id":7.5}`)); len(got) != 0 {
		t.Errorf("a call with a value of another kind is warned of %v", got)
	}
	if got := ids(check(t, s, "rarely", `{"id":"A1"}`)); !slices.Equal(got, []string{"rarely1"}) {
		t.Errorf("the call that failed is warned of %v", got)
	}
	s = w.service(t, func(o *recall.Options) { o.Calls = countless{} })
	if _, err := s.Check(t.Context(), recall.Action{Namespace: "acme", Tool: "often", Parameters: []byte(`{"id":"B7"}`)}); !errors.Is(err, memory.ErrUnavailable) {
		t.Errorf("the record cannot be asked: %v", err)
	}
}

type countless struct{}

func (countless) ToolTasks(context.Context, string, string, time.Time, time.Time) (int, error) {
	return 0, memory.ErrUnavailable
}

// Right before a call there is no time to read: a warning is the lesson, and the error where it does not say it.
func TestWarningsAreShort(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	plain := snapshot("acme", "plain", "send_mail", `{"to":"x"}`, "sending a mail", "Error: recipient is not an address", "Write `to` as an address.")
	quoting := learnt("quoting", "cancel", `{"id":"W1042"}`, "Error: order W1042 is closed", "pass another `id`")
	quoting.Reflection.Lesson = "When `cancel` answers \"order <id> is closed\", pass another `id`; the call that did so worked."
	chinese := snapshot("acme", "chinese", "refund", `{"amount":1}`, "办理退款", "金额必须是文本", "调用 `refund` 时，`amount` 要写成文本。")
	rule := memory.Rule{
		RuleID: "rule", Namespace: "acme", Timestamp: time.Now().UTC(), Kind: memory.RuleCall, Tool: "ship", Rule: "ship fails without a weight.", Condition: "about to call ship",
		Action: "Give weight. When `ship` answers \"no weight\", add `weight`; the call that did so worked.", DoesNotApplyWhen: "weight is given", Support: 5, Lift: 3, LiftLow: 1.8,
		Judged: memory.Judged{Evidence: []string{"e"}, Trust: memory.TrustAgentInferred, Confidence: 0.8, Importance: 0.8, Status: memory.ItemActive},
	}
	w.keep(t, plain, quoting, chinese, rule, learnt("behind", "ship", `{"to":"x"}`, "no weight", "add `weight`"))
	s := w.service(t, nil)
	for _, c := range []struct{ tool, parameters, want string }{
		{"send_mail", `{"to":"x"}`, "`send_mail`: Write `to` as an address.\nResult: failed recipient is not an address"},
		{"cancel", `{"id":"W1042"}`, quoting.Reflection.Lesson},
		{"refund", `{"amount":1}`, "调用 `refund` 时，`amount` 要写成文本。\n结果: 失败 金额必须是文本"},
		{"ship", `{"to":"x"}`, "Rule: ship fails without a weight.\nDo: Give weight. When `ship` answers \"no weight\", add `weight`; the call that did so worked."},
	} {
		a := check(t, s, c.tool, c.parameters)
		if len(a.Items) != 1 || a.Items[0].Text != c.want {
			t.Errorf("%s is warned of\n%v\nwant one item\n%s", c.tool, a.Items, c.want)
			continue
		}
		if a.Tokens != recall.EstimateTokens(c.want) || a.Items[0].Lesson == "" || a.Items[0].CreatedAt.IsZero() {
			t.Errorf("%s: %d tokens, item %+v", c.tool, a.Tokens, a.Items[0])
		}
		if strings.Contains(a.Items[0].Text, "Situation") {
			t.Errorf("%s: the situation is told again: %s", c.tool, a.Items[0].Text)
		}
	}
}

// At most three pieces of advice, the best first, however many snapshots give them.
func TestCheckGivesEachAdviceOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 5 {
		for j := range 2 {
			item := learnt(fmt.Sprint("item-", i, j), "build", `{"target":"all"}`, fmt.Sprintf("failure of kind %c", 'a'+rune(i)), fmt.Sprintf("set `target` to `part_%c` rather than `all`", 'a'+rune(i)))
			item.Reflection.Lesson += strings.Repeat(" ", j) + strings.Repeat("Again.", j) // worded otherwise
			item.Confidence = 0.3 + 0.1*float64(i)
			w.keep(t, item)
		}
	}
	a := check(t, w.service(t, nil), "build", `{"target":"all"}`)
	if len(a.Items) != 3 || a.Items[0].Seen != 2 || !strings.Contains(a.Items[0].Lesson, "kind e") {
		t.Errorf("warned of %v, want the three best, each seen twice", a.Items)
	}
}

// What has to come before a call is not asked for again once it is done.
func TestWhatHasComeBeforeIsNotAskedFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	predicate := memory.Predicate{Call: "pay", All: []memory.Condition{{Is: memory.ConditionWithout, Tool: "log_in"}}}.JSON()
	w.keep(t, learnt("first", "reset", `{"account":"Mara"}`, "A-17: state", "call `verify`, `look_up` first"), memory.Rule{
		RuleID: "rule", Namespace: "acme", Timestamp: time.Now().UTC(), Kind: memory.RuleCall, Tool: "pay", Rule: "pay fails without log_in.", Condition: "about to call pay",
		Action: "Call log_in first.", Predicate: predicate, Support: 5, Lift: 3, LiftLow: 1.8,
		Judged: memory.Judged{Evidence: []string{"e"}, Trust: memory.TrustAgentInferred, Confidence: 0.8, Importance: 0.8, Status: memory.ItemActive},
	}, learnt("other", "book", `{"n":"x"}`, "n is wrong", "set `n` to `y` rather than `x`"))
	s := w.service(t, nil)
	for _, c := range []struct {
		tool, parameters, succeeded string
		warned                      bool
	}{
		{"reset", `{"account":"Ben"}`, "", true},
		{"reset", `{"account":"Ben"}`, "verify", true},
		{"reset", `{"account":"Ben"}`, "verify look_up", false},
		{"reset", `{"account":"Mara"}`, "verify look_up", false},
		{"pay", `{}`, "", true},
		{"pay", `{}`, "look_up", true},
		{"pay", `{}`, "look_up log_in", false},
		{"book", `{"n":"x"}`, "never asked", true},
	} {
		asked := false
		a, err := s.Check(t.Context(), recall.Action{
			Namespace: "acme", Tool: c.tool, Parameters: []byte(c.parameters),
			Succeeded: func(context.Context) []string { asked = true; return strings.Fields(c.succeeded) },
		})
		if err != nil || (len(a.Items) == 1) != c.warned {
			t.Errorf("%s %s after %q: warned of %v, %v, want a warning: %v", c.tool, c.parameters, c.succeeded, ids(a), err, c.warned)
		}
		if asked != (c.tool != "book") {
			t.Errorf("%s: asked for what has succeeded: %v", c.tool, asked)
		}
	}
}
