package memory

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxSituation is the longest text of a situation, in runes.
const maxSituation = 400

// SituationOf is what a decision is made in; every field may be empty.
type SituationOf struct {
	TaskType string
	// Goal is what the task is for, in the words of who set it.
	Goal string
	Tool string
	// Parameters is a JSON object.
	Parameters json.RawMessage
	// Error is the text of an error, where the call failed.
	Error          string
	AvailableTools []string
}

// Situation is the de-instantiated text of a decision, by which decisions are compared: the type of the task, the tool
// and its parameters by name and kind of value, the goal without its particulars, and the error without its values. Two
// decisions that differ only in names, ids, dates and amounts have the same one. It has at most 400 runes and is the
// same for a decision that was made and for one that is about to be.
func Situation(s SituationOf) string {
	parts := make([]string, 0, 4)
	if s.TaskType != "" {
		parts = append(parts, s.TaskType)
	}
	if s.Tool != "" {
		call := s.Tool
		if shapes := ParameterShapes(s.Parameters); len(shapes) > 0 {
			call += "(" + strings.Join(shapes, ", ") + ")"
		}
		parts = append(parts, Cut(call, 150))
	}
	if s.Error != "" {
		parts = append(parts, "error: "+Cut(s.Error, 100))
	}
	used := utf8.RuneCountInString(strings.Join(parts, " | "))
	if goal := AbstractGoal(s.Goal, s.Parameters, append(slices.Clone(s.AvailableTools), s.Tool)); goal != "" && used < maxSituation-20 {
		at := len(parts)
		if s.Error != "" {
			at--
		}
		parts = slices.Insert(parts, at, Cut(goal, maxSituation-used-3))
	}
	return Cut(strings.Join(parts, " | "), maxSituation)
}

// AbstractGoal abstracts a goal: besides [Abstract], values of the decision's parameters that occur in it become the
// parameter's name, and names that a program gave (order_items, src.main) become <name> unless they are tools.
func AbstractGoal(goal string, parameters json.RawMessage, tools []string) string {
	goal = Cut(strings.TrimSpace(goal), 600)
	f := flatten(parameters)
	type value struct{ text, path string }
	var values []value
	for _, path := range f.paths() {
		for _, l := range f.leaves[path] {
			if l.kind == "text" && utf8.RuneCountInString(l.value) >= 2 && utf8.RuneCountInString(l.value) <= 80 && !isMode(path, l) {
				values = append(values, value{l.value, path})
			}
		}
	}
	slices.SortStableFunc(values, func(a, b value) int { return len(b.text) - len(a.text) })
	for _, v := range values {
		abstracted := Abstract(v.text)
		if placeholder.FindString(abstracted) == abstracted && abstracted != "" {
			continue // It becomes that anyway, and by the same word in a goal without this parameter.
		}
		goal = replaceWord(goal, v.text, "<name>")
	}
	goal = hideNames(goal, f)
	goal = namedTable.ReplaceAllStringFunc(goal, func(m string) string {
		parts := namedTable.FindStringSubmatch(m)
		if notAName[strings.ToLower(parts[1])] {
			return m
		}
		return "<name>" + m[len(parts[1]):]
	})
	goal = tableNamed.ReplaceAllStringFunc(goal, func(m string) string {
		parts := tableNamed.FindStringSubmatch(m)
		if notAName[strings.ToLower(parts[2])] {
			return m
		}
		return parts[1] + "<name>"
	})
	goal = tableZH.ReplaceAllString(goal, "${1}<name>${3}")
	goal = Abstract(goal, tools...)
	return identifierWord.ReplaceAllStringFunc(goal, func(w string) string {
		if slices.Contains(tools, w) {
			return w
		}
		return "<name>"
	})
}

var (
	// namedTable and tableNamed are "orders table" and "table orders".
	namedTable = regexp.MustCompile(`\b([A-Za-z][\w.]*)\s+(?:table|dataset|collection|bucket|topic)\b`)
	tableNamed = regexp.MustCompile(`\b((?:table|dataset|collection|bucket|topic)\s+)([a-z][\w.]*)\b`)
	tableZH    = regexp.MustCompile(`((?:查询|统计|分析|导出|汇总|查看|读取|更新|清理|删除|同步|导入|检查|计算|从|对|在|把|将|给|为|向|的|和|与|[，,。 ]|^))([\p{Han}]{1,4}[^\P{Han}报图代发列手外])((?:数据)?表)`)
	notAName   = map[string]bool{
		"the": true, "a": true, "an": true, "this": true, "that": true, "each": true, "every": true, "which": true, "my": true, "our": true, "pivot": true, "new": true,
		"whole": true, "entire": true, "same": true, "temporary": true, "for": true, "with": true, "from": true, "to": true, "in": true, "of": true, "and": true, "is": true,
		"has": true, "by": true, "on": true, "at": true, "using": true, "where": true, "or": true, "are": true, "was": true, "scan": true, "large": true, "big": true, "target": true,
		"source": true, "into": true, "name": true, "names": true, "schema": true, "size": true, "partitioned": true, "full": true, "rows": true, "between": true, "without": true, "per": true,
	}
)

// hideNames replaces names of people that the parameters hold: those of mia_li_3668 are Mia and Li.
func hideNames(goal string, f flat) string {
	for _, path := range f.paths() {
		if !personName.MatchString(path) {
			continue
		}
		for _, l := range f.leaves[path] {
			if l.kind != "text" || utf8.RuneCountInString(l.value) > 80 {
				continue
			}
			local, _, _ := strings.Cut(l.value, "@")
			for _, word := range strings.FieldsFunc(local, func(r rune) bool { return !unicode.IsLetter(r) }) {
				first, size := utf8.DecodeRuneInString(word)
				name := string(unicode.ToUpper(first)) + strings.ToLower(word[size:])
				if len(name) > 1 {
					goal = replaceWord(goal, name, "<name>")
				}
			}
		}
	}
	return goal
}
