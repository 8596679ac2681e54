package deploy_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
)

// documented are the lines of docs/operate.md that a person types to use containers.
func documented(t *testing.T) []string {
	t.Helper()
	raw, err := os.ReadFile("../docs/operate.md")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, block := range regexp.MustCompile("(?s)```text\n(.*?)```").FindAllStringSubmatch(string(raw), -1) {
		for line := range strings.Lines(block[1]) {
			if line = strings.TrimSpace(line); strings.HasPrefix(line, "docker ") || strings.HasPrefix(line, "bash deploy/") {
				out = append(out, line)
			}
		}
	}
	return out
}

// TestDocumentedContainerCommands looks whether what the documented lines name is there; those that run a command of ours
// are run by TestServicesOfCompose.
func TestDocumentedContainerCommands(t *testing.T) {
	t.Parallel()
	project := mustCompose(t, passwords())
	stages, _ := dockerfile(t)
	volumes := []string{"hindsight"} // of the one container
	for _, volume := range project.Volumes {
		volumes = append(volumes, volume.Name)
	}
	names := func(line, pattern string) []string {
		var out []string
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(line, -1) {
			out = append(out, m[1])
		}
		return out
	}
	seen := map[string]int{}
	for _, line := range documented(t) {
		for _, name := range names(line, `--scale (\w+)=`) {
			seen["scale"]++
			if service, found := project.Services[name]; !found || len(service.Ports) > 0 {
				t.Errorf("%s: %s can't be scaled", line, name)
			}
		}
		for _, name := range names(line, `-v ([a-z-]+):`) {
			seen["volume"]++
			if !slices.Contains(volumes, name) {
				t.Errorf("%s: there is no volume %s", line, name)
			}
		}
		for _, name := range names(line, `--target ([\w-]+)`) {
			seen["target"]++
			if _, found := instructions.HasStage(stages, name); !found {
				t.Errorf("%s: there is no stage %s", line, name)
			}
		}
		for _, path := range slices.Concat(names(line, `docker build -f (\S+)`), names(line, `^bash (\S+)`), names(line, ` < (\S+)`)) {
			seen["file"]++
			if _, err := os.Stat("../" + path); err != nil {
				t.Errorf("%s: %v", line, err)
			}
		}
	}
	if seen["scale"] < 2 || seen["volume"] < 3 || seen["target"] < 1 || seen["file"] < 3 {
		t.Errorf("too little was found: %v", seen)
	}
}
