package evaluate

import (
	_ "embed" // The text of the page.
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"
)

//go:embed performance.md.tmpl
var performanceText string

// BenchSuites lists the benches in the order in which they are measured and shown.
func BenchSuites() []string {
	return []string{"startup", "footprint", "ingest", "reflect", "consolidate", "recall", "mcp"}
}

// ReadBenches reads what `hindsight bench all --json-dir` wrote: one file a suite. A suite without a file is left out.
func ReadBenches(dir string) (map[string]Report, error) {
	reports := map[string]Report{}
	for _, suite := range BenchSuites() {
		path := filepath.Join(dir, suite+".json")
		raw, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read a bench: %w", err)
		}
		var r Report
		if err := json.Unmarshal(raw, &r); err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		if r.Suite != suite || r.Machine == nil {
			return nil, fmt.Errorf("%w: %s is not what `hindsight bench %s --json` writes", ErrInput, path, suite)
		}
		reports[suite] = r
	}
	if len(reports) == 0 {
		return nil, fmt.Errorf("%w: there is no file of a bench in %s: `hindsight bench all --json-dir %s` writes them", ErrInput, dir, dir)
	}
	return reports, nil
}

// PerformancePage is docs/performance.md: its text, with the figures of the reports. It is a function of the reports alone;
// what was not measured is not there.
func PerformancePage(reports map[string]Report) (string, error) {
	page, err := template.New("performance").Funcs(template.FuncMap{
		"measured": func(suite string) (string, error) { return measuredPart(reports, suite) },
	}).Parse(performanceText)
	if err != nil {
		return "", fmt.Errorf("read the page's text: %w", err)
	}
	var out strings.Builder
	if err := page.Execute(&out, nil); err != nil {
		return "", fmt.Errorf("write the page: %w", err)
	}
	return out.String(), nil
}

// shownFigure is a figure with what it is. In a name with %d, that is the size at which it was measured.
type shownFigure struct{ name, label string }

// shownFigures are those of a suite that the page shows; all others are in the file.
func shownFigures(suite string) []shownFigure {
	switch suite {
	case "startup":
		return []shownFigure{
			{"ready_seconds", "ready on an empty folder, engines, schema and streams included"},
			{"restart_ready_seconds", "ready again on a folder with 10,000 events"},
			{"first_lesson_seconds", "from `hindsight up` on an empty folder to the first lesson recalled out of `examples/shop.jsonl`, all by the command line (aim: under 60 s)"},
		}
	case "footprint":
		return []shownFigure{
			{"resident_rest_bytes", "resident at rest, before the first text is embedded"},
			{"resident_anonymous_bytes", "of it the process's own (anonymous)"},
			{"resident_file_bytes", "of it pages of files, such as the ClickHouse library, which the system may drop"},
			{"program_bytes", "the program's file, without the engine library"},
			{"folder_empty_bytes", "data folder before the first event"},
			{"events", "events stored"},
			{"json_bytes_per_event", "an event as JSON"},
			{"record_bytes_per_event", "the same event in the record, merged"},
			{"ratio_record_to_json", "record : JSON"},
			{"folder_bytes_per_event", "the same event in the data folder as it is left, parts that are merged already included"},
			{"ratio_folder_to_json", "data folder : JSON"},
		}
	case "ingest":
		return []shownFigure{
			{"events", "events"},
			{"events_per_second", "product, from publish to row"},
			{"raw_jetstream_per_second", "raw JetStream"},
			{"raw_clickhouse_per_second", "raw ClickHouse"},
			{"ratio_to_slower_engine", "product : the slower of the two (aim: 0.5)"},
			{"cpu_microseconds_per_event", "processor time of an event, in µs"},
			{"resident_peak_bytes", "resident at most"},
		}
	case "reflect":
		return []shownFigure{
			{"reflect_%d_tasks_per_second", "tasks reflected"},
			{"raw_inserts_%d_tasks_per_second", "the same rows inserted"},
			{"ratio_reflect_%d_to_raw_inserts", "time : that of the inserts"},
			{"snapshots_%d_per_task", "snapshots a task"},
		}
	case "consolidate":
		return []shownFigure{
			{"merge_%d_seconds", "merge"},
			{"raw_read_for_merge_%d_seconds", "bare read of its rows"},
			{"ratio_merge_%d_to_raw_read", "ratio"},
			{"induce_%d_seconds", "induce"},
			{"raw_read_for_induce_%d_seconds", "bare read of its rows"},
			{"ratio_induce_%d_to_raw_read", "ratio"},
		}
	case "recall":
		return []shownFigure{
			{"recall_%d_p50_ms", "recall p50"},
			{"recall_%d_p95_ms", "p95"},
			{"check_%d_p50_ms", "check p50"},
			{"check_%d_p95_ms", "p95"},
			{"raw_vector_search_%d_p50_ms", "bare vector search p50"},
			{"ratio_recall_%d_to_raw", "recall : bare search"},
		}
	default:
		return []shownFigure{
			{"retrieve_similar_%d_p50_ms", "`retrieve_similar` by HTTP p50"},
			{"recall_in_process_%d_p50_ms", "in process"},
			{"ratio_retrieve_similar_%d_to_in_process", "ratio"},
			{"check_action_%d_p50_ms", "`check_action` by HTTP p50"},
			{"check_in_process_%d_p50_ms", "in process"},
			{"ratio_check_action_%d_to_in_process", "ratio"},
		}
	}
}

