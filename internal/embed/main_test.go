package embed_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/hindsight-memory/hindsight/internal/embed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// localDir is where the local model is, or the test is skipped.
func localDir(tb testing.TB) string {
	tb.Helper()
	dir, err := embed.FindLocal(os.Getenv)
	if err != nil {
		tb.Skipf("the local model is not installed: %v", err)
	}
	return dir
}

// openLocal opens the local model for one test.
func openLocal(tb testing.TB) *embed.Local {
	tb.Helper()
	l, err := embed.NewLocal(embed.LocalOptions{Dir: localDir(tb)})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := l.Close(); err != nil {
			tb.Error(err)
		}
	})
	return l
}
