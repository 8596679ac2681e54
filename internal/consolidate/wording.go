package consolidate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/memory"
)

// readLessons finds for each rule about an error what reflection has concluded from it: the lesson that the most
// voices share. What comes from outside alone is left out: a rule is read as advice.
func readLessons(ctx context.Context, w *work, taskType string, tasks []digest, patterns map[string]*pattern, decided map[string]memory.Rule) (map[string]string, error) {
	out := map[string]string{}
	byTool := map[string][]string{}
	for id, p := range patterns {
		status := decided[id].Status
		if p.signature != "" && (status == memory.ItemActive || status == memory.ItemCandidate) {
			byTool[p.tool] = append(byTool[p.tool], id)
		}
	}
	mine := map[string]bool{}
	for _, d := range tasks {
		mine[d.TaskID] = true
	}
	for _, tool := range slices.Sorted(maps.Keys(byTool)) {
		snapshots, err := w.record.Snapshots(ctx, memory.ItemFilter{
			Namespace: w.namespace, TaskType: taskType, Tool: tool, Statuses: active, Limit: maxOfSubject,
		})
		if err != nil {
			return nil, fmt.Errorf("read snapshots of %s: %w", tool, err)
		}
		for _, id := range byTool[tool] {
			out[id] = commonLesson(snapshots, patterns[id].signature, mine)
		}
	}
	return out, nil
}

// commonLesson is the lesson of an error that most goals and agents share, and among equals the best tested and earliest.
func commonLesson(snapshots []memory.Snapshot, signature string, mine map[string]bool) string {
	groups := map[string][]memory.Snapshot{}
	for _, s := range snapshots {
		if s.Reflection == nil || s.Reflection.Lesson == "" || s.Trust == memory.TrustExternal || !mine[s.TaskID] ||
			memory.ErrorSignature(cmp.Or(s.Outcome.ErrorMessage, s.Outcome.ErrorType)) != signature {
			continue
		}
		key := strings.ToLower(memory.Abstract(s.Reflection.Lesson))
		groups[key] = append(groups[key], s)
	}
	best, bestVoices := "", 0
	for _, key := range slices.Sorted(maps.Keys(groups)) {
		group := groups[key]
		if voices := snapshotVoices(group); voices > bestVoices {
			first := slices.MinFunc(group, func(a, b memory.Snapshot) int {
				return cmp.Or(cmp.Compare(b.Confidence, a.Confidence), a.Timestamp.Compare(b.Timestamp), strings.Compare(a.SnapshotID, b.SnapshotID))
			})
			best, bestVoices = first.Reflection.Lesson, voices
		}
	}
	return best
}

// word fills in what a rule says, from its pattern and the tasks behind it, in the language of the tasks.
func word(r *memory.Rule, p *pattern, tasks []digest, lesson string) {
	r.Support, r.Refute, r.Lift, r.LiftLow, r.Goals, r.Voices = len(p.supporting), len(p.refuting), round(p.lift), round(p.low), p.goals, p.voices
	r.Evidence = p.evidence
	r.Confidence = p.confidence()
	failures := 0
	for _, d := range tasks {
		if d.failed && !d.copy {
			failures++
		}
	}
	r.Importance = 0.5
	if failures > 0 {
		r.Importance = round(0.5 + 0.5*min(1, float64(len(p.supporting))/float64(failures)))
	}
	r.ConfidenceReasons = []string{fmt.Sprintf("failed in %d of %d tasks, where the others let expect %.1f; %d goals, %d independent voices",
		r.Support, r.Support+r.Refute, p.expected, r.Goals, r.Voices)}
	var goals []string
	for _, i := range p.supporting {
		goals = append(goals, tasks[i].Goal)
	}
	t := texts{p: p, c: p.predicate.All[0], error: quoted(p, tasks), counts: fmt.Sprintf("%d of %d tasks; by the others %.1f were to be expected", r.Support, r.Support+r.Refute, p.expected), taskType: r.TaskType}
	t.changed, t.inserted = repairs(p, tasks)
	if memory.LanguageOf(goals...) == memory.LanguageChinese {
		t.counts = fmt.Sprintf("%d 个任务中有 %d 个如此，按其余任务预期为 %.1f 个", r.Support+r.Refute, r.Support, p.expected)
		r.Rule, r.Condition, r.Action, r.DoesNotApplyWhen = t.chinese()
	} else {
		r.Rule, r.Condition, r.Action, r.DoesNotApplyWhen = t.english()
	}
	if lesson != "" {
		if p.kind == memory.RuleCall {
			lesson = r.Action + " " + lesson
		}
		r.Action = lesson
	}
}

