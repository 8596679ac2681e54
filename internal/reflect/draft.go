package reflect

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/memory"
)

// Limits of what a snapshot keeps of a step, in runes.
const (
	maxInputSummary = 500
	maxReasoning    = 1000
	maxErrorMessage = 1000
)

// Confidence and importance of what users state (design: memories).
const (
	statedConfidence   = 0.8
	inferredConfidence = 0.6
	onPurpose          = 0.9
	inPassing          = 0.3
	externalConfidence = 0.3
)

// drafter makes the items of one reflection.
type drafter struct {
	*reading
	task     memory.Task
	evs      []events.Event
	analysis memory.Analysis
	plan     *Plan
	version  memory.Version
}

func (d *drafter) drop(f memory.Finding, lesson, reason, detail string) {
	if d.plan.Dropped == nil {
		d.plan.Dropped = map[string]int{}
	}
	d.plan.Dropped[reason]++
	d.plan.Discarded = append(d.plan.Discarded, Discarded{Kind: f.Kind, Step: f.Step.Step, Tool: f.Step.Tool, Lesson: lesson, Reason: cmp.Or(detail, reason)})
}

// snapshots words each finding and makes a snapshot of it. Several findings at one step are one snapshot: the first, and
// so the most telling, counts.
func (d *drafter) snapshots(ctx context.Context) error {
	findings := slices.Clone(d.analysis.Findings)
	slices.SortStableFunc(findings, func(a, b memory.Finding) int { return cmp.Compare(b.Importance, a.Importance) })
	seen := map[string]bool{}
	findings = slices.DeleteFunc(findings, func(f memory.Finding) bool {
		id := memory.SnapshotID(d.task.Namespace, d.task.TaskID, f.Step.CallID, f.Step.EventID)
		if seen[id] {
			d.drop(f, "", memory.DropSameStep, "")
			return true
		}
		seen[id] = true
		return false
	})
	words := make([]worded, len(findings))
	for i, f := range findings {
		words[i] = worded{judgement: word(f, d.analysis.Language), by: criticEvidence}
	}
	// A task that still runs is not worth a model's time: what is said of it now is said again when it is over.
	if d.opts.Reflection != nil && len(findings) > 0 && d.plan.Closed {
		if err := d.askModel(ctx, findings, words); err != nil {
			return err
		}
	}
	for i, f := range findings {
		w := words[i]
		if err := memory.Gate(w.Lesson, evidenceOf(f)); err != nil {
			d.drop(f, w.Lesson, dropGate, err.Error())
			continue
		}
		s := d.snapshot(f, w)
		if s.Status == memory.ItemQuarantined {
			d.drop(f, w.Lesson, dropTrust, s.StatusReason)
			continue
		}
		d.plan.Snapshots = append(d.plan.Snapshots, s)
		d.plan.kinds = append(d.plan.kinds, f.Kind)
	}
	return nil
}

func evidenceOf(f memory.Finding) memory.Evidence {
	return memory.Evidence{Text: f.EvidenceText, Vocabulary: f.Vocabulary, Error: f.Error}
}

// clean takes out of foreign text what must not enter an item, and shortens it.
func clean(text string, runes int) string {
	cleaned, _ := memory.CleanExternal(memory.Cut(text, 4*runes))
	return memory.Cut(cleaned, runes)
}

func (d *drafter) snapshot(f memory.Finding, w worded) memory.Snapshot {
	t, step := d.task, f.Step
	status, reason := memory.TrustGate(f.Trust, w.Lesson, w.Alternative, w.RootCause)
	s := memory.Snapshot{
		SnapshotID: memory.SnapshotID(t.Namespace, t.TaskID, step.CallID, step.EventID), Timestamp: step.Time,
		TaskContext: memory.TaskContext{
			TaskType: t.TaskType, InputSummary: clean(cmp.Or(t.InputSummary, t.Goal), maxInputSummary), AvailableTools: t.AvailableTools,
		},
		Decision: memory.Decision{ToolSelected: step.Tool, Parameters: step.Parameters, ReasoningPath: clean(step.Reasoning, maxReasoning)},
		Outcome: memory.Outcome{
			Status: step.Status, ErrorType: step.ErrorType, ErrorMessage: clean(step.ErrorMessage, maxErrorMessage), ExecutionTimeMS: step.ExecutionTimeMS,
		},
		Reflection: &memory.Reflection{
			IsOptimal: w.IsOptimal, RootCause: w.RootCause, RootCauseClass: w.CauseClass, Alternative: w.Alternative, Lesson: w.Lesson,
		},
		Tags: []string{string(f.Kind)}, Namespace: t.Namespace, AgentID: t.AgentID, SessionID: t.SessionID, UserID: t.UserID, TaskID: t.TaskID,
		GoalID: t.GoalID, Step: step.Step, AppliesWhen: w.AppliesWhen, Situation: f.Situation,
		Judged: memory.Judged{
			Evidence: f.Evidence, Trust: f.Trust, Confidence: f.Confidence, ConfidenceReasons: f.ConfidenceReasons, Importance: f.Importance,
			ImportanceReasons: f.ImportanceReasons, Status: status, StatusReason: reason,
		},
		ReflectedBy: w.by, PromptVersion: w.prompt, Version: d.version,
	}
	if s.TaskContext.AvailableTools == nil {
		s.TaskContext.AvailableTools = []string{}
	}
	if f.Signature != "" {
		s.Tags = append(s.Tags, "failure")
	}
	return s
}

