package memory

import (
	"errors"
	"time"

	"github.com/hindsight-memory/hindsight/events"
)

// Errors that every store and index translates its driver's errors to; test with errors.Is.
var (
	// ErrUnavailable means that a store cannot do its work now (it is away, overloaded or out of memory) although the
	// request may be fine. Retry with back-off, for ever: nothing may be given up for this.
	ErrUnavailable = errors.New("store unavailable")
	// ErrRejected means that a row can never be stored as it is. Retrying cannot help.
	ErrRejected = errors.New("rejected by the store")
	// ErrTooMuch means that what was asked for is more than one answer may hold in memory. Ask for less at a time.
	ErrTooMuch = errors.New("too much for one read")
	// ErrQueueFull means that a queue takes no more until someone has worked on what is in it.
	ErrQueueFull = errors.New("queue full")
	// ErrModelUnavailable means that a language model cannot be asked now: it is away, too slow or overloaded.
	ErrModelUnavailable = errors.New("the language model is unavailable")
	// ErrModelUnusable means that a language model answered, also when asked again, with what cannot be used.
	ErrModelUnusable = errors.New("the language model's answer is unusable")
	// ErrNotFound means that there is no such thing, or not in the namespaces that were asked.
	ErrNotFound = errors.New("not found")
)

// Touch is what arrived for one task since some moment.
type Touch struct {
	Key TaskKey
	// LastRecordedAt is when the store recorded the latest of them, by the store's clock.
	LastRecordedAt time.Time
	// UrgentAt is when the store recorded the latest of those that show a failed step of the agent or correct it; zero
	// when there is none.
	UrgentAt time.Time
	// Finished counts distinct task_finished events.
	Finished int
}

// TaskState is the newest written state of a task, without its contents.
type TaskState struct {
	Revision    uint64
	Closed      bool
	Events      int
	Errors      int
	Corrections int
}

// TaskFilter chooses tasks. Empty fields do not restrict.
type TaskFilter struct {
	// Namespace restricts to one namespace. Empty means all of them, which only an operator may ask for.
	Namespace string
	TaskIDs   []string
	TaskType  string
	Status    events.Status
	SessionID string
	GoalID    string
	// GoalIDs restricts to tasks of any of these goals.
	GoalIDs []string
	// Since and Until restrict the start of the task: Since <= start < Until.
	Since, Until time.Time
	// OpenOnly leaves closed tasks out.
	OpenOnly bool
	// Newest turns the order round, the latest start first.
	Newest bool
	// Limit is the largest number of tasks; 0 means all.
	Limit int
}

// DeadLetter is a message that could not be processed, with the reason.
type DeadLetter struct {
	// ID is the same for the same message however often it is reported.
	ID string `json:"id"`
	// Namespace is that of the message's subject, empty when the subject does not say.
	Namespace    string `json:"namespace"`
	OriginStream string `json:"origin_stream"`
	Subject      string `json:"subject"`
	// Reason is one of few words, to group by; Error is the sentence for a person.
	Reason   string `json:"reason"`
	Error    string `json:"error"`
	Payload  []byte `json:"payload"`
	Attempts int    `json:"attempts"`
	// Time is when the message was given up, UTC.
	Time time.Time `json:"time"`
}

// DeadLetterFilter chooses dead letters. Empty fields do not restrict.
type DeadLetterFilter struct {
	Namespace string
	Reason    string
	IDs       []string
	Since     time.Time
	// Limit is the largest number of letters, the newest first; 0 means all.
	Limit int
}

// MatchKind says what a [Match] is.
type MatchKind string

// Kinds of matches.
const (
	MatchTask     MatchKind = "task"
	MatchEvent    MatchKind = "event"
	MatchSnapshot MatchKind = "snapshot"
	MatchMemory   MatchKind = "memory"
	MatchRule     MatchKind = "rule"
)

// Match is something that an id or the beginning of an id names.
type Match struct {
	Kind MatchKind `json:"kind"`
	ID   string    `json:"id"`
	// Namespace and TaskID say which task it is or belongs to; TaskID is empty for what belongs to none.
	Namespace string `json:"namespace"`
	TaskID    string `json:"task_id"`
	// Time is the start of the task, or the time of the event or item.
	Time time.Time `json:"time"`
}

// Health is what the record holds, counted by distinct ids.
type Health struct {
	Events      int64 `json:"events"`
	TasksOpen   int64 `json:"tasks_open"`
	TasksClosed int64 `json:"tasks_closed"`
	// UnknownKinds counts events of kinds that this version does not know.
	UnknownKinds int64 `json:"unknown_kinds"`
	DeadLetters  int64 `json:"dead_letters"`
	// LastArrival is when the latest event was recorded; zero when there is none.
	LastArrival time.Time `json:"last_arrival"`
}
