// Package world is the simulated world: tools that fail in known ways, users whose tasks need them, and the judgement of
// how a task ended. Failure classes are known here and to whoever measures, and to nobody else.
//
// A stream of tasks depends on its seed alone: every arm of an experiment meets the same tasks in the same order. The world
// checks by itself what is right; it does no I/O.
package world

import (
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/hindsight-memory/hindsight/internal/evaluate/simulate/script"
)

// Task is a task with what only the world knows of it.
type Task struct {
	script.Task
	// Class is the way in which it can fail, Kind what that is; Plain tasks have none.
	Class string
	Kind  Kind
	class class
	right E
	// expected are the parameters that work, but for those whose values come from other calls.
	expected map[string]any
	// faults is how many calls of the tool fail for no fault of the agent.
	faults int
}

// Options choose a stream.
type Options struct {
	Seed uint64
	// Tasks is how many tasks there are.
	Tasks int
	// Classes is how many failure classes they are about; 0 means a quarter of the tasks, at least one of each kind.
	Classes int
}

// plainShare is the share of tasks in which nothing is wrong.
const plainShare = 0.1

// chineseEvery is which share of tasks is in Chinese: one in so many.
const chineseEvery = 3

// ClassCount is how many failure classes there are.
func ClassCount() int { return len(failures()) }

func failures() []class {
	return slices.DeleteFunc(classes(), func(c class) bool { return c.kind == Plain })
}

// Stream makes the tasks of a seed.
func Stream(o Options) []Task {
	random := rand.New(rand.NewPCG(o.Seed, 0x5eed)) //nolint:gosec // it is to be repeatable
	chosen := choose(random, o)
	order := occurrences(random, o.Tasks, chosen)
	of := map[string]int{}
	for _, c := range order {
		of[c.id]++
	}
	pools := map[string][]instance{}
	at := map[string]int{}
	tasks := make([]Task, 0, len(order))
	for n, c := range order {
		chinese := random.IntN(chineseEvery) == 0
		key := fmt.Sprintf("%s/%t", c.id, chinese)
		if pools[key] == nil {
			for range pool {
				pools[key] = append(pools[key], newInstance(random, chinese))
			}
		}
		i := pools[key][random.IntN(pool)]
		goals := c.en
		if chinese {
			goals = c.zh
		}
		t := newTask(c, i, c.rightAt(at[c.id], of[c.id]), chinese, i.fill(goals[random.IntN(len(goals))]))
		t.ID = fmt.Sprintf("task-%d-%03d", o.Seed, n)
		if c.kind == Environment {
			t.faults = random.IntN(5) // 3 and more are too many for the agent's patience
		}
		at[c.id]++
		tasks = append(tasks, t)
	}
	return tasks
}

// choose draws the failure classes of a stream: at least one of each kind, the rest by chance.
func choose(random *rand.Rand, o Options) []class {
	want := o.Classes
	if want == 0 {
		want = max(o.Tasks/4, len(Kinds()))
	}
	all := failures()
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	var out, rest []class
	have := map[Kind]bool{}
	for _, c := range all {
		if !have[c.kind] {
			have[c.kind] = true
			out = append(out, c)
		} else {
			rest = append(rest, c)
		}
	}
	out = append(out, rest...)
	return out[:min(want, len(out))]
}

