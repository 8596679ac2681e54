package embed

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"sync"

	"github.com/hindsight-memory/hindsight/internal/memory"
)

// kept is a model whose vectors are kept in a folder.
type kept struct {
	Model

	dir    string
	logger *slog.Logger
	warn   sync.Once
}

// Keep keeps a model's vectors in a folder, a file for each text, named by hashes of the model's identity and of the text;
// a text that is there already is not embedded again. Several processes may share the folder. It only grows: it is for
// evaluations, which embed the same texts again and again, and can be deleted at any time. That it cannot be written is told
// to logger once and changes no vector. The model is the returned one's own from then on.
func Keep(model Model, dir string, logger *slog.Logger) Model {
	return &kept{Model: model, dir: dir, logger: logger}
}

// Version implements versioned.
func (k *kept) Version() string { return version(k.Model) }

// Embed implements [Model].
func (k *kept) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	dimension, err := k.Dimension(ctx)
	if err != nil {
		return nil, err //nolint:wrapcheck // It is the model's own.
	}
	if ctx.Err() != nil {
		return nil, unavailable(ctx, "the text was not embedded in time; ask again in a moment")
	}
	folder := filepath.Join(k.dir, memory.HashID(identity(k.Model, dimension)))
	vectors := make([][]float32, len(texts))
	var missing []string
	var at []int
	for i, text := range texts {
		if vectors[i] = k.read(path(folder, text), dimension); vectors[i] == nil {
			missing, at = append(missing, text), append(at, i)
		}
	}
	if len(missing) == 0 {
		return vectors, nil
	}
	made, err := k.Model.Embed(ctx, missing)
	if err != nil {
		return nil, err //nolint:wrapcheck // It is the model's own.
	}
	if len(made) != len(missing) {
		return nil, fmt.Errorf("%w: %d vectors for %d texts", ErrBadVector, len(made), len(missing))
	}
	for i, v := range made {
		vectors[at[i]] = v
		if err := write(path(folder, missing[i]), v); err != nil {
			k.warn.Do(func() { k.logger.Warn("vectors are not kept for the next time", "folder", k.dir, "error", err) })
		}
	}
	return vectors, nil
}

func path(folder, text string) string {
	name := memory.TextHash(text)
	return filepath.Join(folder, name[:2], name[2:])
}

// read returns nil when there is no whole vector.
func (k *kept) read(path string, dimension int) []float32 {
	raw, err := os.ReadFile(path)
	if err != nil || len(raw) != 4*dimension {
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			k.warn.Do(func() { k.logger.Warn("kept vectors cannot be read", "folder", k.dir, "error", err) })
		}
		return nil
	}
	vector := make([]float32, dimension)
	for i := range vector {
		vector[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	if normalise(vector) != nil {
		return nil
	}
	return vector
}

// write keeps a vector whole or not at all.
func write(path string, vector []float32) error {
	raw := make([]byte, 0, 4*len(vector))
	for _, number := range vector {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(number))
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("make the folder for vectors: %w", err)
	}
	file, err := os.CreateTemp(dir, "unfinished-")
	if err != nil {
		return fmt.Errorf("keep a vector: %w", err)
	}
	_, err = file.Write(raw)
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("keep a vector: %w", err), os.Remove(file.Name()))
	}
	return nil
}
