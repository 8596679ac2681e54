package bus

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// ErrLost means that a lease is not, or can no longer be proven to be, held:
// another holder has taken it, or it could not be renewed in time.
var ErrLost = errors.New("lease is lost")

const (
	leasePrefix = "lease."
	// minLeaseTTL leaves room for a few renewals over a slow network.
	minLeaseTTL = 100 * time.Millisecond
	// releaseTimeout bounds giving a lease back; without it the next holder
	// only waits for the TTL.
	releaseTimeout = 2 * time.Second
	// runRetryLow and runRetryHigh bound the waits after work under a lease
	// has failed.
	runRetryLow  = 500 * time.Millisecond
	runRetryHigh = 30 * time.Second
	// maxLeaseData bounds what Commit stores beside a lease.
	maxLeaseData = 64 << 10
)

// leaseRecord is what the key of a lease holds.
type leaseRecord struct {
	// Holder is empty when the lease was given back.
	Holder string `json:"holder"`
	// Token tells one taking of the lease from another by the same holder.
	Token string `json:"token"`
	// TTLMillis is how long the holder may be silent.
	TTLMillis int64 `json:"ttl_ms"`
	// Fence of the holder, or of the last one.
	Fence uint64 `json:"fence"`
	// Data is what the last Commit of any holder stored.
	Data json.RawMessage `json:"data,omitempty"`
}

// Lease is the right to do something alone, until it is given back, taken
// after a silence of its TTL, or taken by a process of the same holder's name.
// Its methods may be called by several goroutines.
type Lease struct {
	bucket jetstream.KeyValue
	key    string
	ttl    time.Duration
	fence  uint64

	writing chan struct{} // holds one element while the key is written

	mu       sync.Mutex // guards what follows
	record   leaseRecord
	revision uint64
	proven   time.Time // before the last write that the server confirmed
	lost     bool
}

// Acquire takes the lease named key (as in [Conn.SaveState]) for holder, for
// ttl at a time, at least 100 ms.
//
// A free lease, and one that the same holder has, is taken at once: the name
// of a holder must be one that no other living process has. With another
// holder it is [ErrHeld], which names it, as soon as that one is seen to renew
// the lease; if it does not for its TTL the lease is taken over. That is
// measured by how long the key stays unchanged before our eyes, so the clocks
// of two machines are never compared.
//
// The caller must call Renew well within each ttl, or use [Conn.RunLeased],
// which does.
func (c *Conn) Acquire(ctx context.Context, key, holder string, ttl time.Duration) (*Lease, error) {
	contender, err := newContender(c, key, holder, ttl)
	if err != nil {
		return nil, err
	}
	for first := uint64(0); ; {
		lease, err := contender.try(ctx)
		if lease != nil {
			return lease, nil
		}
		if !errors.Is(err, ErrHeld) {
			return nil, err
		}
		if first == 0 {
			first = contender.revision
		}
		if contender.revision != first || !pause(ctx, contender.interval()) {
			return nil, err
		}
	}
}

// contender watches a lease that somebody else has.
type contender struct {
	conn   *Conn
	key    string
	record leaseRecord
	ttl    time.Duration

	revision uint64    // of the key as last seen
	since    time.Time // when it was first seen
	theirTTL time.Duration
}

func newContender(c *Conn, key, holder string, ttl time.Duration) (*contender, error) {
	if key == "" || holder == "" || ttl < minLeaseTTL {
		return nil, fmt.Errorf("acquire lease %q for %q: key and holder are required, and a ttl of at least %s", key, holder, minLeaseTTL)
	}
	return &contender{
		conn: c, key: leasePrefix + key, ttl: ttl,
		record: leaseRecord{Holder: holder, Token: rand.Text(), TTLMillis: ttl.Milliseconds()},
	}, nil
}

// interval is how often to look at the key.
func (a *contender) interval() time.Duration {
	return min(max(a.theirTTL/8, minLeaseTTL/8), time.Second)
}

