package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hindsight-memory/hindsight/internal/engine/enginetest"
)

// patience bounds every wait of these tests. It is long because it only matters when something is broken.
const patience = 5 * time.Minute

// noEmbedder is the setting of installations whose test is about something else than meaning: it saves them the embedding
// of all that is learnt.
const noEmbedder = "HINDSIGHT_EMBEDDER=none"

// programs is the folder with the programs under test, built once for the whole run.
var programs string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "hindsight-cli-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	build := exec.Command("go", "build", "-trimpath", "-o", dir+"/", "./cmd/hindsight", "./cmd/ingestor", "./cmd/reflector", "./cmd/consolidator", "./cmd/mcp")
	build.Dir, build.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the programs under test: %v\n%s", err, out)
		return 1
	}
	programs = dir
	return m.Run()
}

// installation is one `hindsight up` with a data directory and ports of its own, which survives being killed.
type installation struct {
	t      *testing.T
	dir    string
	env    []string
	health string
	nats   string
	http   string
	mcp    string
	// args follow the word up.
	args []string
	cmd  *exec.Cmd
	log  *enginetest.Log
	done chan error
}

// newInstallation prepares one; start runs it.
func newInstallation(t *testing.T, settings ...string) *installation {
	t.Helper()
	ports := freePorts(t, 5)
	in := &installation{
		t: t, dir: t.TempDir(), health: "http://127.0.0.1:" + ports[2],
		nats: "nats://127.0.0.1:" + ports[0], http: "http://127.0.0.1:" + ports[1],
		mcp: "http://127.0.0.1:" + ports[4] + "/mcp",
	}
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "HINDSIGHT_") || strings.HasPrefix(entry, "HINDSIGHT_ENGINES_DIR=") || strings.HasPrefix(entry, "HINDSIGHT_CHDB_LIBRARY=") {
			in.env = append(in.env, entry)
		}
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv("HINDSIGHT_ENGINES_DIR") == "" && os.Getenv("HINDSIGHT_CHDB_LIBRARY") == "" {
		in.env = append(in.env, "HINDSIGHT_ENGINES_DIR="+filepath.Join(root, ".engines"))
	}
	in.env = append(in.env,
		"HINDSIGHT_DATA_DIR="+filepath.Join(in.dir, "data"), "HINDSIGHT_NATS_PORT="+ports[0], "HINDSIGHT_CLICKHOUSE_PORT="+ports[1],
		"HINDSIGHT_CONSOLE_PORT="+ports[2], "HINDSIGHT_HEALTH_PORT="+ports[3], "HINDSIGHT_MCP_PORT="+ports[4], "PATH="+programs+":"+os.Getenv("PATH"),
		// Short times make the tests quick; what they mean is tested all the same.
		"HINDSIGHT_TASK_QUIET=200ms", "HINDSIGHT_SWEEP_INTERVAL=100ms")
	in.env = append(in.env, settings...)
	return in
}

func freePorts(t *testing.T, n int) []string {
	t.Helper()
	var ports []string
	for range n {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = ln.Close() }()
		_, port, err := net.SplitHostPort(ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		ports = append(ports, port)
	}
	return ports
}

// start runs `hindsight up` and waits until it is ready.
func (in *installation) start() {
	in.t.Helper()
	in.launch()
	url := in.health + "/readyz"
	for _, a := range in.args {
		if a == "--engines-only" {
			url = in.http + "/ping"
		}
	}
	in.waitFor(func() error {
		select {
		case err := <-in.done:
			in.t.Fatalf("hindsight up ended: %v\n%s", err, in.log)
		default:
		}
		return httpOK(url)
	})
}

func (in *installation) launch() {
	in.t.Helper()
	in.log = &enginetest.Log{}
	in.cmd = exec.Command(filepath.Join(programs, "hindsight"), append([]string{"up"}, in.args...)...)
	in.cmd.Env, in.cmd.Stderr, in.cmd.Dir = in.env, in.log, in.dir
	stdout := &enginetest.Log{}
	in.cmd.Stdout = stdout
	if err := in.cmd.Start(); err != nil {
		in.t.Fatal(err)
	}
	cmd, done := in.cmd, make(chan error, 1)
	in.done = done
	go func() {
		err := cmd.Wait()
		if s := stdout.String(); s != "" {
			err = errors.Join(err, fmt.Errorf("hindsight up wrote to stdout, which belongs to protocols: %q", s))
		}
		done <- err
	}()
	in.t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
		}
	})
}

