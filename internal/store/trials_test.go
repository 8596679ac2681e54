package store_test

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/memory"
	"github.com/hindsight-memory/hindsight/internal/store"
)

// TestWhatWasShownWhere: of tasks that are over, by their newest state, and never of withheld answers.
func TestWhatWasShownWhere(t *testing.T) {
	t.Parallel()
	c := migrated(t)
	begin := time.Now().UTC().Add(-time.Minute)
	at := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	n := 0
	task := func(namespace, id string, status events.Status, certainty memory.Certainty, change func(*memory.Task), shown ...string) memory.Task {
		n++
		out := memory.Task{
			Namespace: namespace, TaskID: id, TaskType: "shop", Status: status, Certainty: certainty, Closed: true, Revision: 5,
			StartedAt: at, EndedAt: at.Add(time.Duration(n) * time.Minute), Recalled: shown,
		}
		if change != nil {
			change(&out)
		}
		return out
	}
	open := func(t *memory.Task) { t.Closed, t.Revision = false, 4 }
	if err := c.InsertTasks(t.Context(), []memory.Task{
		task("t", "one", events.StatusFailure, memory.CertaintyConfirmed, nil, "a", "b"),
		task("t", "two", events.StatusSuccess, memory.CertaintyConfirmed, nil, "a"),
		task("t", "three", events.StatusFailure, memory.CertaintyInferred, nil, "a"),
		task("t", "open", events.StatusUnknown, memory.CertaintyInferred, open, "a", "c"),
		task("t", "withheld", events.StatusSuccess, memory.CertaintyConfirmed, func(t *memory.Task) { t.Withheld = true }, "a", "d"),
		task("t", "two", events.StatusUnknown, memory.CertaintyInferred, open), // An older state counts no more.
		task("u", "one", events.StatusFailure, memory.CertaintyConfirmed, nil, "a", "e"),
	}); err != nil {
		t.Fatal(err)
	}
	for _, since := range []time.Time{{}, begin} {
		if shown, err := c.ShownSince(t.Context(), "t", since); err != nil || !slices.Equal(shown, []string{"a", "b"}) {
			t.Errorf("shown since %v: %v, %v", since, shown, err)
		}
	}
	if shown, err := c.ShownSince(t.Context(), "t", time.Now().Add(time.Hour)); err != nil || len(shown) != 0 {
		t.Errorf("shown from now on: %v, %v", shown, err)
	}
	where, err := c.ShownIn(t.Context(), "t", []string{"a", "b", "never"}, 2)
	if want := map[string][]string{"a": {"three", "two"}, "b": {"one"}}; err != nil || !maps.EqualFunc(where, want, slices.Equal) {
		t.Errorf("shown in %v, %v, want %v", where, err, want)
	}
	shares, err := c.FailureShares(t.Context(), "t") // One of four closed tasks failed.
	if want := map[string]float64{"shop": 2.0 / 6}; err != nil || !maps.Equal(shares, want) {
		t.Errorf("shares of failures %v, %v, want %v", shares, err, want)
	}
	_, errSince := c.ShownSince(t.Context(), "", time.Time{})
	_, errIn := c.ShownIn(t.Context(), "", nil, 1)
	_, errShares := c.FailureShares(t.Context(), "")
	for _, err := range []error{errSince, errIn, errShares} {
		if !errors.Is(err, store.ErrNamespace) {
			t.Errorf("without a namespace: %v", err)
		}
	}
}
