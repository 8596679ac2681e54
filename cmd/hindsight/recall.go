package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/memory"
	"github.com/hindsight-memory/hindsight/internal/recall"
	"github.com/hindsight-memory/hindsight/internal/service"
)

const (
	// askTimeout bounds one question, the loading of the model included.
	askTimeout = 60 * time.Second
	// noteTimeout is what the note of a recall has to be confirmed before the command ends.
	noteTimeout = 3 * time.Second
)

// openParts connects to the record and the broker for one command.
func (a *app) openParts(ctx context.Context) (*service.Parts, error) {
	st, err := a.openStore(ctx)
	if err != nil {
		return nil, err
	}
	conn, err := a.openBus(ctx)
	if err != nil {
		return nil, errors.Join(err, st.Close())
	}
	return &service.Parts{
		Config: a.cfg, Store: st, Bus: conn, Registry: prometheus.NewRegistry(), Holder: service.UniqueHolder(),
		Logger: slog.New(slog.NewTextHandler(a.stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}, nil
}

// asked are the flags that all questions have in common.
type asked struct {
	namespace, taskType, asOf, task, session string
	topK                                     int
}

func (q *asked) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&q.namespace, "namespace", "", "whose memory is asked (default: HINDSIGHT_NAMESPACE)")
	flags.StringVar(&q.taskType, "task-type", "", "type of the task that the question is about")
	flags.StringVar(&q.asOf, "as-of", "", "answer as it would have been at this time (RFC 3339)")
	flags.StringVar(&q.task, "task", "", "id of the task that asks, so that the recall can be joined to its outcome")
	flags.StringVar(&q.session, "session", "", "id of the session that asks")
}

func (a *app) asOf(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	t, err := events.ParseTime(text)
	if err != nil {
		return time.Time{}, fmt.Errorf("%w: --as-of %q: it must be a time such as 2026-01-31T09:30:00Z", errUsage, text)
	}
	return t, nil
}

func (q *asked) asker() recall.Asker {
	return recall.Asker{TaskID: q.task, SessionID: q.session, Door: "cli"}
}

// ask opens what answers questions, asks, and prints the answer.
func (a *app) ask(ctx context.Context, q *asked, question func(ctx context.Context, r *service.Reader, namespace string, asOf time.Time) (recall.Answer, error), show func(recall.Answer) error) (err error) {
	namespace, err := a.namespace(q.namespace)
	if err != nil {
		return err
	}
	asOf, err := a.asOf(q.asOf)
	if err != nil {
		return err
	}
	parts, err := a.openParts(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, parts.Close()) }()
	reader, err := parts.Reader()
	if err != nil {
		return fmt.Errorf("open recall: %w", err)
	}
	defer func() {
		note, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteTimeout)
		defer cancel()
		err = errors.Join(err, reader.Close(note))
	}()
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	reader.Warm(ctx)
	answer, err := question(ctx, reader, namespace, asOf)
	if err != nil {
		if errors.Is(err, recall.ErrQuestion) {
			return fmt.Errorf("%w: %w", errUsage, err)
		}
		return fmt.Errorf("recall: %w", err)
	}
	return show(answer)
}

