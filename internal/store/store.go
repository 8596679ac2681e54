package store

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/ClickHouse/clickhouse-go/v2/lib/proto"
)

const (
	// DefaultDatabase is the database when neither [Options.Database] nor the URL's path names one.
	DefaultDatabase = "hindsight"
	// MinServerVersion is the oldest ClickHouse that the schema is written for.
	MinServerVersion = "25.3"

	defaultTimeout  = 2 * time.Minute
	defaultMaxConns = 8
	readyTimeout    = 10 * time.Second
	// dialTimeout bounds connecting and the handshake where the URL says nothing (dial_timeout).
	dialTimeout = 5 * time.Second
	productName = "hindsight"
)

var databaseName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)

// Options says which ClickHouse to use.
type Options struct {
	// URL is the server: `http://host:8123` and `https://host:8443` speak HTTP, `clickhouse://host:9000` and
	// `tcp://host:9000` the native protocol. User, password and database may be part of it. Several hosts may be
	// given, separated by commas.
	URL string
	// Database overrides the one in the URL. Default: [DefaultDatabase].
	Database string
	// Timeout bounds each request whose context has no earlier deadline. Default: 2 minutes.
	Timeout time.Duration
	// MaxConns is the largest number of connections. Default: 8.
	MaxConns int
}

// ClickHouse is the repository. Use [Open].
type ClickHouse struct {
	conn driver.Conn
	// admin has no database selected, so that it can connect before ours exists.
	admin    driver.Conn
	database string
	protocol clickhouse.Protocol
	// addresses are those of the URL; secure is what TLS is spoken with, nil without.
	addresses []string
	secure    *tls.Config
	timeout   time.Duration
	// maxRead is [maxReadBytes] but in tests.
	maxRead int
}

// Open checks the options and prepares connections. It does not connect: the server may come later; see
// [ClickHouse.WaitReady].
func Open(opts Options) (*ClickHouse, error) {
	parsed, err := parseURL(opts.URL)
	if err != nil {
		return nil, err
	}
	database := opts.Database
	if database == "" {
		database = parsed.Auth.Database
	}
	if database == "" {
		database = DefaultDatabase
	}
	if !databaseName.MatchString(database) {
		return nil, fmt.Errorf("%w: database %q: it must be 1 to 64 letters, digits and _, not beginning with a digit", ErrOptions, database)
	}
	if opts.Timeout < 0 || opts.MaxConns < 0 {
		return nil, fmt.Errorf("%w: timeout and number of connections must not be negative", ErrOptions)
	}
	c := &ClickHouse{database: database, protocol: parsed.Protocol, addresses: parsed.Addr, secure: parsed.TLS, timeout: opts.Timeout, maxRead: maxReadBytes}
	if c.timeout == 0 {
		c.timeout = defaultTimeout
	}
	maxConns := opts.MaxConns
	if maxConns == 0 {
		maxConns = defaultMaxConns
	}
	parsed.ClientInfo.Products = append(parsed.ClientInfo.Products, struct{ Name, Version string }{productName, ""})
	if parsed.Protocol == clickhouse.Native && parsed.Compression == nil {
		parsed.Compression = &clickhouse.Compression{Method: clickhouse.CompressionLZ4}
	}
	if c.conn, err = connect(parsed, database, maxConns); err != nil {
		return nil, err
	}
	if c.admin, err = connect(parsed, "", 2); err != nil {
		return nil, errors.Join(err, c.conn.Close())
	}
	return c, nil
}

func connect(parsed *clickhouse.Options, database string, maxConns int) (driver.Conn, error) {
	own := *parsed
	own.Auth.Database = database
	own.MaxOpenConns, own.MaxIdleConns = maxConns, maxConns
	if own.DialTimeout == 0 {
		own.DialTimeout = dialTimeout
	}
	conn, err := clickhouse.Open(&own)
	if err != nil {
		return nil, fmt.Errorf("%w: ClickHouse: %s", ErrOptions, err.Error())
	}
	return conn, nil
}

