package main_test

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/hindsight-memory/hindsight/internal/engine/enginetest"
	"github.com/hindsight-memory/hindsight/schema"
)

var (
	shellBlock = regexp.MustCompile("(?s)```sh\n(.*?)```")
	link       = regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)
)

// testedElsewhere are documented commands that this test does not run as they stand, with the test that does.
var testedElsewhere = map[string]string{
	"make test":               "this is it",
	"make lint":               "run by .ci/run",
	"make fuzz":               "run by .ci/run",
	"make baseline":           "run by .ci/run",
	"make up":                 "TestMakeUp",
	"make test-chaos":         "internal/chaos, in a smaller size",
	"hindsight up":            "every test here",
	"hindsight bench":         "TestBenches",
	"hindsight eval baseline": "run by .ci/run",
	"hindsight eval poison":   "TestEvalPoison",
	"hindsight eval replay":   "TestReplayIsReproducibleAndGoesOn",
	"hindsight eval simulate": "internal/evaluate/simulate, TestEvalSimulate",
	"HINDSIGHT_NATS_URL=nats://nats:4222 HINDSIGHT_CLICKHOUSE_URL=http://clickhouse:8123 ingestor": "TestFullStreamIsBackPressure",
}

// documents lists the pages that a user reads.
func documents(t *testing.T) []string {
	t.Helper()
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	return append(pages, "../../README.md", "../../CONTRIBUTING.md")
}

// TestDocumentedCommands runs every command of the documentation, in its order, in the repository's folder.
func TestDocumentedCommands(t *testing.T) {
	t.Parallel()
	in := newInstallation(t)
	in.start()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	in.run("import", "--namespace", "demo", "--wait", example(t))
	ran := 0
	for _, page := range documents(t) {
		raw, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range shellBlock.FindAllStringSubmatch(string(raw), -1) {
			for line := range strings.Lines(block[1]) {
				line = strings.TrimSpace(line)
				command, _, _ := strings.Cut(line, "  #")
				command = strings.TrimSpace(command)
				if command == "" || skipped(command) {
					continue
				}
				cmd := exec.CommandContext(t.Context(), "bash", "-c", command)
				cmd.Dir, cmd.Env = root, in.env
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("%s: %s\n%v\n%s", filepath.Base(page), command, err, out)
				}
				ran++
			}
		}
	}
	if ran < 10 {
		t.Errorf("only %d documented commands were found", ran)
	}
	in.stop()
}

func skipped(command string) bool {
	for prefix := range testedElsewhere {
		if command == prefix || strings.HasPrefix(command, prefix+" ") {
			return true
		}
	}
	return strings.HasPrefix(command, "export ") || strings.HasPrefix(command, "git clone")
}

func TestDocumentedFilesExist(t *testing.T) {
	t.Parallel()
	for _, page := range documents(t) {
		raw, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(raw), -1) {
			if strings.HasPrefix(m[1], "http") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), m[1])); err != nil {
				t.Errorf("%s links to %s: %v", filepath.Base(page), m[1], err)
			}
		}
	}
}

var update = flag.Bool("update", false, "write the generated pages of the documentation")

// TestSchemaPage keeps docs/schema.md the same as what the migrations say of themselves.
func TestSchemaPage(t *testing.T) {
	t.Parallel()
	const path = "../../docs/schema.md"
	want := schemaPage(t)
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(raw) != want {
		t.Error("docs/schema.md is not what the migrations say: run 'go test ./cmd/hindsight -run TestSchemaPage -update'")
	}
}

var (
	table        = regexp.MustCompile(`(?s)^(?:--[^\n]*\n)*CREATE TABLE IF NOT EXISTS ([a-z_]+)`)
	tableComment = regexp.MustCompile(`(?m)^COMMENT '((?:[^']|'')*)'`)
	orderBy      = regexp.MustCompile(`(?m)^ORDER BY (.*)$`)
)

// schemaPage writes docs/schema.md from the migrations.
func schemaPage(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("# Tables and views\n\n<!-- Generated from the migrations; a test keeps it so. -->\n\n" +
		"Everything is in the database `hindsight` (`HINDSIGHT_CLICKHOUSE_DATABASE`). Ask with `hindsight sql`, or with any ClickHouse client\n" +
		"on the HTTP port. Rows are never updated in place: read tables `FINAL`, or ask the views, which count every event and\n" +
		"task once. `hindsight sql \"DESCRIBE TABLE tasks\"` shows the columns with what they mean.\n\n" +
		"## Tables\n\n| table | what | key |\n|---|---|---|\n")
	migrations, err := schema.Migrations()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range migrations {
		for _, statement := range m.Statements {
			name := table.FindStringSubmatch(statement)
			comment := tableComment.FindStringSubmatch(statement)
			key := orderBy.FindStringSubmatch(statement)
			if name != nil && comment != nil && key != nil {
				b.WriteString("| `" + name[1] + "` | " + strings.ReplaceAll(comment[1], "''", "'") + " | `" + strings.Trim(key[1], "()") + "` |\n")
			}
		}
	}
	b.WriteString("\n## Views\n")
	views, err := schema.Views()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range views {
		b.WriteString("\n### `" + v.Name + "`\n\n" + strings.TrimSpace(v.Purpose) + "\n\n```sql\n" + strings.TrimSpace(v.Example) + "\n```\n")
	}
	return b.String()
}

