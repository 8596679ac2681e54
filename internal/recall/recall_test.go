package recall_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/memory"
	"github.com/hindsight-memory/hindsight/internal/recall"
)

// lessons are a few decisions about different matters, in two languages.
func lessons(namespace string) []any {
	return []any{
		snapshot(namespace, "payment", "book_reservation", `{"payments":[{"payment_id":"gift_card_1","amount":100}],"total":250}`,
			"airline: booking a flight and paying with several payment methods",
			"Error: payment amount does not add up, total price is 250 but paid 100",
			"Before calling book_reservation, make the amounts in payments add up to the total price of the flight."),
		snapshot(namespace, "date", "search_flights", `{"date":"05/20/2024"}`,
			"airline: searching for a flight on a date", "Error: invalid date format", "Write the date of search_flights as YYYY-MM-DD."),
		snapshot(namespace, "address", "update_address", `{"zip":"1"}`,
			"retail: changing the delivery address of an order", "Error: order is already shipped", "Check that the order is pending before update_address."),
		snapshot(namespace, "refund-zh", "refund_order", `{"amount":12.5}`,
			"零售：为客户办理订单退款", "金额必须是带两位小数的文本", "调用 refund_order 时，amount 要写成带两位小数的文本。"),
		fact(namespace, "seat", "customer mia", "aisle seat", "Customer Mia always wants an aisle seat."),
	}
}

func ids(a recall.Answer) []string {
	out := make([]string, len(a.Items))
	for i, item := range a.Items {
		out[i] = item.ID
	}
	return out
}

func ask(t *testing.T, s *recall.Service, q recall.Question) recall.Answer {
	t.Helper()
	a, err := s.Recall(t.Context(), q)
	if err != nil {
		t.Fatalf("Recall(%q) = %v", q.Text, err)
	}
	return a
}

func TestTheRightLessonComesFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.keep(t, lessons("acme")...)
	s := w.service(t, nil)
	for question, want := range map[string]string{
		"The customer wants to pay the ticket with a gift card and a credit card": "payment",
		"用两张卡支付机票":                          "payment",
		"find flights for the 20th of May":  "date",
		"move the parcel to another street": "address",
		"把买东西的钱退给顾客":                        "refund-zh",
		"give the buyer their money back":   "refund-zh",
	} {
		a := ask(t, s, recall.Question{Namespace: "acme", Text: question, Asker: recall.Asker{TaskID: "t", SessionID: "s", Door: "mcp"}})
		if len(a.Items) == 0 || a.Items[0].ID != want {
			t.Errorf("%q is answered by %v (%s), want %s first", question, ids(a), a.Notice, want)
			continue
		}
		item := a.Items[0]
		if item.Score <= 0 || item.Similarity < recall.DefaultMinScore || item.Parts["similarity"] == 0 || item.CreatedAt.IsZero() {
			t.Errorf("%q: the item does not say why: %+v", question, item)
		}
		if lines := strings.Split(item.Text, "\n"); len(lines) != 4 {
			t.Errorf("%q: the item has %d lines, want 4:\n%s", question, len(lines), item.Text)
		}
	}
	e, served := w.recorder.last(t)
	if e.TaskID != "t" || e.SessionID != "s" || served.TaskID != "t" || served.Door != "mcp" || len(served.Items) == 0 || served.Withheld {
		t.Errorf("recorded %+v of task %q", served, e.TaskID)
	}
}

func TestNothingCrossesNamespaces(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.keep(t, lessons("acme")...)
	s := w.service(t, nil)
	for _, question := range []string{"payment amount does not add up", "Customer Mia always wants an aisle seat.", "refund_order"} {
		a := ask(t, s, recall.Question{Namespace: "acme.ops", Text: question, MinScore: -1})
		if len(a.Items) != 0 || !strings.Contains(a.Notice, "nothing is known") {
			t.Errorf("another namespace is answered %v, %q", ids(a), a.Notice)
		}
	}
	a, err := s.Check(t.Context(), recall.Action{Namespace: "acme.ops", Tool: "search_flights", Parameters: []byte(`{"date":"05/20/2024"}`)})
	if err != nil || len(a.Items) != 0 {
		t.Errorf("another namespace's call is warned of %v, %v", ids(a), err)
	}
	for _, ns := range []string{"", "Acme", "a.b.c"} {
		if _, err := s.Recall(t.Context(), recall.Question{Namespace: ns, Text: "x"}); !errors.Is(err, recall.ErrQuestion) {
			t.Errorf("namespace %q: %v, want ErrQuestion", ns, err)
		}
	}
}

