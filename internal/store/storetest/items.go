package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/memory"
)

// ItemStore is what the suite of items needs of an implementation.
type ItemStore interface {
	Store
	memory.ItemReader
	memory.ItemWriter
	VectorsOf(ctx context.Context, namespace, model string) iter.Seq2[memory.ItemVector, error]
	StoredVectors(ctx context.Context, namespace, model string, ids []string) (map[string]string, error)
	InsertRun(ctx context.Context, run memory.Run) error
	Runs(ctx context.Context, job string, limit int) ([]memory.Run, error)
	InsertReflections(ctx context.Context, reflections []memory.TaskReflection) error
	Reflections(ctx context.Context, keys []memory.TaskKey) (map[memory.TaskKey]memory.TaskReflection, error)
	Unreflected(ctx context.Context, namespace string) (int, error)
	InsertAudit(ctx context.Context, entries []memory.AuditEntry) error
	InsertToken(ctx context.Context, token memory.AccessToken) error
	TokenByHash(ctx context.Context, hash string) (memory.AccessToken, error)
	Tokens(ctx context.Context, namespace string) ([]memory.AccessToken, error)
	RevokeToken(ctx context.Context, namespace, tokenID string) error
}

// RunItems checks an implementation's side of items. newStore returns an empty store of its own for each test.
func RunItems(t *testing.T, newStore func(*testing.T) ItemStore) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, ItemStore)
	}{
		{"ItemsRoundTrip", itemsRoundTrip},
		{"CurrentVersion", currentVersion},
		{"RepeatedWriteMakesNoVersion", repeatedWrite},
		{"BadItemsAreRejected", badItems},
		{"FiltersApplyToTheCurrentVersion", itemFilters},
		{"ManyIDs", manyIDs},
		{"AsOf", asOf},
		{"UncommittedRunsAreInvisible", uncommittedRuns},
		{"NamespacesOfItemsAreApart", itemNamespaces},
		{"Uses", uses},
		{"Relations", relations},
		{"Similarities", similarities},
		{"VectorsOf", vectorsOf},
		{"Lexical", lexical},
		{"LexicalKnowsTheCurrentVersion", lexicalCurrent},
		{"LexicalFindsExactCodes", lexicalExact},
		{"LookupFindsItems", lookupItems},
		{"EventsOfNoTask", noTask},
		{"Reflections", reflections},
		{"Runs", runs},
		{"Tokens", tokens},
		{"Audit", audit},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t, newStore(t))
		})
	}
}

// awkward is a text that bad quoting would break.
const awkward = "退款 🧾 \u2028 \t\"'`\\ <b> ${x} {y:String} ? -- /* */ ; עברית é"

func fullSnapshot(namespace, id string) memory.Snapshot {
	return memory.Snapshot{
		SnapshotID: id, Timestamp: start(), Namespace: namespace, AgentID: "agent", SessionID: "session", UserID: "user", TaskID: "task", GoalID: "goal", Step: 3,
		TaskContext: memory.TaskContext{TaskType: "refund", InputSummary: awkward, AvailableTools: []string{"look", "pay"}},
		Decision:    memory.Decision{ToolSelected: "pay", Parameters: json.RawMessage(`{"amount": "<amount>"}`), ReasoningPath: awkward},
		Outcome:     memory.Outcome{Status: events.StatusFailure, ErrorType: "ValueError", ErrorMessage: "amount is no number", ExecutionTimeMS: 12},
		Reflection:  &memory.Reflection{RootCause: "a word was given", RootCauseClass: memory.CauseParameter, Alternative: "give a number", Lesson: "Give pay a number."},
		Tags:        []string{"a", awkward}, AppliesWhen: "paying", Situation: "paying <amount>",
		Judged: memory.Judged{
			Evidence: []string{"e1", awkward}, Trust: memory.TrustAgentInferred, Confidence: 0.6, ConfidenceReasons: []string{"one task"},
			Importance: 0.7, ImportanceReasons: []string{"failed"}, Status: memory.ItemActive, StatusReason: "new",
		},
		ReflectedBy: "evidence", PromptVersion: "1",
		Version: memory.Version{TaskRevision: 5, Writer: "reflector", WriterKind: memory.WriterMachine, Seq: 1},
	}
}

func snapshot(namespace, id string, change func(*memory.Snapshot)) memory.Snapshot {
	s := fullSnapshot(namespace, id)
	if change != nil {
		change(&s)
	}
	return s
}

func fullMemory(namespace, id string) memory.Memory {
	to := start().Add(time.Hour)
	return memory.Memory{
		MemoryID: id, Namespace: namespace, Timestamp: start(), MemoryType: memory.MemoryPreference, Entity: "seat", Entities: []string{"seat", "flight"},
		Value: "aisle", OldValue: awkward, Operation: memory.OperationUpdate, Content: "The user prefers an aisle seat.", AgentID: "agent", SessionID: "session",
		UserID: "user", TaskID: "task", SourceTurn: 4, TaskType: "flight", Tool: "book", ErrorType: "SeatError", Tags: []string{"x"},
		ValidFrom: start(), ValidTo: &to,
		Judged:      memory.Judged{Evidence: []string{"e2"}, Trust: memory.TrustUserStated, Confidence: 0.8, Importance: 0.9, Status: memory.ItemActive},
		ExtractedBy: "evidence", PromptVersion: "2",
		Version: memory.Version{TaskRevision: 5, Writer: "reflector", WriterKind: memory.WriterMachine, Seq: 1},
	}
}

func fullRule(namespace, id string) memory.Rule {
	return memory.Rule{
		RuleID: id, Namespace: namespace, Timestamp: start(), TaskType: "refund", Kind: memory.RuleCall, Tool: "pay", ErrorSignature: "amount <value> is bad",
		Rule: awkward, Condition: "paying", Action: "give a number", DoesNotApplyWhen: "free", Predicate: json.RawMessage(`{"tool":"pay"}`),
		Support: 3, Refute: 1, Lift: 1.5, LiftLow: 1.1, Goals: 2, Voices: 2, Pinned: true, Tags: []string{"y"},
		Judged:  memory.Judged{Evidence: []string{"e3"}, Trust: memory.TrustAgentInferred, Confidence: 0.7, Importance: 0.5, Status: memory.ItemCandidate},
		Version: memory.Version{Writer: "consolidator", WriterKind: memory.WriterMachine, Seq: 9},
	}
}

func fullSummary(namespace, session string) memory.Summary {
	return memory.Summary{
		Namespace: namespace, SessionID: session, Timestamp: start(), AgentID: "agent", UserID: "user", TaskID: "task", Goal: "a refund",
		Confirmed: []string{"the order"}, Pending: []string{awkward}, Summary: "waiting", Evidence: []string{"e4"}, Status: memory.ItemActive, WrittenBy: "evidence",
		Version: memory.Version{TaskRevision: 7, Writer: "reflector", WriterKind: memory.WriterMachine, Seq: 1},
	}
}

