package consolidate

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/memory"
)

const (
	// candidateTasks is how many tasks must have met a failure or a pattern to make it a candidate.
	candidateTasks = 3
	// minGoals and minVoices are how many goals and independent voices must support a rule.
	minGoals  = 2
	minVoices = 2
	// maxEvidence bounds the ids of events that a rule names.
	maxEvidence = 20
	// sameTasks is the share of tasks in common from which two rules of one type of task say the same.
	sameTasks = 0.8
	// maxPathsOfTool bounds how many parameters of one tool are looked at.
	maxPathsOfTool = 60
)

// Shares of the probability of believing any pattern by chance, for each type of task and family of patterns. Together
// they are the 10 % that an interval of 90 % leaves. A family has its own share so that the few errors, which are worth
// knowing, need not compete with the many orders of tools.
const (
	alphaErrors = 0.05
	alphaCalls  = 0.05
	alphaTools  = 0.025
	alphaOrders = 0.025
)

// family is a kind of pattern.
type family int

const (
	familyErrors family = iota
	familyCalls
	familyTools
	familyOrders
)

func (f family) alpha() float64 {
	switch f {
	case familyErrors:
		return alphaErrors
	case familyCalls:
		return alphaCalls
	case familyTools:
		return alphaTools
	case familyOrders:
	}
	return alphaOrders
}

// byGoal reports whether a family compares tasks of the same goal only. Which tools a task calls follows from what it is
// about, and what it is about from its goal, so that over all goals every tool of a difficult goal would seem to be a
// mistake. An error is a mishap wherever it happens.
func (f family) byGoal() bool { return f == familyTools || f == familyOrders }

// digest is what rules need of a task.
type digest struct {
	memory.Task
	failed    bool
	confirmed bool
	outage    bool
	// shapes are those of the parameters of each step, read once.
	shapes []map[string]string
	// signatures are those of failed steps, and empty for outages, which are nobody's fault.
	signatures []string
	// copy marks a task that another one of the same agent equals, step by step and in its outcome: it is heard once.
	copy bool
}

// digestOf reads a task; usable is false where it has no outcome that somebody stated.
func digestOf(t memory.Task) (d digest, usable bool) {
	if !t.Closed || t.Certainty == memory.CertaintyInferred || t.Status != events.StatusSuccess && t.Status != events.StatusFailure {
		return digest{}, false
	}
	d = digest{Task: t, failed: t.Status == events.StatusFailure, confirmed: t.Certainty == memory.CertaintyConfirmed}
	d.shapes, d.signatures = make([]map[string]string, len(d.Steps)), make([]string, len(d.Steps))
	for i := range d.Steps {
		s := &d.Steps[i]
		d.shapes[i] = memory.Shape(s.Parameters)
		s.Result, s.Reasoning = "", "" // not needed, and most of the memory
		if isOutage(*s) {
			d.outage = true
			s.Status = events.StatusUnknown // It says nothing of the call.
		}
		d.signatures[i] = memory.StepSignature(*s)
	}
	return d, true
}

func isOutage(s memory.Step) bool {
	return s.Status == events.StatusFailure && memory.EnvironmentFault(s.ErrorType, s.ErrorMessage) != memory.FaultNone
}

// fingerprint is what copies of a task have in common.
func (d digest) fingerprint() string {
	parts := []string{d.AgentID, string(d.Status)}
	for _, s := range d.Steps {
		parts = append(parts, s.Tool, string(s.Parameters), string(s.Status), s.ErrorMessage)
	}
	return memory.HashID(parts...)
}

// goal is what tasks that try the same have in common. A task that names none is a goal of its own for comparing, and
// vouches for none.
func (d digest) goal() string { return cmp.Or(d.GoalID, "task "+d.TaskID) }

// markCopies marks all but the earliest of equal tasks.
func markCopies(tasks []digest) {
	slices.SortFunc(tasks, func(a, b digest) int {
		return cmp.Or(a.StartedAt.Compare(b.StartedAt), strings.Compare(a.TaskID, b.TaskID))
	})
	seen := map[string]bool{}
	for i := range tasks {
		same := tasks[i].fingerprint()
		tasks[i].copy = seen[same] && len(tasks[i].Steps) > 0
		seen[same] = true
	}
}

