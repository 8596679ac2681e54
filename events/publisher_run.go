package events

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

var errNotConnected = errors.New("there is no connection to NATS")

// errorCodeHeaderTooLarge is JetStream's refusal of a header over 64 kB; the client library has no name for it.
const errorCodeHeaderTooLarge jetstream.ErrorCode = 10097

// run is the publisher's goroutine: it keeps a window of events on their way, oldest first, and checks every
// confirmation. After a failure it pauses, then tries with a single event until one is confirmed.
func (p *Publisher) run() {
	defer close(p.done)
	defer p.nc.Close()
	defer p.js.CleanupPublisher()
	for failures := 0; ; {
		p.dropExpired()
		if p.idleAndClosed() {
			return
		}
		window := p.opts.MaxPending
		if failures > 0 {
			window = 1
		}
		err := p.send(window)
		oldest, full, empty := p.look(window)
		switch {
		case oldest != nil:
			more := p.wake
			if full || err != nil {
				more = nil
			}
			select {
			case ack := <-oldest.future.Ok():
				p.confirmed(ack)
				failures = p.works(failures)
				continue
			case err = <-oldest.future.Err():
				err = p.settle(err)
			case <-more:
				continue
			case <-p.kill:
				p.abandon()
				return
			}
		case err == nil && empty:
			select {
			case <-p.wake:
			case <-p.nudge:
			case <-p.kill:
				p.abandon()
				return
			}
			continue
		}
		if err == nil {
			continue // what failed was dropped
		}
		failures++
		p.fails(failures, err)
		if !p.pause(failures) {
			p.abandon()
			return
		}
	}
}

// send puts events on their way until the window is full.
func (p *Publisher) send(window int) error {
	for {
		p.mu.Lock()
		if p.sent >= len(p.queue) || p.sent >= window {
			p.mu.Unlock()
			return nil
		}
		item := p.queue[p.sent]
		p.mu.Unlock()
		if !p.nc.IsConnected() {
			return errNotConnected
		}
		// The library's own retries are off: they know no age and no back-off.
		future, err := p.js.PublishAsync(item.subject, item.raw, jetstream.WithMsgID(item.id), jetstream.WithRetryAttempts(0))
		if err == nil {
			item.future = future
			p.mu.Lock()
			p.sent++
			p.mu.Unlock()
			continue
		}
		err = fmt.Errorf("publish on %s: %w", item.subject, err)
		if !refused(err) {
			return err
		}
		p.mu.Lock()
		p.queue = slices.Delete(p.queue, p.sent, p.sent+1)
		p.left(item)
		p.mu.Unlock()
		p.drop(item, DropRefused, err)
	}
}

// look says what is to be waited for.
func (p *Publisher) look(window int) (oldest *queued, full, empty bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sent > 0 {
		oldest = p.queue[0]
	}
	return oldest, p.sent >= window, len(p.queue) == 0
}

func (p *Publisher) idleAndClosed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed && len(p.queue) == 0
}

// confirmed takes the oldest event out of the queue.
func (p *Publisher) confirmed(ack *jetstream.PubAck) {
	p.mu.Lock()
	defer p.mu.Unlock()
	item := p.queue[0]
	p.queue[0] = nil
	p.queue = p.queue[1:]
	p.sent--
	p.count(item, ack)
	p.left(item)
}

// count counts a confirmation. The lock must be held.
func (p *Publisher) count(item *queued, ack *jetstream.PubAck) {
	delete(p.denied, item.subject)
	if ack.Duplicate {
		p.stats.Duplicates++
		return
	}
	p.stats.Published++
}

// left is called for each item that has left the queue. The lock must be held.
func (p *Publisher) left(item *queued) {
	p.bytes -= len(item.raw)
	p.advance()
}

// settle waits, after the oldest event has failed, for the verdict on each event that is on its way; every one has a
// verdict within AckTimeout. Those that failed stay at the head of the queue, in order. It returns why one of them is to
// be tried again, or nil when none is.
func (p *Publisher) settle(first error) error {
	p.mu.Lock()
	flying := slices.Clone(p.queue[:p.sent])
	p.mu.Unlock()

	var again error
	keep := make([]*queued, 0, len(flying))
	acks := make(map[*queued]*jetstream.PubAck, len(flying))
	hopeless := make(map[*queued]error)
	for i, item := range flying {
		err := first
		if i > 0 {
			select {
			case ack := <-item.future.Ok():
				acks[item] = ack
				continue
			case err = <-item.future.Err():
			case <-p.kill:
				keep = append(keep, item)
				continue
			}
		}
		item.future = nil
		err = fmt.Errorf("publish on %s: %w", item.subject, err)
		if denied := p.deniedFor(item); denied != nil {
			err = denied
		}
		if refused(err) {
			hopeless[item] = err
			continue
		}
		if again == nil {
			again = err
		}
		keep = append(keep, item)
	}

	p.mu.Lock()
	for _, item := range flying {
		if ack := acks[item]; ack != nil {
			p.count(item, ack)
		}
		if acks[item] != nil || hopeless[item] != nil {
			p.left(item)
		}
	}
	p.queue = append(keep, p.queue[p.sent:]...)
	p.sent = 0
	p.stats.Retries += uint64(len(keep))
	p.mu.Unlock()
	for _, item := range flying {
		if err := hopeless[item]; err != nil {
			p.drop(item, DropRefused, err)
		}
	}
	return again
}

