package memory

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// leaf is one value inside parameters.
type leaf struct {
	kind  string // text, number, boolean, null, list, object (the last two are empty ones)
	value string
}

// flat are parameters by path: customer.name, lines[].amount. A path has as many leaves as the lists on it have entries.
type flat struct {
	leaves map[string][]leaf
	// lengths of the lists by path.
	lengths map[string]int
}

const (
	maxLeaves = 500
	maxNested = 8
)

// flatten reads parameters; what is not an object has no leaves.
func flatten(parameters json.RawMessage) flat {
	f := flat{leaves: map[string][]leaf{}, lengths: map[string]int{}}
	dec := json.NewDecoder(bytes.NewReader(parameters))
	dec.UseNumber()
	var v map[string]any
	if dec.Decode(&v) == nil {
		f.walk("", v, 0)
	}
	return f
}

func (f flat) walk(path string, v any, depth int) {
	if len(f.leaves) >= maxLeaves || depth > maxNested {
		return
	}
	switch v := v.(type) {
	case map[string]any:
		if len(v) == 0 && path != "" {
			f.leaves[path] = append(f.leaves[path], leaf{"object", "{}"})
		}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			sub := key
			if path != "" {
				sub = path + "." + key
			}
			f.walk(sub, v[key], depth+1)
		}
	case []any:
		f.lengths[path] += len(v)
		if len(v) == 0 {
			f.leaves[path] = append(f.leaves[path], leaf{"list", "[]"})
		}
		for _, entry := range v {
			f.walk(path+"[]", entry, depth+1)
		}
	case string:
		f.leaves[path] = append(f.leaves[path], leaf{"text", v})
	case json.Number:
		f.leaves[path] = append(f.leaves[path], leaf{"number", plainNumber(v)})
	case bool:
		f.leaves[path] = append(f.leaves[path], leaf{"boolean", strconv.FormatBool(v)})
	case nil:
		f.leaves[path] = append(f.leaves[path], leaf{"null", "null"})
	}
}

