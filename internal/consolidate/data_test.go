package consolidate

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/importer"
	"github.com/hindsight-memory/hindsight/internal/memory"
)

const namespace = "test.team"

// recorded gives the tasks of a file of recorded runs, by type, or skips the test.
func recorded(t *testing.T, file string) map[string][]memory.Task {
	t.Helper()
	dir := os.Getenv("HINDSIGHT_TEST_DATA")
	if dir == "" {
		t.Skip("HINDSIGHT_TEST_DATA is not set: the recorded runs are not there")
	}
	im, err := importer.New(importer.Options{Namespace: namespace})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]memory.Task{}
	for item := range im.Read(t.Context(), filepath.Join(dir, "traces", file)) {
		if item.Problem != nil {
			t.Fatalf("%s: %v", file, item.Problem.Err)
		}
		task := memory.BuildTask(item.Record.Events, true)
		out[task.TaskType] = append(out[task.TaskType], task)
	}
	return out
}

func digests(t *testing.T, tasks []memory.Task) []digest {
	t.Helper()
	var out []digest
	for _, task := range tasks {
		task.Steps = slices.Clone(task.Steps)
		if d, usable := digestOf(task); usable {
			out = append(out, d)
		}
	}
	markCopies(out)
	return out
}

// describe words a pattern as its rule would be.
func describe(p *pattern, taskType string, tasks []digest) string {
	r := memory.Rule{TaskType: taskType}
	word(&r, p, tasks, "")
	return fmt.Sprintf("%s lift %.2f low %.2f support %d refute %d goals %d voices %d chance %.4f\n    %s\n    when %s\n    do   %s\n    not  %s",
		p.predicate.JSON(), r.Lift, r.LiftLow, r.Support, r.Refute, r.Goals, r.Voices, p.chance, r.Rule, r.Condition, r.Action, r.DoesNotApplyWhen)
}

func about(patterns []*pattern, kind memory.RuleKind, tool, part string) bool {
	return slices.ContainsFunc(patterns, func(p *pattern) bool {
		return p.kind == kind && p.tool == tool && strings.Contains(p.signature, part)
	})
}

// TestRulesOfRecordedRuns: an error that goes with failing becomes a rule about tasks; one that only runs that succeed
// have met, and an outage, do not.
func TestRulesOfRecordedRuns(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"tau_airline_gpt4o.jsonl.gz", "tau2.jsonl.gz", "tau_retail_503faults.jsonl.gz", "agentrx_retail.jsonl.gz"} {
		for taskType, raw := range recorded(t, file) {
			tasks := digests(t, raw)
			began := time.Now()
			found := mine(namespace, taskType, tasks)
			t.Logf("%s, %s: %d tasks, %d patterns tried in %s, limits %v", file, taskType, len(tasks), found.tried, time.Since(began).Round(time.Millisecond), found.limits)
			for _, p := range found.rules {
				t.Log("  rule ", describe(p, taskType, tasks))
			}
			for _, p := range found.candidates {
				t.Logf("  candidate %s lift %.2f low %.2f support %d refute %d", p.predicate.JSON(), p.lift, p.low, len(p.supporting), len(p.refuting))
			}
			for _, p := range slices.Concat(found.rules, found.candidates) {
				if p.signature != "" && memory.EnvironmentFault("", p.signature) != memory.FaultNone || strings.Contains(p.signature, "unavailable") {
					t.Errorf("an outage became a rule: %s", p.predicate.JSON())
				}
			}
			if strings.HasSuffix(taskType, "/airline") && !about(found.rules, memory.RuleTask, "book_reservation", "payment amount does not add up") {
				t.Errorf("%s: no rule says that payments must add up", taskType)
			}
			if taskType == "tau-bench/airline" && about(found.rules, memory.RuleTask, "update_reservation_flights", "payment method not found") {
				t.Errorf("%s: an error that only runs that succeed have met became a rule about tasks", taskType)
			}
		}
	}
}

// TestShuffledOutcomes: where outcomes are dealt at random among the tasks, hardly any rule about tasks is accepted.
func TestShuffledOutcomes(t *testing.T) {
	t.Parallel()
	const rounds = 20
	r := rand.New(rand.NewPCG(7, 7))
	for _, file := range []string{"tau_airline_gpt4o.jsonl.gz", "tau2.jsonl.gz", "tau_retail_503faults.jsonl.gz"} {
		for taskType, raw := range recorded(t, file) {
			tasks := digests(t, raw)
			withRule, accepted := 0, 0
			for range rounds {
				r.Shuffle(len(tasks), func(i, j int) {
					tasks[i].failed, tasks[j].failed = tasks[j].failed, tasks[i].failed
					tasks[i].Status, tasks[j].Status = tasks[j].Status, tasks[i].Status
				})
				n := 0
				for _, p := range mine(namespace, taskType, tasks).rules {
					if p.kind == memory.RuleTask {
						n++
					}
				}
				accepted += n
				if n > 0 {
					withRule++
				}
			}
			t.Logf("%s: %d of %d shuffles gave a rule about tasks, %d rules in all", taskType, withRule, rounds, accepted)
			if withRule > rounds/4 { // 10 % are allowed for; more than 5 of 20 come by chance in one of 90 cases
				t.Errorf("%s: %d of %d shuffles gave a rule", taskType, withRule, rounds)
			}
		}
	}
}

// TestInduceRecordedRunsFromTheRecord: real runs, stored and read back, give the same rules, once.
func TestInduceRecordedRunsFromTheRecord(t *testing.T) {
	t.Parallel()
	types := recorded(t, "tau_airline_gpt4o.jsonl.gz")
	record := newRecord(t)
	im, err := importer.New(importer.Options{Namespace: namespace})
	if err != nil {
		t.Fatal(err)
	}
	var runs [][]events.Event
	for item := range im.Read(t.Context(), filepath.Join(os.Getenv("HINDSIGHT_TEST_DATA"), "traces", "tau_airline_gpt4o.jsonl.gz")) {
		runs = append(runs, item.Record.Events)
	}
	storeTasks(t, record, runs...)
	s := newScheduler(t, record, &heldLease{}, nil)
	began := time.Now()
	report := runJob(t, s, JobInduce)
	t.Logf("%d tasks in %s: %v", len(types["tau-bench/airline"]), time.Since(began).Round(time.Millisecond), report.Counts)
	found := rules(t, record, memory.ItemActive)
	if !slices.ContainsFunc(found, func(r memory.Rule) bool { return strings.Contains(r.ErrorSignature, "payment amount does not add up") }) {
		t.Errorf("rules %+v", found)
	}
	if again := runJob(t, s, JobInduce); len(again.Runs) > 0 {
		t.Errorf("the second run changed something: %v", again.Counts)
	}
}
