package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// NATSOptions configures [StartNATS].
type NATSOptions struct {
	// DataDir holds the streams, in its nats subdirectory. Required.
	DataDir string
	// Port on 127.0.0.1; 0 or -1 picks a free one.
	Port int
	// MaxMemory bounds what memory-backed streams may hold, in bytes.
	// Default 64 MiB.
	MaxMemory int64
	// MaxDisk bounds what file-backed streams may hold, in bytes. Default
	// 10 GiB. A stream that asks for more than is left cannot be created.
	MaxDisk int64
	// ReadyTimeout bounds the wait for the server. Default 30 s; recovering
	// large streams takes seconds.
	ReadyTimeout time.Duration
	// Logger receives the server's warnings and errors. Default: none.
	Logger *slog.Logger
}

// maxPayload is the largest message, in bytes, that the server takes.
const maxPayload = 1 << 20

// NATS is a running server with JetStream.
type NATS struct {
	server *server.Server
	url    string
}

// StartNATS starts a server on the loopback interface and returns once it
// accepts connections. ctx bounds only the start.
func StartNATS(ctx context.Context, options NATSOptions) (*NATS, error) {
	if options.DataDir == "" {
		return nil, errors.New("start NATS: DataDir is empty")
	}
	if options.Port < -1 || options.Port > 65535 {
		return nil, fmt.Errorf("start NATS: port %d is out of range", options.Port)
	}
	if options.Port == 0 {
		options.Port = server.RANDOM_PORT
	}
	if options.MaxMemory <= 0 {
		options.MaxMemory = 64 << 20
	}
	if options.MaxDisk <= 0 {
		options.MaxDisk = 10 << 30
	}
	if options.ReadyTimeout <= 0 {
		options.ReadyTimeout = 30 * time.Second
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	dir := filepath.Join(options.DataDir, "nats")
	if err := makeDir(dir); err != nil {
		return nil, fmt.Errorf("start NATS: %w", err)
	}
	if options.Port > 0 {
		if err := portFree(ctx, options.Port, "NATS", "HINDSIGHT_NATS_PORT"); err != nil {
			return nil, err
		}
	}
	srv, err := server.NewServer(&server.Options{
		ServerName:         "hindsight",
		Host:               "127.0.0.1",
		Port:               options.Port,
		JetStream:          true,
		StoreDir:           dir,
		JetStreamMaxMemory: options.MaxMemory,
		JetStreamMaxStore:  options.MaxDisk,
		MaxPayload:         maxPayload,
		NoSigs:             true,
		// The default profile of the server allocates for thousands of clients.
		MaxConn: 1024,
	})
	if err != nil {
		return nil, fmt.Errorf("start NATS: %w", err)
	}
	srv.SetLoggerV2(natsLogger{options.Logger}, false, false, false)
	srv.Start()
	n := &NATS{server: srv}
	deadline := time.Now().Add(options.ReadyTimeout)
	for !srv.ReadyForConnections(100 * time.Millisecond) {
		if ctx.Err() != nil || time.Now().After(deadline) || !srv.Running() {
			srv.Shutdown()
			srv.WaitForShutdown()
			if ctx.Err() != nil {
				return nil, fmt.Errorf("start NATS: %w", ctx.Err())
			}
			return nil, fmt.Errorf("start NATS: the server on port %d was not ready within %s; its log says why", options.Port, options.ReadyTimeout)
		}
	}
	address, ok := srv.Addr().(*net.TCPAddr)
	if !ok {
		srv.Shutdown()
		srv.WaitForShutdown()
		return nil, fmt.Errorf("start NATS: unexpected address %v", srv.Addr())
	}
	n.url = "nats://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(address.Port))
	return n, nil
}

// URL is what clients connect to.
func (n *NATS) URL() string { return n.url }

// InProcess is a nats.Connect option that skips the network. The client must
// be closed before Stop.
func (n *NATS) InProcess() nats.Option { return nats.InProcessServer(n.server) }

// Stop flushes the streams and ends the server. It is idempotent. When ctx
// ends first, Stop returns its error and the server goes on ending.
func (n *NATS) Stop(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		n.server.Shutdown()
		n.server.WaitForShutdown()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop NATS: %w", ctx.Err())
	}
}

// natsLogger passes warnings and errors on and drops the rest.
type natsLogger struct{ logger *slog.Logger }

func (l natsLogger) Noticef(string, ...any) {}
func (l natsLogger) Debugf(string, ...any)  {}
func (l natsLogger) Tracef(string, ...any)  {}

func (l natsLogger) Warnf(format string, v ...any) {
	l.logger.Warn("nats server", "text", fmt.Sprintf(format, v...))
}

func (l natsLogger) Errorf(format string, v ...any) {
	l.logger.Error("nats server", "text", fmt.Sprintf(format, v...))
}

// Fatalf does not end the process: StartNATS sees that the server is not
// running and returns an error.
func (l natsLogger) Fatalf(format string, v ...any) {
	l.logger.Error("nats server", "text", fmt.Sprintf(format, v...))
}
