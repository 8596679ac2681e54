package simulate_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/hindsight-memory/hindsight/"

// TestTheAgentKnowsNothing reads the imports of every package of the simulation: none knows how the product learns or
// recalls, and the agent cannot see the world with its failure classes.
func TestTheAgentKnowsNothing(t *testing.T) {
	t.Parallel()
	// What each package may import of ours; the one that runs the product has a list of what it may not.
	allowed := map[string][]string{
		"script": {}, "agent": {"internal/evaluate/simulate/script"}, "world": {"internal/evaluate/simulate/script"},
	}
	forbidden := []string{"internal/reflect", "internal/recall", "internal/consolidate"}
	seen := map[string]bool{}
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		dir := filepath.Dir(path)
		seen[dir] = true
		for _, spec := range file.Imports {
			name, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			ours, is := strings.CutPrefix(name, module)
			if !is {
				continue
			}
			if list, closed := allowed[dir]; closed && !slices.Contains(list, ours) {
				t.Errorf("%s imports %s", path, ours)
			}
			if slices.ContainsFunc(forbidden, func(f string) bool { return ours == f || strings.HasPrefix(ours, f+"/") }) {
				t.Errorf("%s imports %s", path, ours)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{".", "agent", "script", "world"} {
		if !seen[dir] {
			t.Errorf("no file of package %s was read", dir)
		}
	}
}
