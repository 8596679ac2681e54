package evaluate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/hindsight-memory/hindsight/internal/store"
)

// FootprintOptions choose the size of the bench.
type FootprintOptions struct {
	// Executable is the program itself.
	Executable string
	// Events is how many events are stored; 0 means 50,000.
	Events int
	// Seed makes the events.
	Seed int64
	// Logger is told what is being measured.
	Logger *slog.Logger
}

// Footprint measures what the program takes: memory at rest, what of it is its own and what are pages of files such as the
// engine's library, which the system may drop; the program's file; and the data folder after events were stored, beside
// their size as JSON.
func Footprint(ctx context.Context, o FootprintOptions) (report Report, err error) {
	if o.Events <= 0 {
		o.Events = 50_000
	}
	report = newReport("footprint", o.Seed)
	info, err := os.Stat(o.Executable)
	if err != nil {
		return report, fmt.Errorf("look at the program's file: %w", err)
	}
	report.Figures["program_bytes"], report.Figures["events"] = float64(info.Size()), float64(o.Events)
	o.Logger.Info("measuring memory at rest")
	if err := atRest(ctx, o.Executable, &report); err != nil {
		return report, fmt.Errorf("measure memory at rest: %w", err)
	}
	o.Logger.Info("measuring the data folder", "events", o.Events)
	if err := onDisk(ctx, o, &report); err != nil {
		return report, fmt.Errorf("measure the data folder: %w", err)
	}
	return report, nil
}

// atRest measures the whole program on an empty folder, some time after it was ready.
func atRest(ctx context.Context, executable string, report *Report) (err error) {
	p, err := start(ctx, executable)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	if err := p.ready(ctx, p.healthURL+"/readyz"); err != nil {
		return err
	}
	rest, cancel := context.WithTimeout(ctx, restTime)
	defer cancel()
	<-rest.Done()
	if ctx.Err() != nil {
		return fmt.Errorf("wait until it is at rest: %w", ctx.Err())
	}
	report.Figures["resident_rest_bytes"] = float64(p.resident())
	// Only Linux tells the parts.
	rollup := fmt.Sprintf("/proc/%d/smaps_rollup", p.cmd.Process.Pid)
	resident, known := kilobytes(lineOf(rollup, "Rss"))
	anonymous, also := kilobytes(lineOf(rollup, "Anonymous"))
	if known && also {
		report.Figures["resident_rest_bytes"] = float64(resident)
		report.Figures["resident_anonymous_bytes"], report.Figures["resident_file_bytes"] = float64(anonymous), float64(resident-anonymous)
	}
	return nil
}

// onDisk stores events and measures what they take: the folder as it is left, in which are the streams and what the engine
// keeps to be able to merge; and the record alone, merged.
func onDisk(ctx context.Context, o FootprintOptions, report *Report) (err error) {
	p, err := start(ctx, o.Executable, "--ingest-only")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	if err := p.ready(ctx, p.healthURL+"/readyz"); err != nil {
		return err
	}
	empty, err := folderSize(p.dir)
	if err != nil {
		return err
	}
	_, raw, err := p.ingest(ctx, IngestOptions{Events: o.Events, Seed: o.Seed, Logger: o.Logger})
	if err != nil {
		return fmt.Errorf("%w; the program said:\n%s", err, p.output.String())
	}
	st, err := store.Open(store.Options{URL: p.clickhouse, Database: benchDatabase})
	if err != nil {
		return fmt.Errorf("open the record: %w", err)
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	merging, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	if _, err := askClickHouse(merging, p.clickhouse, "OPTIMIZE TABLE "+benchDatabase+".trace_events FINAL"); err != nil {
		return fmt.Errorf("merge the record: %w", err)
	}
	var out bytes.Buffer
	const held = "SELECT sum(bytes_on_disk) FROM system.parts WHERE database = currentDatabase() AND table = 'trace_events' AND active"
	if err := st.Query(ctx, held, "TSV", &out); err != nil {
		return fmt.Errorf("ask for the size of the record: %w", err)
	}
	record, err := strconv.ParseFloat(strings.TrimSpace(out.String()), 64)
	if err != nil {
		return fmt.Errorf("read the size of the record: %w", err)
	}
	full, err := folderSize(p.dir)
	if err != nil {
		return err
	}
	events := float64(o.Events)
	report.Figures["json_bytes_per_event"], report.Figures["record_bytes_per_event"] = float64(raw)/events, record/events
	report.Figures["ratio_record_to_json"] = record / float64(raw)
	report.Figures["folder_empty_bytes"], report.Figures["folder_bytes_per_event"] = float64(empty), float64(full-empty)/events
	report.Figures["ratio_folder_to_json"] = float64(full-empty) / float64(raw)
	return nil
}

// folderSize adds up the sizes of the files below a folder. The program works in it meanwhile: what is gone does not count.
func folderSize(dir string) (size int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		size += info.Size()
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("measure the folder %s: %w", dir, err)
	}
	return size, nil
}

// perSecond is a rate.
func perSecond(n int, took time.Duration) float64 { return float64(n) / took.Seconds() }
