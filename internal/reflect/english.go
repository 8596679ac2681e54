package reflect

import (
	"fmt"
	"strings"

	"github.com/hindsight-memory/hindsight/internal/memory"
)

// english words lessons in English.
type english struct{}

func (english) joiner() string { return "; " }

func (english) when(f memory.Finding) string {
	goal := ""
	if f.Goal != "" {
		goal = " for a request like \"" + f.Goal + "\""
	}
	switch {
	case f.Kind == memory.FindingCorrection:
		return fmt.Sprintf("about to call `%s`%s", f.Step.Tool, goal)
	case f.Error != "":
		return fmt.Sprintf("calling `%s`, or when it answers \"%s\"", f.Step.Tool, f.Error)
	case f.Kind == memory.FindingDiverged && len(f.Left) > 0:
		return "about to end a task" + goal
	default:
		return fmt.Sprintf("about to call `%s`%s", f.Step.Tool, goal)
	}
}

func (english) cause(f memory.Finding) string {
	switch f.Kind {
	case memory.FindingRepaired:
		switch {
		case f.Instead != "":
			return fmt.Sprintf("`%s` cannot do it here; `%s` can", f.Step.Tool, f.Instead)
		case len(f.Before) > 0:
			return fmt.Sprintf("`%s` was called before %s", f.Step.Tool, names(f.Before))
		default:
			return fmt.Sprintf("parameters of `%s` were not what it needs: %s", f.Step.Tool, changedNames(f.Changes))
		}
	case memory.FindingUnrepaired:
		return fmt.Sprintf("`%s` was called in a state or with parameters that it refuses, and the task went on without it", f.Step.Tool)
	case memory.FindingRepeated:
		return fmt.Sprintf("`%s` was called again unchanged after it had failed", f.Step.Tool)
	case memory.FindingDiverged:
		return "the task did otherwise than " + plural(f.Siblings, "one task", "tasks") + " of the same " + kindOf(f) + " that succeeded"
	case memory.FindingLastWrite:
		return fmt.Sprintf("unknown: every call succeeded and the task failed; `%s` was its last change", f.Step.Tool)
	case memory.FindingCorrection:
		return fmt.Sprintf("the user wanted something else than `%s` did", f.Step.Tool)
	case memory.FindingDecisive:
		return plural(f.Siblings, "one task", "tasks") + " of the same goal failed without it"
	default:
		return ""
	}
}

func changedNames(changes []memory.Change) string {
	var out []string
	for _, c := range telling(changes) {
		out = append(out, c.Parameter)
	}
	return names(out)
}

func (e english) instruction(f memory.Finding) []string {
	var do []string
	switch {
	case f.Kind == memory.FindingDiverged && len(f.Changes) == 0 && len(f.Before) == 0:
		if len(f.Left) > 0 && f.Peers > 0 {
			do = append(do, "also call "+names(f.Left)+with(f))
		} else if len(f.Left) > 0 {
			do = append(do, "call "+names(f.Left)+with(f))
		}
		if len(f.Extra) > 0 {
			do = append(do, "do not call "+names(f.Extra))
		}
		return do
	case f.Kind == memory.FindingDecisive && len(f.Changes) == 0:
		if len(f.Extra) > 0 {
			return []string{"stop after `" + f.Step.Tool + "`", "do not call " + names(f.Extra)}
		}
		return []string{"call `" + f.Step.Tool + "`"}
	case f.Kind == memory.FindingLastWrite && f.HandOver:
		return []string{"check whether the other tools can do what the user asked for"}
	case f.Kind == memory.FindingLastWrite:
		check := "check each parameter against the user's words"
		if f.Look != "" {
			check += " and against `" + f.Look + "`"
		}
		return []string{check, "ask what they leave open"}
	case f.Instead != "":
		out := "use `" + f.Instead + "`"
		if len(f.InsteadParameters) > 0 {
			out += " (with " + names(f.InsteadParameters) + ")"
		}
		return []string{out + " instead"}
	case len(f.Before) > 0:
		do = append(do, "call "+names(f.Before)+" first")
	}
	for _, c := range telling(f.Changes) {
		do = append(do, e.change(c))
	}
	if len(do) == 0 {
		do = e.unrepaired(f)
	}
	return do
}

// with lists the parameters of the call that a sibling made.
func with(f memory.Finding) string {
	if f.Working == nil || len(f.Left) != 1 {
		return ""
	}
	parameters := memory.TopParameters(f.Working.Parameters)
	if len(parameters) == 0 || len(parameters) > 8 {
		return ""
	}
	return " (with " + names(parameters) + ")"
}

