//nolint:gosec // calling C is what this file is for: each pointer is kept alive over its call, and the sizes are small.
package engine

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"github.com/ebitengine/purego"
)

// errConnect is returned when libchdb refuses a connection. The library gives
// no reason through its interface; it prints one on standard error at most.
var errConnect = errors.New("libchdb refused the connection")

// chdbLibrary is libchdb.so opened in this process, with the functions of its
// C interface that this package uses. The names are those of chdb.h.
//
// Strings go in as pointer and length: a query or a row may hold zero bytes.
type chdbLibrary struct {
	handle  uintptr
	signals *signalGuard

	connectConn func(argc int32, argv unsafe.Pointer) uintptr
	closeConn   func(conn uintptr)
	disableSigs func(enabled int32)
	classify    func(conn uintptr, sql unsafe.Pointer, sqlLen uintptr, db unsafe.Pointer, dbLen uintptr, out unsafe.Pointer) int32

	query       func(conn uintptr, query unsafe.Pointer, queryLen uintptr, format unsafe.Pointer, formatLen uintptr, names, nameLens, values, valueLens unsafe.Pointer, count uintptr) uintptr
	streamQuery func(conn uintptr, query unsafe.Pointer, queryLen uintptr, format unsafe.Pointer, formatLen uintptr, names, nameLens, values, valueLens unsafe.Pointer, count uintptr) uintptr
	streamFetch func(conn, result uintptr) uintptr
	streamStop  func(conn, result uintptr)
	destroy     func(result uintptr)

	insert        func(conn uintptr, query unsafe.Pointer, queryLen uintptr, format unsafe.Pointer, formatLen uintptr, names, nameLens, values, valueLens unsafe.Pointer, count uintptr) uintptr
	insertAppend  func(stream uintptr, data unsafe.Pointer, length uintptr) int32
	insertDone    func(stream uintptr) uintptr
	insertError   func(stream uintptr) uintptr
	insertDestroy func(stream uintptr)

	resultBuffer       func(result uintptr) uintptr
	resultLength       func(result uintptr) uintptr
	resultError        func(result uintptr) uintptr
	resultRows         func(result uintptr) uint64
	resultBytes        func(result uintptr) uint64
	resultStorageRows  func(result uintptr) uint64
	resultStorageBytes func(result uintptr) uint64
	resultRowsWritten  func(result uintptr) uint64
	resultBytesWritten func(result uintptr) uint64
}

// openChDB loads the library at path and turns its signal handlers off.
// Loading the same file again is cheap: the loader keeps one copy a process.
func openChDB(path string) (*chdbLibrary, error) {
	c, err := openLibc()
	if err != nil {
		return nil, err
	}
	// The engine takes its time zone from C's environment, which is not Go's.
	if c.setenv("TZ", "UTC", 1) != 0 {
		return nil, errors.New("set the time zone of the C library")
	}
	handle, err := purego.Dlopen(path, purego.RTLD_LAZY|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", path, err)
	}
	lib := &chdbLibrary{handle: handle, signals: &signalGuard{libc: c}}
	for _, f := range []struct {
		target any
		name   string
	}{
		{&lib.connectConn, "chdb_connect"},
		{&lib.closeConn, "chdb_close_conn"},
		{&lib.disableSigs, "chdb_set_signal_handlers_enabled"},
		{&lib.classify, "chdb_classify_query_n"},
		{&lib.query, "chdb_query_with_params_n"},
		{&lib.streamQuery, "chdb_stream_query_with_params_n"},
		{&lib.streamFetch, "chdb_stream_fetch_result"},
		{&lib.streamStop, "chdb_stream_cancel_query"},
		{&lib.destroy, "chdb_destroy_query_result"},
		{&lib.insert, "chdb_stream_insert_with_params_n"},
		{&lib.insertAppend, "chdb_stream_append"},
		{&lib.insertDone, "chdb_stream_done"},
		{&lib.insertError, "chdb_stream_insert_error"},
		{&lib.insertDestroy, "chdb_destroy_insert_stream"},
		{&lib.resultBuffer, "chdb_result_buffer"},
		{&lib.resultLength, "chdb_result_length"},
		{&lib.resultError, "chdb_result_error"},
		{&lib.resultRows, "chdb_result_rows_read"},
		{&lib.resultBytes, "chdb_result_bytes_read"},
		{&lib.resultStorageRows, "chdb_result_storage_rows_read"},
		{&lib.resultStorageBytes, "chdb_result_storage_bytes_read"},
		{&lib.resultRowsWritten, "chdb_result_rows_written"},
		{&lib.resultBytesWritten, "chdb_result_bytes_written"},
	} {
		symbol, err := purego.Dlsym(handle, f.name)
		if err != nil {
			return nil, fmt.Errorf("%s has no function %s; it is too old or not libchdb: %w", path, f.name, err)
		}
		purego.RegisterFunc(f.target, symbol)
	}
	lib.signals.keep(func() { lib.disableSigs(0) })
	return lib, nil
}

