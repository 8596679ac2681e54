package world_test

import (
	"reflect"
	"slices"
	"testing"

	"github.com/hindsight-memory/hindsight/internal/evaluate/simulate/agent"
	"github.com/hindsight-memory/hindsight/internal/evaluate/simulate/script"
	"github.com/hindsight-memory/hindsight/internal/evaluate/simulate/world"
)

func TestThereAreManyClassesOfEveryKind(t *testing.T) {
	t.Parallel()
	if n := world.ClassCount(); n < 50 {
		t.Errorf("%d failure classes: want 50 at least", n)
	}
	seen := map[world.Kind]bool{}
	chinese := 0
	tasks := world.Stream(world.Options{Seed: 1, Tasks: 600, Classes: 100})
	for _, task := range tasks {
		seen[task.Kind] = true
		if task.Chinese {
			chinese++
		}
	}
	for _, kind := range world.Kinds() {
		if !seen[kind] {
			t.Errorf("no task of kind %s", kind)
		}
	}
	if share := float64(chinese) / float64(len(tasks)); share < 0.25 || share > 0.42 {
		t.Errorf("%.2f of the tasks are Chinese: want a third", share)
	}
}

func TestAStreamDependsOnItsSeedAlone(t *testing.T) {
	t.Parallel()
	a, b := world.Stream(world.Options{Seed: 3, Tasks: 80}), world.Stream(world.Options{Seed: 3, Tasks: 80})
	if !reflect.DeepEqual(a, b) {
		t.Error("two streams of one seed differ")
	}
	if c := world.Stream(world.Options{Seed: 4, Tasks: 80}); reflect.DeepEqual(a, c) {
		t.Error("streams of two seeds are the same")
	}
}

// TestWhatIsRightWorks does by an agent without a memory what each class expects: every class fails by default where it
// should, and a stubborn agent fails again.
func TestWhatEachClassDoesWithoutAMemory(t *testing.T) {
	t.Parallel()
	type seen struct{ failed, succeeded int }
	by := map[string]*seen{}
	kinds := map[string]world.Kind{}
	hopeless := map[string]bool{} // the agent finds no repair within a task
	for seed := range uint64(6) {
		for _, task := range world.Stream(world.Options{Seed: seed, Tasks: 400, Classes: 100}) {
			a := agent.Agent{Seed: seed}
			session := task.Open()
			if _, err := a.Run(t.Context(), task.Task, session.Call); err != nil {
				t.Fatal(err)
			}
			outcome := session.Finish()
			if by[task.Class] == nil {
				by[task.Class] = &seen{}
			}
			kinds[task.Class] = task.Kind
			hopeless[task.Class] = len(task.Plan[1].Variant) > 0
			if _, failed := session.Failed()[task.Class]; failed {
				by[task.Class].failed++
			}
			if outcome.Success {
				by[task.Class].succeeded++
			}
			for class := range session.Failed() {
				if class != task.Class {
					t.Errorf("%s: an agent without a memory was misled: %s", task.ID, class)
				}
			}
		}
	}
	several := 0
	for class, s := range by {
		if hopeless[class] {
			several++
		}
		switch kinds[class] {
		case world.Plain:
			if s.failed > 0 || s.succeeded == 0 {
				t.Errorf("%s is plain and failed %d times, succeeded %d times", class, s.failed, s.succeeded)
			}
		case world.Silent:
			if s.failed == 0 || s.succeeded > 0 {
				t.Errorf("%s is silent: failed %d, succeeded %d times", class, s.failed, s.succeeded)
			}
		default:
			if s.failed == 0 {
				t.Errorf("%s (%s) never failed", class, kinds[class])
			}
			if found := s.succeeded > 0; found == hopeless[class] {
				t.Errorf("%s (%s): the agent found a repair: %t", class, kinds[class], found)
			}
		}
	}
	if several < 10 {
		t.Errorf("for %d classes the agent finds no repair within a task: want 10 at least", several)
	}
}

// TestTheVariantIsRight: where chance has the agent do it right, the world agrees.
func TestTheVariantIsRight(t *testing.T) {
	t.Parallel()
	for _, task := range world.Stream(world.Options{Seed: 5, Tasks: 400, Classes: 100}) {
		if len(task.Plan[1].Variant) == 0 {
			continue
		}
		a := agent.Agent{Seed: 5, VariantShare: 1}
		session := task.Open()
		if _, err := a.Run(t.Context(), task.Task, session.Call); err != nil {
			t.Fatal(err)
		}
		if outcome := session.Finish(); !outcome.Success || len(session.Failed()) > 0 {
			t.Errorf("%s (%s): the variant failed: %+v %v", task.ID, task.Class, outcome, session.Failed())
		}
	}
}

func TestForgedTracesAreWrong(t *testing.T) {
	t.Parallel()
	tasks := world.Stream(world.Options{Seed: 7, Tasks: 80})
	forged := world.Forge(7, tasks, 5)
	if len(forged) != 5 {
		t.Fatalf("%d forged traces: want 5", len(forged))
	}
	for _, f := range forged {
		changed := 0
		for name, v := range f.Worked.Parameters {
			if script.Text(v) != script.Text(f.Refused.Parameters[name]) {
				changed++
			}
		}
		if changed != 1 {
			t.Errorf("%s: %d parameters differ: want 1", f.Task.ID, changed)
		}
	}
}

// TestAWrongValueIsAFailureOfItsOwn: some tools refuse it, some take it and the task fails, none takes it for right.
func TestAWrongValueIsAFailureOfItsOwn(t *testing.T) {
	t.Parallel()
	tasks := world.Stream(world.Options{Seed: 9, Tasks: 400, Classes: 100})
	refused, taken := 0, 0
	for _, f := range world.Forge(9, tasks, 100) {
		of := tasks[slices.IndexFunc(tasks, func(task world.Task) bool { return task.Plan[1].Tool == f.Worked.Tool })]
		if of.Kind == world.WrongTool {
			continue // This tool does nothing right.
		}
		session := of.Open()
		result := session.Call(f.Worked)
		outcome := session.Finish()
		misled := session.Failed()[of.Class+"/"+world.Misled] != "" || session.Failed()[of.Class] != ""
		if outcome.Success || !misled {
			t.Errorf("%s: a wrong value was taken for right: %+v, %v", of.Class, result, session.Failed())
		}
		if result.OK {
			taken++
		} else {
			refused++
		}
	}
	if refused < 10 || taken < 10 {
		t.Errorf("%d wrong values were refused and %d taken: want many of both", refused, taken)
	}
}