// must ends the test when a write fails.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func putSnapshots(t *testing.T, s ItemStore, snapshots ...memory.Snapshot) {
	t.Helper()
	must(t, s.InsertSnapshots(t.Context(), snapshots))
}

func getSnapshots(t *testing.T, s ItemStore, f memory.ItemFilter) []memory.Snapshot {
	t.Helper()
	if f.Namespace == "" {
		f.Namespace = "t"
	}
	got, err := s.Snapshots(t.Context(), f)
	if err != nil {
		t.Fatalf("Snapshots(%+v): %v", f, err)
	}
	return got
}

// lessonOf is the lesson of the current version of one snapshot.
func lessonOf(t *testing.T, s ItemStore, f memory.ItemFilter) string {
	t.Helper()
	got := getSnapshots(t, s, f)
	if len(got) == 0 {
		return ""
	}
	if len(got) > 1 {
		t.Errorf("%d current versions", len(got))
	}
	return got[0].Reflection.Lesson
}

func idsOf(snapshots []memory.Snapshot) string {
	ids := make([]string, len(snapshots))
	for i, s := range snapshots {
		ids[i] = s.SnapshotID
	}
	return strings.Join(ids, " ")
}

// same compares an item with what was written, but for the moment at which it was recorded, which must be set.
func same[T any](t *testing.T, got []T, err error, want T, version func(*T) *memory.Version) {
	t.Helper()
	if err != nil || len(got) != 1 {
		t.Fatalf("got %d items, want 1 (%v)", len(got), err)
	}
	v := version(&got[0])
	if v.RecordedAt.Year() < 2025 || v.RecordedAt.Location() != time.UTC {
		t.Errorf("recorded at %s", v.RecordedAt)
	}
	v.RecordedAt = time.Time{}
	if !reflect.DeepEqual(got[0], want) {
		t.Errorf("came back changed\ngot  %+v\nwant %+v", got[0], want)
	}
}

func itemsRoundTrip(t *testing.T, s ItemStore) {
	f := memory.ItemFilter{Namespace: "tenant.team"}
	full := fullSnapshot("tenant.team", awkward)
	putSnapshots(t, s, full)
	got, err := s.Snapshots(t.Context(), f)
	same(t, got, err, full, func(s *memory.Snapshot) *memory.Version { return &s.Version })

	m := fullMemory("tenant.team", "m")
	must(t, s.InsertMemories(t.Context(), []memory.Memory{m}))
	memories, err := s.Memories(t.Context(), f)
	same(t, memories, err, m, func(m *memory.Memory) *memory.Version { return &m.Version })

	r := fullRule("tenant.team", "r")
	must(t, s.InsertRules(t.Context(), []memory.Rule{r}))
	rules, err := s.Rules(t.Context(), f)
	same(t, rules, err, r, func(r *memory.Rule) *memory.Version { return &r.Version })

	sum := fullSummary("tenant.team", "s")
	must(t, s.InsertSummaries(t.Context(), []memory.Summary{sum}))
	summaries, err := s.Summaries(t.Context(), f)
	same(t, summaries, err, sum, func(s *memory.Summary) *memory.Version { return &s.Version })

	// What may be empty stays empty.
	bare := memory.Snapshot{SnapshotID: "bare", Namespace: "bare", Timestamp: start(), TaskID: "t", Judged: memory.Judged{Evidence: []string{"e"}}, Version: full.Version}
	putSnapshots(t, s, bare)
	got, err = s.Snapshots(t.Context(), memory.ItemFilter{Namespace: "bare"})
	same(t, got, err, bare, func(s *memory.Snapshot) *memory.Version { return &s.Version })
	bareMemory := memory.Memory{MemoryID: "bare", Namespace: "bare", Timestamp: start(), Judged: bare.Judged, Version: full.Version}
	must(t, s.InsertMemories(t.Context(), []memory.Memory{bareMemory}))
	memories, err = s.Memories(t.Context(), memory.ItemFilter{Namespace: "bare"})
	bareMemory.ValidFrom = start()
	same(t, memories, err, bareMemory, func(m *memory.Memory) *memory.Version { return &m.Version })
}

// version writes one version of the snapshot "a" with a lesson that names it.
func version(t *testing.T, s ItemStore, lesson string, v memory.Version) {
	t.Helper()
	if v.Writer == "" {
		v.Writer = "reflector"
	}
	if v.WriterKind == "" {
		v.WriterKind = memory.WriterMachine
	}
	putSnapshots(t, s, snapshot("t", "a", func(s *memory.Snapshot) {
		s.Version = v
		s.Reflection.Lesson = lesson
	}))
}

func currentVersion(t *testing.T, s ItemStore) {
	want := func(lesson string) {
		t.Helper()
		if got := lessonOf(t, s, memory.ItemFilter{IDs: []string{"a"}}); got != lesson {
			t.Errorf("the current version is %q, want %q", got, lesson)
		}
	}
	version(t, s, "first", memory.Version{TaskRevision: 5, Seq: 1})
	version(t, s, "of an older revision", memory.Version{TaskRevision: 4, Seq: 2})
	want("first")
	version(t, s, "of a newer revision", memory.Version{TaskRevision: 7, Seq: 3})
	want("of a newer revision")
	version(t, s, "later of the same revision, by a writer that sorts first", memory.Version{TaskRevision: 7, Writer: "a", Seq: 1})
	want("later of the same revision, by a writer that sorts first")
	version(t, s, "by a person", memory.Version{TaskRevision: 0, Writer: "person", WriterKind: memory.WriterPerson, Seq: 1})
	want("by a person")
	version(t, s, "by a machine, after", memory.Version{TaskRevision: 99, Seq: 4})
	want("by a person")
	version(t, s, "by a person again", memory.Version{TaskRevision: 0, Writer: "person", WriterKind: memory.WriterPerson, Seq: 2})
	want("by a person again")
	// Two of the same moment: the writer decides, then the number.
	putSnapshots(t, s,
		snapshot("t", "b", func(s *memory.Snapshot) { s.Version.Seq = 2; s.Reflection.Lesson = "two" }),
		snapshot("t", "b", func(s *memory.Snapshot) { s.Version.Seq = 1; s.Reflection.Lesson = "one" }))
	if got := lessonOf(t, s, memory.ItemFilter{IDs: []string{"b"}}); got != "two" {
		t.Errorf("of two at once %q is current, want the one with the higher number", got)
	}
}

