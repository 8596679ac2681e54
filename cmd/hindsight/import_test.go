package main_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hindsight-memory/hindsight/internal/engine/enginetest"
)

// report is what `import --json` promises.
type report struct {
	Read        int            `json:"read"`
	Mapped      int            `json:"mapped"`
	Skipped     map[string]int `json:"skipped"`
	Duplicates  int            `json:"duplicates"`
	Failed      int            `json:"failed"`
	FilesFailed int            `json:"files_failed"`
	Tasks       int            `json:"tasks"`
	Events      int            `json:"events"`
	Problems    []struct {
		File   string `json:"file"`
		Line   int    `json:"line"`
		Reason string `json:"reason"`
		Error  string `json:"error"`
	} `json:"problems"`
}

// fingerprint is a checksum over all rows that an import is responsible for, without the times of storing.
func (in *installation) fingerprint(namespace string) string {
	in.t.Helper()
	return in.sql(fmt.Sprintf(`SELECT
		(SELECT (count(), groupBitXor(sipHash64(namespace, time, task_id, event_id, kind, agent_id, session_id, goal_id, seq, data)))
		 FROM trace_events FINAL WHERE namespace = '%[1]s'),
		(SELECT (count(), groupBitXor(sipHash64(namespace, task_id, revision, closed, status, goal, steps, errors)))
		 FROM tasks FINAL WHERE namespace = '%[1]s')`, namespace))
}

func realRuns(t *testing.T, names ...string) []string {
	t.Helper()
	dir := os.Getenv("HINDSIGHT_TEST_DATA")
	if dir == "" {
		t.Skip("HINDSIGHT_TEST_DATA is not set: recorded runs are not tested")
	}
	var paths []string
	for _, name := range names {
		found, err := filepath.Glob(filepath.Join(dir, "traces", name))
		if err != nil || len(found) == 0 {
			t.Fatalf("no %s in %s/traces: %v", name, dir, err)
		}
		paths = append(paths, found...)
	}
	return paths
}

func TestImportOfRealRuns(t *testing.T) {
	t.Parallel()
	files := realRuns(t, "*.jsonl.gz")
	in := newInstallation(t, noEmbedder)
	in.start()
	args := append([]string{"import", "--namespace", "demo", "--wait", "--json"}, files...)
	first := parse[report](t, in.run(args...))
	if first.Failed != 0 || first.Duplicates != 0 || first.Mapped != first.Read || first.Tasks != first.Read {
		t.Fatalf("first import: %+v", first)
	}
	before := in.fingerprint("demo")
	if got, want := in.sql("SELECT count(), sum(events), countIf(closed = 0) FROM tasks FINAL WHERE namespace = 'demo'"),
		fmt.Sprintf("%d\t%d\t0", first.Tasks, first.Events); got != want {
		t.Errorf("tasks, events, open = %s, want %s", got, want)
	}
	if got := in.sql("SELECT count() FROM dead_letters"); got != "0" {
		t.Errorf("dead letters: %s", got)
	}
	// What the tasks say must be what the record holds, counted another way.
	if got := in.sql(`SELECT count() FROM (
		SELECT task_id, uniqExact(event_id) AS n, countIf(kind = 'step_finished' AND actor != 'user') AS calls FROM trace_events FINAL
		WHERE namespace = 'demo' GROUP BY task_id) AS e
		INNER JOIN (SELECT task_id, events, steps FROM tasks FINAL WHERE namespace = 'demo') AS t USING task_id
		WHERE e.n != t.events OR e.calls != t.steps`); got != "0" {
		t.Errorf("%s tasks disagree with their events", got)
	}
	again := parse[report](t, in.run(args...))
	if again.Duplicates != again.Read || again.Mapped != 0 || again.Failed != 0 {
		t.Errorf("second import: %+v", again)
	}
	if after := in.fingerprint("demo"); after != before {
		t.Errorf("importing again changed the rows:\n%s\n%s", before, after)
	}
	in.stop()
}

