package consolidate

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hindsight-memory/hindsight/internal/memory"
)

// maxActive is how many rules of one type of task are active at most, those of people included.
const maxActive = 5

// inducer draws rules from what recurs among tasks, and lets those go that no longer hold.
type inducer struct{ maxTasks int }

func (in inducer) run(ctx context.Context, w *work) error {
	types, read, err := in.tasks(ctx, w)
	if err != nil {
		return err
	}
	existing, err := w.record.Rules(ctx, memory.ItemFilter{Namespace: w.namespace})
	if err != nil {
		return fmt.Errorf("read rules: %w", err)
	}
	known := map[string][]memory.Rule{}
	for _, r := range existing {
		known[r.TaskType] = append(known[r.TaskType], r)
	}
	w.count("tasks", read)
	names := slices.Sorted(maps.Keys(types))
	for _, taskType := range names {
		if err := in.induceType(ctx, w, taskType, types[taskType], known[taskType]); err != nil {
			return fmt.Errorf("rules of %q: %w", taskType, err)
		}
	}
	return nil
}

// tasks reads what rules are drawn from: closed tasks with an outcome, by type, the newest if there are too many.
func (in inducer) tasks(ctx context.Context, w *work) (types map[string][]digest, read int, err error) {
	types = map[string][]digest{}
	for t, err := range w.record.Tasks(ctx, memory.TaskFilter{Namespace: w.namespace, Newest: true, Limit: in.maxTasks}) {
		if err != nil {
			return nil, 0, fmt.Errorf("read tasks: %w", err)
		}
		if d, usable := digestOf(t); usable && t.TaskType != "" {
			types[t.TaskType] = append(types[t.TaskType], d)
			read++
		}
	}
	for _, tasks := range types {
		markCopies(tasks)
	}
	return types, read, nil
}

// ours reports whether the current version of a rule is a program's, which a program may change.
func ours(r memory.Rule) bool {
	if r.Version.WriterKind == memory.WriterPerson {
		return false
	}
	switch r.Status {
	case memory.ItemActive, memory.ItemCandidate, memory.ItemRetired, memory.ItemSuperseded:
		return true
	case memory.ItemPendingReview, memory.ItemQuarantined, memory.ItemArchived, memory.ItemForgotten:
	}
	return false
}

// induceType decides the rules of one type of task.
func (in inducer) induceType(ctx context.Context, w *work, taskType string, tasks []digest, known []memory.Rule) error {
	found := mine(w.namespace, taskType, tasks)
	byID := map[string]memory.Rule{}
	for _, r := range known {
		byID[r.RuleID] = r
	}
	patterns := map[string]*pattern{}
	decided := map[string]memory.Rule{}
	for _, p := range found.candidates {
		in.decide(w, taskType, p, memory.ItemCandidate, "it recurs, but does not make a task fail more often than others", byID, patterns, decided)
	}
	for _, p := range found.rules {
		in.decide(w, taskType, p, memory.ItemActive, "", byID, patterns, decided)
	}
	for _, r := range known {
		in.review(w, taskType, tasks, r, patterns, decided)
	}
	lessons, err := readLessons(ctx, w, taskType, tasks, patterns, decided)
	if err != nil {
		return err
	}
	relations := contradictions(patterns, decided, byID)
	limitActive(known, decided, patterns)
	var changed []memory.Rule
	var ballots []memory.Vote
	for _, id := range slices.Sorted(maps.Keys(decided)) {
		r := decided[id]
		if p := patterns[id]; p != nil {
			word(&r, p, tasks, lessons[id])
			if r.Status == memory.ItemActive || r.Status == memory.ItemCandidate {
				ballots = append(ballots, p.ballots(id, tasks)...)
			}
		}
		before, existed := byID[id]
		if existed && sameRule(before, r) {
			continue
		}
		r.Timestamp, r.Version = w.run.StartedAt, before.Version
		changed = append(changed, r)
		if !existed || before.Status != r.Status {
			w.count("rules_"+string(r.Status), 1)
		} else {
			w.count("rules_changed", 1)
		}
	}
	fresh, err := newVotes(ctx, w, ballots)
	if err != nil {
		return err
	}
	w.count("votes", len(fresh))
	w.count("patterns", found.tried)
	if err := w.rules(ctx, changed); err != nil {
		return err
	}
	if err := w.relations(ctx, relations); err != nil {
		return err
	}
	return w.votes(ctx, fresh)
}

