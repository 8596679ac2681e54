package importer_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/importer"
)

func TestMemories(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "memories.jsonl")
	lines := `{"content":"Refunds over 100 EUR need a manager.","memory_type":"procedure","task_type":"refund","tool":"refund_order","tags":["money"],"importance":0.9}
{"content":"客户王芳喜欢靠窗的座位。","memory_type":"preference","entity":"王芳"}
{"content":"Refunds over 100 EUR need a manager.","memory_type":"procedure","task_type":"refund","tool":"refund_order","tags":["money"],"importance":0.9}
{"content":"","memory_type":"fact"}
{"content":"x","memory_type":"rumour"}
{"content":"x","memory_type":"fact","importance":7}
{"content":"x","memory_type":
{"content":5,"memory_type":"fact"}
`
	if err := os.WriteFile(path, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	read := func(format string, now time.Time) (written []events.Event, reasons []string) {
		im, err := importer.New(importer.Options{Format: format, Namespace: "acme", Now: func() time.Time { return now }})
		if err != nil {
			t.Fatal(err)
		}
		for item := range im.Read(t.Context(), path) {
			if item.Problem != nil {
				reasons = append(reasons, item.Problem.Reason)
				continue
			}
			written = append(written, item.Record.Events...)
		}
		return written, reasons
	}
	written, reasons := read("auto", time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	if len(written) != 2 {
		t.Fatalf("%d memories, want 2 (problems %v)", len(written), reasons)
	}
	want := []string{
		importer.ReasonDuplicateLine, importer.ReasonInvalidMemory, importer.ReasonInvalidMemory, importer.ReasonInvalidMemory,
		importer.ReasonInvalidJSON, importer.ReasonInvalidMemory,
	}
	for i := range want {
		if i >= len(reasons) || reasons[i] != want[i] {
			t.Fatalf("problems %v, want %v", reasons, want)
		}
	}
	first, err := events.DecodeData[events.ItemWritten](written[0])
	if err != nil || first.Content != "Refunds over 100 EUR need a manager." || first.Tool != "refund_order" || *first.Importance != 0.9 || first.StatedBy != events.ActorUser {
		t.Errorf("first memory %+v, %v", first, err)
	}
	again, _ := read("memories", time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC))
	for i := range written {
		if again[i].ID != written[i].ID || again[i].TaskID != written[i].TaskID {
			t.Errorf("memory %d has another id when it is imported again", i)
		}
	}
}
