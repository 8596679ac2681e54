package agent

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/hindsight-memory/hindsight/internal/evaluate/simulate/script"
)

// Advice is what the agent understood of one item of a memory's answer.
type Advice struct {
	// Item is the id under which the memory can be told what became of it; empty for what an error text says.
	Item string
	// Tool is the tool it is about; empty when the text names none.
	Tool string
	// TaskType is the type of the tasks it was learnt from, where the answer says it.
	TaskType string
	// Answer tells apart the answers of a task that gave it.
	Answer string
	Edit   script.Edit
}

// shown is the part of an answer that the agent reads: the ids and the texts.
type shown struct {
	Items []struct {
		ID       string `json:"id"`
		TaskType string `json:"task_type"`
		Text     string `json:"text"`
	} `json:"items"`
}

// read understands an answer of the memory, which has a name among those of the task: a JSON text as the protocol gives it.
// What it does not understand it ignores.
func read(answer, name string, task script.Task) []Advice {
	var s shown
	if json.Unmarshal([]byte(answer), &s) != nil {
		return nil
	}
	var out []Advice
	for _, item := range s.Items {
		tool, sentences := about(item.Text, task)
		for _, e := range understand(sentences, task) {
			a := Advice{Item: item.ID, Tool: tool, TaskType: item.TaskType, Answer: name, Edit: e}
			if !slices.ContainsFunc(out, func(b Advice) bool { return b.Tool == a.Tool && same(a.Edit, b.Edit) }) {
				out = append(out, a)
			}
		}
	}
	return out
}

func same(a, b script.Edit) bool {
	return a.Op == b.Op && a.Parameter == b.Parameter && script.Text(a.Value) == script.Text(b.Value) && a.Name == b.Name && a.Form == b.Form && a.Tool == b.Tool
}

// label is what a line of an item begins with.
var label = regexp.MustCompile(`^([\p{L} ]{2,16})[:：]\s*(.*)$`)

// about finds the tool that an item is about, and the sentences that may say what to do: all but the situation, which tells
// where it was learnt, and the decision, which is what was done.
func about(text string, task script.Task) (tool, sentences string) {
	var lines []string
	decided := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") { // the marks around what was recorded
			continue
		}
		if m := label.FindStringSubmatch(line); m != nil {
			switch m[1] {
			case "Situation", "情境", "When", "适用于", "Not when", "不适用于":
				continue
			case "Decision", "决策":
				decided, _, _ = strings.Cut(m[2], " ")
				continue
			}
			line = m[2]
		}
		lines = append(lines, line)
	}
	sentences = strings.Join(lines, "\n")
	for _, m := range quotedName.FindAllStringSubmatch(sentences, -1) {
		if _, known := task.Tool(m[1]); known {
			tool = m[1]
			break
		}
	}
	if decided != "" {
		tool = decided
	}
	return tool, sentences
}

// Names and values may stand between any quotes, or bare where they look like identifiers.
const (
	name  = "[`'\"“]?([A-Za-z_][\\w.\\[\\]]*)[`'\"”]?"
	value = "[`'\"“]([^`'\"”]{1,60})[`'\"”]"
)

var quotedName = regexp.MustCompile("`([^`]{1,60})`")

// A pattern reads one kind of sentence; edit makes an edit of its groups.
type pattern struct {
	re   *regexp.Regexp
	edit func(m []string) []script.Edit
}

func parameter(op script.Op) func(m []string) []script.Edit {
	return func(m []string) []script.Edit { return []script.Edit{{Op: op, Parameter: last(m[1])}} }
}

func withTool(op script.Op) func(m []string) []script.Edit {
	return func(m []string) []script.Edit {
		var out []script.Edit
		for _, q := range listedName.FindAllStringSubmatch(m[1], -1) {
			out = append(out, script.Edit{Op: op, Tool: q[1]})
		}
		return out
	}
}

// listedName is one of several names in a list.
var listedName = regexp.MustCompile(`([A-Za-z_][\w.]*)`)