// An index may still hold what the record has taken out of service.
func TestStaleIndexIsNotBelieved(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.keep(t, lessons("acme")...)
	gone := lessons("acme")[0].(memory.Snapshot) //nolint:forcetypeassert // lessons are what they are
	gone.Status, gone.Version = memory.ItemForgotten, w.version()
	gone.Version.WriterKind = memory.WriterPerson
	if err := w.store.InsertSnapshots(t.Context(), []memory.Snapshot{gone}); err != nil {
		t.Fatal(err)
	}
	a := ask(t, w.service(t, nil), recall.Question{Namespace: "acme", Text: "payment amount does not add up for book_reservation"})
	for _, id := range ids(a) {
		if id == "payment" {
			t.Error("a forgotten item is shown")
		}
	}
}

func TestAnswersWithoutVectors(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.keep(t, lessons("acme")...)
	for name, change := range map[string]func(*recall.Options){
		"index away":  func(o *recall.Options) { o.Index = away{w.index} },
		"no embedder": func(o *recall.Options) { o.Index, o.Embedder = nil, nil },
	} {
		a := ask(t, w.service(t, change), recall.Question{Namespace: "acme", Text: "payment amount does not add up"})
		if len(a.Items) == 0 || a.Items[0].ID != "payment" {
			t.Errorf("%s: answered by %v", name, ids(a))
		}
		if !strings.Contains(a.Notice, "words, rules and exact codes only") {
			t.Errorf("%s: the answer does not say what it is made from: %q", name, a.Notice)
		}
		a = ask(t, w.service(t, change), recall.Question{Namespace: "acme", Text: "付款金额 amount 不一致怎么办"})
		if !strings.Contains(a.Notice, "仅按词语、规则和精确代码") {
			t.Errorf("%s: a Chinese question is told %q", name, a.Notice)
		}
	}
}

// TestWordsAreRankedByMeaningWithoutTheIndex: vectors are in the record, whether the index answers or not.
func TestWordsAreRankedByMeaningWithoutTheIndex(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.keep(t, lessons("acme")...)
	question := recall.Question{Namespace: "acme", Text: "payment amount does not add up for book_reservation"}
	want := ask(t, w.service(t, nil), question)
	got := ask(t, w.service(t, func(o *recall.Options) { o.Index = away{w.index} }), question)
	if len(want.Items) == 0 || len(got.Items) == 0 || got.Items[0].ID != want.Items[0].ID || got.Items[0].Similarity != want.Items[0].Similarity {
		t.Errorf("without the index %+v, with it %+v", got.Items, want.Items)
	}
	if want.Notice != "" || !strings.Contains(got.Notice, "the vector index is away") {
		t.Errorf("notices: %q with the index, %q without", want.Notice, got.Notice)
	}
}

func TestExactCodesWinOutright(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.keep(t, lessons("acme")...)
	w.keep(t, snapshot("acme", "coded", "sync_ledger", `{}`, "finance: synchronising the ledger at night", "E4417: lock is held", "When sync_ledger answers E4417, wait for the lock and call it again."))
	a := ask(t, w.service(t, nil), recall.Question{Namespace: "acme", Text: "booking failed while paying with E4417"})
	if len(a.Items) == 0 || a.Items[0].ID != "coded" || a.Items[0].Parts["exact_codes"] == 0 {
		t.Errorf("answered by %v, want the item with the code first", ids(a))
	}
}

func TestBudgetAndTopK(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 12 {
		w.keep(t, snapshot("acme", fmt.Sprint("long", i), "tool", fmt.Sprintf(`{"n":%d}`, i), fmt.Sprintf("airline: paying for a flight, kind %d", i),
			"error "+strings.Repeat("long ", 100), fmt.Sprintf("Lesson %d: %s", i, strings.Repeat("check the payment ", 10))))
	}
	s := w.service(t, nil)
	a := ask(t, s, recall.Question{Namespace: "acme", Text: "paying for a flight", TopK: 50, Budget: 500})
	if len(a.Items) < 2 || a.Tokens > 500 {
		t.Errorf("%d items in %d tokens, want some within 500", len(a.Items), a.Tokens)
	}
	if a := ask(t, s, recall.Question{Namespace: "acme", Text: "paying for a flight", TopK: 3, Budget: 5000}); len(a.Items) != 3 {
		t.Errorf("%d items, want 3", len(a.Items))
	}
	if a := ask(t, s, recall.Question{Namespace: "acme", Text: "paying for a flight", Budget: 20}); len(a.Items) != 1 || a.Tokens > 21 {
		t.Errorf("a small budget gives %d items in %d tokens, want the first one, cut", len(a.Items), a.Tokens)
	}
}

