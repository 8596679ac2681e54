package shop

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/hindsight-memory/hindsight/events"
)

// Warn is asked before each call: it returns what memory knows to go wrong with it, or nothing.
type Warn func(ctx context.Context, task Task, tool string, parameters map[string]any) (string, error)

// Publish takes one event of the agent.
type Publish func(ctx context.Context, e events.Event) error

// Agent works on tasks by their plans.
type Agent struct {
	Namespace string
	Publish   Publish
	// Warn may be nil: then the agent has no memory.
	Warn Warn
	// Saw, when set, is told each step as it is made.
	Saw func(Step)
}

// Step is what the agent did, for a person to read.
type Step struct {
	Tool       string
	Parameters map[string]any
	// Warning is what memory said, when it was asked and knew something.
	Warning string
	// Err is nil for a call that worked.
	Err error
}

// Work does one task on a shop and publishes what happens. It returns how many calls failed.
func (a *Agent) Work(ctx context.Context, s *Shop, task Task) (failed int, err error) {
	w := &work{agent: a, shop: s, task: task}
	if err := w.publish(ctx, events.KindTaskStarted, events.TaskStarted{
		TaskType: task.Type, Goal: task.Goal, InputSummary: task.Goal, AvailableTools: Tools(),
	}); err != nil {
		return 0, err
	}
	if err := w.publish(ctx, events.KindMessage, events.Message{Role: events.RoleUser, Content: task.Goal}); err != nil {
		return 0, err
	}
	status := events.StatusSuccess
	for _, call := range task.Calls {
		done, err := w.try(ctx, call)
		if err != nil {
			return w.failed, err
		}
		if !done {
			status = events.StatusFailure
			break
		}
	}
	return w.failed, w.publish(ctx, events.KindTaskFinished, events.TaskFinished{Status: status, ConfirmedBy: events.ConfirmedBySystem})
}

// work is one task under way.
type work struct {
	agent  *Agent
	shop   *Shop
	task   Task
	failed int
	steps  int
}

// try makes a call: by habit, unless a warning names a better way, and after a failure in the ways that are left.
func (w *work) try(ctx context.Context, call Call) (done bool, err error) {
	habit := call.Attempts[0]
	warning, err := w.warning(ctx, call.Tool, habit.Parameters)
	if err != nil {
		return false, err
	}
	attempts := call.Attempts
	for i, attempt := range call.Attempts[1:] {
		if warning != "" && strings.Contains(warning, attempt.Hint) {
			attempts = call.Attempts[i+1:]
			break
		}
	}
	for _, attempt := range attempts {
		for _, before := range attempt.Before {
			if _, err := w.try(ctx, before); err != nil {
				return false, err
			}
		}
		failure, err := w.call(ctx, call.Tool, attempt.Parameters, warning)
		if err != nil {
			return false, err
		}
		if failure == nil {
			return true, nil
		}
		warning = "" // it has been read
	}
	return false, nil
}

func (w *work) warning(ctx context.Context, tool string, parameters map[string]any) (string, error) {
	if w.agent.Warn == nil {
		return "", nil
	}
	warning, err := w.agent.Warn(ctx, w.task, tool, parameters)
	if err != nil {
		return "", fmt.Errorf("ask memory about %s: %w", tool, err)
	}
	return warning, nil
}

// call runs the tool and publishes the step; failure is the tool's own.
func (w *work) call(ctx context.Context, tool string, parameters map[string]any, warning string) (failure, err error) {
	began := time.Now()
	result, failure := w.shop.Call(tool, parameters)
	raw, err := json.Marshal(parameters)
	if err != nil {
		return nil, fmt.Errorf("encode parameters: %w", err)
	}
	w.steps++
	step := events.StepFinished{
		Step: w.steps, Tool: tool, Parameters: raw, Status: events.StatusSuccess, Result: json.RawMessage(cmp.Or(result, "null")),
		ExecutionTimeMS: time.Since(began).Milliseconds(), CallID: fmt.Sprintf("%s-call-%d", w.task.ID, w.steps),
	}
	if failure != nil {
		w.failed++
		step.Status, step.ErrorType, step.ErrorMessage = events.StatusFailure, ErrorType(failure), failure.Error()
	}
	if w.agent.Saw != nil {
		w.agent.Saw(Step{Tool: tool, Parameters: parameters, Warning: warning, Err: failure})
	}
	return failure, w.publish(ctx, events.KindStepFinished, step)
}

func (w *work) publish(ctx context.Context, kind events.Kind, data any) error {
	raw, err := events.EncodeData(data)
	if err != nil {
		return fmt.Errorf("publish %s: %w", kind, err)
	}
	id, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("publish %s: %w", kind, err)
	}
	if err := w.agent.Publish(ctx, events.Event{
		ID: id.String(), Namespace: w.agent.Namespace, AgentID: "shop-agent", SessionID: w.task.ID, TaskID: w.task.ID,
		GoalID: "shop/" + w.task.Type, Time: time.Now().UTC(), Kind: kind, Data: raw,
	}); err != nil {
		return fmt.Errorf("publish %s: %w", kind, err)
	}
	return nil
}
