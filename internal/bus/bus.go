package bus

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hindsight-memory/hindsight/internal/stranger"
)

const (
	dialTimeout  = 2 * time.Second
	closeTimeout = 5 * time.Second
	// pingInterval and two missing answers bound how long a dead connection
	// goes unnoticed.
	pingInterval = 10 * time.Second
	// requestTimeout bounds a request to the server whose context has no
	// deadline of its own.
	requestTimeout = 5 * time.Second
	// retryLow and retryHigh bound the waits between attempts to reach the
	// server.
	retryLow  = 100 * time.Millisecond
	retryHigh = 5 * time.Second
	// roomShare of a stream must be free for it to count as having room: a
	// full stream refuses what does not fit, so it is never full to the byte.
	roomShare = 100
	// probeKey is what Ready writes in the bucket of states.
	probeKey = "probe"
	// MinServerVersion is the oldest NATS server that Hindsight runs with.
	MinServerVersion = "2.10.0"
)

// Options configures [Connect].
type Options struct {
	// URL of the server or, separated by commas, of several of a cluster.
	// Default nats.DefaultURL.
	URL string
	// Name shows up in the server's list of connections. Default "hindsight".
	Name string
	// Logger receives what no caller can be told: lost connections, retries.
	// Default: none.
	Logger *slog.Logger
	// Waiting, when set, is told why the server is waited for, each time it
	// was tried in vain.
	Waiting func(why error)
	// NATSOptions are applied last: credentials, TLS, an in-process server.
	NATSOptions []nats.Option
}

// Conn is a connection to NATS. It reconnects by itself, for ever.
type Conn struct {
	nc      *nats.Conn
	js      jetstream.JetStream
	log     *slog.Logger
	waiting func(why error)

	mu   sync.Mutex
	open map[string]jetstream.KeyValue // by bucket; guarded by mu
}

// CheckURL says what is wrong with a URL, or a list of them, as an [ErrAddress]
// that shows no password.
func CheckURL(list string) error {
	for part := range strings.SplitSeq(list, ",") {
		part = strings.TrimSpace(part)
		if !strings.Contains(part, "://") {
			part = "nats://" + part
		}
		u, err := url.Parse(part)
		if parse := (*url.Error)(nil); errors.As(err, &parse) { // its text may hold a password
			return fmt.Errorf("%w (want nats://host:port): %w", ErrAddress, parse.Err)
		}
		if !slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme) {
			return fmt.Errorf("%w: it begins with %s://, but must begin with nats://, tls://, ws:// or wss://", ErrAddress, u.Scheme)
		}
		if host := u.Hostname(); host == "" || strings.Contains(host, ":") && !strings.HasPrefix(u.Host, "[") {
			return fmt.Errorf("%w: it has no host (want nats://host:port)", ErrAddress)
		}
		if port := u.Port(); port != "" {
			if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
				return fmt.Errorf("%w: it has port %s, which must be from 1 to 65535", ErrAddress, port)
			}
		}
	}
	return nil
}

