// Package simulate measures whether the memory helps an agent, and how much: a scripted agent works on the same streams of
// tasks without a memory, with one, and with one into which wrong lessons were planted.
//
// The product runs whole, on embedded engines, and is asked over its own protocol; the agent reads nothing but what that
// returns. The package knows nothing of how the product reflects, recalls or consolidates, and imports none of it. What is
// measured is the effect on an agent that obeys as written in [agent], not on a language model.
package simulate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"path/filepath"
	"slices"

	"github.com/hindsight-memory/hindsight/internal/evaluate/simulate/world"
)

// Arm is one condition of the experiment.
type Arm string

// Arms.
const (
	// ArmNone has no memory.
	ArmNone Arm = "none"
	// ArmStart asks at the start of each task.
	ArmStart Arm = "start"
	// ArmCheck asks at the start and before each call.
	ArmCheck Arm = "check"
	// ArmHarmful is ArmCheck on a memory into which wrong lessons were planted.
	ArmHarmful Arm = "harmful"
	// ArmUnguarded is ArmHarmful without what the product needs to find out that a lesson is wrong.
	ArmUnguarded Arm = "unguarded"
	// ArmPerfect and ArmPerfectStart are ArmCheck and ArmStart with a memory that no product can surpass: the ceiling.
	ArmPerfect      Arm = "perfect"
	ArmPerfectStart Arm = "perfect_start"
)

// Arms lists all arms.
func Arms() []Arm {
	return []Arm{ArmNone, ArmStart, ArmCheck, ArmHarmful, ArmUnguarded, ArmPerfectStart, ArmPerfect}
}

// ParseArm reads the name of an arm.
func ParseArm(name string) (Arm, error) {
	if arm := Arm(name); slices.Contains(Arms(), arm) {
		return arm, nil
	}
	return "", fmt.Errorf("arm %q: it must be one of %v", name, Arms())
}

func (a Arm) checks() bool { return a == ArmCheck || a == ArmHarmful || a == ArmUnguarded }

// perfect says that the memory is not the product's but the best that there can be.
func (a Arm) perfect() bool { return a == ArmPerfect || a == ArmPerfectStart }

func (a Arm) planted() bool { return a == ArmHarmful || a == ArmUnguarded }

// tells says whether the agent tells the memory what became of its advice, and for which task it asks.
func (a Arm) tells() bool { return a != ArmUnguarded }

// Options of a run. The zero value of a field means its default.
type Options struct {
	// Seeds is how many streams there are, 20 by default, from Seed on.
	Seeds int
	Seed  uint64
	// Tasks is the length of a stream, 60 by default; Classes how many failure classes it is about, a quarter by default.
	Tasks, Classes int
	// Arms are all by default.
	Arms []Arm
	// Obey is the probability with which the agent follows what it is told, 0.8 by default.
	Obey float64
	// Sensitivity are further values of Obey, each run with the arm check for the first SensitivitySeeds seeds; these are run
	// once more with an agent that decides once a task.
	Sensitivity      []float64
	SensitivitySeeds int
	// ConsolidateEvery is after how many tasks the jobs of consolidation run, 10 by default.
	ConsolidateEvery int
	// Together is how many seeds share one instance of the product, in namespaces of their own, 4 by default.
	Together int
	// Parallel is how many cells work at once, 4 by default.
	Parallel int
	// Work is the folder in which finished cells are kept. Required.
	Work string
	// Build names the program that is measured: cells of another one are not taken over. Required.
	Build string
	// ClickHouseURL and NewNATS give engines; see [Engines].
	Engines Engines
	// Embedder is the value of HINDSIGHT_EMBEDDER, "local" by default; EnginesDir that of HINDSIGHT_ENGINES_DIR, Vectors that of
	// HINDSIGHT_EMBEDDING_CACHE: the arms and the streams embed the same texts again and again.
	Embedder, EnginesDir, Vectors string
	Logger                        *slog.Logger
	// Progress, when set, is told how far the run is.
	Progress func(Progress)
}

// Progress says how far a run is.
type Progress struct {
	// Cells are finished of all; Task is the one that the cells under way are at, of all of a stream.
	Cells, AllCells int
	Task, AllTasks  int
}

// Cell is one stream in one arm.
type Cell struct {
	Arm  Arm     `json:"arm"`
	Seed uint64  `json:"seed"`
	Obey float64 `json:"obey"`
	// Once says that the agent decides once a task about what it is told; see [agent.Agent].
	Once bool `json:"once,omitempty"`
}

func (c Cell) name() string {
	name := fmt.Sprintf("%s-%04d-%d", c.Arm, int(math.Round(c.Obey*1000)), c.Seed)
	if c.Once {
		name += "-once"
	}
	return name
}

// namespace is where the memory of a cell is.
func (c Cell) namespace() string { return "simulation." + c.name() }

