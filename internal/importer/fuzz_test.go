package importer_test

import (
	"bytes"
	"testing"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/importer"
)

// fuzz reads the content in one format. [read] checks what holds for every item; whatever the content, the second
// reading gives the same.
func fuzz(t *testing.T, format string, content []byte) []importer.Record {
	t.Helper()
	change := func(o *importer.Options) { o.Format, o.MaxLineBytes = format, 1<<16 }
	path := write(t, content)
	im := newImporter(t, change)
	records, _ := read(t, im, path)
	again, _ := read(t, newImporter(t, change), path)
	if len(records) != len(again) {
		t.Fatalf("%d records, then %d", len(records), len(again))
	}
	for i, r := range records {
		if !bytes.Equal(bytes.Join(r.Encoded, nil), bytes.Join(again[i].Encoded, nil)) {
			t.Fatalf("line %d gives other events the second time", r.Line)
		}
	}
	if more, _ := read(t, im, path); len(more) != 0 {
		t.Fatalf("%d lines were delivered twice", len(more))
	}
	return records
}

// FuzzTrajectory: a trajectory line is a problem or a whole task, in order.
func FuzzTrajectory(f *testing.F) {
	for _, change := range []map[string]any{
		nil,
		{"started_at": "2025-05-01T10:00:00", "outcome": map[string]any{"duration_s": 1e300}},
		{"trial": "x", "task_id": 1.5, "steps": []any{}},
		{"steps": []any{map[string]any{"type": "message", "role": 1}}},
		{"steps": []any{map[string]any{"type": "tool_call", "tool": "x", "args": "{", "error": map[string]any{}, "at": "2025-05-01 10:00:00"}}},
	} {
		f.Add([]byte(trajectory(f, change)))
	}
	f.Add([]byte(`{"source":"a","run":"\u0000","trial":1e999,"task_id":"\ud800","steps":[]}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		for _, r := range fuzz(t, importer.FormatTrajectory, content) {
			last := r.Events[0]
			if last.Kind != events.KindTaskStarted || r.Events[len(r.Events)-1].Kind != events.KindTaskFinished {
				t.Fatalf("line %d does not begin with a start and end with an end", r.Line)
			}
			for i, e := range r.Events {
				if e.Seq != int64(i+1) || e.Time.Before(last.Time) {
					t.Fatalf("line %d: event %d is out of order", r.Line, i)
				}
				last = e
			}
		}
	})
}

// FuzzEvents: a native line is a problem or one event of the namespace that was asked for.
func FuzzEvents(f *testing.F) {
	for _, seed := range []string{
		startLine, stepLine, cloudLine, "{}", "null", "[]", `{"kind":1}`, line(stepLine, `"id":"e2",`, ""),
		`{"specversion":"1.0","data_base64":"!"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		for _, r := range fuzz(t, importer.FormatEvents, content) {
			if len(r.Events) != 1 || r.Key.Namespace != namespace {
				t.Fatalf("line %d: %d events for %v", r.Line, len(r.Events), r.Key)
			}
		}
	})
}

// FuzzAuto: no file, packed or not, makes the reader panic, hang or contradict itself.
func FuzzAuto(f *testing.F) {
	good := trajectory(f, nil)
	packed := zip(f, []byte(good))
	for _, seed := range [][]byte{
		[]byte(good), []byte(startLine + "\n" + stepLine), packed, packed[:len(packed)/2], append(bytes.Clone(packed), packed...),
		[]byte("\uFEFF\r\n" + good),
		{0x1f, 0x8b},
		[]byte("\xff\xfe{"), []byte("[1]"), nil,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, content []byte) { fuzz(t, importer.FormatAuto, content) })
}
