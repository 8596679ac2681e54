package store_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/engine/enginetest"
	"github.com/hindsight-memory/hindsight/internal/memory"
	"github.com/hindsight-memory/hindsight/internal/store"
	"github.com/hindsight-memory/hindsight/schema"
)

// views is a migrated database with a way to put rows in and ask.
type views struct {
	*store.ClickHouse
	url string
}

func newViews(t *testing.T) views {
	t.Helper()
	url := enginetest.ClickHouse(t)
	c := open(t, url, enginetest.Database(t, url))
	if err := c.Migrate(t.Context(), store.MigrateOptions{}); err != nil {
		t.Fatal(err)
	}
	return views{ClickHouse: c, url: url}
}

func (v views) exec(t *testing.T, into, columns string, rows ...string) {
	t.Helper()
	enginetest.Exec(t, v.url, "INSERT INTO "+v.Database()+"."+into+" ("+columns+") VALUES ("+strings.Join(rows, "), (")+")")
}

func (v views) ask(t *testing.T, statement string) string {
	t.Helper()
	var out bytes.Buffer
	if err := v.Query(t.Context(), statement, "TSVRaw", &out); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	return out.String()
}

func (v views) want(t *testing.T, statement string, lines ...string) {
	t.Helper()
	want := strings.Join(lines, "\n") + "\n"
	if got := v.ask(t, statement); got != want {
		t.Errorf("%s\ngot:\n%swant:\n%s", statement, got, want)
	}
}

func (v views) insert(t *testing.T, evs ...events.Event) {
	t.Helper()
	if err := v.InsertEvents(t.Context(), evs); err != nil {
		t.Fatal(err)
	}
}

func TestExamplesOfViewsRun(t *testing.T) {
	t.Parallel()
	v := newViews(t)
	all, err := schema.Views()
	if err != nil {
		t.Fatal(err)
	}
	for _, view := range all {
		v.ask(t, view.Example)
		v.ask(t, "SELECT * FROM "+view.Name)
	}
}

// step is a call of a tool in a task.
func step(task, id, tool, status, message, more string) events.Event {
	return events.Event{
		ID: id, Namespace: "t", AgentID: "agent", SessionID: "s", TaskID: task, GoalID: "goal-" + task[:1], Kind: events.KindStepFinished,
		Time: time.Date(2026, 3, 1, 0, 0, len(id), 0, time.UTC),
		Data: json.RawMessage(fmt.Sprintf(`{"tool":%q,"status":%q,"error_message":%q%s}`, tool, status, message, more)),
	}
}

func TestToolFailures(t *testing.T) {
	t.Parallel()
	v := newViews(t)
	evs := []events.Event{
		step("a1", "1", "pay", "success", "", `,"execution_time_ms":10`),
		step("a1", "2", "pay", "failure", "bad", `,"execution_time_ms":30,"error_type":"ValueError"`),
		step("b1", "33", "pay", "failure", "worse", `,"execution_time_ms":20,"error_type":"KeyError"`),
		step("b1", "4", "pay", "failure", "by the user", `,"actor":"user"`),
		step("b1", "5", "look", "success", "", `,"actor":"agent"`),
		// One call, told twice: as a log record that says success and as a span that tells the truth.
		step("b1", "6", "run", "success", "", `,"call_id":"c"`),
		step("b1", "7", "run", "failure", "exit 1", `,"call_id":"c"`),
		// The same call id in another task is another call.
		step("b2", "8", "run", "success", "", `,"call_id":"c"`),
	}
	for range 3 { // Copies that are not merged yet.
		v.insert(t, evs...)
	}
	other := step("a1", "1", "pay", "failure", "bad", "")
	other.Namespace = "other"
	v.insert(t, other)
	v.want(t, "SELECT tool, calls, failures, round(failure_rate, 2), tasks, tasks_with_failure, error_types, avg_ms, last_error_message FROM v_tool_failures WHERE namespace = 't' ORDER BY tool",
		"look\t1\t0\t0\t1\t0\t[]\t0\t",
		"pay\t3\t2\t0.67\t2\t2\t['KeyError','ValueError']\t20\tworse",
		"run\t2\t1\t0.5\t2\t1\t[]\t0\texit 1")
	v.want(t, "SELECT namespace, tool, calls FROM v_tool_failures WHERE namespace = 'other'", "other\tpay\t1")
	// The view and the steps of tasks tell the same.
	var calls, failures int
	for task, err := range v.Tasks(t.Context(), memory.TaskFilter{Namespace: "t"}) {
		if err != nil {
			t.Fatal(err)
		}
		calls += len(task.Steps)
		failures += task.Errors
	}
	v.want(t, "SELECT sum(calls), sum(failures) FROM v_tool_failures WHERE namespace = 't'", fmt.Sprintf("%d\t%d", calls, failures))
}

