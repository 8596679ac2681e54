package recall

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/memory"
)

// maxOfTool is how many failures of one tool an action is compared with, the newest first.
const maxOfTool = 200

// action finds what is known to go wrong with a call: failed decisions of the same tool whose parameters had the same
// shape, and active rules about the tool. What only looks alike is left out: a warning that is mostly wrong is not read.
func (s *Service) action(ctx context.Context, a Action) (ranked, error) {
	var (
		snapshots []memory.Snapshot
		rules     []memory.Rule
	)
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		snapshots, err = s.o.Items.Snapshots(gctx, memory.ItemFilter{
			Namespace: a.Namespace, Tool: a.Tool, Statuses: active, AsOf: a.AsOf, Newest: true, Limit: maxOfTool,
		})
		if err != nil {
			return fmt.Errorf("read snapshots of %s: %w", a.Tool, err)
		}
		return nil
	})
	g.Go(func() (err error) {
		if rules, err = s.o.Items.Rules(gctx, memory.ItemFilter{Namespace: a.Namespace, Tool: a.Tool, Statuses: active, AsOf: a.AsOf}); err != nil {
			return fmt.Errorf("read rules about %s: %w", a.Tool, err)
		}
		return nil
	})
	if err := g.Wait(); err != nil {
		return ranked{}, err //nolint:wrapcheck // Each says what it was doing.
	}
	p := newPool()
	loaded := map[string]record{}
	similarity := map[string]float64{}
	parameters := cmp.Or(strings.TrimSpace(string(a.Parameters)), "{}")
	shape := memory.Shape(json.RawMessage(parameters))
	said := map[string]string{}          // by signature, the snapshot that stands for all that say the same: there may be hundreds
	for _, snapshot := range snapshots { // the newest first
		near, known := likeness(parameters, shape, snapshot)
		if !known {
			continue
		}
		id, this := snapshot.SnapshotID, ofSnapshot(snapshot)
		if other, same := said[this.signature]; same {
			that := loaded[other]
			seen := that.item.Seen + this.item.Seen
			if cmp.Or(cmp.Compare(near, similarity[other]), cmp.Compare(this.Confidence, that.Confidence)) <= 0 {
				that.item.Seen = seen
				loaded[other] = that
				continue
			}
			this.item.Seen = seen
			delete(loaded, other)
		}
		said[this.signature] = id
		loaded[id], similarity[id] = this, near
	}
	for id := range loaded {
		p.get(id, memory.LayerSnapshot).direct = true
	}
	for _, r := range rules {
		if r.Kind != memory.RuleCall || a.TaskType != "" && r.TaskType != "" && r.TaskType != a.TaskType {
			continue
		}
		// What a rule needs to know of the steps before is not known here: it is shown then, since it says when it holds.
		if len(r.Predicate) > 0 && memory.RuleApplies(r.Predicate, a.Tool, json.RawMessage(parameters), nil) == memory.AppliesNo {
			continue
		}
		p.get(r.RuleID, memory.LayerRule).direct = true
		loaded[r.RuleID], similarity[r.RuleID] = ofRule(r), 1
	}
	if len(loaded) == 0 {
		return ranked{}, nil
	}
	ids := make([]string, 0, len(loaded))
	for id := range loaded {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	uses, err := s.o.Items.Uses(ctx, a.Namespace, ids)
	if err != nil {
		return ranked{}, fmt.Errorf("count recalls: %w", err)
	}
	q := Question{Namespace: a.Namespace, TaskType: a.TaskType, AsOf: a.AsOf, Preset: memory.PresetExperience}
	return s.rank(q, WayAction, p, loaded, similarity, uses), nil
}

// likeness says how like a call is to a failed one, if it is at all: 1 for the same parameters, 0.8 for a call that
// makes the same mistake. Where the lesson names parameters of the call the mistake is in those, written or left out as
// they were then; otherwise all parameters have to be of the same shape.
func likeness(parameters string, shape map[string]string, s memory.Snapshot) (near float64, known bool) {
	if s.Reflection == nil || s.Reflection.IsOptimal || s.Outcome.Status == events.StatusSuccess && s.Reflection.Alternative == "" {
		return 0, false
	}
	if sameJSON(parameters, s.Decision.Parameters) {
		return 1, true
	}
	failed := memory.Shape(s.Decision.Parameters)
	named := namedParameters(s, failed, shape)
	if len(named) == 0 {
		return 0.8, memory.SameShape(shape, failed)
	}
	for _, path := range named {
		if !memory.SameKind(shape[path], failed[path]) {
			return 0, false
		}
	}
	return 0.8, true
}

var quotedName = regexp.MustCompile("`([^`]{1,100})`")

