package consolidate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hindsight-memory/hindsight/internal/memory"
)

const (
	// mergeOverlap is how far each merge looks back over the start of the last one: longer than any insert may take and
	// than the clocks of store and process may differ, because a row carries the time at which its insert began.
	mergeOverlap = 5 * time.Minute
	// maxOfSubject is how many items of one tool or entity are compared with each other, the earliest first.
	maxOfSubject = 5000
)

// merger links lessons and memories that say the same to the earliest of them, and settles contradictions.
//
// What comes out depends on the items alone: groups, canonical items, contradictions and confidence are found anew from all
// items of a subject, and never from what an earlier merge made of them. So it is the same whether it runs once in the end
// or after each task.
//
// A member that is linked stays active: its parameters still warn of a call of their shape, and removing the link undoes
// the merge. Whoever shows items follows the relation to the canonical one and shows only that.
type merger struct {
	meaning func(ctx context.Context) (model string, thresholds memory.Thresholds, err error)
	// model and thresholds are what meaning said for the run that goes on; there is one at a time.
	model      string
	thresholds memory.Thresholds

	mu sync.Mutex // guards what follows
	// since is, for each namespace, the start of the last merge that found nothing to write.
	since map[string]time.Time
}

func (m *merger) run(ctx context.Context, w *work) error {
	// What is only worded otherwise is not looked at again once it was compared by words: rather merge later.
	model, thresholds, err := m.meaning(ctx)
	if err != nil {
		return err
	}
	if model != "" && !(thresholds.Related < thresholds.Duplicate && thresholds.Duplicate <= 1) {
		return fmt.Errorf("thresholds %+v of model %s: Related must be below Duplicate, and that at most 1", thresholds, model)
	}
	m.model, m.thresholds = model, thresholds
	since, err := m.bookmark(ctx, w)
	if err != nil {
		return err
	}
	if err := refute(ctx, w, since); err != nil {
		return err
	}
	if err := m.mergeSnapshots(ctx, w, since); err != nil {
		return err
	}
	if err := m.mergeMemories(ctx, w, since); err != nil {
		return err
	}
	if !w.begun {
		m.mu.Lock()
		m.since[w.namespace] = w.run.StartedAt
		m.mu.Unlock()
	}
	return nil
}