func TestRepeatErrors(t *testing.T) {
	t.Parallel()
	v := newViews(t)
	const kind = `,"error_type":"ValueError"`
	var evs []events.Event
	for i, task := range []string{"a1", "a2", "b1"} {
		evs = append(evs, events.Event{
			ID: task + "start", Namespace: "t", AgentID: "agent", SessionID: "s", TaskID: task, Kind: events.KindTaskStarted,
			Time: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC), Data: json.RawMessage(`{"task_type":"refund"}`),
		}, step(task, task+"x", "pay", "failure", fmt.Sprintf("Order '#W%d' of ada%d@example.org: amount %d.50 is bad", i, i, i*100), kind))
	}
	evs = append(evs,
		step("b1", "again", "pay", "failure", `Order "#W9" of bob@example.org: amount 7 is bad`, kind),
		step("b1", "user", "pay", "failure", "Order '#W1' of x@y.z: amount 7 is bad", kind+`,"actor":"user"`),
		step("b1", "once", "pay", "failure", "card expired", kind),
		step("b1", "other", "look", "failure", "Order '#W1' of x@y.z: amount 7 is bad", kind),
		step("c1", "typeless", "look", "failure", "Order '#W1' of x@y.z: amount 7 is bad", kind),
		step("c1", "typeless2", "look", "failure", "Order '#W1' of x@y.z: amount 7 is bad", kind),
		step("c1", "fine", "pay", "success", "Order '#W1' of x@y.z: amount 7 is bad", kind))
	v.insert(t, evs...)
	v.insert(t, evs...)
	v.want(t, "SELECT task_type, tool, error_type, error_signature, failures, tasks, tasks_repeated, goals, agents FROM v_repeat_errors ORDER BY task_type",
		"\tlook\tValueError\torder <text> of <address>: amount <value> is bad\t2\t1\t1\t1\t1",
		"refund\tpay\tValueError\torder <text> of <address>: amount <value> is bad\t4\t3\t1\t2\t1")
	if example := v.ask(t, "SELECT example FROM v_repeat_errors WHERE tool = 'pay'"); !strings.Contains(example, "is bad") || !strings.Contains(example, "W") {
		t.Errorf("the example is not a message as it came: %q", example)
	}
}

func TestColumnsForAnalysts(t *testing.T) {
	t.Parallel()
	v := newViews(t)
	v.insert(t, step("a", "1", "pay", "success", "", `,"parameters":{"a":[1]},"reasoning":"why","result":{"ok":true}`),
		step("a", "22", "pay", "success", "", `,"result":"plain \"text\""`))
	v.want(t, "SELECT parameters, reasoning, result FROM trace_events ORDER BY event_id",
		`{"a":[1]}`+"\twhy\t"+`{"ok":true}`, "\t\t"+`plain "text"`)
}

