package embed_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/hindsight-memory/hindsight/internal/embed"
)

type query struct {
	Text string
	Doc  int
}

func (q *query) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, &[]any{&q.Text, &q.Doc}) }

type evalset struct {
	Docs    []string `json:"docs"`
	Queries []query  `json:"queries"`
}

func readEvalset(t *testing.T) evalset {
	t.Helper()
	dir := os.Getenv("HINDSIGHT_TEST_DATA")
	if dir == "" {
		t.Skip("HINDSIGHT_TEST_DATA is not set: the retrieval set is not there")
	}
	file, err := os.ReadFile(filepath.Join(dir, "retrieval", "evalset_en_zh.json"))
	if err != nil {
		t.Fatal(err)
	}
	var s evalset
	if err := json.Unmarshal(file, &s); err != nil {
		t.Fatal(err)
	}
	if len(s.Docs) == 0 || len(s.Queries) == 0 {
		t.Fatal("the retrieval set is empty")
	}
	return s
}

// meanReciprocalRank ranks the documents for each question, over all questions
// and over those whose answer is in another language.
func meanReciprocalRank(s evalset, docs, queries [][]float32) (all, cross float64) {
	crossing := 0
	for i, q := range s.Queries {
		rank, score := 1, embed.Cosine(queries[i], docs[q.Doc])
		for d := range docs {
			if d != q.Doc && embed.Cosine(queries[i], docs[d]) >= score {
				rank++
			}
		}
		all += 1 / float64(rank)
		if embed.Language(q.Text) != embed.Language(s.Docs[q.Doc]) {
			cross += 1 / float64(rank)
			crossing++
		}
	}
	return all / float64(len(s.Queries)), cross / float64(crossing)
}

// TestRetrieval measures what subtracting the mean does for questions in
// English and Chinese, and asserts a floor under it.
func TestRetrieval(t *testing.T) {
	t.Parallel()
	s := readEvalset(t)
	l := openLocal(t)
	questions := make([]string, len(s.Queries))
	for i, q := range s.Queries {
		questions[i] = q.Text
	}
	raw := func(texts []string) [][]float32 {
		v, err := l.Raw(t.Context(), texts)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	centred := func(texts []string) [][]float32 {
		v, err := l.Embed(t.Context(), texts)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	all, cross := meanReciprocalRank(s, raw(s.Docs), raw(questions))
	allCentred, crossCentred := meanReciprocalRank(s, centred(s.Docs), centred(questions))
	t.Logf("mean reciprocal rank of %d questions: raw %.3f, centred %.3f; across languages: raw %.3f, centred %.3f",
		len(questions), all, allCentred, cross, crossCentred)
	if allCentred < 0.85 || crossCentred < 0.65 {
		t.Errorf("the mean reciprocal rank is %.3f, %.3f across languages; want 0.85 and 0.65", allCentred, crossCentred)
	}
	if allCentred <= all || crossCentred <= cross {
		t.Error("subtracting the mean does not help")
	}
}