// parseURL reads the URL. Its errors never show the password.
func parseURL(raw string) (*clickhouse.Options, error) {
	if raw == "" {
		return nil, fmt.Errorf("%w: the URL of ClickHouse is missing, for example http://127.0.0.1:8123", ErrOptions)
	}
	scheme, rest, found := strings.Cut(raw, "://")
	if !found {
		return nil, fmt.Errorf("%w: the URL of ClickHouse has no scheme: it must begin with http://, https://, clickhouse:// or tcp://", ErrOptions)
	}
	switch scheme {
	case "http", "clickhouse", "tcp":
	case "https":
		// The driver wants to be told a second time that https is secure.
		if base, query, _ := strings.Cut(rest, "?"); !strings.Contains(query, "secure=") {
			raw = "https://" + base + "?" + strings.TrimPrefix(query+"&secure=true", "&")
		}
	default:
		return nil, fmt.Errorf("%w: the URL of ClickHouse begins with %q: it must begin with http://, https://, clickhouse:// or tcp://", ErrOptions, scheme)
	}
	parsed, err := clickhouse.ParseDSN(raw)
	if err != nil {
		if bad, is := errors.AsType[*url.Error](err); is {
			err = bad.Err // The rest of the text holds the URL.
		}
		return nil, fmt.Errorf("%w: the URL of ClickHouse cannot be read: %s", ErrOptions, err.Error())
	}
	for i, address := range parsed.Addr {
		if parsed.Addr[i], err = withPort(address, scheme, parsed.TLS != nil); err != nil {
			return nil, err
		}
	}
	return parsed, nil
}

// withPort adds the port that ClickHouse has for a scheme where an address names none.
func withPort(address, scheme string, secure bool) (string, error) {
	u, err := url.Parse("//" + address)
	if err != nil || u.Hostname() == "" {
		return "", fmt.Errorf("%w: the URL of ClickHouse has no host: want one such as http://127.0.0.1:8123", ErrOptions)
	}
	port := u.Port()
	switch native := scheme == "clickhouse" || scheme == "tcp"; {
	case port != "":
	case native && secure:
		port = "9440"
	case native:
		port = "9000"
	case secure:
		port = "8443"
	default:
		port = "8123"
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return "", fmt.Errorf("%w: the URL of ClickHouse has port %s: it must be from 1 to 65535", ErrOptions, port)
	}
	return net.JoinHostPort(u.Hostname(), port), nil
}

// Database is the name of the database in use.
func (c *ClickHouse) Database() string { return c.database }

// Close ends all connections. Running calls fail.
func (c *ClickHouse) Close() error {
	if err := errors.Join(c.conn.Close(), c.admin.Close()); err != nil {
		return fmt.Errorf("close ClickHouse connections: %s", err.Error())
	}
	return nil
}

// Ping asks the server to compute an aggregate, without any table of ours, and checks its version. The error is
// [ErrUnavailable], [ErrDenied] or [ErrVersion].
func (c *ClickHouse) Ping(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	var version string
	var sum uint64
	if err := c.admin.QueryRow(bounded, "SELECT version(), sum(number) FROM numbers(10)").Scan(&version, &sum); err != nil {
		return translate(ctx, "ask ClickHouse", err)
	}
	oldest := proto.ParseVersion(MinServerVersion + ".0") // The driver reads a version of two parts as 0.0.0.
	if have := proto.ParseVersion(version); !proto.CheckMinVersion(oldest, have) {
		return fmt.Errorf("%w: the server is ClickHouse %s, but %s or later is needed: upgrade it", ErrVersion, version, MinServerVersion)
	}
	return nil
}

// Ready checks that the server can aggregate over our tables and that their schema is the one this program knows. The
// error is [ErrUnavailable], [ErrDenied], [ErrVersion], [ErrSchemaOlder] or [ErrSchemaNewer].
func (c *ClickHouse) Ready(ctx context.Context) error {
	if err := c.Ping(ctx); err != nil {
		return err
	}
	if err := c.checkSchema(ctx); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	var kinds uint64
	err := c.conn.QueryRow(bounded, "SELECT uniqExact(kind) FROM trace_events WHERE recorded_at >= now64(3, 'UTC') - INTERVAL 1 MINUTE").Scan(&kinds)
	return translate(ctx, "aggregate over trace_events", err)
}

// WaitReady waits until [ClickHouse.Ping] succeeds: the server may start later than we do. It gives up when the context ends,
// or when no waiting helps: access is denied, the version is too old, or something else than ClickHouse answers
// ([ErrStranger]). It then returns the last error. failed, unless nil, is told each failure that is waited out, with its
// number from 1.
func (c *ClickHouse) WaitReady(ctx context.Context, failed func(attempt int, err error)) error {
	const first, longest = 50 * time.Millisecond, 5 * time.Second
	pause := first
	for attempt := 1; ; attempt++ {
		err := c.Ping(ctx)
		if err == nil || errors.Is(err, ErrDenied) || !errors.Is(err, ErrUnavailable) {
			return err
		}
		if why := c.stranger(ctx); why != nil {
			return why
		}
		if failed != nil {
			failed(attempt, err)
		}
		if waitErr := sleep(ctx, pause/2+rand.N(pause/2)); waitErr != nil { //nolint:gosec // Jitter needs no secrecy.
			return fmt.Errorf("%w (waiting for it: %w)", err, waitErr)
		}
		pause = min(2*pause, longest)
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// bound gives every request an end.
func (c *ClickHouse) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, c.timeout)
}
