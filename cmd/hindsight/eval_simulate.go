package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hindsight-memory/hindsight/internal/config"
	"github.com/hindsight-memory/hindsight/internal/evaluate/report"
	"github.com/hindsight-memory/hindsight/internal/evaluate/simulate"
	"github.com/hindsight-memory/hindsight/internal/service"
)

// simulateOptions are the flags of the suite.
type simulateOptions struct {
	seeds, tasks, classes, together, every, parallel, sensitivitySeeds int
	seed                                                               uint64
	arms                                                               []string
	obey                                                               float64
	sensitivity                                                        []float64
	work, html                                                         string
	quick                                                              bool
}

func (a *app) evalSimulateCommand() *cobra.Command {
	var o simulateOptions
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Does the memory help, and how much? A scripted agent works with and without it",
		Long: "A scripted agent works on streams of tasks against simulated tools that fail in more than fifty ways: without a memory (none),\n" +
			"asking at the start of each task (start), before each call as well (check), and with planted wrong lessons, with what the\n" +
			"product needs to find them out (harmful) and without (unguarded). The product runs whole, in a folder of its own. What a\n" +
			"memory that errs never would reach on the same streams is measured beside it (perfect_start, perfect).\n" +
			"Finished parts are kept in --work: an interrupted run goes on where it was. It shows the effect on a scripted agent that\n" +
			"obeys with a set probability, not on a language model; see docs/evaluation.md.",
		Example: "  hindsight eval simulate --quick\n  hindsight eval simulate --json > simulate.json\n  hindsight eval simulate --seeds 5 --arms none,check --obey 1 --html report.html",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.evalSimulate(cmd.Context(), cmd.Flags().Changed, o)
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&o.seeds, "seeds", 20, "streams of tasks")
	flags.Uint64Var(&o.seed, "seed", 1, "seed of the first stream")
	flags.IntVar(&o.tasks, "tasks", 60, "tasks of a stream")
	flags.IntVar(&o.classes, "classes", 0, "failure classes that a stream is about (0: a quarter of its tasks); fewer recur more often")
	flags.StringSliceVar(&o.arms, "arms", []string{"none", "start", "check", "harmful", "unguarded", "perfect_start", "perfect"}, "conditions to run")
	flags.Float64Var(&o.obey, "obey", 0.8, "probability, 0 to 1, with which the agent follows what it is told")
	flags.Float64SliceVar(&o.sensitivity, "sensitivity", []float64{0.5, 0.65, 0.9, 1}, "further values of --obey, for the arm check")
	flags.IntVar(&o.sensitivitySeeds, "sensitivity-seeds", 5, "streams that these are run for")
	flags.IntVar(&o.every, "consolidate-every", 10, "tasks between two runs of the consolidation")
	flags.IntVar(&o.together, "together", 4, "streams that share one instance of the product")
	flags.IntVar(&o.parallel, "parallel", 4, "streams that are worked on at once")
	flags.StringVar(&o.work, "work", "", "folder for finished parts (default: eval/simulate below HINDSIGHT_DATA_DIR)")
	flags.StringVar(&o.html, "html", "", "write the report to this file (default: simulate.html in the work folder)")
	flags.BoolVar(&o.quick, "quick", false, "one short stream and no sensitivity: only shows that it works")
	return cmd
}

// maxSeeds and maxStreamTasks bound what a run may be asked for.
const (
	maxSeeds       = 1000
	maxStreamTasks = 5000
)

