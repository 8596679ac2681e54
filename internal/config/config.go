// Package config reads the settings of every process: built-in default, then hindsight.yaml, then the environment,
// the later one winning, and remembers where each value came from so that `hindsight config` can say it.
//
// It never connects to anything and never guesses: an unknown key, a value that does not parse or one out of range is
// an error that names the setting and what is allowed.
package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/robfig/cron/v3"
	"go.yaml.in/yaml/v3"

	"github.com/hindsight-memory/hindsight/events"
)

// Version is the version of the programs; it changes with the CHANGELOG.
const Version = "0.1.0-dev"

// ErrInvalid means that a setting can't be used; the message says which one, where it was set, and what is allowed.
var ErrInvalid = errors.New("invalid setting")

// Config holds every setting. The field tags are its documentation: `env` the variable, `key` the place in
// hindsight.yaml, `else` a variable of others that counts when nothing else is set, `default` the built-in value, `help`
// what it means, `min` and `max` the bounds of numbers and durations, `form` what a text must be like (choices are
// separated by |), `secret` that it, or the credentials in it, are never printed.
type Config struct {
	DataDir   string `env:"HINDSIGHT_DATA_DIR" key:"data_dir" default:"~/.hindsight" form:"path" help:"folder of the embedded engines' data"`
	Namespace string `env:"HINDSIGHT_NAMESPACE" key:"namespace" default:"default" form:"namespace" help:"namespace of commands that are given none"`
	Bind      string `env:"HINDSIGHT_BIND" key:"bind" default:"127.0.0.1" help:"address that health and metrics listen on; the embedded engines stay on loopback"`

	NATSPort       int `env:"HINDSIGHT_NATS_PORT" key:"nats.port" default:"4222" min:"1" max:"65535" help:"port of the embedded NATS"`
	ClickHousePort int `env:"HINDSIGHT_CLICKHOUSE_PORT" key:"clickhouse.port" default:"8123" min:"1" max:"65535" help:"HTTP port of the embedded ClickHouse"`
	ConsolePort    int `env:"HINDSIGHT_CONSOLE_PORT" key:"console.port" default:"8780" min:"1" max:"65535" help:"port of health and metrics of 'hindsight up'"`
	HealthPort     int `env:"HINDSIGHT_HEALTH_PORT" key:"health.port" default:"8781" min:"1" max:"65535" help:"port of health and metrics of a process that runs alone, such as the ingestor"`

	NATSURL       string `env:"HINDSIGHT_NATS_URL" key:"nats.url" secret:"url" help:"NATS server to use instead of the embedded one"`
	ClickHouseURL string `env:"HINDSIGHT_CLICKHOUSE_URL" key:"clickhouse.url" secret:"url" help:"ClickHouse server to use instead of the embedded one, http(s):// or clickhouse://"`
	Database      string `env:"HINDSIGHT_CLICKHOUSE_DATABASE" key:"clickhouse.database" default:"hindsight" form:"database" help:"ClickHouse database that holds everything"`

	MilvusAddr   string `env:"HINDSIGHT_MILVUS_ADDR" key:"milvus.addr" form:"hostport" help:"Milvus server that holds the vector index, host:port; empty: the index is in ClickHouse"`
	MilvusToken  string `env:"HINDSIGHT_MILVUS_TOKEN" key:"milvus.token" secret:"key" help:"how to log in to Milvus: user:password, or an API key"`
	MilvusTLS    string `env:"HINDSIGHT_MILVUS_TLS" key:"milvus.tls" default:"off" form:"on|off" help:"whether the connection to Milvus is encrypted"`
	MilvusPrefix string `env:"HINDSIGHT_MILVUS_PREFIX" key:"milvus.prefix" default:"hindsight" form:"database" help:"what the names of our collections in Milvus begin with, so that several installations can share a server"`

	EnginesDir  string `env:"HINDSIGHT_ENGINES_DIR" key:"engines.dir" form:"path" help:"folder with the engine libraries that 'make setup' fetched; empty looks for .engines"`
	ChDBLibrary string `env:"HINDSIGHT_CHDB_LIBRARY" key:"engines.chdb_library" form:"path" help:"libchdb.so itself, instead of looking for it"`

	TracesMaxBytes      int64         `env:"HINDSIGHT_TRACES_MAX_BYTES" key:"nats.traces_max_bytes" default:"1073741824" min:"1048576" help:"size of the stream TRACES in bytes; a full stream is back-pressure to publishers"`
	Replicas            int           `env:"HINDSIGHT_NATS_REPLICAS" key:"nats.replicas" default:"1" min:"1" max:"5" help:"copies that JetStream keeps of each stream; 3 on a cluster"`
	ClickHouseMaxMemory int64         `env:"HINDSIGHT_CLICKHOUSE_MAX_MEMORY" key:"clickhouse.max_memory_bytes" default:"1073741824" min:"268435456" help:"memory that the embedded ClickHouse may use, in bytes"`
	IngestBatch         int           `env:"HINDSIGHT_INGEST_BATCH" key:"ingest.batch" default:"10000" min:"1" max:"50000" help:"events written in one insert at most"`
	TaskIdle            time.Duration `env:"HINDSIGHT_TASK_IDLE" key:"task.idle" default:"15m" min:"1s" help:"silence after which an unfinished task is closed"`
	TaskQuiet           time.Duration `env:"HINDSIGHT_TASK_QUIET" key:"task.quiet" default:"2s" min:"10ms" help:"silence after which a finished task is closed, so that late events still belong to it"`
	SweepInterval       time.Duration `env:"HINDSIGHT_SWEEP_INTERVAL" key:"task.sweep_interval" default:"1s" min:"10ms" help:"pause between two looks for tasks to close"`
	ReflectConcurrency  int           `env:"HINDSIGHT_REFLECT_CONCURRENCY" key:"reflect.concurrency" default:"2" min:"1" max:"64" help:"tasks that one reflector works on at once"`
	LogLevel            string        `env:"HINDSIGHT_LOG_LEVEL" key:"log.level" default:"info" form:"level" help:"debug, info, warn or error"`

	LLMBaseURL      string `env:"HINDSIGHT_LLM_BASE_URL" key:"llm.base_url" secret:"url" help:"OpenAI-compatible endpoint for reflection, such as https://host/v1; empty: the evidence critic alone reflects"`
	LLMAPIKey       string `env:"HINDSIGHT_LLM_API_KEY" else:"OPENAI_API_KEY" key:"llm.api_key" secret:"key" help:"key of the endpoint for reflection"`
	ReflectionModel string `env:"REFLECTION_MODEL" key:"llm.reflection_model" help:"model that reflects; needed with an endpoint"`

	Embedder         string `env:"HINDSIGHT_EMBEDDER" key:"embedding.embedder" default:"auto" form:"auto|local|endpoint|none" help:"what turns texts into vectors: local model, endpoint, none (search by words only), or auto: the endpoint if there is one, else the local model if it is there"`
	EmbeddingBaseURL string `env:"HINDSIGHT_EMBEDDING_BASE_URL" key:"embedding.base_url" secret:"url" help:"OpenAI-compatible endpoint for embeddings"`
	EmbeddingAPIKey  string `env:"HINDSIGHT_EMBEDDING_API_KEY" else:"OPENAI_API_KEY" key:"embedding.api_key" secret:"key" help:"key of the endpoint for embeddings"`
	EmbeddingModel   string `env:"EMBEDDING_MODEL" key:"embedding.model" help:"model of the endpoint for embeddings"`
	EmbeddingCache   string `env:"HINDSIGHT_EMBEDDING_CACHE" key:"embedding.cache" form:"path" help:"folder that keeps every vector by the hash of its text, and only grows; for evaluations, which use eval/vectors below HINDSIGHT_DATA_DIR unless it is set; otherwise empty keeps none"`

	Recall         string        `env:"HINDSIGHT_RECALL" key:"recall.enabled" default:"on" form:"on|off" help:"off answers every question with nothing"`
	ControlShare   float64       `env:"HINDSIGHT_CONTROL_SHARE" key:"recall.control_share" default:"0" min:"0" max:"1" help:"share of sessions, 0 to 1, from which lessons and rules are withheld, so that their effect can be measured"`
	RecallDeadline time.Duration `env:"HINDSIGHT_RECALL_DEADLINE" key:"recall.deadline" default:"2s" min:"50ms" help:"time after which a search that has not answered is left out of an answer"`

	MCPPort    int    `env:"HINDSIGHT_MCP_PORT" key:"mcp.port" default:"8765" min:"1" max:"65535" help:"port of the MCP server, at /mcp"`
	MCPToolset string `env:"HINDSIGHT_MCP_TOOLSET" key:"mcp.toolset" default:"core" form:"core|full|compat" help:"tools that the MCP server offers: core (8 tools), full, or compat (other names for the same functions)"`
	MCPURL     string `env:"HINDSIGHT_MCP_URL" key:"mcp.url" secret:"url" help:"MCP server that 'mcp --stdio' passes calls on to; empty: the one on this machine"`
	Token      string `env:"HINDSIGHT_TOKEN" key:"mcp.token" secret:"key" help:"access token that 'mcp --stdio' presents; see 'hindsight token create'"`

	MergeSchedule       string `env:"HINDSIGHT_MERGE_SCHEDULE" key:"consolidate.merge" default:"@every 1m" form:"schedule" help:"when lessons that say the same are merged (cron, or @every 1m)"`
	InduceSchedule      string `env:"HINDSIGHT_INDUCE_SCHEDULE" key:"consolidate.induce" default:"0 3 * * *" form:"schedule" help:"when rules are drawn from what recurs (cron, UTC)"`
	ConsistencySchedule string `env:"HINDSIGHT_CONSISTENCY_SCHEDULE" key:"consolidate.consistency" default:"@every 10m" form:"schedule" help:"when the vector index is brought up to what the record holds (cron, or @every 10m)"`

	sources map[string]string
}

