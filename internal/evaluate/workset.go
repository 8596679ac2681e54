package evaluate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/memory"
	"github.com/hindsight-memory/hindsight/internal/store"
)

// goalShare is how many tasks of the set have one goal.
const goalShare = 5

// taskSituations is how many of the set's situations tasks are about: few enough for something to recur.
const taskSituations = 48

// task is what happened in the n-th task of the set: a call fails as its situation says, and in three of four it is then
// repaired by the parameter that was missing.
func (s *recallSet) task(n int) []events.Event {
	random := s.random(8, n)
	f, tool, m, parameter := s.parts(s.situation(n) % taskSituations)
	goal := fmt.Sprintf("%s for a %s: %s", strings.ReplaceAll(tool, "_", " "), f.noun, s.detail(random, 8))
	lookUp := events.StepFinished{
		Step: 1, Tool: f.tools[3], Parameters: fmt.Appendf(nil, `{"%s":%q}`, f.noun, s.number(n)), Status: events.StatusSuccess,
		Result: fmt.Appendf(nil, `{"id":%q,"note":%q}`, s.number(n), s.detail(random, 30)),
	}
	failed := events.StepFinished{
		Step: 2, Tool: tool, Parameters: fmt.Appendf(nil, `{"%s_id":%q,"note":%q}`, f.noun, s.number(n), s.detail(random, 3)), Status: events.StatusFailure,
		ErrorType: m.errorType, ErrorMessage: fmt.Sprintf(m.message, parameter, f.noun, s.number(n)),
	}
	told := []any{lookUp, failed}
	end := events.TaskFinished{Status: events.StatusFailure, ConfirmedBy: events.ConfirmedBySystem}
	if n%4 != 3 {
		repaired := events.StepFinished{
			Step: 3, Tool: tool, Parameters: fmt.Appendf(nil, `{"%s_id":%q,"%s":%d}`, f.noun, s.number(n), parameter, 1+random.IntN(9)), Status: events.StatusSuccess,
			Result: []byte(`"done"`),
		}
		told, end.Status = append(told, repaired), events.StatusSuccess
	}
	at := s.base.Add(time.Duration(n) * time.Minute)
	evs := make([]events.Event, 0, len(told)+2)
	add := func(kind events.Kind, what any) {
		seq := len(evs) + 1
		evs = append(evs, events.Event{
			ID: fmt.Sprintf("work-%d-%d", n, seq), Namespace: recallNamespace, AgentID: fmt.Sprintf("agent-%d", n%8), SessionID: fmt.Sprintf("session-%d", n),
			TaskID: fmt.Sprintf("work-%d", n), GoalID: fmt.Sprintf("goal-%d", n/goalShare), Seq: int64(seq), Time: at.Add(time.Duration(seq) * time.Second), Kind: kind, Data: data(what),
		})
	}
	add(events.KindTaskStarted, events.TaskStarted{TaskType: f.taskType, Goal: goal, AvailableTools: f.tools[:]})
	for _, step := range told {
		add(events.KindStepFinished, step)
	}
	add(events.KindTaskFinished, end)
	return evs
}

// loadTasks writes closed tasks and their events by the product's own ways.
func loadTasks(ctx context.Context, st *store.ClickHouse, set *recallSet, size int) ([]memory.Task, error) {
	all := make([]memory.Task, 0, size)
	for from := 0; from < size; from += loadBatch {
		var evs []events.Event
		for n := from; n < min(from+loadBatch, size); n++ {
			own := set.task(n)
			evs, all = append(evs, own...), append(all, memory.BuildTask(own, true))
		}
		if err := st.InsertEvents(ctx, evs); err != nil {
			return nil, fmt.Errorf("write events: %w", err)
		}
		if err := st.InsertTasks(ctx, all[from:]); err != nil {
			return nil, fmt.Errorf("write tasks: %w", err)
		}
	}
	return all, nil
}

// onEngines runs what needs the bare engines only, once for each size.
func onEngines(ctx context.Context, executable string, sizes []int, measure func(p *program, size int) error) (err error) {
	p, err := start(ctx, executable, "--engines-only")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	if err := p.ready(ctx, p.clickhouse+"/ping"); err != nil {
		return err
	}
	for _, size := range sizes {
		if size < 1 {
			return fmt.Errorf("a size of %d: it must be at least 1", size)
		}
		if err := measure(p, size); err != nil {
			return fmt.Errorf("measure at a size of %d: %w", size, err)
		}
	}
	return nil
}

// emptyRecord opens a database of its own with the product's tables. It must be closed.
func (p *program) emptyRecord(ctx context.Context, database string) (*store.ClickHouse, error) {
	st, err := store.Open(store.Options{URL: p.clickhouse, Database: database})
	if err != nil {
		return nil, fmt.Errorf("open the record: %w", err)
	}
	if err := st.Migrate(ctx, store.MigrateOptions{}); err != nil {
		return nil, errors.Join(fmt.Errorf("create the schema: %w", err), st.Close())
	}
	return st, nil
}
