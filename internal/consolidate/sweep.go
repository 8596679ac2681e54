package consolidate

import (
	"context"
	"fmt"
	"time"

	"github.com/hindsight-memory/hindsight/internal/memory"
)

const (
	// weakConfidence is under what an item that nobody was shown is put away after unreadAfter.
	weakConfidence = 0.3
	unreadAfter    = 90 * 24 * time.Hour
)

// sweep ends memories whose validity has passed, and archives what is hardly believed and was not shown for long. Nothing
// is deleted: an archived item is restored by its next version.
func sweep(ctx context.Context, w *work) error {
	now := w.run.StartedAt
	memories, err := w.record.Memories(ctx, memory.ItemFilter{Namespace: w.namespace, Statuses: active})
	if err != nil {
		return fmt.Errorf("read memories: %w", err)
	}
	var ended, weakMemories []memory.Memory
	for _, m := range memories {
		switch {
		case m.Version.WriterKind == memory.WriterPerson:
		case m.ValidTo != nil && !now.Before(*m.ValidTo):
			m.Status, m.StatusReason = memory.ItemSuperseded, "its validity ended"
			ended = append(ended, m)
		case m.Confidence < weakConfidence && now.Sub(m.Version.RecordedAt) > unreadAfter:
			weakMemories = append(weakMemories, m)
		}
	}
	snapshots, err := w.record.Snapshots(ctx, memory.ItemFilter{Namespace: w.namespace, Statuses: active})
	if err != nil {
		return fmt.Errorf("read snapshots: %w", err)
	}
	var weakSnapshots []memory.Snapshot
	for _, s := range snapshots {
		if s.Version.WriterKind != memory.WriterPerson && s.Confidence < weakConfidence && now.Sub(s.Version.RecordedAt) > unreadAfter {
			weakSnapshots = append(weakSnapshots, s)
		}
	}
	unread, err := unread(ctx, w, now, weakMemories, weakSnapshots)
	if err != nil {
		return err
	}
	for _, m := range weakMemories {
		if unread[m.MemoryID] {
			m.Status, m.StatusReason = memory.ItemArchived, archivedReason
			ended = append(ended, m)
		}
	}
	var archived []memory.Snapshot
	for _, s := range weakSnapshots {
		if unread[s.SnapshotID] {
			s.Status, s.StatusReason = memory.ItemArchived, archivedReason
			archived = append(archived, s)
		}
	}
	w.count("memories", len(ended))
	w.count("snapshots", len(archived))
	if err := w.memories(ctx, ended); err != nil {
		return err
	}
	return w.snapshots(ctx, archived)
}

const archivedReason = "confidence under 0.3 and not shown for 90 days"

// unread tells which items were not shown for long, or never since they were first recorded.
func unread(ctx context.Context, w *work, now time.Time, memories []memory.Memory, snapshots []memory.Snapshot) (map[string]bool, error) {
	var ids []string
	for _, m := range memories {
		ids = append(ids, m.MemoryID)
	}
	for _, s := range snapshots {
		ids = append(ids, s.SnapshotID)
	}
	if len(ids) == 0 {
		return nil, nil
	}
	uses, err := w.record.Uses(ctx, w.namespace, ids)
	if err != nil {
		return nil, fmt.Errorf("count recalls: %w", err)
	}
	out := make(map[string]bool, len(ids))
	for id, use := range uses {
		last := use.FirstSeen
		if use.LastHit.After(last) {
			last = use.LastHit
		}
		out[id] = !last.IsZero() && now.Sub(last) > unreadAfter
	}
	return out, nil
}
