package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/memory"
)

func snapshotTable() itemTable {
	return itemTable{
		layer: memory.LayerSnapshot, name: "snapshots", id: "snapshot_id", time: "timestamp",
		taskType: "task_type", taskID: "task_id", goalID: "goal_id", sessionID: "session_id", tool: "tool_selected", errorType: "error_type",
		columns: `namespace, snapshot_id, task_revision, writer, writer_kind, seq, run_id, timestamp, agent_id, session_id, user_id, task_id,
			goal_id, step, task_type, input_summary, available_tools, tool_selected, parameters, reasoning_path, outcome_status, error_type,
			error_message, execution_time_ms, is_optimal, root_cause, root_cause_class, alternative, lesson, tags, applies_when, situation,
			evidence, trust, confidence, confidence_reasons, importance, importance_reasons, status, status_reason, reflected_by, prompt_version`,
	}
}

func memoryTable() itemTable {
	return itemTable{
		layer: memory.LayerMemory, name: "memories", id: "memory_id", time: "timestamp",
		taskType: "task_type", taskID: "task_id", sessionID: "session_id", tool: "tool", errorType: "error_type", memoryType: "memory_type", entity: true,
		columns: `namespace, memory_id, task_revision, writer, writer_kind, seq, run_id, timestamp, agent_id, session_id, user_id, task_id,
			source_turn, memory_type, entity, entities, value, old_value, operation, content, task_type, tool, error_type, tags, valid_from,
			valid_to, evidence, trust, confidence, confidence_reasons, importance, importance_reasons, status, status_reason, extracted_by,
			prompt_version`,
	}
}

func ruleTable() itemTable {
	return itemTable{
		layer: memory.LayerRule, name: "rules", id: "rule_id", time: "timestamp", taskType: "task_type", tool: "tool",
		columns: `namespace, rule_id, task_revision, writer, writer_kind, seq, run_id, timestamp, task_type, kind, tool, error_signature, rule,
			condition, action, does_not_apply_when, predicate, support, refute, lift, lift_low, goals, voices, pinned, tags, evidence, trust,
			confidence, confidence_reasons, importance, importance_reasons, status, status_reason`,
	}
}

func summaryTable() itemTable {
	return itemTable{
		layer: memory.LayerSummary, name: "summaries", id: "session_id", time: "timestamp", taskID: "task_id", sessionID: "session_id",
		columns: `namespace, session_id, task_revision, writer, writer_kind, seq, run_id, timestamp, agent_id, user_id, task_id, goal, confirmed,
			pending, summary, evidence, status, written_by`,
	}
}

// InsertSnapshots writes versions of snapshots. Storing a version again changes nothing: what was stored first stays.
// Seq must be unique among the writes that a writer makes of an item at one task revision, over all runs of a job. The
// error is a [RowError] when a version can never be stored; then none was.
func (c *ClickHouse) InsertSnapshots(ctx context.Context, snapshots []memory.Snapshot) error {
	writes := make([]write, len(snapshots))
	for i, s := range snapshots {
		w, reason := newWrite(s.Namespace, s.SnapshotID, s.Version, s.Evidence, []time.Time{s.Timestamp}, []float64{s.Confidence, s.Importance})
		if reason != "" {
			return &RowError{Index: i, ID: s.SnapshotID, Reason: reason}
		}
		var optimal *bool
		var r memory.Reflection
		if s.Reflection != nil {
			r = *s.Reflection
			optimal = &r.IsOptimal
		}
		v := s.Version
		w.values = []any{
			s.Namespace, s.SnapshotID, v.TaskRevision, v.Writer, string(v.WriterKind), v.Seq, v.RunID, s.Timestamp, s.AgentID, s.SessionID,
			s.UserID, s.TaskID, s.GoalID, int64(s.Step), s.TaskContext.TaskType, s.TaskContext.InputSummary, notNil(s.TaskContext.AvailableTools),
			s.Decision.ToolSelected, string(s.Decision.Parameters), s.Decision.ReasoningPath, string(s.Outcome.Status), s.Outcome.ErrorType,
			s.Outcome.ErrorMessage, s.Outcome.ExecutionTimeMS, optimal, r.RootCause, string(r.RootCauseClass), r.Alternative, r.Lesson,
			notNil(s.Tags), s.AppliesWhen, s.Situation, s.Evidence, string(s.Trust), s.Confidence, notNil(s.ConfidenceReasons), s.Importance,
			notNil(s.ImportanceReasons), string(s.Status), s.StatusReason, s.ReflectedBy, s.PromptVersion,
		}
		writes[i] = w
	}
	return c.insertVersions(ctx, snapshotTable(), writes)
}

