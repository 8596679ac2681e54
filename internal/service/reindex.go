package service

import (
	"context"
	"fmt"
	"slices"

	"github.com/hindsight-memory/hindsight/internal/embed"
	"github.com/hindsight-memory/hindsight/internal/memory"
)

const (
	// reindexPage is how many items are brought into the index at once.
	reindexPage = 500
	// reindexTexts is how many texts are embedded between two reports of progress.
	reindexTexts = 32
)

// Reindexed counts what [Parts.Reindex] did. Its JSON is the stable shape of `hindsight reindex --json`.
type Reindexed struct {
	// Model is the identity of the embedding model.
	Model string `json:"model"`
	// Indexed counts the items that are in the index now, Embedded those of them that had no vector of the model before.
	Indexed  int `json:"indexed"`
	Embedded int `json:"embedded"`
	// Removed counts entries of the index that no item stands behind that may be found.
	Removed int `json:"removed"`
}

// Reindex builds the vector index of the configured model again: from the vectors that the record holds, and by embedding
// only what has none of that model yet. What may not be found, or is not in the record, leaves the index. In the end the
// model is noted as the one in use, so that this is how one model follows another; services may run meanwhile, and go on
// with the new one by themselves when they are configured for it. Doing it again, or after an interruption, is safe.
//
// progress, unless nil, is told the counts so far. The error may be [embed.ErrNone], [embed.ErrUncalibrated] for a model
// that is of no use, or [memory.ErrUnavailable].
func (p *Parts) Reindex(ctx context.Context, progress func(Reindexed)) (Reindexed, error) {
	var done Reindexed
	space, err := p.Space()
	if err != nil {
		return done, err
	}
	if space == nil {
		return done, errNoModel
	}
	if progress == nil {
		progress = func(Reindexed) {}
	}
	if done.Model, err = space.open(ctx); err != nil {
		return done, err
	}
	namespaces, err := p.Store.Namespaces(ctx)
	if err != nil {
		return done, fmt.Errorf("list namespaces: %w", err)
	}
	for _, namespace := range namespaces {
		x := reindexing{parts: p, space: space, namespace: namespace, done: &done, progress: progress, kept: map[string]struct{}{}}
		if err := x.run(ctx); err != nil {
			return done, fmt.Errorf("reindex namespace %s: %w", namespace, err)
		}
	}
	if err := space.save(ctx, modelKey, []byte(done.Model)); err != nil {
		return done, err
	}
	return done, nil
}

// open makes the model and its index ready, whichever model's vectors are in use, and returns its identity.
func (s *Space) open(ctx context.Context) (identity string, err error) {
	if identity, err = s.embedder.Identity(ctx); err != nil {
		return "", fmt.Errorf("load the embedding model: %w", err)
	}
	if _, err := s.calibrate(ctx, identity); err != nil {
		return "", err
	}
	dimension, err := s.embedder.Dimension(ctx)
	if err != nil {
		return "", fmt.Errorf("ask for the dimension of the embedding model: %w", err)
	}
	if err := s.index.Prepare(ctx, identity, dimension); err != nil {
		return "", fmt.Errorf("prepare the vector index: %w", err)
	}
	return identity, nil
}

// reindexing goes through one namespace.
type reindexing struct {
	parts     *Parts
	space     *Space
	namespace string
	done      *Reindexed
	progress  func(Reindexed)
	// kept are the items that belong into the index.
	kept map[string]struct{}
}

func (x *reindexing) run(ctx context.Context) error {
	for after := ""; ; {
		ids, err := x.parts.Store.ItemIDs(ctx, x.namespace, after, reindexPage)
		if err != nil {
			return fmt.Errorf("list items: %w", err)
		}
		if len(ids) == 0 {
			break
		}
		if err := x.page(ctx, ids); err != nil {
			return err
		}
		after = ids[len(ids)-1]
	}
	return x.remove(ctx)
}

