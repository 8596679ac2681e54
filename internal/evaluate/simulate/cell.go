package simulate

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/bus"
	"github.com/hindsight-memory/hindsight/internal/evaluate/simulate/agent"
	"github.com/hindsight-memory/hindsight/internal/evaluate/simulate/script"
	"github.com/hindsight-memory/hindsight/internal/evaluate/simulate/world"
	"github.com/hindsight-memory/hindsight/internal/memory"
)

const (
	// variantShare is how often the agent makes a call by its variant.
	variantShare = 0.2
	// plantedShare is the share of wrong lessons among those of the stream's failure classes and the wrong ones together.
	plantedShare = 0.2
	// withinRecalls is by when a wrong lesson is to be out of service.
	withinRecalls = 30
	// examplesPerCell is how many calls are kept for a person to read.
	examplesPerCell = 2
	// betweenTasks is what the simulated clock advances from one task to the next.
	betweenTasks = 3 * time.Hour
)

// streamStart is when the simulated clock begins.
func streamStart() time.Time { return time.Date(2025, time.January, 6, 8, 0, 0, 0, time.UTC) }

// running is a cell under way.
type running struct {
	cell   Cell
	tasks  []world.Task
	agent  agent.Agent
	client *memoryClient // nil without the product
	// perfect is the memory of the arms that show the ceiling, else nil.
	perfect *perfectMemory
	result  Result
	told    []world.Forged
}

func newRunning(o Options, c Cell) *running {
	r := &running{
		cell: c, tasks: world.Stream(world.Options{Seed: c.Seed, Tasks: o.Tasks, Classes: o.Classes}),
		agent: agent.Agent{Seed: c.Seed, Obedience: c.Obey, DecidesOnce: c.Once, VariantShare: variantShare}, result: Result{Cell: c},
	}
	if c.Arm.perfect() {
		r.perfect = &perfectMemory{checks: c.Arm == ArmPerfect, known: map[string][]script.Edit{}}
		r.agent.Memory = r.perfect
	}
	if c.Arm.planted() {
		var classes []string
		for _, t := range r.tasks {
			if t.Kind != world.Plain && t.Kind != world.Environment && !slices.Contains(classes, t.Class) {
				classes = append(classes, t.Class)
			}
		}
		wrong := float64(len(classes)) * plantedShare / (1 - plantedShare)
		r.told = world.Forge(c.Seed, r.tasks, max(1, int(wrong+0.5)))
	}
	return r
}

// alone runs a cell for which no product is needed.
func alone(ctx context.Context, o Options, c Cell) (Result, error) {
	r := newRunning(o, c)
	for n := range r.tasks {
		if _, err := r.work(ctx, n); err != nil {
			return r.result, err
		}
	}
	return r.result, nil
}

// work lets the agent do the n-th task and notes how it went. It returns the events of the task.
func (r *running) work(ctx context.Context, n int) ([]events.Event, error) {
	task := r.tasks[n]
	session := task.Open()
	if r.client != nil {
		r.client.begin()
	}
	steps, err := r.agent.Run(ctx, task.Task, session.Call)
	if err != nil {
		return nil, fmt.Errorf("task %s: %w", task.ID, err)
	}
	outcome := session.Finish()
	if r.perfect != nil {
		r.perfect.learn(session)
	}
	result := TaskResult{Class: task.Class, Kind: task.Kind, Success: outcome.Success, Calls: session.Calls(), Failed: session.Failed()}
	for _, s := range steps {
		if s.Followed {
			result.Followed++
		}
	}
	if r.client != nil {
		result.Tokens, result.Asked, result.Notices = r.client.read, r.client.asked, r.client.notices
		for i := range r.result.Planted {
			for _, id := range r.client.ids {
				if id == r.result.Planted[i].Item {
					r.result.Planted[i].Shown++
				}
			}
		}
		r.example(task, steps)
	}
	r.result.Tasks = append(r.result.Tasks, result)
	return r.events(task.Task, n, "agent", steps, outcome), nil
}

func (r *running) example(task world.Task, steps []agent.Step) {
	at := slices.IndexFunc(steps, func(s agent.Step) bool { return s.Followed })
	if at < 0 || len(r.result.Examples) >= examplesPerCell {
		return
	}
	var told struct {
		Items []struct {
			Text string `json:"text"`
		} `json:"items"`
	}
	if json.Unmarshal([]byte(r.client.last), &told) != nil || len(told.Items) == 0 {
		return
	}
	s := steps[at]
	result := "worked"
	if !s.Result.OK {
		result = s.Result.ErrorType + ": " + s.Result.Message
	}
	r.result.Examples = append(r.result.Examples, Example{
		Goal: task.Goal, Told: told.Items[0].Text, Call: s.Call.Tool + " " + script.Canonical(s.Call.Parameters), Result: result,
	})
}