func (a *app) recallCommand() *cobra.Command {
	q := asked{}
	var minScore float64
	var entity, memoryType, preset, layer string
	var budget int
	cmd := &cobra.Command{
		Use:   "recall [flags] QUESTION",
		Short: "Ask what is known about a situation, and why each item is shown",
		Long: "Answers as an agent would be answered: the few lessons, facts and rules that matter, each with what its score is made\n" +
			"of. The question is a text in any language, such as the goal of a task.",
		Example: "  hindsight recall --namespace demo \"the payment for a booking fails\"\n" +
			"  hindsight recall --namespace demo --task-type shop/orders --json \"退款失败\"",
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			question := recall.Question{
				Text: strings.Join(args, " "), TaskType: q.taskType, TopK: q.topK, MinScore: minScore, Entity: entity, Budget: budget,
				Preset: memory.Preset(preset), Asker: q.asker(),
			}
			if memoryType != "" {
				question.MemoryTypes = []memory.MemoryType{memory.MemoryType(memoryType)}
			}
			if layer != "" {
				question.Layers = []memory.Layer{memory.Layer(layer)}
			}
			return a.ask(cmd.Context(), &q, func(ctx context.Context, r *service.Reader, namespace string, asOf time.Time) (recall.Answer, error) {
				question.Namespace, question.AsOf = namespace, asOf
				return r.Recall(ctx, question)
			}, a.printAnswer)
		},
	}
	q.flags(cmd)
	flags := cmd.Flags()
	flags.IntVar(&q.topK, "top-k", recall.DefaultTopK, fmt.Sprintf("most items to show, at most %d", recall.MaxTopK))
	flags.Float64Var(&minScore, "min-score", recall.DefaultMinScore, "least similarity, 0 to 1 (0.5: related); negative cuts nothing")
	flags.StringVar(&entity, "entity", "", "ask what is known of this entity")
	flags.StringVar(&memoryType, "memory-type", "", "only memories of this type: preference, procedure, fact, correction")
	flags.StringVar(&layer, "layer", "", "only this layer: snapshot, memory, rule")
	flags.StringVar(&preset, "preset", "", "ranking: experience, fact, strict")
	flags.IntVar(&budget, "budget", recall.DefaultBudget, "size of the answer in tokens")
	return cmd
}

// printAnswer shows an answer to a person, or as JSON.
func (a *app) printAnswer(answer recall.Answer) error {
	if a.json {
		return a.printJSON(answer)
	}
	for i, item := range answer.Items {
		a.printf("%d. %s  score %.2f, similarity %.2f, confidence %.2f, %s, seen in %d\n", i+1, item.Layer, item.Score, item.Similarity,
			item.Confidence, item.Trust, item.Seen)
		for text := range strings.Lines(item.Text) {
			a.printf("   %s\n", strings.TrimRight(text, "\n"))
		}
		a.printf("   id %s, %s%s\n\n", item.ID, partsText(item.Parts), cmpNote(item.Note))
	}
	if answer.Notice != "" {
		a.sayf("%s\n", answer.Notice)
	}
	return nil
}

func cmpNote(note string) string {
	if note == "" {
		return ""
	}
	return "; " + note
}

// partsText lists what a score is made of, by name.
func partsText(parts map[string]float64) string {
	names := sortedKeys(parts)
	texts := make([]string, len(names))
	for i, name := range names {
		texts[i] = fmt.Sprintf("%s %.2f", strings.ReplaceAll(name, "_", " "), parts[name])
	}
	return strings.Join(texts, ", ")
}

func (a *app) checkCommand() *cobra.Command {
	q := asked{}
	var tool, parameters string
	cmd := &cobra.Command{
		Use:   "check --tool TOOL [--params JSON]",
		Short: "Ask what is known to go wrong with a call, before it is made",
		Long: "Compares the call with failed ones of the same tool, and with the rules about the tool. It is silent about what the\n" +
			"call does already as the lesson asks, and prints nothing when nothing is known.",
		Example: "  hindsight check --namespace demo --tool refund_order --params '{\"order_id\":\"W1042\",\"amount\":12.5}'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			raw, err := readParameters(parameters, a.stdin)
			if err != nil {
				return err
			}
			return a.ask(cmd.Context(), &q, func(ctx context.Context, r *service.Reader, namespace string, asOf time.Time) (recall.Answer, error) {
				return r.Check(ctx, recall.Action{
					Namespace: namespace, Tool: tool, Parameters: raw, TaskType: q.taskType, TopK: q.topK, AsOf: asOf, Asker: q.asker(),
				})
			}, func(answer recall.Answer) error {
				if a.json {
					return a.printJSON(map[string]any{"known": len(answer.Items) > 0, "items": answer.Items})
				}
				return a.printAnswer(answer)
			})
		},
	}
	q.flags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&tool, "tool", "", "name of the tool that is about to be called")
	flags.StringVar(&parameters, "params", "{}", "parameters of the call, a JSON object; - reads it from standard input")
	flags.IntVar(&q.topK, "top-k", 3, "most items to show")
	must(cmd.MarkFlagRequired("tool"))
	return cmd
}

