package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/config"
	"github.com/hindsight-memory/hindsight/internal/mcpserver"
	"github.com/hindsight-memory/hindsight/internal/memory"
	"github.com/hindsight-memory/hindsight/internal/recall"
)

const (
	// closeTimeout is what notes of recalls have to be confirmed when a process ends.
	closeTimeout = 5 * time.Second
	// headerTimeout bounds how long a client of the MCP server may take to send its headers.
	headerTimeout = 10 * time.Second
)

// Door is the MCP server of a process. It answers from its first moment on, before any engine is there: a client gives up
// on a server that is slow to greet it. Calls get an error that says to try again until [Door.Service] runs.
type Door struct {
	cfg    *config.Config
	logger *slog.Logger
	inside atomic.Pointer[inside]
}

// inside is what a door leads to once the servers are there.
type inside struct {
	reader *Reader
	writer *Writer
	items  memory.ItemReader
	work   workingReader
	tokens *tokens
}

// NewDoor makes the MCP server of a process.
func NewDoor(cfg *config.Config, logger *slog.Logger) *Door { return &Door{cfg: cfg, logger: logger} }

// Stdio serves one client over in and out by passing its calls on to the MCP server that the settings name, until in or
// ctx ends. Only protocol goes to out.
func Stdio(ctx context.Context, cfg *config.Config, in io.Reader, out, stderr io.Writer) error {
	err := mcpserver.ServeStdio(ctx, mcpserver.StdioOptions{
		Endpoint: cfg.MCPAddress(), Token: cfg.Token, Toolset: mcpserver.Toolset(cfg.MCPToolset), Logger: NewLogger(cfg, stderr), Version: config.Version,
	}, in, out)
	if err != nil {
		return fmt.Errorf("serve MCP on standard input and output: %w", err)
	}
	return nil
}

// Serve listens for clients until ctx ends.
func (d *Door) Serve(ctx context.Context) error {
	handler, err := d.handler()
	if err != nil {
		return err
	}
	address := net.JoinHostPort(d.cfg.Bind, strconv.Itoa(d.cfg.MCPPort))
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return explainListen(err, address, "the MCP server", "HINDSIGHT_MCP_PORT")
	}
	return serveHTTP(ctx, ln, &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTimeout, ErrorLog: slog.NewLogLogger(d.logger.Handler(), slog.LevelWarn),
	})
}

func (d *Door) handler() (http.Handler, error) {
	server, err := mcpserver.New(mcpserver.Options{
		Recaller: (*lateRecall)(d), Writer: (*lateWriter)(d), Items: lateItems{d}, Working: (*lateWorking)(d), Logger: d.logger,
		Withheld: d.withheld, Version: config.Version,
	})
	if err != nil {
		return nil, fmt.Errorf("set up the MCP server: %w", err)
	}
	o := mcpserver.HTTPOptions{
		Server: server, Logger: d.logger, Authenticator: (*lateTokens)(d), Toolset: mcpserver.Toolset(d.cfg.MCPToolset),
	}
	if loopback(d.cfg.Bind) {
		o.Anonymous = &mcpserver.Identity{Namespace: d.cfg.Namespace, Scope: mcpserver.ScopeWrite}
	}
	handler, err := mcpserver.NewHTTPHandler(o)
	if err != nil {
		return nil, fmt.Errorf("set up the MCP server: %w", err)
	}
	return handler, nil
}

