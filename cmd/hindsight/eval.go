package main

import (
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/hindsight-memory/hindsight/internal/evaluate"
)

func (a *app) evalCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "eval SUITE",
		Short: "Evaluate what is remembered, and whether it is there when it is needed",
		Long: "Each suite starts the program on a folder and ports of its own; a running installation is not touched.\n" +
			"What the figures mean, and what they do not, is in docs/evaluation.md.",
		Example: "  hindsight eval replay runs.jsonl.gz",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		a.evalReplayCommand(), a.evalSituationsCommand(), a.evalMergeCommand(), a.evalReflectionCommand(), a.evalRecallCommand(), a.evalEmbeddingsCommand(), a.evalUpliftCommand(),
		a.evalPoisonCommand(), a.evalBaselineCommand(),
	)
	cmd.AddCommand(a.evalSimulateCommand())
	return cmd
}

// printReport writes the figures of a suite.
func (a *app) printReport(report evaluate.Report) error {
	if a.json {
		return a.printJSON(report)
	}
	for _, name := range slices.Sorted(maps.Keys(report.Figures)) {
		a.printf("  %-60s %12.3f\n", name, report.Figures[name])
	}
	return nil
}
