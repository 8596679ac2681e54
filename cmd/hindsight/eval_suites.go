package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hindsight-memory/hindsight/internal/evaluate"
	"github.com/hindsight-memory/hindsight/internal/evaluate/report"
	"github.com/hindsight-memory/hindsight/internal/service"
)

// suite are the flags that the suites have in common.
type suite struct {
	html      string
	failUnder []string
}

// flags adds those of every suite.
func (s *suite) flags(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&s.failUnder, "fail-under", nil, "exit with 1 when a figure is lower, such as accuracy=0.9; may be given several times")
	cmd.Flags().StringVar(&s.html, "html", "", "also write a report to this file, as one page that stands for itself")
}

// bound is the least that a figure may be.
type bound struct {
	figure string
	least  float64
}

func (s *suite) bounds() ([]bound, error) {
	var out []bound
	for _, text := range s.failUnder {
		name, number, is := strings.Cut(text, "=")
		least, err := strconv.ParseFloat(number, 64)
		if !is || name == "" || err != nil {
			return nil, fmt.Errorf("%w: --fail-under %q: it must be a figure and a number, such as hit5=0.8", errUsage, text)
		}
		out = append(out, bound{name, least})
	}
	return out, nil
}

// finish prints a report, and fails when a figure is lower than it may be.
func (a *app) finish(result evaluate.Report, bounds []bound) error {
	if !a.json {
		a.printf("eval %s (seed %d)\n", result.Suite, result.Seed)
	}
	if err := a.printReport(result); err != nil {
		return err
	}
	if !a.json {
		for _, example := range result.Examples {
			a.printf("\n%s\n", example)
		}
	}
	var low []error
	for _, b := range bounds {
		switch figure, is := result.Figures[b.figure]; {
		case !is:
			low = append(low, fmt.Errorf("%w: --fail-under: there is no figure %q in this report", errUsage, b.figure))
		case figure < b.least:
			low = append(low, fmt.Errorf("%s is %.3f, under %.3f", b.figure, figure, b.least))
		}
	}
	return errors.Join(low...)
}

// runSuite runs a suite whose bounds are understood, and prints its report. args are what the command was given, for the page
// that tells how to repeat it.
func (a *app) runSuite(name string, s *suite, args []string, run func() (evaluate.Report, error)) error {
	bounds, err := s.bounds()
	if err != nil {
		return err
	}
	result, err := run()
	if err != nil {
		return fmt.Errorf("eval %s: %w", name, err)
	}
	if s.html != "" {
		command := []string{"hindsight eval", name}
		for _, path := range args {
			command = append(command, filepath.Base(path))
		}
		if err := writeSuitePage(s.html, result, strings.Join(command, " ")); err != nil {
			return fmt.Errorf("write the report: %w", err)
		}
	}
	return a.finish(result, bounds)
}

func writeSuitePage(path string, result evaluate.Report, command string) (err error) {
	file, err := os.Create(path)
	if err != nil {
		return err //nolint:wrapcheck // It names the file.
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return report.Write(file, evaluate.SuitePage(result, command)) //nolint:wrapcheck // It says what it was doing.
}

// keptVectors is the folder that keeps vectors from one evaluation to the next.
func (a *app) keptVectors() string {
	return cmp.Or(a.cfg.EmbeddingCache, filepath.Join(a.cfg.DataDir, "eval", "vectors"))
}

// withVectors runs a suite that compares texts by the configured embedding model.
func (a *app) withVectors(ctx context.Context, measure func(v *evaluate.Vectors) (evaluate.Report, error)) (result evaluate.Report, err error) {
	cfg := *a.cfg
	cfg.EmbeddingCache = a.keptVectors()
	embedder, err := service.NewEmbedder(&cfg, service.NewLogger(a.cfg, a.stderr))
	if err != nil {
		return result, fmt.Errorf("set up the embedding model: %w", err)
	}
	if embedder == nil {
		return result, errors.New("there is no embedding model to measure: run 'make setup', or set HINDSIGHT_EMBEDDING_BASE_URL and EMBEDDING_MODEL")
	}
	defer func() { err = errors.Join(err, embedder.Close()) }()
	vectors, err := evaluate.OpenVectors(ctx, embedder)
	if err != nil {
		return result, fmt.Errorf("set up the embedding model: %w", err)
	}
	return measure(vectors)
}

// vectorSuite is a command for one file that needs nothing but the embedding model.
func (a *app) vectorSuite(name, use, short, long, example string, measure func(ctx context.Context, path string, v *evaluate.Vectors) (evaluate.Report, error)) *cobra.Command {
	var s suite
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long, Example: example, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.runSuite(name, &s, args, func() (evaluate.Report, error) {
				return a.withVectors(cmd.Context(), func(v *evaluate.Vectors) (evaluate.Report, error) {
					return measure(cmd.Context(), args[0], v)
				})
			})
		},
	}
	s.flags(cmd)
	return cmd
}