// pattern is a predicate with what the tasks say about it.
type pattern struct {
	family    family
	kind      memory.RuleKind
	tool      string
	signature string
	predicate memory.Predicate

	// contrasts are those of all tasks, or of each goal.
	contrasts []memory.Contrast
	all       memory.Contrast
	// supporting and refuting are the tasks, copies left out; evidence are events of those that support.
	supporting, refuting []int
	evidence             []string
	goals, voices        int
	// expected is how many of the matching tasks would have failed if they failed as often as the others.
	expected      float64
	lift, low     float64
	chance, least float64
	// matched are all tasks that match, by index, with their vote.
	matched map[int]bool
}

func (p *pattern) id(namespace, taskType string) string {
	return memory.RuleID(namespace, taskType, p.kind, p.tool, p.signature, p.predicate)
}

// accepted reports whether a pattern is a rule, given the limit of its family.
func (p *pattern) accepted(limit float64) bool {
	if p.kind == memory.RuleCall && len(p.supporting) < len(p.refuting) {
		return false // A warning that is mostly wrong is not read.
	}
	return p.low > 1 && p.chance <= limit && p.goals >= minGoals && p.voices >= minVoices && len(p.supporting) >= candidateTasks && len(p.evidence) > 0
}

// shown reports whether a task was shown a rule, so that it says nothing about how often things go wrong by themselves.
func shown(d digest, id string) bool { return !d.Withheld && slices.Contains(d.Recalled, id) }

// measure counts what the tasks of one type say about a pattern.
func (p *pattern) measure(namespace, taskType string, tasks []digest) {
	id := p.id(namespace, taskType)
	byGoal := map[string]*memory.Contrast{}
	var order []string
	p.matched = map[int]bool{}
	type ballot struct {
		index  int
		failed bool
		goal   string
	}
	var ballots []ballot
	for i, d := range tasks {
		match, matchFailed, other, otherFailed, _ := p.vote(d)
		if match {
			p.matched[i] = matchFailed
		}
		if d.copy || shown(d, id) || p.family.byGoal() && d.outage {
			continue
		}
		goal := ""
		if p.family.byGoal() {
			goal = d.goal()
		}
		c := byGoal[goal]
		if c == nil {
			c = &memory.Contrast{}
			byGoal[goal] = c
			order = append(order, goal)
		}
		if match {
			c.Matching++
			if matchFailed {
				c.MatchingFailed++
			}
			ballots = append(ballots, ballot{i, matchFailed, goal})
		}
		if other {
			c.Other++
			if otherFailed {
				c.OtherFailed++
			}
		}
	}
	for _, goal := range order {
		c := *byGoal[goal]
		p.all.Matching, p.all.MatchingFailed = p.all.Matching+c.Matching, p.all.MatchingFailed+c.MatchingFailed
		p.all.Other, p.all.OtherFailed = p.all.Other+c.Other, p.all.OtherFailed+c.OtherFailed
		p.contrasts = append(p.contrasts, c)
	}
	for _, b := range ballots {
		if p.family.byGoal() && !byGoal[b.goal].Informative() {
			continue // it says nothing
		}
		if b.failed {
			p.supporting = append(p.supporting, b.index)
		} else {
			p.refuting = append(p.refuting, b.index)
		}
	}
	for _, c := range p.contrasts {
		if c.Other > 0 && (!p.family.byGoal() || c.Informative()) {
			p.expected += float64(c.Matching) * float64(c.OtherFailed) / float64(c.Other)
		}
	}
	p.goals, p.voices = independent(tasks, p.supporting)
	p.lift, p.low = memory.Lift(p.contrasts...)
	p.chance, p.least = memory.Chance(p.contrasts...)
	for _, i := range p.supporting {
		if len(p.evidence) == maxEvidence {
			break
		}
		if _, _, _, _, event := p.vote(tasks[i]); event != "" {
			p.evidence = append(p.evidence, event)
		}
	}
}

