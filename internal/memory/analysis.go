package memory

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/hindsight-memory/hindsight/events"
)

// FindingKind says why a decision matters.
type FindingKind string

// Kinds of findings.
const (
	// FindingRepaired is a call that failed and what made it work.
	FindingRepaired FindingKind = "repaired_failure"
	// FindingUnrepaired is a call that failed and was never made to work.
	FindingUnrepaired FindingKind = "unrepaired_failure"
	// FindingRepeated is an unrepaired failure that was tried again unchanged.
	FindingRepeated FindingKind = "repeated_failure"
	// FindingDiverged is what a failed task did otherwise than tasks of the same goal that succeeded.
	FindingDiverged FindingKind = "diverged_from_success"
	// FindingLastWrite is the last change of a failed task of which no more is known.
	FindingLastWrite FindingKind = "last_write_of_failure"
	// FindingCorrection is a step that a user corrected.
	FindingCorrection FindingKind = "correction"
	// FindingDecisive is the step that made the difference in a task that succeeded where others failed.
	FindingDecisive FindingKind = "decisive_success"
)

// FindingKinds lists all kinds of findings.
func FindingKinds() []FindingKind {
	return []FindingKind{
		FindingRepaired, FindingUnrepaired, FindingRepeated, FindingDiverged, FindingLastWrite, FindingCorrection, FindingDecisive,
	}
}

// Reasons for which something is not kept, to count by.
const (
	DropEnvironment  = "environment"
	DropTransient    = "transient"
	DropNotImportant = "not_important"
	DropSameError    = "same_error_in_task"
	DropProvisional  = "provisional"
	DropKnown        = "known_from_sibling"
	DropSameStep     = "same_step"
)

// Finding is a decision that matters, with what the trace shows about it and nothing else.
type Finding struct {
	Kind FindingKind
	// Step is the decision; Working is the call that worked, of this task or a sibling.
	Step    Step
	Working *Step
	// Error is the abstracted text of the error, without its boilerplate; Signature what it groups by.
	Error     string
	Signature string
	// Repeats counts the calls of the task that failed with this error, and Unchanged those that repeated another's
	// parameters.
	Repeats   int
	Unchanged int
	// Changes are what the working call has otherwise, the most telling first.
	Changes []Change
	// Before are tools that were called between the failing and the working call and that the latter needed.
	Before []string
	// Instead is another tool that served the same purpose, with the parameters it was given.
	Instead           string
	InsteadParameters []string
	// Look is a tool that reads what the failing call was about.
	Look string
	// Missing are parameters that the error says are required; Uneven are two lists that the error says must match.
	Missing []string
	Uneven  []string
	// Left and Extra are tools that successful siblings called and this task did not, and the other way round.
	Left, Extra []string
	// Siblings counts the tasks that were compared with, and Peers says how many of them are of other goals: then the finding
	// rests on tasks of the same type alone.
	Siblings, Peers int
	// Tried are tools that were called after the first failure, and Varied parameters that were changed, without success.
	Tried, Varied []string
	// Total are numbers that must add up to what the error names.
	Total string
	// Goal is the abstracted goal of the task, cut, and Reason why the task is said to have failed.
	Goal, Reason string
	TaskType     string
	// HandOver is true when the step gave the task to a person.
	HandOver bool
	// Said is what the user said, cut, for a correction.
	Said string
	// TaskFailed is true when the task is known to have failed.
	TaskFailed bool

	CauseClass        CauseClass
	Situation         string
	Evidence          []string
	Trust             Trust
	Importance        float64
	ImportanceReasons []string
	Confidence        float64
	ConfidenceReasons []string
	// EvidenceText is what the evidence says, for checking that a lesson says no more.
	EvidenceText string
	// Vocabulary are the names of tools and parameters in it.
	Vocabulary []string
}

// Stated is something that a user explicitly asked to remember.
type Stated struct {
	EventID    string
	Ordinal    int
	MemoryType MemoryType
	Entity     string
	Value      string
	// Content is the user's sentence.
	Content string
	// OnPurpose is true when the user asked for it to be remembered, false for a preference said in passing.
	OnPurpose bool
	Turn      int
}

// Analysis is what is to be learnt from one task.
type Analysis struct {
	Language Language
	Findings []Finding
	Stated   []Stated
	// Dropped counts what was not kept, by reason.
	Dropped map[string]int
}

// AnalysisOptions adjust [Analyse]; the zero value is the default.
type AnalysisOptions struct {
	// Known holds "tool\x00signature" of errors that are remembered already.
	Known map[string]bool
	// Peers are tasks of the same type that succeeded, to compare with what siblings do not explain.
	Peers []Peer
	// MinImportance is the threshold under which nothing is kept; 0 means [DefaultMinImportance].
	MinImportance float64
}

// KnownKey names an error in [AnalysisOptions.Known].
func KnownKey(tool, signature string) string { return tool + "\x00" + signature }

