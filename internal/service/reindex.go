package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hindsight-memory/hindsight/internal/bus"
	"github.com/hindsight-memory/hindsight/internal/consolidate"
	"github.com/hindsight-memory/hindsight/internal/embed"
)

// Reindexed counts what [Parts.Reindex] did. Its JSON is the stable shape of `hindsight reindex --json`.
type Reindexed struct {
	// Model is the identity of the embedding model.
	Model string `json:"model"`
	// Indexed counts the items that are in the index now, Embedded those of them that had no vector of the model before.
	Indexed  int `json:"indexed"`
	Embedded int `json:"embedded"`
	// Removed counts entries of the index that no item stands behind that may be found.
	Removed int `json:"removed"`
}

// Reindex builds the vector index of the configured model again: from the vectors that the record holds, and by embedding
// only what has none of that model yet. What may not be found, or is not in the record, leaves the index. In the end the
// model is noted as the one in use, so that this is how one model follows another; services may run meanwhile, and go on
// with the new one by themselves when they are configured for it. Doing it again, or after an interruption, is safe.
//
// progress, unless nil, is told the counts so far. The error may be [embed.ErrNone], [embed.ErrUncalibrated] for a model
// that is of no use, or [memory.ErrUnavailable].
func (p *Parts) Reindex(ctx context.Context, progress func(Reindexed)) (Reindexed, error) {
	var done Reindexed
	space, err := p.Space()
	if err != nil {
		return done, err
	}
	if space == nil {
		return done, errNoModel
	}
	if progress == nil {
		progress = func(Reindexed) {}
	}
	if done.Model, err = space.open(ctx); err != nil {
		return done, err
	}
	namespaces, err := p.Store.Namespaces(ctx)
	if err != nil {
		return done, fmt.Errorf("list namespaces: %w", err)
	}
	for _, namespace := range namespaces {
		before := done
		count := func(r consolidate.Repairs) {
			done.Indexed, done.Embedded, done.Removed = before.Indexed+r.Missing+r.Stale, before.Embedded+r.Embedded, before.Removed+r.Surplus
		}
		repairs, err := consolidate.Reconciler{
			Record: p.Store, Index: rebuilt{space.index}, Model: done.Model, Rewrite: true, Clock: time.Now,
			Embed: func(ctx context.Context, texts []string) ([][]float32, error) {
				return space.embedder.Embed(ctx, embed.Background, texts...) //nolint:wrapcheck // The reconciler wraps it.
			},
			Progress: func(r consolidate.Repairs) {
				count(r)
				progress(done)
			},
		}.Reconcile(ctx, namespace)
		count(repairs)
		if err != nil {
			return done, fmt.Errorf("reindex namespace %s: %w", namespace, err)
		}
	}
	if err := space.save(ctx, modelKey, []byte(done.Model)); err != nil {
		return done, err
	}
	return done, nil
}

// open makes the model and its index ready, whichever model's vectors are in use, and returns its identity.
func (s *Space) open(ctx context.Context) (identity string, err error) {
	if identity, err = s.embedder.Identity(ctx); err != nil {
		return "", fmt.Errorf("load the embedding model: %w", err)
	}
	if _, err := s.calibrate(ctx, identity); err != nil {
		return "", err
	}
	dimension, err := s.embedder.Dimension(ctx)
	if err != nil {
		return "", fmt.Errorf("ask for the dimension of the embedding model: %w", err)
	}
	if err := s.index.Prepare(ctx, identity, dimension); err != nil {
		return "", fmt.Errorf("prepare the vector index: %w", err)
	}
	return identity, nil
}

// IndexState says how the vector index stands beside the record.
type IndexState struct {
	// Model is the identity of the embedding model whose vectors it holds; empty while there are none.
	Model string
	// Items are those that it should hold; Missing, Stale and Surplus are what the next consistency job would put right.
	Items, Missing, Stale, Surplus int
}

// CheckIndex compares the vector index with the record and changes nothing. Items that were written a moment ago are
// left out. The error may be [embed.ErrNone], or [memory.ErrUnavailable] when the model or the index does not answer.
func (p *Parts) CheckIndex(ctx context.Context) (IndexState, error) {
	var state IndexState
	space, err := p.Space()
	if err != nil {
		return state, err
	}
	if space == nil {
		return state, errNoModel
	}
	if stored, err := p.Bus.LoadState(ctx, modelKey); errors.Is(err, bus.ErrNotFound) || err == nil && len(stored) == 0 {
		return state, nil // To look must not decide which model is the one in use.
	}
	known, err := space.prepare(ctx)
	if err != nil {
		return state, err
	}
	state.Model = known.identity
	if err := space.index.Prepare(ctx, known.identity, known.dimension); err != nil {
		return state, err
	}
	namespaces, err := p.Store.Namespaces(ctx)
	if err != nil {
		return state, fmt.Errorf("list namespaces: %w", err)
	}
	for _, namespace := range namespaces {
		found, err := consolidate.Reconciler{
			Record: p.Store, Index: space.index, Model: known.identity, DryRun: true, Grace: cmp.Or(p.grace, consolidate.DefaultGrace), Clock: time.Now,
		}.Reconcile(ctx, namespace)
		if err != nil {
			return state, fmt.Errorf("compare the index with namespace %s: %w", namespace, err)
		}
		state.Items, state.Missing, state.Stale, state.Surplus = state.Items+found.Checked, state.Missing+found.Missing, state.Stale+found.Stale, state.Surplus+found.Surplus
	}
	return state, nil
}
