package bus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// workingHeader marks a message that is not the answer yet, but says that
	// one is being worked on.
	workingHeader = "Hindsight-Working"
	// workingEvery is how often whoever works on an answer says so, and
	// workingSilence how long nothing may be heard of it before it is taken for
	// dead: long enough for a machine that is busy with other things.
	workingEvery   = time.Second
	workingSilence = 10 * time.Second
	// maxRequests is how many requests are worked on at once. One that finds
	// as many is not answered, so that its sender asks again.
	maxRequests = 64
)

// ErrWorking means that a request was taken and is still being worked on.
var ErrWorking = errors.New("taken, and still being worked on")

// Respond answers requests on a core NATS subject until stop is called, which
// waits for those that are being answered. handle is called for several at
// once, and one whose ctx has ended is not answered: the sender hears nothing
// more and asks again. Nothing of this is stored: it is for orders that
// somebody waits for.
func (c *Conn) Respond(ctx context.Context, subject string, handle func(ctx context.Context, data []byte) []byte) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	requests := make(chan *nats.Msg, maxRequests)
	sub, err := c.nc.ChanSubscribe(subject, requests)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("listen on %s: %w", subject, translate(err))
	}
	var under sync.WaitGroup
	free := make(chan struct{}, maxRequests)
	under.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case m := <-requests:
				select {
				case free <- struct{}{}:
					under.Go(func() {
						defer func() { <-free }()
						c.respond(ctx, m, handle)
					})
				default:
					c.log.Warn("too many requests at once", "subject", subject)
				}
			}
		}
	})
	return func() {
		if err := sub.Unsubscribe(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
			c.log.Warn("cannot stop listening", "subject", subject, "error", err)
		}
		cancel()
		under.Wait()
	}, nil
}

// respond answers one request, and says that it is at work until then.
func (c *Conn) respond(ctx context.Context, m *nats.Msg, handle func(ctx context.Context, data []byte) []byte) {
	done := make(chan []byte, 1)
	var working sync.WaitGroup
	working.Go(func() { done <- handle(ctx, m.Data) })
	defer working.Wait()
	beat := time.NewTicker(workingEvery)
	defer beat.Stop()
	for {
		if err := m.RespondMsg(&nats.Msg{Header: nats.Header{workingHeader: {"1"}}}); err != nil {
			c.log.Warn("cannot tell that a request is worked on", "subject", m.Subject, "error", err)
		}
		select {
		case answer := <-done:
			if ctx.Err() != nil {
				return
			}
			if err := m.Respond(answer); err != nil {
				c.log.Warn("cannot answer a request", "subject", m.Subject, "error", err)
			}
			return
		case <-beat.C:
		}
	}
}

// Request asks whoever answers on a core NATS subject by [Conn.Respond], and
// waits for the answer for as long as it is being worked on, or until ctx ends.
// The error is [ErrNotFound] when nobody listens there, [ErrUnavailable] when
// whoever did is heard no more, which says nothing about what has been done,
// and [ErrWorking] when ctx ended over the work.
func (c *Conn) Request(ctx context.Context, subject string, data []byte) ([]byte, error) {
	inbox := c.nc.NewRespInbox()
	answers := make(chan *nats.Msg, maxRequests)
	sub, err := c.nc.ChanSubscribe(inbox, answers)
	if err != nil {
		return nil, fmt.Errorf("ask on %s: %w", subject, translate(err))
	}
	defer func() {
		if err := sub.Unsubscribe(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
			c.log.Debug("cannot stop waiting for an answer", "subject", subject, "error", err)
		}
	}()
	if err := c.nc.PublishMsg(&nats.Msg{Subject: subject, Reply: inbox, Data: data}); err != nil {
		return nil, fmt.Errorf("ask on %s: %w", subject, translate(err))
	}
	silence := time.NewTimer(workingSilence)
	defer silence.Stop()
	for taken := false; ; {
		select {
		case m := <-answers:
			switch {
			case m.Header.Get("Status") == noResponders:
				return nil, fmt.Errorf("%w: nobody answers on %s", ErrNotFound, subject)
			case m.Header.Get(workingHeader) == "":
				return m.Data, nil
			}
			taken = true
			silence.Reset(workingSilence)
		case <-silence.C:
			return nil, fmt.Errorf("%w: ask on %s: nothing was heard for %s: whoever was to answer has ended or cannot be reached", ErrUnavailable, subject, workingSilence)
		case <-ctx.Done():
			if taken {
				return nil, fmt.Errorf("%w: ask on %s: %w", ErrWorking, subject, context.Cause(ctx))
			}
			return nil, fmt.Errorf("ask on %s: %w", subject, translate(context.Cause(ctx)))
		}
	}
}

// noResponders is the status of the server's own answer when nobody listens.
const noResponders = "503"
