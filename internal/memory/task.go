package memory

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/hindsight-memory/hindsight/events"
)

// TaskKey names one task. A task id alone is not unique: two namespaces may use the same.
type TaskKey struct {
	Namespace string
	TaskID    string
}

// StoredEvent is a trace event with the time at which the store recorded it, UTC, set by the store.
type StoredEvent struct {
	events.Event
	RecordedAt time.Time
}

// Certainty says how far the status of a task can be believed.
type Certainty string

// Certainties, the strongest first.
const (
	// CertaintyConfirmed means that a user or the system (a test, a checker) judged the result.
	CertaintyConfirmed Certainty = "confirmed"
	// CertaintyReported means that only the agent itself says so.
	CertaintyReported Certainty = "reported"
	// CertaintyInferred means that nobody said: Hindsight closed the task for its silence, it is still open, or it ended
	// with an unknown status that nobody vouches for.
	CertaintyInferred Certainty = "inferred"
)

// Step is one decision of the agent. Its JSON is the stable shape of `hindsight tasks --json`.
type Step struct {
	// Step counts from 1 within the task, in order of time, unless the producer numbered every step itself; then the
	// steps have its numbers and order.
	Step            int             `json:"step"`
	Tool            string          `json:"tool"`
	Parameters      json.RawMessage `json:"parameters"`
	Status          events.Status   `json:"status"`
	Result          string          `json:"result"`
	ErrorType       string          `json:"error_type"`
	ErrorMessage    string          `json:"error_message"`
	ExecutionTimeMS int64           `json:"execution_time_ms"`
	Reasoning       string          `json:"reasoning,omitempty"`
	CallID          string          `json:"call_id,omitempty"`
	EventID         string          `json:"event_id"`
	Time            time.Time       `json:"time"`
}

// Task is what the events of one task say together. Its JSON is the stable shape of `hindsight tasks --json`.
type Task struct {
	Namespace      string        `json:"namespace"`
	TaskID         string        `json:"task_id"`
	GoalID         string        `json:"goal_id"`
	SessionID      string        `json:"session_id"`
	UserID         string        `json:"user_id"`
	AgentID        string        `json:"agent_id"`
	ParentTaskID   string        `json:"parent_task_id,omitempty"`
	TaskType       string        `json:"task_type"`
	Goal           string        `json:"goal"`
	InputSummary   string        `json:"input_summary,omitempty"`
	AvailableTools []string      `json:"available_tools,omitempty"`
	Status         events.Status `json:"status"`
	Certainty      Certainty     `json:"certainty"`
	Reason         string        `json:"reason,omitempty"`
	Score          *float64      `json:"score,omitempty"`
	// Closed is true once the sweeper has decided that the task is over; a late event reopens it.
	Closed bool `json:"closed"`
	// Finished is true when an event says that the task is over, whether or not the sweeper has closed it yet.
	Finished bool `json:"-"`
	// Revision is 2 × Events + (1 if closed): it grows with every event, and nobody has to allocate it.
	Revision uint64 `json:"revision"`
	// Events counts distinct trace events.
	Events int `json:"events"`
	// Messages, Errors and Corrections count messages, failed steps and corrections by a user.
	Messages    int       `json:"messages"`
	Errors      int       `json:"errors"`
	Corrections int       `json:"corrections"`
	StartedAt   time.Time `json:"started_at"`
	EndedAt     time.Time `json:"ended_at"`
	// Recalled are the ids of the items shown to the agent during the task; Withheld is true when the task was in the
	// control group and was shown none of them.
	Recalled []string `json:"recalled,omitempty"`
	Withheld bool     `json:"withheld,omitempty"`
	Steps    []Step   `json:"steps"`
}

// Duration is the time between the first and the last event of the task.
func (t Task) Duration() time.Duration { return t.EndedAt.Sub(t.StartedAt) }

// Revision is the number of a task's state: 2 × distinct stored events + (1 if closed).
func Revision(distinctEvents int, closed bool) uint64 {
	r := uint64(max(distinctEvents, 0)) * 2
	if closed {
		r++
	}
	return r
}

// BuildTask derives a task from its events. All must be of one task; their order and duplicates (by event id) do not
// matter. closed is the sweeper's decision. The zero Task is returned for no events.
func BuildTask(evs []events.Event, closed bool) Task {
	evs = distinctInOrder(evs)
	if len(evs) == 0 {
		return Task{}
	}
	t := Task{
		Namespace: evs[0].Namespace, TaskID: evs[0].TaskID,
		Status: events.StatusUnknown, Certainty: CertaintyInferred,
		Closed: closed, Events: len(evs), Revision: Revision(len(evs), closed),
		StartedAt: evs[0].Time, EndedAt: evs[0].Time, Steps: []Step{},
	}
	b := builder{task: &t, byCall: map[call]int{}}
	for _, e := range evs {
		b.add(e)
	}
	b.finish()
	return t
}

