package bus

import (
	"errors"
	"sync"
)

// ledgerLimit is how many messages one generation of a ledger remembers.
const ledgerLimit = 1 << 15

// record is what a worker knows about a message that came back.
type record struct {
	failures int // real ones, since this process saw it first
	waits    int // in a row
}

// judge counts a verdict that is neither success nor to be ignored, and says
// why the message becomes a dead letter, if it does. What failed beside others
// may be innocent, so the last attempt must have been on its own.
func (r *record) judge(verdict error, alone bool, maxAttempts int) (reason string) {
	var (
		discard  *discardError
		away     *waitError
		panicked *panicError
	)
	switch {
	case errors.As(verdict, &discard):
		r.failures++
		return discard.reason
	case errors.As(verdict, &away):
		r.waits++
		return ""
	}
	r.failures, r.waits = r.failures+1, 0
	switch {
	case r.failures < maxAttempts || !alone:
		return ""
	case errors.As(verdict, &panicked):
		return ReasonPanic
	default:
		return ReasonExhausted
	}
}

// ledger remembers the messages that failed, by their sequence in the stream.
// The server's own count of deliveries would not do: it also grows while
// something downstream is away and when workers stop. It is bounded by
// forgetting those that were not touched longest; another process starts its
// own, so a message may get more attempts than promised, never fewer (and one
// that kills the process each time is never given up).
type ledger struct {
	mu         sync.Mutex
	young, old map[uint64]record
}

func (l *ledger) get(sequence uint64) record {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r, ok := l.young[sequence]; ok {
		return r
	}
	return l.old[sequence]
}

func (l *ledger) put(sequence uint64, r record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.young == nil || len(l.young) >= ledgerLimit {
		l.young, l.old = make(map[uint64]record), l.young
	}
	l.young[sequence] = r
}

func (l *ledger) forget(sequence uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.young, sequence)
	delete(l.old, sequence)
}

// clear forgets all: the stream was made anew and numbers from 1 again.
func (l *ledger) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.young, l.old = nil, nil
}