func repeatedWrite(t *testing.T, s ItemStore) {
	first := memory.Version{TaskRevision: 5, Seq: 1}
	version(t, s, "first", first)
	before := getSnapshots(t, s, memory.ItemFilter{})[0].Version.RecordedAt
	version(t, s, "second, by another", memory.Version{TaskRevision: 5, Writer: "other", Seq: 1})
	version(t, s, "first, delivered again", first)
	if got := lessonOf(t, s, memory.ItemFilter{}); got != "second, by another" {
		t.Errorf("a repeated write overtook a later one: %q", got)
	}
	if got := lessonOf(t, s, memory.ItemFilter{AsOf: before}); got != "first" {
		t.Errorf("as of its moment the first version is %q", got)
	}
	use, err := s.Uses(t.Context(), "t", []string{"a"})
	if err != nil || use["a"].VersionNum != 2 || !use["a"].FirstSeen.Equal(before) {
		t.Errorf("Uses = %+v, %v; want 2 versions, first seen at %s", use, err, before)
	}
	one := snapshot("t", "twice in one call", nil)
	putSnapshots(t, s, one, one)
	if use, err := s.Uses(t.Context(), "t", []string{one.SnapshotID}); err != nil || use[one.SnapshotID].VersionNum != 1 {
		t.Errorf("Uses = %+v, %v; want 1 version", use, err)
	}
}

func badItems(t *testing.T, s ItemStore) {
	for name, change := range map[string]func(*memory.Snapshot){
		"no namespace":  func(s *memory.Snapshot) { s.Namespace = "" },
		"no id":         func(s *memory.Snapshot) { s.SnapshotID = "" },
		"no writer":     func(s *memory.Snapshot) { s.Version.Writer = "" },
		"no kind":       func(s *memory.Snapshot) { s.Version.WriterKind = "" },
		"no evidence":   func(s *memory.Snapshot) { s.Evidence = nil },
		"no time":       func(s *memory.Snapshot) { s.Timestamp = time.Time{} },
		"no confidence": func(s *memory.Snapshot) { s.Confidence = math.NaN() },
	} {
		if err := s.InsertSnapshots(t.Context(), []memory.Snapshot{fullSnapshot("t", "good"), snapshot("t", "bad", change)}); !errors.Is(err, memory.ErrRejected) {
			t.Errorf("%s: InsertSnapshots = %v, want ErrRejected", name, err)
		}
	}
	if got := getSnapshots(t, s, memory.ItemFilter{}); len(got) != 0 {
		t.Errorf("of batches with a bad row there are %s", idsOf(got))
	}
	if _, err := s.Snapshots(t.Context(), memory.ItemFilter{}); err == nil {
		t.Error("snapshots of no namespace were read")
	}
}

