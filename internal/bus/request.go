package bus

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
)

// Respond answers requests on a core NATS subject, one after the other, until
// stop is called, which waits for the one that is being answered. Nothing of
// this is stored: it is for orders that somebody waits for.
func (c *Conn) Respond(ctx context.Context, subject string, handle func(ctx context.Context, data []byte) []byte) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	requests := make(chan *nats.Msg, 16)
	sub, err := c.nc.ChanSubscribe(subject, requests)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("listen on %s: %w", subject, translate(err))
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ctx.Done():
				return
			case m := <-requests:
				if err := m.Respond(handle(ctx, m.Data)); err != nil {
					c.log.Warn("cannot answer a request", "subject", subject, "error", err)
				}
			}
		}
	}()
	return func() {
		if err := sub.Unsubscribe(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
			c.log.Warn("cannot stop listening", "subject", subject, "error", err)
		}
		cancel()
		<-done
	}, nil
}

// Request asks whoever answers on a core NATS subject by [Conn.Respond], and
// waits for the answer until ctx ends. The error is [ErrNotFound] when nobody
// listens there.
func (c *Conn) Request(ctx context.Context, subject string, data []byte) ([]byte, error) {
	answer, err := c.nc.RequestWithContext(ctx, subject, data)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return nil, fmt.Errorf("%w: nobody answers on %s", ErrNotFound, subject)
	case err != nil:
		return nil, fmt.Errorf("ask on %s: %w", subject, translate(err))
	}
	return answer.Data, nil
}