func TestCurrentVersions(t *testing.T) {
	t.Parallel()
	v := newViews(t)
	for _, table := range []struct{ name, view, id, value string }{
		{"snapshots", "v_snapshots", "snapshot_id", "lesson"},
		{"memories", "v_memories", "memory_id", "value"},
		{"rules", "v_rules", "rule_id", "rule"},
		{"summaries", "v_summaries", "session_id", "summary"},
	} {
		columns := "namespace, " + table.id + ", task_revision, writer, writer_kind, seq, run_id, recorded_at, " + table.value
		v.exec(t, table.name, columns,
			// The higher task revision wins, though it was recorded earlier.
			"'t','revision',4,'w','machine',1,'','2026-01-01 00:00:00','new'", "'t','revision',2,'w','machine',2,'','2026-01-02 00:00:00','old'",
			// Of one revision the later one wins, then the writer, then its number.
			"'t','time',2,'z','machine',1,'','2026-01-01 00:00:00','old'", "'t','time',2,'a','machine',1,'','2026-01-02 00:00:00','new'",
			"'t','seq',2,'w','machine',1,'','2026-01-01 00:00:00','old'", "'t','seq',2,'w','machine',2,'','2026-01-01 00:00:00','new'",
			// A person outlasts every machine.
			"'t','person',1,'ada','person',1,'','2026-01-01 00:00:00','new'", "'t','person',9,'w','machine',1,'','2026-01-09 00:00:00','old'",
			// What a job wrote counts once its run is committed.
			"'t','run',2,'w','machine',1,'','2026-01-01 00:00:00','old'", "'t','run',2,'w','machine',2,'done-"+table.name+"','2026-01-02 00:00:00','new'",
			"'t','run',2,'w','machine',3,'open-"+table.name+"','2026-01-03 00:00:00','not yet'", "'t','hidden',2,'w','machine',4,'open-"+table.name+"','2026-01-03 00:00:00','not yet'",
			// Another namespace may have the same ids.
			"'u','revision',1,'w','machine',1,'','2026-01-01 00:00:00','theirs'")
		v.exec(t, table.name, columns, "'t','time',2,'a','machine',1,'','2026-01-02 00:00:00','new'") // Written again.
		v.exec(t, "consolidation_runs", "job, run_id, version, status, started_at", "'merge','done-"+table.name+"',1,'running',0", "'merge','open-"+table.name+"',1,'running',0")
		v.exec(t, "consolidation_runs", "job, run_id, version, status, started_at", "'merge','done-"+table.name+"',2,'committed',0")
		v.want(t, "SELECT "+table.id+", "+table.value+" FROM "+table.view+" WHERE namespace = 't' ORDER BY "+table.id,
			"person\tnew", "revision\tnew", "run\tnew", "seq\tnew", "time\tnew")
		v.want(t, "SELECT "+table.value+" FROM "+table.view+" WHERE namespace = 'u'", "theirs")
	}
}

func TestRecallsAndFeedbackComeFromEvents(t *testing.T) {
	t.Parallel()
	v := newViews(t)
	at := time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)
	recall := func(id string, kind events.Kind, data string) events.Event {
		return events.Event{ID: id, Namespace: "t", AgentID: "agent", SessionID: "s", TaskID: "task", Time: at, Kind: kind, Data: json.RawMessage(data)}
	}
	evs := []events.Event{
		recall("r1", events.KindRecallServed, `{"question":"q","door":"mcp","way":"experience","items":[{"id":"i1","layer":"rule","score":0.9,"reasons":["x"]},{"id":"i2","layer":"snapshot","score":0.5}],"latency_ms":12.5,"tokens":99,"as_of":"2026-01-01T00:00:00Z","answer":"a"}`),
		recall("r2", events.KindRecallServed, `{"question":"q2","task_id":"","items":[],"latency_ms":2}`),
		recall("r3", events.KindRecallServed, `{"question":"q3","items":[{"id":"i1","score":0.7}],"withheld":true,"latency_ms":4}`),
		recall("r4", events.KindRecallServed, `{"question":7,"items":"none","as_of":"never"}`),
		recall("f1", events.KindFeedback, `{"kind":"rating","target":"i1","value":true,"comment":"good"}`),
		recall("f2", events.KindFeedback, `{"kind":"rating","target":"i2","value":false}`),
		recall("f3", events.KindFeedback, `{"kind":"rating","value":4.5}`),
		recall("f4", events.KindFeedback, `{"kind":"correction","value":"use numbers"}`),
	}
	v.insert(t, evs...)
	v.insert(t, evs...)
	v.want(t, "SELECT recall_id, task_id, question, way, item_ids, item_layers, item_scores, withheld, as_of, tokens, latency_ms, answer FROM recalls FINAL ORDER BY recall_id",
		"r1\ttask\tq\texperience\t['i1','i2']\t['rule','snapshot']\t[0.9,0.5]\tfalse\t2026-01-01 00:00:00.000\t99\t12.5\ta",
		"r2\t\tq2\t\t[]\t[]\t[]\tfalse\t\\N\t0\t2\t",
		"r3\ttask\tq3\t\t['i1']\t['']\t[0.7]\ttrue\t\\N\t0\t4\t",
		"r4\ttask\t7\t\t[]\t[]\t[]\tfalse\t\\N\t0\t0\t")
	v.want(t, "SELECT feedback_id, target, kind, value, number, helpful, comment FROM feedback FINAL ORDER BY feedback_id",
		"f1\ti1\trating\ttrue\t\\N\ttrue\tgood", "f2\ti2\trating\tfalse\t\\N\tfalse\t",
		"f3\ttask\trating\t4.5\t4.5\t\\N\t", "f4\ttask\tcorrection\t\"use numbers\"\t\\N\t\\N\t")
	v.want(t, "SELECT day, recalls, empty, unjoined, withheld, avg_items, avg_top_score, helpful, unhelpful FROM v_recall_quality WHERE namespace = 't'",
		"2026-03-01\t4\t2\t1\t1\t0.75\t0.8\t1\t1")
}

