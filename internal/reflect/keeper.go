package reflect

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/memory"
)

// Words for what became of a write, beside the statuses of items.
const (
	StatusStored    = "stored"
	StatusUpdated   = "updated"
	StatusForgotten = "forgotten"
	StatusRestored  = "restored"
	StatusRecorded  = "recorded"
)

// Receipt says what became of a write.
type Receipt struct {
	// ItemID is the item that was written, changed or judged; empty for feedback on a task.
	ItemID string
	Layer  memory.Layer
	// Status is one of the Status words, pending_review or quarantined.
	Status string
	// Notice is a sentence for the writer, or empty.
	Notice string
}

// Write is one event of the stream WRITES, prepared by events.Prepare.
type Write struct {
	Event events.Event
	// Confirm, if set, is called once: with a receipt as soon as the record holds the write, or with the error when it
	// never will ([memory.ErrRejected], [memory.ErrNotFound]). It is not called for what is to be tried again.
	Confirm func(Receipt, error)
}

// KeeperOptions are the parts of a [Keeper]; those without a remark are required.
type KeeperOptions struct {
	Events EventWriter
	Items  ItemReader
	Writer ItemWriter
	// Index and Embedder may be nil: items are then found by words only.
	Index    VectorIndex
	Embedder Embedder
	// Queue, if set, is given what was written, to be handed to [Keeper.Index] later, at least once: making vectors takes
	// so much longer than storing that nobody who writes should wait for it. Nil makes them at once.
	Queue      func(ctx context.Context, written []Written) error
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Keeper stores what agents and people write, change, forget and judge. Several goroutines may use it at once.
type Keeper struct {
	opts     KeeperOptions
	indexing indexing
	writes   *prometheus.CounterVec
}

// NewKeeper checks the options and registers the metrics.
func NewKeeper(opts KeeperOptions) (*Keeper, error) {
	if opts.Events == nil || opts.Items == nil || opts.Writer == nil || opts.Logger == nil || opts.Registerer == nil {
		return nil, errors.New("new keeper: Events, Items, Writer, Logger and Registerer are required")
	}
	if (opts.Index == nil) != (opts.Embedder == nil) {
		return nil, errors.New("new keeper: give both Index and Embedder or neither")
	}
	opts.Now = clock(opts.Now)
	k := &Keeper{
		opts: opts, indexing: indexing{opts.Items, opts.Writer, opts.Index, opts.Embedder},
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hindsight_writes_total", Help: "What agents and people asked to store or change, by what became of it.",
		}, []string{"status"}),
	}
	if err := opts.Registerer.Register(k.writes); err != nil {
		return nil, fmt.Errorf("register keeper metrics: %w", err)
	}
	return k, nil
}

// Written names items of one namespace whose vectors are to be made, or to be taken away.
type Written struct {
	Namespace string   `json:"namespace"`
	Snapshots []string `json:"snapshots,omitempty"`
	Memories  []string `json:"memories,omitempty"`
	Rules     []string `json:"rules,omitempty"`
	// By is the id of the event that wrote them.
	By string `json:"by"`
}

// change is what one write does to the record.
type change struct {
	snapshots []memory.Snapshot
	memories  []memory.Memory
	rules     []memory.Rule
	relations []memory.Relation
	receipt   Receipt
	// same means that the items are as the record holds them already, and only their vectors may be missing.
	same bool
}

// Handle stores a batch and gives a verdict for each write in order: nil once it is stored and searchable, or queued to be,
// memory.ErrRejected or memory.ErrNotFound when it can never be, anything else when it is to be tried again. The events
// are stored together; each write is confirmed before anything is embedded.
func (k *Keeper) Handle(ctx context.Context, batch []Write) []error {
	verdicts := make([]error, len(batch))
	var evs []events.Event
	for i, w := range batch {
		if err := storable(w.Event); err != nil {
			verdicts[i] = err
			continue
		}
		evs = append(evs, w.Event)
	}
	if len(evs) > 0 {
		err := k.opts.Events.InsertEvents(ctx, evs)
		for i := range batch {
			if err != nil && verdicts[i] == nil {
				verdicts[i] = fmt.Errorf("store the event of a write: %w", err)
			}
		}
	}
	done, from := k.applyAll(ctx, batch, verdicts)
	if err := k.makeFindable(ctx, batch, done, from); err != nil {
		for _, i := range from {
			verdicts[i] = fmt.Errorf("make a write searchable: %w", err)
		}
	}
	return verdicts
}

