package reflect

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/memory"
)

// lookahead reads for a batch of writes: what they are likely to ask for one by one it has read together, and it knows
// what earlier ones of the batch have written and is not stored yet. Any other question goes to the record.
type lookahead struct {
	ItemReader

	// Items by namespace and id; nil for what the record does not hold.
	memories  map[[2]string]*memory.Memory
	snapshots map[[2]string]*memory.Snapshot
}

// fetch reads the items whose ids the writes without a verdict name or lead to.
func (l *lookahead) fetch(ctx context.Context, batch []Write, verdicts []error) error {
	l.memories, l.snapshots = map[[2]string]*memory.Memory{}, map[[2]string]*memory.Snapshot{}
	for i, w := range batch {
		if verdicts[i] != nil || w.Event.Kind != events.KindItemWritten {
			continue
		}
		// What cannot be read here is refused when its turn comes.
		written, err := events.DecodeData[events.ItemWritten](w.Event)
		if err != nil {
			continue
		}
		var s memory.Snapshot
		switch {
		case !holdsSnapshot(written):
			if id, err := memoryID(w.Event, written); err == nil {
				l.memories[[2]string{w.Event.Namespace, id}] = nil
			}
		case json.Unmarshal(written.Snapshot, &s) == nil:
			if id, err := snapshotID(w.Event, s); err == nil {
				l.snapshots[[2]string{w.Event.Namespace, id}] = nil
			}
		}
	}
	for namespace, ids := range byNamespace(maps.Keys(l.memories)) {
		found, err := l.ItemReader.Memories(ctx, memory.ItemFilter{Namespace: namespace, IDs: ids})
		if err != nil {
			return fmt.Errorf("read %d memories: %w", len(ids), err)
		}
		for i, m := range found {
			l.memories[[2]string{namespace, m.MemoryID}] = &found[i]
		}
	}
	for namespace, ids := range byNamespace(maps.Keys(l.snapshots)) {
		found, err := l.ItemReader.Snapshots(ctx, memory.ItemFilter{Namespace: namespace, IDs: ids})
		if err != nil {
			return fmt.Errorf("read %d snapshots: %w", len(ids), err)
		}
		for i, s := range found {
			l.snapshots[[2]string{namespace, s.SnapshotID}] = &found[i]
		}
	}
	return nil
}

// note takes in what a write does.
func (l *lookahead) note(c change) {
	for i, m := range c.memories {
		l.memories[[2]string{m.Namespace, m.MemoryID}] = &c.memories[i]
	}
	for i, s := range c.snapshots {
		l.snapshots[[2]string{s.Namespace, s.SnapshotID}] = &c.snapshots[i]
	}
}

// Memories implements [ItemReader].
func (l *lookahead) Memories(ctx context.Context, f memory.ItemFilter) ([]memory.Memory, error) {
	if key, one := oneItem(f); one {
		if m, known := l.memories[key]; known {
			return listOf(m), nil
		}
	}
	return l.ItemReader.Memories(ctx, f) //nolint:wrapcheck // It adds nothing.
}

// Snapshots implements [ItemReader].
func (l *lookahead) Snapshots(ctx context.Context, f memory.ItemFilter) ([]memory.Snapshot, error) {
	if key, one := oneItem(f); one {
		if s, known := l.snapshots[key]; known {
			return listOf(s), nil
		}
	}
	return l.ItemReader.Snapshots(ctx, f) //nolint:wrapcheck // As above.
}

// oneItem says that a filter asks for the current version of one item, whatever its state.
func oneItem(f memory.ItemFilter) (key [2]string, one bool) {
	if len(f.IDs) != 1 || len(f.Statuses) > 0 || !f.AsOf.IsZero() {
		return key, false
	}
	return [2]string{f.Namespace, f.IDs[0]}, true
}

func listOf[T any](item *T) []T {
	if item == nil {
		return nil
	}
	return []T{*item}
}

func byNamespace(keys func(yield func([2]string) bool)) map[string][]string {
	out := map[string][]string{}
	for key := range keys {
		out[key[0]] = append(out[key[0]], key[1])
	}
	for _, ids := range out {
		slices.Sort(ids)
	}
	return out
}

// concernsOnlyItself says that a write neither changes other items nor depends on any.
func concernsOnlyItself(e events.Event) bool {
	if e.Kind != events.KindItemWritten {
		return false
	}
	w, err := events.DecodeData[events.ItemWritten](e)
	return err == nil && (holdsSnapshot(w) || w.Operation == "" || w.Operation == string(memory.OperationAdd))
}

// holdsSnapshot tells a reported decision from a memory.
func holdsSnapshot(w events.ItemWritten) bool {
	return len(w.Snapshot) > 0 && strings.TrimSpace(string(w.Snapshot)) != "null"
}