// distinctInOrder removes repeated ids and sorts: by the producer's numbers where every event has one, else by time,
// with start first and end last among events of one instant. The last key is the id, so that the order is total.
func distinctInOrder(evs []events.Event) []events.Event {
	at := make(map[string]int, len(evs))
	out := make([]events.Event, 0, len(evs))
	for _, e := range evs {
		i, again := at[e.ID]
		if !again {
			at[e.ID] = len(out)
			out = append(out, e)
		} else if compareCopies(e, out[i]) < 0 {
			out[i] = e
		}
	}
	numbered := !slices.ContainsFunc(out, func(e events.Event) bool { return e.Seq <= 0 })
	slices.SortFunc(out, func(a, b events.Event) int {
		bySeq := 0
		if numbered {
			bySeq = cmp.Compare(a.Seq, b.Seq)
		}
		return cmp.Or(bySeq, a.Time.Compare(b.Time), cmp.Compare(rank(a.Kind), rank(b.Kind)), cmp.Compare(a.Seq, b.Seq), strings.Compare(a.ID, b.ID))
	})
	return out
}

// compareCopies orders events of one id. They are equal unless a producer breaks the rule that an event never changes,
// and even then the task must not depend on which copy comes first.
func compareCopies(a, b events.Event) int {
	return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.Kind, b.Kind), bytes.Compare(a.Data, b.Data),
		strings.Compare(a.AgentID, b.AgentID), strings.Compare(a.SessionID, b.SessionID), strings.Compare(a.UserID, b.UserID),
		strings.Compare(a.GoalID, b.GoalID))
}

func rank(k events.Kind) int {
	switch k {
	case events.KindTaskStarted:
		return 0
	case events.KindTaskFinished:
		return 2
	case events.KindMessage, events.KindStepFinished, events.KindFeedback, events.KindItemWritten,
		events.KindItemChanged, events.KindRecallServed:
		return 1
	default:
		return 1
	}
}

// call names one call of a tool: ids of calls are unique for their tool only.
type call struct{ id, tool string }

// builder gathers one task; its fields are what the events said so far.
type builder struct {
	task      *Task
	byCall    map[call]int
	confirmed int
	firstUser string
}

func (b *builder) add(e events.Event) {
	t := b.task
	if e.Time.Before(t.StartedAt) {
		t.StartedAt = e.Time
	}
	if e.Time.After(t.EndedAt) {
		t.EndedAt = e.Time
	}
	t.GoalID = cmp.Or(t.GoalID, e.GoalID)
	t.SessionID = cmp.Or(t.SessionID, e.SessionID)
	t.UserID = cmp.Or(t.UserID, e.UserID)
	t.AgentID = cmp.Or(t.AgentID, e.AgentID)
	switch e.Kind {
	case events.KindTaskStarted:
		b.addStart(e)
	case events.KindMessage:
		b.addMessage(e)
	case events.KindStepFinished:
		b.addStep(e)
	case events.KindTaskFinished:
		b.addFinish(e)
	case events.KindFeedback:
		if f, err := events.DecodeData[events.Feedback](e); err == nil && f.Kind == events.FeedbackCorrection {
			t.Corrections++
		}
	case events.KindRecallServed:
		b.addRecall(e)
	case events.KindItemWritten, events.KindItemChanged:
	default:
		// A kind that this version does not know counts as an event and says nothing about the task.
	}
}

// addStart keeps the first value of each field, so that a second start (a retry by the producer under another id)
// only fills gaps. Data that does not decode was stored raw and says nothing.
func (b *builder) addStart(e events.Event) {
	s, err := events.DecodeData[events.TaskStarted](e)
	if err != nil {
		return
	}
	t := b.task
	t.TaskType = cmp.Or(t.TaskType, s.TaskType)
	t.Goal = cmp.Or(t.Goal, s.Goal)
	t.InputSummary = cmp.Or(t.InputSummary, s.InputSummary)
	t.ParentTaskID = cmp.Or(t.ParentTaskID, s.ParentTaskID)
	if len(t.AvailableTools) == 0 {
		t.AvailableTools = s.AvailableTools
	}
}

func (b *builder) addMessage(e events.Event) {
	b.task.Messages++
	m, err := events.DecodeData[events.Message](e)
	if err == nil && m.Role == events.RoleUser && b.firstUser == "" {
		b.firstUser = m.Content
	}
}

