package recall_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/embed"
	"github.com/hindsight-memory/hindsight/internal/engine/enginetest"
	"github.com/hindsight-memory/hindsight/internal/memory"
	"github.com/hindsight-memory/hindsight/internal/recall"
	"github.com/hindsight-memory/hindsight/internal/store"
)

// model is the local embedding model, loaded once for all tests.
var model = sync.OnceValues(func() (*embed.Embedder, error) {
	dir, err := embed.FindLocal(os.Getenv)
	if err != nil {
		return nil, err
	}
	local, err := embed.NewLocal(embed.LocalOptions{Dir: dir})
	if err != nil {
		return nil, err
	}
	return embed.New(local, embed.Options{})
})

func TestMain(m *testing.M) {
	code := m.Run()
	if e, err := model(); err == nil {
		if err := e.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "close the model:", err)
			code = 1
		}
	}
	if err := enginetest.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stop the shared engine:", err)
		code = 1
	}
	http.DefaultClient.CloseIdleConnections()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// embedder is the real model as recall wants it.
type embedder struct {
	e           *embed.Embedder
	id          string
	calibration embed.Calibration
}

func newEmbedder(t *testing.T) embedder {
	t.Helper()
	e, err := model()
	if err != nil {
		t.Fatalf("load the model ('make setup' fetches it): %v", err)
	}
	id, err := e.Identity(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	calibration, err := e.Calibrate(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return embedder{e, id, calibration}
}

func (e embedder) Embed(ctx context.Context, text string) ([]float32, error) {
	vectors, err := e.e.Embed(ctx, embed.Interactive, text)
	if err != nil {
		return nil, err
	}
	return vectors[0], nil
}

func (e embedder) Identity() string                  { return e.id }
func (e embedder) Calibrated(cosine float64) float64 { return e.calibration.Similarity(cosine) }

// recorder keeps what was served.
type recorder struct {
	mu     sync.Mutex
	served []events.Event
	err    error
}

func (r *recorder) Record(e events.Event) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.served = append(r.served, e)
	return r.err
}

func (r *recorder) last(t *testing.T) (events.Event, events.RecallServed) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.served) == 0 {
		t.Fatal("nothing was recorded")
	}
	e := r.served[len(r.served)-1]
	if _, _, err := events.Prepare(e, time.Now()); err != nil {
		t.Errorf("the event of a recall cannot be published: %v", err)
	}
	served, err := events.DecodeData[events.RecallServed](e)
	if err != nil {
		t.Fatal(err)
	}
	return e, served
}

// world is a memory with its index.
type world struct {
	store    *store.ClickHouse
	index    *store.Vectors
	embedder embedder
	recorder *recorder
	seq      uint64
}

