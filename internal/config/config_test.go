package config_test

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hindsight-memory/hindsight/internal/config"
)

// environment is what a process was given; a data directory of its own keeps the settings of the machine out.
type environment map[string]string

func (e environment) get(name string) string { return e[name] }

func load(t *testing.T, env environment) (*config.Config, error) {
	t.Helper()
	all := environment{"HINDSIGHT_DATA_DIR": t.TempDir()}
	maps.Copy(all, env)
	return config.Load(all.get)
}

// file writes a settings file and returns the environment that names it.
func file(t *testing.T, text string) environment {
	t.Helper()
	path := filepath.Join(t.TempDir(), "settings.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return environment{"HINDSIGHT_CONFIG": path}
}

// setting returns one line of `hindsight config`.
func setting(t *testing.T, c *config.Config, name string) config.Setting {
	t.Helper()
	for _, s := range c.Settings() {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("no setting %s", name)
	return config.Setting{}
}

func TestDefaults(t *testing.T) {
	t.Setenv("HOME", t.TempDir()) // there is no settings file in it
	c, err := config.Load(environment{}.get)
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(os.Getenv("HOME"), ".hindsight"); c.DataDir != want {
		t.Errorf("DataDir %q, want %q", c.DataDir, want)
	}
	if c.Namespace != "default" || c.Bind != "127.0.0.1" || c.NATSPort != 4222 || c.ClickHousePort != 8123 || c.ConsolePort != 8780 ||
		c.HealthPort != 8781 || c.Database != "hindsight" || c.TaskIdle != 15*time.Minute || c.TaskQuiet != 2*time.Second ||
		c.SweepInterval != time.Second || c.IngestBatch != 10000 || c.Replicas != 1 || c.LogLevel != "info" ||
		c.TracesMaxBytes != 1<<30 || c.ClickHouseMaxMemory != 1<<30 {
		t.Errorf("defaults %+v", c)
	}
	if c.NATSAddress() != "nats://127.0.0.1:4222" || c.ClickHouseAddress() != "http://127.0.0.1:8123" {
		t.Errorf("addresses %s and %s", c.NATSAddress(), c.ClickHouseAddress())
	}
	for _, s := range c.Settings() {
		if s.Source != "default" {
			t.Errorf("%s comes from %q", s.Name, s.Source)
		}
		if s.Value != s.Default && s.Name != "HINDSIGHT_DATA_DIR" && !strings.HasPrefix(s.Name, "HINDSIGHT_TASK_") && s.Name != "HINDSIGHT_SWEEP_INTERVAL" {
			t.Errorf("%s is %q, by default %q", s.Name, s.Value, s.Default)
		}
	}
}

func TestTheLaterSourceWins(t *testing.T) {
	t.Parallel()
	env := file(t, "nats:\n  port: 4333\n  url: nats://elsewhere:1\nclickhouse.port: 8333\ntask:\n  idle: 3m\nnamespace: acme.support\n")
	path := env["HINDSIGHT_CONFIG"]
	env["HINDSIGHT_CLICKHOUSE_PORT"], env["HINDSIGHT_TASK_QUIET"], env["HINDSIGHT_LOG_LEVEL"] = "8444", "50ms", ""
	c, err := load(t, env)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][2]string{
		"HINDSIGHT_NATS_PORT":       {"4333", path},
		"HINDSIGHT_NATS_URL":        {"nats://elsewhere:1", path},
		"HINDSIGHT_TASK_IDLE":       {"3m0s", path},
		"HINDSIGHT_NAMESPACE":       {"acme.support", path},
		"HINDSIGHT_CLICKHOUSE_PORT": {"8444", "environment"},
		"HINDSIGHT_TASK_QUIET":      {"50ms", "environment"},
		"HINDSIGHT_DATA_DIR":        {c.DataDir, "environment"},
		"HINDSIGHT_LOG_LEVEL":       {"info", "default"},
		"HINDSIGHT_CONSOLE_PORT":    {"8780", "default"},
	} {
		if got := setting(t, c, name); got.Value != want[0] || got.Source != want[1] {
			t.Errorf("%s is %q from %q, want %q from %q", name, got.Value, got.Source, want[0], want[1])
		}
	}
	if c.NATSAddress() != "nats://elsewhere:1" || c.ClickHouseAddress() != "http://127.0.0.1:8444" || c.TaskIdle != 3*time.Minute {
		t.Errorf("%+v", c)
	}
}

func TestTheFileOfTheDataDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	env := environment{"HINDSIGHT_DATA_DIR": dir}
	if c, err := config.Load(env.get); err != nil || c.Namespace != "default" {
		t.Fatalf("without the file: %v", err)
	}
	path := filepath.Join(dir, "hindsight.yaml")
	if err := os.WriteFile(path, []byte("namespace: acme\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(env.get)
	if err != nil {
		t.Fatal(err)
	}
	if got := setting(t, c, "HINDSIGHT_NAMESPACE"); got.Value != "acme" || got.Source != path {
		t.Errorf("namespace %q from %q", got.Value, got.Source)
	}
}

func TestAFileThatIsNamedMustExist(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "missing.yaml")
	_, err := load(t, environment{"HINDSIGHT_CONFIG": path})
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), path) {
		t.Errorf("Load = %v, want that %s is missing", err, path)
	}
	if _, err := load(t, environment{"HINDSIGHT_CONFIG": t.TempDir()}); err == nil {
		t.Error("a directory was taken for a settings file")
	}
}

