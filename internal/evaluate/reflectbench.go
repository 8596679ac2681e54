package evaluate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hindsight-memory/hindsight/internal/memory"
	"github.com/hindsight-memory/hindsight/internal/reflect"
	"github.com/hindsight-memory/hindsight/internal/store"
)

// CurveOptions choose the sizes of a bench that is repeated at several.
type CurveOptions struct {
	// Executable is the program itself.
	Executable string
	// Sizes are the numbers of tasks or snapshots; empty means 1,000 and 5,000.
	Sizes []int
	// Questions is how many are asked at each size, where there are any; 0 means 100.
	Questions int
	// Seed makes what is measured.
	Seed int64
	// Logger is told what is being measured.
	Logger *slog.Logger
}

func (o CurveOptions) withDefaults() CurveOptions {
	if len(o.Sizes) == 0 {
		o.Sizes = []int{1_000, 5_000}
	}
	if o.Questions <= 0 {
		o.Questions = 100
	}
	return o
}

// reflectBatch is how many tasks are reflected at once, as the service does at most.
const reflectBatch = 25

// Reflect measures how many tasks a second are reflected by the evidence critic, without an embedding model, against the
// real record; beside it, the same rows inserted in the same batches with nothing thought about them.
func Reflect(ctx context.Context, o CurveOptions) (Report, error) {
	o = o.withDefaults()
	report := newReport("reflect", o.Seed)
	err := onEngines(ctx, o.Executable, o.Sizes, func(p *program, size int) error { return reflectAt(ctx, p, o, size, &report) })
	return report, err
}

func reflectAt(ctx context.Context, p *program, o CurveOptions, size int, report *Report) (err error) {
	st, err := p.emptyRecord(ctx, "bench_reflect_"+strconv.Itoa(size))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	o.Logger.Info("loading", "tasks", size)
	tasks, err := loadTasks(ctx, st, newRecallSet(o.Seed), size)
	if err != nil {
		return err
	}
	if err := settle(ctx, st); err != nil {
		return err
	}
	written := &copies{ClickHouse: st}
	reflector, err := reflect.New(reflect.Options{
		Tasks: st, Ledger: written, Items: st, Writer: written, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		return fmt.Errorf("set up reflection: %w", err)
	}
	o.Logger.Info("reflecting", "tasks", size)
	began := time.Now()
	for batch := range slices.Chunk(tasks, reflectBatch) {
		requests := make([]memory.ReflectionRequest, len(batch))
		for i, t := range batch {
			requests[i] = memory.ReflectionRequest{Namespace: t.Namespace, TaskID: t.TaskID, Revision: t.Revision, Closed: true}
		}
		if err := errors.Join(reflector.ReflectAll(ctx, requests)...); err != nil {
			return fmt.Errorf("reflect: %w", err)
		}
	}
	took := time.Since(began)
	if written.snapshots == 0 {
		return errors.New("reflection kept nothing, so that its time says little")
	}
	bare, err := p.emptyRecord(ctx, "bench_reflect_raw_"+strconv.Itoa(size))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bare.Close()) }()
	began = time.Now()
	for _, insert := range written.inserts {
		if err := insert(ctx, bare); err != nil {
			return fmt.Errorf("insert the same rows: %w", err)
		}
	}
	inserting := time.Since(began)
	figure := func(name string, value float64) { report.Figures[fmt.Sprintf(name, size)] = value }
	figure("reflect_%d_tasks_per_second", perSecond(size, took))
	figure("raw_inserts_%d_tasks_per_second", perSecond(size, inserting))
	figure("ratio_reflect_%d_to_raw_inserts", took.Seconds()/inserting.Seconds())
	figure("snapshots_%d_per_task", float64(written.snapshots)/float64(size))
	return nil
}

// copies hands on what is written, and keeps the inserts so that they can be done again elsewhere.
type copies struct {
	*store.ClickHouse
	inserts   []func(ctx context.Context, to *store.ClickHouse) error
	snapshots int
}

func (c *copies) again(insert func(ctx context.Context, to *store.ClickHouse) error) {
	c.inserts = append(c.inserts, insert)
}

func (c *copies) InsertSnapshots(ctx context.Context, rows []memory.Snapshot) error {
	rows = slices.Clone(rows)
	c.snapshots += len(rows)
	c.again(func(ctx context.Context, to *store.ClickHouse) error { return to.InsertSnapshots(ctx, rows) })
	return c.ClickHouse.InsertSnapshots(ctx, rows)
}

func (c *copies) InsertMemories(ctx context.Context, rows []memory.Memory) error {
	rows = slices.Clone(rows)
	c.again(func(ctx context.Context, to *store.ClickHouse) error { return to.InsertMemories(ctx, rows) })
	return c.ClickHouse.InsertMemories(ctx, rows)
}

func (c *copies) InsertRelations(ctx context.Context, rows []memory.Relation) error {
	rows = slices.Clone(rows)
	c.again(func(ctx context.Context, to *store.ClickHouse) error { return to.InsertRelations(ctx, rows) })
	return c.ClickHouse.InsertRelations(ctx, rows)
}

func (c *copies) InsertReflections(ctx context.Context, rows []memory.TaskReflection) error {
	rows = slices.Clone(rows)
	c.again(func(ctx context.Context, to *store.ClickHouse) error { return to.InsertReflections(ctx, rows) })
	return c.ClickHouse.InsertReflections(ctx, rows)
}
