package bus

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/hindsight-memory/hindsight/events"
)

const (
	// answerHeader names where the one who published a message waits for the
	// answer to it.
	answerHeader = "Hindsight-Answer-To"
	// inboxPrefix begins every such place, so that a message cannot have its
	// answer sent into a stream.
	inboxPrefix = "_INBOX."
	writePrefix = "hindsight.v1.write."
	indexSuffix = ".index"

	// WriteSubjects matches [WriteSubject] of all namespaces.
	WriteSubjects = writePrefix + "*.*"
	// IndexSubjects matches [IndexSubject] of all namespaces, and nothing that
	// WriteSubjects does.
	IndexSubjects = WriteSubjects + indexSuffix
)

// ErrUnanswered means that a message is safely stored in its stream and was
// not answered in time: it will still be handled.
var ErrUnanswered = errors.New("stored, and not answered yet")

// WriteSubject is where what agents of a namespace ask to store is published:
// hindsight.v1.write.<tenant>.<team>, the team being ~ when the namespace has
// none.
func WriteSubject(namespace string) string { return writePrefix + events.NamespaceTokens(namespace) }

// IndexSubject is where the keeper asks for the vectors of what it has stored:
// the subject of the namespace's writes and one more token, so that both are in
// one stream and it is empty when all that was written can be found.
func IndexSubject(namespace string) string { return WriteSubject(namespace) + indexSuffix }

// Ask stores a message in its stream and waits until the worker that handles it
// answers by [Conn.Answer], or ctx ends: [ErrUnanswered]. Other errors are those
// of [Conn.Publish].
func (c *Conn) Ask(ctx context.Context, m Message) ([]byte, error) {
	ctx, cancel := bound(ctx)
	defer cancel()
	inbox := c.nc.NewInbox()
	sub, err := c.nc.SubscribeSync(inbox)
	if err != nil {
		return nil, fmt.Errorf("listen for an answer: %w", translate(err))
	}
	defer sub.Unsubscribe() //nolint:errcheck // The connection is gone, and the subscription with it.
	asked := m
	asked.Header = make(map[string][]string, len(m.Header)+1)
	maps.Copy(asked.Header, m.Header)
	asked.Header[answerHeader] = []string{inbox}
	if _, err := c.Publish(ctx, asked); err != nil {
		return nil, err
	}
	answer, err := sub.NextMsgWithContext(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnanswered, err)
	}
	return answer.Data, nil
}

// Answer tells the one who waits by [Conn.Ask] what became of a message. When
// nobody waits it does nothing; an answer that gets lost is not repeated.
func (c *Conn) Answer(m Message, data []byte) error {
	inbox := nats.Header(m.Header).Get(answerHeader)
	if !strings.HasPrefix(inbox, inboxPrefix) {
		return nil
	}
	return c.PublishCore(inbox, data)
}
