package recall

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hindsight-memory/hindsight/internal/memory"
)

// bearing is what a lesson has to say about a call.
type bearing int

// The stronger ones are greater.
const (
	// bearsNot: what the lesson warns of is not in this call.
	bearsNot bearing = iota
	// bearsOnCase: the lesson is about values of one case, or about the state of things; the call has other values.
	bearsOnCase
	// bearsOnTool: the lesson is about what has to come before the tool, whatever it is called with.
	bearsOnTool
	// bearsOnCall: the call does again what failed.
	bearsOnCall
)

// compared is a failed call and one that is about to be made.
type compared struct {
	tool         string
	available    []string
	failed, call map[string][]memory.Value
	// failedShape and callShape are the shapes of both.
	failedShape, callShape map[string]string
	// done reports a tool that has succeeded earlier in the task of the call.
	done func(tool string) bool
}

// clauseEnd separates what an alternative asks for.
var clauseEnd = regexp.MustCompile(`[;；]\s*`)

// bearingOf reads what a lesson asks for, clause by clause, and looks whether the call does so already. What is known of
// the call that worked is in these words, which are those of the critic in internal/reflect: who changes one changes the other.
func (c compared) bearingOf(r memory.Reflection) bearing {
	out, unread := bearsNot, false
	for _, clause := range clauseEnd.Split(r.Alternative, -1) {
		at := slices.IndexFunc(clausePatterns, func(p clausePattern) bool { return p.re.MatchString(clause) })
		if at < 0 {
			unread = true
			continue
		}
		out = max(out, clausePatterns[at].bearing(c, clausePatterns[at].re.FindStringSubmatch(clause)))
	}
	if unread { // A model or a person worded it.
		out = max(out, c.bearingOfWords(r.Lesson))
	}
	return out
}

// A clausePattern reads one kind of clause.
type clausePattern struct {
	re      *regexp.Regexp
	bearing func(c compared, m []string) bearing
}

const (
	name    = "`([^`]+)`"
	value   = "`([^`]*)`"
	names   = "(`[^`]+`(?:, | and |、)?)+"
	anEntry = `(\d+)`
)

// before is a clause about what has to come before the call.
var before = regexp.MustCompile("(?i)^call " + names + " (?:first|before)|^先调用 " + names)

// comeBefore reports that what a clause wants before the call has been done.
func (c compared) comeBefore(clause string) bool {
	wanted := quotedName.FindAllStringSubmatch(clause, -1)
	return len(wanted) > 0 && !slices.ContainsFunc(wanted, func(q []string) bool { return !c.done(q[1]) })
}

// heeded reports a lesson that only wants something before the call, which has been done: then even the same call is
// another one.
func (c compared) heeded(r memory.Reflection) bool {
	return !slices.ContainsFunc(clauseEnd.Split(r.Alternative, -1), func(clause string) bool {
		m := before.FindString(clause)
		return m == "" || !c.comeBefore(m)
	})
}

