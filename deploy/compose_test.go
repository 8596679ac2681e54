// Package deploy_test checks the files that run Hindsight in containers as far as that goes without a container engine:
// against the specification of Compose, the settings of the programs, the Dockerfile's grammar, and by running the servers'
// configuration in the servers themselves. It cannot show that an image of others starts.
package deploy_test

import (
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/template"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/distribution/reference"
	"github.com/nats-io/nats-server/v2/server"

	"github.com/hindsight-memory/hindsight/internal/config"
)

const composeFile = "../docker-compose.yml"

// programs are the services that are programs of ours and run all the time; tool is the command line beside them.
var programs = []string{"ingestor", "reflector", "consolidator", "mcp"}

const tool = "hindsight"

// passwords are what .env must have; they are what deploy/init.sh may make.
func passwords() map[string]string {
	return map[string]string{
		"HINDSIGHT_NATS_PASSWORD": "0123456789", "HINDSIGHT_CLICKHOUSE_PASSWORD": "1e9", "HINDSIGHT_MINIO_PASSWORD": "abcdef0123456789",
	}
}

// compose loads docker-compose.yml as Compose does, with every profile, against the specification.
func compose(t *testing.T, environment map[string]string) (*types.Project, error) {
	t.Helper()
	return composeFrom(t, composeFile, environment)
}

func composeFrom(t *testing.T, file string, environment map[string]string) (*types.Project, error) {
	t.Helper()
	var env []string
	for name, value := range environment {
		env = append(env, name+"="+value)
	}
	options, err := cli.NewProjectOptions([]string{file}, cli.WithWorkingDirectory(".."), cli.WithEnv(env), cli.WithProfiles([]string{"*"}))
	if err != nil {
		t.Fatal(err)
	}
	return options.LoadProject(t.Context())
}

func mustCompose(t *testing.T, environment map[string]string) *types.Project {
	t.Helper()
	project, err := compose(t, environment)
	if err != nil {
		t.Fatal(err)
	}
	return project
}

// environmentOf is what a service's container is given.
func environmentOf(s types.ServiceConfig) map[string]string {
	out := map[string]string{}
	for name, value := range s.Environment {
		if value != nil {
			out[name] = *value
		}
	}
	return out
}

// TestComposeNeedsItsPasswords expects a person to be told what is missing and what to do.
func TestComposeNeedsItsPasswords(t *testing.T) {
	t.Parallel()
	if _, err := compose(t, passwords()); err != nil {
		t.Fatalf("with all that is required: %v", err)
	}
	for name := range passwords() {
		for _, value := range []string{"unset", ""} {
			environment := passwords()
			environment[name] = value
			if value == "unset" {
				delete(environment, name)
			}
			_, err := compose(t, environment)
			if err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "bash deploy/init.sh") {
				t.Errorf("%s %q: %v", name, value, err)
			}
		}
	}
}

// settings are the names that `hindsight config` lists.
func settings(t *testing.T) map[string]config.Setting {
	t.Helper()
	cfg, err := config.Load(func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]config.Setting{}
	for _, s := range cfg.Settings() {
		out[s.Name] = s
	}
	return out
}

// notForContainers are settings that the services of docker-compose.yml are not given, and why.
var notForContainers = map[string]string{
	"HINDSIGHT_DATA_DIR":              "embedded engines only",
	"HINDSIGHT_CHDB_LIBRARY":          "embedded engines only",
	"HINDSIGHT_CLICKHOUSE_MAX_MEMORY": "embedded engines only",
	"HINDSIGHT_ENGINES_DIR":           "set by the image",
	"HINDSIGHT_EMBEDDING_CACHE":       "for evaluations",
	"HINDSIGHT_NATS_PORT":             "the port of this machine",
	"HINDSIGHT_CLICKHOUSE_PORT":       "the port of this machine",
	"HINDSIGHT_CONSOLE_PORT":          "the port of this machine",
	"HINDSIGHT_MCP_PORT":              "the port of this machine",
	"HINDSIGHT_HEALTH_PORT":           "each container has its own",
	"HINDSIGHT_NATS_REPLICAS":         "there is one NATS",
	"HINDSIGHT_MILVUS_TOKEN":          "its Milvus has no users",
	"HINDSIGHT_MILVUS_TLS":            "its Milvus is in a network of its own",
	"HINDSIGHT_MILVUS_PREFIX":         "its Milvus serves nobody else",
	"HINDSIGHT_MCP_URL":               "the command line's",
	"HINDSIGHT_TOKEN":                 "the command line's",
}

