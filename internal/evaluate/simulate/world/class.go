package world

import (
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hindsight-memory/hindsight/internal/evaluate/simulate/script"
)

// Kind groups failure classes by what is wrong.
type Kind string

// Kinds of failure classes.
const (
	// Format: a value is written in another form than the tool wants.
	Format Kind = "format"
	// Schema: a parameter is named otherwise, missing, too many or of another type.
	Schema Kind = "schema"
	// Precondition: another call has to come first, which the agent does not make.
	Precondition Kind = "precondition"
	// Order: the agent makes the calls in the wrong order.
	Order Kind = "order"
	// WrongTool: another tool does it.
	WrongTool Kind = "wrong_tool"
	// Permission: the call needs a role or an approval.
	Permission Kind = "permission"
	// Limit: the call asks for more than is allowed.
	Limit Kind = "limit"
	// Stale: what is right changes in the course of the stream.
	Stale Kind = "stale"
	// Silent: the call works and the task fails.
	Silent Kind = "silent"
	// OneOff: it happens once, and what helped then does harm later.
	OneOff Kind = "one_off"
	// Environment: outages, rate limits, timeouts. No lesson is right.
	Environment Kind = "environment"
	// Plain is no failure: what the agent does by default is right.
	Plain Kind = "plain"
)

// Kinds lists the kinds of failures.
func Kinds() []Kind {
	return []Kind{Format, Schema, Precondition, Order, WrongTool, Permission, Limit, Stale, Silent, OneOff, Environment}
}

// P are parameters by name: texts are templates ({id}, {day:YYYY-MM-DD}), everything else stands for itself.
type P map[string]any

// num is a template whose result is a number.
type num string

// E are edits that make a call right.
type E []script.Edit

// helper is a tool beside the one that fails.
type helper struct {
	name       string
	parameters []string
	result     P
}

// class is one way to fail.
type class struct {
	id, taskType, tool string
	kind               Kind
	// en and zh are ways to put the goal; Chinese tasks take the latter.
	en, zh []string
	// params is the agent's default call.
	params P
	// mode is a parameter whose default is right, and bad a value that the tool refuses for it: a wrong lesson names it.
	mode, bad string
	// right makes the default call right. after, of a stale class, does so after the change. odd, of a one-off, helps the
	// first time and fails later.
	right, after, odd E
	errorType, error  string
	// errorZH is the error in Chinese tasks, where the tool speaks Chinese.
	errorZH string
	// idea is at which try the agent finds the repair by itself; 0: never.
	idea int
	// variant: the agent now and then does it right by chance.
	variant bool
	// silent: the call answers as if it had worked, and the user complains with complaint.
	silent                 bool
	complaint, complaintZH string
	helpers                []helper
	// then are tools that the agent calls after the main call by default.
	then  []string
	facts P
}

// takesAll says that the tool of the class takes wrong values without an error: one in three does, and so do all whose own
// failure is silent. What a wrong lesson leads to then shows in the outcome of the task alone.
func (c class) takesAll() bool {
	h := fnv.New32a()
	_, _ = h.Write([]byte(c.id))
	return c.silent || h.Sum32()%3 == 0
}

func (c class) rightAt(at, of int) E {
	switch c.kind {
	case Stale:
		if at*2 >= of {
			return c.after
		}
		return c.right
	case OneOff:
		if at == 0 {
			return c.odd
		}
		return nil
	case Environment, Plain:
		return nil
	default:
		return c.right
	}
}

// Edits, for the table.
func form(parameter, f string) script.Edit {
	return script.Edit{Op: script.OpForm, Parameter: parameter, Form: f}
}

func set(parameter string, v any) script.Edit {
	return script.Edit{Op: script.OpSet, Parameter: parameter, Value: v}
}

func add(parameter string, v any) script.Edit {
	return script.Edit{Op: script.OpAdd, Parameter: parameter, Value: v}
}

