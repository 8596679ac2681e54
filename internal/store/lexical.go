package store

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/hindsight-memory/hindsight/internal/memory"
)

const (
	// fewCandidates and manyCandidates are the least and the largest number of items that are looked at to find the best of a question.
	fewCandidates  = 60
	manyCandidates = 1000
	// commonShare is in what share of the items a word must be to be too common to find items by: it would find so many
	// and tell so little. It still counts for the score of what other words find. Below commonFrom items none is.
	commonShare = 0.1
	commonFrom  = 1000
)

// Lexical finds items by words, in any language, the best first and those of equal score by id. The score is the weight
// of the words that the current version of an item has, as a share of the weight of all words of the question; a word
// weighs ln(1 + (N - n + 0.5) / (n + 0.5)) when n of N items have it. Exact are the codes and identifiers of the question
// that it holds as a whole. Summaries are not searched. The limit must be at least 1.
func (c *ClickHouse) Lexical(ctx context.Context, q memory.LexicalQuery) ([]memory.Candidate, error) {
	if q.Namespace == "" {
		return nil, ErrNamespace
	}
	if q.Limit < 1 {
		return nil, fmt.Errorf("%w: search words: limit %d: it must be at least 1", ErrOptions, q.Limit)
	}
	words := questionWords(q.Text)
	if len(words) == 0 {
		return nil, nil
	}
	weights, err := c.weigh(ctx, q, words)
	if err != nil {
		return nil, err
	}
	asked := question{words: words, weights: weights.of, identifiers: identifiers(q.Text)}
	for most := max(fewCandidates, 2*q.Limit); ; most = min(4*most, manyCandidates) {
		ids, err := c.withWords(ctx, q, weights, most)
		if err != nil {
			return nil, err
		}
		found, err := c.score(ctx, q, asked, ids)
		if err != nil {
			return nil, err
		}
		// Of what was found by words of older versions some may have dropped out.
		if len(found) >= q.Limit || len(ids) < most || most >= manyCandidates {
			return found[:min(len(found), q.Limit)], nil
		}
	}
}

// question is what a text is compared with.
type question struct {
	words       []string
	weights     map[string]float64
	identifiers []string
}

// of compares a text with the question. The score is 0 when it has none of the words.
func (a question) of(text string) (score float64, exact []string) {
	has := map[string]struct{}{}
	for _, w := range wordsOf(text) {
		has[w] = struct{}{}
	}
	var matched, total float64
	for _, w := range a.words {
		total += a.weights[w]
		if _, is := has[w]; is {
			matched += a.weights[w]
		}
	}
	if matched == 0 {
		return 0, nil
	}
	held := tokensOf(text)
	for _, id := range a.identifiers {
		if held.holds(id) {
			exact = append(exact, id)
		}
	}
	return min(matched/total, 1), exact
}

// weights of the words of a question.
type weights struct {
	of map[string]float64
	// finding are the words by which items are found.
	finding []string
}

func (q wordQuery) conditions() conditions {
	var where conditions
	where.addIf(true, "namespace = ?", q.Namespace)
	where.addIf(len(q.Layers) > 0, "layer IN ?", strs(q.Layers))
	where.addIf(q.TaskType != "", "task_type = ?", q.TaskType)
	return where
}

// wordQuery is a question to item_terms.
type wordQuery memory.LexicalQuery

// weigh counts in how many items each word is. Rows are counted and not items, which takes a third of the time: they
// differ only while equal rows of an item's versions are not merged yet, and by little for a weight.
func (c *ClickHouse) weigh(ctx context.Context, q memory.LexicalQuery, words []string) (weights, error) {
	where := wordQuery(q).conditions()
	where.addIf(true, "term IN ?", append([]string{""}, words...))
	counts := map[string]float64{}
	err := c.query(ctx, "weigh words", "SELECT term, toFloat64(count()) FROM item_terms WHERE "+where.String()+" GROUP BY term", where.args, func(rows driver.Rows) error {
		var term string
		var n float64
		err := rows.Scan(&term, &n)
		counts[term] = n
		return err
	})
	if err != nil {
		return weights{}, err
	}
	all := counts[""]
	w := weights{of: make(map[string]float64, len(words))}
	for _, word := range words {
		n := min(counts[word], all)
		w.of[word] = math.Log(1 + (all-n+0.5)/(n+0.5))
		if n > 0 && (all < commonFrom || n < commonShare*all) {
			w.finding = append(w.finding, word)
		}
	}
	if len(w.finding) > 0 {
		return w, nil
	}
	// All words are common: the rarest of them has to do.
	rarest := ""
	for _, word := range words {
		if counts[word] > 0 && (rarest == "" || counts[word] < counts[rarest]) {
			rarest = word
		}
	}
	if rarest != "" {
		w.finding = []string{rarest}
	}
	return w, nil
}

// withWords finds the items with the weightiest words.
func (c *ClickHouse) withWords(ctx context.Context, q memory.LexicalQuery, w weights, limit int) ([]string, error) {
	if len(w.finding) == 0 {
		return nil, nil
	}
	where := wordQuery(q).conditions()
	where.addIf(true, "term IN ?", w.finding)
	each := make([]float64, len(w.finding))
	for i, word := range w.finding {
		each[i] = w.of[word]
	}
	// Equal rows that are not merged yet must not count twice.
	query := fmt.Sprintf(`SELECT item_id FROM (
			SELECT item_id, arraySum(term -> transform(term, ?, ?, 0.), groupUniqArray(term)) AS weight
			FROM item_terms WHERE %s GROUP BY item_id
		) ORDER BY weight DESC, item_id LIMIT %d`, where.String(), limit)
	var ids []string
	err := c.query(ctx, "search words", query, slices.Concat([]any{w.finding, each}, where.args), func(rows driver.Rows) error {
		var id string
		err := rows.Scan(&id)
		ids = append(ids, id)
		return err
	})
	return ids, err
}

// textTable has the texts of all items but summaries.
func textTable() itemTable {
	return itemTable{name: "item_texts", id: "item_id", time: "recorded_at", taskType: "task_type"}
}

// score reads the texts of the current versions and compares them with the question, the best first.
func (c *ClickHouse) score(ctx context.Context, q memory.LexicalQuery, asked question, ids []string) ([]memory.Candidate, error) {
	var out []memory.Candidate
	for some := range slices.Chunk(ids, idsPerQuery) {
		query, args, _ := textTable().currentQuery(memory.ItemFilter{Namespace: q.Namespace, IDs: some, TaskType: q.TaskType, Statuses: q.Statuses}, "item_id, layer, text")
		err := c.query(ctx, "read texts of items", query, args, func(rows driver.Rows) error {
			var found memory.Candidate
			var layer, text string
			if err := rows.Scan(&found.ID, &layer, &text); err != nil {
				return err
			}
			found.Layer = memory.Layer(layer)
			if found.Score, found.Exact = asked.of(text); found.Score > 0 {
				out = append(out, found)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(out, func(a, b memory.Candidate) int {
		return cmp.Or(cmp.Compare(b.Score, a.Score), strings.Compare(a.ID, b.ID))
	})
	return out, nil
}