// names is a list of names.
const names = "((?:[`'\"]?[a-z]+_[\\w.]+[`'\"]?(?:, | and |、)?)+)"

// last is the last name of a path.
func last(path string) string {
	path = strings.TrimSuffix(path, "[]")
	return path[strings.LastIndexAny(path, ".")+1:]
}

// forms are the words for forms, the longer ones first where one begins another.
var forms = []struct {
	re   *regexp.Regexp
	form string
}{
	{regexp.MustCompile(`(?i)RFC ?3339`), script.FormDateTime},
	{regexp.MustCompile(`(?i)YYYY-MM-DD|ISO[ -]?8601`), script.FormDate},
	{regexp.MustCompile(`DD/MM/YYYY`), script.FormDateSlash},
	{regexp.MustCompile(`MM/DD/YYYY`), script.FormDateUS},
	{regexp.MustCompile(`DD\.MM\.YYYY`), script.FormDateDots},
	{regexp.MustCompile(`YYYYMMDD`), script.FormDatePlain},
	{regexp.MustCompile(`YYYY年M月D日`), script.FormDateZH},
	{regexp.MustCompile(`(?i)\bcents\b|minor units?|以分为单位`), script.FormCents},
	{regexp.MustCompile(`(?i)E\.164`), script.FormE164},
	{regexp.MustCompile(`(?i)upper[ -]?case|大写`), script.FormUpper},
	{regexp.MustCompile(`(?i)lower[ -]?case|小写`), script.FormLower},
	{regexp.MustCompile(`(?i)\bhh:mm\b|24[ -]hour`), script.FormHourMin},
	{regexp.MustCompile(`(?i)two[ -]letter|ISO 3166|两位字母`), script.FormCountry},
	{regexp.MustCompile(`(?i)currency code|ISO 4217|货币代码`), script.FormCurrency},
	{regexp.MustCompile(`(?i)language tag|BCP 47|语言代码`), script.FormLanguage},
	{regexp.MustCompile(`(?i)\bminutes\b|分钟数`), script.FormMinutes},
	{regexp.MustCompile(`(?i)\bseconds\b|秒数`), script.FormSeconds},
	{regexp.MustCompile(`(?i)fraction|between 0 and 1|小数`), script.FormFraction},
	{regexp.MustCompile(`(?i)without (?:the )?#|不带 ?#`), script.FormNoHash},
	{regexp.MustCompile(`(?i)begin with #|with (?:a )?#|以 ?# ?开头`), script.FormHash},
	{regexp.MustCompile(`(?i)snake_case`), script.FormSnake},
	{regexp.MustCompile(`(?i)kebab-case`), script.FormKebab},
	{regexp.MustCompile(`(?i)digits only|only digits|仅限数字`), script.FormDigits},
	{regexp.MustCompile(`(?i)\b(?:a )?boolean\b|布尔值`), script.FormBoolean},
	{regexp.MustCompile(`(?i)\ba number\b|as (?:a )?number|数字`), script.FormNumber},
	{regexp.MustCompile(`(?i)\ba (?:text|string)\b|as (?:a )?(?:text|string)|文本|字符串`), script.FormText},
	{regexp.MustCompile(`(?i)\ba list\b|as (?:a )?(?:list|array)|an array|列表`), script.FormList},
}

// formIn finds the form that a piece of text asks for. A form after "not" is the one that is wrong.
func formIn(text string) string {
	for _, wrong := range []string{", not ", "，而不是", "，不要", " instead of ", " rather than "} {
		text, _, _ = strings.Cut(text, wrong)
	}
	at, form := len(text)+1, ""
	for _, f := range forms {
		if loc := f.re.FindStringIndex(text); loc != nil && loc[0] < at {
			at, form = loc[0], f.form
		}
	}
	return form
}

