package reflect

import (
	"context"
	"encoding/json"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/memory"
)

// TaskReader reads tasks with what happened in them, and what their reflection rests on.
type TaskReader interface {
	memory.BasisReader
	TaskEvents(ctx context.Context, keys []memory.TaskKey) (map[memory.TaskKey][]memory.StoredEvent, error)
}

// Ledger knows which revisions of tasks were reflected.
type Ledger interface {
	// Reflections gives that of the highest revision of each task; one that was never reflected is left out.
	Reflections(ctx context.Context, keys []memory.TaskKey) (map[memory.TaskKey]memory.TaskReflection, error)
	InsertReflections(ctx context.Context, reflections []memory.TaskReflection) error
}

// EventWriter writes events to the record.
type EventWriter interface {
	InsertEvents(ctx context.Context, evs []events.Event) error
}

// Embedder turns texts into vectors of length 1. Errors that may pass wrap memory.ErrUnavailable.
type Embedder interface {
	Embed(ctx context.Context, texts []string) ([][]float32, error)
	// Identity names the model, its dimension included. It is empty when there is no model that is of use: then items
	// have no vectors.
	Identity(ctx context.Context) (string, error)
}

// Model answers a question with JSON that is valid under a schema, members under other names being renamed by synonyms.
// It is bounded in time. Any error makes the evidence critic stand in.
type Model interface {
	Answer(ctx context.Context, system, question string, schema json.RawMessage, synonyms map[string]string) (json.RawMessage, error)
	Name() string
}

// ItemReader is what is read of items.
type ItemReader interface {
	Snapshots(ctx context.Context, f memory.ItemFilter) ([]memory.Snapshot, error)
	Memories(ctx context.Context, f memory.ItemFilter) ([]memory.Memory, error)
	Rules(ctx context.Context, f memory.ItemFilter) ([]memory.Rule, error)
	Uses(ctx context.Context, namespace string, ids []string) (map[string]memory.ItemUse, error)
}

// ItemWriter is what is written of items.
type ItemWriter interface {
	InsertSnapshots(ctx context.Context, snapshots []memory.Snapshot) error
	InsertMemories(ctx context.Context, memories []memory.Memory) error
	InsertRules(ctx context.Context, rules []memory.Rule) error
	InsertRelations(ctx context.Context, relations []memory.Relation) error
	InsertVectors(ctx context.Context, vectors []memory.ItemVector) error
}

// VectorIndex is what is written of the index.
type VectorIndex interface {
	Upsert(ctx context.Context, entries []memory.IndexEntry) error
	Delete(ctx context.Context, namespace string, ids []string) error
}