func (b *builder) addStep(e events.Event) {
	s, err := events.DecodeData[events.StepFinished](e)
	if err != nil {
		return
	}
	if s.Actor == events.ActorUser {
		b.task.Messages++ // A call by the user or simulator is not a decision of the agent.
		return
	}
	step := Step{
		Step: s.Step, Tool: s.Tool, Parameters: s.Parameters, Status: s.Status, Result: events.Text(s.Result), ErrorType: s.ErrorType,
		ErrorMessage: s.ErrorMessage, ExecutionTimeMS: s.ExecutionTimeMS, Reasoning: s.Reasoning, CallID: s.CallID,
		EventID: e.ID, Time: e.Time,
	}
	if len(step.Parameters) == 0 || string(step.Parameters) == "null" {
		step.Parameters = json.RawMessage("{}")
	}
	if s.CallID != "" {
		c := call{id: s.CallID, tool: s.Tool}
		if at, again := b.byCall[c]; again {
			b.task.Steps[at] = mergeSteps(b.task.Steps[at], step)
			return
		}
		b.byCall[c] = len(b.task.Steps)
	}
	b.task.Steps = append(b.task.Steps, step)
}

// mergeSteps joins two reports of the same call (a coding agent sends it as a log record and as a span). A failure is
// believed over a success, in all that it says: emitters report success for commands that failed.
func mergeSteps(first, second Step) Step {
	out, other := first, second
	if second.Status == events.StatusFailure && first.Status != events.StatusFailure {
		out, other = second, first
	}
	if string(out.Parameters) == "{}" {
		out.Parameters = other.Parameters
	}
	out.Step = cmp.Or(out.Step, other.Step)
	out.Result = cmp.Or(out.Result, other.Result)
	out.ErrorType = cmp.Or(out.ErrorType, other.ErrorType)
	out.ErrorMessage = cmp.Or(out.ErrorMessage, other.ErrorMessage)
	out.ExecutionTimeMS = cmp.Or(out.ExecutionTimeMS, other.ExecutionTimeMS)
	out.Reasoning = cmp.Or(out.Reasoning, other.Reasoning)
	out.EventID, out.Time = first.EventID, first.Time
	return out
}

// addFinish lets the best-confirmed word on the outcome win, and among equals the last.
func (b *builder) addFinish(e events.Event) {
	f, err := events.DecodeData[events.TaskFinished](e)
	if err != nil {
		return
	}
	confirmed := 1
	switch f.ConfirmedBy {
	case events.ConfirmedByUser:
		confirmed = 3
	case events.ConfirmedBySystem:
		confirmed = 2
	}
	b.task.Finished = true
	if confirmed < b.confirmed {
		return
	}
	b.confirmed = confirmed
	b.task.Status, b.task.Reason, b.task.Score = f.Status, f.Reason, f.Score
	switch {
	case confirmed > 1:
		b.task.Certainty = CertaintyConfirmed
	case f.Status == events.StatusUnknown && f.ConfirmedBy == "":
		b.task.Certainty = CertaintyInferred // That the task ended is all that was said.
	default:
		b.task.Certainty = CertaintyReported
	}
}

func (b *builder) addRecall(e events.Event) {
	r, err := events.DecodeData[struct {
		Items []struct {
			ID string `json:"id"`
		} `json:"items"`
		Withheld bool `json:"withheld"`
	}](e)
	if err != nil {
		return
	}
	b.task.Withheld = b.task.Withheld || r.Withheld
	for _, item := range r.Items {
		if item.ID != "" && !slices.Contains(b.task.Recalled, item.ID) {
			b.task.Recalled = append(b.task.Recalled, item.ID)
		}
	}
}

func (b *builder) finish() {
	t := b.task
	t.Goal = cmp.Or(t.Goal, b.firstUser)
	if numberedByProducer(t.Steps) {
		slices.SortFunc(t.Steps, func(a, b Step) int { return cmp.Compare(a.Step, b.Step) })
	} else {
		for i := range t.Steps {
			t.Steps[i].Step = i + 1
		}
	}
	for _, s := range t.Steps {
		if s.Status == events.StatusFailure {
			t.Errors++
		}
	}
}

// numberedByProducer reports whether the producer gave every step a number of its own.
func numberedByProducer(steps []Step) bool {
	seen := make(map[int]bool, len(steps))
	for _, s := range steps {
		if s.Step <= 0 || seen[s.Step] {
			return false
		}
		seen[s.Step] = true
	}
	return true
}

// CloseTask gives the task with the sweeper's decision on it.
func CloseTask(t Task, closed bool) Task {
	t.Closed = closed
	t.Revision = Revision(t.Events, closed)
	return t
}

// Envelopes strips the recording times off.
func Envelopes(stored []StoredEvent) []events.Event {
	out := make([]events.Event, len(stored))
	for i, s := range stored {
		out[i] = s.Event
	}
	return out
}
