package evaluate

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sync/errgroup"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/memory"
	"github.com/hindsight-memory/hindsight/internal/store"
)

// ReplayOptions choose what is replayed, and how. Executable, Files and Logger are required.
type ReplayOptions struct {
	// Executable is the program itself.
	Executable string
	// Files are recorded runs, in any format that can be imported.
	Files []string
	// LearnEvery is the largest number of runs that are asked about before they are learnt; 0 means 10.
	LearnEvery int
	// Limit is how many runs are replayed, the earliest; 0 means all.
	Limit int
	// Work is a folder that keeps the answers and the measured program's data, so that a replay that was interrupted goes on
	// where it was; empty means a temporary one.
	Work string
	// Embedder is the setting HINDSIGHT_EMBEDDER of the measured program; empty means local. Vectors is its setting
	// HINDSIGHT_EMBEDDING_CACHE: the folder in which vectors are kept for the next run.
	Embedder, Vectors string
	// Logger is told how far it is.
	Logger *slog.Logger
}

const (
	replayNamespace  = "replay"
	replayLearnEvery = 10
	// askedAtOnce is how many questions about runs of one batch are asked at a time: nothing is learnt meanwhile.
	askedAtOnce = 2
	// askTries is how often a question is asked that could not be answered, or not in full, as on a machine that is too busy;
	// askPause is the first pause between two tries, and each is twice as long, up to askPauseMax.
	askTries    = 20
	askPause    = 250 * time.Millisecond
	askPauseMax = 15 * time.Second
	// recordedWait bounds how long the notes of what was served may take to be stored.
	recordedWait = time.Minute
	// answersFile is the file of a work folder that holds what was answered so far.
	answersFile = "answers.jsonl"
)

// Replay asks the whole product, run after run in the order of time, what an agent would have asked it: retrieve_similar
// with the goal before each recorded run and check_action before each call, by MCP; and lets it learn each run afterwards,
// by import. It then compares what was served with what followed.
//
// The figures are coverage and not effect: the recorded agents never saw an answer.
func Replay(ctx context.Context, o ReplayOptions) (report Report, err error) {
	o.LearnEvery = cmp.Or(o.LearnEvery, replayLearnEvery)
	o.Embedder = cmp.Or(o.Embedder, "local")
	if o.LearnEvery < 1 || o.Limit < 0 {
		return report, fmt.Errorf("replay with %d runs at once and a limit of %d: neither may be negative", o.LearnEvery, o.Limit)
	}
	runs, err := readRuns(ctx, o.Files, o.Logger)
	if err != nil {
		return report, err
	}
	if o.Limit > 0 && len(runs) > o.Limit {
		runs = runs[:o.Limit]
	}
	if o.Work == "" {
		if o.Work, err = os.MkdirTemp("", "hindsight-replay-"); err != nil {
			return report, fmt.Errorf("make a folder for the replay: %w", err)
		}
		defer func() { err = errors.Join(err, os.RemoveAll(o.Work)) }()
	}
	stream := batches(runs, o.LearnEvery)
	log, err := openReplayLog(o.Work, replayHead{Input: digest(runs), Runs: len(runs), LearnEvery: o.LearnEvery, Embedder: o.Embedder})
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, log.close()) }()
	if log.learnt < len(stream) {
		if err := replayAll(ctx, o, stream, log); err != nil {
			return report, err
		}
	}
	report, err = scoreReplay(stream, log.answers)
	if err != nil {
		return report, err
	}
	report.Figures["learn_every"] = float64(o.LearnEvery)
	return report, nil
}

// replayer is a replay under way.
type replayer struct {
	program *program
	session *mcp.ClientSession
	store   *store.ClickHouse
	log     *replayLog
	tokens  *tokenCounter
	logger  *slog.Logger
	// model means that there is an embedding model.
	model bool
}