// applyAll stores what the writes without a verdict ask for, gives each its verdict and confirms those that are settled.
// done[i] is what batch[from[i]] did. They act in their order; neighbours that concern nothing but themselves are stored
// together, since storing many costs hardly more than storing one.
func (k *Keeper) applyAll(ctx context.Context, batch []Write, verdicts []error) (done []change, from []int) {
	settle := func(i int, c change, err error) {
		verdicts[i] = err
		switch {
		case err == nil:
			done, from = append(done, c), append(from, i)
			k.writes.WithLabelValues(c.receipt.Status).Inc()
			confirm(batch[i], c.receipt, nil)
		case final(err):
			k.writes.WithLabelValues("refused").Inc()
			confirm(batch[i], Receipt{}, err)
		}
	}
	seen := &lookahead{ItemReader: k.opts.Items}
	ahead := *k
	ahead.opts.Items = seen
	if err := seen.fetch(ctx, batch, verdicts); err != nil {
		for i := range batch {
			if verdicts[i] == nil {
				settle(i, change{}, err)
			}
		}
	}
	var waiting []change
	var of []int // waiting[i] is what batch[of[i]] does
	flush := func() {
		err := k.store(ctx, waiting...)
		for i, c := range waiting {
			one := err
			if errors.Is(err, memory.ErrRejected) { // For one of them: which, shows each by itself.
				one = k.store(ctx, c)
			}
			settle(of[i], c, one)
		}
		waiting, of = nil, nil
	}
	for i, w := range batch {
		if verdicts[i] != nil {
			if final(verdicts[i]) {
				settle(i, change{}, verdicts[i])
			}
			continue
		}
		alone := concernsOnlyItself(w.Event)
		if !alone {
			flush()
		}
		c, err := ahead.apply(ctx, w.Event)
		if err != nil {
			settle(i, change{}, err)
			continue
		}
		seen.note(c)
		waiting, of = append(waiting, c), append(of, i)
		if !alone {
			flush()
		}
	}
	flush()
	return done, from
}

// makeFindable queues what was written, or indexes it at once; done[i] is what batch[from[i]] wrote.
func (k *Keeper) makeFindable(ctx context.Context, batch []Write, done []change, from []int) error {
	if k.opts.Index == nil {
		return nil
	}
	var all []Written
	for i, c := range done {
		if w, some := writtenBy(batch[from[i]].Event, c); some {
			all = append(all, w)
		}
	}
	if k.opts.Queue != nil && len(all) > 0 {
		return k.opts.Queue(ctx, all)
	}
	return k.Index(ctx, all)
}

func writtenBy(e events.Event, c change) (w Written, some bool) {
	w = Written{Namespace: e.Namespace, By: e.ID}
	for _, s := range c.snapshots {
		w.Snapshots = append(w.Snapshots, s.SnapshotID)
	}
	for _, m := range c.memories {
		w.Memories = append(w.Memories, m.MemoryID)
	}
	for _, r := range c.rules {
		w.Rules = append(w.Rules, r.RuleID)
	}
	return w, len(w.Snapshots)+len(w.Memories)+len(w.Rules) > 0
}

// Index brings the vectors of items up to what the record holds of them now. Doing so twice changes nothing.
func (k *Keeper) Index(ctx context.Context, written []Written) error {
	if k.opts.Index == nil {
		return nil
	}
	together := map[string]Written{}
	for _, w := range written {
		t := together[w.Namespace]
		t.Snapshots, t.Memories, t.Rules = append(t.Snapshots, w.Snapshots...), append(t.Memories, w.Memories...), append(t.Rules, w.Rules...)
		together[w.Namespace] = t
	}
	var snapshots []memory.Snapshot
	var memories []memory.Memory
	for _, namespace := range slices.Sorted(maps.Keys(together)) {
		t := together[namespace]
		if len(t.Snapshots) > 0 {
			found, err := k.opts.Items.Snapshots(ctx, memory.ItemFilter{Namespace: namespace, IDs: distinct(t.Snapshots)})
			if err != nil {
				return fmt.Errorf("read %d snapshots: %w", len(t.Snapshots), err)
			}
			snapshots = append(snapshots, found...)
		}
		if len(t.Memories) > 0 {
			found, err := k.opts.Items.Memories(ctx, memory.ItemFilter{Namespace: namespace, IDs: distinct(t.Memories)})
			if err != nil {
				return fmt.Errorf("read %d memories: %w", len(t.Memories), err)
			}
			memories = append(memories, found...)
		}
		if err := k.dropRules(ctx, namespace, distinct(t.Rules)); err != nil {
			return err
		}
	}
	return k.indexing.put(ctx, snapshots, memories)
}

func distinct(ids []string) []string {
	ids = slices.Sorted(slices.Values(ids))
	return slices.Compact(ids)
}