// quoted is how the error of a pattern reads, without what differs from case to case.
func quoted(p *pattern, tasks []digest) string {
	if p.signature == "" {
		return ""
	}
	for _, i := range p.supporting {
		for j, s := range tasks[i].Steps {
			if s.Tool == p.tool && tasks[i].signatures[j] == p.signature {
				message := strings.TrimPrefix(cmp.Or(s.ErrorMessage, s.ErrorType), "Error: ")
				first, _, _ := strings.Cut(message, "\n")
				return events.CutText(memory.AbstractError(first), 160)
			}
		}
	}
	return p.signature
}

// thinking are tools that tell an agent nothing.
var thinking = regexp.MustCompile(`(?i)(?:^|[_.])(?:think|thought|reason|plan|note)(?:$|[_.])|思考`)

// repairs tells what calls that worked after the error had otherwise, and which tools were called in between, each by
// the number of tasks.
func repairs(p *pattern, tasks []digest) (changed, inserted []string) {
	if p.signature == "" {
		return nil, nil
	}
	paths, tools := map[string]int{}, map[string]int{}
	for _, d := range tasks {
		at := -1
		for i, s := range d.Steps {
			if at < 0 && s.Tool == p.tool && d.signatures[i] == p.signature {
				at = i
			}
		}
		if at < 0 || d.copy {
			continue
		}
		for _, s := range d.Steps[at+1:] {
			if s.Tool == p.tool && s.Status == events.StatusSuccess {
				for _, path := range memory.ChangedParameters(d.Steps[at], s) {
					paths[path]++
				}
				break
			}
			if s.Status == events.StatusSuccess && !thinking.MatchString(s.Tool) {
				tools[s.Tool]++
			}
		}
	}
	return most(paths, 2), most(tools, 1)
}

func most(counts map[string]int, n int) []string {
	out := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), strings.Compare(a, b))
	})
	return out[:min(n, len(out))]
}

func round(x float64) float64 { return float64(int64(x*1000+0.5)) / 1000 }

// texts words a rule.
type texts struct {
	p                 *pattern
	c                 memory.Condition
	error, counts     string
	taskType          string
	changed, inserted []string
}

