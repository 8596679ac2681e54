package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hindsight-memory/hindsight/internal/consolidate"
	"github.com/hindsight-memory/hindsight/internal/memory"
	"github.com/hindsight-memory/hindsight/internal/reflect"
)

func (a *app) reflectCommand() *cobra.Command {
	var namespace string
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "reflect TASK_ID",
		Short: "Reflect one task again, or with --dry-run show what a reflection would keep, and why not the rest",
		Example: "  hindsight reflect --namespace demo --dry-run 4f1c22ab90de4f1c22ab90de4f1c22ab\n" +
			"  hindsight reflect --namespace demo 4f1c22ab90de4f1c22ab90de4f1c22ab",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.reflect(cmd.Context(), namespace, args[0], dryRun)
		},
	}
	cmd.Flags().StringVar(&namespace, "namespace", "", "whose task it is (default: HINDSIGHT_NAMESPACE)")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "store nothing")
	return cmd
}

func (a *app) reflect(ctx context.Context, namespace, taskID string, dryRun bool) (err error) {
	if namespace, err = a.namespace(namespace); err != nil {
		return err
	}
	parts, err := a.openParts(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, parts.Close()) }()
	reflector, err := parts.Reflector()
	if err != nil {
		return fmt.Errorf("open the reflector: %w", err)
	}
	key := memory.TaskKey{Namespace: namespace, TaskID: taskID}
	if dryRun {
		plan, err := reflector.Plan(ctx, key)
		if err != nil {
			return explainTask(err, namespace, taskID)
		}
		if a.json {
			return a.printJSON(plan)
		}
		a.printPlan(plan)
		return nil
	}
	task, err := parts.Store.Task(ctx, key)
	if err != nil {
		return explainTask(err, namespace, taskID)
	}
	done, err := reflector.Again(ctx, memory.ReflectionRequest{Namespace: namespace, TaskID: taskID, Revision: task.Revision, Closed: task.Closed})
	if err != nil {
		return explainTask(err, namespace, taskID)
	}
	if a.json {
		return a.printJSON(done)
	}
	a.printf("reflected by %s: %d kept, %d not kept\n", done.ReflectedBy, done.Kept, sum(done.Dropped))
	return nil
}

func explainTask(err error, namespace, taskID string) error {
	if errors.Is(err, memory.ErrNotFound) {
		return fmt.Errorf("there is no task %q in namespace %s: 'hindsight tasks' lists what there is: %w", taskID, namespace, err)
	}
	return fmt.Errorf("reflect: %w", err)
}

// printPlan shows a person what a reflection keeps and what not.
func (a *app) printPlan(p reflect.Plan) {
	a.printf("task %s, revision %d, reflected by %s\n\n", p.TaskID, p.Revision, p.ReflectedBy)
	if p.Fallback != "" {
		a.printf("the evidence critic stands in for the model: %s\n\n", p.Fallback)
	}
	for _, s := range p.Snapshots {
		a.printf("keep  step %d %s  (%s, confidence %.2f, importance %.2f: %s)\n", s.Step, s.Decision.ToolSelected, s.Status, s.Confidence, s.Importance,
			strings.Join(s.ImportanceReasons, ", "))
		if s.Reflection != nil {
			a.printf("      lesson  %s\n      when    %s\n", s.Reflection.Lesson, s.AppliesWhen)
		}
		a.printf("      from    %s\n", strings.Join(s.Evidence, ", "))
	}
	for _, m := range p.Memories {
		a.printf("keep  %s  %s  (%s, confidence %.2f)\n      from    %s\n", m.MemoryType, m.Content, m.Status, m.Confidence, strings.Join(m.Evidence, ", "))
	}
	for _, d := range p.Discarded {
		a.printf("drop  step %d %s %s: %s\n", d.Step, d.Tool, d.Kind, d.Reason)
	}
	if len(p.Snapshots)+len(p.Memories)+len(p.Discarded) == 0 {
		a.printf("nothing in this task is worth keeping\n")
	}
}

// jobTimeout bounds a job that is run by hand.
const jobTimeout = 30 * time.Minute

func (a *app) consolidateCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "consolidate JOB",
		Short: "Run one consolidation job now: " + strings.Join(consolidate.Jobs(), ", "),
		Long: "merge links what says the same, induce draws rules from what recurs, sweep puts away what nobody needs. The jobs also\n" +
			"run by themselves in 'hindsight up' and 'consolidator'; this one waits until no other process runs them.",
		Example: "  hindsight consolidate induce", Args: cobra.ExactArgs(1), ValidArgs: consolidate.Jobs(),
		RunE: func(cmd *cobra.Command, args []string) error { return a.consolidate(cmd.Context(), args[0]) },
	}
}

func (a *app) consolidate(ctx context.Context, job string) (err error) {
	parts, err := a.openParts(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, parts.Close()) }()
	ctx, cancel := context.WithTimeout(ctx, jobTimeout)
	defer cancel()
	report, err := parts.Consolidation(ctx, job)
	switch {
	case errors.Is(err, consolidate.ErrUnknownJob):
		return fmt.Errorf("%w: %w", errUsage, err)
	case err != nil:
		return fmt.Errorf("consolidate: %w", err)
	}
	if a.json {
		return a.printJSON(report)
	}
	if len(report.Runs) == 0 {
		a.printf("%s: nothing to do\n", job)
		return nil
	}
	for _, name := range sortedKeys(report.Counts) {
		a.printf("%s: %d %s\n", job, report.Counts[name], strings.ReplaceAll(name, "_", " "))
	}
	return nil
}
