package simulate

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hindsight-memory/hindsight/internal/evaluate/simulate/world"
)

// Result is what one cell gave.
type Result struct {
	Cell
	Tasks []TaskResult `json:"tasks"`
	// Planted are the wrong lessons of the cell and what became of them.
	Planted []Planted `json:"planted,omitempty"`
	// Examples are answers that the agent followed, for a person to read.
	Examples []Example `json:"examples,omitempty"`
}

// TaskResult is what one task gave.
type TaskResult struct {
	Class   string     `json:"class"`
	Kind    world.Kind `json:"kind"`
	Success bool       `json:"success"`
	Calls   int        `json:"calls"`
	// Tokens is what the agent read of its memory (o200k_base).
	Tokens int `json:"tokens"`
	// Asked is how often it asked, Followed how many calls it made otherwise for it.
	Asked    int `json:"asked"`
	Followed int `json:"followed"`
	// Notices are what answers said of themselves, such as that a search was left out.
	Notices []string `json:"notices,omitempty"`
	// Failed are the failure classes that the task met, by kind.
	Failed map[string]world.Kind `json:"failed,omitempty"`
}

// Planted is one wrong lesson.
type Planted struct {
	Item string `json:"item"`
	// Shown is how often it was in an answer.
	Shown int `json:"shown"`
	// Out says that it is out of service, seen first when it had been shown OutAfter times.
	Out      bool `json:"out"`
	OutAfter int  `json:"out_after,omitempty"`
}

// Example is a call that was made otherwise because the memory said so.
type Example struct {
	Goal   string `json:"goal"`
	Told   string `json:"told"`
	Call   string `json:"call"`
	Result string `json:"result"`
}

// shelf keeps the results of cells on disk.
type shelf struct{ dir string }

// openShelf finds the folder for runs of these options: one of another size or program gives other results.
func openShelf(o Options) (*shelf, error) {
	settings, err := json.Marshal(map[string]any{
		"tasks": o.Tasks, "classes": o.Classes, "every": o.ConsolidateEvery, "embedder": o.Embedder, "build": o.Build, "format": 1,
	})
	if err != nil {
		return nil, fmt.Errorf("name the work folder: %w", err)
	}
	sum := sha256.Sum256(settings)
	dir := filepath.Join(o.Work, hex.EncodeToString(sum[:8]))
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("make the work folder: %w", err)
	}
	return &shelf{dir}, nil
}

func (s *shelf) path(c Cell) string { return filepath.Join(s.dir, c.name()+".json") }

func (s *shelf) read(c Cell) (r Result, found bool, err error) {
	raw, err := os.ReadFile(s.path(c))
	if errors.Is(err, fs.ErrNotExist) {
		return r, false, nil
	}
	if err != nil {
		return r, false, fmt.Errorf("read a finished cell: %w", err)
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return r, false, fmt.Errorf("read the finished cell %s (delete it to run it again): %w", s.path(c), err)
	}
	return r, true, nil
}

// write keeps a result whole or not at all.
func (s *shelf) write(r Result) error {
	raw, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode a cell: %w", err)
	}
	unfinished := s.path(r.Cell) + ".part"
	if err := os.WriteFile(unfinished, raw, 0o600); err != nil {
		return fmt.Errorf("keep a finished cell: %w", err)
	}
	if err := os.Rename(unfinished, s.path(r.Cell)); err != nil {
		return fmt.Errorf("keep a finished cell: %w", err)
	}
	return nil
}
