package importer

import (
	"net/http"
	"regexp"
	"strconv"
	"strings"
)

// errorTypeTool is the type of an error that does not say what it is.
const errorTypeTool = "tool_error"

var (
	// A name such as ValueError or requests.exceptions.HTTPError, before a colon or alone.
	namedError = regexp.MustCompile(`^(?:[A-Za-z_]\w*\.)*([A-Z]\w*(?:Error|Exception))(?::|\s*$)`)
	// A code that is said to be one: HTTP 503, HTTP/1.1 503, status code 503, status: 503.
	saidStatus = regexp.MustCompile(`(?i)\b(?:HTTP(?:/\d(?:\.\d)?)?|status(?:[ _]code)?)[ :=]+(?:error )?([45]\d\d)\b`)
	// A code at the very beginning.
	firstStatus = regexp.MustCompile(`^([45]\d\d)\b[ :,-]*(.*)`)
)

// errorType derives the type of a tool's error from its text: the name of an exception (`ValueError: …`), else the
// status code of HTTP as `503`, the way OpenTelemetry's error.type has it, else tool_error. A number is only taken for a
// status code where the text says so, or begins with it and its standard phrase: "paid 503" is an amount.
func errorType(text string) string {
	text = strings.TrimSpace(text)
	if rest, found := strings.CutPrefix(text, "Error:"); found {
		text = strings.TrimSpace(rest)
	}
	if m := namedError.FindStringSubmatch(text); m != nil {
		return m[1]
	}
	if m := saidStatus.FindStringSubmatch(text); m != nil {
		return m[1]
	}
	if m := firstStatus.FindStringSubmatch(text); m != nil {
		code, err := strconv.Atoi(m[1])
		if err != nil {
			return errorTypeTool
		}
		phrase := strings.ToLower(http.StatusText(code))
		rest := strings.ToLower(m[2])
		generic := strings.HasPrefix(rest, "client error") || strings.HasPrefix(rest, "server error")
		if rest == "" || generic || phrase != "" && strings.HasPrefix(rest, phrase) {
			return m[1]
		}
	}
	return errorTypeTool
}