// kill ends the process at once, as a crash would.
func (in *installation) kill() {
	in.t.Helper()
	if err := in.cmd.Process.Kill(); err != nil {
		in.t.Fatal(err)
	}
	if err := <-in.done; err == nil {
		in.t.Fatal("a killed process ended without an error")
	}
}

// stop ends the process with SIGTERM and expects a clean end.
func (in *installation) stop() {
	in.t.Helper()
	if err := in.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		in.t.Fatal(err)
	}
	select {
	case err := <-in.done:
		if err != nil {
			in.t.Fatalf("hindsight up did not end cleanly on SIGTERM: %v\n%s", err, in.log)
		}
	case <-time.After(patience):
		in.t.Fatalf("hindsight up did not end on SIGTERM\n%s", in.log)
	}
}

// waitFor polls until the condition has no error.
func (in *installation) waitFor(condition func() error) {
	in.t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := condition()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			in.t.Fatalf("waited %s: %v\n%s", patience, err, in.log)
		}
		<-tick.C
	}
}

func httpOK(url string) error {
	resp, err := http.Get(url)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("%s: %s", resp.Status, body)
	}
	return nil
}

// result is what a command said and how it ended.
type result struct {
	stdout, stderr string
	code           int
}

// command prepares `hindsight <args>`.
func (in *installation) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(programs, "hindsight"), args...)
	cmd.Env, cmd.Dir = in.env, in.dir
	return cmd
}

// try runs a command and gives its result.
func (in *installation) try(stdin string, args ...string) result {
	in.t.Helper()
	ctx, cancel := context.WithTimeout(in.t.Context(), 2*patience)
	defer cancel()
	cmd := in.command(ctx, args...)
	var out, errOut bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errOut
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		in.t.Fatalf("hindsight %s: %v", strings.Join(args, " "), err)
	}
	return result{out.String(), errOut.String(), cmd.ProcessState.ExitCode()}
}

// run runs a command that must succeed and returns what it printed.
func (in *installation) run(args ...string) string {
	in.t.Helper()
	r := in.try("", args...)
	if r.code != 0 {
		in.t.Fatalf("hindsight %s: exit %d\n%s\n%s", strings.Join(args, " "), r.code, r.stdout, r.stderr)
	}
	return r.stdout
}

// sql gives the rows of a statement as one line each, tab-separated.
func (in *installation) sql(statement string) string {
	in.t.Helper()
	return strings.TrimSpace(in.run("sql", "--format", "TSV", statement))
}

func parse[T any](t *testing.T, raw string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(raw), &v); err != nil {
		t.Fatalf("not the JSON that was expected: %v\n%s", err, raw)
	}
	return v
}

// writeFile puts a file into the installation's folder and returns its path.
func (in *installation) writeFile(name, content string) string {
	in.t.Helper()
	path := filepath.Join(in.dir, name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		in.t.Fatal(err)
	}
	return path
}

// example is the path of the repository's example runs.
func example(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("../../examples/shop.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// runsFile writes a file of n made-up runs in the trajectory format.
func (in *installation) runsFile(name string, n int) string {
	in.t.Helper()
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"source":"shop/orders","run":"agent-%d","trial":%d,"task_id":"%d","outcome":{"success":%t,"reward":1},"steps":[`, i%3, i%2, i, i%3 != 0)
		fmt.Fprintf(&b, `{"i":0,"type":"message","role":"user","content":"Change order %d, 请尽快。"}`, i)
		for s := 1; s <= 8; s++ {
			fmt.Fprintf(&b, `,{"i":%d,"type":"tool_call","tool":"tool_%d","args":{"order":"o-%d"},"result":"%s","error":null,"by":"%s"}`,
				s, s%4, i, strings.Repeat("row ", 60), []string{"assistant", "user"}[s%8/7])
		}
		fmt.Fprintf(&b, `,{"i":9,"type":"tool_call","tool":"save","args":{"order":"o-%d"},"result":null,"error":"ValueError: amount %d is wrong","by":"assistant"}]}`+"\n", i, i)
	}
	return in.writeFile(name, b.String())
}
