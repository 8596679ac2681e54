package importer

import (
	"errors"
	"fmt"

	"github.com/hindsight-memory/hindsight/events"
)

// Reasons of problems, see [Problem.Reason]. They are part of the stable output of `hindsight import --json`.
const (
	// Of a file as a whole.
	ReasonNotFound               = "not_found"
	ReasonNotReadable            = "not_readable"
	ReasonIsDirectory            = "is_directory"
	ReasonEmptyFile              = "empty_file"
	ReasonBinaryFile             = "binary_file"
	ReasonUnsupportedCompression = "unsupported_compression"
	ReasonUnknownFormat          = "unknown_format"
	ReasonTruncatedGzip          = "truncated_gzip"
	ReasonCorruptGzip            = "corrupt_gzip"
	ReasonReadError              = "read_error"
	// ReasonCancelled means that the caller gave up before the end of the file.
	ReasonCancelled = "cancelled"

	// Of one line.
	ReasonLineTooLong       = "line_too_long"
	ReasonCutLine           = "cut_line"
	ReasonInvalidUTF8       = "invalid_utf8"
	ReasonInvalidJSON       = "invalid_json"
	ReasonNotAnObject       = "not_an_object"
	ReasonMissingField      = "missing_field"
	ReasonWrongType         = "wrong_type"
	ReasonUnknownStepType   = "unknown_step_type"
	ReasonBadTime           = "bad_time"
	ReasonInvalidEvent      = "invalid_event"
	ReasonInvalidMemory     = "invalid_memory"
	ReasonTooLarge          = "too_large"
	ReasonMissingNamespace  = "missing_namespace"
	ReasonNamespaceMismatch = "namespace_mismatch"
	// ReasonDuplicateLine means that an earlier line gave exactly the same events.
	ReasonDuplicateLine = "duplicate_line"
	// ReasonDuplicateLineDiffers means that an earlier line has the same identity and other content. The first wins.
	ReasonDuplicateLineDiffers = "duplicate_line_differs"
)

// problemError is an error with the reason under which it is counted.
type problemError struct {
	reason string
	err    error
}

func (e *problemError) Error() string { return e.err.Error() }
func (e *problemError) Unwrap() error { return e.err }

func problemf(reason, format string, args ...any) error {
	return &problemError{reason: reason, err: fmt.Errorf(format, args...)}
}

// reasonOf gives the reason under which an error is counted.
func reasonOf(err error) string {
	var p *problemError
	switch {
	case errors.As(err, &p):
		return p.reason
	case errors.Is(err, events.ErrTooLarge):
		return ReasonTooLarge
	case errors.Is(err, events.ErrInvalid):
		return ReasonInvalidEvent
	default:
		return ReasonReadError
	}
}
