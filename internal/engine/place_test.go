package engine_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/hindsight-memory/hindsight/internal/engine"
	"github.com/hindsight-memory/hindsight/internal/engine/enginetest"
)

func takenPort(t *testing.T) int {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().(*net.TCPAddr).Port
}

func TestPortInUse(t *testing.T) {
	t.Parallel()
	port := takenPort(t)
	_, err := engine.StartNATS(t.Context(), engine.NATSOptions{DataDir: t.TempDir(), Port: port})
	if !errors.Is(err, engine.ErrPortInUse) {
		t.Fatalf("StartNATS = %v, want ErrPortInUse", err)
	}
	for what, text := range map[string]string{
		"NATS":       err.Error(),
		"CLICKHOUSE": failChild(t, t.TempDir(), childPort+"="+strconv.Itoa(port)),
	} {
		for _, want := range []string{strconv.Itoa(port), "HINDSIGHT_" + what + "_PORT", fmt.Sprintf("process %d", os.Getpid())} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: the message does not say %q: %s", what, want, text)
			}
		}
	}
}

func TestFixedPort(t *testing.T) {
	t.Parallel()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	n, err := engine.StartNATS(t.Context(), engine.NATSOptions{DataDir: t.TempDir(), Port: port})
	if err != nil {
		t.Fatalf("StartNATS: %v", err)
	}
	if want := fmt.Sprintf("nats://127.0.0.1:%d", port); n.URL() != want {
		t.Errorf("URL = %s, want %s", n.URL(), want)
	}
	for range 2 {
		if err := n.Stop(t.Context()); err != nil {
			t.Errorf("Stop: %v", err)
		}
	}
}

func TestDirectoryThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := engine.LockDataDir(file); err == nil || !strings.Contains(err.Error(), "is not a directory") {
		t.Errorf("a file as directory: %v, want it said", err)
	}
	if os.Geteuid() != 0 { // root writes everywhere
		dir := t.TempDir()
		if err := os.Chmod(dir, 0o500); err != nil {
			t.Fatal(err)
		}
		if _, err := engine.LockDataDir(dir); err == nil || !strings.Contains(err.Error(), "cannot be written by this user") {
			t.Errorf("a read-only directory: %v, want it said", err)
		}
	}
}

// The library tells no reason when it does not start; the error must.
func TestWhyClickHouseDoesNotStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := startChild(t, dir)
	c.stop(t, syscall.SIGTERM)
	f, err := os.OpenFile(filepath.Join(dir, "clickhouse", "data", "status"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if text := failChild(t, dir); !strings.Contains(text, "Cannot lock file") {
		t.Errorf("the message does not say why: %s", text)
	}
}

func TestOneEngineAProcess(t *testing.T) {
	t.Parallel()
	enginetest.ClickHouse(t)
	library, err := engine.FindChDB(os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := engine.StartClickHouse(t.Context(), engine.ClickHouseOptions{DataDir: t.TempDir(), Library: library}); !errors.Is(err, engine.ErrAlreadyRunning) {
		t.Errorf("a second engine: %v, want ErrAlreadyRunning", err)
	}
}

func TestFindChDB(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	library := filepath.Join(dir, "chdb", "libchdb.so")
	if err := os.Mkdir(filepath.Dir(library), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(library, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		env  map[string]string
		want string // "" for an error that says what to do
	}{
		"the file":                  {map[string]string{"HINDSIGHT_CHDB_LIBRARY": library}, library},
		"the folder":                {map[string]string{"HINDSIGHT_ENGINES_DIR": dir}, library},
		"the file comes first":      {map[string]string{"HINDSIGHT_CHDB_LIBRARY": library, "HINDSIGHT_ENGINES_DIR": "/nowhere"}, library},
		"a wrong file":              {map[string]string{"HINDSIGHT_CHDB_LIBRARY": dir}, ""},
		"a wrong folder":            {map[string]string{"HINDSIGHT_ENGINES_DIR": filepath.Join(dir, "chdb")}, ""},
		"a wrong file, good folder": {map[string]string{"HINDSIGHT_CHDB_LIBRARY": "/nowhere", "HINDSIGHT_ENGINES_DIR": dir}, ""},
	} {
		got, err := engine.FindChDB(func(name string) string { return c.env[name] })
		if got != c.want || (err == nil) != (c.want != "") || (err != nil && !errors.Is(err, engine.ErrNoChDB)) {
			t.Errorf("%s: %q, %v; want %q", name, got, err, c.want)
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]engine.ClickHouseOptions{
		"no directory": {Library: "x"},
		"no library":   {DataDir: t.TempDir()},
		"no port":      {DataDir: t.TempDir(), Library: "x", Port: 70000},
	} {
		if _, err := engine.StartClickHouse(t.Context(), o); err == nil {
			t.Errorf("ClickHouse with %s started", name)
		}
	}
	for name, o := range map[string]engine.NATSOptions{"no directory": {}, "no port": {DataDir: t.TempDir(), Port: 70000}} {
		if _, err := engine.StartNATS(t.Context(), o); err == nil {
			t.Errorf("NATS with %s started", name)
		}
	}
}