// Items that say the same are shown once, with how many say it.
func TestItemsThatSayTheSameAreOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 4 {
		w.keep(t, snapshot("acme", fmt.Sprint("same", i), "search_flights", fmt.Sprintf(`{"date":"0%d/20/2024"}`, i+1),
			"airline: searching for a flight on a date", "invalid date", "Write the date of search_flights as YYYY-MM-DD."))
	}
	a := ask(t, w.service(t, nil), recall.Question{Namespace: "acme", Text: "search a flight by date"})
	if len(a.Items) != 1 || a.Items[0].Seen != 4 {
		t.Errorf("%v, seen in %v, want one item seen in 4", ids(a), a.Items)
	}
}

// What was merged is shown once, however its members are worded.
func TestMergedItemsAreOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.keep(t,
		snapshot("acme", "first", "search_flights", `{"date":"05/20/2024"}`, "airline: searching for a flight on a date", "invalid date", "Write the date of search_flights as YYYY-MM-DD."),
		snapshot("acme", "second", "search_flights", `{"date":"06/20/2024"}`, "airline: searching for a flight on a day", "invalid date", "Give search_flights an ISO date."),
		snapshot("acme", "third", "search_flights", `{"date":"07/20/2024"}`, "airline: finding a flight on a day", "invalid date", "Use another date."))
	if err := w.store.InsertRelations(t.Context(), []memory.Relation{
		{Namespace: "acme", FromID: "second", Kind: memory.RelationMergedInto, ToID: "first", Weight: 0.9, Writer: "test", Seq: 1},
	}); err != nil {
		t.Fatal(err)
	}
	a := ask(t, w.service(t, nil), recall.Question{Namespace: "acme", Text: "searching for a flight on a day"})
	if len(a.Items) != 2 {
		t.Fatalf("%v, want two: the merged ones are one", ids(a))
	}
	for _, item := range a.Items {
		if want := map[string]int{"third": 1}[item.ID]; want == 0 && item.Seen != 2 {
			t.Errorf("%s was seen in %d tasks, want 2", item.ID, item.Seen)
		}
	}
}

func TestControlGroup(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.keep(t, lessons("acme")...)
	s := w.service(t, func(o *recall.Options) { o.ControlShare = 1 })
	q := recall.Question{Namespace: "acme", Text: "Mia pays for a flight with two cards and wants an aisle seat", MinScore: -1, Asker: recall.Asker{SessionID: "s1"}}
	a := ask(t, s, q)
	if !a.Withheld {
		t.Fatalf("nothing was withheld: %v", ids(a))
	}
	for _, item := range a.Items {
		if item.Layer != memory.LayerMemory {
			t.Errorf("the control group is shown %s %s", item.Layer, item.ID)
		}
	}
	if len(a.Items) == 0 {
		t.Error("the control group is not shown facts")
	}
	if _, served := w.recorder.last(t); !served.Withheld || len(served.Items) <= len(a.Items) {
		t.Errorf("recorded %d items, withheld %v, want all that would have been shown", len(served.Items), served.Withheld)
	}
	q.Asker = recall.Asker{}
	if a := ask(t, s, q); a.Withheld {
		t.Error("items were withheld from who names neither session nor task")
	}
	if e, served := w.recorder.last(t); e.TaskID != events.UnjoinedTask || served.TaskID != "" {
		t.Errorf("an unjoined recall has task %q, %q", e.TaskID, served.TaskID)
	}
	q.Asker = recall.Asker{SessionID: "s1"}
	check, err := s.Check(t.Context(), recall.Action{Namespace: "acme", Tool: "search_flights", Parameters: []byte(`{"date":"05/20/2024"}`), Asker: q.Asker})
	if err != nil || !check.Withheld || len(check.Items) != 0 {
		t.Errorf("check shows the control group %v, %v", ids(check), err)
	}
}

