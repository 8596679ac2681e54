package chaos_test

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
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hindsight-memory/hindsight/internal/engine/enginetest"
	"github.com/hindsight-memory/hindsight/internal/store/milvustest"
)

// patience bounds every wait of these tests. It is long because it only matters when something is broken.
const patience = 6 * time.Minute

// built are the programs under test.
var built struct {
	once sync.Once
	dir  string
	err  error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if built.dir != "" {
		_ = os.RemoveAll(built.dir)
	}
	if err := milvustest.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stop Milvus:", err)
		code = 1
	}
	os.Exit(code)
}

// programs is the folder of the programs, built once.
func programs(t *testing.T) string {
	t.Helper()
	built.once.Do(func() { built.dir, built.err = buildPrograms() })
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.dir
}

func buildPrograms() (string, error) {
	dir, err := os.MkdirTemp("", "hindsight-chaos-")
	if err != nil {
		return "", fmt.Errorf("make a folder for the programs: %w", err)
	}
	build := exec.Command("go", "build", "-trimpath", "-o", dir+"/", "./cmd/hindsight", "./cmd/ingestor", "./cmd/reflector", "./cmd/consolidator", "./cmd/mcp")
	build.Dir, build.Env = filepath.Join("..", ".."), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return dir, fmt.Errorf("build the programs: %w\n%s", err, out)
	}
	return dir, nil
}

// process is a program that can be killed and started again with the same settings.
type process struct {
	name  string
	path  string
	args  []string
	env   []string
	ready string // a URL that answers 200 once it is ready
	log   syncBuffer
	done  chan struct{} // closed when it has ended; nil while it does not run
	cmd   *exec.Cmd
}

// start runs the program and returns at once. It dies with the test process, however that ends.
func (p *process) start(t *testing.T) {
	t.Helper()
	cmd := exec.Command(p.path, p.args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = p.env, &p.log, &p.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started, done := make(chan error, 1), make(chan struct{})
	go func() {
		runtime.LockOSThread() // It dies with the thread that started it.
		defer runtime.UnlockOSThread()
		defer close(done)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // Its state says the same.
		}
	}()
	if err := <-started; err != nil {
		t.Fatalf("start %s: %v", p.name, err)
	}
	p.cmd, p.done = cmd, done
}

// kill ends it at once, as a crash would.
func (p *process) kill(t *testing.T) {
	t.Helper()
	if p.done == nil {
		return
	}
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("kill %s: %v", p.name, err)
	}
	<-p.done
	p.done = nil
}

// ended reports whether it has ended by itself, which none should, and how.
func (p *process) ended() (how string, is bool) {
	select {
	case <-p.done:
		p.done = nil
		return p.cmd.ProcessState.String(), true
	default:
		return "", false
	}
}

// exit waits for its end and gives the exit code.
func (p *process) exit(t *testing.T) int {
	t.Helper()
	select {
	case <-p.done:
		p.done = nil
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		t.Fatalf("%s does not end\n%s", p.name, p.log.tail())
		return 0
	}
}

// stop ends it with SIGTERM and expects a clean end.
func (p *process) stop(t *testing.T) {
	t.Helper()
	if p.done == nil {
		return
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Errorf("stop %s: %v", p.name, err)
	}
	if code := p.exit(t); code != 0 {
		t.Errorf("%s ended with %d on SIGTERM\n%s", p.name, code, p.log.tail())
	}
}

// waitReady returns once it is ready; it must not end meanwhile.
func (p *process) waitReady(t *testing.T) {
	t.Helper()
	eventually(t, p.name+" to be ready", func() error {
		if how, ended := p.ended(); ended {
			t.Fatalf("%s ended by itself: %s\n%s", p.name, how, p.log.tail())
		}
		if err := httpOK(t.Context(), p.ready); err != nil {
			return fmt.Errorf("%w\n%s", err, p.log.tail())
		}
		return nil
	})
}

func httpOK(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return fmt.Errorf("ask %s: %w", url, err)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("ask %s: %w", url, err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("read %s: %w", url, err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s says %s: %s", url, response.Status, body)
	}
	return nil
}

// eventually polls until the condition has no error.
func eventually(t *testing.T, what string, condition func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := condition()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited %s for %s: %v", patience, what, err)
		}
		<-tick.C
	}
}

// syncBuffer is a log with an end to show.
type syncBuffer struct{ enginetest.Log }

// tail is the end of it, for an error.
func (b *syncBuffer) tail() string {
	const most = 3000
	text := b.String()
	return text[max(0, len(text)-most):]
}

func freePorts(t *testing.T, n int) []string {
	t.Helper()
	var ports []string
	for range n {
		ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
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

// result is what a command said and how it ended.
type result struct {
	stdout, stderr string
	code           int
}

// command runs a program to its end. The code is -1 when it could not be run, and stderr then says why.
func command(t *testing.T, env []string, path string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 2*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	var out, said bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = env, &out, &said
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		return result{out.String(), err.Error(), -1}
	}
	return result{out.String(), said.String(), cmd.ProcessState.ExitCode()}
}

func parse[T any](t *testing.T, raw string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(raw), &v); err != nil {
		t.Fatalf("not the JSON that was expected: %v\n%s", err, raw)
	}
	return v
}
