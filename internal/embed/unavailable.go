package embed

import (
	"context"
	"errors"
	"fmt"

	"github.com/hindsight-memory/hindsight/internal/memory"
)

// unavailableError is what can be tried again. It is memory.ErrUnavailable for
// errors.Is, without that error's words about a store.
type unavailableError struct {
	what  string
	cause error
}

func (e *unavailableError) Error() string { return fmt.Sprintf("%s: %v", e.what, e.cause) }

func (e *unavailableError) Unwrap() []error { return []error{memory.ErrUnavailable, e.cause} }

// unavailable says what could not be done before ctx ended.
func unavailable(ctx context.Context, what string) error {
	cause := context.Cause(ctx)
	if err := ctx.Err(); err != nil && !errors.Is(cause, err) {
		cause = fmt.Errorf("%w: %w", err, cause)
	}
	return &unavailableError{what: what, cause: cause}
}
