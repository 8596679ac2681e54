package chaos_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// size is how much is done; see the package's comment.
type size struct {
	seeds  []uint64
	tasks  int
	outage time.Duration
}

func sizes(t *testing.T) size {
	t.Helper()
	get := func(name, otherwise string) string {
		if value := os.Getenv(name); value != "" {
			return value
		}
		return otherwise
	}
	s := size{}
	for seed := range strings.SplitSeq(get("HINDSIGHT_TEST_CHAOS_SEEDS", "1"), ",") {
		n, err := strconv.ParseUint(strings.TrimSpace(seed), 10, 64)
		if err != nil {
			t.Fatalf("HINDSIGHT_TEST_CHAOS_SEEDS: %v", err)
		}
		s.seeds = append(s.seeds, n)
	}
	var err error
	if s.tasks, err = strconv.Atoi(get("HINDSIGHT_TEST_CHAOS_TASKS", "60")); err != nil || s.tasks < 10 {
		t.Fatalf("HINDSIGHT_TEST_CHAOS_TASKS must be a number of at least 10: %v", err)
	}
	if s.outage, err = time.ParseDuration(get("HINDSIGHT_TEST_CHAOS_OUTAGE", "0s")); err != nil {
		t.Fatalf("HINDSIGHT_TEST_CHAOS_OUTAGE: %v", err)
	}
	return s
}

// embedder makes the vectors of all installations here, so that their answers can be compared.
const embedder = "local"

// undisturbed is the installation that all others are compared with.
var undisturbed struct {
	once    sync.Once
	outcome *outcome
}

// reference is what one process on embedded engines comes to when nobody disturbs it.
func reference(t *testing.T) outcome {
	t.Helper()
	undisturbed.once.Do(func() {
		begun := time.Now()
		sys := build(t, shape{allInOne: true, embedder: embedder})
		sys.launch()
		o := sys.settle(input(t, sizes(t).tasks))
		sys.complete(o)
		undisturbed.outcome = &o
		lap(t, fmt.Sprintf("undisturbed, all in one: %d tasks, %d events, %s", o.tasks, o.published, o.state.Sum()), begun)
		for _, p := range sys.services {
			p.stop(t)
		}
	})
	if undisturbed.outcome == nil {
		t.Fatal("the undisturbed installation has failed in another test")
	}
	return *undisturbed.outcome
}

// TestTheSameHoweverItIsRun compares one process with four on Milvus, and with several of each on the embedded index, that
// begin at once on an empty database. In the larger sizes it compares it with four on the embedded index as well.
func TestTheSameHoweverItIsRun(t *testing.T) {
	want := reference(t)
	found := 0
	for _, a := range want.answers {
		found += len(a.Items)
	}
	if found == 0 {
		t.Error("no question has an answer: nothing is compared")
	}
	shapes := map[string]shape{
		"milvus":   {services: four(), embedder: embedder, milvus: true},
		"replicas": {services: []string{"ingestor", "ingestor", "reflector", "reflector", "reflector", "consolidator", "consolidator", "mcp"}, embedder: embedder},
	}
	if sizes(t).outage > 0 {
		shapes["embedded"] = shape{services: four(), embedder: embedder}
	}
	for name, s := range shapes {
		t.Run(name, func(t *testing.T) {
			begun := time.Now()
			sys := build(t, s)
			sys.launch()
			migrated := 0
			for _, p := range sys.services {
				migrated += strings.Count(p.log.String(), "applied migration")
			}
			if n := sys.sql("SELECT count() FROM schema_migrations"); migrated != n {
				t.Errorf("%d migrations were applied, want each of the %d once", migrated, n)
			}
			got := sys.settle(input(t, sizes(t).tasks))
			sys.complete(got)
			same(t, name, want, got)
			for _, p := range sys.services {
				p.stop(t)
			}
			sys.engines.stop(t)
			lap(t, name, begun)
		})
	}
}

