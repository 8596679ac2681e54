// Package milvustest gives tests a real Milvus server, run by scripts/milvus.sh from the package that `make test`
// fetches, and ended with the test process however that ends.
//
// [Address] is one server a test process, for tests that only need one to be there: each takes a model of its own, which
// makes a collection of its own. [Start] is a server for one test, which may kill it and start it again on the same
// data. A server is ready after about ten seconds on two cores and holds some hundred megabytes.
//
// It skips, with one line, where no Milvus is pinned for the platform, and fails where one is but was not fetched. With
// HINDSIGHT_TEST_MILVUS_ADDR set, [Address] is that server instead.
package milvustest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	// ports is how many ports one server takes, and healthPort the one for health among them.
	ports, healthPort = 15, 14
	// startTimeout is for a machine that is busy with the rest of the tests.
	startTimeout = 3 * time.Minute
	// tick is how often written rows become visible, in milliseconds.
	tick = 20
	// dirPattern names the temporary directories, so that the leavings of ended processes are found.
	dirPattern = "hindsight-milvustest-"
)

// shared is the server of this test process.
var shared struct {
	once   sync.Once
	server *Server
	err    error
}

// Address returns host:port of the process's shared server, and starts it if need be.
func Address(tb testing.TB) string {
	tb.Helper()
	if given := os.Getenv("HINDSIGHT_TEST_MILVUS_ADDR"); given != "" { //nolint:forbidigo // tests have no main that could hand it over.
		return given
	}
	needServer(tb)
	shared.once.Do(func() { shared.server, shared.err = newServer() })
	if shared.err != nil {
		tb.Fatalf("start Milvus: %v", shared.err)
	}
	return shared.server.Address()
}

// Stop ends the shared server, if it runs, and removes its files. A TestMain calls it after m.Run; tests that run later
// in the process find no server.
func Stop() error {
	shared.once.Do(func() { shared.err = errors.New("the shared server was stopped") })
	if shared.server == nil {
		return nil
	}
	return shared.server.close()
}

// Server is a Milvus of one test. Use [Start].
type Server struct {
	port    int
	dir     string
	guard   net.Listener // holds a port beyond the server's, so that no other test process takes the same ones
	environ []string

	process *process // nil: it was killed
}

// Start runs a server of tb's own, which ends with tb. environ holds settings of Milvus as environment variables, such as
// COMMON_SECURITY_AUTHORIZATIONENABLED=true.
func Start(tb testing.TB, environ ...string) *Server {
	tb.Helper()
	needServer(tb)
	s, err := newServer(environ...)
	if err != nil {
		tb.Fatalf("start Milvus: %v", err)
	}
	tb.Cleanup(func() {
		if err := s.close(); err != nil {
			tb.Errorf("end Milvus: %v", err)
		}
	})
	return s
}

// Address is host:port of the server; it stays through [Server.Kill] and [Server.Restart].
func (s *Server) Address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// Kill ends the server at once, as by kill -9, and returns when it is gone.
func (s *Server) Kill(tb testing.TB) {
	tb.Helper()
	if s.process == nil {
		tb.Fatal("this Milvus was killed already")
	}
	s.process.kill()
	s.process = nil
}

// Restart starts the server again after [Server.Kill], on the same data and port, and returns when it says that it is
// healthy, which is some seconds before it answers every question.
func (s *Server) Restart(tb testing.TB) {
	tb.Helper()
	if s.process != nil {
		tb.Fatal("this Milvus runs: kill it first")
	}
	var err error
	if s.process, err = s.run(); err != nil {
		tb.Fatalf("start Milvus again: %v", err)
	}
}

// needServer skips tb where no server is pinned.
func needServer(tb testing.TB) {
	tb.Helper()
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		tb.Skipf("no Milvus is pinned for %s/%s: set HINDSIGHT_TEST_MILVUS_ADDR to a server", runtime.GOOS, runtime.GOARCH)
	}
}

