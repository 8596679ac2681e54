package memory

import (
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Form is a form of a value that has a name. A lesson that names it holds for other values too.
type Form string

// Forms.
const (
	FormMilliseconds Form = "milliseconds"
	FormSeconds      Form = "seconds"
	FormMinutes      Form = "minutes"
	FormHours        Form = "hours"
	FormDays         Form = "days"
	// FormMinorUnits are cents, where money was given in whole units.
	FormMinorUnits Form = "minor_units"
	// FormFraction is a number between 0 and 1, where a percentage was given.
	FormFraction     Form = "fraction"
	FormCurrencyCode Form = "currency_code"
	FormCountryCode  Form = "country_code"
	FormLanguageCode Form = "language_code"
	// FormClock is hh:mm in 24-hour notation.
	FormClock Form = "clock"
	FormE164  Form = "e164"
	FormKebab Form = "kebab_case"
	FormSnake Form = "snake_case"
	FormUpper Form = "upper_case"
	FormLower Form = "lower_case"
	// FormHash is a # in front, FormNoHash that there must be none.
	FormHash   Form = "hash"
	FormNoHash Form = "no_hash"
)

// standard is how a form is known, so that a lesson may name it.
func (f Form) standard() string {
	switch f {
	case FormCurrencyCode:
		return "ISO 4217"
	case FormCountryCode:
		return "ISO 3166"
	case FormLanguageCode:
		return "BCP 47"
	case FormClock:
		return "hh:mm in 24-hour notation, 24 小时制"
	case FormE164:
		return "E.164"
	case FormFraction:
		return "between 0 and 1"
	case FormSnake:
		return "snake_case"
	default:
		return ""
	}
}

var (
	duration      = regexp.MustCompile(`(?i)^(\d+(?:\.\d+)?) ?(ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?|毫秒|秒钟?|分钟?|个?小时|天)$`)
	clock12       = regexp.MustCompile(`(?i)^(\d{1,2})(?::(\d{2}))? ?([ap])\.?m\.?$`)
	clock24       = regexp.MustCompile(`^(\d{2}):(\d{2})$`)
	percentText   = regexp.MustCompile(`^(\d+(?:\.\d+)?) ?[%％]?$`)
	moneyName     = regexp.MustCompile(`(?i)(?:^|[_.\]])(?:amount|price|total|sum|fee|cost|value|balance|charge)s?(?:$|[_.\[])|金额|价格`)
	threeCapitals = regexp.MustCompile(`^[A-Z]{3}$`)
	twoCapitals   = regexp.MustCompile(`^[A-Z]{2}$`)
	languageTag   = regexp.MustCompile(`^[a-z]{2,3}(?:-[A-Z][A-Za-z]{1,3})?$`)
	languageName  = regexp.MustCompile(`(?i)^(?:english|german|french|spanish|chinese|japanese|korean|italian|portuguese|russian|dutch|polish|arabic|turkish|swedish|英[语文]|德[语文]|法[语文]|中文|汉语|日[语文]|韩[语文]|西班牙[语文]|俄[语文]|意大利[语文]|葡萄牙[语文])$`)
	currencyName  = regexp.MustCompile(`(?i)^(?:euros?|(?:us |american )?dollars?|(?:british )?pounds?(?: sterling)?|yen|yuan|renminbi|rupees?|(?:swiss )?francs?|krona|rubles?|欧元|美元|英镑|日元|人民币|卢布|瑞士法郎|[€$£¥])$`)
	e164Text      = regexp.MustCompile(`^\+\d{7,15}$`)
	kebabText     = regexp.MustCompile(`^[a-z0-9]+(?:-[a-z0-9]+)+$`)
	snakeText     = regexp.MustCompile(`^[a-z0-9]+(?:_[a-z0-9]+)+$`)
	notDigit      = regexp.MustCompile(`\D`)
)

// formOf names the form that a value has in the second of two calls and not in the first, where the two are the same value
// or the form is unmistakable. It is empty when no form is known.
func formOf(path string, from, to leaf) Form {
	if from.kind == "text" && to.kind == "number" {
		if unit := unitOf(from.value, to.value); unit != "" {
			return unit
		}
	}
	if x, y, numbers := numberPair(from, to); numbers && x != 0 {
		percent := from.kind == "text" && strings.ContainsAny(from.value, "%％")
		switch {
		case percent && near64(y*100, x):
			return FormFraction
		case !percent && near64(x*100, y) && (x != math.Trunc(x) || moneyName.MatchString(path)):
			return FormMinorUnits
		}
	}
	if from.kind != "text" || to.kind != "text" {
		return ""
	}
	x, y := strings.TrimSpace(from.value), to.value
	switch {
	case threeCapitals.MatchString(y) && (currencyName.MatchString(x) || strings.Contains(strings.ToLower(path), "currency") && !threeCapitals.MatchString(strings.ToUpper(x))):
		return FormCurrencyCode
	case twoCapitals.MatchString(y) && len(x) > 3 && strings.Contains(strings.ToLower(path), "country"):
		return FormCountryCode
	case languageTag.MatchString(y) && languageName.MatchString(x):
		return FormLanguageCode
	case sameClock(x, y):
		return FormClock
	case e164Text.MatchString(y) && !e164Text.MatchString(x) && strings.HasSuffix(notDigit.ReplaceAllString(x, ""), y[max(1, len(y)-6):]):
		return FormE164
	case y == "#"+x:
		return FormHash
	case x == "#"+y:
		return FormNoHash
	case bareText(x) != bareText(y):
		return ""
	case kebabText.MatchString(y) && !kebabText.MatchString(x):
		return FormKebab
	case snakeText.MatchString(y) && !snakeText.MatchString(x):
		return FormSnake
	case y == strings.ToUpper(x):
		return FormUpper
	case y == strings.ToLower(x):
		return FormLower
	default:
		return ""
	}
}

// unitOf says in which unit a number is the duration that a text says.
func unitOf(text, number string) Form {
	m := duration.FindStringSubmatch(strings.TrimSpace(text))
	n, err := strconv.ParseFloat(number, 64)
	if m == nil || err != nil {
		return ""
	}
	seconds, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		return ""
	}
	switch unit := strings.ToLower(m[2]); {
	case unit == "ms" || strings.HasPrefix(unit, "milli") || unit == "毫秒":
		seconds /= 1000
	case strings.HasPrefix(unit, "s") || strings.HasPrefix(unit, "秒"):
	case strings.HasPrefix(unit, "m") || strings.HasPrefix(unit, "分"):
		seconds *= 60
	case strings.HasPrefix(unit, "h") || strings.HasSuffix(unit, "小时"):
		seconds *= 3600
	default:
		seconds *= 86_400
	}
	for _, u := range []struct {
		form    Form
		seconds float64
	}{{FormMilliseconds, 0.001}, {FormSeconds, 1}, {FormMinutes, 60}, {FormHours, 3600}, {FormDays, 86_400}} {
		if near64(n*u.seconds, seconds) {
			return u.form
		}
	}
	return ""
}