func inForm(m []string) []script.Edit {
	if f := formIn(m[2]); f != "" {
		return []script.Edit{{Op: script.OpForm, Parameter: last(m[1]), Form: f}}
	}
	return nil
}

func set(m []string) []script.Edit {
	e := script.Edit{Op: script.OpSet, Parameter: last(m[1]), Value: m[2]}
	if len(m) > 3 {
		e.From = m[3]
	}
	return []script.Edit{e}
}

func addValue(m []string) []script.Edit {
	return []script.Edit{{Op: script.OpAdd, Parameter: last(m[1]), Value: m[2]}}
}

func rename(m []string) []script.Edit {
	return []script.Edit{{Op: script.OpRename, Parameter: last(m[1]), Name: last(m[2])}}
}

func renameBackwards(m []string) []script.Edit {
	return []script.Edit{{Op: script.OpRename, Parameter: last(m[2]), Name: last(m[1])}}
}

func take(m []string) []script.Edit {
	return []script.Edit{{Op: script.OpTake, Parameter: last(m[1]), Tool: m[2]}}
}

// patterns are tried in order at every place of a text; what one has read is not read again by another.
var patterns = []pattern{
	// Where a value comes from.
	{regexp.MustCompile("(?i)(?:pass|add|use|give|set|take) (?:another |the )?" + name + "[^;.\n]{0,40}?\\(?(?:take it|take them|taken|choose it)? ?from (?:the result of )?`?([a-z]+_\\w+)`?"), take},
	{regexp.MustCompile("(?i)" + name + " (?:must|has to|should) (?:be|come) (?:taken )?from (?:the result of )?`?([a-z]+_\\w+)`?"), take},
	{regexp.MustCompile("(?:换用另一个|加上参数) ?" + name + "[^；。\n]{0,20}（?(?:取自|从) ?`?([a-z]+_\\w+)`?"), take},
	// Names.
	{regexp.MustCompile("(?i)name the parameter " + name + ", not " + name), rename},
	{regexp.MustCompile("(?i)(?:unknown|unexpected) (?:parameter|field|argument) " + name + "[,;:] (?:use|expected|did you mean) " + name), renameBackwards},
	{regexp.MustCompile("参数名用 ?" + name + "，不要用 ?" + name), rename},
	{regexp.MustCompile("未知(?:参数|字段) ?" + name + "[，；]应为 ?" + name), renameBackwards},
	// Values.
	{regexp.MustCompile("(?i)set " + name + " to " + value + " (?:rather than|instead of|,? ?not) " + value), set},
	{regexp.MustCompile("(?i)set " + name + " to " + value), set},
	{regexp.MustCompile("(?i)use " + value + " (?:in|for|as) " + name + "(?: instead of " + value + ")?"), func(m []string) []script.Edit {
		return []script.Edit{{Op: script.OpSet, Parameter: last(m[2]), Value: m[1]}}
	}},
	{regexp.MustCompile(name + " ?设为 ?" + value + "，而不是 ?" + value), set},
	{regexp.MustCompile(name + " ?设为 ?" + value), set},
	{regexp.MustCompile("(?i)add " + name + " \\(" + value + " worked\\)"), addValue},
	{regexp.MustCompile("加上参数 ?" + name + "（" + value + " 有效）"), addValue},
	{regexp.MustCompile("(?i)" + name + " must be at most (\\d+)"), set},
	{regexp.MustCompile("(?i)" + name + " must be " + value), set},
	{regexp.MustCompile(name + " ?(?:不得超过|最多为) ?(\\d+)"), set},
	// Forms.
	{regexp.MustCompile("(?i)(?:write|pass|give|send|format|express) " + name + "((?: as| in| with)[^;.\n]{1,60})"), inForm},
	{regexp.MustCompile("(?i)" + name + " (?:must|has to|should) (?:be|begin|have)((?: | with)[^;\n]{1,60})"), inForm},
	{regexp.MustCompile("(?i)" + name + "(?::)? (?:expected|expects|wants) ([^;\n]{1,60})"), inForm},
	{regexp.MustCompile(name + " ?(?:应写成|应传|应为|必须为|必须是|必须以|须为) ?([^；。\n]{1,40})"), inForm},
	// Parameters that are missing or too many.
	{regexp.MustCompile("(?i)leave " + name + " out"), parameter(script.OpRemove)},
	{regexp.MustCompile("(?i)" + name + " is not allowed"), parameter(script.OpRemove)},
	{regexp.MustCompile("去掉参数 ?" + name), parameter(script.OpRemove)},
	{regexp.MustCompile(name + " ?不允许"), parameter(script.OpRemove)},
	{regexp.MustCompile("(?i)give " + name + ", which it requires"), parameter(script.OpAdd)},
	{regexp.MustCompile("(?i)\\badd `([A-Za-z_]\\w*)`"), parameter(script.OpAdd)},
	{regexp.MustCompile("(?i)missing (?:required )?(?:parameter|field|argument) " + name), parameter(script.OpAdd)},
	{regexp.MustCompile("(?i)" + name + " is (?:required|missing)"), parameter(script.OpAdd)},
	{regexp.MustCompile("(?:提供它要求的|加上参数|缺少(?:必填)?参数) ?" + name), parameter(script.OpAdd)},
	// Other tools.
	{regexp.MustCompile("(?i)do not call " + names), withTool(script.OpNever)},
	{regexp.MustCompile("不要调用 ?" + names), withTool(script.OpNever)},
	{regexp.MustCompile("(?i)call " + names + " (?:first|before)"), withTool(script.OpFirst)},
	{regexp.MustCompile("(?i)" + names + " (?:must|has to|should) be called (?:first|before)"), withTool(script.OpFirst)},
	{regexp.MustCompile("(?:先|须先|请先)调用 ?" + names), withTool(script.OpFirst)},
	{regexp.MustCompile("(?i)look up what it needs with " + names), withTool(script.OpFirst)},
	{regexp.MustCompile("(?i)use " + names + "(?: \\([^)]*\\))? instead"), withTool(script.OpInstead)},
	{regexp.MustCompile("(?:改用|请使用) ?" + names), withTool(script.OpInstead)},
	{regexp.MustCompile("(?i)\\b(?:also )?call " + names), withTool(script.OpAlso)},
	{regexp.MustCompile("(?:还)?要调用 ?" + names), withTool(script.OpAlso)},
}

