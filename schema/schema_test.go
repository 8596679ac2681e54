package schema_test

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/hindsight-memory/hindsight/schema"
)

func TestMigrationsAreNumberedAndCanBeRepeated(t *testing.T) {
	t.Parallel()
	migrations, err := schema.Migrations()
	if err != nil {
		t.Fatal(err)
	}
	if len(migrations) < 5 {
		t.Fatalf("got %d migrations, want at least 5", len(migrations))
	}
	repeatable := regexp.MustCompile(`^(CREATE (TABLE|VIEW|MATERIALIZED VIEW) IF NOT EXISTS \w+ /\* ON CLUSTER \*/|CREATE OR REPLACE VIEW \w+ /\* ON CLUSTER \*/|ALTER TABLE \w+ /\* ON CLUSTER \*/ (ADD|MODIFY|DROP) )`)
	comments := regexp.MustCompile(`(?m)^--.*\n`)
	for i, m := range migrations {
		if int(m.Version) != i+1 || len(m.SHA256) != 64 || len(m.Statements) == 0 {
			t.Errorf("migration %d: version %d, checksum %q, %d statements", i+1, m.Version, m.SHA256, len(m.Statements))
		}
		for _, statement := range m.Statements {
			code := comments.ReplaceAllString(statement, "")
			if !repeatable.MatchString(code) {
				t.Errorf("%s: a statement that cannot be repeated, or does not say where the cluster goes: %.80q", m.File(), code)
			}
		}
	}
}

func TestEveryTableOfTheDesignIsThere(t *testing.T) {
	t.Parallel()
	migrations, err := schema.Migrations()
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, m := range migrations {
		all.WriteString(strings.Join(m.Statements, "\n"))
	}
	for _, table := range []string{
		"trace_events", "tasks", "dead_letters", "snapshots", "memories", "rules", "summaries", "item_vectors",
		"item_relations", "rule_votes", "recalls", "feedback", "audit", "consolidation_runs", "archive_manifest", "tombstones",
		"item_terms", "item_texts", "reflections", "access_tokens",
	} {
		if !strings.Contains(all.String(), "CREATE TABLE IF NOT EXISTS "+table+" ") {
			t.Errorf("no table %s", table)
		}
	}
}

func TestRender(t *testing.T) {
	t.Parallel()
	const statement = "CREATE TABLE IF NOT EXISTS a /* ON CLUSTER */ (b String) ENGINE = ReplacingMergeTree(c) ORDER BY b"
	for _, test := range []struct {
		name    string
		variant schema.Variant
		want    string
	}{
		{"single server", schema.Variant{}, "CREATE TABLE IF NOT EXISTS a  (b String) ENGINE = ReplacingMergeTree(c) ORDER BY b"},
		{"replicated cluster", schema.Variant{Cluster: "main", Replicated: true}, "CREATE TABLE IF NOT EXISTS a ON CLUSTER 'main' (b String) ENGINE = ReplicatedReplacingMergeTree(c) ORDER BY b"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if err := test.variant.Validate(); err != nil {
				t.Fatal(err)
			}
			if got := test.variant.Render(statement); got != test.want {
				t.Errorf("got %s\nwant %s", got, test.want)
			}
		})
	}
	if err := (schema.Variant{Cluster: "a' DROP"}).Validate(); err == nil {
		t.Error("a cluster's name with a quote was accepted")
	}
}

func TestEveryEngineCanBeReplicated(t *testing.T) {
	t.Parallel()
	migrations, err := schema.Migrations()
	if err != nil {
		t.Fatal(err)
	}
	variant := schema.Variant{Replicated: true}
	for _, m := range migrations {
		for _, statement := range m.Statements {
			if !strings.Contains(statement, "CREATE TABLE") {
				continue
			}
			if got := variant.Render(statement); strings.Count(got, "ENGINE = Replicated") != 1 {
				t.Errorf("%s: no replicated engine in %.80q", m.File(), got)
			}
		}
	}
}

func TestViewsAreDescribed(t *testing.T) {
	t.Parallel()
	views, err := schema.Views()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, v := range views {
		found[v.Name] = true
		if !strings.HasSuffix(v.Purpose, ".") {
			t.Errorf("view %s: its purpose is no sentence: %q", v.Name, v.Purpose)
		}
		if !strings.HasPrefix(v.Example, "SELECT ") || !strings.Contains(v.Example, v.Name) {
			t.Errorf("view %s: its example does not ask it: %q", v.Name, v.Example)
		}
	}
	for _, name := range []string{
		"v_health", "v_repeat_errors", "v_tool_failures", "v_rule_effect", "v_memory_uplift", "v_recall_quality",
		"v_snapshots", "v_memories", "v_rules", "v_summaries",
	} {
		if !found[name] {
			t.Errorf("no view %s", name)
		}
	}
}

func TestJSONSchemas(t *testing.T) {
	t.Parallel()
	for name, text := range map[string][]byte{"snapshot": schema.SnapshotJSON(), "memory": schema.MemoryJSON(), "rule": schema.RuleJSON()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			compiled := compile(t, text)
			for _, kind := range []string{"valid", "invalid"} {
				files, err := filepath.Glob(filepath.Join("testdata", name, kind, "*.json"))
				if err != nil {
					t.Fatal(err)
				}
				if len(files) < 2 {
					t.Fatalf("only %d %s examples", len(files), kind)
				}
				for _, file := range files {
					raw, err := os.ReadFile(file)
					if err != nil {
						t.Fatal(err)
					}
					example, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
					if err != nil {
						t.Fatalf("%s: %v", file, err)
					}
					if err := compiled.Validate(example); (err == nil) != (kind == "valid") {
						t.Errorf("%s: Validate = %v", file, err)
					}
				}
			}
		})
	}
}

func compile(t *testing.T, text []byte) *jsonschema.Schema {
	t.Helper()
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	object, ok := parsed.(map[string]any)
	if !ok || object["$schema"] != "https://json-schema.org/draft/2020-12/schema" {
		t.Fatalf("the schema does not say that it is of draft 2020-12: %v", object["$schema"])
	}
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	if err := compiler.AddResource("schema.json", parsed); err != nil {
		t.Fatal(err)
	}
	compiled, err := compiler.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return compiled
}

func TestCallersCannotChangeTheSchema(t *testing.T) {
	t.Parallel()
	schema.SnapshotJSON()[0] = 'x'
	if schema.SnapshotJSON()[0] != '{' {
		t.Error("the embedded schema was changed through a returned slice")
	}
}
