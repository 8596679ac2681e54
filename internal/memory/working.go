package memory

import (
	"fmt"
	"slices"
	"time"

	"github.com/hindsight-memory/hindsight/events"
)

const (
	// maxArtifactBytes bounds one artifact of a working memory; the whole result stays in the record.
	maxArtifactBytes = 500
	// maxGoalBytes bounds the goal, which may be the user's whole first message.
	maxGoalBytes = 500
	// maxArtifacts bounds how many there are: a task may use any number of tools, or make up their names.
	maxArtifacts = 20
)

// Working is the working memory of a live task: where it stands. It is gone when the task closes.
type Working struct {
	Namespace string `json:"namespace"`
	TaskID    string `json:"task_id"`
	SessionID string `json:"session_id"`
	// Goal is cut to 500 bytes.
	Goal string `json:"goal"`
	// Step is the number of the last step, 0 before the first.
	Step int `json:"step"`
	// State is one sentence: what the last step did and how it ended.
	State string `json:"state"`
	// Artifacts holds the latest successful result of each of the 20 tools that succeeded last, cut to 500 bytes.
	Artifacts map[string]string `json:"artifacts"`
	UpdatedAt time.Time         `json:"updated_at"`
}

// WorkingOf derives the working memory from a task's state.
func WorkingOf(t Task) Working {
	w := Working{
		Namespace: t.Namespace, TaskID: t.TaskID, SessionID: t.SessionID, Goal: events.CutText(t.Goal, maxGoalBytes),
		State: "started", Artifacts: map[string]string{}, UpdatedAt: t.EndedAt,
	}
	if len(t.Steps) > 0 {
		last := t.Steps[len(t.Steps)-1]
		w.Step = last.Step
		how := "succeeded"
		if last.Status == events.StatusFailure {
			how = "failed"
		}
		w.State = fmt.Sprintf("step %d: %s %s", last.Step, last.Tool, how)
	}
	for _, s := range slices.Backward(t.Steps) {
		if len(w.Artifacts) == maxArtifacts {
			break
		}
		if _, later := w.Artifacts[s.Tool]; !later && s.Status != events.StatusFailure {
			w.Artifacts[s.Tool] = events.CutText(s.Result, maxArtifactBytes)
		}
	}
	return w
}
