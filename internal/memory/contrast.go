package memory

import (
	"cmp"
	"slices"
	"strings"

	"github.com/hindsight-memory/hindsight/events"
)

// Peer is a task of the same type that succeeded, and what its user said. It wants something else of something else, so
// that only what does not depend on the instance can be compared: which calls were made, and values that are the tool's own.
type Peer struct {
	Task Task
	said []string
	// plain is true when the goal alone said what was to be done, and few calls did it; see [plain].
	plain bool
}

// NewPeer makes a peer of a task and its events.
func NewPeer(t Task, evs []events.Event) Peer {
	line := timeline(t, evs)
	return Peer{Task: t, said: userTexts(line), plain: plain(t, line)}
}

// maxPlainCalls is how many calls that change something a plain task has at most.
const maxPlainCalls = 4

// plain reports a task of which the goal alone said what was to be done, and that did it in few calls, each of a tool of its
// own. Which calls two such tasks of a type have may be compared: where the user went on asking, or much was done, another
// call may just be another wish.
func plain(t Task, line []moment) bool {
	calls := acts(t)
	if len(calls) == 0 {
		calls = []int{len(t.Steps) - 1}
	}
	if len(calls) > maxPlainCalls {
		return false
	}
	for n, i := range calls {
		if i >= 0 && slices.ContainsFunc(calls[:n], func(j int) bool { return t.Steps[j].Tool == t.Steps[i].Tool }) {
			return false
		}
	}
	asked, began := 0, false
	for _, m := range line {
		if m.step >= 0 && m.step == calls[len(calls)-1] {
			break
		}
		began = began || m.step >= 0
		if m.step == -1 && m.message.Role == events.RoleUser {
			asked++
			if began || asked > 1 {
				return false
			}
		}
	}
	return true
}

// shares reports that two calls have a value in common, and so may be about the same.
func shares(a, b Step) bool {
	x, y := flatten(a.Parameters), flatten(b.Parameters)
	for _, leaves := range x.leaves {
		for _, l := range leaves {
			for _, others := range y.leaves {
				if (l.kind == "text" || l.kind == "number") && l.value != "" && slices.Contains(others, l) {
					return true
				}
			}
		}
	}
	return false
}

// peersOf leaves of the peers those to compare a task with.
func peersOf(task Task, peers []Peer) []Peer {
	return slices.DeleteFunc(slices.Clone(peers), func(p Peer) bool {
		return p.Task.TaskID == task.TaskID || p.Task.Namespace != task.Namespace || task.TaskType == "" || p.Task.TaskType != task.TaskType ||
			p.Task.Status != events.StatusSuccess || p.Task.Certainty == CertaintyInferred
	})
}

// contrast is what all peers did and a task did not.
type contrast struct {
	changes       []Change
	before        []string
	working       *Step
	evidence      []string
	peers         int
	left, extra   []string
	leftWorking   *Step
	extraEvidence []string
}

// peerRepair looks for what peers did otherwise at a call that failed and was never repaired. What one of them did without
// is no repair.
func (a *analyser) peerRepair(i int) *Finding {
	s := a.task.Steps[i]
	var c contrast
	for _, p := range a.peers {
		j := lastIndex(p.Task.Steps, func(w Step) bool { return w.Tool == s.Tool && w.Status == events.StatusSuccess && !looksFailed(w) })
		if j < 0 {
			continue
		}
		var before []string
		if a.plain && p.plain {
			before = callsBefore(p.Task, j, a.task.Steps[:i])
		}
		c.meet(a.otherwise(s, i, p, j), before, p.Task, j)
	}
	if len(c.changes) == 0 && len(c.before) == 0 {
		return nil
	}
	// A call whose result the working call needs is said with the parameter.
	c.before = slices.DeleteFunc(c.before, func(tool string) bool {
		return slices.ContainsFunc(c.changes, func(x Change) bool { return x.SourceTool == tool })
	})
	return &Finding{
		Kind: FindingDiverged, Step: s, Working: c.working, Changes: c.changes, Before: c.before, Siblings: c.peers, Peers: c.peers, Trust: TrustAgentInferred,
		Evidence: append(c.evidence, s.EventID),
	}
}

