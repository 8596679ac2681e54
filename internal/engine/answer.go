package engine

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// summary is X-ClickHouse-Summary: counts as strings, as ClickHouse sends them.
type summary struct {
	readRows, readBytes, writtenRows, writtenBytes, resultRows, resultBytes uint64
}

func (s *summary) add(lib *chdbLibrary, r *chdbResult) {
	s.readRows += lib.resultStorageRows(r.handle)
	s.readBytes += lib.resultStorageBytes(r.handle)
	s.resultRows += lib.resultRows(r.handle)
	s.resultBytes += lib.resultBytes(r.handle)
}

func (s *summary) addWritten(lib *chdbLibrary, r *chdbResult) {
	s.writtenRows += lib.resultRowsWritten(r.handle)
	s.writtenBytes += lib.resultBytesWritten(r.handle)
}

func (s *summary) header(elapsed time.Duration) string {
	text := func(n uint64) string { return strconv.FormatUint(n, 10) }
	b, err := json.Marshal(map[string]string{
		"read_rows": text(s.readRows), "read_bytes": text(s.readBytes),
		"written_rows": text(s.writtenRows), "written_bytes": text(s.writtenBytes),
		"result_rows": text(s.resultRows), "result_bytes": text(s.resultBytes),
		"total_rows_to_read": "0", "elapsed_ns": text(uint64(max(0, elapsed.Nanoseconds()))),
	})
	if err != nil {
		return "{}"
	}
	return string(b)
}

// answer writes a result. It holds the first bytes back, so that a statement
// that fails early fails with a status, and a small result has its summary
// and length in the header.
type answer struct {
	w       http.ResponseWriter
	req     *request
	started time.Time
	head    bool
	format  string // of the result
	streams bool   // it comes in chunks
	summary summary

	held    []byte
	out     io.Writer // the body, once the header is sent
	closers []io.Closer
	sent    bool
	tag     string // marks an exception inside the body
}

// holdBack is how many bytes are kept before the header goes out.
const holdBack = 1 << 20

func (a *answer) write(p []byte) error {
	if a.sent {
		_ = http.NewResponseController(a.w).SetWriteDeadline(time.Now().Add(resultTimeout))
		_, err := a.out.Write(p)
		return err
	}
	a.held = append(a.held, p...)
	if len(a.held) < holdBack {
		return nil
	}
	return a.send(false)
}

// finish ends a successful answer.
func (a *answer) finish() error {
	if !a.sent {
		if err := a.send(true); err != nil {
			return err
		}
	}
	for _, c := range slices.Backward(a.closers) {
		if err := c.Close(); err != nil {
			return err
		}
	}
	_ = http.NewResponseController(a.w).SetWriteDeadline(time.Time{})
	return nil
}

func (a *answer) send(whole bool) error {
	h := a.w.Header()
	h.Set("Content-Type", contentType(a.format))
	h.Set("X-ClickHouse-Format", a.format)
	h.Set("X-ClickHouse-Summary", a.summary.header(time.Since(a.started)))
	a.tag = rand.Text()[:16]
	h.Set("X-ClickHouse-Exception-Tag", a.tag)
	a.sent = true
	a.out = a.w
	switch {
	case a.req.encoding != "":
		h.Set("Content-Encoding", a.req.encoding)
		h.Set("Vary", "Accept-Encoding")
		enc, err := newEncoder(a.req.encoding, a.w)
		if err != nil {
			return err
		}
		a.out, a.closers = enc, append(a.closers, enc)
	case whole && a.req.compress == "":
		h.Set("Content-Length", strconv.Itoa(len(a.held)))
	}
	if a.req.compress != "" {
		enc, err := newBlockCompressor(a.req.compress, a.out)
		if err != nil {
			return err
		}
		a.out, a.closers = enc, append(a.closers, enc)
	}
	a.w.WriteHeader(http.StatusOK)
	if a.head {
		return nil
	}
	held := a.held
	a.held = nil
	if len(held) == 0 {
		return nil
	}
	_, err := a.out.Write(held)
	return err
}

