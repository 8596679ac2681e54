package events

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// Status is how a step or a task ended.
type Status string

// Step and task statuses. A step is only ever success or failure.
const (
	StatusSuccess   Status = "success"
	StatusFailure   Status = "failure"
	StatusPartial   Status = "partial"
	StatusCancelled Status = "cancelled"
	StatusUnknown   Status = "unknown"
)

// TaskStatuses lists how a task may end.
func TaskStatuses() []Status {
	return []Status{StatusSuccess, StatusFailure, StatusPartial, StatusCancelled, StatusUnknown}
}

// Values of [Message.Role], [StepFinished.Actor] and [TaskFinished.ConfirmedBy].
const (
	RoleUser      = "user"
	RoleAssistant = "assistant"
	RoleSystem    = "system"

	ActorAgent = "agent"
	ActorUser  = "user"

	ConfirmedByUser   = "user"
	ConfirmedBySystem = "system"
	ConfirmedByAgent  = "agent"
)

// Values of [Feedback.Kind].
const (
	FeedbackCorrection = "correction"
	FeedbackRating     = "rating"
	FeedbackApproval   = "approval"
	FeedbackRejection  = "rejection"
)

// TaskStarted is the data of [KindTaskStarted].
type TaskStarted struct {
	TaskType       string                     `json:"task_type,omitempty"`
	Goal           string                     `json:"goal,omitempty"`
	InputSummary   string                     `json:"input_summary,omitempty"`
	AvailableTools []string                   `json:"available_tools,omitempty"`
	ParentTaskID   string                     `json:"parent_task_id,omitempty"`
	Attributes     map[string]json.RawMessage `json:"attributes,omitempty"`
}

// Message is the data of [KindMessage].
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
	// Turn counts from 0; -1 or absent when the producer does not count.
	Turn int `json:"turn,omitempty"`
}

// StepFinished is the data of [KindStepFinished]: one decision of the agent and what came back.
type StepFinished struct {
	// Step counts the agent's steps from 1; 0 when the producer cannot number.
	Step int    `json:"step,omitempty"`
	Tool string `json:"tool"`
	// Parameters is a JSON object.
	Parameters      json.RawMessage `json:"parameters,omitempty"`
	Reasoning       string          `json:"reasoning,omitempty"`
	Status          Status          `json:"status"`
	Result          json.RawMessage `json:"result,omitempty"`
	ErrorType       string          `json:"error_type,omitempty"`
	ErrorMessage    string          `json:"error_message,omitempty"`
	ExecutionTimeMS int64           `json:"execution_time_ms,omitempty"`
	CallID          string          `json:"call_id,omitempty"`
	// Actor is who called the tool; empty means the agent.
	Actor string `json:"actor,omitempty"`
}

// TaskFinished is the data of [KindTaskFinished].
type TaskFinished struct {
	Status Status `json:"status"`
	// Score is the producer's own measure; absent when there is none.
	Score       *float64        `json:"score,omitempty"`
	Result      json.RawMessage `json:"result,omitempty"`
	Reason      string          `json:"reason,omitempty"`
	ConfirmedBy string          `json:"confirmed_by,omitempty"`
}

// Feedback is the data of [KindFeedback].
type Feedback struct {
	// Target is the id of the task, step or item that is judged; empty means the event's own task.
	Target  string          `json:"target,omitempty"`
	Kind    string          `json:"kind"`
	Value   json.RawMessage `json:"value,omitempty"`
	Comment string          `json:"comment,omitempty"`
}

// DecodeData reads the event's data as T, the data type of its kind. Fields that T does not have are ignored.
func DecodeData[T any](e Event) (T, error) { return decodeData[T](e, unmarshal) }

// ViewData is [DecodeData] without copies: the texts and raw values in the result are parts of the event's own bytes,
// which must not change while it is in use.
func ViewData[T any](e Event) (T, error) { return decodeData[T](e, peek) }

func decodeData[T any](e Event, decode func(raw []byte, v any) error) (T, error) {
	var v T
	if len(e.Data) == 0 {
		return v, nil
	}
	if err := decode(e.Data, &v); err != nil {
		return v, fmt.Errorf("%w: data of %s %q: %w", ErrInvalid, e.Kind, e.ID, err)
	}
	return v, nil
}

// EncodeData turns a data value into [Event.Data].
func EncodeData(v any) (json.RawMessage, error) {
	raw, err := encode(v)
	if err != nil {
		return nil, fmt.Errorf("encode data: %w", err)
	}
	return raw, nil
}

// Text gives a JSON value as a person would read it: a string without its quotes, anything else as compact JSON,
// nothing for null and absent.
func Text(raw json.RawMessage) string {
	if len(raw) == 0 || string(raw) == "null" {
		return ""
	}
	if raw[0] == '"' && skipPlain(raw, 1) == len(raw)-1 && raw[len(raw)-1] == '"' && utf8.Valid(raw) { // Most are plain.
		return string(raw[1 : len(raw)-1])
	}
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}