func (p *Publisher) deniedFor(item *queued) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.denied[item.subject]
}

// refused tells an error that no repetition can mend. Everything else, a full stream and a missing one included, may
// pass.
func refused(err error) bool {
	if errors.Is(err, nats.ErrMaxPayload) || errors.Is(err, nats.ErrPermissionViolation) || errors.Is(err, nats.ErrBadSubject) {
		return true
	}
	var api *jetstream.APIError
	return errors.As(err, &api) &&
		(api.ErrorCode == jetstream.JSErrCodeStreamMessageExceedsMaximum || api.ErrorCode == errorCodeHeaderTooLarge)
}

// dropExpired gives up the events at the head of the queue that are too old. The queue is in order of age, and what is
// on its way has a verdict soon.
func (p *Publisher) dropExpired() {
	var expired []*queued
	p.mu.Lock()
	for p.sent == 0 && len(p.queue) > 0 && time.Since(p.queue[0].accepted) > p.opts.MaxAge {
		expired = append(expired, p.queue[0])
		p.queue[0] = nil
		p.queue = p.queue[1:]
		p.left(expired[len(expired)-1])
	}
	last := p.stats.LastError
	p.mu.Unlock()
	if last == nil && !p.nc.IsConnected() {
		last = errNotConnected
	}
	for _, item := range expired {
		err := fmt.Errorf("it was not confirmed within %s", p.opts.MaxAge)
		if last != nil {
			err = fmt.Errorf("%w; the latest try failed: %w", err, last)
		}
		p.drop(item, DropExpired, err)
	}
}

// abandon gives up everything that is not confirmed.
func (p *Publisher) abandon() {
	p.mu.Lock()
	rest := p.queue
	p.queue, p.sent = nil, 0
	lost := rest[:0:0]
	for _, item := range rest {
		if item.future != nil {
			select {
			case ack := <-item.future.Ok():
				p.count(item, ack)
				p.left(item)
				continue
			default:
			}
		}
		lost = append(lost, item)
		p.left(item)
	}
	p.remained = len(lost)
	p.mu.Unlock()
	for _, item := range lost {
		p.drop(item, DropClosed, ErrClosed)
	}
}

// drop counts and reports an accepted event that is given up.
func (p *Publisher) drop(item *queued, reason DropReason, err error) {
	p.mu.Lock()
	p.stats.Dropped[reason]++
	p.mu.Unlock()
	var e Event
	if decoding := e.UnmarshalJSON(item.raw); decoding != nil { // cannot be: Prepare wrote it
		err = errors.Join(err, decoding)
	}
	p.tell(Drop{Event: e, Reason: reason, Err: fmt.Errorf("event %q is given up: %w", e.ID, err)})
}

// works notes a confirmation and returns the new number of failures.
func (p *Publisher) works(failures int) int {
	if failures > 0 {
		p.setLastError(nil)
		p.opts.Logger.Info("publishing works again", "failures", failures)
	}
	return 0
}

// fails notes a failure; only the first of a row is logged.
func (p *Publisher) fails(failures int, err error) {
	p.setLastError(err)
	if failures == 1 {
		p.opts.Logger.Warn("publishing fails, events are kept and tried again", "error", err)
	}
}

func (p *Publisher) setLastError(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.LastError = err
}

// pause waits before the next try. A new connection ends it, and so does the next event's end of life. It returns false
// when the time of Close is over.
func (p *Publisher) pause(failures int) bool {
	wait := jittered(p.backoff(failures))
	p.mu.Lock()
	if len(p.queue) > 0 {
		wait = min(wait, max(0, p.opts.MaxAge-time.Since(p.queue[0].accepted))+time.Millisecond)
	}
	p.mu.Unlock()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-p.nudge:
		return true
	case <-p.kill:
		return false
	}
}

// backoff doubles with each failure, up to MaxBackoff.
func (p *Publisher) backoff(failures int) time.Duration {
	return min(p.opts.MaxBackoff, minBackoff<<min(failures-1, 20))
}

// jittered spreads the tries of many publishers: between a half and the whole of d.
func jittered(d time.Duration) time.Duration {
	return d/2 + rand.N(d/2+1) //nolint:gosec // spreads load; nothing secret depends on it.
}
