package chaos_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hindsight-memory/hindsight/internal/bus"
	"github.com/hindsight-memory/hindsight/internal/store"
	"github.com/hindsight-memory/hindsight/internal/store/milvustest"
	"github.com/hindsight-memory/hindsight/internal/store/statetest"
)

// namespace is where the tasks go, canary one that may be asked at any time without changing what is compared: hits of
// items count.
const (
	namespace = "acme.support"
	canary    = "canary"
)

// system is one installation: engines, maybe Milvus, and the programs, each on its own data directory and ports.
type system struct {
	t          *testing.T
	bin        string
	env        []string
	nats, http string
	engines    *process
	milvus     *milvustest.Server
	services   []*process
}

// shape says what an installation is made of.
type shape struct {
	// allInOne is `hindsight up`; otherwise these are the programs, each as often as it is named.
	allInOne bool
	services []string
	milvus   bool
	embedder string
}

func four() []string { return []string{"ingestor", "reflector", "consolidator", "mcp"} }

// build prepares an installation and starts its engines; launch starts the programs.
func build(t *testing.T, s shape) *system {
	t.Helper()
	ports := freePorts(t, 4)
	sys := &system{t: t, bin: programs(t), nats: "nats://127.0.0.1:" + ports[0], http: "http://127.0.0.1:" + ports[1]}
	dir := t.TempDir()
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "HINDSIGHT_") || strings.HasPrefix(entry, "HINDSIGHT_ENGINES_DIR=") || strings.HasPrefix(entry, "HINDSIGHT_CHDB_LIBRARY=") {
			sys.env = append(sys.env, entry)
		}
	}
	if os.Getenv("HINDSIGHT_ENGINES_DIR") == "" && os.Getenv("HINDSIGHT_CHDB_LIBRARY") == "" {
		engines, err := filepath.Abs(filepath.Join("..", "..", ".engines"))
		if err != nil {
			t.Fatal(err)
		}
		sys.env = append(sys.env, "HINDSIGHT_ENGINES_DIR="+engines)
	}
	sys.env = append(sys.env,
		"HINDSIGHT_DATA_DIR="+filepath.Join(dir, "data"), "HINDSIGHT_NATS_PORT="+ports[0], "HINDSIGHT_CLICKHOUSE_PORT="+ports[1],
		"HINDSIGHT_CONSOLE_PORT="+ports[2], "HINDSIGHT_MCP_PORT="+ports[3], "HINDSIGHT_EMBEDDER="+s.embedder, "HINDSIGHT_NAMESPACE="+namespace,
		// Short times make the tests quick; what they mean is the same.
		"HINDSIGHT_TASK_QUIET=200ms", "HINDSIGHT_SWEEP_INTERVAL=100ms", "HINDSIGHT_MERGE_SCHEDULE=@every 10s",
		// What a busy machine makes late is no difference between two installations.
		"HINDSIGHT_RECALL_DEADLINE=1m")
	if sizes(t).outage == 0 {
		// In the small size each installation embeds what the first one did; in the larger ones processes are killed while
		// they embed as well.
		sys.env = append(sys.env, "HINDSIGHT_EMBEDDING_CACHE="+filepath.Join(sys.bin, "vectors"))
	}
	if s.milvus {
		sys.milvus = milvustest.Start(t)
		sys.env = append(sys.env, "HINDSIGHT_MILVUS_ADDR="+sys.milvus.Address())
	}
	t.Cleanup(func() {
		for _, p := range append(slices.Clone(sys.services), sys.engines) {
			if p != nil {
				p.kill(t)
			}
		}
	})
	if s.allInOne {
		sys.services = []*process{sys.process("up", "hindsight", "http://127.0.0.1:"+ports[2]+"/readyz", nil, "up")}
		return sys
	}
	sys.engines = sys.process("engines", "hindsight", sys.http+"/ping", nil, "up", "--engines-only")
	sys.engines.start(t)
	sys.engines.waitReady(t)
	for i, name := range s.services {
		health := freePorts(t, 1)[0]
		settings := []string{"HINDSIGHT_NATS_URL=" + sys.nats, "HINDSIGHT_CLICKHOUSE_URL=" + sys.http, "HINDSIGHT_HEALTH_PORT=" + health}
		sys.services = append(sys.services, sys.process(fmt.Sprintf("%s.%d", name, i), name, "http://127.0.0.1:"+health+"/readyz", settings))
	}
	return sys
}

