package bus

import (
	"errors"
	"fmt"
)

// Discard is a handler's verdict that a message can never be handled: it
// becomes a dead letter at once. reason is one of a few words to group by,
// "discarded" when empty; err may be nil.
func Discard(reason string, err error) error {
	if reason == "" {
		reason = "discarded"
	}
	return &discardError{reason, err}
}

// Wait is a handler's verdict that something downstream is away: the message
// is tried again, ever more slowly, and never becomes a dead letter for it.
func Wait(err error) error { return &waitError{err} }

type discardError struct {
	reason string
	err    error
}

func (e *discardError) Error() string {
	if e.err == nil {
		return e.reason
	}
	return e.reason + ": " + e.err.Error()
}

func (e *discardError) Unwrap() error { return e.err }

type waitError struct{ err error }

func (e *waitError) Error() string {
	if e.err == nil {
		return "waiting"
	}
	return "waiting: " + e.err.Error()
}

func (e *waitError) Unwrap() error { return e.err }

// panicError is what the worker makes of a handler's panic.
type panicError struct{ value any }

func (e *panicError) Error() string { return fmt.Sprintf("handler panicked: %v", e.value) }

var (
	// errNotTried is the verdict on a message that was not handled, or not to
	// the end, because the worker stops: it goes back at once, uncounted.
	errNotTried = errors.New("not tried")
	// errVerdicts is a handler's fault: it gave too few or too many verdicts.
	errVerdicts = errors.New("handler gave a wrong number of verdicts")
)