// events tells a task as an agent's own program would publish it, at the time of the simulated clock.
func (r *running) events(task script.Task, n int, agentID string, steps []agent.Step, outcome script.Outcome) []events.Event {
	at := streamStart().Add(time.Duration(n) * betweenTasks)
	var out []events.Event
	add := func(kind events.Kind, data any) {
		raw, err := events.EncodeData(data)
		if err != nil {
			raw = json.RawMessage("{}") // What is encoded here are texts and numbers.
		}
		out = append(out, events.Event{
			ID: task.ID + "/" + strconv.Itoa(len(out)), Namespace: r.cell.namespace(), AgentID: agentID, SessionID: task.ID, TaskID: task.ID, GoalID: task.GoalID,
			Seq: int64(len(out) + 1), Time: at.Add(time.Duration(len(out)) * time.Second), Kind: kind, Data: raw,
		})
	}
	add(events.KindTaskStarted, events.TaskStarted{TaskType: task.Type, Goal: task.Goal, InputSummary: task.Goal, AvailableTools: task.ToolNames()})
	add(events.KindMessage, events.Message{Role: events.RoleUser, Content: task.Goal})
	for i, s := range steps {
		step := events.StepFinished{
			Step: i + 1, Tool: s.Call.Tool, Parameters: json.RawMessage(script.Canonical(s.Call.Parameters)), Status: events.StatusSuccess,
			ErrorType: s.Result.ErrorType, ErrorMessage: s.Result.Message, ExecutionTimeMS: 40, CallID: task.ID + "/call-" + strconv.Itoa(i),
		}
		if s.Result.OK {
			step.Result = json.RawMessage(script.Canonical(s.Result.Value))
		} else {
			step.Status = events.StatusFailure
		}
		add(events.KindStepFinished, step)
	}
	finished := events.TaskFinished{Status: events.StatusSuccess, ConfirmedBy: "user"}
	if !outcome.Success {
		finished.Status, finished.Reason = events.StatusFailure, outcome.Reason
		if outcome.Reason != "" {
			add(events.KindMessage, events.Message{Role: events.RoleUser, Content: outcome.Reason})
		}
	}
	add(events.KindTaskFinished, finished)
	return out
}

// published is what a task's reflection must have seen.
type published struct {
	namespace, task string
	events          int
}

// session is the cells that share one product.
type session struct {
	o         Options
	product   *product
	publisher *events.Publisher
	cells     []*running
	// spent is where the time went: working on tasks, waiting for what is learnt, consolidating.
	spent map[string]time.Duration
}

// took adds what a part of the work has taken since it began.
func (s *session) took(part string, began time.Time) { s.spent[part] += time.Since(began) }

// together runs cells on a product of their own, in namespaces of their own, one task of each at a time.
func together(ctx context.Context, o Options, cells []Cell, progress func(task int)) (results []Result, err error) {
	p, err := startProduct(ctx, o, strings.ToLower(rand.Text()[:12]))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.close(ctx)) }()
	s := &session{o: o, product: p, spent: map[string]time.Duration{}}
	if s.publisher, err = events.NewPublisher(p.natsURL, events.PublisherOptions{MaxBlock: time.Minute, Logger: o.Logger}); err != nil { //nolint:contextcheck // It lives until Close.
		return nil, fmt.Errorf("publish events: %w", err)
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		if closed := s.publisher.Close(closing); closed != nil && err == nil {
			err = fmt.Errorf("publish events: %w", closed)
		}
	}()
	tokens := &counter{}
	defer func() {
		for _, r := range s.cells {
			if r.client != nil {
				r.client.close()
			}
		}
	}()
	for _, c := range cells {
		r := newRunning(o, c)
		s.cells = append(s.cells, r)
		secret, err := s.token(ctx, c)
		if err != nil {
			return nil, err
		}
		err = p.until(ctx, "the memory's door", func(ctx context.Context) (bool, error) {
			client, err := connect(context.WithoutCancel(ctx), p.mcpURL, secret, c.Arm, tokens)
			r.client = client
			return err == nil, nil
		})
		if err != nil {
			return nil, err
		}
		r.agent.Memory = r.client
	}
	if err := s.consolidate(ctx, true); err != nil {
		return nil, err
	}
	if err := s.plant(ctx); err != nil {
		return nil, err
	}
	for n := range o.Tasks {
		if err := s.round(ctx, n); err != nil {
			return nil, err
		}
		if last := n+1 == o.Tasks; (n+1)%o.ConsolidateEvery == 0 || last {
			if err := s.consolidate(ctx, false); err != nil {
				return nil, err
			}
			if err := s.look(ctx); err != nil {
				return nil, err
			}
		}
		progress(n + 1)
	}
	for _, r := range s.cells {
		results = append(results, r.result)
	}
	o.Logger.Info("a group of cells is done", "cells", len(cells), "working_seconds", s.spent["work"].Seconds(), "learning_seconds", s.spent["learn"].Seconds(),
		"consolidating_seconds", s.spent["consolidate"].Seconds())
	return results, nil
}

