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

func (a *app) benchCommand() *cobra.Command {
	var o evaluate.IngestOptions
	cmd := &cobra.Command{
		Use:   "bench SUITE",
		Short: "Measure beside the raw engines: startup, ingest",
		Long: "Starts the program on an empty folder and free ports and measures it from outside; a running installation is not\n" +
			"touched. 'startup' gives the time until ready and the memory at rest; 'ingest' the events per second from publish\n" +
			"to row, and their ratio to the slower of the raw engines in the same run.",
		Example:   "  hindsight bench startup\n  hindsight bench ingest --events 1000000 --json",
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []string{"startup", "ingest"},
		RunE:      func(cmd *cobra.Command, args []string) error { return a.bench(cmd.Context(), args[0], o) },
	}
	cmd.Flags().IntVar(&o.Events, "events", 200_000, "events of the suite ingest")
	cmd.Flags().Int64Var(&o.Seed, "seed", 1, "seed of the generated events")
	return cmd
}

func (a *app) bench(ctx context.Context, suite string, o evaluate.IngestOptions) error {
	executable, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	var report evaluate.Report
	switch suite {
	case "startup":
		report, err = evaluate.Startup(ctx, executable)
	default:
		o.Executable, o.Logger = executable, service.NewLogger(a.cfg, a.stderr)
		report, err = evaluate.Ingest(ctx, o)
	}
	if err != nil {
		return fmt.Errorf("bench %s: %w", suite, err)
	}
	if a.json {
		return a.printJSON(report)
	}
	a.printf("bench %s (seed %d)\n", report.Suite, report.Seed)
	for _, name := range slices.Sorted(maps.Keys(report.Figures)) {
		a.printf("  %-28s %14.2f\n", name, report.Figures[name])
	}
	return nil
}
