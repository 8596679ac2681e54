package memory

import (
	"encoding/json"
	"time"

	"github.com/hindsight-memory/hindsight/events"
)

// Layer says what an item is.
type Layer string

// Layers of memory.
const (
	LayerSnapshot Layer = "snapshot"
	LayerMemory   Layer = "memory"
	LayerRule     Layer = "rule"
	LayerSummary  Layer = "summary"
)

// Trust says where an item comes from.
type Trust string

// Trusts, the strongest first.
const (
	TrustUserStated    Trust = "user_stated"
	TrustAgentInferred Trust = "agent_inferred"
	TrustExternal      Trust = "external"
)

// ItemStatus says whether an item may be shown.
type ItemStatus string

// Statuses of items. Only active ones are shown. Candidate and retired are of rules alone.
const (
	ItemActive        ItemStatus = "active"
	ItemPendingReview ItemStatus = "pending_review"
	ItemQuarantined   ItemStatus = "quarantined"
	ItemSuperseded    ItemStatus = "superseded"
	ItemArchived      ItemStatus = "archived"
	ItemForgotten     ItemStatus = "forgotten"
	ItemCandidate     ItemStatus = "candidate"
	ItemRetired       ItemStatus = "retired"
)

// ReasonNotDerived is the reason of an item that is superseded because a later reflection of its task does not have it.
const ReasonNotDerived = "a later revision of the task does not have it"

// WriterKind says whether a program or a person wrote a version.
type WriterKind string

// Kinds of writers. A person's version outlasts every machine's.
const (
	WriterMachine WriterKind = "machine"
	WriterPerson  WriterKind = "person"
)

// Version names one write of an item. The last of an item's versions by (person before machine, TaskRevision, RecordedAt,
// Writer, Seq) is current. (Writer, Seq) names one write, so that a write that is repeated makes no version.
type Version struct {
	// TaskRevision is the revision of the task that the item was drawn from; 0 where no single task was.
	TaskRevision uint64
	Writer       string
	WriterKind   WriterKind
	Seq          uint64
	// RunID is the consolidation run that wrote it, whose rows count once it is committed; empty outside of runs.
	RunID string
	// RecordedAt is set by the store, UTC.
	RecordedAt time.Time
}

// Judged is what every item carries about its worth.
type Judged struct {
	// Evidence are ids of the events that the item was drawn from; never empty.
	Evidence []string `json:"evidence"`
	Trust    Trust    `json:"trust"`
	// Confidence is how well tested it is, 0 to 1, and Importance how much it matters, 0 to 1; each with its reasons.
	Confidence        float64    `json:"confidence"`
	ConfidenceReasons []string   `json:"confidence_reasons,omitempty"`
	Importance        float64    `json:"importance"`
	ImportanceReasons []string   `json:"importance_reasons,omitempty"`
	Status            ItemStatus `json:"status"`
	StatusReason      string     `json:"status_reason,omitempty"`
}

// TaskContext is what was known when a decision was made.
type TaskContext struct {
	TaskType       string   `json:"task_type"`
	InputSummary   string   `json:"input_summary"`
	AvailableTools []string `json:"available_tools"`
}

// Decision is what was chosen.
type Decision struct {
	ToolSelected string `json:"tool_selected"`
	// Parameters is a JSON object.
	Parameters    json.RawMessage `json:"parameters"`
	ReasoningPath string          `json:"reasoning_path"`
}

// Outcome is what came back.
type Outcome struct {
	Status          events.Status `json:"status"`
	ErrorType       string        `json:"error_type"`
	ErrorMessage    string        `json:"error_message"`
	ExecutionTimeMS int64         `json:"execution_time_ms"`
}

// CauseClass says what kind of cause a failure had.
type CauseClass string

// Classes of causes.
const (
	CauseInformation   CauseClass = "information"
	CauseTool          CauseClass = "tool"
	CauseParameter     CauseClass = "parameter"
	CauseOrder         CauseClass = "order"
	CauseResultMisread CauseClass = "result_misread"
	CauseEnvironment   CauseClass = "environment"
	CauseOther         CauseClass = "other"
)

// CauseClasses lists all classes of causes.
func CauseClasses() []CauseClass {
	return []CauseClass{CauseInformation, CauseTool, CauseParameter, CauseOrder, CauseResultMisread, CauseEnvironment, CauseOther}
}

// Reflection is what was concluded from a decision.
type Reflection struct {
	IsOptimal      bool       `json:"is_optimal"`
	RootCause      string     `json:"root_cause"`
	RootCauseClass CauseClass `json:"root_cause_class,omitempty"`
	Alternative    string     `json:"alternative"`
	// Lesson is the one reusable sentence.
	Lesson string `json:"lesson"`
}