// script is scripts/milvus.sh of this project, found from this file.
func script() (string, error) {
	_, file, _, _ := runtime.Caller(0)
	path := filepath.Join(filepath.Dir(file), "..", "..", "..", "scripts", "milvus.sh")
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("find scripts/milvus.sh from the sources of the tests: %w", err)
	}
	return path, nil
}

func newServer(environ ...string) (*Server, error) {
	removeLeavings()
	dir, err := os.MkdirTemp("", fmt.Sprintf("%s%d-", dirPattern, os.Getpid()))
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir, environ: environ}
	if s.guard, s.port, err = freePorts(); err != nil {
		return nil, err
	}
	if s.process, err = s.run(); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// close ends the server and removes its files.
func (s *Server) close() error {
	if s.process != nil {
		s.process.kill()
		s.process = nil
	}
	return errors.Join(s.guard.Close(), os.RemoveAll(s.dir))
}

// freePorts finds consecutive ports for a server below those that the system gives to connections. The listener holds
// the one after them until the server's end.
func freePorts() (guard net.Listener, first int, err error) {
	var listen net.ListenConfig
	for range 200 {
		first = 15000 + rand.IntN(1000)*(ports+1) //nolint:gosec // Any port will do.
		if guard, err = listen.Listen(context.Background(), "tcp", fmt.Sprintf("127.0.0.1:%d", first+ports)); err != nil {
			continue
		}
		for port := first; port < first+ports && err == nil; port++ {
			var l net.Listener
			if l, err = listen.Listen(context.Background(), "tcp", fmt.Sprintf(":%d", port)); err == nil {
				err = l.Close()
			}
		}
		if err == nil {
			return guard, first, nil
		}
		_ = guard.Close()
	}
	return nil, 0, fmt.Errorf("find %d free ports in a row: %w", ports, err)
}

// process is a running server.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

// run starts the server and waits until it says that it is healthy.
func (s *Server) run() (*process, error) {
	path, err := script()
	if err != nil {
		return nil, err
	}
	said, err := os.Create(filepath.Join(s.dir, "script.log"))
	if err != nil {
		return nil, err
	}
	defer said.Close()                                                                                                                                //nolint:errcheck // The process has its own.
	cmd := exec.Command("bash", path, "--bare", "--data", filepath.Join(s.dir, "data"), "--port", strconv.Itoa(s.port), "--tick", strconv.Itoa(tick)) //nolint:gosec,noctx // It is ours, and lives longer than a test.
	cmd.Env = append(os.Environ(), s.environ...)
	cmd.Stdout, cmd.Stderr = said, said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		// The server dies with the thread that started it, so that this must be one that lives as long as the process.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.done)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	if err := p.waitHealthy(fmt.Sprintf("http://127.0.0.1:%d/healthz", s.port+healthPort)); err != nil {
		p.kill()
		log, _ := os.ReadFile(said.Name())
		return nil, fmt.Errorf("%w\n%s%s", err, log, tail(filepath.Join(s.dir, "data", "logs", "out.log")))
	}
	return p, nil
}

func (p *process) waitHealthy(url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for {
		if healthy(ctx, client, url) {
			return nil
		}
		select {
		case <-p.done:
			return errors.New("it ended by itself")
		case <-ctx.Done():
			return fmt.Errorf("it is not healthy after %v", startTimeout)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func healthy(ctx context.Context, client *http.Client, url string) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return false
	}
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close() //nolint:errcheck // It was only read.
	body, err := io.ReadAll(resp.Body)
	return err == nil && resp.StatusCode == http.StatusOK && strings.TrimSpace(string(body)) == "OK"
}

func (p *process) kill() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	<-p.done
}

// tail is the end of a file, for an error.
func tail(path string) string {
	const most = 2000
	text, _ := os.ReadFile(path)
	return string(text[max(0, len(text)-most):])
}

// removeLeavings deletes the directories of test processes that are gone.
func removeLeavings() {
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), dirPattern+"*"))
	for _, dir := range dirs {
		pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), dirPattern), "-")
		if _, err := os.Stat("/proc/" + pid); os.IsNotExist(err) {
			_ = os.RemoveAll(dir)
		}
	}
}
