package importer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/hindsight-memory/hindsight/internal/importer"
)

// threeLines is a good file of three tasks.
func threeLines(t *testing.T) string {
	t.Helper()
	var out strings.Builder
	for trial := range 3 {
		out.WriteString(trajectory(t, map[string]any{"trial": trial}))
	}
	return out.String()
}

func reasons(problems []importer.Problem) []string {
	out := []string{}
	for _, p := range problems {
		out = append(out, fmt.Sprintf("%d %s", p.Line, p.Reason))
	}
	return out
}

func TestFiles(t *testing.T) {
	t.Parallel()
	good := threeLines(t)
	lines := strings.SplitAfter(good, "\n")
	long := `{"source":"` + strings.Repeat("x", 10_000) + "\n"
	packed := zip(t, []byte(good))
	damaged := slices.Clone(packed)
	damaged[len(damaged)-6] ^= 0xff // The checksum.
	bad := `{"source": "a", "outcome":` + "\n"
	array := "[\n" + strings.TrimSuffix(lines[0], "\n") + ",\n" + lines[1] + "]\n"

	for name, c := range map[string]struct {
		content string
		// format is auto when empty.
		format  string
		records int
		want    []string
		// says is a part of the first problem's text.
		says string
	}{
		"plain":                         {content: good, records: 3},
		"gzip":                          {content: string(packed), records: 3},
		"gzip in two members":           {content: string(zip(t, []byte(lines[0]+lines[1]))) + string(zip(t, []byte(lines[2]))), records: 3},
		"byte order mark":               {content: "\uFEFF" + good, records: 3},
		"byte order mark in gzip":       {content: string(zip(t, []byte("\uFEFF"+good))), records: 3},
		"CRLF":                          {content: strings.ReplaceAll(good, "\n", "\r\n"), records: 3},
		"blank lines":                   {content: "\n\n" + lines[0] + "\n  \t\n" + lines[1] + "\r\n" + lines[2] + "\n\n", records: 3},
		"no newline at the end":         {content: strings.TrimSuffix(good, "\n"), records: 3},
		"cut in the last line":          {content: good + lines[0][:40], records: 3, want: []string{"4 cut_line"}, says: "import the file again"},
		"empty":                         {content: "", want: []string{"0 empty_file"}},
		"empty gzip":                    {content: string(zip(t, nil)), want: []string{"0 empty_file"}},
		"only blank lines":              {content: "\uFEFF\n \n\r\n", want: []string{"0 empty_file"}},
		"only blank lines, as events":   {content: "\n\n", format: importer.FormatEvents, want: []string{"0 empty_file"}},
		"zero bytes":                    {content: "\x00\x01\x02" + good, want: []string{"0 binary_file"}},
		"zero bytes in gzip":            {content: string(zip(t, []byte("\x7fELF\x00\x00\x00"))), want: []string{"0 binary_file"}},
		"UTF-16":                        {content: "\xff\xfe{\x00}\x00", want: []string{"0 binary_file"}, says: "iconv"},
		"junk without zero bytes":       {content: "\x80\x81\xfe\xfd junk \xff\n\x81", want: []string{"0 unknown_format"}, says: "not UTF-8"},
		"zstd":                          {content: "\x28\xb5\x2f\xfd....", want: []string{"0 unsupported_compression"}, says: "zstd"},
		"zip":                           {content: "PK\x03\x04....", want: []string{"0 unsupported_compression"}, says: "zip archive"},
		"gzip twice":                    {content: string(zip(t, packed)), want: []string{"0 unsupported_compression"}},
		"nothing but the gzip magic":    {content: "\x1f\x8b", want: []string{"0 truncated_gzip"}},
		"damaged gzip header":           {content: "\x1f\x8b\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00", want: []string{"0 corrupt_gzip"}},
		"gzip with a wrong checksum":    {content: string(damaged), records: 3, want: []string{"0 corrupt_gzip"}, says: "after 3 complete lines"},
		"gzip without its end":          {content: string(packed[:len(packed)-4]), records: 3, want: []string{"0 truncated_gzip"}, says: "after 3 complete lines"},
		"junk after gzip":               {content: string(packed) + "junk and more", records: 3, want: []string{"0 corrupt_gzip"}},
		"broken first line":             {content: bad + good, records: 3, want: []string{"1 invalid_json"}},
		"a long line first":             {content: long + good, records: 3, want: []string{"1 line_too_long"}, says: "4000 bytes"},
		"a long line in the middle":     {content: lines[0] + long + lines[1] + lines[2], records: 3, want: []string{"2 line_too_long"}},
		"a long line at the end":        {content: good + strings.TrimSpace(long), records: 3, want: []string{"4 line_too_long"}},
		"only a long line":              {content: long, want: []string{"0 unknown_format"}, says: "longer than 4000 bytes"},
		"invalid UTF-8 in a line":       {content: lines[0] + "{\"source\": \"\xff\"}\n" + lines[1], records: 2, want: []string{"2 invalid_utf8"}},
		"a list in a line":              {content: lines[0] + "[1]\n" + "null\n" + lines[1], records: 2, want: []string{"2 not_an_object", "3 not_an_object"}},
		"two values in a line":          {content: lines[0] + "{} {}\n", records: 1, want: []string{"2 invalid_json"}},
		"a JSON array":                  {content: array, want: []string{"0 unknown_format"}, says: "jq -c"},
		"text":                          {content: "Dear diary,\ntoday\n", want: []string{"0 unknown_format"}, says: "trajectory (one task a line"},
		"a JSON object of another sort": {content: `{"hello": 1}` + "\n", want: []string{"0 unknown_format"}, says: "no known format"},
		"many lines of another sort":    {content: strings.Repeat(`{"hello": 1}`+"\n", 500), want: []string{"0 unknown_format"}},
		"text, as trajectory":           {content: "Dear diary,\ntoday\n", format: importer.FormatTrajectory, want: []string{"1 invalid_json", "2 invalid_json"}},
		"duplicate":                     {content: good + lines[1], records: 3, want: []string{"4 duplicate_line"}, says: "line 4 gives the same events as line 2"},
		"duplicate with other labels":   {content: lines[0] + trajectory(t, map[string]any{"trial": 0, "labels": nil, "task": nil}), records: 1, want: []string{"2 duplicate_line"}},
		"duplicate with another trial type": {
			content: lines[0] + trajectory(t, map[string]any{"trial": "0"}), records: 1, want: []string{"2 duplicate_line"},
		},
		"duplicate with other content": {
			content: good + trajectory(t, map[string]any{"trial": 2, "outcome": map[string]any{"success": true}}), records: 3,
			want: []string{"4 duplicate_line_differs"}, says: "line 4 and line 3",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			im := newImporter(t, func(o *importer.Options) { o.Format, o.MaxLineBytes = c.format, 4000 })
			records, problems := read(t, im, write(t, []byte(c.content)))
			want := c.want
			if want == nil {
				want = []string{}
			}
			if got := reasons(problems); len(records) != c.records || !slices.Equal(got, want) {
				t.Fatalf("%d records, problems %v; want %d and %v", len(records), problems, c.records, want)
			}
			if c.says != "" && !strings.Contains(problems[0].Err.Error(), c.says) {
				t.Errorf("the problem says %q, want %q in it", problems[0].Err, c.says)
			}
			for _, p := range problems {
				if p.Skipped != strings.HasPrefix(p.Reason, importer.ReasonDuplicateLine) {
					t.Errorf("skipped is %v for %s", p.Skipped, p.Reason)
				}
			}
		})
	}
}

