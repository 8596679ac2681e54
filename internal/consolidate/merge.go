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
	// seenReason is how a canonical item says how often it was met. It is read back, so that each voice counts once.
	seenReason = "seen by %d independent voices"
)

// merger links lessons and memories that say the same to the earliest of them, and settles contradictions.
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

var active = []memory.ItemStatus{memory.ItemActive}

func (m *merger) mergeSnapshots(ctx context.Context, w *work, since time.Time) error {
	fresh, err := w.record.Snapshots(ctx, memory.ItemFilter{Namespace: w.namespace, Statuses: active, RecordedSince: since})
	if err != nil {
		return fmt.Errorf("read new snapshots: %w", err)
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
	for _, tool := range slices.Sorted(maps.Keys(subjects)) {
		if err := m.mergeTool(ctx, w, tool, subjects[tool]); err != nil {
			return err
		}
	}
	return nil
}

// mergeTool merges what is known of one tool, where something of the same subject is new.
func (m *merger) mergeTool(ctx context.Context, w *work, tool string, subjects map[string]bool) error {
	all, err := w.record.Snapshots(ctx, memory.ItemFilter{Namespace: w.namespace, Tool: tool, Statuses: active, Limit: maxOfSubject})
	if err != nil {
		return fmt.Errorf("read snapshots of %s: %w", tool, err)
	}
	groups := map[string][]memory.Snapshot{}
	for _, s := range all {
		subject := memory.StatementOf(s).Subject()
		// An empty tool restricts nothing when it is asked for.
		if s.Decision.ToolSelected == tool && subjects[subject] && s.Reflection != nil && s.Reflection.Lesson != "" {
			groups[subject] = append(groups[subject], s)
		}
	}
	for _, subject := range slices.Sorted(maps.Keys(groups)) {
		if err := m.mergeSubject(ctx, w, groups[subject]); err != nil {
			return err
		}
	}
	return nil
}

// mergeSubject clusters snapshots of one subject and writes what differs from what is known.
func (m *merger) mergeSubject(ctx context.Context, w *work, items []memory.Snapshot) error {
	if len(items) < 2 {
		return nil
	}
	slices.SortFunc(items, func(a, b memory.Snapshot) int {
		return cmp.Or(a.Timestamp.Compare(b.Timestamp), strings.Compare(a.SnapshotID, b.SnapshotID))
	})
	ids := make([]string, len(items))
	byID := make(map[string]int, len(items))
	for i, s := range items {
		ids[i], byID[s.SnapshotID] = s.SnapshotID, i
	}
	known, err := m.links(ctx, w, ids)
	if err != nil {
		return err
	}
	near, err := m.similarity(ctx, w, ids)
	if err != nil {
		return err
	}
	clusters, opposed := m.cluster(items, known, near)
	if err := m.write(ctx, w, clusters.relations(ids, known)); err != nil {
		return err
	}
	var changed []memory.Snapshot
	for canonical, members := range clusters.members {
		if s, raised := raise(items, byID[canonical], members, byID); raised {
			changed = append(changed, s)
		}
	}
	lost, relations := settle(items, opposed, known)
	changed = append(slices.DeleteFunc(changed, func(s memory.Snapshot) bool {
		return slices.ContainsFunc(lost, func(l memory.Snapshot) bool { return l.SnapshotID == s.SnapshotID })
	}), lost...)
	slices.SortFunc(changed, func(a, b memory.Snapshot) int { return strings.Compare(a.SnapshotID, b.SnapshotID) })
	w.count("contradictions", len(lost))
	w.count("canonicals", len(changed)-len(lost))
	if err := w.relations(ctx, relations); err != nil {
		return err
	}
	return w.snapshots(ctx, changed)
}

// graph is what is known of the relations between some items.
type graph struct {
	// into holds for each member its canonical item, by links of ours that hold.
	into map[string]string
	// weight is that of the link.
	weight map[string]float64
	// apart are pairs, member and canonical, that somebody took apart.
	apart map[[2]string]bool
	// contradictions are pairs that are known to contradict each other.
	contradictions map[[2]string]bool
}

func (m *merger) links(ctx context.Context, w *work, ids []string) (graph, error) {
	g := graph{into: map[string]string{}, weight: map[string]float64{}, apart: map[[2]string]bool{}, contradictions: map[[2]string]bool{}}
	relations, err := w.record.Relations(ctx, w.namespace, ids)
	if err != nil {
		return g, fmt.Errorf("read relations: %w", err)
	}
	for _, r := range relations {
		switch {
		case r.Kind == memory.RelationContradicts:
			g.contradictions[[2]string{r.FromID, r.ToID}] = true
		case r.Kind != memory.RelationMergedInto:
		case !r.Removed:
			g.into[r.FromID], g.weight[r.FromID] = r.ToID, r.Weight
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

// similarity gives the cosine of two items, or less than -1 where there is none.
func (m *merger) similarity(ctx context.Context, w *work, ids []string) (func(a, b string) float64, error) {
	none := func(string, string) float64 { return math.Inf(-1) }
	if m.model == "" {
		return none, nil
	}
	vectors, err := w.record.ItemVectors(ctx, w.namespace, m.model, ids)
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

// relations are the links to write: new ones, and the removal of those that hold no more.
func (c clusters) relations(ids []string, known graph) []memory.Relation {
	var out []memory.Relation
	for _, id := range ids {
		now, linked := c.into[id]
		before, was := known.into[id]
		if was && (!linked || before != now) {
			out = append(out, memory.Relation{
				FromID: id, Kind: memory.RelationMergedInto, ToID: before, Removed: true, Weight: known.weight[id], Reason: "they are not the same any more",
			})
		}
		if linked && (!was || before != now) {
			out = append(out, memory.Relation{
				FromID: id, Kind: memory.RelationMergedInto, ToID: now, Weight: c.weight[id], Reason: "same tool, error, condition and lesson",
			})
		}
	}
	return out
}

func (m *merger) write(ctx context.Context, w *work, relations []memory.Relation) error {
	removed := 0
	for _, r := range relations {
		if r.Removed {
			removed++
		}
	}
	w.count("linked", len(relations)-removed)
	w.count("unlinked", removed)
	return w.relations(ctx, relations)
}

// raise gives the canonical item with the confidence that its members lend it. raised is false where nothing changes.
func raise(items []memory.Snapshot, canonical int, members []string, byID map[string]int) (s memory.Snapshot, raised bool) {
	s = items[canonical]
	if s.Version.WriterKind == memory.WriterPerson {
		return s, false
	}
	group := []memory.Snapshot{s}
	for _, id := range members {
		group = append(group, items[byID[id]])
	}
	confidence, reasons, raised := support(s.Confidence, s.ConfidenceReasons, snapshotVoices(group))
	s.Confidence, s.ConfidenceReasons = confidence, reasons
	return s, raised
}

// support raises a confidence by the voices that it does not yet count.
func support(confidence float64, reasons []string, voices int) (after float64, because []string, raised bool) {
	counted, at := 1, -1
	for i, r := range reasons {
		var n int
		if _, err := fmt.Sscanf(r, seenReason, &n); err == nil {
			counted, at = n, i
		}
	}
	if voices <= counted {
		return confidence, reasons, false
	}
	after, _ = memory.ApplySupport(confidence, voices-counted, 0)
	because = slices.Clone(reasons)
	said := fmt.Sprintf(seenReason, voices)
	if at >= 0 {
		because[at] = said
	} else {
		because = append(because, said)
	}
	return after, because, true
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
func settle(items []memory.Snapshot, opposed [][2]int, known graph) (lost []memory.Snapshot, relations []memory.Relation) {
	gone := map[int]bool{}
	for _, pair := range opposed {
		loser, winner := pair[0], pair[1]
		if memory.Stronger(claimOf(items[loser]), claimOf(items[winner])) {
			loser, winner = winner, loser
		}
		if gone[loser] || gone[winner] {
			continue
		}
		from, to := items[loser], items[winner]
		if !known.contradictions[[2]string{from.SnapshotID, to.SnapshotID}] {
			relations = append(relations, memory.Relation{
				FromID: from.SnapshotID, Kind: memory.RelationContradicts, ToID: to.SnapshotID, Weight: 1, Reason: "they advise the opposite of each other",
			})
		}
		if from.Version.WriterKind == memory.WriterPerson {
			continue // A person's word stands: the contradiction is only pointed out.
		}
		gone[loser] = true
		relations = append(relations, memory.Relation{
			FromID: to.SnapshotID, Kind: memory.RelationSupersedes, ToID: from.SnapshotID, Weight: 1, Reason: "newer or better trusted",
		})
		from.Status, from.StatusReason = memory.ItemSuperseded, "contradicted by "+to.SnapshotID
		lost = append(lost, from)
	}
	return lost, relations
}

func claimOf(s memory.Snapshot) memory.Claim {
	return memory.Claim{ID: s.SnapshotID, Trust: s.Trust, Confidence: s.Confidence, When: s.Timestamp}
}
