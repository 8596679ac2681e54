package memory

import (
	"fmt"
	"time"

	"github.com/hindsight-memory/hindsight/events"
)

// maxArtifactBytes bounds one artifact of a working memory; the whole result stays in the record.
const maxArtifactBytes = 500

// Working is the working memory of a live task: where it stands. It is gone when the task closes.
type Working struct {
	Namespace string `json:"namespace"`
	TaskID    string `json:"task_id"`
	SessionID string `json:"session_id"`
	Goal      string `json:"goal"`
	// Step is the number of the last step, 0 before the first.
	Step int `json:"step"`
	// State is one sentence: what the last step did and how it ended.
	State string `json:"state"`
	// Artifacts holds the latest successful result of each tool, cut to 500 bytes.
	Artifacts map[string]string `json:"artifacts"`
	UpdatedAt time.Time         `json:"updated_at"`
}

// WorkingOf derives the working memory from a task's state.
func WorkingOf(t Task) Working {
	w := Working{
		Namespace: t.Namespace, TaskID: t.TaskID, SessionID: t.SessionID, Goal: t.Goal,
		State: "started", Artifacts: map[string]string{}, UpdatedAt: t.EndedAt,
	}
	for _, s := range t.Steps {
		w.Step = s.Step
		w.State = fmt.Sprintf("step %d: %s succeeded", s.Step, s.Tool)
		if s.Status == events.StatusFailure {
			w.State = fmt.Sprintf("step %d: %s failed", s.Step, s.Tool)
			continue
		}
		w.Artifacts[s.Tool] = events.CutText(s.Result, maxArtifactBytes)
	}
	return w
}
