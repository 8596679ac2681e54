package memory_test

import (
	"testing"
	"time"

	"github.com/hindsight-memory/hindsight/internal/memory"
)

// stated is a fact that a tool stored on a day.
func stated(id, value string, op memory.Operation, day int) memory.Memory {
	at := time.Date(2026, 1, day, 0, 0, 0, 0, time.UTC)
	return memory.Memory{
		MemoryID: id, Namespace: "acme", Timestamp: at, ValidFrom: at, MemoryType: memory.MemoryFact, Entity: "home city", Value: value, Operation: op,
		ExtractedBy: "keeper", Judged: memory.Judged{Trust: memory.TrustUserStated, Status: memory.ItemActive, Confidence: 0.8},
	}
}

// byID gives the statements as they came out, and who ended whom.
func byID(s memory.Succession) (out map[string]memory.Memory, endedBy map[string]string) {
	out, endedBy = map[string]memory.Memory{}, map[string]string{}
	for i, m := range s.Memories {
		out[m.MemoryID] = m
		if by, ended := s.EndedBy[i]; ended {
			endedBy[m.MemoryID] = s.Memories[by].MemoryID
		}
	}
	return out, endedBy
}

func TestALaterStatementEndsTheOnesBefore(t *testing.T) {
	t.Parallel()
	paris, rome, oslo := stated("a", "Paris", memory.OperationAdd, 1), stated("b", "Rome", memory.OperationUpdate, 2), stated("c", "Oslo", memory.OperationUpdate, 3)
	for _, order := range [][]memory.Memory{{paris, rome, oslo}, {oslo, paris, rome}, {rome, oslo, paris}} {
		out, endedBy := byID(memory.Succeed(order))
		if endedBy["a"] != "b" || endedBy["b"] != "c" || endedBy["c"] != "" || out["c"].Status != memory.ItemActive {
			t.Fatalf("ended by: %v, the last is %s", endedBy, out["c"].Status)
		}
		if !out["a"].ValidTo.Equal(rome.ValidFrom) || out["c"].OldValue != "Rome" {
			t.Errorf("the first holds until %v, the last replaced %q", out["a"].ValidTo, out["c"].OldValue)
		}
		again, _ := byID(memory.Succeed(memory.Succeed(order).Memories))
		if again["a"].Status != memory.ItemSuperseded || !again["a"].ValidTo.Equal(rome.ValidFrom) || again["b"].StatusReason != memory.ReasonReplaced+"c" {
			t.Errorf("a second time %+v", again)
		}
	}
}

// TestWhatAStatementHadReplacedStaysSo: a statement whose value was changed by its id does not bring back what it had
// replaced before; one that is gone does.
func TestWhatAStatementHadReplacedStaysSo(t *testing.T) {
	t.Parallel()
	paris, rome := stated("a", "Paris", memory.OperationAdd, 1), stated("b", "Rome", memory.OperationUpdate, 2)
	before, _ := byID(memory.Succeed([]memory.Memory{paris, rome}))
	berlin := before["b"]
	berlin.Value, berlin.OldValue, berlin.ValidFrom = "Berlin", "Rome", time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)
	berlin.Version.TaskRevision = memory.RevisionOutlasting
	out, endedBy := byID(memory.Succeed([]memory.Memory{before["a"], berlin}))
	if out["a"].Status != memory.ItemSuperseded || !out["a"].ValidTo.Equal(rome.ValidFrom) || endedBy["a"] != "b" {
		t.Errorf("after the later statement was changed, the earlier one is %s until %v, ended by %q", out["a"].Status, out["a"].ValidTo, endedBy["a"])
	}
	if out, _ := byID(memory.Succeed([]memory.Memory{before["a"]})); out["a"].Status != memory.ItemActive || out["a"].ValidTo != nil {
		t.Errorf("without the later statement the earlier one is %s until %v", out["a"].Status, out["a"].ValidTo)
	}
	// Only changed by its id, a statement takes no other's place.
	tea := stated("t", "tea", memory.OperationAdd, 1)
	out, _ = byID(memory.Succeed([]memory.Memory{tea, berlin}))
	if out["t"].Status != memory.ItemActive {
		t.Errorf("a statement that was never replaced is %s", out["t"].Status)
	}
}

// TestWhatIsGoneIsNotRepeated: a forgotten value ends the one before it, and is not told as what the next one replaced.
func TestWhatIsGoneIsNotRepeated(t *testing.T) {
	t.Parallel()
	paris, rome, oslo := stated("a", "Paris", memory.OperationAdd, 1), stated("b", "Rome", memory.OperationUpdate, 2), stated("c", "Oslo", memory.OperationUpdate, 3)
	before, _ := byID(memory.Succeed([]memory.Memory{paris, rome}))
	forgotten := before["b"]
	forgotten.Status, forgotten.Version.TaskRevision = memory.ItemForgotten, memory.RevisionOutlasting
	out, endedBy := byID(memory.Succeed([]memory.Memory{before["a"], forgotten, oslo}))
	if endedBy["a"] == "" || out["a"].Status != memory.ItemSuperseded || out["b"].Status != memory.ItemForgotten || out["c"].OldValue == "Rome" {
		t.Errorf("ended by %v, the forgotten one is %s, the last replaced %q", endedBy, out["b"].Status, out["c"].OldValue)
	}
}