// plainNumber gives equal numbers one form: 2.0 is 2. Numbers that a float cannot hold exactly stay as they are.
func plainNumber(n json.Number) string {
	v, err := n.Float64()
	if err != nil || math.Abs(v) >= 1<<53 {
		return n.String()
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}

func (f flat) paths() []string { return slices.Sorted(maps.Keys(f.leaves)) }

// values are the distinct values of all leaves that say something.
func (f flat) values() map[string]bool {
	out := map[string]bool{}
	for _, leaves := range f.leaves {
		for _, l := range leaves {
			if l.kind == "text" && utf8.RuneCountInString(l.value) >= 3 || l.kind == "number" && len(l.value) >= 3 {
				out[l.value] = true
			}
		}
	}
	return out
}

// ChangeKind says how a parameter of the call that worked differs from that of the call that failed.
type ChangeKind string

// Kinds of changes.
const (
	ChangeAdded   ChangeKind = "added"
	ChangeRemoved ChangeKind = "removed"
	ChangeRenamed ChangeKind = "renamed"
	ChangeType    ChangeKind = "type"
	ChangeFormat  ChangeKind = "format"
	ChangeCount   ChangeKind = "count"
	// ChangeTotal means that numbers of a list add up to what the error named.
	ChangeTotal ChangeKind = "total"
	// ChangeClauses are other clauses of a query or other flags of a command.
	ChangeClauses ChangeKind = "clauses"
	ChangeValue   ChangeKind = "value"
)

// Source says where the value of a call came from.
type Source string

// Sources of values.
const (
	SourceUnknown Source = ""
	SourceError   Source = "error"
	SourceTool    Source = "tool"
	SourceUser    Source = "user"
	// SourceEarlier is a result that the agent had before the failing call already.
	SourceEarlier Source = "earlier"
)

// Change is one difference between two calls of a tool.
type Change struct {
	Kind ChangeKind
	// Parameter is the path in the call that worked (for a removed one, in the other), such as lines[].amount.
	Parameter string
	// From and To describe the values: literally where that is the point, else by their kind (a number, gift_card…).
	From, To string
	// FromName is the old name of a renamed parameter.
	FromName string
	Source   Source
	// SourceTool is the tool whose result held the new value.
	SourceTool string
	// sourceEvent is the event that held it.
	sourceEvent string
	newValues   []string
	// Form is the form that the working call has a value in, where it is known by name, and Example and Counter are the
	// values of a change of form or type; each is empty unless it is the tool's own (see [own]).
	Form             Form
	Example, Counter string
	old, now         leaf
	// Related means that the error speaks of it.
	Related bool
}

// instanceName are words in the names of parameters whose values are particular to one task.
var instanceName = regexp.MustCompile(`(?i)(?:^|[_.\[\]])(?:id|ids|name|names|first|last|email|mail|phone|address\d?|street|city|state|country|zip|dob|birth|user|customer|table|file|path|dir|folder|url|uri|host|query|sql|command|cmd|script|code|text|content|body|message|summary|thought|thoughts|reason|reasoning|note|notes|comment|description|title|subject|expression|origin|destination|from|to|date|time|start|end|range|region|city|since|until|period|month|months|year|years|day|days|week|weeks|quarter|window|interval|dataset|collection|column|columns|field|fields|dates|db|database|schema|bucket|topic|project|repo|branch|ref|tag|version|value|key|token|question|prompt|keyword|keywords|search|input)(?:$|[_.\[\]])|(?:Id|Ids|Name|Email|Path|Url|Date|Time|Range)$`)

var modeWord = regexp.MustCompile(`^[a-z][a-z]*(?:[_ -][a-z]+){0,3}$`)

// isMode reports whether a value is a choice among few (economy, true, 3) and so part of the decision, not of the case.
func isMode(path string, l leaf) bool {
	switch l.kind {
	case "boolean":
		return true
	case "number":
		n, err := strconv.ParseFloat(l.value, 64)
		return err == nil && n == math.Trunc(n) && math.Abs(n) <= 20 && !instanceName.MatchString(path)
	case "text":
		return len(l.value) <= 24 && modeWord.MatchString(l.value) && !instanceName.MatchString(path)
	default:
		return false
	}
}

var valueStem = regexp.MustCompile(`^([A-Za-z]+(?:[_-][A-Za-z]+)*)[_-]?#?\d`)

// describe says what a value is like, literally where it is a choice among few.
func describe(path string, l leaf) string {
	if isMode(path, l) {
		return l.value
	}
	switch l.kind {
	case "list", "object", "null":
		return l.value
	case "number":
		return "<number>"
	}
	if stem := valueStem.FindStringSubmatch(l.value); stem != nil && len(stem[1]) > 4 && !strings.Contains(l.value, "@") && !personName.MatchString(path) {
		return "<" + strings.ToLower(strings.ReplaceAll(stem[1], "-", "_")) + ">"
	}
	if format := dateFormat(l.value); format != "" {
		return format
	}
	if c := clauses(path, l.value); c != "" {
		return c
	}
	a := Abstract(Cut(l.value, 60))
	if placeholder.MatchString(a) && placeholder.ReplaceAllString(a, "") == "" {
		return a
	}
	return "<text>"
}

// personName are parameters whose values may begin with the name of a person.
var personName = regexp.MustCompile(`(?i)(?:^|[_.\[\]])(?:user|users|customer|client|name|email|mail|person|patient|employee|owner|member|author|login|account|host|file|path)(?:$|[_.\[\]])|(?:user|customer|owner)Id$`)

// Particular reports a description that only says what kind of value it is, and so says nothing of a choice.
func Particular(description string) bool {
	switch description {
	case "", "<id>", "<text>", "<number>", "<date>", "<time>", "<name>", "<email>", "<amount>", "<url>", "<phone>", "<path>", "<percent>":
		return true
	default:
		return dateFormatName(description)
	}
}

func dateFormatName(s string) bool {
	return slices.ContainsFunc(dateFormats, func(f struct{ layout, name string }) bool { return f.name == s })
}

// dateFormats are ways of writing dates and how a person calls them.
var dateFormats = []struct{ layout, name string }{
	{"2006-01-02", "YYYY-MM-DD"},
	{"2006/01/02", "YYYY/MM/DD"},
	{"2006.01.02", "YYYY.MM.DD"},
	{"01/02/2006", "MM/DD/YYYY"},
	{"02/01/2006", "DD/MM/YYYY"},
	{"1/2/2006", "M/D/YYYY"},
	{"02.01.2006", "DD.MM.YYYY"},
	{"02-01-2006", "DD-MM-YYYY"},
	{"20060102", "YYYYMMDD"},
	{"January 2, 2006", "Month D, YYYY"},
	{"Jan 2, 2006", "Mon D, YYYY"},
	{"2 January 2006", "D Month YYYY"},
	{"2006年1月2日", "YYYY年M月D日"},
	{time.RFC3339, "RFC 3339"},
	{"2006-01-02T15:04:05", "YYYY-MM-DDThh:mm:ss"},
	{"2006-01-02 15:04:05", "YYYY-MM-DD hh:mm:ss"},
}

func dateFormat(s string) string {
	if len(s) < 8 || len(s) > 32 {
		return ""
	}
	for _, f := range dateFormats {
		if _, err := time.Parse(f.layout, s); err == nil {
			return f.name
		}
	}
	return ""
}

var (
	sqlText    = regexp.MustCompile(`(?is)^\s*(?:select|insert|update|delete|with|create|alter|drop|merge|explain)\b.*\b(?:from|into|set|table|values|as)\b`)
	sqlKeyword = regexp.MustCompile(`(?i)\b(?:select|distinct|insert into|update|delete|from|(?:left |right |inner |full |cross )?join|where|group by|having|order by|limit|offset|union(?: all)?|create table|alter table|drop table|truncate|values|set|partition|prewhere|final|between)\b`)
	commandKey = regexp.MustCompile(`(?i)(?:^|[_.\]])(?:command|cmd|shell|bash|script)$`)
	programArg = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)
	flagArg    = regexp.MustCompile(`^--?[A-Za-z][\w-]*`)
)