// token makes an access token for the namespace of a cell.
func (s *session) token(ctx context.Context, c Cell) (string, error) {
	secret := rand.Text()
	hash := memory.TokenHash(secret)
	err := s.product.parts.Store.InsertToken(ctx, memory.AccessToken{
		TokenID: hash[:12], Hash: hash, Namespace: c.namespace(), Scope: memory.ScopeWrite, CreatedAt: time.Now().UTC(),
	})
	if err != nil {
		return "", fmt.Errorf("make an access token: %w", err)
	}
	return secret, nil
}

// round lets every cell do its n-th task, and waits until all of it was learnt.
func (s *session) round(ctx context.Context, n int) error {
	began := time.Now()
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(s.o.Parallel)
	wait := make([]published, len(s.cells))
	for i, r := range s.cells {
		g.Go(func() error {
			evs, err := r.work(gctx, n)
			if err != nil {
				return err
			}
			wait[i] = published{r.cell.namespace(), r.tasks[n].ID, len(evs) + r.client.joined}
			return s.publish(gctx, evs)
		})
	}
	if err := g.Wait(); err != nil {
		return fmt.Errorf("work on task %d: %w", n+1, err)
	}
	s.took("work", began)
	defer s.took("learn", time.Now())
	return s.learnt(ctx, wait)
}

func (s *session) publish(ctx context.Context, evs []events.Event) error {
	for _, e := range evs {
		if err := s.publisher.Publish(ctx, e); err != nil {
			return fmt.Errorf("publish an event: %w", err)
		}
	}
	return nil
}

// learnt waits until the product has reflected the tasks with all their events; what it learns is searchable by then.
func (s *session) learnt(ctx context.Context, wait []published) error {
	flushing, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := s.publisher.Flush(flushing); err != nil {
		return fmt.Errorf("deliver events: %w", err)
	}
	if len(wait) == 0 {
		return nil
	}
	var tasks []string
	for _, p := range wait {
		if quoted := "'" + p.task + "'"; !slices.Contains(tasks, quoted) {
			tasks = append(tasks, quoted)
		}
	}
	list := strings.Join(tasks, ",")
	// A task's revision is twice its events, and one more once it is closed.
	query := `SELECT e.namespace, e.task_id, e.n, r.revision FROM
		(SELECT namespace, task_id, uniqExact(event_id) AS n FROM trace_events WHERE task_id IN (` + list + `) GROUP BY namespace, task_id) AS e
		LEFT JOIN (SELECT namespace, task_id, max(revision) AS revision FROM reflections WHERE closed AND task_id IN (` + list + `) GROUP BY namespace, task_id) AS r
		ON e.namespace = r.namespace AND e.task_id = r.task_id`
	seen := 0
	return s.product.until(ctx, "reflection", func(ctx context.Context) (bool, error) {
		idle, err := s.idle(ctx)
		if err == nil && idle {
			idle, err = s.reflected(ctx, query, wait)
		}
		if err != nil || !idle {
			seen = 0
			return false, err
		}
		seen++ // A task may be reflected again because of another: that is asked for in the next look of the sweeper.
		return seen == looksInARow, nil
	})
}

// looksInARow is how often in a row there must be nothing to do.
const looksInARow = 2

// idle says that nothing waits to be stored, reflected or indexed.
func (s *session) idle(ctx context.Context) (bool, error) {
	streams, err := s.product.parts.Bus.Stats(ctx)
	if err != nil {
		return false, fmt.Errorf("ask what waits: %w", err)
	}
	for _, stream := range streams {
		if stream.Messages > 0 && slices.Contains([]string{bus.StreamTraces, bus.StreamReflect, bus.StreamWrites}, stream.Stream) {
			return false, nil
		}
	}
	return true, nil
}

