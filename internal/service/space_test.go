package service_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/bus"
	"github.com/hindsight-memory/hindsight/internal/embed"
	"github.com/hindsight-memory/hindsight/internal/memory"
	"github.com/hindsight-memory/hindsight/internal/recall"
	"github.com/hindsight-memory/hindsight/internal/service"
	"github.com/hindsight-memory/hindsight/internal/store"
)

// dimension is that of the models of these tests.
const dimension = 256

// embeddings is an endpoint with a model of its own: texts that share pieces of words are near each other.
type embeddings struct {
	*httptest.Server

	mu    sync.Mutex
	away  bool
	texts int
}

func newEmbeddings(t *testing.T) *embeddings {
	t.Helper()
	e := &embeddings{}
	e.Server = httptest.NewServer(http.HandlerFunc(e.serve))
	t.Cleanup(e.Close)
	return e
}

// turn takes the endpoint away or brings it back.
func (e *embeddings) turn(away bool) { e.mu.Lock(); defer e.mu.Unlock(); e.away = away }

// asked is how many texts it has been given.
func (e *embeddings) asked() int { e.mu.Lock(); defer e.mu.Unlock(); return e.texts }

func (e *embeddings) serve(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Input []string `json:"input"`
		Model string   `json:"model"`
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	e.mu.Lock()
	away := e.away
	e.texts += len(body.Input)
	e.mu.Unlock()
	if away {
		http.Error(w, "away", http.StatusServiceUnavailable)
		return
	}
	data := make([]map[string]any, len(body.Input))
	for i, text := range body.Input {
		data[i] = map[string]any{"object": "embedding", "index": i, "embedding": vector(text, body.Model != "no-sense")}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"object": "list", "model": body.Model, "data": data})
}

// topics are the texts by which models are calibrated, with the number of their topic: a model must know what it is asked.
var topics = sync.OnceValues(func() (map[string]int, error) {
	raw, err := os.ReadFile("../embed/calibration.json")
	if err != nil {
		return nil, err
	}
	var file struct {
		Topics [][]string `json:"topics"`
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		return nil, err
	}
	out := map[string]int{}
	for topic, texts := range file.Topics {
		for _, text := range texts {
			out[text] = topic
		}
	}
	return out, nil
})

// vector counts the pieces of a text; those of one topic are near each other. A model without sense knows no topics.
func vector(text string, sense bool) []float32 {
	known, err := topics()
	if err != nil {
		panic(err)
	}
	out := make([]float32, dimension)
	add := func(piece string, weight float32) {
		h := fnv.New32a()
		_, _ = h.Write([]byte(piece))
		out[h.Sum32()%dimension] += weight
	}
	if topic, found := known[text]; found && sense {
		add(fmt.Sprint("topic ", topic), 20)
	}
	runes := []rune(strings.ToLower(text))
	for i := range len(runes) - 2 {
		add(string(runes[i:i+3]), 1)
	}
	return out
}

func withModel(env map[string]string, e *embeddings, model string) map[string]string {
	out := maps.Clone(env)
	out["HINDSIGHT_EMBEDDER"], out["HINDSIGHT_EMBEDDING_BASE_URL"], out["EMBEDDING_MODEL"] = "endpoint", e.URL+"/v1", model
	return out
}

func space(t *testing.T, p *service.Parts) *service.Space {
	t.Helper()
	s, err := p.Space()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestAnotherEmbeddingModelIsRefused starts with one model, then with another on the same record.
func TestAnotherEmbeddingModelIsRefused(t *testing.T) {
	t.Parallel()
	env, endpoint := environment(t), newEmbeddings(t)
	first := open(t, withModel(env, endpoint, "first-model"), "one")
	if err := space(t, first).Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	calibrated := endpoint.asked()
	again := open(t, withModel(env, endpoint, "first-model"), "two")
	if err := space(t, again).Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	if now := endpoint.asked(); now > calibrated+2 {
		t.Errorf("the second process sent %d texts: the thresholds were stored", now-calibrated)
	}
	other := open(t, withModel(env, endpoint, "second-model"), "three")
	run(t, other, service.Reflect) // It waits.
	err := space(t, other).Prepare(t.Context())
	if !errors.Is(err, embed.ErrModelChanged) {
		t.Fatalf("another model: %v", err)
	}
	for _, part := range []string{"first-model", "second-model", "EMBEDDING_MODEL", "reindex"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q says nothing of %s", err, part)
		}
	}
}