// Analyse picks the decisions of a task that matter and says what the trace shows about each. Siblings are tasks of the
// same goal; those that succeeded show what the task could have done. evs are the events of the task.
//
// Calls by a user are messages and never decisions. Faults of the environment are no lessons.
func Analyse(task Task, siblings []Task, evs []events.Event, opts AnalysisOptions) Analysis {
	a := analyser{task: task, opts: opts, line: timeline(task, evs), said: map[int]instance{}, out: Analysis{Dropped: map[string]int{}}}
	a.opts.MinImportance = cmp.Or(opts.MinImportance, DefaultMinImportance)
	for _, s := range siblings {
		if s.TaskID == task.TaskID || task.GoalID == "" || s.GoalID != task.GoalID || s.Namespace != task.Namespace {
			continue
		}
		switch {
		case s.Status == events.StatusSuccess && s.Certainty != CertaintyInferred:
			a.succeeded = append(a.succeeded, s)
		case failed(s):
			a.failedBefore = append(a.failedBefore, s)
		}
	}
	for _, e := range evs {
		if e.Kind == events.KindTaskFinished {
			a.finished = e.ID
		}
	}
	a.peers, a.plain = peersOf(task, opts.Peers), plain(task, a.line)
	a.out.Language = LanguageOf(append([]string{task.Goal}, a.userTexts()...)...)
	a.failures()
	a.corrections()
	a.outcome()
	for i := range a.out.Findings {
		a.complete(&a.out.Findings[i])
	}
	a.out.Findings = slices.DeleteFunc(a.out.Findings, func(f Finding) bool {
		var reason string
		switch {
		case f.Importance < a.opts.MinImportance:
			reason = DropNotImportant
		case !task.Closed && f.Kind != FindingCorrection && f.Kind != FindingRepaired && f.Kind != FindingUnrepaired && f.Kind != FindingRepeated:
			reason = DropProvisional
		default:
			return false
		}
		a.out.Dropped[reason]++
		return true
	})
	a.out.Stated = append(statedIn(a.line), a.out.Stated...)
	return a.out
}

// failed reports a task whose failure somebody saw.
func failed(t Task) bool { return t.Status == events.StatusFailure && t.Certainty != CertaintyInferred }

// moment is one thing that happened: a step of the agent or a message.
type moment struct {
	step    int // index into the task's steps, or -1
	message events.Message
	eventID string
}

// timeline puts steps and messages in one order.
func timeline(task Task, evs []events.Event) []moment {
	at := make(map[string]int, len(task.Steps))
	for i, s := range task.Steps {
		at[s.EventID] = i
	}
	var out []moment
	for _, e := range distinctInOrder(evs) {
		switch e.Kind {
		case events.KindStepFinished:
			if i, is := at[e.ID]; is {
				out = append(out, moment{step: i, eventID: e.ID})
			}
		case events.KindMessage:
			if m, err := events.DecodeData[events.Message](e); err == nil && !callByUser.MatchString(m.Content) {
				out = append(out, moment{step: -1, message: m, eventID: e.ID})
			}
		case events.KindFeedback:
			if f, err := events.DecodeData[events.Feedback](e); err == nil && f.Kind == events.FeedbackCorrection {
				out = append(out, moment{step: -2, message: events.Message{Role: f.Target, Content: cmp.Or(f.Comment, events.Text(f.Value))}, eventID: e.ID})
			}
		case events.KindTaskStarted, events.KindTaskFinished, events.KindItemWritten, events.KindItemChanged, events.KindRecallServed:
		default:
		}
	}
	return out
}

// callByUser is a call that a simulated user made, told as a message.
var callByUser = regexp.MustCompile(`^[A-Za-z_][\w.-]* \{.*\} → `)

type analyser struct {
	task                    Task
	opts                    AnalysisOptions
	line                    []moment
	succeeded, failedBefore []Task
	out                     Analysis
	peers                   []Peer
	plain                   bool
	said                    map[int]instance // by the step before which it was said
	toolError               bool
	finished                string // the event that ended the task
}

func (a *analyser) userTexts() []string { return userTexts(a.line) }

// userTexts are what users said, in order.
func userTexts(line []moment) []string {
	var out []string
	for _, m := range line {
		if m.step == -1 && m.message.Role == events.RoleUser {
			out = append(out, m.message.Content)
		}
	}
	return out
}

// failures looks at every failing call of the agent. Those with one tool and error are one finding, at the last of them.
func (a *analyser) failures() {
	steps := a.task.Steps
	type group struct{ at []int }
	byError := map[string]*group{}
	var order []string
	for i, s := range steps {
		if s.Status != events.StatusFailure {
			continue
		}
		a.toolError = true
		if EnvironmentFault(s.ErrorType, errorText(s)) == FaultOutage {
			a.out.Dropped[DropEnvironment]++
			continue
		}
		// Codes have one signature, and are different errors.
		key := KnownKey(s.Tool, ErrorSignature(cmp.Or(s.ErrorMessage, s.ErrorType, s.Result))) + "\x00" + codeOf(errorText(s), a.instanceAt(i))
		if byError[key] == nil {
			byError[key] = &group{}
			order = append(order, key)
		} else {
			a.out.Dropped[DropSameError]++
		}
		byError[key].at = append(byError[key].at, i)
	}
	for _, key := range order {
		a.failure(byError[key].at)
	}
}

