package importer

import "io"

// SetStdin replaces standard input.
func (im *Importer) SetStdin(r io.Reader) { im.stdin = r }

// ErrorType is errorType.
func ErrorType(text string) string { return errorType(text) }

// LimitID is limitID.
func LimitID(s string) string { return limitID(s) }