// Snapshot is a decision worth keeping: a step with its outcome and, once it was made, its reflection. Its JSON is
// schema/json/snapshot.schema.json.
type Snapshot struct {
	SnapshotID  string      `json:"snapshot_id"`
	Timestamp   time.Time   `json:"timestamp"`
	TaskContext TaskContext `json:"task_context"`
	Decision    Decision    `json:"decision"`
	Outcome     Outcome     `json:"outcome"`
	Reflection  *Reflection `json:"reflection"`
	Tags        []string    `json:"tags,omitempty"`

	Namespace string `json:"namespace"`
	AgentID   string `json:"agent_id,omitempty"`
	SessionID string `json:"session_id,omitempty"`
	UserID    string `json:"user_id,omitempty"`
	TaskID    string `json:"task_id"`
	GoalID    string `json:"goal_id,omitempty"`
	// Step counts from 1; 0 when it is not known.
	Step        int    `json:"step,omitempty"`
	AppliesWhen string `json:"applies_when,omitempty"`
	// Situation is the de-instantiated text that is embedded and compared.
	Situation string `json:"situation,omitempty"`
	Judged
	ReflectedBy   string `json:"reflected_by,omitempty"`
	PromptVersion string `json:"prompt_version,omitempty"`

	Version Version `json:"-"`
}

// MemoryType says what a memory states.
type MemoryType string //nolint:revive // A memory is one of the words of the domain.

// Types of memories.
const (
	MemoryPreference MemoryType = "preference"
	MemoryProcedure  MemoryType = "procedure"
	MemoryFact       MemoryType = "fact"
	MemoryCorrection MemoryType = "correction"
)

// MemoryTypes lists all types of memories.
func MemoryTypes() []MemoryType { //nolint:revive // As above.
	return []MemoryType{MemoryPreference, MemoryProcedure, MemoryFact, MemoryCorrection}
}

// Operation says what a memory does to its entity's value.
type Operation string

// Operations on an entity's value.
const (
	OperationAdd    Operation = "add"
	OperationUpdate Operation = "update"
	OperationDelete Operation = "delete"
)

// Memory is one structured fact with its history. Its JSON is schema/json/memory.schema.json.
type Memory struct {
	MemoryID   string     `json:"memory_id"`
	Namespace  string     `json:"namespace"`
	Timestamp  time.Time  `json:"timestamp"`
	MemoryType MemoryType `json:"memory_type"`
	Entity     string     `json:"entity"`
	Entities   []string   `json:"entities,omitempty"`
	Value      string     `json:"value"`
	OldValue   string     `json:"old_value,omitempty"`
	Operation  Operation  `json:"operation"`
	// Content is the fact as one sentence.
	Content string `json:"content"`

	AgentID    string `json:"agent_id,omitempty"`
	SessionID  string `json:"session_id,omitempty"`
	UserID     string `json:"user_id,omitempty"`
	TaskID     string `json:"task_id,omitempty"`
	SourceTurn int    `json:"source_turn,omitempty"`
	// TaskType confines it to one type of task; Tool and ErrorType say what it is about. Each may be empty.
	TaskType  string     `json:"task_type,omitempty"`
	Tool      string     `json:"tool,omitempty"`
	ErrorType string     `json:"error_type,omitempty"`
	Tags      []string   `json:"tags,omitempty"`
	ValidFrom time.Time  `json:"valid_from"`
	ValidTo   *time.Time `json:"valid_to"`
	Judged
	ExtractedBy   string `json:"extracted_by,omitempty"`
	PromptVersion string `json:"prompt_version,omitempty"`

	Version Version `json:"-"`
}

// RuleKind says what a rule predicts.
type RuleKind string

// Kinds of rules.
const (
	// RuleCall predicts that a call fails.
	RuleCall RuleKind = "call"
	// RuleTask predicts the outcome of a task.
	RuleTask RuleKind = "task"
)

// Rule is what several snapshots have in common. Its JSON is schema/json/rule.schema.json.
type Rule struct {
	RuleID    string    `json:"rule_id"`
	Namespace string    `json:"namespace"`
	Timestamp time.Time `json:"timestamp"`
	TaskType  string    `json:"task_type"`
	Kind      RuleKind  `json:"kind"`
	Tool      string    `json:"tool,omitempty"`
	// ErrorSignature is the error that it is about, without values; see [ErrorSignature].
	ErrorSignature   string `json:"error_signature,omitempty"`
	Rule             string `json:"rule"`
	Condition        string `json:"condition"`
	Action           string `json:"action"`
	DoesNotApplyWhen string `json:"does_not_apply_when,omitempty"`
	// Predicate is the condition for a program, a JSON object, or empty.
	Predicate json.RawMessage `json:"predicate,omitempty"`
	// Support and Refute count tasks.
	Support int `json:"support"`
	Refute  int `json:"refute"`
	// Lift is against the base rate, shrunken toward 1; LiftLow its lower bound at 90 %.
	Lift    float64  `json:"lift"`
	LiftLow float64  `json:"lift_low"`
	Goals   int      `json:"goals,omitempty"`
	Voices  int      `json:"voices,omitempty"`
	Pinned  bool     `json:"pinned,omitempty"`
	Tags    []string `json:"tags,omitempty"`
	Judged

	Version Version `json:"-"`
}

