package evaluate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// restTime is how long a started program is left alone before its resting size is read; ClickHouse gives memory back
// during it.
const restTime = 10 * time.Second

// Startup measures how long `hindsight up` takes to be ready on an empty folder, how much memory it holds at rest, and how
// long it takes to be ready again on the folder that it left, with one batch of events in it. executable is the program
// itself.
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
	return Report{Suite: "startup", Examples: []string{}, Figures: map[string]float64{
		"ready_seconds":         ready.Seconds(),
		"restart_ready_seconds": time.Since(began).Seconds(),
		"restart_events":        benchBatch,
		"resident_rest_bytes":   float64(resting),
		"resident_peak_bytes":   float64(peak),
	}}, nil
}
