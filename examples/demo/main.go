// Command demo shows the whole loop in two days of a small shop: on Monday an agent without a memory makes its mistakes,
// Hindsight learns from them, and on Tuesday the same agent asks before it acts. It starts a Hindsight of its own in a
// temporary folder, needs no key and no network, and ends with the answer that an MCP client gets.
//
// It knows nothing of Hindsight but its program, the public events package and the MCP protocol.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/examples/shop"
)

const (
	namespace = "demo"
	// patience bounds each step that waits for the server.
	patience = 90 * time.Second
	// look is the pause between two looks whether something is there.
	look = 200 * time.Millisecond
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop was called.
	}
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	program := flags.String("hindsight", "bin/hindsight", "the program hindsight")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("read flags: %w", err)
	}
	d := &demo{out: out, began: time.Now()}
	d.sayf("Starting Hindsight in a folder of its own …\n")
	server, err := start(ctx, *program)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	d.sayf("ready after %.1f s\n", time.Since(d.began).Seconds())

	publisher, err := events.NewPublisher(server.nats, events.PublisherOptions{}) //nolint:contextcheck // It lives until Close.
	if err != nil {
		return fmt.Errorf("publish events: %w", err)
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		err = errors.Join(err, publisher.Close(closing))
	}()
	d.agent = &shop.Agent{Namespace: namespace, Publish: publisher.Publish, Saw: d.step}

	d.sayf("\n── Monday: the agent has no memory ─────────────────────────────────────────────\n")
	monday, err := d.work(ctx, shop.Monday())
	if err != nil {
		return err
	}
	flushing, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := publisher.Flush(flushing); err != nil {
		return fmt.Errorf("deliver events: %w", err)
	}

	d.sayf("\n── Hindsight reflects on the finished tasks ────────────────────────────────────\n")
	session, err := connect(ctx, server.mcp)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, session.Close()) }()
	if err := d.learnt(ctx, *program, server.env); err != nil {
		return err
	}

	d.sayf("\n── Tuesday: the same agent asks before each call ───────────────────────────────\n")
	d.agent.Warn = func(ctx context.Context, task shop.Task, tool string, parameters map[string]any) (string, error) {
		answer, err := call(ctx, session, "check_action", map[string]any{
			"tool": tool, "parameters": parameters, "task_type": task.Type, "task_id": task.ID, "session_id": task.ID,
		})
		return answer.lessons(), err
	}
	tuesday, err := d.work(ctx, shop.Tuesday())
	if err != nil {
		return err
	}

	d.sayf("\n── What an MCP client gets ─────────────────────────────────────────────────────\n")
	for _, question := range []string{"A customer wants a refund for a broken cup.", "客户要求安排送货日期"} {
		answer, err := call(ctx, session, "retrieve_similar", map[string]any{"current_context": question, "top_k": 1})
		if err != nil {
			return err
		}
		d.sayf("\nretrieve_similar %q\n%s\n", question, indent(answer.text()))
	}
	d.sayf("\nFailed calls: %d on Monday, %d on Tuesday. It took %.0f s.\n", monday, tuesday, time.Since(d.began).Seconds())
	if tuesday >= monday {
		return errors.New("the memory did not help: the agent failed as often as before")
	}
	return nil
}

// demo prints what happens.
type demo struct {
	out   io.Writer
	began time.Time
	agent *shop.Agent
}

// sayf prints a line; nobody can be told that it could not be printed.
func (d *demo) sayf(format string, args ...any) { _, _ = fmt.Fprintf(d.out, format, args...) }

func (d *demo) work(ctx context.Context, tasks []shop.Task) (failed int, err error) {
	for _, task := range tasks {
		d.sayf("\n%s\n", task.Goal)
		n, err := d.agent.Work(ctx, shop.New(task.Chinese), task)
		if err != nil {
			return failed, fmt.Errorf("task %s: %w", task.ID, err)
		}
		failed += n
	}
	return failed, nil
}

// step prints one call as a person would want to read it.
func (d *demo) step(s shop.Step) {
	if s.Warning != "" {
		d.sayf("  memory says: %s\n", strings.ReplaceAll(s.Warning, "\n", "\n               "))
	}
	parameters, err := json.Marshal(s.Parameters)
	if err != nil {
		parameters = []byte("{}")
	}
	if s.Err != nil {
		d.sayf("  ✗ %s %s\n      %s\n", s.Tool, parameters, s.Err)
		return
	}
	d.sayf("  ✓ %s %s\n", s.Tool, parameters)
}

// learnt waits until every task is reflected and prints the lessons.
func (d *demo) learnt(ctx context.Context, program string, env []string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	want := strconv.Itoa(len(shop.Monday()))
	for {
		done, err := hindsight(ctx, program, env, "sql", "--format", "TSV",
			"SELECT uniqExact(task_id) FROM reflections WHERE namespace = '"+namespace+"' AND closed")
		if err != nil {
			return err
		}
		if strings.TrimSpace(done) == want {
			break
		}
		if err := pause(ctx); err != nil {
			return fmt.Errorf("wait for the reflection of %s tasks: %w", want, err)
		}
	}
	raw, err := hindsight(ctx, program, env, "memories", "--namespace", namespace, "--json")
	if err != nil {
		return err
	}
	var items []struct {
		Content    string  `json:"content"`
		Confidence float64 `json:"confidence"`
	}
	if err := json.Unmarshal([]byte(raw), &items); err != nil {
		return fmt.Errorf("read the list of memories: %w", err)
	}
	for _, item := range items {
		d.sayf("  • %s  (confidence %.2f)\n", item.Content, item.Confidence)
	}
	return nil
}

