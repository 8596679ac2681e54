package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/hindsight-memory/hindsight/internal/evaluate"
	"github.com/hindsight-memory/hindsight/internal/service"
)

// defaultBaselines is where the repository has its baselines, from its own folder.
const defaultBaselines = "internal/evaluate/testdata/baselines"

func (a *app) evalBaselineCommand() *cobra.Command {
	var update bool
	cmd := &cobra.Command{
		Use:   "baseline [DIR]",
		Short: "Has anything become worse than it was? (for continuous integration)",
		Long: "Runs the small suites that the files in DIR (" + defaultBaselines + ") name, and fails with 1 when a\n" +
			"figure is worse than its baseline by more than its tolerance. Only shares, counts and ratios of sizes are compared,\n" +
			"which mean the same on every machine, and never a time. It is run in the repository's folder.",
		Example: "  hindsight eval baseline\n  hindsight eval baseline --update",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := defaultBaselines
			if len(args) > 0 {
				dir = args[0]
			}
			return a.evalBaseline(cmd.Context(), dir, update)
		},
	}
	cmd.Flags().BoolVar(&update, "update", false, "take what is measured as the new baselines, after a change that is meant to move them")
	return cmd
}

func (a *app) evalBaseline(ctx context.Context, dir string, update bool) error {
	executable, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	baselines, err := evaluate.ReadBaselines(dir)
	if err != nil {
		return fmt.Errorf("eval baseline: %w", err)
	}
	reports, failed := evaluate.CheckBaselines(ctx, baselines, evaluate.BaselineOptions{
		Executable: executable, Update: update, Logger: service.NewLogger(a.cfg, a.stderr),
	})
	// What was measured is shown, whatever came of it.
	all := evaluate.Report{Suite: "baseline", Figures: map[string]float64{}, Examples: []string{}}
	for i, r := range reports {
		for _, name := range slices.Sorted(maps.Keys(baselines[i].Figures)) {
			if value, is := r.Figures[name]; is {
				all.Figures[baselines[i].Name()+"/"+name] = value
			}
		}
	}
	if err := a.printReport(all); err != nil {
		return err
	}
	if failed != nil {
		return fmt.Errorf("eval baseline: %w", failed)
	}
	return nil
}
