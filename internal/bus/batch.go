package bus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// delivery is a message together with the means to settle it.
type delivery struct {
	Message

	raw     jetstream.Msg
	pending uint64 // messages that waited behind it when it was delivered
	settled bool   // guarded by batch.mu
}

// batch is what one loop of a worker holds. Until each message is settled it
// tells the server at a third of AckWait that it is being worked on.
type batch struct {
	w          *Worker
	created    time.Time // of the stream
	deliveries []*delivery
	stop       chan struct{}
	beating    sync.WaitGroup
	mu         sync.Mutex // no sign of life may follow a message's settlement
}

func (w *Worker) newBatch(created time.Time) *batch {
	return &batch{w: w, created: created, stop: make(chan struct{})}
}

// take adds what a fetch delivers and returns what went wrong, which does not
// make invalid what was delivered.
func (b *batch) take(fetched jetstream.MessageBatch, err error) error {
	if err != nil {
		return fmt.Errorf("fetch: %w", translate(err))
	}
	for raw := range fetched.Messages() {
		d, err := b.read(raw)
		if err != nil { // cannot be settled either
			b.w.o.Logger.Error("delivery is not one of JetStream", "subject", raw.Subject(), "error", err)
			continue
		}
		b.mu.Lock()
		b.deliveries = append(b.deliveries, d)
		b.mu.Unlock()
		b.w.metrics.deliveries.Inc()
		b.w.metrics.inFlight.Inc()
		if len(b.deliveries) == 1 {
			b.beating.Go(b.beat)
		}
	}
	if err := fetched.Error(); err != nil {
		return fmt.Errorf("fetch: %w", translate(err))
	}
	return nil
}

func (b *batch) read(raw jetstream.Msg) (*delivery, error) {
	meta, err := raw.Metadata()
	if err != nil {
		return nil, err
	}
	return &delivery{raw: raw, pending: meta.NumPending, Message: Message{
		Subject: raw.Subject(), ID: raw.Headers().Get(jetstream.MsgIDHeader), Header: raw.Headers(), Data: raw.Data(),
		Sequence: meta.Sequence.Stream, Time: meta.Timestamp.UTC(),
	}}, nil
}

// beat sends signs of life until the batch is closed.
func (b *batch) beat() {
	ticker := time.NewTicker(b.w.o.AckWait / 3)
	defer ticker.Stop()
	for {
		select {
		case <-b.stop:
			return
		case <-ticker.C:
		}
		b.mu.Lock()
		for _, d := range b.deliveries {
			if d.settled {
				continue
			}
			if err := d.raw.InProgress(); err != nil {
				b.w.o.Logger.Warn("cannot hold a message; it may be delivered twice", "sequence", d.Sequence, "error", err)
				break // the connection; the next would fail as well
			}
		}
		b.mu.Unlock()
	}
}

// close ends the signs of life; every message has been settled before.
func (b *batch) close() {
	close(b.stop)
	b.beating.Wait()
}

// settle carries out the verdicts on messages that were handled together.
func (b *batch) settle(ctx context.Context, deliveries []*delivery, verdicts []error) {
	var (
		dead    []*delivery
		letters []DeadLetter
		retried int
		longest time.Duration
		example error
	)
	for i, d := range deliveries {
		switch letter, wait := b.settleOne(d, verdicts[i], len(deliveries) == 1); {
		case letter != nil:
			dead, letters = append(dead, d), append(letters, *letter)
		case wait > 0:
			retried++
			longest, example = max(longest, wait), verdicts[i]
		}
	}
	if retried > 0 { // one line, for during an outage it is all of them
		b.w.o.Logger.Warn("messages will be tried again", "messages", retried, "longest_wait", longest, "last_error", example)
	}
	if len(dead) > 0 {
		b.bury(ctx, dead, letters)
	}
}

// settleOne carries out one verdict, unless it asks for a dead letter, which it
// returns. wait is how long the message waits for another attempt.
func (b *batch) settleOne(d *delivery, verdict error, alone bool) (letter *DeadLetter, wait time.Duration) {
	w := b.w
	switch {
	case verdict == nil:
		w.ledger.forget(d.Sequence)
		w.metrics.acked.Inc()
		b.end(d, "ack", d.raw.Ack)
		return nil, 0
	case errors.Is(verdict, errNotTried):
		w.metrics.retried.Inc()
		b.end(d, "nak", d.raw.Nak)
		return nil, 0
	}
	r := w.ledger.get(d.Sequence)
	if reason := r.judge(verdict, alone, w.o.MaxAttempts); reason != "" {
		return &DeadLetter{
			ID: letterID(w.o.Stream, b.created, d.Sequence), Stream: w.o.Stream, Subject: d.Subject, Sequence: d.Sequence,
			MessageID: d.ID, Header: d.Header, Payload: d.Data, Reason: reason, Error: verdict.Error(),
			Attempts: r.failures, Time: time.Now().UTC(),
		}, 0
	}
	w.ledger.put(d.Sequence, r)
	w.metrics.retried.Inc()
	wait = max(delay(max(r.waits, r.failures), w.o.MinBackoff, w.o.MaxBackoff), 1) // 0 is no delay but the server's choice
	b.end(d, "nak", func() error { return d.raw.NakWithDelay(wait) })
	return nil, wait
}

// bury publishes dead letters and only then ends the originals. What is
// written twice, because an end got lost, has the same id.
func (b *batch) bury(ctx context.Context, dead []*delivery, letters []DeadLetter) {
	w := b.w
	if err := b.post(ctx, letters); err != nil {
		w.o.Logger.Error("cannot write dead letters; their messages stay and will be tried again", "messages", len(dead), "error", err)
		for _, d := range dead {
			w.metrics.retried.Inc()
			b.end(d, "nak", func() error { return d.raw.NakWithDelay(delay(1, w.o.MaxBackoff, w.o.MaxBackoff)) })
		}
		return
	}
	for i, d := range dead {
		w.ledger.forget(d.Sequence)
		w.metrics.deadLettered.WithLabelValues(letters[i].Reason).Inc()
		b.end(d, "term", d.raw.Term)
	}
	w.o.Logger.Error("messages became dead letters", "messages", len(dead), "first_letter", letters[0].ID, "subject", letters[0].Subject,
		"reason", letters[0].Reason, "error", letters[0].Error)
}

// post publishes letters. A letter about a dead letter would breed for ever,
// and is not needed: that stream keeps what was terminated.
func (b *batch) post(ctx context.Context, letters []DeadLetter) error {
	if b.w.o.Stream == StreamDeadLetter {
		return nil
	}
	msgs := make([]Message, len(letters))
	for i, letter := range letters {
		var err error
		if msgs[i], err = letter.message(b.w.conn.nc.MaxPayload()); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), letterTimeout)
	defer cancel()
	_, err := b.w.conn.PublishAll(ctx, msgs)
	return err
}

// end sends the last word on a message. When it gets lost the message is
// delivered again.
func (b *batch) end(d *delivery, what string, send func() error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if d.settled {
		return
	}
	d.settled = true
	b.w.metrics.inFlight.Dec()
	if err := send(); err != nil {
		b.w.o.Logger.Warn("cannot settle a message; it will be delivered again", "sequence", d.Sequence, "verdict", what, "error", err)
	}
}
