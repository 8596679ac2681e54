package chaos_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestWhatIsRefused starts each program where an address, a server or the schema does not fit: it ends by itself, and says
// what happened with the setting to change.
func TestWhatIsRefused(t *testing.T) {
	t.Parallel()
	sys := build(t, shape{embedder: "none"})
	migrated := sys.process("ingestor", "ingestor", "", sys.settings("newer", sys.nats, sys.http))
	migrated.ready = readyURL(migrated)
	migrated.start(t)
	migrated.waitReady(t)
	migrated.stop(t)
	sys.insert("newer", "INSERT INTO newer.schema_migrations (version, name, sha256) VALUES (9999, 'later', 'abc')")
	web := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(web.Close)
	webAddress := web.Listener.Addr().String()
	host := strings.TrimPrefix(sys.nats, "nats://")
	for _, test := range []struct {
		name, nats, http, database string
		code                       int
		words                      []string
	}{
		{"an address of NATS that is none", "nats://a b", sys.http, "", 2, []string{"HINDSIGHT_NATS_URL", "nats://host:port"}},
		{"another scheme for NATS", "http://" + host, sys.http, "", 2, []string{"HINDSIGHT_NATS_URL", "tls://"}},
		{"an address of ClickHouse that is none", sys.nats, "127.0.0.1:8123", "", 2, []string{"HINDSIGHT_CLICKHOUSE_URL", "http://"}},
		{"a port that is none", sys.nats, "http://127.0.0.1:99999", "", 2, []string{"HINDSIGHT_CLICKHOUSE_URL", "99999"}},
		{"HTTP where NATS should be", "nats://" + webAddress, sys.http, "", 1, []string{"HINDSIGHT_NATS_URL", "an HTTP server", "4222"}},
		{"ClickHouse where NATS should be", "nats://" + strings.TrimPrefix(sys.http, "http://"), sys.http, "", 1, []string{"HINDSIGHT_NATS_URL", "an HTTP server"}},
		{"NATS where ClickHouse should be", sys.nats, "http://" + host, "", 1, []string{"HINDSIGHT_CLICKHOUSE_URL", "a NATS server"}},
		{"another HTTP server where ClickHouse should be", sys.nats, web.URL, "", 1, []string{"HINDSIGHT_CLICKHOUSE_URL", "404"}},
		{"a schema of a newer program", sys.nats, sys.http, "newer", 1, []string{"9999", "newer program"}},
	} {
		for _, program := range four() {
			t.Run(program+"/"+test.name, func(t *testing.T) {
				t.Parallel()
				p := sys.process(program, program, "", sys.settings(test.database, test.nats, test.http))
				p.start(t)
				t.Cleanup(func() { p.kill(t) })
				if code := p.exit(t); code != test.code {
					t.Errorf("exit %d, want %d", code, test.code)
				}
				last := strings.TrimSpace(p.log.String())
				last = last[strings.LastIndexByte(last, '\n')+1:]
				for _, word := range append(slices.Clone(test.words), program+": ") {
					if !strings.Contains(last, word) {
						t.Errorf("its last line says nothing of %q: %s", word, last)
					}
				}
			})
		}
	}
}

// settings are those of a program with servers, a database and ports of its own.
func (s *system) settings(database, nats, http string) []string {
	ports := freePorts(s.t, 2)
	out := []string{"HINDSIGHT_NATS_URL=" + nats, "HINDSIGHT_CLICKHOUSE_URL=" + http, "HINDSIGHT_HEALTH_PORT=" + ports[0], "HINDSIGHT_MCP_PORT=" + ports[1]}
	if database != "" {
		out = append(out, "HINDSIGHT_CLICKHOUSE_DATABASE="+database)
	}
	return out
}

// readyURL is where a program with settings says whether it is ready.
func readyURL(p *process) string {
	for _, setting := range p.env {
		if port, is := strings.CutPrefix(setting, "HINDSIGHT_HEALTH_PORT="); is {
			return "http://127.0.0.1:" + port + "/readyz"
		}
	}
	return ""
}

// insert runs a statement on the embedded ClickHouse, as an operator would.
func (s *system) insert(database, statement string) {
	s.t.Helper()
	response, err := http.Post(s.http+"/?database="+database, "text/plain", strings.NewReader(statement))
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if body, err := io.ReadAll(response.Body); err != nil || response.StatusCode != http.StatusOK {
		s.t.Fatalf("%s: %v %s", statement, err, body)
	}
}