func TestOff(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.keep(t, lessons("acme")...)
	s := w.service(t, func(o *recall.Options) { o.Off = true })
	if a := ask(t, s, recall.Question{Namespace: "acme", Text: "payment"}); len(a.Items) != 0 || a.Way != recall.WayOff {
		t.Errorf("recall is off and answers %v", ids(a))
	}
}

func TestCheckWarnsOfTheSameMistakeOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.keep(t, lessons("acme")...)
	w.keep(t, snapshot("acme", "postcode", "change_address", `{"order":"A-1","street":"上海市人民路8号"}`, "retail: changing an address",
		"postcode is required", "When `change_address` answers \"postcode is required\", add `postcode`; ask the user for it."))
	s := w.service(t, nil)
	for name, c := range map[string]struct {
		tool, parameters string
		want             string
	}{
		"the same call":              {"search_flights", `{"date":"05/20/2024"}`, "date"},
		"another value written so":   {"search_flights", `{"date":"12/01/2025"}`, "date"},
		"written as it should be":    {"search_flights", `{"date":"2025-12-01"}`, ""},
		"another tool":               {"search_hotels", `{"date":"05/20/2024"}`, ""},
		"other parameters":           {"search_flights", `{"day":"05/20/2024"}`, ""},
		"nested, in another order":   {"book_reservation", `{"total":250,"payments":[{"amount":100,"payment_id":"gift_card_1"}]}`, "payment"},
		"another case":               {"book_reservation", `{"total":80,"payments":[{"amount":80,"payment_id":"gift_card_7"}]}`, ""},
		"a number instead of a text": {"refund_order", `{"amount":3}`, "refund-zh"},
		"a text as it should be":     {"refund_order", `{"amount":"3.00"}`, ""},
		"a parameter left out":       {"change_address", `{"order":7,"street":"Main Street 5"}`, "postcode"},
		"the parameter is there":     {"change_address", `{"order":7,"street":"Main Street 5","postcode":"8010"}`, ""},
	} {
		a, err := s.Check(t.Context(), recall.Action{Namespace: "acme", Tool: c.tool, Parameters: []byte(c.parameters)})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got := strings.Join(ids(a), " ")
		if got != c.want {
			t.Errorf("%s: warned of %q, want %q", name, got, c.want)
		}
		if c.want == "" && a.Notice != "" {
			t.Errorf("%s: it is not silent: %q", name, a.Notice)
		}
	}
}

func TestRulesAreServed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	predicate, err := json.Marshal(memory.Predicate{Call: "book_reservation", All: []memory.Condition{{Is: memory.ConditionAbsent, Path: "payments[].amount"}}})
	if err != nil {
		t.Fatal(err)
	}
	rule := memory.Rule{
		RuleID: "rule-1", Namespace: "acme", Timestamp: time.Now().UTC(), TaskType: "airline", Kind: memory.RuleCall, Tool: "book_reservation",
		Rule: "book_reservation fails when the payments do not add up", Condition: "several payment methods are used",
		Action: "Add the amounts up before the call.", Predicate: predicate, Support: 5, Lift: 3, LiftLow: 1.8,
		Judged: memory.Judged{Evidence: []string{"e"}, Trust: memory.TrustAgentInferred, Confidence: 0.8, Importance: 0.8, Status: memory.ItemActive},
	}
	candidate := rule
	candidate.RuleID, candidate.Status = "rule-2", memory.ItemCandidate
	w.keep(t, rule, candidate)
	s := w.service(t, nil)
	a, err := s.Rules(t.Context(), "acme", "airline", time.Time{}, recall.Asker{})
	if err != nil || len(a.Items) != 1 || a.Items[0].ID != "rule-1" {
		t.Fatalf("Rules = %v, %v, want the active one", ids(a), err)
	}
	if a := ask(t, s, recall.Question{Namespace: "acme", TaskType: "airline", Text: "pay a flight with three cards"}); len(a.Items) != 1 || a.Items[0].Layer != memory.LayerRule {
		t.Errorf("a question about the type is answered by %v", ids(a))
	}
	for parameters, want := range map[string]int{`{"payments":[{"amount":1}]}`: 0, `{}`: 1} {
		a, err = s.Check(t.Context(), recall.Action{Namespace: "acme", Tool: "book_reservation", Parameters: []byte(parameters), TaskType: "airline"})
		if err != nil || len(a.Items) != want {
			t.Errorf("a call with %s is warned of %v, %v, want %d", parameters, ids(a), err, want)
		}
	}
}

