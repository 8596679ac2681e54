package bus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// StreamStats says how full a stream is and how far its consumers have come.
type StreamStats struct {
	Stream   string `json:"stream"`
	Messages uint64 `json:"messages"`
	// Bytes and MaxBytes are sizes in the store; at MaxBytes a work queue
	// refuses ([ErrFull]).
	Bytes    uint64 `json:"bytes"`
	MaxBytes int64  `json:"max_bytes"`
	// Oldest is when the oldest message came, in UTC; zero when there is none.
	Oldest    time.Time       `json:"oldest"`
	Consumers []ConsumerStats `json:"consumers"`
}

// ConsumerStats says how far a consumer has come.
type ConsumerStats struct {
	Durable string `json:"durable"`
	// Pending messages were not delivered yet.
	Pending uint64 `json:"pending"`
	// AckPending messages are being handled or wait for another attempt.
	AckPending int `json:"ack_pending"`
	// Redelivered of them were delivered more than once.
	Redelivered int `json:"redelivered"`
	// Waiting is how many requests for messages stand, 0 when no worker asks.
	Waiting int `json:"waiting"`
}

// Stats asks for the state of Hindsight's streams. A stream that does not exist
// is left out. The error is [ErrUnavailable].
func (c *Conn) Stats(ctx context.Context) ([]StreamStats, error) {
	ctx, cancel := bound(ctx)
	defer cancel()
	all := []StreamStats{}
	for _, name := range []string{StreamTraces, StreamWrites, StreamReflect, StreamDeadLetter} {
		stream, err := c.js.Stream(ctx, name)
		if err != nil {
			if translated := translate(err); !errors.Is(translated, ErrNotFound) {
				return nil, fmt.Errorf("ask for stream %s: %w", name, translated)
			}
			continue
		}
		info := stream.CachedInfo()
		stats := StreamStats{
			Stream: name, Messages: info.State.Msgs, Bytes: info.State.Bytes, MaxBytes: info.Config.MaxBytes,
			Consumers: []ConsumerStats{},
		}
		if info.State.Msgs > 0 {
			stats.Oldest = info.State.FirstTime.UTC()
		}
		lister := stream.ListConsumers(ctx)
		for consumer := range lister.Info() {
			stats.Consumers = append(stats.Consumers, ConsumerStats{
				Durable: consumer.Name, Pending: consumer.NumPending, AckPending: consumer.NumAckPending,
				Redelivered: consumer.NumRedelivered, Waiting: consumer.NumWaiting,
			})
		}
		if err := lister.Err(); err != nil {
			return nil, fmt.Errorf("ask for the consumers of stream %s: %w", name, translate(err))
		}
		all = append(all, stats)
	}
	return all, nil
}

// statsTimeout bounds what one scrape of the metrics waits for the server.
const statsTimeout = 2 * time.Second

// StatsCollector gives [Conn.Stats] to Prometheus. One process of a deployment
// is enough, more do no harm. While the server is away the figures are left out,
// and hindsight_bus_up is 0.
type StatsCollector struct {
	conn *Conn

	up, messages, bytes, maxBytes, oldest     *prometheus.Desc
	pending, ackPending, redelivered, waiting *prometheus.Desc
}

var _ prometheus.Collector = (*StatsCollector)(nil)

// NewStatsCollector makes a collector; the caller registers it.
func NewStatsCollector(c *Conn) *StatsCollector {
	of := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("hindsight_bus_"+name, help, labels, nil)
	}
	return &StatsCollector{
		conn:        c,
		up:          of("up", "1 when the broker answers, else 0."),
		messages:    of("stream_messages", "Messages in the stream.", "stream"),
		bytes:       of("stream_bytes", "Size of the stream in its store.", "stream"),
		maxBytes:    of("stream_max_bytes", "Size at which the stream takes no more.", "stream"),
		oldest:      of("stream_oldest_seconds", "Age of the oldest message in the stream.", "stream"),
		pending:     of("consumer_pending", "Messages not delivered yet.", "stream", "durable"),
		ackPending:  of("consumer_ack_pending", "Messages being handled or waiting for another attempt.", "stream", "durable"),
		redelivered: of("consumer_redelivered", "Messages in hand that were delivered more than once.", "stream", "durable"),
		waiting:     of("consumer_waiting", "Requests for messages that stand.", "stream", "durable"),
	}
}

// Describe implements [prometheus.Collector].
func (s *StatsCollector) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{
		s.up, s.messages, s.bytes, s.maxBytes, s.oldest, s.pending, s.ackPending, s.redelivered, s.waiting,
	} {
		descs <- desc
	}
}

// Collect implements [prometheus.Collector].
func (s *StatsCollector) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), statsTimeout)
	defer cancel()
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	all, err := s.conn.Stats(ctx)
	if err != nil {
		gauge(s.up, 0)
		return
	}
	gauge(s.up, 1)
	for _, stream := range all {
		gauge(s.messages, float64(stream.Messages), stream.Stream)
		gauge(s.bytes, float64(stream.Bytes), stream.Stream)
		gauge(s.maxBytes, float64(stream.MaxBytes), stream.Stream)
		age := 0.0
		if !stream.Oldest.IsZero() {
			age = max(0, time.Since(stream.Oldest).Seconds())
		}
		gauge(s.oldest, age, stream.Stream)
		for _, consumer := range stream.Consumers {
			gauge(s.pending, float64(consumer.Pending), stream.Stream, consumer.Durable)
			gauge(s.ackPending, float64(consumer.AckPending), stream.Stream, consumer.Durable)
			gauge(s.redelivered, float64(consumer.Redelivered), stream.Stream, consumer.Durable)
			gauge(s.waiting, float64(consumer.Waiting), stream.Stream, consumer.Durable)
		}
	}
}