// occurrences says which class each task is of: every class is met about equally often, in an order by chance.
func occurrences(random *rand.Rand, tasks int, chosen []class) []class {
	plain := slices.DeleteFunc(classes(), func(c class) bool { return c.kind != Plain })
	out := make([]class, 0, tasks)
	for n := range int(float64(tasks) * plainShare) {
		out = append(out, plain[n%len(plain)])
	}
	for n := 0; len(out) < tasks; n++ {
		out = append(out, chosen[n%len(chosen)])
	}
	random.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// newTask makes a task of a class as the agent is given it, and what the world expects.
func newTask(c class, i instance, right E, chinese bool, goal string) Task {
	t := Task{Class: c.id, Kind: c.kind, class: c, right: right}
	parameters := i.params(c.params)
	h := fnv.New64a()
	_, _ = h.Write([]byte(c.taskType + script.Canonical(parameters)))
	t.Type, t.Goal, t.Chinese, t.GoalID = c.taskType, goal, chinese, fmt.Sprintf("goal-%x", h.Sum64())
	t.Facts = i.params(c.facts)
	look := lookups()[c.taskType]
	lookFor := map[string]any{look.parameters[0]: t.Goal}
	for _, name := range look.parameters {
		if v, is := parameters[name]; is {
			lookFor[name] = v
		} else {
			lookFor[name] = i.values["who"]
		}
	}
	t.Plan = []script.Call{{Tool: look.name, Parameters: lookFor}}
	main := script.Call{Tool: c.tool, Parameters: parameters}
	if len(right) > 0 {
		for range c.idea - 1 {
			main.Ideas = append(main.Ideas, nil) // The same again.
		}
		if c.idea > 0 {
			main.Ideas = append(main.Ideas, right)
		}
	}
	if c.kind == OneOff && len(right) == 0 || c.kind == Environment || c.kind == Plain {
		main.Ideas = nil
	}
	t.Tools = append(t.Tools, script.Tool{Name: look.name, Parameters: look.parameters}, script.Tool{Name: c.tool, Parameters: slices.Sorted(maps.Keys(c.params))})
	for _, tool := range c.helpers {
		t.Tools = append(t.Tools, script.Tool{Name: tool.name, Parameters: tool.parameters})
	}
	maps.Copy(t.Facts, i.params(helperFacts(c)))
	if c.variant {
		main.Variant = right
	}
	t.Plan = append(t.Plan, main)
	for _, name := range c.then {
		t.Plan = append(t.Plan, script.Call{Tool: name})
	}
	t.expected = parameters
	for _, e := range right {
		t.expected, _ = script.Apply(t.expected, e, func(name string) (any, bool) { v, is := t.Facts[name]; return v, is })
	}
	return t
}

// helperFacts are values for the parameters of helpers that the default call has.
func helperFacts(c class) P {
	out := P{}
	for _, h := range c.helpers {
		for _, name := range h.parameters {
			if v, is := c.params[name]; is {
				out[name] = v
			}
		}
	}
	return out
}

// Session is a task under way in the world.
type Session struct {
	task    Task
	results map[string]map[string]any
	calls   int
	// failed are the classes that were met.
	failed map[string]Kind
	// wrong marks a silent failure, done that the main call worked.
	wrong, done bool
	faults      int
}

// Misled is the class of a failure that only wrong advice can have led to.
const Misled = "misled"

// Open begins a task.
func (t Task) Open() *Session {
	return &Session{task: t, results: map[string]map[string]any{}, failed: map[string]Kind{}, faults: t.faults}
}

// Calls is how many calls were made.
func (s *Session) Calls() int { return s.calls }

// DoneRight is how the finished task was done, as edits of the default call of a tool; is says that it was done right.
func (s *Session) DoneRight() (tool string, edits []script.Edit, is bool) {
	return s.task.class.tool, s.task.right, s.done && !s.wrong
}

// Failed are the classes in which the task failed so far, by kind; whether it was repaired or not.
func (s *Session) Failed() map[string]Kind { return s.failed }

// Call answers a call of the agent.
func (s *Session) Call(call script.Call) script.Result {
	s.calls++
	c := s.task.class
	if call.Tool != c.tool && call.Tool != s.target() {
		return s.helper(call)
	}
	if c.kind == Environment && s.faults > 0 {
		s.faults--
		return s.fail()
	}
	if !s.ready(call) {
		if c.silent {
			s.wrong, s.done = true, true
			s.failed[c.id] = c.kind
			return s.ok(call)
		}
		return s.fail()
	}
	if name, wrong := s.deviation(call); wrong {
		s.failed[c.id+"/"+Misled] = c.kind
		if c.takesAll() {
			s.wrong, s.done = true, true
			return s.ok(call)
		}
		return script.Result{ErrorType: "InvalidArgument", Message: "invalid value for " + name}
	}
	s.done, s.wrong = true, false
	return s.ok(call)
}

// target is the tool that does the job.
func (s *Session) target() string {
	for _, e := range s.task.right {
		if e.Op == script.OpInstead {
			return e.Tool
		}
	}
	return s.task.class.tool
}

func (s *Session) fail() script.Result {
	c := s.task.class
	s.failed[c.id] = c.kind
	message := c.error
	if s.task.Chinese && c.errorZH != "" {
		message = c.errorZH
	}
	return script.Result{ErrorType: c.errorType, Message: message}
}

func (s *Session) ok(call script.Call) script.Result {
	value := map[string]any{"status": "ok"}
	s.results[call.Tool] = value
	return script.Result{OK: true, Value: value}
}

// ready says whether a call has what its class needs.
func (s *Session) ready(call script.Call) bool {
	for _, e := range s.task.right {
		switch e.Op {
		case script.OpFirst:
			if _, had := s.results[e.Tool]; !had {
				return false
			}
		case script.OpTake:
			want, had := s.results[e.Tool][e.Parameter]
			if !had || script.Text(want) != script.Text(call.Parameters[e.Parameter]) {
				return false
			}
		case script.OpInstead:
			if call.Tool != e.Tool {
				return false
			}
		case script.OpAlso, script.OpNever: // The end of the task shows it.
		default:
			want, needed := s.task.expected[e.Parameter]
			got, has := call.Parameters[e.Parameter]
			if needed != has || needed && !script.Equal(want, got) {
				return false
			}
			if e.Op == script.OpRename {
				if _, still := call.Parameters[e.Name]; still {
					return false
				}
			}
		}
	}
	return true
}

// deviation finds a parameter that is not as it has to be, for no reason of the class.
func (s *Session) deviation(call script.Call) (string, bool) {
	taken := func(name string) bool {
		return slices.ContainsFunc(s.task.right, func(e script.Edit) bool { return e.Op == script.OpTake && e.Parameter == name })
	}
	for _, name := range slices.Sorted(maps.Keys(s.task.expected)) {
		got, has := call.Parameters[name]
		if !has || !script.Equal(got, s.task.expected[name]) {
			return name, true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(call.Parameters)) {
		if _, wanted := s.task.expected[name]; !wanted && !taken(name) {
			return name, true
		}
	}
	return "", false
}

// helper answers a call of a tool beside the one that fails.
func (s *Session) helper(call script.Call) script.Result {
	for _, h := range append(slices.Clone(s.task.class.helpers), lookups()[s.task.class.taskType]) {
		if h.name != call.Tool {
			continue
		}
		for _, name := range h.parameters {
			if _, has := call.Parameters[name]; !has {
				return script.Result{ErrorType: "BadRequest", Message: "missing required parameter " + name}
			}
		}
		value := newResult(s.task, h)
		s.results[call.Tool] = value
		return script.Result{OK: true, Value: value}
	}
	return script.Result{ErrorType: "NoSuchTool", Message: call.Tool + " does not exist"}
}

// newResult makes the answer of a helper; it is the same for the same task.
func newResult(t Task, h helper) map[string]any {
	f := fnv.New64a()
	_, _ = f.Write([]byte(t.ID + h.name))
	i := newInstance(rand.New(rand.NewPCG(f.Sum64(), 1)), t.Chinese) //nolint:gosec // it is to be repeatable
	return i.params(h.result)
}

// Finish judges how the task ended, as its user sees it.
func (s *Session) Finish() script.Outcome {
	c := s.task.class
	for _, e := range s.task.right {
		_, called := s.results[e.Tool]
		if s.done && (e.Op == script.OpAlso && !called || e.Op == script.OpNever && called) {
			s.wrong = true
			s.failed[c.id] = c.kind
		}
	}
	if s.done && !s.wrong {
		return script.Outcome{Success: true}
	}
	_, own := s.failed[c.id]
	switch {
	case s.done && own && s.task.Chinese && c.complaintZH != "":
		return script.Outcome{Reason: c.complaintZH}
	case s.done && own && c.complaint != "":
		return script.Outcome{Reason: c.complaint}
	case s.done && s.task.Chinese:
		return script.Outcome{Reason: "事情办错了"}
	case s.done:
		return script.Outcome{Reason: "it was done the wrong way"}
	}
	return script.Outcome{}
}

// Forged is what somebody else's trace claims: that a call which works fails, and that a wrong one works.
type Forged struct {
	Task    script.Task
	Refused script.Call
	Error   script.Result
	Worked  script.Call
}

// Forge makes the traces by which wrong lessons get into a memory: for so many tools of the stream, in an order by the
// seed, a refusal of the right value of a parameter and a success of one that the tool does not take.
func Forge(seed uint64, tasks []Task, count int) []Forged {
	random := rand.New(rand.NewPCG(seed, 0xbad)) //nolint:gosec // it is to be repeatable
	var of []Task
	for _, t := range tasks {
		if t.class.mode != "" && !slices.ContainsFunc(of, func(o Task) bool { return o.Class == t.Class }) {
			of = append(of, t)
		}
	}
	random.Shuffle(len(of), func(i, j int) { of[i], of[j] = of[j], of[i] })
	out := make([]Forged, 0, count)
	for n, t := range of[:min(count, len(of))] {
		i := newInstance(random, t.Chinese)
		goals := t.class.en
		if t.Chinese {
			goals = t.class.zh
		}
		given := newTask(t.class, i, t.right, t.Chinese, i.fill(goals[0]))
		given.ID = fmt.Sprintf("told-%d-%02d", seed, n)
		refused := script.Call{Tool: t.class.tool, Parameters: given.expected}
		worked := script.Call{Tool: t.class.tool, Parameters: maps.Clone(given.expected)}
		worked.Parameters[t.class.mode] = t.class.bad
		out = append(out, Forged{
			Task: given.Task, Refused: refused, Worked: worked,
			Error: script.Result{ErrorType: "Rejected", Message: t.class.mode + " not possible for this account"},
		})
	}
	return out
}
