package recall_test

import (
	"testing"

	"github.com/hindsight-memory/hindsight/internal/memory"
	"github.com/hindsight-memory/hindsight/internal/recall"
)

// TestAnItemIsAsNearAsItsText: the vector of another text that it had, which arrives last, does not count.
func TestAnItemIsAsNearAsItsText(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.service(t, nil)
	item := snapshot("acme", "restart", "restart", `{"unit":"web"}`, "the service web is restarted after a deployment", "no such unit", "When `restart` answers \"no such unit\", list the units first.")
	w.keep(t, item)
	similarity := func() float64 {
		a, err := s.Recall(t.Context(), recall.Question{Namespace: "acme", Text: "restart a service after a deployment"})
		if err != nil || len(a.Items) != 1 {
			t.Fatalf("Recall = %d items, %v", len(a.Items), err)
		}
		return a.Items[0].Similarity
	}
	before := similarity()
	vector, err := w.embedder.Embed(t.Context(), "a customer wants the money for a broken cup back")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.store.InsertVectors(t.Context(), []memory.ItemVector{{
		Namespace: "acme", Model: w.embedder.id, ItemID: item.SnapshotID, TextHash: memory.TextHash("another text"), Layer: memory.LayerSnapshot, Vector: vector,
	}}); err != nil {
		t.Fatal(err)
	}
	if after := similarity(); after != before {
		t.Errorf("the item is %v near, and was %v before the vector of another text arrived", after, before)
	}
}