// clauses gives the skeleton of a query (its keywords) or of a command (program, verb, flags), or nothing.
func clauses(path, value string) string {
	switch {
	case sqlText.MatchString(value):
		var out []string
		for _, k := range sqlKeyword.FindAllString(value, 40) {
			if k = strings.ToUpper(k); !slices.Contains(out, k) {
				out = append(out, k)
			}
		}
		return strings.Join(out, " … ")
	case commandKey.MatchString(path):
		words := strings.Fields(value)
		var out []string
		for i, w := range words {
			if i == 0 || i == 1 && programArg.MatchString(w) {
				out = append(out, w)
			} else if flag := flagArg.FindString(w); flag != "" && !slices.Contains(out, flag) {
				out = append(out, flag)
			}
			if len(out) == 10 {
				break
			}
		}
		return strings.Join(out, " ")
	default:
		return ""
	}
}

// ParameterShapes lists the parameters of a call for the text of a situation: their names, with the value only where that
// is a choice among few (mode=full), and with the skeleton of a query or command. What a case is about (which table, which
// days, how many) makes no difference.
func ParameterShapes(parameters json.RawMessage) []string {
	f := flatten(parameters)
	var out []string
	for _, path := range f.paths() {
		l := f.leaves[path][0]
		switch {
		case l.kind == "text" && clauses(path, l.value) != "":
			out = append(out, path+"="+strings.ReplaceAll(clauses(path, l.value), " … ", " "))
		case l.kind == "boolean" || l.kind == "text" && isMode(path, l):
			out = append(out, path+"="+l.value)
		default:
			out = append(out, path)
		}
	}
	return out
}

