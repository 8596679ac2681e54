package memory

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
)

// signs are what programs write between words.
var signs = regexp.MustCompile(`[_\[\]().|=<>,/…]+`)

// EmbeddedText is a situation or a question as it is embedded: names of programs come apart into their words, since a
// model knows words. Measured with the local model, a question in plain words is nearer to the situation that it is about
// by 0.03 to 0.05 of calibrated similarity, and not to others.
func EmbeddedText(text string) string {
	return strings.TrimSpace(strings.Join(strings.Fields(signs.ReplaceAllString(text, " ")), " "))
}

// QuestionText is the text of a question as it is embedded: as a situation is, after the type of its task.
func QuestionText(taskType, question string) string {
	return EmbeddedText(strings.Join([]string{taskType, question}, " | "))
}

// SnapshotText is the text of a snapshot that is embedded: its situation, so that a decision that is about to be made
// finds those that were like it.
func SnapshotText(s Snapshot) string {
	if s.Situation != "" {
		return EmbeddedText(s.Situation)
	}
	goal := cmp.Or(s.TaskContext.InputSummary, s.AppliesWhen)
	return EmbeddedText(Situation(SituationOf{
		TaskType: s.TaskContext.TaskType, Goal: goal, Tool: s.Decision.ToolSelected, Parameters: s.Decision.Parameters,
		Error: quotable(s.Outcome.ErrorMessage, instance(strings.ToLower(goal+"\n"+string(s.Decision.Parameters))), s.TaskContext.AvailableTools), AvailableTools: s.TaskContext.AvailableTools,
	}))
}

// MemoryText is the text of a memory that is embedded.
func MemoryText(m Memory) string { //nolint:revive // memory.Text would not say of what.
	return Cut(cmp.Or(m.Content, m.Entity+": "+m.Value), 2000)
}

// SnapshotEntry is a snapshot as a vector index holds it, without its vector, its text's hash and the moment at which it
// was first recorded, and the text that is embedded. The text is empty when the snapshot may not be found.
func SnapshotEntry(s Snapshot) (e IndexEntry, text string) {
	e = IndexEntry{
		ID: s.SnapshotID, Namespace: s.Namespace, Layer: LayerSnapshot, TaskType: s.TaskContext.TaskType, Tools: oneOrNone(s.Decision.ToolSelected),
		ErrorType: s.Outcome.ErrorType, Outcome: string(s.Outcome.Status), Trust: s.Trust, Status: s.Status,
	}
	return e, findable(s.Status, SnapshotText(s))
}

// MemoryEntry is a memory as a vector index holds it; see [SnapshotEntry].
func MemoryEntry(m Memory) (e IndexEntry, text string) { //nolint:revive // memory.Entry would not say of what.
	e = IndexEntry{
		ID: m.MemoryID, Namespace: m.Namespace, Layer: LayerMemory, TaskType: m.TaskType, Tools: oneOrNone(m.Tool), ErrorType: m.ErrorType,
		Trust: m.Trust, Status: m.Status,
	}
	return e, findable(m.Status, MemoryText(m))
}

// findable keeps what is not to be shown, now or after a review, out of an index.
func findable(status ItemStatus, text string) string {
	if status != ItemActive && status != ItemPendingReview {
		return ""
	}
	return text
}

func oneOrNone(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
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
				over.ValidTo, over.Status, over.StatusReason = &until, ItemSuperseded, ReasonReplaced+m.MemoryID
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
		m.ValidTo, m.Status, m.StatusReason = &until, ItemSuperseded, ReasonReplaced+after.MemoryID
	}
	return m, ended
}

// compatible reports names that are not of different things: equal, or one of them not given.
func compatible(a, b string) bool { return a == "" || b == "" || a == b }

// Stamped are entries as an index is given them: each with its stamp as the hash of its text.
func Stamped(entries []IndexEntry) []IndexEntry {
	out := slices.Clone(entries)
	for i := range out {
		out[i].TextHash = out[i].Stamp()
	}
	return out
}

// Stamp is the hash of the entry's text, a slash and a hash of what else a search may ask for, so that the stamps of an
// index tell which entries are not as the record has them now.
func (e IndexEntry) Stamp() string {
	said := HashID("entry", string(e.Layer), e.TaskType, strings.Join(e.Tools, "\x00"), e.ErrorType, e.Outcome, string(e.Trust), string(e.Status))
	return e.TextHash + "/" + said[:8]
}

// TextOfStamp is the hash of the text in a stamp.
func TextOfStamp(stamp string) string {
	hash, _, _ := strings.Cut(stamp, "/")
	return hash
}