// connect opens a connection to the engine, which the first one starts.
// arguments are those of clickhouse-local (--path=… and so on).
func (l *chdbLibrary) connect(arguments []string) (*chdbConn, error) {
	argv := make([]*byte, 0, len(arguments)+2)
	for _, a := range append([]string{"clickhouse"}, arguments...) {
		b := append([]byte(a), 0)
		argv = append(argv, &b[0])
	}
	argv = append(argv, nil)
	var handle uintptr
	l.signals.keep(func() {
		handle = l.connectConn(int32(len(argv)-1), unsafe.Pointer(&argv[0]))
	})
	runtime.KeepAlive(argv)
	if handle == 0 {
		return nil, errConnect
	}
	return &chdbConn{lib: l, handle: handle}, nil
}

// chdbConn is one connection: one statement at a time, with its own settings
// and current database. It is not safe for concurrent use.
type chdbConn struct {
	lib    *chdbLibrary
	handle uintptr // chdb_connection *
}

// conn is the chdb_connection value that the functions take: the handle is a
// pointer to it.
func (c *chdbConn) conn() uintptr { return *(*uintptr)(foreign(c.handle)) }

func (c *chdbConn) close() {
	if c.handle != 0 {
		c.lib.closeConn(c.handle)
		c.handle = 0
	}
}

// param is one {name:Type} value, in the escaped text form of ClickHouse's
// HTTP interface (tab-separated rules).
type param struct{ name, value string }

type paramArrays struct {
	names, values       []*byte
	nameLens, valueLens []uintptr
}

func newParamArrays(params []param) paramArrays {
	var a paramArrays
	for _, p := range params {
		n, v := append([]byte(p.name), 0), append([]byte(p.value), 0)
		a.names, a.values = append(a.names, &n[0]), append(a.values, &v[0])
		a.nameLens, a.valueLens = append(a.nameLens, uintptr(len(p.name))), append(a.valueLens, uintptr(len(p.value)))
	}
	return a
}

type statementFunc func(conn uintptr, query unsafe.Pointer, queryLen uintptr, format unsafe.Pointer, formatLen uintptr, names, nameLens, values, valueLens unsafe.Pointer, count uintptr) uintptr

func (c *chdbConn) call(f statementFunc, query, format string, params []param) uintptr {
	q, fm := append([]byte(query), 0), append([]byte(format), 0)
	a := newParamArrays(params)
	var names, nameLens, values, valueLens unsafe.Pointer
	if len(params) > 0 {
		names, nameLens = unsafe.Pointer(&a.names[0]), unsafe.Pointer(&a.nameLens[0])
		values, valueLens = unsafe.Pointer(&a.values[0]), unsafe.Pointer(&a.valueLens[0])
	}
	r := f(c.conn(), unsafe.Pointer(&q[0]), uintptr(len(query)), unsafe.Pointer(&fm[0]), uintptr(len(format)),
		names, nameLens, values, valueLens, uintptr(len(params)))
	runtime.KeepAlive(q)
	runtime.KeepAlive(fm)
	runtime.KeepAlive(a)
	return r
}

// query runs a statement and returns its whole result, to be closed.
func (c *chdbConn) query(query, format string, params []param) (*chdbResult, error) {
	return c.result(c.call(c.lib.query, query, format, params))
}

func (c *chdbConn) result(handle uintptr) (*chdbResult, error) {
	if handle == 0 {
		return nil, errors.New("libchdb returned no result")
	}
	r := &chdbResult{lib: c.lib, handle: handle}
	if message := cString(c.lib.resultError(handle)); message != "" {
		r.close()
		return nil, newException(message)
	}
	return r, nil
}

// queryClass says what a statement does, as chdb_classify_query_n sees it.
type queryClass uint32