// differences tells what a working call has otherwise than a failing one, the most telling first.
func differences(failing, working json.RawMessage, errorText string) []Change {
	a, b := flatten(failing), flatten(working)
	named := numbersIn(errorText)
	var out []Change
	var added, removed []string
	for _, path := range b.paths() {
		if _, had := a.leaves[path]; !had {
			added = append(added, path)
		}
	}
	for _, path := range a.paths() {
		if _, has := b.leaves[path]; !has {
			removed = append(removed, path)
		}
	}
	// A list that became empty, or no longer is, shows as its path against its entries' paths.
	counted := map[string]bool{}
	for _, path := range slices.Sorted(maps.Keys(b.lengths)) {
		n, had := a.lengths[path]
		if had && n != b.lengths[path] && (n == 0 || b.lengths[path] == 0) {
			out = append(out, Change{Kind: ChangeCount, Parameter: path, From: strconv.Itoa(n), To: strconv.Itoa(b.lengths[path])})
			counted[path] = true
		}
	}
	// A list in the place of one value, or the other way round.
	for _, path := range slices.Clone(added) {
		one, many, to := strings.TrimSuffix(path, "[]"), path, "list"
		if one == path {
			many, to = path+"[]", ""
		}
		other := one
		if to == "" {
			other = many
		}
		if leaves := slices.Concat(a.leaves[one], b.leaves[one]); !slices.Contains(removed, other) || len(leaves) == 0 || !scalar(leaves[0].kind) {
			continue
		}
		c := Change{Kind: ChangeType, Parameter: one, To: "list"}
		if to == "list" {
			c.From, c.old = a.leaves[one][0].kind, a.leaves[one][0]
		} else {
			c.From, c.To, c.now = "list", b.leaves[one][0].kind, b.leaves[one][0]
		}
		out = append(out, c)
		gone := func(p string) bool { return p == one || p == many }
		added, removed = slices.DeleteFunc(added, gone), slices.DeleteFunc(removed, gone)
	}
	under := func(path string) bool {
		for list := range counted {
			if path == list || strings.HasPrefix(path, list+"[]") {
				return true
			}
		}
		return false
	}
	added = slices.DeleteFunc(added, under)
	removed = slices.DeleteFunc(removed, under)
	// renamed: the same values under another name at the same place, or the only candidates there
	for _, to := range slices.Clone(added) {
		i := slices.IndexFunc(removed, func(from string) bool {
			return parentPath(from) == parentPath(to) && sameLeaves(a.leaves[from], b.leaves[to])
		})
		if i < 0 {
			continue
		}
		out = append(out, Change{Kind: ChangeRenamed, Parameter: to, FromName: removed[i]})
		removed = slices.Delete(removed, i, i+1)
		added = slices.DeleteFunc(added, func(p string) bool { return p == to })
	}
	for _, path := range topmost(added) {
		c := Change{Kind: ChangeAdded, Parameter: path}
		if leaves := b.leaves[path]; len(leaves) > 0 {
			c.To = describe(path, leaves[0])
			c.newValues = valuesOf(leaves, nil)
			if len(leaves) == 1 {
				c.now = leaves[0]
			}
		}
		out = append(out, c)
	}
	for _, path := range topmost(removed) {
		out = append(out, Change{Kind: ChangeRemoved, Parameter: path})
	}
	for _, path := range b.paths() {
		old, had := a.leaves[path]
		if !had || under(path) || sameLeaves(old, b.leaves[path]) {
			continue
		}
		out = append(out, changeAt(path, old, b.leaves[path], named))
	}
	for _, path := range slices.Sorted(maps.Keys(b.lengths)) {
		n, had := a.lengths[path]
		if had && n != b.lengths[path] && !counted[path] {
			out = append(out, Change{Kind: ChangeCount, Parameter: path, From: strconv.Itoa(n), To: strconv.Itoa(b.lengths[path])})
		}
	}
	lower := strings.ToLower(errorText)
	// What the error speaks of by the parameter's own name, else by the name of a list around it.
	for i := range out {
		out[i].Related = related(out[i], lastName(out[i].Parameter)+"_"+lastName(out[i].FromName), lower)
	}
	if !slices.ContainsFunc(out, func(c Change) bool { return c.Related }) {
		for i := range out {
			out[i].Related = related(out[i], out[i].Parameter, lower)
		}
	}
	slices.SortStableFunc(out, func(x, y Change) int { return cmp.Compare(weigh(y), weigh(x)) })
	return out
}

// related reports a change of what the error speaks of.
func related(c Change, name, lowerError string) bool {
	if c.Kind == ChangeTotal {
		return true
	}
	words := nameWords(name)
	for _, d := range []string{c.From, c.To} {
		if !Particular(d) && len(d) < 40 {
			words = append(words, nameWords(strings.Trim(d, "<>"))...)
		}
	}
	for _, word := range words {
		if len(word) > 2 && (strings.Contains(lowerError, word) || len(word) > 4 && strings.Contains(lowerError, strings.TrimSuffix(word, "s"))) {
			return true
		}
	}
	return false
}

