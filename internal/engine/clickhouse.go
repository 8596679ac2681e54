package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// ClickHouseOptions configures [StartClickHouse].
type ClickHouseOptions struct {
	// DataDir holds the tables, in its clickhouse subdirectory. Required.
	DataDir string
	// Library is the path of libchdb.so; see [FindChDB]. Required.
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
	// MaxExecutionTime bounds one statement, in whole seconds, unless the
	// request sets max_execution_time. Default 10 min.
	MaxExecutionTime time.Duration
	// MaxMemory bounds all memory of the engine, in bytes. Default 2 GiB; the
	// engine lowers it to nine tenths of what the machine has.
	MaxMemory int64
	// MaxQueryMemory bounds one statement, in bytes. Default half of MaxMemory.
	MaxQueryMemory int64
	// MaxQueryText bounds the text of a statement without an INSERT's rows, in
	// bytes. Default 16 MiB.
	MaxQueryText int64
	// MaxBody bounds the rows of one INSERT, in bytes after decompression.
	// Default 1 GiB.
	MaxBody int64
	// MaxResult bounds a result in a format that cannot be streamed (JSON,
	// Parquet, all with a header or an end), in bytes of the engine's columns,
	// unless the request sets max_result_bytes. Default 256 MiB. Native,
	// RowBinary, JSONEachRow, TSV and CSV are streamed and have no bound.
	MaxResult int64
	// Logger receives warnings and errors. Default: none.
	Logger *slog.Logger
}

