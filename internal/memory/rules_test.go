package memory_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/memory"
)

func TestRuleApplies(t *testing.T) {
	t.Parallel()
	ok := func(tool string) memory.Step { return memory.Step{Tool: tool, Status: events.StatusSuccess} }
	bad := func(tool, message string) memory.Step {
		return memory.Step{Tool: tool, Status: events.StatusFailure, ErrorMessage: message}
	}
	const yes, no, unknown = memory.AppliesYes, memory.AppliesNo, memory.AppliesUnknown
	none := []memory.Step{}
	for _, c := range []struct {
		name, predicate, tool, parameters string
		earlier                           []memory.Step
		want                              memory.Applies
	}{
		{"present", `{"call":"pay","all":[{"is":"present","path":"card"}]}`, "pay", `{"card":"x"}`, nil, yes},
		{"present, not there", `{"call":"pay","all":[{"is":"present","path":"card"}]}`, "pay", `{}`, nil, no},
		{"present, leads to others", `{"call":"pay","all":[{"is":"present","path":"lines"}]}`, "pay", `{"lines":[{"a":1}]}`, nil, yes},
		{"present, another tool", `{"call":"pay","all":[{"is":"present","path":"card"}]}`, "book", `{"card":"x"}`, nil, no},
		{"absent", `{"call":"pay","all":[{"is":"absent","path":"lines[].id"}]}`, "pay", `{"lines":[{"a":1}]}`, nil, yes},
		{"absent, there", `{"call":"pay","all":[{"is":"absent","path":"lines[].id"}]}`, "pay", `{"lines":[{"id":1}]}`, nil, no},
		{"format", `{"call":"pay","all":[{"is":"format","path":"day","format":"string:date"}]}`, "pay", `{"day":"01/02/2026"}`, nil, yes},
		{"format, another", `{"call":"pay","all":[{"is":"format","path":"day","format":"string:date"}]}`, "pay", `{"day":"2026-02-01"}`, nil, no},
		{"shape", `{"call":"pay","all":[{"is":"shape","shape":{"a":"number"}}]}`, "pay", `{"a":2}`, nil, yes},
		{"shape, more", `{"call":"pay","all":[{"is":"shape","shape":{"a":"number"}}]}`, "pay", `{"a":2,"b":1}`, nil, no},
		{"without", `{"call":"pay","all":[{"is":"without","tool":"look"}]}`, "pay", `{}`, none, yes},
		{"without, it failed", `{"call":"pay","all":[{"is":"without","tool":"look"}]}`, "pay", `{}`, []memory.Step{bad("look", "x")}, yes},
		{"without, done", `{"call":"pay","all":[{"is":"without","tool":"look"}]}`, "pay", `{}`, []memory.Step{ok("look")}, no},
		{"without, not known", `{"call":"pay","all":[{"is":"without","tool":"look"}]}`, "pay", `{}`, nil, unknown},
		{"both, one not known", `{"call":"pay","all":[{"is":"without","tool":"look"},{"is":"absent","path":"id"}]}`, "pay", `{}`, nil, unknown},
		{"both, one not so", `{"call":"pay","all":[{"is":"without","tool":"look"},{"is":"absent","path":"id"}]}`, "pay", `{"id":1}`, nil, no},
		{"used, about to", `{"all":[{"is":"used","tool":"cancel"}]}`, "cancel", `{}`, nil, yes},
		{"used, before", `{"all":[{"is":"used","tool":"cancel"}]}`, "pay", `{}`, []memory.Step{ok("cancel")}, yes},
		{"used, not known", `{"all":[{"is":"used","tool":"cancel"}]}`, "pay", `{}`, nil, unknown},
		{"unused, the rest is open", `{"all":[{"is":"unused","tool":"look"}]}`, "pay", `{}`, none, unknown},
		{"unused, about to", `{"all":[{"is":"unused","tool":"look"}]}`, "look", `{}`, none, no},
		{"order", `{"all":[{"is":"order","tool":"pay","then":"look"}]}`, "look", `{}`, []memory.Step{ok("pay")}, yes},
		{"order, again", `{"all":[{"is":"order","tool":"pay","then":"look"}]}`, "look", `{}`, []memory.Step{ok("pay"), ok("look")}, no},
		{"order, not known", `{"all":[{"is":"order","tool":"pay","then":"look"}]}`, "look", `{}`, nil, unknown},
		{"error", `{"all":[{"is":"error","tool":"pay","error_signature":"paid <value>"}]}`, "pay", `{}`, []memory.Step{bad("pay", "paid 255")}, yes},
		{"error, another", `{"all":[{"is":"error","tool":"pay","error_signature":"paid <value>"}]}`, "pay", `{}`, []memory.Step{bad("pay", "no")}, no},
		{"error, not known", `{"all":[{"is":"error","tool":"pay","error_signature":"paid <value>"}]}`, "pay", `{}`, nil, unknown},
		{"unrepaired", `{"all":[{"is":"unrepaired","tool":"pay","error_signature":"no"}]}`, "pay", `{}`, []memory.Step{bad("pay", "no")}, yes},
		{"unrepaired, repaired", `{"all":[{"is":"unrepaired","tool":"pay","error_signature":"no"}]}`, "pay", `{}`, []memory.Step{bad("pay", "no"), ok("pay")}, no},
		{"no JSON", `{`, "pay", `{}`, none, no},
		{"nothing", `{"call":"pay","all":[]}`, "pay", `{}`, none, no},
		{"not known", `{"call":"pay","all":[{"is":"moon","path":"full"}]}`, "pay", `{}`, none, no},
		{"of the other kind", `{"all":[{"is":"present","path":"card"}]}`, "pay", `{"card":1}`, none, no},
	} {
		if got := memory.RuleApplies(json.RawMessage(c.predicate), c.tool, json.RawMessage(c.parameters), c.earlier); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// FuzzParsePredicate: whatever a predicate holds, it is refused or has one canonical form.
func FuzzParsePredicate(f *testing.F) {
	for _, seed := range []string{
		`{"call":"pay","all":[{"is":"without","tool":"look"},{"is":"absent","path":"id"}]}`, `{"all":[{"is":"order","tool":"a","then":"b"}]}`,
		`{"call":"pay","all":[{"is":"shape","shape":{"a":"number"}}]}`, `{}`, `[]`, `{"all":[{"is":""}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		p, err := memory.ParsePredicate(raw)
		if err != nil {
			if !errors.Is(err, memory.ErrPredicate) {
				t.Fatalf("%v", err)
			}
			return
		}
		again, err := memory.ParsePredicate(p.JSON())
		if err != nil || string(again.JSON()) != string(p.JSON()) {
			t.Fatalf("%s became %s: %v", p.JSON(), again.JSON(), err)
		}
		memory.RuleApplies(raw, "pay", json.RawMessage(`{"id":1}`), []memory.Step{})
		p.HoldsForTask([]memory.Step{{Tool: "pay"}})
	})
}

func TestPredicatesContradict(t *testing.T) {
	t.Parallel()
	parse := func(text string) memory.Predicate {
		p, err := memory.ParsePredicate(json.RawMessage(text))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{`{"all":[{"is":"used","tool":"a"}]}`, `{"all":[{"is":"unused","tool":"a"}]}`, true},
		{`{"all":[{"is":"used","tool":"a"}]}`, `{"all":[{"is":"unused","tool":"b"}]}`, false},
		{`{"all":[{"is":"order","tool":"a","then":"b"}]}`, `{"all":[{"is":"order","tool":"b","then":"a"}]}`, true},
		{`{"call":"x","all":[{"is":"present","path":"p"}]}`, `{"call":"x","all":[{"is":"absent","path":"p"}]}`, true},
		{`{"call":"x","all":[{"is":"present","path":"p"}]}`, `{"call":"y","all":[{"is":"absent","path":"p"}]}`, false},
	} {
		if got := parse(c.a).Contradicts(parse(c.b)); got != c.want || parse(c.b).Contradicts(parse(c.a)) != c.want {
			t.Errorf("%s against %s: %v, want %v", c.a, c.b, got, c.want)
		}
	}
}
