package service

import (
	"context"
	"fmt"

	"github.com/hindsight-memory/hindsight/internal/bus"
)

// ShowAsking implements [ingest.AskingView].
func (l live) ShowAsking(ctx context.Context, subjects []string, data [][]byte) ([]bool, error) {
	messages := make([]bus.Message, len(subjects))
	for k, subject := range subjects {
		messages[k] = bus.Message{Subject: subject, Data: data[k]}
	}
	heard, err := l.conn.PublishCoreAsking(ctx, messages)
	if err != nil {
		return nil, fmt.Errorf("show events: %w", err)
	}
	return heard, nil
}
