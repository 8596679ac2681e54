package evaluate

import (
	"context"
	"fmt"

	"github.com/hindsight-memory/hindsight/internal/embed"
	"github.com/hindsight-memory/hindsight/internal/memory"
)

// Embedder is a front of an embedding model, such as [embed.Embedder].
type Embedder interface {
	Embed(ctx context.Context, p embed.Priority, texts ...string) ([][]float32, error)
	Identity(ctx context.Context) (string, error)
	Calibrate(ctx context.Context) (embed.Calibration, error)
}

// Vectors makes vectors of texts by one model, and knows what the cosines of the model mean.
type Vectors struct {
	embedder    Embedder
	calibration embed.Calibration
}

// OpenVectors loads the model, and calibrates one that the program does not bring along.
func OpenVectors(ctx context.Context, e Embedder) (*Vectors, error) {
	identity, err := e.Identity(ctx)
	if err != nil {
		return nil, fmt.Errorf("load the embedding model: %w", err)
	}
	calibration, is := embed.KnownCalibration(identity)
	if !is {
		if calibration, err = e.Calibrate(ctx); err != nil {
			return nil, fmt.Errorf("calibrate the embedding model: %w", err)
		}
	}
	return &Vectors{e, calibration}, nil
}

// of gives the vectors of texts by text. None of the texts may be empty.
func (v *Vectors) of(ctx context.Context, texts []string) (map[string][]float32, error) {
	out := map[string][]float32{}
	var different []string
	for _, text := range texts {
		if _, is := out[text]; !is {
			out[text] = nil
			different = append(different, text)
		}
	}
	made, err := v.embedder.Embed(ctx, embed.Background, different...)
	if err != nil {
		return nil, fmt.Errorf("embed %d texts: %w", len(different), err)
	}
	for i, text := range different {
		out[text] = made[i]
	}
	return out, nil
}

// thresholds are the model's cosines of relatedness and sameness.
func (v *Vectors) thresholds() memory.Thresholds {
	return memory.Thresholds{Related: v.calibration.Related, Duplicate: v.calibration.Duplicate}
}

// embeddable refuses a text that no model could embed.
func embeddable(text string) error {
	if _, err := embed.Clean(text, embed.MaxTextBytes); err != nil {
		return fmt.Errorf("there is nothing to compare: %w", err)
	}
	return nil
}
