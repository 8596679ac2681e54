package engine_test

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hindsight-memory/hindsight/internal/engine/enginetest"
)

// connectVersion is the Python client that is tried.
const connectVersion = "1.12.0"

// The second client that people use, and one that reads what a server can by
// trying.
func TestPythonClickHouseConnect(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed")
	}
	packages := installConnect(t, python)
	serverURL := enginetest.ClickHouse(t)
	u, err := url.Parse(serverURL)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), python, "testdata/connect.py", u.Port(), enginetest.Database(t, serverURL))
	cmd.Env = append(os.Environ(), "PYTHONPATH="+packages, "PYTHONDONTWRITEBYTECODE=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
}

// installConnect puts the client into a folder of the user's cache, once.
func installConnect(t *testing.T, python string) string {
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
	dir := filepath.Join(parent, "clickhouse-connect-"+connectVersion+"-py"+strings.TrimSpace(string(version)))
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
	out, err := exec.CommandContext(t.Context(), python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", "--target", fresh, "clickhouse-connect=="+connectVersion).CombinedOutput()
	if err != nil {
		_ = os.RemoveAll(fresh)
		if os.Getenv("CI") == "true" {
			t.Fatalf("pip install clickhouse-connect: %v\n%s", err, out)
		}
		t.Skipf("pip cannot install clickhouse-connect (no network?): %v\n%s", err, out)
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
