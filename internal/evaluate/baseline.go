package evaluate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// ErrRegression means that a figure is worse than its baseline allows; the text names figure, baseline, value and tolerance.
var ErrRegression = errors.New("worse than the baseline")

// Baseline holds what a suite gave once, and by how much it may be worse. Only figures that mean the same on every machine
// belong in it: shares, counts and ratios of sizes, never a time.
type Baseline struct {
	// Run are the arguments of the program that give the report, eval or bench first, paths from the repository's folder.
	Run []string `json:"run"`
	// Figures are by name.
	Figures map[string]BaselineFigure `json:"figures"`

	path string
}

// BaselineFigure is a figure of a baseline.
type BaselineFigure struct {
	Baseline float64 `json:"baseline"`
	// Tolerance is by how much the figure may be worse; 0 means not at all.
	Tolerance float64 `json:"tolerance"`
	// Better says which way is better: higher or lower; same means that neither is, and any change beyond the tolerance counts.
	Better Better `json:"better"`
}

// Better is the direction in which a figure is better.
type Better string

// Directions.
const (
	BetterHigher Better = "higher"
	BetterLower  Better = "lower"
	BetterSame   Better = "same"
)

// rounding is what two computations of the same figure may differ by.
const rounding = 1e-9

// Name is that of the baseline's file.
func (b Baseline) Name() string { return strings.TrimSuffix(filepath.Base(b.path), ".json") }

// ReadBaselines reads all baselines of a folder, in the order of their names.
func ReadBaselines(dir string) ([]Baseline, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, fmt.Errorf("list baselines: %w", err)
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("%w: there is no baseline in %s", ErrInput, dir)
	}
	var out []Baseline
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read a baseline: %w", err)
		}
		b := Baseline{path: path}
		decoder := json.NewDecoder(bytes.NewReader(raw))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&b); err != nil {
			return nil, fmt.Errorf("read the baseline %s: %w", path, err)
		}
		if err := b.check(); err != nil {
			return nil, fmt.Errorf("the baseline %s: %w", path, err)
		}
		out = append(out, b)
	}
	return out, nil
}

func (b Baseline) check() error {
	if len(b.Run) < 2 || b.Run[0] != "eval" && b.Run[0] != "bench" {
		return errors.New("run: it must be the arguments of hindsight eval or hindsight bench")
	}
	if len(b.Figures) == 0 {
		return errors.New("it has no figures")
	}
	for name, f := range b.Figures {
		if strings.HasSuffix(name, "_seconds") || strings.HasSuffix(name, "_ms") || strings.HasSuffix(name, "_per_second") {
			return fmt.Errorf("figure %s is a time, which is another on every machine", name)
		}
		if f.Better != BetterHigher && f.Better != BetterLower && f.Better != BetterSame {
			return fmt.Errorf("figure %s: better is %q: it must be higher, lower or same", name, f.Better)
		}
		if f.Tolerance < 0 || math.IsNaN(f.Tolerance) {
			return fmt.Errorf("figure %s: tolerance %v: it must not be negative", name, f.Tolerance)
		}
	}
	return nil
}

// Compare names each figure of the report that is worse than its baseline allows, in the order of their names. The errors
// are [ErrRegression]. A figure that is missing counts.
func (b Baseline) Compare(r Report) []error {
	var out []error
	for _, name := range slices.Sorted(maps.Keys(b.Figures)) {
		f := b.Figures[name]
		value, is := r.Figures[name]
		if !is {
			out = append(out, fmt.Errorf("%w: %s: %s is missing from the report (baseline %v)", ErrRegression, b.Name(), name, f.Baseline))
			continue
		}
		if f.worse(value) {
			out = append(out, fmt.Errorf("%w: %s: %s is %v, baseline %v, tolerance %v (better: %s)", ErrRegression, b.Name(), name, value, f.Baseline, f.Tolerance, f.Better))
		}
	}
	return out
}

func (f BaselineFigure) worse(value float64) bool {
	by := f.Baseline - value
	switch f.Better {
	case BetterLower:
		by = -by
	case BetterSame:
		by = math.Abs(by)
	case BetterHigher:
	}
	return !(by <= f.Tolerance+rounding) // What is not a number is worse.
}

// Update takes the figures of the report as the baseline, and writes the file. Which figures there are, their tolerance and
// direction stay.
func (b Baseline) Update(r Report) error {
	figures := make(map[string]BaselineFigure, len(b.Figures))
	for name, f := range b.Figures {
		value, is := r.Figures[name]
		if !is {
			return fmt.Errorf("update the baseline %s: the report has no figure %s", b.Name(), name)
		}
		f.Baseline = value
		figures[name] = f
	}
	b.Figures = figures
	raw, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the baseline %s: %w", b.Name(), err)
	}
	if err := os.WriteFile(b.path, append(raw, '\n'), 0o644); err != nil { //nolint:gosec // A file of the repository is for all to read.
		return fmt.Errorf("write the baseline: %w", err)
	}
	return nil
}

// BaselineOptions say what runs the suites. Executable and Logger are required.
type BaselineOptions struct {
	// Executable is the program itself.
	Executable string
	// Update takes what is measured as the new baselines.
	Update bool
	// Logger is told what is being measured.
	Logger *slog.Logger
}

// CheckBaselines runs the suites of the baselines one after the other, each with a data folder of its own, and compares.
// The reports are in the order of the baselines; the error joins an [ErrRegression] for each figure that is worse.
func CheckBaselines(ctx context.Context, baselines []Baseline, o BaselineOptions) ([]Report, error) {
	var worse []error
	reports := make([]Report, 0, len(baselines))
	for _, b := range baselines {
		o.Logger.Info("measuring", "baseline", b.Name())
		r, err := b.report(ctx, o.Executable)
		if err != nil {
			return reports, fmt.Errorf("measure the baseline %s: %w", b.Name(), err)
		}
		reports = append(reports, r)
		if !o.Update {
			worse = append(worse, b.Compare(r)...)
			continue
		}
		if err := b.Update(r); err != nil {
			return reports, err
		}
	}
	return reports, errors.Join(worse...)
}

// report runs the suite. It takes no settings over but where the engines and temporary files are.
func (b Baseline) report(ctx context.Context, executable string) (r Report, err error) {
	dir, err := os.MkdirTemp("", "hindsight-baseline-")
	if err != nil {
		return r, fmt.Errorf("make a folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	var out, problems bytes.Buffer
	cmd := exec.CommandContext(ctx, executable, append(slices.Clone(b.Run), "--json")...) //nolint:gosec // It is this program, and check has seen that it measures.
	cmd.Env = append(os.Environ(), "HINDSIGHT_DATA_DIR="+dir, "HINDSIGHT_CONFIG=", "HINDSIGHT_NATS_URL=", "HINDSIGHT_CLICKHOUSE_URL=", "HINDSIGHT_MILVUS_ADDR=",
		"HINDSIGHT_EMBEDDER=auto", "HINDSIGHT_EMBEDDING_CACHE=", "HINDSIGHT_EMBEDDING_BASE_URL=", "HINDSIGHT_LLM_BASE_URL=")
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		return r, fmt.Errorf("hindsight %s: %w\n%s", strings.Join(b.Run, " "), err, problems.String())
	}
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		return r, fmt.Errorf("read what hindsight %s writes: %w", strings.Join(b.Run, " "), err)
	}
	return r, nil
}