func readParameters(text string, stdin io.Reader) ([]byte, error) {
	raw := []byte(text)
	if text == "-" {
		var err error
		if raw, err = io.ReadAll(io.LimitReader(stdin, events.MaxEventBytes)); err != nil {
			return nil, fmt.Errorf("read the parameters from standard input: %w", err)
		}
	}
	if memory.Shape(raw) == nil {
		return nil, fmt.Errorf("%w: --params %q: it must be a JSON object such as {\"order_id\":\"W1042\"}", errUsage, oneLine(string(raw), 60))
	}
	return raw, nil
}

func (a *app) rulesCommand() *cobra.Command {
	q := asked{}
	var all bool
	cmd := &cobra.Command{
		Use:   "rules",
		Short: "List the rules that were drawn from what recurs",
		Long:  "Lists active rules, those that hold best first, with how many tasks support and refute each; --all lists candidates\nand retired ones as well.",
		Example: "  hindsight rules --namespace demo\n" +
			"  hindsight rules --namespace demo --task-type shop/orders --json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.rules(cmd.Context(), q, all) },
	}
	q.flags(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "also candidates, retired and forgotten ones")
	return cmd
}

// ruleShown is the shape of `rules --json`.
type ruleShown struct {
	ID        string            `json:"id"`
	TaskType  string            `json:"task_type"`
	Kind      memory.RuleKind   `json:"kind"`
	Tool      string            `json:"tool,omitempty"`
	Rule      string            `json:"rule"`
	Condition string            `json:"condition"`
	Action    string            `json:"action"`
	Unless    string            `json:"does_not_apply_when,omitempty"`
	Status    memory.ItemStatus `json:"status"`
	Support   int               `json:"support"`
	Refute    int               `json:"refute"`
	Lift      float64           `json:"lift"`
	LiftLow   float64           `json:"lift_low"`
	Evidence  []string          `json:"evidence"`
}

func (a *app) rules(ctx context.Context, q asked, all bool) (err error) {
	namespace, err := a.namespace(q.namespace)
	if err != nil {
		return err
	}
	asOf, err := a.asOf(q.asOf)
	if err != nil {
		return err
	}
	st, err := a.openStore(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	f := memory.ItemFilter{Namespace: namespace, TaskType: q.taskType, AsOf: asOf, Newest: true}
	if !all {
		f.Statuses = []memory.ItemStatus{memory.ItemActive}
	}
	rules, err := st.Rules(ctx, f)
	if err != nil {
		return fmt.Errorf("read rules: %w", err)
	}
	shown := make([]ruleShown, 0, len(rules))
	for _, r := range rules {
		shown = append(shown, ruleShown{
			ID: r.RuleID, TaskType: r.TaskType, Kind: r.Kind, Tool: r.Tool, Rule: r.Rule, Condition: r.Condition, Action: r.Action,
			Unless: r.DoesNotApplyWhen, Status: r.Status, Support: r.Support, Refute: r.Refute, Lift: r.Lift, LiftLow: r.LiftLow, Evidence: r.Evidence,
		})
	}
	if a.json {
		return a.printJSON(shown)
	}
	for _, r := range shown {
		a.printf("%s  %s %s  support %d, refute %d, lift %.2f (at least %.2f), %s\n   %s\n   when: %s\n   do: %s\n\n",
			r.ID, cmp.Or(r.TaskType, "any type"), r.Kind, r.Support, r.Refute, r.Lift, r.LiftLow, r.Status, r.Rule, r.Condition, r.Action)
	}
	if len(shown) == 0 {
		a.sayf("no rules yet: 'hindsight consolidate induce' draws them from failures that recur\n")
	}
	return nil
}

// must is for what only a fault of this program can make fail.
func must(err error) {
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "hindsight: internal:", err)
		os.Exit(exitFailed)
	}
}
