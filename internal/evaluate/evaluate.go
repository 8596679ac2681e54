// Package evaluate measures Hindsight: each bench beside the raw engine in the same run, so that its result is a ratio,
// which means the same on every machine, and not only a time, which does not.
//
// A bench starts the program itself on an empty folder and free ports, and measures it from outside as a user would. It
// never touches a running installation or its data.
package evaluate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Report is the result of a suite; its JSON is the stable shape of `hindsight bench --json`.
type Report struct {
	Suite string `json:"suite"`
	// Seed makes the input reproducible.
	Seed int64 `json:"seed"`
	// Figures are named with their unit: seconds, bytes, per_second, ratio.
	Figures  map[string]float64 `json:"figures"`
	Examples []string           `json:"examples"`
	// Machine is what a bench was measured on.
	Machine *Machine `json:"machine,omitempty"`
}

const (
	// pollPause is the pause between two looks at a process that is waited for.
	pollPause = 20 * time.Millisecond
	// startTimeout and stopTimeout bound the start and the end of the measured process.
	startTimeout = time.Minute
	stopTimeout  = 30 * time.Second
	// samplePause is the pause between two samples of memory.
	samplePause = 200 * time.Millisecond
	// benchDatabase is the database of the measured program.
	benchDatabase = "hindsight"
)

// program is a running `hindsight up` on a folder and ports of its own.
type program struct {
	executable  string
	args        []string
	environment []string
	dir         string
	natsURL     string
	clickhouse  string
	healthURL   string
	output      lockedBuffer
	// cmd and exited are of the process that runs.
	cmd    *exec.Cmd
	exited chan struct{}
}

// lockedBuffer collects the program's log, which is shown when it fails.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.buf.Len() > 1<<20 {
		return len(p), nil // Only the beginning of a long log is kept.
	}
	return b.buf.Write(p) //nolint:wrapcheck // A buffer does not fail.
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// start runs `<executable> up <args>` on an empty folder and returns at once; [program.ready] waits. What decides about the
// figures is set here, so that they don't depend on the settings of whoever runs the bench.
func start(ctx context.Context, executable string, args ...string) (*program, error) {
	dir, err := os.MkdirTemp("", "hindsight-bench-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the measured program: %w", err)
	}
	ports, err := freePorts(ctx, 4)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	p := &program{
		executable: executable, args: append([]string{"up"}, args...), dir: dir,
		natsURL:    "nats://127.0.0.1:" + ports[0],
		clickhouse: "http://127.0.0.1:" + ports[1],
		healthURL:  "http://127.0.0.1:" + ports[2],
		environment: append(os.Environ(),
			"HINDSIGHT_DATA_DIR="+filepath.Join(dir, "data"), "HINDSIGHT_CONFIG=", "HINDSIGHT_NATS_URL=", "HINDSIGHT_CLICKHOUSE_URL=",
			"HINDSIGHT_NATS_PORT="+ports[0], "HINDSIGHT_CLICKHOUSE_PORT="+ports[1], "HINDSIGHT_CONSOLE_PORT="+ports[2], "HINDSIGHT_MCP_PORT="+ports[3],
			"HINDSIGHT_BIND=127.0.0.1", "HINDSIGHT_INGEST_BATCH="+strconv.Itoa(benchBatch), "HINDSIGHT_CLICKHOUSE_DATABASE="+benchDatabase,
			"HINDSIGHT_EMBEDDING_CACHE="),
	}
	if err := p.launch(ctx); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return p, nil
}

// launch starts the process, on whatever its folder holds.
func (p *program) launch(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, p.executable, p.args...) //nolint:gosec // It is this program.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopTimeout
	cmd.Env = p.environment
	cmd.Stdout, cmd.Stderr = io.Discard, &p.output
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.executable, err)
	}
	exited := make(chan struct{})
	p.cmd, p.exited = cmd, exited
	go func() {
		defer close(exited)
		_ = cmd.Wait() // How it ended shows in its log.
	}()
	return nil
}

func freePorts(ctx context.Context, n int) ([]string, error) {
	var ports []string
	for range n {
		ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer ln.Close() //nolint:errcheck // Held only so that the next port is another.
		_, port, err := net.SplitHostPort(ln.Addr().String())
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		ports = append(ports, port)
	}
	return ports, nil
}

// ready waits until url answers 200.
func (p *program) ready(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return fmt.Errorf("ask %s: %w", url, err)
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-p.exited:
			return fmt.Errorf("the measured program ended before it was ready; it said:\n%s", p.output.String())
		case <-ctx.Done():
			return fmt.Errorf("the measured program was not ready in time: %w; it said:\n%s", ctx.Err(), p.output.String())
		case <-time.After(pollPause):
		}
	}
}

// resident is the resident size of the process in bytes, by /proc; 0 where there is none.
func (p *program) resident() int64 {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(raw)) {
		rest, found := strings.CutPrefix(line, "VmRSS:")
		if !found {
			continue
		}
		kilobytes, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
		if err != nil {
			return 0
		}
		return kilobytes << 10
	}
	return 0
}

// cpu is the processor time that the process has used so far, by /proc; 0 where there is none. It is counted in hundredths
// of a second.
func (p *program) cpu() time.Duration {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(raw, []byte(") ")) // The name may hold blanks.
	fields := bytes.Fields(rest)
	const user, system, tick = 11, 12, 10 * time.Millisecond
	if len(fields) <= system {
		return 0
	}
	var ticks int64
	for _, field := range fields[user : system+1] {
		n, err := strconv.ParseInt(string(field), 10, 64)
		if err != nil {
			return 0
		}
		ticks += n
	}
	return time.Duration(ticks) * tick
}

// watch samples the resident size until ctx ends and returns the largest.
func (p *program) watch(ctx context.Context) int64 {
	var peak int64
	for {
		peak = max(peak, p.resident())
		select {
		case <-ctx.Done():
			return peak
		case <-time.After(samplePause):
		}
	}
}

// end ends the process and leaves its folder.
func (p *program) end() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("end the measured program: %w", err)
	}
	select {
	case <-p.exited:
	case <-time.After(stopTimeout):
		if err := p.cmd.Process.Kill(); err != nil {
			return fmt.Errorf("kill the measured program: %w", err)
		}
		<-p.exited
	}
	return nil
}

// stop ends the program and removes its folder.
func (p *program) stop() error {
	if err := p.end(); err != nil {
		return err
	}
	if err := os.RemoveAll(p.dir); err != nil {
		return fmt.Errorf("remove the measured program's folder: %w", err)
	}
	return nil
}