// TestMakeUp runs the first of the two commands as a stranger would, on free ports.
func TestMakeUp(t *testing.T) {
	t.Parallel()
	in := newInstallation(t)
	cmd := exec.CommandContext(t.Context(), "make", "-C", "../..", "up", "BIN="+filepath.Join(in.dir, "bin"))
	cmd.Env = in.env
	log := &enginetest.Log{}
	in.log = log
	cmd.Stderr, cmd.Stdout = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	in.waitFor(func() error {
		select {
		case err := <-done:
			t.Fatalf("make up ended: %v\n%s", err, log)
		default:
		}
		return httpOK(in.health + "/readyz")
	})
	in.run("import", "--namespace", "demo", "--wait", example(t))
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	t.Logf("make ended: %v", <-done)
}

// TestBenches runs the benches small: that they work and print every figure, not how fast it is.
func TestBenches(t *testing.T) {
	t.Parallel()
	in := newInstallation(t)
	type bench struct {
		Suite   string             `json:"suite"`
		Figures map[string]float64 `json:"figures"`
	}
	got := parse[bench](t, in.run("bench", "ingest", "--events", "6000", "--json"))
	for _, name := range []string{"events_per_second", "raw_jetstream_per_second", "raw_clickhouse_per_second", "ratio_to_slower_engine", "resident_peak_bytes"} {
		if got.Figures[name] <= 0 {
			t.Errorf("bench ingest: %s = %v", name, got.Figures[name])
		}
	}
	got = parse[bench](t, in.run("bench", "recall", "--sizes", "300", "--questions", "10", "--json"))
	for _, name := range []string{"recall_300_p50_ms", "check_300_p99_ms", "raw_vector_search_300_p50_ms", "ratio_recall_300_to_raw", "recall_300_first_item_fits_ratio", "check_300_known_ratio"} {
		if got.Figures[name] <= 0 {
			t.Errorf("bench recall: %s = %v", name, got.Figures[name])
		}
	}
	for suite, args := range map[string][]string{
		"reflect":     {"--sizes", "60"},
		"consolidate": {"--sizes", "100"},
		"mcp":         {"--sizes", "60", "--questions", "3"},
		"footprint":   {"--events", "3000"},
	} {
		got = parse[bench](t, in.run(append([]string{"bench", suite, "--json", "--json-dir", filepath.Join(in.dir, "bench")}, args...)...))
		for _, name := range map[string][]string{
			"reflect":     {"reflect_60_tasks_per_second", "ratio_reflect_60_to_raw_inserts", "snapshots_60_per_task"},
			"consolidate": {"merge_100_seconds", "ratio_merge_100_to_raw_read", "ratio_induce_100_to_raw_read"},
			"mcp":         {"ratio_retrieve_similar_60_to_in_process", "ratio_check_action_60_to_in_process", "tools_list_tokens"},
			"footprint":   {"resident_rest_bytes", "program_bytes", "ratio_record_to_json", "ratio_folder_to_json"},
		}[suite] {
			if got.Figures[name] <= 0 {
				t.Errorf("bench %s: %s = %v", suite, name, got.Figures[name])
			}
		}
	}
	page := in.run("bench", "page", filepath.Join(in.dir, "bench"))
	if strings.Count(page, "Measured on 2") != 4 || strings.Count(page, "Not measured for this page.") != 3 {
		t.Errorf("the page of four suites:\n%s", page)
	}
	for _, args := range [][]string{{"all", "--page", "x"}, {"mcp", "--sizes", "0"}, {"nothing"}, {"page"}} {
		if r := in.try("", append([]string{"bench"}, args...)...); r.code != 2 {
			t.Errorf("bench %q ended with %d, want 2: %s", args, r.code, r.stderr)
		}
	}
	got = parse[bench](t, in.run("bench", "startup", "--json"))
	for _, name := range []string{"ready_seconds", "first_lesson_seconds", "resident_rest_bytes"} {
		if got.Figures[name] <= 0 {
			t.Errorf("bench startup: %s = %v", name, got.Figures[name])
		}
	}
}
