package memory

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hindsight-memory/hindsight/events"
)

// outcome learns from how the task ended.
func (a *analyser) outcome() {
	switch {
	case !a.task.Closed:
	case failed(a.task):
		a.failedTask()
	case a.task.Status == events.StatusSuccess && a.task.Certainty != CertaintyInferred:
		a.succeededTask()
	}
}

// writes are the working calls of a task that changed something, and those that gave it to a person.
func writes(t Task) []Step {
	var out []Step
	for _, s := range t.Steps {
		if s.Status == events.StatusSuccess && !looksFailed(s) && !isThought(s.Tool) && !IsRead(s.Tool, commandOf(s)) {
			out = append(out, s)
		}
	}
	return out
}

func lastWrite(t Task) (Step, bool) {
	w := writes(t)
	if len(w) == 0 {
		return Step{}, false
	}
	for _, s := range slices.Backward(w) {
		if !isHandOver(s.Tool) {
			return s, true
		}
	}
	return w[len(w)-1], true
}

// callOf names what a change did, to count it among siblings: its tool and the thing it was done to.
func callOf(s Step) string {
	f := flatten(s.Parameters)
	var target []string
	for _, p := range f.paths() {
		words := nameWords(p)
		names := slices.ContainsFunc(words, func(w string) bool { return w == "id" || w == "path" || w == "name" })
		if strings.Contains(p, "[]") || !names || slices.Contains(words, "payment") {
			continue
		}
		for _, l := range f.leaves[p] {
			target = append(target, l.value)
		}
	}
	return s.Tool + "\x00" + strings.Join(target, "\x00")
}

// failedTask finds what a failed task did otherwise than those of its goal that succeeded.
func (a *analyser) failedTask() {
	if len(a.succeeded) == 0 {
		s, wrote := lastWrite(a.task)
		if a.toolError || !wrote {
			return // What failed visibly is looked at already, and of reading alone nothing can be said.
		}
		if f := a.peerDifference(); f != nil {
			a.out.Findings = append(a.out.Findings, *f)
			return
		}
		f := Finding{Kind: FindingLastWrite, Step: s, Trust: TrustAgentInferred, Evidence: []string{s.EventID}}
		f.Look = a.reader(s, &f)
		f.Reason = a.reason(&f)
		a.out.Findings = append(a.out.Findings, f)
		return
	}
	mine := writes(a.task)
	f := Finding{Kind: FindingDiverged, Siblings: len(a.succeeded), Trust: TrustAgentInferred}
	f.Left, f.Extra, f.Evidence = compareCalls(mine, a.succeeded)
	left := len(f.Left)
	f.Left = slices.DeleteFunc(f.Left, a.explained)
	// The same call with other choices or values.
	var other *Finding
	for _, m := range slices.Backward(mine) {
		if slices.Contains(f.Extra, m.Tool) {
			continue
		}
		if c := a.sameCallOtherwise(m); c != nil {
			other = c
			break
		}
	}
	if other != nil {
		other.Siblings = len(a.succeeded)
		other.Left, other.Extra = f.Left, f.Extra
		other.Evidence = append(other.Evidence, f.Evidence...)
		a.out.Findings = append(a.out.Findings, *other)
		return
	}
	if left > 0 && len(f.Left) == 0 && len(f.Extra) == 0 {
		return // The failing call's lesson says it.
	}
	if len(f.Left) == 0 && len(f.Extra) == 0 {
		f.Left, f.Evidence = leftReads(a.task, a.succeeded)
		if len(f.Left) == 0 {
			return
		}
	}
	// The step to keep: the call that none of the others made, else the last change, else the last call.
	at := -1
	for i, s := range a.task.Steps {
		if slices.Contains(f.Extra, s.Tool) && s.Status == events.StatusSuccess {
			at = i
		}
	}
	if at < 0 {
		if s, wrote := lastWrite(a.task); wrote {
			at = slices.IndexFunc(a.task.Steps, func(x Step) bool { return x.EventID == s.EventID })
		} else {
			at = len(a.task.Steps) - 1
		}
	}
	if at < 0 {
		return // It made no call at all: there is no decision to keep.
	}
	f.Step = a.task.Steps[at]
	f.Evidence = append(f.Evidence, f.Step.EventID)
	if len(f.Left) > 0 {
		f.Working = stepOfTool(a.succeeded, f.Left[0])
	}
	a.out.Findings = append(a.out.Findings, f)
}