// reflected says that the tasks were reflected with all their events.
func (s *session) reflected(ctx context.Context, query string, wait []published) (bool, error) {
	var out bytes.Buffer
	if err := s.product.parts.Store.Query(ctx, query, "TSV", &out); err != nil {
		return false, fmt.Errorf("ask what was reflected: %w", err)
	}
	done := map[string]bool{}
	for line := range strings.Lines(out.String()) {
		fields := strings.Split(strings.TrimSpace(line), "\t")
		if len(fields) != 4 {
			continue
		}
		n, err := strconv.Atoi(fields[2])
		if err != nil {
			return false, fmt.Errorf("read what was reflected: %w", err)
		}
		at := slices.IndexFunc(wait, func(p published) bool { return p.namespace == fields[0] && p.task == fields[1] })
		done[fields[0]+"/"+fields[1]] = at >= 0 && n >= wait[at].events && fields[3] == strconv.Itoa(2*n+1)
	}
	return !slices.ContainsFunc(wait, func(p published) bool { return !done[p.namespace+"/"+p.task] }), nil
}

// jobs are those of the consolidation, in the order of a day.
func jobs() []string { return []string{"merge", "induce", "sweep"} }

// consolidate runs the jobs. At first it waits until there is somebody to run them.
func (s *session) consolidate(ctx context.Context, first bool) error {
	defer s.took("consolidate", time.Now())
	for _, job := range jobs() {
		if first {
			err := s.product.until(ctx, "the consolidator", func(ctx context.Context) (bool, error) {
				_, err := s.product.parts.Consolidation(ctx, job)
				return err == nil, nil
			})
			if err != nil {
				return err
			}
			continue
		}
		if _, err := s.product.parts.Consolidation(ctx, job); err != nil {
			return fmt.Errorf("run the job %s: %w", job, err)
		}
	}
	return nil
}

// plant publishes the forged traces, and finds the lessons that were drawn from them.
func (s *session) plant(ctx context.Context) error {
	var wait []published
	for _, r := range s.cells {
		for n, f := range r.told {
			steps := []agent.Step{{Call: f.Refused, Result: f.Error}, {Call: f.Worked, Result: script.Result{OK: true, Value: map[string]any{"status": "ok"}}}}
			evs := r.events(f.Task, n-len(r.told), "colleague", steps, script.Outcome{Success: true})
			if err := s.publish(ctx, evs); err != nil {
				return err
			}
			wait = append(wait, published{r.cell.namespace(), f.Task.ID, len(evs)})
		}
	}
	if err := s.learnt(ctx, wait); err != nil {
		return err
	}
	for _, r := range s.cells {
		if len(r.told) == 0 {
			continue
		}
		items, err := s.lessons(ctx, r)
		if err != nil {
			return err
		}
		for _, item := range items {
			r.result.Planted = append(r.result.Planted, Planted{Item: item.SnapshotID})
		}
	}
	return nil
}

// lessons reads what was drawn from the forged traces.
func (s *session) lessons(ctx context.Context, r *running) ([]memory.Snapshot, error) {
	tasks := make([]string, len(r.told))
	for i, f := range r.told {
		tasks[i] = f.Task.ID
	}
	items, err := s.product.parts.Store.Snapshots(ctx, memory.ItemFilter{Namespace: r.cell.namespace(), TaskIDs: tasks})
	if err != nil {
		return nil, fmt.Errorf("read the planted lessons: %w", err)
	}
	slices.SortFunc(items, func(a, b memory.Snapshot) int { return cmp.Compare(a.SnapshotID, b.SnapshotID) })
	return items, nil
}

// look notes which planted lessons are out of service by now.
func (s *session) look(ctx context.Context) error {
	for _, r := range s.cells {
		if len(r.told) == 0 {
			continue
		}
		items, err := s.lessons(ctx, r)
		if err != nil {
			return err
		}
		for i := range r.result.Planted {
			p := &r.result.Planted[i]
			at := slices.IndexFunc(items, func(s memory.Snapshot) bool { return s.SnapshotID == p.Item })
			if !p.Out && (at < 0 || items[at].Status != memory.ItemActive) {
				p.Out, p.OutAfter = true, p.Shown
			}
		}
	}
	return nil
}
