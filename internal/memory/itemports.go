package memory

import (
	"context"
	"time"
)

// ItemFilter chooses current versions of items. Empty fields do not restrict, but Namespace must not be empty: nothing
// crosses it.
type ItemFilter struct {
	Namespace string
	IDs       []string
	TaskType  string
	TaskIDs   []string
	GoalID    string
	SessionID string
	// Tool is the tool selected, or that a memory or rule is about.
	Tool       string
	ErrorType  string
	MemoryType MemoryType
	Entity     string
	// Statuses restricts to these; empty means any.
	Statuses []ItemStatus
	// AsOf asks for the versions that were current then; zero means now.
	AsOf time.Time
	// RecordedSince leaves out items whose current version was recorded before.
	RecordedSince time.Time
	// Newest orders by time of the item, the latest first; otherwise the earliest first.
	Newest bool
	// Limit is the largest number of items; 0 means all.
	Limit int
}

// ItemUse is how often and when an item was last shown, counted from recalls.
type ItemUse struct {
	Hits       int
	LastHit    time.Time // zero: never
	Helpful    int
	Unhelpful  int
	FirstSeen  time.Time // RecordedAt of the first version, from which ages count
	VersionNum int       // number of versions of the item
}

// LexicalQuery asks for items by words.
type LexicalQuery struct {
	Namespace string
	Text      string
	Layers    []Layer // empty means all
	TaskType  string
	Statuses  []ItemStatus // of the current version; empty means any
	Limit     int          // at least 1
}

// Candidate is an item that a search found, with its score between 0 and 1.
type Candidate struct {
	ID    string
	Layer Layer
	Score float64
	// Exact are codes or identifiers of the question that the item holds as they are.
	Exact []string
}

// TextSimilarity is how near the vector of one text of an item is.
type TextSimilarity struct {
	// TextHash names the text; see [TextHash].
	TextHash string
	Cosine   float64
}

// ItemReader reads items out of the record.
type ItemReader interface {
	Snapshots(ctx context.Context, f ItemFilter) ([]Snapshot, error)
	Memories(ctx context.Context, f ItemFilter) ([]Memory, error)
	Rules(ctx context.Context, f ItemFilter) ([]Rule, error)
	Summaries(ctx context.Context, f ItemFilter) ([]Summary, error)
	// Relations returns the relations that lead from or to the items.
	Relations(ctx context.Context, namespace string, ids []string) ([]Relation, error)
	// Uses counts from recalls and feedback; items that do not exist are left out.
	Uses(ctx context.Context, namespace string, ids []string) (map[string]ItemUse, error)
	// Similarities gives the exact cosines between the vector and each item's, from item_vectors: one for each text that the
	// item has had, the newest first. An item may have come back to an earlier text, so that the newest is not always that
	// of its current version; with asOf not zero only
	// from vectors recorded by then. Items without a vector under this model are left out.
	Similarities(ctx context.Context, namespace, model string, vector []float32, ids []string, asOf time.Time) (map[string][]TextSimilarity, error)
	// Lexical finds items by words, in any language, the best first.
	Lexical(ctx context.Context, q LexicalQuery) ([]Candidate, error)
}

// ItemWriter appends versions of items to the record. Each method may be repeated: the same (Writer, Seq) makes no
// second version. Errors are [ErrUnavailable], [ErrRejected] or the context's.
type ItemWriter interface {
	InsertSnapshots(ctx context.Context, snapshots []Snapshot) error
	InsertMemories(ctx context.Context, memories []Memory) error
	InsertRules(ctx context.Context, rules []Rule) error
	InsertSummaries(ctx context.Context, summaries []Summary) error
	InsertRelations(ctx context.Context, relations []Relation) error
	InsertVectors(ctx context.Context, vectors []ItemVector) error
}

// IndexEntry is what a vector index holds of one item.
type IndexEntry struct {
	ID        string
	Namespace string
	Layer     Layer
	TaskType  string
	Tools     []string
	ErrorType string
	Outcome   string
	Trust     Trust
	Status    ItemStatus
	// CreatedAt is when the first version was recorded.
	CreatedAt time.Time
	// TextHash names the text that the vector is of. An entry that is written to an index has its [IndexEntry.Stamp] there.
	TextHash string
	Vector   []float32
}

// VectorQuery asks an index for the nearest items.
type VectorQuery struct {
	Namespace string
	Vector    []float32
	// Layers, TaskType, Tool and Statuses restrict; empty ones do not.
	Layers   []Layer
	TaskType string
	Tool     string
	Statuses []ItemStatus
	// Limit is the largest number of hits, at least 1.
	Limit int
}

// VectorIndex finds items by nearness. It is an index and never the record: it may be stale or away, and can always be
// built again from item_vectors. Scores are cosines.
type VectorIndex interface {
	// Prepare makes the collection of a model if it is missing and uses it from then on.
	Prepare(ctx context.Context, model string, dimension int) error
	// Upsert writes entries; the last one of an id counts. It is searchable once Upsert has returned.
	Upsert(ctx context.Context, entries []IndexEntry) error
	Delete(ctx context.Context, namespace string, ids []string) error
	Search(ctx context.Context, q VectorQuery) ([]Candidate, error)
	// TextHashes returns, for reconciling, the text hash of every entry of a namespace, as it was written.
	TextHashes(ctx context.Context, namespace string) (map[string]string, error)
	Ready(ctx context.Context) error
}