// explained reports a tool of which a lesson about a failing call says all there is to say: the call itself, and what it
// needs before it.
func (a *analyser) explained(tool string) bool {
	return slices.ContainsFunc(a.out.Findings, func(f Finding) bool {
		return f.Kind == FindingDiverged && f.Peers > 0 && (f.Step.Tool == tool || slices.Contains(f.Before, tool) ||
			slices.ContainsFunc(f.Changes, func(c Change) bool { return c.SourceTool == tool }))
	})
}

// reason is why the task is said to have failed, where that says more than a word.
func (a *analyser) reason(f *Finding) string {
	said := quotable(a.task.Reason, "", toolNames(a.task))
	if len(strings.Fields(said)) < 3 && LanguageOf(said) != LanguageChinese {
		return ""
	}
	if a.finished != "" {
		f.Evidence = append(f.Evidence, a.finished)
	}
	return said
}

// maxNamed is how many tools a finding names of each kind: with more it says nothing.
const maxNamed = 3

// compareCalls names the tools that a majority of the others called for a change and this task did not, and those that
// it called and none of the others did. Calls are matched with what they were done to first, then by tool.
func compareCalls(mine []Step, others []Task) (left, extra, evidence []string) {
	byTool := map[string]int{}
	event := map[string]string{}
	theirs := map[string]bool{}
	for _, t := range others {
		seen := map[string]bool{}
		for _, s := range writes(t) {
			theirs[s.Tool] = true
			if !seen[s.Tool] {
				seen[s.Tool] = true
				byTool[s.Tool]++
				event[s.Tool] = s.EventID
			}
		}
	}
	called := map[string]bool{}
	for _, s := range mine {
		called[s.Tool] = true
		if !theirs[s.Tool] && len(extra) < maxNamed && !slices.Contains(extra, s.Tool) {
			extra = append(extra, s.Tool)
			evidence = append(evidence, s.EventID)
		}
	}
	for _, t := range others {
		for _, s := range writes(t) {
			if !called[s.Tool] && byTool[s.Tool]*2 > len(others) && len(left) < maxNamed && !slices.Contains(left, s.Tool) {
				left = append(left, s.Tool)
				evidence = append(evidence, event[s.Tool])
			}
		}
	}
	return left, extra, evidence
}

// leftReads names tools that every other task read with and this one did not.
func leftReads(t Task, others []Task) (left, evidence []string) {
	mine := toolNames(t)
	count, event := map[string]int{}, map[string]string{}
	for _, o := range others {
		for _, s := range o.Steps {
			if s.Status == events.StatusSuccess && IsRead(s.Tool, commandOf(s)) && !isThought(s.Tool) && event[s.Tool+"\x00"+o.TaskID] == "" {
				event[s.Tool+"\x00"+o.TaskID] = s.EventID
				event[s.Tool] = s.EventID
				count[s.Tool]++
			}
		}
	}
	for _, o := range others {
		for _, tool := range toolNames(o) {
			if count[tool] == len(others) && !slices.Contains(mine, tool) && !slices.Contains(left, tool) && len(left) < maxNamed {
				left = append(left, tool)
				evidence = append(evidence, event[tool])
			}
		}
	}
	return left, evidence
}

func stepOfTool(tasks []Task, tool string) *Step {
	for _, t := range tasks {
		for _, s := range writes(t) {
			if s.Tool == tool {
				return &s
			}
		}
	}
	for _, t := range tasks {
		for _, s := range t.Steps {
			if s.Tool == tool && s.Status == events.StatusSuccess {
				return &s
			}
		}
	}
	return nil
}

// sameCallOtherwise compares a change with the same change in tasks that succeeded, where most of them agree.
func (a *analyser) sameCallOtherwise(m Step) *Finding {
	var best *Finding
	agree := map[string]int{}
	var candidates []*Finding
	for _, t := range a.succeeded {
		var nearest *Finding
		for _, s := range writes(t) {
			if s.Tool != m.Tool || nearest != nil && callOf(s) != callOf(m) {
				continue
			}
			changes := slices.DeleteFunc(differences(m.Parameters, s.Parameters, ""), func(c Change) bool { return freeText.MatchString(c.Parameter) })
			nearest = &Finding{
				Kind: FindingDiverged, Step: m, Working: &s, Changes: changes, Trust: TrustAgentInferred, Evidence: []string{m.EventID, s.EventID},
			}
		}
		if nearest == nil {
			continue
		}
		candidates = append(candidates, nearest)
		for _, c := range nearest.Changes {
			agree[changeKey(c)]++
		}
	}
	// A difference counts when most of the successful tasks that made the call have it, and none made the very same one.
	for _, c := range candidates {
		if len(c.Changes) == 0 {
			return nil
		}
		c.Changes = slices.DeleteFunc(c.Changes, func(x Change) bool { return agree[changeKey(x)]*2 <= len(candidates) || vague(x) })
		if len(c.Changes) > 0 && (best == nil || len(c.Changes) < len(best.Changes)) {
			best = c
		}
	}
	return best
}