// TestWhatIsWaitedFor starts every program before its servers: each says what it waits for and is ready once they come.
func TestWhatIsWaitedFor(t *testing.T) {
	t.Parallel()
	sys := build(t, shape{services: four(), embedder: "none"})
	sys.engines.kill(t)
	for _, p := range sys.services {
		p.start(t)
	}
	for _, p := range sys.services {
		eventually(t, p.name+" to say what it waits for", func() error {
			err := httpOK(t.Context(), p.ready)
			if err == nil {
				t.Fatalf("%s is ready without its servers", p.name)
			}
			for _, word := range []string{"waiting for NATS at " + sys.nats, "waiting for ClickHouse at " + sys.http} {
				if !strings.Contains(err.Error(), word) {
					return fmt.Errorf("no %q in: %w", word, err)
				}
			}
			return nil
		})
		eventually(t, "its log", func() error {
			for _, word := range []string{"NATS does not answer yet", "ClickHouse does not answer yet"} {
				if !strings.Contains(p.log.String(), word) {
					return fmt.Errorf("no %q in the log of %s: %s", word, p.name, p.log.tail())
				}
			}
			return nil
		})
	}
	sys.engines.start(t)
	sys.waitReady()
}

// TestOnlyTheMissingEnginesAreStarted when an address is given for the other.
func TestOnlyTheMissingEnginesAreStarted(t *testing.T) {
	t.Parallel()
	given := build(t, shape{embedder: "none"})
	for _, test := range []struct {
		name    string
		setting string
		own     string // the port's setting of the engine that must be started; the other must not
		other   string
	}{
		{"NATS is given", "HINDSIGHT_NATS_URL=" + given.nats, "HINDSIGHT_CLICKHOUSE_PORT=", "HINDSIGHT_NATS_PORT="},
		{"ClickHouse is given", "HINDSIGHT_CLICKHOUSE_URL=" + given.http, "HINDSIGHT_NATS_PORT=", "HINDSIGHT_CLICKHOUSE_PORT="},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			sys := build(t, shape{allInOne: true, embedder: "none"})
			up := sys.services[0]
			up.env = append(up.env, test.setting, "HINDSIGHT_CLICKHOUSE_DATABASE=mixed")
			sys.launch()
			if !listens(t, sys.env, test.own) || listens(t, sys.env, test.other) {
				t.Errorf("%s listens: %t, %s listens: %t", test.own, listens(t, sys.env, test.own), test.other, listens(t, sys.env, test.other))
			}
			sys.env = up.env
			sys.run("import", "--wait", input(t, 3))
			up.stop(t)
		})
	}
	t.Run("both are given", func(t *testing.T) {
		t.Parallel()
		env := append(slices.Clone(given.env), "HINDSIGHT_NATS_URL="+given.nats, "HINDSIGHT_CLICKHOUSE_URL="+given.http)
		if r := command(t, env, filepath.Join(given.bin, "hindsight"), "up", "--engines-only"); r.code != 2 || !strings.Contains(r.stderr, "nothing to start") {
			t.Errorf("exit %d: %s", r.code, r.stderr)
		}
	})
}

// listens tells whether somebody listens at the port that a setting names.
func listens(t *testing.T, env []string, setting string) bool {
	t.Helper()
	for _, entry := range env {
		if port, is := strings.CutPrefix(entry, setting); is {
			conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", "127.0.0.1:"+port)
			if err != nil {
				return false
			}
			_ = conn.Close()
			return true
		}
	}
	t.Fatalf("no setting %s", setting)
	return false
}

// TestDocumentedStart starts the four processes as docs/operate.md says, on other ports.
func TestDocumentedStart(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/operate.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(page), "```text\nhindsight up --engines-only\n")
	block, _, closed := strings.Cut(rest, "```")
	if !found || !closed {
		t.Fatal("docs/operate.md has no example of the four processes")
	}
	sys := build(t, shape{embedder: "none"})
	ports := freePorts(t, 5)
	sys.env = append(sys.env, "HINDSIGHT_HEALTH_PORT="+ports[4]) // The default is one of this machine's.
	for i, line := range strings.Split(strings.TrimSpace(block), "\n") {
		words := strings.Fields(line)
		health := ports[4]
		if setting := words[0]; strings.HasPrefix(setting, "HINDSIGHT_HEALTH_PORT=") {
			health, words = ports[i], words[1:]
		}
		p := sys.process(words[0], words[0], "http://127.0.0.1:"+health+"/readyz", []string{"HINDSIGHT_HEALTH_PORT=" + health}, words[1:]...)
		sys.services = append(sys.services, p)
	}
	sys.launch()
	var names []string
	for _, p := range sys.services {
		names = append(names, p.name)
	}
	if !slices.Equal(names, four()) {
		t.Errorf("the example starts %v, want %v", names, four())
	}
	sys.run("import", "--wait", input(t, 3))
}