func TestFactsAndTheirHistory(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	old := fact("acme", "city-1", "customer mia", "Lyon", "Customer Mia lives in Lyon.")
	ended := time.Now().UTC().Add(-time.Hour).Truncate(time.Millisecond)
	old.ValidFrom, old.Timestamp, old.ValidTo, old.Status = ended.Add(-time.Hour), ended.Add(-time.Hour), &ended, memory.ItemSuperseded
	w.keep(t, old, fact("acme", "city-2", "customer mia", "Graz", "Customer Mia lives in Graz."), fact("acme", "other", "customer bo", "Porto", "Customer Bo lives in Porto."))
	s := w.service(t, nil)
	a := ask(t, s, recall.Question{Namespace: "acme", Entity: "customer mia", Text: "where does she live"})
	if a.Way != recall.WayFact || len(a.Items) == 0 || a.Items[0].ID != "city-2" {
		t.Errorf("asked for a fact: %s %v", a.Way, ids(a))
	}
	for _, id := range ids(a) {
		if id == "city-1" {
			t.Error("what is no longer true is shown as a fact")
		}
	}
	a = ask(t, s, recall.Question{Namespace: "acme", Entity: "customer mia", Text: "where did she live previously"})
	if a.Way != recall.WayHistory || len(a.Items) != 2 || a.Items[0].ID != "city-2" || a.Items[1].ID != "city-1" || !strings.Contains(a.Items[1].Note, "until") {
		t.Errorf("asked for the history: %s %v", a.Way, a.Items)
	}
}

// An answer about the past is made from what was recorded by then.
func TestAsOf(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.keep(t, lessons("acme")[1])
	recorded, err := w.store.Snapshots(t.Context(), memory.ItemFilter{Namespace: "acme"})
	if err != nil || len(recorded) != 1 {
		t.Fatal(recorded, err)
	}
	then := recorded[0].Version.RecordedAt
	for { // until the store's clock is past that moment
		w.keep(t, lessons("acme")[0])
		later, err := w.store.Snapshots(t.Context(), memory.ItemFilter{Namespace: "acme", IDs: []string{"payment"}})
		if err != nil || len(later) != 1 {
			t.Fatal(later, err)
		}
		if later[0].Version.RecordedAt.After(then) {
			break
		}
	}
	s := w.service(t, nil)
	q := recall.Question{Namespace: "acme", Text: "payment amount does not add up when booking a flight on a date", MinScore: -1}
	if a := ask(t, s, q); len(a.Items) != 2 {
		t.Errorf("now: %v, want both", ids(a))
	}
	q.AsOf = then
	if a := ask(t, s, q); len(a.Items) != 1 || a.Items[0].ID != "date" {
		t.Errorf("then: %v (%s), want what was known", ids(a), a.Notice)
	}
	q.AsOf = then.Add(-time.Hour)
	if a := ask(t, s, q); len(a.Items) != 0 {
		t.Errorf("before: %v, want nothing", ids(a))
	}
}

func TestBadQuestions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.service(t, nil)
	for name, q := range map[string]recall.Question{
		"empty": {Namespace: "acme"}, "too many": {Namespace: "acme", Text: "x", TopK: 51}, "negative": {Namespace: "acme", Text: "x", TopK: -1},
		"score": {Namespace: "acme", Text: "x", MinScore: 1.5},
	} {
		if _, err := s.Recall(t.Context(), q); !errors.Is(err, recall.ErrQuestion) {
			t.Errorf("%s: %v, want ErrQuestion", name, err)
		}
	}
	for _, text := range []string{"\x00\xff", strings.Repeat("很长的问题", 10_000), "'; DROP TABLE snapshots; --", "🙂🙂", "a\u2028b"} {
		if _, err := s.Recall(t.Context(), recall.Question{Namespace: "acme", Text: text}); err != nil {
			t.Errorf("%.20q: %v", text, err)
		}
	}
}

func TestEstimateTokens(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]int{"": {0, 0}, "hello world": {2, 4}, "退款失败": {4, 4}, "a1b2": {1, 3}} {
		if got := recall.EstimateTokens(text); got < want[0] || got > want[1] {
			t.Errorf("EstimateTokens(%q) = %d, want %v", text, got, want)
		}
	}
}