func (t texts) english() (rule, condition, action, unless string) {
	tool := t.p.tool
	switch t.c.Is {
	case memory.ConditionWithout:
		return fmt.Sprintf("%s fails with “%s” when %s has not succeeded before (%s).", tool, t.error, t.c.Tool, t.counts),
			fmt.Sprintf("about to call %s, and no call of %s has succeeded in this task", tool, t.c.Tool),
			fmt.Sprintf("Call %s first, and use what it returns.", t.c.Tool),
			t.c.Tool + " has succeeded earlier in the task"
	case memory.ConditionPresent:
		return fmt.Sprintf("%s with the parameter %s fails with “%s” (%s).", tool, t.c.Path, t.error, t.counts),
			fmt.Sprintf("about to call %s with %s", tool, t.c.Path), fmt.Sprintf("Leave %s out.", t.c.Path), t.c.Path + " is not given"
	case memory.ConditionAbsent:
		return fmt.Sprintf("%s without the parameter %s fails with “%s” (%s).", tool, t.c.Path, t.error, t.counts),
			fmt.Sprintf("about to call %s without %s", tool, t.c.Path), fmt.Sprintf("Give %s.", t.c.Path), t.c.Path + " is given"
	case memory.ConditionFormat:
		return fmt.Sprintf("%s fails with “%s” when %s is a %s (%s).", tool, t.error, t.c.Path, spell(t.c.Format), t.counts),
			fmt.Sprintf("about to call %s with a %s as %s", tool, spell(t.c.Format), t.c.Path),
			fmt.Sprintf("Write %s in another way than as a %s.", t.c.Path, spell(t.c.Format)), t.c.Path + " is written in another way"
	case memory.ConditionShape:
		return fmt.Sprintf("%s with exactly these parameters fails with “%s”: %s (%s).", tool, t.error, paths(t.c.Shape), t.counts),
			fmt.Sprintf("about to call %s with %s", tool, paths(t.c.Shape)), t.repair("Use other parameters."), "other parameters are given"
	case memory.ConditionError, memory.ConditionUnrepaired:
		rule = fmt.Sprintf("Tasks in which %s fails with “%s” end badly (%s).", tool, t.error, t.counts)
		if t.c.Is == memory.ConditionUnrepaired {
			rule = fmt.Sprintf("Tasks in which %s fails with “%s” and is not repaired end badly (%s).", tool, t.error, t.counts)
		}
		return rule, fmt.Sprintf("about to call %s, or it has just failed with “%s”", tool, t.error),
			t.repair(fmt.Sprintf("Check what “%s” is about before calling %s, and do not repeat the call as it is.", t.error, tool)),
			tool + " is not called"
	case memory.ConditionUsed:
		return fmt.Sprintf("Of tasks with the same goal, those that call %s fail more often (%s).", tool, t.counts),
			"about to call " + tool, fmt.Sprintf("Make sure that %s is what the goal and its conditions ask for; tasks that succeeded did without it.", tool),
			"the goal cannot be reached without it"
	case memory.ConditionUnused:
		return fmt.Sprintf("Of tasks with the same goal, those that never call %s fail more often (%s).", tool, t.counts),
			fmt.Sprintf("about to act or to end, and %s was not called in this task", tool),
			fmt.Sprintf("Call %s, as the tasks that succeeded did.", tool), tool + " was called already"
	case memory.ConditionOrder:
		return fmt.Sprintf("Of tasks with the same goal, those that call %s only after %s fail more often (%s).", t.c.Then, t.c.Tool, t.counts),
			fmt.Sprintf("about to call %s after %s", t.c.Then, t.c.Tool),
			fmt.Sprintf("Call %s before %s, or not at all, as the tasks that succeeded did.", t.c.Then, t.c.Tool), fmt.Sprintf("%s was called before %s", t.c.Then, t.c.Tool)
	}
	return "", "", "", ""
}

// repair says what the calls that worked did otherwise, if any is known.
func (t texts) repair(otherwise string) string {
	switch {
	case len(t.changed) > 0 && len(t.inserted) > 0:
		return fmt.Sprintf("Change %s before trying %s again; calls that worked after it did, most often after %s.", strings.Join(t.changed, " and "), t.p.tool, t.inserted[0])
	case len(t.changed) > 0:
		return fmt.Sprintf("Change %s before trying %s again; calls that worked after it did.", strings.Join(t.changed, " and "), t.p.tool)
	default:
		return otherwise
	}
}

