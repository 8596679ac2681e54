package memory

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// ReasonLaterStatement is the reason of a relation between a statement and one that it takes the place of.
const ReasonLaterStatement = "a later statement about the same"

// writtenByTool is who extracted a memory that a tool or person asked to store.
const writtenByTool = "keeper"

// Began is from when on a memory holds: from when it is said to, or from when it was stated.
func (m Memory) Began() time.Time {
	if m.ValidFrom.IsZero() {
		return m.Timestamp
	}
	return m.ValidFrom
}

// Succession is how the statements about one entity follow each other.
type Succession struct {
	// Memories are the statements in their order, each as it comes out: in force, or ended by another.
	Memories []Memory
	// EndedBy gives for the place of a statement that of the one that ended it.
	EndedBy map[int]int
	// Disputed gives for the place of a statement that of a later one that contradicts it and is less to be believed.
	Disputed map[int]int
}

// Succeed puts statements about one entity into their order. What comes out depends on the statements alone, and not on
// when each arrived or what came out before: a statement is ended by the first later one that takes its place. What a
// person has decided is left as it is, and so is what a statement had replaced that was changed by its id since. Statements
// that are gone, forgotten or archived, still end others, so that these do not come back; they themselves stay as they are.
// Only such and those that are in force or were ended by others may be among them.
func Succeed(statements []Memory) Succession {
	all := slices.Clone(statements)
	slices.SortFunc(all, func(a, b Memory) int {
		return cmp.Or(a.Began().Compare(b.Began()), strings.Compare(a.MemoryID, b.MemoryID))
	})
	out := Succession{Memories: all, EndedBy: map[int]int{}, Disputed: map[int]int{}}
	for i := range all {
		for j := i + 1; j < len(all) && !Gone(all[i].Judged); j++ {
			if takesPlace(all[j], all[i]) {
				out.EndedBy[i] = j
				break
			}
			if _, is := out.Disputed[i]; !is && !Gone(all[j].Judged) && !replaces(all[j]) && Replaces(all[j], all[i]) {
				out.Disputed[i] = j
			}
		}
	}
	for i := range all {
		m := &all[i]
		if Gone(m.Judged) {
			continue
		}
		if Decided(m.Version) {
			if by, ended := out.EndedBy[i]; ended { // That is only pointed out.
				delete(out.EndedBy, i)
				if !Gone(all[by].Judged) {
					out.Disputed[i] = by
				}
			}
			continue
		}
		if by, ended := out.EndedBy[i]; ended {
			delete(out.Disputed, i)
			until := all[by].Began()
			m.ValidTo, m.Status, m.StatusReason = &until, ItemSuperseded, ReasonReplaced+all[by].MemoryID
		} else if by := changedSince(all, *m); by >= 0 {
			delete(out.Disputed, i)
			out.EndedBy[i] = by // Until when it held does not change.
		} else if Overruled(m.Judged) {
			m.ValidTo, m.Status, m.StatusReason = nil, ItemActive, ""
		}
		if !replaces(*m) {
			continue
		}
		m.OldValue = ""
		for j := i - 1; j >= 0; j-- {
			if !Gone(all[j].Judged) && sameSubject(*m, all[j]) && !sayTheSame(*m, all[j]) {
				m.OldValue = all[j].Value
				break
			}
		}
		if m.ExtractedBy != writtenByTool {
			m.Operation = OperationAdd
			if m.OldValue != "" {
				m.Operation = OperationUpdate
			}
		}
	}
	return out
}

// changedSince gives the place of the statement that replaced another and was changed by its id, or is gone, since then; -1
// when there is none. What it says now no longer tells whose place it took, and changing it brings nothing back.
func changedSince(all []Memory, m Memory) int {
	if !Overruled(m.Judged) {
		return -1
	}
	return slices.IndexFunc(all, func(o Memory) bool {
		return (o.Status == ItemActive && Decided(o.Version) || Gone(o.Judged)) && m.StatusReason == ReasonReplaced+o.MemoryID
	})
}

// Gone reports an item that is kept and not shown any more.
func Gone(j Judged) bool { return j.Status == ItemForgotten || j.Status == ItemArchived }

// Decided reports a version that stands whatever a program finds: a person wrote it, or it was asked for by name.
func Decided(v Version) bool {
	return v.WriterKind == WriterPerson || v.TaskRevision >= RevisionOutlasting
}

// replaces reports a statement that takes the place of all earlier ones about its entity: a fact that a user stated about
// something, or what a tool was asked to update or delete.
func replaces(m Memory) bool {
	switch {
	case m.Entity == "" || m.Version.TaskRevision >= RevisionOutlasting:
		return false
	case m.ExtractedBy == writtenByTool:
		return m.Operation != OperationAdd
	default:
		return m.ExtractedBy != "" && m.MemoryType == MemoryFact && m.Entity != "user"
	}
}

// sameSubject reports statements of which one can take the place of the other.
func sameSubject(later, earlier Memory) bool {
	return strings.EqualFold(later.Entity, earlier.Entity) && compatible(later.UserID, earlier.UserID) && compatible(later.TaskType, earlier.TaskType) &&
		(later.ExtractedBy == writtenByTool || earlier.MemoryType == later.MemoryType) &&
		// What a page says does not end what a user or an agent said.
		(later.Trust != TrustExternal || earlier.Trust == TrustExternal)
}

func sayTheSame(a, b Memory) bool {
	return a.Value == b.Value && (a.Operation == OperationDelete) == (b.Operation == OperationDelete)
}

// takesPlace reports that a statement takes the place of an earlier one.
func takesPlace(later, earlier Memory) bool {
	if replaces(later) {
		return sameSubject(later, earlier) && !sayTheSame(later, earlier)
	}
	return Replaces(later, earlier) && Stronger(ClaimOf(later), ClaimOf(earlier))
}

// ClaimOf is what counts of a memory when it is contradicted.
func ClaimOf(m Memory) Claim {
	own, _ := Unsupported(m.Judged)
	return Claim{ID: m.MemoryID, Trust: m.Trust, Confidence: own.Confidence, When: m.Began()}
}
