package recall

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/memory"
)

// Defaults of a [Question].
const (
	DefaultTopK     = 5
	DefaultMinScore = 0.5
	DefaultBudget   = 800
	// MaxTopK bounds what one question may ask for.
	MaxTopK = 50
	// MaxQuestionBytes is how much of a question is read.
	MaxQuestionBytes = 8 << 10
)

// ErrQuestion means that a question cannot be asked as it is; the text says what to change.
var ErrQuestion = errors.New("the question cannot be answered")

// Way says how an answer was found.
type Way string

// Ways of answering.
const (
	// WayExperience looks for decisions like the one that is about to be made.
	WayExperience Way = "experience"
	// WayFact looks for what is known of an entity.
	WayFact Way = "fact"
	// WaySummary tells where a session stands.
	WaySummary Way = "summary"
	// WayHistory tells what was so before.
	WayHistory Way = "history"
	// WayAction looks for what is known to go wrong with a call.
	WayAction Way = "action"
	// WayRules lists the rules of a type of task.
	WayRules Way = "rules"
	// WayOff means that recall is switched off.
	WayOff Way = "off"
)

// Question is what an agent wants to know. The zero value of a field means its default or no restriction.
type Question struct {
	// Namespace is whose memory is asked; it must be set.
	Namespace string
	// Text is the question. Context may stand for it: what is known of the task.
	Text    string
	Context *memory.TaskContext
	// TaskType prefers what was learnt from tasks of one type; it does not exclude others.
	TaskType string
	// MemoryTypes and Layers restrict what is found.
	MemoryTypes []memory.MemoryType
	Layers      []memory.Layer
	// Entity asks what is known of one entity.
	Entity string
	// TopK is how many items to show, 5 by default, 50 at most. MinScore cuts at a calibrated similarity (0 to 1, 0.5
	// the threshold of relatedness); a negative one cuts nothing, 0 means 0.5.
	TopK     int
	MinScore float64
	// Budget is the size of the answer in tokens, 800 by default.
	Budget int
	Preset memory.Preset
	// AsOf asks what would have been answered then; zero means now.
	AsOf time.Time
	Asker
}

// Asker says who asks, so that the recall can be joined to the outcome of the task.
type Asker struct {
	TaskID    string
	SessionID string
	UserID    string
	AgentID   string
	// Door is where it was asked: mcp, api, hook, cli or console.
	Door string
}

// Action is a call that an agent is about to make.
type Action struct {
	Namespace string
	Tool      string
	// Parameters is a JSON object; empty means none.
	Parameters []byte
	TaskType   string
	TopK       int
	Budget     int
	AsOf       time.Time
	// Succeeded gives tools that have succeeded in the task so far, as far as it is known. It is asked only when something has
	// to come before the call, and may be nil.
	Succeeded func(ctx context.Context) []string
	Asker
}

// Item is one part of an answer. Its JSON is the stable shape of `hindsight recall --json`.
type Item struct {
	ID       string       `json:"id"`
	Layer    memory.Layer `json:"layer"`
	TaskType string       `json:"task_type"`
	// Text is the item as it is shown: situation, decision, result and lesson, a line each; right before a call only the
	// lesson, and the error where it does not quote that.
	Text   string `json:"text"`
	Lesson string `json:"lesson"`
	// When says when the lesson applies.
	When string `json:"when"`
	// Score is what the item was ranked by; Parts are its addends and factors, and how it was found.
	Score float64            `json:"score"`
	Parts map[string]float64 `json:"parts"`
	// Similarity is calibrated: 0.5 is the threshold of relatedness.
	Similarity float64      `json:"similarity"`
	Trust      memory.Trust `json:"trust"`
	Confidence float64      `json:"confidence"`
	Importance float64      `json:"importance"`
	// Seen counts the tasks behind it that are known to the answer.
	Seen      int       `json:"seen"`
	CreatedAt time.Time `json:"created_at"`
	// MemoryType is set for memories.
	MemoryType memory.MemoryType `json:"memory_type,omitempty"`
	// Note warns of an old or expiring item.
	Note string `json:"note,omitempty"`
}

