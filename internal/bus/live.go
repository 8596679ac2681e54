package bus

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"
)

// PublishCoreAsking is [Conn.PublishCore] for several messages, and tells for
// each whether anybody may have received it: false means that at this moment
// nobody listened on its subject. It takes one round trip to the server.
func (c *Conn) PublishCoreAsking(ctx context.Context, msgs []Message) (heard []bool, err error) {
	ctx, cancel := bound(ctx)
	defer cancel()
	// The server answers a message with a reply subject that it delivered to nobody.
	inbox := c.nc.NewInbox()
	answers := make(chan *nats.Msg, len(msgs))
	sub, err := c.nc.ChanSubscribe(inbox+".*", answers)
	if err != nil {
		return nil, fmt.Errorf("listen for who listens: %w", translate(err))
	}
	defer sub.Unsubscribe() //nolint:errcheck // A lost connection has ended it.
	heard = make([]bool, len(msgs))
	index := make(map[string]int, len(msgs))
	for i, m := range msgs {
		reply := fmt.Sprintf("%s.%d", inbox, i)
		index[reply], heard[i] = i, true
		if err := c.nc.PublishMsg(&nats.Msg{Subject: m.Subject, Reply: reply, Data: m.Data}); err != nil {
			return nil, fmt.Errorf("publish on %s: %w", m.Subject, translate(err))
		}
	}
	// What the server answers comes before the end of the flush.
	if err := c.nc.FlushWithContext(ctx); err != nil {
		return nil, fmt.Errorf("ask who listens: %w", translate(err))
	}
	for {
		select {
		case answer := <-answers:
			if i, ours := index[answer.Subject]; ours && answer.Header.Get("Status") == noListeners {
				heard[i] = false
			}
		default:
			return heard, nil
		}
	}
}

// noListeners is the status of the server's answer when nobody listened.
const noListeners = "503"
