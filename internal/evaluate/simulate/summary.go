package simulate

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/hindsight-memory/hindsight/internal/evaluate/simulate/world"
)

// Summary is the result of a run. Its JSON is the stable shape of `hindsight eval --json`.
type Summary struct {
	Suite string `json:"suite"`
	// Seed is that of the first stream.
	Seed int64 `json:"seed"`
	// Figures are named with their unit. Shares are from 0 to 1, differences of success in percentage points; _low and
	// _high are the ends of a 95 % interval.
	Figures  map[string]float64 `json:"figures"`
	Examples []string           `json:"examples"`

	options Options
	cells   []Result
}

const (
	// resamples is how many times the seeds are drawn anew for an interval.
	resamples = 4000
	// tail is what an interval leaves out at each end.
	tail = 0.025
)

// counts are what one cell adds up to.
type counts struct {
	tasks, successes, calls, tokens, asked, followed int
	failures, repeats, misled, notices               int
	// again is how many tasks were of a class that had failed before.
	again, failedAgain int
	// repeatsOf and tasksOf are by kind of failure.
	repeatsOf, tasksOf map[world.Kind]int
}

func count(r Result) counts {
	c := counts{repeatsOf: map[world.Kind]int{}, tasksOf: map[world.Kind]int{}}
	before := map[string]bool{}
	for _, t := range r.Tasks {
		c.tasks++
		c.calls += t.Calls
		c.tokens += t.Tokens
		c.asked += t.Asked
		c.followed += t.Followed
		c.notices += len(t.Notices)
		c.tasksOf[t.Kind]++
		if t.Success {
			c.successes++
		}
		if before[t.Class] {
			c.again++
			if _, failed := t.Failed[t.Class]; failed {
				c.failedAgain++
			}
		}
		for class, kind := range t.Failed {
			c.failures++
			if strings.HasSuffix(class, "/"+world.Misled) {
				c.misled++
			}
			if before[class] {
				c.repeats++
				c.repeatsOf[kind]++
			}
		}
		for class := range t.Failed {
			before[class] = true
		}
	}
	return c
}

// sample are the cells of one arm by seed.
type sample map[uint64]counts

// sum adds up a measure over seeds, each as often as it was drawn.
func (s sample) sum(seeds []uint64, of func(counts) int) float64 {
	total := 0
	for _, seed := range seeds {
		total += of(s[seed])
	}
	return float64(total)
}

// interval is a figure with a 95 % interval by drawing whole seeds anew (percentile bootstrap): the tasks of a stream are
// not independent, streams are.
type interval struct{ value, low, high float64 }

func bootstrap(seeds []uint64, figure func(seeds []uint64) float64) interval {
	out := interval{value: figure(seeds)}
	random := rand.New(rand.NewPCG(1, uint64(len(seeds)))) //nolint:gosec // it is to be repeatable
	drawn := make([]uint64, len(seeds))
	values := make([]float64, 0, resamples)
	for range resamples {
		for i := range drawn {
			drawn[i] = seeds[random.IntN(len(seeds))]
		}
		if v := figure(drawn); !math.IsNaN(v) && !math.IsInf(v, 0) {
			values = append(values, v)
		}
	}
	if len(values) == 0 {
		out.low, out.high = math.NaN(), math.NaN()
		return out
	}
	slices.Sort(values)
	out.low, out.high = values[int(tail*float64(len(values)))], values[min(len(values)-1, int((1-tail)*float64(len(values))))]
	return out
}

// key names an arm of one obedience.
type key struct {
	arm  Arm
	obey float64
	once bool
}

type analysis struct {
	o       Options
	figures map[string]float64
	samples map[key]sample
	seeds   []uint64
}

