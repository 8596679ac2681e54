package consolidate

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hindsight-memory/hindsight/internal/memory"
)

func used(tool string) memory.Predicate {
	return memory.Predicate{All: []memory.Condition{{Is: memory.ConditionUsed, Tool: tool}}}
}

// TestFiveActive: the five best rules of a type are active, and what people decided keeps its place.
func TestFiveActive(t *testing.T) {
	t.Parallel()
	decided, patterns := map[string]memory.Rule{}, map[string]*pattern{}
	for i := range 8 {
		id := fmt.Sprintf("rule-%d", i)
		decided[id] = memory.Rule{RuleID: id, Judged: memory.Judged{Status: memory.ItemActive}, Pinned: i == 0}
		patterns[id] = &pattern{low: 1 + float64(i)/10, supporting: make([]int, 10)}
	}
	known := []memory.Rule{{RuleID: "of a person", Judged: memory.Judged{Status: memory.ItemActive}}}
	limitActive(known, decided, patterns)
	var activeIDs []string
	for id, r := range decided {
		if r.Status == memory.ItemActive {
			activeIDs = append(activeIDs, id)
		} else if r.Status != memory.ItemCandidate || r.StatusReason == "" {
			t.Errorf("%s is %s because %q", id, r.Status, r.StatusReason)
		}
	}
	slices.Sort(activeIDs)
	if want := []string{"rule-0", "rule-5", "rule-6", "rule-7"}; !slices.Equal(activeIDs, want) {
		t.Errorf("active %v, want the pinned one and the best three: %v", activeIDs, want)
	}
}

// TestContradictingRules: of two rules that advise against each other the better supported one is served.
func TestContradictingRules(t *testing.T) {
	t.Parallel()
	active := memory.Judged{Status: memory.ItemActive}
	decided := map[string]memory.Rule{"a": {RuleID: "a", Judged: active}, "b": {RuleID: "b", Judged: active}, "c": {RuleID: "c", Judged: active}}
	unused := memory.Predicate{All: []memory.Condition{{Is: memory.ConditionUnused, Tool: "look"}}}
	patterns := map[string]*pattern{
		"a": {predicate: used("look"), low: 1.1, supporting: make([]int, 5)}, "b": {predicate: unused, low: 1.5, supporting: make([]int, 9)},
		"c": {predicate: used("pay"), low: 1.1, supporting: make([]int, 5)},
	}
	relations := contradictions(patterns, decided, map[string]memory.Rule{})
	if len(relations) != 1 || relations[0].FromID != "a" || relations[0].ToID != "b" || relations[0].Kind != memory.RelationContradicts {
		t.Errorf("relations %+v", relations)
	}
	if decided["a"].Status != memory.ItemSuperseded || decided["b"].Status != memory.ItemActive || decided["c"].Status != memory.ItemActive {
		t.Errorf("decided %+v", decided)
	}
}

// TestRulesSpeakTheLanguageOfTheTasks: rules of tasks in Chinese are worded in Chinese, with the names of tools as they are.
func TestRulesSpeakTheLanguageOfTheTasks(t *testing.T) {
	t.Parallel()
	var tasks []memory.Task
	for _, evs := range shopTasks(8) {
		task := memory.BuildTask(evs, true)
		task.Goal = "帮我买一件商品，并确认库存"
		tasks = append(tasks, task)
	}
	read := digests(t, tasks)
	found := mine(namespace, "shop", read)
	i := slices.IndexFunc(found.rules, func(p *pattern) bool { return p.kind == memory.RuleCall })
	if i < 0 {
		t.Fatal("no rule about calls")
	}
	var r memory.Rule
	word(&r, found.rules[i], read, "")
	t.Log(r.Rule, r.Condition, r.Action, r.DoesNotApplyWhen)
	for _, text := range []string{r.Rule, r.Condition, r.Action, r.DoesNotApplyWhen} {
		if memory.LanguageOf(text) != memory.LanguageChinese {
			t.Errorf("%q is not Chinese", text)
		}
	}
	if !strings.Contains(r.Action, "look") {
		t.Errorf("the action does not name the tool: %q", r.Action)
	}
}

// TestOneLoudAgent: what only one agent says of itself, in ever other ways, is one voice.
func TestOneLoudAgent(t *testing.T) {
	t.Parallel()
	var tasks []memory.Task
	for i := range 20 {
		tasks = append(tasks,
			memory.BuildTask(shopTask(i, "loud", fmt.Sprintf("goal%d", i), false, true, "agent"), true),
			memory.BuildTask(shopTask(100+i, "loud", fmt.Sprintf("goal%d", i), true, false, "agent"), true))
	}
	if found := mine(namespace, "shop", digests(t, tasks)); len(found.rules) > 0 {
		t.Errorf("%d rules, the first with %d voices: %s", len(found.rules), found.rules[0].voices, found.rules[0].predicate.JSON())
	}
}

// TestAPersonHasTheSay: what a person wrote, forgot or sent to review is not touched.
func TestAPersonHasTheSay(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status memory.ItemStatus
		kind   memory.WriterKind
		want   bool
	}{
		{memory.ItemActive, memory.WriterMachine, true},
		{memory.ItemRetired, memory.WriterMachine, true},
		{memory.ItemCandidate, memory.WriterMachine, true},
		{memory.ItemActive, memory.WriterPerson, false},
		{memory.ItemForgotten, memory.WriterMachine, false},
		{memory.ItemQuarantined, memory.WriterMachine, false},
		{memory.ItemPendingReview, memory.WriterMachine, false},
	} {
		r := memory.Rule{Judged: memory.Judged{Status: c.status}, Version: memory.Version{WriterKind: c.kind}}
		if got := ours(r); got != c.want {
			t.Errorf("%s by a %s: %v, want %v", c.status, c.kind, got, c.want)
		}
	}
}