// TestKilledDuringImport kills `hindsight up` at ten random moments of an import, restarts it and imports again: the
// rows must be those of an import that nobody disturbed.
func TestKilledDuringImport(t *testing.T) {
	t.Parallel()
	reference := newInstallation(t, noEmbedder)
	files := []string{reference.runsFile("runs.jsonl", 60)}
	if os.Getenv("HINDSIGHT_TEST_DATA") != "" {
		files = append(files, realRuns(t, "tau_airline_gpt4o.jsonl.gz")...)
	}
	args := append([]string{"import", "--namespace", "demo", "--wait", "--json"}, files...)
	reference.start()
	reference.run(args...)
	want := reference.fingerprint("demo")
	took := timeOf(func() { reference.run(append([]string{"import", "--namespace", "timing", "--wait"}, files...)...) })
	reference.stop()

	in := newInstallation(t, noEmbedder)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d; an undisturbed import takes %s", seed, took)
	random := rand.New(rand.NewPCG(seed, 0))
	finished := 0
	for range 10 {
		in.start()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		importing := in.command(ctx, args...)
		if err := importing.Start(); err != nil {
			t.Fatal(err)
		}
		over := make(chan error, 1)
		go func() { over <- importing.Wait() }()
		// The moment is random on purpose; nothing is asserted about what has happened by then.
		moment := time.NewTimer(time.Duration(random.Float64() * float64(took)))
		select {
		case err := <-over:
			if err == nil {
				finished++
			}
		case <-moment.C:
		}
		in.kill()
		cancel() // The importer may wait for the server to come back.
		moment.Stop()
	}
	in.start()
	last := parse[report](t, in.run(args...))
	if last.Failed != 0 {
		t.Errorf("last import: %+v", last)
	}
	if got := in.fingerprint("demo"); got != want {
		t.Errorf("rows after ten kills (%d imports had finished):\n got %s\nwant %s", finished, got, want)
	}
	if got := in.sql("SELECT count() FROM dead_letters"); got != "0" {
		t.Errorf("dead letters: %s", got)
	}
	in.stop()
}

func timeOf(f func()) time.Duration {
	began := time.Now()
	f()
	return time.Since(began)
}

func TestImportOfBadInput(t *testing.T) {
	t.Parallel()
	in := newInstallation(t, noEmbedder)
	in.start()
	good := `{"id":"e1","namespace":"demo","agent_id":"a","session_id":"s","task_id":"t1","time":"2026-01-05T10:00:00Z","kind":"message","data":{"role":"user","content":"hello"}}`
	file := in.writeFile("events.jsonl", strings.Join([]string{
		good,
		`{"id": broken`,
		strings.Replace(good, `"e1"`, `"e2","new_field":{"a":1}`, 1),
		strings.Replace(strings.Replace(good, `"e1"`, `"e3"`, 1), `"message"`, `"agent_dreamt"`, 1),
		strings.Replace(strings.Replace(good, `"e1"`, `"e4"`, 1), `"demo"`, `"Not A Namespace"`, 1),
		strings.Replace(strings.Replace(good, `"e1"`, `"e5"`, 1), `2026-01-05`, `2126-01-05`, 1),
		strings.Replace(strings.Replace(good, `"e1"`, `"e6"`, 1), `{"role":"user"`, `{"list":[`+strings.Repeat(`"aaaaaaaaaaaaaaaa",`, 70000)+`"a"],"role":"user"`, 1),
		strings.Replace(good, `"e1"`, `"e7"`, 1),
	}, "\n")+"\n")
	empty := in.writeFile("empty.jsonl", "")
	r := in.try("", "import", "--namespace", "demo", "--override-namespace", "--json", "--wait", file, empty, in.dir)
	if r.code != 1 {
		t.Errorf("exit %d, want 1: some lines failed", r.code)
	}
	got := parse[report](t, r.stdout)
	reasons := map[string]int{}
	for _, p := range got.Problems {
		reasons[p.Reason] = max(reasons[p.Reason], p.Line)
	}
	for reason, line := range map[string]int{"invalid_json": 2, "invalid_event": 6, "too_large": 7, "is_directory": 0, "empty_file": 0} {
		if at, found := reasons[reason]; !found || at != line {
			t.Errorf("problem %s: found %v at line %d, want line %d; all: %+v", reason, found, at, line, got.Problems)
		}
	}
	skipped := 0
	for _, n := range got.Skipped {
		skipped += n
	}
	if got.Read != 8 || got.Read != got.Mapped+got.Duplicates+got.Failed+skipped-got.Skipped["empty_file"] || got.FilesFailed == 0 {
		t.Errorf("counts do not add up: %+v", got)
	}
	if ids := in.sql("SELECT arrayStringConcat(arraySort(groupUniqArray(event_id)), ' ') FROM trace_events FINAL"); ids != "e1 e2 e3 e4 e7" {
		t.Errorf("stored events: %s", ids)
	}
	if kept := in.sql("SELECT extra['new_field'] FROM trace_events FINAL WHERE event_id = 'e2'"); kept != `{"a":1}` {
		t.Errorf("unknown field kept as %q", kept)
	}
	if unknown := in.sql("SELECT kind, JSONExtractString(data, 'content') FROM trace_events FINAL WHERE event_id = 'e3'"); unknown != "agent_dreamt\thello" {
		t.Errorf("unknown kind stored as %q", unknown)
	}
	if counted := in.sql("SELECT sum(unknown_kinds) FROM v_health"); counted != "1" {
		t.Errorf("unknown kinds counted: %s", counted)
	}
}