// outcome is a closed task of a type with items recalled.
func outcome(id, taskType string, status events.Status, withheld bool, recalled ...string) memory.Task {
	at := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	return memory.Task{
		Namespace: "t", TaskID: id, SessionID: "s-" + id, TaskType: taskType, Status: status, Closed: true, Revision: 3, Events: 1,
		StartedAt: at, EndedAt: at, Recalled: recalled, Withheld: withheld,
	}
}

func TestUpliftAndRuleEffect(t *testing.T) {
	t.Parallel()
	v := newViews(t)
	open := outcome("open", "refund", events.StatusFailure, false, "r1")
	open.Closed = false
	older := outcome("1", "refund", events.StatusFailure, false, "r1")
	older.Revision = 1
	tasks := []memory.Task{
		outcome("1", "refund", events.StatusSuccess, false, "r1", "x"), older,
		outcome("2", "refund", events.StatusSuccess, false, "r1"),
		outcome("3", "refund", events.StatusFailure, false, "x"),
		outcome("4", "refund", events.StatusFailure, true, "r1"),
		outcome("5", "refund", events.StatusSuccess, true, "r1"),
		outcome("6", "refund", events.StatusPartial, false),
		outcome("7", "refund", events.StatusUnknown, false, "r1"), open,
		outcome("8", "cancel", events.StatusSuccess, false, "x"),
	}
	if err := v.InsertTasks(t.Context(), slices.Concat(tasks, tasks)); err != nil {
		t.Fatal(err)
	}
	v.want(t, "SELECT task_type, treated_tasks, treated_success, control_tasks, control_success, round(treated_rate, 2), control_rate, round(uplift, 2) FROM v_memory_uplift ORDER BY task_type",
		"cancel\t1\t1\t0\t0\t1\t\\N\t\\N", "refund\t3\t2\t2\t1\t0.67\t0.5\t0.17")
	const columns = "namespace, rule_id, task_revision, writer, writer_kind, seq, task_type, kind, rule, status"
	v.exec(t, "rules", columns, "'t','r1',0,'w','machine',1,'refund','task','a rule','active'", "'t','r2',0,'w','machine',2,'cancel','task','unseen','active'")
	v.exec(t, "rule_votes", "namespace, rule_id, task_id, task_revision, vote", "'t','r1','1',2,'refute'", "'t','r1','1',4,'support'", "'t','r1','2',2,'support'", "'t','r1','4',2,'refute'")
	v.want(t, "SELECT rule_id, support, refute, shown_tasks, shown_failed, withheld_tasks, withheld_failed, base_tasks, base_failed FROM v_rule_effect ORDER BY rule_id",
		"r1\t2\t1\t2\t0\t2\t1\t2\t2", "r2\t0\t0\t0\t0\t0\t0\t1\t0")
}