// Snapshots returns the current versions that pass the filter, in order of time and id. A filter by what a snapshot
// does not have (memory type, entity) lets none pass. All are held in memory: use Limit.
func (c *ClickHouse) Snapshots(ctx context.Context, f memory.ItemFilter) ([]memory.Snapshot, error) {
	return current(ctx, c, snapshotTable(), f, scanSnapshot, func(s memory.Snapshot) (time.Time, string) { return s.Timestamp, s.SnapshotID })
}

func scanSnapshot(rows driver.Rows) (memory.Snapshot, error) {
	var s memory.Snapshot
	var r memory.Reflection
	var optimal *bool
	var step int64
	var writerKind, parameters, outcome, class, trust, status string
	v := &s.Version
	if err := rows.Scan(&s.Namespace, &s.SnapshotID, &v.TaskRevision, &v.Writer, &writerKind, &v.Seq, &v.RunID, &s.Timestamp, &s.AgentID,
		&s.SessionID, &s.UserID, &s.TaskID, &s.GoalID, &step, &s.TaskContext.TaskType, &s.TaskContext.InputSummary, &s.TaskContext.AvailableTools,
		&s.Decision.ToolSelected, &parameters, &s.Decision.ReasoningPath, &outcome, &s.Outcome.ErrorType, &s.Outcome.ErrorMessage,
		&s.Outcome.ExecutionTimeMS, &optimal, &r.RootCause, &class, &r.Alternative, &r.Lesson, &s.Tags, &s.AppliesWhen, &s.Situation,
		&s.Evidence, &trust, &s.Confidence, &s.ConfidenceReasons, &s.Importance, &s.ImportanceReasons, &status, &s.StatusReason,
		&s.ReflectedBy, &s.PromptVersion, &v.RecordedAt); err != nil {
		return s, err
	}
	s.Step, s.Timestamp, v.RecordedAt = int(step), s.Timestamp.UTC(), v.RecordedAt.UTC()
	v.WriterKind, s.Outcome.Status, s.Decision.Parameters = memory.WriterKind(writerKind), events.Status(outcome), rawOrNil(parameters)
	if optimal != nil {
		r.IsOptimal, r.RootCauseClass = *optimal, memory.CauseClass(class)
		s.Reflection = &r
	}
	s.TaskContext.AvailableTools, s.Tags = nilIfEmpty(s.TaskContext.AvailableTools), nilIfEmpty(s.Tags)
	tidy(&s.Judged, trust, status)
	return s, nil
}

// rawOrNil is JSON that is kept as text.
func rawOrNil(text string) json.RawMessage {
	if text == "" {
		return nil
	}
	return json.RawMessage(text)
}

// InsertMemories writes versions of memories; see [ClickHouse.InsertSnapshots]. A memory without ValidFrom is valid from
// its Timestamp on.
func (c *ClickHouse) InsertMemories(ctx context.Context, memories []memory.Memory) error {
	writes := make([]write, len(memories))
	for i, m := range memories {
		if m.ValidFrom.IsZero() {
			m.ValidFrom = m.Timestamp
		}
		times := []time.Time{m.Timestamp, m.ValidFrom}
		if m.ValidTo != nil {
			times = append(times, *m.ValidTo)
		}
		w, reason := newWrite(m.Namespace, m.MemoryID, m.Version, m.Evidence, times, []float64{m.Confidence, m.Importance})
		if reason != "" {
			return &RowError{Index: i, ID: m.MemoryID, Reason: reason}
		}
		v := m.Version
		w.values = []any{
			m.Namespace, m.MemoryID, v.TaskRevision, v.Writer, string(v.WriterKind), v.Seq, v.RunID, m.Timestamp, m.AgentID, m.SessionID, m.UserID,
			m.TaskID, int64(m.SourceTurn), string(m.MemoryType), m.Entity, notNil(m.Entities), m.Value, m.OldValue, string(m.Operation), m.Content,
			m.TaskType, m.Tool, m.ErrorType, notNil(m.Tags), m.ValidFrom, m.ValidTo, m.Evidence, string(m.Trust), m.Confidence,
			notNil(m.ConfidenceReasons), m.Importance, notNil(m.ImportanceReasons), string(m.Status), m.StatusReason, m.ExtractedBy, m.PromptVersion,
		}
		writes[i] = w
	}
	return c.insertVersions(ctx, memoryTable(), writes)
}