func (a *analyser) failure(at []int) {
	steps := a.task.Steps
	last := at[len(at)-1]
	// The last of them that was repaired counts; a later one that was not is then a slip of the same kind.
	var repair *Finding
	for n := len(at) - 1; n >= 0 && repair == nil; n-- {
		repair = a.repair(at[n])
		if repair != nil {
			last = at[n]
		}
	}
	s := steps[last]
	f := Finding{Kind: FindingUnrepaired, Step: s, Trust: TrustAgentInferred}
	if repair == nil {
		repair = a.siblingRepair(s)
	}
	if repair == nil && failed(a.task) {
		repair = a.peerRepair(last)
	}
	if repair != nil {
		f = *repair
	}
	if EnvironmentFault(s.ErrorType, errorText(s)) == FaultTimeout && !askedForLess(f.Changes) {
		a.out.Dropped[DropEnvironment]++
		return
	}
	if f.Kind == FindingRepaired && len(f.Changes) == 0 && len(f.Before) == 0 && f.Instead == "" {
		a.out.Dropped[DropTransient]++ // The very same call worked later and nothing shows why.
		return
	}
	f.Repeats = len(at)
	for n, i := range at[1:] {
		f.Evidence = append(f.Evidence, steps[i].EventID)
		if slices.ContainsFunc(at[:n+1], func(j int) bool { return canonical(steps[j].Parameters) == canonical(steps[i].Parameters) }) {
			f.Unchanged++
		}
	}
	f.Evidence = append(f.Evidence, steps[at[0]].EventID)
	if f.Kind == FindingUnrepaired {
		a.tried(&f, at)
	}
	if f.Kind == FindingUnrepaired && f.Unchanged > 0 {
		f.Kind = FindingRepeated
	}
	a.explain(&f)
	a.out.Findings = append(a.out.Findings, f)
}

// tried notes what was done between failing calls.
func (a *analyser) tried(f *Finding, at []int) {
	steps := a.task.Steps
	for _, s := range steps[at[0]+1 : at[len(at)-1]+1] {
		if s.Tool != f.Step.Tool && s.Status == events.StatusSuccess && !isThought(s.Tool) && !slices.Contains(f.Tried, s.Tool) && len(f.Tried) < maxNamed {
			f.Tried = append(f.Tried, s.Tool)
			f.Evidence = append(f.Evidence, s.EventID)
		}
	}
	for n, i := range at[1:] {
		for _, c := range differences(steps[at[n]].Parameters, steps[i].Parameters, "") {
			if p := TopParameter(c.Parameter); !slices.Contains(f.Varied, p) && len(f.Varied) < maxNamed {
				f.Varied = append(f.Varied, p)
			}
		}
	}
}

// askedForLess reports changes that could make a call finish in time.
func askedForLess(changes []Change) bool {
	return slices.ContainsFunc(changes, func(c Change) bool {
		return c.Kind == ChangeAdded || c.Kind == ChangeClauses || c.Kind == ChangeCount || c.Kind == ChangeRemoved
	})
}

func errorText(s Step) string { return cmp.Or(s.ErrorMessage, s.Result, s.ErrorType) }

// maxReach is how many calls of the agent may lie between a failure and its repair.
const maxReach = 15

// repair looks for the call that made a failing one work.
func (a *analyser) repair(i int) *Finding {
	steps := a.task.Steps
	s := steps[i]
	var later []int
	for j := i + 1; j < len(steps) && j <= i+maxReach; j++ {
		if w := steps[j]; w.Tool == s.Tool && w.Status == events.StatusSuccess && !looksFailed(w) {
			later = append(later, j)
		}
	}
	// The very same call, which worked after another, tells more than a like one in between.
	for _, j := range later {
		if canonical(steps[j].Parameters) != canonical(s.Parameters) {
			continue
		}
		if f := a.attempt(i, j); len(f.Before) > 0 {
			return f
		}
		break
	}
	for _, j := range later {
		if f := a.attempt(i, j); f != nil {
			return f
		}
	}
	return a.otherTool(i)
}

// attempt compares a failing call with a working one of the same tool; nil when they are not about the same.
func (a *analyser) attempt(i, j int) *Finding {
	steps := a.task.Steps
	s, w := steps[i], steps[j]
	f := &Finding{Kind: FindingRepaired, Step: s, Working: &w, Trust: TrustAgentInferred}
	f.Changes = differences(s.Parameters, w.Parameters, errorText(s))
	a.trace(f.Changes, i, j)
	if !sameAttempt(s, w, f.Changes) {
		return nil
	}
	f.Evidence = []string{s.EventID, w.EventID}
	for _, c := range f.Changes {
		if c.sourceEvent != "" {
			f.Evidence = append(f.Evidence, c.sourceEvent)
		}
	}
	if len(f.Changes) == 0 {
		for _, between := range steps[i+1 : j] {
			if between.Status != events.StatusSuccess || looksFailed(between) || !does(between) {
				continue
			}
			name := between.Tool
			if name == s.Tool {
				// Of one shell, what was run says what was done.
				words := strings.Fields(commandOf(between))
				if len(words) == 0 {
					continue
				}
				name = strings.Join(words[:min(2, len(words))], " ")
			}
			if !slices.Contains(f.Before, name) && len(f.Before) < maxNamed {
				f.Before = append(f.Before, name)
				f.Evidence = append(f.Evidence, between.EventID)
			}
		}
	}
	return f
}