// Setting is one line of `hindsight config`.
type Setting struct {
	Name    string `json:"name"`
	Key     string `json:"key"`
	Value   string `json:"value"`
	Default string `json:"default"`
	// Source is "default", "environment" or the path of the file.
	Source string `json:"source"`
	Help   string `json:"help"`
}

// fileVariable names the settings file; it can't be in the file itself.
const fileVariable = "HINDSIGHT_CONFIG"

// Values of [Setting.Source] that are no path.
const (
	fromDefault     = "default"
	fromEnvironment = "environment"
)

// Load reads the settings. getenv is os.Getenv in a program. The file is the one that HINDSIGHT_CONFIG names, else
// hindsight.yaml in the data directory, where it may be absent.
func Load(getenv func(string) string) (*Config, error) {
	c := &Config{sources: map[string]string{}}
	for _, f := range fields() {
		if err := c.set(f, f.Tag.Get("default"), fromDefault); err != nil {
			return nil, err
		}
	}
	path, required := expand(getenv(fileVariable)), true
	if path == "" {
		path, required = filepath.Join(expand(cmp.Or(getenv("HINDSIGHT_DATA_DIR"), c.DataDir)), "hindsight.yaml"), false
	}
	if err := c.readFile(path, required); err != nil {
		return nil, err
	}
	for _, f := range fields() {
		if value := getenv(f.Tag.Get("env")); value != "" {
			if err := c.set(f, value, fromEnvironment); err != nil {
				return nil, err
			}
		}
	}
	for _, f := range fields() { // Variables of others that mean the same count where nobody said otherwise.
		if value := getenv(f.Tag.Get("else")); value != "" && c.sources[f.Tag.Get("env")] == fromDefault {
			if err := c.set(f, value, fromEnvironment); err != nil {
				return nil, err
			}
		}
	}
	return c, nil
}

