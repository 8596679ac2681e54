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
	d := high
	if shift := failures - 1; shift < 30 && low<<max(shift, 0) < high {
		d = low << max(shift, 0)
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
