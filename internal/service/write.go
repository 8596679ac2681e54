package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/bus"
	"github.com/hindsight-memory/hindsight/internal/mcpserver"
	"github.com/hindsight-memory/hindsight/internal/memory"
)

// writeTimeout is how long a writer waits for the record; a client gives up later than that.
const writeTimeout = 10 * time.Second

// answered is what the keeper answers to one write.
type answered struct {
	ItemID string `json:"item_id"`
	Status string `json:"status"`
	Notice string `json:"notice,omitempty"`
	// Error is empty unless the write was refused; Missing means that it is because there is no such item.
	Error   string `json:"error,omitempty"`
	Missing bool   `json:"missing,omitempty"`
}

// Writer hands what agents and people ask to store to the stream WRITES, and waits until the record holds it.
type Writer struct{ conn *bus.Conn }

// NewWriter makes a [Writer].
func NewWriter(conn *bus.Conn) *Writer { return &Writer{conn} }

// Write masks and checks an event, stores it in the stream, and returns what became of it once the record holds it. The
// error is [events.ErrInvalid], [memory.ErrRejected], [memory.ErrNotFound], [memory.ErrUnavailable], [memory.ErrQueueFull],
// or [bus.ErrUnanswered] for a write that is safely queued and was not confirmed in time.
func (w *Writer) Write(ctx context.Context, e events.Event) (mcpserver.Written, error) {
	prepared, body, err := events.Prepare(e, time.Now().UTC())
	if err != nil {
		return mcpserver.Written{}, fmt.Errorf("check the write: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	raw, err := w.conn.Ask(ctx, bus.Message{Subject: bus.WriteSubject(prepared.Namespace), ID: prepared.Namespace + "/" + prepared.ID, Data: body})
	switch {
	case errors.Is(err, bus.ErrUnavailable):
		return mcpserver.Written{}, fmt.Errorf("%w: %w", memory.ErrUnavailable, err)
	case errors.Is(err, bus.ErrFull):
		return mcpserver.Written{}, fmt.Errorf("%w: %w", memory.ErrQueueFull, err)
	case err != nil:
		return mcpserver.Written{}, err //nolint:wrapcheck // It says what was being done.
	}
	var answer answered
	if err := json.Unmarshal(raw, &answer); err != nil {
		return mcpserver.Written{}, fmt.Errorf("read the answer to a write: %w", err)
	}
	switch {
	case answer.Missing:
		return mcpserver.Written{}, fmt.Errorf("%w: %s", memory.ErrNotFound, answer.Error)
	case answer.Error != "":
		return mcpserver.Written{}, fmt.Errorf("%w: %s", memory.ErrRejected, answer.Error)
	}
	return mcpserver.Written{ItemID: answer.ItemID, Status: answer.Status, Notice: answer.Notice}, nil
}

// working reads what the sweeper keeps of live tasks.
type workingReader struct{ conn *bus.Conn }

func (w workingReader) Working(ctx context.Context, namespace, taskID string) ([]byte, error) {
	raw, err := w.conn.GetWorking(ctx, namespace, taskID)
	switch {
	case errors.Is(err, bus.ErrNotFound):
		return nil, fmt.Errorf("%w: no working memory of task %q: it is over, or there is no such task", memory.ErrNotFound, taskID)
	case err != nil:
		return nil, fmt.Errorf("%w: read working memory: %w", memory.ErrUnavailable, err)
	}
	return raw, nil
}
