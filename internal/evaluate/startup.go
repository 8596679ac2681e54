package evaluate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"time"

	"github.com/hindsight-memory/hindsight/examples"
	"github.com/hindsight-memory/hindsight/internal/recall"
)

// restTime is how long a started program is left alone before its resting size is read; ClickHouse gives memory back
// during it.
const restTime = 10 * time.Second

// Startup measures how long `hindsight up` takes to be ready on an empty folder, how much memory it holds at rest, and how
// long it takes to be ready again on the folder that it left, with one batch of events in it; and, in another empty folder,
// how long it takes from the start until a lesson out of an imported file is recalled. executable is the program itself.
func Startup(ctx context.Context, executable string) (report Report, err error) {
	began := time.Now()
	p, err := start(ctx, executable)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	if err := p.ready(ctx, p.healthURL+"/readyz"); err != nil {
		return report, err
	}
	ready := time.Since(began)
	rest, cancel := context.WithTimeout(ctx, restTime)
	defer cancel()
	peak := p.watch(rest)
	if ctx.Err() != nil {
		return report, fmt.Errorf("measure startup: %w", ctx.Err())
	}
	resting := p.resident()
	if _, _, err := p.ingest(ctx, IngestOptions{Events: benchBatch, Seed: 1, Logger: slog.New(slog.DiscardHandler)}); err != nil {
		return report, fmt.Errorf("fill the folder: %w; the program said:\n%s", err, p.output.String())
	}
	if err := p.end(); err != nil {
		return report, err
	}
	began = time.Now()
	if err := p.launch(ctx); err != nil {
		return report, err
	}
	if err := p.ready(ctx, p.healthURL+"/readyz"); err != nil {
		return report, err
	}
	restarted := time.Since(began)
	first, lesson, err := firstLesson(ctx, executable)
	if err != nil {
		return report, fmt.Errorf("recall the first lesson: %w", err)
	}
	return Report{Suite: "startup", Examples: []string{shopQuestion + " → " + lesson}, Figures: map[string]float64{
		"ready_seconds":         ready.Seconds(),
		"first_lesson_seconds":  first.Seconds(),
		"restart_ready_seconds": restarted.Seconds(),
		"restart_events":        benchBatch,
		"resident_rest_bytes":   float64(resting),
		"resident_peak_bytes":   float64(peak),
	}}, nil
}

// shopQuestion is what a new task of the example's agent would ask.
const shopQuestion = "A customer wants a refund for an order that arrived broken"

// firstLesson measures from `hindsight up` on an empty folder to the first lesson that is recalled out of the example, all
// by the command line, as a newcomer would.
func firstLesson(ctx context.Context, executable string) (took time.Duration, lesson string, err error) {
	began := time.Now()
	p, err := start(ctx, executable)
	if err != nil {
		return 0, "", err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	if err := p.ready(ctx, p.healthURL+"/readyz"); err != nil {
		return 0, "", err
	}
	if _, err := p.command(ctx, examples.Shop, "import", "--namespace", benchNamespace, "--wait", "-"); err != nil {
		return 0, "", err
	}
	raw, err := p.command(ctx, nil, "recall", "--namespace", benchNamespace, "--json", shopQuestion)
	if err != nil {
		return 0, "", err
	}
	took = time.Since(began)
	var answer recall.Answer
	if err := json.Unmarshal(raw, &answer); err != nil {
		return 0, "", fmt.Errorf("read the answer: %w", err)
	}
	if len(answer.Items) == 0 {
		return 0, "", fmt.Errorf("nothing was recalled: %s", answer.Notice)
	}
	return took, answer.Items[0].Lesson, nil
}

// command runs a command of the program against the one that is measured, and returns its standard output.
func (p *program) command(ctx context.Context, stdin []byte, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, p.executable, args...) //nolint:gosec // It is this program.
	var out, problems bytes.Buffer
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = p.environment, bytes.NewReader(stdin), &out, &problems
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("run %s: %w\n%s\nthe program said:\n%s", args[0], err, problems.String(), p.output.String())
	}
	return out.Bytes(), nil
}
