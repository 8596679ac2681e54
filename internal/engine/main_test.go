package engine_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hindsight-memory/hindsight/internal/engine"
	"github.com/hindsight-memory/hindsight/internal/engine/enginetest"
)

// childDir in the environment makes the test binary a server on that
// directory: a process that can be killed.
const childDir = "HINDSIGHT_ENGINE_TEST_DIR"

// childGrace in the environment is how long a child may take to stop.
const childGrace = "HINDSIGHT_ENGINE_TEST_GRACE"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		if err := serveChild(dir); err != nil {
			fmt.Fprintln(os.Stderr, "child:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := m.Run()
	if err := enginetest.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stop shared engine:", err)
		code = 1
	}
	http.DefaultClient.CloseIdleConnections() // shares its transport with client
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, "goroutines left:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// childSmall in the environment makes a child's limits small.
const childSmall = "HINDSIGHT_ENGINE_TEST_SMALL"

// childPort in the environment is the port of a child's ClickHouse.
const childPort = "HINDSIGHT_ENGINE_TEST_PORT"

// childReady is the first line that a child prints.
type childReady struct {
	ClickHouse, NATS string
	Recovered        bool // a nil dereference became a panic as it should
}

func serveChild(dir string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer stop()
	lock, err := engine.LockDataDir(dir)
	if err != nil {
		return err
	}
	library, err := engine.FindChDB(os.Getenv)
	if err != nil {
		return err
	}
	options := engine.ClickHouseOptions{DataDir: dir, Library: library}
	if os.Getenv(childSmall) != "" {
		options.Queries, options.Queue = 1, 1
		options.MaxBody, options.MaxQueryText = 1<<20, 1<<20
		options.MaxQueryMemory, options.MaxResult = 200<<20, 1<<20
	}
	if text := os.Getenv(childPort); text != "" {
		if options.Port, err = strconv.Atoi(text); err != nil {
			return err
		}
	}
	ch, err := engine.StartClickHouse(ctx, options)
	if err != nil {
		return err
	}
	n, err := engine.StartNATS(ctx, engine.NATSOptions{DataDir: dir})
	if err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(childReady{ch.URL(), n.URL(), recovers()}); err != nil {
		return err
	}
	<-ctx.Done()
	grace := 20 * time.Second
	if text := os.Getenv(childGrace); text != "" {
		if grace, err = time.ParseDuration(text); err != nil {
			return err
		}
	}
	stopping, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	if err := n.Stop(stopping); err != nil {
		return err
	}
	if err := ch.Stop(stopping); err != nil {
		return err
	}
	if err := lock.Unlock(); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(os.Stdout, "stopped"); err != nil {
		return err
	}
	return goleak.Find(goleak.IgnoreTopFunction("os/signal.loop"), goleak.IgnoreTopFunction("os/signal.NotifyContext.func1"))
}

// recovers dereferences nil, which needs Go's own handler of SIGSEGV.
func recovers() (ok bool) {
	defer func() { ok = recover() != nil }()
	var p *childReady
	_ = p.NATS
	return false
}

// child is a server process of this test binary.
type child struct {
	childReady

	cmd    *exec.Cmd
	stdout *bufio.Reader
	stderr *strings.Builder
}

func startChild(t *testing.T, dir string, env ...string) *child {
	t.Helper()
	c, line := newChild(t, dir, env...)
	if err := json.Unmarshal(line, &c.childReady); err != nil {
		_ = c.cmd.Wait()
		t.Fatalf("the child's first line is %q: %v; stderr: %s", line, err, c.stderr)
	}
	return c
}

// failChild starts a child that cannot run and returns what it says.
func failChild(t *testing.T, dir string, env ...string) string {
	t.Helper()
	c, line := newChild(t, dir, env...)
	if err := c.cmd.Wait(); err == nil || len(line) != 0 {
		t.Fatalf("the child ended with %v and said %q, want a failure", err, line)
	}
	return c.stderr.String()
}

// newChild returns the process and its first line, empty if it ended.
func newChild(t *testing.T, dir string, env ...string) (*child, []byte) {
	t.Helper()
	library, err := engine.FindChDB(os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	c := &child{cmd: exec.CommandContext(t.Context(), os.Args[0]), stderr: &strings.Builder{}}
	c.cmd.Dir = t.TempDir()
	c.cmd.Env = append(os.Environ(), append([]string{childDir + "=" + dir, "HINDSIGHT_CHDB_LIBRARY=" + library}, env...)...)
	c.cmd.Stderr = c.stderr
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.cmd.Process.Kill(); _ = c.cmd.Wait() })
	c.stdout = bufio.NewReader(out)
	line, err := c.stdout.ReadBytes('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return c, line
}

// kill ends the child without warning.
func (c *child) kill(t *testing.T) {
	t.Helper()
	if err := c.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.cmd.Wait()
}

// stop asks the child to end and checks that it did so in order, printing
// nothing else on its standard output.
func (c *child) stop(t *testing.T, sig os.Signal) {
	t.Helper()
	if err := c.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(c.stdout)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Wait(); err != nil {
		t.Fatalf("child after %v: %v; stderr: %s", sig, err, c.stderr)
	}
	if string(rest) != "stopped\n" {
		t.Errorf("standard output has %q, want only the child's own line", rest)
	}
}

// reply is the head of an answer.
type reply struct {
	StatusCode int
	Header     http.Header
}

// ask sends one statement and returns status, header and body.
func ask(t *testing.T, serverURL, query string, parameters url.Values, body string, header ...string) (reply, string) {
	t.Helper()
	if parameters == nil {
		parameters = url.Values{}
	}
	if query != "" {
		parameters.Set("query", query)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, serverURL+"/?"+parameters.Encode(), strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
		}
		req.Header.Set(header[i], header[i+1])
	}
	return do(t, req)
}

func do(t *testing.T, req *http.Request) (reply, string) {
	t.Helper()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatalf("ask: %v", err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("read answer: %v", err)
	}
	return reply{resp.StatusCode, resp.Header}, string(text)
}

// client gives up on a server that hangs.
var client = &http.Client{Timeout: time.Minute}

func contextOf(t *testing.T) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithCancel(t.Context())
}