func summarise(o Options, cells []Result) *Summary {
	a := &analysis{o: o, figures: map[string]float64{}, samples: map[key]sample{}}
	for _, r := range cells {
		k := key{r.Arm, r.Obey, r.Once}
		if a.samples[k] == nil {
			a.samples[k] = sample{}
		}
		a.samples[k][r.Seed] = count(r)
		if !slices.Contains(a.seeds, r.Seed) {
			a.seeds = append(a.seeds, r.Seed)
		}
	}
	a.figures["seeds"], a.figures["tasks_per_stream"], a.figures["obey"] = float64(len(a.seeds)), float64(o.Tasks), o.Obey
	a.figures["failure_classes"] = float64(world.ClassCount())
	for _, arm := range o.Arms {
		a.ofArm(arm)
	}
	for _, pair := range [][2]Arm{{ArmCheck, ArmNone}, {ArmCheck, ArmStart}, {ArmStart, ArmNone}, {ArmHarmful, ArmNone}, {ArmUnguarded, ArmNone}, {ArmPerfect, ArmNone}, {ArmPerfectStart, ArmNone}, {ArmPerfect, ArmPerfectStart}} {
		a.compare(pair[0], pair[1])
	}
	a.sensitivity()
	a.decidingOnce()
	a.ofPlanted(cells)
	s := &Summary{Suite: "simulate", Seed: int64(o.Seed), Figures: a.figures, Examples: []string{}, options: o, cells: cells} //nolint:gosec // a seed is small
	maps.DeleteFunc(s.Figures, func(_ string, v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) })                   // JSON has none of them.
	for _, r := range cells {
		for _, e := range r.Examples {
			if len(s.Examples) < 6 && r.Seed == o.Seed {
				s.Examples = append(s.Examples, fmt.Sprintf("[%s] %s → %s → %s (%s)", r.Arm, e.Goal, strings.Join(strings.Fields(e.Told), " "), e.Call, e.Result))
			}
		}
	}
	return s
}

func (a *analysis) put(name string, i interval) {
	a.figures[name], a.figures[name+"_low"], a.figures[name+"_high"] = i.value, i.low, i.high
}

func (a *analysis) main(arm Arm) sample { return a.samples[key{arm, a.o.Obey, false}] }

// Measures of a cell.
func tasks(c counts) int       { return c.tasks }
func successes(c counts) int   { return c.successes }
func repeats(c counts) int     { return c.repeats }
func again(c counts) int       { return c.again }
func failedAgain(c counts) int { return c.failedAgain }

func learnable(c counts) int { return c.repeats - c.repeatsOf[world.Environment] }

func (a *analysis) ofArm(arm Arm) {
	s := a.main(arm)
	if len(s) == 0 {
		return
	}
	share := func(part, whole func(counts) int) func([]uint64) float64 {
		return func(seeds []uint64) float64 { return s.sum(seeds, part) / s.sum(seeds, whole) }
	}
	name := string(arm)
	a.put("success_"+name, bootstrap(a.seeds, share(successes, tasks)))
	a.put("repeat_failure_rate_"+name, bootstrap(a.seeds, share(failedAgain, again)))
	a.put("repeats_per_stream_"+name, bootstrap(a.seeds, func(seeds []uint64) float64 { return s.sum(seeds, repeats) / float64(len(seeds)) }))
	n := s.sum(a.seeds, tasks)
	a.put("calls_per_task_"+name, bootstrap(a.seeds, share(func(c counts) int { return c.calls }, tasks)))
	a.figures["failures_per_stream_"+name] = s.sum(a.seeds, func(c counts) int { return c.failures }) / float64(len(a.seeds))
	a.figures["misled_per_100_tasks_"+name] = 100 * s.sum(a.seeds, func(c counts) int { return c.misled }) / n
	if arm != ArmNone && !arm.perfect() {
		a.put("tokens_per_task_"+name, bootstrap(a.seeds, share(func(c counts) int { return c.tokens }, tasks)))
		a.figures["recalls_per_task_"+name] = s.sum(a.seeds, func(c counts) int { return c.asked }) / n
		a.figures["answers_with_notice_"+name] = s.sum(a.seeds, func(c counts) int { return c.notices })
		a.figures["followed_per_task_"+name] = s.sum(a.seeds, func(c counts) int { return c.followed }) / n
	}
	for _, kind := range world.Kinds() {
		a.figures["repeats_per_stream_"+name+"_"+string(kind)] = s.sum(a.seeds, func(c counts) int { return c.repeatsOf[kind] }) / float64(len(a.seeds))
	}
}

// reduction is by how much fewer repeats one sample has than another, as a share.
func reduction(s, than sample, of func(counts) int) func([]uint64) float64 {
	return func(seeds []uint64) float64 { return 1 - s.sum(seeds, of)/than.sum(seeds, of) }
}