// Memories returns the current versions that pass the filter, in order of time and id. A filter by goal lets none pass:
// memories have no goal.
func (c *ClickHouse) Memories(ctx context.Context, f memory.ItemFilter) ([]memory.Memory, error) {
	return current(ctx, c, memoryTable(), f, scanMemory, func(m memory.Memory) (time.Time, string) { return m.Timestamp, m.MemoryID })
}

func scanMemory(rows driver.Rows) (memory.Memory, error) {
	var m memory.Memory
	var turn int64
	var writerKind, memoryType, operation, trust, status string
	v := &m.Version
	if err := rows.Scan(&m.Namespace, &m.MemoryID, &v.TaskRevision, &v.Writer, &writerKind, &v.Seq, &v.RunID, &m.Timestamp, &m.AgentID,
		&m.SessionID, &m.UserID, &m.TaskID, &turn, &memoryType, &m.Entity, &m.Entities, &m.Value, &m.OldValue, &operation, &m.Content,
		&m.TaskType, &m.Tool, &m.ErrorType, &m.Tags, &m.ValidFrom, &m.ValidTo, &m.Evidence, &trust, &m.Confidence, &m.ConfidenceReasons,
		&m.Importance, &m.ImportanceReasons, &status, &m.StatusReason, &m.ExtractedBy, &m.PromptVersion, &v.RecordedAt); err != nil {
		return m, err
	}
	m.SourceTurn, m.MemoryType, m.Operation, v.WriterKind = int(turn), memory.MemoryType(memoryType), memory.Operation(operation), memory.WriterKind(writerKind)
	m.Timestamp, m.ValidFrom, v.RecordedAt = m.Timestamp.UTC(), m.ValidFrom.UTC(), v.RecordedAt.UTC()
	if m.ValidTo != nil {
		end := m.ValidTo.UTC()
		m.ValidTo = &end
	}
	m.Entities, m.Tags = nilIfEmpty(m.Entities), nilIfEmpty(m.Tags)
	tidy(&m.Judged, trust, status)
	return m, nil
}

// tidy finishes reading what all items but summaries have.
func tidy(j *memory.Judged, trust, status string) {
	j.Trust, j.Status = memory.Trust(trust), memory.ItemStatus(status)
	j.ConfidenceReasons, j.ImportanceReasons = nilIfEmpty(j.ConfidenceReasons), nilIfEmpty(j.ImportanceReasons)
}

// InsertRules writes versions of rules; see [ClickHouse.InsertSnapshots].
func (c *ClickHouse) InsertRules(ctx context.Context, rules []memory.Rule) error {
	writes := make([]write, len(rules))
	for i, r := range rules {
		w, reason := newWrite(r.Namespace, r.RuleID, r.Version, r.Evidence, []time.Time{r.Timestamp}, []float64{r.Confidence, r.Importance, r.Lift, r.LiftLow})
		if reason != "" {
			return &RowError{Index: i, ID: r.RuleID, Reason: reason}
		}
		v := r.Version
		w.values = []any{
			r.Namespace, r.RuleID, v.TaskRevision, v.Writer, string(v.WriterKind), v.Seq, v.RunID, r.Timestamp, r.TaskType, string(r.Kind), r.Tool,
			r.ErrorSignature, r.Rule, r.Condition, r.Action, r.DoesNotApplyWhen, string(r.Predicate), int64(r.Support), int64(r.Refute), r.Lift,
			r.LiftLow, int64(r.Goals), int64(r.Voices), r.Pinned, notNil(r.Tags), r.Evidence, string(r.Trust), r.Confidence,
			notNil(r.ConfidenceReasons), r.Importance, notNil(r.ImportanceReasons), string(r.Status), r.StatusReason,
		}
		writes[i] = w
	}
	return c.insertVersions(ctx, ruleTable(), writes)
}