func (s *system) process(name, program, ready string, settings []string, args ...string) *process {
	return &process{name: name, path: filepath.Join(s.bin, program), args: args, env: append(slices.Clone(s.env), settings...), ready: ready}
}

// launch starts all programs at once and waits until all are ready.
func (s *system) launch() {
	s.t.Helper()
	for _, p := range s.services {
		p.start(s.t)
	}
	s.waitReady()
}

func (s *system) waitReady() {
	s.t.Helper()
	for _, p := range s.services {
		p.waitReady(s.t)
	}
}

// run runs a command that must succeed and returns what it printed.
func (s *system) run(args ...string) string {
	s.t.Helper()
	r := command(s.t, s.env, filepath.Join(s.bin, "hindsight"), args...)
	if r.code != 0 {
		s.t.Fatalf("hindsight %s: exit %d\n%s\n%s\n%s", strings.Join(args, " "), r.code, r.stdout, r.stderr, s.logs())
	}
	return r.stdout
}

// logs are the ends of the programs' logs, for an error.
func (s *system) logs() string {
	var b strings.Builder
	for _, p := range s.services {
		fmt.Fprintf(&b, "--- %s\n%s\n", p.name, p.log.tail())
	}
	return b.String()
}

// outcome is what an installation has come to.
type outcome struct {
	state   statetest.State
	answers []answer
	// published is how many events the tasks have, tasks how many there are.
	published, tasks int
}

type answer struct {
	Items []struct {
		ID     string  `json:"id"`
		Layer  string  `json:"layer"`
		Text   string  `json:"text"`
		Lesson string  `json:"lesson"`
		Score  float64 `json:"score"`
	} `json:"items"`
	Way    string `json:"way"`
	Notice string `json:"notice"`
}

type imported struct {
	Read, Mapped, Failed, Tasks, Events, Published int
}

// settle waits until everything is stored, reflected, consolidated and searchable, and says what it came to.
func (s *system) settle(file string) outcome {
	s.t.Helper()
	s.waitReady()
	report := parse[imported](s.t, s.run("import", "--json", "--wait", file))
	s.drain()
	record := s.record()
	var state statetest.State
	for round := 0; ; round++ {
		for _, job := range []string{"merge", "induce", "consistency"} {
			s.run("consolidate", job)
		}
		next, err := statetest.Digest(s.t.Context(), record, namespace)
		if err != nil {
			s.t.Fatal(err)
		}
		if round > 0 && next.Sum() == state.Sum() {
			break
		}
		if round == 10 {
			s.t.Fatalf("the state does not settle:\n%s", strings.Join(state.Diff(next), "\n"))
		}
		state = next
	}
	return outcome{state: state, answers: s.ask(namespace), published: report.Events, tasks: report.Tasks}
}

// ask asks all questions.
func (s *system) ask(of string) []answer {
	s.t.Helper()
	var answers []answer
	for _, q := range questions() {
		answers = append(answers, parse[answer](s.t, s.run("recall", "--json", "--namespace", of, q)))
		s.drain() // What was shown counts as a hit in the next answer.
	}
	return answers
}

func (s *system) record() *store.ClickHouse {
	s.t.Helper()
	record, err := store.Open(store.Options{URL: s.http})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = record.Close() })
	return record
}

// drain waits until no work is left in the streams.
func (s *system) drain() {
	s.t.Helper()
	conn, err := bus.Connect(s.t.Context(), bus.Options{URL: s.nats, Name: "chaos"})
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close()
	eventually(s.t, "the streams to be drained", func() error {
		stats, err := conn.Stats(s.t.Context())
		if err != nil {
			return fmt.Errorf("look at the streams: %w", err)
		}
		for _, stream := range stats {
			if stream.Stream != bus.StreamDeadLetter && stream.Messages > 0 {
				return fmt.Errorf("%s holds %d messages\n%s", stream.Stream, stream.Messages, s.logs())
			}
		}
		return nil
	})
}

