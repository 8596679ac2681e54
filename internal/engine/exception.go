package engine

import (
	"regexp"
	"strconv"
	"strings"
)

// Exception is an error of ClickHouse itself.
type Exception struct {
	Code    int    // ClickHouse's error code, 0 if it gave none
	Message string // the whole text, "Code: N. DB::Exception: …"
}

func (e *Exception) Error() string { return e.Message }

var codePattern = regexp.MustCompile(`(?:^|\n)\s*(?:Code: )+(\d+)\. DB::`)

func newException(message string) *Exception {
	message = strings.TrimSpace(message)
	e := &Exception{Message: message}
	if m := codePattern.FindStringSubmatch(message); m != nil {
		e.Code, _ = strconv.Atoi(m[1])
	}
	return e
}
