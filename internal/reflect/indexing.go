package reflect

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hindsight-memory/hindsight/internal/memory"
)

// indexing makes items findable by nearness. Without an embedder, or with one that has no model of use, it
// does nothing.
type indexing struct {
	items    ItemReader
	writer   ItemWriter
	index    VectorIndex
	embedder Embedder
}

// put embeds items, keeps their vectors in the record and brings the index up to date. Items that may not be shown leave
// the index. An error of the embedder that may pass is returned, so that the work is done again.
func (x indexing) put(ctx context.Context, snapshots []memory.Snapshot, memories []memory.Memory) error {
	if x.embedder == nil || x.index == nil {
		return nil
	}
	var entries []memory.IndexEntry
	var texts []string
	gone := map[string][]string{}
	add := func(e memory.IndexEntry, text string) {
		if text == "" {
			gone[e.Namespace] = append(gone[e.Namespace], e.ID)
			return
		}
		e.TextHash = memory.TextHash(text)
		entries, texts = append(entries, e), append(texts, text)
	}
	for _, s := range snapshots {
		add(memory.SnapshotEntry(s))
	}
	for _, m := range memories {
		add(memory.MemoryEntry(m))
	}
	if len(entries) > 0 {
		if err := x.upsert(ctx, entries, texts); err != nil {
			return err
		}
	}
	for _, namespace := range slices.Sorted(maps.Keys(gone)) {
		if err := x.index.Delete(ctx, namespace, gone[namespace]); err != nil {
			return fmt.Errorf("take %d items out of the index: %w", len(gone[namespace]), err)
		}
	}
	return nil
}

func (x indexing) upsert(ctx context.Context, entries []memory.IndexEntry, texts []string) error {
	model, err := x.embedder.Identity(ctx)
	if err != nil {
		return fmt.Errorf("ask for the embedding model: %w", err)
	}
	if model == "" {
		return nil
	}
	vectors, err := x.embedder.Embed(ctx, texts)
	if err != nil {
		return fmt.Errorf("embed %d items: %w", len(texts), err)
	}
	if len(vectors) != len(texts) {
		return fmt.Errorf("embed %d items: the embedder gave %d vectors", len(texts), len(vectors))
	}
	rows := make([]memory.ItemVector, len(entries))
	ids := map[string][]string{}
	for i, e := range entries {
		rows[i] = memory.ItemVector{Namespace: e.Namespace, Model: model, ItemID: e.ID, TextHash: e.TextHash, Layer: e.Layer, Vector: vectors[i]}
		entries[i].Vector = vectors[i]
		ids[e.Namespace] = append(ids[e.Namespace], e.ID)
	}
	if err := x.writer.InsertVectors(ctx, rows); err != nil {
		return fmt.Errorf("keep %d vectors: %w", len(rows), err)
	}
	for namespace, list := range ids {
		uses, err := x.items.Uses(ctx, namespace, list)
		if err != nil {
			return fmt.Errorf("read when items were first written: %w", err)
		}
		for i := range entries {
			if use, known := uses[entries[i].ID]; known && entries[i].Namespace == namespace {
				entries[i].CreatedAt = use.FirstSeen
			}
		}
	}
	if err := x.index.Upsert(ctx, memory.Stamped(entries)); err != nil {
		return fmt.Errorf("index %d items: %w", len(entries), err)
	}
	return nil
}

// clock is the default of all clocks here.
func clock(now func() time.Time) func() time.Time {
	if now == nil {
		return time.Now
	}
	return now
}