func (a *app) evalSimulate(ctx context.Context, changed func(string) bool, o simulateOptions) (err error) {
	if o.quick {
		o.sensitivity = nil
		for name, set := range map[string]func(){"seeds": func() { o.seeds = 1 }, "tasks": func() { o.tasks = 24 }} {
			if !changed(name) {
				set()
			}
		}
	}
	if o.seeds < 1 || o.seeds > maxSeeds || o.tasks < 1 || o.tasks > maxStreamTasks || o.classes < 0 || o.every < 1 || o.together < 1 || o.parallel < 1 || o.sensitivitySeeds < 0 {
		return fmt.Errorf("%w: --seeds must be from 1 to %d, --tasks from 1 to %d, and the other numbers at least 1", errUsage, maxSeeds, maxStreamTasks)
	}
	for _, p := range append(slices.Clone(o.sensitivity), o.obey) {
		if !(p > 0 && p <= 1) {
			return fmt.Errorf("%w: --obey %v: a probability above 0, at most 1", errUsage, p)
		}
	}
	var arms []simulate.Arm
	for _, name := range o.arms {
		arm, err := simulate.ParseArm(name)
		if err != nil {
			return fmt.Errorf("%w: --arms: %w", errUsage, err)
		}
		if !slices.Contains(arms, arm) {
			arms = append(arms, arm)
		}
	}
	build, err := buildID()
	if err != nil {
		return err
	}
	if o.work == "" {
		o.work = simulate.DefaultWork(a.cfg.DataDir)
	}
	logger := service.NewLogger(a.cfg, a.stderr)
	engines, err := simulate.StartEmbedded(ctx, a.engineSetting, logger)
	if err != nil {
		return fmt.Errorf("eval simulate: %w", err)
	}
	defer func() { err = errors.Join(err, engines.Close(ctx)) }()
	began := time.Now()
	summary, err := simulate.Run(ctx, simulate.Options{
		Seeds: o.seeds, Seed: o.seed, Tasks: o.tasks, Classes: o.classes, Arms: arms, Obey: o.obey, Sensitivity: o.sensitivity, SensitivitySeeds: o.sensitivitySeeds,
		ConsolidateEvery: o.every, Together: o.together, Parallel: o.parallel, Work: o.work, Build: build, Engines: engines, EnginesDir: a.cfg.EnginesDir,
		Vectors: a.keptVectors(),
		Logger:  logger, Progress: a.simulateProgress(began),
	})
	if err != nil {
		return fmt.Errorf("eval simulate: %w", err)
	}
	if o.html == "" {
		o.html = filepath.Join(o.work, "simulate.html")
	}
	command := fmt.Sprintf("hindsight eval simulate --seeds %d --seed %d --tasks %d --classes %d --arms %s --obey %g", o.seeds, o.seed, o.tasks, o.classes, strings.Join(o.arms, ","), o.obey)
	made := fmt.Sprintf("hindsight %s, build %.12s, %s", config.Version, build, time.Now().UTC().Format(time.DateOnly))
	if err := writeReport(o.html, summary.Page(command, made)); err != nil {
		return fmt.Errorf("eval simulate: %w", err)
	}
	if a.json {
		return a.printJSON(summary)
	}
	for _, name := range slices.Sorted(maps.Keys(summary.Figures)) {
		a.printf("  %-64s %12.3f\n", name, summary.Figures[name])
	}
	a.sayf("The report is in %s\n", o.html)
	return nil
}

// simulateProgress tells a person how far the run is: once a task, not once a second.
func (a *app) simulateProgress(began time.Time) func(simulate.Progress) {
	if !service.IsTerminal(a.stderr) {
		logger := service.NewLogger(a.cfg, a.stderr)
		return func(p simulate.Progress) {
			if p.Task%10 == 0 || p.Task == p.AllTasks {
				logger.Info("simulated", "cells", p.Cells, "of_cells", p.AllCells, "task", p.Task, "seconds", int(time.Since(began).Seconds()))
			}
		}
	}
	return func(p simulate.Progress) {
		a.sayf("\r%d of %d streams done; task %d of %d; %s   ", p.Cells, p.AllCells, p.Task, p.AllTasks, time.Since(began).Round(time.Second))
		if p.Cells == p.AllCells {
			a.sayf("\n")
		}
	}
}

// buildID names this program by what is in its file: results of another are not taken over.
func buildID() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find this program: %w", err)
	}
	file, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("read this program: %w", err)
	}
	defer file.Close() //nolint:errcheck // It was only read.
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return "", fmt.Errorf("read this program: %w", err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// writeReport writes a page to a file.
func writeReport(path string, page report.Page) (err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return fmt.Errorf("make the report's folder: %w", err)
	}
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return report.Write(file, page) //nolint:wrapcheck // It says what it was doing.
}