// decide enters a pattern as a rule of a status, unless a person has the say over it.
func (in inducer) decide(w *work, taskType string, p *pattern, status memory.ItemStatus, reason string, byID map[string]memory.Rule, patterns map[string]*pattern, decided map[string]memory.Rule) {
	id := p.id(w.namespace, taskType)
	before, existed := byID[id]
	if existed && !ours(before) {
		return
	}
	if existed && status == memory.ItemCandidate && before.Status != memory.ItemCandidate {
		return // what was a rule once is reviewed, and not put back among the candidates
	}
	r := memory.Rule{
		RuleID: id, Namespace: w.namespace, TaskType: taskType, Kind: p.kind, Tool: p.tool, ErrorSignature: p.signature,
		Predicate: p.predicate.JSON(), Pinned: before.Pinned, Tags: before.Tags,
		Judged: memory.Judged{Trust: memory.TrustAgentInferred, Status: status, StatusReason: reason},
	}
	patterns[id], decided[id] = p, r
}

// review looks again at a rule that was not found anew. An active one stays while its lift is above 1 at all; one that
// turned retires, unless it is pinned. A candidate that no longer is one retires too.
func (in inducer) review(w *work, taskType string, tasks []digest, r memory.Rule, patterns map[string]*pattern, decided map[string]memory.Rule) {
	if _, done := decided[r.RuleID]; done || !ours(r) {
		return
	}
	predicate, err := memory.ParsePredicate(r.Predicate)
	if err != nil || r.Status != memory.ItemActive && r.Status != memory.ItemCandidate {
		return
	}
	p := &pattern{family: familyOf(r.Kind, predicate), kind: r.Kind, tool: r.Tool, signature: r.ErrorSignature, predicate: predicate}
	p.measure(w.namespace, taskType, tasks)
	if p.all.Matching == 0 || len(p.supporting) == 0 && len(p.refuting) == 0 {
		return // Nothing is known of it any more, and nothing against it.
	}
	switch {
	case r.Pinned:
	case r.Status == memory.ItemCandidate:
		r.Status, r.StatusReason = memory.ItemRetired, "another rule covers it, or it recurs no more"
	case p.low <= 1:
		r.Status = memory.ItemRetired
		r.StatusReason = fmt.Sprintf("its votes turned: the lower bound of the lift fell to %.2f", p.low)
	}
	if len(p.evidence) == 0 {
		p.evidence = r.Evidence
	}
	patterns[r.RuleID], decided[r.RuleID] = p, r
}

func familyOf(kind memory.RuleKind, p memory.Predicate) family {
	if kind == memory.RuleCall {
		return familyCalls
	}
	switch p.All[0].Is {
	case memory.ConditionError, memory.ConditionUnrepaired:
		return familyErrors
	case memory.ConditionOrder:
		return familyOrders
	default:
		return familyTools
	}
}