// hedge begins a part of a sentence that says under which circumstances it was learnt, not what to do.
var hedge = regexp.MustCompile("(?i)\\b(?:when|before) calling `[^`]*`,?|调用 `[^`]*` (?:时|之前)，?|for a request like \"[^\"]*\":?|对于“[^”]*”这类请求，?|stop after `[^`]*`")

// understand finds what sentences say to do. Tools that the task does not have are ignored.
func understand(sentences string, task script.Task) []script.Edit {
	text := hedge.ReplaceAllString(sentences, " ")
	var out []script.Edit
	for _, p := range patterns {
		var kept strings.Builder
		end := 0
		for _, loc := range p.re.FindAllStringSubmatchIndex(text, -1) {
			m := make([]string, len(loc)/2)
			for i := range m {
				if loc[2*i] >= 0 {
					m[i] = text[loc[2*i]:loc[2*i+1]]
				}
			}
			edits := slices.DeleteFunc(p.edit(m), func(e script.Edit) bool {
				_, known := task.Tool(e.Tool)
				return e.Tool != "" && !known
			})
			if len(edits) == 0 {
				continue // Another pattern may make something of it.
			}
			kept.WriteString(text[end:loc[0]] + "\x00")
			end = loc[1]
			for _, e := range edits {
				if !slices.ContainsFunc(out, func(o script.Edit) bool { return same(o, e) || o.Parameter != "" && o.Parameter == e.Parameter }) {
					out = append(out, e)
				}
			}
		}
		text = kept.String() + text[end:]
	}
	return out
}
