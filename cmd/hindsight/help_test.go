package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/hindsight-memory/hindsight/internal/evaluate"
)

// TestEveryCommandHasHelpWithAnExample also checks that an example starts with the program's name, so that it can be
// copied.
func TestEveryCommandHasHelpWithAnExample(t *testing.T) {
	t.Parallel()
	a := &app{getenv: func(string) string { return "" }, stdin: strings.NewReader(""), stdout: &bytes.Buffer{}, stderr: &bytes.Buffer{}}
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			if sub.Name() == "help" || sub.Name() == "completion" {
				continue
			}
			if sub.Short == "" || !strings.Contains(sub.Example, "hindsight ") {
				t.Errorf("%q has no short text or no example", sub.CommandPath())
			}
			if sub.InheritedFlags().Lookup("json") == nil {
				t.Errorf("%q has no --json", sub.CommandPath())
			}
			visit(sub)
		}
	}
	visit(a.root())
}

// TestEveryBaselineNamesACommandThatThereIs: a flag that is renamed or taken away is told here, not at the end of
// continuous integration.
func TestEveryBaselineNamesACommandThatThereIs(t *testing.T) {
	t.Parallel()
	baselines, err := evaluate.ReadBaselines(filepath.Join("..", "..", defaultBaselines))
	if err != nil {
		t.Fatal(err)
	}
	if len(baselines) == 0 {
		t.Fatal("there are no baselines")
	}
	for _, b := range baselines {
		a := &app{getenv: func(string) string { return "" }, stdin: strings.NewReader(""), stdout: &bytes.Buffer{}, stderr: &bytes.Buffer{}}
		command, rest, err := a.root().Find(append(slices.Clone(b.Run), "--json"))
		if err != nil {
			t.Errorf("%s: %v", b.Name(), err)
			continue
		}
		if err := command.ParseFlags(rest); err != nil {
			t.Errorf("%s: %s: %v", b.Name(), command.CommandPath(), err)
			continue
		}
		if err := command.ValidateArgs(command.Flags().Args()); err != nil {
			t.Errorf("%s: %s: %v", b.Name(), command.CommandPath(), err)
		}
		for _, file := range command.Flags().Args() {
			if filepath.Ext(file) == "" {
				continue // A suite's name.
			}
			if _, err := os.Stat(filepath.Join("..", "..", file)); err != nil {
				t.Errorf("%s: %v", b.Name(), err)
			}
		}
	}
}