// dropRules takes forgotten rules out of the index. Restored ones come back by the consolidator, which embeds rules.
func (k *Keeper) dropRules(ctx context.Context, namespace string, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	gone, err := k.opts.Items.Rules(ctx, memory.ItemFilter{Namespace: namespace, IDs: ids, Statuses: []memory.ItemStatus{memory.ItemForgotten}})
	if err != nil {
		return fmt.Errorf("read %d rules: %w", len(ids), err)
	}
	for _, r := range gone {
		if err := k.opts.Index.Delete(ctx, namespace, []string{r.RuleID}); err != nil {
			return fmt.Errorf("take rule %s out of the index: %w", r.RuleID, err)
		}
	}
	return nil
}

func confirm(w Write, r Receipt, err error) {
	if w.Confirm != nil {
		w.Confirm(r, err)
	}
}

// final reports an error that trying again cannot help.
func final(err error) bool {
	return errors.Is(err, memory.ErrRejected) || errors.Is(err, memory.ErrNotFound)
}

// storable refuses what no write is.
func storable(e events.Event) error {
	switch e.Kind {
	case events.KindItemWritten, events.KindItemChanged, events.KindFeedback:
		return nil
	default:
		return fmt.Errorf("%w: an event of kind %q is not a write; publish it as a trace event", memory.ErrRejected, e.Kind)
	}
}

// apply says what a write does, without doing it.
func (k *Keeper) apply(ctx context.Context, e events.Event) (change, error) {
	switch e.Kind {
	case events.KindItemWritten:
		return k.written(ctx, e)
	case events.KindItemChanged:
		return k.changed(ctx, e)
	default:
		return k.feedback(ctx, e)
	}
}

// store does what the changes say, all together.
func (k *Keeper) store(ctx context.Context, changes ...change) error {
	var all change
	for _, c := range changes {
		if !c.same {
			all.snapshots, all.memories = append(all.snapshots, c.snapshots...), append(all.memories, c.memories...)
			all.rules, all.relations = append(all.rules, c.rules...), append(all.relations, c.relations...)
		}
	}
	// The relations first: a write that comes again finds its item and does no more.
	if len(all.relations) > 0 {
		if err := k.opts.Writer.InsertRelations(ctx, all.relations); err != nil {
			return fmt.Errorf("store %d relations: %w", len(all.relations), err)
		}
	}
	if len(all.snapshots) > 0 {
		if err := k.opts.Writer.InsertSnapshots(ctx, all.snapshots); err != nil {
			return fmt.Errorf("store %d snapshots: %w", len(all.snapshots), err)
		}
	}
	if len(all.memories) > 0 {
		if err := k.opts.Writer.InsertMemories(ctx, all.memories); err != nil {
			return fmt.Errorf("store %d memories: %w", len(all.memories), err)
		}
	}
	if len(all.rules) > 0 {
		if err := k.opts.Writer.InsertRules(ctx, all.rules); err != nil {
			return fmt.Errorf("store %d rules: %w", len(all.rules), err)
		}
	}
	return nil
}

// version is that of one write: named by its event, so that a write that comes again makes no second version.
func version(e events.Event, taskRevision uint64, byPerson bool) memory.Version {
	v := memory.Version{TaskRevision: taskRevision, Writer: writerKeeper + "/" + e.ID, WriterKind: memory.WriterMachine, Seq: 1}
	if byPerson {
		v.WriterKind = memory.WriterPerson
	}
	return v
}

func (k *Keeper) written(ctx context.Context, e events.Event) (change, error) {
	w, err := events.DecodeData[events.ItemWritten](e)
	if err != nil {
		return change{}, fmt.Errorf("%w: %w", memory.ErrRejected, err)
	}
	hasSnapshot := holdsSnapshot(w)
	switch {
	case hasSnapshot == (strings.TrimSpace(w.Content) != ""):
		return change{}, fmt.Errorf("%w: give either a snapshot or the content of a memory", memory.ErrRejected)
	case hasSnapshot:
		return k.snapshot(ctx, e, w)
	default:
		return k.memory(ctx, e, w)
	}
}

// taskOf is the task of a write, or empty.
func taskOf(e events.Event) string {
	if e.TaskID == events.UnjoinedTask {
		return ""
	}
	return e.TaskID
}

// snapshotID names a reported decision by what was reported, so that a repeated call stores nothing twice.
func snapshotID(e events.Event, s memory.Snapshot) (string, error) {
	arguments, err := canonicalJSON(struct {
		TaskContext memory.TaskContext `json:"task_context"`
		Decision    memory.Decision    `json:"decision"`
		Outcome     memory.Outcome     `json:"outcome"`
		AgentID     string             `json:"agent_id"`
		TaskID      string             `json:"task_id"`
	}{s.TaskContext, s.Decision, s.Outcome, e.AgentID, taskOf(e)})
	if err != nil {
		return "", fmt.Errorf("%w: the snapshot cannot be read: %w", memory.ErrRejected, err)
	}
	return memory.WrittenID(e.Namespace, "snapshot:"+arguments), nil
}

