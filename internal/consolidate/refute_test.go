package consolidate

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/memory"
	"github.com/hindsight-memory/hindsight/internal/store"
)

// deliver is a call of a tool and what came back.
type deliver struct{ mode, errorMessage string }

// deliveries store a task of such calls in which items were shown; the ids of its events are the task's with a number.
func deliveries(t *testing.T, record *store.ClickHouse, id string, minute int, status events.Status, shown []string, calls ...deliver) {
	t.Helper()
	at := base.Add(time.Duration(minute) * time.Minute)
	var evs []events.Event
	add := func(kind events.Kind, data any) {
		raw, err := json.Marshal(data)
		if err != nil {
			t.Fatal(err)
		}
		evs = append(evs, events.Event{
			ID: fmt.Sprintf("%s-%d", id, len(evs)), Namespace: namespace, AgentID: "agent", SessionID: id, TaskID: id, GoalID: id,
			Time: at.Add(time.Duration(len(evs)) * time.Second), Kind: kind, Data: raw,
		})
	}
	add(events.KindTaskStarted, map[string]any{"task_type": "delivery", "goal": "deliver"})
	for _, c := range calls {
		step := map[string]any{"tool": "send", "parameters": map[string]any{"parcel": id, "mode": c.mode}, "status": "success"}
		if c.errorMessage != "" {
			step["status"], step["error_message"] = "failure", c.errorMessage
		}
		add(events.KindStepFinished, step)
	}
	add(events.KindTaskFinished, map[string]any{"status": status, "confirmed_by": events.ConfirmedByUser})
	task := memory.BuildTask(evs, true)
	task.Recalled = shown
	if err := record.InsertEvents(t.Context(), evs); err != nil {
		t.Fatal(err)
	}
	if err := record.InsertTasks(t.Context(), []memory.Task{task}); err != nil {
		t.Fatal(err)
	}
}

// told is the lesson of a task whose first call failed and whose second worked.
func told(id string) memory.Snapshot {
	s := lesson(0, "send", "mode not possible", "Set `mode` to `raft` rather than `truck`.", "always")
	s.SnapshotID, s.TaskID, s.TaskContext.TaskType = "lesson-"+id, id, "delivery"
	s.Decision.Parameters = json.RawMessage(fmt.Sprintf(`{"parcel":%q,"mode":"truck"}`, id))
	s.Evidence = []string{id + "-1", id + "-2"}
	return s
}

// TestWhatTasksRefuteLeavesService: a lesson that was shown and proved wrong is shown no more, with all that say the same;
// one that proved right stays, and so does what a person decided, and what was not shown in the name of a task.
func TestWhatTasksRefuteLeavesService(t *testing.T) {
	t.Parallel()
	record := newRecord(t)
	lease := &heldLease{fence: 1}
	s := newScheduler(t, record, lease, nil)
	names := []string{"wrong", "member", "right", "decided", "unseen", "outage"}
	lessons := map[string]memory.Snapshot{}
	for n, name := range names {
		deliveries(t, record, name, n, events.StatusSuccess, nil, deliver{"truck", "mode not possible"}, deliver{"raft", ""})
		l := told(name)
		l.Reflection.Lesson += strings.Repeat(" Else nothing comes.", n) // Only the member says the same.
		l.AppliesWhen = name
		lessons[name] = l
	}
	member := lessons["member"]
	member.Reflection, member.AppliesWhen = lessons["wrong"].Reflection, lessons["wrong"].AppliesWhen
	member.Timestamp = member.Timestamp.Add(time.Hour)
	lessons["member"] = member
	decided := lessons["decided"]
	decided.Version = memory.Version{TaskRevision: memory.RevisionOutlasting, Writer: "person", WriterKind: memory.WriterPerson, Seq: 1}
	lessons["decided"] = decided
	for _, name := range names {
		insertSnapshots(t, record, lessons[name])
	}
	status := func(name string) memory.Judged { return snapshot(t, record, lessons[name].SnapshotID).Judged }
	runJob(t, s, JobMerge)
	for _, name := range names {
		if status(name).Status != memory.ItemActive {
			t.Fatalf("%s is %s before any task tried it", name, status(name).Status)
		}
	}

	shown := []string{lessons["wrong"].SnapshotID, lessons["decided"].SnapshotID}
	deliveries(t, record, "later-1", 100, events.StatusSuccess, shown, deliver{"raft", "invalid value for mode"}, deliver{"truck", ""})
	deliveries(t, record, "later-2", 101, events.StatusSuccess, []string{lessons["right"].SnapshotID}, deliver{"raft", ""})
	deliveries(t, record, "later-3", 102, events.StatusSuccess, []string{lessons["outage"].SnapshotID}, deliver{"raft", "503 Service Unavailable"})
	deliveries(t, record, "later-4", 103, events.StatusSuccess, nil, deliver{"raft", "invalid value for mode"}, deliver{"truck", ""})
	report := runJob(t, s, JobMerge)
	if report.Counts["refuted"] != 2 {
		t.Errorf("%d lessons were refuted, want 2: the wrong one and its member", report.Counts["refuted"])
	}
	for name, refuted := range map[string]bool{"wrong": true, "member": true, "right": false, "decided": false, "unseen": false, "outage": false} {
		if j := status(name); memory.Refuted(j) != refuted || !refuted && j.Status != memory.ItemActive {
			t.Errorf("%s is %s (%s), want refuted: %t", name, j.Status, j.StatusReason, refuted)
		}
	}
	if reason := status("wrong").StatusReason; reason != memory.ReasonRefuted+"calls made as it says: 1 refused" {
		t.Errorf("the reason is %q", reason)
	}
	// It stays so: neither a further merge nor a later reflection of its task brings it back.
	before := visible(t, record)
	if report := runJob(t, s, JobMerge); report.Counts["refuted"] != 0 || visible(t, record) != before {
		t.Errorf("a further merge changed something: %v", report.Counts)
	}
	if j := memory.Renewed(lessons["wrong"].Judged, status("wrong")); !memory.Refuted(j) {
		t.Errorf("a later reflection makes it %s (%s)", j.Status, j.StatusReason)
	}
}
