package mcpserver

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	// proxyTimeout bounds one call of a proxy; it is longer than the daemon's own bound, so that its answer comes first.
	proxyTimeout = 30 * time.Second
	// parentInterval is how often a proxy looks whether its parent still lives.
	parentInterval = time.Second
	// maxPatience is the longest time that a proxy waits, in all, for a budget of calls to fill again.
	maxPatience = 5 * time.Second
)

// StdioOptions configure [ServeStdio]. Endpoint and Logger must be set.
type StdioOptions struct {
	// Endpoint is where the running daemon serves the protocol, such as http://127.0.0.1:8765/mcp.
	Endpoint string
	// Token is sent to it; empty means none.
	Token string
	// Toolset is what the client sees. Empty means core.
	Toolset Toolset
	// Logger must not write to out.
	Logger  *slog.Logger
	Version string
}

// ServeStdio serves one client over in and out by passing its calls to the running daemon, so that many clients share
// one. What a client asks at its start is answered at once, whether the daemon runs or not; a call while it does not run
// gets an error result that says how to start it, and the next call tries again.
//
// It returns nil when in ends, when ctx does, or within some seconds of the parent's death. Only protocol goes to out.
// A read of in that cannot be interrupted is left behind, for the process to end with.
func ServeStdio(ctx context.Context, o StdioOptions, in io.Reader, out io.Writer) error {
	set, err := ParseToolset(string(o.Toolset))
	if err != nil {
		return fmt.Errorf("mcpserver: %w", err)
	}
	endpoint, err := url.Parse(o.Endpoint)
	if err != nil || endpoint.Host == "" || o.Logger == nil {
		return fmt.Errorf("mcpserver: endpoint %q: it must be an address such as http://127.0.0.1:8765/mcp, and Logger must be set", o.Endpoint)
	}
	query := endpoint.Query()
	query.Set("toolset", string(set))
	endpoint.RawQuery = query.Encode()

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	onStop := func(f func()) func() bool { return context.AfterFunc(ctx, f) }
	connections := &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: 4, IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true}
	p := &proxy{
		o: o, endpoint: endpoint.String(), onStop: onStop,
		client: &http.Client{Transport: &carrier{token: o.Token, next: connections, onStop: onStop}},
	}
	lines := newLineConnection(in, out)
	var watching sync.WaitGroup
	watching.Go(func() { watchParent(ctx, cancel) })
	watching.Go(func() {
		select {
		case <-ctx.Done():
		case <-lines.ended:
			cancel() // what is in flight now is asked for by nobody
		}
		// The library waits for calls in flight, and these for a client to read, which may be gone.
		lines.finish()
		_ = lines.Close()
	})
	session, err := newProtocolServer(set, o.Version, p, o.Logger).Connect(ctx, lines, nil)
	if err == nil {
		err = session.Wait()
	}
	_ = lines.Close()
	cancel()
	watching.Wait()
	p.close()
	connections.CloseIdleConnections()
	if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrClosedPipe) {
		return fmt.Errorf("serve stdio: %w", err)
	}
	return nil
}

// watchParent ends a proxy whose parent died: another process may still hold its stdin open.
func watchParent(ctx context.Context, end context.CancelFunc) {
	parent := os.Getppid()
	tick := time.NewTicker(parentInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if os.Getppid() != parent {
				end()
				return
			}
		}
	}
}

// proxy passes calls to the daemon. It connects at the first call and again after one that broke.
type proxy struct {
	o        StdioOptions
	endpoint string
	client   *http.Client
	// onStop ends calls in flight: the library keeps them from the context of the session.
	onStop func(func()) (forget func() bool)

	connecting sync.Mutex
	session    *mcp.ClientSession
}

// connected gives the session with the daemon.
func (p *proxy) connected(ctx context.Context) (*mcp.ClientSession, error) {
	p.connecting.Lock()
	defer p.connecting.Unlock()
	if p.session != nil {
		return p.session, nil
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "hindsight-stdio", Version: cmp.Or(p.o.Version, "dev")}, &mcp.ClientOptions{
		Capabilities: &mcp.ClientCapabilities{}, Logger: slog.New(quiet{p.o.Logger.Handler()}),
	})
	session, err := client.Connect(ctx, &mcp.StreamableClientTransport{
		Endpoint: p.endpoint, HTTPClient: p.client, MaxRetries: -1, DisableStandaloneSSE: true,
	}, nil)
	if err != nil {
		return nil, fmt.Errorf("connect to the daemon: %w", err)
	}
	p.session = session
	return session, nil
}

