package embed

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
)

// Errors of this package, for errors.Is.
var (
	// ErrNone means that no embedding model is configured: recall is lexical
	// only.
	ErrNone = errors.New("no embedding model is configured, so similarity is lexical only: run `make setup` for the local model, or set HINDSIGHT_EMBEDDING_BASE_URL")
	// ErrNoLocal means that the local model is not installed or cannot run on
	// this machine.
	ErrNoLocal = errors.New("the local embedding model is not available")
	// ErrEmptyText means that a text has nothing in it that can be read.
	// Trying again cannot help.
	ErrEmptyText = errors.New("the text to embed is empty")
	// ErrModelChanged means that the stored vectors are of another model than
	// the configured one; a person has to decide.
	ErrModelChanged = errors.New("the embedding model has changed")
	// ErrBadVector means that a model answered with something that is not a
	// usable vector: NaN, infinite, all zero or of the wrong dimension.
	ErrBadVector = errors.New("the embedding model returned an unusable vector")
	// ErrRefused means that an endpoint refuses what it is asked, for a reason
	// that trying again does not change: a wrong key, an unknown model.
	ErrRefused = errors.New("the embedding endpoint refuses")
	// ErrClosed means that the embedder or model was closed.
	ErrClosed = errors.New("the embedder is closed")
)

// Model turns texts into vectors. Implementations are safe for concurrent use.
type Model interface {
	// Name is the model's name without its dimension, as people write it.
	Name() string
	// Dimension is the length of the vectors. It loads the model, or asks the
	// endpoint, when it is not known yet.
	Dimension(ctx context.Context) (int, error)
	// Embed returns one vector of length 1 a text, in order. Texts are those
	// of [Clean]. It returns all vectors or an error; what can be tried again
	// wraps memory.ErrUnavailable. It may finish what it has begun after ctx
	// has ended, but it returns when ctx ends.
	Embed(ctx context.Context, texts []string) ([][]float32, error)
	// Close frees what the model holds, after what is running. Calls after it
	// return [ErrClosed].
	Close() error
}

// versioned is a model whose vectors may change with something other than its
// name and dimension.
type versioned interface{ Version() string }

// CheckStored compares the identity of stored vectors with the configured
// model's. It returns nil when they are equal or nothing is stored, and else
// an error that wraps [ErrModelChanged] and says what to do.
func CheckStored(stored, have string) error {
	if stored == "" || stored == have {
		return nil
	}
	storedModel, haveModel := modelOf(stored), modelOf(have)
	if storedModel == haveModel {
		return fmt.Errorf("%w: the stored vectors are %s, this version makes %s, and the two cannot be compared; run `hindsight reindex` to embed everything again",
			ErrModelChanged, stored, have)
	}
	back := "set EMBEDDING_MODEL back to " + storedModel
	if storedModel == LocalName {
		back = "set HINDSIGHT_EMBEDDER=local to go back to the model of this machine"
	}
	return fmt.Errorf("%w: the stored vectors are of %s, configured is %s, and the two cannot be compared; run `hindsight reindex` to embed everything again with the configured model, or %s",
		ErrModelChanged, stored, have, back)
}

// modelOf is the name in an identity: all but its last two parts, as a name may
// have slashes.
func modelOf(identity string) string {
	parts := strings.Split(identity, "/")
	return strings.Join(parts[:max(1, len(parts)-2)], "/")
}

// identity is the name under which vectors are stored, in [a-z0-9_/.-].
func identity(m Model, dimension int) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '_', r == '/', r == '.', r == '-':
			return r
		default:
			return '-'
		}
	}, strings.ToLower(m.Name()))
	return fmt.Sprintf("%s/%d/%s", name, dimension, version(m))
}

func version(m Model) string {
	if v, ok := m.(versioned); ok {
		return v.Version()
	}
	return "v1"
}

// normalise scales v to length 1 in place. It returns [ErrBadVector] when v
// has no direction.
func normalise(v []float32) error {
	var sum float64
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	if math.IsNaN(sum) || math.IsInf(sum, 0) || sum < 1e-24 {
		return fmt.Errorf("%w: its length is %g", ErrBadVector, math.Sqrt(sum))
	}
	scale := 1 / math.Sqrt(sum)
	for i := range v {
		v[i] = float32(float64(v[i]) * scale)
	}
	return nil
}

// Cosine is the similarity of two vectors of length 1 and of one model, from
// -1 to 1. It is 0 when their dimensions differ.
func Cosine(a, b []float32) float64 {
	if len(a) != len(b) {
		return 0
	}
	var sum float64
	for i, x := range a {
		sum += float64(x) * float64(b[i])
	}
	return max(-1, min(1, sum))
}
