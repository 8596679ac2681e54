package store_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/store"
)

// TestToolTasks: each task counts once, by the agent's calls of the tool alone.
func TestToolTasks(t *testing.T) {
	t.Parallel()
	c := migrated(t)
	begin := time.Now().UTC().Truncate(time.Millisecond).Add(-time.Hour)
	var evs []events.Event
	add := func(namespace, task, tool, actor string, minute int) {
		data, err := events.EncodeData(events.StepFinished{Tool: tool, Actor: actor, Parameters: []byte(`{}`), Status: events.StatusSuccess})
		if err != nil {
			t.Fatal(err)
		}
		evs = append(evs, events.Event{
			ID: fmt.Sprintf("e%d", len(evs)), Namespace: namespace, AgentID: "a", SessionID: "s", TaskID: task, Time: begin.Add(time.Duration(minute) * time.Minute),
			Kind: events.KindStepFinished, Data: data,
		})
	}
	add("t", "one", "pay", "", 1)
	add("t", "one", "pay", events.ActorAgent, 2)
	add("t", "two", "pay", "", 10)
	add("t", "by-user", "pay", events.ActorUser, 11)
	add("t", "other-tool", "book", "", 12)
	add("u", "elsewhere", "pay", "", 13)
	if err := c.InsertEvents(t.Context(), evs); err != nil {
		t.Fatal(err)
	}
	for _, q := range []struct {
		namespace, tool string
		since, asOf     time.Time
		want            int
	}{
		{namespace: "t", tool: "pay", want: 2},
		{namespace: "t", tool: "pay", since: begin.Add(5 * time.Minute), want: 1},
		{namespace: "t", tool: "pay", asOf: begin, want: 0}, // They were recorded only now.
		{namespace: "t", tool: "never", want: 0},
		{namespace: "u", tool: "pay", want: 1},
	} {
		if got, err := c.ToolTasks(t.Context(), q.namespace, q.tool, q.since, q.asOf); err != nil || got != q.want {
			t.Errorf("%+v: %d tasks, %v", q, got, err)
		}
	}
	if _, err := c.ToolTasks(t.Context(), "", "pay", time.Time{}, time.Time{}); !errors.Is(err, store.ErrNamespace) {
		t.Errorf("without a namespace: %v", err)
	}
}