func newWorld(t *testing.T) *world {
	t.Helper()
	url := enginetest.ClickHouse(t)
	st, err := store.Open(store.Options{URL: url, Database: enginetest.Database(t, url)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := st.Migrate(t.Context(), store.MigrateOptions{Logger: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	w := &world{store: st, index: store.NewVectors(st), embedder: newEmbedder(t), recorder: &recorder{}}
	dimension, err := w.embedder.e.Dimension(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.index.Prepare(t.Context(), w.embedder.id, dimension); err != nil {
		t.Fatal(err)
	}
	return w
}

// service opens recall on the world; change may alter its options.
func (w *world) service(t *testing.T, change func(*recall.Options)) *recall.Service {
	t.Helper()
	o := recall.Options{
		Items: w.store, Index: w.index, Embedder: w.embedder, Recorder: w.recorder, Logger: slog.New(slog.DiscardHandler),
		Deadline: time.Minute, // the machine may be busy, and no test is about time
	}
	if change != nil {
		change(&o)
	}
	s, err := recall.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (w *world) version() memory.Version {
	w.seq++
	return memory.Version{TaskRevision: 1, Writer: "test", WriterKind: memory.WriterMachine, Seq: w.seq}
}

// snapshot is a failed decision with a lesson.
func snapshot(namespace, id, tool, parameters, situation, errorMessage, lesson string) memory.Snapshot {
	return memory.Snapshot{
		SnapshotID: id, Namespace: namespace, TaskID: "task-" + id, Timestamp: time.Now().UTC().Truncate(time.Millisecond),
		TaskContext: memory.TaskContext{TaskType: "airline", InputSummary: situation, AvailableTools: []string{tool}},
		Decision:    memory.Decision{ToolSelected: tool, Parameters: []byte(parameters)},
		Outcome:     memory.Outcome{Status: events.StatusFailure, ErrorType: "ToolError", ErrorMessage: errorMessage},
		Reflection:  &memory.Reflection{RootCause: errorMessage, RootCauseClass: memory.CauseParameter, Alternative: lesson, Lesson: lesson},
		Situation:   situation,
		Judged: memory.Judged{
			Evidence: []string{"event-" + id}, Trust: memory.TrustAgentInferred, Confidence: 0.6, Importance: 0.7, Status: memory.ItemActive,
		},
	}
}

func fact(namespace, id, entity, value, content string) memory.Memory {
	now := time.Now().UTC().Truncate(time.Millisecond)
	return memory.Memory{
		MemoryID: id, Namespace: namespace, Timestamp: now, ValidFrom: now, MemoryType: memory.MemoryFact, Entity: entity, Value: value,
		Content: content, Operation: memory.OperationAdd,
		Judged: memory.Judged{Evidence: []string{"event-" + id}, Trust: memory.TrustUserStated, Confidence: 0.8, Importance: 0.9, Status: memory.ItemActive},
	}
}

// keep stores items with their vectors and index entries, as the reflector does.
func (w *world) keep(t *testing.T, items ...any) {
	t.Helper()
	for _, item := range items {
		var entry memory.IndexEntry
		var text string
		var err error
		switch item := item.(type) {
		case memory.Snapshot:
			item.Version = w.version()
			err = w.store.InsertSnapshots(t.Context(), []memory.Snapshot{item})
			entry = memory.IndexEntry{
				ID: item.SnapshotID, Namespace: item.Namespace, Layer: memory.LayerSnapshot, TaskType: item.TaskContext.TaskType,
				Tools: []string{item.Decision.ToolSelected}, Trust: item.Trust, Status: item.Status,
			}
			text = memory.SnapshotText(item)
		case memory.Memory:
			item.Version = w.version()
			err = w.store.InsertMemories(t.Context(), []memory.Memory{item})
			entry = memory.IndexEntry{ID: item.MemoryID, Namespace: item.Namespace, Layer: memory.LayerMemory, Trust: item.Trust, Status: item.Status}
			text = item.Content
		case memory.Rule:
			item.Version = w.version()
			if err := w.store.InsertRules(t.Context(), []memory.Rule{item}); err != nil {
				t.Fatal(err)
			}
			continue
		default:
			t.Fatalf("cannot keep a %T", item)
		}
		if err != nil {
			t.Fatal(err)
		}
		if entry.Vector, err = w.embedder.Embed(t.Context(), text); err != nil {
			t.Fatal(err)
		}
		entry.TextHash, entry.CreatedAt = memory.TextHash(text), time.Now().UTC()
		if err := w.store.InsertVectors(t.Context(), []memory.ItemVector{{
			Namespace: entry.Namespace, Model: w.embedder.id, ItemID: entry.ID, TextHash: entry.TextHash, Layer: entry.Layer, Vector: entry.Vector,
		}}); err != nil {
			t.Fatal(err)
		}
		if err := w.index.Upsert(t.Context(), []memory.IndexEntry{entry}); err != nil {
			t.Fatal(err)
		}
	}
}

var errAway = errors.New("index is away")

// away is an index that does not answer.
type away struct{ memory.VectorIndex }

func (away) Search(context.Context, memory.VectorQuery) ([]memory.Candidate, error) {
	return nil, errAway
}