// TestCutGzip cuts a file at many places: what is delivered are always the first lines, and the cut is always told.
func TestCutGzip(t *testing.T) {
	t.Parallel()
	whole, _ := read(t, newImporter(t, nil), write(t, []byte(threeLines(t))))
	packed := zip(t, []byte(threeLines(t)))
	path := filepath.Join(t.TempDir(), "cut.gz")
	for size := 2; size < len(packed); size += 5 {
		if err := os.WriteFile(path, packed[:size], 0o600); err != nil {
			t.Fatal(err)
		}
		records, problems := read(t, newImporter(t, nil), path)
		if got := reasons(problems); !slices.Equal(got, []string{"0 truncated_gzip"}) {
			t.Fatalf("cut at %d of %d: problems %v", size, len(packed), problems)
		}
		if want := fmt.Sprintf("after %d complete lines", len(records)); !strings.Contains(problems[0].Err.Error(), want) {
			t.Fatalf("cut at %d: %q, want %q in it", size, problems[0].Err, want)
		}
		for i, r := range records {
			if !bytes.Equal(bytes.Join(r.Encoded, nil), bytes.Join(whole[i].Encoded, nil)) {
				t.Fatalf("cut at %d: line %d differs", size, r.Line)
			}
		}
	}
}

// TestLongLineIsNotHeld reads a line of 64 MiB, and allocates far less. Other tests must not run beside it: what they
// allocate is counted too.
func TestLongLineIsNotHeld(t *testing.T) {
	im := newImporter(t, func(o *importer.Options) { o.MaxLineBytes = 1 << 16 })
	endless := io.LimitReader(repeat{}, 64<<20)
	im.SetStdin(io.MultiReader(endless, strings.NewReader("\n"+trajectory(t, nil))))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	records, problems := read(t, im, "-")
	runtime.ReadMemStats(&after)
	if len(records) != 1 || !slices.Equal(reasons(problems), []string{"1 line_too_long"}) {
		t.Fatalf("%d records, problems %v", len(records), problems)
	}
	if got := after.TotalAlloc - before.TotalAlloc; got > 8<<20 {
		t.Errorf("%d bytes were allocated for a line of which at most %d are kept", got, 1<<16)
	}
}

