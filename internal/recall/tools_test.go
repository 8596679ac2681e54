package recall_test

import (
	"slices"
	"testing"
	"time"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/memory"
	"github.com/hindsight-memory/hindsight/internal/recall"
)

// Who lists tools is not told about calls that they cannot make.
func TestLessonsAboutToolsThatTheAgentDoesNotHaveAreLeftOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	of := func(id, tool, situation, lesson string, status events.Status) memory.Snapshot {
		s := snapshot("acme", id, tool, `{"a":1}`, situation, "AD-403", lesson)
		s.TaskContext.TaskType, s.Outcome.Status = "user_admin", status
		return s
	}
	rule := func(id, tool string) memory.Rule {
		return memory.Rule{
			RuleID: id, Namespace: "acme", Timestamp: time.Now().UTC(), TaskType: "user_admin", Kind: memory.RuleCall, Tool: tool, Rule: tool + " fails", Condition: "about to call it",
			Action: "Call get_account first.", Support: 5, Lift: 3, LiftLow: 1.8,
			Judged: memory.Judged{Evidence: []string{"e"}, Trust: memory.TrustAgentInferred, Confidence: 0.8, Importance: 0.8, Status: memory.ItemActive},
		}
	}
	w.keep(t,
		of("deleting", "delete_account", "user_admin | delete_account | Mara has left: remove the account", "Before calling `delete_account`, read the state with `get_account`.", events.StatusFailure),
		of("resetting", "reset_password", "user_admin | reset_password | Mara cannot log in any more", "When `reset_password` answers \"A-17\", call `verify_identity` first.", events.StatusFailure),
		of("outcome", "close_account", "user_admin | close_account | Mara cannot log in to the account", "Call `verify_identity` (with `account`); a task of this goal succeeded so and this one failed.", events.StatusSuccess),
		of("general", "close_account", "user_admin | close_account | Mara cannot log in to her account", "Ask who is calling before anything is changed.", events.StatusSuccess),
		rule("rule-other", "delete_account"), rule("rule-own", "reset_password"),
		fact("acme", "fact", "Mara", "mail", "Mara cannot log in by mail since May."),
	)
	s := w.service(t, nil)
	ask1 := func(text string, tools ...string) []string {
		a := ask(t, s, recall.Question{
			Namespace: "acme", TopK: 20, Budget: 5000,
			Context: &memory.TaskContext{TaskType: "user_admin", InputSummary: text, AvailableTools: tools},
		})
		got := ids(a)
		slices.Sort(got)
		return got
	}
	all := []string{"deleting", "fact", "general", "outcome", "resetting", "rule-other", "rule-own"}
	const question = "Mara cannot log in to the account"
	if got := ask1(question); !slices.Equal(got, all) {
		t.Errorf("without tools: %v, want %v", got, all)
	}
	want := []string{"fact", "general", "outcome", "resetting", "rule-own"}
	for _, tools := range [][]string{{"get_account", "reset_password", "verify_identity"}, {"mcp__admin__get_account", "mcp__admin__reset_password", "admin.verify_identity"}} {
		if got := ask1(question, tools...); !slices.Equal(got, want) {
			t.Errorf("with the tools %v: %v, want %v", tools, got, want)
		}
	}
	// What is nearly the same situation is shown all the same.
	if got := ask1("delete_account | Mara has left: remove the account", "get_account"); !slices.Contains(got, "deleting") {
		t.Errorf("in the same situation: %v, want the lesson of it", got)
	}
}

// Two good lessons are two items and not five.
func TestWhatIsBarelyRelatedIsLeftOutBesideWhatFits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.keep(t, lessons("acme")...)
	s := w.service(t, nil)
	question := recall.Question{Namespace: "acme", Text: "airline: booking a flight and paying with several payment methods"}
	a := ask(t, s, question)
	if got := ids(a); !slices.Equal(got, []string{"payment"}) {
		t.Errorf("answered by %v, want the one that fits", a.Items)
	}
	question.MinScore = -1
	if got := ids(ask(t, s, question)); len(got) != 5 {
		t.Errorf("asked for all, answered by %v", got)
	}
}