// replayAll goes through the batches that the log does not have.
func replayAll(ctx context.Context, o ReplayOptions, stream [][]*recordedRun, log *replayLog) (err error) {
	p, err := startReplay(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.end()) }()
	if err := p.ready(ctx, p.healthURL+"/readyz"); err != nil {
		return err
	}
	st, err := store.Open(store.Options{URL: p.clickhouse, Database: benchDatabase})
	if err != nil {
		return fmt.Errorf("open the record: %w", err)
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "hindsight-replay", Version: "1"}, nil).Connect(ctx,
		&mcp.StreamableClientTransport{Endpoint: p.mcpURL, DisableStandaloneSSE: true}, nil)
	if err != nil {
		return fmt.Errorf("connect to the measured program by MCP: %w", err)
	}
	defer session.Close() //nolint:errcheck // The server ends next.
	r := &replayer{program: p.program, session: session, store: st, log: log, tokens: &tokenCounter{}, logger: o.Logger, model: o.Embedder != "none"}
	done, total := 0, 0
	for _, batch := range stream {
		total += len(batch)
	}
	for n, batch := range stream {
		done += len(batch)
		if n < log.learnt {
			continue
		}
		began := time.Now()
		if err := r.ask(ctx, n, batch); err != nil {
			return fmt.Errorf("%w; the measured program said:\n%s", err, p.output.String())
		}
		asked := time.Since(began)
		if err := r.learn(ctx, batch); err != nil {
			return err
		}
		if err := log.learn(n); err != nil {
			return err
		}
		o.Logger.Info("replaying", "runs_done", done, "runs", total, "asked_seconds", asked.Seconds(), "learnt_seconds", (time.Since(began) - asked).Seconds())
	}
	return nil
}

// startReplay starts the measured program on the data of the work folder. Nothing is consolidated but when the replay says
// so; an answer that takes long on a busy machine is still given in full; tasks close at once.
func startReplay(ctx context.Context, o ReplayOptions) (*replayProgram, error) {
	ports, err := freePorts(ctx, 4)
	if err != nil {
		return nil, err
	}
	p := &replayProgram{program: &program{
		executable: o.Executable, args: []string{"up"}, dir: o.Work,
		natsURL:    "nats://127.0.0.1:" + ports[0],
		clickhouse: "http://127.0.0.1:" + ports[1],
		healthURL:  "http://127.0.0.1:" + ports[2],
		environment: append(os.Environ(),
			"HINDSIGHT_DATA_DIR="+filepath.Join(o.Work, "data"), "HINDSIGHT_CONFIG=", "HINDSIGHT_NATS_URL=", "HINDSIGHT_CLICKHOUSE_URL=", "HINDSIGHT_MILVUS_ADDR=",
			"HINDSIGHT_NATS_PORT="+ports[0], "HINDSIGHT_CLICKHOUSE_PORT="+ports[1], "HINDSIGHT_CONSOLE_PORT="+ports[2], "HINDSIGHT_MCP_PORT="+ports[3],
			"HINDSIGHT_BIND=127.0.0.1", "HINDSIGHT_CLICKHOUSE_DATABASE="+benchDatabase, "HINDSIGHT_NAMESPACE="+replayNamespace,
			"HINDSIGHT_EMBEDDER="+o.Embedder, "HINDSIGHT_EMBEDDING_CACHE="+o.Vectors, "HINDSIGHT_EMBEDDING_BASE_URL=", "HINDSIGHT_LLM_BASE_URL=",
			"HINDSIGHT_RECALL=on", "HINDSIGHT_CONTROL_SHARE=0", "HINDSIGHT_RECALL_DEADLINE=1m", "HINDSIGHT_MCP_TOOLSET=core",
			"HINDSIGHT_MERGE_SCHEDULE=0 0 29 2 *", "HINDSIGHT_INDUCE_SCHEDULE=0 0 29 2 *",
			"HINDSIGHT_TASK_QUIET=200ms", "HINDSIGHT_SWEEP_INTERVAL=100ms", "HINDSIGHT_REFLECT_CONCURRENCY=1"),
	}, mcpURL: "http://127.0.0.1:" + ports[3] + "/mcp"}
	return p, p.launch(ctx)
}

// replayProgram is the measured program with the address of its MCP server.
type replayProgram struct {
	*program
	mcpURL string
}

// learn imports a batch as `hindsight import --wait` does, and consolidates.
func (r *replayer) learn(ctx context.Context, batch []*recordedRun) error {
	var lines bytes.Buffer
	for _, run := range batch {
		for _, raw := range run.encoded {
			lines.Write(raw)
			lines.WriteByte('\n')
		}
	}
	if _, err := r.program.command(ctx, lines.Bytes(), "import", "--namespace", replayNamespace, "--format", "events", "--wait", "-"); err != nil {
		return fmt.Errorf("learn %d runs: %w", len(batch), err)
	}
	for _, job := range []string{"merge", "induce"} {
		if _, err := r.program.command(ctx, nil, "consolidate", job); err != nil {
			return fmt.Errorf("consolidate what was learnt: %w", err)
		}
	}
	return nil
}

