package consolidate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hindsight-memory/hindsight/internal/memory"
	"github.com/hindsight-memory/hindsight/internal/store"
)

const testModel = "test/2"

// shelf is a record beside an index that can be brought out of step with it.
type shelf struct {
	*store.ClickHouse
	index *store.Vectors
	now   time.Time
	// embedded are the texts that were embedded, and refuse is why none is.
	embedded []string
	refuse   error
	registry *prometheus.Registry
}

func newShelf(t *testing.T) *shelf {
	t.Helper()
	s := &shelf{ClickHouse: newRecord(t), now: time.Now().Add(time.Hour), registry: prometheus.NewRegistry()}
	s.index = store.NewVectors(s.ClickHouse)
	if err := s.index.Prepare(t.Context(), testModel, 2); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *shelf) embed(_ context.Context, texts []string) ([][]float32, error) {
	if s.refuse != nil {
		return nil, s.refuse
	}
	s.embedded = append(s.embedded, texts...)
	return slices.Repeat([][]float32{{0.6, 0.8}}, len(texts)), nil
}

func (s *shelf) scheduler(t *testing.T) *Scheduler {
	t.Helper()
	return newScheduler(t, s, &heldLease{}, func(o *Options) {
		o.Meaning, o.Index, o.Embed, o.Registerer = meaning(testModel, 0.9, 0.95), s.index, s.embed, s.registry
		o.Clock = func() time.Time { return s.now }
	})
}