type repeat struct{}

func (repeat) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

func TestStdin(t *testing.T) {
	t.Parallel()
	im := newImporter(t, nil)
	im.SetStdin(bytes.NewReader(zip(t, []byte(threeLines(t)))))
	records, problems := read(t, im, "-")
	if len(records) != 3 || len(problems) != 0 {
		t.Fatalf("%d records, problems %v", len(records), problems)
	}
	im.SetStdin(io.MultiReader(strings.NewReader(trajectory(t, map[string]any{"trial": 9})), broken{}))
	records, problems = read(t, im, "-")
	if len(records) != 1 || !slices.Equal(reasons(problems), []string{"0 read_error"}) || !errors.Is(problems[0].Err, errBroken) {
		t.Fatalf("%d records, problems %v", len(records), problems)
	}
	im.SetStdin(broken{})
	if _, problems = read(t, im, "-"); !slices.Equal(reasons(problems), []string{"0 read_error"}) {
		t.Fatalf("problems %v", problems)
	}
}

var errBroken = errors.New("broken pipe")

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errBroken }

// TestPlaces: what cannot be opened is told with what to do, and other files go on.
func TestPlaces(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"a.jsonl.gz", "b.jsonl.gz", "c.jsonl", "LICENSE"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	empty := filepath.Join(dir, "sub")
	if err := os.Mkdir(empty, 0o700); err != nil {
		t.Fatal(err)
	}
	odd := filepath.Join(t.TempDir(), "odd")
	if err := os.MkdirAll(filepath.Join(odd, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	locked := write(t, []byte(threeLines(t)))
	if err := os.Chmod(locked, 0); err != nil {
		t.Fatal(err)
	}
	im := newImporter(t, nil)
	for _, c := range []struct{ path, reason, says string }{
		{filepath.Join(dir, "nothing"), "not_found", "no such file"},
		{dir, "is_directory", "2 .jsonl.gz, 1 .jsonl, 1 other files, 1 directories"},
		{dir, "is_directory", filepath.Join(dir, "*.jsonl.gz") + " " + filepath.Join(dir, "*.jsonl")},
		{empty, "is_directory", "empty directory"},
		{odd, "is_directory", filepath.Join(odd, "FILE")},
		{locked, "not_readable", "permission denied"},
		{filepath.Join(locked, "below"), "not_readable", "not a directory"},
	} {
		if c.path == locked && os.Geteuid() == 0 {
			continue // Root reads everything.
		}
		_, problems := read(t, im, c.path)
		if len(problems) != 1 || problems[0].Reason != c.reason || problems[0].Line != 0 || !strings.Contains(problems[0].Err.Error(), c.says) {
			t.Errorf("%s: %v; want %s with %q", c.path, problems, c.reason, c.says)
		}
	}
	if records, problems := read(t, im, write(t, []byte(threeLines(t)))); len(records) != 3 || len(problems) != 0 {
		t.Errorf("after them: %d records, problems %v", len(records), problems)
	}
}

// TestGrowingFile: what is appended while the file is read is not read.
func TestGrowingFile(t *testing.T) {
	t.Parallel()
	path := write(t, []byte(threeLines(t)))
	more, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = more.Close() }()
	count := 0
	for item := range newImporter(t, nil).Read(t.Context(), path) {
		if item.Problem != nil {
			t.Fatalf("%+v", item.Problem)
		}
		count++
		if _, err := more.WriteString(trajectory(t, map[string]any{"trial": 100 + count})); err != nil {
			t.Fatal(err)
		}
	}
	if count != 3 {
		t.Errorf("%d records, want the 3 that were there", count)
	}
}

func TestDuplicatesAcrossFiles(t *testing.T) {
	t.Parallel()
	im := newImporter(t, nil)
	first, second := write(t, []byte(trajectory(t, nil))), write(t, []byte(threeLines(t)))
	if records, problems := read(t, im, first); len(records) != 1 || len(problems) != 0 {
		t.Fatalf("%d records, problems %v", len(records), problems)
	}
	records, problems := read(t, im, second)
	if len(records) != 2 || !slices.Equal(reasons(problems), []string{"3 duplicate_line"}) || !strings.Contains(problems[0].Err.Error(), "line 1 of "+first) {
		t.Fatalf("%d records, problems %v", len(records), problems)
	}
}

// TestStop: a caller who has enough gets no more, and a cancelled context is told.
func TestStop(t *testing.T) {
	t.Parallel()
	path := write(t, []byte(threeLines(t)))
	count := 0
	for range newImporter(t, nil).Read(t.Context(), path) {
		count++
		break
	}
	if count != 1 {
		t.Errorf("%d items after the break", count)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var items []importer.Item
	for item := range newImporter(t, nil).Read(ctx, path) {
		items = append(items, item)
		cancel()
	}
	if len(items) != 2 || items[1].Problem == nil || items[1].Problem.Reason != importer.ReasonCancelled || !errors.Is(items[1].Problem.Err, context.Canceled) {
		t.Errorf("items after the cancellation: %+v", items)
	}
}

func TestProgress(t *testing.T) {
	t.Parallel()
	content := zip(t, []byte(threeLines(t)))
	path := write(t, content)
	var last importer.Item
	for item := range newImporter(t, nil).Read(t.Context(), path) {
		last = item
	}
	if last.BytesTotal != int64(len(content)) || last.BytesRead != last.BytesTotal {
		t.Errorf("at the end %d of %d bytes, the file has %d", last.BytesRead, last.BytesTotal, len(content))
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		options importer.Options
		says    string
	}{
		"unknown format":             {importer.Options{Format: "otlpx"}, `format "otlpx" is unknown: give auto or one of trajectory, events`},
		"bad namespace":              {importer.Options{Namespace: "A B"}, "namespace"},
		"override without namespace": {importer.Options{OverrideNamespace: true}, "namespace"},
		"negative limit":             {importer.Options{MaxLineBytes: -1}, "negative"},
	} {
		if _, err := importer.New(c.options); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: error %v, want %q in it", name, err, c.says)
		}
	}
	if got := importer.Formats(); !slices.Equal(got, []string{"trajectory", "events", "memories"}) {
		t.Errorf("formats %v", got)
	}
	im, err := importer.New(importer.Options{Now: testNow})
	if err != nil {
		t.Fatal(err)
	}
	if _, problems := read(t, im, write(t, []byte(trajectory(t, nil)))); !slices.Equal(reasons(problems), []string{"1 missing_namespace"}) {
		t.Errorf("without a namespace: %v", problems)
	}
}
