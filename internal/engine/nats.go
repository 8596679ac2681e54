package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
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
		return nil, errors.New("start NATS: no DataDir is given")
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
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("start NATS: %w", err)
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
		MaxConn:            1024,
		// The default of two minutes would lose as much at a loss of power.
		SyncInterval: 10 * time.Second,
	})
	if err != nil {
		return nil, fmt.Errorf("start NATS: %w", err)
	}
	logger := natsLogger{options.Logger, make(chan string, 1)}
	srv.SetLoggerV2(logger, false, false, false)
	srv.Start()
	if err := ready(ctx, srv, logger.fatal, options.ReadyTimeout); err != nil {
		srv.Shutdown()
		srv.WaitForShutdown()
		if options.Port > 0 {
			// The port may have been taken in the meantime.
			if err := portFree(ctx, options.Port, "NATS", "HINDSIGHT_NATS_PORT"); errors.Is(err, ErrPortInUse) {
				return nil, err
			}
		}
		return nil, fmt.Errorf("start NATS on %s: %w", dir, err)
	}
	return &NATS{server: srv, url: srv.ClientURL()}, nil
}

// ready waits until the server accepts connections.
func ready(ctx context.Context, srv *server.Server, fatal <-chan string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("not ready within %s", timeout))
	defer cancel()
	for {
		if srv.ReadyForConnections(50 * time.Millisecond) {
			return nil
		}
		select {
		case reason := <-fatal:
			return errors.New(reason)
		case <-ctx.Done():
			return context.Cause(ctx)
		default:
		}
	}
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
type natsLogger struct {
	logger *slog.Logger
	fatal  chan string // holds the first reason why the server cannot run
}

func (l natsLogger) Noticef(string, ...any) {}
func (l natsLogger) Debugf(string, ...any)  {}
func (l natsLogger) Tracef(string, ...any)  {}

func (l natsLogger) Warnf(format string, v ...any) {
	l.logger.Warn("nats server", "text", fmt.Sprintf(format, v...))
}

func (l natsLogger) Errorf(format string, v ...any) {
	l.logger.Error("nats server", "text", fmt.Sprintf(format, v...))
}

// Fatalf does not end the process: StartNATS returns the reason.
func (l natsLogger) Fatalf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	select {
	case l.fatal <- text:
	default:
	}
	l.logger.Error("nats server cannot run", "text", text)
}