// Answer is what is shown for a question. Its JSON is the stable shape of `hindsight recall --json`.
type Answer struct {
	RecallID string `json:"recall_id"`
	Items    []Item `json:"items"`
	Way      Way    `json:"way"`
	// Notice says what a reader must know about the answer: what was missing, or that nothing was found.
	Notice string `json:"notice"`
	// Tokens is the estimated size of the items' texts; see [EstimateTokens].
	Tokens int `json:"tokens"`
	// Withheld is true for the control group: something was found and is not shown.
	Withheld bool `json:"-"`
}

// ErrNoModel means that there is no embedding model that is of use, and will be none: questions are answered without.
var ErrNoModel = errors.New("no embedding model")

// Embedder turns a question into a vector. Its Embed puts questions before all other work; its error may be [ErrNoModel].
type Embedder interface {
	Embed(ctx context.Context, text string) ([]float32, error)
	// Identity names the model under which vectors are stored.
	Identity() string
	// Calibrated maps a cosine of this model to 0 to 1, with 0.5 at the threshold of relatedness.
	Calibrated(cosine float64) float64
}

// Recorder takes note of what was served. It must not wait for the broker.
type Recorder interface {
	Record(e events.Event) error
}

// CallCounter counts calls. Its error may be [memory.ErrUnavailable].
type CallCounter interface {
	// ToolTasks counts the tasks in which an agent called a tool, of events from since on and recorded by asOf where these
	// are not zero.
	ToolTasks(ctx context.Context, namespace, tool string, since, asOf time.Time) (int, error)
}

// Options configure a [Service]. Items, Recorder and Logger must be set; Clock may be nil.
type Options struct {
	Items memory.ItemReader
	// Index and Embedder may be nil: then questions are answered by words, rules and exact codes.
	Index    memory.VectorIndex
	Embedder Embedder
	Recorder Recorder
	Logger   *slog.Logger
	// Calls may be nil: then a call is never warned only because its tool fails often.
	Calls   CallCounter
	Weights memory.Weights
	// Off answers every question with nothing.
	Off bool
	// ControlShare is the share of sessions, 0 to 1, from which lessons and rules are withheld.
	ControlShare float64
	// Deadline bounds the searches of one question; what has not answered by then is left out, and the answer says so.
	// 0 means 2 seconds.
	Deadline time.Duration
	Clock    func() time.Time
}

// Service answers questions. It is safe for use by many at once.
type Service struct {
	o Options
}