// change says how the working call differs, as what to do.
func (english) change(c memory.Change) string {
	p := path(c.Parameter)
	if form := formEN(c); form != "" {
		return form
	}
	out := ""
	switch c.Kind {
	case memory.ChangeTotal:
		return "make the values of " + p + " add up exactly to the total, which the error names"
	case memory.ChangeRenamed:
		return "name the parameter " + p + ", not `" + c.FromName + "`"
	case memory.ChangeType:
		return "pass " + p + " as a " + c.To + like(" (such as `", c.Example, "`)") + ", not as a " + c.From + like(" (`", c.Counter, "`)")
	case memory.ChangeFormat:
		return "write " + p + " as `" + c.To + "`, not as `" + c.From + "`"
	case memory.ChangeClauses:
		switch {
		case c.To == "":
			return "leave `" + c.From + "` out of " + p
		case c.From == "":
			return "add `" + c.To + "` to " + p
		default:
			return "use `" + c.To + "` in " + p + " instead of `" + c.From + "`"
		}
	case memory.ChangeAdded:
		out = "add " + p
		if literal(c.To) {
			out += " (`" + c.To + "` worked)"
		}
	case memory.ChangeRemoved:
		return "leave " + p + " out"
	case memory.ChangeCount:
		out = "give " + p + " " + plural(atoi(c.To), "1 entry", "entries") + " (it had " + c.From + ")"
	case memory.ChangeValue:
		switch {
		case literal(c.To) && literal(c.From):
			out = "set " + p + " to `" + c.To + "` rather than `" + c.From + "`"
		case literal(c.To):
			out = "set " + p + " to `" + c.To + "`"
		case c.From != c.To && !memory.Particular(c.To) && !memory.Particular(c.From):
			out = "pass a " + c.To + " as " + p + ", not a " + c.From
		default:
			out = "pass another " + p
		}
	}
	switch c.Source {
	case memory.SourceError:
		out += " (the one that the error names)"
	case memory.SourceTool:
		out += " (take it from the result of `" + c.SourceTool + "`)"
	case memory.SourceUser:
		out += " (ask the user which)"
	case memory.SourceEarlier:
		if c.SourceTool != "" && !literal(c.To) {
			out += " (choose it from the result of `" + c.SourceTool + "`)"
		}
	case memory.SourceUnknown:
	}
	return out
}

// formEN says in which form a value is to be, where that has a name; otherwise nothing.
func formEN(c memory.Change) string {
	form, ok := map[memory.Form]string{
		memory.FormMilliseconds: "as a number of milliseconds", memory.FormSeconds: "as a number of seconds", memory.FormMinutes: "as a number of minutes",
		memory.FormHours: "as a number of hours", memory.FormDays: "as a number of days", memory.FormMinorUnits: "in minor units (cents)",
		memory.FormFraction: "as a fraction between 0 and 1", memory.FormCurrencyCode: "as a three-letter currency code (ISO 4217)",
		memory.FormCountryCode: "as a two-letter country code (ISO 3166)", memory.FormLanguageCode: "as a language tag (BCP 47)",
		memory.FormClock: "as hh:mm in 24-hour notation", memory.FormE164: "in E.164 form: + and digits only", memory.FormKebab: "in kebab-case",
		memory.FormSnake: "in snake_case", memory.FormUpper: "in upper case", memory.FormLower: "in lower case", memory.FormHash: "with a # in front",
		memory.FormNoHash: "without the # in front",
	}[c.Form]
	if !ok {
		return ""
	}
	if c.Kind == memory.ChangeType && c.To == "text" {
		form += ", as a text"
	}
	return "write " + path(c.Parameter) + " " + form + like(", such as `", c.Example, "`") + like(", not as `", c.Counter, "`")
}

// like puts a value between what goes before and after it, or says nothing without one.
func like(before, value, after string) string {
	if value == "" {
		return ""
	}
	return before + value + after
}

// kindOf is what the tasks that a finding rests on have in common.
func kindOf(f memory.Finding) string {
	if f.Peers > 0 {
		return "type"
	}
	return "goal"
}

// tried says what did not help.
func tried(f memory.Finding) string {
	var out []string
	if len(f.Varied) > 0 {
		out = append(out, "another "+names(f.Varied))
	}
	if len(f.Tried) > 0 {
		out = append(out, "calling "+names(f.Tried)+" first")
	}
	if len(out) == 0 {
		return ""
	}
	return ", and " + strings.Join(out, " or ") + " did not help"
}