// does reports a call that may have made another one work: it changes something, or proves something.
func does(s Step) bool { return establishes(s.Tool) || !IsRead(s.Tool, commandOf(s)) }

// siblingRepair looks for the call in tasks of the same goal that succeeded.
func (a *analyser) siblingRepair(s Step) *Finding {
	for _, t := range a.succeeded {
		for _, w := range writes(t) {
			if w.Tool != s.Tool {
				continue
			}
			changes := slices.DeleteFunc(differences(s.Parameters, w.Parameters, errorText(s)), func(c Change) bool { return !c.Related || vague(c) && c.Kind == ChangeValue })
			if len(changes) > 0 {
				return &Finding{
					Kind: FindingRepaired, Step: s, Working: &w, Changes: changes, Siblings: len(a.succeeded), Trust: TrustAgentInferred,
					Evidence: []string{s.EventID, w.EventID},
				}
			}
		}
	}
	return nil
}

// looksFailed reports a result that says error although the call is said to have worked.
func looksFailed(s Step) bool {
	return strings.HasPrefix(strings.ToLower(strings.TrimSpace(s.Result)), "error")
}

// sameAttempt tells whether a later call tries the same as a failing one: it shares values with it, or what it has
// otherwise is known to have come as an answer to the failure.
func sameAttempt(s, w Step, changes []Change) bool {
	if len(changes) == 0 {
		return true
	}
	a, b := flatten(s.Parameters).values(), flatten(w.Parameters).values()
	shared := 0
	for v := range a {
		if b[v] {
			shared++
		}
	}
	if shared > 0 && shared*3 >= len(a) {
		return true
	}
	for _, c := range changes {
		switch {
		case c.Kind == ChangeRenamed, c.Kind == ChangeType, c.Kind == ChangeFormat, c.Kind == ChangeTotal:
			return true
		case c.Kind == ChangeClauses && alikeTexts(a, b):
			return true
		case c.Source == SourceError:
			return true
		case (c.Kind == ChangeAdded || c.Kind == ChangeRemoved) && (shared > 0 || len(a) == 0):
			return true
		case (c.Source == SourceTool || c.Source == SourceUser) && len(a) <= 1:
			return true
		case len(a) <= 1 && near(c.newValues, a):
			return true
		}
	}
	return false
}

// alikeTexts reports that a query or command of one call has more than half of the words of the shorter in common with one
// of the other: another command of the same shell is an attempt at something else.
func alikeTexts(a, b map[string]bool) bool {
	for x := range a {
		mine := strings.Fields(strings.ToLower(x))
		for y := range b {
			theirs := strings.Fields(strings.ToLower(y))
			common := 0
			for _, w := range mine {
				if slices.ContainsFunc(theirs, func(v string) bool {
					return v == w || len(w) > 3 && strings.HasPrefix(v, w) || len(v) > 3 && strings.HasPrefix(w, v)
				}) {
					common++
				}
			}
			if common*2 > min(len(mine), len(theirs)) {
				return true
			}
		}
	}
	return false
}

// near reports that one of the values is like one of the old ones: a part of it or around it.
func near(values []string, old map[string]bool) bool {
	for _, v := range values {
		for o := range old {
			x, y := bareText(v), bareText(o)
			if len(x) > 2 && len(y) > 2 && x != y && (strings.Contains(x, y) || strings.Contains(y, x)) {
				return true
			}
		}
	}
	return false
}