func (a *app) evalSituationsCommand() *cobra.Command {
	return a.vectorSuite("situations", "situations FILE", "Are decisions of one kind nearer to each other than to what only looks like them?",
		"Reads lines {anchor, same, decoy}, each {task_type, input_summary, available_tools, tool_selected, parameters}, and compares\n"+
			"what the product would embed of them. Nothing has to run. It says how near texts are, not what a recall would show.",
		"  hindsight eval situations situations.jsonl\n  hindsight eval situations --json --fail-under accuracy=0.9 situations.jsonl", evaluate.Situations)
}

func (a *app) evalMergeCommand() *cobra.Command {
	return a.vectorSuite("merge", "merge FILE", "Are lessons merged that say the same, and no others?",
		"Reads lines {a, b, same}, each side {tool, error_type, error_message, lesson, applies_when}, and asks the decision by which\n"+
			"the consolidator merges lessons. Nothing has to run. false_merges are what harms: a lesson that disappears behind another.",
		"  hindsight eval merge merge.jsonl\n  hindsight eval merge --json --fail-under precision=0.95 merge.jsonl", evaluate.Merge)
}

func (a *app) evalEmbeddingsCommand() *cobra.Command {
	return a.vectorSuite("embeddings", "embeddings FILE", "At which place does the embedding model put the text that answers a question?",
		"Reads a JSON object {docs: [text], queries: [[text, number of the document that answers it]]} and ranks all documents for\n"+
			"each question, in each language and across languages. Nothing has to run.",
		"  hindsight eval embeddings questions.json", evaluate.Embeddings)
}

func (a *app) evalReflectionCommand() *cobra.Command {
	var s suite
	cmd := &cobra.Command{
		Use: "reflection FILE…", Short: "Do the decisions kept of failed runs include what people call the root cause?",
		Long: "Reads runs of the trajectory format of which some have labels.human (failures with step_number and failure_category, and\n" +
			"root_cause). The program reflects all of them without the labels, in a folder of its own; then what it kept is compared\n" +
			"with them. The ceiling is the share of root causes that are near a call at all: only calls are kept.",
		Example: "  hindsight eval reflection labelled.jsonl.gz", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.runSuite("reflection", &s, args, func() (evaluate.Report, error) {
				product, err := a.product("none")
				if err != nil {
					return evaluate.Report{}, err
				}
				return evaluate.ReflectionLabels(cmd.Context(), evaluate.ReflectionOptions{ProductOptions: product, Files: args})
			})
		},
	}
	s.flags(cmd)
	return cmd
}

// product says how to start this program for a suite.
func (a *app) product(embedder string) (evaluate.ProductOptions, error) {
	executable, err := os.Executable()
	if err != nil {
		return evaluate.ProductOptions{}, fmt.Errorf("find this program: %w", err)
	}
	return evaluate.ProductOptions{Executable: executable, Embedder: embedder, Vectors: a.keptVectors(), Logger: service.NewLogger(a.cfg, a.stderr)}, nil
}

func (a *app) evalRecallCommand() *cobra.Command {
	var s suite
	cmd := &cobra.Command{
		Use: "recall FILE.yaml", Short: "Does a running installation show what is expected for a list of questions?",
		Long: "Reads a YAML list of {namespace, question, task_type, expect, not_expect}: what the answer should show, and what not, by id\n" +
			"or by a piece of text. It asks the configured installation, which must be running, as an agent would, and says for what is\n" +
			"missing whether it was not found, too unlike, cut or held back. The questions are not recorded as recalls.\n\n" +
			"It exits with 0 whatever the figures are, unless --fail-under says otherwise.",
		Example: "  hindsight eval recall questions.yaml\n  hindsight eval recall --fail-under hit5=0.8 --json questions.yaml", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.runSuite("recall", &s, args, func() (evaluate.Report, error) { return a.evalRecall(cmd.Context(), args[0]) })
		},
	}
	s.flags(cmd)
	return cmd
}

