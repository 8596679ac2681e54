package bus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	// orphanInterval is how often a worker looks for orphans.
	orphanInterval = 10 * time.Second
	// orphanDelay tells an orphan from a message that is just being removed.
	orphanDelay = 3 * time.Second
	// orphanLimit is how many orphans one look takes on.
	orphanLimit = 1000
	// orphanMessagePrefix begins the id under which an orphan is published
	// anew; two replicas that find the same one store it once.
	orphanMessagePrefix = "orphan/"
)

// adopt looks for orphans until ctx ends.
//
// An orphan is a message of a work queue that stays behind although the
// consumer's acknowledgement floor has passed it: nobody will ever be given it.
// A single server leaves some when it stops after it has noted an
// acknowledgement and before it has removed the message, or when its streams
// come back older than its consumers, as after a loss of power. In the first
// case the message was handled and in the second it was not; the two look the
// same, so it is handled (again).
func (w *Worker) adopt(ctx context.Context) {
	var suspect uint64 // lowest at the last look; 0 if there was none
	for pause(ctx, orphanWait(suspect)) {
		found, err := w.orphans(ctx, suspect)
		if err != nil && ctx.Err() == nil && !errors.Is(err, ErrNotFound) {
			w.o.Logger.Warn("cannot look for orphaned messages", "error", err)
		}
		suspect = found
	}
}

func orphanWait(suspect uint64) time.Duration {
	if suspect != 0 {
		return orphanDelay
	}
	return delay(1, orphanInterval, orphanInterval)
}

// orphans returns the lowest message at or below the acknowledgement floor, 0
// if there is none. If that was the suspect of the last look, it publishes
// all of them anew and removes them.
func (w *Worker) orphans(ctx context.Context, suspect uint64) (lowest uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	stream, err := w.conn.js.Stream(ctx, w.o.Stream)
	if err != nil {
		return 0, fmt.Errorf("open stream: %w", translate(err))
	}
	if stream.CachedInfo().Config.Retention != jetstream.WorkQueuePolicy {
		return 0, nil
	}
	consumer, err := stream.Consumer(ctx, w.o.Durable)
	if err != nil {
		return 0, fmt.Errorf("open consumer: %w", translate(err))
	}
	floor := consumer.CachedInfo().AckFloor.Stream
	subject := w.o.FilterSubject
	if subject == "" {
		subject = ">"
	}
	adopted := 0
	for sequence := stream.CachedInfo().State.FirstSeq; sequence <= floor && adopted < orphanLimit; sequence++ {
		raw, err := stream.GetMsg(ctx, sequence, jetstream.WithGetMsgSubject(subject))
		if errors.Is(err, jetstream.ErrMsgNotFound) || err == nil && raw.Sequence > floor {
			break
		}
		if err != nil {
			return 0, fmt.Errorf("read message %d: %w", sequence, translate(err))
		}
		if raw.Sequence != suspect && adopted == 0 {
			return raw.Sequence, nil // perhaps it is only about to be removed
		}
		sequence = raw.Sequence
		if err := w.adoptOne(ctx, stream, raw); err != nil {
			return 0, err
		}
		adopted++
	}
	if adopted > 0 {
		w.o.Logger.Warn("messages were left behind by a restart of the server; they are handled again", "messages", adopted)
	}
	return 0, nil
}

// adoptOne publishes an orphan anew before it removes it. Under its own id the
// stream could take it for a duplicate, and it would be gone.
func (w *Worker) adoptOne(ctx context.Context, stream jetstream.Stream, raw *jetstream.RawStreamMsg) error {
	m := Message{
		Subject: raw.Subject, Header: replayable(raw.Header), Data: raw.Data,
		ID: fmt.Sprintf("%s%d/%d", orphanMessagePrefix, stream.CachedInfo().Created.UnixNano(), raw.Sequence),
	}
	if _, err := w.conn.Publish(ctx, m); err != nil {
		return fmt.Errorf("publish orphaned message %d anew: %w", raw.Sequence, err)
	}
	if err := stream.DeleteMsg(ctx, raw.Sequence); err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
		return fmt.Errorf("remove orphaned message %d: %w", raw.Sequence, translate(err))
	}
	return nil
}
