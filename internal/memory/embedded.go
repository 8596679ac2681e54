package memory

import (
	"cmp"
	"strings"
)

// SnapshotText is the text of a snapshot that is embedded: its situation, so that a decision that is about to be made
// finds those that were like it.
func SnapshotText(s Snapshot) string {
	if s.Situation != "" {
		return s.Situation
	}
	goal := cmp.Or(s.TaskContext.InputSummary, s.AppliesWhen)
	return Situation(SituationOf{
		TaskType: s.TaskContext.TaskType, Goal: goal, Tool: s.Decision.ToolSelected, Parameters: s.Decision.Parameters,
		Error: quotable(s.Outcome.ErrorMessage, s.TaskContext.AvailableTools), AvailableTools: s.TaskContext.AvailableTools,
	})
}

// MemoryText is the text of a memory that is embedded.
func MemoryText(m Memory) string { //nolint:revive // memory.Text would not say of what.
	return Cut(cmp.Or(m.Content, m.Entity+": "+m.Value), 2000)
}

// History puts a statement about an entity into the order of those before and after it. It returns the statement,
// with what it replaced, and new versions of those that it ends. Statements about the same entity by other users are
// left alone; so are those with the same value.
//
// A statement ends those that began before it. When one began after it, the statement itself is over already.
func History(m Memory, others []Memory) (placed Memory, ended []Memory) {
	var before, after *Memory
	for i := range others {
		o := &others[i]
		if o.MemoryID == m.MemoryID || o.Namespace != m.Namespace || !strings.EqualFold(o.Entity, m.Entity) || !compatible(o.UserID, m.UserID) || !compatible(o.TaskType, m.TaskType) ||
			o.Status != ItemActive && o.Status != ItemSuperseded || o.Value == m.Value && o.Operation == m.Operation {
			continue
		}
		switch {
		case !o.ValidFrom.After(m.ValidFrom):
			if before == nil || o.ValidFrom.After(before.ValidFrom) {
				before = o
			}
			if o.Status == ItemActive && o.ValidTo == nil {
				over := *o
				until := m.ValidFrom
				over.ValidTo, over.Status, over.StatusReason = &until, ItemSuperseded, "replaced by "+m.MemoryID
				ended = append(ended, over)
			}
		case after == nil || o.ValidFrom.Before(after.ValidFrom):
			after = o
		}
	}
	if before != nil {
		if m.OldValue == "" {
			m.OldValue = before.Value
		}
		if m.Operation == OperationAdd {
			m.Operation = OperationUpdate
		}
	}
	if after != nil && after.Status == ItemActive {
		until := after.ValidFrom
		m.ValidTo, m.Status, m.StatusReason = &until, ItemSuperseded, "replaced by "+after.MemoryID
	}
	return m, ended
}

// compatible reports names that are not of different things: equal, or one of them not given.
func compatible(a, b string) bool { return a == "" || b == "" || a == b }