// sql gives one number.
func (s *system) sql(statement string) int {
	s.t.Helper()
	text := strings.TrimSpace(s.run("sql", "--format", "TSV", statement))
	n, err := strconv.Atoi(text)
	if err != nil {
		s.t.Fatalf("%s: %q is no number", statement, text)
	}
	return n
}

// complete says what is lost or there twice.
func (s *system) complete(o outcome) {
	s.t.Helper()
	reflected := 0
	for _, line := range o.state.Lines {
		if strings.HasPrefix(line, "reflection ") {
			reflected++
		}
	}
	if reflected != o.tasks {
		s.t.Errorf("reflections: %d, want one for each of the %d tasks", reflected, o.tasks)
	}
	for _, check := range []struct {
		what, statement string
		want            int
	}{
		{"events", "SELECT count() FROM trace_events FINAL WHERE namespace = '" + namespace + "' AND kind != 'recall_served'", o.published},
		{"distinct events", "SELECT uniqExact(event_id) FROM trace_events WHERE namespace = '" + namespace + "' AND kind != 'recall_served'", o.published},
		{"tasks", "SELECT count() FROM tasks FINAL WHERE namespace = '" + namespace + "'", o.tasks},
		{"dead letters", "SELECT count() FROM dead_letters FINAL", 0},
	} {
		if got := s.sql(check.statement); got != check.want {
			s.t.Errorf("%s: %d, want %d", check.what, got, check.want)
		}
	}
}

// abridged shows of two lines about the same thing only where they begin to differ.
func abridged(lines []string) []string {
	const before, after = 60, 300
	var out []string
	for i := 0; i < len(lines); i++ {
		a := lines[i]
		if i+1 < len(lines) && id(a) == id(lines[i+1]) {
			b, n := lines[i+1], 2
			for n < min(len(a), len(b)) && a[n] == b[n] {
				n++
			}
			for _, line := range []string{a, b} {
				out = append(out, line[:2]+id(a)+": …"+line[min(len(line), max(2, n-before)):min(len(line), n+after)]+"…")
			}
			i++
			continue
		}
		out = append(out, a[:min(len(a), 2*after)])
	}
	return out
}

// id is what a line of a difference is about: its kind and id.
func id(line string) string {
	words := strings.SplitN(line, " ", 4)
	if len(words) < 4 {
		return line
	}
	return words[1] + " " + words[2]
}

// differs lists how another outcome is not this one, shortened.
func (o outcome) differs(other outcome) []string {
	const most = 40
	out := abridged(o.state.Diff(other.state))
	for i, q := range questions() {
		if d := o.answers[i].differs(other.answers[i]); d != "" {
			out = append(out, fmt.Sprintf("recall %q: %s", q, d))
		}
	}
	if len(out) > most {
		out = append(out[:most], fmt.Sprintf("… and %d more", len(out)-most))
	}
	return out
}

func (a answer) differs(b answer) string {
	const tolerance = 1e-3
	if a.Notice != b.Notice || a.Way != b.Way {
		return fmt.Sprintf("way %q and notice %q, want way %q and notice %q", b.Way, b.Notice, a.Way, a.Notice)
	}
	if len(a.Items) != len(b.Items) {
		return fmt.Sprintf("%d items, want %d", len(b.Items), len(a.Items))
	}
	for i, item := range a.Items {
		other := b.Items[i]
		if math.Abs(item.Score-other.Score) > tolerance {
			return fmt.Sprintf("item %d is %s with %.4f, want %s with %.4f", i, other.ID, other.Score, item.ID, item.Score)
		}
		item.Score = other.Score
		if item != other {
			return fmt.Sprintf("item %d is %+v, want %+v", i, other, item)
		}
	}
	return ""
}

// same fails the test when an outcome is not the one that was expected.
func same(t *testing.T, what string, want, got outcome) {
	t.Helper()
	if diff := want.differs(got); len(diff) > 0 {
		t.Errorf("%s differs from the undisturbed installation (- expected, + found):\n%s", what, strings.Join(diff, "\n"))
	}
}

// lap says how long something took.
func lap(t *testing.T, what string, begun time.Time) {
	t.Helper()
	t.Logf("%s: %s", what, time.Since(begun).Round(100*time.Millisecond))
}