func (a *analysis) compare(arm, than Arm) {
	s, t := a.main(arm), a.main(than)
	if len(s) == 0 || len(t) == 0 {
		return
	}
	name := fmt.Sprintf("repeat_reduction_%s_vs_%s", arm, than)
	a.put(name, bootstrap(a.seeds, reduction(s, t, repeats)))
	a.put(name+"_learnable", bootstrap(a.seeds, reduction(s, t, learnable)))
	if than == ArmNone {
		for _, kind := range world.Kinds() {
			a.put(name+"_"+string(kind), bootstrap(a.seeds, reduction(s, t, func(c counts) int { return c.repeatsOf[kind] })))
		}
		delta := bootstrap(a.seeds, func(seeds []uint64) float64 {
			return 100 * (s.sum(seeds, successes)/s.sum(seeds, tasks) - t.sum(seeds, successes)/t.sum(seeds, tasks))
		})
		a.put(fmt.Sprintf("success_delta_%s_points", arm), delta)
		// The worst of the arms in which the product has all that it needs.
		if worst, has := a.figures["success_delta_min_points"]; arm != ArmUnguarded && !arm.perfect() && (!has || delta.value < worst) {
			a.put("success_delta_min_points", delta)
		}
	}
}

// sensitivity compares the arm check at each obedience with no memory, on the seeds that it was run for.
func (a *analysis) sensitivity() {
	none := a.main(ArmNone)
	if len(none) == 0 {
		return
	}
	for _, p := range a.obediences() {
		s := a.samples[key{ArmCheck, p, false}]
		seeds := slices.Sorted(maps.Keys(s))
		if len(seeds) == 0 {
			continue
		}
		name := fmt.Sprintf("repeat_reduction_check_vs_none_obey_%03d", int(math.Round(p*100)))
		a.put(name, bootstrap(seeds, reduction(s, none, repeats)))
		a.figures[name+"_seeds"] = float64(len(seeds))
		a.put(fmt.Sprintf("success_check_obey_%03d", int(math.Round(p*100))), bootstrap(seeds, func(seeds []uint64) float64 { return s.sum(seeds, successes) / s.sum(seeds, tasks) }))
	}
}

// decidingOnce compares an agent that decides once a task about what it is told with no memory and with asking at the start
// alone, where it is told once in any case.
func (a *analysis) decidingOnce() {
	s := a.samples[key{ArmCheck, a.o.Obey, true}]
	seeds := slices.Sorted(maps.Keys(s))
	for _, than := range []Arm{ArmNone, ArmStart} {
		if t := a.main(than); len(seeds) > 0 && len(t) > 0 {
			a.put(fmt.Sprintf("repeat_reduction_check_vs_%s_deciding_once", than), bootstrap(seeds, reduction(s, t, repeats)))
		}
	}
}

func (a *analysis) obediences() []float64 {
	all := append(slices.Clone(a.o.Sensitivity), a.o.Obey)
	slices.Sort(all)
	return slices.Compact(all)
}

// ofPlanted says what became of wrong lessons. The share within 30 recalls counts a lesson that was shown less often and is
// still in service as not out.
func (a *analysis) ofPlanted(cells []Result) {
	for arm, prefix := range map[Arm]string{ArmHarmful: "planted", ArmUnguarded: "unguarded_planted"} {
		planted, shown, reached, out, soon := 0, 0, 0, 0, 0
		for _, r := range cells {
			if r.Arm != arm {
				continue
			}
			for _, p := range r.Planted {
				planted++
				if p.Shown > 0 {
					shown++
				}
				if p.Shown >= withinRecalls {
					reached++
				}
				if p.Out {
					out++
				}
				if p.Out && p.Shown > 0 && p.OutAfter <= withinRecalls {
					soon++
				}
			}
		}
		if planted == 0 {
			continue
		}
		a.figures[prefix+"_lessons"], a.figures[prefix+"_shown"], a.figures[prefix+"_shown_30_times"] = float64(planted), float64(shown), float64(reached)
		a.figures[prefix+"_out_of_service"] = float64(out) / float64(planted)
		a.figures[prefix+"_out_of_service_within_30"] = float64(soon) / float64(shown)
	}
}
