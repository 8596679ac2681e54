package main_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestEvalSimulate runs a very small simulation by the command line, whole: a report and figures come out.
func TestEvalSimulate(t *testing.T) {
	t.Parallel()
	in := newInstallation(t)
	page := filepath.Join(t.TempDir(), "report.html")
	out := in.run("eval", "simulate", "--quick", "--tasks", "4", "--arms", "none,check", "--html", page, "--json")
	var report struct {
		Suite   string             `json:"suite"`
		Figures map[string]float64 `json:"figures"`
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if report.Suite != "simulate" || report.Figures["tasks_per_stream"] != 4 || report.Figures["success_check"] == 0 {
		t.Errorf("%+v", report)
	}
	html, err := os.ReadFile(page)
	if err != nil || !strings.Contains(string(html), "What this does not show") || !strings.Contains(string(html), "hindsight eval simulate --seeds 1") {
		t.Errorf("the report: %v\n%.400s", err, html)
	}
}
