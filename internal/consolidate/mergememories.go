package consolidate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hindsight-memory/hindsight/internal/memory"
)

// stated are the statuses of memories that say what took the place of what.
var stated = append(slices.Clone(merged), memory.ItemForgotten, memory.ItemArchived)

// mergeMemories puts what is stated about each entity of which something has changed into its order: what a later
// statement replaces has ended, and what states the same value is linked.
func (m *merger) mergeMemories(ctx context.Context, w *work, since time.Time) error {
	fresh, err := w.record.Memories(ctx, memory.ItemFilter{Namespace: w.namespace, RecordedSince: since})
	if err != nil {
		return fmt.Errorf("read new memories: %w", err)
	}
	var entities []string
	for _, f := range fresh {
		if f.Entity != "" {
			entities = append(entities, f.Entity)
		}
	}
	slices.Sort(entities)
	var relations []memory.Relation
	var changed []memory.Memory
	for _, entity := range slices.Compact(entities) {
		all, err := w.record.Memories(ctx, memory.ItemFilter{Namespace: w.namespace, Entity: entity, Statuses: stated})
		if err != nil {
			return fmt.Errorf("read memories of %q: %w", entity, err)
		}
		all = slices.DeleteFunc(all, func(x memory.Memory) bool {
			return x.Entity != entity || !takesPart(x.Judged) && !memory.Gone(x.Judged)
		})
		r, c, err := m.mergeEntity(ctx, w, all[:min(len(all), maxOfSubject)])
		if err != nil {
			return err
		}
		relations, changed = append(relations, r...), append(changed, c...)
	}
	if err := w.relations(ctx, relations); err != nil {
		return err
	}
	return w.memories(ctx, changed)
}

// mergeEntity gives what is to change of what is stated about one entity.
func (m *merger) mergeEntity(ctx context.Context, w *work, all []memory.Memory) (relations []memory.Relation, changed []memory.Memory, err error) {
	if len(all) == 0 {
		return nil, nil, nil
	}
	ids := make([]string, len(all))
	before := make(map[string]memory.Memory, len(all))
	for i, x := range all {
		ids[i], before[x.MemoryID] = x.MemoryID, x
	}
	known, err := m.links(ctx, w, ids)
	if err != nil {
		return nil, nil, err
	}
	order := memory.Succeed(all)
	wanted := edges{}
	for i, by := range order.EndedBy {
		older, newer := order.Memories[i], order.Memories[by]
		wanted.add(newer.MemoryID, memory.RelationSupersedes, older.MemoryID, 1, memory.ReasonLaterStatement)
	}
	for i, by := range order.Disputed {
		wanted.add(order.Memories[i].MemoryID, memory.RelationContradicts, order.Memories[by].MemoryID, 1, "another value of the same entity")
	}
	groups := map[int][]memory.Memory{}
	var canonical []int
	for i, x := range order.Memories {
		if x.Status != memory.ItemActive {
			continue
		}
		same := slices.IndexFunc(canonical, func(j int) bool {
			a, b := x.MemoryID, order.Memories[j].MemoryID
			return memory.SameValue(x, order.Memories[j]) && !known.apart[[2]string{a, b}] && !known.apart[[2]string{b, a}]
		})
		if same < 0 {
			canonical = append(canonical, i)
			continue
		}
		to := canonical[same]
		groups[to] = append(groups[to], x)
		wanted.add(x.MemoryID, memory.RelationMergedInto, order.Memories[to].MemoryID, 1, "the same value of the same entity")
	}
	for i, x := range order.Memories {
		if memory.Decided(x.Version) || memory.Gone(x.Judged) {
			continue
		}
		voices := 1
		if len(groups[i]) > 0 {
			voices = memoryVoices(append(slices.Clone(groups[i]), x))
		}
		x.Judged = memory.Supported(x.Judged, voices)
		if old := before[x.MemoryID]; !sameJudgement(x.Judged, old.Judged) || x.OldValue != old.OldValue || x.Operation != old.Operation || !sameTime(x.ValidTo, old.ValidTo) {
			changed = append(changed, x)
		}
	}
	w.count("memories", len(changed))
	return changedEdges(w, ids, wanted, known), changed, nil
}

func sameTime(a, b *time.Time) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Equal(*b)
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
