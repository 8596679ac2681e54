package evaluate

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"github.com/hindsight-memory/hindsight/internal/embed"
	"github.com/hindsight-memory/hindsight/internal/memory"
)

// Embedder is a front of an embedding model, such as [embed.Embedder].
type Embedder interface {
	Embed(ctx context.Context, p embed.Priority, texts ...string) ([][]float32, error)
	Identity(ctx context.Context) (string, error)
	Calibrate(ctx context.Context) (embed.Calibration, error)
}

// Vectors are vectors of texts by one model, kept in a folder, so that another run of a suite does not make them again; and
// what the cosines of the model mean. It is for one goroutine.
type Vectors struct {
	embedder    Embedder
	path        string // empty: nothing is kept
	known       map[string][]float32
	calibration embed.Calibration
	made        int
}

// keptVector is a line of a folder's file.
type keptVector struct {
	TextHash string `json:"text_hash"`
	// Vector is base64 of its numbers, 4 bytes each, the lowest first.
	Vector string `json:"vector"`
}

// OpenVectors loads the model and what the folder holds of it. An empty folder name keeps nothing. The calibration of a
// model that the program does not bring along is kept as well.
func OpenVectors(ctx context.Context, e Embedder, dir string) (*Vectors, error) {
	identity, err := e.Identity(ctx)
	if err != nil {
		return nil, fmt.Errorf("load the embedding model: %w", err)
	}
	v := &Vectors{embedder: e, known: map[string][]float32{}}
	name := ""
	if dir != "" {
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return nil, fmt.Errorf("make the folder for vectors: %w", err)
		}
		name = filepath.Join(dir, "vectors-"+memory.HashID(identity))
		v.path = name + ".jsonl"
		if err := v.load(); err != nil {
			return nil, err
		}
	}
	return v, v.calibrate(ctx, identity, name)
}

func (v *Vectors) calibrate(ctx context.Context, identity, name string) error {
	calibration, is := embed.KnownCalibration(identity)
	if is {
		v.calibration = calibration
		return nil
	}
	if name != "" {
		raw, err := os.ReadFile(name + ".json")
		if err == nil && json.Unmarshal(raw, &calibration) == nil && calibration.Check(identity) == nil {
			v.calibration = calibration
			return nil
		}
	}
	calibration, err := v.embedder.Calibrate(ctx)
	if err != nil {
		return fmt.Errorf("calibrate the embedding model: %w", err)
	}
	v.calibration = calibration
	if name == "" {
		return nil
	}
	raw, err := json.Marshal(calibration)
	if err != nil {
		return fmt.Errorf("encode the calibration: %w", err)
	}
	if err := os.WriteFile(name+".json", raw, 0o600); err != nil {
		return fmt.Errorf("keep the calibration: %w", err)
	}
	return nil
}

// load reads what was kept. A line that cannot be read, such as one whose writer was killed, is as if it were not there.
func (v *Vectors) load() error {
	file, err := os.Open(v.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read kept vectors: %w", err)
	}
	defer file.Close() //nolint:errcheck // It was only read.
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var kept keptVector
		if json.Unmarshal(lines.Bytes(), &kept) != nil {
			continue
		}
		raw, err := base64.StdEncoding.DecodeString(kept.Vector)
		if err != nil || len(raw) == 0 || len(raw)%4 != 0 {
			continue
		}
		vector := make([]float32, len(raw)/4)
		for i := range vector {
			vector[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
		}
		v.known[kept.TextHash] = vector
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read kept vectors (delete %s to make them again): %w", v.path, err)
	}
	return nil
}

// of gives the vectors of texts by text. None of the texts may be empty.
func (v *Vectors) of(ctx context.Context, texts []string) (map[string][]float32, error) {
	out := map[string][]float32{}
	var missing []string
	for _, text := range texts {
		if _, done := out[text]; done {
			continue
		}
		out[text] = v.known[memory.TextHash(text)]
		if out[text] == nil {
			missing = append(missing, text)
		}
	}
	if len(missing) == 0 {
		return out, nil
	}
	made, err := v.embedder.Embed(ctx, embed.Background, missing...)
	if err != nil {
		return nil, fmt.Errorf("embed %d texts: %w", len(missing), err)
	}
	for i, text := range missing {
		out[text] = made[i]
	}
	v.made += len(missing)
	return out, v.keep(missing, made)
}

func (v *Vectors) keep(texts []string, vectors [][]float32) (err error) {
	var lines []byte
	for i, text := range texts {
		hash := memory.TextHash(text)
		v.known[hash] = vectors[i]
		raw := make([]byte, 4*len(vectors[i]))
		for k, number := range vectors[i] {
			binary.LittleEndian.PutUint32(raw[4*k:], math.Float32bits(number))
		}
		line, err := json.Marshal(keptVector{hash, base64.StdEncoding.EncodeToString(raw)})
		if err != nil {
			return fmt.Errorf("encode a vector: %w", err)
		}
		lines = append(append(lines, line...), '\n')
	}
	if v.path == "" {
		return nil
	}
	file, err := os.OpenFile(v.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("keep vectors: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	// A newline before all ends a line that an earlier run was killed in.
	if _, err := file.Write(append([]byte{'\n'}, lines...)); err != nil {
		return fmt.Errorf("keep vectors: %w", err)
	}
	return nil
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