// unrepaired says what to do about a failure of which no repair is known.
func (english) unrepaired(f memory.Finding) []string {
	var do []string
	switch {
	case len(f.Missing) > 0:
		do = append(do, "give "+names(f.Missing)+", which it requires")
	case len(f.Uneven) == 2:
		do = append(do, "give `"+f.Uneven[0]+"` and `"+f.Uneven[1]+"` the same number of entries")
	case f.Total != "":
		do = append(do, "make the values of "+path(f.Total)+" add up exactly to the total, which the error names")
	case f.Look != "" && f.CauseClass == memory.CauseInformation:
		do = append(do, "look up what it needs with `"+f.Look+"`")
	case f.CauseClass == memory.CauseInformation:
		do = append(do, "make sure that what it is asked for exists, or ask the user")
	case f.Look != "" && speaks(f.Error):
		do = append(do, "read the state with `"+f.Look+"` and call only if this does not apply")
	case speaks(f.Error):
		do = append(do, "make sure that this does not apply")
	default:
		do = append(do, "find out what it needs, or ask the user")
	}
	return do
}

func (e english) lesson(f memory.Finding, do []string) string {
	tool := "`" + f.Step.Tool + "`"
	what := strings.Join(do, e.joiner())
	quote := ""
	if f.Error != "" {
		quote = " answers \"" + f.Error + "\""
	}
	goal := ""
	if f.Goal != "" {
		goal = "For a request like \"" + f.Goal + "\": "
	} else if f.TaskType != "" {
		goal = "In a task of type " + f.TaskType + ": "
	}
	switch f.Kind {
	case memory.FindingRepaired:
		if quote == "" {
			quote = " fails"
		}
		if ahead(f) {
			return "When calling " + tool + ", " + what + "; otherwise it" + strings.TrimSuffix(quote, ".") + ". The call that did so worked."
		}
		end := "; the call that did so worked."
		if f.Instead != "" {
			end = "; that worked."
		}
		return "When " + tool + quote + ", " + what + end
	case memory.FindingUnrepaired, memory.FindingRepeated:
		out := "Before calling " + tool + ", " + what
		if f.Error != "" {
			out += ": \"" + f.Error + "\""
		}
		if f.Kind == memory.FindingRepeated {
			return out + ". Do not repeat the call unchanged: it failed " + plural(f.Repeats, "once", "times") + " and nothing made it work; change it or tell the user."
		}
		return out + "; no repair is known" + tried(f) + "."
	case memory.FindingDiverged:
		if f.Error != "" {
			return "When calling " + tool + ", " + what + "; otherwise it" + strings.TrimSuffix(quote, ".") + ". " +
				capital(plural(f.Siblings, "another task", "other tasks")) + " of this type did so, and the call worked."
		}
		done := plural(f.Siblings, "a task of this "+kindOf(f), "tasks of this "+kindOf(f)) + " succeeded so and this one failed"
		if f.Reason != "" {
			done += ": \"" + f.Reason + "\""
		}
		done += "."
		if len(f.Changes) > 0 {
			if len(f.Left) > 0 {
				what += "; also call " + names(f.Left)
			}
			return capital(goal + "when calling " + tool + ", " + what + "; " + done)
		}
		return capital(goal + what + "; " + done)
	case memory.FindingLastWrite:
		why := "a task failed although every call worked, and this was its last change"
		if f.Reason != "" {
			why = "the task failed after it: \"" + f.Reason + "\""
		}
		return capital(goal + "before calling " + tool + ", " + what + "; " + why + ".")
	case memory.FindingCorrection:
		out := capital(goal + "when calling " + tool + ", ")
		switch {
		case len(f.Changes) > 0 && f.Said != "":
			return out + what + "; the user corrected it: \"" + f.Said + "\"."
		case len(f.Changes) > 0:
			return out + what + "; the user corrected it so."
		default:
			return out + "follow the user's correction: \"" + f.Said + "\"."
		}
	case memory.FindingDecisive:
		done := "; it succeeded so after " + plural(f.Siblings, "another attempt", "attempts") + " had failed."
		if len(f.Changes) > 0 {
			what = "when calling " + tool + ", " + what
		}
		return capital(goal + what + done)
	default:
		return capital(what) + "."
	}
}
