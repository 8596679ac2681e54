package main

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The demonstration is what a newcomer sees first: it runs as documented, and the memory helps.
func TestDemo(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "hindsight")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "../../cmd/hindsight")
	build.Env = append(build.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build hindsight: %v\n%s", err, out)
	}
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-hindsight", program}, &out); err != nil {
		t.Fatalf("demo: %v\n%s", err, out.String())
	}
	for _, want := range []string{
		"When calling `exchange_item`, call `reserve_stock` first", "`amount` 应传文本", "memory says:", "Failed calls: 8 on Monday, 0 on Tuesday.",
		"retrieve_similar", "Lesson:", "教训:",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the demonstration does not print %q:\n%s", want, out.String())
		}
	}
}