// meet takes in what one more peer did otherwise, and keeps what all did.
func (c *contrast) meet(changes []Change, before []string, p Task, j int) {
	w := p.Steps[j]
	if c.peers == 0 {
		c.changes, c.before, c.working = changes, before, &w
	} else {
		c.changes = slices.DeleteFunc(c.changes, func(x Change) bool {
			return !slices.ContainsFunc(changes, func(y Change) bool { return sameContrast(x, y) })
		})
		c.before = slices.DeleteFunc(c.before, func(tool string) bool { return !slices.Contains(before, tool) })
	}
	c.peers++
	c.evidence = append(c.evidence, w.EventID)
	for _, s := range p.Steps[:j] {
		if s.Status == events.StatusSuccess && slices.Contains(before, s.Tool) {
			c.evidence = append(c.evidence, s.EventID)
		}
	}
}

// sameContrast reports two peers that differ from a call in the same way.
func sameContrast(x, y Change) bool {
	if x.Kind != y.Kind || x.Parameter != y.Parameter || x.FromName != y.FromName || x.Form != y.Form {
		return false
	}
	return x.Kind == ChangeAdded && !literal(x.To) && !literal(y.To) || x.To == y.To
}

// literal reports a description that is the value itself.
func literal(s string) bool { return s != "" && !strings.HasPrefix(s, "<") }

// otherwise tells what a peer's call had otherwise than a call of this task, as far as it does not depend on the instance.
func (a *analyser) otherwise(s Step, i int, p Peer, j int) []Change {
	w := p.Task.Steps[j]
	mine := a.saidAt(i)
	both := mine + said(p.Task, p.said, j)
	changes := differences(s.Parameters, w.Parameters, errorText(s))
	out := make([]Change, 0, len(changes))
	for _, c := range changes {
		if strings.ContainsAny(c.Parameter, ".[") || freeText.MatchString(c.Parameter) && c.Kind != ChangeRemoved && c.Kind != ChangeRenamed {
			continue
		}
		c.literally(both)
		switch c.Kind {
		case ChangeValue:
			if c.Form == "" && (!own(c.Parameter, c.now, both) || !own(c.Parameter, c.old, both)) {
				continue
			}
		case ChangeAdded:
			for _, earlier := range slices.Backward(p.Task.Steps[:j]) {
				if earlier.Status == events.StatusSuccess && c.now.kind != "" && holds(earlier.Result, c.now.value) && !a.heldBefore(c.now.value, i) {
					c.Source, c.SourceTool, c.sourceEvent, c.To = SourceTool, earlier.Tool, earlier.EventID, describe(c.Parameter, leaf{"text", c.now.value})
					if literal(c.To) {
						c.To = "<text>"
					}
					break
				}
			}
			if c.Source == SourceUnknown && !own(c.Parameter, c.now, both) {
				c.To = "<text>"
			}
		case ChangeType, ChangeRemoved, ChangeRenamed:
		case ChangeFormat:
			if c.Form == "" && !dateFormatName(c.To) {
				continue
			}
		case ChangeCount, ChangeTotal, ChangeClauses:
			continue
		}
		out = append(out, c)
	}
	return out
}

// heldBefore reports that the goal or the user named a value: then it is no result of a tool.
func (a *analyser) heldBefore(value string, i int) bool { return a.saidAt(i).has(value) }

// callsBefore names the calls that a peer made before one, about the same, and that may have made it work, and this task
// did not make.
func callsBefore(p Task, j int, mine []Step) []string {
	var out []string
	for _, s := range p.Steps[:j] {
		if s.Status != events.StatusSuccess || s.Tool == p.Steps[j].Tool || looksFailed(s) || !does(s) || isThought(s.Tool) || isHandOver(s.Tool) || slices.Contains(out, s.Tool) || len(out) == maxNamed || !shares(s, p.Steps[j]) {
			continue
		}
		if !slices.ContainsFunc(mine, func(m Step) bool { return m.Tool == s.Tool && m.Status == events.StatusSuccess }) {
			out = append(out, s.Tool)
		}
	}
	return out
}

