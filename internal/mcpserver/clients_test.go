package mcpserver_test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// pythonVersion is the Python client that is tried: the official one.
const pythonVersion = "2.3.0"

// processDaemon starts the daemon of these tests as a process of its own and gives its address.
func processDaemon(t *testing.T) string {
	t.Helper()
	cmd := program(t, roleDaemon)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	said := bufio.NewScanner(out)
	if !said.Scan() {
		t.Fatal("the daemon says no address")
	}
	return said.Text()
}

func TestPythonClient(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed")
	}
	packages := installPython(t, python)
	cmd := exec.CommandContext(t.Context(), python, "testdata/client.py", processDaemon(t), os.Args[0])
	cmd.Env = append(os.Environ(), "PYTHONPATH="+packages, "PYTHONDONTWRITEBYTECODE=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
}

// installPython puts the client into a folder of the user's cache, once.
func installPython(t *testing.T, python string) string {
	t.Helper()
	version, err := exec.CommandContext(t.Context(), python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])").Output()
	if err != nil {
		t.Fatalf("ask python3 for its version: %v", err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	parent := filepath.Join(cache, "hindsight", "test-python")
	dir := filepath.Join(parent, "mcp-"+pythonVersion+"-py"+strings.TrimSpace(string(version)))
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	if err := os.MkdirAll(parent, 0o700); err != nil {
		t.Fatal(err)
	}
	fresh, err := os.MkdirTemp(parent, "new-") //nolint:usetesting // it is renamed inside the cache.
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", "--target", fresh,
		"mcp=="+pythonVersion).CombinedOutput()
	if err != nil {
		_ = os.RemoveAll(fresh)
		if os.Getenv("CI") == "true" {
			t.Fatalf("pip install mcp: %v\n%s", err, out)
		}
		t.Skipf("pip cannot install mcp (no network?): %v\n%s", err, out)
	}
	// Another test run may have been faster; its folder is as good.
	if err := os.Rename(fresh, dir); err != nil {
		_ = os.RemoveAll(fresh)
		if _, statErr := os.Stat(dir); statErr != nil {
			t.Fatal(err)
		}
	}
	return dir
}
