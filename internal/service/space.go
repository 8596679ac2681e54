package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/hindsight-memory/hindsight/internal/bus"
	"github.com/hindsight-memory/hindsight/internal/config"
	"github.com/hindsight-memory/hindsight/internal/embed"
	"github.com/hindsight-memory/hindsight/internal/memory"
	"github.com/hindsight-memory/hindsight/internal/recall"
	"github.com/hindsight-memory/hindsight/internal/store"
)

// Keys of the broker's key-value store that say which model's vectors are stored, and what its cosines mean.
const (
	modelKey             = "embedding.model"
	calibrationKeyPrefix = "embedding.calibration/"
)

// state is the part of the broker that the vector space needs.
type state interface {
	LoadState(ctx context.Context, key string) ([]byte, error)
	SaveState(ctx context.Context, key string, value []byte) error
}

// Space is the vector space that items and questions share: the embedding model, what its cosines mean, and the index.
// The model is made ready at its first use, or by [Space.Prepare], since loading one takes longer than a process may take
// to answer; the index makes itself ready once the model is known. Either may be away without the other. It is safe for
// concurrent use.
type Space struct {
	embedder *embed.Embedder
	index    *index
	state    state
	logger   *slog.Logger

	preparing chan struct{} // holds one token: the right to prepare
	mu        sync.Mutex
	known     *calibrated // nil until it is ready
	useless   error       // why it never will be
}

// calibrated is what is known of a model once it has been loaded.
type calibrated struct {
	identity    string
	dimension   int
	calibration embed.Calibration
}

// errNoModel means that the settings name no model, so that items have no vectors.
var errNoModel = embed.ErrNone

// newEmbedder makes the embedder that the settings ask for; nil when they ask for none.
func newEmbedder(cfg *config.Config, engines func(name string) string, logger *slog.Logger) (*embed.Embedder, error) {
	kind := cfg.Embedder
	if kind == "auto" && cfg.EmbeddingBaseURL != "" {
		kind = "endpoint"
	}
	var model embed.Model
	switch kind {
	case "none":
		return nil, nil //nolint:nilnil // No model is a choice, not a failure.
	case "endpoint":
		endpoint, err := embed.NewEndpoint(embed.EndpointOptions{BaseURL: cfg.EmbeddingBaseURL, Key: cfg.EmbeddingAPIKey, Model: cfg.EmbeddingModel})
		if err != nil {
			return nil, fmt.Errorf("set up the embedding endpoint (HINDSIGHT_EMBEDDING_BASE_URL, EMBEDDING_MODEL): %w", err)
		}
		model = endpoint
	default:
		dir, err := embed.FindLocal(engines)
		if errors.Is(err, embed.ErrNoLocal) && kind == "auto" {
			logger.Warn("the local embedding model is not there: questions are answered by words, rules and exact codes only", "error", err)
			return nil, nil //nolint:nilnil // As above.
		}
		if err != nil {
			return nil, fmt.Errorf("find the local embedding model: %w", err)
		}
		local, err := embed.NewLocal(embed.LocalOptions{Dir: dir})
		if err != nil {
			return nil, fmt.Errorf("set up the local embedding model: %w", err)
		}
		model = local
	}
	if cfg.EmbeddingCache != "" {
		model = embed.Keep(model, cfg.EmbeddingCache, logger)
	}
	e, err := embed.New(model, embed.Options{})
	if err != nil {
		return nil, fmt.Errorf("set up the embedder: %w", err)
	}
	return e, nil
}

func newSpace(embedder *embed.Embedder, index *index, st state, logger *slog.Logger) *Space {
	s := &Space{embedder: embedder, index: index, state: st, logger: logger, preparing: make(chan struct{}, 1)}
	s.preparing <- struct{}{}
	return s
}

// Prepare loads the model, checks that the stored vectors are its own, and calibrates it if nobody has. It does so once;
// a call that comes meanwhile waits. It does not wait for the index. The error is [embed.ErrModelChanged], [embed.ErrNone]
// when there is no model or one that tells nothing apart, or [memory.ErrUnavailable] for what may be tried again.
func (s *Space) Prepare(ctx context.Context) error {
	_, err := s.prepare(ctx)
	return err
}