// memories makes memories of what users stated.
func (d *drafter) memories(ctx context.Context) error {
	if !d.plan.Closed {
		return nil // The end of the task may still correct what was said.
	}
	at := map[string]events.Event{}
	for _, e := range d.evs {
		at[e.ID] = e
	}
	stated, by := d.analysis.Stated, criticEvidence
	if d.opts.Extraction != nil {
		stated, by = d.extract(ctx, at)
	}
	for _, s := range stated {
		e := at[s.EventID]
		content, found := memory.CleanExternal(s.Content)
		value, _ := memory.CleanExternal(s.Value)
		if slices.Contains(found, memory.FoundInstruction) || strings.TrimSpace(content) == "" {
			d.plan.Dropped[dropTrust]++
			continue
		}
		m := memory.Memory{
			MemoryID: memory.MemoryID(d.task.Namespace, s.EventID, s.Ordinal), Namespace: d.task.Namespace, Timestamp: e.Time, MemoryType: s.MemoryType,
			Entity: s.Entity, Entities: []string{s.Entity}, Value: value, Operation: memory.OperationAdd, Content: content,
			AgentID: d.task.AgentID, SessionID: d.task.SessionID, UserID: cmp.Or(e.UserID, d.task.UserID), TaskID: d.task.TaskID, SourceTurn: s.Turn,
			ValidFrom: e.Time,
			Judged: memory.Judged{
				Evidence: []string{s.EventID}, Trust: memory.TrustUserStated, Confidence: statedConfidence, ConfidenceReasons: []string{"+0.80 a user said so"},
				Importance: inPassing, ImportanceReasons: []string{"+0.30 said in passing"}, Status: memory.ItemActive,
			},
			ExtractedBy: by, Version: d.version,
		}
		if by != criticEvidence {
			m.PromptVersion = promptVersion
		}
		if s.OnPurpose {
			m.Importance, m.ImportanceReasons = onPurpose, []string{"+0.90 said on purpose"}
		}
		if err := d.place(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// place adds a memory to the plan, and ends what it replaces. Statements about nothing in particular replace nothing.
func (d *drafter) place(ctx context.Context, m memory.Memory) error {
	if i := slices.IndexFunc(d.standing[taskKey(d.task)].memories, func(o memory.Memory) bool { return o.MemoryID == m.MemoryID && o.Value == m.Value }); i >= 0 {
		// It has its place; what has come since is for the consolidator to put in order.
		was := d.standing[taskKey(d.task)].memories[i]
		m.Operation, m.OldValue = was.Operation, was.OldValue
	} else if m.MemoryType == memory.MemoryFact && m.Entity != "user" {
		others, err := d.opts.Items.Memories(ctx, memory.ItemFilter{Namespace: m.Namespace, Entity: m.Entity})
		if err != nil {
			return fmt.Errorf("read what is known about %q: %w", m.Entity, err)
		}
		others = slices.DeleteFunc(others, func(o memory.Memory) bool { return o.MemoryType != memory.MemoryFact })
		placed, ended := memory.History(m, append(others, d.plan.Memories...))
		m = placed
		for _, old := range ended {
			if i := slices.IndexFunc(d.plan.Memories, func(x memory.Memory) bool { return x.MemoryID == old.MemoryID }); i >= 0 {
				d.plan.Memories[i] = old
			} else {
				old.Version = memory.Version{TaskRevision: old.Version.TaskRevision, Writer: writerReflector + "/" + m.MemoryID, WriterKind: memory.WriterMachine}
				d.plan.oldMemories = append(d.plan.oldMemories, old)
			}
			d.plan.relations = append(d.plan.relations, memory.Relation{
				Namespace: m.Namespace, FromID: m.MemoryID, Kind: memory.RelationSupersedes, ToID: old.MemoryID, Weight: 1, Reason: memory.ReasonLaterStatement,
				Writer: writerReflector,
			})
		}
	}
	d.plan.Memories = append(d.plan.Memories, m)
	return nil
}

// keepStanding compares with what the record holds of this task: what others decided about an item stands, what the record
// has already is not written again, and what this reflection does not have is superseded.
func (d *drafter) keepStanding() {
	had := d.standing[taskKey(d.task)]
	for _, old := range had.snapshots {
		i := slices.IndexFunc(d.plan.Snapshots, func(s memory.Snapshot) bool { return s.SnapshotID == old.SnapshotID })
		if i < 0 {
			if d.mine(old.Judged, old.Version, old.ReflectedBy) {
				over := old
				over.Status, over.StatusReason, over.Version = memory.ItemSuperseded, memory.ReasonNotDerived, d.versionAfter(old.Version)
				d.plan.oldSnapshots = append(d.plan.oldSnapshots, over)
				d.plan.Superseded = append(d.plan.Superseded, old.SnapshotID)
			}
			continue
		}
		if !d.stands(old.Judged, old.Version) {
			d.plan.Snapshots = slices.Delete(d.plan.Snapshots, i, i+1)
			d.plan.kinds = slices.Delete(d.plan.kinds, i, i+1)
			continue
		}
		s := &d.plan.Snapshots[i]
		s.Judged = memory.Renewed(s.Judged, old.Judged)
		s.Version = d.versionAfter(old.Version)
		if old.TaskContext.AvailableTools == nil {
			old.TaskContext.AvailableTools = []string{}
		}
		d.plan.unchanged[s.SnapshotID] = same(*s, old) && old.Version.TaskRevision == d.version.TaskRevision
	}
	for _, old := range had.memories {
		i := slices.IndexFunc(d.plan.Memories, func(m memory.Memory) bool { return m.MemoryID == old.MemoryID })
		if i < 0 {
			if d.plan.Closed && d.mine(old.Judged, old.Version, old.ExtractedBy) {
				over := old
				over.Status, over.StatusReason, over.Version = memory.ItemSuperseded, memory.ReasonNotDerived, d.versionAfter(old.Version)
				d.plan.oldMemories = append(d.plan.oldMemories, over)
				d.plan.Superseded = append(d.plan.Superseded, old.MemoryID)
			}
			continue
		}
		if !d.stands(old.Judged, old.Version) {
			d.plan.Memories = slices.Delete(d.plan.Memories, i, i+1)
			continue
		}
		m := &d.plan.Memories[i]
		m.Judged = memory.Renewed(m.Judged, old.Judged)
		if memory.Overruled(old.Judged) {
			m.ValidTo = old.ValidTo
		}
		m.Version = d.versionAfter(old.Version)
		d.plan.unchanged[m.MemoryID] = same(*m, old) && old.Version.TaskRevision == d.version.TaskRevision
	}
}

// same reports that two versions of an item say the same.
func same[T memory.Snapshot | memory.Memory](a, b T) bool {
	x, err := json.Marshal(a)
	y, errOfB := json.Marshal(b)
	return err == nil && errOfB == nil && bytes.Equal(x, y)
}

// versionAfter names a version that follows one that the record holds: of the same revision of the task, it is told from
// the earlier ones of it by the time.
func (d *drafter) versionAfter(old memory.Version) memory.Version {
	v := d.version
	if old.TaskRevision == v.TaskRevision {
		v.Seq = uint64(max(d.opts.Now().UnixMilli(), 1))
		if old.Writer == v.Writer {
			v.Seq = max(v.Seq, old.Seq+1)
		}
	}
	return v
}

// mine reports an item that an earlier reflection of this task made, that counts in some way, and that this one is to
// supersede. A provisional reflection, which looks for less, supersedes only what a provisional one made.
func (d *drafter) mine(j memory.Judged, v memory.Version, by string) bool {
	counts := j.Status == memory.ItemActive || j.Status == memory.ItemPendingReview || memory.Overruled(j)
	if !counts || v.WriterKind == memory.WriterPerson || by == "" || by == writerKeeper || v.TaskRevision > d.version.TaskRevision {
		return false
	}
	return d.plan.Closed || v.TaskRevision%2 == 0
}

// stands reports false when a new version is not to be written at all: what was forgotten or archived stays so, and a
// person's version outlasts all.
func (d *drafter) stands(old memory.Judged, v memory.Version) bool {
	if old.Status == memory.ItemForgotten || old.Status == memory.ItemArchived || v.WriterKind == memory.WriterPerson || v.TaskRevision >= memory.RevisionOutlasting {
		d.plan.Dropped[dropForgotten]++
		return false
	}
	return true
}