// drop forgets a session that broke.
func (p *proxy) drop(session *mcp.ClientSession) {
	p.connecting.Lock()
	if p.session == session {
		p.session = nil
	}
	p.connecting.Unlock()
	p.hangUp(session)
}

func (p *proxy) hangUp(session *mcp.ClientSession) {
	if err := session.Close(); err != nil {
		p.o.Logger.Debug("a session with the daemon did not end well", "error", err)
	}
}

func (p *proxy) close() {
	p.connecting.Lock()
	session := p.session
	p.session = nil
	p.connecting.Unlock()
	if session != nil {
		p.hangUp(session)
	}
}

// bounded is the context of one call.
func (p *proxy) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, proxyTimeout)
	forget := p.onStop(cancel)
	return ctx, func() {
		forget()
		cancel()
	}
}

// do makes one request. A session that turns out to be broken is made anew, and the request is repeated if it was not
// sent, or if it only reads.
func (p *proxy) do(ctx context.Context, readOnly bool, request func(context.Context, *mcp.ClientSession) error) error {
	for attempt := 1; ; attempt++ {
		session, err := p.connected(ctx)
		if err != nil {
			return err
		}
		err = request(ctx, session)
		var answered *jsonrpc.Error
		if err == nil || ctx.Err() != nil || isStatus(err) || isAway(err) || errors.As(err, &answered) && !errors.Is(err, mcp.ErrConnectionClosed) {
			return err
		}
		p.drop(session)
		if attempt > 1 || !readOnly && !errors.Is(err, mcp.ErrConnectionClosed) {
			return err
		}
	}
}

func (p *proxy) callTool(ctx context.Context, t tool, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	ctx, done := p.bounded(ctx)
	defer done()
	var res *mcp.CallToolResult
	err := p.do(ctx, t.scope == ScopeRead, func(ctx context.Context, session *mcp.ClientSession) error {
		var err error
		res, err = session.CallTool(ctx, &mcp.CallToolParams{Name: t.name, Arguments: orEmpty(req.Params.Arguments), Meta: passedOn(req.Params.Meta)})
		return err //nolint:wrapcheck // do and its caller explain it.
	})
	if err != nil {
		return failed(p.explain(err))
	}
	return res, nil
}

func (p *proxy) readResource(ctx context.Context, _ resourceKind, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	ctx, done := p.bounded(ctx)
	defer done()
	var res *mcp.ReadResourceResult
	err := p.do(ctx, true, func(ctx context.Context, session *mcp.ClientSession) error {
		var err error
		res, err = session.ReadResource(ctx, &mcp.ReadResourceParams{URI: req.Params.URI, Meta: passedOn(req.Params.Meta)})
		return err //nolint:wrapcheck // do and its caller explain it.
	})
	var answered *jsonrpc.Error
	if err != nil && !isStatus(err) && !isAway(err) && errors.As(err, &answered) {
		return nil, answered
	}
	if err != nil {
		return nil, resourceError(p.explain(err), req.Params.URI)
	}
	return res, nil
}

// orEmpty keeps absent arguments from becoming null.
func orEmpty(raw []byte) any {
	if len(raw) == 0 {
		return map[string]any{}
	}
	return json.RawMessage(raw)
}

// passedOn is what the daemon is told of the client's _meta: all but what belongs to the one connection.
func passedOn(meta mcp.Meta) mcp.Meta {
	out := maps.Clone(meta)
	maps.DeleteFunc(out, func(key string, _ any) bool {
		return key == "progressToken" || strings.HasPrefix(key, "io.modelcontextprotocol/")
	})
	return out
}

