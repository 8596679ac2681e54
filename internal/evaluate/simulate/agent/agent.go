// Package agent is the scripted agent of the simulation: it works on tasks by a fixed, written policy and does otherwise
// than its habit only when a text tells it to.
//
// It sees what an agent would see: its tools, the goal, what its calls answer, and the texts that a memory returns. It
// knows neither the failure classes nor which text is right, and imports nothing that does. It reads texts by patterns of
// common instructions, in English and Chinese (see [Advice]), as a stand-in for a language model, which reads more.
//
// The policy, for each call of its plan:
//
//  1. It makes the call as it always does; now and then (a call that has a variant) as it sometimes does.
//  2. What a memory's text says of this tool it follows with probability Obedience. It decides anew for each answer that
//     says so: what it passes over at the start of a task it may heed when it is told again right before the call. With
//     DecidesOnce the first decision stands all through a task.
//  3. When the call fails and the failure is one of the environment, it tries the same again, twice.
//  4. When a call fails that followed advice, it drops the advice, tells the memory so, and does as it always does.
//  5. Otherwise it does what the error text says; else its next own idea; else it gives up, and the task ends.
//
// A call is tried five times at most.
package agent

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"maps"
	"regexp"
	"slices"

	"github.com/hindsight-memory/hindsight/internal/evaluate/simulate/script"
)

// Memory is what the agent can ask. Answers are the texts of the protocol as they came.
type Memory interface {
	// Recall is asked once at the start of a task.
	Recall(ctx context.Context, task script.Task) (string, error)
	// Check is asked before a call.
	Check(ctx context.Context, task script.Task, call script.Call) (string, error)
	// Feedback says whether following an item helped.
	Feedback(ctx context.Context, task script.Task, item string, helpful bool) error
}

// Tools makes a call.
type Tools func(call script.Call) script.Result

// Step is a call that was made and what came back.
type Step struct {
	Call   script.Call
	Result script.Result
	// Followed says that the call was made otherwise because a memory's text said so.
	Followed bool
}

// Agent works on tasks. Its zero value but for the seed is an agent without a memory that never obeys.
type Agent struct {
	// Seed decides what is left to chance.
	Seed uint64
	// Obedience is the probability, 0 to 1, that it follows what an answer of a memory tells it.
	Obedience float64
	// DecidesOnce makes it decide once a task about what it is told, however often it is told.
	DecidesOnce bool
	// VariantShare is how often, 0 to 1, it makes a call by its variant where it has one.
	VariantShare float64
	Memory       Memory
}

const (
	// maxAttempts is how often one call is tried.
	maxAttempts = 5
	// maxUnchanged is how often a call is repeated when the environment fails.
	maxUnchanged = 2
)

// Run works on a task and returns what it did. The error is that of the memory.
func (a *Agent) Run(ctx context.Context, task script.Task, tools Tools) ([]Step, error) {
	w := &work{agent: a, ctx: ctx, task: task, tools: tools, results: map[string]map[string]any{}}
	if a.Memory != nil {
		text, err := a.Memory.Recall(ctx, task)
		if err != nil {
			return nil, fmt.Errorf("ask at the start of a task: %w", err)
		}
		w.advice = read(text, "", task)
	}
	w.rest = w.planned()
	for len(w.rest) > 0 {
		call := w.rest[0]
		w.rest = w.rest[1:]
		if w.had(call) {
			continue
		}
		done, err := w.attempt(call)
		if err != nil {
			return w.steps, err
		}
		if !done {
			return w.steps, nil // It gives up.
		}
	}
	return w.steps, nil
}

// work is one task under way.
type work struct {
	agent *Agent
	ctx   context.Context //nolint:containedctx // a task's work does not outlive Run
	task  script.Task
	tools Tools
	steps []Step
	// advice is what the start of the task told.
	advice []Advice
	// rest are the calls of the plan that are still to be made.
	rest []script.Call
	// results are the answers of calls that worked, by tool.
	results map[string]map[string]any
	// rejected are items that failed in this task.
	rejected []string
}

// chance is a number from 0 to 1 that depends on the seed, the task and what it is for, and on nothing else, so that two
// agents that differ in their memory alone have the same luck.
func (a *Agent) chance(task, what string) float64 {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%d\x00%s\x00%s", a.Seed, task, what) // a hash takes everything
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], h.Sum64())
	// FNV's high bits are weak for short inputs: mix them.
	x := binary.LittleEndian.Uint64(b[:])
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	x ^= x >> 33
	return float64(x>>11) / (1 << 53)
}