// fail answers with an error. After the first bytes it is written into the
// body, framed as ClickHouse does, and the connection is broken off so that
// no client takes the result for whole.
func (a *answer) fail(err error) {
	e := toException(err)
	if !a.sent {
		h := a.w.Header()
		h.Set("Content-Type", "text/plain; charset=UTF-8")
		h.Set("X-ClickHouse-Exception-Code", strconv.Itoa(e.Code))
		if errors.Is(err, errBusy) {
			h.Set("Retry-After", "1")
		}
		a.w.WriteHeader(statusOf(e.Code))
		if !a.head {
			_, _ = io.WriteString(a.w, e.Message+"\n")
		}
		return
	}
	message := e.Message + "\n"
	_, _ = fmt.Fprintf(a.out, "\r\n__exception__\r\n%s\r\n%s%d %s\r\n__exception__\r\n", a.tag, message, len(message), a.tag)
	for _, c := range slices.Backward(a.closers) {
		_ = c.Close()
	}
	_ = http.NewResponseController(a.w).Flush()
	panic(http.ErrAbortHandler)
}

// toException gives errors that are not ClickHouse's own the nearest code.
func toException(err error) *Exception {
	var e *Exception
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(err, errBusy):
		return exceptionf(202, "TOO_MANY_SIMULTANEOUS_QUERIES", "Too many simultaneous queries: try again")
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return exceptionf(394, "QUERY_WAS_CANCELLED", "Query was cancelled")
	case errors.As(err, &tooLarge):
		return exceptionf(307, "TOO_MANY_BYTES", "The request is too large: %v", err)
	}
	return exceptionf(1002, "UNKNOWN_EXCEPTION", "%v", err)
}

// statusOf is the HTTP status that ClickHouse gives an error code.
func statusOf(code int) int {
	switch code {
	case 194:
		return http.StatusUnauthorized
	case 192, 193, 291, 497, 516, 164:
		return http.StatusForbidden
	case 6, 25, 26, 27, 33, 34, 36, 38, 41, 43, 44, 53, 62, 69, 70, 72, 117, 130, 131, 306, 325, 377, 441, 456, 457, 467, 469, 691:
		return http.StatusBadRequest
	case 16, 46, 47, 50, 56, 60, 63, 73, 75, 81, 82, 115, 139, 218:
		return http.StatusNotFound
	case 307:
		return http.StatusRequestEntityTooLarge
	case 48:
		return http.StatusNotImplemented
	case 202, 209, 439:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// contentType is the media type of an output format.
func contentType(format string) string {
	f := strings.ToLower(format)
	switch {
	case strings.HasPrefix(f, "jsoneachrow"), strings.HasPrefix(f, "jsonstringseachrow"), strings.HasPrefix(f, "jsoncompacteachrow"),
		strings.HasPrefix(f, "jsoncompactstringseachrow"), f == "jsonlines", f == "ndjson":
		return "application/x-ndjson; charset=UTF-8"
	case strings.HasPrefix(f, "json"):
		return "application/json; charset=UTF-8"
	case strings.HasPrefix(f, "tabseparated"), strings.HasPrefix(f, "tsv"), f == "raw":
		return "text/tab-separated-values; charset=UTF-8"
	case strings.HasPrefix(f, "csv"):
		return "text/csv; charset=UTF-8; header=" + headerPresence(f)
	case f == "xml":
		return "application/xml; charset=UTF-8"
	case f == "native", f == "parquet", f == "orc", f == "avro", strings.HasPrefix(f, "rowbinary"), strings.HasPrefix(f, "arrow"), f == "msgpack":
		return "application/octet-stream"
	}
	return "text/plain; charset=UTF-8"
}

func headerPresence(format string) string {
	if strings.Contains(format, "withnames") {
		return "present"
	}
	return "absent"
}