func itemFilters(t *testing.T, s ItemStore) {
	at := func(minutes int) time.Time { return start().Add(time.Duration(minutes) * time.Minute) }
	putSnapshots(t, s,
		snapshot("t", "1", func(s *memory.Snapshot) { s.Timestamp = at(3) }),
		snapshot("t", "2", func(s *memory.Snapshot) { s.Timestamp = at(1); s.TaskID = "other"; s.TaskContext.TaskType = "flight" }),
		snapshot("t", "3", func(s *memory.Snapshot) {
			s.Timestamp = at(2)
			s.Decision.ToolSelected = "look"
			s.GoalID, s.SessionID, s.Outcome.ErrorType = "goal 2", "session 2", "TypeError"
		}),
	)
	// What was active is not any more, and what was not is.
	putSnapshots(t, s, snapshot("t", "1", func(s *memory.Snapshot) {
		s.Timestamp = at(3)
		s.Status, s.Version.Seq, s.Decision.ToolSelected = memory.ItemForgotten, 2, "look"
	}))
	for _, test := range []struct {
		name   string
		filter memory.ItemFilter
		want   string
	}{
		{"all", memory.ItemFilter{}, "2 3 1"},
		{"newest", memory.ItemFilter{Newest: true}, "1 3 2"},
		{"limit", memory.ItemFilter{Newest: true, Limit: 2}, "1 3"},
		{"active", memory.ItemFilter{Statuses: []memory.ItemStatus{memory.ItemActive, memory.ItemArchived}}, "2 3"},
		{"forgotten", memory.ItemFilter{Statuses: []memory.ItemStatus{memory.ItemForgotten}}, "1"},
		{"tool that it had", memory.ItemFilter{Tool: "pay"}, "2"},
		{"tool", memory.ItemFilter{Tool: "look"}, "3 1"},
		{"task", memory.ItemFilter{TaskIDs: []string{"other", "none"}}, "2"},
		{"task type", memory.ItemFilter{TaskType: "refund"}, "3 1"},
		{"goal", memory.ItemFilter{GoalID: "goal 2"}, "3"},
		{"session", memory.ItemFilter{SessionID: "session 2"}, "3"},
		{"error type", memory.ItemFilter{ErrorType: "TypeError"}, "3"},
		{"ids and tool", memory.ItemFilter{IDs: []string{"1", "2"}, Tool: "look"}, "1"},
		{"limit after filter", memory.ItemFilter{Tool: "look", Limit: 1}, "3"},
		{"memory type, which a snapshot has not", memory.ItemFilter{MemoryType: memory.MemoryFact}, ""},
		{"entity, which a snapshot has not", memory.ItemFilter{Entity: "seat"}, ""},
		{"recorded since", memory.ItemFilter{RecordedSince: time.Now().Add(time.Hour)}, ""},
		{"quotes", memory.ItemFilter{Tool: "' OR 1=1 --"}, ""},
	} {
		if got := idsOf(getSnapshots(t, s, test.filter)); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
	m := fullMemory("t", "m")
	must(t, s.InsertMemories(t.Context(), []memory.Memory{m}))
	must(t, s.InsertRules(t.Context(), []memory.Rule{fullRule("t", "r")}))
	must(t, s.InsertSummaries(t.Context(), []memory.Summary{fullSummary("t", "s")}))
	for _, test := range []struct {
		filter                     memory.ItemFilter
		memories, rules, summaries int
	}{
		{memory.ItemFilter{Entity: "seat"}, 1, 0, 0},
		{memory.ItemFilter{Entity: "flight"}, 1, 0, 0},
		{memory.ItemFilter{Entity: "hotel"}, 0, 0, 0},
		{memory.ItemFilter{MemoryType: memory.MemoryPreference}, 1, 0, 0},
		{memory.ItemFilter{MemoryType: memory.MemoryFact}, 0, 0, 0},
		{memory.ItemFilter{Tool: "pay"}, 0, 1, 0},
		{memory.ItemFilter{Tool: "book", ErrorType: "SeatError", TaskType: "flight"}, 1, 0, 0},
		{memory.ItemFilter{TaskIDs: []string{"task"}}, 1, 0, 1},
		{memory.ItemFilter{SessionID: "s"}, 0, 0, 1},
		{memory.ItemFilter{IDs: []string{"s"}}, 0, 0, 1},
	} {
		test.filter.Namespace = "t"
		memories, err1 := s.Memories(t.Context(), test.filter)
		rules, err2 := s.Rules(t.Context(), test.filter)
		summaries, err3 := s.Summaries(t.Context(), test.filter)
		must(t, errors.Join(err1, err2, err3))
		if len(memories) != test.memories || len(rules) != test.rules || len(summaries) != test.summaries {
			t.Errorf("%+v: %d memories, %d rules, %d summaries; want %d, %d, %d", test.filter, len(memories), len(rules), len(summaries), test.memories, test.rules, test.summaries)
		}
	}
}

func manyIDs(t *testing.T, s ItemStore) {
	var all []memory.Snapshot
	var ids, tasks []string
	for i := range 700 {
		id := fmt.Sprintf("%0120d", i)
		all = append(all, snapshot("t", id, func(s *memory.Snapshot) { s.TaskID = "task-" + id }))
		ids, tasks = append(ids, id), append(tasks, "task-"+id)
	}
	slices.Reverse(ids)
	putSnapshots(t, s, all...)
	putSnapshots(t, s, all...)
	if got := getSnapshots(t, s, memory.ItemFilter{IDs: append(ids, ids[0]), TaskIDs: tasks[:650]}); len(got) != 650 || got[0].SnapshotID != all[0].SnapshotID || got[649].SnapshotID != all[649].SnapshotID {
		t.Errorf("got %d snapshots, want 650 in order", len(got))
	}
	if got := getSnapshots(t, s, memory.ItemFilter{TaskIDs: tasks, Newest: true, Limit: 5}); len(got) != 5 || got[0].SnapshotID != all[699].SnapshotID {
		t.Errorf("got %d snapshots, want the newest 5: %s", len(got), idsOf(got))
	}
	if uses, err := s.Uses(t.Context(), "t", ids); err != nil || len(uses) != 700 {
		t.Errorf("Uses has %d items, %v", len(uses), err)
	}
}

// settle returns a moment after everything that was written so far and before what comes next.
func settle(t *testing.T, s ItemStore) time.Time {
	t.Helper()
	now := func() time.Time {
		at, _, err := s.Touched(t.Context(), time.Now().Add(time.Hour))
		must(t, err)
		return at
	}
	first := now()
	for {
		if at := now(); at.After(first.Add(time.Millisecond)) {
			return first.Add(time.Millisecond)
		}
	}
}

func asOf(t *testing.T, s ItemStore) {
	before := settle(t, s)
	version(t, s, "one", memory.Version{TaskRevision: 5, Seq: 1})
	one := settle(t, s)
	version(t, s, "two", memory.Version{TaskRevision: 5, Seq: 2})
	two := settle(t, s)
	version(t, s, "by a person", memory.Version{Writer: "p", WriterKind: memory.WriterPerson, Seq: 1})
	for moment, want := range map[time.Time]string{before: "", one: "one", two: "two", {}: "by a person"} {
		if got := lessonOf(t, s, memory.ItemFilter{AsOf: moment}); got != want {
			t.Errorf("as of %s: %q, want %q", moment, got, want)
		}
	}
	// The filter applies to what was current then.
	version(t, s, "later", memory.Version{Writer: "p", WriterKind: memory.WriterPerson, Seq: 2})
	if got := lessonOf(t, s, memory.ItemFilter{AsOf: two, Tool: "pay", Statuses: []memory.ItemStatus{memory.ItemActive}}); got != "two" {
		t.Errorf("as of then, filtered: %q, want two", got)
	}
}

func commit(t *testing.T, s ItemStore, id string, status memory.RunStatus, version uint64) {
	t.Helper()
	run := memory.Run{Job: "merge", RunID: id, Version: version, Status: status, Fence: 1, Holder: "h", StartedAt: start()}
	if status == memory.RunCommitted {
		at := settle(t, s)
		run.CommittedAt = &at
	}
	must(t, s.InsertRun(t.Context(), run))
}

func uncommittedRuns(t *testing.T, s ItemStore) {
	version(t, s, "base", memory.Version{TaskRevision: 5, Seq: 1})
	commit(t, s, "run-1", memory.RunRunning, 1)
	version(t, s, "of the run", memory.Version{TaskRevision: 6, Seq: 1, RunID: "run-1"})
	must(t, s.InsertRelations(t.Context(), []memory.Relation{{Namespace: "t", FromID: "a", Kind: memory.RelationMergedInto, ToID: "b", Writer: "w", RunID: "run-1"}}))
	must(t, s.InsertRules(t.Context(), []memory.Rule{func() memory.Rule { r := fullRule("t", "r"); r.Version.RunID = "run-1"; return r }()}))
	check := func(lesson string, things, versions int) {
		t.Helper()
		if got := lessonOf(t, s, memory.ItemFilter{}); got != lesson {
			t.Errorf("current is %q, want %q", got, lesson)
		}
		relations, err1 := s.Relations(t.Context(), "t", []string{"a"})
		rules, err2 := s.Rules(t.Context(), memory.ItemFilter{Namespace: "t"})
		uses, err3 := s.Uses(t.Context(), "t", []string{"a", "r"})
		must(t, errors.Join(err1, err2, err3))
		if len(relations) != things || len(rules) != things || uses["a"].VersionNum != versions || len(uses) != 1+things {
			t.Errorf("%d relations, %d rules, uses %+v; want %d of each and %d versions", len(relations), len(rules), uses, things, versions)
		}
	}
	check("base", 0, 1)
	commit(t, s, "run-1", memory.RunFailed, 2)
	check("base", 0, 1)
	before := settle(t, s)
	commit(t, s, "run-1", memory.RunCommitted, 3)
	check("of the run", 1, 2)
	if got := lessonOf(t, s, memory.ItemFilter{AsOf: before}); got != "base" {
		t.Errorf("as of before the commit: %q, want base", got)
	}
	// Another run that counts its writes from the same number would replace what the first one wrote.
	err := s.InsertSnapshots(t.Context(), []memory.Snapshot{snapshot("t", "a", func(s *memory.Snapshot) {
		s.Version = memory.Version{TaskRevision: 6, Writer: "reflector", WriterKind: memory.WriterMachine, Seq: 1, RunID: "run-2"}
	})})
	if !errors.Is(err, memory.ErrRejected) {
		t.Errorf("the same write by another run: %v, want ErrRejected", err)
	}
}

func itemNamespaces(t *testing.T, s ItemStore) {
	for _, namespace := range []string{"t", "t.team", "u"} {
		putSnapshots(t, s, snapshot(namespace, "a", func(s *memory.Snapshot) { s.Reflection.Lesson = "of " + namespace }))
		must(t, s.InsertVectors(t.Context(), []memory.ItemVector{{Namespace: namespace, Model: "m", ItemID: "a", TextHash: namespace, Layer: memory.LayerSnapshot, Vector: []float32{1, 0}}}))
	}
	version(t, s, "changed", memory.Version{TaskRevision: 9, Seq: 1})
	for namespace, want := range map[string]string{"t": "changed", "t.team": "of t.team", "u": "of u", "none": ""} {
		if got := lessonOf(t, s, memory.ItemFilter{Namespace: namespace, Tool: "pay"}); got != want {
			t.Errorf("in %s: %q, want %q", namespace, got, want)
		}
		stored, err := s.StoredVectors(t.Context(), namespace, "m", []string{"a"})
		if err != nil || (want != "" && stored["a"] != namespace) || (want == "" && len(stored) > 0) {
			t.Errorf("StoredVectors in %s = %v, %v", namespace, stored, err)
		}
	}
}

func uses(t *testing.T, s ItemStore) {
	putSnapshots(t, s, snapshot("t", "a", nil), snapshot("t", "b", nil), snapshot("u", "a", nil))
	recall := func(namespace, id string, minutes int, withheld bool, items ...string) events.Event {
		list := make([]string, len(items))
		for i, item := range items {
			list[i] = fmt.Sprintf(`{"id":%q,"layer":"snapshot","score":0.7}`, item)
		}
		return event(namespace, "task", id, events.KindRecallServed, time.Duration(minutes)*time.Minute, fmt.Sprintf(`{"question":"q","items":[%s],"withheld":%t}`, strings.Join(list, ","), withheld))
	}
	feedback := func(id, target, value string) events.Event {
		return event("t", "task", id, events.KindFeedback, time.Second, fmt.Sprintf(`{"target":%q,"kind":"rating","value":%s}`, target, value))
	}
	evs := []events.Event{
		recall("t", "r1", 1, false, "a", "b", "a"), recall("t", "r2", 5, false, "a", "gone"), recall("t", "r3", 9, true, "a"), recall("u", "r4", 20, false, "a"),
		feedback("f1", "a", "true"), feedback("f2", "a", "false"), feedback("f3", "a", "true"), feedback("f4", "gone", "true"), feedback("f5", "b", "3"),
	}
	mustInsert(t, s, evs...)
	mustInsert(t, s, evs...)
	got, err := s.Uses(t.Context(), "t", []string{"a", "b", "gone"})
	must(t, err)
	for id, use := range got {
		if time.Since(use.FirstSeen) > time.Hour || use.VersionNum != 1 {
			t.Errorf("%s: %+v", id, use)
		}
		use.FirstSeen = time.Time{}
		got[id] = use
	}
	want := map[string]memory.ItemUse{
		"a": {Hits: 2, LastHit: start().Add(5 * time.Minute), Helpful: 2, Unhelpful: 1, VersionNum: 1},
		"b": {Hits: 1, LastHit: start().Add(time.Minute), VersionNum: 1},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("Uses = %+v, want %+v", got, want)
	}
}

func relations(t *testing.T, s ItemStore) {
	edge := func(namespace, from, to string, kind memory.RelationKind, seq uint64, removed bool) memory.Relation {
		return memory.Relation{Namespace: namespace, FromID: from, Kind: kind, ToID: to, Removed: removed, Weight: 0.5, Reason: awkward, Writer: "w", Seq: seq}
	}
	first := edge("t", "a", "b", memory.RelationSameEntity, 1, false)
	must(t, s.InsertRelations(t.Context(), []memory.Relation{
		first, edge("t", "c", "a", memory.RelationMergedInto, 1, false), edge("t", "c", "d", memory.RelationMergedInto, 1, false), edge("u", "a", "z", memory.RelationMergedInto, 1, false),
	}))
	names := func() string {
		got, err := s.Relations(t.Context(), "t", []string{"a", "d", "a"})
		must(t, err)
		var out []string
		for _, r := range got {
			if r.Namespace != "t" || r.RecordedAt.IsZero() || r.Weight != 0.5 || r.Reason != awkward {
				t.Errorf("relation came back changed: %+v", r)
			}
			out = append(out, r.FromID+">"+r.ToID)
		}
		return strings.Join(out, " ")
	}
	if got := names(); got != "a>b c>a c>d" {
		t.Errorf("relations %q", got)
	}
	must(t, s.InsertRelations(t.Context(), []memory.Relation{edge("t", "a", "b", memory.RelationSameEntity, 2, true)}))
	must(t, s.InsertRelations(t.Context(), []memory.Relation{first})) // Delivered again: what was removed stays removed.
	if got := names(); got != "c>a c>d" {
		t.Errorf("after one was removed: %q", got)
	}
}

func similarities(t *testing.T, s ItemStore) {
	put := func(model, item, text string, vector ...float32) {
		t.Helper()
		must(t, s.InsertVectors(t.Context(), []memory.ItemVector{{Namespace: "t", Model: model, ItemID: item, TextHash: text, Layer: memory.LayerMemory, Vector: vector}}))
	}
	put("m", "a", "1", 1, 0)
	put("m", "b", "1", 0.6, 0.8)
	put("m", "c", "1", -1, 0)
	put("other model", "d", "1", 1, 0)
	put("m", "three dimensions", "1", 1, 0, 0)
	before := settle(t, s)
	put("m", "a", "2", 0, 1)
	put("m", "a", "1", 1, 0) // Again: the first of equal ones counts.
	ids := []string{"a", "b", "c", "d", "three dimensions", "none"}
	for moment, want := range map[time.Time]map[string]float64{{}: {"a": 0, "b": 0.6, "c": -1}, before: {"a": 1, "b": 0.6, "c": -1}, before.Add(-time.Hour): {}} {
		got, err := s.Similarities(t.Context(), "t", "m", []float32{1, 0}, ids, moment)
		must(t, err)
		if len(got) != len(want) {
			t.Errorf("as of %s: %v, want %v", moment, got, want)
		}
		for id, score := range want {
			if len(got[id]) == 0 || math.Abs(got[id][0].Cosine-score) > 1e-6 {
				t.Errorf("as of %s: %s is %v, want %v", moment, id, got[id], score)
			}
		}
	}
	// An item that has come back to an earlier text is as near as that: both are told, the newest first.
	both, err := s.Similarities(t.Context(), "t", "m", []float32{1, 0}, []string{"a"}, time.Time{})
	if want := []memory.TextSimilarity{{TextHash: "2", Cosine: 0}, {TextHash: "1", Cosine: 1}}; err != nil || !slices.EqualFunc(both["a"], want, func(a, b memory.TextSimilarity) bool {
		return a.TextHash == b.TextHash && math.Abs(a.Cosine-b.Cosine) < 1e-6
	}) {
		t.Errorf("the texts of one item are %v near, %v, want %v", both["a"], err, want)
	}
	if stored, err := s.StoredVectors(t.Context(), "t", "m", ids); err != nil || stored["a"] != "2" || stored["b"] != "1" || len(stored) != 4 {
		t.Errorf("StoredVectors = %v, %v", stored, err)
	}
	for _, vector := range [][]float32{nil, {0, 0}, {float32(math.NaN()), 1}} {
		if _, err := s.Similarities(t.Context(), "t", "m", vector, ids, time.Time{}); !errors.Is(err, memory.ErrRejected) {
			t.Errorf("Similarities with %v = %v, want ErrRejected", vector, err)
		}
		if err := s.InsertVectors(t.Context(), []memory.ItemVector{{Namespace: "t", Model: "m", ItemID: "x", TextHash: "1", Vector: vector}}); !errors.Is(err, memory.ErrRejected) {
			t.Errorf("InsertVectors with %v = %v, want ErrRejected", vector, err)
		}
	}
}

func vectorsOf(t *testing.T, s ItemStore) {
	var vectors []memory.ItemVector
	for i := range 2300 {
		vectors = append(vectors, memory.ItemVector{Namespace: []string{"t", "u"}[i%2], Model: "m", ItemID: fmt.Sprintf("%05d", i), TextHash: "z", Layer: memory.LayerRule, Vector: []float32{float32(i + 1), 1}})
	}
	must(t, s.InsertVectors(t.Context(), vectors))
	settle(t, s)
	later := vectors[0]
	later.TextHash = "a"
	must(t, s.InsertVectors(t.Context(), []memory.ItemVector{later, vectors[2]}))
	for namespace, want := range map[string]int{"t": 1151, "u": 1150, "": 2301, "none": 0} {
		var got []memory.ItemVector
		for v, err := range s.VectorsOf(t.Context(), namespace, "m") {
			must(t, err)
			got = append(got, v)
		}
		if len(got) != want {
			t.Errorf("%d vectors in %q, want %d", len(got), namespace, want)
		}
		if namespace == "t" && (got[0].TextHash != "z" || got[1].TextHash != "a" || got[2].ItemID != "00002" || got[2].Vector[0] != 3 || got[2].Layer != memory.LayerRule || got[2].Model != "m") {
			t.Errorf("the texts of an item are not in order: %+v", got[:3])
		}
	}
	for v, err := range s.VectorsOf(t.Context(), "", "m") {
		must(t, err)
		if v.ItemID != "00000" {
			t.Errorf("the first of all is %s", v.ItemID)
		}
		break
	}
}

func mem(id, content string, change func(*memory.Memory)) memory.Memory {
	m := memory.Memory{
		MemoryID: id, Namespace: "t", Timestamp: start(), MemoryType: memory.MemoryFact, Content: content,
		Judged:  memory.Judged{Evidence: []string{"e"}, Trust: memory.TrustUserStated, Status: memory.ItemActive},
		Version: memory.Version{Writer: "reflector", WriterKind: memory.WriterMachine, Seq: 1},
	}
	if change != nil {
		change(&m)
	}
	return m
}

func find(t *testing.T, s ItemStore, q memory.LexicalQuery) []memory.Candidate {
	t.Helper()
	if q.Namespace == "" {
		q.Namespace = "t"
	}
	if q.Limit == 0 {
		q.Limit = 20
	}
	found, err := s.Lexical(t.Context(), q)
	if err != nil {
		t.Fatalf("Lexical(%q): %v", q.Text, err)
	}
	for i, c := range found {
		if c.Score <= 0 || c.Score > 1 || i > 0 && c.Score > found[i-1].Score {
			t.Errorf("Lexical(%q): hit %d has score %v", q.Text, i, c.Score)
		}
	}
	return found
}

func found(candidates []memory.Candidate) string {
	ids := make([]string, len(candidates))
	for i, c := range candidates {
		ids[i] = c.ID
	}
	return strings.Join(ids, " ")
}

func lexical(t *testing.T, s ItemStore) {
	putSnapshots(t, s, snapshot("t", "snap", func(s *memory.Snapshot) {
		s.Situation, s.Reflection.Lesson, s.Decision.ToolSelected = "The user wants to cancel a booking", "Ask which passenger before cancelling.", "cancel_booking"
	}))
	must(t, s.InsertRules(t.Context(), []memory.Rule{func() memory.Rule {
		r := fullRule("t", "rule")
		r.Rule, r.Condition, r.Action = "Refunds over the limit need a manager", "amount above the limit", "escalate"
		return r
	}()}))
	must(t, s.InsertMemories(t.Context(), []memory.Memory{
		mem("zh", "用户的退款订单支付失败，请检查日期格式", nil), mem("ja", "カードの支払いに失敗した", nil), mem("ko", "환불이 실패했습니다", nil),
		mem("th", "การคืนเงินล้มเหลว", nil), mem("ru", "Возврат не прошёл", nil), mem("de", "Die Straße heißt Größe", nil), mem("he", "ההחזר נכשל", nil),
		mem("hi", "धनवापसी विफल रही", nil), mem("one", "The user likes the aisle", nil), mem("two", "The user likes the window, aisle or not", nil),
		mem("typed", "aisle for flights", func(m *memory.Memory) { m.TaskType = "flight" }),
		mem("gone", "aisle forgotten", func(m *memory.Memory) { m.Status = memory.ItemForgotten }),
		mem("elsewhere", "aisle of another namespace", func(m *memory.Memory) { m.Namespace = "t.team" }),
	}))
	for _, test := range []struct {
		text string
		want string
	}{
		{"退款支付", "zh"},
		{"检查一下日期格式", "zh"},
		{"支払い 失敗", "ja"},
		{"환불", "ko"},
		{"คืนเงิน", "th"},
		{"ВОЗВРАТ", "ru"},
		{"STRASSE Größe", "de"},
		{"ההחזר", "he"},
		{"धनवापसी", "hi"},
		{"cancelling", "snap"},
		{"which passenger?", "snap"},
		{"booking", "snap"},
		{"manager", "rule"},
		{"window", "two"},
		{"window' OR 1=1 --", "two"},
		{"nothing like this", ""},
		{"?", ""},
		{"", ""},
		{"a", ""},
	} {
		if got := found(find(t, s, memory.LexicalQuery{Text: test.text})); got != test.want {
			t.Errorf("Lexical(%q) = %q, want %q", test.text, got, test.want)
		}
	}
	if got := find(t, s, memory.LexicalQuery{Text: "aisle window"}); len(got) != 4 || got[0].ID != "two" || got[0].Score != 1 || got[1].Score >= 0.5 {
		t.Errorf("the one with both words, the rarer of them alone, should be first with score 1: %+v", got)
	}
	if got := find(t, s, memory.LexicalQuery{Text: "aisle unknownword"}); len(got) != 4 || got[0].Score >= 0.5 {
		t.Errorf("a word that is nowhere should weigh more than one that is in many: %+v", got)
	}
	for _, test := range []struct {
		q    memory.LexicalQuery
		want string
	}{
		{memory.LexicalQuery{TaskType: "flight"}, "typed"},
		{memory.LexicalQuery{Statuses: []memory.ItemStatus{memory.ItemForgotten}}, "gone"},
		{memory.LexicalQuery{Layers: []memory.Layer{memory.LayerSnapshot, memory.LayerRule}}, ""},
		{memory.LexicalQuery{Namespace: "t.team"}, "elsewhere"},
		{memory.LexicalQuery{Namespace: "none"}, ""},
		{memory.LexicalQuery{Limit: 2}, "gone one"},
	} {
		test.q.Text = "aisle"
		if got := found(find(t, s, test.q)); got != test.want {
			t.Errorf("Lexical(%+v) = %q, want %q", test.q, got, test.want)
		}
	}
	if _, err := s.Lexical(t.Context(), memory.LexicalQuery{Text: "aisle", Limit: 1}); err == nil {
		t.Error("items of no namespace were searched")
	}
	if got := find(t, s, memory.LexicalQuery{Text: strings.Repeat("many different words 退款 ", 3000) + "aisle"}); len(got) == 0 {
		t.Error("a long question found nothing")
	}
}

func lexicalCurrent(t *testing.T, s ItemStore) {
	must(t, s.InsertMemories(t.Context(), []memory.Memory{mem("m", "The code is ERR-4711", nil), mem("n", "Something else", nil)}))
	must(t, s.InsertMemories(t.Context(), []memory.Memory{mem("m", "The code is ERR-4712", func(m *memory.Memory) {
		m.Version = memory.Version{Writer: "p", WriterKind: memory.WriterPerson, Seq: 1}
	})}))
	must(t, s.InsertMemories(t.Context(), []memory.Memory{mem("m", "The code is ERR-4713", func(m *memory.Memory) { m.Version.Seq = 2 })}))
	must(t, s.InsertMemories(t.Context(), []memory.Memory{mem("n", "Quite another", func(m *memory.Memory) { m.Version.Seq, m.Version.RunID = 2, "never committed" })}))
	for text, want := range map[string]string{"4711": "", "4712": "m", "4713": "", "another": "", "something": "n"} {
		if got := found(find(t, s, memory.LexicalQuery{Text: text})); got != want {
			t.Errorf("Lexical(%q) = %q, want %q", text, got, want)
		}
	}
}

func lexicalExact(t *testing.T, s ItemStore) {
	texts := map[string]string{
		"1": "It failed with ERR-4711 in get_user.", "2": "It failed with ERR-47112 in get_user_name", "3": "ValueError: wrong value", "4": "a value error",
		"5": "open /etc/app/config.yaml: ENOENT", "6": "错误码E1003表示退款失败", "7": "status 404 after 3 days", "8": "about 3 days",
	}
	var all []memory.Memory
	for id, text := range texts {
		all = append(all, mem(id, text, nil))
	}
	must(t, s.InsertMemories(t.Context(), all))
	for _, test := range []struct {
		question string
		want     map[string]string // id → codes
	}{
		{"what does ERR-4711 mean", map[string]string{"1": "ERR-4711"}},
		{"err-4711?", map[string]string{"1": "err-4711"}},
		{"why did get_user fail", map[string]string{"1": "get_user"}},
		{"a ValueError came", map[string]string{"3": "ValueError"}},
		{"a value came", map[string]string{}},
		{"cannot open /etc/app/config.yaml", map[string]string{"5": "etc/app/config.yaml"}},
		{"got ENOENT", map[string]string{"5": "ENOENT"}},
		{"E1003是什么", map[string]string{"6": "E1003"}},
		{"status 404", map[string]string{"7": "404"}},
		{"3 days", map[string]string{}},
	} {
		got := map[string]string{}
		for _, c := range find(t, s, memory.LexicalQuery{Text: test.question}) {
			if len(c.Exact) > 0 {
				got[c.ID] = strings.Join(c.Exact, " ")
			}
		}
		if !reflect.DeepEqual(got, test.want) {
			t.Errorf("Lexical(%q) holds exactly %v, want %v", test.question, got, test.want)
		}
	}
}

func lookupItems(t *testing.T, s ItemStore) {
	putSnapshots(t, s, fullSnapshot("t", "snapshot-0001"))
	must(t, s.InsertMemories(t.Context(), []memory.Memory{fullMemory("t", "snapshot-0001-memory"), fullMemory("u", "memory-u")}))
	rule := fullRule("t", "rule-0001")
	hidden := fullRule("t", "rule-0002")
	hidden.Version.RunID = "not committed"
	must(t, s.InsertRules(t.Context(), []memory.Rule{rule, hidden}))
	for _, test := range []struct {
		id         string
		namespaces []string
		want       string
	}{
		{"snapshot-0001", nil, "snapshot/t/task"},
		{"snapshot-0", []string{"t"}, "snapshot/t/task memory/t/task"},
		{"rule-0001", nil, "rule/t/"},
		{"rule-0002", nil, ""},
		{"memory-u", []string{"t"}, ""},
		{"memory-u", []string{"t", "u"}, "memory/u/task"},
	} {
		got, err := s.Lookup(t.Context(), test.id, test.namespaces...)
		if (test.want == "") != errors.Is(err, memory.ErrNotFound) {
			t.Errorf("Lookup(%s) = %v", test.id, err)
		}
		var names []string
		for _, m := range got {
			names = append(names, fmt.Sprintf("%s/%s/%s", m.Kind, m.Namespace, m.TaskID))
			if !m.Time.Equal(start()) {
				t.Errorf("Lookup(%s): time %s", test.id, m.Time)
			}
		}
		if strings.Join(names, " ") != test.want {
			t.Errorf("Lookup(%s) = %q, want %q", test.id, names, test.want)
		}
	}
}

// noTask is about events that belong to no task.
func noTask(t *testing.T, s ItemStore) {
	mustInsert(t, s, oneTask("t", "real")...)
	mustInsert(t, s, event("t", "~unjoined", "r", events.KindRecallServed, 0, `{"question":"q","items":[]}`))
	if tasks := mustTasks(t, s, memory.TaskFilter{}); len(tasks) != 1 || tasks[0].TaskID != "real" {
		t.Errorf("%d tasks, want the real one", len(tasks))
	}
	_, touched, err := s.Touched(t.Context(), start())
	if err != nil || len(touched) != 1 || touched[0].Key.TaskID != "real" {
		t.Errorf("touched: %+v, %v", touched, err)
	}
	if h, err := s.Health(t.Context(), "t"); err != nil || h.TasksOpen != 1 || h.Events != 8 {
		t.Errorf("health: %+v, %v; want one open task and 8 events", h, err)
	}
}

func reflections(t *testing.T, s ItemStore) {
	reflection := func(namespace, task string, revision uint64) memory.TaskReflection {
		return memory.TaskReflection{
			Namespace: namespace, TaskID: task, Revision: revision, Closed: true, ReflectedBy: "evidence", Fallback: awkward, Kept: 2, Dropped: map[string]int{"vague": 3},
		}
	}
	unreflected := func(namespace string, want int) {
		t.Helper()
		if n, err := s.Unreflected(t.Context(), namespace); err != nil || n != want {
			t.Errorf("Unreflected(%q) = %d, %v; want %d", namespace, n, err, want)
		}
	}
	unreflected("", 0)
	var revisions []uint64
	for _, task := range []string{"a", "b"} {
		revisions = append(revisions, mustWrite(t, s, oneTask("t", task), true).Revision)
	}
	mustWrite(t, s, oneTask("t", "open")[:3], false)
	other := mustWrite(t, s, oneTask("u", "a"), true).Revision
	unreflected("", 3)
	unreflected("t", 2)
	must(t, s.InsertReflections(t.Context(), []memory.TaskReflection{reflection("t", "a", revisions[0]-2), reflection("u", "a", other)}))
	unreflected("t", 2)
	unreflected("", 2)
	want := reflection("t", "a", revisions[0])
	must(t, s.InsertReflections(t.Context(), []memory.TaskReflection{want, reflection("t", "b", revisions[1]+2)}))
	must(t, s.InsertReflections(t.Context(), []memory.TaskReflection{want, reflection("t", "a", 1)}))
	unreflected("t", 0)
	got, err := s.Reflections(t.Context(), []memory.TaskKey{key("t", "a"), key("t", "b"), key("t", "none")})
	must(t, err)
	if len(got) != 2 || got[key("t", "b")].Revision != revisions[1]+2 {
		t.Errorf("Reflections = %+v", got)
	}
	last := got[key("t", "a")]
	if last.RecordedAt.IsZero() {
		t.Error("a reflection was recorded at no time")
	}
	last.RecordedAt = time.Time{}
	if !reflect.DeepEqual(last, want) {
		t.Errorf("of several revisions the highest is %+v, want %+v", last, want)
	}
	none, err := s.Reflections(t.Context(), []memory.TaskKey{key("u", "b")})
	if err != nil || len(none) != 0 {
		t.Errorf("Reflections of a task without = %+v, %v, want none", none, err)
	}
}

func runs(t *testing.T, s ItemStore) {
	at := start().Add(time.Minute)
	first := memory.Run{Job: "merge", RunID: "1", Version: 1, Status: memory.RunRunning, Fence: 7, Holder: awkward, Namespace: "t", StartedAt: start()}
	done := first
	done.Version, done.Status, done.CommittedAt, done.Counts = 2, memory.RunCommitted, &at, map[string]uint64{"merged": 3}
	later := memory.Run{Job: "merge", RunID: "2", Version: 1, Status: memory.RunFailed, StartedAt: at, Error: "why"}
	decay := memory.Run{Job: "decay", RunID: "1", Version: 1, Status: memory.RunRunning, StartedAt: start().Add(-time.Hour)}
	for _, run := range []memory.Run{done, first, later, decay} {
		must(t, s.InsertRun(t.Context(), run))
	}
	for _, test := range []struct {
		job   string
		limit int
		want  []memory.Run
	}{{"merge", 0, []memory.Run{later, done}}, {"merge", 1, []memory.Run{later}}, {"", 0, []memory.Run{later, done, decay}}, {"none", 0, nil}} {
		if got, err := s.Runs(t.Context(), test.job, test.limit); err != nil || !reflect.DeepEqual(got, test.want) {
			t.Errorf("Runs(%q, %d) = %+v, %v; want %+v", test.job, test.limit, got, err, test.want)
		}
	}
	for _, bad := range []memory.Run{{}, {Job: "j", RunID: "r", StartedAt: start(), Status: memory.RunCommitted}} {
		if err := s.InsertRun(t.Context(), bad); !errors.Is(err, memory.ErrRejected) {
			t.Errorf("InsertRun(%+v) = %v, want ErrRejected", bad, err)
		}
	}
}

func tokens(t *testing.T, s ItemStore) {
	ends := start().Add(time.Hour)
	token := memory.AccessToken{TokenID: "1", Hash: memory.TokenHash("secret"), Namespace: "t", Scope: memory.ScopeWrite, Label: awkward, CreatedAt: start(), ExpiresAt: &ends}
	other := memory.AccessToken{TokenID: "2", Hash: memory.TokenHash("other"), Namespace: "u", Scope: memory.ScopeAdmin, CreatedAt: start().Add(time.Second)}
	must(t, s.InsertToken(t.Context(), other))
	must(t, s.InsertToken(t.Context(), token))
	if got, err := s.TokenByHash(t.Context(), memory.TokenHash("secret")); err != nil || !reflect.DeepEqual(got, token) {
		t.Errorf("TokenByHash = %+v, %v; want %+v", got, err, token)
	}
	for _, hash := range []string{"", "secret", memory.TokenHash("wrong")} {
		if _, err := s.TokenByHash(t.Context(), hash); !errors.Is(err, memory.ErrNotFound) {
			t.Errorf("TokenByHash(%q) = %v, want ErrNotFound", hash, err)
		}
	}
	for namespace, want := range map[string][]memory.AccessToken{"t": {token}, "": {token, other}} {
		if got, err := s.Tokens(t.Context(), namespace); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("Tokens(%q) = %+v, %v; want %+v", namespace, got, err, want)
		}
	}
	if err := s.RevokeToken(t.Context(), "u", "1"); !errors.Is(err, memory.ErrNotFound) {
		t.Errorf("revoking a token of another namespace: %v, want ErrNotFound", err)
	}
	for range 2 {
		must(t, s.RevokeToken(t.Context(), "t", "1"))
		must(t, s.InsertToken(t.Context(), token)) // Delivered again: it stays revoked.
		if got, err := s.TokenByHash(t.Context(), token.Hash); err != nil || !got.Revoked || got.Valid(start()) {
			t.Errorf("the revoked token is %+v, %v", got, err)
		}
	}
	for _, bad := range []memory.AccessToken{{}, {TokenID: "3", Hash: "h", Namespace: "t", Scope: "root", CreatedAt: start()}} {
		if err := s.InsertToken(t.Context(), bad); !errors.Is(err, memory.ErrRejected) {
			t.Errorf("InsertToken(%+v) = %v, want ErrRejected", bad, err)
		}
	}
}

func audit(t *testing.T, s ItemStore) {
	entry := memory.AuditEntry{
		Namespace: "t", AuditID: "1", Time: start(), Actor: "agent", ActorKind: "agent", Door: "mcp", Action: "forget", Target: "item", TargetKind: "memory", Reason: awkward,
		Before: json.RawMessage(`{"status":"active"}`), After: json.RawMessage(`{"status":"forgotten"}`),
	}
	must(t, s.InsertAudit(t.Context(), []memory.AuditEntry{entry}))
	must(t, s.InsertAudit(t.Context(), []memory.AuditEntry{entry}))
	must(t, s.InsertAudit(t.Context(), nil))
	if err := s.InsertAudit(t.Context(), []memory.AuditEntry{{Namespace: "t", Time: start()}}); !errors.Is(err, memory.ErrRejected) {
		t.Errorf("InsertAudit without an id = %v, want ErrRejected", err)
	}
}