// vague reports a change that says nothing without its values: another id, another text.
func vague(c Change) bool {
	switch c.Kind {
	case ChangeValue:
		return c.From == c.To || Particular(c.From) || Particular(c.To)
	case ChangeAdded, ChangeRemoved:
		return strings.ContainsAny(c.Parameter, ".[") // Both calls were accepted; a whole parameter may still have mattered.
	case ChangeRenamed, ChangeType, ChangeFormat:
		return true
	case ChangeCount, ChangeTotal, ChangeClauses:
		return false
	default:
		return false
	}
}

func changeKey(c Change) string {
	return string(c.Kind) + "\x00" + c.Parameter + "\x00" + c.From + "\x00" + c.To
}

// succeededTask keeps one decision of a success: where others of the goal failed, what made the difference.
func (a *analyser) succeededTask() {
	if len(a.failedBefore) == 0 {
		return
	}
	mine := writes(a.task)
	if len(mine) == 0 {
		return
	}
	f := Finding{Kind: FindingDecisive, Siblings: len(a.failedBefore), Trust: TrustAgentInferred}
	// What most of the failed tasks left out.
	var decisive *Step
	for _, s := range mine {
		without := 0
		for _, t := range a.failedBefore {
			if !slices.ContainsFunc(writes(t), func(x Step) bool { return x.Tool == s.Tool }) {
				without++
			}
		}
		if without*2 > len(a.failedBefore) {
			decisive = &s
			f.Left = []string{s.Tool}
		}
	}
	if decisive == nil {
		last, _ := lastWrite(a.task)
		for _, t := range a.failedBefore {
			for _, s := range writes(t) {
				if s.Tool != last.Tool || callOf(s) != callOf(last) {
					continue
				}
				changes := slices.DeleteFunc(differences(s.Parameters, last.Parameters, ""), func(c Change) bool { return freeText.MatchString(c.Parameter) || vague(c) })
				if len(changes) > 0 {
					decisive, f.Changes = &last, changes
					f.Evidence = append(f.Evidence, s.EventID)
				}
			}
		}
		if extra := extraOfFailed(mine, a.failedBefore); decisive == nil && len(extra) > 0 {
			decisive, f.Extra = &last, extra
		}
	}
	if decisive == nil {
		return
	}
	// One success teaches it; those after the first only confirm it.
	for _, t := range a.succeeded {
		if endedBefore(t, a.task) && slices.ContainsFunc(writes(t), func(s Step) bool { return s.Tool == decisive.Tool }) {
			a.out.Dropped[DropKnown]++
			return
		}
	}
	f.Step = *decisive
	f.Evidence = append(f.Evidence, decisive.EventID)
	a.out.Findings = append(a.out.Findings, f)
}

// endedBefore orders tasks: by their end, and by their id where that is the same.
func endedBefore(a, b Task) bool {
	return cmp.Or(a.EndedAt.Compare(b.EndedAt), strings.Compare(a.TaskID, b.TaskID)) < 0
}

// extraOfFailed names changes that most failed tasks made and this one did not.
func extraOfFailed(mine []Step, others []Task) []string {
	left, _, _ := compareCalls(mine, others)
	return left
}

var (
	correctionText = regexp.MustCompile(`(?i)^(?:(?:no|nope|wait|hold on|hmm|sorry|actually|oh)[,.!]*\s+(?:but\s+)?){0,2}(?:i (?:meant|said|asked for|asked you|told you|wanted)\b|(?:that|this|it)(?:'s|’s| is| was) (?:wrong|incorrect|not (?:right|correct|what i))|that(?:'s|’s| is) not\b|you (?:misunderstood|got (?:it|that) wrong|made a mistake|should(?:n't|n’t)? have|forgot|used the wrong|changed the wrong)|not (?:that|this) one|wrong (?:one|order|item|file|table|account|reservation|flight|date)|it should (?:be|have been)|undo (?:that|this)|please (?:undo|revert))|\b(?:not what i (?:asked|wanted|meant)|i meant\b|there (?:might|may) have been a misunderstanding|you (?:used|picked|chose|changed|cancell?ed|booked|ordered|deleted|sent) the wrong)`)
	correctionZH   = regexp.MustCompile(`^(?:不对|不是这个|不是这样|错了|你(?:搞|弄|理解|做|写)错|我说的是|我的意思是|我要的是|我指的是|应该是|不应该|应该用|这(?:个)?(?:是)?(?:不对|错)|搞错|弄错|纠正|更正)|(?:[，。！,!. ]|^)(?:不对[，,。！! ]|你(?:搞|弄|理解)错了|应该是.{1,40}(?:而不是|不是)|而不是)`)
	// sentenceNo is a plain no that corrects by saying what instead.
	sentenceNo = regexp.MustCompile(`(?i)^no[,.!]+\s+(?:it(?:'s|’s| is)|use|the|please use|not)\b.{3,}`)
	ownMistake = regexp.MustCompile(`(?i)\bmy (?:bad|mistake|fault|apologies)\b|\bi(?: was|'m|’m| am) (?:wrong|mistaken|confused)\b|我(?:记|说|搞|弄|看)错了`)
	noThanks   = regexp.MustCompile(`(?i)\b(?:that(?:'s|’s| is) (?:all|it|fine|ok|okay|great|correct)|no need|thank)\b`)
)