func drop(parameter string) script.Edit {
	return script.Edit{Op: script.OpRemove, Parameter: parameter}
}

func rename(from, to string) script.Edit {
	return script.Edit{Op: script.OpRename, Name: from, Parameter: to}
}
func first(tool string) script.Edit   { return script.Edit{Op: script.OpFirst, Tool: tool} }
func instead(tool string) script.Edit { return script.Edit{Op: script.OpInstead, Tool: tool} }
func also(tool string) script.Edit    { return script.Edit{Op: script.OpAlso, Tool: tool} }
func never(tool string) script.Edit   { return script.Edit{Op: script.OpNever, Tool: tool} }
func take(parameter, tool string) script.Edit {
	return script.Edit{Op: script.OpTake, Parameter: parameter, Tool: tool}
}

// instance holds what differs between the tasks of one class.
type instance struct {
	values map[string]string
}

// pool is how many instances a class has in one stream, in each language: goals recur, as those of real agents do.
const pool = 2

// newInstance draws the n-th instance of a class in a stream.
func newInstance(random *rand.Rand, chinese bool) instance {
	var (
		titles   = []string{"budget review", "design workshop", "vendor call", "team retro", "hiring panel", "roadmap planning"}
		titlesZH = []string{"预算评审", "设计研讨", "供应商沟通", "团队复盘", "招聘面试", "路线图规划"}
		people   = []string{"Mara", "Jonas", "Aiko", "Samuel", "Priya", "Elena"}
		peopleZH = []string{"李娜", "王强", "陈静", "赵磊", "孙悦", "周凯"}
		cities   = []string{"Hamburg", "Lyon", "Osaka", "Leeds", "Porto", "Graz"}
		citiesZH = []string{"上海", "成都", "广州", "杭州", "武汉", "西安"}
		products = []string{"desk lamp", "office chair", "water bottle", "backpack", "headset", "notebook"}
		goodsZH  = []string{"台灯", "办公椅", "水杯", "背包", "耳机", "笔记本"}
	)
	pick := func(en, zh []string) string {
		if chinese {
			return zh[random.IntN(len(zh))]
		}
		return en[random.IntN(len(en))]
	}
	day := time.Date(2026, 1, 13, 0, 0, 0, 0, time.UTC).AddDate(0, 0, random.IntN(330))
	if day.Day() <= 12 {
		day = day.AddDate(0, 0, 14) // A day that cannot be taken for a month.
	}
	return instance{values: map[string]string{
		"id": fmt.Sprintf("W%d", 1000+random.IntN(9000)), "ref": strconv.Itoa(100000 + random.IntN(900000)),
		"title": pick(titles, titlesZH), "who": pick(people, peopleZH), "city": pick(cities, citiesZH), "product": pick(products, goodsZH),
		"day": day.Format(time.DateOnly), "amount": fmt.Sprintf("%d.%02d", 10+random.IntN(400), 5*(1+random.IntN(19))),
		"n": strconv.Itoa(21 + random.IntN(70)),
	}}
}

// fill replaces the places of a template.
func (i instance) fill(template string) string {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(template, "{")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		place, after, _ := strings.Cut(rest, "}")
		name, f, formed := strings.Cut(place, ":")
		text := i.values[name]
		if formed {
			if v, is := script.Convert(text, f); is {
				text = script.Text(v)
			}
		}
		b.WriteString(text)
		template = after
	}
}

func (i instance) params(p P) map[string]any {
	out := make(map[string]any, len(p))
	for _, name := range slices.Sorted(maps.Keys(p)) {
		switch v := p[name].(type) {
		case string:
			out[name] = i.fill(v)
		case num:
			n, err := strconv.ParseFloat(i.fill(string(v)), 64)
			if err == nil {
				out[name] = n
			}
		case int:
			out[name] = float64(v)
		default:
			out[name] = v
		}
	}
	return out
}