// namedParameters are the parameters that a lesson names: those that the failed call had and those that this one has.
// A lesson about a parameter that neither has says nothing about this call beyond its shape.
func namedParameters(s memory.Snapshot, failed, shape map[string]string) []string {
	var named []string
	for _, match := range quotedName.FindAllStringSubmatch(s.Reflection.Lesson, -1) {
		name := match[1]
		if name == s.Decision.ToolSelected || slices.Contains(s.TaskContext.AvailableTools, name) || slices.Contains(named, name) {
			continue
		}
		for _, known := range []map[string]string{failed, shape} {
			for path := range known {
				if (path == name || lastName(path) == name) && !slices.Contains(named, path) {
					named = append(named, path)
				}
			}
		}
		if _, has := shape[name]; !has && identifier.MatchString(name) && missing(failed, name) && missing(shape, name) {
			named = append(named, name) // left out then and now
		}
	}
	slices.Sort(named)
	return named
}

// identifier is what a name of a parameter looks like.
var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.\[\]]*$`)

// lastName is the last name of a path: id of payments[].id.
func lastName(path string) string { return path[strings.LastIndex(path, ".")+1:] }

func missing(shape map[string]string, name string) bool {
	for path := range shape {
		if path == name || lastName(path) == name || strings.HasPrefix(path, name+".") || strings.HasPrefix(path, name+"[") {
			return false
		}
	}
	return true
}

// sameJSON compares two JSON values, whatever the order of their fields.
func sameJSON(a string, b json.RawMessage) bool {
	var x, y any
	if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	first, err := json.Marshal(x)
	if err != nil {
		return false
	}
	second, err := json.Marshal(y)
	return err == nil && string(first) == string(second)
}

// rules lists active rules, those with the best lower bound of the lift first.
func (s *Service) rules(ctx context.Context, namespace, taskType string, asOf time.Time) (ranked, error) {
	rules, err := s.o.Items.Rules(ctx, memory.ItemFilter{Namespace: namespace, TaskType: taskType, Statuses: active, AsOf: asOf})
	if err != nil {
		return ranked{}, fmt.Errorf("read rules: %w", err)
	}
	slices.SortFunc(rules, func(a, b memory.Rule) int {
		return cmp.Or(cmp.Compare(b.LiftLow, a.LiftLow), cmp.Compare(b.Support, a.Support), strings.Compare(a.RuleID, b.RuleID))
	})
	var out ranked
	for _, r := range rules {
		item := ofRule(r).item
		item.Score, item.Parts, item.CreatedAt = r.Confidence, map[string]float64{"confidence": r.Confidence, "lift_low": r.LiftLow}, r.Version.RecordedAt
		out.items = append(out.items, item)
	}
	return out, nil
}

// summary tells where a session stands, and what was learnt since.
func (s *Service) summary(ctx context.Context, q Question) (ranked, error) {
	summaries, err := s.o.Items.Summaries(ctx, memory.ItemFilter{
		Namespace: q.Namespace, SessionID: q.SessionID, Statuses: active, AsOf: q.AsOf, Newest: true, Limit: 1,
	})
	if err != nil {
		return ranked{}, fmt.Errorf("read the summary: %w", err)
	}
	filter := memory.ItemFilter{Namespace: q.Namespace, SessionID: q.SessionID, Statuses: active, AsOf: q.AsOf, Newest: true, Limit: perSearch}
	var out ranked
	for _, summary := range summaries {
		filter.RecordedSince = summary.Version.RecordedAt
		out.items = append(out.items, Item{
			ID: summary.SessionID, Layer: memory.LayerSummary, Text: summary.Summary, Lesson: summary.Summary, Trust: memory.TrustAgentInferred,
			Seen: 1, Score: 1, Parts: map[string]float64{"session": 1}, CreatedAt: summary.Version.RecordedAt,
		})
	}
	memories, err := s.o.Items.Memories(ctx, filter)
	if err != nil {
		return ranked{}, fmt.Errorf("read memories of the session: %w", err)
	}
	return ranked{items: append(out.items, s.dated(memories, q)...)}, nil
}

// history tells all that was ever so of an entity, the newest first, whether or not it still is.
func (s *Service) history(ctx context.Context, q Question) (ranked, error) {
	memories, err := s.o.Items.Memories(ctx, memory.ItemFilter{
		Namespace: q.Namespace, Entity: q.Entity, Statuses: []memory.ItemStatus{memory.ItemActive, memory.ItemSuperseded},
		AsOf: q.AsOf, Newest: true, Limit: maxRecent,
	})
	if err != nil {
		return ranked{}, fmt.Errorf("read the history of %q: %w", q.Entity, err)
	}
	return ranked{items: s.dated(memories, q)}, nil
}

// dated shows memories with the time in which they hold.
func (s *Service) dated(memories []memory.Memory, q Question) []Item {
	now := cmp.Or(q.AsOf, s.o.Clock())
	items := make([]Item, 0, len(memories))
	for i, m := range memories {
		item := ofMemory(m, now).item
		item.Note = "since " + m.ValidFrom.UTC().Format(time.RFC3339)
		if m.ValidTo != nil {
			item.Note += ", until " + m.ValidTo.UTC().Format(time.RFC3339)
		}
		item.Score, item.Parts, item.CreatedAt = 1/float64(i+1), map[string]float64{"newest_first": float64(i + 1)}, m.Version.RecordedAt
		items = append(items, item)
	}
	return items
}
