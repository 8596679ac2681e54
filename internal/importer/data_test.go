package importer_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/importer"
)

// dataLine is what the tests know of a recorded run.
type dataLine struct {
	Task    string `json:"task"`
	Outcome struct {
		Success bool `json:"success"`
	} `json:"outcome"`
	Steps []struct {
		Type    string          `json:"type"`
		Content string          `json:"content"`
		By      string          `json:"by"`
		Tool    string          `json:"tool"`
		Error   *string         `json:"error"`
		Args    json.RawMessage `json:"args"`
		Result  *string         `json:"result"`
	} `json:"steps"`
}

// dataFiles lists the recorded runs, or skips the test.
func dataFiles(t *testing.T) []string {
	t.Helper()
	dir := os.Getenv("HINDSIGHT_TEST_DATA")
	if dir == "" {
		t.Skip("HINDSIGHT_TEST_DATA is not set: the recorded runs are not there")
	}
	files, err := filepath.Glob(filepath.Join(dir, "traces", "*.jsonl.gz"))
	if err != nil || len(files) == 0 {
		t.Fatalf("HINDSIGHT_TEST_DATA=%s holds no traces/*.jsonl.gz (%v)", dir, err)
	}
	return files
}

func readLines(t *testing.T, path string) [][]byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Split(bytes.TrimSuffix(all, []byte("\n")), []byte("\n"))
}

// TestRecordedRuns: every line of real runs maps, to as many events and steps as it has, and to nothing that the agent
// has not seen.
func TestRecordedRuns(t *testing.T) {
	t.Parallel()
	for _, path := range dataFiles(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			lines := readLines(t, path)
			records, problems := read(t, newRealImporter(t), path)
			if len(problems) > 0 {
				t.Fatalf("%d problems, the first: %+v", len(problems), problems[0])
			}
			if len(records) != len(lines) {
				t.Fatalf("%d records for %d lines", len(records), len(lines))
			}
			ids := map[string]bool{}
			for i, r := range records {
				var l dataLine
				if err := json.Unmarshal(lines[i], &l); err != nil {
					t.Fatal(err)
				}
				checkRecord(t, r, l, ids)
			}
			checkOrderIndependence(t, lines, records)
		})
	}
}

// newRealImporter has the real clock: recorded runs are as young as their files.
func newRealImporter(t *testing.T) *importer.Importer {
	t.Helper()
	im, err := importer.New(importer.Options{Namespace: namespace})
	if err != nil {
		t.Fatal(err)
	}
	return im
}

func checkRecord(t *testing.T, r importer.Record, l dataLine, ids map[string]bool) {
	t.Helper()
	if len(r.Events) != len(l.Steps)+2 {
		t.Fatalf("line %d: %d events for %d steps", r.Line, len(r.Events), len(l.Steps))
	}
	steps, calls, messages := 0, 0, strings.Builder{}
	for i, e := range r.Events {
		if ids[e.ID] {
			t.Fatalf("line %d: event id %s is there twice", r.Line, e.ID)
		}
		ids[e.ID] = true
		if i > 0 && e.Time.Before(r.Events[i-1].Time) {
			t.Fatalf("line %d: event %d is before the one before it", r.Line, i)
		}
		if e.Kind == events.KindStepFinished {
			steps++
			s, err := events.DecodeData[events.StepFinished](e)
			if err != nil {
				t.Fatal(err)
			}
			from := l.Steps[i-1]
			if s.Step != steps || s.Tool != from.Tool || (s.Status == events.StatusFailure) != (from.Error != nil) {
				t.Fatalf("line %d, step %d: %+v from %+v", r.Line, i-1, s, from)
			}
		}
	}
	for _, s := range l.Steps {
		if s.Type == "tool_call" && s.By != "user" {
			calls++
		}
		messages.WriteString(s.Content)
	}
	if steps != calls {
		t.Fatalf("line %d: %d steps for %d calls of the agent", r.Line, steps, calls)
	}
	end, err := events.DecodeData[events.TaskFinished](r.Events[len(r.Events)-1])
	if err != nil || (end.Status == events.StatusSuccess) != l.Outcome.Success {
		t.Fatalf("line %d: ended %+v, %v; success is %v", r.Line, end, err, l.Outcome.Success)
	}
	// A task's text that the user says word for word is no leak.
	if task := strings.TrimSpace(l.Task); task != "" && !strings.Contains(messages.String(), task) {
		quoted, err := events.EncodeData(task)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(bytes.Join(r.Encoded, nil), quoted[1:len(quoted)-1]) {
			t.Fatalf("line %d: the private script of the user is in the events", r.Line)
		}
	}
}

// checkOrderIndependence imports half of the lines in another order, and expects the same bytes for them.
func checkOrderIndependence(t *testing.T, lines [][]byte, records []importer.Record) {
	t.Helper()
	order := rand.New(rand.NewPCG(1, 2)).Perm(len(lines))[:len(lines)/2] // #nosec G404 -- an order, not a secret.
	var part bytes.Buffer
	for _, at := range order {
		part.Write(lines[at])
		part.WriteByte('\n')
	}
	again, problems := read(t, newRealImporter(t), write(t, part.Bytes()))
	if len(again) != len(order) || len(problems) > 0 {
		t.Fatalf("%d records of %d, problems %v", len(again), len(order), problems)
	}
	for i, at := range order {
		if !bytes.Equal(bytes.Join(again[i].Encoded, nil), bytes.Join(records[at].Encoded, nil)) {
			t.Fatalf("line %d gives other events in another file", records[at].Line)
		}
	}
}
