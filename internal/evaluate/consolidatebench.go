package evaluate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hindsight-memory/hindsight/internal/consolidate"
	"github.com/hindsight-memory/hindsight/internal/memory"
	"github.com/hindsight-memory/hindsight/internal/store"
)

// Consolidate measures how long lessons take to be merged and rules to be drawn, over so many snapshots with generated
// vectors and as many tasks, against the real record; beside it, one bare read of all the same rows.
func Consolidate(ctx context.Context, o CurveOptions) (Report, error) {
	o = o.withDefaults()
	report := newReport("consolidate", o.Seed)
	err := onEngines(ctx, o.Executable, o.Sizes, func(p *program, size int) error { return consolidateAt(ctx, p, o, size, &report) })
	return report, err
}

func consolidateAt(ctx context.Context, p *program, o CurveOptions, size int, report *Report) (err error) {
	st, err := p.emptyRecord(ctx, "bench_consolidate_"+strconv.Itoa(size))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	o.Logger.Info("loading", "snapshots", size, "tasks", size)
	set := newRecallSet(o.Seed)
	index := store.NewVectors(st)
	if err := index.Prepare(ctx, recallModel, recallDimension); err != nil {
		return fmt.Errorf("prepare the index: %w", err)
	}
	if err := load(ctx, st, index, set, size); err != nil {
		return err
	}
	if _, err := loadTasks(ctx, st, set, size); err != nil {
		return err
	}
	if err := settle(ctx, st); err != nil {
		return err
	}
	lessons, err := bareRead(ctx, st, "snapshots", "item_vectors")
	if err != nil {
		return err
	}
	tasks, err := bareRead(ctx, st, "tasks", "trace_events")
	if err != nil {
		return err
	}
	scheduler, err := consolidate.New(consolidate.Options{
		Record: st, Lead: (&onlyLease{}).lead, Holder: "bench", Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
		Meaning: func(context.Context) (string, memory.Thresholds, error) {
			return recallModel, memory.Thresholds{Related: 0.5, Duplicate: 0.7}, nil
		},
	})
	if err != nil {
		return fmt.Errorf("set up the consolidation: %w", err)
	}
	figure := func(name string, value float64) { report.Figures[fmt.Sprintf(name, size)] = value }
	for _, of := range []struct {
		job  string
		bare time.Duration
	}{{consolidate.JobMerge, lessons}, {consolidate.JobInduce, tasks}} {
		o.Logger.Info("consolidating", "job", of.job, "size", size)
		began := time.Now()
		done, err := scheduler.RunJob(ctx, of.job)
		if err != nil {
			return fmt.Errorf("run the job %s: %w", of.job, err)
		}
		took := time.Since(began)
		if len(done.Counts) == 0 {
			return fmt.Errorf("the job %s did nothing, so that its time says little", of.job)
		}
		figure(of.job+"_%d_seconds", took.Seconds())
		figure("raw_read_for_"+of.job+"_%d_seconds", of.bare.Seconds())
		figure("ratio_"+of.job+"_%d_to_raw_read", took.Seconds()/of.bare.Seconds())
		for name, n := range done.Counts {
			figure(of.job+"_%d_"+name, float64(n))
		}
	}
	return nil
}

// bareRead reads all rows of tables, and does nothing with them.
func bareRead(ctx context.Context, st *store.ClickHouse, tables ...string) (time.Duration, error) {
	began := time.Now()
	for _, table := range tables {
		if err := st.Query(ctx, "SELECT * FROM "+table, "RowBinary", io.Discard); err != nil {
			return 0, fmt.Errorf("read %s: %w", table, err)
		}
	}
	return time.Since(began), nil
}

// onlyLease is the lease of one that is alone.
type onlyLease struct {
	fence uint64
	data  json.RawMessage
}

func (l *onlyLease) lead(ctx context.Context, run func(context.Context, consolidate.Lease) error) error {
	l.fence++
	return run(ctx, l)
}

func (l *onlyLease) Fence() uint64 { return l.fence }

func (l *onlyLease) Data() json.RawMessage { return l.data }

func (l *onlyLease) Commit(ctx context.Context, data json.RawMessage) error {
	l.data = data
	return context.Cause(ctx)
}
