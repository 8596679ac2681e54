package importer

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"strings"

	"github.com/hindsight-memory/hindsight/events"
)

// trajectoryFormat reads whole runs, one task a line. See the package comment for the mapping.
type trajectoryFormat struct{ namespace string }

// trajectoryLine holds every field that is read. `task` and `labels` are left out on purpose: a field that has no place
// here cannot get into an event.
type trajectoryLine struct {
	Source    json.RawMessage `json:"source"`
	Run       json.RawMessage `json:"run"`
	Trial     json.RawMessage `json:"trial"`
	TaskID    json.RawMessage `json:"task_id"`
	StartedAt json.RawMessage `json:"started_at"`
	Outcome   json.RawMessage `json:"outcome"`
	Steps     json.RawMessage `json:"steps"`
}

type trajectoryOutcome struct {
	Success   json.RawMessage `json:"success"`
	Reward    json.RawMessage `json:"reward"`
	Reason    json.RawMessage `json:"reason"`
	DurationS json.RawMessage `json:"duration_s"`
}

type trajectoryStep struct {
	Type      json.RawMessage `json:"type"`
	Role      json.RawMessage `json:"role"`
	Content   json.RawMessage `json:"content"`
	Tool      json.RawMessage `json:"tool"`
	Args      json.RawMessage `json:"args"`
	Result    json.RawMessage `json:"result"`
	Error     json.RawMessage `json:"error"`
	By        json.RawMessage `json:"by"`
	At        json.RawMessage `json:"at"`
	LatencyMS json.RawMessage `json:"latency_ms"`
}

// Types of steps.
const (
	stepMessage  = "message"
	stepToolCall = "tool_call"
)

// message is a message whose role may have been mapped.
type message struct {
	events.Message
	OriginalRole string `json:"original_role,omitempty"`
}

func (trajectoryFormat) name() string { return FormatTrajectory }

func (trajectoryFormat) describe() string {
	return "one task a line: source, run, trial, task_id, outcome, steps"
}

func (trajectoryFormat) detects(fields map[string]json.RawMessage) bool {
	_, steps := fields["steps"]
	_, outcome := fields["outcome"]
	_, source := fields["source"]
	_, kind := fields["kind"]
	return !kind && (steps && (outcome || source) || outcome && source)
}

// identity: a task is one line, and its id says which.
func (trajectoryFormat) identity(evs []events.Event) string { return evs[0].TaskID }

func (f trajectoryFormat) mapLine(raw []byte) ([]events.Event, error) {
	if f.namespace == "" {
		return nil, problemf(ReasonMissingNamespace, "a trajectory does not say whose memory it is: give a namespace")
	}
	var l trajectoryLine
	if err := decodeObject("the line", raw, &l); err != nil {
		return nil, err
	}
	m := trajectoryMapper{line: l}
	if err := m.identify(f.namespace); err != nil {
		return nil, err
	}
	if err := m.decodeSteps(); err != nil {
		return nil, err
	}
	outcome, err := m.outcome()
	if err != nil {
		return nil, err
	}
	clock, err := newClock(l.StartedAt, m.trial, m.steps, outcome.duration)
	if err != nil {
		return nil, err
	}
	return m.events(outcome, clock)
}

// trajectoryMapper translates one line.
type trajectoryMapper struct {
	line trajectoryLine
	// trial is the line's trial, written canonically.
	trial string
	steps []trajectoryStep
	// base is the envelope that all events of the task share.
	base       events.Event
	taskType   string
	attributes map[string]json.RawMessage
	// messages and agentSteps count what was mapped so far.
	messages, agentSteps int
}

// identify reads the four fields that name the line, and builds the envelope.
func (m *trajectoryMapper) identify(namespace string) error {
	var source, run, taskID string
	m.attributes = map[string]json.RawMessage{}
	for _, f := range []struct {
		name string
		raw  json.RawMessage
		into *string
		// number says that the field may be a number as well.
		number bool
	}{
		{"source", m.line.Source, &source, false},
		{"run", m.line.Run, &run, false},
		{"trial", m.line.Trial, &m.trial, true},
		{"task_id", m.line.TaskID, &taskID, true},
	} {
		text, err := decodeName(f.name, f.raw, f.number)
		if err != nil {
			return err
		}
		*f.into = text
		attribute, err := events.EncodeData(text)
		if err != nil {
			return problemf(ReasonInvalidEvent, "%s: %w", f.name, err)
		}
		m.attributes[f.name] = attribute
	}
	id := hashID(source, run, m.trial, taskID)
	m.taskType = source
	m.base = events.Event{
		Namespace: namespace, AgentID: limitID(run), SessionID: id, TaskID: id, GoalID: limitID(source + "/" + taskID),
	}
	return nil
}