func complete(o Options) (Options, error) {
	if o.Work == "" || o.Build == "" || o.Logger == nil || o.Engines == nil {
		return o, errors.New("simulate: Work, Build, Logger and Engines are required")
	}
	o.Seeds, o.Tasks = cmp.Or(o.Seeds, 20), cmp.Or(o.Tasks, 60)
	o.ConsolidateEvery, o.Together, o.Parallel = cmp.Or(o.ConsolidateEvery, 10), cmp.Or(o.Together, 4), cmp.Or(o.Parallel, 4)
	o.Obey, o.Embedder = cmp.Or(o.Obey, 0.8), cmp.Or(o.Embedder, "local")
	if len(o.Arms) == 0 {
		o.Arms = Arms()
	}
	if o.Progress == nil {
		o.Progress = func(Progress) {}
	}
	switch {
	case o.Seeds < 1 || o.Tasks < 1 || o.ConsolidateEvery < 1 || o.Together < 1 || o.Parallel < 1 || o.SensitivitySeeds < 0 || o.Classes < 0:
		return o, errors.New("simulate: numbers of seeds, tasks and cells must be positive")
	case slices.ContainsFunc(append(slices.Clone(o.Sensitivity), o.Obey), func(p float64) bool { return p < 0 || p > 1 }):
		return o, errors.New("simulate: the agent obeys with a probability from 0 to 1")
	}
	return o, nil
}

// cells are all cells of a run, those of one seed together.
func (o Options) cells() []Cell {
	var out []Cell
	for n := range o.Seeds {
		seed := o.Seed + uint64(n)
		for _, arm := range o.Arms {
			out = append(out, Cell{Arm: arm, Seed: seed, Obey: o.Obey})
		}
		if n >= o.SensitivitySeeds || !slices.Contains(o.Arms, ArmCheck) {
			continue
		}
		for _, p := range o.Sensitivity {
			if p != o.Obey {
				out = append(out, Cell{Arm: ArmCheck, Seed: seed, Obey: p})
			}
		}
		out = append(out, Cell{Arm: ArmCheck, Seed: seed, Obey: o.Obey, Once: true})
	}
	return out
}

// Run runs the experiment. Cells that were finished by an earlier run of the same size and program are taken over.
func Run(ctx context.Context, o Options) (*Summary, error) {
	o, err := complete(o)
	if err != nil {
		return nil, err
	}
	shelf, err := openShelf(o)
	if err != nil {
		return nil, err
	}
	cells := o.cells()
	done := map[Cell]Result{}
	var without, with []Cell
	for _, c := range cells {
		switch r, found, err := shelf.read(c); {
		case err != nil:
			return nil, err
		case found:
			done[c] = r
		case c.Arm == ArmNone || c.Arm.perfect():
			without = append(without, c)
		default:
			with = append(with, c)
		}
	}
	o.Logger.Info("simulating", "cells", len(cells), "finished_before", len(done), "tasks", o.Tasks, "classes_known", world.ClassCount(), "work", shelf.dir)
	keep := func(results []Result) error {
		for _, r := range results {
			if err := shelf.write(r); err != nil {
				return err
			}
			done[r.Cell] = r
		}
		o.Progress(Progress{Cells: len(done), AllCells: len(cells), AllTasks: o.Tasks})
		return nil
	}
	for _, c := range without {
		r, err := alone(ctx, o, c)
		if err != nil {
			return nil, fmt.Errorf("simulate %s: %w", c.name(), err)
		}
		if err := keep([]Result{r}); err != nil {
			return nil, err
		}
	}
	for _, group := range grouped(with, o.Together) {
		progress := func(task int) {
			o.Progress(Progress{Cells: len(done), AllCells: len(cells), Task: task, AllTasks: o.Tasks})
		}
		results, err := together(ctx, o, group, progress)
		if err != nil {
			return nil, fmt.Errorf("simulate seeds %d to %d: %w", group[0].Seed, group[len(group)-1].Seed, err)
		}
		if err := keep(results); err != nil {
			return nil, err
		}
	}
	all := make([]Result, 0, len(cells))
	for _, c := range cells {
		all = append(all, done[c])
	}
	return summarise(o, all), nil
}

// grouped puts the cells of some seeds together.
func grouped(cells []Cell, seeds int) [][]Cell {
	var out [][]Cell
	var last []uint64
	for _, c := range cells {
		if !slices.Contains(last, c.Seed) {
			if len(last) == 0 || len(last) == seeds {
				last, out = nil, append(out, nil)
			}
			last = append(last, c.Seed)
		}
		out[len(out)-1] = append(out[len(out)-1], c)
	}
	return out
}

// DefaultWork is where cells are kept below the data directory.
func DefaultWork(dataDir string) string { return filepath.Join(dataDir, "eval", "simulate") }