// memoryID names a memory by what was written: when it is said again at another time it is the same memory, unless it
// began at another time.
func memoryID(e events.Event, w events.ItemWritten) (string, error) {
	arguments, err := canonicalJSON(struct {
		events.ItemWritten
		AgentID string `json:"agent_id"`
		UserID  string `json:"user_id"`
	}{w, e.AgentID, e.UserID})
	if err != nil {
		return "", fmt.Errorf("%w: the memory cannot be read: %w", memory.ErrRejected, err)
	}
	return memory.WrittenID(e.Namespace, "memory:"+arguments), nil
}

// snapshot stores a decision that an agent reports, with what its outcome alone teaches.
func (k *Keeper) snapshot(ctx context.Context, e events.Event, w events.ItemWritten) (change, error) {
	var s memory.Snapshot
	if err := json.Unmarshal(w.Snapshot, &s); err != nil {
		return change{}, fmt.Errorf("%w: the snapshot cannot be read: %w", memory.ErrRejected, err)
	}
	if s.Decision.ToolSelected == "" && s.TaskContext.InputSummary == "" {
		return change{}, fmt.Errorf("%w: a snapshot needs decision.tool_selected or task_context.input_summary", memory.ErrRejected)
	}
	switch s.Outcome.Status {
	case events.StatusSuccess, events.StatusFailure, events.StatusPartial:
	default:
		return change{}, fmt.Errorf("%w: outcome.status is %q; it must be success, failure or partial", memory.ErrRejected, s.Outcome.Status)
	}
	id, err := snapshotID(e, s)
	if err != nil {
		return change{}, err
	}
	held, err := k.opts.Items.Snapshots(ctx, memory.ItemFilter{Namespace: e.Namespace, IDs: []string{id}})
	if err != nil {
		return change{}, fmt.Errorf("read snapshot %s: %w", id, err)
	}
	if len(held) > 0 {
		return change{snapshots: held, same: true, receipt: receiptOf(id, memory.LayerSnapshot, held[0].Judged)}, nil
	}
	out := reflectStored(s, e)
	out.SnapshotID = id
	out.Version = version(e, 0, false)
	return change{snapshots: []memory.Snapshot{out}, receipt: receiptOf(id, memory.LayerSnapshot, out.Judged)}, nil
}

// receiptOf words what became of an item that was written.
func receiptOf(id string, layer memory.Layer, j memory.Judged) Receipt {
	r := Receipt{ItemID: id, Layer: layer, Status: StatusStored}
	switch j.Status {
	case memory.ItemActive:
	case memory.ItemPendingReview:
		r.Status, r.Notice = string(j.Status), "It is stored and shown once a person has approved it: "+j.StatusReason+"."
	case memory.ItemQuarantined:
		r.Status, r.Notice = string(j.Status), "It is stored and never shown: "+j.StatusReason+"."
	case memory.ItemForgotten:
		r.Status, r.Notice = string(j.Status), "It was forgotten and stays so; restore "+id+" if it holds again."
	case memory.ItemSuperseded:
		r.Status, r.Notice = string(j.Status), "A later statement has replaced it; update that one if this holds again."
	case memory.ItemArchived, memory.ItemCandidate, memory.ItemRetired:
		r.Status, r.Notice = string(j.Status), "It was there before and is "+string(j.Status)+"."
	default:
		r.Status = string(j.Status)
	}
	return r
}

