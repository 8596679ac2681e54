package simulate_test

import (
	"testing"

	"github.com/hindsight-memory/hindsight/internal/evaluate/simulate"
	"github.com/hindsight-memory/hindsight/internal/evaluate/simulate/world"
)

// TestAPerfectMemoryIsTheCeiling: an agent that always obeys a memory that says what the stream has shown repeats nothing
// that can be known, of any class and in both languages; one that obeys less repeats more, and no arm makes more of a task
// than it was told.
func TestAPerfectMemoryIsTheCeiling(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Seeds, o.Tasks, o.Classes, o.Obey = 3, 400, world.ClassCount(), 1
	o.Arms = []simulate.Arm{simulate.ArmNone, simulate.ArmPerfectStart, simulate.ArmPerfect}
	s, err := simulate.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range s.Cells() {
		if r.Arm == simulate.ArmNone {
			continue
		}
		right := map[string]bool{} // classes that were done right once
		for _, task := range r.Tasks {
			_, failed := task.Failed[task.Class]
			learnable := task.Kind != world.Environment && task.Kind != world.Stale && task.Kind != world.OneOff
			if failed && right[task.Class] && learnable {
				t.Errorf("%s, stream %d: %s failed again after it had been done right", r.Arm, r.Seed, task.Class)
			}
			right[task.Class] = right[task.Class] || task.Success
		}
	}
	o.Obey = 0.5
	half, err := simulate.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	name := "repeat_reduction_perfect_vs_none"
	if s.Figures[name] <= half.Figures[name] || half.Figures[name] <= half.Figures["repeat_reduction_perfect_start_vs_none"] {
		t.Errorf("%s is %v when the agent always obeys, %v when it obeys half of the time, and %v then for asking at the start alone", name, s.Figures[name], half.Figures[name], half.Figures["repeat_reduction_perfect_start_vs_none"])
	}
}