// othersVariables are variables of others that the programs read as well.
var othersVariables = []string{"OPENAI_API_KEY"}

func TestSettingsOfTheServices(t *testing.T) {
	t.Parallel()
	known := settings(t)
	project := mustCompose(t, passwords())
	for _, name := range append([]string{tool}, programs...) {
		service := project.Services[name]
		for variable := range service.Environment {
			if _, found := known[variable]; !found && !slices.Contains(othersVariables, variable) {
				t.Errorf("%s is given %s, which is no setting: 'hindsight config' lists them", name, variable)
			}
		}
		for variable := range known {
			if _, given := service.Environment[variable]; !given && notForContainers[variable] == "" {
				t.Errorf("%s can't be given %s: add it to x-program of docker-compose.yml, or say in notForContainers why not", name, variable)
			}
		}
		environment := environmentOf(service)
		cfg, err := config.Load(func(name string) string { return environment[name] })
		if err != nil {
			t.Errorf("%s does not take its settings: %v", name, err)
			continue
		}
		if cfg.Bind != "0.0.0.0" || cfg.Database != "hindsight" || cfg.MilvusAddr != "milvus:19530" || cfg.LLMBaseURL != "" {
			t.Errorf("%s: bind %q, database %q, Milvus %q, model %q", name, cfg.Bind, cfg.Database, cfg.MilvusAddr, cfg.LLMBaseURL)
		}
		for address, want := range map[string][3]string{
			cfg.NATSAddress():       {"nats", "nats:4222", passwords()["HINDSIGHT_NATS_PASSWORD"]},
			cfg.ClickHouseAddress(): {"http", "clickhouse:8123", passwords()["HINDSIGHT_CLICKHOUSE_PASSWORD"]},
		} {
			u, err := url.Parse(address)
			if err != nil {
				t.Fatal(err)
			}
			password, _ := u.User.Password()
			if got := [3]string{u.Scheme, u.Host, password}; got != want || u.User.Username() != "hindsight" {
				t.Errorf("%s connects to %s, want %v", name, address, want)
			}
			if _, found := project.Services[u.Hostname()]; !found {
				t.Errorf("%s connects to %s, which is no service", name, u.Hostname())
			}
		}
	}
}

// TestSettingsReachTheContainers sets every setting that may be set in .env and finds it in the container.
func TestSettingsReachTheContainers(t *testing.T) {
	t.Parallel()
	known := settings(t)
	given := passwords()
	for variable, setting := range known {
		if notForContainers[variable] == "" && setting.Default == "" {
			given[variable] = "http://host.docker.internal:11434/v1" // A text that each of them takes.
		} else if notForContainers[variable] == "" {
			given[variable] = setting.Default
		}
	}
	project := mustCompose(t, given)
	own := environmentOf(mustCompose(t, passwords()).Services["ingestor"]) // What is fixed stays.
	for _, name := range programs {
		got := environmentOf(project.Services[name])
		for variable, value := range given {
			if _, isSetting := known[variable]; !isSetting || own[variable] != "" {
				continue
			}
			if got[variable] != value {
				t.Errorf("%s of .env reaches %s as %q, want %q", variable, name, got[variable], value)
			}
		}
	}
}

