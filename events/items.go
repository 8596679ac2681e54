package events

import "encoding/json"

// UnjoinedTask is the task id of events that belong to no task: a recall or a write whose caller named none. Ids that
// begin with "~" are never tasks.
const UnjoinedTask = "~unjoined"

// Values of [ItemChanged.Change].
const (
	// ChangeForget takes an item out of every answer. It can be undone.
	ChangeForget = "forget"
	// ChangeRestore undoes a forget.
	ChangeRestore = "restore"
	// ChangeUpdate gives a memory another value.
	ChangeUpdate = "update"
)

// ItemWritten is the data of [KindItemWritten]: what an agent or a person asked to store. Exactly one of Snapshot and
// Content is set.
type ItemWritten struct {
	// Snapshot is a decision with its outcome: {task_context, decision, outcome}.
	Snapshot json.RawMessage `json:"snapshot,omitempty"`

	// Content is a memory as one sentence; the other fields say what it is about.
	Content    string   `json:"content,omitempty"`
	MemoryType string   `json:"memory_type,omitempty"`
	Entity     string   `json:"entity,omitempty"`
	Value      string   `json:"value,omitempty"`
	Operation  string   `json:"operation,omitempty"`
	Entities   []string `json:"entities,omitempty"`
	TaskType   string   `json:"task_type,omitempty"`
	Tool       string   `json:"tool,omitempty"`
	ErrorType  string   `json:"error_type,omitempty"`
	Tags       []string `json:"tags,omitempty"`
	// Importance is 0 to 1; absent when the writer does not say.
	Importance *float64 `json:"importance,omitempty"`
	// ValidFrom is RFC 3339; empty means the time of the event.
	ValidFrom string `json:"valid_from,omitempty"`
	// StatedBy is user when the words are a user's own; empty means the agent concluded it.
	StatedBy string `json:"stated_by,omitempty"`
}

// ItemChanged is the data of [KindItemChanged].
type ItemChanged struct {
	ItemID string `json:"item_id"`
	// Change is one of the Change constants.
	Change string `json:"change"`
	Reason string `json:"reason,omitempty"`
	// Content, Value, Importance and Tags are the new ones of an update; empty ones stay.
	Content    string   `json:"content,omitempty"`
	Value      string   `json:"value,omitempty"`
	Importance *float64 `json:"importance,omitempty"`
	Tags       []string `json:"tags,omitempty"`
	// ByPerson marks a change that a person made: it outlasts every later version of a program.
	ByPerson bool `json:"by_person,omitempty"`
}

// RecallServed is the data of [KindRecallServed]: one answer to one question, with what was shown and why.
type RecallServed struct {
	// TaskID is empty for an unjoined recall, whose event has the task id [UnjoinedTask].
	TaskID   string       `json:"task_id"`
	TaskType string       `json:"task_type,omitempty"`
	Question string       `json:"question"`
	Door     string       `json:"door"`
	Way      string       `json:"way"`
	Preset   string       `json:"preset,omitempty"`
	Items    []RecallItem `json:"items"`
	Answer   string       `json:"answer,omitempty"`
	// Withheld is true for the control group: the items were found and not shown.
	Withheld  bool    `json:"withheld"`
	AsOf      string  `json:"as_of,omitempty"`
	Notice    string  `json:"notice,omitempty"`
	Tokens    int     `json:"tokens"`
	LatencyMS float64 `json:"latency_ms"`
}

// RecallItem is one item of an answer.
type RecallItem struct {
	ID    string `json:"id"`
	Layer string `json:"layer"`
	// Score is what it was ranked by and Parts what that is made of.
	Score float64            `json:"score"`
	Parts map[string]float64 `json:"parts,omitempty"`
}