// trace finds out where the new values of a working call came from.
func (a *analyser) trace(changes []Change, i, j int) {
	steps := a.task.Steps
	from := slices.IndexFunc(a.line, func(m moment) bool { return m.eventID == steps[i].EventID })
	to := slices.IndexFunc(a.line, func(m moment) bool { return m.eventID == steps[j].EventID })
	said := a.saidAt(j)
	for k := range changes {
		c := &changes[k]
		c.literally(said)
		if freeText.MatchString(c.Parameter) {
			continue
		}
		for _, v := range c.newValues {
			if utf8.RuneCountInString(v) < 3 && len(numbersIn(v)) == 0 || len(v) < 2 {
				continue
			}
			if holds(errorText(steps[i]), v) {
				c.Source = SourceError
				break
			}
			for at := to - 1; at > from && c.Source == SourceUnknown; at-- {
				m := a.line[at]
				switch {
				case m.step >= 0 && steps[m.step].Status == events.StatusSuccess && holds(steps[m.step].Result, v):
					c.Source, c.SourceTool, c.sourceEvent = SourceTool, steps[m.step].Tool, m.eventID
				case m.step == -1 && m.message.Role == events.RoleUser && holds(m.message.Content, v):
					c.Source, c.sourceEvent = SourceUser, m.eventID
				}
			}
			for at := from - 1; at >= 0 && c.Source == SourceUnknown; at-- {
				if m := a.line[at]; m.step >= 0 && steps[m.step].Status == events.StatusSuccess && holds(steps[m.step].Result, v) {
					c.Source, c.SourceTool, c.sourceEvent = SourceEarlier, steps[m.step].Tool, m.eventID
				}
			}
			if c.Source != SourceUnknown {
				break
			}
		}
		if c.Source == SourceUnknown && c.Kind == ChangeValue && len(c.newValues) > 0 && !own(c.Parameter, c.now, said) {
			a.readAgain(c, i, j)
		}
	}
}

// readAgain takes a reading call between the two, of the same thing, for the source of a new value: a file or record was
// looked at again.
func (a *analyser) readAgain(c *Change, i, j int) {
	steps := a.task.Steps
	mine := flatten(steps[i].Parameters).values()
	for k := j - 1; k > i; k-- {
		r := steps[k]
		if r.Status != events.StatusSuccess || r.Tool == steps[i].Tool || !IsRead(r.Tool, commandOf(r)) || isThought(r.Tool) {
			continue
		}
		for v := range flatten(r.Parameters).values() {
			if mine[v] {
				c.Source, c.SourceTool, c.sourceEvent = SourceTool, r.Tool, r.EventID
				return
			}
		}
	}
}

// holds reports whether a text holds a value as a whole word; numbers count equal with and without decimals.
func holds(text, value string) bool {
	_, is := wordAt(text, value)
	return is
}

// wordAt finds a value in a text as a whole word.
func wordAt(text, value string) (at int, is bool) {
	for from := 0; value != ""; {
		i := strings.Index(text[from:], value)
		if i < 0 {
			break
		}
		start, end := from+i, from+i+len(value)
		before, _ := utf8.DecodeLastRuneInString(text[:start])
		after, _ := utf8.DecodeRuneInString(text[end:])
		if !wordRune(before) && !wordRune(after) {
			return start, true
		}
		from = start + 1
	}
	return 0, false
}

// replaceWord replaces a value where it stands as a whole word.
func replaceWord(text, value, with string) string {
	var b strings.Builder
	for {
		at, is := wordAt(text, value)
		if !is {
			return b.String() + text
		}
		b.WriteString(text[:at] + with)
		text = text[at+len(value):]
	}
}

func wordRune(r rune) bool {
	return r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
}

// otherTool looks for another tool that did what the failing one could not: of like name, or given the same arguments.
func (a *analyser) otherTool(i int) *Finding {
	steps := a.task.Steps
	s := steps[i]
	if slices.ContainsFunc(steps[i+1:], func(w Step) bool { return w.Tool == s.Tool && w.Status == events.StatusSuccess }) {
		return nil
	}
	mine := flatten(s.Parameters).values()
	for j := i + 1; j < len(steps) && j <= i+4; j++ {
		w := steps[j]
		if w.Tool == s.Tool || w.Status != events.StatusSuccess || looksFailed(w) || IsRead(w.Tool, commandOf(w)) != IsRead(s.Tool, commandOf(s)) || isThought(w.Tool) {
			continue
		}
		theirs := flatten(w.Parameters).values()
		shared := 0
		for v := range mine {
			if theirs[v] {
				shared++
			}
		}
		alike := sameByName(s.Tool, w.Tool)
		if !alike && (shared < 2 || shared*3 < len(mine)*2) {
			continue
		}
		return &Finding{
			Kind: FindingRepaired, Step: s, Working: &w, Trust: TrustAgentInferred, Instead: w.Tool,
			InsteadParameters: topParameters(w), Evidence: []string{s.EventID, w.EventID},
		}
	}
	return nil
}

// sameByName reports names that differ only in how: find_user_by_email, find_user_by_name.
func sameByName(x, y string) bool {
	a, b := nameWords(x), nameWords(y)
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	if n < 3 {
		return false
	}
	return slices.Contains([]string{"by", "with", "from", "via", "using", "in"}, a[n-1])
}

func topParameters(s Step) []string { return TopParameters(s.Parameters) }

// TopParameters names the members of a call's parameters.
func TopParameters(parameters json.RawMessage) []string {
	f := flatten(parameters)
	var out []string
	for _, p := range f.paths() {
		head := TopParameter(p)
		if !slices.Contains(out, head) {
			out = append(out, head)
		}
	}
	return out
}

// TopParameter is the member of a call's parameters that a path begins with.
func TopParameter(path string) string {
	head, _, _ := strings.Cut(path, ".")
	return strings.TrimSuffix(head, "[]")
}

