package deploy_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/hindsight-memory/hindsight/internal/engine/enginetest"
)

func freePort(t *testing.T) string {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	_, port, err := net.SplitHostPort(ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// containers stand in for those of docker-compose.yml: the programs as the Dockerfile builds them, with the environment
// that Compose gives them, but for the addresses, the ports and the engine in ClickHouse's place, which has no users.
type containers struct {
	t          *testing.T
	bin        string
	nats       string
	clickhouse string
	logs       map[string]*enginetest.Log
}

func (c *containers) environment(name string, ports map[string]string) []string {
	c.t.Helper()
	out := []string{"PATH=" + c.bin, "HOME=" + c.t.TempDir(), "TZ=UTC"}
	for variable, value := range environmentOf(mustCompose(c.t, passwords()).Services[name]) {
		switch variable {
		case "HINDSIGHT_NATS_URL":
			value = strings.Replace(value, "nats:4222", c.nats, 1)
		case "HINDSIGHT_CLICKHOUSE_URL":
			value = c.clickhouse
		case "HINDSIGHT_CLICKHOUSE_DATABASE":
			value = "compose"
		case "HINDSIGHT_MILVUS_ADDR":
			continue
		case "HINDSIGHT_HEALTH_PORT":
			continue
		}
		out = append(out, variable+"="+value)
	}
	for variable, port := range ports {
		out = append(out, variable+"="+port)
	}
	return append(out, "HINDSIGHT_EMBEDDER=none", "HINDSIGHT_TASK_QUIET=200ms", "HINDSIGHT_SWEEP_INTERVAL=100ms")
}

// run runs one command with an environment to its end.
func (c *containers) run(ctx context.Context, env []string, stdin string, words ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(c.bin, words[0]), words[1:]...)
	var out, said bytes.Buffer
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = env, strings.NewReader(stdin), &out, &said
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s%s", strings.Join(words, " "), err, out.String(), said.String())
	}
	return out.String(), nil
}

// inContainer finds the words of a documented command line that runs in a container.
var inContainer = regexp.MustCompile(`^docker (?:compose run --rm (?:-T )?|exec (?:-i )?hindsight )hindsight (.+)$`)

// TestServicesOfCompose runs the four services beside each other on the NATS of deploy/nats.conf, asks each as its
// container's health check does, and uses them by every command of docs/operate.md that runs in a container: a first import, a token for a caller.
func TestServicesOfCompose(t *testing.T) {
	password := passwords()["HINDSIGHT_NATS_PASSWORD"]
	natsURL, err := url.Parse(natsServer(t, password).ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	c := &containers{t: t, bin: t.TempDir(), nats: natsURL.Host, clickhouse: enginetest.ClickHouse(t), logs: map[string]*enginetest.Log{}}
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", c.bin+"/")
	for _, name := range builtPrograms(t) {
		build.Args = append(build.Args, "./cmd/"+name)
	}
	build.Dir, build.Env = "..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the programs: %v\n%s", err, out)
	}
	project := mustCompose(t, passwords())
	environments, running, mcpPort := map[string][]string{}, map[string]*exec.Cmd{}, freePort(t)
	for _, name := range programs {
		ports := map[string]string{"HINDSIGHT_HEALTH_PORT": freePort(t)}
		if name == "mcp" {
			ports["HINDSIGHT_MCP_PORT"] = mcpPort
		}
		environments[name], c.logs[name] = c.environment(name, ports), &enginetest.Log{}
		check := project.Services[name].HealthCheck.Test[1:]
		if _, err := c.run(t.Context(), environments[name], "", check...); err == nil {
			t.Errorf("%s is healthy before it runs", name)
		}
		cmd := exec.CommandContext(t.Context(), filepath.Join(c.bin, project.Services[name].Command[0]))
		cmd.Env, cmd.Stdout, cmd.Stderr = environments[name], c.logs[name], c.logs[name]
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		running[name] = cmd
	}
	for _, name := range programs {
		until(t.Context(), t, func() error {
			_, err := c.run(t.Context(), environments[name], "", project.Services[name].HealthCheck.Test[1:]...)
			if err != nil {
				return fmt.Errorf("%w\n%s", err, c.logs[name])
			}
			return nil
		})
	}

	env := c.environment(tool, map[string]string{"HINDSIGHT_MCP_PORT": mcpPort})
	token, ran := "", 0
	for _, line := range documented(t) {
		m := inContainer.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		words, file, fromFile := strings.Cut(m[1], " < ")
		var stdin []byte
		if fromFile {
			if stdin, err = os.ReadFile("../" + file); err != nil {
				t.Errorf("%s: %v", line, err)
			}
		}
		out, err := c.run(t.Context(), env, string(stdin), append([]string{tool}, strings.Fields(words)...)...)
		if err != nil {
			t.Errorf("%s: %v", line, err)
		}
		if strings.HasPrefix(words, "token create") {
			token = out
		}
		ran++
	}
	if ran < 5 {
		t.Errorf("only %d documented commands were run", ran)
	}
	if items, err := c.run(t.Context(), env, "", "hindsight", "memories", "--json"); err != nil || len(items) < 100 {
		t.Errorf("nothing was learnt: %s, %v", items, err)
	}
	// In its container the command line has no folder that it can write.
	if findings, err := c.run(t.Context(), env, "", "hindsight", "doctor"); err != nil || strings.Count(findings, "not needed") != 2 {
		t.Errorf("the doctor says %s, %v", findings, err)
	}
	for secret, want := range map[string]int{"": http.StatusUnauthorized, strings.TrimSpace(token): http.StatusOK} {
		if got := initialize(t, "http://127.0.0.1:"+mcpPort+"/mcp", secret); got != want {
			t.Errorf("a caller with a token of %d characters gets %d, want %d", len(secret), got, want)
		}
	}

	for name, cmd := range running {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s does not end cleanly when its container is stopped: %v\n%s", name, err, c.logs[name])
		}
		if _, err := c.run(t.Context(), environments[name], "", project.Services[name].HealthCheck.Test[1:]...); err == nil {
			t.Errorf("%s is healthy after its end", name)
		} else if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 1 {
			t.Errorf("the health check of %s ends with %v, want 1", name, err)
		}
	}
}

// initialize greets an MCP server as a client does.
func initialize(t *testing.T, address, token string) int {
	t.Helper()
	body := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, text/event-stream")
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	return response.StatusCode
}
