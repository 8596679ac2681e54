package importer_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/importer"
	"github.com/hindsight-memory/hindsight/internal/memory"
)

const (
	startLine = `{"id":"e1","namespace":"test.team","agent_id":"a","session_id":"s","task_id":"t","seq":1,"time":"2025-05-01T10:00:00.000Z","kind":"task_started","data":{"goal":"g"},"more":{"x":1}}`
	stepLine  = `{"id":"e2","namespace":"test.team","agent_id":"a","session_id":"s","task_id":"t","time":"2025-05-01T10:00:01.000Z","kind":"step_finished","data":{"tool":"look","status":"success"}}`
	// cloudLine has neither a namespace nor a native field.
	cloudLine = `{"specversion":"1.0","id":"c1","source":"/agents/a","type":"dev.hindsight.message","time":"2025-05-01T10:00:02Z","agentid":"a","sessionid":"s","taskid":"t","data":{"role":"user","content":"hi"}}`
)

func line(from string, replace ...string) string {
	return strings.NewReplacer(replace...).Replace(from)
}

func TestNativeEvents(t *testing.T) {
	t.Parallel()
	content := strings.Join([]string{startLine, "", stepLine, cloudLine}, "\n")
	records, problems := read(t, newImporter(t, nil), write(t, []byte(content)))
	if len(records) != 3 || len(problems) != 0 {
		t.Fatalf("%d records, problems %v", len(records), problems)
	}
	if got := string(records[0].Encoded[0]); got != startLine {
		t.Errorf("a complete event changed:\n got %s\nwant %s", got, startLine)
	}
	for i, want := range []int{1, 3, 4} {
		r := records[i]
		if r.Line != want || len(r.Events) != 1 || r.Key != (memory.TaskKey{Namespace: namespace, TaskID: "t"}) {
			t.Errorf("record %d: line %d, %d events, key %v", i, r.Line, len(r.Events), r.Key)
		}
	}
	if e := records[2].Events[0]; e.ID != events.CloudEventID("/agents/a", "c1") || e.Kind != events.KindMessage || e.Namespace != namespace {
		t.Errorf("CloudEvent became %+v", e)
	}
}

// TestNativeLines covers single lines beside a good one.
func TestNativeLines(t *testing.T) {
	t.Parallel()
	other := line(stepLine, "test.team", "other")
	bare := line(stepLine, `"namespace":"test.team",`, "")
	for name, c := range map[string]struct {
		line    string
		options importer.Options
		want    []string
	}{
		"same namespace":               {line: stepLine, options: importer.Options{Namespace: namespace}},
		"no namespace":                 {line: bare, options: importer.Options{Namespace: namespace}},
		"other namespace":              {line: other, options: importer.Options{Namespace: namespace}, want: []string{"2 namespace_mismatch"}},
		"other namespace, overridden":  {line: other, options: importer.Options{Namespace: namespace, OverrideNamespace: true}},
		"any namespace":                {line: other},
		"no namespace anywhere":        {line: bare, want: []string{"2 missing_namespace"}},
		"invalid namespace":            {line: line(stepLine, "test.team", "A B"), want: []string{"2 invalid_event"}},
		"no time":                      {line: line(stepLine, `"time":"2025-05-01T10:00:01.000Z",`, "")},
		"no task":                      {line: line(stepLine, `"task_id":"t",`, ""), want: []string{"2 invalid_event"}},
		"bad time":                     {line: line(stepLine, "2025-05-01T10", "noon"), want: []string{"2 invalid_event"}},
		"bad status":                   {line: line(stepLine, `"success"`, `"fine"`), want: []string{"2 invalid_event"}},
		"seq a text":                   {line: line(stepLine, `"kind"`, `"seq":"x","kind"`), want: []string{"2 invalid_event"}},
		"unknown kind":                 {line: line(stepLine, "step_finished", "poem_written")},
		"broken":                       {line: stepLine[:60], want: []string{"2 invalid_json"}},
		"a list":                       {line: "[]", want: []string{"2 not_an_object"}},
		"of another format":            {line: strings.TrimSpace(trajectory(t, nil)), options: importer.Options{Namespace: namespace}, want: []string{"2 invalid_event"}},
		"the same again":               {line: startLine, want: []string{"2 duplicate_line"}},
		"the same id, another content": {line: line(startLine, `"g"`, `"h"`), want: []string{"2 duplicate_line_differs"}},
		"the same id, another namespace": {
			line: line(startLine, "test.team", "other"),
		},
		"too large":                     {line: line(stepLine, `"tool"`, `"blob":["`+strings.Repeat(strings.Repeat("x ", 1000)+`","`, 600)+`"],"tool"`), want: []string{"2 too_large"}},
		"a CloudEvent without a source": {line: line(cloudLine, `"source":"/agents/a",`, ""), options: importer.Options{Namespace: namespace}, want: []string{"2 invalid_event"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.options.Now = testNow
			im, err := importer.New(c.options)
			if err != nil {
				t.Fatal(err)
			}
			records, problems := read(t, im, write(t, []byte(startLine+"\n"+c.line+"\n")))
			if got := reasons(problems); len(records) != 2-len(c.want) || len(got) != len(c.want) || len(got) > 0 && !slices.Equal(got, c.want) {
				t.Fatalf("%d records, problems %v; want %v", len(records), problems, c.want)
			}
			if len(records) == 2 && c.options.Namespace != "" && records[1].Key.Namespace != c.options.Namespace {
				t.Errorf("the event went to %q", records[1].Key.Namespace)
			}
		})
	}
}

// TestNativeWithoutID: the same line gets the same id at every import.
func TestNativeWithoutID(t *testing.T) {
	t.Parallel()
	content := []byte(line(stepLine, `"id":"e2",`, ""))
	var all [][]byte
	for range 2 {
		records, problems := read(t, newImporter(t, nil), write(t, content))
		if len(records) != 1 || len(problems) != 0 {
			t.Fatalf("%d records, problems %v", len(records), problems)
		}
		all = append(all, records[0].Encoded[0])
	}
	if !bytes.Equal(all[0], all[1]) {
		t.Errorf("twice imported, two events:\n%s\n%s", all[0], all[1])
	}
}
