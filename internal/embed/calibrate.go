package embed

import (
	"cmp"
	"context"
	_ "embed" // the texts
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
)

// ErrUncalibrated means that no thresholds can be given: the model does not
// score paraphrases higher than unrelated texts, or a stored calibration is of
// another model or damaged.
var ErrUncalibrated = errors.New("the embedding model cannot be calibrated")

// calibrationFile holds texts of our own: each topic is said twice in English
// and twice in Chinese. Texts of one topic are paraphrases, texts of two topics
// are unrelated.
//
//go:embed calibration.json
var calibrationFile []byte

// Calibration says what the cosines of one model mean. Models differ wildly:
// with one, unrelated texts score 0.9, with another 0. It is made once a model
// and stored with its vectors, as JSON.
type Calibration struct {
	// Identity is [Embedder.Identity] of the model that it is for.
	Identity string `json:"identity"`
	// Unrelated is the mean cosine of unrelated texts.
	Unrelated float64 `json:"unrelated"`
	// Related is the cosine from which two texts are about the same matter: the
	// one that tells unrelated from paraphrased texts best.
	Related float64 `json:"related"`
	// Duplicate is the cosine from which two texts say the same: the upper
	// quartile of paraphrases, so that what passes is alike even for texts that
	// mean the same. Texts that differ in one decisive word pass as well, with
	// any model: never merge by similarity alone.
	Duplicate float64 `json:"duplicate"`
	// Misjudged is how much of the samples Related gets wrong, from 0 (none) to
	// 1: the share of unrelated pairs at or above it plus the share of
	// paraphrases below it, halved. Over 0.2 the model is a poor one for these
	// languages.
	Misjudged float64 `json:"misjudged"`
}

// Samples are the cosines that thresholds are drawn from, of at least 10
// unrelated and 10 paraphrased pairs.
type Samples struct {
	Unrelated, Paraphrase []float64
}

// Calibrate returns thresholds for samples of one model, without identity. It
// returns [ErrUncalibrated] when the two kinds cannot be told apart. It does
// not depend on the order of the samples.
func Calibrate(s Samples) (Calibration, error) {
	if len(s.Unrelated) < 10 || len(s.Paraphrase) < 10 {
		return Calibration{}, fmt.Errorf("%w: %d unrelated and %d paraphrased pairs are too few", ErrUncalibrated, len(s.Unrelated), len(s.Paraphrase))
	}
	type sample struct {
		cosine     float64
		paraphrase bool
	}
	var all []sample
	var c Calibration
	for _, x := range s.Unrelated {
		all = append(all, sample{x, false})
		c.Unrelated += x / float64(len(s.Unrelated))
	}
	for _, x := range s.Paraphrase {
		all = append(all, sample{x, true})
	}
	for _, x := range all {
		if math.IsNaN(x.cosine) || x.cosine < -1.001 || x.cosine > 1.001 {
			return Calibration{}, fmt.Errorf("%w: a sample has the cosine %g", ErrUncalibrated, x.cosine)
		}
	}
	slices.SortFunc(all, func(a, b sample) int { return cmp.Compare(a.cosine, b.cosine) })
	// Walk up through the gaps between samples. What is below is taken for
	// unrelated; the gap with the least error wins, the wider of two equals.
	c.Misjudged = 1
	falsely, missed, width := 1.0, 0.0, 0.0
	for i := range len(all) - 1 {
		if all[i].paraphrase {
			missed += 1 / float64(len(s.Paraphrase))
		} else {
			falsely -= 1 / float64(len(s.Unrelated))
		}
		gap := all[i+1].cosine - all[i].cosine
		wrong := (falsely + missed) / 2
		if gap <= 0 || wrong > c.Misjudged+1e-12 || wrong > c.Misjudged-1e-12 && gap <= width {
			continue
		}
		c.Misjudged, width = max(0, wrong), gap
		c.Related = all[i].cosine + gap/2
	}
	paraphrases := slices.Sorted(slices.Values(s.Paraphrase))
	c.Duplicate = max(paraphrases[len(paraphrases)*3/4], c.Related+(1-c.Related)/4)
	if c.Misjudged > 0.4 || c.Related <= c.Unrelated || c.Duplicate >= 1 {
		return Calibration{}, fmt.Errorf("%w: it scores paraphrases no higher than unrelated texts (%.0f %% of the samples are misjudged at best); use another EMBEDDING_MODEL",
			ErrUncalibrated, 100*c.Misjudged)
	}
	return c, nil
}

