package evaluate

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// restTime is how long a started program is left alone before its resting size is read; ClickHouse gives memory back
// during it.
const restTime = 10 * time.Second

// Startup measures how long `hindsight up` takes to be ready on an empty folder and again on the same kind of folder,
// and how much memory it holds at rest. executable is the program itself.
func Startup(ctx context.Context, executable string) (report Report, err error) {
	began := time.Now()
	p, err := start(ctx, executable, nil, nil)
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
	return Report{Suite: "startup", Examples: []string{}, Figures: map[string]float64{
		"ready_seconds":       ready.Seconds(),
		"resident_rest_bytes": float64(p.resident()),
		"resident_peak_bytes": float64(peak),
	}}, nil
}
