package evaluate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/mcpserver"
	"github.com/hindsight-memory/hindsight/internal/memory"
	"github.com/hindsight-memory/hindsight/internal/recall"
	"github.com/hindsight-memory/hindsight/internal/store"
)

// MCP measures what the protocol adds: retrieve_similar and check_action by streamable HTTP on the loopback interface, beside
// the same questions to the same recall in the same process. Each question is asked both ways, one after the other, the two
// in turn first.
func MCP(ctx context.Context, o CurveOptions) (Report, error) {
	if len(o.Sizes) == 0 {
		o.Sizes = []int{1_000}
	}
	o = o.withDefaults()
	report := newReport("mcp", o.Seed)
	report.Figures["questions"] = float64(o.Questions)
	err := onEngines(ctx, o.Executable, o.Sizes, func(p *program, size int) error { return mcpAt(ctx, p, o, size, &report) })
	return report, err
}

func mcpAt(ctx context.Context, p *program, o CurveOptions, size int, report *Report) (err error) {
	st, err := p.emptyRecord(ctx, "bench_mcp_"+strconv.Itoa(size))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	index := store.NewVectors(st)
	if err := index.Prepare(ctx, recallModel, recallDimension); err != nil {
		return fmt.Errorf("prepare the index: %w", err)
	}
	set := newRecallSet(o.Seed)
	o.Logger.Info("loading", "snapshots", size)
	if err := load(ctx, st, index, set, size); err != nil {
		return err
	}
	if err := settle(ctx, st); err != nil {
		return err
	}
	vector := &givenVector{}
	service, err := recall.New(recall.Options{Items: st, Index: index, Embedder: vector, Recorder: unrecorded{}, Logger: o.Logger, Deadline: time.Minute})
	if err != nil {
		return fmt.Errorf("set up recall: %w", err)
	}
	session, end, err := serveMCP(ctx, service, st)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	if err := listSize(ctx, session, report); err != nil {
		return err
	}
	o.Logger.Info("asking", "snapshots", size, "questions", o.Questions)
	var inProcess, byHTTP, checkInProcess, checkByHTTP []time.Duration
	for i := range o.Questions {
		q := set.question(i, size)
		vector.now.Store(&q.vector)
		asked := recall.Question{Namespace: recallNamespace, Text: q.text, TaskType: q.taskType}
		similar := map[string]any{"current_context": map[string]any{"task_type": q.taskType, "input_summary": q.text}}
		first := i%2 == 0
		if err := bothWays(first, &inProcess, &byHTTP, func() error {
			_, err := service.Recall(ctx, asked)
			return err
		}, func() error { return call(ctx, session, "retrieve_similar", similar) }); err != nil {
			return fmt.Errorf("recall: %w", err)
		}
		action := recall.Action{Namespace: recallNamespace, Tool: q.tool, Parameters: q.parameters}
		check := map[string]any{"tool": q.tool, "parameters": json.RawMessage(q.parameters)}
		if err := bothWays(first, &checkInProcess, &checkByHTTP, func() error {
			_, err := service.Check(ctx, action)
			return err
		}, func() error { return call(ctx, session, "check_action", check) }); err != nil {
			return fmt.Errorf("check: %w", err)
		}
	}
	for name, times := range map[string][]time.Duration{
		"retrieve_similar": byHTTP, "recall_in_process": inProcess, "check_action": checkByHTTP, "check_in_process": checkInProcess,
	} {
		for _, p := range []int{50, 95} {
			report.Figures[fmt.Sprintf("%s_%d_p%d_ms", name, size, p)] = percentile(times, p)
		}
	}
	report.Figures[fmt.Sprintf("ratio_retrieve_similar_%d_to_in_process", size)] = percentile(byHTTP, 50) / percentile(inProcess, 50)
	report.Figures[fmt.Sprintf("ratio_check_action_%d_to_in_process", size)] = percentile(checkByHTTP, 50) / percentile(checkInProcess, 50)
	return nil
}

