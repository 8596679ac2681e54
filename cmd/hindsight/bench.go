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
	"github.com/hindsight-memory/hindsight/internal/store"
)

// benchOptions are the flags of all suites.
type benchOptions struct {
	events, questions int
	sizes             []int
	seed              int64
	index             string
}

func (a *app) benchCommand() *cobra.Command {
	var o benchOptions
	cmd := &cobra.Command{
		Use:   "bench SUITE",
		Short: "Measure beside the raw engines: startup, ingest, recall",
		Long: "Starts the program on an empty folder and free ports and measures it from outside; a running installation is not\n" +
			"touched. 'startup' gives the time until ready and until the first lesson, and the memory at rest; 'ingest' the events\n" +
			"per second from publish to row, and their ratio to the slower of the raw engines in the same run; 'recall' how long an answer takes at\n" +
			"several sizes of memory, beside a bare vector search and the embedding model. With --index milvus the vectors are in the Milvus\n" +
			"that HINDSIGHT_MILVUS_ADDR names, in collections that are removed afterwards, and the bare search asks it.",
		Example:   "  hindsight bench startup\n  hindsight bench ingest --events 1000000 --json\n  hindsight bench recall --sizes 1000,10000\n  hindsight bench recall --sizes 1000 --index milvus",
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []string{"startup", "ingest", "recall"},
		RunE:      func(cmd *cobra.Command, args []string) error { return a.bench(cmd.Context(), args[0], o) },
	}
	flags := cmd.Flags()
	flags.IntVar(&o.events, "events", 200_000, "events of the suite ingest")
	flags.IntSliceVar(&o.sizes, "sizes", []int{1_000, 10_000, 100_000}, "snapshots in memory, of the suite recall")
	flags.IntVar(&o.questions, "questions", 200, "questions at each size, of the suite recall")
	flags.Int64Var(&o.seed, "seed", 1, "seed of what is generated")
	flags.StringVar(&o.index, "index", "clickhouse", "what holds the vectors of the suite recall: clickhouse or milvus")
	return cmd
}

// milvus is the server that the index of a bench is in; without an address it is in ClickHouse.
func (a *app) milvus(index string) (store.MilvusOptions, error) {
	switch {
	case index == "clickhouse":
		return store.MilvusOptions{}, nil
	case index != "milvus":
		return store.MilvusOptions{}, fmt.Errorf("%w: --index must be clickhouse or milvus, not %q", errUsage, index)
	case a.cfg.MilvusAddr == "":
		return store.MilvusOptions{}, fmt.Errorf("%w: --index milvus needs a server: set HINDSIGHT_MILVUS_ADDR (`make milvus` runs one)", errUsage)
	}
	return store.MilvusOptions{Address: a.cfg.MilvusAddr, Token: a.cfg.MilvusToken, TLS: a.cfg.MilvusTLS == "on"}, nil
}

func (a *app) bench(ctx context.Context, suite string, o benchOptions) error {
	executable, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	logger := service.NewLogger(a.cfg, a.stderr)
	var report evaluate.Report
	switch suite {
	case "startup":
		report, err = evaluate.Startup(ctx, executable)
	case "recall":
		milvus, milvusErr := a.milvus(o.index)
		if milvusErr != nil {
			return milvusErr
		}
		report, err = evaluate.Recall(ctx, evaluate.RecallOptions{
			Executable: executable, Sizes: o.sizes, Questions: o.questions, Seed: o.seed, Milvus: milvus, EngineSetting: a.engineSetting, Logger: logger,
		})
	default:
		report, err = evaluate.Ingest(ctx, evaluate.IngestOptions{Executable: executable, Events: o.events, Seed: o.seed, Logger: logger})
	}
	if err != nil {
		return fmt.Errorf("bench %s: %w", suite, err)
	}
	if a.json {
		return a.printJSON(report)
	}
	a.printf("bench %s (seed %d)\n", report.Suite, report.Seed)
	for _, name := range slices.Sorted(maps.Keys(report.Figures)) {
		a.printf("  %-40s %14.2f\n", name, report.Figures[name])
	}
	return nil
}