// TestKilledAtRandom kills every process, the engines and Milvus while tasks arrive.
func TestKilledAtRandom(t *testing.T) {
	want := reference(t)
	s := sizes(t)
	for _, seed := range s.seeds {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			begun := time.Now()
			sys := build(t, shape{services: four(), embedder: embedder, milvus: true})
			sys.launch()
			file := input(t, s.tasks)
			random := rand.New(rand.NewPCG(seed, seed))
			victims := []string{"milvus", "engines"}
			for _, p := range sys.services {
				victims = append(victims, p.name)
			}
			random.Shuffle(len(victims), func(i, j int) { victims[i], victims[j] = victims[j], victims[i] })
			parts := split(t, file, len(victims))
			t.Logf("%8s  %-16s %-9s %-9s %s", "at", "killed", "after", "down for", "tasks under way")
			for i, victim := range victims {
				feeding := sys.feed(parts[i])
				moment, down := time.Duration(random.Int64N(int64(1500*time.Millisecond))), time.Duration(random.Int64N(int64(3*time.Second)))
				<-time.After(moment)
				at := time.Since(begun)
				sys.strike(victim, down)
				t.Logf("%7.1fs  %-16s %-9s %-9s %d", at.Seconds(), victim, moment.Round(time.Millisecond), down.Round(time.Millisecond), lines(t, parts[i]))
				<-feeding
			}
			got := sys.settle(file)
			sys.complete(got)
			same(t, "an installation with kills", want, got)
			lap(t, fmt.Sprintf("%d kills: %d tasks, %d events, %s", len(victims), got.tasks, got.published, got.state.Sum()), begun)
		})
	}
}

// TestMilvusAway keeps Milvus away while tasks arrive: nothing is lost, questions are answered with a notice, and the index
// is whole afterwards.
func TestMilvusAway(t *testing.T) {
	s := sizes(t)
	if s.outage == 0 {
		t.Skip("HINDSIGHT_TEST_CHAOS_OUTAGE does not say how long Milvus is to be away: `make test-chaos` does")
	}
	want := reference(t)
	begun := time.Now()
	sys := build(t, shape{services: four(), embedder: embedder, milvus: true})
	sys.launch()
	file := input(t, s.tasks)
	parts := split(t, file, 2)
	sys.run("import", "--wait", "--namespace", canary, parts[0])
	<-sys.feed(parts[0])
	sys.milvus.Kill(t)
	away := time.Now()
	feeding := sys.feed(parts[1])
	noticed := 0
	for time.Since(away) < s.outage || noticed == 0 {
		asked := time.Now()
		answers := sys.run("recall", "--json", "--namespace", canary, questions()[noticed%len(questions())])
		took := time.Since(asked)
		if a := parse[answer](t, answers); a.Notice == "" {
			t.Errorf("an answer without Milvus has no notice: %+v", a)
		}
		if noticed++; took > time.Minute {
			t.Errorf("an answer without Milvus took %s", took)
		}
	}
	<-feeding
	gone := time.Since(away)
	sys.milvus.Restart(t)
	got := sys.settle(file)
	sys.complete(got)
	same(t, "an installation whose Milvus was away", want, got)
	lap(t, fmt.Sprintf("Milvus away for %s: %d questions answered with the notice, %d tasks, %d events, %s", gone.Round(time.Second), noticed, got.tasks, got.published, got.state.Sum()), begun)
}

// strike kills one part of the installation and starts it again after a while.
func (s *system) strike(name string, down time.Duration) {
	s.t.Helper()
	switch name {
	case "milvus":
		s.milvus.Kill(s.t)
		<-time.After(down)
		s.milvus.Restart(s.t)
	case "engines":
		s.engines.kill(s.t)
		<-time.After(down)
		s.engines.start(s.t)
		s.engines.waitReady(s.t)
	default:
		for _, p := range s.services {
			if p.name == name {
				if err, ended := p.ended(); ended {
					s.t.Errorf("%s had ended by itself: %v\n%s", name, err, p.log.tail())
				}
				p.kill(s.t)
				<-time.After(down)
				p.start(s.t)
			}
		}
	}
}

// feed imports a file beside the test, again until it succeeds: an import may be interrupted and repeated.
func (s *system) feed(file string) (done <-chan struct{}) {
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		for range 100 {
			if r := command(s.t, s.env, filepath.Join(s.bin, "hindsight"), "import", file); r.code == 0 {
				return
			}
		}
		s.t.Errorf("%s could not be imported", file)
	}()
	return finished
}

// split cuts a file of lines into n files.
func split(t *testing.T, file string, n int) []string {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	all := strings.SplitAfter(strings.TrimSuffix(string(raw), "\n")+"\n", "\n")
	all = all[:len(all)-1]
	var parts []string
	for i := range n {
		path := fmt.Sprintf("%s.%d", file, i)
		if err := os.WriteFile(path, []byte(strings.Join(all[len(all)*i/n:len(all)*(i+1)/n], "")), 0o600); err != nil {
			t.Fatal(err)
		}
		parts = append(parts, path)
	}
	return parts
}

func lines(t *testing.T, file string) int {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(raw), "\n")
}