var (
	requiredPydantic = regexp.MustCompile(`(?m)^([A-Za-z_][\w.]*)\s+(?i:field required)`)
	requiredName     = regexp.MustCompile("(?i)(?:missing|required)(?: required)?(?: keyword-only| positional)?(?: argument| parameter| field| property| key)?s?:? [`'\"]?([A-Za-z_]\\w*)[`'\"]?|[`'\"]?([A-Za-z_]\\w*)[`'\"]? is (?:a )?(?:required|missing|mandatory)|缺少(?:必填|必需|必要)?(?:的)?(?:参数|字段)?[:： ]*[`'\"“]?([A-Za-z_]\\w*)|([A-Za-z_]\\w*)(?:不能为空|为必填|是必填|必填)")
	mustMatch        = regexp.MustCompile(`(?i)should match|must match|does not match|do not match|same (?:length|number)|mismatch|不匹配|不一致|数量(?:必须|应)?相同`)
)

// explain fills in what the failing call itself shows.
func (a *analyser) explain(f *Finding) {
	s := f.Step
	text := errorText(s)
	f.Signature = ErrorSignature(cmp.Or(s.ErrorMessage, s.ErrorType))
	mine := flatten(s.Parameters)
	for _, m := range requiredPydantic.FindAllStringSubmatch(text, 5) {
		if !slices.Contains(f.Missing, m[1]) {
			f.Missing = append(f.Missing, m[1])
		}
	}
	if len(f.Missing) == 0 {
		if m := requiredName.FindStringSubmatch(text); m != nil {
			if name := cmp.Or(m[1], m[2], m[3], m[4]); !stopWord(name) {
				f.Missing = []string{name}
			}
		}
	}
	if mustMatch.MatchString(text) && len(mine.lengths) >= 2 {
		lists := make([]string, 0, 2)
		for path, n := range mine.lengths {
			if !strings.Contains(path, "[]") && slices.ContainsFunc(nameWords(path), func(w string) bool { return strings.Contains(strings.ToLower(text), strings.TrimSuffix(w, "s")) }) {
				lists = append(lists, path)
				_ = n
			}
		}
		slices.Sort(lists)
		if len(lists) == 2 && mine.lengths[lists[0]] != mine.lengths[lists[1]] {
			f.Uneven = lists
		}
	}
	keep := slices.Concat(toolNames(a.task), parameterNames(s), f.Missing)
	if f.Working != nil {
		keep = append(keep, parameterNames(*f.Working)...)
	}
	text = withoutValues(text, mine)
	f.Error = quotable(text, a.instanceAt(slices.IndexFunc(a.task.Steps, func(x Step) bool { return x.EventID == s.EventID })),
		slices.DeleteFunc(keep, func(w string) bool { return len(w) < 3 }))
	f.Total = totalOf(s.Parameters, text)
	f.Look = a.reader(s, f)
}

// withoutValues replaces values of a call in what its error says: identifiers need not look like such.
func withoutValues(text string, f flat) string {
	for _, path := range f.paths() {
		for _, l := range f.leaves[path] {
			if l.kind != "text" || utf8.RuneCountInString(l.value) < 3 || utf8.RuneCountInString(l.value) > 80 || isMode(path, l) || strings.ContainsAny(l.value, "<>") {
				continue
			}
			with := "<name>"
			if words := nameWords(path); slices.Contains(words, "id") || slices.Contains(words, "ids") || slices.Contains(words, "number") || slices.Contains(words, "code") {
				with = "<id>"
			}
			if Abstract(l.value) == l.value || valueStem.MatchString(l.value) {
				text = replaceWord(text, l.value, with)
			}
		}
	}
	return text
}

func stopWord(w string) bool {
	return slices.Contains([]string{"a", "an", "the", "in", "for", "to", "is", "it", "this", "that", "input", "value", "argument", "field", "parameter", "by", "at", "type", "and", "or", "which", "what"}, strings.ToLower(w))
}

// reader finds the tool that showed what a failing call was about: a reading call that worked and had one of its
// values as a parameter, or had it in its result.
func (a *analyser) reader(s Step, f *Finding) string {
	mine := flatten(s.Parameters)
	best, event, score := "", "", 0
	for _, r := range a.task.Steps {
		if r.Tool == s.Tool || r.Status != events.StatusSuccess || !IsRead(r.Tool, commandOf(r)) || isThought(r.Tool) {
			continue
		}
		asked, n := flatten(r.Parameters), 0
		for path, leaves := range mine.leaves {
			if freeText.MatchString(path) {
				continue
			}
			for _, l := range leaves {
				if l.kind != "text" || utf8.RuneCountInString(l.value) < 2 || isMode(path, l) {
					continue
				}
				if other := asked.leaves[path]; slices.Contains(other, l) {
					n += 3
				} else if holds(r.Result, l.value) {
					n++
				}
			}
		}
		for _, word := range nameWords(s.Tool) {
			if len(word) > 3 && slices.Contains(nameWords(r.Tool), word) {
				n++
			}
		}
		if n > score && n > 1 {
			best, event, score = r.Tool, r.EventID, n
		}
	}
	if best != "" {
		f.Evidence = append(f.Evidence, event)
	}
	return best
}