// clausePatterns are the clauses of the critic that every task has, in both its languages.
var clausePatterns = []clausePattern{
	{regexp.MustCompile("(?i)^set " + name + " to " + value + " (?:rather than|instead of) " + value), constant},
	{regexp.MustCompile("^" + name + " 设为 " + value + "，而不是 " + value), constant},
	{regexp.MustCompile("(?i)^set " + name + " to " + value), setTo},
	{regexp.MustCompile("^" + name + " 设为 " + value), setTo},
	{regexp.MustCompile("(?i)^write " + name + " as " + value + ", not as " + value), form},
	{regexp.MustCompile("^" + name + " 应写成 " + value + "，而不是 " + value), form},
	{regexp.MustCompile("(?i)^write " + name + " (?:as|in|with|without) [^`]*(?:, such as " + value + ")?, not as " + value), namedForm},
	{regexp.MustCompile("^" + name + " 应写成[^`]+(?:（例如 " + value + "）)?，而不是 " + value), namedForm},
	{regexp.MustCompile("(?i)^pass " + name + " as an? (?:text|number|boolean|null|list|object)(?: \\(such as " + value + "\\))?, not as an? (text|number|boolean|null|list|object)"), kind},
	{regexp.MustCompile("^" + name + " 应传(?:文本|数字|布尔值|空值|列表|对象)(?:（例如 " + value + "）)?，而不是(文本|数字|布尔值|空值|列表|对象)"), kind},
	{regexp.MustCompile("(?i)^name the parameter " + name + ", not " + name), renamed},
	{regexp.MustCompile("^参数名用 " + name + "，不要用 " + name), renamed},
	{regexp.MustCompile("(?i)^use " + value + " in " + name + " instead of " + value), func(c compared, m []string) bearing { return c.clauses(m[2], m[1], m[3]) }},
	{regexp.MustCompile("^在 " + name + " 中用 " + value + " 代替 " + value), func(c compared, m []string) bearing { return c.clauses(m[1], m[2], m[3]) }},
	{regexp.MustCompile("(?i)^add " + value + " to " + name), func(c compared, m []string) bearing { return c.clauses(m[2], m[1], "") }},
	{regexp.MustCompile("^在 " + name + " 中加上 " + value), func(c compared, m []string) bearing { return c.clauses(m[1], m[2], "") }},
	{regexp.MustCompile("(?i)^leave " + value + " out of " + name), func(c compared, m []string) bearing { return c.clauses(m[2], "", m[1]) }},
	{regexp.MustCompile("^从 " + name + " 中去掉 " + value), func(c compared, m []string) bearing { return c.clauses(m[1], "", m[2]) }},
	{regexp.MustCompile("(?i)^add " + name), added},
	{regexp.MustCompile("^加上参数 " + name), added},
	{regexp.MustCompile("(?i)^give " + names + ", which it requires"), added},
	{regexp.MustCompile("^提供它要求的 " + names), added},
	{regexp.MustCompile("(?i)^leave " + name + " out"), removed},
	{regexp.MustCompile("^去掉参数 " + name), removed},
	{regexp.MustCompile("(?i)^give " + name + " " + anEntry + " entr(?:y|ies) \\(it had " + anEntry + "\\)"), entries},
	{regexp.MustCompile("^" + name + " 应有 " + anEntry + " 项（原为 " + anEntry + " 项）"), entries},
	{regexp.MustCompile("(?i)^pass an? (\\S+) as " + name + ", not an? (\\S+)"), func(c compared, m []string) bearing { return c.stem(m[2], m[3]) }},
	{regexp.MustCompile("^" + name + " 传 (\\S+?)，而不是 (\\S+)"), func(c compared, m []string) bearing { return c.stem(m[1], m[3]) }},
	{before, func(c compared, m []string) bearing {
		if c.comeBefore(m[0]) {
			return bearsNot
		}
		return bearsOnTool
	}},
	{regexp.MustCompile("(?i)^use " + name + "(?: \\(with [^)]*\\))? instead|^改用 " + name), func(c compared, _ []string) bearing {
		if memory.SameShape(c.callShape, c.failedShape) {
			return bearsOnTool
		}
		return bearsNot
	}},
	{regexp.MustCompile("(?i)^give " + name + " and " + name + " the same number|^让 " + name + " 与 " + name + " 的项数相同"), uneven},
	// What follows depends on the case at hand.
	{regexp.MustCompile("(?i)^(?:pass another|make |check |ask |look up|read the state|do not call|stop after|call `).*"), sameCase},
	{regexp.MustCompile("^(?:换用另一个|让 |先确认|先用 |先检查|逐项核对|不明确之处|不要调用|在 `[^`]+` 之后停止|要调用).*"), sameCase},
}

// sameCase is what a clause bears that is about the values of one case: on this call if it has those, and perhaps if it has
// others of their kind.
func sameCase(c compared, m []string) bearing {
	out := bearsOnCase
	for _, quoted := range quotedName.FindAllStringSubmatch(m[0], -1) {
		path, there := find(c.failed, quoted[1])
		if !there {
			continue
		}
		if slices.Equal(c.failed[path], c.call[path]) {
			return bearsOnCall
		}
		if !slices.ContainsFunc(c.call[path], func(v memory.Value) bool {
			return slices.ContainsFunc(c.failed[path], func(w memory.Value) bool { return alike(v, w) })
		}) {
			out = bearsNot
		}
	}
	return out
}

// alike reports two values of one kind: both numbers, both dates, or both names, ids or free text, which differ by chance.
func alike(a, b memory.Value) bool {
	written := func(v memory.Value) string {
		if v.Kind != "text" {
			return ""
		}
		switch format := memory.TextFormat(v.Text); format {
		case "id", "marked_id", "word", "text", "empty", "integer":
			return "text"
		default:
			return format
		}
	}
	return a.Kind == b.Kind && written(a) == written(b)
}

// find gives the path of a parameter by its path, its last name or that of something around it.
func find(parameters map[string][]memory.Value, name string) (path string, there bool) {
	if _, there := parameters[name]; there {
		return name, true
	}
	for path := range parameters {
		if lastName(path) == name || strings.TrimSuffix(path, "[]") == name || strings.HasPrefix(path, name+".") || strings.HasPrefix(path, name+"[") {
			return path, true
		}
	}
	return "", false
}

