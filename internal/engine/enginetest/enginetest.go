// Package enginetest gives tests a real ClickHouse and a real NATS server,
// embedded in the test process.
//
// ClickHouse is one engine a test process, started by the first test that asks
// and ended with the process; each test takes a database of its own. NATS is
// a fresh server for each caller. A missing library fails the test: it never
// skips, for a suite that quietly leaves its storage out proves nothing.
package enginetest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hindsight-memory/hindsight/internal/engine"
)

// shared is the engine of this test process: libchdb serves one directory a
// process, so that it cannot belong to a test.
var shared struct {
	once   sync.Once
	engine *engine.ClickHouse
	err    error
}

// ClickHouse returns the URL of the process's shared engine, "http://…", and
// starts it if need be. It fails tb when the library is missing.
func ClickHouse(tb testing.TB) string {
	tb.Helper()
	shared.once.Do(func() { shared.engine, shared.err = start() })
	if shared.err != nil {
		tb.Fatalf("embedded ClickHouse (run `make setup`): %v", shared.err)
	}
	return shared.engine.URL()
}

// dirPattern names the temporary directories, so that the leavings of ended
// processes are found.
const dirPattern = "hindsight-enginetest-"

func start() (*engine.ClickHouse, error) {
	library, err := engine.FindChDB(os.Getenv) //nolint:forbidigo // tests have no main that could hand it over.
	if err != nil {
		return nil, err
	}
	removeLeavings()
	dir, err := os.MkdirTemp("", fmt.Sprintf("%s%d-", dirPattern, os.Getpid()))
	if err != nil {
		return nil, err
	}
	return engine.StartClickHouse(context.Background(), engine.ClickHouseOptions{DataDir: dir, Library: library, Queue: 1024, QueueTimeout: 2 * time.Minute})
}

// removeLeavings deletes the directories of test processes that are gone: a
// test process has no end at which the shared engine could remove its own.
func removeLeavings() {
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), dirPattern+"*"))
	for _, dir := range dirs {
		pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), dirPattern), "-")
		if _, err := os.Stat("/proc/" + pid); os.IsNotExist(err) {
			_ = os.RemoveAll(dir)
		}
	}
}

// Stop ends the shared engine, if it runs, and removes its files. A TestMain
// calls it after m.Run where goroutines are checked; tests that run later in
// the process find no engine.
func Stop() error {
	var err error
	shared.once.Do(func() { shared.err = errors.New("the shared engine was stopped") })
	if shared.engine == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	err = shared.engine.Stop(ctx)
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), fmt.Sprintf("%s%d-*", dirPattern, os.Getpid())))
	for _, dir := range dirs {
		_ = os.RemoveAll(dir)
	}
	return err
}

// Database creates a database with a name of its own on the engine at
// serverURL, drops it when tb ends, and returns the name.
func Database(tb testing.TB, serverURL string) string {
	tb.Helper()
	name := "test_" + strings.ToLower(rand.Text()[:16])
	Exec(tb, serverURL, "CREATE DATABASE "+name)
	tb.Cleanup(func() { Exec(tb, serverURL, "DROP DATABASE IF EXISTS "+name+" SYNC") })
	return name
}

// Exec runs one statement and returns its result as text; it fails tb on error.
func Exec(tb testing.TB, serverURL, sql string) string {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, serverURL+"/?"+url.Values{}.Encode(), strings.NewReader(sql))
	if err != nil {
		tb.Fatalf("ask ClickHouse: %v", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		tb.Fatalf("ask ClickHouse: %v", err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		tb.Fatalf("read ClickHouse's answer: %v", err)
	}
	if resp.StatusCode != http.StatusOK {
		tb.Fatalf("ClickHouse refused %q: %s", sql, body)
	}
	return string(body)
}

// NATS returns the URL of a fresh server with JetStream, stopped when tb ends.
func NATS(tb testing.TB) string {
	tb.Helper()
	n, err := engine.StartNATS(tb.Context(), engine.NATSOptions{DataDir: tb.TempDir()})
	if err != nil {
		tb.Fatalf("embedded NATS: %v", err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := n.Stop(ctx); err != nil {
			tb.Errorf("stop embedded NATS: %v", err)
		}
	})
	return n.URL()
}