// sizeWord names what the sizes of a suite count.
func sizeWord(suite string) string {
	switch suite {
	case "reflect":
		return "tasks"
	case "consolidate":
		return "snapshots and tasks"
	default:
		return "snapshots"
	}
}

// measuredPart is what the page shows of a suite: on what it was measured, and a table.
func measuredPart(reports map[string]Report, suite string) (string, error) {
	if !slices.Contains(BenchSuites(), suite) {
		return "", fmt.Errorf("there is no suite %q", suite)
	}
	r, is := reports[suite]
	if !is {
		return "Not measured for this page.", nil
	}
	shown := shownFigures(suite)
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", r.Machine.sentence())
	if !strings.Contains(shown[0].name, "%d") {
		b.WriteString("| figure | measured |\n|---|---|\n")
		for _, f := range shown {
			if v, is := r.Figures[f.name]; is {
				fmt.Fprintf(&b, "| %s | %s |\n", f.label, formatFigure(f.name, v))
			}
		}
		return strings.TrimSuffix(b.String(), "\n"), nil
	}
	fmt.Fprintf(&b, "| %s |", sizeWord(suite))
	for _, f := range shown {
		fmt.Fprintf(&b, " %s |", f.label)
	}
	b.WriteString("\n|" + strings.Repeat("---|", len(shown)+1) + "\n")
	for _, size := range sizesOf(r, shown[0].name) {
		fmt.Fprintf(&b, "| %s |", grouped(float64(size)))
		for _, f := range shown {
			name := fmt.Sprintf(f.name, size)
			cell := "–"
			if v, is := r.Figures[name]; is {
				cell = formatFigure(name, v)
			}
			fmt.Fprintf(&b, " %s |", cell)
		}
		b.WriteString("\n")
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

// sizesOf are the sizes at which a figure was measured, the smallest first.
func sizesOf(r Report, name string) []int {
	pattern := regexp.MustCompile("^" + strings.Replace(regexp.QuoteMeta(name), "%d", `(\d+)`, 1) + "$")
	var sizes []int
	for figure := range r.Figures {
		if m := pattern.FindStringSubmatch(figure); m != nil {
			if size, err := strconv.Atoi(m[1]); err == nil {
				sizes = append(sizes, size)
			}
		}
	}
	slices.Sort(sizes)
	return sizes
}

// sentence says on what was measured.
func (m Machine) sentence() string {
	cores := fmt.Sprintf("%d cores", m.Cores)
	if m.Cores == 1 {
		cores = "1 core"
	}
	if m.Processor != "" {
		cores += " of " + m.Processor
	}
	parts := []string{cores}
	if m.MemoryBytes > 0 {
		parts = append(parts, fmt.Sprintf("%.0f GiB", float64(m.MemoryBytes)/(1<<30)))
	}
	parts = append(parts, m.System, "Go "+m.Go, "ClickHouse "+m.ClickHouse, "NATS "+m.NATS)
	text := "Measured on " + m.MeasuredOn + ": " + strings.Join(parts, ", ") + "."
	switch {
	case m.Load < 0:
		return text
	case m.Load > float64(m.Cores)/2:
		return text + fmt.Sprintf(" The machine did other work: its load was %.1f before the run, so that the ratios say more than the times.", m.Load)
	default:
		return text + fmt.Sprintf(" The load was %.1f before the run.", m.Load)
	}
}

// formatFigure writes a figure in the unit that its name ends with.
func formatFigure(name string, v float64) string {
	switch {
	case strings.HasPrefix(name, "ratio_"):
		return significant(v)
	case strings.HasSuffix(name, "_bytes"), strings.HasSuffix(name, "_bytes_per_event"):
		switch {
		case v >= 1e6:
			return significant(v/1e6) + " MB"
		case v >= 1e4:
			return significant(v/1e3) + " kB"
		default:
			return grouped(math.Round(v)) + " bytes"
		}
	case strings.HasSuffix(name, "_per_second"):
		return grouped(math.Round(v)) + " a second"
	case strings.HasSuffix(name, "_seconds"):
		return significant(v) + " s"
	case strings.HasSuffix(name, "_ms"):
		return significant(v) + " ms"
	case v == math.Trunc(v):
		return grouped(v)
	default:
		return significant(v)
	}
}

// significant writes three digits, more where a whole number has more.
func significant(v float64) string {
	if v >= 100 {
		return grouped(math.Round(v))
	}
	digits := 2
	if v >= 10 {
		digits = 1
	}
	return strconv.FormatFloat(v, 'f', digits, 64)
}

// grouped writes a whole number with commas between thousands.
func grouped(v float64) string {
	text := strconv.FormatFloat(v, 'f', 0, 64)
	for at := len(text) - 3; at > 0; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}