// Rules returns the current versions that pass the filter, in order of time and id. Of the filter's fields a rule has
// the ids, the type of task, the tool and the status; a filter by another lets none pass.
func (c *ClickHouse) Rules(ctx context.Context, f memory.ItemFilter) ([]memory.Rule, error) {
	return current(ctx, c, ruleTable(), f, scanRule, func(r memory.Rule) (time.Time, string) { return r.Timestamp, r.RuleID })
}

func scanRule(rows driver.Rows) (memory.Rule, error) {
	var r memory.Rule
	var support, refute, goals, voices int64
	var writerKind, kind, predicate, trust, status string
	v := &r.Version
	if err := rows.Scan(&r.Namespace, &r.RuleID, &v.TaskRevision, &v.Writer, &writerKind, &v.Seq, &v.RunID, &r.Timestamp, &r.TaskType, &kind,
		&r.Tool, &r.ErrorSignature, &r.Rule, &r.Condition, &r.Action, &r.DoesNotApplyWhen, &predicate, &support, &refute, &r.Lift, &r.LiftLow,
		&goals, &voices, &r.Pinned, &r.Tags, &r.Evidence, &trust, &r.Confidence, &r.ConfidenceReasons, &r.Importance, &r.ImportanceReasons,
		&status, &r.StatusReason, &v.RecordedAt); err != nil {
		return r, err
	}
	r.Support, r.Refute, r.Goals, r.Voices = int(support), int(refute), int(goals), int(voices)
	r.Timestamp, v.RecordedAt = r.Timestamp.UTC(), v.RecordedAt.UTC()
	v.WriterKind, r.Kind, r.Predicate, r.Tags = memory.WriterKind(writerKind), memory.RuleKind(kind), rawOrNil(predicate), nilIfEmpty(r.Tags)
	tidy(&r.Judged, trust, status)
	return r, nil
}

// InsertSummaries writes versions of summaries; see [ClickHouse.InsertSnapshots]. The session is the summary's id.
func (c *ClickHouse) InsertSummaries(ctx context.Context, summaries []memory.Summary) error {
	writes := make([]write, len(summaries))
	for i, s := range summaries {
		w, reason := newWrite(s.Namespace, s.SessionID, s.Version, s.Evidence, []time.Time{s.Timestamp}, nil)
		if reason != "" {
			return &RowError{Index: i, ID: s.SessionID, Reason: reason}
		}
		v := s.Version
		w.values = []any{
			s.Namespace, s.SessionID, v.TaskRevision, v.Writer, string(v.WriterKind), v.Seq, v.RunID, s.Timestamp, s.AgentID, s.UserID, s.TaskID,
			s.Goal, notNil(s.Confirmed), notNil(s.Pending), s.Summary, s.Evidence, string(s.Status), s.WrittenBy,
		}
		writes[i] = w
	}
	return c.insertVersions(ctx, summaryTable(), writes)
}

// Summaries returns the current versions that pass the filter, in order of time and session. IDs and SessionID both
// name sessions. A filter by what a summary does not have lets none pass.
func (c *ClickHouse) Summaries(ctx context.Context, f memory.ItemFilter) ([]memory.Summary, error) {
	return current(ctx, c, summaryTable(), f, scanSummary, func(s memory.Summary) (time.Time, string) { return s.Timestamp, s.SessionID })
}

func scanSummary(rows driver.Rows) (memory.Summary, error) {
	var s memory.Summary
	var writerKind, status string
	v := &s.Version
	if err := rows.Scan(&s.Namespace, &s.SessionID, &v.TaskRevision, &v.Writer, &writerKind, &v.Seq, &v.RunID, &s.Timestamp, &s.AgentID,
		&s.UserID, &s.TaskID, &s.Goal, &s.Confirmed, &s.Pending, &s.Summary, &s.Evidence, &status, &s.WrittenBy, &v.RecordedAt); err != nil {
		return s, err
	}
	s.Timestamp, v.RecordedAt, v.WriterKind, s.Status = s.Timestamp.UTC(), v.RecordedAt.UTC(), memory.WriterKind(writerKind), memory.ItemStatus(status)
	s.Confirmed, s.Pending = nilIfEmpty(s.Confirmed), nilIfEmpty(s.Pending)
	return s, nil
}