func TestHomeIsExpanded(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	if err := os.WriteFile(filepath.Join(home, "mine.yaml"), []byte("engines:\n  dir: ~/engines\n  chdb_library: ~/lib/libchdb.so\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for given, want := range map[string]string{
		"~": home, "~/data": home + "/data", "~other/data": "~other/data", "/~/data": "/~/data", "data/~": "data/~",
	} {
		c, err := config.Load(environment{"HINDSIGHT_DATA_DIR": given, "HINDSIGHT_CONFIG": "~/mine.yaml"}.get)
		if err != nil {
			t.Fatal(err)
		}
		if c.DataDir != want {
			t.Errorf("%q becomes %q, want %q", given, c.DataDir, want)
		}
		if c.EnginesDir != home+"/engines" || c.ChDBLibrary != home+"/lib/libchdb.so" {
			t.Errorf("engines %q and %q", c.EnginesDir, c.ChDBLibrary)
		}
	}
}

func TestBadValuesOfTheEnvironment(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, value, want string }{
		{"HINDSIGHT_TASK_IDLE", "15", "duration such as 90s or 15m"},
		{"HINDSIGHT_TASK_IDLE", "soon", "duration such as 90s or 15m"},
		{"HINDSIGHT_TASK_IDLE", "999ms", "at least 1s"},
		{"HINDSIGHT_TASK_QUIET", "-2s", "at least 10ms"},
		{"HINDSIGHT_SWEEP_INTERVAL", "0s", "at least 10ms"},
		{"HINDSIGHT_NATS_PORT", "4222x", "a whole number"},
		{"HINDSIGHT_NATS_PORT", "0", "at least 1"},
		{"HINDSIGHT_NATS_PORT", "65536", "at most 65535"},
		{"HINDSIGHT_NATS_REPLICAS", "6", "at most 5"},
		{"HINDSIGHT_INGEST_BATCH", "50001", "at most 50000"},
		{"HINDSIGHT_TRACES_MAX_BYTES", "1GB", "a whole number"},
		{"HINDSIGHT_TRACES_MAX_BYTES", "1000", "at least 1048576"},
		{"HINDSIGHT_CLICKHOUSE_MAX_MEMORY", "99999999999999999999", "a whole number"},
		{"HINDSIGHT_NAMESPACE", "Acme", "tenant or tenant.team"},
		{"HINDSIGHT_NAMESPACE", "a.b.c", "tenant or tenant.team"},
		{"HINDSIGHT_LOG_LEVEL", "verbose", "debug, info, warn or error"},
		{"HINDSIGHT_CLICKHOUSE_DATABASE", "default", "not 'default'"},
		{"HINDSIGHT_CLICKHOUSE_DATABASE", "a-b", "a-z, 0-9 and _"},
	} {
		t.Run(test.name+"="+test.value, func(t *testing.T) {
			t.Parallel()
			c, err := load(t, environment{test.name: test.value})
			if !errors.Is(err, config.ErrInvalid) || c != nil {
				t.Fatalf("Load = %v, want ErrInvalid", err)
			}
			for _, part := range []string{test.name, test.value, "environment", test.want} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not say %q", err, part)
				}
			}
		})
	}
}

