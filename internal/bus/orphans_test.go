package bus_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/hindsight-memory/hindsight/internal/bus"
)

// TestMessagesBelowTheFloorAreHandled makes the stream older than its
// consumer, as a loss of power does, by putting back its files.
func TestMessagesBelowTheFloorAreHandled(t *testing.T) {
	t.Parallel()
	s, conn := open(t)
	_, js := s.raw(t)
	publish(t, conn, messages(10))

	found, err := filepath.Glob(filepath.Join(s.dir, "nats", "jetstream", "*", "streams", bus.StreamTraces, "msgs"))
	if err != nil || len(found) != 1 {
		t.Fatalf("files of the stream: %v, %v, want one folder", found, err)
	}
	files, older := found[0], filepath.Join(t.TempDir(), "msgs")
	s.stop(t)
	if err := os.CopyFS(older, os.DirFS(files)); err != nil {
		t.Fatal(err)
	}
	s.start(t)

	var seen calls
	handler := func(_ context.Context, batch []bus.Message) []error {
		seen.add(batch)
		return make([]error, len(batch))
	}
	stop := run(t, conn, options(), handler)
	empty(t, js)
	if err := stop(); err != nil {
		t.Fatal(err)
	}

	s.stop(t)
	if err := os.RemoveAll(files); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(files, os.DirFS(older)); err != nil {
		t.Fatal(err)
	}
	s.start(t)
	eventually(t, "the connection is back", func() bool { return conn.Ready(t.Context()) == nil })
	if got := count(t, js, bus.StreamTraces); got != 10 {
		t.Fatalf("the older stream holds %d messages, want 10", got)
	}
	before := seen.total()
	run(t, conn, options(), handler)
	empty(t, js)
	if got := seen.total() - before; got != 10 {
		t.Errorf("%d of the messages that came back were handled, want 10", got)
	}
}
