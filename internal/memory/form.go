package memory

import "encoding/json"

// Value is one value inside the parameters of a call.
type Value struct {
	// Kind is text, number, boolean or null, and list or object for an empty one.
	Kind string
	// Text is the value: a number in its plain form, a text as it is.
	Text string
}

// ParameterValues gives the values of a call by path: customer.name, lines[].amount. A path has as many values as the lists
// on it have entries. Parameters that are not a JSON object have none.
func ParameterValues(parameters json.RawMessage) map[string][]Value {
	leaves := flatten(parameters).leaves
	out := make(map[string][]Value, len(leaves))
	for path, at := range leaves {
		for _, l := range at {
			out[path] = append(out[path], Value{Kind: l.kind, Text: l.value})
		}
	}
	return out
}

// WrittenForm is how lessons name the form in which a text is written: YYYY-MM-DD for a date, else letters as a and A,
// digits as 9 and signs as they are.
func WrittenForm(text string) string {
	if form := dateFormat(text); form != "" {
		return form
	}
	return writtenAs(text)
}
