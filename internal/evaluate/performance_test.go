package evaluate

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the generated files anew")

// samePage compares a page with a file, or writes the file.
func samePage(t *testing.T, dir, path string) {
	t.Helper()
	reports, err := ReadBenches(dir)
	if err != nil {
		t.Fatal(err)
	}
	page, err := PerformancePage(reports)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(path, []byte(page), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(raw) != page {
		t.Errorf("%s is not what the files in %s give: run 'go test ./internal/evaluate -run %s -update'\n%s", path, dir, t.Name(), page)
	}
}

// TestPerformancePageIsAFunctionOfItsFigures: made-up figures of some suites give this page; the other suites say that they
// were not measured.
func TestPerformancePageIsAFunctionOfItsFigures(t *testing.T) {
	t.Parallel()
	samePage(t, "testdata/performance", "testdata/performance/page.md")
}

// TestPerformancePage keeps docs/performance.md the same as the figures beside it.
func TestPerformancePage(t *testing.T) {
	t.Parallel()
	samePage(t, "../../docs/performance", "../../docs/performance.md")
}

func TestBenchFilesThatAreNone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := ReadBenches(dir); !errors.Is(err, ErrInput) {
		t.Errorf("an empty folder: %v, want ErrInput", err)
	}
	for content, want := range map[string]string{
		"{":                   "read ",
		`{"suite":"startup"}`: "is not what `hindsight bench ingest --json` writes",
		`{"suite":"ingest"}`:  "is not what `hindsight bench ingest --json` writes",
	} {
		if err := os.WriteFile(filepath.Join(dir, "ingest.json"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadBenches(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", content, err, want)
		}
	}
}

func TestFiguresAreWrittenInTheirUnits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		value float64
		want  string
	}{
		{"resident_rest_bytes", 299e6, "299 MB"},
		{"json_bytes_per_event", 903.4, "903 bytes"},
		{"folder_empty_bytes", 45_678, "45.7 kB"},
		{"events_per_second", 13_637.4, "13,637 a second"},
		{"ready_seconds", 1.034, "1.03 s"},
		{"recall_1000_p50_ms", 115.2, "115 ms"},
		{"ratio_to_slower_engine", 0.527, "0.53"},
		{"events", 1_000_000, "1,000,000"},
		{"snapshots_1000_per_task", 1.744, "1.74"},
	} {
		if got := formatFigure(c.name, c.value); got != c.want {
			t.Errorf("%s of %v is written %q, want %q", c.name, c.value, got, c.want)
		}
	}
}
