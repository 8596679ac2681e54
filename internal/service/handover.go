package service

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/bus"
)

// handOver gives what agents published as trace events, but want stored or changed, to the keeper: it goes to the stream
// WRITES under the same message id, and is acknowledged after that. verdicts are those of the batch; what was not stored
// is left alone. A message that comes again is handed over again, which changes nothing: the keeper knows a write by its
// event.
func handOver(ctx context.Context, conn *bus.Conn, batch []bus.Message, verdicts []error) {
	var writes []bus.Message
	var from []int // from[k] is the message that writes[k] came from
	for i, m := range batch {
		if verdicts[i] != nil || !asksToStore(m.Subject) {
			continue
		}
		write, err := writeOf(m)
		if err != nil {
			verdicts[i] = bus.Discard("malformed", err)
			continue
		}
		writes, from = append(writes, write), append(from, i)
	}
	if len(writes) == 0 {
		return
	}
	if _, err := conn.PublishAll(ctx, writes); err != nil {
		for _, i := range from {
			verdicts[i] = bus.Wait(fmt.Errorf("hand writes over to the keeper: %w", err))
		}
	}
}

// asksToStore says that a trace event's subject is one of what the keeper does.
func asksToStore(subject string) bool {
	kind := events.Kind(subject[strings.LastIndexByte(subject, '.')+1:])
	return kind == events.KindItemWritten || kind == events.KindItemChanged
}

// writeOf is the message of the stream WRITES for a trace event that the ingestor has accepted.
func writeOf(m bus.Message) (bus.Message, error) {
	e, err := events.Decode(m.Header, m.Data)
	if err != nil {
		return bus.Message{}, fmt.Errorf("read a write: %w", err)
	}
	if e.Kind == events.KindItemChanged {
		if e.Data, err = asMachine(e); err != nil {
			return bus.Message{}, err
		}
	}
	e, raw, err := events.Prepare(e, time.Now())
	if err != nil {
		return bus.Message{}, fmt.Errorf("prepare a write: %w", err)
	}
	return bus.Message{Subject: bus.WriteSubject(e.Namespace), ID: e.MessageID(), Data: raw}, nil
}

// asMachine takes the mark of a person off a change: who may publish traces is an agent, whatever it says.
func asMachine(e events.Event) (json.RawMessage, error) {
	changed, err := events.DecodeData[events.ItemChanged](e)
	if err != nil {
		return nil, fmt.Errorf("read a change: %w", err)
	}
	if !changed.ByPerson {
		return e.Data, nil
	}
	changed.ByPerson = false
	return events.EncodeData(changed) //nolint:wrapcheck // It says what was being done.
}