func (m *trajectoryMapper) decodeSteps() error {
	if isNull(m.line.Steps) {
		return problemf(ReasonMissingField, "steps is missing")
	}
	var raws []json.RawMessage
	if err := json.Unmarshal(m.line.Steps, &raws); err != nil {
		return problemf(ReasonWrongType, "steps is not a list")
	}
	m.steps = make([]trajectoryStep, len(raws))
	for i, raw := range raws {
		if err := decodeObject(stepField(i, ""), raw, &m.steps[i]); err != nil {
			return problemf(ReasonWrongType, "%s is not an object", stepField(i, ""))
		}
	}
	return nil
}

// taskOutcome is how the line says the task ended.
type taskOutcome struct {
	events.TaskFinished
	// duration is in seconds.
	duration float64
}

func (m *trajectoryMapper) outcome() (taskOutcome, error) {
	out := taskOutcome{TaskFinished: events.TaskFinished{Status: events.StatusUnknown}}
	if isNull(m.line.Outcome) {
		return out, nil
	}
	var o trajectoryOutcome
	if err := decodeObject("outcome", m.line.Outcome, &o); err != nil {
		return out, problemf(ReasonWrongType, "outcome is not an object")
	}
	if !isNull(o.Success) {
		var success bool
		if err := json.Unmarshal(o.Success, &success); err != nil {
			return out, problemf(ReasonWrongType, "outcome.success is neither true nor false")
		}
		out.Status, out.ConfirmedBy = events.StatusFailure, events.ConfirmedBySystem
		if success {
			out.Status = events.StatusSuccess
		}
	}
	reward, given, err := decodeNumber("outcome.reward", o.Reward)
	if err != nil {
		return out, err
	}
	if given {
		out.Score = &reward
	}
	out.duration, _, err = decodeNumber("outcome.duration_s", o.DurationS)
	out.Reason = compactText(o.Reason)
	return out, err
}

// events builds the events in their order.
func (m *trajectoryMapper) events(outcome taskOutcome, c clock) ([]events.Event, error) {
	goal, err := m.goal()
	if err != nil {
		return nil, err
	}
	m.attributes["times"] = json.RawMessage(strconv.Quote(c.origin))
	start := events.TaskStarted{TaskType: m.taskType, Goal: goal, Attributes: m.attributes}
	out := make([]events.Event, 0, len(m.steps)+2)
	add := func(kind events.Kind, position string, data any) error {
		e := m.base
		e.ID = hashID(m.base.TaskID, position)
		e.Kind = kind
		e.Seq = int64(len(out)) + 1
		e.Time = c.times[len(out)]
		raw, err := events.EncodeData(data)
		if err != nil {
			return problemf(ReasonInvalidEvent, "%s %s: %w", kind, position, err)
		}
		e.Data = raw
		out = append(out, e)
		return nil
	}
	if err := add(events.KindTaskStarted, "start", start); err != nil {
		return nil, err
	}
	for i, s := range m.steps {
		kind, data, err := m.step(i, s)
		if err != nil {
			return nil, err
		}
		if err := add(kind, strconv.Itoa(i), data); err != nil {
			return nil, err
		}
	}
	if err := add(events.KindTaskFinished, "end", outcome.TaskFinished); err != nil {
		return nil, err
	}
	return out, nil
}

// goal is the first message of the user that says anything. What the user's own tools said is no goal.
func (m *trajectoryMapper) goal() (string, error) {
	for i, s := range m.steps {
		kind, err := decodeText(stepField(i, "type"), s.Type)
		if err != nil {
			return "", err
		}
		role, err := decodeText(stepField(i, "role"), s.Role)
		if err != nil {
			return "", err
		}
		if content := compactText(s.Content); kind == stepMessage && mapRole(role) == events.RoleUser && strings.TrimSpace(content) != "" {
			return content, nil
		}
	}
	return "", nil
}

