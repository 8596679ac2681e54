package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/memory"
	"github.com/hindsight-memory/hindsight/internal/store"
)

// textLimit is how many tasks a person is shown when no --limit is given.
const textLimit = 50

func (a *app) tasksCommand() *cobra.Command {
	var f memory.TaskFilter
	var limit int
	cmd := &cobra.Command{
		Use:   "tasks [flags] [TASK_ID…]",
		Short: "List tasks with their outcome and steps",
		Long: "Lists tasks: for a person the newest, as a table; with --json all of them with their steps, in order of their start.\n" +
			"Without --namespace it lists those of every namespace.",
		Example: "  hindsight tasks --namespace demo --status failure\n  hindsight tasks --namespace demo --json | jq '.[0].steps'",
		RunE: func(cmd *cobra.Command, args []string) error {
			f.TaskIDs, f.Limit = args, limit
			return a.tasks(cmd.Context(), f)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.Namespace, "namespace", "", "only tasks of this namespace")
	flags.StringVar(&f.TaskType, "type", "", "only tasks of this task type")
	flags.StringVar((*string)(&f.Status), "status", "", "only tasks of this status: success, failure, partial, cancelled, unknown")
	flags.StringVar(&f.SessionID, "session", "", "only tasks of this session")
	flags.StringVar(&f.GoalID, "goal", "", "only tasks with this goal id")
	flags.BoolVar(&f.OpenOnly, "open", false, "only tasks that are not closed")
	flags.IntVar(&limit, "limit", 0, fmt.Sprintf("most tasks to list; 0 means %d for a person and all with --json", textLimit))
	return cmd
}

func (a *app) tasks(ctx context.Context, f memory.TaskFilter) (err error) {
	if f.Namespace != "" {
		if f.Namespace, err = a.namespace(f.Namespace); err != nil {
			return err
		}
	}
	if f.Limit < 0 {
		return fmt.Errorf("%w: --limit must not be negative", errUsage)
	}
	if f.Status != "" && !slices.Contains(events.TaskStatuses(), f.Status) {
		return fmt.Errorf("%w: --status %q: it must be one of %v", errUsage, f.Status, events.TaskStatuses())
	}
	st, err := a.openStore(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	if a.json {
		return a.tasksJSON(ctx, st, f)
	}
	if f.Limit == 0 {
		f.Limit = textLimit
	}
	f.Newest = true
	table := a.newTable()
	table.rowf("STARTED (UTC)\tNAMESPACE\tTASK\tTYPE\tSTATUS\tSTEPS\tERRORS\tGOAL\n")
	n := 0
	for task, err := range st.Tasks(ctx, f) {
		if err != nil {
			return fmt.Errorf("list tasks: %w", err)
		}
		n++
		table.rowf("%s\t%s\t%s\t%s\t%s\t%d\t%d\t%s\n", task.StartedAt.Format(time.DateTime), task.Namespace, oneLine(task.TaskID, 32),
			oneLine(task.TaskType, 24), statusText(task), len(task.Steps), task.Errors, oneLine(task.Goal, 60))
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	switch {
	case n == 0 && len(f.TaskIDs) > 0:
		return fmt.Errorf("no task has the id %s: 'hindsight tasks' lists what there is", strings.Join(f.TaskIDs, " or "))
	case n == 0:
		a.sayf("no tasks: import some with 'hindsight import', or widen the filter\n")
	case n == f.Limit:
		a.sayf("the newest %d; --limit shows more\n", n)
	}
	return nil
}

// tasksJSON writes the list as it comes, so that a million tasks need no memory.
func (a *app) tasksJSON(ctx context.Context, st *store.ClickHouse, f memory.TaskFilter) error {
	separator := "[\n"
	for task, err := range st.Tasks(ctx, f) {
		if err != nil {
			return fmt.Errorf("list tasks: %w", err)
		}
		var line bytes.Buffer
		enc := json.NewEncoder(&line)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(task); err != nil {
			return fmt.Errorf("encode task %s: %w", task.TaskID, err)
		}
		if _, err := fmt.Fprint(a.stdout, separator, strings.TrimSuffix(line.String(), "\n")); err != nil {
			return fmt.Errorf("write JSON: %w", err)
		}
		separator = ",\n"
	}
	if separator == "[\n" {
		a.printf("[]\n")
		return nil
	}
	a.printf("\n]\n")
	return nil
}

// statusText is the status with how far it can be believed, unless that is confirmed.
func statusText(t memory.Task) string {
	switch {
	case !t.Closed:
		return "open"
	case t.Certainty == memory.CertaintyConfirmed:
		return string(t.Status)
	default:
		return fmt.Sprintf("%s (%s)", t.Status, t.Certainty)
	}
}

// oneLine fits a text into one cell of at most limit characters.
func oneLine(s string, limit int) string {
	s = strings.Join(strings.Fields(s), " ")
	if r := []rune(s); len(r) > limit {
		return string(r[:limit-1]) + "…"
	}
	return s
}

func (a *app) showCommand() *cobra.Command {
	var namespace string
	cmd := &cobra.Command{
		Use:     "show ID",
		Short:   "Show one task, event, snapshot, memory or rule by its id, or by the id's first 8 or more characters",
		Example: "  hindsight show 4f1c22ab90de\n  hindsight show --json 4f1c22ab90de",
		Args:    cobra.ExactArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return a.show(cmd.Context(), namespace, args[0]) },
	}
	cmd.Flags().StringVar(&namespace, "namespace", "", "look only in this namespace")
	return cmd
}

// shown is the shape of `show --json`.
type shown struct {
	memory.Match
	Task     *memory.Task     `json:"task,omitempty"`
	Event    *events.Event    `json:"event,omitempty"`
	Snapshot *memory.Snapshot `json:"snapshot,omitempty"`
	Memory   *memory.Memory   `json:"memory,omitempty"`
	Rule     *memory.Rule     `json:"rule,omitempty"`
	// Use, Relations and Evidence are of an item: how it was used, what it hangs together with, and the events behind it.
	Use       *memory.ItemUse   `json:"use,omitempty"`
	Relations []memory.Relation `json:"relations,omitempty"`
	Evidence  []events.Event    `json:"evidence,omitempty"`
	// RecordedAt is when the event was stored.
	RecordedAt *time.Time `json:"recorded_at,omitempty"`
}

func (a *app) show(ctx context.Context, namespace, id string) (err error) {
	var namespaces []string
	if namespace != "" {
		if namespace, err = a.namespace(namespace); err != nil {
			return err
		}
		namespaces = []string{namespace}
	}
	st, err := a.openStore(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	matches, err := st.Lookup(ctx, id, namespaces...)
	if errors.Is(err, memory.ErrNotFound) {
		return fmt.Errorf("nothing has the id %q: 'hindsight tasks' lists what there is; the start of an id needs at least 8 characters: %w", id, err)
	}
	if err != nil {
		return fmt.Errorf("look for %q: %w", id, err)
	}
	if len(matches) > 1 {
		return a.ambiguous(id, matches)
	}
	s := shown{Match: matches[0]}
	if err := s.read(ctx, st); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(s)
	}
	switch {
	case s.Task != nil:
		a.printTask(*s.Task)
		return nil
	case s.Event == nil:
		a.printItem(s)
		return nil
	}
	a.printf("event of task %s, recorded at %s\n", s.TaskID, s.RecordedAt.Format(time.RFC3339))
	return a.printJSON(s.Event)
}

// read fills in what the match names.
func (s *shown) read(ctx context.Context, st *store.ClickHouse) error {
	filter := memory.ItemFilter{Namespace: s.Namespace, IDs: []string{s.ID}}
	var evidence []string
	switch s.Kind {
	case memory.MatchTask:
		task, err := st.Task(ctx, memory.TaskKey{Namespace: s.Namespace, TaskID: s.TaskID})
		if err != nil {
			return fmt.Errorf("read task: %w", err)
		}
		s.Task = &task
		return nil
	case memory.MatchSnapshot:
		found, err := st.Snapshots(ctx, filter)
		if err != nil {
			return fmt.Errorf("read snapshot: %w", err)
		}
		for _, one := range found {
			s.Snapshot, evidence = &one, one.Evidence
		}
	case memory.MatchMemory:
		found, err := st.Memories(ctx, filter)
		if err != nil {
			return fmt.Errorf("read memory: %w", err)
		}
		for _, one := range found {
			s.Memory, evidence = &one, one.Evidence
		}
	case memory.MatchRule:
		found, err := st.Rules(ctx, filter)
		if err != nil {
			return fmt.Errorf("read rule: %w", err)
		}
		for _, one := range found {
			s.Rule, evidence = &one, one.Evidence
		}
	case memory.MatchEvent:
		event, err := st.Event(ctx, s.Namespace, s.ID)
		if err != nil {
			return fmt.Errorf("read event: %w", err)
		}
		s.Event, s.RecordedAt = &event.Event, &event.RecordedAt
		return nil
	}
	return s.readAround(ctx, st, evidence)
}

// readAround fills in how an item was used, what it hangs together with, and its evidence as far as it is still there.
func (s *shown) readAround(ctx context.Context, st *store.ClickHouse, evidence []string) error {
	uses, err := st.Uses(ctx, s.Namespace, []string{s.ID})
	if err != nil {
		return fmt.Errorf("count recalls: %w", err)
	}
	if use, found := uses[s.ID]; found {
		s.Use = &use
	}
	if s.Relations, err = st.Relations(ctx, s.Namespace, []string{s.ID}); err != nil {
		return fmt.Errorf("read relations: %w", err)
	}
	for _, id := range evidence {
		event, err := st.Event(ctx, s.Namespace, id)
		if errors.Is(err, memory.ErrNotFound) {
			continue // Its time to live has passed, or it was erased.
		}
		if err != nil {
			return fmt.Errorf("read evidence: %w", err)
		}
		s.Evidence = append(s.Evidence, event.Event)
	}
	return nil
}

func (a *app) ambiguous(id string, matches []memory.Match) error {
	if a.json {
		if err := a.printJSON(matches); err != nil {
			return err
		}
	}
	for _, m := range matches {
		a.sayf("  %s %s in %s of %s\n", m.Kind, m.ID, m.Namespace, m.Time.Format(time.DateTime))
	}
	return fmt.Errorf("%q names %d things: give more of the id, or --namespace", id, len(matches))
}

func (a *app) printTask(t memory.Task) {
	a.printf("task       %s\nnamespace  %s\ntype       %s\ngoal       %s\nstatus     %s\nagent      %s   session %s   goal id %s\n",
		t.TaskID, t.Namespace, t.TaskType, oneLine(t.Goal, 200), statusText(t), t.AgentID, t.SessionID, t.GoalID)
	if t.Reason != "" {
		a.printf("reason     %s\n", oneLine(t.Reason, 200))
	}
	a.printf("time       %s, %s long; %d events, %d messages, %d corrections\n\n",
		t.StartedAt.Format(time.RFC3339), t.Duration(), t.Events, t.Messages, t.Corrections)
	for _, s := range t.Steps {
		mark := "ok  "
		if s.Status == events.StatusFailure {
			mark = "FAIL"
		}
		a.printf("%3d %s %s %s\n", s.Step, mark, s.Tool, oneLine(string(s.Parameters), 160))
		if s.ErrorMessage != "" {
			a.printf("         %s\n", oneLine(s.ErrorMessage, 200))
		}
	}
}