// Summary says in at most 200 characters where a session stands.
type Summary struct {
	Namespace string    `json:"namespace"`
	SessionID string    `json:"session_id"`
	Timestamp time.Time `json:"timestamp"`
	AgentID   string    `json:"agent_id,omitempty"`
	UserID    string    `json:"user_id,omitempty"`
	// TaskID is the task after which it was written.
	TaskID    string     `json:"task_id"`
	Goal      string     `json:"goal"`
	Confirmed []string   `json:"confirmed,omitempty"`
	Pending   []string   `json:"pending,omitempty"`
	Summary   string     `json:"summary"`
	Evidence  []string   `json:"evidence"`
	Status    ItemStatus `json:"status"`
	WrittenBy string     `json:"written_by,omitempty"`

	Version Version `json:"-"`
}

// RelationKind says how two items hang together.
type RelationKind string

// Kinds of relations.
const (
	RelationSameEntity  RelationKind = "same_entity"
	RelationMergedInto  RelationKind = "merged_into"
	RelationDerivedFrom RelationKind = "derived_from"
	RelationContradicts RelationKind = "contradicts"
	RelationSupersedes  RelationKind = "supersedes"
)

// Relation is an edge of the graph between items.
type Relation struct {
	Namespace string       `json:"namespace"`
	FromID    string       `json:"from_id"`
	Kind      RelationKind `json:"kind"`
	ToID      string       `json:"to_id"`
	// Removed marks a relation that holds no more.
	Removed bool `json:"removed,omitempty"`
	// Weight is similarity or strength, 0 to 1.
	Weight float64 `json:"weight"`
	Reason string  `json:"reason,omitempty"`

	Writer     string    `json:"-"`
	Seq        uint64    `json:"-"`
	RunID      string    `json:"-"`
	RecordedAt time.Time `json:"recorded_at"`
}

// Vote is what one task says about a rule; of several the one of the highest TaskRevision counts.
type Vote struct {
	Namespace    string
	RuleID       string
	TaskID       string
	RunID        string
	TaskRevision uint64
	// Support is false for a task that refutes the rule.
	Support     bool
	GoalID      string
	AgentID     string
	ConfirmedBy string
	// Shown means that the rule was shown during the task, which therefore says nothing about the base rate.
	Shown   bool
	EventID string
}

// ItemVector is the vector of one text of one item under one model. The record keeps them all, so that an index can be
// built again without embedding.
type ItemVector struct {
	Namespace string
	// Model is the identity of the embedding model, dimension included.
	Model    string
	ItemID   string
	TextHash string
	Layer    Layer
	// Vector has length 1.
	Vector     []float32
	RecordedAt time.Time
}

// TaskReflection says that a revision of a task was reflected, by whom, and what came of it.
type TaskReflection struct {
	Namespace string `json:"namespace"`
	TaskID    string `json:"task_id"`
	Revision  uint64 `json:"revision"`
	// Closed is false for a provisional reflection of a task that still runs.
	Closed bool `json:"closed"`
	// ReflectedBy is the critic and its model; Fallback says why the evidence critic stands in for the model's, and is
	// empty when it does not.
	ReflectedBy string `json:"reflected_by"`
	Fallback    string `json:"fallback,omitempty"`
	// Kept counts snapshots and memories that were stored, Dropped what was not, by reason.
	Kept    int            `json:"kept"`
	Dropped map[string]int `json:"dropped,omitempty"`
	// Basis is the hash of what it rests on beside the task; see [Basis].
	Basis      string    `json:"basis,omitempty"`
	RecordedAt time.Time `json:"recorded_at"`
}

// Run is the state of one run of a consolidation job. What it wrote counts once it is committed.
type Run struct {
	Job     string `json:"job"`
	RunID   string `json:"run_id"`
	Version uint64 `json:"-"`
	// Status is running, committed or failed.
	Status      RunStatus         `json:"status"`
	Fence       uint64            `json:"fence"`
	Holder      string            `json:"holder"`
	Namespace   string            `json:"namespace,omitempty"`
	StartedAt   time.Time         `json:"started_at"`
	CommittedAt *time.Time        `json:"committed_at"`
	Counts      map[string]uint64 `json:"counts,omitempty"`
	Error       string            `json:"error,omitempty"`
}

// RunStatus says how far a run is.
type RunStatus string

// States of a run.
const (
	RunRunning   RunStatus = "running"
	RunCommitted RunStatus = "committed"
	RunFailed    RunStatus = "failed"
)

// AuditEntry says who did what to what, and why.
type AuditEntry struct {
	Namespace string    `json:"namespace"`
	AuditID   string    `json:"audit_id"`
	Time      time.Time `json:"time"`
	Actor     string    `json:"actor"`
	// ActorKind is person, agent or machine.
	ActorKind string `json:"actor_kind"`
	// Door is where it came in: mcp, api, cli, console or job.
	Door   string `json:"door"`
	Action string `json:"action"`
	// Target is the id of what was changed, and TargetKind its layer, or task, event or namespace.
	Target     string `json:"target"`
	TargetKind string `json:"target_kind"`
	Reason     string `json:"reason,omitempty"`
	// Before and After are JSON, or empty.
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after,omitempty"`
}