func (s *Space) prepare(ctx context.Context) (*calibrated, error) {
	if s == nil || s.embedder == nil {
		return nil, errNoModel
	}
	if known, err := s.get(); known != nil || err != nil {
		return known, err
	}
	select {
	case <-s.preparing:
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: the embedding model is still being loaded: ask again in a moment: %w", memory.ErrUnavailable, context.Cause(ctx))
	}
	defer func() { s.preparing <- struct{}{} }()
	if known, err := s.get(); known != nil || err != nil {
		return known, err
	}
	identity, err := s.embedder.Identity(ctx)
	if err != nil {
		return nil, fmt.Errorf("load the embedding model: %w", err)
	}
	claimed, err := s.check(ctx, identity)
	if err != nil {
		return nil, err
	}
	calibration, err := s.calibrate(ctx, identity)
	if errors.Is(err, embed.ErrUncalibrated) {
		// Whatever it calls similar is chance: questions are better answered by words than by that.
		s.logger.Error("the embedding model is of no use: questions are answered by words, rules and exact codes only", "error", err)
		return nil, s.giveUp(fmt.Errorf("%w: %w", errNoModel, err))
	}
	if err != nil {
		return nil, err
	}
	if !claimed {
		if err := s.save(ctx, modelKey, []byte(identity)); err != nil {
			return nil, err
		}
	}
	dimension, err := s.embedder.Dimension(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask for the dimension of the embedding model: %w", err)
	}
	s.index.use(identity, dimension) //nolint:contextcheck // The watcher of the index ends with it, not with this call.
	known := &calibrated{identity: identity, dimension: dimension, calibration: calibration}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known = known
	return known, nil
}

// Start makes model and index ready as far as they are there, for a service that begins. What may pass is no error: it is
// waited for by whoever needs it, and questions are answered without it. The error is for a person: what [Space.Prepare]
// says that is not waited for, or why the index cannot be used as it is.
func (s *Space) Start(ctx context.Context) error {
	err := s.Prepare(ctx)
	switch {
	case errors.Is(err, embed.ErrNone), ctx.Err() != nil:
		return nil //nolint:nilerr // There is nothing to make ready, or nobody to do it for.
	case errors.Is(err, memory.ErrUnavailable):
		s.logger.Warn("the embedding model does not answer yet; what is learnt waits for it", "error", err)
	case err != nil:
		return fmt.Errorf("prepare the embedding model: %w", err)
	}
	return s.startIndex(ctx)
}

// startIndex makes the index ready if the model is. One that is not there yet is no error: it tells so itself. The error
// is what no waiting heals: a server that is none, too old or does not let us in, or a collection of something else.
func (s *Space) startIndex(ctx context.Context) error {
	if s == nil {
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, indexStart)
	defer cancel()
	err := s.index.ping(bounded)
	if known, _ := s.get(); known != nil && err == nil {
		err = s.index.Prepare(bounded, known.identity, known.dimension)
	}
	if errors.Is(err, store.ErrDenied) || err != nil && !errors.Is(err, memory.ErrUnavailable) && bounded.Err() == nil {
		return fmt.Errorf("start with the vector index: %w", err)
	}
	return nil
}

// get is what is known of the model, or why it is of no use; neither before it was loaded.
func (s *Space) get() (*calibrated, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known, s.useless
}

// giveUp notes that the model is of no use, until the process starts again.
func (s *Space) giveUp(why error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.useless = why
	return why
}

// check refuses another model than the one whose vectors are stored. claimed is false when there are none yet.
func (s *Space) check(ctx context.Context, identity string) (claimed bool, err error) {
	stored, err := s.state.LoadState(ctx, modelKey)
	if err != nil && !errors.Is(err, bus.ErrNotFound) {
		return false, fmt.Errorf("%w: read which embedding model is in use: %w", memory.ErrUnavailable, err)
	}
	return len(stored) > 0, embed.CheckStored(string(stored), identity) //nolint:wrapcheck // It says what to do.
}

