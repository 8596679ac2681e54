package mcpserver

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/memory"
)

// shownStatuses are those of items that an agent may see by id: what holds and what held before. What waits for review,
// was quarantined or forgotten is none of its business.
func shownStatuses() []memory.ItemStatus {
	return []memory.ItemStatus{memory.ItemActive, memory.ItemSuperseded, memory.ItemArchived}
}

// foundItem is an item by its id.
type foundItem struct {
	shown  item
	judged memory.Judged
	// whole is the item as it is stored.
	whole any
}

// item reads one item of any layer. From the control group, lessons and rules are hidden here as elsewhere.
func (s *Server) item(ctx context.Context, c call, id string) (foundItem, error) {
	filter := memory.ItemFilter{Namespace: c.identity.Namespace, IDs: []string{id}, Statuses: shownStatuses(), Limit: 1}
	memories, err := s.o.Items.Memories(ctx, filter)
	if err != nil {
		return foundItem{}, fmt.Errorf("read a memory: %w", err)
	}
	for _, m := range memories {
		i := judgedItem(m.MemoryID, memory.LayerMemory, m.Judged, m.Version.RecordedAt, m.Timestamp)
		i.MemoryType, i.TaskType, i.Text = string(m.MemoryType), m.TaskType, memoryText(m)
		return foundItem{i, m.Judged, m}, nil
	}
	if s.o.Withheld(c.identity.Namespace, c.asker()) {
		return foundItem{}, fmt.Errorf("read an item: %w", memory.ErrNotFound)
	}
	snapshots, err := s.o.Items.Snapshots(ctx, filter)
	if err != nil {
		return foundItem{}, fmt.Errorf("read a snapshot: %w", err)
	}
	for _, n := range snapshots {
		i := judgedItem(n.SnapshotID, memory.LayerSnapshot, n.Judged, n.Version.RecordedAt, n.Timestamp)
		i.TaskType, i.Text = n.TaskContext.TaskType, snapshotText(n)
		return foundItem{i, n.Judged, n}, nil
	}
	rules, err := s.o.Items.Rules(ctx, filter)
	if err != nil {
		return foundItem{}, fmt.Errorf("read a rule: %w", err)
	}
	for _, r := range rules {
		i := judgedItem(r.RuleID, memory.LayerRule, r.Judged, r.Version.RecordedAt, r.Timestamp)
		i.TaskType, i.Text, i.Seen = r.TaskType, ruleText(r), r.Support
		return foundItem{i, r.Judged, r}, nil
	}
	return foundItem{}, fmt.Errorf("read an item: %w", memory.ErrNotFound)
}

func judgedItem(id string, layer memory.Layer, j memory.Judged, recorded, of time.Time) item {
	if recorded.IsZero() {
		recorded = of
	}
	return item{
		ID: id, Layer: string(layer), Status: string(j.Status), Trust: string(j.Trust), Confidence: rounded(j.Confidence), Importance: rounded(j.Importance),
		CreatedAt: timeText(recorded), Source: itemURI(id),
	}
}

// lines joins the parts that are there, a line each: pairs of a label and a text.
func lines(pairs ...string) string {
	var out []string
	for n := 0; n+1 < len(pairs); n += 2 {
		if text := strings.Join(strings.Fields(pairs[n+1]), " "); text != "" {
			out = append(out, pairs[n]+": "+text)
		}
	}
	return strings.Join(out, "\n")
}

func snapshotText(n memory.Snapshot) string {
	reflection := memory.Reflection{}
	if n.Reflection != nil {
		reflection = *n.Reflection
	}
	return lines(
		"Situation", cmp.Or(n.Situation, n.TaskContext.InputSummary),
		"Decision", n.Decision.ToolSelected+" "+events.CutText(string(n.Decision.Parameters), 1000),
		"Reasoning", n.Decision.ReasoningPath,
		"Result", string(n.Outcome.Status)+" "+n.Outcome.ErrorType+" "+n.Outcome.ErrorMessage,
		"Cause", reflection.RootCause,
		"Instead", reflection.Alternative,
		"Lesson", reflection.Lesson,
		"Applies when", n.AppliesWhen,
	)
}

func memoryText(m memory.Memory) string {
	return lines("Known", m.Content, "Entity", m.Entity, "Operation", string(m.Operation), "Value", m.Value, "Before", m.OldValue)
}

func ruleText(r memory.Rule) string {
	return lines("Rule", r.Rule, "When", r.Condition, "Do", r.Action, "Not when", r.DoesNotApplyWhen)
}

// newestFirst orders items by when they were recorded; those of one second keep their order.
func newestFirst(items []item) {
	slices.SortStableFunc(items, func(a, b item) int { return strings.Compare(b.CreatedAt, a.CreatedAt) })
}