func (m *trajectoryMapper) step(i int, s trajectoryStep) (events.Kind, any, error) {
	kind, err := decodeText(stepField(i, "type"), s.Type)
	if err != nil {
		return "", nil, err
	}
	switch kind {
	case stepMessage:
		data, err := m.message(i, s)
		return events.KindMessage, data, err
	case stepToolCall:
		return m.toolCall(i, s)
	case "":
		return "", nil, problemf(ReasonMissingField, "%s is missing", stepField(i, "type"))
	default:
		return "", nil, problemf(ReasonUnknownStepType, "%s is %q: it must be %s or %s", stepField(i, "type"), kind, stepMessage, stepToolCall)
	}
}

func (m *trajectoryMapper) message(i int, s trajectoryStep) (message, error) {
	role, err := decodeText(stepField(i, "role"), s.Role)
	if err != nil {
		return message{}, err
	}
	out := message{Message: m.say(mapRole(role), compactText(s.Content))}
	if out.Role != role {
		out.OriginalRole = role
	}
	return out, nil
}

// say makes the next message.
func (m *trajectoryMapper) say(role, content string) events.Message {
	out := events.Message{Role: role, Content: content, Turn: m.messages}
	m.messages++
	return out
}

func (m *trajectoryMapper) toolCall(i int, s trajectoryStep) (events.Kind, any, error) {
	tool, err := decodeText(stepField(i, "tool"), s.Tool)
	if err != nil {
		return "", nil, err
	}
	if strings.TrimSpace(tool) == "" {
		return "", nil, problemf(ReasonMissingField, "%s is missing", stepField(i, "tool"))
	}
	by, err := decodeText(stepField(i, "by"), s.By)
	if err != nil {
		return "", nil, err
	}
	latency, _, err := decodeNumber(stepField(i, "latency_ms"), s.LatencyMS)
	if err != nil {
		return "", nil, err
	}
	parameters, err := mapParameters(s.Args)
	if err != nil {
		return "", nil, problemf(ReasonInvalidEvent, "%s: %w", stepField(i, "args"), err)
	}
	if strings.EqualFold(by, events.ActorUser) {
		return events.KindMessage, m.say(events.RoleUser, userCall(tool, parameters, s)), nil
	}
	m.agentSteps++
	out := events.StepFinished{
		Step: m.agentSteps, Tool: tool, Parameters: parameters, Status: events.StatusSuccess,
		ExecutionTimeMS: milliseconds(latency), Actor: events.ActorAgent,
	}
	if !isNull(s.Result) {
		out.Result = s.Result
	}
	if !isNull(s.Error) {
		out.Status = events.StatusFailure
		out.ErrorMessage = compactText(s.Error)
		out.ErrorType = errorType(out.ErrorMessage)
	}
	return events.KindStepFinished, out, nil
}

// userCall tells in one line what the simulated user did and saw: `check_status_bar {} → No Signal`.
func userCall(tool string, parameters json.RawMessage, s trajectoryStep) string {
	out := tool + " " + string(parameters) + " → "
	if !isNull(s.Error) {
		return out + compactText(s.Error)
	}
	return out + compactText(s.Result)
}

// mapParameters makes a JSON object of the arguments: an object is itself, so is the text of one (that is how some
// models' calls are recorded), nothing is {}, and anything else becomes {"value": …}.
func mapParameters(args json.RawMessage) (json.RawMessage, error) {
	if isNull(args) {
		return json.RawMessage("{}"), nil
	}
	object := args
	var text string
	if json.Unmarshal(args, &text) == nil {
		object = json.RawMessage(strings.TrimSpace(text))
	}
	if !bytes.HasPrefix(object, []byte("{")) || !json.Valid(object) {
		return events.EncodeData(map[string]json.RawMessage{"value": args})
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, object); err != nil {
		return nil, problemf(ReasonInvalidJSON, "compact: %w", err)
	}
	return compact.Bytes(), nil
}

// mapRole maps a role to one of the contract's. An unknown one counts as assistant, which is trusted less than a user.
func mapRole(role string) string {
	switch strings.ToLower(strings.TrimSpace(role)) {
	case events.RoleUser, "human", "customer":
		return events.RoleUser
	case events.RoleSystem, "developer":
		return events.RoleSystem
	default:
		return events.RoleAssistant
	}
}

// milliseconds rounds a latency. A negative one, from a clock that was set back, says nothing and becomes 0.
func milliseconds(latency float64) int64 {
	const longest = 1 << 53
	return int64(math.Round(min(max(latency, 0), longest)))
}