// TestReindex writes under one model, goes over to another while the services run, and breaks the index on the way.
func TestReindex(t *testing.T) {
	t.Parallel()
	env, endpoint := environment(t), newEmbeddings(t)
	first := open(t, withModel(env, endpoint, "first-model"), "one")
	snapshots := make([]memory.Snapshot, 700) // more than a page
	for i := range snapshots {
		snapshots[i] = memory.Snapshot{
			SnapshotID: fmt.Sprintf("s%04d", i), Namespace: "t", TaskID: "task", Timestamp: time.Unix(int64(i), 0), Situation: fmt.Sprintf("situation number %d", i),
			Outcome: memory.Outcome{Status: events.StatusFailure}, Reflection: &memory.Reflection{Lesson: "look first"},
			Judged:  memory.Judged{Evidence: []string{"e"}, Trust: memory.TrustAgentInferred, Status: memory.ItemActive},
			Version: memory.Version{TaskRevision: 1, Writer: "test", WriterKind: memory.WriterMachine, Seq: 1},
		}
	}
	snapshots[3].Status = memory.ItemForgotten
	if err := first.Store.InsertSnapshots(t.Context(), snapshots); err != nil {
		t.Fatal(err)
	}
	reindex := func(p *service.Parts, want service.Reindexed) {
		t.Helper()
		told := 0
		got, err := p.Reindex(t.Context(), func(service.Reindexed) { told++ })
		want.Model = got.Model
		if err != nil || got != want || told == 0 {
			t.Errorf("Reindex = %+v, %v, with %d reports of progress; want %+v", got, err, told, want)
		}
	}
	reindex(first, service.Reindexed{Indexed: 699, Embedded: 699})
	asked := endpoint.asked()
	// What does not belong there, and what is missing.
	index := store.NewVectors(first.Store)
	if err := index.Prepare(t.Context(), fmt.Sprintf("first-model/%d/v1", dimension), dimension); err != nil {
		t.Fatal(err)
	}
	strange := make([]float32, dimension)
	strange[0] = 1
	if err := index.Upsert(t.Context(), []memory.IndexEntry{
		{ID: "nobody", Namespace: "t", Layer: memory.LayerSnapshot, Status: memory.ItemActive, CreatedAt: time.Unix(1, 0), TextHash: "h", Vector: strange},
		{ID: "s0003", Namespace: "t", Layer: memory.LayerSnapshot, Status: memory.ItemActive, CreatedAt: time.Unix(1, 0), TextHash: "h", Vector: strange},
	}); err != nil {
		t.Fatal(err)
	}
	if err := index.Delete(t.Context(), "t", []string{"s0001", "s0699"}); err != nil {
		t.Fatal(err)
	}
	reindex(first, service.Reindexed{Indexed: 699, Removed: 2})
	reindex(first, service.Reindexed{Indexed: 699})
	if now := endpoint.asked(); now != asked {
		t.Errorf("%d texts were embedded again", now-asked)
	}
	hashes, err := index.TextHashes(t.Context(), "t")
	if err != nil || len(hashes) != 699 || memory.TextOfStamp(hashes["s0001"]) != memory.TextHash("situation number 1") {
		t.Errorf("the index holds %d entries (%v)", len(hashes), err)
	}

	second := open(t, withModel(env, endpoint, "second-model"), "two")
	run(t, second, service.Reflect)
	if err := space(t, second).Prepare(t.Context()); !errors.Is(err, embed.ErrModelChanged) {
		t.Fatalf("before the reindex: %v", err)
	}
	other := open(t, withModel(env, endpoint, "second-model"), "three") // as the command does, in a process of its own
	reindex(other, service.Reindexed{Indexed: 699, Embedded: 699})
	if err := space(t, second).Prepare(t.Context()); err != nil {
		t.Errorf("the service that runs does not take the new model: %v", err)
	}
	back := open(t, withModel(env, endpoint, "first-model"), "four")
	if err := space(t, back).Prepare(t.Context()); !errors.Is(err, embed.ErrModelChanged) {
		t.Errorf("the first model after the change: %v", err)
	}
}

