package events_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"testing"

	"github.com/hindsight-memory/hindsight/events"
)

// TestMaskTouchesNothingInRealTraces guards against a mask that is too eager: the runs hold thousands of orders, payment
// methods, addresses and policies, and not one secret.
func TestMaskTouchesNothingInRealTraces(t *testing.T) {
	t.Parallel()
	folder := os.Getenv("HINDSIGHT_TEST_DATA")
	if folder == "" {
		t.Skip("HINDSIGHT_TEST_DATA is not set: no real traces to mask")
	}
	files, err := filepath.Glob(filepath.Join(folder, "traces", "*.jsonl.gz"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no traces in %s (%v)", folder, err)
	}
	for _, name := range files {
		t.Run(filepath.Base(name), func(t *testing.T) {
			t.Parallel()
			file, err := os.Open(name)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = file.Close() }() // It is only read.
			unpacked, err := gzip.NewReader(file)
			if err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(unpacked)
			lines.Buffer(nil, 16<<20)
			n := 0
			for lines.Scan() {
				n++
				masked := events.Mask(lines.Bytes())
				if !bytes.Equal(masked, lines.Bytes()) {
					at := bytes.Index(masked, []byte("[masked:"))
					t.Errorf("line %d is masked: …%s…", n, masked[max(0, at-120):min(len(masked), at+40)])
				}
			}
			if err := lines.Err(); err != nil || n == 0 {
				t.Fatalf("read %d lines: %v", n, err)
			}
		})
	}
}