// entries reads the items that may be found, with the texts that are embedded.
func (x *reindexing) entries(ctx context.Context, ids []string) (entries []memory.IndexEntry, texts []string, err error) {
	filter := memory.ItemFilter{Namespace: x.namespace, IDs: ids}
	snapshots, err := x.parts.Store.Snapshots(ctx, filter)
	if err != nil {
		return nil, nil, fmt.Errorf("read snapshots: %w", err)
	}
	memories, err := x.parts.Store.Memories(ctx, filter)
	if err != nil {
		return nil, nil, fmt.Errorf("read memories: %w", err)
	}
	add := func(e memory.IndexEntry, text string) {
		if text != "" {
			e.TextHash = memory.TextHash(text)
			entries, texts = append(entries, e), append(texts, text)
		}
	}
	for _, s := range snapshots {
		add(memory.SnapshotEntry(s))
	}
	for _, m := range memories {
		add(memory.MemoryEntry(m))
	}
	return entries, texts, nil
}

func (x *reindexing) page(ctx context.Context, ids []string) error {
	entries, texts, err := x.entries(ctx, ids)
	if err != nil || len(entries) == 0 {
		return err
	}
	ids = ids[:0]
	for _, e := range entries {
		ids = append(ids, e.ID)
		x.kept[e.ID] = struct{}{}
	}
	known, err := x.parts.Store.StoredVectors(ctx, x.namespace, x.done.Model, ids)
	if err != nil {
		return fmt.Errorf("look for vectors: %w", err)
	}
	vectors, err := x.parts.Store.ItemVectors(ctx, x.namespace, x.done.Model, ids)
	if err != nil {
		return fmt.Errorf("read vectors: %w", err)
	}
	uses, err := x.parts.Store.Uses(ctx, x.namespace, ids)
	if err != nil {
		return fmt.Errorf("read when items were first written: %w", err)
	}
	var missing []int
	for i := range entries {
		e := &entries[i]
		e.CreatedAt = uses[e.ID].FirstSeen
		if known[e.ID] == e.TextHash {
			e.Vector = vectors[e.ID]
		}
		if e.Vector == nil {
			missing = append(missing, i)
		}
	}
	if err := x.embed(ctx, entries, texts, missing); err != nil {
		return err
	}
	if err := x.space.index.Upsert(ctx, entries); err != nil {
		return fmt.Errorf("index %d items: %w", len(entries), err)
	}
	x.done.Indexed += len(entries)
	x.progress(*x.done)
	return nil
}

// embed makes the vectors that are missing, and keeps them in the record.
func (x *reindexing) embed(ctx context.Context, entries []memory.IndexEntry, texts []string, missing []int) error {
	for some := range slices.Chunk(missing, reindexTexts) {
		ask := make([]string, len(some))
		for k, i := range some {
			ask[k] = texts[i]
		}
		vectors, err := x.space.embedder.Embed(ctx, embed.Background, ask...)
		if err != nil {
			return fmt.Errorf("embed: %w", err)
		}
		rows := make([]memory.ItemVector, len(some))
		for k, i := range some {
			e := &entries[i]
			e.Vector = vectors[k]
			rows[k] = memory.ItemVector{Namespace: e.Namespace, Model: x.done.Model, ItemID: e.ID, TextHash: e.TextHash, Layer: e.Layer, Vector: e.Vector}
		}
		if err := x.parts.Store.InsertVectors(ctx, rows); err != nil {
			return fmt.Errorf("keep %d vectors: %w", len(rows), err)
		}
		x.done.Embedded += len(some)
		x.progress(*x.done)
	}
	return nil
}

// remove takes out of the index what does not belong there. What came meanwhile is looked at again.
func (x *reindexing) remove(ctx context.Context) error {
	held, err := x.space.index.TextHashes(ctx, x.namespace)
	if err != nil {
		return fmt.Errorf("list the index: %w", err)
	}
	var strange []string
	for id := range held {
		if _, kept := x.kept[id]; !kept {
			strange = append(strange, id)
		}
	}
	slices.Sort(strange)
	for ids := range slices.Chunk(strange, reindexPage) {
		came, _, err := x.entries(ctx, ids)
		if err != nil {
			return err
		}
		ids = slices.DeleteFunc(ids, func(id string) bool {
			return slices.ContainsFunc(came, func(e memory.IndexEntry) bool { return e.ID == id })
		})
		if err := x.space.index.Delete(ctx, x.namespace, ids); err != nil {
			return fmt.Errorf("take %d items out of the index: %w", len(ids), err)
		}
		x.done.Removed += len(ids)
		x.progress(*x.done)
	}
	return nil
}