// TestFullStreamIsBackPressure fills a small TRACES while no ingestor drains it: publishers are told, nothing accepted
// is lost, and intake goes on by itself once an ingestor runs.
func TestFullStreamIsBackPressure(t *testing.T) {
	t.Parallel()
	in := newInstallation(t, noEmbedder, "HINDSIGHT_TRACES_MAX_BYTES=1048576")
	in.args = []string{"--engines-only"}
	in.start()
	ingestor := in.startProgram("ingestor") // It makes the streams and the schema.
	ingestor.stop()

	var lines strings.Builder
	for i := range 600 {
		fmt.Fprintf(&lines, `{"id":"e%d","task_id":"t%d","kind":"message","data":{"role":"user","content":"%s"}}`+"\n", i, i%7, strings.Repeat("x", 4000))
	}
	r := in.try(lines.String(), "publish", "--namespace", "demo", "--json", "-")
	if r.code != 1 || !strings.Contains(r.stderr, "full") {
		t.Fatalf("publishing into a full stream: exit %d, stderr %s", r.code, r.stderr)
	}
	type published struct {
		ID    string `json:"id"`
		Error string `json:"error"`
	}
	accepted := 0
	for _, p := range parse[[]published](t, r.stdout) {
		if p.Error == "" {
			accepted++
		}
	}
	if accepted == 0 || accepted == 600 {
		t.Fatalf("accepted %d of 600, want some", accepted)
	}
	// An import meets the full stream and waits for the ingestor that starts meanwhile.
	runs := in.runsFile("runs.jsonl", 40)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	importing := in.command(ctx, "import", "--namespace", "demo", "--wait", runs)
	said := &enginetest.Log{}
	importing.Stderr = said
	if err := importing.Start(); err != nil {
		t.Fatal(err)
	}
	in.waitFor(func() error {
		if !strings.Contains(said.String(), "TRACES is full") {
			return fmt.Errorf("the import has not said that it waits: %s", said)
		}
		return nil
	})
	ingestor = in.startProgram("ingestor")
	reflector := in.startProgram("reflector")
	if err := importing.Wait(); err != nil {
		t.Fatalf("import: %v\n%s", err, said)
	}
	if got := in.sql("SELECT countIf(match(event_id, '^e[0-9]{1,3}$')), uniqExact(if(startsWith(task_id, 't'), '', task_id)) - 1 FROM trace_events FINAL WHERE namespace = 'demo'"); got != fmt.Sprintf("%d\t40", accepted) {
		t.Errorf("events published before and tasks imported after = %s, want %d and 40", got, accepted)
	}
	reflector.stop()
	ingestor.stop()
	in.stop()
}