// Check returns [ErrUncalibrated] when c, as it was stored, is not a
// calibration of the model with the given identity.
func (c Calibration) Check(identity string) error {
	if c.Identity != identity {
		return fmt.Errorf("%w by what is stored: that is of %q, the model is %q; calibrate again", ErrUncalibrated, c.Identity, identity)
	}
	// Written so that NaN fails.
	if !(c.Unrelated >= -1 && c.Unrelated < c.Related && c.Related < c.Duplicate && c.Duplicate < 1) {
		return fmt.Errorf("%w by what is stored: its thresholds are out of order; calibrate again", ErrUncalibrated)
	}
	return nil
}

// Similarity is the calibrated similarity of two texts whose vectors have the
// given cosine: 0 at the mean of unrelated texts and below, 0.5 at Related, 1
// for equal vectors, linear between. It never falls when the cosine rises, so
// it means the same for every model and keeps its ranking.
func (c Calibration) Similarity(cosine float64) float64 {
	switch {
	case cosine >= 1:
		return 1
	case cosine >= c.Related:
		return 0.5 + 0.5*(cosine-c.Related)/(1-c.Related)
	case cosine > c.Unrelated:
		return 0.5 * (cosine - c.Unrelated) / (c.Related - c.Unrelated)
	default:
		return 0
	}
}

// knownFile holds the calibrations of models that this program brings along, so that the first start need not make them.
//
//go:generate go test -count=1 -timeout=30m -run=^TestKnownCalibrations$ -update .
//go:embed known.json
var knownFile []byte

// KnownCalibration is what [Embedder.Calibrate] gives for a model that this program brings along. It is false for all
// others.
func KnownCalibration(identity string) (Calibration, bool) {
	var known []Calibration
	if err := json.Unmarshal(knownFile, &known); err != nil {
		return Calibration{}, false // A test reads it.
	}
	i := slices.IndexFunc(known, func(c Calibration) bool { return c.Check(identity) == nil })
	if i < 0 {
		return Calibration{}, false
	}
	return known[i], true
}

// Calibrate embeds the built-in texts (96, some seconds with the local model)
// as background work and returns the thresholds of the model.
func (e *Embedder) Calibrate(ctx context.Context) (Calibration, error) {
	id, err := e.Identity(ctx)
	if err != nil {
		return Calibration{}, fmt.Errorf("calibrate the embedding model: %w", err)
	}
	var file struct {
		Topics [][]string `json:"topics"`
	}
	if err := json.Unmarshal(calibrationFile, &file); err != nil {
		return Calibration{}, fmt.Errorf("read the texts for calibration: %w", err)
	}
	var texts []string
	var topics []int
	for topic, said := range file.Topics {
		for _, text := range said {
			texts, topics = append(texts, text), append(topics, topic)
		}
	}
	vectors, err := e.Embed(ctx, Background, texts...)
	if err != nil {
		return Calibration{}, fmt.Errorf("calibrate the embedding model: %w", err)
	}
	var s Samples
	for i := range vectors {
		for j := range i {
			cosine := Cosine(vectors[i], vectors[j])
			if topics[i] == topics[j] {
				s.Paraphrase = append(s.Paraphrase, cosine)
			} else {
				s.Unrelated = append(s.Unrelated, cosine)
			}
		}
	}
	c, err := Calibrate(s)
	if err != nil {
		return Calibration{}, fmt.Errorf("%s: %w", id, err)
	}
	c.Identity = id
	return c, nil
}