// vote says what one task says about the pattern: whether it matches, and whether it failed where it does; whether it is
// also among the others, and failed there. A task has calls of both kinds where a call was repaired. event decides.
func (p *pattern) vote(d digest) (match, matchFailed, other, otherFailed bool, event string) {
	if p.kind == memory.RuleTask {
		if !p.predicate.HoldsForTask(d.Steps) {
			return false, false, true, d.failed, ""
		}
		return true, d.failed, false, false, p.taskEvent(d)
	}
	for i, s := range d.Steps {
		if s.Tool != p.predicate.Call || s.Status == events.StatusUnknown {
			continue
		}
		failed := d.signatures[i] == p.signature
		if p.predicate.HoldsForCall(s.Tool, d.shapes[i], d.Steps[:i]) {
			if failed && !matchFailed || event == "" {
				event = s.EventID
			}
			match, matchFailed = true, matchFailed || failed
		} else {
			other, otherFailed = true, otherFailed || failed
		}
	}
	return match, matchFailed, other, otherFailed, event
}

// taskEvent is the event that shows that a task matches; for something left out it is its last step.
func (p *pattern) taskEvent(d digest) string {
	c := p.predicate.All[0]
	for i, s := range d.Steps {
		switch {
		case p.signature != "" && (s.Tool != p.tool || d.signatures[i] != p.signature):
		case c.Is == memory.ConditionUnused:
		case s.Tool == cmp.Or(c.Then, c.Tool):
			return s.EventID
		}
	}
	if len(d.Steps) > 0 {
		return d.Steps[len(d.Steps)-1].EventID
	}
	return ""
}

// independent counts the goals of tasks and their independent voices: different agents, or different goals whose outcome
// somebody other than the agent confirmed.
func independent(tasks []digest, indexes []int) (goals, voices int) {
	distinct, agents, confirmed := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, i := range indexes {
		d := tasks[i]
		distinct[d.GoalID] = true
		agents[d.AgentID] = true
		if d.confirmed && d.GoalID != "" {
			confirmed[d.GoalID] = true
		}
	}
	return len(distinct), max(len(agents), len(confirmed))
}

// mined is what the tasks of one type give.
type mined struct {
	rules []*pattern
	// candidates are errors that recur and are no rule.
	candidates []*pattern
	// tried is how many patterns were looked at, limits up to which probability each family believed one.
	tried  int
	limits map[family]float64
}

// mine looks for rules in the tasks of one type.
func mine(namespace, taskType string, tasks []digest) mined {
	out := mined{limits: map[family]float64{}}
	all := map[family][]*pattern{
		familyErrors: errorPatterns(tasks), familyCalls: callPatterns(tasks), familyTools: toolPatterns(tasks), familyOrders: orderPatterns(tasks),
	}
	for _, f := range []family{familyErrors, familyCalls, familyTools, familyOrders} {
		least := make([]float64, 0, len(all[f]))
		for _, p := range all[f] {
			p.measure(namespace, taskType, tasks)
			least = append(least, p.least)
		}
		out.tried += len(all[f])
		out.limits[f] = memory.ChanceLimit(f.alpha(), least)
		for _, p := range all[f] {
			if p.accepted(out.limits[f]) {
				out.rules = append(out.rules, p)
			}
		}
	}
	out.rules = distinctRules(out.rules)
	for _, p := range all[familyErrors] {
		ruled := slices.ContainsFunc(out.rules, func(r *pattern) bool { return r.tool == p.tool && r.signature == p.signature })
		if !ruled && p.predicate.All[0].Is == memory.ConditionError && len(p.evidence) > 0 {
			out.candidates = append(out.candidates, p)
		}
	}
	return out
}

// distinctRules keeps of rules about the same tasks or the same error of the same kind the best.
func distinctRules(rules []*pattern) []*pattern {
	sortPatterns(rules)
	var out []*pattern
	for _, p := range rules {
		same := slices.ContainsFunc(out, func(q *pattern) bool {
			if p.kind != q.kind {
				return false
			}
			if p.signature != "" || q.signature != "" {
				return p.tool == q.tool && p.signature == q.signature
			}
			return inCommon(p.matched, q.matched) >= sameTasks
		})
		if !same {
			out = append(out, p)
		}
	}
	return out
}

