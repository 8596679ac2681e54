package consolidate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hindsight-memory/hindsight/internal/memory"
)

// mergeMemories links memories that state the same value of an entity, and ends the validity of values that a later
// memory replaces.
func (m *merger) mergeMemories(ctx context.Context, w *work, since time.Time) error {
	fresh, err := w.record.Memories(ctx, memory.ItemFilter{Namespace: w.namespace, Statuses: active, RecordedSince: since})
	if err != nil {
		return fmt.Errorf("read new memories: %w", err)
	}
	entities := map[string]bool{}
	for _, f := range fresh {
		if f.Entity != "" {
			entities[f.Entity] = true
		}
	}
	for _, entity := range slices.Sorted(maps.Keys(entities)) {
		all, err := w.record.Memories(ctx, memory.ItemFilter{Namespace: w.namespace, Entity: entity, Statuses: active, Limit: maxOfSubject})
		if err != nil {
			return fmt.Errorf("read memories of %q: %w", entity, err)
		}
		if len(all) < 2 {
			continue
		}
		if err := m.mergeEntity(ctx, w, all); err != nil {
			return err
		}
	}
	return nil
}

func (m *merger) mergeEntity(ctx context.Context, w *work, all []memory.Memory) error {
	slices.SortFunc(all, func(a, b memory.Memory) int {
		return cmp.Or(a.Timestamp.Compare(b.Timestamp), strings.Compare(a.MemoryID, b.MemoryID))
	})
	ids := make([]string, len(all))
	for i, x := range all {
		ids[i] = x.MemoryID
	}
	known, err := m.links(ctx, w, ids)
	if err != nil {
		return err
	}
	c := clusters{into: map[string]string{}, weight: map[string]float64{}, members: map[string][]string{}}
	var canonical []int
	replaced := map[int]int{}
	groups := map[int][]memory.Memory{}
	for i, x := range all {
		same := slices.IndexFunc(canonical, func(j int) bool {
			return memory.SameValue(x, all[j]) && !known.apart[[2]string{x.MemoryID, all[j].MemoryID}]
		})
		if same >= 0 {
			to := canonical[same]
			c.into[x.MemoryID], c.weight[x.MemoryID] = all[to].MemoryID, 1
			groups[to] = append(groups[to], x)
		} else {
			canonical = append(canonical, i)
		}
		for j := range i {
			if _, gone := replaced[j]; !gone && memory.Replaces(x, all[j]) {
				replaced[j] = i
			}
		}
	}
	if err := m.write(ctx, w, c.relations(ids, known)); err != nil {
		return err
	}
	var changed []memory.Memory
	var relations []memory.Relation
	for i, x := range all {
		if by, is := replaced[i]; is {
			loser, r, ended := end(x, all[by], known)
			relations = append(relations, r...)
			if ended {
				changed = append(changed, loser)
			}
			continue
		}
		if x.Version.WriterKind == memory.WriterPerson || len(groups[i]) == 0 {
			continue
		}
		confidence, reasons, raised := support(x.Confidence, x.ConfidenceReasons, memoryVoices(append(groups[i], x)))
		if raised {
			x.Confidence, x.ConfidenceReasons = confidence, reasons
			changed = append(changed, x)
		}
	}
	if err := w.relations(ctx, relations); err != nil {
		return err
	}
	w.count("memories", len(changed))
	return w.memories(ctx, changed)
}

// end takes the value of older out of force, unless it is better trusted or a person's: then it is only pointed out.
func end(older, newer memory.Memory, known graph) (memory.Memory, []memory.Relation, bool) {
	var relations []memory.Relation
	if !known.contradictions[[2]string{older.MemoryID, newer.MemoryID}] {
		relations = append(relations, memory.Relation{
			FromID: older.MemoryID, Kind: memory.RelationContradicts, ToID: newer.MemoryID, Weight: 1, Reason: "another value of the same entity",
		})
	}
	claim := func(m memory.Memory) memory.Claim {
		return memory.Claim{ID: m.MemoryID, Trust: m.Trust, Confidence: m.Confidence, When: m.Timestamp}
	}
	if older.Version.WriterKind == memory.WriterPerson || !memory.Stronger(claim(newer), claim(older)) {
		return older, relations, false
	}
	at := newer.ValidFrom
	if at.IsZero() {
		at = newer.Timestamp
	}
	older.ValidTo, older.Status, older.StatusReason = &at, memory.ItemSuperseded, "replaced by "+newer.MemoryID
	return older, append(relations, memory.Relation{
		FromID: newer.MemoryID, Kind: memory.RelationSupersedes, ToID: older.MemoryID, Weight: 1, Reason: "newer or better trusted",
	}), true
}

// memoryVoices counts independent voices: each user with each agent is one, and who says it in another session again adds
// one, however often.
func memoryVoices(group []memory.Memory) int {
	sessions := map[string]map[string]bool{}
	again := 0
	for _, x := range group {
		voice := x.UserID + "\x00" + x.AgentID
		if sessions[voice] == nil {
			sessions[voice] = map[string]bool{}
		}
		sessions[voice][cmp.Or(x.SessionID, x.TaskID)] = true
		if len(sessions[voice]) > 1 {
			again = 1
		}
	}
	return len(sessions) + again
}
