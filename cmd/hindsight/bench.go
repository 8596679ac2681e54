package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

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
	jsonDir, page     string
}

// allBenches is the name under which all suites run.
const allBenches = "all"

func (a *app) benchCommand() *cobra.Command {
	var o benchOptions
	cmd := &cobra.Command{
		Use:   "bench SUITE",
		Short: "Measure beside the raw engines: " + strings.Join(evaluate.BenchSuites(), ", "),
		Long: "Starts the program on an empty folder and free ports and measures it from outside; a running installation is not\n" +
			"touched. With the defaults each suite takes from some seconds to some minutes.\n\n" +
			"  startup      time until ready and until the first lesson, memory at rest\n" +
			"  footprint    memory at rest by its parts, the program's file, and the data folder beside the events as JSON\n" +
			"  ingest       events per second from publish to row, beside the raw engines\n" +
			"  reflect      tasks reflected per second, beside bare inserts of the same rows (--sizes 1000,5000)\n" +
			"  consolidate  merge and induce, beside a bare read of the same rows (--sizes 1000,5000)\n" +
			"  recall       how long an answer takes, beside a bare vector search and the embedding model (--sizes 1000,10000)\n" +
			"  mcp          answers over streamable HTTP, beside the same in process (--sizes 1000)\n" +
			"  all          every one of them, one after the other\n\n" +
			"With --index milvus the vectors of the suite recall are in the Milvus that HINDSIGHT_MILVUS_ADDR names, in collections that are\n" +
			"removed afterwards, and the bare search asks it.",
		Example: "  hindsight bench startup\n  hindsight bench ingest --events 1000000 --json\n  hindsight bench recall --sizes 1000,10000,100000\n" +
			"  hindsight bench recall --sizes 1000 --index milvus\n  hindsight bench all --json-dir bench/ --page performance.md",
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: append(evaluate.BenchSuites(), allBenches),
		RunE:      func(cmd *cobra.Command, args []string) error { return a.benches(cmd.Context(), args[0], o) },
	}
	flags := cmd.Flags()
	flags.IntVar(&o.events, "events", 0, "events of the suites ingest (default 200000) and footprint (default 50000)")
	flags.IntSliceVar(&o.sizes, "sizes", nil, "tasks or snapshots of the suites reflect, consolidate, recall and mcp, such as 1000,10000,100000 (default: see above)")
	flags.IntVar(&o.questions, "questions", 0, "questions at each size, of the suites recall (default 200) and mcp (default 100)")
	flags.Int64Var(&o.seed, "seed", 1, "seed of what is generated")
	flags.StringVar(&o.index, "index", "clickhouse", "what holds the vectors of the suite recall: clickhouse or milvus")
	flags.StringVar(&o.jsonDir, "json-dir", "", "also write the figures to this folder, a file SUITE.json each")
	flags.StringVar(&o.page, "page", "", "with all: write the page of the files in --json-dir to this file")
	cmd.AddCommand(a.benchPageCommand())
	return cmd
}

func (a *app) benchPageCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:     "page DIR",
		Short:   "Write the page docs/performance.md from the files that --json-dir wrote",
		Example: "  hindsight bench page bench/\n  hindsight bench page --output docs/performance.md docs/performance",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			page, err := benchPage(args[0])
			if err != nil {
				return err
			}
			if output == "" {
				a.printf("%s", page)
				return nil
			}
			return writePage(output, page)
		},
	}
	cmd.Flags().StringVar(&output, "output", "", "write to this file (default: standard output)")
	return cmd
}

func benchPage(dir string) (string, error) {
	reports, err := evaluate.ReadBenches(dir)
	if err != nil {
		return "", fmt.Errorf("bench page: %w", err)
	}
	page, err := evaluate.PerformancePage(reports)
	if err != nil {
		return "", fmt.Errorf("bench page: %w", err)
	}
	return page, nil
}