func TestBadFiles(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, text, want string }{
		{"unknown key", "nats:\n  prot: 4222\n", `"nats.prot"`},
		{"unknown section", "natz:\n  port: 4222\n", `"natz"`},
		{"unknown key without a value", "natz:\n", `"natz"`},
		{"a section with a value", "nats: 4222\n", `"nats"`},
		{"a value with keys", "namespace:\n  tenant: acme\n", "namespace must have a single value"},
		{"an anchor that contains itself", "nats: &a\n  b: *a\n", `"nats.b"`},
		{"a list", "data_dir: [a, b]\n", "data_dir must have a single value"},
		{"twice", "nats.port: 1\nnats:\n  port: 2\n", "nats.port is given twice"},
		{"twice in one map", "namespace: a\nnamespace: b\n", "namespace"},
		{"twice in a section", "nats:\n  port: 1\n  port: 2\n", "port"},
		{"no YAML", "nats: [\n", "not YAML"},
		{"no keys", "just a text\n", "not YAML of keys and values"},
		{"bad value", "task:\n  idle: 15\n", `task.idle="15"`},
		{"bad namespace", "namespace: Acme\n", `namespace="Acme"`},
		{"bad number", "nats:\n  port: 1e3\n", `nats.port="1e3"`},
		{"out of range", "nats:\n  replicas: 9\n", "at most 5"},
		{"bad database", "clickhouse:\n  database: \"\"\n", `clickhouse.database=""`},
		{"bad level", "log:\n  level: loud\n", `log.level="loud"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			env := file(t, test.text)
			_, err := load(t, env)
			if !errors.Is(err, config.ErrInvalid) {
				t.Fatalf("Load = %v, want ErrInvalid", err)
			}
			for _, part := range []string{env["HINDSIGHT_CONFIG"], test.want} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not say %q", err, part)
				}
			}
		})
	}
}

func TestFilesThatAreFine(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, text, setting, want string }{
		{"empty", "", "HINDSIGHT_NAMESPACE", "default"},
		{"a comment", "# nothing yet\n", "HINDSIGHT_NAMESPACE", "default"},
		{"an empty section", "nats:\ntask: {}\n", "HINDSIGHT_NATS_PORT", "4222"},
		{"a key without a value", "nats:\n  url:\n  port: ~\n", "HINDSIGHT_NATS_URL", ""},
		{"an empty text", "clickhouse:\n  url: \"\"\n", "HINDSIGHT_CLICKHOUSE_URL", ""},
		{"digits stay as they are", "namespace: 0123\n", "HINDSIGHT_NAMESPACE", "0123"},
		{"a date is no date", "namespace: 2026-01-01\n", "HINDSIGHT_NAMESPACE", "2026-01-01"},
		{"nor true a boolean", "namespace: yes\n", "HINDSIGHT_NAMESPACE", "yes"},
		{"quoted numbers", "nats:\n  port: \"4333\"\n", "HINDSIGHT_NATS_PORT", "4333"},
		{"an anchor", "namespace: &n acme\nclickhouse:\n  database: *n\n", "HINDSIGHT_CLICKHOUSE_DATABASE", "acme"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c, err := load(t, file(t, test.text))
			if err != nil {
				t.Fatal(err)
			}
			if got := setting(t, c, test.setting).Value; got != test.want {
				t.Errorf("%s is %q, want %q", test.setting, got, test.want)
			}
		})
	}
}

func TestUnknown(t *testing.T) {
	t.Parallel()
	environ := []string{
		"PATH=/bin", "HINDSIGHT_NATS_PROT=4222", "HINDSIGHT_NATS_PORT=4222", "HINDSIGHT_CONFIG=x", "HINDSIGHT_TEST_DATA=y",
		"HINDSIGHT_IDLE", "MY_HINDSIGHT_X=1",
	}
	if got, want := config.Unknown(environ), []string{"HINDSIGHT_IDLE", "HINDSIGHT_NATS_PROT"}; !slices.Equal(got, want) {
		t.Errorf("Unknown = %q, want %q", got, want)
	}
	if got := config.Unknown(nil); len(got) != 0 {
		t.Errorf("Unknown(nothing) = %q", got)
	}
}

func TestSecretsAreNotShown(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ url, shown string }{
		{"nats://example.com:4222", "nats://example.com:4222"},
		{"nats://agent:topsecret@example.com:4222", "nats://***@example.com:4222"},
		{"nats://topsecret@example.com:4222", "nats://***@example.com:4222"},
		{"agent:topsecret@one:4222, topsecret@two:4222,three:4222", "***@one:4222,***@two:4222,three:4222"},
		{"nats://a:topsecret@one,tls://b:topsecret@two", "nats://***@one,tls://***@two"},
		{"https://agent:top/topsecret@ss@example.com/db", "https://***@example.com/db"},
		{"clickhouse://example.com:9000?username=agent&password=topsecret", ""},
	} {
		t.Run(test.url, func(t *testing.T) {
			t.Parallel()
			c, err := load(t, environment{"HINDSIGHT_NATS_URL": test.url, "HINDSIGHT_CLICKHOUSE_URL": test.url})
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"HINDSIGHT_NATS_URL", "HINDSIGHT_CLICKHOUSE_URL"} {
				got := setting(t, c, name).Value
				if strings.Contains(got, "topsecret") || (test.shown != "" && got != test.shown) {
					t.Errorf("%s is shown as %q, want %q", name, got, test.shown)
				}
			}
			if c.NATSAddress() != test.url || c.ClickHouseAddress() != test.url {
				t.Errorf("the addresses themselves were changed: %s, %s", c.NATSAddress(), c.ClickHouseAddress())
			}
		})
	}
}

// TestEveryFieldIsDocumented keeps a setting from being added without its tags.
func TestEveryFieldIsDocumented(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for f := range reflect.TypeFor[config.Config]().Fields() {
		if !f.IsExported() {
			continue
		}
		for _, tag := range []string{"env", "key", "help"} {
			value := f.Tag.Get(tag)
			if value == "" {
				t.Errorf("%s has no tag %s", f.Name, tag)
			}
			if other, twice := seen[tag+value]; twice {
				t.Errorf("%s and %s have the same %s", f.Name, other, tag)
			}
			seen[tag+value] = f.Name
		}
		// The names of models are shared with other programs, as the design has them.
		if env := f.Tag.Get("env"); !strings.HasPrefix(env, "HINDSIGHT_") && !strings.HasSuffix(env, "_MODEL") {
			t.Errorf("%s: variable %q", f.Name, f.Tag.Get("env"))
		}
		if strings.HasSuffix(f.Name, "URL") && f.Tag.Get("secret") == "" {
			t.Errorf("%s may hold a password and is not secret", f.Name)
		}
	}
	c, err := load(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := len(c.Settings()), reflect.TypeFor[config.Config]().NumField()-1; got != want {
		t.Errorf("Settings lists %d of %d settings", got, want)
	}
}

// Keys are never shown, and one that other programs use counts where no own one is set.
func TestKeys(t *testing.T) {
	t.Parallel()
	c, err := load(t, environment{"OPENAI_API_KEY": "sk-other", "HINDSIGHT_EMBEDDING_API_KEY": "sk-own"})
	if err != nil {
		t.Fatal(err)
	}
	if c.LLMAPIKey != "sk-other" || c.EmbeddingAPIKey != "sk-own" {
		t.Errorf("keys %q and %q", c.LLMAPIKey, c.EmbeddingAPIKey)
	}
	for _, s := range c.Settings() {
		if strings.Contains(s.Value, "sk-") {
			t.Errorf("%s shows a key: %q", s.Name, s.Value)
		}
	}
	if got := setting(t, c, "HINDSIGHT_LLM_API_KEY"); got.Value != "***" || got.Source != "environment" {
		t.Errorf("key shown as %q from %q", got.Value, got.Source)
	}
}

func TestChoicesNumbersAndSchedules(t *testing.T) {
	t.Parallel()
	for name, values := range map[string][2]string{ // a good and a bad one
		"HINDSIGHT_RECALL": {"off", "no"}, "HINDSIGHT_EMBEDDER": {"none", "gpu"}, "HINDSIGHT_MCP_TOOLSET": {"full", "all"},
		"HINDSIGHT_CONTROL_SHARE": {"0.25", "1.5"}, "HINDSIGHT_INDUCE_SCHEDULE": {"@every 5m", "daily"},
	} {
		if _, err := load(t, environment{name: values[0]}); err != nil {
			t.Errorf("%s=%s: %v", name, values[0], err)
		}
		if _, err := load(t, environment{name: values[1]}); !errors.Is(err, config.ErrInvalid) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s=%s: %v, want ErrInvalid naming it", name, values[1], err)
		}
	}
	if _, err := load(t, environment{"HINDSIGHT_CONTROL_SHARE": "NaN"}); !errors.Is(err, config.ErrInvalid) {
		t.Errorf("a share that is no number: %v", err)
	}
}

// FuzzSettingsFile reads whatever the file holds: settings or an error, and never a panic.
func FuzzSettingsFile(f *testing.F) {
	for _, seed := range []string{"", "nats:\n  port: 1\n", "nats: &a\n  b: *a\n", "<<: {namespace: a}\n", "? [a]\n: b\n", "\x00", "namespace: !!binary aGk=\n", "a: !!map b\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := load(t, file(t, text))
		if (c == nil) == (err == nil) {
			t.Fatalf("settings %v and error %v", c, err)
		}
		if c != nil && c.NATSPort < 1 {
			t.Errorf("port %d", c.NATSPort)
		}
	})
}

func TestMilvusAddress(t *testing.T) {
	t.Parallel()
	for value, ok := range map[string]bool{
		"127.0.0.1:19530": true, "milvus:19530": true, "[::1]:19530": true,
		"milvus": false, ":19530": false, "milvus:0": false, "milvus:99999": false, "milvus:port": false,
		"http://milvus:19530": false, "root:Milvus@milvus:19530": false, "milvus:19530/db": false,
	} {
		c, err := load(t, environment{"HINDSIGHT_MILVUS_ADDR": value})
		if ok && (err != nil || c.MilvusAddr != value) {
			t.Errorf("%s: %v", value, err)
		}
		if !ok && (!errors.Is(err, config.ErrInvalid) || !strings.Contains(err.Error(), "127.0.0.1:19530")) {
			t.Errorf("%s: %v, want what it must be like", value, err)
		}
	}
	c, err := load(t, environment{"HINDSIGHT_MILVUS_ADDR": "milvus:19530", "HINDSIGHT_MILVUS_TOKEN": "root:Milvus", "HINDSIGHT_MILVUS_TLS": "on"})
	if err != nil {
		t.Fatal(err)
	}
	if s := setting(t, c, "HINDSIGHT_MILVUS_TOKEN"); s.Value != "***" || c.MilvusToken != "root:Milvus" || c.MilvusTLS != "on" {
		t.Errorf("the token is shown as %q", s.Value)
	}
}