// bookmark is the moment from which items are new to the merge.
func (m *merger) bookmark(ctx context.Context, w *work) (time.Time, error) {
	last, found, err := w.record.LastRun(ctx, JobMerge, w.namespace)
	if err != nil {
		return time.Time{}, fmt.Errorf("find the last merge: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	since := m.since[w.namespace]
	if found && last.StartedAt.After(since) {
		since = last.StartedAt
	}
	if since.IsZero() {
		return since, nil
	}
	return since.Add(-mergeOverlap), nil
}

var (
	active = []memory.ItemStatus{memory.ItemActive}
	// merged are the statuses of items that may take part: those that are superseded do so if it is by another of them.
	merged = []memory.ItemStatus{memory.ItemActive, memory.ItemSuperseded}
)

// takesPart reports an item that is in force, or is not only because of another.
func takesPart(j memory.Judged) bool { return j.Status == memory.ItemActive || memory.Overruled(j) }

func (m *merger) mergeSnapshots(ctx context.Context, w *work, since time.Time) error {
	subjects, err := m.freshSubjects(ctx, w, since)
	if err != nil {
		return err
	}
	for _, tool := range slices.Sorted(maps.Keys(subjects)) {
		if err := m.mergeTool(ctx, w, tool, subjects[tool]); err != nil {
			return err
		}
	}
	return nil
}

// freshSubjects gives, by tool, the subjects of which something has changed: an item, whatever became of it, or a vector.
func (m *merger) freshSubjects(ctx context.Context, w *work, since time.Time) (map[string]map[string]bool, error) {
	fresh, err := w.record.Snapshots(ctx, memory.ItemFilter{Namespace: w.namespace, RecordedSince: since})
	if err != nil {
		return nil, fmt.Errorf("read new snapshots: %w", err)
	}
	if m.model != "" && !since.IsZero() {
		ids, err := w.record.VectorsSince(ctx, w.namespace, m.model, since)
		if err != nil {
			return nil, fmt.Errorf("find new vectors: %w", err)
		}
		if len(ids) > 0 {
			further, err := w.record.Snapshots(ctx, memory.ItemFilter{Namespace: w.namespace, IDs: ids})
			if err != nil {
				return nil, fmt.Errorf("read snapshots with new vectors: %w", err)
			}
			fresh = append(fresh, further...)
		}
	}
	subjects := map[string]map[string]bool{} // by tool
	for _, s := range fresh {
		if s.Reflection == nil || s.Reflection.Lesson == "" {
			continue
		}
		tool := s.Decision.ToolSelected
		if subjects[tool] == nil {
			subjects[tool] = map[string]bool{}
		}
		subjects[tool][memory.StatementOf(s).Subject()] = true
	}
	return subjects, nil
}

// mergeTool merges what is known of one tool, where something of the same subject is new.
func (m *merger) mergeTool(ctx context.Context, w *work, tool string, subjects map[string]bool) error {
	all, err := w.record.Snapshots(ctx, memory.ItemFilter{Namespace: w.namespace, Tool: tool, Statuses: merged})
	if err != nil {
		return fmt.Errorf("read snapshots of %s: %w", tool, err)
	}
	groups := map[string][]memory.Snapshot{}
	texts := map[string]string{}
	var ids []string
	for _, s := range all {
		subject := memory.StatementOf(s).Subject()
		// An empty tool restricts nothing when it is asked for.
		if s.Decision.ToolSelected == tool && subjects[subject] && s.Reflection != nil && s.Reflection.Lesson != "" && takesPart(s.Judged) &&
			len(ids) < maxOfSubject {
			groups[subject] = append(groups[subject], s)
			ids = append(ids, s.SnapshotID)
			texts[s.SnapshotID] = memory.TextHash(memory.SnapshotText(s))
		}
	}
	known, err := m.links(ctx, w, ids)
	if err != nil {
		return err
	}
	near, err := m.similarity(ctx, w, texts)
	if err != nil {
		return err
	}
	var relations []memory.Relation
	var changed []memory.Snapshot
	for _, subject := range slices.Sorted(maps.Keys(groups)) { // Written together: many small inserts take many times as long.
		r, c := m.mergeSubject(w, groups[subject], known, near)
		relations, changed = append(relations, r...), append(changed, c...)
	}
	if err := w.relations(ctx, relations); err != nil {
		return err
	}
	return w.snapshots(ctx, changed)
}

// mergeSubject clusters snapshots of one subject and gives what differs from what is known.
func (m *merger) mergeSubject(w *work, before []memory.Snapshot, known graph, near func(a, b string) float64) (relations []memory.Relation, changed []memory.Snapshot) {
	slices.SortFunc(before, func(a, b memory.Snapshot) int {
		return cmp.Or(a.Timestamp.Compare(b.Timestamp), strings.Compare(a.SnapshotID, b.SnapshotID))
	})
	// What earlier merges made of them does not count.
	items := slices.Clone(before)
	byID := make(map[string]int, len(items))
	for i := range items {
		byID[items[i].SnapshotID] = i
		if !memory.Decided(items[i].Version) {
			items[i].Judged, _ = memory.Unsupported(items[i].Judged)
			if memory.Overruled(items[i].Judged) {
				items[i].Status, items[i].StatusReason = memory.ItemActive, ""
			}
		}
	}
	found, opposed := m.cluster(items, known, near)
	wanted := edges{}
	for id, to := range found.into {
		wanted.add(id, memory.RelationMergedInto, to, found.weight[id], "same tool, error, condition and lesson")
	}
	lost := settle(items, opposed, wanted)
	for canonical, members := range found.members {
		i := byID[canonical]
		if lost[i] || memory.Decided(items[i].Version) {
			continue
		}
		group := []memory.Snapshot{items[i]}
		for _, id := range members {
			group = append(group, items[byID[id]])
		}
		items[i].Judged = memory.Supported(items[i].Judged, snapshotVoices(group))
	}
	for i, s := range items {
		if !sameJudgement(s.Judged, before[i].Judged) {
			changed = append(changed, s)
			if lost[i] {
				w.count("contradictions", 1)
			} else {
				w.count("canonicals", 1)
			}
		}
	}
	return changedEdges(w, slices.Collect(maps.Keys(byID)), wanted, known), changed
}

// sameJudgement reports that nothing of what the merge decides differs.
func sameJudgement(a, b memory.Judged) bool {
	return a.Status == b.Status && a.StatusReason == b.StatusReason && a.Confidence == b.Confidence && slices.Equal(a.ConfidenceReasons, b.ConfidenceReasons)
}

// graph is what is known of the relations between some items.
type graph struct {
	// held are the relations that hold and that the merge decides on, by their ends.
	held map[string][]memory.Relation
	// apart are pairs, member and canonical, that somebody took apart.
	apart map[[2]string]bool
}

func (m *merger) links(ctx context.Context, w *work, ids []string) (graph, error) {
	g := graph{held: map[string][]memory.Relation{}, apart: map[[2]string]bool{}}
	if len(ids) == 0 {
		return g, nil
	}
	relations, err := w.record.Relations(ctx, w.namespace, ids)
	if err != nil {
		return g, fmt.Errorf("read relations: %w", err)
	}
	for _, r := range relations {
		if r.Kind == memory.RelationContradicts || r.Kind == memory.RelationMergedInto || r.Kind == memory.RelationSupersedes {
			g.held[r.FromID], g.held[r.ToID] = append(g.held[r.FromID], r), append(g.held[r.ToID], r)
		}
	}
	removed, err := w.record.RemovedRelations(ctx, w.namespace, ids)
	if err != nil {
		return g, fmt.Errorf("read removed relations: %w", err)
	}
	for _, r := range removed {
		if r.Kind == memory.RelationMergedInto && r.Writer != writer(JobMerge) {
			g.apart[[2]string{r.FromID, r.ToID}] = true
		}
	}
	return g, nil
}

// edge names a relation.
type edge struct {
	from string
	kind memory.RelationKind
	to   string
}

// edges are the relations that are to hold.
type edges map[edge]memory.Relation

func (e edges) add(from string, kind memory.RelationKind, to string, weight float64, reason string) {
	e[edge{from, kind, to}] = memory.Relation{FromID: from, Kind: kind, ToID: to, Weight: weight, Reason: reason}
}

// changedEdges are the relations of items that are to hold and do not, and, as removed, those that hold and are not to.
func changedEdges(w *work, ids []string, wanted edges, known graph) []memory.Relation {
	there := map[edge]bool{}
	var out []memory.Relation
	for _, id := range ids {
		for _, r := range known.held[id] {
			e := edge{r.FromID, r.Kind, r.ToID}
			if there[e] {
				continue
			}
			there[e] = true
			want, is := wanted[e]
			switch {
			case !is:
				out = append(out, memory.Relation{
					FromID: r.FromID, Kind: r.Kind, ToID: r.ToID, Removed: true, Weight: r.Weight, Reason: "it holds no more",
				})
				if r.Kind == memory.RelationMergedInto {
					w.count("unlinked", 1)
				}
			case want.Reason != r.Reason || want.Weight != r.Weight:
				out = append(out, want)
			}
		}
	}
	for e, r := range wanted {
		if there[e] {
			continue
		}
		out = append(out, r)
		if r.Kind == memory.RelationMergedInto {
			w.count("linked", 1)
		}
	}
	slices.SortFunc(out, func(a, b memory.Relation) int {
		return slices.Compare([]string{a.FromID, string(a.Kind), a.ToID}, []string{b.FromID, string(b.Kind), b.ToID})
	})
	return out
}

// similarity gives the cosine of two items by the vectors of their texts, or less than -1 where there is none.
func (m *merger) similarity(ctx context.Context, w *work, texts map[string]string) (func(a, b string) float64, error) {
	none := func(string, string) float64 { return math.Inf(-1) }
	if m.model == "" || len(texts) == 0 {
		return none, nil
	}
	vectors, err := w.record.TextVectors(ctx, w.namespace, m.model, texts)
	if err != nil {
		return nil, fmt.Errorf("read vectors: %w", err)
	}
	return func(a, b string) float64 {
		x, y := vectors[a], vectors[b]
		if len(x) == 0 || len(x) != len(y) {
			return none(a, b)
		}
		var dot float64
		for i := range x {
			dot += float64(x[i]) * float64(y[i])
		}
		return dot
	}, nil
}

// clusters are items that say the same.
type clusters struct {
	// into gives each member its canonical item, members each canonical item its members.
	into    map[string]string
	weight  map[string]float64
	members map[string][]string
}

// cluster goes through the items from the earliest on and compares each with the canonical ones before it, so that the
// same items always give the same clusters. opposed are pairs of canonical items that contradict each other.
func (m *merger) cluster(items []memory.Snapshot, known graph, near func(a, b string) float64) (clusters, [][2]int) {
	c := clusters{into: map[string]string{}, weight: map[string]float64{}, members: map[string][]string{}}
	var canonical []int
	worded := map[string][]int{} // canonical items by the words of their lessons
	statements := make([]memory.Statement, len(items))
	var opposed [][2]int
	for i, s := range items {
		statements[i] = memory.StatementOf(s)
		best, bestNear := -1, math.Inf(-1)
		var against []int
		compare := func(j int, cosine float64) {
			switch memory.Compare(statements[i], statements[j], cosine, m.thresholds) {
			case memory.LikenessSame:
				a, b := s.SnapshotID, items[j].SnapshotID
				if (best < 0 || cosine > bestNear) && !known.apart[[2]string{a, b}] && !known.apart[[2]string{b, a}] {
					best, bestNear = j, cosine
				}
			case memory.LikenessOpposed:
				against = append(against, j)
			case memory.LikenessNone, memory.LikenessRelated:
			}
		}
		// The same words are the same thing, whatever the situations were like.
		for _, j := range worded[statements[i].Words()] {
			compare(j, 1)
		}
		if best < 0 {
			for _, j := range canonical {
				if cosine := near(s.SnapshotID, items[j].SnapshotID); cosine >= m.thresholds.Related && cosine >= -1 {
					compare(j, cosine)
				}
			}
		}
		if best < 0 {
			canonical = append(canonical, i)
			worded[statements[i].Words()] = append(worded[statements[i].Words()], i)
			for _, j := range against {
				opposed = append(opposed, [2]int{j, i})
			}
			continue
		}
		to := items[best].SnapshotID
		c.into[s.SnapshotID], c.members[to] = to, append(c.members[to], s.SnapshotID)
		c.weight[s.SnapshotID] = math.Round(min(max(bestNear, 0), 1)*1000) / 1000
	}
	return c, opposed
}

// snapshotVoices counts independent voices: agents, or goals where one agent says it of several. Copies of one decision by
// one agent are one voice, and so are all tasks of an agent that name no goal.
func snapshotVoices(group []memory.Snapshot) int {
	agents, goals, copies := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, s := range group {
		same := strings.Join([]string{s.AgentID, s.Decision.ToolSelected, string(s.Decision.Parameters), s.Outcome.ErrorMessage}, "\x00")
		agents[s.AgentID] = true
		if copies[same] {
			continue
		}
		copies[same] = true
		goals[s.GoalID] = true
	}
	return max(len(agents), len(goals))
}

// settle decides contradictions: the better trusted of two lessons stays, and among equals the newer.
func settle(items []memory.Snapshot, opposed [][2]int, wanted edges) (lost map[int]bool) {
	lost = map[int]bool{}
	for _, pair := range opposed {
		loser, winner := pair[0], pair[1]
		if memory.Stronger(claimOf(items[loser]), claimOf(items[winner])) {
			loser, winner = winner, loser
		}
		if lost[loser] || lost[winner] {
			continue
		}
		from, to := &items[loser], items[winner]
		wanted.add(from.SnapshotID, memory.RelationContradicts, to.SnapshotID, 1, "they advise the opposite of each other")
		if memory.Decided(from.Version) {
			continue // A person's word stands: the contradiction is only pointed out.
		}
		lost[loser] = true
		wanted.add(to.SnapshotID, memory.RelationSupersedes, from.SnapshotID, 1, "newer or better trusted")
		from.Status, from.StatusReason = memory.ItemSuperseded, memory.ReasonContradicted+to.SnapshotID
	}
	return lost
}

func claimOf(s memory.Snapshot) memory.Claim {
	own, _ := memory.Unsupported(s.Judged)
	return memory.Claim{ID: s.SnapshotID, Trust: s.Trust, Confidence: own.Confidence, When: s.Timestamp}
}
