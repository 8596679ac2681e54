package script

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Forms in which values can be written, by the names that error texts and lessons use.
const (
	FormText    = "text"
	FormNumber  = "number"
	FormBoolean = "boolean"
	FormList    = "list"

	FormCents     = "cents"
	FormE164      = "E.164"
	FormUpper     = "uppercase"
	FormLower     = "lowercase"
	FormHourMin   = "hh:mm"
	FormCountry   = "two-letter"
	FormCurrency  = "currency code"
	FormMinutes   = "minutes"
	FormSeconds   = "seconds"
	FormFraction  = "fraction"
	FormNoHash    = "without #"
	FormHash      = "with #"
	FormSnake     = "snake_case"
	FormKebab     = "kebab-case"
	FormDigits    = "digits only"
	FormLanguage  = "language tag"
	FormDate      = "YYYY-MM-DD"
	FormDateTime  = "RFC 3339"
	FormDateSlash = "DD/MM/YYYY"
	FormDateUS    = "MM/DD/YYYY"
	FormDatePlain = "YYYYMMDD"
	FormDateDots  = "DD.MM.YYYY"
	FormDateZH    = "YYYY年M月D日"
)

// dates are ways of writing a day.
var dates = []struct{ form, layout string }{
	{FormDate, "2006-01-02"},
	{FormDateTime, time.RFC3339},
	{FormDateSlash, "02/01/2006"},
	{FormDateUS, "01/02/2006"},
	{FormDatePlain, "20060102"},
	{FormDateDots, "02.01.2006"},
	{FormDateZH, "2006年1月2日"},
	{"YYYY/MM/DD", "2006/01/02"},
	{"YYYY.MM.DD", "2006.01.02"},
	{"DD-MM-YYYY", "02-01-2006"},
	{"Month D, YYYY", "January 2, 2006"},
}

var (
	countries  = map[string]string{"germany": "DE", "france": "FR", "china": "CN", "中国": "CN", "德国": "DE", "japan": "JP", "日本": "JP"}
	currencies = map[string]string{"euro": "EUR", "dollar": "USD", "yuan": "CNY", "人民币": "CNY", "欧元": "EUR"}
	languages  = map[string]string{"german": "de", "english": "en", "chinese": "zh", "中文": "zh", "英文": "en"}
	duration   = regexp.MustCompile(`^(\d+)\s*(h|hours?|小时|m|min|minutes?|分钟)$`)
	clock      = regexp.MustCompile(`(?i)^(?:下午)?(\d{1,2})(?::(\d{2}))?\s*(am|pm|点)?$`)
	notDigits  = regexp.MustCompile(`\D+`)
	words      = regexp.MustCompile(`[\s_-]+`)
)

// Convert writes a value in a form; is false when the form is unknown or the value is nothing that has it.
func Convert(v any, form string) (converted any, is bool) {
	text := Text(v)
	if day, ok := Day(text); ok {
		for _, d := range dates {
			if d.form == form {
				return day.Format(d.layout), true
			}
		}
	}
	switch form {
	case FormText:
		return text, true
	case FormNumber:
		n, err := strconv.ParseFloat(strings.Trim(text, "€$¥ "), 64)
		return n, err == nil
	case FormBoolean:
		switch strings.ToLower(text) {
		case "true", "yes", "1", "是":
			return true, true
		case "false", "no", "0", "否":
			return false, true
		}
		return nil, false
	case FormList:
		if list, already := v.([]any); already {
			return list, true
		}
		var list []any
		for part := range strings.SplitSeq(text, ",") {
			list = append(list, strings.TrimSpace(part))
		}
		return list, true
	case FormCents:
		n, err := strconv.ParseFloat(strings.Trim(text, "€$¥ "), 64)
		return math.Round(n * 100), err == nil
	case FormFraction:
		n, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
		return n / 100, err == nil
	case FormE164:
		return "+" + strings.TrimPrefix(notDigits.ReplaceAllString(text, ""), "00"), len(text) > 5
	case FormDigits:
		return notDigits.ReplaceAllString(text, ""), text != ""
	case FormUpper:
		return strings.ToUpper(text), true
	case FormLower:
		return strings.ToLower(text), true
	case FormSnake:
		return strings.ToLower(words.ReplaceAllString(text, "_")), true
	case FormKebab:
		return strings.ToLower(words.ReplaceAllString(text, "-")), true
	case FormNoHash:
		return strings.TrimPrefix(text, "#"), true
	case FormHash:
		return "#" + strings.TrimPrefix(text, "#"), true
	case FormCountry:
		return listed(countries, text)
	case FormCurrency:
		return listed(currencies, text)
	case FormLanguage:
		return listed(languages, text)
	case FormMinutes, FormSeconds:
		return long(text, form)
	case FormHourMin:
		return hourMinute(text)
	default:
		return nil, false
	}
}

func listed(list map[string]string, text string) (any, bool) {
	code, is := list[strings.ToLower(text)]
	return code, is
}

func long(text, form string) (any, bool) {
	m := duration.FindStringSubmatch(strings.ToLower(text))
	if m == nil {
		return nil, false
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		return nil, false
	}
	if strings.HasPrefix(m[2], "h") || m[2] == "小时" {
		n *= 60
	}
	if form == FormSeconds {
		n *= 60
	}
	return float64(n), true
}

func hourMinute(text string) (any, bool) {
	m := clock.FindStringSubmatch(text)
	if m == nil {
		return nil, false
	}
	hour, err := strconv.Atoi(m[1])
	if err != nil {
		return nil, false
	}
	if (strings.EqualFold(m[3], "pm") || strings.HasPrefix(text, "下午")) && hour < 12 {
		hour += 12
	}
	minute := m[2]
	if minute == "" {
		minute = "00"
	}
	return fmt.Sprintf("%02d:%s", hour, minute), true
}

// Day reads a date in any of the ways it may be written.
func Day(text string) (time.Time, bool) {
	if !strings.ContainsFunc(text, unicode.IsDigit) {
		return time.Time{}, false
	}
	for _, d := range dates {
		if day, err := time.Parse(d.layout, text); err == nil {
			return day, true
		}
	}
	return time.Time{}, false
}