func inCommon(a, b map[int]bool) float64 {
	both := 0
	for i := range a {
		if _, in := b[i]; in {
			both++
		}
	}
	if both == 0 {
		return 0
	}
	return float64(both) / float64(len(a)+len(b)-both)
}

// sortPatterns puts first what is best supported.
func sortPatterns(patterns []*pattern) {
	slices.SortStableFunc(patterns, func(a, b *pattern) int {
		return cmp.Or(cmp.Compare(worth(b.low, len(b.supporting)), worth(a.low, len(a.supporting))),
			strings.Compare(string(a.predicate.JSON()), string(b.predicate.JSON())))
	})
}

// worth is what rules of one type compete by.
func worth(low float64, support int) float64 { return low * float64(support) }

// failure names a recurring error.
type failure struct{ tool, signature string }

// failures finds errors that at least three tasks have met, copies left out. Outages are none.
func failures(tasks []digest) []failure {
	met := map[failure]int{}
	for _, d := range tasks {
		if d.copy {
			continue
		}
		here := map[failure]bool{}
		for i, s := range d.Steps {
			if d.signatures[i] != "" && s.Tool != "" {
				here[failure{s.Tool, d.signatures[i]}] = true
			}
		}
		for f := range here {
			met[f]++
		}
	}
	maps.DeleteFunc(met, func(_ failure, n int) bool { return n < candidateTasks })
	return slices.SortedFunc(maps.Keys(met), func(a, b failure) int {
		return cmp.Or(strings.Compare(a.tool, b.tool), strings.Compare(a.signature, b.signature))
	})
}

func errorPatterns(tasks []digest) []*pattern {
	var out []*pattern
	for _, f := range failures(tasks) {
		for _, is := range []memory.ConditionKind{memory.ConditionError, memory.ConditionUnrepaired} {
			out = append(out, &pattern{
				family: familyErrors, kind: memory.RuleTask, tool: f.tool, signature: f.signature,
				predicate: memory.Predicate{All: []memory.Condition{{Is: is, Tool: f.tool, ErrorSignature: f.signature}}},
			})
		}
	}
	return out
}

// callPatterns are what failing calls of one error have, and calls of that tool may have or not: a precondition that is
// missing, a parameter that is there or not, or is written in some way, or all of them together.
func callPatterns(tasks []digest) []*pattern {
	var out []*pattern
	for _, f := range failures(tasks) {
		conditions := map[string]memory.Condition{}
		counts := map[string]map[string]bool{}
		add := func(task string, c memory.Condition) {
			key := string(memory.Predicate{Call: f.tool, All: []memory.Condition{c}}.JSON())
			conditions[key] = c
			if counts[key] == nil {
				counts[key] = map[string]bool{}
			}
			counts[key][task] = true
		}
		preconditions, paths := beforeSuccess(tasks, f.tool)
		for _, d := range tasks {
			if d.copy {
				continue
			}
			done := map[string]bool{}
			for i, s := range d.Steps {
				if s.Tool == f.tool && d.signatures[i] == f.signature {
					shape := d.shapes[i]
					for _, tool := range preconditions {
						if !done[tool] {
							add(d.TaskID, memory.Condition{Is: memory.ConditionWithout, Tool: tool})
						}
					}
					for _, path := range paths {
						if format, has := shape[path]; has {
							add(d.TaskID, memory.Condition{Is: memory.ConditionPresent, Path: path})
							add(d.TaskID, memory.Condition{Is: memory.ConditionFormat, Path: path, Format: format})
						} else {
							add(d.TaskID, memory.Condition{Is: memory.ConditionAbsent, Path: path})
						}
					}
					add(d.TaskID, memory.Condition{Is: memory.ConditionShape, Shape: shape})
				}
				if s.Status == events.StatusSuccess {
					done[s.Tool] = true
				}
			}
		}
		for _, key := range slices.Sorted(maps.Keys(conditions)) {
			if len(counts[key]) < candidateTasks {
				continue
			}
			out = append(out, &pattern{
				family: familyCalls, kind: memory.RuleCall, tool: f.tool, signature: f.signature,
				predicate: memory.Predicate{Call: f.tool, All: []memory.Condition{conditions[key]}},
			})
		}
	}
	return out
}