// lastName is the last name of a path: id of payments[].id.
func lastName(path string) string { return path[strings.LastIndex(path, ".")+1:] }

// values gives what stands at a parameter in the call, and what stood there in the one that failed.
func (c compared) values(name string) (now, then []memory.Value) {
	there, _ := find(c.failed, name)
	here, _ := find(c.call, name)
	return c.call[cmp.Or(here, there)], c.failed[cmp.Or(there, here)]
}

func bears(on bool) bearing {
	if on {
		return bearsOnCall
	}
	return bearsNot
}

func holds(values []memory.Value, text string) bool {
	return slices.ContainsFunc(values, func(v memory.Value) bool { return v.Text == text })
}

// constant is set `a` to `b` rather than `c`: it is about calls with c.
func constant(c compared, m []string) bearing {
	now, _ := c.values(m[1])
	return bears(holds(now, m[3]))
}

// setTo is set `a` to `b`, where what stood there before is particular to a case: of numbers those on the same side of b
// fail as well, and of texts the same one.
func setTo(c compared, m []string) bearing {
	now, then := c.values(m[1])
	switch {
	case len(now) == 0 || holds(now, m[2]):
		return bearsNot
	case slices.Equal(now, then):
		return bearsOnCall
	}
	worked, err := strconv.ParseFloat(m[2], 64)
	if err != nil || len(now) != 1 || len(then) != 1 {
		return bearsOnCase
	}
	a, errOfA := strconv.ParseFloat(now[0].Text, 64)
	b, errOfB := strconv.ParseFloat(then[0].Text, 64)
	if errOfA != nil || errOfB != nil {
		return bearsOnCase
	}
	return bears((a > worked) == (b > worked))
}

// form is write `a` as one form and not as another.
func form(c compared, m []string) bearing {
	now, then := c.values(m[1])
	return bears(slices.ContainsFunc(now, func(v memory.Value) bool {
		written := memory.WrittenForm(v.Text)
		return written == m[3] || written != m[2] && slices.ContainsFunc(then, func(w memory.Value) bool {
			return v.Kind == w.Kind && memory.TextFormat(v.Text) == memory.TextFormat(w.Text)
		})
	}))
}

// namedForm is write `a` in a form that has a name, such as `b`, not as `c`: it is about values like c that are not written
// like b.
func namedForm(c compared, m []string) bearing {
	now, then := c.values(m[1])
	return bears(slices.ContainsFunc(now, func(v memory.Value) bool {
		if v.Text == m[3] {
			return true
		}
		return v.Text != m[2] && (m[2] == "" || memory.WrittenForm(v.Text) != memory.WrittenForm(m[2])) && slices.ContainsFunc(then, func(w memory.Value) bool {
			return v.Kind == w.Kind && memory.TextFormat(v.Text) == memory.TextFormat(w.Text)
		})
	}))
}

// kindInChinese are the kinds of values as lessons in Chinese name them.
var kindInChinese = map[string]string{"文本": "text", "数字": "number", "布尔值": "boolean", "空值": "null", "列表": "list", "对象": "object"}

// kind is pass `a` as one kind of value and not as another.
func kind(c compared, m []string) bearing {
	now, _ := c.values(m[1])
	wrong := cmp.Or(kindInChinese[m[3]], m[3])
	if here, _ := find(c.call, m[1]); strings.HasPrefix(here, m[1]+"[") { // What the list holds is of another kind.
		return bears(wrong == "list")
	}
	return bears(slices.ContainsFunc(now, func(v memory.Value) bool { return v.Kind == wrong }))
}

// renamed is name the parameter `a`, not `b`.
func renamed(c compared, m []string) bearing {
	_, wrong := find(c.call, m[2])
	return bears(wrong)
}

// added is add `a`, or give `a`, `b`: it is about calls without.
func added(c compared, m []string) bearing {
	return bears(slices.ContainsFunc(quotedName.FindAllStringSubmatch(m[0], -1), func(q []string) bool {
		_, there := find(c.call, q[1])
		return !there
	}))
}

// removed is leave `a` out.
func removed(c compared, m []string) bearing {
	_, there := find(c.call, m[1])
	return bears(there)
}

// entries is give `a` so many entries, where it had another number of them.
func entries(c compared, m []string) bearing {
	now, _ := c.values(m[1])
	return bears(strconv.Itoa(len(now)) == m[3])
}

