package bus

import (
	"context"
	"math/rand/v2"
	"time"
)

// delay is how long to wait after the given number of failures in a row (1 is
// the first): exponential from low to high, then shortened by up to a third at
// random so that those who failed together do not come back together.
func delay(failures int, low, high time.Duration) time.Duration {
	d := min(low, high)
	for i := 1; i < failures && d < high; i++ {
		d = min(2*d, high)
	}
	return d - time.Duration(rand.Int64N(int64(d)/3+1)) //nolint:gosec // spreading load needs no secrecy
}

// pause waits for d or until ctx ends, and reports whether it waited.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
