package consolidate

import (
	"context"
	"encoding/json"
	"iter"
	"time"

	"github.com/hindsight-memory/hindsight/internal/memory"
)

// Lease is the right to work, as it is held now.
type Lease interface {
	// Fence grows with every taking of the lease.
	Fence() uint64
	// Data is what the last Commit of any holder stored; nil if none did.
	Data() json.RawMessage
	// Commit stores data beside the lease if and only if the lease is still held.
	Commit(ctx context.Context, data json.RawMessage) error
}

// RunLog keeps the states of runs.
type RunLog interface {
	// InsertRun writes a state of a run; the one of the highest Version counts.
	InsertRun(ctx context.Context, run memory.Run) error
	// LastRun gives the latest committed run of a job for a namespace; found is false where there is none.
	LastRun(ctx context.Context, job, namespace string) (run memory.Run, found bool, err error)
	// RunningRuns lists all runs whose newest state is running.
	RunningRuns(ctx context.Context) ([]memory.Run, error)
}

// VoteStore keeps what tasks say about rules.
type VoteStore interface {
	InsertVotes(ctx context.Context, votes []memory.Vote) error
	// Votes gives the votes on the rules that count: one a task, of committed runs, the highest task revision.
	Votes(ctx context.Context, namespace string, ruleIDs []string) ([]memory.Vote, error)
}

// TrialRecord tells where items were shown, and how tasks end.
type TrialRecord interface {
	// ShownSince names the items that were shown in tasks whose end was recorded since a moment.
	ShownSince(ctx context.Context, namespace string, since time.Time) ([]string, error)
	// ShownIn names, for each item, the tasks that are over and in which it was shown: at most so many, those that ended last.
	ShownIn(ctx context.Context, namespace string, ids []string, limit int) (map[string][]string, error)
	// FailureShares gives, by type, the share of finished tasks that somebody said had failed, 0 to 1.
	FailureShares(ctx context.Context, namespace string) (map[string]float64, error)
}

// Record is what the jobs need of the store.
type Record interface {
	memory.ItemReader
	memory.ItemWriter
	RunLog
	VoteStore
	TrialRecord
	// Namespaces lists all namespaces that hold tasks or items.
	Namespaces(ctx context.Context) ([]string, error)
	// Tasks yields tasks with their steps; an error comes once, as the last.
	Tasks(ctx context.Context, f memory.TaskFilter) iter.Seq2[memory.Task, error]
	// RemovedRelations gives the relations from or to the items that somebody removed and nobody made again.
	RemovedRelations(ctx context.Context, namespace string, ids []string) ([]memory.Relation, error)
	// VectorsSince names the items of which a vector under a model was recorded since a moment.
	VectorsSince(ctx context.Context, namespace, model string, since time.Time) ([]string, error)
	VectorRecord
}

// VectorRecord is what the record holds of vectors.
type VectorRecord interface {
	// TextVectors gives the vectors of items under a model, each of the text that its hash names; those without are left out.
	TextVectors(ctx context.Context, namespace, model string, texts map[string]string) (map[string][]float32, error)
	// InsertVectors stores vectors; storing one again changes nothing.
	InsertVectors(ctx context.Context, vectors []memory.ItemVector) error
	// ItemIDs lists the ids of items in order, whatever their status: at most so many, those after the given one.
	ItemIDs(ctx context.Context, namespace, after string, limit int) ([]string, error)
}

// VectorIndex is what is reconciled of the index.
type VectorIndex interface {
	// TextHashes gives the stamp of every entry of a namespace; see [memory.IndexEntry.Stamp].
	TextHashes(ctx context.Context, namespace string) (map[string]string, error)
	Upsert(ctx context.Context, entries []memory.IndexEntry) error
	Delete(ctx context.Context, namespace string, ids []string) error
}
