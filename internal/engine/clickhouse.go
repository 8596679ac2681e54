package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// ClickHouseOptions configures [StartClickHouse].
type ClickHouseOptions struct {
	// DataDir holds the tables, in its clickhouse subdirectory. Required.
	DataDir string
	// Library is the path of libchdb.so. Default: FindChDB(os.Getenv).
	Library string
	// Port on 127.0.0.1; 0 picks a free one.
	Port int
	// Queries is how many statements may run at once. Default 4.
	Queries int
	// Queue is how many more may wait for a turn; the next is refused with
	// status 503 at once. Default 64.
	Queue int
	// QueueTimeout is how long a statement may wait for its turn before it is
	// refused with status 503. Default 30 s.
	QueueTimeout time.Duration
	// MaxMemory bounds all memory of the engine, in bytes. Default 2 GiB, at
	// most nine tenths of what the machine has.
	MaxMemory int64
	// MaxQueryMemory bounds one statement, in bytes. Default half of MaxMemory.
	MaxQueryMemory int64
	// MaxQueryText bounds the text of a statement without an INSERT's rows, in
	// bytes. Default 16 MiB.
	MaxQueryText int64
	// MaxBody bounds the rows of one INSERT, in bytes after decompression.
	// Default 1 GiB.
	MaxBody int64
	// Logger receives warnings and errors. Default: none.
	Logger *slog.Logger
}

func (o *ClickHouseOptions) setDefaults() error {
	if o.DataDir == "" {
		return errors.New("DataDir is empty")
	}
	if o.Port < 0 || o.Port > 65535 {
		return fmt.Errorf("port %d is out of range", o.Port)
	}
	dir, err := filepath.Abs(o.DataDir)
	if err != nil {
		return fmt.Errorf("resolve %s: %w", o.DataDir, err)
	}
	o.DataDir = dir
	if o.Library == "" {
		if o.Library, err = FindChDB(os.Getenv); err != nil {
			return err
		}
	}
	if o.Queries <= 0 {
		o.Queries = 4
	}
	if o.Queue <= 0 {
		o.Queue = 64
	}
	if o.QueueTimeout <= 0 {
		o.QueueTimeout = 30 * time.Second
	}
	if o.MaxMemory <= 0 {
		o.MaxMemory = 2 << 30
	}
	if o.MaxQueryMemory <= 0 {
		o.MaxQueryMemory = o.MaxMemory / 2
	}
	if o.MaxQueryText <= 0 {
		o.MaxQueryText = 16 << 20
	}
	if o.MaxBody <= 0 {
		o.MaxBody = 1 << 30
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// ErrAlreadyRunning says that this process runs a ClickHouse already: libchdb
// serves one directory at a time.
var ErrAlreadyRunning = errors.New("an embedded ClickHouse already runs in this process")

// running guards what libchdb can have only once in a process.
var running atomic.Bool

// ClickHouse is the embedded engine and its HTTP server.
type ClickHouse struct {
	options ClickHouseOptions
	lib     *chdbLibrary
	args    []string
	base    map[string]string

	idle    chan *session // sessions at rest; its capacity bounds concurrency
	waiting atomic.Int64
	control sync.Mutex // guards killer
	killer  *chdbConn  // kills queries; never runs a client's

	listener net.Listener
	server   *http.Server
	served   sync.WaitGroup
	handlers sync.WaitGroup
	stop     sync.Once
	stopping context.CancelFunc
	stopErr  error
}

// StartClickHouse opens the engine on DataDir/clickhouse and serves
// ClickHouse's HTTP protocol on the loopback interface. ctx bounds only the
// start. A process can have one at a time; see [ErrAlreadyRunning].
//
// The caller holds the data directory's lock; see [LockDataDir].
func StartClickHouse(ctx context.Context, options ClickHouseOptions) (_ *ClickHouse, err error) {
	if err := options.setDefaults(); err != nil {
		return nil, fmt.Errorf("start ClickHouse: %w", err)
	}
	if !running.CompareAndSwap(false, true) {
		return nil, ErrAlreadyRunning
	}
	ch := &ClickHouse{
		options: options,
		base:    baseSettings(options),
		idle:    make(chan *session, options.Queries),
	}
	defer func() {
		if err != nil {
			ch.closeSessions()
			running.Store(false)
		}
	}()
	dir := filepath.Join(options.DataDir, "clickhouse")
	if err := makeDir(dir); err != nil {
		return nil, fmt.Errorf("start ClickHouse: %w", err)
	}
	// The port first: a taken one is the commonest failure and costs nothing.
	var lc net.ListenConfig
	ch.listener, err = lc.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(options.Port)))
	if err != nil {
		return nil, portError(options.Port, "ClickHouse", "HINDSIGHT_CLICKHOUSE_PORT", err)
	}
	defer func() {
		if err != nil {
			_ = ch.listener.Close()
		}
	}()
	if err := writeConfig(dir, options); err != nil {
		return nil, fmt.Errorf("start ClickHouse: %w", err)
	}
	ch.args = []string{"--config-file=" + configFile(dir), "--progress=off", "--progress-table=off"}
	if ch.lib, err = openChDB(options.Library); err != nil {
		return nil, fmt.Errorf("start ClickHouse: %w", err)
	}
	if ch.killer, err = ch.lib.connect(ch.args); err != nil {
		return nil, fmt.Errorf("start ClickHouse on %s: %w", dir, err)
	}
	for range options.Queries {
		s, err := ch.newSession()
		if err != nil {
			return nil, fmt.Errorf("start ClickHouse on %s: %w", dir, err)
		}
		ch.idle <- s
	}
	serving, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ch.stopping = cancel
	ch.server = &http.Server{
		Handler:           http.HandlerFunc(ch.serve),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    1 << 20,
		BaseContext:       func(net.Listener) context.Context { return serving },
		ErrorLog:          slog.NewLogLogger(options.Logger.Handler(), slog.LevelWarn),
	}
	ch.served.Go(func() {
		if err := ch.server.Serve(ch.listener); !errors.Is(err, http.ErrServerClosed) {
			options.Logger.Error("clickhouse http server ended", "error", err)
		}
	})
	return ch, nil
}