// try looks once. It returns the lease, or ErrHeld, or what went wrong.
func (a *contender) try(ctx context.Context) (*Lease, error) {
	ctx, cancel := bound(ctx)
	defer cancel()
	bucket, err := a.conn.bucket(ctx, bucketState)
	if err != nil {
		return nil, a.fail(err)
	}
	entry, err := bucket.Get(ctx, a.key)
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
		began := time.Now()
		a.succeed(leaseRecord{})
		revision, err := bucket.Create(ctx, a.key, a.record.encode())
		return a.took(bucket, revision, began, err)
	case err != nil:
		return nil, a.fail(err)
	}
	var theirs leaseRecord
	if err := json.Unmarshal(entry.Value(), &theirs); err != nil {
		return nil, fmt.Errorf("acquire lease %s: the key holds something else: %w", a.key, err)
	}
	if entry.Revision() != a.revision {
		a.revision, a.since = entry.Revision(), time.Now()
		a.theirTTL = max(time.Duration(theirs.TTLMillis)*time.Millisecond, minLeaseTTL)
	}
	free := theirs.Holder == "" || theirs.Holder == a.record.Holder || time.Since(a.since) > a.theirTTL
	if !free {
		return nil, fmt.Errorf("acquire lease %s: %w by %s", a.key, ErrHeld, theirs.Holder)
	}
	began := time.Now()
	a.succeed(theirs)
	revision, err := bucket.Update(ctx, a.key, a.record.encode(), entry.Revision())
	return a.took(bucket, revision, began, err)
}

// succeed prepares the record of the holder after the given one. The time is
// for the case that the server has lost all it knew: stores elsewhere that
// remember a fence must see a higher one.
func (a *contender) succeed(before leaseRecord) {
	a.record.Data = before.Data
	a.record.Fence = max(before.Fence+1, uint64(max(0, time.Now().UnixMilli())))
}

// encode cannot fail: Data is checked when it comes in.
func (r leaseRecord) encode() []byte {
	raw, err := json.Marshal(r)
	if err != nil {
		panic(fmt.Sprintf("bus: encode lease: %v", err))
	}
	return raw
}

// took makes a lease of what was written, unless somebody was faster.
func (a *contender) took(bucket jetstream.KeyValue, revision uint64, began time.Time, err error) (*Lease, error) {
	if conflict(err) {
		return nil, fmt.Errorf("acquire lease %s: %w by another, who was faster", a.key, ErrHeld)
	}
	if err != nil {
		return nil, a.fail(err)
	}
	return &Lease{
		bucket: bucket, key: a.key, ttl: a.ttl, fence: a.record.Fence, writing: make(chan struct{}, 1),
		record: a.record, revision: revision, proven: began,
	}, nil
}

func (a *contender) fail(err error) error {
	return fmt.Errorf("acquire lease %s: %w", a.key, translate(err))
}

// conflict reports whether a key was not as the writer thought.
func conflict(err error) bool {
	return errors.Is(err, jetstream.ErrKeyExists) || errors.Is(err, jetstream.ErrKeyRevisionMismatch)
}

// Fence grows with every taking of the lease, even if the server has forgotten
// the lease in between (then by the clock). A process that was stopped in
// the middle of a step may go on after another has taken the lease; a store
// that refuses a fence lower than the highest it has seen is safe from it.
func (l *Lease) Fence() uint64 { return l.fence }

// Data is what the last [Lease.Commit] of any holder stored; nil if none did.
func (l *Lease) Data() json.RawMessage {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.record.Data
}

// remaining is for how long the lease is still proven to be held. Both clocks
// count: the monotonic one stops while a laptop sleeps, the other can be set.
func (l *Lease) remaining() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost {
		return 0
	}
	now := time.Now()
	elapsed := max(now.Sub(l.proven), now.Round(0).Sub(l.proven.Round(0)))
	// A tenth is for clocks that do not run at the same rate.
	return max(0, l.ttl-l.ttl/10-elapsed)
}

