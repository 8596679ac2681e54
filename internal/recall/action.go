package recall

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/memory"
)

// maxOfTool is how many failures of one tool an action is compared with, the newest first.
const maxOfTool = 200

// action finds what is known to go wrong with a call: failed decisions of the same tool that the call repeats in what was
// wrong with them, and active rules about the tool. What only looks alike, or is done already, is left out: a warning that is
// mostly wrong is not read.
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
	call := newProposed(ctx, a)
	common := &commonErrors{calls: s.o.Calls, action: a, snapshots: snapshots}
	told := map[string]bool{}            // errors that the call is about to meet again
	said := map[string]string{}          // by signature, the snapshot that stands for all that say the same: there may be hundreds
	for _, snapshot := range snapshots { // the newest first
		near, on := call.likeness(snapshot)
		if on == bearsOnCase {
			is, err := common.has(ctx, snapshot)
			if err != nil {
				return ranked{}, err
			}
			if !is {
				continue
			}
		}
		if on == bearsNot {
			continue
		}
		id, this := snapshot.SnapshotID, ofSnapshot(snapshot)
		this.item.Text = warning(snapshot)
		switch {
		case on == bearsOnCase: // One is enough to know what goes wrong often.
			near, this.signature = likeCase, inCase+errorOf(snapshot)
		case this.failed:
			told[inCase+errorOf(snapshot)] = true
			this.signature = "advice\x00" + errorOf(snapshot) + "\x00" + normalised(cmp.Or(snapshot.Reflection.Alternative, snapshot.Reflection.Lesson))
		}
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
	for id, this := range loaded {
		if told[this.signature] {
			delete(loaded, id)
			continue
		}
		p.get(id, memory.LayerSnapshot).direct = true
	}
	for _, r := range rules {
		if r.Kind != memory.RuleCall || a.TaskType != "" && r.TaskType != "" && r.TaskType != a.TaskType || !call.breaks(a.Tool, r) {
			continue
		}
		p.get(r.RuleID, memory.LayerRule).direct = true
		this := ofRule(r)
		this.item.Text = ruleWarning(r)
		loaded[r.RuleID], similarity[r.RuleID] = this, 1
		for id, other := range loaded { // A rule quotes the best lesson behind it.
			if other.item.Layer == memory.LayerSnapshot && strings.Contains(normalised(r.Action), normalised(other.item.Lesson)) {
				delete(loaded, id)
				delete(p.found, id)
			}
		}
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

// inCase begins the signature of what is known of an error that depends on the case at hand.
const inCase = "case\x00"

const (
	// likeCall is how like a call is that makes the same mistake with other values, and likeCase one of which only is known
	// that its tool fails so often.
	likeCall = 0.8
	likeCase = 0.6
	// commonShare is in which share of the tasks that call a tool a failure has been seen that depends on the case at hand,
	// for a call with other values to be warned of it, and unseenTasks how many more tasks are taken to have gone well, so
	// that the first that is seen does not stand for all. On recorded runs four of five repeated errors reach it, and one in
	// sixteen of the calls that work; without a limit it was every second.
	commonShare = 1.0 / 8
	unseenTasks = 2
)

// commonErrors tells which failures of a tool are so common that a call with other values is warned of them as well.
type commonErrors struct {
	calls     CallCounter
	action    Action
	snapshots []memory.Snapshot
	// tasks holds, by error, those that met it; all counts those that call the tool. They are counted when first asked for.
	tasks map[string]map[string]bool
	all   int
}

func (c *commonErrors) has(ctx context.Context, s memory.Snapshot) (bool, error) {
	if c.calls == nil || errorOf(s) == "" {
		return false, nil
	}
	if c.tasks == nil {
		c.tasks = map[string]map[string]bool{}
		for _, snapshot := range c.snapshots {
			sign := errorOf(snapshot)
			if c.tasks[sign] == nil {
				c.tasks[sign] = map[string]bool{}
			}
			c.tasks[sign][snapshot.TaskID] = true
		}
	}
	if c.all == 0 {
		var since time.Time
		if len(c.snapshots) == maxOfTool { // Earlier ones were not looked at.
			since = c.snapshots[len(c.snapshots)-1].Timestamp
		}
		var err error
		if c.all, err = c.calls.ToolTasks(ctx, c.action.Namespace, c.action.Tool, since, c.action.AsOf); err != nil {
			return false, fmt.Errorf("count tasks that call %s: %w", c.action.Tool, err)
		}
		c.all = max(c.all, 1)
	}
	return float64(len(c.tasks[errorOf(s)])) >= commonShare*float64(c.all+unseenTasks), nil
}

// errorOf is the error of a snapshot without its values; empty for one whose call succeeded.
func errorOf(s memory.Snapshot) string {
	if s.Outcome.Status != events.StatusFailure {
		return ""
	}
	return memory.ErrorSignature(cmp.Or(s.Outcome.ErrorMessage, s.Outcome.ErrorType))
}

// proposed is a call that is about to be made.
type proposed struct {
	parameters string
	shape      map[string]string
	values     map[string][]memory.Value
	// done reports a tool that is known to have succeeded earlier in the task.
	done func(tool string) bool
}

func newProposed(ctx context.Context, a Action) proposed {
	parameters := cmp.Or(strings.TrimSpace(string(a.Parameters)), "{}")
	p := proposed{parameters: parameters, shape: memory.Shape(json.RawMessage(parameters)), values: memory.ParameterValues(json.RawMessage(parameters))}
	succeeded := sync.OnceValue(func() []string {
		if a.Succeeded == nil {
			return nil
		}
		return a.Succeeded(ctx)
	})
	p.done = func(tool string) bool { return slices.Contains(succeeded(), tool) }
	return p
}

// breaks reports a call that a rule is about. What it wants to know of the steps before may not be known: it is shown
// then, since it says when it holds.
func (p proposed) breaks(tool string, r memory.Rule) bool {
	if len(r.Predicate) == 0 {
		return true
	}
	switch memory.RuleApplies(r.Predicate, tool, json.RawMessage(p.parameters), nil) {
	case memory.AppliesNo:
		return false
	case memory.AppliesYes:
		return true
	case memory.AppliesUnknown:
	}
	predicate, err := memory.ParsePredicate(r.Predicate)
	return err == nil && !slices.ContainsFunc(predicate.All, func(c memory.Condition) bool {
		return c.Is == memory.ConditionWithout && p.done(c.Tool)
	})
}

// likeness says how like a call is to a failed one, 1 for the same parameters, and what its lesson has to say about it.
func (p proposed) likeness(s memory.Snapshot) (near float64, on bearing) {
	if s.Reflection == nil || s.Reflection.IsOptimal || s.Outcome.Status == events.StatusSuccess && s.Reflection.Alternative == "" {
		return 0, bearsNot
	}
	if slices.Contains(s.Tags, string(memory.FindingLastWrite)) {
		return 0, bearsNot // It says to look twice, which holds for any call.
	}
	c := compared{
		tool: s.Decision.ToolSelected, available: s.TaskContext.AvailableTools,
		failed: memory.ParameterValues(s.Decision.Parameters), call: p.values,
		failedShape: memory.Shape(s.Decision.Parameters), callShape: p.shape, done: p.done,
	}
	switch {
	case c.heeded(*s.Reflection):
		return 0, bearsNot
	case sameJSON(p.parameters, s.Decision.Parameters):
		return 1, bearsOnCall
	default:
		return likeCall, c.bearingOf(*s.Reflection)
	}
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
