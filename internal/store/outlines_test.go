package store_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/memory"
)

// failedTask is a closed task of a goal that met an error in a minute.
func failedTask(id string, minute int, revision uint64) memory.Task {
	at := time.Date(2026, 1, 2, 3, minute, 0, 0, time.UTC)
	return memory.Task{
		Namespace: "t", TaskID: id, GoalID: "goal", TaskType: "type", Revision: revision, Closed: true, Finished: true, Events: 3,
		Status: events.StatusFailure, Certainty: memory.CertaintyConfirmed, StartedAt: at, EndedAt: at.Add(time.Minute),
		Steps: []memory.Step{{Tool: "pay", Status: events.StatusFailure, ErrorMessage: "timeout", Time: at}},
	}
}

// TestFirstSightings: the first tasks that met an error, each once however often its state was written.
func TestFirstSightings(t *testing.T) {
	t.Parallel()
	c := migrated(t)
	var tasks []memory.Task
	for n := range 6 {
		id := fmt.Sprintf("task%d", 5-n)
		tasks = append(tasks, failedTask(id, 10+n, 7), failedTask(id, 10+n, 9))
	}
	running := failedTask("open", 1, 6)
	running.Closed = false
	other := failedTask("other", 2, 7)
	other.TaskType = "other type"
	elsewhere := failedTask("elsewhere", 2, 7)
	elsewhere.Namespace = "u"
	for _, task := range append(tasks, running, other, elsewhere) { // Each by itself, so that nothing is merged on the way.
		if err := c.InsertTasks(t.Context(), []memory.Task{task}); err != nil {
			t.Fatal(err)
		}
	}
	signature := memory.ErrorSignature("timeout")
	key := memory.ErrorKey{Namespace: "t", TaskType: "type", Tool: "pay", Signature: signature}
	never := memory.ErrorKey{Namespace: "t", TaskType: "type", Tool: "book", Signature: signature}
	ofOther := memory.ErrorKey{Namespace: "t", TaskType: "other type", Tool: "pay", Signature: signature}
	ofU := memory.ErrorKey{Namespace: "u", TaskType: "type", Tool: "pay", Signature: signature}
	got, err := c.FirstSightings(t.Context(), []memory.ErrorKey{key, never, ofOther, ofU}, 4)
	if err != nil {
		t.Fatal(err)
	}
	named := func(k memory.ErrorKey) (ids []string) {
		for _, s := range got[k] {
			ids = append(ids, s.TaskID)
		}
		return ids
	}
	if ids := named(key); !slices.Equal(ids, []string{"task5", "task4", "task3", "task2"}) || !got[key][0].At.Equal(tasks[0].StartedAt) {
		t.Errorf("the first four that met it: %v, the first at %v", ids, got[key])
	}
	if len(got[never]) != 0 || !slices.Equal(named(ofOther), []string{"other"}) || !slices.Equal(named(ofU), []string{"elsewhere"}) {
		t.Errorf("of other errors: %v", got)
	}
}

// TestOutlines: closed tasks by their newest state, and those of a goal of which somebody saw the outcome.
func TestOutlines(t *testing.T) {
	t.Parallel()
	c := migrated(t)
	older, newer, running, guessed := failedTask("a", 10, 7), failedTask("a", 10, 9), failedTask("b", 11, 6), failedTask("c", 12, 7)
	older.Status, running.Closed, guessed.Certainty = events.StatusSuccess, false, memory.CertaintyInferred
	for _, task := range []memory.Task{newer, older, running, guessed} {
		if err := c.InsertTasks(t.Context(), []memory.Task{task}); err != nil {
			t.Fatal(err)
		}
	}
	key := func(id string) memory.TaskKey { return memory.TaskKey{Namespace: "t", TaskID: id} }
	outlines, err := c.Outlines(t.Context(), []memory.TaskKey{key("a"), key("b"), key("c"), key("d")})
	if err != nil || len(outlines) != 2 {
		t.Fatalf("outlines %+v, %v", outlines, err)
	}
	if a := outlines[key("a")]; a.Revision != 9 || a.Status != events.StatusFailure || len(a.Sightings) != 1 || a.Sightings[0].Tool != "pay" {
		t.Errorf("the newest state of the first is %+v", a)
	}
	of, err := c.OutlinesOfGoals(t.Context(), "t", []string{"goal", "another"})
	if err != nil || len(of) != 1 || of[0].Key != key("a") || of[0].Revision != 9 {
		t.Errorf("of the goal: %+v, %v", of, err)
	}
	if of, err := c.OutlinesOfGoals(t.Context(), "u", []string{"goal"}); err != nil || len(of) != 0 {
		t.Errorf("of the goal in another namespace: %+v, %v", of, err)
	}
}

// TestNearTasks: the tasks of a type that called a tool and ended in one way, next to a moment on both sides.
func TestNearTasks(t *testing.T) {
	t.Parallel()
	c := migrated(t)
	var tasks []memory.Task
	for n := range 8 {
		task := failedTask(fmt.Sprintf("task%d", n), 10+n, 7)
		task.Status = events.StatusSuccess
		tasks = append(tasks, task)
		task.Revision = 9
		tasks = append(tasks, task)
	}
	failure, open, guessed, other, elsewhere := failedTask("failure", 13, 7), failedTask("open", 13, 6), failedTask("guessed", 13, 7), failedTask("other", 13, 7), failedTask("elsewhere", 13, 7)
	open.Closed, guessed.Certainty, other.TaskType, elsewhere.Namespace = false, memory.CertaintyInferred, "other type", "u"
	for _, task := range append(tasks, failure, open, guessed, other, elsewhere) {
		if err := c.InsertTasks(t.Context(), []memory.Task{task}); err != nil {
			t.Fatal(err)
		}
	}
	at := func(n int, tool string, status events.Status) memory.NearTask {
		return memory.NearTask{Namespace: "t", TaskType: "type", Tool: tool, Status: status, At: tasks[2*n].StartedAt, TaskID: tasks[2*n].TaskID}
	}
	questions := []memory.NearTask{at(3, "pay", events.StatusSuccess), at(0, "pay", events.StatusFailure), at(3, "book", events.StatusSuccess), at(7, "pay", events.StatusSuccess)}
	for range 50 { // more than one statement asks
		questions = append(questions, at(5, "pay", events.StatusSuccess))
	}
	got, err := c.NearTasks(t.Context(), questions, 2)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range map[int][]string{0: {"task1", "task2", "task4", "task5"}, 1: {"failure"}, 2: nil, 3: {"task5", "task6"}, 53: {"task3", "task4", "task6", "task7"}} {
		var ids []string
		for _, s := range got[i] {
			ids = append(ids, s.TaskID)
		}
		if !slices.Equal(ids, want) {
			t.Errorf("question %d: %v, want %v", i, ids, want)
		}
	}
}
