package consolidate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/bus"
	"github.com/hindsight-memory/hindsight/internal/engine/enginetest"
	"github.com/hindsight-memory/hindsight/internal/memory"
	"github.com/hindsight-memory/hindsight/internal/store"
)

var (
	_ Record = (*store.ClickHouse)(nil)
	_ Lease  = (*bus.Lease)(nil)
)

// base is when what the tests store has happened.
var base = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

func newRecord(t *testing.T) *store.ClickHouse {
	t.Helper()
	url := enginetest.ClickHouse(t)
	c, err := store.Open(store.Options{URL: url, Database: enginetest.Database(t, url)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := c.Migrate(t.Context(), store.MigrateOptions{}); err != nil {
		t.Fatal(err)
	}
	return c
}

// heldLease is a lease that nobody else wants; its data outlives its holders, as that of a key does.
type heldLease struct {
	mu    sync.Mutex
	fence uint64
	data  json.RawMessage
	lost  error
}

func (l *heldLease) Fence() uint64 { return l.fence }

func (l *heldLease) Data() json.RawMessage {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.data
}

func (l *heldLease) Commit(ctx context.Context, data json.RawMessage) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := errors.Join(ctx.Err(), l.lost); err != nil {
		return err
	}
	l.data = data
	return nil
}

func (l *heldLease) lead(ctx context.Context, run func(context.Context, Lease) error) error {
	l.fence++
	return run(ctx, l)
}

func newScheduler(t *testing.T, record Record, lease *heldLease, change func(*Options)) *Scheduler {
	t.Helper()
	o := Options{
		Record: record, Lead: lease.lead, Holder: "test", Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), Registerer: prometheus.NewRegistry(),
	}
	if change != nil {
		change(&o)
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// meaning is that of a model with these thresholds.
func meaning(model string, related, duplicate float64) func(context.Context) (string, memory.Thresholds, error) {
	return func(context.Context) (string, memory.Thresholds, error) {
		return model, memory.Thresholds{Related: related, Duplicate: duplicate}, nil
	}
}

func runJob(t *testing.T, s *Scheduler, job string) Report {
	t.Helper()
	report, err := s.RunJob(t.Context(), job)
	if err != nil {
		t.Fatalf("%s: %v", job, err)
	}
	return report
}

// lesson is a snapshot of a failed call; n tells tasks, goals and agents apart.
func lesson(n int, tool, message, text, when string) memory.Snapshot {
	at := base.Add(time.Duration(n) * time.Minute)
	task := fmt.Sprintf("task-%d", n)
	return memory.Snapshot{
		SnapshotID: memory.HashID("test", tool, message, text, when, task), Timestamp: at, Namespace: namespace, TaskID: task,
		AgentID: fmt.Sprintf("agent-%d", n), GoalID: fmt.Sprintf("goal-%d", n), SessionID: task, Step: 1, AppliesWhen: when,
		TaskContext: memory.TaskContext{TaskType: "shop", InputSummary: "pay for it"},
		Decision:    memory.Decision{ToolSelected: tool, Parameters: json.RawMessage(fmt.Sprintf(`{"amount":%d}`, n))},
		Outcome:     memory.Outcome{Status: events.StatusFailure, ErrorMessage: message},
		Reflection:  &memory.Reflection{Lesson: text, RootCauseClass: memory.CauseParameter},
		Judged:      memory.Judged{Evidence: []string{task + "-1"}, Trust: memory.TrustAgentInferred, Confidence: 0.5, Importance: 0.5, Status: memory.ItemActive},
		Version:     memory.Version{TaskRevision: 9, Writer: "reflect", WriterKind: memory.WriterMachine, Seq: 1},
	}
}

func insertSnapshots(t *testing.T, record Record, snapshots ...memory.Snapshot) {
	t.Helper()
	if err := record.InsertSnapshots(t.Context(), snapshots); err != nil {
		t.Fatal(err)
	}
}

func snapshot(t *testing.T, record Record, id string) memory.Snapshot {
	t.Helper()
	found, err := record.Snapshots(t.Context(), memory.ItemFilter{Namespace: namespace, IDs: []string{id}})
	if err != nil || len(found) != 1 {
		t.Fatalf("snapshot %s: %d found, %v", id, len(found), err)
	}
	return found[0]
}

// links gives who is merged into whom.
func links(t *testing.T, record Record, ids ...string) map[string]string {
	t.Helper()
	relations, err := record.Relations(t.Context(), namespace, ids)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, r := range relations {
		if r.Kind == memory.RelationMergedInto && !r.Removed {
			out[r.FromID] = r.ToID
		}
	}
	return out
}

// visible is all that anybody sees of the items, as text.
func visible(t *testing.T, record Record) string {
	t.Helper()
	filter := memory.ItemFilter{Namespace: namespace}
	snapshots, err := record.Snapshots(t.Context(), filter)
	if err != nil {
		t.Fatal(err)
	}
	memories, err := record.Memories(t.Context(), filter)
	if err != nil {
		t.Fatal(err)
	}
	rules, err := record.Rules(t.Context(), filter)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, s := range snapshots {
		ids = append(ids, s.SnapshotID)
	}
	for _, m := range memories {
		ids = append(ids, m.MemoryID)
	}
	var ruleIDs []string
	for _, r := range rules {
		ruleIDs = append(ruleIDs, r.RuleID)
	}
	relations, err := record.Relations(t.Context(), namespace, slices.Concat(ids, ruleIDs))
	if err != nil {
		t.Fatal(err)
	}
	votes, err := record.Votes(t.Context(), namespace, ruleIDs)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.MarshalIndent(map[string]any{"snapshots": snapshots, "memories": memories, "rules": rules, "relations": relations, "votes": votes}, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

const doesNotAddUp = "Error: payment amount does not add up, total price is 305, but paid 255"

func TestMergeLinksWhatSaysTheSame(t *testing.T) {
	t.Parallel()
	record := newRecord(t)
	const text = "Make the amounts add up to the total price before calling pay."
	var same []memory.Snapshot
	for n := range 4 {
		same = append(same, lesson(n, "pay", strings.ReplaceAll(doesNotAddUp, "255", strconv.Itoa(250+n)), text, "several payment methods"))
	}
	others := []memory.Snapshot{
		lesson(10, "book", doesNotAddUp, text, "several payment methods"),                                       // another tool
		lesson(11, "pay", "Error: not enough balance", text, "several payment methods"),                         // another error
		lesson(12, "pay", doesNotAddUp, text, "one payment method"),                                             // another condition
		lesson(13, "pay", doesNotAddUp, "Ask which card to use before calling pay.", "several payment methods"), // another lesson
	}
	insertSnapshots(t, record, append(slices.Clone(others), same...)...)
	s := newScheduler(t, record, &heldLease{}, nil)
	report := runJob(t, s, JobMerge)
	if len(report.Runs) != 1 || report.Counts["linked"] != 3 || report.Counts["canonicals"] != 1 {
		t.Fatalf("report %+v", report)
	}
	var ids []string
	for _, x := range append(others, same...) {
		ids = append(ids, x.SnapshotID)
	}
	got := links(t, record, ids...)
	for _, x := range same[1:] {
		if got[x.SnapshotID] != same[0].SnapshotID {
			t.Errorf("%s is merged into %q, want the earliest", x.TaskID, got[x.SnapshotID])
		}
		if m := snapshot(t, record, x.SnapshotID); m.Status != memory.ItemActive || m.Confidence != 0.5 {
			t.Errorf("member %s: %s, confidence %v: it must stay as it is", x.TaskID, m.Status, m.Confidence)
		}
	}
	if len(got) != 3 {
		t.Errorf("links %v: what differs in tool, error, condition or lesson is merged", got)
	}
	canonical := snapshot(t, record, same[0].SnapshotID)
	if canonical.Confidence <= 0.6 || canonical.Confidence > 0.9 || !slices.Contains(canonical.ConfidenceReasons, "seen by 4 independent voices; 0.5 without them") {
		t.Errorf("canonical: confidence %v because %q", canonical.Confidence, canonical.ConfidenceReasons)
	}
	if canonical.Version.TaskRevision != 9 {
		t.Errorf("canonical is of task revision %d, want that of the version before", canonical.Version.TaskRevision)
	}
}

// TestHundredCycles: consolidating again and again changes nothing.
func TestHundredCycles(t *testing.T) {
	t.Parallel()
	record := newRecord(t)
	for n := range 3 {
		insertSnapshots(t, record, lesson(n, "pay", doesNotAddUp, "Make the amounts add up.", "always"))
	}
	insertSnapshots(t, record, lesson(5, "pay", doesNotAddUp, "Do not make the amounts add up.", "always"))
	storeTasks(t, record, shopTasks(12)...)
	s := newScheduler(t, record, &heldLease{}, nil)
	for _, job := range Jobs() {
		runJob(t, s, job)
	}
	first := visible(t, record)
	if !strings.Contains(first, `"kind": "call"`) {
		t.Fatalf("there is no rule to keep: %s", first)
	}
	for cycle := range 100 {
		for _, job := range Jobs() {
			if job != JobMerge && cycle%20 != 0 {
				continue // The daily ones run less often than the one of every minute.
			}
			if report := runJob(t, s, job); len(report.Runs) > 0 {
				t.Fatalf("%s wrote something again: %+v", job, report)
			}
		}
	}
	again := newScheduler(t, record, &heldLease{}, nil) // another process, that remembers nothing
	for _, job := range Jobs() {
		if report := runJob(t, again, job); len(report.Runs) > 0 {
			t.Fatalf("%s of another process wrote something again: %+v", job, report)
		}
	}
	if now := visible(t, record); now != first {
		t.Errorf("a hundred cycles changed what is seen:\n%s\n---\n%s", first, now)
	}
}

func TestMergeByVectors(t *testing.T) {
	t.Parallel()
	record := newRecord(t)
	snapshots := []memory.Snapshot{
		lesson(0, "pay", doesNotAddUp, "Make the amounts of the payment methods add up to the total price.", "several payment methods"),
		lesson(1, "pay", doesNotAddUp, "The payment methods together must give the total price.", "several payment methods"),
		lesson(2, "pay", doesNotAddUp, "The payment methods together must give the total price of 3 tickets.", "several payment methods"),
		lesson(3, "pay", doesNotAddUp, "Keep the receipts of all payments.", "several payment methods"),
	}
	insertSnapshots(t, record, snapshots...)
	var vectors []memory.ItemVector
	for i, v := range [][]float32{{1, 0}, {0.995, 0.0999}, {0.995, 0.0999}, {0.6, 0.8}} {
		vectors = append(vectors, memory.ItemVector{
			Namespace: namespace, Model: "test/2", ItemID: snapshots[i].SnapshotID, TextHash: memory.TextHash(memory.SnapshotText(snapshots[i])), Layer: memory.LayerSnapshot, Vector: v,
		})
	}
	if err := record.InsertVectors(t.Context(), vectors); err != nil {
		t.Fatal(err)
	}
	s := newScheduler(t, record, &heldLease{}, func(o *Options) {
		o.Meaning = meaning("test/2", 0.9, 0.95)
	})
	runJob(t, s, JobMerge)
	got := links(t, record, snapshots[0].SnapshotID, snapshots[1].SnapshotID, snapshots[2].SnapshotID, snapshots[3].SnapshotID)
	if len(got) != 1 || got[snapshots[1].SnapshotID] != snapshots[0].SnapshotID {
		t.Errorf("links %v, want only the second merged into the first: the third names a number, the fourth is about something else", got)
	}
}

// TestTakenApartStaysApart: a link that a person removed is not made again, and a person's version is not touched.
func TestTakenApartStaysApart(t *testing.T) {
	t.Parallel()
	record := newRecord(t)
	a, b := lesson(0, "pay", doesNotAddUp, "Make the amounts add up.", ""), lesson(1, "pay", doesNotAddUp, "Make the amounts add up.", "")
	insertSnapshots(t, record, a, b)
	s := newScheduler(t, record, &heldLease{}, nil)
	runJob(t, s, JobMerge)
	if got := links(t, record, b.SnapshotID); got[b.SnapshotID] != a.SnapshotID {
		t.Fatalf("links %v", got)
	}
	if err := record.InsertRelations(t.Context(), []memory.Relation{{
		Namespace: namespace, FromID: b.SnapshotID, Kind: memory.RelationMergedInto, ToID: a.SnapshotID, Removed: true, Writer: "a person", Seq: 1,
	}}); err != nil {
		t.Fatal(err)
	}
	runJob(t, s, JobMerge)
	if got := links(t, record, b.SnapshotID); len(got) > 0 {
		t.Errorf("links %v: what a person took apart was merged again", got)
	}
}

func TestContradictingLessons(t *testing.T) {
	t.Parallel()
	record := newRecord(t)
	older := lesson(0, "pay", doesNotAddUp, "Call check before calling pay.", "")
	newer := lesson(1, "pay", doesNotAddUp, "Do not call check before calling pay.", "")
	insertSnapshots(t, record, older, newer)
	s := newScheduler(t, record, &heldLease{}, func(o *Options) {
		o.Meaning = meaning("test/2", 0.9, 0.95)
	})
	if err := record.InsertVectors(t.Context(), []memory.ItemVector{
		{Namespace: namespace, Model: "test/2", ItemID: older.SnapshotID, TextHash: memory.TextHash(memory.SnapshotText(older)), Layer: memory.LayerSnapshot, Vector: []float32{1, 0}},
		{Namespace: namespace, Model: "test/2", ItemID: newer.SnapshotID, TextHash: memory.TextHash(memory.SnapshotText(newer)), Layer: memory.LayerSnapshot, Vector: []float32{1, 0}},
	}); err != nil {
		t.Fatal(err)
	}
	report := runJob(t, s, JobMerge)
	if report.Counts["contradictions"] != 1 || report.Counts["linked"] != 0 {
		t.Errorf("counts %v", report.Counts)
	}
	if got := snapshot(t, record, older.SnapshotID); got.Status != memory.ItemSuperseded {
		t.Errorf("the older is %s", got.Status)
	}
	if got := snapshot(t, record, newer.SnapshotID); got.Status != memory.ItemActive {
		t.Errorf("the newer is %s", got.Status)
	}
}

func fact(n int, value string, op memory.Operation, old string) memory.Memory {
	at := base.Add(time.Duration(n) * time.Minute)
	return memory.Memory{
		MemoryID: memory.HashID("fact", strconv.Itoa(n), value), Namespace: namespace, Timestamp: at, MemoryType: memory.MemoryFact, Entity: "host db1",
		Value: value, OldValue: old, Operation: op, Content: "db1 listens on " + value, SessionID: fmt.Sprintf("s-%d", n), UserID: "u", ValidFrom: at,
		Judged:  memory.Judged{Evidence: []string{"e"}, Trust: memory.TrustUserStated, Confidence: 0.6, Importance: 0.5, Status: memory.ItemActive},
		Version: memory.Version{TaskRevision: 3, Writer: "reflect", WriterKind: memory.WriterMachine, Seq: 1},
	}
}

func TestMergeMemories(t *testing.T) {
	t.Parallel()
	record := newRecord(t)
	first, second := fact(0, "port 5432", memory.OperationAdd, ""), fact(1, "Port 5432", memory.OperationAdd, "")
	other := fact(2, "40 cores", memory.OperationAdd, "")
	replacing := fact(3, "port 6432", memory.OperationUpdate, "port 5432")
	all := []memory.Memory{first, second, other}
	if err := record.InsertMemories(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	s := newScheduler(t, record, &heldLease{}, nil)
	runJob(t, s, JobMerge)
	if got := links(t, record, first.MemoryID, second.MemoryID, other.MemoryID); len(got) != 1 || got[second.MemoryID] != first.MemoryID {
		t.Errorf("links %v, want the second merged into the first", got)
	}
	if relations, err := record.Relations(t.Context(), namespace, []string{second.MemoryID}); err != nil || len(relations) != 1 || !strings.Contains(relations[0].Reason, "value") {
		t.Errorf("two memories are merged for the reason that %+v, %v", relations, err)
	}
	read := func(id string) memory.Memory {
		found, err := record.Memories(t.Context(), memory.ItemFilter{Namespace: namespace, IDs: []string{id}})
		if err != nil || len(found) != 1 {
			t.Fatalf("memory %s: %d found, %v", id, len(found), err)
		}
		return found[0]
	}
	if m := read(first.MemoryID); m.Confidence <= 0.6 || m.Confidence > 0.9 {
		t.Errorf("said twice: confidence %v", m.Confidence)
	}
	if err := record.InsertMemories(t.Context(), []memory.Memory{replacing}); err != nil {
		t.Fatal(err)
	}
	runJob(t, s, JobMerge)
	for _, id := range []string{first.MemoryID, second.MemoryID} {
		if m := read(id); m.Status != memory.ItemSuperseded || m.ValidTo == nil || !m.ValidTo.Equal(replacing.ValidFrom) {
			t.Errorf("the replaced value: %s, valid to %v", m.Status, m.ValidTo)
		}
	}
	for _, id := range []string{other.MemoryID, replacing.MemoryID} {
		if m := read(id); m.Status != memory.ItemActive || m.ValidTo != nil {
			t.Errorf("%s: %s, valid to %v", m.Value, m.Status, m.ValidTo)
		}
	}
}

// TestWhatIsGoneBringsNothingBack: that a value has been put away or forgotten does not make the one before it hold again.
func TestWhatIsGoneBringsNothingBack(t *testing.T) {
	t.Parallel()
	for _, status := range []memory.ItemStatus{memory.ItemArchived, memory.ItemForgotten} {
		record := newRecord(t)
		older, newer := fact(0, "port 5432", memory.OperationAdd, ""), fact(1, "port 6432", memory.OperationUpdate, "port 5432")
		if err := record.InsertMemories(t.Context(), []memory.Memory{older, newer}); err != nil {
			t.Fatal(err)
		}
		s := newScheduler(t, record, &heldLease{}, nil)
		runJob(t, s, JobMerge)
		gone := newer
		gone.Status, gone.StatusReason, gone.Version.Seq = status, "nobody needs it", 2
		if err := record.InsertMemories(t.Context(), []memory.Memory{gone}); err != nil {
			t.Fatal(err)
		}
		runJob(t, s, JobMerge)
		found, err := record.Memories(t.Context(), memory.ItemFilter{Namespace: namespace, IDs: []string{older.MemoryID, newer.MemoryID}})
		if err != nil || len(found) != 2 {
			t.Fatalf("%d found, %v", len(found), err)
		}
		if found[0].Status != memory.ItemSuperseded || found[0].ValidTo == nil || !found[0].ValidTo.Equal(newer.ValidFrom) || found[1].Status != status {
			t.Errorf("%s: the older value is %s until %v, the newer %s", status, found[0].Status, found[0].ValidTo, found[1].Status)
		}
	}
}

func TestSweep(t *testing.T) {
	t.Parallel()
	record := newRecord(t)
	ended, weak, weakLesson, strong := fact(0, "a", memory.OperationAdd, ""), fact(1, "b", memory.OperationAdd, ""), lesson(0, "pay", "x", "Say x.", ""), lesson(1, "pay", "x", "Say y.", "")
	until := base.Add(time.Hour)
	ended.ValidTo, weak.Confidence, weakLesson.Confidence = &until, 0.2, 0.2
	if err := record.InsertMemories(t.Context(), []memory.Memory{ended, weak}); err != nil {
		t.Fatal(err)
	}
	insertSnapshots(t, record, weakLesson, strong)
	now := time.Now()
	s := newScheduler(t, record, &heldLease{}, func(o *Options) { o.Clock = func() time.Time { now = now.Add(time.Second); return now } })
	runJob(t, s, JobSweep)
	statuses := func() string {
		memories, err := record.Memories(t.Context(), memory.ItemFilter{Namespace: namespace, IDs: []string{ended.MemoryID, weak.MemoryID}})
		if err != nil {
			t.Fatal(err)
		}
		out := []string{}
		for _, m := range memories {
			out = append(out, m.Value+" "+string(m.Status))
		}
		slices.Sort(out)
		return strings.Join(append(out, "weak lesson "+string(snapshot(t, record, weakLesson.SnapshotID).Status), "lesson "+string(snapshot(t, record, strong.SnapshotID).Status)), ", ")
	}
	if got := statuses(); got != "a superseded, b active, weak lesson active, lesson active" {
		t.Errorf("young: %s", got)
	}
	now = now.Add(91 * 24 * time.Hour)
	runJob(t, s, JobSweep)
	if got := statuses(); got != "a superseded, b archived, weak lesson archived, lesson active" {
		t.Errorf("after 91 days: %s", got)
	}
}

// --- rules ---

// shopTask is a task in which look comes before buy, or does not.
func shopTask(n int, agent, goal string, looked, fails bool, confirmed string) []events.Event {
	id := fmt.Sprintf("shop-%s-%d", agent, n)
	at := base.Add(time.Duration(n) * time.Minute)
	seq := 0
	event := func(kind events.Kind, data any) events.Event {
		raw, err := json.Marshal(data)
		if err != nil {
			panic(err)
		}
		seq++
		return events.Event{
			ID: fmt.Sprintf("%s-%d", id, seq), Namespace: namespace, AgentID: agent, SessionID: id, TaskID: id, GoalID: goal,
			Time: at.Add(time.Duration(seq) * time.Second), Kind: kind, Data: raw,
		}
	}
	out := []events.Event{event(events.KindTaskStarted, map[string]any{"task_type": "shop", "goal": "buy it"})}
	if looked {
		out = append(out, event(events.KindStepFinished, map[string]any{"tool": "look", "parameters": map[string]any{"item": fmt.Sprint("i", n)}, "status": "success"}))
	}
	buy := map[string]any{"tool": "buy", "parameters": map[string]any{"item": fmt.Sprint("i", n)}, "status": "success"}
	status := "success"
	if fails {
		buy["status"], buy["error_message"], status = "failure", fmt.Sprintf("Error: item i%d not found", n), "failure"
	}
	return append(out, event(events.KindStepFinished, buy), event(events.KindTaskFinished, map[string]any{"status": status, "confirmed_by": confirmed}))
}

// shopTasks are n tasks in which buying fails without looking before, and as many in which it works.
func shopTasks(n int) [][]events.Event {
	var out [][]events.Event
	for i := range n {
		out = append(out,
			shopTask(2*i, fmt.Sprintf("agent%d", i%3), fmt.Sprintf("goal%d", i), false, true, events.ConfirmedBySystem),
			shopTask(2*i+1, fmt.Sprintf("agent%d", i%3), fmt.Sprintf("goal%d", i), true, false, events.ConfirmedBySystem))
	}
	return out
}

func storeTasks(t *testing.T, record *store.ClickHouse, tasks ...[]events.Event) {
	t.Helper()
	var states []memory.Task
	var all []events.Event
	for _, evs := range tasks {
		all = append(all, evs...)
		states = append(states, memory.BuildTask(evs, true))
	}
	if err := record.InsertEvents(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	if err := record.InsertTasks(t.Context(), states); err != nil {
		t.Fatal(err)
	}
}

func rules(t *testing.T, record Record, statuses ...memory.ItemStatus) []memory.Rule {
	t.Helper()
	out, err := record.Rules(t.Context(), memory.ItemFilter{Namespace: namespace, Statuses: statuses})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestInduce(t *testing.T) {
	t.Parallel()
	record := newRecord(t)
	storeTasks(t, record, shopTasks(8)...)
	s := newScheduler(t, record, &heldLease{}, nil)
	report := runJob(t, s, JobInduce)
	t.Logf("counts %v", report.Counts)
	var call *memory.Rule
	for _, r := range rules(t, record, memory.ItemActive) {
		t.Logf("%s %s support %d refute %d lift %.2f low %.2f: %s / %s / %s / %s", r.Kind, r.Predicate, r.Support, r.Refute, r.Lift, r.LiftLow, r.Rule, r.Condition, r.Action, r.DoesNotApplyWhen)
		if r.Kind == memory.RuleCall {
			call = &r
		}
	}
	if call == nil {
		t.Fatal("no rule about calls")
	}
	if call.Tool != "buy" || call.Support != 8 || call.Refute != 0 || call.LiftLow <= 1 || call.Goals != 8 || call.Voices != 8 || len(call.Evidence) != 8 ||
		!strings.Contains(call.Action, "look") {
		t.Errorf("rule %+v", call)
	}
	if got := memory.RuleApplies(call.Predicate, "buy", json.RawMessage(`{"item":"x"}`), []memory.Step{}); got != memory.AppliesYes {
		t.Errorf("without looking: %s", got)
	}
	if got := memory.RuleApplies(call.Predicate, "buy", json.RawMessage(`{"item":"x"}`), []memory.Step{{Tool: "look", Status: events.StatusSuccess}}); got != memory.AppliesNo {
		t.Errorf("after looking: %s", got)
	}
	votes, err := record.Votes(t.Context(), namespace, []string{call.RuleID})
	if err != nil || len(votes) != 8 {
		t.Errorf("%d votes, %v; want one of each task that matches", len(votes), err)
	}
}

// TestPoison: what one agent repeats makes no rule, however often, and neither does an outage.
func TestPoison(t *testing.T) {
	t.Parallel()
	record := newRecord(t)
	var tasks [][]events.Event
	for i := range 20 {
		// Twenty identical failures of one agent, each said to be another goal and confirmed.
		copied := shopTask(i, "liar", fmt.Sprintf("goal%d", i), false, true, events.ConfirmedBySystem)
		for j := range copied {
			copied[j].Data = json.RawMessage(strings.ReplaceAll(string(copied[j].Data), fmt.Sprintf("i%d", i), "i1"))
		}
		tasks = append(tasks, copied)
		// Twenty failures that differ and that only the agent itself reports.
		tasks = append(tasks, shopTask(100+i, "loud", fmt.Sprintf("goal%d", i), false, true, events.ConfirmedByAgent))
		tasks = append(tasks, shopTask(200+i, "honest", fmt.Sprintf("goal%d", i), true, false, events.ConfirmedBySystem))
	}
	for _, evs := range tasks {
		if evs[0].AgentID == "loud" {
			for j := range evs {
				evs[j].Data = json.RawMessage(strings.ReplaceAll(string(evs[j].Data), "not found", "sold out"))
			}
		}
	}
	for i := range 20 { // An outage that each agent meets, in tasks that fail.
		evs := shopTask(300+i, fmt.Sprintf("agent%d", i), fmt.Sprintf("goal%d", i), false, true, events.ConfirmedBySystem)
		for j := range evs {
			evs[j].Data = json.RawMessage(strings.ReplaceAll(string(evs[j].Data), fmt.Sprintf("Error: item i%d not found", 300+i), "Error: 503 service unavailable"))
		}
		tasks = append(tasks, evs)
	}
	storeTasks(t, record, tasks...)
	s := newScheduler(t, record, &heldLease{}, nil)
	runJob(t, s, JobInduce)
	for _, r := range rules(t, record) {
		if strings.Contains(r.ErrorSignature, "unavailable") {
			t.Errorf("an outage became a %s: %s", r.Status, r.Rule)
		}
		if r.Status == memory.ItemActive && r.ErrorSignature != "" {
			t.Errorf("one agent made a rule: %s (voices %d, support %d)", r.Rule, r.Voices, r.Support)
		}
	}
}

// TestRulesRetire: a rule whose votes turn retires; a pinned one stays; tasks that were shown a rule do not count.
func TestRulesRetire(t *testing.T) {
	t.Parallel()
	record := newRecord(t)
	storeTasks(t, record, shopTasks(8)...)
	s := newScheduler(t, record, &heldLease{}, nil)
	runJob(t, s, JobInduce)
	i := slices.IndexFunc(rules(t, record, memory.ItemActive), func(r memory.Rule) bool { return r.Kind == memory.RuleCall })
	if i < 0 {
		t.Fatal("no rule about calls")
	}
	rule := rules(t, record, memory.ItemActive)[i]

	// Tasks that were shown the rule and then succeeded without looking: nothing is refuted by them.
	var turned [][]events.Event
	for n := range 40 {
		evs := shopTask(1000+n, fmt.Sprintf("agent%d", n%3), fmt.Sprintf("goal%d", n), false, false, events.ConfirmedBySystem)
		recall := evs[0]
		recall.ID, recall.Kind, recall.Data = recall.ID+"-recall", events.KindRecallServed, json.RawMessage(`{"items":[{"id":"`+rule.RuleID+`"}]}`)
		turned = append(turned, append(slices.Clone(evs), recall))
	}
	storeTasks(t, record, turned...)
	runJob(t, s, JobInduce)
	after := ruleOf(t, record, rule.RuleID)
	if after.Status != memory.ItemActive || after.Support != 8 || after.Refute != 0 {
		t.Errorf("tasks that were shown the rule count: %s, support %d, refute %d", after.Status, after.Support, after.Refute)
	}
	votes, err := record.Votes(t.Context(), namespace, []string{rule.RuleID})
	if err != nil || len(votes) != 48 || !slices.ContainsFunc(votes, func(v memory.Vote) bool { return v.Shown && !v.Support }) {
		t.Errorf("%d votes, %v; want those of tasks that were shown the rule, marked", len(votes), err)
	}

	// The same without having been shown it: it no longer holds.
	turned = nil
	for n := range 400 {
		turned = append(turned, shopTask(2000+n, fmt.Sprintf("agent%d", n%3), fmt.Sprintf("goal%d", n), false, n%8 == 0, events.ConfirmedBySystem),
			shopTask(3000+n, fmt.Sprintf("agent%d", n%3), fmt.Sprintf("goal%d", n), true, n%8 == 0, events.ConfirmedBySystem))
	}
	pinned := after
	pinned.RuleID, pinned.Pinned, pinned.Version = memory.HashID("pinned"), true, memory.Version{Writer: "someone", WriterKind: memory.WriterPerson, Seq: 1}
	if err := record.InsertRules(t.Context(), []memory.Rule{pinned}); err != nil {
		t.Fatal(err)
	}
	storeTasks(t, record, turned...)
	runJob(t, s, JobInduce)
	if got := ruleOf(t, record, rule.RuleID); got.Status != memory.ItemRetired {
		t.Errorf("a rule whose votes turned is %s, lift %.2f low %.2f, support %d, refute %d", got.Status, got.Lift, got.LiftLow, got.Support, got.Refute)
	}
	if got := ruleOf(t, record, pinned.RuleID); got.Status != memory.ItemActive {
		t.Errorf("a person's rule is %s", got.Status)
	}
}

func ruleOf(t *testing.T, record Record, id string) memory.Rule {
	t.Helper()
	found, err := record.Rules(t.Context(), memory.ItemFilter{Namespace: namespace, IDs: []string{id}})
	if err != nil || len(found) != 1 {
		t.Fatalf("rule %s: %d found, %v", id, len(found), err)
	}
	return found[0]
}

// --- runs ---

var errKilled = errors.New("killed")

// killer lets a number of writes pass and fails from then on, as a process that is gone does. A write that is killed
// may have been stored.
type killer struct {
	*store.ClickHouse
	left   int
	stored bool
	fired  bool
}

func (k *killer) write(do func() error) error {
	if k.left > 0 {
		k.left--
		return do()
	}
	if k.stored && !k.fired {
		k.fired = true
		_ = do()
	}
	k.fired = true
	return errKilled
}

func (k *killer) InsertRun(ctx context.Context, r memory.Run) error {
	return k.write(func() error { return k.ClickHouse.InsertRun(ctx, r) })
}

func (k *killer) InsertSnapshots(ctx context.Context, s []memory.Snapshot) error {
	return k.write(func() error { return k.ClickHouse.InsertSnapshots(ctx, s) })
}

func (k *killer) InsertMemories(ctx context.Context, m []memory.Memory) error {
	return k.write(func() error { return k.ClickHouse.InsertMemories(ctx, m) })
}

func (k *killer) InsertRules(ctx context.Context, r []memory.Rule) error {
	return k.write(func() error { return k.ClickHouse.InsertRules(ctx, r) })
}

func (k *killer) InsertRelations(ctx context.Context, r []memory.Relation) error {
	return k.write(func() error { return k.ClickHouse.InsertRelations(ctx, r) })
}

func (k *killer) InsertVotes(ctx context.Context, v []memory.Vote) error {
	return k.write(func() error { return k.ClickHouse.InsertVotes(ctx, v) })
}

// TestKilledRunsLeaveNothing kills each job at each of its writes, before and after it is stored: what is seen stays as
// it was, and the next run does the whole work. Only from the commit on the work is done, whoever notes it.
func TestKilledRunsLeaveNothing(t *testing.T) {
	t.Parallel()
	record := newRecord(t)
	for n := range 3 {
		insertSnapshots(t, record, lesson(n, "pay", doesNotAddUp, "Make the amounts add up.", "always"))
	}
	insertSnapshots(t, record, lesson(5, "pay", doesNotAddUp, "Do not make the amounts add up.", "always"))
	storeTasks(t, record, shopTasks(8)...)
	lease := &heldLease{}
	for _, job := range []string{JobMerge, JobInduce} {
		before := visible(t, record)
		done := false
		for writes := 0; !done; writes++ {
			for _, stored := range []bool{false, true} {
				k := &killer{ClickHouse: record, left: writes, stored: stored}
				committed := string(lease.Data())
				_, err := newScheduler(t, k, lease, nil).RunJob(t.Context(), job)
				if err == nil {
					done = true
					break
				}
				if !errors.Is(err, errKilled) {
					t.Fatalf("%s, killed at write %d: %v", job, writes, err)
				}
				if string(lease.Data()) != committed {
					// It was killed between the commit and its note: the next holder notes it, and has nothing left to do.
					if report := runJob(t, newScheduler(t, record, lease, nil), job); len(report.Runs) > 0 {
						t.Errorf("%s did again what was committed: %+v", job, report)
					}
					done = true
					break
				}
				if now := visible(t, record); now != before {
					t.Fatalf("%s, killed at write %d (stored %v), is seen:\n%s\n---\n%s", job, writes, stored, before, now)
				}
			}
			if writes > 50 {
				t.Fatal("it never ends")
			}
		}
		if now := visible(t, record); now == before {
			t.Errorf("%s did nothing", job)
		}
	}
	running, err := record.RunningRuns(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(running) > 1 {
		t.Errorf("%d runs seem to be running", len(running))
	}
}

// TestLostLease: what was written under a lease that is lost before the commit is never seen.
func TestLostLease(t *testing.T) {
	t.Parallel()
	record := newRecord(t)
	insertSnapshots(t, record, lesson(0, "pay", doesNotAddUp, "Make the amounts add up.", ""), lesson(1, "pay", doesNotAddUp, "Make the amounts add up.", ""))
	before := visible(t, record)
	lease := &heldLease{lost: bus.ErrLost}
	if _, err := newScheduler(t, record, lease, nil).RunJob(t.Context(), JobMerge); !errors.Is(err, bus.ErrLost) {
		t.Fatalf("RunJob = %v, want that the lease is lost", err)
	}
	if now := visible(t, record); now != before {
		t.Errorf("seen without a commit:\n%s\n---\n%s", before, now)
	}
}

// --- scheduler ---

func TestNewChecksItsOptions(t *testing.T) {
	t.Parallel()
	good := func() Options {
		return Options{
			Record: &store.ClickHouse{}, Lead: (&heldLease{}).lead, Holder: "h", Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
		}
	}
	if _, err := New(good()); err != nil {
		t.Errorf("good options: %v", err)
	}
	for name, change := range map[string]func(*Options){
		"record": func(o *Options) { o.Record = nil }, "lead": func(o *Options) { o.Lead = nil }, "holder": func(o *Options) { o.Holder = "" },
		"schedule": func(o *Options) { o.MergeSchedule = "sometimes" }, "index alone": func(o *Options) { o.Index = &store.Vectors{} },
	} {
		o := good()
		change(&o)
		if _, err := New(o); err == nil {
			t.Errorf("%s: want an error", name)
		}
	}
}

// TestSchedulerOnARealLease runs jobs by hand while the scheduler leads, one that panics among them, and alone.
func TestSchedulerOnARealLease(t *testing.T) {
	t.Parallel()
	record := newRecord(t)
	insertSnapshots(t, record, lesson(0, "pay", doesNotAddUp, "Make the amounts add up.", ""), lesson(1, "pay", doesNotAddUp, "Make the amounts add up.", ""))
	conn, err := bus.Connect(t.Context(), bus.Options{URL: enginetest.NATS(t), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	if err := conn.EnsureStreams(t.Context(), bus.StreamConfig{}); err != nil {
		t.Fatal(err)
	}
	lead := func(ctx context.Context, run func(context.Context, Lease) error) error {
		return conn.RunLeased(ctx, "consolidate", "test", 5*time.Second, func(ctx context.Context, l *bus.Lease) error { return run(ctx, l) })
	}
	registry := prometheus.NewRegistry()
	s := newScheduler(t, record, &heldLease{}, func(o *Options) { o.Lead, o.Registerer = lead, registry })
	if _, err := s.RunJob(t.Context(), "tidy"); !errors.Is(err, ErrUnknownJob) {
		t.Errorf("RunJob(tidy) = %v", err)
	}
	if report := runJob(t, s, JobMerge); report.Counts["linked"] != 1 { // alone
		t.Errorf("alone: %+v", report)
	}
	s.jobs[JobSweep] = func(context.Context, *work) error { panic("oh") }
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	for runs := false; !runs; {
		s.mu.Lock()
		runs = s.orders != nil
		s.mu.Unlock()
		select {
		case err := <-ended:
			t.Fatalf("Run = %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	insertSnapshots(t, record, lesson(2, "pay", doesNotAddUp, "Make the amounts add up.", ""))
	if _, err := s.RunJob(t.Context(), JobSweep); err == nil || !strings.Contains(err.Error(), "panicked: oh") {
		t.Errorf("a job that panics: %v", err)
	}
	if report := runJob(t, s, JobMerge); report.Counts["linked"] != 1 {
		t.Errorf("while it leads: %+v", report)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run = %v", err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counted := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "hindsight_consolidation_runs_total" {
				counted[m.GetLabel()[0].GetValue()+" "+m.GetLabel()[1].GetValue()] = m.GetCounter().GetValue()
			}
		}
	}
	if counted["merge done"] != 2 || counted["sweep failed"] != 1 {
		t.Errorf("runs are counted as %v", counted)
	}
}

// TestOverrunsAreSkipped: a job that is due while it runs waits once; what is due beyond that is counted and left out.
// When the scheduler ends, the job that runs is stopped and waited for.
func TestOverrunsAreSkipped(t *testing.T) {
	t.Parallel()
	record := newRecord(t)
	insertSnapshots(t, record, lesson(0, "pay", doesNotAddUp, "Make the amounts add up.", ""))
	registry := prometheus.NewRegistry()
	s := newScheduler(t, record, &heldLease{}, func(o *Options) { o.MergeSchedule, o.Registerer = "@every 1s", registry })
	started, stopped := make(chan struct{}), make(chan struct{})
	s.jobs[JobMerge] = func(ctx context.Context, _ *work) error {
		close(started)
		<-ctx.Done()
		close(stopped)
		return context.Cause(ctx)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	<-started
	deadline := time.After(time.Minute)
	for skipped := 0.0; skipped == 0; {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if f.GetName() == "hindsight_consolidation_skipped_total" {
					skipped += m.GetCounter().GetValue()
				}
			}
		}
		select {
		case <-deadline:
			t.Fatal("nothing was skipped for a minute")
		case <-time.After(50 * time.Millisecond):
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run = %v", err)
	}
	select {
	case <-stopped:
	default:
		t.Error("the scheduler ended before its job")
	}
}