// weigh ranks how telling a change is: what the error speaks of first.
func weigh(c Change) int {
	w := map[ChangeKind]int{
		ChangeTotal: 9, ChangeRenamed: 8, ChangeType: 7, ChangeFormat: 7, ChangeClauses: 6, ChangeAdded: 5,
		ChangeRemoved: 4, ChangeValue: 3, ChangeCount: 2,
	}[c.Kind]
	if c.Related {
		w += 6
	}
	if freeText.MatchString(c.Parameter) {
		w -= 8
	}
	return w
}

// freeText are parameters that carry words for people, which differ from call to call.
var freeText = regexp.MustCompile(`(?i)(?:^|[_.\]])(?:thought|thoughts|summary|reason|reasoning|note|notes|comment|message|description|explanation)$`)

// nameWords splits the name of a tool or parameter into its words.
func nameWords(name string) []string {
	spaced := regexpCamel.ReplaceAllString(name, "${1}_${2}")
	return strings.FieldsFunc(strings.ToLower(spaced), func(r rune) bool {
		return r == '_' || r == '.' || r == '[' || r == ']' || r == '-' || r == ' ' || r == '/' || r == ':'
	})
}

var regexpCamel = regexp.MustCompile(`([a-z0-9])([A-Z])`)

// lastName is the end of a path: amount of lines[].amount.
func lastName(path string) string {
	if i := strings.LastIndexByte(path, '.'); i >= 0 {
		return path[i+1:]
	}
	return path
}

func parentPath(path string) string {
	if i := strings.LastIndexByte(path, '.'); i >= 0 {
		return path[:i]
	}
	return ""
}