// URL is the address of the HTTP server, "http://127.0.0.1:PORT".
func (ch *ClickHouse) URL() string { return "http://" + ch.listener.Addr().String() }

// newSession opens a connection with the base settings. libchdb gives its
// connections the database "default", in which table names are file names.
func (ch *ClickHouse) newSession() (*session, error) {
	conn, err := ch.lib.connect(ch.args)
	if err != nil {
		return nil, err
	}
	s := &session{conn: conn, database: "default"}
	if err := s.use(ch.base, nil); err != nil {
		conn.close()
		return nil, fmt.Errorf("apply base settings: %w", err)
	}
	s.settings = nil
	return s, nil
}

// errBusy says that too many statements wait or that one waited too long.
var errBusy = errors.New("too many simultaneous queries")

// acquire waits for a free session. It fails with errBusy or ctx's error.
func (ch *ClickHouse) acquire(ctx context.Context) (*session, error) {
	select {
	case s := <-ch.idle:
		return s, nil
	default:
	}
	if ch.waiting.Add(1) > int64(ch.options.Queue) {
		ch.waiting.Add(-1)
		return nil, errBusy
	}
	defer ch.waiting.Add(-1)
	timer := time.NewTimer(ch.options.QueueTimeout)
	defer timer.Stop()
	select {
	case s := <-ch.idle:
		return s, nil
	case <-timer.C:
		return nil, errBusy
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// release gives a session back, or a new one in its place.
func (ch *ClickHouse) release(s *session) {
	if s.spoilt {
		fresh, err := ch.newSession()
		if err != nil {
			// Keep the place: a pool that shrinks would end in silence.
			ch.options.Logger.Error("replace clickhouse connection", "error", err)
		} else {
			s.conn.close()
			s = fresh
		}
	}
	ch.idle <- s
}

// kill ends the running statement that was tagged with id, if any.
func (ch *ClickHouse) kill(id string) {
	ch.control.Lock()
	defer ch.control.Unlock()
	if ch.killer == nil {
		return
	}
	r, err := ch.killer.query("KILL QUERY WHERE endsWith(query, "+quoteString(queryTag(id))+") ASYNC", "Null", nil)
	if err != nil {
		ch.options.Logger.Warn("kill query", "error", err)
		return
	}
	r.close()
}

// queryTag is a comment at the end of each statement, by which it is found
// among the running ones: libchdb takes no query id.
func queryTag(id string) string { return "\n/* hindsight:" + id + " */" }

// Stop ends the server: no new statement is taken, those running have until
// ctx ends and are killed then. It returns once the engine is closed, and is
// idempotent. What was acknowledged is stored.
func (ch *ClickHouse) Stop(ctx context.Context) error {
	ch.stop.Do(func() {
		err := ch.server.Shutdown(ctx)
		ch.stopping() // ends the statements that are left
		if err != nil {
			err = fmt.Errorf("stop ClickHouse: statements were killed: %w", err)
			_ = ch.server.Close()
		}
		ch.served.Wait()
		ch.handlers.Wait()
		ch.closeSessions()
		running.Store(false)
		ch.stopErr = err
	})
	return ch.stopErr
}

// closeSessions closes what is open. The engine ends with its last connection.
func (ch *ClickHouse) closeSessions() {
	for {
		select {
		case s := <-ch.idle:
			s.conn.close()
			continue
		default:
		}
		break
	}
	ch.control.Lock()
	defer ch.control.Unlock()
	if ch.killer != nil {
		ch.killer.close()
		ch.killer = nil
	}
}

// baseSettings are in force unless a request says otherwise.
func baseSettings(o ClickHouseOptions) map[string]string {
	return map[string]string{
		"max_memory_usage": strconv.FormatInt(o.MaxQueryMemory, 10),
		"session_timezone": "UTC",
		"max_threads":      "2",
		// The writers batch; waiting for a second batch only adds delay.
		"async_insert":               "0",
		"max_insert_threads":         "1",
		"max_final_threads":          "2",
		"max_download_threads":       "1",
		"max_parsing_threads":        "1",
		"implicit_select":            "0",
		"send_logs_level":            "none",
		"output_format_parallel_formatting": "0",
	}
}

// merged is base overridden by changes.
func merged(base, changes map[string]string) map[string]string {
	m := maps.Clone(base)
	maps.Copy(m, changes)
	return m
}
