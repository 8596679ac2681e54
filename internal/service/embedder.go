package service

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/config"
	"github.com/hindsight-memory/hindsight/internal/embed"
	"github.com/hindsight-memory/hindsight/internal/recall"
)

// NewEmbedder makes the embedder that the settings ask for, for what needs no installation that runs; nil when they ask for
// none. The caller closes it.
func NewEmbedder(cfg *config.Config, logger *slog.Logger) (*embed.Embedder, error) {
	return newEmbedder(cfg, (&Parts{Config: cfg}).engineSetting, logger)
}

// Unrecorded is what answers questions as [Parts.Reader] does, and takes no note of what it served, so that who only looks how
// good answers are does not change how often items were shown. Nothing is withheld from it. The model is loaded first; that
// it cannot be had is no error: the answers say so.
func (p *Parts) Unrecorded(ctx context.Context) (*recall.Service, error) {
	space, err := p.Space()
	if err != nil {
		return nil, err
	}
	o := recall.Options{Items: p.Store, Calls: p.Store, Recorder: unrecorded{}, Logger: p.Logger, Off: p.Config.Recall == "off", Deadline: p.Config.RecallDeadline}
	if space != nil {
		o.Index, o.Embedder = space.index, questions{space}
		(&Reader{space: space}).Warm(ctx)
	}
	service, err := recall.New(o)
	if err != nil {
		return nil, fmt.Errorf("set up recall: %w", err)
	}
	return service, nil
}

// unrecorded forgets what was served.
type unrecorded struct{}

func (unrecorded) Record(events.Event) error { return nil }