// topmost leaves out paths that lie below a list or object that is itself new: entry[].x and entry[].y are entry.
func topmost(paths []string) []string {
	if len(paths) < 4 {
		return paths
	}
	count := map[string]int{}
	for _, p := range paths {
		head, _, nested := strings.Cut(p, "[]")
		if !nested {
			head, _, _ = strings.Cut(p, ".")
		}
		count[head]++
	}
	var out []string
	for _, p := range paths {
		head, _, nested := strings.Cut(p, "[]")
		if !nested {
			head, _, _ = strings.Cut(p, ".")
		}
		if count[head] > 2 {
			p = head
		}
		if !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

func sameLeaves(a, b []leaf) bool {
	if slices.Equal(a, b) {
		return true
	}
	if len(a) != len(b) {
		return false
	}
	x, y := slices.Clone(a), slices.Clone(b)
	order := func(p, q leaf) int { return cmp.Or(cmp.Compare(p.kind, q.kind), cmp.Compare(p.value, q.value)) }
	slices.SortFunc(x, order)
	slices.SortFunc(y, order)
	return slices.Equal(x, y)
}

// valuesOf are the values of leaves that old did not have.
func valuesOf(leaves, old []leaf) []string {
	var out []string
	for _, l := range leaves {
		if !slices.Contains(old, l) {
			out = append(out, l.value)
		}
	}
	return out
}

// changeAt compares what one path held in both calls.
func changeAt(path string, old, now []leaf, named []float64) Change {
	c := Change{Kind: ChangeValue, Parameter: path, newValues: valuesOf(now, old)}
	from, to := firstOther(old, now), firstOther(now, old)
	c.From, c.To = describe(path, from), describe(path, to)
	if len(old) == 1 && len(now) == 1 {
		c.old, c.now = from, to
		c.Form = formOf(path, from, to)
	}
	if before, after, numbers := sums(old, now); numbers && before != after && slices.Contains(named, after) && (len(old) > 1 || len(now) > 1 || strings.Contains(path, "[]")) {
		c.Kind, c.From, c.To = ChangeTotal, "", ""
		return c
	}
	switch {
	case from.kind != to.kind && from.kind != "list" && to.kind != "list" && from.kind != "null":
		if scalar(from.kind) && scalar(to.kind) {
			c.Kind, c.From, c.To = ChangeType, from.kind, to.kind
		}
	case from.kind == "text" && to.kind == "text":
		fromDate, toDate := dateFormat(from.value), dateFormat(to.value)
		fromClauses, toClauses := clauses(path, from.value), clauses(path, to.value)
		switch {
		case fromDate != "" && toDate != "" && fromDate != toDate:
			c.Kind, c.From, c.To = ChangeFormat, fromDate, toDate
		case bareText(from.value) == bareText(to.value) && bareText(to.value) != "" && writtenAs(from.value) != writtenAs(to.value) && utf8.RuneCountInString(writtenAs(to.value)) <= maxWritten:
			c.Kind, c.From, c.To = ChangeFormat, writtenAs(from.value), writtenAs(to.value)
		case fromClauses != "" && toClauses != "" && fromClauses != toClauses:
			c.Kind = ChangeClauses
			c.From, c.To = clauseChange(fromClauses, toClauses)
		}
	}
	return c
}

func scalar(kind string) bool { return kind == "text" || kind == "number" || kind == "boolean" }

func firstOther(leaves, than []leaf) leaf {
	for _, l := range leaves {
		if !slices.Contains(than, l) {
			return l
		}
	}
	return leaves[0]
}

// clauseChange gives the clauses or flags that only one has.
func clauseChange(from, to string) (gone, come string) {
	sep := " "
	if strings.Contains(from+to, " … ") {
		sep = " … "
	}
	a, b := strings.Split(from, sep), strings.Split(to, sep)
	only := func(x, y []string) string {
		var out []string
		for _, w := range x {
			if !slices.Contains(y, w) {
				out = append(out, w)
			}
		}
		return strings.Join(out, ", ")
	}
	gone, come = only(a, b), only(b, a)
	if gone != "" && come != "" && len(a) < 6 && len(b) < 6 && sep == " " {
		return from, to
	}
	return gone, come
}

// bareText leaves of a value only letters and digits, to see that two are the same but for their writing.
func bareText(s string) string {
	return strings.ToLower(strings.Map(func(r rune) rune {
		if r == '_' || r < utf8.RuneSelf && !wordRune(r) {
			return -1
		}
		return r
	}, s))
}

// maxWritten is how long the form of a value may be to be shown, in runes: a longer one is no form but a text.
const maxWritten = 20

// writtenAs shows how a value is written: letters as a, digits as 9, signs as they are.
func writtenAs(s string) string {
	var b strings.Builder
	var last rune
	for _, r := range Cut(s, 40) {
		k := r
		switch {
		case '0' <= r && r <= '9':
			k = '9'
		case 'a' <= r && r <= 'z':
			k = 'a'
		case 'A' <= r && r <= 'Z':
			k = 'A'
		}
		if k != last || k != '9' && k != 'a' && k != 'A' {
			b.WriteRune(k)
		}
		last = k
	}
	return b.String()
}

var numberInText = regexp.MustCompile(`\d[\d,]*(?:\.\d+)?`)

func numbersIn(text string) []float64 {
	var out []float64
	for _, s := range numberInText.FindAllString(text, 20) {
		if n, err := strconv.ParseFloat(strings.ReplaceAll(s, ",", ""), 64); err == nil {
			out = append(out, n)
		}
	}
	return out
}

// totalOf finds a list of numbers that add up to one number that the error names, while it names another: what was given
// and what was wanted.
func totalOf(parameters json.RawMessage, errorText string) string {
	named := numbersIn(errorText)
	f := flatten(parameters)
	for _, path := range f.paths() {
		if !strings.Contains(path, "[]") {
			continue
		}
		sum, _, numbers := sums(f.leaves[path], nil)
		if numbers && slices.Contains(named, sum) && slices.ContainsFunc(named, func(n float64) bool { return n != sum && n > sum/1000 }) {
			return path
		}
	}
	return ""
}

func sums(old, now []leaf) (before, after float64, numbers bool) {
	add := func(leaves []leaf) (sum float64, ok bool) {
		for _, l := range leaves {
			n, err := strconv.ParseFloat(l.value, 64)
			if l.kind != "number" || err != nil {
				return 0, false
			}
			sum += n
		}
		return math.Round(sum*100) / 100, true
	}
	before, ok1 := add(old)
	after, ok2 := add(now)
	return before, after, ok1 && ok2
}

// canonical gives parameters a form to compare: members by name.
func canonical(parameters json.RawMessage) string {
	dec := json.NewDecoder(bytes.NewReader(parameters))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil {
		return string(parameters)
	}
	out, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(out)
}