func toolNames(t Task) []string {
	var out []string
	for _, s := range t.Steps {
		if !slices.Contains(out, s.Tool) {
			out = append(out, s.Tool)
		}
	}
	return out
}

// maxGoalQuote is how much of a goal a lesson quotes, in runes.
const maxGoalQuote = 120

// greeting is how a request begins and nothing of it.
var greeting = regexp.MustCompile(`(?i)^(?:(?:hi|hey|hello|bonjour|hola|good (?:morning|afternoon|evening)|dear \w+|greetings)(?: there)?(?:\s*[,.!…]+\s*|\s+)|(?:您好|你好|嗨|请问)[，,。！! ]*)+`)

// maxQuote is how long a quoted error or user's word may be, in runes.
const maxQuote = 160

var (
	errorBoilerplate = regexp.MustCompile(`(?i)\s*\[type=[^\]]*\]?.*?(?:for further information visit \S+|$)|for further information visit \S+|traceback \(most recent call last\):.*\n(?:\s+.*\n)*`)
	errorPrefix      = regexp.MustCompile(`^(?i:error|错误)\s*[:：]\s*`)
	countedErrors    = regexp.MustCompile(`^\d+ validation errors? for`)
)

// quotable makes the text of an error fit to be quoted in a lesson: without boilerplate and values, cleaned of what must
// not enter an item, and short. It is empty when the text tries to instruct the reader.
func quotable(text string, of instance, keep []string) string {
	text = strings.TrimSpace(errorPrefix.ReplaceAllString(strings.TrimSpace(text), ""))
	text = countedErrors.ReplaceAllString(text, "validation error for")
	lines := make([]string, 0, 4)
	for line := range strings.Lines(Cut(text, 4000)) {
		if line = strings.TrimSpace(errorBoilerplate.ReplaceAllString(strings.TrimSpace(line), "")); line != "" {
			lines = append(lines, line)
		}
		if len(lines) == 4 {
			break
		}
	}
	clean, found := CleanExternal(strings.Join(lines, " "))
	if slices.Contains(found, FoundInstruction) {
		return ""
	}
	return Cut(strings.ReplaceAll(abstractTold(clean, of, keep), `"`, "'"), maxQuote)
}

// instanceAt is what the task had said when a step answered: what was said, and the parameters of calls.
func (a *analyser) instanceAt(step int) instance {
	var b strings.Builder
	b.WriteString(string(a.saidAt(step)))
	for _, s := range a.task.Steps[:min(step+1, len(a.task.Steps))] {
		b.WriteString(strings.ToLower(string(s.Parameters)) + "\n")
	}
	return instance(b.String())
}

// saidAt is what the goal, the user and earlier results had said when a step was made.
func (a *analyser) saidAt(step int) instance {
	if _, is := a.said[step]; !is {
		a.said[step] = said(a.task, a.userTexts(), step)
	}
	return a.said[step]
}

// said is what a task's goal and results before a step said, and messages.
func said(t Task, messages []string, step int) instance {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%s\n%s\n", t.Goal, t.InputSummary, strings.Join(messages, "\n"))
	for _, s := range t.Steps[:min(max(step, 0), len(t.Steps))] {
		if s.Status == events.StatusSuccess {
			b.WriteString(Cut(s.Result, maxInstanceResult) + "\n")
		}
	}
	return instance(strings.ToLower(b.String()))
}

// maxInstanceResult is how much of each result is looked at, in runes.
const maxInstanceResult = 8000

// codeOf names the codes of an error that its signature does not tell apart.
func codeOf(text string, of instance) string {
	var out []string
	for _, at := range toolWords(text, of) {
		out = append(out, strings.ToLower(text[at[0]:at[1]]))
	}
	return strings.Join(out, " ")
}

// complete judges a finding and writes what it rests on.
func (a *analyser) complete(f *Finding) {
	f.TaskFailed = failed(a.task)
	f.TaskType = a.task.TaskType
	f.HandOver = isHandOver(f.Step.Tool)
	goal, _ := CleanExternal(Cut(cmp.Or(a.task.Goal, a.task.InputSummary), 600))
	goal = greeting.ReplaceAllString(goal, "")
	f.Goal = Cut(strings.NewReplacer(`"`, "'", "“", "'", "”", "'").Replace(AbstractGoal(goal, f.Step.Parameters, append(slices.Clone(a.task.AvailableTools), toolNames(a.task)...))), maxGoalQuote)
	slices.Sort(f.Evidence)
	f.Evidence = slices.Compact(f.Evidence)
	f.Situation = Situation(SituationOf{
		TaskType: a.task.TaskType, Goal: cmp.Or(a.task.Goal, a.task.InputSummary), Tool: f.Step.Tool, Parameters: f.Step.Parameters,
		Error: f.Error, AvailableTools: a.task.AvailableTools,
	})
	f.CauseClass = causeOf(f)
	a.judge(f)
	if f.Peers > 0 {
		f.ImportanceReasons, f.ConfidenceReasons = ofKind(f.ImportanceReasons), ofKind(f.ConfidenceReasons)
	}
	f.EvidenceText = a.evidenceText(f)
	f.Vocabulary = a.vocabulary(f)
}