// reflectStored lets the evidence critic look at a decision of which only the outcome is known.
func reflectStored(s memory.Snapshot, e events.Event) memory.Snapshot {
	if len(s.Decision.Parameters) == 0 || string(s.Decision.Parameters) == "null" {
		s.Decision.Parameters = json.RawMessage("{}")
	}
	step := memory.Step{
		Step: 1, Tool: s.Decision.ToolSelected, Parameters: s.Decision.Parameters, Status: s.Outcome.Status, ErrorType: s.Outcome.ErrorType,
		ErrorMessage: s.Outcome.ErrorMessage, ExecutionTimeMS: s.Outcome.ExecutionTimeMS, Reasoning: s.Decision.ReasoningPath, EventID: e.ID, Time: e.Time,
	}
	task := memory.Task{
		Namespace: e.Namespace, TaskID: e.TaskID, AgentID: e.AgentID, TaskType: s.TaskContext.TaskType, Goal: s.TaskContext.InputSummary,
		AvailableTools: s.TaskContext.AvailableTools, Status: events.StatusUnknown, Certainty: memory.CertaintyInferred, Closed: true, Steps: []memory.Step{step},
	}
	a := memory.Analyse(task, nil, []events.Event{e}, memory.AnalysisOptions{})
	trust := memory.TrustAgentInferred
	out := memory.Snapshot{
		Timestamp: e.Time, TaskContext: s.TaskContext, Decision: s.Decision, Outcome: s.Outcome, Tags: s.Tags, Namespace: e.Namespace, AgentID: e.AgentID,
		SessionID: e.SessionID, UserID: e.UserID, TaskID: taskOf(e), GoalID: e.GoalID,
		Judged: memory.Judged{
			Evidence: []string{e.ID}, Trust: trust, Confidence: 0.4, ConfidenceReasons: []string{"+0.40 the agent reports it"}, Importance: 0.4,
			ImportanceReasons: []string{"+0.40 the agent asked for it to be kept"}, Status: memory.ItemActive,
		},
		ReflectedBy: writerKeeper,
	}
	if out.TaskContext.AvailableTools == nil {
		out.TaskContext.AvailableTools = []string{}
	}
	out.TaskContext.InputSummary = clean(out.TaskContext.InputSummary, maxInputSummary)
	out.Decision.ReasoningPath = clean(out.Decision.ReasoningPath, maxReasoning)
	out.Outcome.ErrorMessage = clean(out.Outcome.ErrorMessage, maxErrorMessage)
	out.Situation = memory.SnapshotText(out)
	for _, f := range a.Findings {
		j := word(f, a.Language)
		if memory.Gate(j.Lesson, evidenceOf(f)) != nil {
			continue
		}
		out.Reflection = &memory.Reflection{IsOptimal: j.IsOptimal, RootCause: j.RootCause, RootCauseClass: j.CauseClass, Alternative: j.Alternative, Lesson: j.Lesson}
		out.AppliesWhen, out.Situation = j.AppliesWhen, f.Situation
		out.Importance, out.ImportanceReasons = max(out.Importance, f.Importance), append(out.ImportanceReasons, f.ImportanceReasons...)
		break
	}
	if out.Reflection == nil && memory.EnvironmentFault(s.Outcome.ErrorType, s.Outcome.ErrorMessage) != memory.FaultNone {
		out.Reflection = &memory.Reflection{RootCauseClass: memory.CauseEnvironment}
	}
	if memory.InstructsAgent(s.TaskContext.InputSummary + "\n" + s.Decision.ReasoningPath + "\n" + s.Outcome.ErrorMessage + "\n" + string(s.Decision.Parameters)) {
		out.Status, out.StatusReason = memory.ItemQuarantined, "it tries to give the agent instructions"
	}
	return out
}

// memory stores a fact, preference, procedure or correction.
func (k *Keeper) memory(ctx context.Context, e events.Event, w events.ItemWritten) (change, error) {
	m := memory.Memory{
		Namespace: e.Namespace, Timestamp: e.Time, MemoryType: memory.MemoryType(cmp.Or(w.MemoryType, string(memory.MemoryFact))), Entity: strings.TrimSpace(w.Entity),
		Value: w.Value, Operation: memory.Operation(cmp.Or(w.Operation, string(memory.OperationAdd))), Content: strings.TrimSpace(w.Content), Entities: w.Entities,
		AgentID: e.AgentID, SessionID: e.SessionID, UserID: e.UserID, TaskID: taskOf(e), TaskType: w.TaskType, Tool: w.Tool, ErrorType: w.ErrorType, Tags: w.Tags,
		ValidFrom: e.Time, ExtractedBy: writerKeeper,
		Judged: memory.Judged{
			Evidence: []string{e.ID}, Trust: memory.TrustAgentInferred, Confidence: inferredConfidence, ConfidenceReasons: []string{"+0.60 an agent concluded it"},
			Importance: onPurpose, ImportanceReasons: []string{"+0.90 said on purpose"}, Status: memory.ItemActive,
		},
	}
	if !slices.Contains(memory.MemoryTypes(), m.MemoryType) {
		return change{}, fmt.Errorf("%w: memory_type is %q; it must be preference, procedure, fact or correction", memory.ErrRejected, w.MemoryType)
	}
	switch m.Operation {
	case memory.OperationAdd, memory.OperationUpdate, memory.OperationDelete:
	default:
		return change{}, fmt.Errorf("%w: operation is %q; it must be add, update or delete", memory.ErrRejected, w.Operation)
	}
	if w.ValidFrom != "" {
		from, err := events.ParseTime(w.ValidFrom)
		if err != nil {
			return change{}, fmt.Errorf("%w: valid_from: %w", memory.ErrRejected, err)
		}
		m.ValidFrom = from
	}
	if w.Importance != nil {
		m.Importance, m.ImportanceReasons = min(1, max(0, *w.Importance)), []string{"given by the writer"}
	}
	if m.Entity != "" && !slices.Contains(m.Entities, m.Entity) {
		m.Entities = append(slices.Clone(m.Entities), m.Entity)
	}
	m.Value = cmp.Or(m.Value, m.Content)
	k.trust(&m, w.StatedBy)
	id, err := memoryID(e, w)
	if err != nil {
		return change{}, err
	}
	m.MemoryID = id
	m.Version = version(e, 0, false)
	return k.placeMemory(ctx, e, m)
}

