package embed_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/hindsight-memory/hindsight/internal/embed"
)

var update = flag.Bool("update", false, "make means.json again; raise meansVersion when it changes")

// meansVersion becomes the version of the model: raise it with the corpus.
const meansVersion = "v1"

type meansDocument struct {
	Model     string               `json:"model"`
	Version   string               `json:"version"`
	Sentences map[string]int       `json:"sentences"`
	Means     map[string][]float64 `json:"means"`
}

// average is the mean of the raw vectors of texts.
func average(t *testing.T, l *embed.Local, texts []string) []float64 {
	t.Helper()
	vectors, err := l.Raw(t.Context(), texts)
	if err != nil {
		t.Fatal(err)
	}
	mean := make([]float64, len(vectors[0]))
	for _, v := range vectors {
		for i, x := range v {
			mean[i] += float64(x) / float64(len(vectors))
		}
	}
	return mean
}

// TestMeans makes means.json with -update. Without, it embeds a part of the
// corpus and checks that the file belongs to it and to the model.
func TestMeans(t *testing.T) {
	l := openLocal(t)
	doc := meansDocument{Model: embed.LocalName, Version: meansVersion, Sentences: map[string]int{}, Means: map[string][]float64{}}
	languages := slices.Sorted(maps.Keys(corpus))
	if *update {
		other := make([]float64, 384)
		for _, language := range languages {
			texts := corpus[language].sentences()
			mean := average(t, l, texts)
			for i, x := range mean {
				other[i] += x / float64(len(languages))
				mean[i] = math.Round(x*1e5) / 1e5
			}
			doc.Sentences[language], doc.Means[language] = len(texts), mean
		}
		for i, x := range other {
			other[i] = math.Round(x*1e5) / 1e5
		}
		doc.Means[embed.OtherLanguage] = other
		writeMeans(t, doc)
		return
	}
	file, err := os.ReadFile("means.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(file, &doc); err != nil {
		t.Fatal(err)
	}
	if doc.Model != embed.LocalName || doc.Version != meansVersion {
		t.Fatalf("means.json is of %s %s, want %s %s", doc.Model, doc.Version, embed.LocalName, meansVersion)
	}
	for _, language := range languages {
		all := corpus[language].sentences()
		if doc.Sentences[language] != len(all) {
			t.Errorf("means.json was made from %d sentences of %s, the corpus has %d: run go generate and raise meansVersion", doc.Sentences[language], language, len(all))
		}
		var some []string
		for i := 3; i < len(all); i += perPattern {
			some = append(some, all[i])
		}
		if got := similarity(average(t, l, some), doc.Means[language]); got < 0.98 {
			t.Errorf("the mean of %s has similarity %.3f to that of every %dth sentence, want 0.98", language, got, perPattern)
		}
	}
}

func similarity(a, b []float64) float64 {
	var ab, aa, bb float64
	for i := range a {
		ab, aa, bb = ab+a[i]*b[i], aa+a[i]*a[i], bb+b[i]*b[i]
	}
	return ab / math.Sqrt(aa*bb)
}

// writeMeans writes one line a language, so that a change can be seen.
func writeMeans(t *testing.T, doc meansDocument) {
	t.Helper()
	sentences, err := json.Marshal(doc.Sentences)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "{\n\"model\": %q,\n\"version\": %q,\n\"sentences\": %s,\n\"means\": {", doc.Model, doc.Version, sentences)
	for i, language := range slices.Sorted(maps.Keys(doc.Means)) {
		mean, err := json.Marshal(doc.Means[language])
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "\n%q: %s", language, mean)
	}
	b.WriteString("\n}\n}\n")
	if err := os.WriteFile("means.json", []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestCorpusIsOfItsLanguage protects the means from sentences that would be
// embedded with another one.
func TestCorpusIsOfItsLanguage(t *testing.T) {
	t.Parallel()
	for language, c := range corpus {
		seen := map[string]bool{}
		for _, s := range c.sentences() {
			if strings.ContainsAny(s, "{}") {
				t.Errorf("%s: %q has an unfilled place", language, s)
			}
			if got := embed.Language(s); got != language {
				t.Errorf("%q is of %q, Language says %q", s, language, got)
			}
			seen[s] = true
		}
		if len(seen) < 150 {
			t.Errorf("%s has %d different sentences, want a few hundred", language, len(seen))
		}
	}
}
