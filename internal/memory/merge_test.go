package memory_test

import (
	"testing"
	"time"

	"github.com/hindsight-memory/hindsight/internal/memory"
)

func TestCompare(t *testing.T) {
	t.Parallel()
	thresholds := memory.Thresholds{Related: 0.9, Duplicate: 0.95}
	a := memory.Statement{
		Tool: "pay", ErrorMessage: "total price is 305, but paid 255", Lesson: "Make the amounts add up to the total price before calling pay.", AppliesWhen: "several payment methods",
	}
	with := func(change func(*memory.Statement)) memory.Statement { b := a; change(&b); return b }
	lesson := func(text string) memory.Statement { return with(func(s *memory.Statement) { s.Lesson = text }) }
	for _, c := range []struct {
		name       string
		b          memory.Statement
		similarity float64
		want       memory.Likeness
	}{
		{"other values in the error", with(func(s *memory.Statement) { s.ErrorMessage = "total price is 9, but paid 8" }), 1, memory.LikenessSame},
		{"the same words without vectors", with(func(s *memory.Statement) { s.Lesson = "make the amounts ADD UP to the total price, before calling pay" }), -2, memory.LikenessSame},
		{"other words without vectors", lesson("Check the sum of all amounts."), -2, memory.LikenessNone},
		{"other words, nearly the same vector", lesson("The payments together must give the total price."), 0.97, memory.LikenessSame},
		{"other words, related", lesson("The payments together must give the total price."), 0.93, memory.LikenessRelated},
		{"other words, unrelated", lesson("Ask for the name."), 0.5, memory.LikenessNone},
		{"another tool", with(func(s *memory.Statement) { s.Tool = "book" }), 1, memory.LikenessNone},
		{"another error", with(func(s *memory.Statement) { s.ErrorMessage = "card expired" }), 1, memory.LikenessNone},
		{"another type of error", with(func(s *memory.Statement) { s.ErrorType = "ValueError" }), 1, memory.LikenessNone},
		{"another condition", with(func(s *memory.Statement) { s.AppliesWhen = "one payment method" }), 1, memory.LikenessNone},
		{"no condition", with(func(s *memory.Statement) { s.AppliesWhen = "" }), 1, memory.LikenessNone},
		{"negated", lesson("Do not make the amounts add up to the total price before calling pay."), 0.99, memory.LikenessOpposed},
		{"the other way round", lesson("Make the amounts add up to the total price after calling pay."), 0.99, memory.LikenessOpposed},
		{"another parameter", lesson("Make the payment_amounts add up to the total price before calling pay."), 0.99, memory.LikenessRelated},
		{"another number", lesson("Make the amounts add up to the total price of 3 before calling pay."), 0.99, memory.LikenessRelated},
		{"one word in place of another", lesson("Make the amounts add up to the discounted price before calling pay."), 0.99, memory.LikenessRelated},
		{"nothing said", lesson(""), 1, memory.LikenessNone},
	} {
		if got := memory.Compare(a, c.b, c.similarity, thresholds); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		if got := memory.Compare(c.b, a, c.similarity, thresholds); got != c.want {
			t.Errorf("%s, the other way: %s, want %s", c.name, got, c.want)
		}
	}
	zh := memory.Statement{Tool: "支付", Lesson: "调用支付之前先核对总价。"}
	if got := memory.Compare(zh, memory.Statement{Tool: "支付", Lesson: "调用支付之前不要先核对总价。"}, 0.99, thresholds); got != memory.LikenessOpposed {
		t.Errorf("Chinese, negated: %s", got)
	}
}

func TestMemoriesReplaceEachOther(t *testing.T) {
	t.Parallel()
	port := memory.Memory{MemoryID: "1", MemoryType: memory.MemoryFact, Entity: "db1", Value: "port 5432", Operation: memory.OperationAdd, Content: "db1 listens on port 5432"}
	with := func(change func(*memory.Memory)) memory.Memory { m := port; m.MemoryID = "2"; change(&m); return m }
	for _, c := range []struct {
		name           string
		m              memory.Memory
		same, replaces bool
	}{
		{"again", with(func(m *memory.Memory) { m.Value = "Port 5432" }), true, false},
		{"another value of the entity", with(func(m *memory.Memory) { m.Value, m.Content = "40 cores", "db1 has 40 cores" }), false, false},
		{"an update of it", with(func(m *memory.Memory) {
			m.Operation, m.Value, m.OldValue = memory.OperationUpdate, "port 6432", "port 5432"
		}), false, true},
		{"an update of something else", with(func(m *memory.Memory) {
			m.Operation, m.Value, m.OldValue = memory.OperationUpdate, "60 cores", "40 cores"
		}), false, false},
		{"deleted", with(func(m *memory.Memory) { m.Operation, m.OldValue, m.Value = memory.OperationDelete, "port 5432", "" }), false, true},
		{"denied", with(func(m *memory.Memory) { m.Value, m.Content = "not port 5432", "db1 does not listen on port 5432" }), false, false},
		{"another user's", with(func(m *memory.Memory) { m.UserID = "u" }), false, false},
		{"another entity's", with(func(m *memory.Memory) { m.Entity = "db2" }), false, false},
	} {
		if got := memory.SameValue(c.m, port); got != c.same {
			t.Errorf("%s: same %v, want %v", c.name, got, c.same)
		}
		if got := memory.Replaces(c.m, port); got != c.replaces {
			t.Errorf("%s: replaces %v, want %v", c.name, got, c.replaces)
		}
	}
}

func TestStronger(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	said, later := memory.Claim{ID: "a", Trust: memory.TrustUserStated, When: now}, memory.Claim{ID: "b", Trust: memory.TrustExternal, When: now.Add(time.Hour)}
	if !memory.Stronger(said, later) || memory.Stronger(later, said) {
		t.Error("what a user stated gives way to what came from outside later")
	}
	later.Trust = memory.TrustUserStated
	if !memory.Stronger(later, said) || memory.Stronger(said, later) {
		t.Error("of two equally trusted claims the newer counts")
	}
}
