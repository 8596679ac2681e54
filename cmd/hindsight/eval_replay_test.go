package main_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hindsight-memory/hindsight/internal/engine/enginetest"
	"github.com/hindsight-memory/hindsight/internal/evaluate"
)

// replayRuns writes recorded runs of three goals, each tried twice: the first try meets an error and repairs it, the second
// meets it again. What nobody may see is in fields that are not to be read.
func (in *installation) replayRuns() string {
	in.t.Helper()
	var lines strings.Builder
	for trial := range 2 {
		for n, goal := range []string{"refund a broken lamp", "refund a late parcel", "cancel a subscription"} {
			fmt.Fprintf(&lines, `{"source":"shop","run":"agent","trial":%d,"task_id":"%d","task":"HIDDEN script","labels":{"gold":"HIDDEN answer"},"outcome":{"success":%t},"steps":[`, trial, n, n == 1)
			fmt.Fprintf(&lines, `{"type":"message","role":"user","content":"Please %s, order %d"},`, goal, 1000+10*trial+n)
			fmt.Fprintf(&lines, `{"type":"tool_call","tool":"get_order","args":{"order_id":"%d"},"result":{"total":%d}},`, 1000+10*trial+n, 20+n)
			fmt.Fprintf(&lines, `{"type":"tool_call","tool":"refund_order","args":{"order_id":"%d","amount":"EUR %d"},"error":"Error: amount must be a number"},`, 1000+10*trial+n, 20+n)
			fmt.Fprintf(&lines, `{"type":"tool_call","tool":"refund_order","args":{"order_id":"%d","amount":%d},"result":"done"}]}`+"\n", 1000+10*trial+n, 20+n)
		}
	}
	return in.writeFile("runs.jsonl", lines.String())
}

// replay runs the suite, and ends it at the given word of its log unless that is empty.
func (in *installation) replay(t *testing.T, endAt string, args ...string) (report evaluate.Report, log string) {
	t.Helper()
	cmd := in.command(t.Context(), append([]string{"eval", "replay", "--embedder", "none", "--json"}, args...)...)
	var out bytes.Buffer
	said := &enginetest.Log{}
	cmd.Env, cmd.Stdout, cmd.Stderr = append(cmd.Env, "TMPDIR="+in.dir), &out, said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	if endAt != "" {
		in.waitFor(func() error {
			if strings.Contains(said.String(), endAt) {
				return nil
			}
			return fmt.Errorf("the log does not say %q", endAt)
		})
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case err := <-done:
		if (err != nil) != (endAt != "") {
			t.Fatalf("eval replay: %v\n%s", err, said)
		}
	case <-time.After(patience):
		_ = cmd.Process.Kill()
		t.Fatalf("eval replay does not end\n%s", said)
	}
	if endAt == "" {
		report = parse[evaluate.Report](t, out.String())
	}
	return report, said.String()
}

// TestReplayIsReproducibleAndGoesOn: the whole product twice over the same runs gives the same figures, the second time
// although it was interrupted; and it finds what it learnt, without what nobody may see.
func TestReplayIsReproducibleAndGoesOn(t *testing.T) {
	t.Parallel()
	in := newInstallation(t)
	runs := in.replayRuns()
	first, _ := in.replay(t, "", runs)
	for name, want := range map[string]float64{
		"runs": 6, "batches": 2, "calls": 18, "error_events": 6, "error_events_repeated": 5, "error_events_learnt": 3,
		"error_events_repeated_memorised": 3, "error_events_covered": 3, "error_events_covered_by_call": 3, "check_items_matched_error": 3,
	} {
		if first.Figures[name] != want {
			t.Errorf("%s = %v, want %v", name, first.Figures[name], want)
		}
	}
	if first.Suite != "replay" || first.Figures["tokens_per_task"] <= 0 || len(first.Examples) == 0 {
		t.Errorf("report %+v", first)
	}
	work := filepath.Join(in.dir, "work")
	in.replay(t, `"replaying"`, "--work", work, runs)
	second, log := in.replay(t, "", "--work", work, runs)
	if !maps.Equal(first.Figures, second.Figures) {
		for name, value := range first.Figures {
			if second.Figures[name] != value {
				t.Errorf("%s was %v and is %v", name, value, second.Figures[name])
			}
		}
	}
	if strings.Count(log, `"replaying"`) != 1 {
		t.Errorf("the second batch alone was left to do:\n%s", log)
	}
	raw, err := os.ReadFile(filepath.Join(work, "answers.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(raw, []byte("HIDDEN")) {
		t.Error("an answer holds what nobody may see")
	}
	if third, log := in.replay(t, "", "--work", work, runs); strings.Contains(log, `"replaying"`) || !maps.Equal(third.Figures, first.Figures) {
		t.Errorf("a replay that was done is done again:\n%s", log)
	}
}

// TestReplayOfRealRuns replays the earliest of the real runs twice.
func TestReplayOfRealRuns(t *testing.T) {
	t.Parallel()
	dir := os.Getenv("HINDSIGHT_TEST_DATA")
	if dir == "" {
		t.Skip("HINDSIGHT_TEST_DATA names no folder with recorded runs")
	}
	in := newInstallation(t)
	args := []string{"--limit", "12", "--learn-every", "6", filepath.Join(dir, "traces", "tau_airline_gpt4o.jsonl.gz")}
	first, _ := in.replay(t, "", args...)
	second, _ := in.replay(t, "", args...)
	if first.Figures["runs"] != 12 || first.Figures["start_items"] == 0 || !maps.Equal(first.Figures, second.Figures) {
		t.Errorf("figures were\n%v\nand are\n%v", first.Figures, second.Figures)
	}
}

func TestReplayRefusesWhatItCannotDo(t *testing.T) {
	t.Parallel()
	in := newInstallation(t)
	for _, args := range [][]string{{}, {"--learn-every", "0", "x"}, {"--limit", "-1", "x"}, {"--embedder", "other", "x"}} {
		if r := in.try("", append([]string{"eval", "replay"}, args...)...); r.code != 2 {
			t.Errorf("eval replay %q ended with %d, want 2: %s", args, r.code, r.stderr)
		}
	}
	if r := in.try("", "eval", "replay", filepath.Join(in.dir, "nothing.jsonl")); r.code != 1 || !strings.Contains(r.stderr, "nothing.jsonl") {
		t.Errorf("a file that is not there: %d, %s", r.code, r.stderr)
	}
}