// trust sets what the trust gate says of a memory. Words of a user may hold links; those that an agent concluded may be
// copied out of a tool's output.
func (k *Keeper) trust(m *memory.Memory, statedBy string) {
	if statedBy == string(memory.TrustExternal) {
		m.Trust, m.Confidence, m.ConfidenceReasons = memory.TrustExternal, externalConfidence, []string{"+0.30 it rests on external text alone"}
	}
	if statedBy == events.RoleUser {
		m.Trust, m.Confidence, m.ConfidenceReasons = memory.TrustUserStated, statedConfidence, []string{"+0.80 a user said so"}
	}
	status, reason := memory.TrustGate(m.Trust, m.Content, m.Value)
	if status != memory.ItemActive {
		m.Status, m.StatusReason = status, reason
		return
	}
	if m.Trust == memory.TrustUserStated {
		return
	}
	content, found := memory.CleanExternal(m.Content)
	value, inValue := memory.CleanExternal(m.Value)
	found = append(found, inValue...)
	switch {
	case slices.Contains(found, memory.FoundPayment):
		m.Status, m.StatusReason = memory.ItemPendingReview, "it holds a payment target"
	case slices.Contains(found, memory.FoundLink):
		m.Status, m.StatusReason = memory.ItemPendingReview, "it holds a link"
	}
	if m.Trust == memory.TrustExternal {
		m.Content, m.Value = content, value
	}
}

// placeMemory orders a memory among those of its entity: an update or a deletion ends the ones before.
func (k *Keeper) placeMemory(ctx context.Context, e events.Event, m memory.Memory) (change, error) {
	held, err := k.opts.Items.Memories(ctx, memory.ItemFilter{Namespace: e.Namespace, IDs: []string{m.MemoryID}})
	if err != nil {
		return change{}, fmt.Errorf("read memory %s: %w", m.MemoryID, err)
	}
	if len(held) > 0 {
		old := held[0]
		// Said again, it is there. What was replaced since holds again only when a later update says so; what was forgotten
		// stays forgotten, since a client's late retry must not bring it back.
		again := old.Status == memory.ItemSuperseded && m.Operation == memory.OperationUpdate && e.Time.After(old.Timestamp) && old.Version.Writer != m.Version.Writer
		if !again {
			c := change{same: true, receipt: receiptOf(m.MemoryID, memory.LayerMemory, old.Judged)}
			if old.Status == memory.ItemActive {
				c.memories = held[:1]
			}
			return c, nil
		}
		m.Version.TaskRevision = old.Version.TaskRevision
	}
	c := change{receipt: receiptOf(m.MemoryID, memory.LayerMemory, m.Judged)}
	if m.Operation != memory.OperationAdd && m.Entity != "" && m.Status == memory.ItemActive {
		others, err := k.opts.Items.Memories(ctx, memory.ItemFilter{Namespace: e.Namespace, Entity: m.Entity})
		if err != nil {
			return change{}, fmt.Errorf("read what is known about %q: %w", m.Entity, err)
		}
		others = slices.DeleteFunc(others, func(o memory.Memory) bool {
			// What a page says does not end what a user or an agent said.
			return m.Trust == memory.TrustExternal && o.Trust != memory.TrustExternal
		})
		placed, ended := memory.History(m, others)
		m = placed
		for _, old := range ended {
			old.Version = version(e, old.Version.TaskRevision, old.Version.WriterKind == memory.WriterPerson)
			c.memories = append(c.memories, old)
			c.relations = append(c.relations, memory.Relation{
				Namespace: e.Namespace, FromID: m.MemoryID, Kind: memory.RelationSupersedes, ToID: old.MemoryID, Weight: 1,
				Reason: memory.ReasonLaterStatement, Writer: m.Version.Writer, Seq: 1,
			})
		}
		if m.Status == memory.ItemSuperseded {
			c.receipt.Notice = "It is stored as history: a later statement about the same holds."
		}
	}
	c.memories = append(c.memories, m)
	return c, nil
}