// keep stores snapshots, and the vectors of those that are to have one.
func (s *shelf) keep(t *testing.T, vectors bool, snapshots ...memory.Snapshot) {
	t.Helper()
	insertSnapshots(t, s, snapshots...)
	if !vectors {
		return
	}
	var rows []memory.ItemVector
	for _, snapshot := range snapshots {
		rows = append(rows, memory.ItemVector{
			Namespace: namespace, Model: testModel, ItemID: snapshot.SnapshotID, Layer: memory.LayerSnapshot,
			TextHash: memory.TextHash(memory.SnapshotText(snapshot)), Vector: []float32{1, 0},
		})
	}
	if err := s.InsertVectors(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
}

// put brings items into the index as they are said to be.
func (s *shelf) put(t *testing.T, snapshots ...memory.Snapshot) {
	t.Helper()
	var entries []memory.IndexEntry
	for _, snapshot := range snapshots {
		e, text := memory.SnapshotEntry(snapshot)
		e.TextHash, e.Vector, e.CreatedAt = memory.TextHash(text), []float32{1, 0}, base
		entries = append(entries, e)
	}
	if err := s.index.Upsert(t.Context(), memory.Stamped(entries)); err != nil {
		t.Fatal(err)
	}
}

// held is what the index has of each item.
func (s *shelf) held(t *testing.T) map[string]string {
	t.Helper()
	held, err := s.index.TextHashes(t.Context(), namespace)
	if err != nil {
		t.Fatal(err)
	}
	return held
}

// repairs are the metric of repairs by kind.
func (s *shelf) repairs(t *testing.T) map[string]float64 {
	t.Helper()
	families, err := s.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, family := range families {
		if family.GetName() == "hindsight_index_repairs_total" {
			for _, m := range family.GetMetric() {
				out[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
			}
		}
	}
	return out
}

// wanted is what the index should have.
func wanted(snapshots ...memory.Snapshot) map[string]string {
	out := map[string]string{}
	for _, snapshot := range snapshots {
		e, text := memory.SnapshotEntry(snapshot)
		e.TextHash = memory.TextHash(text)
		out[snapshot.SnapshotID] = e.Stamp()
	}
	return out
}

// changed is a later version of a snapshot.
func changed(s memory.Snapshot, change func(*memory.Snapshot)) memory.Snapshot {
	s.Version.Seq++
	change(&s)
	return s
}

func situated(n int) memory.Snapshot {
	s := lesson(n, "pay", doesNotAddUp, "Make the amounts add up.", "")
	s.Situation = fmt.Sprintf("paying for order number %d", n)
	return s
}

// TestConsistency brings the index out of step in every way there is, and the record on meanwhile.
func TestConsistency(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	all := make([]memory.Snapshot, 10)
	for n := range all {
		all[n] = situated(n)
	}
	s.keep(t, true, all[:9]...)
	s.keep(t, false, all[9])
	s.put(t, all[:9]...)
	// Missing: an entry that is lost, and an item that has no vector.
	if err := s.index.Delete(t.Context(), namespace, []string{all[0].SnapshotID}); err != nil {
		t.Fatal(err)
	}
	// Stale: another status, another tag, another text.
	all[1] = changed(all[1], func(s *memory.Snapshot) { s.Status = memory.ItemPendingReview })
	all[2] = changed(all[2], func(s *memory.Snapshot) { s.TaskContext.TaskType = "bookshop" })
	all[3] = changed(all[3], func(s *memory.Snapshot) { s.Situation = "paying in two parts" })
	s.keep(t, true, all[1:4]...)
	// Surplus: what may not be found any more, and what no item stands behind.
	all[4] = changed(all[4], func(s *memory.Snapshot) { s.Status = memory.ItemForgotten })
	all[5] = changed(all[5], func(s *memory.Snapshot) { s.Status = memory.ItemSuperseded })
	all[6] = changed(all[6], func(s *memory.Snapshot) { s.Status = memory.ItemQuarantined })
	s.keep(t, false, all[4:7]...)
	nobody := situated(99)
	s.put(t, nobody)

	scheduler := s.scheduler(t)
	s.now = time.Now() // All of it was written a moment ago, but for what there is no item of.
	report := runJob(t, scheduler, JobConsistency)
	if want := map[string]uint64{"checked": 7, "waiting": 8, "surplus": 1}; !maps.Equal(report.Counts, want) {
		t.Errorf("a moment later: %v, want %v: writers are at work", report.Counts, want)
	}
	s.now = time.Now().Add(time.Minute) // Entries should be there by now; vectors may still be in the making.
	report = runJob(t, scheduler, JobConsistency)
	if want := map[string]uint64{"checked": 7, "missing": 1, "stale": 3, "surplus": 3, "waiting": 1}; !maps.Equal(report.Counts, want) {
		t.Errorf("a minute later: %v, want %v", report.Counts, want)
	}
	if want := wanted(append(slices.Clone(all[:4]), all[7], all[8])...); !maps.Equal(s.held(t), want) {
		t.Errorf("the index holds %v, want %v", s.held(t), want)
	}
	if len(s.embedded) > 0 {
		t.Errorf("%q were embedded: they have vectors", s.embedded)
	}
	s.now = time.Now().Add(time.Hour)
	report = runJob(t, scheduler, JobConsistency)
	if want := map[string]uint64{"checked": 7, "missing": 1, "embedded": 1}; !maps.Equal(report.Counts, want) || !slices.Equal(s.embedded, []string{memory.SnapshotText(all[9])}) {
		t.Errorf("an hour later: %v, want %v; embedded %q", report.Counts, want, s.embedded)
	}
	if len(report.Runs) != 1 || report.Runs[0].Counts["embedded"] != 1 {
		t.Errorf("the run tells %+v", report.Runs)
	}
	report = runJob(t, scheduler, JobConsistency)
	if want := map[string]uint64{"checked": 7}; !maps.Equal(report.Counts, want) || len(report.Runs) != 0 {
		t.Errorf("once more: %v in %d runs, want %v and no trace", report.Counts, len(report.Runs), want)
	}
	if got, want := s.repairs(t), map[string]float64{"missing": 2, "stale": 3, "surplus": 4}; !maps.Equal(got, want) {
		t.Errorf("repairs %v, want %v", got, want)
	}
	hits, err := s.index.Search(t.Context(), memory.VectorQuery{Namespace: namespace, Vector: []float32{1, 0}, TaskType: "bookshop", Limit: 5})
	if err != nil || len(hits) != 1 || hits[0].ID != all[2].SnapshotID {
		t.Errorf("by its new type %v is found (%v)", hits, err)
	}
}

// TestConsistencyWithoutTheModel repairs what has vectors, says why the rest waits, and does it later.
func TestConsistencyWithoutTheModel(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	s.refuse = fmt.Errorf("%w: the model is away", memory.ErrUnavailable)
	s.keep(t, false, situated(0))
	s.keep(t, true, situated(1))
	s.put(t, situated(2))
	scheduler := s.scheduler(t)
	report, err := scheduler.RunJob(t.Context(), JobConsistency)
	if !errors.Is(err, memory.ErrUnavailable) || !maps.Equal(s.held(t), wanted(situated(1))) {
		t.Errorf("without the model: %v, %v; the index holds %v", report.Counts, err, s.held(t))
	}
	s.refuse = nil
	runJob(t, scheduler, JobConsistency)
	if !maps.Equal(s.held(t), wanted(situated(0), situated(1))) {
		t.Errorf("with it the index holds %v", s.held(t))
	}
}

// TestConsistencyGoesThroughPages has more items than a page, and an index that was lost.
func TestConsistencyGoesThroughPages(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	all := make([]memory.Snapshot, 2*reconcilePage+1)
	for n := range all {
		all[n] = situated(n)
	}
	s.keep(t, true, all...)
	report := runJob(t, s.scheduler(t), JobConsistency)
	if report.Counts["missing"] != uint64(len(all)) || !maps.Equal(s.held(t), wanted(all...)) {
		t.Errorf("%v; the index holds %d of %d", report.Counts, len(s.held(t)), len(all))
	}
	s.keep(t, false, func() []memory.Snapshot {
		more := make([]memory.Snapshot, embedPerRun+1)
		for n := range more {
			more[n] = situated(len(all) + n)
		}
		return more
	}()...)
	scheduler := newScheduler(t, s, &heldLease{}, func(o *Options) {
		o.Meaning, o.Index, o.Embed, o.Clock = meaning(testModel, 0.9, 0.95), s.index, s.embed, func() time.Time { return s.now }
	})
	if report = runJob(t, scheduler, JobConsistency); report.Counts["embedded"] != embedPerRun || report.Counts["waiting"] != 1 {
		t.Errorf("with %d items without vectors: %v", embedPerRun+1, report.Counts)
	}
	if report = runJob(t, scheduler, JobConsistency); report.Counts["embedded"] != 1 || report.Counts["waiting"] != 0 {
		t.Errorf("then: %v", report.Counts)
	}
}