// ofKind puts right what reasons say of tasks that share the type and not the goal.
func ofKind(reasons []string) []string {
	out := slices.Clone(reasons)
	for i := range out {
		out[i] = strings.NewReplacer("of the same goal", "of the same type", "of the goal", "of the type").Replace(out[i])
	}
	return out
}

func causeOf(f *Finding) CauseClass {
	switch {
	case f.Instead != "" || f.Kind == FindingDiverged && (len(f.Left) > 0 || len(f.Extra) > 0):
		return CauseTool
	case len(f.Before) > 0 && len(f.Changes) == 0:
		return CauseOrder
	case slices.ContainsFunc(f.Changes, func(c Change) bool { return c.Source == SourceTool || c.Source == SourceUser }) &&
		!slices.ContainsFunc(f.Changes, func(c Change) bool { return c.Kind != ChangeValue }):
		return CauseInformation
	case len(f.Changes) > 0 || len(f.Missing) > 0 || len(f.Uneven) > 0:
		return CauseParameter
	case strings.Contains(f.Signature, "not found") || strings.Contains(f.Signature, "does not exist") || strings.Contains(f.Signature, "不存在"):
		return CauseInformation
	default:
		return CauseOther
	}
}

// evidenceText is what a lesson from this finding may speak of: the calls and messages of its evidence, and what was
// counted.
func (a *analyser) evidenceText(f *Finding) string {
	var b strings.Builder
	for _, m := range a.line {
		if !slices.Contains(f.Evidence, m.eventID) {
			continue
		}
		if m.step >= 0 {
			writeStep(&b, a.task.Steps[m.step])
		} else {
			fmt.Fprintf(&b, "%s\n", m.message.Content)
		}
	}
	if !strings.Contains(b.String(), f.Step.Tool) {
		writeStep(&b, f.Step) // It was reported by an event of another kind.
	}
	if f.Working != nil {
		writeStep(&b, *f.Working)
	}
	for _, t := range a.compared(f) {
		for _, s := range t.Steps {
			if slices.Contains(f.Evidence, s.EventID) {
				writeStep(&b, s)
			}
		}
	}
	fmt.Fprintf(&b, "%s\n%s\n", a.task.TaskType, a.task.Goal)
	fmt.Fprintf(&b, "failed %d times, %d of them unchanged; %d other tasks of the same goal or type\n", f.Repeats, f.Unchanged, f.Siblings)
	fmt.Fprintf(&b, "%s\n%s\n", f.Goal, a.task.Reason)
	for _, c := range f.Changes {
		fmt.Fprintf(&b, "%s: %s %s, not %s %s\n", c.Parameter, c.SourceTool, c.To, c.From, c.Form.standard())
	}
	for path, n := range flatten(f.Step.Parameters).lengths {
		fmt.Fprintf(&b, "%s has %d entries\n", path, n)
	}
	if f.Working != nil {
		for path, n := range flatten(f.Working.Parameters).lengths {
			fmt.Fprintf(&b, "%s has %d entries\n", path, n)
		}
	}
	return b.String()
}

func writeStep(b *strings.Builder, s Step) {
	fmt.Fprintf(b, "%s %s %s %s %s %s\n", s.Tool, s.Parameters, s.Status, s.ErrorType, s.ErrorMessage, Cut(s.Result, 4000))
	for _, p := range flatten(s.Parameters).paths() {
		fmt.Fprintf(b, "%s ", p)
	}
	b.WriteByte('\n')
}

func (a *analyser) compared(f *Finding) []Task {
	switch f.Kind {
	case FindingDiverged, FindingRepaired:
		out := slices.Clone(a.succeeded)
		for _, p := range a.peers {
			out = append(out, p.Task)
		}
		return out
	case FindingDecisive:
		return a.failedBefore
	default:
		return nil
	}
}

// parameterNames are the names of parameters at every level, and their paths.
func parameterNames(s Step) []string {
	out := topParameters(s)
	for _, p := range flatten(s.Parameters).paths() {
		out = append(out, p)
		if i := strings.LastIndexByte(p, '.'); i >= 0 {
			out = append(out, p[i+1:])
		}
	}
	return out
}

func (a *analyser) vocabulary(f *Finding) []string {
	out := []string{f.Step.Tool}
	add := func(words ...string) {
		for _, w := range words {
			if w != "" && !slices.Contains(out, w) {
				out = append(out, w)
			}
		}
	}
	add(parameterNames(f.Step)...)
	if f.Working != nil {
		add(f.Working.Tool)
		add(parameterNames(*f.Working)...)
	}
	add(f.Before...)
	add(f.Left...)
	add(f.Extra...)
	add(f.Look, f.Instead)
	return out
}
