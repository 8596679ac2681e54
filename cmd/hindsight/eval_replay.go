package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hindsight-memory/hindsight/internal/evaluate"
	"github.com/hindsight-memory/hindsight/internal/evaluate/report"
	"github.com/hindsight-memory/hindsight/internal/service"
)

func (a *app) evalReplayCommand() *cobra.Command {
	var (
		o    evaluate.ReplayOptions
		page string
	)
	cmd := &cobra.Command{
		Use:   "replay FILE…",
		Short: "Was the right lesson served before it was needed? (coverage, not effect)",
		Long: "Goes through recorded runs in the order of time. Before each run and before each of its calls it asks what an agent\n" +
			"would ask, by MCP; after some runs they are imported, reflected and consolidated. It then compares what was served with\n" +
			"what followed, and with what the data allow at best.\n\n" +
			"This is coverage and not effect: the recorded agents never saw an answer, so that nothing is said about whether they\n" +
			"would have heeded it. Expected outcomes and other labels in the files are not read.\n\n" +
			"A recorded run takes about two seconds of processor time. With --work it goes on where it was interrupted.",
		Example: "  hindsight eval replay runs.jsonl.gz\n  hindsight eval replay --work replay/ --json runs.jsonl.gz",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Files = args
			return a.evalReplay(cmd.Context(), o, page)
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&o.LearnEvery, "learn-every", 10, "largest number of runs that are asked about before they are learnt; a second run of a goal always waits for the first")
	flags.IntVar(&o.Limit, "limit", 0, "replay only this many runs, the earliest (0: all)")
	flags.StringVar(&o.Work, "work", "", "folder that keeps answers and data, to go on after an interruption (default: a temporary one)")
	flags.StringVar(&page, "html", "", "write the result with charts as one HTML page to this file as well")
	flags.StringVar(&o.Embedder, "embedder", "local", "embedding model of the measured program: local or none")
	return cmd
}

func (a *app) evalReplay(ctx context.Context, o evaluate.ReplayOptions, page string) (err error) {
	if o.LearnEvery < 1 || o.Limit < 0 {
		return fmt.Errorf("%w: --learn-every must be at least 1, and --limit not negative", errUsage)
	}
	if o.Embedder != "local" && o.Embedder != "none" {
		return fmt.Errorf("%w: --embedder %q: it must be local or none", errUsage, o.Embedder)
	}
	executable, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	o.Executable, o.Vectors, o.Logger = executable, a.keptVectors(), service.NewLogger(a.cfg, a.stderr)
	result, err := evaluate.Replay(ctx, o)
	if err != nil {
		return fmt.Errorf("eval replay: %w", err)
	}
	if page != "" {
		if err := writeReplayPage(page, result, o); err != nil {
			return fmt.Errorf("write the page: %w", err)
		}
	}
	if !a.json {
		a.printf("eval replay: coverage, not effect: the recorded agents never saw an answer\n")
	}
	return a.printReport(result)
}

func writeReplayPage(path string, result evaluate.Report, o evaluate.ReplayOptions) (err error) {
	file, err := os.Create(path)
	if err != nil {
		return err //nolint:wrapcheck // It names the file.
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	command := []string{"hindsight eval replay --learn-every", strconv.Itoa(o.LearnEvery), "--embedder", o.Embedder}
	if o.Limit > 0 {
		command = append(command, "--limit", strconv.Itoa(o.Limit))
	}
	for _, name := range o.Files {
		command = append(command, filepath.Base(name))
	}
	return report.Write(file, evaluate.ReplayPage(result, strings.Join(command, " "))) //nolint:wrapcheck // It says what it was doing.
}
