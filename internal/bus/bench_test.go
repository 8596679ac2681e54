package bus_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hindsight-memory/hindsight/internal/bus"
	"github.com/hindsight-memory/hindsight/internal/engine"
)

const benchBatch = 1000

// benchConn is a connection to a fresh server with the streams.
func benchConn(b *testing.B) (*bus.Conn, string) {
	b.Helper()
	server, err := engine.StartNATS(b.Context(), engine.NATSOptions{DataDir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	conn, err := bus.Connect(b.Context(), bus.Options{URL: server.URL(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		conn.Close()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(b.Context()), patience)
		defer cancel()
		if err := server.Stop(ctx); err != nil {
			b.Error(err)
		}
	})
	if err := conn.EnsureStreams(b.Context(), bus.StreamConfig{TracesMaxBytes: 4 << 30}); err != nil {
		b.Fatal(err)
	}
	return conn, server.URL()
}

func fill(b *testing.B, conn *bus.Conn) {
	b.Helper()
	payload := make([]byte, 1024)
	for left := b.N; left > 0; left -= benchBatch {
		msgs := make([]bus.Message, min(left, benchBatch))
		for i := range msgs {
			msgs[i] = bus.Message{Subject: traceSubject, Data: payload}
		}
		if _, err := conn.PublishAll(b.Context(), msgs); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPublishAll stores messages of 1 KiB, 1,000 a call.
func BenchmarkPublishAll(b *testing.B) {
	conn, _ := benchConn(b)
	b.ResetTimer()
	b.SetBytes(1024)
	fill(b, conn)
}

// BenchmarkWorker hands messages of 1 KiB to a handler that does nothing.
func BenchmarkWorker(b *testing.B) {
	conn, _ := benchConn(b)
	fill(b, conn)
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var n atomic.Int64
	w, err := conn.NewWorker(bus.WorkerOptions{Stream: bus.StreamTraces, Durable: "bench", BatchSize: benchBatch},
		func(_ context.Context, batch []bus.Message) []error {
			if n.Add(int64(len(batch))) >= int64(b.N) {
				cancel()
			}
			return make([]error, len(batch))
		})
	if err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	b.SetBytes(1024)
	if err := w.Run(ctx); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkRawFetch is what the driver does alone, with the same batches.
func BenchmarkRawFetch(b *testing.B) {
	conn, url := benchConn(b)
	fill(b, conn)
	nc, err := nats.Connect(url)
	if err != nil {
		b.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		b.Fatal(err)
	}
	consumer, err := js.CreateOrUpdateConsumer(b.Context(), bus.StreamTraces, jetstream.ConsumerConfig{
		Durable: "bench", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 3 * benchBatch,
	})
	if err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	b.SetBytes(1024)
	for got := 0; got < b.N; {
		batch, err := consumer.Fetch(benchBatch, jetstream.FetchMaxWait(50*time.Millisecond))
		if err != nil {
			b.Fatal(err)
		}
		for m := range batch.Messages() {
			if err := m.Ack(); err != nil {
				b.Fatal(err)
			}
			got++
		}
	}
	if err := nc.Flush(); err != nil {
		b.Fatal(err)
	}
}
