package main_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hindsight-memory/hindsight/internal/evaluate"
)

func testFile(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("../../internal/evaluate/testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// TestSuitesByTheModel runs the suites that need the real embedding model and nothing else.
func TestSuitesByTheModel(t *testing.T) {
	t.Parallel()
	in := newInstallation(t)
	page := filepath.Join(in.dir, "page.html")
	for name, want := range map[string]string{"situations.jsonl": "accuracy", "merge.jsonl": "precision", "embeddings.json": "mrr"} {
		suite, _, _ := strings.Cut(name, ".")
		first := parse[evaluate.Report](t, in.run("eval", suite, "--json", "--html", page, testFile(t, name)))
		if first.Suite != suite || first.Figures[want] <= 0.4 || first.Figures[want] > 1 {
			t.Errorf("%s: %+v", suite, first)
		}
		again := in.run("eval", suite, "--json", testFile(t, name))
		if second := parse[evaluate.Report](t, again); second.Figures[want] != first.Figures[want] {
			t.Errorf("%s: %v, and from kept vectors %v", suite, first.Figures[want], second.Figures[want])
		}
		raw, err := os.ReadFile(page)
		if err != nil || !strings.Contains(string(raw), "hindsight eval "+suite) {
			t.Errorf("%s: the page: %v", suite, err)
		}
	}
	kept, err := filepath.Glob(filepath.Join(in.dir, "data", "eval", "vectors", "*", "*", "*"))
	if err != nil || len(kept) < 20 {
		t.Errorf("%d kept vectors, %v", len(kept), err)
	}
	for _, args := range [][]string{{"--fail-under", "accuracy=1.1"}, {}} {
		want := len(args) / 2
		if r := in.try("", append([]string{"eval", "situations", testFile(t, "situations.jsonl")}, args...)...); r.code != want {
			t.Errorf("%v ended with %d, want %d: %s", args, r.code, want, r.stderr)
		}
	}
	for _, args := range [][]string{
		{"situations"},
		{"situations", "--fail-under", "accuracy", "x"},
		{"situations", "--fail-under", "nothing=1", testFile(t, "situations.jsonl")},
		{"poison", "--made", "0"},
		{"poison", "--embedder", "other"},
		{"uplift", "--effect", "0"},
		{"uplift", "--share", "1"},
		{"reflection"},
	} {
		if r := in.try("", append([]string{"eval"}, args...)...); r.code != 2 {
			t.Errorf("eval %q ended with %d, want 2: %s", args, r.code, r.stderr)
		}
	}
	if r := in.try("", "eval", "merge", in.writeFile("bad.jsonl", "no\n")); r.code != 1 || !strings.Contains(r.stderr, "line 1") {
		t.Errorf("a file without a line that can be read: %d, %s", r.code, r.stderr)
	}
}

// TestSuitesOfAnInstallation asks a running one.
func TestSuitesOfAnInstallation(t *testing.T) {
	t.Parallel()
	in := newInstallation(t)
	in.start()
	in.run("import", "--namespace", "demo", "--wait", example(t))
	r := parse[evaluate.Report](t, in.run("eval", "recall", "--json", "--fail-under", "hit5=0.6", testFile(t, "questions.yaml")))
	if r.Figures["questions"] != 3 || r.Figures["tokens_mean"] <= 0 || r.Figures["unexpected_shown"] != 0 {
		t.Errorf("%+v", r)
	}
	if n := in.sql("SELECT count() FROM recalls"); n != "0" {
		t.Errorf("%s questions were recorded as recalls", n)
	}
	missing := in.writeFile("missing.yaml", "- {namespace: demo, question: refund an order, expect: [not to be found anywhere]}\n")
	r = parse[evaluate.Report](t, in.run("eval", "recall", "--json", missing))
	if r.Figures["missed_not_found"] != 1 || r.Figures["hit5"] != 0 {
		t.Errorf("%+v", r)
	}
	if e := in.try("", "eval", "recall", "--fail-under", "hit5=0.1", missing); e.code != 1 || !strings.Contains(e.stderr, "hit5 is 0.000") {
		t.Errorf("exit %d, %s", e.code, e.stderr)
	}
	if out := in.run("eval", "uplift", "--namespace", "demo"); !strings.Contains(out, "no control group: nothing can be claimed") {
		t.Errorf("uplift without a control group says %s", out)
	}
	in.stop()
}

// TestEvalReflection lets the program reflect runs whose root causes are known: a call, and a message after all calls.
func TestEvalReflection(t *testing.T) {
	t.Parallel()
	in := newInstallation(t)
	r := parse[evaluate.Report](t, in.run("eval", "reflection", "--json", testFile(t, "labelled.jsonl")))
	for name, want := range map[string]float64{
		"runs": 3, "runs_with_root_cause": 2, "root_cause_found": 0.5, "root_cause_ceiling": 0.5, "category_wrong_parameter_found": 1, "category_gave_up_ceiling": 0,
	} {
		if r.Figures[name] != want {
			t.Errorf("%s = %v, want %v", name, r.Figures[name], want)
		}
	}
}

// TestEvalPoison plants by every door, and checks that what was planted arrives: harmless experiences are shown by the doors
// that store them, and known attacks by the wording of agents are not.
func TestEvalPoison(t *testing.T) {
	t.Parallel()
	in := newInstallation(t)
	page := filepath.Join(in.dir, "poison.html")
	r := parse[evaluate.Report](t, in.run("eval", "poison", "--embedder", "none", "--made", "1", "--json", "--html", page))
	if r.Seed != 1 || r.Figures["poisoned"] != 8 || r.Figures["harmless"] != 8 {
		t.Errorf("%+v", r)
	}
	for _, door := range []string{"import", "memory_write", "store_snapshot", "tool_output", "document"} {
		for _, name := range []string{"attack_success_", "false_quarantine_", "harmless_shown_"} {
			if v, there := r.Figures[name+door]; !there || v < 0 || v > 1 {
				t.Errorf("%s%s = %v, %v", name, door, v, there)
			}
		}
	}
	if r.Figures["harmless_shown_memory_write"] < 0.5 || r.Figures["harmless_shown_import"] < 0.5 {
		t.Errorf("what was planted is not found: %v", r.Figures)
	}
	if raw, err := os.ReadFile(page); err != nil || !strings.Contains(string(raw), "hindsight eval poison --made=1 --seed=1") {
		t.Errorf("the page: %v", err)
	}
}
