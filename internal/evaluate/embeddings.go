package evaluate

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"

	"github.com/hindsight-memory/hindsight/internal/embed"
)

// retrievalSet is questions with the one document that answers each. Questions are pairs of a text and the number of the
// document, from 0. Other members of the file are not read.
type retrievalSet struct {
	Docs    []string         `json:"docs"`
	Queries []retrievalQuery `json:"queries"`
}

// retrievalQuery is a pair as it stands in the file.
type retrievalQuery struct {
	text string
	doc  int
}

func (q *retrievalQuery) UnmarshalJSON(raw []byte) error {
	pair := []any{&q.text, &q.doc}
	if err := json.Unmarshal(raw, &pair); err != nil {
		return fmt.Errorf("a question is not [text, number of the document]: %w", err)
	}
	if len(pair) != 2 {
		return fmt.Errorf("a question is not [text, number of the document], but has %d members", len(pair))
	}
	return nil
}

func parseRetrievalSet(raw []byte) (retrievalSet, error) {
	var s retrievalSet
	if err := json.Unmarshal(raw, &s); err != nil {
		return s, fmt.Errorf("%w: it is not {docs, queries}: %w", ErrInput, err)
	}
	if len(s.Docs) < 2 || len(s.Queries) == 0 {
		return s, fmt.Errorf("%w: %d docs and %d queries: there must be 2 and 1 at least", ErrInput, len(s.Docs), len(s.Queries))
	}
	for i, q := range s.Queries {
		if q.doc < 0 || q.doc >= len(s.Docs) {
			return s, fmt.Errorf("%w: query %d names document %d of %d", ErrInput, i, q.doc, len(s.Docs))
		}
		if err := embeddable(q.text); err != nil {
			return s, fmt.Errorf("%w: query %d: %w", ErrInput, i, err)
		}
	}
	for i, d := range s.Docs {
		if err := embeddable(d); err != nil {
			return s, fmt.Errorf("%w: document %d: %w", ErrInput, i, err)
		}
	}
	return s, nil
}

// Embeddings says at which place the embedding model alone puts the document that answers a question: over all questions,
// by language of question and document, and across languages.
func Embeddings(ctx context.Context, path string, v *Vectors) (Report, error) {
	report := newReport("embeddings", 0)
	raw, err := os.ReadFile(path)
	if err != nil {
		return report, fmt.Errorf("read questions and documents: %w", err)
	}
	set, err := parseRetrievalSet(raw)
	if err != nil {
		return report, fmt.Errorf("read %s: %w", path, err)
	}
	texts := slices.Clone(set.Docs)
	for _, q := range set.Queries {
		texts = append(texts, q.text)
	}
	vectors, err := v.of(ctx, texts)
	if err != nil {
		return report, err
	}
	type ranks struct {
		first, five proportion
		reciprocal  float64
	}
	groups := map[string]*ranks{}
	for _, q := range set.Queries {
		place := 1
		right := embed.Cosine(vectors[q.text], vectors[set.Docs[q.doc]])
		for d, text := range set.Docs {
			if d != q.doc && embed.Cosine(vectors[q.text], vectors[text]) >= right {
				place++ // A tie counts against it.
			}
		}
		asks, answers := embed.Language(q.text), embed.Language(set.Docs[q.doc])
		names := []string{"", asks + "_" + answers + "_"}
		if asks != answers {
			names = append(names, "cross_")
		}
		for _, name := range names {
			if groups[name] == nil {
				groups[name] = &ranks{}
			}
			g := groups[name]
			g.first.add(place == 1)
			g.five.add(place <= 5)
			g.reciprocal += 1 / float64(place)
		}
		if place > 1 {
			report.Examples = append(report.Examples, fmt.Sprintf("place %d: %q → %q", place, q.text, set.Docs[q.doc]))
		}
	}
	for name, g := range groups {
		report.Figures[name+"questions"] = float64(g.first.of)
		report.Figures[name+"mrr"] = g.reciprocal / float64(g.first.of)
		report.share(name+"hit1", g.first)
		report.share(name+"hit5", g.five)
	}
	report.Examples = firstOf(report.Examples, maxExamples)
	return report, nil
}