// TestExampleEnvironment keeps .env.example and docker-compose.yml on the same names.
func TestExampleEnvironment(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../.env.example")
	if err != nil {
		t.Fatal(err)
	}
	example := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^#?([A-Z][A-Z0-9_]+)=(.*)$`).FindAllStringSubmatch(string(raw), -1) {
		example[m[1]] = m[2]
		if strings.Contains(m[1], "PASSWORD") != (passwords()[m[1]] != "") || strings.Contains(m[1], "PASSWORD") && m[2] != "" {
			t.Errorf(".env.example has %s=%s", m[1], m[2])
		}
	}
	interpolated := template.ExtractVariables(rawCompose(t), template.DefaultPattern)
	for name, variable := range interpolated {
		if _, found := example[name]; !found && name != "HINDSIGHT_REVISION" {
			t.Errorf("docker-compose.yml reads %s, which .env.example does not tell of", name)
		}
		if variable.Required != (passwords()[name] != "") {
			t.Errorf("%s is required: %t", name, variable.Required)
		}
		if value := example[name]; value != "" && value != variable.DefaultValue {
			t.Errorf(".env.example says %s=%s, docker-compose.yml %q", name, value, variable.DefaultValue)
		}
	}
	passed := mustCompose(t, passwords()).Services["mcp"].Environment
	for name := range example {
		_, isInterpolated := interpolated[name]
		if _, isPassed := passed[name]; !isInterpolated && !isPassed {
			t.Errorf(".env.example has %s, which nothing reads", name)
		}
	}
}

// rawCompose is docker-compose.yml as it is written, with its variables.
func rawCompose(t *testing.T) map[string]any {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{composeFile}, cli.WithWorkingDirectory(".."), cli.WithInterpolation(false), cli.WithNormalization(false),
		cli.WithProfiles([]string{"*"}), cli.WithoutEnvironmentResolution)
	if err != nil {
		t.Fatal(err)
	}
	model, err := options.LoadModel(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return model
}

var (
	secretName     = regexp.MustCompile(`(PASSWORD|SECRET|TOKEN|API_KEY)`)
	urlCredentials = regexp.MustCompile(`//[^:/@]*:([^@]*)@`)
)

func TestNoSecretIsWritten(t *testing.T) {
	t.Parallel()
	found := 0
	services, isMap := rawCompose(t)["services"].(map[string]any)
	if !isMap || len(services) < 10 {
		t.Fatalf("%d services", len(services))
	}
	for name, service := range services {
		environment, _ := service.(map[string]any)["environment"].(map[string]any)
		for variable, value := range environment {
			text, _ := value.(string)
			if secretName.MatchString(variable) && value != nil {
				found++
				if !strings.HasPrefix(strings.Trim(text, `"`), "${") {
					t.Errorf("%s has a value for %s written down", name, variable)
				}
			}
			if m := urlCredentials.FindStringSubmatch(text); m != nil {
				found++
				if !strings.HasPrefix(m[1], "${") {
					t.Errorf("%s has a password for %s written down", name, variable)
				}
			}
		}
	}
	if found < 10 {
		t.Errorf("only %d secrets were found", found)
	}
}

func TestServicesWaitForWhatTheyNeed(t *testing.T) {
	t.Parallel()
	project := mustCompose(t, passwords())
	need := map[string][]string{
		"milvus": {"etcd", "minio"}, "ingestor": {"nats", "clickhouse"},
		"reflector": {"nats", "clickhouse", "milvus"}, "consolidator": {"nats", "clickhouse", "milvus"}, "mcp": {"nats", "clickhouse", "milvus"}, tool: {"nats", "clickhouse", "milvus"},
	}
	for name, service := range project.Services {
		if got, want := slices.Sorted(maps.Keys(service.DependsOn)), slices.Sorted(slices.Values(need[name])); !slices.Equal(got, want) {
			t.Errorf("%s waits for %v, want %v", name, got, want)
		}
		for other, dependency := range service.DependsOn {
			if dependency.Condition != types.ServiceConditionHealthy || !dependency.Required {
				t.Errorf("%s waits for %s only until %s", name, other, dependency.Condition)
			}
		}
		check := service.HealthCheck
		switch {
		case name == tool:
		case check == nil || check.Disable || len(check.Test) < 2 || check.Test[0] != "CMD" ||
			check.Interval == nil || check.Timeout == nil || check.Retries == nil || check.StartPeriod == nil || check.StartInterval == nil:
			t.Errorf("%s has no whole health check: %+v", name, check)
		case slices.Contains(programs, name):
			// /readyz answers within 5 seconds and the program that asks gives up after 8.
			if !slices.Equal(check.Test, []string{"CMD", name, "-healthcheck"}) || time.Duration(*check.Timeout) < 9*time.Second {
				t.Errorf("%s is checked by %v within %s", name, check.Test, check.Timeout)
			}
		}
	}
}

