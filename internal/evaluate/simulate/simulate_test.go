package simulate_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/hindsight-memory/hindsight/internal/engine/enginetest"
	"github.com/hindsight-memory/hindsight/internal/evaluate/simulate"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if err := enginetest.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stop the shared engine:", err)
		code = 1
	}
	http.DefaultClient.CloseIdleConnections()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// shared is the engine of the test process.
type shared string

func (s shared) URL() string { return string(s) }

func options(t *testing.T) simulate.Options {
	t.Helper()
	return simulate.Options{
		Seeds: 1, Seed: 1, Tasks: 6, Classes: 2, Work: t.TempDir(), Build: "test", Engines: shared(enginetest.ClickHouse(t)), Embedder: "none",
		ConsolidateEvery: 3, Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
}

// TestTheMemoryIsMeasuredTheSameTwice runs all arms on the real product, and one of them again.
func TestTheMemoryIsMeasuredTheSameTwice(t *testing.T) {
	t.Parallel()
	first, err := simulate.Run(t.Context(), options(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"repeat_reduction_check_vs_none", "repeat_reduction_check_vs_none_low", "repeat_reduction_check_vs_none_high",
		"success_none", "success_check", "success_harmful", "success_unguarded", "success_delta_min_points",
	} {
		if _, has := first.Figures[name]; !has {
			t.Errorf("there is no figure %s", name)
		}
	}
	// In so short a stream nothing may be left to repeat, and there is no share of nothing.
	if _, has := first.Figures["repeat_reduction_check_vs_start"]; has != (first.Figures["repeats_per_stream_start"] > 0) {
		t.Errorf("with %v repeats a stream at the start alone it is %t that there is a reduction against them", first.Figures["repeats_per_stream_start"], has)
	}
	for _, name := range []string{"planted_lessons", "tokens_per_task_check", "followed_per_task_check", "repeats_per_stream_none"} {
		if first.Figures[name] <= 0 {
			t.Errorf("%s is %v: want more", name, first.Figures[name])
		}
	}
	if len(first.Examples) == 0 {
		t.Error("there are no examples")
	}
	o := options(t)
	o.Arms = []simulate.Arm{simulate.ArmNone, simulate.ArmCheck}
	second, err := simulate.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range second.Figures {
		if before, has := first.Figures[name]; has && before != v && !strings.HasPrefix(name, "success_delta_min_points") {
			t.Errorf("%s was %v and is %v", name, before, v)
		}
	}
}

// TestAnInterruptedRunGoesOn cuts a run after its first cells, and finishes it: what was done is not done again.
func TestAnInterruptedRunGoesOn(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Seeds, o.Arms, o.Tasks, o.Together = 2, []simulate.Arm{simulate.ArmNone, simulate.ArmStart}, 8, 1
	ctx, cancel := context.WithCancel(t.Context())
	o.Progress = func(p simulate.Progress) {
		if p.Cells == 3 { // both without a memory, and one with
			cancel()
		}
	}
	if _, err := simulate.Run(ctx, o); !errors.Is(err, context.Canceled) {
		t.Fatalf("a run that was cut ended with %v", err)
	}
	kept, err := filepath.Glob(filepath.Join(o.Work, "*", "*.json"))
	if err != nil || len(kept) != 3 {
		t.Fatalf("%d finished cells are kept (%v): want 3", len(kept), err)
	}
	began := 0
	o.Progress = func(p simulate.Progress) {
		if p.Task == 1 {
			began++
		}
	}
	if _, err := simulate.Run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if began != 1 {
		t.Errorf("%d groups of cells were run after the interruption: want 1", began)
	}
	again, err := simulate.Run(t.Context(), o)
	if err != nil || again.Figures["seeds"] != 2 {
		t.Fatalf("a finished run again: %v, %v", again, err)
	}
}