// TestAnEmbeddingModelThatIsAwayIsWaitedFor writes while the model does not answer: the write is confirmed and found by
// its words at once, and by its meaning once the model is back.
func TestAnEmbeddingModelThatIsAwayIsWaitedFor(t *testing.T) {
	t.Parallel()
	env, endpoint := environment(t), newEmbeddings(t)
	endpoint.turn(true)
	p := open(t, withModel(env, endpoint, "first-model"), "one")
	run(t, p, service.Reflect)
	agent := publisher(t, env)
	w := service.NewWriter(agent)
	written, err := w.Write(t.Context(), event("a", "write", 1, events.KindItemWritten, `{"content":"The export takes ISO dates","entity":"export"}`))
	if err != nil || written.ItemID == "" {
		t.Fatalf("write: %+v, %v", written, err)
	}
	if held := memories(t, p, memory.ItemFilter{IDs: []string{written.ItemID}}); len(held) != 1 {
		t.Fatalf("the record holds %d memories after the write was confirmed", len(held))
	}
	endpoint.turn(false)
	eventually(t, "the vector", func() bool {
		var b strings.Builder
		err := p.Store.Query(t.Context(), "SELECT count() FROM item_vectors WHERE item_id = '"+written.ItemID+"'", "TSV", &b)
		return err == nil && strings.TrimSpace(b.String()) == "1"
	})
}

// TestAnEmbeddingModelOfNoUseIsDoneWithout starts with a model that finds nothing more alike than anything else: what is
// written is found by its words, and a model of use may take its place.
func TestAnEmbeddingModelOfNoUseIsDoneWithout(t *testing.T) {
	t.Parallel()
	env, endpoint := environment(t), newEmbeddings(t)
	p := open(t, withModel(env, endpoint, "no-sense"), "one")
	if err := space(t, p).Prepare(t.Context()); !errors.Is(err, embed.ErrNone) || !errors.Is(err, embed.ErrUncalibrated) {
		t.Fatalf("prepare: %v", err)
	}
	stop := run(t, p, service.Reflect)
	agent := publisher(t, env)
	written, err := service.NewWriter(agent).Write(t.Context(), event("a", "write", 1, events.KindItemWritten, `{"content":"The export takes ISO dates","entity":"export"}`))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "an empty WRITES", func() bool { return messages(t, agent, bus.StreamWrites) == 0 })
	reader, err := p.Reader()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := reader.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	found, err := reader.Recall(t.Context(), recall.Question{Namespace: "acme.support", Text: "the export takes dates"})
	if err != nil || len(found.Items) != 1 || found.Items[0].ID != written.ItemID || !strings.Contains(found.Notice, "words") {
		t.Errorf("recall: %+v, %v", found, err)
	}
	if n := messages(t, agent, bus.StreamDeadLetter); n != 0 {
		t.Errorf("%d dead letters", n)
	}
	stop()
	if err := space(t, open(t, withModel(env, endpoint, "some-sense"), "two")).Prepare(t.Context()); err != nil {
		t.Errorf("a model of use after one of none: %v", err)
	}
}