// ask asks about each run of a batch that was not asked about yet, equal calls once, and returns once what was served is on record, so that
// the next batch finds all of it counted.
func (r *replayer) ask(ctx context.Context, batch int, runs []*recordedRun) error {
	var todo []*recordedRun
	for _, run := range runs {
		if _, done := r.log.answers[run.taskID]; !done {
			todo = append(todo, run)
		}
	}
	got := make([]runAnswers, len(todo))
	asked := map[string]*servedAnswer{} // Nothing is learnt within a batch: the same call gets the same answer.
	again := map[*servedAnswer]*servedAnswer{}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(askedAtOnce)
	for n, run := range todo {
		got[n] = runAnswers{Run: run.taskID, Batch: batch, Calls: make([]servedAnswer, len(run.calls))}
		start := &got[n].Start
		g.Go(func() (err error) {
			context := map[string]any{"task_type": run.taskType, "input_summary": run.goal}
			*start, err = r.question(gctx, run, "retrieve_similar", map[string]any{"current_context": context})
			return err
		})
		for i, call := range run.calls {
			answer, parameters := &got[n].Calls[i], cmp.Or(string(call.parameters), "{}")
			key := run.taskType + "\x00" + call.tool + "\x00" + parameters
			if same, is := asked[key]; is {
				again[answer] = same
				continue
			}
			asked[key] = answer
			g.Go(func() (err error) {
				*answer, err = r.question(gctx, run, "check_action", map[string]any{"tool": call.tool, "parameters": json.RawMessage(parameters), "task_type": run.taskType})
				return err
			})
		}
	}
	if err := g.Wait(); err != nil {
		return fmt.Errorf("ask about a batch: %w", err)
	}
	for answer, same := range again {
		answer.Tokens, answer.Notice, answer.Items = same.Tokens, same.Notice, slices.Clone(same.Items)
	}
	if err := r.resolve(ctx, got); err != nil {
		return err
	}
	if err := r.recorded(ctx, got); err != nil {
		return err
	}
	for _, a := range got {
		if err := r.log.add(a); err != nil {
			return err
		}
	}
	return nil
}

// question asks one thing. The recall is noted under a task of its own name: the run that is replayed was never shown the
// answer, and must not count as if it had been.
func (r *replayer) question(ctx context.Context, run *recordedRun, tool string, arguments map[string]any) (servedAnswer, error) {
	arguments["task_id"], arguments["session_id"] = "replay-"+run.taskID, "replay-"+run.taskID
	pause := askPause
	for try := 1; ; try++ {
		a, err := r.once(ctx, tool, arguments)
		if ctx.Err() != nil || try == askTries || err == nil && !r.lacks(a) {
			return a, err
		}
		r.logger.Warn("a question could not be answered in full and is asked again", "tool", tool, "try", try, "error", err, "notice", a.Notice)
		select {
		case <-ctx.Done():
			return servedAnswer{}, fmt.Errorf("ask %s: %w", tool, ctx.Err())
		case <-time.After(pause):
		}
		pause = min(2*pause, askPauseMax)
	}
}

// lacks reports an answer that had to do without the index or the model for a moment. Without a model each does.
func (r *replayer) lacks(a servedAnswer) bool {
	return a.Notice != "" && r.model && a.Notice != "nothing is known about this yet" && !strings.Contains(a.Notice, "more items are not shown")
}

func (r *replayer) once(ctx context.Context, tool string, arguments map[string]any) (servedAnswer, error) {
	result, err := r.session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: arguments})
	if err != nil {
		return servedAnswer{}, fmt.Errorf("ask %s: %w", tool, err)
	}
	var read strings.Builder
	for _, c := range result.Content {
		if text, is := c.(*mcp.TextContent); is {
			read.WriteString(text.Text)
		}
	}
	if result.IsError {
		return servedAnswer{}, fmt.Errorf("ask %s: %s", tool, events.CutText(read.String(), 500))
	}
	raw, err := json.Marshal(result.StructuredContent)
	if err != nil {
		return servedAnswer{}, fmt.Errorf("read the answer of %s: %w", tool, err)
	}
	out := servedAnswer{}
	if out.Tokens, err = r.tokens.count(read.String()); err != nil {
		return servedAnswer{}, err
	}
	var answer struct {
		RecallID string       `json:"recall_id"`
		Notice   string       `json:"notice"`
		Items    []servedItem `json:"items"`
	}
	if err := json.Unmarshal(raw, &answer); err != nil {
		return servedAnswer{}, fmt.Errorf("read the answer of %s: %w", tool, err)
	}
	out.recallID, out.Notice, out.Items = answer.RecallID, answer.Notice, answer.Items
	for i := range out.Items {
		out.Items[i].Text = withoutFence(out.Items[i].Text)
	}
	return out, nil
}

