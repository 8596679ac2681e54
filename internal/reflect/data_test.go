package reflect_test

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/importer"
	"github.com/hindsight-memory/hindsight/internal/memory"
	"github.com/hindsight-memory/hindsight/internal/reflect"
)

// recorded is one recorded run.
type recorded struct {
	task memory.Task
	evs  []events.Event
	file string
}

// recordedRuns reads all recorded runs, or skips the test.
func recordedRuns(t *testing.T) []recorded {
	t.Helper()
	dir := os.Getenv("HINDSIGHT_TEST_DATA")
	if dir == "" {
		t.Skip("HINDSIGHT_TEST_DATA is not set: the recorded runs are not there")
	}
	files, err := filepath.Glob(filepath.Join(dir, "traces", "*.jsonl.gz"))
	if err != nil || len(files) == 0 {
		t.Fatalf("HINDSIGHT_TEST_DATA=%s holds no traces/*.jsonl.gz (%v)", dir, err)
	}
	im, err := importer.New(importer.Options{Namespace: "acme"})
	if err != nil {
		t.Fatal(err)
	}
	var out []recorded
	for _, path := range files {
		for item := range im.Read(t.Context(), path) {
			if item.Problem != nil {
				t.Fatalf("%+v", item.Problem)
			}
			out = append(out, recorded{memory.BuildTask(item.Record.Events, true), item.Record.Events, filepath.Base(path)})
		}
	}
	return out
}

// peersNear gives the recorded runs next to one that used one of its tools and succeeded.
func peersNear(of []recorded, r recorded) []memory.Peer {
	at := slices.IndexFunc(of, func(o recorded) bool { return o.task.TaskID == r.task.TaskID })
	tools := memory.OutlineOf(r.task).Tools
	var out []memory.Peer
	before := slices.Clone(of[:at])
	slices.Reverse(before)
	for _, side := range [][]recorded{before, of[at+1:]} {
		n := 0
		for _, o := range side {
			if n < 4 && o.task.Status == events.StatusSuccess && slices.ContainsFunc(memory.OutlineOf(o.task).Tools, func(tool string) bool { return slices.Contains(tools, tool) }) {
				out, n = append(out, memory.NewPeer(o.task, o.evs)), n+1
			}
		}
	}
	return out
}

// TestRecordedRuns lets the evidence critic look at every recorded run: what it says must be in the evidence, useful,
// and never about an outage.
func TestRecordedRuns(t *testing.T) {
	t.Parallel()
	runs := recordedRuns(t)
	byGoal := map[string][]memory.Task{}
	for _, r := range runs {
		byGoal[r.task.GoalID] = append(byGoal[r.task.GoalID], r.task)
	}
	byType := map[string][]recorded{}
	for _, r := range runs {
		byType[r.task.TaskType] = append(byType[r.task.TaskType], r)
	}
	for _, of := range byType {
		slices.SortFunc(of, func(a, b recorded) int {
			return cmp.Or(a.task.StartedAt.Compare(b.task.StartedAt), strings.Compare(a.task.TaskID, b.task.TaskID))
		})
	}
	kinds, dropped, samples := map[string]int{}, map[string]int{}, map[string][]string{}
	payment, gate := 0, 0
	for _, r := range runs {
		a := memory.Analyse(r.task, byGoal[r.task.GoalID], r.evs, memory.AnalysisOptions{Peers: peersNear(byType[r.task.TaskType], r)})
		for reason, n := range a.Dropped {
			dropped[r.file+" "+reason] += n
		}
		for _, s := range a.Stated {
			kinds["stated "+string(s.MemoryType)]++
			samples["stated"] = append(samples["stated"], fmt.Sprintf("%s | %s = %s", s.Content, s.Entity, s.Value))
		}
		for _, f := range a.Findings {
			kinds[r.file+" "+string(f.Kind)]++
			lesson, when, cause := reflect.Lesson(f, a.Language)
			if err := memory.Gate(lesson, memory.Evidence{Text: f.EvidenceText, Vocabulary: f.Vocabulary, Error: f.Error}); err != nil {
				gate++
				if gate < 20 {
					t.Errorf("%s: %v\n  %s", r.task.TaskID, err, lesson)
				}
			}
			if strings.Contains(f.Signature, "service unavailable") || strings.Contains(strings.ToLower(lesson), "503") {
				t.Errorf("a lesson about an outage: %s", lesson)
			}
			if strings.Contains(f.Signature, "payment amount does not add up") && r.file == "tau_airline_gpt4o.jsonl.gz" && strings.Contains(lesson, "add up exactly to the total") {
				payment++
			}
			key := r.file + " " + string(f.Kind)
			if f.Peers > 0 {
				key += " of the type"
				kinds[key]++
			}
			samples[key] = append(samples[key], fmt.Sprintf("[i%.2f c%.2f %s] %s\n      WHEN %s\n      WHY  %s\n      SIT  %s", f.Importance, f.Confidence, f.CauseClass, lesson, when, cause, f.Situation))
		}
	}
	if payment == 0 {
		t.Error("nothing says that the payments must add up to the total")
	}
	t.Logf("payment lessons: %d, failed the gate: %d", payment, gate)
	for _, k := range slices.Sorted(maps.Keys(kinds)) {
		t.Logf("%6d %s", kinds[k], k)
	}
	for _, k := range slices.Sorted(maps.Keys(dropped)) {
		t.Logf("%6d dropped %s", dropped[k], k)
	}
	per := 6
	if os.Getenv("HINDSIGHT_TEST_SAMPLES") != "" {
		per = 60
	}
	for _, k := range slices.Sorted(maps.Keys(samples)) {
		list := samples[k]
		for i := 0; i < len(list); i += max(1, len(list)/per) {
			t.Logf("%s: %s", k, list[i])
		}
	}
}
