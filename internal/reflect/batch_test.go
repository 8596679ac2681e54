package reflect_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/hindsight-memory/hindsight/internal/memory"
)

// A batch gives each task what it would get alone, and one that fails does not hold the others.
func TestReflectAll(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var scripts []*script
	for i := range 5 {
		scripts = append(scripts, payment(fmt.Sprint("b", i)))
	}
	r.put(t, scripts...)
	older := r.request(scripts[0], false)
	older.Revision -= 2
	requests := []memory.ReflectionRequest{
		older, r.request(scripts[0], true), r.request(scripts[1], true),
		{Namespace: r.namespace, TaskID: "none", Revision: 1, Closed: true},
		r.request(scripts[2], true), r.request(scripts[3], true), r.request(scripts[4], true),
	}
	for range 2 { // the second time all come again
		for i, err := range r.reflector.ReflectAll(t.Context(), requests) {
			if requests[i].TaskID == "none" {
				if !errors.Is(err, memory.ErrNotFound) {
					t.Errorf("a task that is not there: %v", err)
				}
				continue
			}
			if err != nil {
				t.Errorf("task %s: %v", requests[i].TaskID, err)
			}
		}
		for i := range scripts {
			got := r.snapshot(t, fmt.Sprint("b", i))
			if n := r.versions(t, got.SnapshotID); n != 1 || !r.space.has(got.SnapshotID) {
				t.Errorf("b%d: %d versions, in the index %v", i, n, r.space.has(got.SnapshotID))
			}
		}
	}
	done, err := r.Reflections(t.Context(), []memory.TaskKey{{Namespace: r.namespace, TaskID: "b0"}, {Namespace: r.namespace, TaskID: "b4"}})
	if err != nil || len(done) != 2 {
		t.Fatalf("Reflections = %v, %v", done, err)
	}
	for key, d := range done {
		if !d.Closed || d.Kept != 1 {
			t.Errorf("%s: %+v", key.TaskID, d)
		}
	}
}

// While the index is away nothing of a batch is done, and all of it comes again.
func TestReflectAllWaits(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a, b := payment("a"), payment("b")
	r.put(t, a, b)
	requests := []memory.ReflectionRequest{r.request(a, true), r.request(b, true)}
	r.space.broken = fmt.Errorf("%w: index away", memory.ErrUnavailable)
	for i, err := range r.reflector.ReflectAll(t.Context(), requests) {
		if !errors.Is(err, memory.ErrUnavailable) {
			t.Errorf("%s: %v, want ErrUnavailable", requests[i].TaskID, err)
		}
	}
	r.space.broken = nil
	for i, err := range r.reflector.ReflectAll(t.Context(), requests) {
		if err != nil {
			t.Errorf("%s: %v", requests[i].TaskID, err)
		}
	}
	if got := r.snapshot(t, "b"); !r.space.has(got.SnapshotID) {
		t.Error("what came again is not in the index")
	}
}