// changed forgets, restores or updates an item.
func (k *Keeper) changed(ctx context.Context, e events.Event) (change, error) {
	w, err := events.DecodeData[events.ItemChanged](e)
	if err != nil {
		return change{}, fmt.Errorf("%w: %w", memory.ErrRejected, err)
	}
	item, err := k.find(ctx, e.Namespace, w.ItemID)
	if err != nil {
		return change{}, err
	}
	if item.version().Writer == version(e, 0, false).Writer {
		return item.unchanged(w.Change), nil // The same event once more.
	}
	switch w.Change {
	case events.ChangeForget:
		return item.with(func(j *memory.Judged) {
			j.Status, j.StatusReason = memory.ItemForgotten, cmp.Or(w.Reason, "forgotten on request")
		}, version(e, memory.RevisionOutlasting, w.ByPerson || item.version().WriterKind == memory.WriterPerson), StatusForgotten), nil
	case events.ChangeRestore:
		if j := item.judged(); j.Status != memory.ItemForgotten && j.Status != memory.ItemArchived && j.Status != memory.ItemSuperseded {
			c := item.unchanged(w.Change)
			c.receipt.Notice = "It was not forgotten."
			return c, nil
		}
		c := item.with(func(j *memory.Judged) {
			j.Status, j.StatusReason = memory.ItemActive, ""
		}, version(e, memory.RevisionOutlasting, w.ByPerson || item.version().WriterKind == memory.WriterPerson), StatusRestored)
		for i := range c.memories {
			c.memories[i].ValidTo = nil
		}
		return c, nil
	case events.ChangeUpdate:
		return k.update(e, w, item)
	default:
		return change{}, fmt.Errorf("%w: change is %q; it must be %s, %s or %s", memory.ErrRejected, w.Change, events.ChangeForget, events.ChangeRestore, events.ChangeUpdate)
	}
}

// update gives a memory another value and keeps the old one.
func (k *Keeper) update(e events.Event, w events.ItemChanged, item found) (change, error) {
	if item.memory == nil {
		return change{}, fmt.Errorf("%w: only memories can be updated; forget this %s and store what is right", memory.ErrRejected, item.layer())
	}
	m := *item.memory
	if m.Status == memory.ItemForgotten {
		return change{}, fmt.Errorf("%w: memory %s is forgotten; restore it first", memory.ErrRejected, m.MemoryID)
	}
	if w.Content == "" && w.Value == "" && w.Importance == nil && w.Tags == nil {
		return change{}, fmt.Errorf("%w: nothing to change: give content, value, importance or tags", memory.ErrRejected)
	}
	if w.Value != "" && w.Value != m.Value || w.Content != "" && w.Content != m.Content {
		m.OldValue, m.Operation, m.ValidFrom = m.Value, memory.OperationUpdate, e.Time
		if w.Value == "" {
			m.Value = w.Content
		}
	}
	oldValue := m.OldValue
	m.Value, m.Content = cmp.Or(w.Value, m.Value), cmp.Or(w.Content, m.Content)
	if w.Content == "" && w.Value != "" && oldValue != "" {
		if replaced := strings.Replace(m.Content, oldValue, w.Value, 1); replaced != m.Content {
			m.Content = replaced
		} else {
			m.Content = cmp.Or(m.Entity, string(m.MemoryType)) + ": " + w.Value
		}
	}
	if w.Importance != nil {
		m.Importance, m.ImportanceReasons = min(1, max(0, *w.Importance)), []string{"given by the writer"}
	}
	if w.Tags != nil {
		m.Tags = w.Tags
	}
	if !slices.Contains(m.Evidence, e.ID) {
		m.Evidence = append(slices.Clone(m.Evidence), e.ID)
	}
	person := w.ByPerson || m.Version.WriterKind == memory.WriterPerson
	if status, reason := memory.TrustGate(m.Trust, m.Content, m.Value); status != memory.ItemActive && !w.ByPerson {
		m.Status, m.StatusReason = status, reason
	}
	m.Version = version(e, max(m.Version.TaskRevision, memory.RevisionOutlasting), person)
	r := receiptOf(m.MemoryID, memory.LayerMemory, m.Judged)
	if r.Status == StatusStored {
		r.Status = StatusUpdated
	}
	return change{memories: []memory.Memory{m}, receipt: r}, nil
}

// feedback lets an opinion count. Feedback on a task or step is an event like any other: the reflection of the task sees
// it.
func (k *Keeper) feedback(ctx context.Context, e events.Event) (change, error) {
	w, err := events.DecodeData[events.Feedback](e)
	if err != nil {
		return change{}, fmt.Errorf("%w: %w", memory.ErrRejected, err)
	}
	item, err := k.find(ctx, e.Namespace, w.Target)
	if errors.Is(err, memory.ErrNotFound) {
		if w.Target != "" && taskOf(e) == "" {
			return change{}, err
		}
		return change{receipt: Receipt{Status: StatusRecorded}}, nil
	}
	if err != nil {
		return change{}, err
	}
	c := item.unchanged("")
	c.receipt.Status = StatusRecorded
	o := opinionOf(w)
	if o == "" || slices.Contains(item.judged().Evidence, e.ID) {
		return c, nil
	}
	return item.with(func(j *memory.Judged) { *j = memory.WithOpinion(*j, o, e.ID) }, version(e, item.version().TaskRevision, item.version().WriterKind == memory.WriterPerson), StatusRecorded), nil
}