// telling names the answer to a question before a call among those of a task; that of its start has no name.
func (w *work) telling(tool string) string {
	if w.agent.DecidesOnce {
		return ""
	}
	return "\x00before " + tool
}

// obeys decides about what an answer says, the same way whenever that answer is looked at.
func (w *work) obeys(ad Advice) bool {
	if slices.Contains(w.rejected, ad.Item) {
		return false
	}
	what := fmt.Sprintf("obey\x00%s\x00%s\x00%s\x00%s%s", ad.Edit.Op, ad.Edit.Parameter, ad.Edit.Tool, ad.Tool, ad.Answer)
	return w.agent.chance(w.task.ID, what) < w.agent.Obedience
}

// planned is the plan as advice about whole tasks has it: calls that tasks of this type need beside it, and calls that
// harm them.
func (w *work) planned() []script.Call {
	plan := slices.Clone(w.task.Plan)
	for _, call := range w.task.Plan {
		if w.varies(call) {
			for _, e := range call.Variant {
				plan = replanned(plan, e)
			}
		}
	}
	return w.replan(plan, w.advice)
}

// replan does with a plan what advice about whole tasks of this type says.
func (w *work) replan(plan []script.Call, advice []Advice) []script.Call {
	for _, ad := range advice {
		if (ad.TaskType == "" || ad.TaskType == w.task.Type) && w.obeys(ad) {
			plan = replanned(plan, ad.Edit)
		}
	}
	return plan
}

// varies says that a call is made by its variant in this task.
func (w *work) varies(call script.Call) bool {
	return len(call.Variant) > 0 && w.agent.chance(w.task.ID, "variant\x00"+call.Tool) < w.agent.VariantShare
}

// replanned adds a call to a plan or takes one out, where the edit is about that.
func replanned(plan []script.Call, e script.Edit) []script.Call {
	at := slices.IndexFunc(plan, func(c script.Call) bool { return c.Tool == e.Tool })
	switch {
	case e.Op == script.OpNever && at >= 0:
		return slices.Delete(plan, at, at+1)
	case e.Op == script.OpAlso && at < 0:
		return append(plan, script.Call{Tool: e.Tool})
	default:
		return plan
	}
}

// known finds a value for a parameter: in what the goal says, else in what calls have answered.
func (w *work) known(name string) (any, bool) {
	if v, is := w.task.Facts[name]; is {
		return v, true
	}
	for _, tool := range slices.Sorted(maps.Keys(w.results)) {
		if v, is := w.results[tool][name]; is {
			return v, true
		}
	}
	return nil, false
}

// complete gives a call the parameters that its tool needs and that it lacks, as far as the agent knows them.
func (w *work) complete(call script.Call) script.Call {
	tool, _ := w.task.Tool(call.Tool)
	out := call
	out.Parameters = maps.Clone(call.Parameters)
	if out.Parameters == nil {
		out.Parameters = map[string]any{}
	}
	for _, name := range tool.Parameters {
		if _, has := out.Parameters[name]; has {
			continue
		}
		if v, is := w.known(name); is {
			out.Parameters[name] = v
		}
	}
	return out
}

// had reports a call of the plan that was made already, because another needed it.
func (w *work) had(call script.Call) bool {
	want := w.complete(call)
	return slices.ContainsFunc(w.steps, func(s Step) bool {
		return s.Result.OK && s.Call.Tool == want.Tool && script.Canonical(s.Call.Parameters) == script.Canonical(want.Parameters)
	})
}

// made makes a call and takes note.
func (w *work) made(call script.Call, followed bool) script.Result {
	result := w.tools(call)
	w.steps = append(w.steps, Step{Call: call, Result: result, Followed: followed})
	if result.OK {
		w.results[call.Tool] = result.Value
	}
	return result
}

