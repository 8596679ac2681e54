package evaluate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hindsight-memory/hindsight/internal/embed"
	"github.com/hindsight-memory/hindsight/internal/memory"
)

// situation is a decision as a file of the suite situations has it.
type situation struct {
	TaskType       string          `json:"task_type"`
	InputSummary   string          `json:"input_summary"`
	AvailableTools []string        `json:"available_tools"`
	ToolSelected   string          `json:"tool_selected"`
	Parameters     json.RawMessage `json:"parameters"`
}

// text is what the product embeds of such a decision.
func (s situation) text() string {
	return memory.SnapshotText(memory.Snapshot{
		TaskContext: memory.TaskContext{TaskType: s.TaskType, InputSummary: s.InputSummary, AvailableTools: s.AvailableTools},
		Decision:    memory.Decision{ToolSelected: s.ToolSelected, Parameters: s.Parameters},
	})
}

// likeness is a decision, one of the same kind, and one that only looks like it.
type likeness struct {
	Anchor *situation `json:"anchor"`
	Same   *situation `json:"same"`
	Decoy  *situation `json:"decoy"`
}

func parseLikeness(line []byte) (likeness, error) {
	var l likeness
	if err := json.Unmarshal(line, &l); err != nil {
		return l, fmt.Errorf("it is not {anchor, same, decoy}: %w", err)
	}
	for _, side := range []struct {
		name string
		*situation
	}{{"anchor", l.Anchor}, {"same", l.Same}, {"decoy", l.Decoy}} {
		if side.situation == nil {
			return l, fmt.Errorf("%s is missing", side.name)
		}
		if err := side.check(); err != nil {
			return l, fmt.Errorf("%s: %w", side.name, err)
		}
	}
	return l, nil
}

func (s situation) check() error {
	if p := bytes.TrimSpace(s.Parameters); len(p) > 0 && p[0] != '{' && !bytes.Equal(p, []byte("null")) {
		return errors.New("parameters are not an object")
	}
	return embeddable(s.text())
}

// Situations says whether the text of a situation that the product embeds puts a decision nearer to one of the same kind
// than to one that only looks like it, by the embedding model, and where both stand to the model's thresholds.
func Situations(ctx context.Context, path string, v *Vectors) (Report, error) {
	report := newReport("situations", 0)
	in, err := readFile(path, parseLikeness)
	if err != nil {
		return report, err
	}
	var texts []string
	for _, l := range in.good {
		texts = append(texts, l.value.Anchor.text(), l.value.Same.text(), l.value.Decoy.text())
	}
	vectors, err := v.of(ctx, texts)
	if err != nil {
		return report, err
	}
	all, byLanguage := likenesses{}, map[memory.Language]*likenesses{}
	var wrong []string
	for _, l := range in.good {
		anchor, same, decoy := l.value.Anchor.text(), l.value.Same.text(), l.value.Decoy.text()
		j := judgedLikeness{
			same: embed.Cosine(vectors[anchor], vectors[same]), decoy: embed.Cosine(vectors[anchor], vectors[decoy]), calibration: v.calibration,
		}
		language := memory.LanguageOf(l.value.Anchor.InputSummary)
		if byLanguage[language] == nil {
			byLanguage[language] = &likenesses{}
		}
		all.add(j)
		byLanguage[language].add(j)
		if !j.right() {
			wrong = append(wrong, fmt.Sprintf("the decoy is as near (%.3f) as the same (%.3f), line %d:\n  anchor %s\n  same   %s\n  decoy  %s", j.decoy, j.same, l.line, anchor, same, decoy))
		}
	}
	all.tell(&report, "")
	for language, l := range byLanguage {
		l.tell(&report, string(language)+"_")
	}
	report.Figures["threshold_related"], report.Figures["threshold_duplicate"] = v.calibration.Related, v.calibration.Duplicate
	report.Examples = append(report.Examples, firstOf(wrong, maxExamples)...)
	in.tell(&report)
	return report, nil
}

// judgedLikeness holds the cosines of an anchor to its two.
type judgedLikeness struct {
	same, decoy float64
	calibration embed.Calibration
}

// right wants the same strictly nearer: a tie is chance.
func (j judgedLikeness) right() bool { return j.same > j.decoy }

// margin is in calibrated similarity, which means the same for every model.
func (j judgedLikeness) margin() float64 {
	return j.calibration.Similarity(j.same) - j.calibration.Similarity(j.decoy)
}

// likenesses are judged triples.
type likenesses struct {
	right, sameDuplicate, sameRelated, decoyNotDuplicate, decoyNotRelated, apart proportion
	margins                                                                      []float64
}

func (l *likenesses) add(j judgedLikeness) {
	c := j.calibration
	l.right.add(j.right())
	l.sameDuplicate.add(j.same >= c.Duplicate)
	l.sameRelated.add(j.same >= c.Related)
	l.decoyNotDuplicate.add(j.decoy < c.Duplicate)
	l.decoyNotRelated.add(j.decoy < c.Related)
	l.apart.add(j.same >= c.Duplicate && j.decoy < c.Duplicate)
	l.margins = append(l.margins, j.margin())
}

func (l *likenesses) tell(report *Report, prefix string) {
	report.Figures[prefix+"triples"] = float64(l.right.of)
	report.shareInterval(prefix+"accuracy", l.right)
	report.share(prefix+"same_at_least_duplicate", l.sameDuplicate)
	report.share(prefix+"same_at_least_related", l.sameRelated)
	report.share(prefix+"decoy_below_duplicate", l.decoyNotDuplicate)
	report.share(prefix+"decoy_below_related", l.decoyNotRelated)
	report.share(prefix+"told_apart_by_duplicate", l.apart)
	report.Figures[prefix+"margin_mean"], report.Figures[prefix+"margin_min"] = mean(l.margins), slices.Min(l.margins)
}

func mean(values []float64) float64 {
	var sum float64
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// oneLineOf joins the lines of a text, for an example.
func oneLineOf(text string, runes int) string {
	return memory.Cut(strings.Join(strings.Fields(text), " "), runes)
}