// opinionOf reads feedback: helpful or not for a rating, and what a user approves, rejects or corrects.
func opinionOf(w events.Feedback) memory.Opinion {
	switch w.Kind {
	case events.FeedbackApproval:
		return memory.OpinionApproved
	case events.FeedbackRejection, events.FeedbackCorrection:
		return memory.OpinionCorrected
	case events.FeedbackRating:
		switch value := strings.ToLower(strings.TrimSpace(events.Text(w.Value))); value {
		case "true", "helpful", "good", "up", "1":
			return memory.OpinionHelpful
		case "false", "unhelpful", "bad", "down", "0", "-1":
			return memory.OpinionUnhelpful
		}
	}
	return ""
}

// found is the current version of one item; one of the pointers is set.
type found struct {
	snapshot *memory.Snapshot
	memory   *memory.Memory
	rule     *memory.Rule
}

// find reads the item of an id, of whatever layer.
func (k *Keeper) find(ctx context.Context, namespace, id string) (found, error) {
	if id == "" {
		return found{}, fmt.Errorf("%w: no item named", memory.ErrNotFound)
	}
	filter := memory.ItemFilter{Namespace: namespace, IDs: []string{id}}
	memories, err := k.opts.Items.Memories(ctx, filter)
	if err != nil {
		return found{}, fmt.Errorf("read item %s: %w", id, err)
	}
	if len(memories) > 0 {
		return found{memory: &memories[0]}, nil
	}
	snapshots, err := k.opts.Items.Snapshots(ctx, filter)
	if err != nil {
		return found{}, fmt.Errorf("read item %s: %w", id, err)
	}
	if len(snapshots) > 0 {
		return found{snapshot: &snapshots[0]}, nil
	}
	rules, err := k.opts.Items.Rules(ctx, filter)
	if err != nil {
		return found{}, fmt.Errorf("read item %s: %w", id, err)
	}
	if len(rules) > 0 {
		return found{rule: &rules[0]}, nil
	}
	return found{}, fmt.Errorf("%w: there is no item %s in namespace %s", memory.ErrNotFound, id, namespace)
}

func (f found) layer() memory.Layer {
	switch {
	case f.memory != nil:
		return memory.LayerMemory
	case f.snapshot != nil:
		return memory.LayerSnapshot
	default:
		return memory.LayerRule
	}
}

func (f found) id() string {
	switch {
	case f.memory != nil:
		return f.memory.MemoryID
	case f.snapshot != nil:
		return f.snapshot.SnapshotID
	default:
		return f.rule.RuleID
	}
}

func (f found) judged() memory.Judged {
	switch {
	case f.memory != nil:
		return f.memory.Judged
	case f.snapshot != nil:
		return f.snapshot.Judged
	default:
		return f.rule.Judged
	}
}

func (f found) version() memory.Version {
	switch {
	case f.memory != nil:
		return f.memory.Version
	case f.snapshot != nil:
		return f.snapshot.Version
	default:
		return f.rule.Version
	}
}

// with makes the next version of an item.
func (f found) with(edit func(*memory.Judged), v memory.Version, status string) change {
	c := change{receipt: Receipt{ItemID: f.id(), Layer: f.layer(), Status: status}}
	switch {
	case f.memory != nil:
		m := *f.memory
		edit(&m.Judged)
		m.Version = v
		c.memories = []memory.Memory{m}
	case f.snapshot != nil:
		s := *f.snapshot
		edit(&s.Judged)
		s.Version = v
		c.snapshots = []memory.Snapshot{s}
	default:
		r := *f.rule
		edit(&r.Judged)
		r.Version = v
		c.rules = []memory.Rule{r}
	}
	return c
}

// unchanged answers for an item that stays as it is; what it holds is only indexed again.
func (f found) unchanged(what string) change {
	c := change{same: true, receipt: Receipt{ItemID: f.id(), Layer: f.layer(), Status: map[string]string{
		events.ChangeForget: StatusForgotten, events.ChangeRestore: StatusRestored, events.ChangeUpdate: StatusUpdated,
	}[what]}}
	if f.memory != nil {
		c.memories = []memory.Memory{*f.memory}
	}
	if f.snapshot != nil {
		c.snapshots = []memory.Snapshot{*f.snapshot}
	}
	return c
}

// canonicalJSON gives a value one form: members by name, no blanks.
func canonicalJSON(v any) (string, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("encode: %w", err)
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var generic any
	if err := dec.Decode(&generic); err != nil {
		return "", fmt.Errorf("decode: %w", err)
	}
	out, err := json.Marshal(generic)
	if err != nil {
		return "", fmt.Errorf("encode: %w", err)
	}
	return string(out), nil
}
