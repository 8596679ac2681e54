package service

import (
	"context"
	"errors"
	"fmt"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/consolidate"
	"github.com/hindsight-memory/hindsight/internal/recall"
)

// Reader answers questions and takes note of what was served. It must be closed.
type Reader struct {
	*recall.Service
	space    *Space
	recorder *events.Publisher
}

// Reader makes what answers questions out of the parts. It shares the parts' vector space.
func (p *Parts) Reader() (*Reader, error) {
	space, err := p.Space()
	if err != nil {
		return nil, err
	}
	recorder, err := events.NewPublisher(p.Config.NATSAddress(), events.PublisherOptions{Logger: p.Logger})
	if err != nil {
		return nil, fmt.Errorf("set up the recorder of recalls: %w", err)
	}
	o := recall.Options{
		Items: p.Store, Calls: p.Store, Recorder: recorded{recorder}, Logger: p.Logger, Off: p.Config.Recall == "off",
		ControlShare: p.Config.ControlShare, Deadline: p.Config.RecallDeadline,
	}
	if space != nil {
		o.Index, o.Embedder = space.index, questions{space}
	}
	service, err := recall.New(o)
	if err != nil {
		return nil, fmt.Errorf("set up recall: %w", err)
	}
	return &Reader{Service: service, space: space, recorder: recorder}, nil
}

// Close sends what was noted and not yet confirmed, within ctx.
func (r *Reader) Close(ctx context.Context) error {
	if err := r.recorder.Close(ctx); err != nil && !errors.Is(err, events.ErrClosed) {
		return fmt.Errorf("record recalls: %w", err)
	}
	return nil
}

// recorded notes recalls by the publisher of agents: it never waits, and what it cannot deliver is dropped and told.
type recorded struct{ publisher *events.Publisher }

func (r recorded) Record(e events.Event) error {
	return r.publisher.Publish(context.Background(), e) //nolint:wrapcheck // The caller logs it as it is.
}

// Space is the vector space of the parts, made at the first call; nil when the settings ask for none.
func (p *Parts) Space() (*Space, error) {
	p.once.Do(func() { p.space, p.spaceErr = p.newSpace() })
	return p.space, p.spaceErr
}

func (p *Parts) newSpace() (*Space, error) {
	embedder, err := newEmbedder(p.Config, p.engineSetting, p.Logger)
	if err != nil || embedder == nil {
		return nil, err
	}
	inner, end, err := p.openIndex()
	if err != nil {
		return nil, err
	}
	index, err := newIndex(inner, end, settleFactor*consolidate.DefaultGrace, p.Registry, p.Logger)
	if err != nil {
		return nil, err
	}
	index.repair = p.orderRepair
	space := newSpace(embedder, index, p.Bus, p.Logger)
	p.used.Store(space)
	return space, nil
}

// engineSetting answers for the setting that says where the engine libraries are.
func (p *Parts) engineSetting(name string) string {
	if name == "HINDSIGHT_ENGINES_DIR" {
		return p.Config.EnginesDir
	}
	return ""
}

// Warm loads the embedding model ahead of a question that shall not wait for a deadline. That it cannot be had is no
// error here: the answer will say so.
func (r *Reader) Warm(ctx context.Context) {
	if r.space == nil {
		return
	}
	if err := r.space.Prepare(ctx); err != nil && !errors.Is(err, errNoModel) { // That is logged where it is found.
		r.space.logger.Warn("the embedding model cannot be used", "error", err)
	}
}
