package bus

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
)

const (
	// publishWindow is how many messages one PublishAll has under way, and
	// publishWindowBytes about how many bytes.
	publishWindow      = 1024
	publishWindowBytes = 8 << 20
	// fullWait is how long PublishAll waits for a full stream to drain.
	fullWait = 2 * time.Second
)

// Message is a message of a stream. Its slices and maps belong to whoever made
// it; neither publishing nor handling may change them.
type Message struct {
	Subject string
	// ID is what the server recognises a duplicate by, for 2 minutes (30 s on
	// TRACES) and over the whole stream. Empty: none is recognised.
	ID     string
	Header map[string][]string
	Data   []byte

	// The rest is set on delivery.

	// Sequence is the message's number in its stream.
	Sequence uint64
	// Attempt is 1 for the first attempt at handling it that this process
	// knows of. Deliveries that were no real attempt ([Wait], a stop of the
	// worker) do not count.
	Attempt int
	// Time is when the stream took it, in UTC.
	Time time.Time
}

// size is about what the server compares with its limit.
func (m Message) size() int {
	size := len(m.Data)
	if m.ID != "" {
		size += len(jetstream.MsgIDHeader) + len(m.ID) + 4
	}
	for key, values := range m.Header {
		for _, value := range values {
			size += len(key) + len(value) + 4
		}
	}
	return size + len("NATS/1.0\r\n\r\n")
}

// wire is the message as nats.go wants it, with id as its id unless that is
// empty.
func (m Message) wire(id string) *nats.Msg {
	header := make(nats.Header, len(m.Header)+1)
	maps.Copy(header, m.Header)
	delete(header, jetstream.MsgIDHeader)
	if id != "" {
		header[jetstream.MsgIDHeader] = []string{id}
	}
	return &nats.Msg{Subject: m.Subject, Header: header, Data: m.Data}
}

// replayable is a header without what the server reads: message id and
// conditions were meant for the first publishing.
func replayable(header map[string][]string) map[string][]string {
	own := maps.Clone(header)
	maps.DeleteFunc(own, func(key string, _ []string) bool { return strings.HasPrefix(key, "Nats-") })
	return own
}

// Publish stores one message and returns once the server has confirmed it;
// duplicate says that the stream has had this id already. Without a deadline in
// ctx it waits 5 s at most. Errors: [ErrFull], [ErrTooLarge], [ErrUnavailable].
// After the last one the message may have been stored; publishing it again is
// safe if it has an ID.
func (c *Conn) Publish(ctx context.Context, m Message) (duplicate bool, err error) {
	if err := c.fits(m); err != nil {
		return false, err
	}
	ctx, cancel := bound(ctx)
	defer cancel()
	ack, err := c.js.PublishMsg(ctx, m.wire(m.ID))
	if err != nil {
		return false, fmt.Errorf("publish on %s: %w", m.Subject, translate(err))
	}
	return ack.Duplicate, nil
}

// PublishCore sends data to whoever listens at the moment; nothing is stored
// or confirmed.
func (c *Conn) PublishCore(subject string, data []byte) error {
	if err := c.nc.Publish(subject, data); err != nil {
		return fmt.Errorf("publish on %s: %w", subject, translate(err))
	}
	return nil
}

// fits compares m with the server's limit, so that nothing of a batch is sent
// when one of it never can be.
func (c *Conn) fits(m Message) error {
	if limit := c.nc.MaxPayload(); limit > 0 && int64(m.size()) > limit {
		return fmt.Errorf("%w: message %q on %s has %d bytes with its headers, and the server takes %d; cut or split what it carries",
			ErrTooLarge, m.ID, m.Subject, m.size(), limit)
	}
	return nil
}