func (c *Config) readFile(path string, required bool) error {
	raw, err := os.ReadFile(path)
	// A data directory that is no directory is for those to tell who need it.
	if (errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)) && !required {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read settings file: %w", err)
	}
	var tree map[string]yaml.Node
	if err := yaml.Unmarshal(raw, &tree); err != nil {
		return fmt.Errorf("%w: %s is not YAML of keys and values: %w", ErrInvalid, path, err)
	}
	values := map[string]yaml.Node{}
	if err := flatten("", tree, values); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrInvalid, path, err)
	}
	for _, f := range fields() {
		key := f.Tag.Get("key")
		value, found := values[key]
		if !found {
			continue
		}
		delete(values, key)
		switch {
		case value.Kind != yaml.ScalarNode:
			return fmt.Errorf("%w: %s: %s must have a single value", ErrInvalid, path, key)
		case value.ShortTag() == "!!null": // A key without a value sets nothing.
		default:
			if err := c.set(f, value.Value, path); err != nil {
				return err
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		value := values[key]
		if value.ShortTag() == "!!null" && isSection(key) {
			continue
		}
		return fmt.Errorf("%w: %s has the unknown key %q: 'hindsight config' lists the keys", ErrInvalid, path, key)
	}
	return nil
}

// flatten turns the keys of sections into dotted ones, and goes no deeper than there are sections: an anchor may contain
// itself. Values stay as they were written, since YAML would take 0123 or 2026-01-01 for something else than a text.
func flatten(prefix string, tree, into map[string]yaml.Node) error {
	for key, value := range tree {
		key = prefix + key
		if value.Kind == yaml.AliasNode {
			value = *value.Alias
		}
		if value.Kind == yaml.MappingNode && isSection(key) {
			var sub map[string]yaml.Node
			if err := value.Decode(&sub); err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
			if err := flatten(key+".", sub, into); err != nil {
				return err
			}
			continue
		}
		if _, twice := into[key]; twice {
			return fmt.Errorf("%s is given twice", key)
		}
		into[key] = value
	}
	return nil
}

// isSection reports whether keys of settings are below this one.
func isSection(key string) bool {
	return slices.ContainsFunc(fields(), func(f reflect.StructField) bool { return strings.HasPrefix(f.Tag.Get("key"), key+".") })
}

// fields are the settings of [Config] in their order of declaration.
func fields() []reflect.StructField {
	t := reflect.TypeFor[Config]()
	var out []reflect.StructField
	for f := range t.Fields() {
		if f.Tag.Get("env") != "" {
			out = append(out, f)
		}
	}
	return out
}

func (c *Config) set(f reflect.StructField, value, source string) error {
	field := reflect.ValueOf(c).Elem().FieldByIndex(f.Index)
	fail := func(what string) error { return invalid(f, value, source, what) }
	switch {
	case f.Type == reflect.TypeFor[time.Duration]():
		d, err := time.ParseDuration(value)
		if err != nil {
			return fail("it must be a duration such as 90s or 15m")
		}
		if least, err := time.ParseDuration(f.Tag.Get("min")); err == nil && d < least {
			return fail("it must be at least " + least.String())
		}
		field.SetInt(int64(d))
	case f.Type.Kind() == reflect.Int || f.Type.Kind() == reflect.Int64:
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return fail("it must be a whole number")
		}
		if least, err := strconv.ParseInt(f.Tag.Get("min"), 10, 64); err == nil && n < least {
			return fail(fmt.Sprintf("it must be at least %d", least))
		}
		if most, err := strconv.ParseInt(f.Tag.Get("max"), 10, 64); err == nil && n > most {
			return fail(fmt.Sprintf("it must be at most %d", most))
		}
		field.SetInt(n)
	case f.Type.Kind() == reflect.Float64:
		n, err := strconv.ParseFloat(value, 64)
		if err != nil || math.IsNaN(n) {
			return fail("it must be a number")
		}
		least, most := f.Tag.Get("min"), f.Tag.Get("max")
		if low, err := strconv.ParseFloat(least, 64); err == nil && n < low {
			return fail("it must be at least " + least)
		}
		if high, err := strconv.ParseFloat(most, 64); err == nil && n > high {
			return fail("it must be at most " + most)
		}
		field.SetFloat(n)
	default:
		if what := checkForm(f.Tag.Get("form"), value); what != "" {
			return fail(what)
		}
		if f.Tag.Get("form") == "path" {
			value = expand(value)
		}
		field.SetString(value)
	}
	c.sources[f.Tag.Get("env")] = source
	return nil
}