// attempt tries one call of the plan until it works or the agent gives up.
func (w *work) attempt(planned script.Call) (done bool, err error) {
	habit := planned
	if len(planned.Parameters) == 0 {
		habit = w.complete(planned)
	}
	if w.varies(habit) {
		habit = w.edited(habit, habit.Variant)
	}
	advice := slices.Clone(w.advice)
	if w.agent.Memory != nil {
		text, err := w.agent.Memory.Check(w.ctx, w.task, habit)
		if err != nil {
			return false, fmt.Errorf("ask before a call: %w", err)
		}
		told := read(text, w.telling(habit.Tool), w.task)
		w.rest = w.replan(w.rest, told)
		advice = append(told, advice...)
	}
	call, followed := w.advised(habit, advice)
	base, unchanged, ideas := habit, 0, habit.Ideas
	for range maxAttempts {
		result := w.made(call, len(followed) > 0)
		if result.OK {
			return true, w.tell(followed, true)
		}
		switch {
		case environment.MatchString(result.ErrorType+" "+result.Message) && unchanged < maxUnchanged:
			unchanged++
			continue
		case len(followed) > 0:
			if err := w.tell(followed, false); err != nil {
				return false, err
			}
			w.rejected = append(w.rejected, followed...)
			followed, call = nil, base
			continue
		}
		next := w.edited(base, understand(result.ErrorType+" "+result.Message, w.task))
		switch {
		case !w.sameAs(next, call):
			base, call = next, next
		case len(ideas) > 0:
			call, ideas = w.edited(base, ideas[0]), ideas[1:]
		default:
			return false, nil
		}
	}
	return false, nil
}

// environment is what outages look like to whoever meets one.
var environment = regexp.MustCompile(`(?i)\b(?:429|502|503|504)\b|unavailable|timed? ?out|rate limit|too many requests|connection reset|try again later|稍后重试|超时|限流`)

// sameAs reports that nothing would be done otherwise.
func (w *work) sameAs(a, b script.Call) bool {
	return a.Tool == b.Tool && script.Canonical(a.Parameters) == script.Canonical(b.Parameters) && len(w.steps) > 0 && w.steps[len(w.steps)-1].Call.Tool == a.Tool
}

// advised makes a call as the advice has it that is about its tool and that the agent obeys. followed are the items that
// changed it. Of two that say something about one parameter the first counts.
func (w *work) advised(call script.Call, advice []Advice) (out script.Call, followed []string) {
	out = call
	var changed []string
	for _, ad := range advice {
		if ad.Edit.Op == script.OpAlso || ad.Edit.Op == script.OpNever || ad.Tool != "" && ad.Tool != call.Tool || slices.Contains(changed, ad.Edit.Parameter+"/"+ad.Edit.Tool) || !w.obeys(ad) {
			continue
		}
		before, calls := out, len(w.steps)
		out = w.edited(out, []script.Edit{ad.Edit})
		if before.Tool != out.Tool || script.Canonical(before.Parameters) != script.Canonical(out.Parameters) || len(w.steps) > calls {
			changed = append(changed, ad.Edit.Parameter+"/"+ad.Edit.Tool)
			if ad.Item != "" && !slices.Contains(followed, ad.Item) {
				followed = append(followed, ad.Item)
			}
		}
	}
	return out, followed
}

// edited makes a call otherwise. Calls that have to come before it are made at once, unless they were.
func (w *work) edited(call script.Call, edits []script.Edit) script.Call {
	for _, e := range edits {
		switch e.Op {
		case script.OpFirst, script.OpTake:
			if _, had := w.results[e.Tool]; !had && e.Tool != call.Tool {
				w.made(w.complete(script.Call{Tool: e.Tool}), false)
			}
			if e.Op == script.OpTake {
				if v, is := w.results[e.Tool][e.Parameter]; is {
					call.Parameters = maps.Clone(call.Parameters)
					call.Parameters[e.Parameter] = v
				}
			}
		case script.OpInstead:
			if e.Tool != call.Tool {
				other := w.complete(script.Call{Tool: e.Tool})
				tool, _ := w.task.Tool(e.Tool)
				for _, name := range tool.Parameters { // What the call says goes before what is known otherwise.
					if v, is := call.Parameters[name]; is {
						other.Parameters[name] = v
					}
				}
				call.Tool, call.Parameters = other.Tool, other.Parameters
			}
		case script.OpAlso, script.OpNever:
		default:
			call.Parameters, _ = script.Apply(call.Parameters, e, w.known)
		}
	}
	return call
}

// tell gives the memory feedback on what was followed.
func (w *work) tell(items []string, helpful bool) error {
	for _, item := range items {
		if err := w.agent.Memory.Feedback(w.ctx, w.task, item, helpful); err != nil {
			return fmt.Errorf("give feedback: %w", err)
		}
	}
	return nil
}