const (
	classReadOnly queryClass = iota
	classMutating
	classMutatingGlobal
	classControl
	classUnknown
)

// classifyStatement parses sql without running it, and returns the number of
// statements and the class; classUnknown when it does not parse.
func (c *chdbConn) classifyStatement(sql string) (statements int, class queryClass) {
	var report struct{ size, count, flags, class uint32 }
	report.size = uint32(unsafe.Sizeof(report))
	q := append([]byte(sql), 0)
	if c.lib.classify(c.conn(), unsafe.Pointer(&q[0]), uintptr(len(sql)), nil, 0, unsafe.Pointer(&report)) != 0 {
		return 0, classUnknown
	}
	runtime.KeepAlive(q)
	return int(report.count), queryClass(report.class)
}

// chdbResult is one materialised result or one chunk of a streamed one.
type chdbResult struct {
	lib    *chdbLibrary
	handle uintptr
}

// bytes is the formatted result; it is valid until close.
func (r *chdbResult) bytes() []byte {
	p, n := r.lib.resultBuffer(r.handle), r.lib.resultLength(r.handle)
	if p == 0 || n == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(foreign(p)), int(n))
}

func (r *chdbResult) close() {
	if r.handle != 0 {
		r.lib.destroy(r.handle)
		r.handle = 0
	}
}

// stream starts a SELECT whose result is fetched in chunks. The returned
// stream must be closed.
func (c *chdbConn) stream(query, format string, params []param) (*chdbStream, error) {
	r, err := c.result(c.call(c.lib.streamQuery, query, format, params))
	if err != nil {
		return nil, err
	}
	return &chdbStream{conn: c, result: r}, nil
}

type chdbStream struct {
	conn   *chdbConn
	result *chdbResult
	ended  bool
}

// next returns the next chunk, to be closed, or nil at the end.
func (s *chdbStream) next() (*chdbResult, error) {
	r, err := s.conn.result(s.conn.lib.streamFetch(s.conn.conn(), s.result.handle))
	if err != nil {
		s.ended = true
		return nil, err
	}
	if len(r.bytes()) == 0 {
		r.close()
		s.ended = true
		return nil, nil //nolint:nilnil // the end of a stream is neither a chunk nor an error.
	}
	return r, nil
}

func (s *chdbStream) close() {
	if !s.ended {
		s.conn.lib.streamStop(s.conn.conn(), s.result.handle)
		s.ended = true
	}
	s.result.close()
}

// insertStream starts an INSERT whose rows follow in the given input format.
// query has no FORMAT clause and no data. It must be closed.
func (c *chdbConn) insertStream(query, format string, params []param) (*chdbInsert, error) {
	handle := c.call(c.lib.insert, query, format, params)
	if handle == 0 {
		return nil, errors.New("libchdb returned no insert stream")
	}
	s := &chdbInsert{conn: c, handle: handle}
	if message := cString(c.lib.insertError(handle)); message != "" {
		s.close()
		return nil, newException(message)
	}
	return s, nil
}

type chdbInsert struct {
	conn   *chdbConn
	handle uintptr
}

// Write appends bytes of the input format; it blocks while the engine is busy.
func (s *chdbInsert) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if s.conn.lib.insertAppend(s.handle, unsafe.Pointer(&p[0]), uintptr(len(p))) != 0 {
		if message := cString(s.conn.lib.insertError(s.handle)); message != "" {
			return 0, newException(message)
		}
		return 0, errors.New("libchdb refused rows of an insert")
	}
	return len(p), nil
}

// commit ends the rows; once it returns, they are stored.
func (s *chdbInsert) commit() (*chdbResult, error) {
	return s.conn.result(s.conn.lib.insertDone(s.handle))
}

// close frees the stream and cancels it unless it was committed.
func (s *chdbInsert) close() {
	if s.handle != 0 {
		s.conn.lib.insertDestroy(s.handle)
		s.handle = 0
	}
}

// foreign turns an address of memory that C owns into a pointer. The garbage
// collector does not move or free such memory, so the rule that vet checks
// (no uintptr is kept and turned back) protects nothing here.
func foreign(address uintptr) unsafe.Pointer {
	return *(*unsafe.Pointer)(unsafe.Pointer(&address))
}

// cString copies a zero-terminated string of C.
func cString(address uintptr) string {
	if address == 0 {
		return ""
	}
	p := foreign(address)
	n := 0
	for *(*byte)(unsafe.Add(p, n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(p), n))
}