func (s *Space) save(ctx context.Context, key string, value []byte) error {
	if err := s.state.SaveState(ctx, key, value); err != nil {
		return fmt.Errorf("%w: note what is known of the embedding model: %w", memory.ErrUnavailable, err)
	}
	return nil
}

// calibrate takes the thresholds that are known or stored, or makes and stores them.
func (s *Space) calibrate(ctx context.Context, identity string) (embed.Calibration, error) {
	if known, is := embed.KnownCalibration(identity); is {
		return known, nil
	}
	key := calibrationKeyPrefix + memory.HashID(identity)
	raw, err := s.state.LoadState(ctx, key)
	switch {
	case err == nil:
		var stored embed.Calibration
		if json.Unmarshal(raw, &stored) == nil && stored.Check(identity) == nil {
			return stored, nil
		}
		s.logger.Warn("the stored thresholds of the embedding model cannot be used; making them anew", "model", identity)
	case !errors.Is(err, bus.ErrNotFound):
		return embed.Calibration{}, fmt.Errorf("%w: read the thresholds of the embedding model: %w", memory.ErrUnavailable, err)
	}
	made, err := s.embedder.Calibrate(ctx)
	if err != nil {
		return embed.Calibration{}, fmt.Errorf("calibrate the embedding model: %w", err)
	}
	if raw, err = json.Marshal(made); err != nil {
		return embed.Calibration{}, fmt.Errorf("encode thresholds: %w", err)
	}
	s.logger.Info("the embedding model is calibrated", "model", identity, "related", made.Related, "duplicate", made.Duplicate)
	return made, s.save(ctx, key, raw)
}

// meaning names the model whose vectors can be compared, and its cosines; none when there is no model of use.
func (s *Space) meaning(ctx context.Context) (model string, thresholds memory.Thresholds, err error) {
	known, err := s.prepare(ctx)
	switch {
	case errors.Is(err, errNoModel):
		return "", memory.Thresholds{}, nil
	case err != nil:
		return "", memory.Thresholds{}, fmt.Errorf("ask for the embedding model: %w", err)
	}
	return known.identity, memory.Thresholds{Related: known.calibration.Related, Duplicate: known.calibration.Duplicate}, nil
}

// questions embeds for [recall]: a question goes before all other work.
type questions struct{ space *Space }

func (q questions) Embed(ctx context.Context, text string) ([]float32, error) {
	if _, err := q.space.prepare(ctx); errors.Is(err, errNoModel) {
		return nil, fmt.Errorf("%w: %w", recall.ErrNoModel, err)
	} else if err != nil {
		return nil, err
	}
	vectors, err := q.space.embedder.Embed(ctx, embed.Interactive, text)
	if err != nil {
		return nil, fmt.Errorf("embed: %w", err)
	}
	return vectors[0], nil
}

func (q questions) Identity() string { return q.space.identity() }

func (q questions) Calibrated(cosine float64) float64 {
	if known, _ := q.space.get(); known != nil {
		return known.calibration.Similarity(cosine)
	}
	return 0
}

// identity names the model once it is ready, and is empty before.
func (s *Space) identity() string {
	if known, _ := s.get(); known != nil {
		return known.identity
	}
	return ""
}

// items embeds what is learnt, behind all questions.
type items struct{ space *Space }

func (i items) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	if _, err := i.space.prepare(ctx); err != nil {
		return nil, err
	}
	vectors, err := i.space.embedder.Embed(ctx, embed.Background, texts...)
	switch {
	case errors.Is(err, embed.ErrNoLocal): // it can be installed again: no fault of what waits for its vectors
		return nil, fmt.Errorf("%w: embed: %w", memory.ErrUnavailable, err)
	case err != nil:
		return nil, fmt.Errorf("embed: %w", err)
	}
	return vectors, nil
}

func (i items) Identity(ctx context.Context) (string, error) {
	known, err := i.space.prepare(ctx)
	switch {
	case errors.Is(err, errNoModel):
		return "", nil
	case err != nil:
		return "", err
	}
	return known.identity, nil
}
