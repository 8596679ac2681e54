package memory_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/memory"
)

// tried is a step of a task that tries a lesson.
func tried(parameters, errorMessage string) memory.Step {
	s := memory.Step{Tool: "book", Parameters: json.RawMessage(parameters), Status: events.StatusSuccess}
	if errorMessage != "" {
		s.Status, s.ErrorType, s.ErrorMessage = events.StatusFailure, "Error", errorMessage
	}
	return s
}

// lessonFrom is a lesson of a call that failed with E-7 and one that worked.
func lessonFrom(t *testing.T, failing, working string) memory.Repair {
	t.Helper()
	worked := tried(working, "")
	worked.EventID = "worked"
	s := memory.Snapshot{
		Decision:   memory.Decision{ToolSelected: "book", Parameters: json.RawMessage(failing)},
		Outcome:    memory.Outcome{Status: events.StatusFailure, ErrorType: "Error", ErrorMessage: "E-7"},
		Reflection: &memory.Reflection{Lesson: "lesson"}, Judged: memory.Judged{Evidence: []string{"failed", "worked"}},
	}
	r, is := memory.RepairOf(s, []memory.Step{tried(failing, "E-7"), worked})
	if !is {
		t.Fatal("what failed and what worked were not found")
	}
	return r
}

// TestLaterTasksTryALesson: by values where those are the point, by forms where these are, and never by what is particular
// to one task.
func TestLaterTasksTryALesson(t *testing.T) {
	t.Parallel()
	const (
		lamp      = `{"what":"lamp","mode":"slow"}`
		lampFast  = `{"what":"lamp","mode":"fast"}`
		chair     = `{"what":"chair","mode":"slow"}`
		chairFast = `{"what":"chair","mode":"fast"}`
	)
	for name, of := range map[string]struct {
		failing, working string
		failed           bool
		steps            []memory.Step
		want             memory.Trials
	}{
		"followed, and it worked":      {lamp, lampFast, false, []memory.Step{tried(chairFast, "")}, memory.Trials{Worked: 1}},
		"followed, and it was refused": {lamp, lampFast, false, []memory.Step{tried(chairFast, "invalid value for mode"), tried(chair, "")}, memory.Trials{Refused: 1}},
		"followed, the same error":     {lamp, lampFast, false, []memory.Step{tried(chairFast, "E-7")}, memory.Trials{Refused: 1}},
		"followed, another error":      {lamp, lampFast, false, []memory.Step{tried(chairFast, "no such thing")}, memory.Trials{}},
		"followed, an outage":          {lamp, lampFast, false, []memory.Step{tried(chairFast, "503 Service Unavailable"), tried(chairFast, "")}, memory.Trials{Worked: 1}},
		"followed, the task failed":    {lamp, lampFast, true, []memory.Step{tried(chairFast, "")}, memory.Trials{Failed: 1}},
		"not followed, and it worked":  {lamp, lampFast, false, []memory.Step{tried(chair, "")}, memory.Trials{Needless: 1}},
		"not followed, the same error": {lamp, lampFast, false, []memory.Step{tried(chair, "E-7"), tried(chairFast, "")}, memory.Trials{Again: 1, Worked: 1}},
		"not followed, another error":  {lamp, lampFast, false, []memory.Step{tried(chair, "no such thing")}, memory.Trials{}},
		"not followed, a failed task":  {lamp, lampFast, true, []memory.Step{tried(chair, "")}, memory.Trials{}},
		"neither":                      {lamp, lampFast, false, []memory.Step{tried(`{"what":"chair","mode":"odd"}`, "")}, memory.Trials{}},
		"a form, followed":             {`{"day":"17/03/2026"}`, `{"day":"2026-03-17"}`, false, []memory.Step{tried(`{"day":"2027-01-02"}`, "")}, memory.Trials{Worked: 1}},
		"a form, not followed":         {`{"day":"17/03/2026"}`, `{"day":"2026-03-17"}`, false, []memory.Step{tried(`{"day":"02/01/2027"}`, "")}, memory.Trials{Needless: 1}},
		"added, followed":              {`{"what":"lamp"}`, lamp, false, []memory.Step{tried(chair, "")}, memory.Trials{Worked: 1}},
		"added, not followed":          {`{"what":"lamp"}`, lamp, false, []memory.Step{tried(`{"what":"chair"}`, "E-7")}, memory.Trials{Again: 1}},
		"of one case, and another":     {`{"id":"K71"}`, `{"id":"K72"}`, false, []memory.Step{tried(`{"id":"K99"}`, "")}, memory.Trials{}},
		"of one case, and the same":    {`{"id":"K71"}`, `{"id":"K72"}`, false, []memory.Step{tried(`{"id":"K71"}`, "E-7")}, memory.Trials{Again: 1}},
	} {
		task := memory.Task{Status: events.StatusSuccess, Certainty: memory.CertaintyConfirmed, Steps: of.steps}
		if of.failed {
			task.Status = events.StatusFailure
		}
		if got := (memory.Trials{}).With(lessonFrom(t, of.failing, of.working), task); got != of.want {
			t.Errorf("%s: %+v, want %+v", name, got, of.want)
		}
	}
	if _, is := memory.RepairOf(memory.Snapshot{Reflection: &memory.Reflection{}, Decision: memory.Decision{ToolSelected: "book"}}, []memory.Step{tried(lamp, "")}); is {
		t.Error("a call that is no evidence was taken for what worked")
	}
}

// TestDoubtFollowsBayes: one refusal refutes a lesson of one task, a failed task does where tasks hardly ever fail, and what
// was confirmed takes more.
func TestDoubtFollowsBayes(t *testing.T) {
	t.Parallel()
	for _, of := range []struct {
		confidence float64
		trials     memory.Trials
		fails      float64
		refuted    bool
	}{
		{0.5, memory.Trials{}, 0.2, false},
		{0.5, memory.Trials{Refused: 1}, 0.2, true},
		{0.5, memory.Trials{Needless: 1}, 0.2, true},
		{0.5, memory.Trials{Failed: 1}, 0.15, true},
		{0.5, memory.Trials{Failed: 2}, 0.5, false},
		{0.5, memory.Trials{Failed: 3}, 0.5, true},
		{0.5, memory.Trials{Failed: 20}, 1, false},
		{0.6, memory.Trials{Refused: 1, Worked: 2}, 0.2, false},
		{0.6, memory.Trials{Needless: 1, Again: 1}, 0.2, false},
		{0.9, memory.Trials{Refused: 1}, 0.2, false},
		{0.9, memory.Trials{Refused: 2}, 0.2, true},
	} {
		doubt := memory.Doubt(of.confidence, of.trials, of.fails)
		if name := fmt.Sprintf("confidence %v, %+v, %v of the tasks fail", of.confidence, of.trials, of.fails); doubt >= memory.DoubtRefuted != of.refuted || doubt < 0 || doubt > 1 {
			t.Errorf("%s: doubt %.2f, want refuted: %t", name, doubt, of.refuted)
		}
	}
}