func writePage(path, page string) error {
	if err := os.WriteFile(path, []byte(page), 0o644); err != nil { //nolint:gosec // A page of documentation is for all to read.
		return fmt.Errorf("write the page: %w", err)
	}
	return nil
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

// benches runs one suite, or all, and says on which machine.
func (a *app) benches(ctx context.Context, name string, o benchOptions) error {
	suites := []string{name}
	if name == allBenches {
		suites = evaluate.BenchSuites()
	}
	if o.page != "" && (name != allBenches || o.jsonDir == "") {
		return fmt.Errorf("%w: --page needs the suite all and --json-dir", errUsage)
	}
	if slices.ContainsFunc(o.sizes, func(size int) bool { return size < 1 }) || o.events < 0 || o.questions < 0 {
		return fmt.Errorf("%w: --sizes must be at least 1, --events and --questions not negative", errUsage)
	}
	if o.jsonDir != "" {
		if err := os.MkdirAll(o.jsonDir, 0o750); err != nil {
			return fmt.Errorf("make the folder for the figures: %w", err)
		}
	}
	executable, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	milvus, err := a.milvus(o.index)
	if err != nil {
		return err
	}
	logger := service.NewLogger(a.cfg, a.stderr)
	reports := make([]evaluate.Report, 0, len(suites))
	for _, suite := range suites {
		machine, err := evaluate.DescribeMachine(ctx, executable)
		if err != nil {
			return fmt.Errorf("bench %s: look at the machine: %w", suite, err)
		}
		began := time.Now()
		report, err := a.bench(ctx, suite, executable, milvus, logger, o)
		if err != nil {
			return fmt.Errorf("bench %s: %w", suite, err)
		}
		report.Figures["took_seconds"], report.Machine = time.Since(began).Round(time.Second).Seconds(), &machine
		if err := a.finishBench(report, o.jsonDir, name != allBenches); err != nil {
			return err
		}
		reports = append(reports, report)
	}
	if a.json && name == allBenches {
		return a.printJSON(reports)
	}
	if o.page == "" {
		return nil
	}
	page, err := benchPage(o.jsonDir)
	if err != nil {
		return err
	}
	return writePage(o.page, page)
}

func (a *app) bench(ctx context.Context, suite, executable string, milvus store.MilvusOptions, logger *slog.Logger, o benchOptions) (evaluate.Report, error) {
	curve := evaluate.CurveOptions{Executable: executable, Sizes: o.sizes, Questions: o.questions, Seed: o.seed, Logger: logger}
	switch suite {
	case "startup":
		return evaluate.Startup(ctx, executable)
	case "footprint":
		return evaluate.Footprint(ctx, evaluate.FootprintOptions{Executable: executable, Events: o.events, Seed: o.seed, Logger: logger})
	case "ingest":
		return evaluate.Ingest(ctx, evaluate.IngestOptions{Executable: executable, Events: o.events, Seed: o.seed, Logger: logger})
	case "reflect":
		return evaluate.Reflect(ctx, curve)
	case "consolidate":
		return evaluate.Consolidate(ctx, curve)
	case "recall":
		return evaluate.Recall(ctx, evaluate.RecallOptions{
			Executable: executable, Sizes: o.sizes, Questions: o.questions, Seed: o.seed, Milvus: milvus, EngineSetting: a.engineSetting, Logger: logger,
		})
	default:
		return evaluate.MCP(ctx, curve)
	}
}

// finishBench writes a report to its file, and prints it unless it is one of several that are printed as JSON together.
func (a *app) finishBench(report evaluate.Report, dir string, alone bool) error {
	if dir != "" {
		raw, err := json.MarshalIndent(report, "", "  ")
		if err != nil {
			return fmt.Errorf("encode the figures: %w", err)
		}
		if err := os.WriteFile(filepath.Join(dir, report.Suite+".json"), append(raw, '\n'), 0o644); err != nil { //nolint:gosec // Figures are for all to read.
			return fmt.Errorf("write the figures: %w", err)
		}
	}
	if a.json {
		if alone {
			return a.printJSON(report)
		}
		return nil
	}
	a.printf("bench %s (seed %d)\n", report.Suite, report.Seed)
	for _, name := range slices.Sorted(maps.Keys(report.Figures)) {
		a.printf("  %-40s %14.2f\n", name, report.Figures[name])
	}
	return nil
}