// hindsight runs one command of the program and returns what it prints.
func hindsight(ctx context.Context, program string, env []string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...) //nolint:gosec // The program is the one that the person named.
	cmd.Env = env
	var failure strings.Builder
	cmd.Stderr = &failure
	raw, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("hindsight %s: %w: %s", args[0], err, failure.String())
	}
	return string(raw), nil
}

func pause(ctx context.Context) error {
	timer := time.NewTimer(look)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// running is a Hindsight that the demonstration started.
type running struct {
	cmd       *exec.Cmd
	dir       string
	env       []string
	nats, mcp string
	exited    chan error
}

// start runs 'hindsight up' on free ports in a temporary folder, and returns once it is ready.
func start(ctx context.Context, program string) (*running, error) {
	dir, err := os.MkdirTemp("", "hindsight-demo-")
	if err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	ports, err := freePorts(ctx, 4)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	r := &running{
		dir: dir, nats: "nats://127.0.0.1:" + ports[0], mcp: "http://127.0.0.1:" + ports[3] + "/mcp", exited: make(chan error, 1),
		env: append(os.Environ(), "HINDSIGHT_DATA_DIR="+dir, "HINDSIGHT_NAMESPACE="+namespace, "HINDSIGHT_NATS_PORT="+ports[0],
			"HINDSIGHT_CLICKHOUSE_PORT="+ports[1], "HINDSIGHT_CONSOLE_PORT="+ports[2], "HINDSIGHT_MCP_PORT="+ports[3],
			"HINDSIGHT_TASK_QUIET=500ms", "HINDSIGHT_LOG_LEVEL=error"),
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open a log: %w", err), os.RemoveAll(dir))
	}
	defer log.Close() //nolint:errcheck // The process has a handle of its own.
	r.cmd = exec.CommandContext(context.WithoutCancel(ctx), program, "up")
	r.cmd.Env, r.cmd.Stderr = r.env, log
	if err := r.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s ('make build' builds it): %w", program, err), os.RemoveAll(dir))
	}
	go func() { r.exited <- r.cmd.Wait() }()
	if err := r.ready(ctx, "http://127.0.0.1:"+ports[2]+"/readyz"); err != nil {
		said, _ := os.ReadFile(log.Name()) // Nothing to add where there is no log.
		return nil, errors.Join(err, errors.New(string(said)), r.stop())
	}
	return r, nil
}

func (r *running) ready(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return fmt.Errorf("ask whether Hindsight is ready: %w", err)
		}
		if response, err := http.DefaultClient.Do(request); err == nil {
			if err := response.Body.Close(); err == nil && response.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case err := <-r.exited:
			r.exited <- err
			return fmt.Errorf("'hindsight up' has ended: %w", err)
		default:
		}
		if err := pause(ctx); err != nil {
			return fmt.Errorf("wait until Hindsight is ready: %w", err)
		}
	}
}

// stop ends the server and removes its folder.
func (r *running) stop() error {
	_ = r.cmd.Process.Signal(syscall.SIGTERM) // It may have ended by itself.
	err := <-r.exited
	if err != nil {
		err = fmt.Errorf("'hindsight up' did not end well: %w", err)
	}
	return errors.Join(err, os.RemoveAll(r.dir))
}

// freePorts finds ports that nobody has at the moment.
func freePorts(ctx context.Context, n int) ([]string, error) {
	var ports []string
	for range n {
		ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer ln.Close() //nolint:errcheck // All are held until all are found, and freed together.
		_, port, err := net.SplitHostPort(ln.Addr().String())
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		ports = append(ports, port)
	}
	return ports, nil
}

func connect(ctx context.Context, url string) (*mcp.ClientSession, error) {
	client := mcp.NewClient(&mcp.Implementation{Name: "shop-agent", Version: "1"}, nil)
	session, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: url, DisableStandaloneSSE: true}, nil)
	if err != nil {
		return nil, fmt.Errorf("connect to MCP at %s: %w", url, err)
	}
	return session, nil
}

// answer is the part of a tool's result that the agent reads.
type answer struct {
	Items []struct {
		Text string `json:"text"`
	} `json:"items"`
}

func call(ctx context.Context, session *mcp.ClientSession, tool string, arguments map[string]any) (answer, error) {
	result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: arguments})
	if err != nil {
		return answer{}, fmt.Errorf("call %s: %w", tool, err)
	}
	raw, err := json.Marshal(result.StructuredContent)
	if err != nil {
		return answer{}, fmt.Errorf("read the answer of %s: %w", tool, err)
	}
	if result.IsError {
		return answer{}, fmt.Errorf("%s: %s", tool, raw)
	}
	var a answer
	if err := json.Unmarshal(raw, &a); err != nil {
		return answer{}, fmt.Errorf("read the answer of %s: %w", tool, err)
	}
	return a, nil
}

// lessons are what the items say to do, without the marks around what was recorded.
func (a answer) lessons() string {
	var lines []string
	for _, item := range a.Items {
		for line := range strings.Lines(item.Text) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "[") {
				lines = append(lines, line)
			}
		}
	}
	return strings.Join(lines, "\n")
}

func (a answer) text() string {
	texts := make([]string, len(a.Items))
	for i, item := range a.Items {
		texts[i] = item.Text
	}
	return strings.Join(texts, "\n\n")
}

func indent(text string) string { return "  " + strings.ReplaceAll(text, "\n", "\n  ") }