// numberPair reads two values as numbers; a percent sign is left out.
func numberPair(from, to leaf) (x, y float64, numbers bool) {
	read := func(l leaf) (float64, bool) {
		m := percentText.FindStringSubmatch(l.value)
		if m == nil || l.kind != "number" && l.kind != "text" {
			return 0, false
		}
		n, err := strconv.ParseFloat(m[1], 64)
		return n, err == nil
	}
	x, ok1 := read(from)
	y, ok2 := read(to)
	return x, y, ok1 && ok2
}

func near64(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(1, math.Abs(a), math.Abs(b)) }

// sameClock reports a time of day that was written with am or pm and then in 24-hour notation.
func sameClock(from, to string) bool {
	a, b := clock12.FindStringSubmatch(from), clock24.FindStringSubmatch(to)
	if a == nil || b == nil {
		return false
	}
	hour, err := strconv.Atoi(a[1])
	if err != nil {
		return false
	}
	hour %= 12
	if strings.EqualFold(a[3], "p") {
		hour += 12
	}
	minutes := a[2]
	if minutes == "" {
		minutes = "00"
	}
	return b[1] == strconv.Itoa(100 + hour)[1:] && b[2] == minutes
}

// ownName are names of parameters whose values may be the tool's own although their names say what tasks differ in.
var ownName = regexp.MustCompile(`(?i)(?:^|[_.\]])(?:country|state|reason|version|schema|region|range|window|interval|period|tag|value|days?|weeks?|months?|hours?)$`)