// Connect connects to NATS. While no server answers it tries again, with a log
// line each time, until ctx ends; the error is [ErrUnavailable] then. What time
// does not heal is returned at once: [ErrAddress], [ErrStranger] when something
// else than NATS answers there, [ErrDenied], and [ErrVersion].
func Connect(ctx context.Context, o Options) (*Conn, error) {
	if o.URL == "" {
		o.URL = nats.DefaultURL
	}
	if o.Name == "" {
		o.Name = "hindsight"
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Waiting == nil {
		o.Waiting = func(error) {}
	}
	if err := CheckURL(o.URL); err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	address := redact(o.URL)
	dial := &dialer{}
	opts := append([]nats.Option{
		nats.Name(o.Name),
		nats.SetCustomDialer(dial),
		nats.Timeout(dialTimeout),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(250 * time.Millisecond),
		nats.ReconnectJitter(250*time.Millisecond, time.Second),
		nats.DrainTimeout(closeTimeout),
		nats.PingInterval(pingInterval),
		nats.IgnoreAuthErrorAbort(), // credentials are changed on running clusters, too
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil { // nil when we close it ourselves
				o.Logger.Warn("lost connection to NATS", "url", address, "error", err)
			}
		}),
		nats.ReconnectHandler(func(*nats.Conn) { o.Logger.Info("reconnected to NATS", "url", address) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			o.Logger.Warn("NATS reported an error", "url", address, "error", err)
		}),
	}, o.NATSOptions...)
	for attempt := 1; ; attempt++ {
		nc, err := nats.Connect(o.URL, opts...)
		if err == nil {
			return open(nc, address, o)
		}
		if failed := dial.err.Load(); failed != nil && errors.Is(err, nats.ErrNoServers) {
			err = fmt.Errorf("%w: %w", err, *failed)
		}
		if why := refusal(ctx, o.URL, err); why != nil {
			return nil, fmt.Errorf("connect to NATS at %s: %w", address, why)
		}
		wait := delay(attempt, retryLow, retryHigh)
		o.Waiting(err)
		o.Logger.Warn("NATS does not answer yet", "url", address, "error", err, "retry_in", wait)
		if !pause(ctx, wait) {
			return nil, fmt.Errorf("%w at %s (is the server running, and is the address right?): %w; last error: %w",
				ErrUnavailable, address, context.Cause(ctx), err)
		}
	}
}

// dialer keeps why a server could not be reached, of which nats.go says only that there is none when it was refused.
type dialer struct{ err atomic.Pointer[error] }

// Dial implements nats.CustomDialer.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(context.Background(), network, address)
	if err != nil {
		d.err.Store(&err)
	}
	return conn, err //nolint:wrapcheck // nats.go looks at it.
}

// open makes a connection ours, if the server can serve us.
func open(nc *nats.Conn, address string, o Options) (*Conn, error) {
	if version := nc.ConnectedServerVersion(); older(version, MinServerVersion) {
		nc.Close()
		return nil, fmt.Errorf("%w: the server at %s is NATS %s, but %s or later is needed: upgrade it", ErrVersion, address, version, MinServerVersion)
	}
	js, err := jetstream.New(nc,
		jetstream.WithDefaultTimeout(requestTimeout),
		// PublishAll bounds what is pending; nats.go's own bound
		// would make one caller fail because of another.
		jetstream.WithPublishAsyncMaxPending(1<<20),
		jetstream.WithPublishAsyncTimeout(2*requestTimeout))
	if err != nil {
		nc.Close()
		return nil, fmt.Errorf("open JetStream on %s: %w", address, err)
	}
	return &Conn{nc: nc, js: js, log: o.Logger, waiting: o.Waiting, open: make(map[string]jetstream.KeyValue)}, nil
}

// older reports whether a version such as 2.10.7-beta.1 is before another. What
// is no version is not: a server of one's own making is not refused for that.
func older(version, than string) bool {
	var have, want [3]int
	if n, err := fmt.Sscanf(version, "%d.%d.%d", &have[0], &have[1], &have[2]); n < 3 || err != nil {
		return false
	}
	if _, err := fmt.Sscanf(than, "%d.%d.%d", &want[0], &want[1], &want[2]); err != nil {
		return false
	}
	return slices.Compare(have[:], want[:]) < 0
}