// explain says what a failed request means.
func (p *proxy) explain(err error) failure {
	var s *statusError
	var answered *jsonrpc.Error
	switch {
	case errors.As(err, &s) && (s.code == http.StatusUnauthorized || s.code == http.StatusForbidden):
		return failure{
			"not_allowed", "Hindsight refused this client's token, so nothing was asked or stored. An operator makes one with `hindsight token` " +
				"and gives it to this server's settings (`hindsight mcp-config`).", false,
		}
	case errors.As(err, &s) && s.code == http.StatusTooManyRequests:
		return failure{"busy", "This token calls too often, so the call was not made. Wait some seconds and repeat it.", true}
	case errors.As(err, &s):
		return failure{"unavailable", "Hindsight is starting or its store is away, so the call was not made. Try again in some seconds.", true}
	case isAway(err):
		return failure{
			"unavailable", "Hindsight is not running: start it with `hindsight up`. Until then nothing is recalled or stored; go on without it and try again later.", true,
		}
	case errors.Is(err, context.DeadlineExceeded):
		f, _ := failureOf(context.DeadlineExceeded)
		return f
	case errors.As(err, &answered) && answered.Code == jsonrpc.CodeInternalError:
		f, _ := failureOf(err)
		return f
	default:
		p.o.Logger.Warn("a call could not be passed to the daemon", "endpoint", p.endpoint, "error", err)
		return failure{
			"unavailable", "The connection to Hindsight broke, and whether the call was served is not known; repeating it stores nothing twice. " +
				"If it goes on, `hindsight doctor` says why.", true,
		}
	}
}

// statusError is an answer of the daemon's door.
type statusError struct{ code int }

func (e *statusError) Error() string { return "the daemon answered " + strconv.Itoa(e.code) }

func isStatus(err error) bool {
	var s *statusError
	return errors.As(err, &s)
}

// awayError means that nothing was sent, because nobody listens.
type awayError struct{ cause error }

func (e *awayError) Error() string { return "the daemon is away: " + e.cause.Error() }
func (e *awayError) Unwrap() error { return e.cause }

func isAway(err error) bool {
	var a *awayError
	return errors.As(err, &a)
}

// carrier adds the token to requests, waits for a budget to fill again, and names what the daemon's door refused.
type carrier struct {
	token string
	next  http.RoundTripper
	// onStop ends the requests that the library makes for itself.
	onStop func(func()) (forget func() bool)
}

// released is the body of an answer, after which there is nothing to end.
type released struct {
	io.ReadCloser

	release func()
}

// Close implements [io.Closer].
func (b released) Close() error {
	defer b.release()
	return b.ReadCloser.Close() //nolint:wrapcheck // it is the body's own.
}

// RoundTrip implements [http.RoundTripper].
func (c *carrier) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	forget := c.onStop(cancel)
	release := func() {
		forget()
		cancel()
	}
	resp, err := c.patiently(r.WithContext(ctx))
	if err != nil {
		release()
		return nil, err
	}
	resp.Body = released{resp.Body, release}
	return resp, nil
}

// patiently makes a request, and again when a budget of calls has filled.
func (c *carrier) patiently(r *http.Request) (*http.Response, error) {
	patience := maxPatience
	for {
		attempt := r.Clone(r.Context())
		if c.token != "" {
			attempt.Header.Set("Authorization", "Bearer "+c.token)
		}
		if r.GetBody != nil {
			body, err := r.GetBody()
			if err != nil {
				return nil, fmt.Errorf("read a request again: %w", err)
			}
			attempt.Body = body
		}
		resp, err := c.next.RoundTrip(attempt)
		if err != nil {
			if notDialled(err) {
				return nil, &awayError{err}
			}
			return nil, err //nolint:wrapcheck // the client wraps it.
		}
		switch resp.StatusCode {
		case http.StatusTooManyRequests, http.StatusUnauthorized, http.StatusForbidden, http.StatusServiceUnavailable:
		default:
			return resp, nil
		}
		if err := resp.Body.Close(); err != nil {
			return nil, fmt.Errorf("close an answer: %w", err)
		}
		wait, err := strconv.Atoi(resp.Header.Get("Retry-After"))
		pause := time.Duration(wait) * time.Second
		if resp.StatusCode != http.StatusTooManyRequests || err != nil || pause <= 0 || pause > patience {
			return nil, &statusError{resp.StatusCode}
		}
		patience -= pause
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-r.Context().Done():
			timer.Stop()
			return nil, r.Context().Err()
		}
	}
}

// notDialled reports whether a request failed before a byte of it was sent.
func notDialled(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}
