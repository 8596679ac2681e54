package recall

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/memory"
)

// unnamed stands for an agent or session that a caller did not name: an event must have both.
const unnamed = "~unnamed"

// serve takes note of an answer and withholds it from the control group. That the note could not be taken is logged and
// does not cost the answer.
func (s *Service) serve(a Answer, namespace, taskType, question string, preset memory.Preset, asOf time.Time, asker Asker, began time.Time) Answer {
	id, err := uuid.NewV7()
	if err != nil { // no randomness: the system is broken, not the question
		s.o.Logger.Error("cannot name a recall; it is not recorded", "error", err)
		return a
	}
	a.RecallID = id.String()
	shown := a
	if s.Withheld(namespace, asker) {
		shown = withoutLessons(a)
	}
	served := events.RecallServed{
		TaskID: asker.TaskID, TaskType: taskType, Question: question, Door: cmp.Or(asker.Door, "api"), Way: string(a.Way), Preset: string(preset),
		Items: make([]events.RecallItem, len(a.Items)), Withheld: shown.Withheld, Notice: a.Notice, Tokens: a.Tokens,
		LatencyMS: float64(s.o.Clock().Sub(began).Microseconds()) / 1000,
	}
	if !asOf.IsZero() {
		served.AsOf = asOf.UTC().Format(events.TimeFormat)
	}
	texts := make([]string, len(a.Items))
	for i, item := range a.Items {
		served.Items[i] = events.RecallItem{ID: item.ID, Layer: string(item.Layer), Score: item.Score, Parts: item.Parts}
		texts[i] = item.Text
	}
	served.Answer = strings.Join(texts, "\n\n")
	data, err := events.EncodeData(served)
	if err == nil {
		err = s.o.Recorder.Record(events.Event{
			ID: a.RecallID, Namespace: namespace, AgentID: cmp.Or(asker.AgentID, unnamed), SessionID: cmp.Or(asker.SessionID, asker.TaskID, unnamed),
			UserID: asker.UserID, TaskID: cmp.Or(asker.TaskID, events.UnjoinedTask), Time: began.UTC(), Kind: events.KindRecallServed, Data: data,
		})
	}
	if err != nil {
		s.o.Logger.Warn("a recall was served and could not be recorded", "recall_id", a.RecallID, "error", err)
	}
	return shown
}

// Withheld decides by session, else by task, whether an asker is in the control group. Who names neither never is,
// since nothing could be joined to it.
func (s *Service) Withheld(namespace string, asker Asker) bool {
	unit := cmp.Or(asker.SessionID, asker.TaskID)
	if unit == "" || s.o.ControlShare == 0 {
		return false
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "control\x00%s\x00%s", namespace, unit))
	return float64(binary.BigEndian.Uint64(sum[:8]))/math.MaxUint64 < s.o.ControlShare
}

// withoutLessons is what the control group is shown: facts, and neither lessons nor rules.
func withoutLessons(a Answer) Answer {
	out := a
	out.Items = []Item{}
	out.Tokens = 0
	for _, item := range a.Items {
		if item.Layer == memory.LayerSnapshot || item.Layer == memory.LayerRule {
			out.Withheld = true
			continue
		}
		out.Items = append(out.Items, item)
		out.Tokens += EstimateTokens(item.Text)
	}
	return out
}