// refusal says why connecting again cannot help; nil when it may.
func refusal(ctx context.Context, list string, err error) error {
	for _, denied := range []error{nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired, nats.ErrNkeysNotSupported} {
		if errors.Is(err, denied) {
			return fmt.Errorf("%w: check user and password, or the token, in HINDSIGHT_NATS_URL: %w", ErrDenied, err)
		}
	}
	for _, mismatch := range []error{nats.ErrSecureConnRequired, nats.ErrSecureConnWanted} {
		if errors.Is(err, mismatch) {
			return fmt.Errorf("%w: the server and HINDSIGHT_NATS_URL disagree about TLS: begin it with tls:// or nats:// as the server does: %w", ErrAddress, err)
		}
	}
	if invalid := (*tls.CertificateVerificationError)(nil); errors.As(err, &invalid) {
		return fmt.Errorf("%w: the server's certificate is not valid for HINDSIGHT_NATS_URL: %w", ErrAddress, err)
	}
	// One of several may be away while another is none.
	for part := range strings.SplitSeq(list, ",") {
		address, plain := hostPort(part)
		if !plain {
			continue
		}
		switch answer := stranger.At(ctx, address); answer.Kind {
		case stranger.Unknown, stranger.NATS:
		default:
			return fmt.Errorf("%w: at %s answers %s: HINDSIGHT_NATS_URL names another host or port than that of NATS for clients, 4222 where nothing else was set: %w",
				ErrStranger, address, answer.Words, err)
		}
	}
	return nil
}

// hostPort takes the address out of one URL, and says whether NATS is spoken
// there as it is, and not inside TLS or a WebSocket.
func hostPort(raw string) (address string, plain bool) {
	raw = strings.TrimSpace(raw)
	if !strings.Contains(raw, "://") {
		raw = "nats://" + raw
	}
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "nats" {
		return "", false
	}
	return net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), strconv.Itoa(nats.DefaultPort))), true
}

// redact takes user, password and token out of a list of URLs.
func redact(list string) string {
	parts := strings.Split(list, ",")
	for i, part := range parts {
		part = strings.TrimSpace(part)
		scheme, rest, found := strings.Cut(part, "://")
		if !found {
			scheme, rest = "nats", part
		}
		if at := strings.LastIndex(rest, "@"); at >= 0 {
			rest = rest[at+1:]
		}
		parts[i] = scheme + "://" + rest
	}
	return strings.Join(parts, ",")
}

// Close sends what is buffered and closes the connection, within 5 s. Stop
// workers and leases first: they need the connection to hand back what they
// hold.
func (c *Conn) Close() {
	closed := c.nc.StatusChanged(nats.CLOSED)
	defer c.nc.RemoveStatusListener(closed)
	if err := c.nc.Drain(); err == nil {
		timer := time.NewTimer(closeTimeout)
		defer timer.Stop()
		select {
		case <-closed:
		case <-timer.C:
		}
	}
	c.nc.Close()
}

// Ready verifies that what is published now would be taken: the stream TRACES
// exists and has room, and the bucket of states can be written. Errors:
// [ErrUnavailable], [ErrFull], [ErrNotFound].
func (c *Conn) Ready(ctx context.Context) error {
	ctx, cancel := bound(ctx)
	defer cancel()
	stream, err := c.js.Stream(ctx, StreamTraces)
	if err != nil {
		return fmt.Errorf("look at stream %s: %w", StreamTraces, translate(err))
	}
	info := stream.CachedInfo()
	limit := info.Config.MaxBytes                                      // -1: none
	if limit > 0 && uint64(limit-limit/roomShare) < info.State.Bytes { //nolint:gosec // a positive number, less a share of it
		return fmt.Errorf("stream %s holds %d of its %d bytes, and publishers wait until the ingestor has stored some (or raise HINDSIGHT_TRACES_MAX_BYTES): %w",
			StreamTraces, info.State.Bytes, limit, ErrFull)
	}
	return c.put(ctx, bucketState, probeKey, nil)
}

// bound gives ctx a deadline unless it has one.
func bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, requestTimeout)
}

// flush waits until the server has read all that was sent to it, so that acks
// are not lost when the process ends. A lost ack only means a redelivery, so
// the failure is not worth more than a log line.
func (c *Conn) flush(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if err := c.nc.FlushWithContext(ctx); err != nil {
		c.log.Warn("some acknowledgements may be lost; their messages will be delivered again", "error", err)
	}
}
