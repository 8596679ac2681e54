package evaluate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/hindsight-memory/hindsight/internal/embed"
	"github.com/hindsight-memory/hindsight/internal/memory"
)

// statements are two lessons and whether a person says that they say the same.
type statements struct {
	A    *memory.Statement `json:"a"`
	B    *memory.Statement `json:"b"`
	Same *bool             `json:"same"`
}

func parseStatements(line []byte) (statements, error) {
	var s statements
	if err := json.Unmarshal(line, &s); err != nil {
		return s, fmt.Errorf("it is not {a, b, same}: %w", err)
	}
	if s.A == nil || s.B == nil || s.Same == nil {
		return s, errors.New("a, b or same is missing")
	}
	for _, side := range []*memory.Statement{s.A, s.B} {
		if strings.TrimSpace(side.Lesson) == "" {
			return s, errors.New("a lesson is missing")
		}
		if err := embeddable(statementText(*side)); err != nil {
			return s, err
		}
	}
	return s, nil
}

// statementText is what the product embeds of a snapshot of which no more is known.
func statementText(s memory.Statement) string {
	return memory.SnapshotText(memory.Snapshot{
		Decision: memory.Decision{ToolSelected: s.Tool}, Outcome: memory.Outcome{ErrorType: s.ErrorType, ErrorMessage: s.ErrorMessage},
		AppliesWhen: s.AppliesWhen, Reflection: &memory.Reflection{Lesson: s.Lesson},
	})
}

// Merge says how well the decision by which the product merges lessons agrees with people: structure, and similarity of the
// situations by the embedding model.
func Merge(ctx context.Context, path string, v *Vectors) (Report, error) {
	report := newReport("merge", 0)
	in, err := readFile(path, parseStatements)
	if err != nil {
		return report, err
	}
	var texts []string
	for _, s := range in.good {
		texts = append(texts, statementText(*s.value.A), statementText(*s.value.B))
	}
	vectors, err := v.of(ctx, texts)
	if err != nil {
		return report, err
	}
	meaning, words := confusion{}, confusion{}
	found := map[memory.Likeness]int{}
	var falseMerges, missed []string
	for _, s := range in.good {
		a, b, same := *s.value.A, *s.value.B, *s.value.Same
		cosine := embed.Cosine(vectors[statementText(a)], vectors[statementText(b)])
		got := memory.Compare(a, b, cosine, v.thresholds())
		found[got]++
		meaning.add(got == memory.LikenessSame, same)
		words.add(memory.Compare(a, b, withoutVectors, v.thresholds()) == memory.LikenessSame, same)
		switch merged := got == memory.LikenessSame; {
		case merged && !same:
			falseMerges = append(falseMerges, fmt.Sprintf("false merge, line %d (cosine %.3f):\n  %s\n  %s", s.line, cosine, shownStatement(a), shownStatement(b)))
		case !merged && same:
			missed = append(missed, fmt.Sprintf("not merged, line %d: %s:\n  %s\n  %s", s.line, whyApart(a, b, cosine, got, v.thresholds()), shownStatement(a), shownStatement(b)))
		}
	}
	meaning.tell(&report, "")
	words.tell(&report, "without_vectors_")
	for _, l := range []memory.Likeness{memory.LikenessNone, memory.LikenessRelated, memory.LikenessSame, memory.LikenessOpposed} {
		report.Figures["pairs_found_"+string(l)] = float64(found[l])
	}
	report.Figures["threshold_related"], report.Figures["threshold_duplicate"] = v.calibration.Related, v.calibration.Duplicate
	report.Examples = append(report.Examples, firstOf(falseMerges, 3*maxExamples)...)
	report.Examples = append(report.Examples, firstOf(missed, maxExamples)...)
	in.tell(&report)
	return report, nil
}

// withoutVectors is a similarity that says that there is none.
const withoutVectors = -2

// whyApart says what keeps two statements apart, as far as it shows from outside.
func whyApart(a, b memory.Statement, cosine float64, got memory.Likeness, t memory.Thresholds) string {
	switch {
	case a.Subject() != b.Subject():
		return "tool or error differ"
	case got == memory.LikenessOpposed:
		return "they seem to advise the opposite"
	case cosine < t.Related:
		return fmt.Sprintf("cosine %.3f is below the threshold of relatedness", cosine)
	case got == memory.LikenessNone:
		return "the conditions differ"
	case cosine < t.Duplicate:
		return fmt.Sprintf("cosine %.3f is below the threshold of sameness", cosine)
	default:
		return "a number, parameter, negation or name is in one of them only"
	}
}

func shownStatement(s memory.Statement) string {
	return oneLineOf(fmt.Sprintf("%s | %s %s | when %s | %s", s.Tool, s.ErrorType, s.ErrorMessage, s.AppliesWhen, s.Lesson), 300)
}

// confusion counts decisions against what people say.
type confusion struct{ truePositive, falsePositive, trueNegative, falseNegative int }

func (c *confusion) add(said, is bool) {
	switch {
	case said && is:
		c.truePositive++
	case said:
		c.falsePositive++
	case is:
		c.falseNegative++
	default:
		c.trueNegative++
	}
}

// tell notes the figures. Precision of no decision, and recall of nothing to find, are left out.
func (c *confusion) tell(report *Report, prefix string) {
	said, are := c.truePositive+c.falsePositive, c.truePositive+c.falseNegative
	report.Figures[prefix+"pairs"] = float64(said + c.falseNegative + c.trueNegative)
	report.Figures[prefix+"pairs_same"] = float64(are)
	report.Figures[prefix+"true_merges"], report.Figures[prefix+"false_merges"] = float64(c.truePositive), float64(c.falsePositive)
	report.Figures[prefix+"missed_merges"] = float64(c.falseNegative)
	report.shareInterval(prefix+"precision", proportion{c.truePositive, said})
	report.shareInterval(prefix+"recall", proportion{c.truePositive, are})
	report.shareInterval(prefix+"accuracy", proportion{c.truePositive + c.trueNegative, said + c.falseNegative + c.trueNegative})
	if said+are > 0 {
		report.Figures[prefix+"f1"] = 2 * float64(c.truePositive) / float64(said+are)
	}
}