// loopback says that only this machine can reach an address, so that callers need no token.
func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// Service opens what the door leads to, and closes it when ctx ends.
func (d *Door) Service(ctx context.Context, p *Parts) (err error) {
	reader, err := p.Reader()
	if err != nil {
		return err
	}
	defer func() {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		err = errors.Join(err, reader.Close(stop))
	}()
	d.inside.Store(&inside{
		reader: reader, writer: NewWriter(p.Bus), items: p.Store, work: workingReader{p.Bus}, tokens: newTokens(p.Store, time.Now),
	})
	reader.Warm(ctx)
	if err := reader.space.startIndex(ctx); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// open is what the door leads to, or why it does not yet.
func (d *Door) open() (*inside, error) {
	if in := d.inside.Load(); in != nil {
		return in, nil
	}
	return nil, fmt.Errorf("%w: Hindsight is still starting and waits for its servers: try again in some seconds", memory.ErrUnavailable)
}

func (d *Door) withheld(namespace string, asker recall.Asker) bool {
	in, err := d.open()
	return err == nil && in.reader.Withheld(namespace, asker)
}

type (
	lateRecall  Door
	lateWriter  Door
	lateWorking Door
	lateTokens  Door
	lateItems   struct{ door *Door }
)

func (l *lateRecall) Recall(ctx context.Context, q recall.Question) (recall.Answer, error) {
	in, err := (*Door)(l).open()
	if err != nil {
		return recall.Answer{}, err
	}
	return in.reader.Recall(ctx, q) //nolint:wrapcheck // A door adds nothing.
}

func (l *lateRecall) Check(ctx context.Context, a recall.Action) (recall.Answer, error) {
	in, err := (*Door)(l).open()
	if err != nil {
		return recall.Answer{}, err
	}
	return in.reader.Check(ctx, a) //nolint:wrapcheck // As above.
}

func (l *lateRecall) Rules(ctx context.Context, namespace, taskType string, asOf time.Time, asker recall.Asker) (recall.Answer, error) {
	in, err := (*Door)(l).open()
	if err != nil {
		return recall.Answer{}, err
	}
	return in.reader.Rules(ctx, namespace, taskType, asOf, asker) //nolint:wrapcheck // As above.
}

func (l *lateWriter) Write(ctx context.Context, e events.Event) (mcpserver.Written, error) {
	in, err := (*Door)(l).open()
	if err != nil {
		return mcpserver.Written{}, err
	}
	return in.writer.Write(ctx, e)
}

func (l *lateWorking) Working(ctx context.Context, namespace, taskID string) ([]byte, error) {
	in, err := (*Door)(l).open()
	if err != nil {
		return nil, err
	}
	return in.work.Working(ctx, namespace, taskID)
}

func (l *lateTokens) Authenticate(ctx context.Context, secret string) (mcpserver.Identity, error) {
	in, err := (*Door)(l).open()
	if err != nil {
		return mcpserver.Identity{}, err
	}
	return in.tokens.Authenticate(ctx, secret)
}

// late asks the record once the door leads to it.
func late[T any](l lateItems, ask func(memory.ItemReader) (T, error)) (T, error) {
	in, err := l.door.open()
	if err != nil {
		var none T
		return none, err
	}
	return ask(in.items)
}

func (l lateItems) Snapshots(ctx context.Context, f memory.ItemFilter) ([]memory.Snapshot, error) {
	return late(l, func(r memory.ItemReader) ([]memory.Snapshot, error) { return r.Snapshots(ctx, f) })
}

func (l lateItems) Memories(ctx context.Context, f memory.ItemFilter) ([]memory.Memory, error) {
	return late(l, func(r memory.ItemReader) ([]memory.Memory, error) { return r.Memories(ctx, f) })
}

func (l lateItems) Rules(ctx context.Context, f memory.ItemFilter) ([]memory.Rule, error) {
	return late(l, func(r memory.ItemReader) ([]memory.Rule, error) { return r.Rules(ctx, f) })
}

func (l lateItems) Summaries(ctx context.Context, f memory.ItemFilter) ([]memory.Summary, error) {
	return late(l, func(r memory.ItemReader) ([]memory.Summary, error) { return r.Summaries(ctx, f) })
}

func (l lateItems) Relations(ctx context.Context, namespace string, ids []string) ([]memory.Relation, error) {
	return late(l, func(r memory.ItemReader) ([]memory.Relation, error) { return r.Relations(ctx, namespace, ids) })
}

func (l lateItems) Uses(ctx context.Context, namespace string, ids []string) (map[string]memory.ItemUse, error) {
	return late(l, func(r memory.ItemReader) (map[string]memory.ItemUse, error) { return r.Uses(ctx, namespace, ids) })
}

func (l lateItems) Similarities(ctx context.Context, namespace, model string, vector []float32, ids []string, asOf time.Time) (map[string][]memory.TextSimilarity, error) {
	return late(l, func(r memory.ItemReader) (map[string][]memory.TextSimilarity, error) {
		return r.Similarities(ctx, namespace, model, vector, ids, asOf)
	})
}

func (l lateItems) Lexical(ctx context.Context, q memory.LexicalQuery) ([]memory.Candidate, error) {
	return late(l, func(r memory.ItemReader) ([]memory.Candidate, error) { return r.Lexical(ctx, q) })
}