// invalid says which setting can't be used, by the name it was set with, where that was, and what is allowed.
func invalid(f reflect.StructField, value, source, what string) error {
	name := f.Tag.Get("env")
	if source != fromDefault && source != fromEnvironment {
		name = f.Tag.Get("key")
	}
	return fmt.Errorf("%w: %s=%q (from %s): %s", ErrInvalid, name, value, source, what)
}

// checkForm says what a text must be like when it is not, by the tag `form`.
func checkForm(form, value string) string {
	switch form {
	case "namespace":
		if events.ValidateNamespace(value) != nil {
			return "it must be tenant or tenant.team, each 1 to 64 characters of a-z, 0-9, _ and -"
		}
	case "level":
		if !slices.Contains([]string{"debug", "info", "warn", "error"}, value) {
			return "it must be debug, info, warn or error"
		}
	case "database":
		if strings.Trim(value, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" || value == "" || value == "default" {
			return "it must be of a-z, 0-9 and _, and not 'default'"
		}
	case "hostport":
		if value == "" {
			return ""
		}
		host, port, err := net.SplitHostPort(value)
		if n, numErr := strconv.ParseUint(port, 10, 16); err != nil || numErr != nil || n == 0 || host == "" || strings.ContainsAny(host, "/@ ") {
			return "it must be host:port such as 127.0.0.1:19530, without a scheme and without a user"
		}
	case "schedule":
		if _, err := cron.ParseStandard(value); err != nil {
			return "it must be a cron line of five fields such as '0 3 * * *', or '@every 1m'"
		}
	default:
		if choices := strings.Split(form, "|"); len(choices) > 1 && !slices.Contains(choices, value) {
			return "it must be one of " + strings.Join(choices, ", ")
		}
	}
	return ""
}