func lastIndex(steps []Step, is func(Step) bool) int {
	for i, s := range slices.Backward(steps) {
		if is(s) {
			return i
		}
	}
	return -1
}

// peerDifference looks for what peers did otherwise than a task in which every call worked and that failed. Peers that did
// the same changes are compared, but for one tool; what one of them did as this task is no difference.
func (a *analyser) peerDifference() *Finding {
	if !a.plain {
		return nil
	}
	mine := acts(a.task)
	var best *Finding
	for _, i := range slices.Backward(mine) {
		f := a.differenceAt(i, mine)
		if f == nil {
			continue
		}
		if best == nil || cmp.Compare(f.Peers, best.Peers) > 0 {
			best = f
		}
	}
	return best
}

func (a *analyser) differenceAt(i int, mine []int) *Finding {
	m := a.task.Steps[i]
	var c contrast
	for _, p := range a.peers {
		theirs := acts(p.Task)
		j := lastIndex(p.Task.Steps, func(w Step) bool { return w.Tool == m.Tool && w.Status == events.StatusSuccess && !looksFailed(w) })
		if j < 0 || !p.plain {
			continue
		}
		left, extra := without(p.Task, theirs, a.task, mine), without(a.task, mine, p.Task, theirs)
		if len(left)+len(extra) > 1 {
			continue // It did something else.
		}
		first := c.peers == 0
		c.meet(a.otherwise(m, i, p, j), nil, p.Task, j)
		if first {
			c.left, c.extra = left, extra
		} else {
			c.left = slices.DeleteFunc(c.left, func(t string) bool { return !slices.Contains(left, t) })
			c.extra = slices.DeleteFunc(c.extra, func(t string) bool { return !slices.Contains(extra, t) })
		}
		for _, at := range theirs {
			if s := p.Task.Steps[at]; slices.Contains(left, s.Tool) {
				if !shares(s, p.Task.Steps[j]) {
					c.left = nil // It is about something else.
				}
				c.extraEvidence = append(c.extraEvidence, s.EventID)
				c.leftWorking = &s
			}
		}
	}
	for _, at := range mine {
		if s := a.task.Steps[at]; slices.Contains(c.extra, s.Tool) && !shares(s, m) {
			c.extra = nil
		}
	}
	// Which of a call's parameters are left out is its own business as long as it works.
	c.changes = slices.DeleteFunc(c.changes, func(x Change) bool {
		return x.Kind != ChangeValue && (x.Kind != ChangeAdded || !literal(x.To)) || x.Form != ""
	})
	if len(c.changes)+len(c.left)+len(c.extra) == 0 {
		return nil
	}
	f := &Finding{
		Kind: FindingDiverged, Step: m, Changes: c.changes, Left: c.left, Extra: c.extra, Siblings: c.peers, Peers: c.peers, Trust: TrustAgentInferred,
		Evidence: append(c.evidence, m.EventID),
	}
	switch {
	case len(c.changes) > 0:
		f.Working = c.working
	case len(c.left) > 0:
		f.Working, f.Evidence = c.leftWorking, append(f.Evidence, c.extraEvidence...)
	default:
		for _, at := range mine {
			if s := a.task.Steps[at]; slices.Contains(c.extra, s.Tool) {
				f.Step, f.Evidence = s, append(f.Evidence, s.EventID)
			}
		}
	}
	f.Reason = a.reason(f)
	return f
}

// acts are the places of the working calls of a task that changed or proved something.
func acts(t Task) []int {
	var out []int
	for i, s := range t.Steps {
		if s.Status == events.StatusSuccess && !looksFailed(s) && !isThought(s.Tool) && does(s) {
			out = append(out, i)
		}
	}
	return out
}

// without names the tools of some calls of one task that are not among those of another.
func without(t Task, calls []int, other Task, others []int) []string {
	var out []string
	for _, i := range calls {
		tool := t.Steps[i].Tool
		if !slices.Contains(out, tool) && !slices.ContainsFunc(others, func(j int) bool { return other.Steps[j].Tool == tool }) {
			out = append(out, tool)
		}
	}
	return out
}