// Bounds of a value that is the tool's own, in runes, words, digits.
const (
	maxOwn       = 30
	maxOwnWords  = 3
	maxOwnNumber = 9999
)

// own reports a value that is the tool's and not of the instance: a choice, a limit, a version. It is short and was said
// neither in the goal nor by the user nor in an earlier result.
func own(path string, l leaf, said instance) bool {
	if said == "" || instanceName.MatchString(path) && !ownName.MatchString(path) {
		return false
	}
	switch l.kind {
	case "boolean":
		return true
	case "number":
		n, err := strconv.ParseFloat(l.value, 64)
		return err == nil && math.Abs(n) <= maxOwnNumber && len(l.value) <= 6 && !said.hasNumber(l.value)
	case "text":
	default:
		return false
	}
	words := strings.Fields(l.value)
	switch {
	case len(words) == 0 || len(words) > maxOwnWords || utf8.RuneCountInString(l.value) > maxOwn || strings.ContainsAny(l.value, "@/\\<>\n"):
		return false
	case freeText.MatchString(path) && !modeWord.MatchString(l.value), freeText.MatchString(path) && len(words) > 1:
		return false
	case dateFormat(l.value) != "" || len(notDigit.ReplaceAllString(l.value, "")) > maxToolWordDigits:
		return false
	case said.has(l.value) || said.has(strings.ReplaceAll(l.value, "_", " ")):
		return false
	case slices.ContainsFunc(numberInText.FindAllString(l.value, 3), func(n string) bool { return len(n) > 1 && said.hasNumber(n) }):
		return false
	case len(words) > 1:
		return !slices.ContainsFunc(words, func(w string) bool { return len(w) > 3 && said.has(w) })
	default:
		return slices.ContainsFunc([]rune(l.value), func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) })
	}
}

// hasNumber reports that a number was said, however it was written.
func (i instance) hasNumber(value string) bool {
	value = strings.ReplaceAll(value, ",", "")
	want, err := strconv.ParseFloat(value, 64)
	whole, _, _ := strings.Cut(strings.TrimPrefix(value, "-"), ".")
	// Most numbers were not said, which is found out faster so.
	if err != nil || !strings.Contains(string(i), whole) && (len(whole) < 4 || !strings.Contains(string(i), whole[:len(whole)-3]+",")) {
		return false
	}
	return slices.ContainsFunc(numberInText.FindAllString(string(i), -1), func(s string) bool {
		n, err := strconv.ParseFloat(strings.ReplaceAll(strings.TrimRight(s, ","), ",", ""), 64)
		return err == nil && n == want
	})
}

// literally puts values into the words of a change where they are the tool's own, and takes numbers of the instance out.
func (c *Change) literally(said instance) {
	from, to := own(c.Parameter, c.old, said), own(c.Parameter, c.now, said)
	switch c.Kind {
	case ChangeValue, ChangeAdded:
		if to {
			c.To = c.now.value
		} else if c.now.kind == "number" && said.hasNumber(c.now.value) {
			c.To = "<number>"
		}
		if from && c.Kind == ChangeValue {
			c.From = c.old.value
		} else if c.old.kind == "number" && said.hasNumber(c.old.value) {
			c.From = "<number>"
		}
	case ChangeType, ChangeFormat:
	case ChangeRemoved, ChangeRenamed, ChangeCount, ChangeTotal, ChangeClauses:
		return
	}
	if from && (c.Kind == ChangeType || c.Kind == ChangeFormat || c.Form != "") { // else the new value is of the instance too
		c.Counter = c.old.value
		if to {
			c.Example = c.now.value
		}
	}
}
