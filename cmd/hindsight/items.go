package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/bus"
	"github.com/hindsight-memory/hindsight/internal/memory"
	"github.com/hindsight-memory/hindsight/internal/service"
)

// itemShown is the shape of `memories --json`.
type itemShown struct {
	ID         string            `json:"id"`
	Layer      memory.Layer      `json:"layer"`
	MemoryType memory.MemoryType `json:"memory_type"`
	Entity     string            `json:"entity"`
	Content    string            `json:"content"`
	TaskType   string            `json:"task_type,omitempty"`
	Status     memory.ItemStatus `json:"status"`
	Trust      memory.Trust      `json:"trust"`
	Confidence float64           `json:"confidence"`
	Importance float64           `json:"importance"`
	// Version counts the versions of the item.
	Version   int        `json:"version"`
	ValidFrom time.Time  `json:"valid_from"`
	ValidTo   *time.Time `json:"valid_to"`
}

func (a *app) memoriesCommand() *cobra.Command {
	var namespace, layer, status string
	var limit int
	cmd := &cobra.Command{
		Use:     "memories",
		Short:   "List what is remembered: snapshots, memories and rules",
		Example: "  hindsight memories --namespace demo\n  hindsight memories --namespace demo --layer memory --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.memories(cmd.Context(), namespace, memory.Layer(layer), status, limit)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&namespace, "namespace", "", "whose memory (default: HINDSIGHT_NAMESPACE)")
	flags.StringVar(&layer, "layer", "", "only this layer: snapshot, memory, rule")
	flags.StringVar(&status, "status", "active", "only items of this status; all for every one")
	flags.IntVar(&limit, "limit", 0, fmt.Sprintf("most items of each layer to list; 0 means %d for a person and all with --json", textLimit))
	return cmd
}

func (a *app) memories(ctx context.Context, namespace string, layer memory.Layer, status string, limit int) (err error) {
	if namespace, err = a.namespace(namespace); err != nil {
		return err
	}
	if layer != "" && !slices.Contains([]memory.Layer{memory.LayerSnapshot, memory.LayerMemory, memory.LayerRule}, layer) {
		return fmt.Errorf("%w: --layer %q: it must be snapshot, memory or rule", errUsage, layer)
	}
	st, err := a.openStore(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	if limit == 0 && !a.json {
		limit = textLimit
	}
	f := memory.ItemFilter{Namespace: namespace, Newest: true, Limit: limit}
	if status != "all" {
		f.Statuses = []memory.ItemStatus{memory.ItemStatus(status)}
	}
	items, err := listItems(ctx, st, f, layer)
	if err != nil {
		return err
	}
	if err := countVersions(ctx, st, namespace, items); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(items)
	}
	table := a.newTable()
	table.rowf("ID\tLAYER\tTYPE\tCONFIDENCE\tTRUST\tCONTENT\n")
	for _, item := range items {
		table.rowf("%s\t%s\t%s\t%.2f\t%s\t%s\n", item.ID, item.Layer, cmp.Or(string(item.MemoryType), oneLine(item.TaskType, 24)),
			item.Confidence, item.Trust, oneLine(item.Content, 110))
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	if len(items) == 0 {
		a.sayf("nothing is remembered in namespace %s yet\n", namespace)
	}
	return nil
}

// listItems reads the layers that were asked for.
func listItems(ctx context.Context, st memory.ItemReader, f memory.ItemFilter, layer memory.Layer) ([]itemShown, error) {
	items := []itemShown{}
	if layer == "" || layer == memory.LayerSnapshot {
		snapshots, err := st.Snapshots(ctx, f)
		if err != nil {
			return nil, fmt.Errorf("read snapshots: %w", err)
		}
		for _, s := range snapshots {
			item := itemShown{
				ID: s.SnapshotID, Layer: memory.LayerSnapshot, TaskType: s.TaskContext.TaskType, Status: s.Status, Trust: s.Trust,
				Confidence: s.Confidence, Importance: s.Importance, ValidFrom: s.Timestamp,
			}
			if s.Reflection != nil {
				item.Content = s.Reflection.Lesson
			}
			items = append(items, item)
		}
	}
	if layer == "" || layer == memory.LayerMemory {
		memories, err := st.Memories(ctx, f)
		if err != nil {
			return nil, fmt.Errorf("read memories: %w", err)
		}
		for _, m := range memories {
			items = append(items, itemShown{
				ID: m.MemoryID, Layer: memory.LayerMemory, MemoryType: m.MemoryType, Entity: m.Entity, Content: m.Content, TaskType: m.TaskType,
				Status: m.Status, Trust: m.Trust, Confidence: m.Confidence, Importance: m.Importance, ValidFrom: m.ValidFrom, ValidTo: m.ValidTo,
			})
		}
	}
	if layer == "" || layer == memory.LayerRule {
		rules, err := st.Rules(ctx, f)
		if err != nil {
			return nil, fmt.Errorf("read rules: %w", err)
		}
		for _, r := range rules {
			items = append(items, itemShown{
				ID: r.RuleID, Layer: memory.LayerRule, Content: r.Rule, TaskType: r.TaskType, Status: r.Status, Trust: r.Trust,
				Confidence: r.Confidence, Importance: r.Importance, ValidFrom: r.Timestamp,
			})
		}
	}
	return items, nil
}

func countVersions(ctx context.Context, st memory.ItemReader, namespace string, items []itemShown) error {
	ids := make([]string, len(items))
	for i, item := range items {
		ids[i] = item.ID
	}
	uses, err := st.Uses(ctx, namespace, ids)
	if err != nil {
		return fmt.Errorf("count versions: %w", err)
	}
	for i := range items {
		items[i].Version = uses[items[i].ID].VersionNum
	}
	return nil
}

func (a *app) forgetCommand() *cobra.Command {
	var namespace, reason string
	var restore bool
	cmd := &cobra.Command{
		Use:     "forget ID",
		Short:   "Take an item out of every answer; --restore brings it back",
		Example: "  hindsight forget --namespace demo --reason \"no longer true\" 4f1c22ab90de4f1c22ab90de4f1c22ab\n  hindsight forget --namespace demo --restore 4f1c22ab90de4f1c22ab90de4f1c22ab",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			change := events.ItemChanged{ItemID: args[0], Change: events.ChangeForget, Reason: reason, ByPerson: true}
			if restore {
				change.Change = events.ChangeRestore
			}
			return a.write(cmd.Context(), namespace, events.KindItemChanged, change, "")
		},
	}
	cmd.Flags().StringVar(&namespace, "namespace", "", "whose memory (default: HINDSIGHT_NAMESPACE)")
	cmd.Flags().StringVar(&reason, "reason", "", "why, for those who look later")
	cmd.Flags().BoolVar(&restore, "restore", false, "undo a forget")
	return cmd
}

func (a *app) feedbackCommand() *cobra.Command {
	var namespace, comment, task string
	var unhelpful bool
	cmd := &cobra.Command{
		Use:     "feedback ID",
		Short:   "Say that an item helped, or with --unhelpful that it did not",
		Example: "  hindsight feedback --namespace demo 4f1c22ab90de4f1c22ab90de4f1c22ab\n  hindsight feedback --namespace demo --unhelpful --comment \"wrong since May\" 4f1c22ab90de4f1c22ab90de4f1c22ab",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			value, err := json.Marshal(!unhelpful)
			if err != nil {
				return fmt.Errorf("encode feedback: %w", err)
			}
			return a.write(cmd.Context(), namespace, events.KindFeedback,
				events.Feedback{Target: args[0], Kind: events.FeedbackRating, Value: value, Comment: comment}, task)
		},
	}
	cmd.Flags().StringVar(&namespace, "namespace", "", "whose memory (default: HINDSIGHT_NAMESPACE)")
	cmd.Flags().StringVar(&comment, "comment", "", "what was right or wrong")
	cmd.Flags().StringVar(&task, "task", "", "id of the task in which it was used")
	cmd.Flags().BoolVar(&unhelpful, "unhelpful", false, "it did not help")
	return cmd
}