// withoutFence takes off the lines around the text of an item, which are new in each answer.
func withoutFence(text string) string {
	lines := strings.Split(text, "\n")
	if len(lines) > 2 && strings.HasPrefix(lines[0], "[memory-") && strings.HasPrefix(lines[len(lines)-1], "[/memory-") {
		lines = lines[1 : len(lines)-1]
	}
	return strings.Join(lines, "\n")
}

// resolve reads from the record what the served items were drawn from. An agent does not see it; it is for scoring.
func (r *replayer) resolve(ctx context.Context, answers []runAnswers) error {
	byLayer := map[memory.Layer]map[string][]*servedItem{}
	for n := range answers {
		for _, a := range answers[n].all() {
			for i := range a.Items {
				item := &a.Items[i]
				if byLayer[item.Layer] == nil {
					byLayer[item.Layer] = map[string][]*servedItem{}
				}
				byLayer[item.Layer][item.ID] = append(byLayer[item.Layer][item.ID], item)
			}
		}
	}
	filter := func(layer memory.Layer) memory.ItemFilter {
		return memory.ItemFilter{Namespace: replayNamespace, IDs: slices.Sorted(maps.Keys(byLayer[layer]))}
	}
	if len(byLayer[memory.LayerSnapshot]) > 0 {
		snapshots, err := r.store.Snapshots(ctx, filter(memory.LayerSnapshot))
		if err != nil {
			return fmt.Errorf("read what was served: %w", err)
		}
		for _, s := range snapshots {
			for _, item := range byLayer[memory.LayerSnapshot][s.SnapshotID] {
				item.Tool, item.Tags, item.TaskID, item.Evidence = s.Decision.ToolSelected, s.Tags, s.TaskID, s.Evidence
				item.Failed = s.Outcome.Status == events.StatusFailure
			}
		}
	}
	if len(byLayer[memory.LayerRule]) > 0 {
		rules, err := r.store.Rules(ctx, filter(memory.LayerRule))
		if err != nil {
			return fmt.Errorf("read what was served: %w", err)
		}
		for _, rule := range rules {
			for _, item := range byLayer[memory.LayerRule][rule.RuleID] {
				item.Tool, item.Tags, item.Evidence = rule.Tool, rule.Tags, rule.Evidence
				item.Failed, item.Signature, item.Predicate = rule.Kind == memory.RuleCall, rule.ErrorSignature, rule.Predicate
			}
		}
	}
	if len(byLayer[memory.LayerMemory]) > 0 {
		memories, err := r.store.Memories(ctx, filter(memory.LayerMemory))
		if err != nil {
			return fmt.Errorf("read what was served: %w", err)
		}
		for _, m := range memories {
			for _, item := range byLayer[memory.LayerMemory][m.MemoryID] {
				item.Tool, item.Tags, item.TaskID, item.Evidence = m.Tool, m.Tags, m.TaskID, m.Evidence
			}
		}
	}
	return nil
}

// recorded waits until the recalls of a batch are stored: how often an item was shown is part of its score.
func (r *replayer) recorded(ctx context.Context, answers []runAnswers) error {
	want := 0
	var ids []string
	for n := range answers {
		for _, a := range answers[n].all() {
			if a.recallID != "" {
				want++
				ids = append(ids, "'"+a.recallID+"'")
			}
		}
	}
	waiting, cancel := context.WithTimeout(ctx, recordedWait)
	defer cancel()
	have := 0
	for some := range slices.Chunk(ids, 1000) {
		stored := 0
		for stored < len(some) {
			var out bytes.Buffer
			query := "SELECT uniqExact(recall_id) FROM " + r.store.Database() + ".recalls WHERE namespace = '" + replayNamespace + "' AND recall_id IN (" + strings.Join(some, ",") + ")"
			if err := r.store.Query(ctx, query, "TSV", &out); err != nil {
				return fmt.Errorf("look for what was served (%d of %d answers are on record): %w", have, want, err)
			}
			if _, err := fmt.Sscan(out.String(), &stored); err != nil {
				return fmt.Errorf("count what was served: %w", err)
			}
			if stored < len(some) {
				select {
				case <-waiting.Done():
					if ctx.Err() != nil {
						return fmt.Errorf("wait until what was served is on record: %w", ctx.Err())
					}
					r.logger.Warn("what was served is not all on record: it counts as shown less often than it was", "answers", want, "recorded", have+stored)
					return nil
				case <-time.After(pollPause):
				}
			}
		}
		have += stored
	}
	return nil
}