func (t texts) chinese() (rule, condition, action, unless string) {
	tool := t.p.tool
	switch t.c.Is {
	case memory.ConditionWithout:
		return fmt.Sprintf("如果之前没有成功调用 %s，%s 会以“%s”失败（%s）。", t.c.Tool, tool, t.error, t.counts),
			fmt.Sprintf("准备调用 %s，而本任务中尚未成功调用 %s", tool, t.c.Tool), fmt.Sprintf("先调用 %s，并使用其返回结果。", t.c.Tool), "之前已成功调用 " + t.c.Tool
	case memory.ConditionPresent:
		return fmt.Sprintf("带参数 %s 调用 %s 会以“%s”失败（%s）。", t.c.Path, tool, t.error, t.counts),
			fmt.Sprintf("准备带 %s 调用 %s", t.c.Path, tool), fmt.Sprintf("不要传 %s。", t.c.Path), "未传 " + t.c.Path
	case memory.ConditionAbsent:
		return fmt.Sprintf("不带参数 %s 调用 %s 会以“%s”失败（%s）。", t.c.Path, tool, t.error, t.counts),
			fmt.Sprintf("准备不带 %s 调用 %s", t.c.Path, tool), fmt.Sprintf("传入 %s。", t.c.Path), "已传 " + t.c.Path
	case memory.ConditionFormat:
		return fmt.Sprintf("当 %s 写成 %s 时，%s 会以“%s”失败（%s）。", t.c.Path, spell(t.c.Format), tool, t.error, t.counts),
			fmt.Sprintf("准备调用 %s，且 %s 为 %s", tool, t.c.Path, spell(t.c.Format)), fmt.Sprintf("换一种方式书写 %s。", t.c.Path), t.c.Path + " 用其他方式书写"
	case memory.ConditionShape:
		return fmt.Sprintf("%s 恰好使用这些参数时会以“%s”失败：%s（%s）。", tool, t.error, paths(t.c.Shape), t.counts),
			fmt.Sprintf("准备用 %s 调用 %s", paths(t.c.Shape), tool), t.repairChinese("换用其他参数。"), "使用其他参数"
	case memory.ConditionError, memory.ConditionUnrepaired:
		rule = fmt.Sprintf("%s 出现“%s”的任务多以失败告终（%s）。", tool, t.error, t.counts)
		if t.c.Is == memory.ConditionUnrepaired {
			rule = fmt.Sprintf("%s 出现“%s”且未修复的任务多以失败告终（%s）。", tool, t.error, t.counts)
		}
		return rule, fmt.Sprintf("准备调用 %s，或它刚以“%s”失败", tool, t.error),
			t.repairChinese(fmt.Sprintf("调用 %s 之前先核对“%s”所指的内容，不要原样重复调用。", tool, t.error)), "不调用 " + tool
	case memory.ConditionUsed:
		return fmt.Sprintf("同一目标的任务中，调用 %s 的更常失败（%s）。", tool, t.counts), "准备调用 " + tool,
			fmt.Sprintf("先确认目标及其条件确实需要 %s；成功的任务没有调用它。", tool), "不调用它就无法达成目标"
	case memory.ConditionUnused:
		return fmt.Sprintf("同一目标的任务中，从不调用 %s 的更常失败（%s）。", tool, t.counts), "准备行动或结束，而本任务尚未调用 " + tool,
			fmt.Sprintf("像成功的任务那样调用 %s。", tool), "已调用 " + tool
	case memory.ConditionOrder:
		return fmt.Sprintf("同一目标的任务中，在 %s 之后才调用 %s 的更常失败（%s）。", t.c.Tool, t.c.Then, t.counts),
			fmt.Sprintf("准备在 %s 之后调用 %s", t.c.Tool, t.c.Then), fmt.Sprintf("像成功的任务那样，在 %s 之前调用 %s，或不调用。", t.c.Tool, t.c.Then), fmt.Sprintf("%s 在 %s 之前已调用", t.c.Then, t.c.Tool)
	}
	return "", "", "", ""
}

func (t texts) repairChinese(otherwise string) string {
	switch {
	case len(t.changed) > 0 && len(t.inserted) > 0:
		return fmt.Sprintf("再次调用 %s 之前先更改 %s；之后成功的调用都这样做，多数先调用了 %s。", t.p.tool, strings.Join(t.changed, " 和 "), t.inserted[0])
	case len(t.changed) > 0:
		return fmt.Sprintf("再次调用 %s 之前先更改 %s；之后成功的调用都这样做。", t.p.tool, strings.Join(t.changed, " 和 "))
	default:
		return otherwise
	}
}

// spell writes the name of a format for people.
func spell(format string) string {
	kind, written, _ := strings.Cut(format, ":")
	return strings.ReplaceAll(cmp.Or(written, kind), "_", " ")
}

func paths(shape map[string]string) string {
	if len(shape) == 0 {
		return "no parameters"
	}
	return strings.Join(slices.Sorted(maps.Keys(shape)), ", ")
}