// New makes a [Service].
func New(o Options) (*Service, error) {
	switch {
	case o.Items == nil || o.Recorder == nil || o.Logger == nil:
		return nil, errors.New("recall: Items, Recorder and Logger must be set")
	case (o.Index == nil) != (o.Embedder == nil):
		return nil, errors.New("recall: Index and Embedder must be set together")
	case o.ControlShare < 0 || o.ControlShare > 1:
		return nil, fmt.Errorf("recall: ControlShare %v: it must be between 0 and 1", o.ControlShare)
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Weights == (memory.Weights{}) {
		o.Weights = memory.DefaultWeights()
	}
	o.Deadline = cmp.Or(o.Deadline, 2*time.Second)
	return &Service{o: o}, nil
}

// Recall answers a question. The error is [ErrQuestion], [memory.ErrUnavailable] or the context's; that nothing is
// known is an answer without items.
func (s *Service) Recall(ctx context.Context, q Question) (Answer, error) {
	began := s.o.Clock()
	q, err := complete(q)
	if err != nil {
		return Answer{}, err
	}
	if s.o.Off {
		return Answer{Items: []Item{}, Way: WayOff, Notice: "recall is switched off (HINDSIGHT_RECALL)"}, nil
	}
	way := wayOf(q)
	var found ranked
	switch way {
	case WaySummary:
		found, err = s.summary(ctx, q)
	case WayHistory:
		found, err = s.history(ctx, q)
	default:
		found, err = s.search(ctx, q, way)
	}
	if err != nil {
		return Answer{}, err
	}
	answer := s.answer(found, way, q.TopK, q.Budget)
	return s.serve(answer, q.Namespace, q.TaskType, q.Text, q.Preset, q.AsOf, q.Asker, began), nil
}

// Check says what is known to go wrong with a call, and nothing when nothing is known. It needs no embedder: it looks
// for failed calls of the same tool whose lesson this call does not heed, and for rules about the tool.
func (s *Service) Check(ctx context.Context, a Action) (Answer, error) {
	began := s.o.Clock()
	if err := events.ValidateNamespace(a.Namespace); err != nil {
		return Answer{}, fmt.Errorf("%w: %w", ErrQuestion, err)
	}
	if a.Tool == "" {
		return Answer{}, fmt.Errorf("%w: the tool is missing", ErrQuestion)
	}
	if s.o.Off {
		return Answer{Items: []Item{}, Way: WayOff}, nil
	}
	found, err := s.action(ctx, a)
	if err != nil {
		return Answer{}, err
	}
	answer := s.answer(found, WayAction, cmp.Or(a.TopK, 3), cmp.Or(a.Budget, 400))
	if len(answer.Items) == 0 {
		answer.Notice = "" // silent when nothing is known
	}
	question := a.Tool + " " + events.CutText(string(a.Parameters), 2000)
	return s.serve(answer, a.Namespace, a.TaskType, question, memory.PresetExperience, a.AsOf, a.Asker, began), nil
}

// Rules lists the active rules of a type of task, those that hold best first. An empty type means all.
func (s *Service) Rules(ctx context.Context, namespace, taskType string, asOf time.Time, asker Asker) (Answer, error) {
	began := s.o.Clock()
	if err := events.ValidateNamespace(namespace); err != nil {
		return Answer{}, fmt.Errorf("%w: %w", ErrQuestion, err)
	}
	if s.o.Off {
		return Answer{Items: []Item{}, Way: WayOff}, nil
	}
	found, err := s.rules(ctx, namespace, taskType, asOf)
	if err != nil {
		return Answer{}, err
	}
	answer := s.answer(found, WayRules, MaxTopK, 2*DefaultBudget)
	return s.serve(answer, namespace, taskType, "rules of "+cmp.Or(taskType, "all types"), "", asOf, asker, began), nil
}

// complete checks a question and fills in its defaults.
func complete(q Question) (Question, error) {
	if err := events.ValidateNamespace(q.Namespace); err != nil {
		return q, fmt.Errorf("%w: %w", ErrQuestion, err)
	}
	if q.Context != nil {
		q.TaskType = cmp.Or(q.TaskType, q.Context.TaskType)
		q.Text = cmp.Or(q.Text, q.Context.InputSummary)
	}
	q.Text = events.CutText(q.Text, MaxQuestionBytes)
	if q.Text == "" && q.Entity == "" && q.TaskType == "" {
		return q, fmt.Errorf("%w: it is empty: give a text, an entity or a task_type", ErrQuestion)
	}
	if q.TopK < 0 || q.TopK > MaxTopK {
		return q, fmt.Errorf("%w: top_k %d: it must be between 1 and %d", ErrQuestion, q.TopK, MaxTopK)
	}
	if q.MinScore > 1 {
		return q, fmt.Errorf("%w: min_score %v: it must be at most 1", ErrQuestion, q.MinScore)
	}
	q.TopK = cmp.Or(q.TopK, DefaultTopK)
	q.MinScore = cmp.Or(q.MinScore, DefaultMinScore)
	q.Budget = cmp.Or(q.Budget, DefaultBudget)
	q.Preset = cmp.Or(q.Preset, memory.PresetExperience)
	return q, nil
}