func TestEveryServiceIsBounded(t *testing.T) {
	t.Parallel()
	project := mustCompose(t, passwords())
	for name, service := range project.Services {
		if want := map[bool]string{true: "no", false: types.RestartPolicyUnlessStopped}[name == tool]; service.Restart != want {
			t.Errorf("%s: restart %q, want %q", name, service.Restart, want)
		}
		if service.Deploy == nil || service.Deploy.Resources.Limits == nil || service.Deploy.Resources.Limits.MemoryBytes < 256<<20 ||
			service.Deploy.Resources.Limits.NanoCPUs <= 0 || service.Deploy.Resources.Limits.Pids <= 0 {
			t.Errorf("%s has no limits of memory, processors and processes", name)
		}
		if service.Logging == nil || service.Logging.Options["max-size"] == "" || service.Logging.Options["max-file"] == "" {
			t.Errorf("the log of %s is not bounded", name)
		}
		if service.Privileged || !slices.Contains(service.SecurityOpt, "no-new-privileges:true") || len(service.CapAdd) > 0 {
			t.Errorf("%s may gain rights", name)
		}
		if service.ContainerName != "" {
			t.Errorf("%s has a fixed name, which keeps a second project or replica away", name)
		}
		if service.StopGracePeriod == nil || time.Duration(*service.StopGracePeriod) < 20*time.Second {
			t.Errorf("%s has %v to end", name, service.StopGracePeriod)
		}
		if len(service.Networks) == 0 || service.NetworkMode != "" {
			t.Errorf("%s is in no network of its own", name)
		}
		for _, mount := range service.Volumes {
			if mount.Type != types.VolumeTypeVolume || mount.Source == "" {
				t.Errorf("%s mounts %q, which is no named volume", name, mount.Source)
			}
		}
		for _, file := range service.Configs {
			if _, err := os.Stat(project.Configs[file.Source].File); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	for name, volume := range project.Volumes {
		if volume.Name == "" || bool(volume.External) {
			t.Errorf("volume %s has no name of its own", name)
		}
	}
	for _, name := range append([]string{tool}, programs...) {
		service := project.Services[name]
		if !service.ReadOnly || service.User != "65532:65532" || !slices.Equal(service.CapDrop, []string{"ALL"}) || len(service.Volumes) > 0 {
			t.Errorf("%s: read-only %t, user %q, without %v, volumes %v", name, service.ReadOnly, service.User, service.CapDrop, service.Volumes)
		}
		if got := service.ExtraHosts["host.docker.internal"]; !slices.Equal(got, []string{"host-gateway"}) {
			t.Errorf("%s reaches a model on this machine by %q", name, got)
		}
		if time.Duration(*service.StopGracePeriod) < 30*time.Second {
			t.Errorf("%s has %s to end, and its workers 20 seconds of that", name, service.StopGracePeriod)
		}
	}
	for _, name := range []string{"ingestor", "reflector"} {
		if service := project.Services[name]; len(service.Ports) > 0 {
			t.Errorf("%s can't be scaled: it has ports of this machine", name)
		}
	}
	for _, name := range []string{"etcd", "minio"} {
		if networks := slices.Collect(maps.Keys(project.Services[name].Networks)); !slices.Equal(networks, []string{"vectors"}) || !project.Networks["vectors"].Internal {
			t.Errorf("%s, which asks for no password or a shared one, is in %v", name, networks)
		}
	}
}

func TestPortsAreOnLoopback(t *testing.T) {
	t.Parallel()
	published := func(environment map[string]string) map[string]string {
		out := map[string]string{}
		for name, service := range mustCompose(t, environment).Services {
			for _, port := range service.Ports {
				out[name+" "+port.Published] = port.HostIP
			}
		}
		return out
	}
	want := map[string]string{
		"nats 4222": "127.0.0.1", "clickhouse 8123": "127.0.0.1", "mcp 8765": "127.0.0.1", "mcp 8780": "127.0.0.1",
	}
	if got := published(passwords()); !maps.Equal(got, want) {
		t.Errorf("published %v, want %v", got, want)
	}
	given := passwords()
	maps.Copy(given, map[string]string{
		"HINDSIGHT_NATS_PORT": "14222", "HINDSIGHT_CLICKHOUSE_PORT": "18123", "HINDSIGHT_MCP_PORT": "18765", "HINDSIGHT_CONSOLE_PORT": "18780",
		"HINDSIGHT_MCP_ADDRESS": "0.0.0.0",
	})
	want = map[string]string{
		"nats 14222": "127.0.0.1", "clickhouse 18123": "127.0.0.1", "mcp 18765": "0.0.0.0", "mcp 18780": "127.0.0.1",
	}
	if got := published(given); !maps.Equal(got, want) {
		t.Errorf("published %v, want %v", got, want)
	}
	// A port of this machine changes none in the container.
	environment := environmentOf(mustCompose(t, given).Services["mcp"])
	cfg, err := config.Load(func(name string) string { return environment[name] })
	if err != nil {
		t.Fatal(err)
	}
	if cfg.MCPPort != 8765 || cfg.HealthPort != 8780 {
		t.Errorf("in the container MCP is on %d and health on %d", cfg.MCPPort, cfg.HealthPort)
	}
}

// TestImagesArePinned also keeps them on the versions that the tests run, where those are run.
func TestImagesArePinned(t *testing.T) {
	t.Parallel()
	project := mustCompose(t, passwords())
	tags := map[string]string{}
	for name, service := range project.Services {
		ref, err := reference.ParseNormalizedNamed(service.Image)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		tagged, isTagged := ref.(reference.Tagged)
		if !isTagged || strings.Contains(tagged.Tag(), "latest") {
			t.Errorf("%s has the image %s, which is not pinned", name, service.Image)
			continue
		}
		tags[name] = tagged.Tag()
	}
	for _, name := range append([]string{tool}, programs...) {
		build := project.Services[name].Build
		if tags[name] != config.Version || build == nil || build.Args["VERSION"] == nil || *build.Args["VERSION"] != config.Version {
			t.Errorf("%s has the tag %s and the build %+v, and the programs are %s", name, tags[name], build, config.Version)
			continue
		}
		if build.Target != "services" || filepath.Join(build.Context, build.Dockerfile) != absolute(t, "Dockerfile") {
			t.Errorf("%s is built from %s of %s", name, build.Target, filepath.Join(build.Context, build.Dockerfile))
		}
	}
	if line := minor.FindString(server.VERSION); !strings.HasPrefix(tags["nats"], line+"-") {
		t.Errorf("the image of NATS is %s, and the tests run %s", tags["nats"], server.VERSION)
	}
	lock, err := os.ReadFile("../scripts/engines.lock")
	if err != nil {
		t.Fatal(err)
	}
	chdb := regexp.MustCompile(`(?m)^\S+ chdb \S+ \S+ (\d+\.\d+)\.`).FindSubmatch(lock)
	if chdb == nil || tags["clickhouse"] != string(chdb[1]) {
		t.Errorf("the image of ClickHouse is %s, and the tests run %s", tags["clickhouse"], chdb)
	}
}

var minor = regexp.MustCompile(`^\d+\.\d+`)

func absolute(t *testing.T, path string) string {
	t.Helper()
	out, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