// beforeSuccess lists the tools that succeeded before calls of a tool that worked, in at least three tasks, and the
// parameters that the tool is called with anywhere.
func beforeSuccess(tasks []digest, tool string) (tools, paths []string) {
	before, seen := map[string]int{}, map[string]bool{}
	for _, d := range tasks {
		if d.copy {
			continue
		}
		done, counted := map[string]bool{}, map[string]bool{}
		for i, s := range d.Steps {
			if s.Tool == tool {
				for path := range d.shapes[i] {
					seen[path] = true
				}
				if s.Status == events.StatusSuccess {
					for other := range done {
						counted[other] = true
					}
				}
			}
			if s.Status == events.StatusSuccess && s.Tool != tool {
				done[s.Tool] = true
			}
		}
		for other := range counted {
			before[other]++
		}
	}
	maps.DeleteFunc(before, func(_ string, n int) bool { return n < candidateTasks })
	paths = slices.Sorted(maps.Keys(seen))
	return slices.Sorted(maps.Keys(before)), paths[:min(len(paths), maxPathsOfTool)]
}

// callsOf lists the tools of a task in the order of their first calls.
func callsOf(d digest) []string {
	var out []string
	for _, s := range d.Steps {
		if s.Tool != "" && !slices.Contains(out, s.Tool) {
			out = append(out, s.Tool)
		}
	}
	return out
}

// toolPatterns are tools that tasks call or never call.
func toolPatterns(tasks []digest) []*pattern {
	used, counted := map[string]int{}, 0
	for _, d := range tasks {
		if d.copy {
			continue
		}
		counted++
		for _, tool := range callsOf(d) {
			used[tool]++
		}
	}
	var out []*pattern
	for _, tool := range slices.Sorted(maps.Keys(used)) {
		if used[tool] < candidateTasks || counted-used[tool] < candidateTasks {
			continue
		}
		for _, is := range []memory.ConditionKind{memory.ConditionUsed, memory.ConditionUnused} {
			out = append(out, &pattern{
				family: familyTools, kind: memory.RuleTask, tool: tool,
				predicate: memory.Predicate{All: []memory.Condition{{Is: is, Tool: tool}}},
			})
		}
	}
	return out
}

// orderPatterns are pairs of tools that tasks call first in one order.
func orderPatterns(tasks []digest) []*pattern {
	met := map[[2]string]int{}
	for _, d := range tasks {
		if d.copy {
			continue
		}
		calls := callsOf(d)
		for i, first := range calls {
			for _, then := range calls[i+1:] {
				met[[2]string{first, then}]++
			}
		}
	}
	var out []*pattern
	for _, pair := range slices.SortedFunc(maps.Keys(met), func(a, b [2]string) int {
		return cmp.Or(strings.Compare(a[0], b[0]), strings.Compare(a[1], b[1]))
	}) {
		// Only a pair that is met in both orders is a question of order.
		if met[pair] < candidateTasks || met[[2]string{pair[1], pair[0]}] == 0 {
			continue
		}
		out = append(out, &pattern{
			family: familyOrders, kind: memory.RuleTask, tool: pair[1],
			predicate: memory.Predicate{All: []memory.Condition{{Is: memory.ConditionOrder, Tool: pair[0], Then: pair[1]}}},
		})
	}
	return out
}

// confidence is how often a rule was right, with the prior of its pooled rate; past 0.9 only with five voices.
func (p *pattern) confidence() float64 {
	support, refute := float64(len(p.supporting)), float64(len(p.refuting))
	all := p.all.Matching + p.all.Other
	rate := 0.5
	if all > 0 {
		rate = float64(p.all.MatchingFailed+p.all.OtherFailed) / float64(all)
	}
	c := (support + 2*rate) / (support + refute + 2)
	if p.voices < 5 {
		c = min(c, 0.9)
	}
	return math.Round(min(c, 0.97)*1000) / 1000
}