func (o *ClickHouseOptions) setDefaults() error {
	switch {
	case o.DataDir == "":
		return errors.New("no DataDir is given")
	case o.Library == "":
		return errors.New("no Library is given")
	case o.Port < 0 || o.Port > 65535:
		return fmt.Errorf("port %d is out of range", o.Port)
	}
	dir, err := filepath.Abs(o.DataDir)
	if err != nil {
		return fmt.Errorf("resolve %s: %w", o.DataDir, err)
	}
	o.DataDir = dir
	o.Queries = orDefault(o.Queries, 4)
	o.Queue = orDefault(o.Queue, 64)
	o.QueueTimeout = orDefault(o.QueueTimeout, 30*time.Second)
	o.MaxExecutionTime = orDefault(o.MaxExecutionTime, 10*time.Minute)
	o.MaxMemory = orDefault(o.MaxMemory, 2<<30)
	o.MaxQueryMemory = orDefault(o.MaxQueryMemory, o.MaxMemory/2)
	o.MaxQueryText = orDefault(o.MaxQueryText, 16<<20)
	o.MaxBody = orDefault(o.MaxBody, 1<<30)
	o.MaxResult = orDefault(o.MaxResult, 256<<20)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// orDefault returns value, or byDefault where value was left out.
func orDefault[T int | int64 | time.Duration](value, byDefault T) T {
	if value <= 0 {
		return byDefault
	}
	return value
}

// ErrAlreadyRunning says that this process runs a ClickHouse already: libchdb
// serves one directory at a time.
var ErrAlreadyRunning = errors.New("an embedded ClickHouse already runs in this process")

// running guards what libchdb can have only once in a process.
var running atomic.Bool

// ClickHouse is the embedded engine and its HTTP server.
type ClickHouse struct {
	options ClickHouseOptions
	layout  layout
	lib     *chdbLibrary
	args    []string
	version string

	idle    chan *session // sessions at rest; its capacity bounds concurrency
	waiting atomic.Int64
	control sync.Mutex // guards killer
	killer  *chdbConn  // kills queries; never runs a client's

	listener net.Listener
	server   *http.Server
	served   sync.WaitGroup
	kill     context.CancelFunc // ends the statements that run

	gate     sync.Mutex // guards closed and handlers.Add
	closed   bool
	handlers sync.WaitGroup

	stop    sync.Once
	stopErr error
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
		layout:  layout{filepath.Join(options.DataDir, "clickhouse")},
		idle:    make(chan *session, options.Queries),
	}
	defer func() {
		if err != nil {
			ch.closeSessions()
			running.Store(false)
		}
	}()
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
	if err := ch.open(); err != nil {
		return nil, fmt.Errorf("start ClickHouse: %w", err)
	}
	serving, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ch.kill = cancel
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

// open starts the engine and its connections.
func (ch *ClickHouse) open() error {
	for _, dir := range []string{ch.layout.dir, ch.layout.data(), ch.layout.userFiles()} {
		if err := makeDir(dir); err != nil {
			return err
		}
	}
	if err := prepareDefault(ch.layout); err != nil {
		return err
	}
	if err := writeConfig(ch.layout, ch.options, false); err != nil {
		return err
	}
	ch.args = []string{"--config-file=" + ch.layout.config(), "--progress=off", "--progress-table=off"}
	var err error
	if ch.lib, err = openChDB(ch.options.Library); err != nil {
		return err
	}
	if ch.killer, err = ch.lib.connect(ch.args); err != nil {
		return ch.whyNotOpen(err)
	}
	// It answers before the first session exists, so nothing was read by it.
	detach, err := ch.killer.query("DETACH DATABASE IF EXISTS "+overlayDatabase, "Null", nil)
	if err != nil {
		return err
	}
	detach.close()
	version, err := ch.killer.query("SELECT version()", "TabSeparated", nil)
	if err != nil {
		return err
	}
	ch.version = strings.TrimSpace(string(version.bytes()))
	version.close()
	for range ch.options.Queries {
		s, err := ch.newSession()
		if err != nil {
			return fmt.Errorf("open connection: %w", err)
		}
		ch.idle <- s
	}
	return nil
}

// whyNotOpen tries again with a log, because the library's interface tells no
// reason, and returns what the log says.
func (ch *ClickHouse) whyNotOpen(err error) error {
	_ = os.Remove(ch.layout.startLog())
	if writeConfig(ch.layout, ch.options, true) != nil {
		return err
	}
	conn, again := ch.lib.connect(append(ch.args, "--log-level=error"))
	if again == nil {
		conn.close()
	}
	text, readErr := os.ReadFile(ch.layout.startLog())
	if readErr != nil || len(text) == 0 {
		return fmt.Errorf("open %s: %w (the engine may have written the reason to standard error)", ch.layout.dir, err)
	}
	const most = 2000
	text = text[max(0, len(text)-most):]
	return fmt.Errorf("open %s: %w; the engine says: %s", ch.layout.dir, err, strings.TrimSpace(string(text)))
}

// URL is the address of the HTTP server, "http://127.0.0.1:PORT".
func (ch *ClickHouse) URL() string { return "http://" + ch.listener.Addr().String() }

// Version is ClickHouse's own, like "26.7.2.1".
func (ch *ClickHouse) Version() string { return ch.version }

// UserFiles is the directory that file() of a statement reaches. Relative
// paths begin there, as on a server.
func (ch *ClickHouse) UserFiles() string { return ch.layout.userFiles() }

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

// killStatement ends the running statement that was tagged with id, if any.
func (ch *ClickHouse) killStatement(id string) {
	ch.control.Lock()
	defer ch.control.Unlock()
	if ch.killer == nil {
		return
	}
	r, err := ch.killer.query("KILL QUERY WHERE position(query, "+quoteString(queryTag(id))+") > 0 ASYNC", "Null", nil)
	if err != nil {
		ch.options.Logger.Warn("kill clickhouse query", "error", err)
		return
	}
	r.close()
}

// queryTag is a comment in each statement, by which it is found among the
// running ones: libchdb takes no query id.
func queryTag(id string) string { return "\n/* hindsight:" + id + " */" }

// enter counts a request, unless the server ends.
func (ch *ClickHouse) enter() bool {
	ch.gate.Lock()
	defer ch.gate.Unlock()
	if ch.closed {
		return false
	}
	ch.handlers.Add(1)
	return true
}

// killGrace is how long a killed statement may take to end.
const killGrace = 15 * time.Second

// Stop ends the server: no new statement is taken, those running have until
// ctx ends and are killed then. It returns once the engine is closed, and is
// idempotent. What was acknowledged is stored.
func (ch *ClickHouse) Stop(ctx context.Context) error {
	ch.stop.Do(func() { ch.stopErr = ch.end(ctx) })
	return ch.stopErr
}

func (ch *ClickHouse) end(ctx context.Context) error {
	err := ch.server.Shutdown(ctx)
	ch.gate.Lock()
	ch.closed = true
	ch.gate.Unlock()
	ch.kill()
	if err != nil {
		err = fmt.Errorf("stop ClickHouse: statements were killed: %w", err)
		_ = ch.server.Close()
	}
	ch.served.Wait()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ch.handlers.Wait()
	}()
	timer := time.NewTimer(killGrace)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
		// Closing a connection under a running statement would crash.
		return errors.Join(err, fmt.Errorf("stop ClickHouse: a statement did not end within %s of being killed; the engine stays open until the process ends", killGrace))
	}
	ch.closeSessions()
	running.Store(false)
	return err
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