// bothWays does the same two ways and notes how long each took.
func bothWays(first bool, one, other *[]time.Duration, oneWay, otherWay func() error) error {
	timed := func(times *[]time.Duration, do func() error) error {
		began := time.Now()
		err := do()
		*times = append(*times, time.Since(began))
		return err
	}
	if first {
		return errors.Join(timed(one, oneWay), timed(other, otherWay))
	}
	return errors.Join(timed(other, otherWay), timed(one, oneWay))
}

func call(ctx context.Context, session *mcp.ClientSession, tool string, arguments map[string]any) error {
	result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: arguments})
	if err != nil {
		return fmt.Errorf("call %s: %w", tool, err)
	}
	if result.IsError {
		raw, _ := json.Marshal(result.Content)
		return fmt.Errorf("call %s: %s", tool, events.CutText(string(raw), 500))
	}
	return nil
}

// listSize notes what an agent reads of the tools before it asks anything.
func listSize(ctx context.Context, session *mcp.ClientSession, report *Report) error {
	list, err := session.ListTools(ctx, nil)
	if err != nil {
		return fmt.Errorf("list the tools: %w", err)
	}
	raw, err := json.Marshal(list)
	if err != nil {
		return fmt.Errorf("encode the list of tools: %w", err)
	}
	n, err := (&tokenCounter{}).count(string(raw))
	if err != nil {
		return err
	}
	report.Figures["tools_list_tokens"], report.Figures["tools_list_bytes"], report.Figures["tools"] = float64(n), float64(len(raw)), float64(len(list.Tools))
	return nil
}

// serveMCP serves the protocol on a free port and connects to it. Both are ended by end.
func serveMCP(ctx context.Context, service *recall.Service, items memory.ItemReader) (session *mcp.ClientSession, end func() error, err error) {
	quiet := slog.New(slog.DiscardHandler)
	server, err := mcpserver.New(mcpserver.Options{Recaller: service, Writer: readOnly{}, Items: items, Working: readOnly{}, Logger: quiet, CallTimeout: time.Minute})
	if err != nil {
		return nil, nil, fmt.Errorf("set up the MCP server: %w", err)
	}
	handler, err := mcpserver.NewHTTPHandler(mcpserver.HTTPOptions{
		Server: server, Logger: quiet, Anonymous: &mcpserver.Identity{Namespace: recallNamespace, Scope: mcpserver.ScopeRead}, ReadsPerSecond: 1e6, ReadBurst: 1e6,
	})
	if err != nil {
		return nil, nil, fmt.Errorf("set up the MCP server: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, fmt.Errorf("find a free port: %w", err)
	}
	web := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- web.Serve(listener) }()
	stop := func() error {
		err := web.Close()
		if failed := <-served; !errors.Is(failed, http.ErrServerClosed) {
			err = errors.Join(err, failed)
		}
		return err
	}
	session, err = mcp.NewClient(&mcp.Implementation{Name: "hindsight-bench", Version: "1"}, nil).Connect(ctx,
		&mcp.StreamableClientTransport{Endpoint: "http://" + listener.Addr().String() + mcpserver.Path, DisableStandaloneSSE: true}, nil)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("connect by MCP: %w", err), stop())
	}
	return session, func() error { return errors.Join(session.Close(), stop()) }, nil
}

// givenVector gives every question the vector that is set at the time: over HTTP no context carries it.
type givenVector struct {
	givenVectors
	now atomic.Pointer[[]float32]
}

func (v *givenVector) Embed(context.Context, string) ([]float32, error) { return *v.now.Load(), nil }

// readOnly is what stands for the parts of a server that nobody asks for.
type readOnly struct{}

func (readOnly) Write(context.Context, events.Event) (mcpserver.Written, error) {
	return mcpserver.Written{}, memory.ErrUnavailable
}

func (readOnly) Working(context.Context, string, string) ([]byte, error) {
	return nil, memory.ErrNotFound
}
