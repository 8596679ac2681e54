package embed_test

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/hindsight-memory/hindsight/internal/embed"
)

// benchmarkTexts are n different texts of the given number of sentences.
func benchmarkTexts(n, sentences int) []string {
	all := corpus["en"].sentences()
	texts := make([]string, n)
	for i := range texts {
		var parts []string
		for k := range sentences {
			parts = append(parts, all[(i*sentences+k)%len(all)])
		}
		texts[i] = strconv.Itoa(i) + " " + strings.Join(parts, " ")
	}
	return texts
}

// BenchmarkCold loads the model and embeds one text.
func BenchmarkCold(b *testing.B) {
	dir := localDir(b)
	for b.Loop() {
		l, err := embed.NewLocal(embed.LocalOptions{Dir: dir})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := l.Embed(b.Context(), []string{"What happened to the order last week?"}); err != nil {
			b.Fatal(err)
		}
		if err := l.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkWarm embeds texts of one sentence, of about 100 tokens and of the
// limit, alone and 32 at a time.
func BenchmarkWarm(b *testing.B) {
	l := openLocal(b)
	for _, c := range []struct {
		name             string
		batch, sentences int
	}{{"sentence", 1, 1}, {"sentence_x32", 32, 1}, {"paragraph", 1, 8}, {"paragraph_x32", 32, 8}, {"limit", 1, 50}} {
		b.Run(c.name, func(b *testing.B) {
			texts := benchmarkTexts(c.batch, c.sentences)
			for b.Loop() {
				if _, err := l.Embed(b.Context(), texts); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N*c.batch), "ms/text")
		})
	}
}

// BenchmarkRemembered answers from the cache.
func BenchmarkRemembered(b *testing.B) {
	e, err := embed.New(openLocal(b), embed.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = e.Close() })
	for b.Loop() {
		if _, err := e.Embed(b.Context(), embed.Interactive, "What happened to the order last week?"); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkMemory reports how much more memory is resident with the model
// loaded, after one sentence and after 32 texts of the limit.
func BenchmarkMemory(b *testing.B) {
	if _, err := os.Stat("/proc/self/status"); err != nil {
		b.Skip("resident memory is read from /proc")
	}
	before := statusOf(b, "VmRSS:")
	l := openLocal(b)
	if _, err := l.Embed(b.Context(), []string{"a"}); err != nil {
		b.Fatal(err)
	}
	one := statusOf(b, "VmRSS:")
	if _, err := l.Embed(b.Context(), benchmarkTexts(32, 50)); err != nil {
		b.Fatal(err)
	}
	all := statusOf(b, "VmRSS:")
	for b.Loop() {
		_ = b.N // the memory is what is measured
	}
	b.ReportMetric(float64(one-before)/1024, "MiB-loaded")
	b.ReportMetric(float64(all-before)/1024, "MiB-long-batch")
}
