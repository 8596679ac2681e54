package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"
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