// corrections finds the steps that a user corrected, by feedback or in words.
func (a *analyser) corrections() {
	seen := map[string]bool{}
	for at, m := range a.line {
		var step *Step
		said := strings.TrimSpace(m.message.Content)
		switch {
		case m.step == -2:
			step = a.targetOf(at, m.message.Role)
		case m.step == -1 && m.message.Role == events.RoleUser && corrects(said):
			step = a.stepBefore(at, true)
		}
		if m.step == -2 && step == nil && said != "" && !InstructsAgent(said) {
			// It corrects something, and no call.
			a.out.Stated = append(a.out.Stated, Stated{
				EventID: m.eventID, MemoryType: MemoryCorrection, Entity: "user", Value: Cut(said, maxStatedRunes), Content: Cut(said, maxStatedRunes), OnPurpose: true,
			})
		}
		if step == nil || seen[step.EventID] {
			continue
		}
		seen[step.EventID] = true
		f := Finding{
			Kind: FindingCorrection, Step: *step, Trust: TrustUserStated, Evidence: []string{step.EventID, m.eventID},
			Said: quoteUser(said, toolNames(a.task)),
		}
		// What the agent then did with the same tool is what the correction asked for.
		for _, later := range a.line[at+1:] {
			if later.step < 0 {
				continue
			}
			w := a.task.Steps[later.step]
			if w.Tool == step.Tool && w.Status == events.StatusSuccess && canonical(w.Parameters) != canonical(step.Parameters) {
				f.Working = &w
				f.Changes = differences(step.Parameters, w.Parameters, said)
				f.Evidence = append(f.Evidence, w.EventID)
				break
			}
		}
		if f.Said == "" && len(f.Changes) == 0 {
			a.out.Dropped[DropNotImportant]++ // That something was wrong and nothing else teaches nothing.
			continue
		}
		a.out.Findings = append(a.out.Findings, f)
	}
}

func corrects(said string) bool {
	if said == "" || ownMistake.MatchString(said) || noThanks.MatchString(Cut(said, 60)) && !strings.Contains(strings.ToLower(said), "wrong") {
		return false
	}
	return correctionText.MatchString(said) || correctionZH.MatchString(said) || sentenceNo.MatchString(said)
}

// quoteUser makes a user's words fit to be quoted in a lesson.
func quoteUser(said string, keep []string) string {
	clean, _ := CleanExternal(said)
	return Cut(strings.ReplaceAll(AbstractError(clean, keep...), `"`, "'"), maxQuote)
}

// stepBefore gives the last step of the agent before a moment; only since the user spoke last if so asked.
func (a *analyser) stepBefore(at int, sinceUser bool) *Step {
	for i := at - 1; i >= 0; i-- {
		m := a.line[i]
		if m.step >= 0 {
			return &a.task.Steps[m.step]
		}
		if sinceUser && m.step == -1 && m.message.Role == events.RoleUser {
			return nil
		}
	}
	return nil
}

// targetOf finds the step that feedback names: by event, call, number or snapshot; without one, the step before it.
func (a *analyser) targetOf(at int, target string) *Step {
	for i := range a.task.Steps {
		s := &a.task.Steps[i]
		if target != "" && (target == s.EventID || target == s.CallID || target == strconv.Itoa(s.Step) || strings.TrimPrefix(target, "step ") == strconv.Itoa(s.Step) ||
			target == SnapshotID(a.task.Namespace, a.task.TaskID, s.CallID, s.EventID)) {
			return s
		}
	}
	return a.stepBefore(at, false)
}