// write asks for one change of the memory and waits until the record holds it.
func (a *app) write(ctx context.Context, namespace string, kind events.Kind, data any, taskID string) (err error) {
	if namespace, err = a.namespace(namespace); err != nil {
		return err
	}
	conn, err := a.openBus(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	raw, err := events.EncodeData(data)
	if err != nil {
		return fmt.Errorf("encode the change: %w", err)
	}
	id, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("name the change: %w", err)
	}
	written, err := service.NewWriter(conn).Write(ctx, events.Event{
		ID: id.String(), Namespace: namespace, AgentID: "hindsight-cli", SessionID: "cli", TaskID: cmp.Or(taskID, events.UnjoinedTask),
		Time: time.Now().UTC(), Kind: kind, Data: raw,
	})
	if errors.Is(err, bus.ErrUnanswered) {
		return fmt.Errorf("the change is queued and will be made once a reflector runs ('hindsight up' has one): %w", err)
	}
	if err != nil {
		return fmt.Errorf("change the memory: %w", err)
	}
	if a.json {
		return a.printJSON(written)
	}
	a.printf("%s %s\n", written.Status, written.ItemID)
	if written.Notice != "" {
		a.sayf("%s\n", written.Notice)
	}
	return nil
}

// printItem shows a person one item, why it exists and what it is worth.
func (a *app) printItem(s shown) {
	var judged memory.Judged
	switch {
	case s.Snapshot != nil:
		n := s.Snapshot
		judged = n.Judged
		a.printf("snapshot   %s\nnamespace  %s\ntask       %s, step %d, of type %s\nsituation  %s\ndecision   %s %s\nresult     %s %s\n", n.SnapshotID,
			n.Namespace, n.TaskID, n.Step, n.TaskContext.TaskType, n.Situation, n.Decision.ToolSelected, oneLine(string(n.Decision.Parameters), 160),
			n.Outcome.Status, oneLine(n.Outcome.ErrorMessage, 200))
		if n.Reflection != nil {
			a.printf("lesson     %s\nwhen       %s\ncause      %s (%s)\n", n.Reflection.Lesson, n.AppliesWhen, n.Reflection.RootCause, n.Reflection.RootCauseClass)
		}
		a.printf("reflected  by %s\n", n.ReflectedBy)
	case s.Memory != nil:
		n := s.Memory
		judged = n.Judged
		a.printf("memory     %s\nnamespace  %s\ntype       %s\ncontent    %s\nentity     %s\nvalid      from %s\n", n.MemoryID, n.Namespace, n.MemoryType,
			n.Content, n.Entity, n.ValidFrom.UTC().Format(time.RFC3339))
		if n.ValidTo != nil {
			a.printf("           to %s\n", n.ValidTo.UTC().Format(time.RFC3339))
		}
	case s.Rule != nil:
		n := s.Rule
		judged = n.Judged
		a.printf("rule       %s\nnamespace  %s\ntask type  %s\nrule       %s\nwhen       %s\ndo         %s\nsupport    %d, refute %d, lift %.2f, at least %.2f\n", n.RuleID,
			n.Namespace, n.TaskType, n.Rule, n.Condition, n.Action, n.Support, n.Refute, n.Lift, n.LiftLow)
	}
	a.printf("status     %s %s\ntrust      %s\nconfidence %.2f (%s)\nimportance %.2f (%s)\n", judged.Status, judged.StatusReason, judged.Trust,
		judged.Confidence, strings.Join(judged.ConfidenceReasons, ", "), judged.Importance, strings.Join(judged.ImportanceReasons, ", "))
	if s.Use != nil {
		a.printf("shown      %d times; %d helpful, %d not; %d versions\n", s.Use.Hits, s.Use.Helpful, s.Use.Unhelpful, s.Use.VersionNum)
	}
	for _, r := range s.Relations {
		a.printf("relation   %s %s %s\n", r.FromID, strings.ReplaceAll(string(r.Kind), "_", " "), r.ToID)
	}
	for _, e := range s.Evidence {
		a.printf("evidence   %s %s %s %s\n", e.ID, e.Time.UTC().Format(time.RFC3339), e.Kind, oneLine(string(e.Data), 160))
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