// Renew proves that the lease is held and makes it last for another ttl.
// [ErrLost] is final; after [ErrUnavailable] it may be tried again.
func (l *Lease) Renew(ctx context.Context) error {
	if err := l.write(ctx, func(*leaseRecord) {}); err != nil {
		return fmt.Errorf("renew lease %s: %w", l.key, err)
	}
	return nil
}

// Commit stores data beside the lease, for this holder's successors to see,
// if and only if the lease is still held: what was prepared under the lease
// becomes valid in one step, or not at all. data is JSON of at most 64 KiB.
// [ErrLost] is final; after [ErrUnavailable] it may or may not be stored, and
// may be tried again.
func (l *Lease) Commit(ctx context.Context, data json.RawMessage) error {
	if !json.Valid(data) || len(data) > maxLeaseData {
		return fmt.Errorf("commit under lease %s: want JSON of at most %d bytes, have %d bytes", l.key, maxLeaseData, len(data))
	}
	data = slices.Clone(data)
	if err := l.write(ctx, func(r *leaseRecord) { r.Data = data }); err != nil {
		return fmt.Errorf("commit under lease %s: %w", l.key, err)
	}
	return nil
}

// Release gives the lease back, so that another need not wait. A lease that is
// lost already is no error.
func (l *Lease) Release(ctx context.Context) error {
	err := l.write(ctx, func(r *leaseRecord) { r.Holder = "" })
	l.lose()
	if err != nil && !errors.Is(err, ErrLost) {
		return fmt.Errorf("release lease %s: %w", l.key, err)
	}
	return nil
}

func (l *Lease) lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost = true
}

// state is the record and the revision that it was written with.
func (l *Lease) state() (record leaseRecord, revision uint64, lost bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.record, l.revision, l.lost
}