// contradictions lets of two active rules that advise against each other the better one stand.
func contradictions(patterns map[string]*pattern, decided, known map[string]memory.Rule) []memory.Relation {
	var out []memory.Relation
	ids := slices.SortedFunc(maps.Keys(decided), func(a, b string) int {
		p, q := patterns[a], patterns[b]
		return cmp.Or(cmp.Compare(worth(q.low, len(q.supporting)), worth(p.low, len(p.supporting))), strings.Compare(a, b))
	})
	for i, winner := range ids {
		for _, loser := range ids[i+1:] {
			a, b := decided[winner], decided[loser]
			if a.Status != memory.ItemActive || b.Status != memory.ItemActive || b.Pinned || !patterns[winner].predicate.Contradicts(patterns[loser].predicate) {
				continue
			}
			b.Status, b.StatusReason = memory.ItemSuperseded, "contradicted by rule "+winner+", which is better supported"
			decided[loser] = b
			if known[loser].Status != memory.ItemSuperseded {
				out = append(out, memory.Relation{
					FromID: loser, Kind: memory.RelationContradicts, ToID: winner, Weight: 1, Reason: "they advise the opposite of each other",
				})
			}
		}
	}
	return out
}

// limitActive keeps the best rules of a type active and makes candidates of the others. Pinned rules and those of people
// keep their places.
func limitActive(known []memory.Rule, decided map[string]memory.Rule, patterns map[string]*pattern) {
	taken := 0
	for _, r := range known {
		if _, is := decided[r.RuleID]; !is && r.Status == memory.ItemActive {
			taken++
		}
	}
	var ids []string
	for id, r := range decided {
		switch {
		case r.Status != memory.ItemActive:
		case r.Pinned:
			taken++
		default:
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b string) int {
		x, y := patterns[a], patterns[b]
		return cmp.Or(cmp.Compare(worth(y.low, len(y.supporting)), worth(x.low, len(x.supporting))), strings.Compare(a, b))
	})
	for i, id := range ids {
		if taken+i < maxActive {
			continue
		}
		r := decided[id]
		r.Status, r.StatusReason = memory.ItemCandidate, fmt.Sprintf("%d rules of this type are better supported", maxActive)
		decided[id] = r
	}
}

// sameRule reports whether a rule says what it said before.
func sameRule(a, b memory.Rule) bool {
	plain := func(r memory.Rule) string {
		r.Timestamp, r.Version = b.Timestamp, memory.Version{}
		raw, err := json.Marshal(r)
		if err != nil {
			return fmt.Sprint(r)
		}
		return string(raw)
	}
	return plain(a) == plain(b)
}

// ballots are the votes of all tasks that match, copies and those that were shown the rule included, which are marked.
func (p *pattern) ballots(id string, tasks []digest) []memory.Vote {
	var out []memory.Vote
	for _, i := range slices.Sorted(maps.Keys(p.matched)) {
		d := tasks[i]
		_, _, _, _, event := p.vote(d)
		by := "agent"
		if d.confirmed {
			by = "system"
		}
		out = append(out, memory.Vote{
			RuleID: id, TaskID: d.TaskID, TaskRevision: d.Revision, Support: p.matched[i], GoalID: d.GoalID, AgentID: d.AgentID,
			ConfirmedBy: by, Shown: shown(d, id), EventID: event,
		})
	}
	return out
}

// newVotes leaves out the votes that are known.
func newVotes(ctx context.Context, w *work, ballots []memory.Vote) ([]memory.Vote, error) {
	if len(ballots) == 0 {
		return nil, nil
	}
	var ids []string
	for _, v := range ballots {
		if !slices.Contains(ids, v.RuleID) {
			ids = append(ids, v.RuleID)
		}
	}
	votes, err := w.record.Votes(ctx, w.namespace, ids)
	if err != nil {
		return nil, fmt.Errorf("read votes: %w", err)
	}
	type key struct{ rule, task string }
	known := make(map[key]memory.Vote, len(votes))
	for _, v := range votes {
		known[key{v.RuleID, v.TaskID}] = v
	}
	return slices.DeleteFunc(ballots, func(v memory.Vote) bool {
		k, is := known[key{v.RuleID, v.TaskID}]
		return is && k.TaskRevision == v.TaskRevision && k.Support == v.Support && k.Shown == v.Shown
	}), nil
}