// uneven is give `a` and `b` the same number of entries.
func uneven(c compared, m []string) bearing {
	a, _ := c.values(cmp.Or(m[1], m[3]))
	b, _ := c.values(cmp.Or(m[2], m[4]))
	return bears(len(a) != len(b))
}

// clauses is about the words of a query or command: some that are wrong and some that are missing.
func (c compared) clauses(parameter, missing, wrong string) bearing {
	now, _ := c.values(parameter)
	has := func(text, words string) bool {
		return !slices.ContainsFunc(strings.FieldsFunc(words, func(r rune) bool { return r == ',' || r == '…' }), func(w string) bool {
			return !strings.Contains(strings.ToLower(text), strings.ToLower(strings.TrimSpace(w)))
		})
	}
	return bears(slices.ContainsFunc(now, func(v memory.Value) bool {
		return (wrong == "" || has(v.Text, wrong)) && (missing == "" || !has(v.Text, missing))
	}))
}

// stem is pass a <kind of value>, not another: the kind shows in how the value begins.
func (c compared) stem(parameter, wrong string) bearing {
	now, then := c.values(parameter)
	stem := strings.Trim(wrong, "<>.。")
	return bears(slices.ContainsFunc(now, func(v memory.Value) bool {
		return slices.Contains(then, v) || strings.HasPrefix(strings.ReplaceAll(strings.ToLower(v.Text), "-", "_"), stem)
	}))
}

// asksForForm are words about how a value is written.
var asksForForm = regexp.MustCompile(`(?i)\b(?:format(?:ted)?|YYYY|DD/MM|MM/DD|ISO[ -]?\d+|RFC ?\d+|E\.164|(?:upper|lower|snake|kebab|camel)[ _-]?case|digits|decimals?|as an? (?:\w+ )?(?:number|text|string|list|array|integer|boolean|object)|cents|minor units)\b|YYYY|格式|文本|字符串|数字|整数|小数|列表|数组|布尔|大写|小写`)

// bearingOfWords judges a lesson in the words of a model or person. The parameters that it names tell what it is about.
func (c compared) bearingOfWords(lesson string) bearing {
	named, aboutForm := c.named(lesson), asksForForm.MatchString(lesson)
	if len(named) == 0 {
		switch {
		case !memory.SameShape(c.callShape, c.failedShape):
			return bearsNot
		case aboutForm:
			return bearsOnCall
		case slices.ContainsFunc(quotedName.FindAllStringSubmatch(lesson, -1), func(q []string) bool { return q[1] != c.tool && slices.Contains(c.available, q[1]) }):
			return bearsOnTool
		default:
			return bearsOnCase
		}
	}
	literal := func(v memory.Value) bool {
		return strings.Contains(lesson, "`"+v.Text+"`") || strings.Contains(lesson, `"`+v.Text+`"`)
	}
	out := bearsNot
	for _, path := range named {
		now, then := c.call[path], c.failed[path]
		switch {
		case len(now) == 0 && len(then) == 0, slices.Equal(now, then):
			return bearsOnCall // left out again, or the same again
		case len(now) == 0 || len(then) == 0, slices.ContainsFunc(then, literal), slices.ContainsFunc(now, literal):
			// It is there now, or no longer; or the lesson is about another value than this one.
		case !memory.SameKind(c.callShape[path], c.failedShape[path]):
		case aboutForm:
			return bearsOnCall
		default:
			out = bearsOnCase
		}
	}
	return out
}

var quotedName = regexp.MustCompile("`([^`]{1,100})`")

// identifier is what a name of a parameter looks like.
var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.\[\]]*$`)

// named are the parameters that a lesson names: those that the failed call had, those that this one has, and what was
// left out then and is now.
func (c compared) named(lesson string) []string {
	var out []string
	for _, match := range quotedName.FindAllStringSubmatch(lesson, -1) {
		quoted := match[1]
		if quoted == c.tool || slices.Contains(c.available, quoted) {
			continue
		}
		for _, known := range []map[string][]memory.Value{c.failed, c.call} {
			for path := range known {
				if path == quoted || lastName(path) == quoted {
					out = append(out, path)
				}
			}
		}
		_, then := find(c.failed, quoted)
		_, now := find(c.call, quoted)
		if !then && !now && identifier.MatchString(quoted) && !c.isValue(quoted) {
			out = append(out, quoted)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// isValue reports a word that stood in the call that failed, or stands in this one, as a value.
func (c compared) isValue(word string) bool {
	for _, parameters := range []map[string][]memory.Value{c.failed, c.call} {
		for _, values := range parameters {
			if holds(values, word) {
				return true
			}
		}
	}
	return false
}