// PublishAll stores all messages, several at a time and not necessarily in
// order, and returns once the server has confirmed each; duplicates counts
// those whose id the stream has had already. It waits for a server that is away
// until ctx ends ([ErrUnavailable]), and 2 s for a full stream ([ErrFull]). When
// one message is too large ([ErrTooLarge]) none is sent. After another error
// some of them may have been stored; publishing all again is safe if they have
// IDs.
func (c *Conn) PublishAll(ctx context.Context, msgs []Message) (duplicates int, err error) {
	ids := make([]string, len(msgs))
	left := make([]int, len(msgs))
	for i, m := range msgs {
		if err := c.fits(m); err != nil {
			return 0, err
		}
		if ids[i], left[i] = m.ID, i; m.ID == "" {
			ids[i] = nuid.Next() // our own retries must not store it twice
		}
	}
	var full time.Time // since when the stream has taken nothing
	for attempt := 1; len(left) > 0; attempt++ {
		before := len(left)
		var dup int
		left, dup, err = c.publishRound(ctx, msgs, ids, left)
		duplicates += dup
		if len(left) == 0 {
			break
		}
		err = translate(err)
		progress := len(left) < before
		if progress {
			attempt = 1
		}
		switch {
		case errors.Is(err, ErrFull):
			if full.IsZero() || progress {
				full = time.Now()
			}
			if time.Since(full) >= fullWait {
				return duplicates, c.publishError(msgs, left, err)
			}
		case errors.Is(err, ErrUnavailable):
			full = time.Time{}
			if attempt == 1 || attempt%10 == 0 {
				c.log.Warn("NATS does not take messages; trying again", "messages", len(left), "error", err)
			}
		default:
			return duplicates, c.publishError(msgs, left, err)
		}
		if !pause(ctx, delay(attempt, retryLow/2, retryHigh/5)) {
			return duplicates, fmt.Errorf("%w: %w", context.Cause(ctx), c.publishError(msgs, left, err))
		}
	}
	return duplicates, nil
}

func (c *Conn) publishError(msgs []Message, left []int, err error) error {
	return fmt.Errorf("publish %d of %d messages (one on %s): %w", len(left), len(msgs), msgs[left[0]].Subject, err)
}

// publishRound tries each message once. It returns those that were not
// confirmed and the error of one of them; it gives up early, with the rest,
// when the stream is full or the server away.
func (c *Conn) publishRound(ctx context.Context, msgs []Message, ids []string, todo []int) (left []int, duplicates int, err error) {
	type sent struct {
		index  int
		future jetstream.PubAckFuture
	}
	var (
		window []sent
		bytes  int
		failed error
	)
	fail := func(index int, e error) {
		left = append(left, index)
		failed = worse(failed, e)
	}
	reap := func() {
		oldest := window[0]
		window = window[1:]
		bytes -= len(msgs[oldest.index].Data)
		select {
		case ack := <-oldest.future.Ok():
			if ack.Duplicate {
				duplicates++
			}
		case e := <-oldest.future.Err():
			fail(oldest.index, e)
		case <-ctx.Done():
			fail(oldest.index, ctx.Err())
		}
	}
	for n, index := range todo {
		for len(window) >= publishWindow || len(window) > 0 && bytes >= publishWindowBytes {
			reap()
		}
		if failed != nil || ctx.Err() != nil {
			left = append(left, todo[n:]...)
			failed = worse(failed, ctx.Err())
			break
		}
		future, e := c.js.PublishMsgAsync(msgs[index].wire(ids[index]), jetstream.WithRetryAttempts(0))
		if e != nil {
			fail(index, e)
			continue
		}
		window = append(window, sent{index, future})
		bytes += len(msgs[index].Data)
	}
	for len(window) > 0 {
		reap()
	}
	return left, duplicates, failed
}

// worse picks the error that says more: one that trying again cannot heal
// before a full stream, that before a server that is away.
func worse(a, b error) error {
	rank := func(err error) int {
		switch translated := translate(err); {
		case err == nil:
			return 0
		case errors.Is(translated, ErrUnavailable), errors.Is(translated, context.Canceled):
			return 1
		case errors.Is(translated, ErrFull):
			return 2
		default:
			return 3
		}
	}
	if rank(b) > rank(a) {
		return b
	}
	return a
}