// write changes the record in the store, if it is still the one that this
// lease wrote.
func (l *Lease) write(ctx context.Context, change func(*leaseRecord)) error {
	ctx, cancel := bound(ctx)
	defer cancel()
	select {
	case l.writing <- struct{}{}:
		defer func() { <-l.writing }()
	case <-ctx.Done():
		return translate(ctx.Err())
	}
	for range 2 {
		record, revision, lost := l.state()
		if lost {
			return ErrLost
		}
		change(&record)
		began := time.Now()
		revision, err := l.bucket.Update(ctx, l.key, record.encode(), revision)
		if err == nil {
			l.wrote(record, revision, began)
			return nil
		}
		if !conflict(err) {
			return translate(err)
		}
		// It may have been our own earlier write, whose answer got lost.
		if err := l.reread(ctx); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: the key keeps changing", ErrUnavailable)
}

func (l *Lease) wrote(record leaseRecord, revision uint64, began time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.record, l.revision, l.proven = record, revision, began
}

// reread adopts the key's revision if this lease wrote it, else the lease is
// lost.
func (l *Lease) reread(ctx context.Context) error {
	entry, err := l.bucket.Get(ctx, l.key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		l.lose()
		return fmt.Errorf("%w: somebody removed it", ErrLost)
	}
	if err != nil {
		return translate(err)
	}
	var now leaseRecord
	err = json.Unmarshal(entry.Value(), &now)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil || now.Token != l.record.Token {
		l.lost = true
		return fmt.Errorf("%w: %q has it", ErrLost, now.Holder)
	}
	l.revision, l.record.Data = entry.Revision(), now.Data
	return nil
}

// Lead is [Conn.RunLeased] for a function that needs no more of the lease than
// its fence.
func (c *Conn) Lead(ctx context.Context, key, holder string, ttl time.Duration, run func(ctx context.Context, fence uint64) error) error {
	return c.RunLeased(ctx, key, holder, ttl, func(ctx context.Context, lease *Lease) error { return run(ctx, lease.Fence()) })
}

// RunLeased waits for the lease named key, as [Conn.Acquire] describes it, and
// runs run while it is held. The context of run ends, with the cause [ErrLost],
// as soon as the lease cannot be proven to be held; that is a tenth of ttl
// before anybody else can take it, so run must return within that. Then, and
// when run fails, RunLeased logs it, waits for the lease again and runs run
// anew, after a failure with a back-off in which another may lead. A server
// that is away is waited for.
//
// It returns nil when run does so while the lease is held, having given the
// lease back, and when ctx is cancelled. When the deadline of ctx passes while
// another holds the lease, the error is both [ErrHeld] and
// [context.DeadlineExceeded]. Any other error means that it cannot work at all.
func (c *Conn) RunLeased(ctx context.Context, key, holder string, ttl time.Duration, run func(ctx context.Context, lease *Lease) error) error {
	for failures := 0; ; {
		lease, err := c.await(ctx, key, holder, ttl)
		if err != nil {
			return unlessCancelled(ctx, err)
		}
		log := c.log.With("lease", key, "holder", holder, "fence", lease.fence)
		log.Info("lease taken")
		lost, err := lease.hold(ctx, run)
		if lost {
			log.Warn("lease lost; waiting for it again", "error", err)
			continue
		}
		release, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
		if err := lease.Release(release); err != nil {
			log.Warn("cannot give the lease back; the next holder waits for its end", "error", err)
		}
		cancel()
		if err == nil || ctx.Err() != nil {
			return unlessCancelled(ctx, err)
		}
		failures++
		wait := delay(failures, runRetryLow, runRetryHigh)
		log.Error("work under the lease failed; it will be tried again", "error", err, "retry_in", wait)
		if !pause(ctx, wait) {
			return unlessCancelled(ctx, errors.Join(ctx.Err(), err))
		}
	}
}

// unlessCancelled drops an error that says only that ctx was cancelled.
func unlessCancelled(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// await waits for a lease until ctx ends.
func (c *Conn) await(ctx context.Context, key, holder string, ttl time.Duration) (*Lease, error) {
	contender, err := newContender(c, key, holder, ttl)
	if err != nil {
		return nil, err
	}
	var held error // the last that said who holds it
	for failures := 0; ; {
		lease, err := contender.try(ctx)
		if lease != nil {
			return lease, nil
		}
		wait := contender.interval()
		switch {
		case errors.Is(err, ErrHeld):
			failures, held = 0, err
		case ctx.Err() != nil:
		case errors.Is(err, ErrUnavailable) && !c.nc.IsClosed():
			failures++
			wait = delay(failures, retryLow, retryHigh)
			c.log.Warn("cannot ask for a lease; trying again", "lease", key, "error", err, "retry_in", wait)
		default:
			return nil, err
		}
		if !pause(ctx, wait) {
			return nil, errors.Join(ctx.Err(), cmp.Or(held, err))
		}
	}
}

// hold runs run and renews the lease meanwhile. lost says that the lease was
// lost before run returned.
func (l *Lease) hold(ctx context.Context, run func(context.Context, *Lease) error) (lost bool, err error) {
	runCtx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended := make(chan error, 1)
	go func() { ended <- run(runCtx, l) }()
	timer := time.NewTimer(l.ttl / 4)
	defer timer.Stop()
	for {
		select {
		case err := <-ended:
			return false, err
		case <-timer.C:
		}
		remaining := l.remaining()
		if remaining == 0 {
			cancel(ErrLost)
			if err := <-ended; err != nil {
				return true, fmt.Errorf("%w: %w", ErrLost, err)
			}
			return true, ErrLost
		}
		renewal, cancelRenewal := context.WithTimeout(context.WithoutCancel(ctx), min(remaining, l.ttl/4))
		failed := l.Renew(renewal)
		cancelRenewal()
		next := l.ttl / 4
		if failed != nil {
			next = min(l.ttl/20, l.remaining()) // 0 when it is lost
		}
		timer.Reset(next)
	}
}