// expand turns a leading ~ into the home directory.
func expand(path string) string {
	rest, found := strings.CutPrefix(path, "~")
	if !found || (rest != "" && rest[0] != '/') {
		return path
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return path
	}
	return home + rest
}

// NATSAddress is where NATS answers: the given server, else the embedded one on loopback.
func (c *Config) NATSAddress() string {
	return cmp.Or(c.NATSURL, fmt.Sprintf("nats://127.0.0.1:%d", c.NATSPort))
}

// ClickHouseAddress is where ClickHouse answers: the given server, else the embedded one on loopback.
func (c *Config) ClickHouseAddress() string {
	return cmp.Or(c.ClickHouseURL, fmt.Sprintf("http://127.0.0.1:%d", c.ClickHousePort))
}

// MCPAddress is where the MCP server answers: the given one, else the one on this machine.
func (c *Config) MCPAddress() string {
	return cmp.Or(c.MCPURL, fmt.Sprintf("http://127.0.0.1:%d/mcp", c.MCPPort))
}

// Settings lists every setting with its value and source; what is secret is masked.
func (c *Config) Settings() []Setting {
	var out []Setting
	for _, f := range fields() {
		value := fmt.Sprint(reflect.ValueOf(c).Elem().FieldByIndex(f.Index).Interface())
		switch secret := f.Tag.Get("secret"); {
		case secret == "key" && value != "":
			value = "***"
		case secret != "":
			value = maskURLs(value)
		}
		out = append(out, Setting{
			Name: f.Tag.Get("env"), Key: f.Tag.Get("key"), Value: value, Default: f.Tag.Get("default"),
			Source: c.sources[f.Tag.Get("env")], Help: f.Tag.Get("help"),
		})
	}
	return out
}

// credentials are what stands before the host of each URL in a list separated by commas: a user and password, or a token.
var credentials = regexp.MustCompile(`(^|,)(\s*[a-zA-Z0-9+.-]+://)?[^,]*@`)

// maskURLs hides what is secret in a setting that holds the addresses of servers.
func maskURLs(value string) string {
	return events.MaskText(credentials.ReplaceAllString(value, "$1$2***@"))
}

// Unknown returns the HINDSIGHT_ variables of an environment (as os.Environ gives it) that are no setting: most
// likely they are misspelt.
func Unknown(environ []string) []string {
	known := map[string]bool{fileVariable: true}
	for _, f := range fields() {
		known[f.Tag.Get("env")] = true
	}
	var out []string
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, "HINDSIGHT_") && !known[name] && !strings.HasPrefix(name, "HINDSIGHT_TEST_") && name != "HINDSIGHT_TOOLS_DIR" && name != "HINDSIGHT_ENGINES_LOCK" {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}