func (a *app) evalRecall(ctx context.Context, path string) (result evaluate.Report, err error) {
	parts, err := a.openParts(ctx)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, parts.Close()) }()
	asked, err := parts.Unrecorded(ctx)
	if err != nil {
		return result, fmt.Errorf("open recall: %w", err)
	}
	return evaluate.Questions(ctx, path, asked, parts.Store)
}

func (a *app) evalUpliftCommand() *cobra.Command {
	var s suite
	var namespace string
	o := evaluate.UpliftOptions{}
	cmd := &cobra.Command{
		Use: "uplift", Short: "Does recall help in a running installation? Treated sessions against the control group",
		Long: "Compares tasks of sessions that were shown lessons with tasks of sessions from which they were withheld by chance\n" +
			"(HINDSIGHT_CONTROL_SHARE): how often they succeed, and how often they repeat a failure, with an interval over sessions, the\n" +
			"least effect that would be seen, and how many sessions an effect needs. Without a control group, or with fewer than 20\n" +
			"sessions in a group, it says that nothing can be claimed.",
		Example: "  hindsight eval uplift --namespace demo\n  hindsight eval uplift --namespace demo --effect 0.03 --json", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !(o.Effect > 0 && o.Effect < 1) || !(o.Share > 0 && o.Share < 1) {
				return fmt.Errorf("%w: --effect and --share must lie between 0 and 1", errUsage)
			}
			var err error
			if o.Namespace, err = a.namespace(namespace); err != nil {
				return err
			}
			return a.runSuite("uplift", &s, nil, func() (evaluate.Report, error) { return a.evalUplift(cmd.Context(), o) })
		},
	}
	s.flags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&namespace, "namespace", "", "whose tasks are compared (default: HINDSIGHT_NAMESPACE)")
	flags.Float64Var(&o.Effect, "effect", 0.05, "difference that the number of sessions is reckoned for")
	flags.Float64Var(&o.Share, "share", 0.1, "share of the control group that it is reckoned for while there is none")
	return cmd
}

func (a *app) evalUplift(ctx context.Context, o evaluate.UpliftOptions) (result evaluate.Report, err error) {
	st, err := a.openStore(ctx)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	return evaluate.Uplift(ctx, st, o)
}

func (a *app) evalPoisonCommand() *cobra.Command {
	var s suite
	var embedder string
	o := evaluate.PoisonOptions{}
	cmd := &cobra.Command{
		Use: "poison [FILE]", Short: "How much of what is planted to do harm is shown to agents, and how much that is harmless is held back?",
		Long: "Plants experiences by every door (import, memory_write, store_snapshot, the output of a tool, a document that a tool reads)\n" +
			"into an installation of its own, asks about them as an agent would, by MCP, and counts. Some are made up, in English and\n" +
			"Chinese: instructions to the agent, links, payment targets, secrets, and harmless ones about the same tasks. FILE adds more:\n" +
			"{benign_experiences, poisoned_experiences}, each a list of {id, req, resp, tag, semantic_targets}.",
		Example: "  hindsight eval poison\n  hindsight eval poison --embedder none --made 1 --json", Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if embedder != "local" && embedder != "none" {
				return fmt.Errorf("%w: --embedder %q: it must be local or none", errUsage, embedder)
			}
			if o.Made < 0 || o.Made > 100 || o.Made == 0 && len(args) == 0 {
				return fmt.Errorf("%w: --made must be from 0 to 100, and not 0 without a file", errUsage)
			}
			how := append(slices.Clone(args), fmt.Sprintf("--made=%d", o.Made), fmt.Sprintf("--seed=%d", o.Seed), "--embedder="+embedder)
			return a.runSuite("poison", &s, how, func() (result evaluate.Report, err error) {
				if o.ProductOptions, err = a.product(embedder); err != nil {
					return result, err
				}
				o.File = strings.Join(args, "")
				return evaluate.Poison(cmd.Context(), o)
			})
		},
	}
	s.flags(cmd)
	flags := cmd.Flags()
	flags.IntVar(&o.Made, "made", 3, "how many poisoned experiences to make up of each kind and language")
	flags.Int64Var(&o.Seed, "seed", 1, "seed of what is made up")
	flags.StringVar(&embedder, "embedder", "local", "embedding model of the measured program: local or none")
	return cmd
}
