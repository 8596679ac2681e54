package mcpserver

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/memory"
)

// unnamed stands for a session or agent that nobody named: an event must have both.
const unnamed = "~unnamed"

// write publishes what a call asks for and waits until the record holds it.
func (s *Server) write(ctx context.Context, c call, kind events.Kind, data any) (Written, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return Written{}, fmt.Errorf("name an event: %w", err)
	}
	raw, err := events.EncodeData(data)
	if err != nil {
		return Written{}, fmt.Errorf("write: %w", err)
	}
	e := events.Event{
		ID: id.String(), Namespace: c.identity.Namespace, AgentID: cmp.Or(c.agent, unnamed), SessionID: cmp.Or(c.session, c.task, unnamed), UserID: c.user,
		TaskID: cmp.Or(c.task, events.UnjoinedTask), Time: s.o.Clock().UTC(), Kind: kind, Data: raw,
	}
	// What the record would refuse is refused here, where the agent can still mend it.
	if err := e.Validate(s.o.Clock()); err != nil {
		return Written{}, fmt.Errorf("write: %w", err)
	}
	written, err := s.o.Writer.Write(ctx, e)
	if err != nil {
		return Written{}, fmt.Errorf("write: %w", err)
	}
	return written, nil
}

// stored is the result of a write tool. One of the ids is set.
type stored struct {
	Status     string `json:"status"`
	SnapshotID string `json:"snapshot_id,omitempty"`
	MemoryID   string `json:"memory_id,omitempty"`
	ItemID     string `json:"item_id,omitempty"`
	Notice     string `json:"notice,omitempty"`
}

func taskContext(fields arguments) memory.TaskContext {
	tools := fields.texts("available_tools")
	if tools == nil {
		tools = []string{}
	}
	return memory.TaskContext{TaskType: fields.text("task_type"), InputSummary: fields.text("input_summary"), AvailableTools: tools}
}

func (s *Server) storeSnapshot(ctx context.Context, c call) (any, error) {
	decision, outcome := arguments(c.object("decision")), arguments(c.object("outcome"))
	parameters := json.RawMessage("{}")
	if given := decision.object("parameters"); given != nil {
		raw, err := encode(given)
		if err != nil {
			return nil, err
		}
		parameters = raw
	}
	took := outcome.number("execution_time_ms")
	if took < 0 || took > 1e12 {
		return nil, fmt.Errorf("%w: outcome.execution_time_ms %v: it must be the milliseconds that the call took", errArguments, took)
	}
	snapshot, err := encode(struct {
		TaskContext memory.TaskContext `json:"task_context"`
		Decision    memory.Decision    `json:"decision"`
		Outcome     memory.Outcome     `json:"outcome"`
	}{
		taskContext(arguments(c.object("task_context"))),
		memory.Decision{ToolSelected: decision.text("tool_selected"), Parameters: parameters, ReasoningPath: decision.text("reasoning_path")},
		memory.Outcome{
			Status: events.Status(outcome.text("status")), ErrorType: outcome.text("error_type"), ErrorMessage: outcome.text("error_message"),
			ExecutionTimeMS: int64(took),
		},
	})
	if err != nil {
		return nil, err
	}
	w, err := s.write(ctx, c, events.KindItemWritten, events.ItemWritten{Snapshot: snapshot})
	if err != nil {
		return nil, err
	}
	return stored{Status: cmp.Or(w.Status, "stored"), SnapshotID: w.ItemID, Notice: w.Notice}, nil
}

func (s *Server) memoryWrite(ctx context.Context, c call) (any, error) {
	entity := cmp.Or(c.text("entity"), c.text("key"))
	content, value := c.text("content"), c.text("value")
	operation := cmp.Or(c.text("operation"), string(memory.OperationAdd))
	switch {
	case content != "":
	case entity == "":
		return nil, fmt.Errorf("%w: give content, or key and value, or entity, value and operation", errArguments)
	case operation == string(memory.OperationDelete):
		content = entity + " no longer holds"
		if value != "" {
			content = entity + " is no longer " + value
		}
	case value == "":
		return nil, fmt.Errorf("%w: value is missing: say what %q is", errArguments, events.CutText(entity, 100))
	default:
		content = entity + ": " + value
	}
	written := events.ItemWritten{
		Content: content, MemoryType: cmp.Or(c.text("memory_type"), string(memory.MemoryFact)), Entity: entity, Value: value, Operation: operation,
		Entities: c.texts("entities"),
	}
	var err error
	if written.Importance, err = c.importance(); err != nil {
		return nil, err
	}
	if since := c.time("timestamp"); !since.IsZero() {
		written.ValidFrom = since.Format(events.TimeFormat)
	}
	w, err := s.write(ctx, c, events.KindItemWritten, written)
	if err != nil {
		return nil, err
	}
	return stored{Status: cmp.Or(w.Status, "stored"), MemoryID: w.ItemID, Notice: w.Notice}, nil
}

// importance is absent when the caller does not say.
func (c call) importance() (*float64, error) {
	given := c.number("importance")
	if given == 0 {
		return nil, nil //nolint:nilnil // absent is neither a value nor an error.
	}
	if given < 0 || given > 1 {
		return nil, fmt.Errorf("%w: importance %v: it must be between 0 and 1", errArguments, given)
	}
	return &given, nil
}

func (s *Server) memoryUpdate(ctx context.Context, c call) (any, error) {
	id := c.text("memory_id")
	changed := events.ItemChanged{
		ItemID: id, Change: events.ChangeUpdate, Reason: c.text("reason"), Content: c.text("content"), Value: c.text("value"), Tags: c.texts("tags"),
	}
	var err error
	if changed.Importance, err = c.importance(); err != nil {
		return nil, err
	}
	if changed.Content == "" && changed.Value == "" && changed.Importance == nil && changed.Tags == nil {
		return nil, fmt.Errorf("%w: nothing to change: give content, value, importance or tags", errArguments)
	}
	w, err := s.write(ctx, c, events.KindItemChanged, changed)
	if err != nil {
		return nil, err
	}
	return stored{Status: cmp.Or(w.Status, "updated"), MemoryID: cmp.Or(w.ItemID, id), Notice: w.Notice}, nil
}

func (s *Server) memoryForget(ctx context.Context, c call) (any, error) {
	id := c.text("memory_id")
	w, err := s.write(ctx, c, events.KindItemChanged, events.ItemChanged{ItemID: id, Change: events.ChangeForget, Reason: c.text("reason")})
	if err != nil {
		return nil, err
	}
	return stored{Status: cmp.Or(w.Status, "forgotten"), MemoryID: cmp.Or(w.ItemID, id), Notice: w.Notice}, nil
}

func (s *Server) memoryFeedback(ctx context.Context, c call) (any, error) {
	id := c.text("item_id")
	helpful, _ := c.given("helpful")
	raw, err := encode(helpful)
	if err != nil {
		return nil, err
	}
	w, err := s.write(ctx, c, events.KindFeedback, events.Feedback{Target: id, Kind: events.FeedbackRating, Value: raw, Comment: c.text("comment")})
	if err != nil {
		return nil, err
	}
	return stored{Status: cmp.Or(w.Status, "recorded"), ItemID: cmp.Or(w.ItemID, id), Notice: w.Notice}, nil
}
