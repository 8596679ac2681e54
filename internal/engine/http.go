package engine

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// request is one statement as a client sent it.
type request struct {
	id       string
	database string
	format   string // default output format
	settings map[string]string
	params   []param
	text     string    // the statement, or its beginning when rows follow
	rest     io.Reader // what follows text in the body
	protocol uint64    // client_protocol_version
	readOnly bool      // GET and HEAD
	session  bool      // a session_id was given
	compress string    // "" or the method for ClickHouse's own block compression
	encoding string    // "" or a content encoding of the answer
}

// serve answers one HTTP request.
func (ch *ClickHouse) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	if !ch.enter() {
		http.Error(w, "the embedded ClickHouse is stopping", http.StatusServiceUnavailable)
		return
	}
	defer ch.handlers.Done()
	h.Set("X-ClickHouse-Server-Display-Name", "hindsight")
	h.Set("X-ClickHouse-Timezone", "UTC")
	if err := localOnly(r); err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	switch r.URL.Path {
	case "/":
	case "/ping", "/replicas_status":
		h.Set("Content-Type", "text/plain; charset=UTF-8")
		_, _ = io.WriteString(w, "Ok.\n")
		return
	default:
		http.Error(w, "There is no handle "+r.URL.Path+"\n\nUse / or /ping for health checks.\nOr /replicas_status for more sophisticated health checks.\n\nSend queries from your program with POST method or GET /?query=...", http.StatusNotFound)
		return
	}
	switch r.Method {
	case http.MethodPost, http.MethodGet, http.MethodHead:
	default:
		h.Set("Allow", "GET, HEAD, POST")
		http.Error(w, "Code: 36. DB::Exception: Method "+r.Method+" is not supported. (BAD_ARGUMENTS)", http.StatusMethodNotAllowed)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	started := time.Now()
	req, err := ch.readRequest(w, r)
	if req != nil {
		h.Set("X-ClickHouse-Query-Id", req.id)
	}
	a := &answer{w: w, started: started, req: req, head: r.Method == http.MethodHead}
	if err == nil {
		err = ch.run(ctx, req, a)
	}
	if err != nil {
		a.fail(err)
	}
}

// localOnly refuses what a web page could send: the engine has no users, so
// the browser of the person at this machine must not become its client.
func localOnly(r *http.Request) error {
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.Trim(host, "[]")
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("the embedded ClickHouse answers to 127.0.0.1 and localhost, not to host %q", host)
	}
	if r.Header.Get("Origin") != "" {
		return errors.New("the embedded ClickHouse does not answer to web pages (the request has an Origin)")
	}
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "none" {
		return errors.New("the embedded ClickHouse does not answer to web pages (Sec-Fetch-Site: " + site + ")")
	}
	return nil
}

// notSettings are the parameters of the HTTP interface that are not settings.
var notSettings = map[string]bool{
	"query": true, "database": true, "default_format": true, "query_id": true, "session_id": true,
	"session_timeout": true, "session_check": true, "close_session": true, "user": true, "password": true,
	"quota_key": true, "role": true, "stacktrace": true, "buffer_size": true, "wait_end_of_query": true,
	"compress": true, "decompress": true, "client_protocol_version": true, "enable_http_compression": true,
	"http_zlib_compression_level": true, "network_compression_method": true, "network_zstd_compression_level": true,
	"http_native_compression_disable_checksumming_on_decompress": true, "send_progress_in_http_headers": true,
	"http_headers_progress_interval_ms": true, "cancel_http_readonly_queries_on_client_close": true,
	"http_wait_end_of_query": true, "http_response_buffer_size": true, "http_write_exception_in_output_format": true,
}

// readRequest takes a request apart. A request that it returns together with
// an error serves only to answer.
func (ch *ClickHouse) readRequest(w http.ResponseWriter, r *http.Request) (*request, error) {
	q := r.URL.Query()
	req := &request{
		id:       q.Get("query_id"),
		database: q.Get("database"),
		format:   q.Get("default_format"),
		settings: map[string]string{},
		readOnly: r.Method != http.MethodPost,
		session:  q.Get("session_id") != "",
	}
	if req.id == "" || !printable(req.id) {
		req.id = rand.Text()
	}
	if h := r.Header.Get("X-ClickHouse-Database"); h != "" && req.database == "" {
		req.database = h
	}
	if h := r.Header.Get("X-ClickHouse-Format"); h != "" && req.format == "" {
		req.format = h
	}
	if req.format == "" {
		req.format = "TabSeparated"
	}
	if req.database == "" {
		req.database = "default"
	}
	if err := checkUser(r, q); err != nil {
		return req, err
	}
	if v := q.Get("client_protocol_version"); v != "" {
		n, err := strconv.ParseUint(v, 10, 32)
		if err != nil {
			return req, exceptionf(36, "BAD_ARGUMENTS", "client_protocol_version %q is not a number", v)
		}
		req.protocol = n
	}
	for name, values := range q {
		value := values[len(values)-1]
		switch {
		case notSettings[name]:
		case strings.HasPrefix(name, "param_"):
			req.params = append(req.params, param{name[len("param_"):], value})
		default:
			if err := checkSetting(name, value); err != nil {
				return req, err
			}
			req.settings[name] = value
		}
	}
	if on(q.Get("compress")) {
		req.compress = strings.ToUpper(q.Get("network_compression_method"))
		if req.compress == "" {
			req.compress = "LZ4"
		}
	}
	if on(q.Get("enable_http_compression")) {
		req.encoding = acceptedEncoding(r.Header.Get("Accept-Encoding"))
	}
	if strings.HasPrefix(r.Header.Get("Content-Type"), "multipart/form-data") {
		return req, exceptionf(48, "NOT_IMPLEMENTED", "The embedded ClickHouse takes no external tables: insert the data into a table first")
	}
	r.Body = patientBody{r.Body, http.NewResponseController(w)}
	body, err := decodeBody(r, on(q.Get("decompress")))
	if err != nil {
		return req, err
	}
	return req, ch.readText(req, q.Get("query"), body)
}

// bodyTimeout is how long a client may pause in the middle of its body, and
// resultTimeout in the middle of a result: both hold a session meanwhile.
const (
	bodyTimeout   = time.Minute
	resultTimeout = 10 * time.Minute
)

// patientBody reads a body that may pause, but not for ever.
type patientBody struct {
	io.ReadCloser

	conn *http.ResponseController
}

func (b patientBody) Read(p []byte) (int, error) {
	_ = b.conn.SetReadDeadline(time.Now().Add(bodyTimeout))
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		// From here on the server waits for the client to go away, which may
		// take as long as the statement.
		_ = b.conn.SetReadDeadline(time.Time{})
	}
	return n, err
}

func on(value string) bool { return value != "" && value != "0" && value != "false" }

func printable(s string) bool {
	if len(s) > 256 || strings.Contains(s, "*/") {
		return false
	}
	for _, c := range []byte(s) {
		if c < ' ' || c > '~' {
			return false
		}
	}
	return true
}

// checkUser admits the one user that exists.
func checkUser(r *http.Request, q url.Values) error {
	user, password, ok := r.BasicAuth()
	if !ok {
		user, password = r.Header.Get("X-ClickHouse-User"), r.Header.Get("X-ClickHouse-Key")
	}
	if user == "" {
		user = q.Get("user")
	}
	if password == "" {
		password = q.Get("password")
	}
	if (user != "" && user != "default") || password != "" {
		return exceptionf(516, "AUTHENTICATION_FAILED", "%s: Authentication failed: the embedded ClickHouse has one user, default, without a password", user)
	}
	return nil
}

const (
	// headSize is how much of a body is read at a time in search of the end
	// of an INSERT's own text.
	headSize = 64 << 10
	// maxHead is how long that text may be for the rows to be streamed.
	maxHead = 1 << 20
)

// readText collects the statement: the query parameter, a line end and the
// body, as ClickHouse does. The rows of an INSERT stay in the body.
func (ch *ClickHouse) readText(req *request, query string, body io.Reader) error {
	var text bytes.Buffer
	if query != "" {
		text.WriteString(query)
		text.WriteByte('\n')
	}
	for ended := false; !ended; {
		if int64(text.Len()) > ch.options.MaxQueryText {
			return exceptionf(62, "SYNTAX_ERROR", "The statement is longer than %d bytes", ch.options.MaxQueryText)
		}
		if text.Len() <= maxHead {
			if _, insert := splitInsert(text.String(), false); insert {
				break
			}
		}
		switch _, err := io.CopyN(&text, body, headSize); {
		case errors.Is(err, io.EOF):
			ended = true
		case err != nil:
			return fmt.Errorf("read request body: %w", err)
		}
	}
	req.text, req.rest = text.String(), body
	return nil
}

// run executes a request and writes its answer.
func (ch *ClickHouse) run(ctx context.Context, req *request, a *answer) (err error) {
	if isHello(req) {
		return a.hello(req.protocol, ch.version)
	}
	insert, isInsert := splitInsert(req.text, true)
	statement := req.text
	if isInsert {
		statement = insert.head
	}
	statement, files, err := filePaths(statement, ch.layout.userFiles(), req.params)
	if err != nil {
		return err
	}
	s, err := ch.acquire(ctx)
	if err != nil {
		return err
	}
	// A statement's state in the library belongs partly to its thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer func() {
		if err != nil && !s.spoilt {
			s.settle()
		}
		ch.release(s)
	}()
	parsed := statement
	if isInsert {
		parsed += " FORMAT " + insert.format
	}
	class, err := classify(s, req, parsed)
	if err != nil {
		return err
	}
	a.format, a.streams = outcome(req, statement, class)
	settings := req.settings
	if _, set := settings["max_result_bytes"]; !set && !a.streams && class == classReadOnly {
		settings = maps.Clone(settings)
		settings["max_result_bytes"] = strconv.FormatInt(ch.options.MaxResult, 10)
	}
	if err := s.prepare(req.database, settings); err != nil {
		return err
	}
	s.spoilt = class == classControl // the next request would find what it changed
	statement += queryTag(req.id)
	defer ch.killWhenDone(ctx, req.id)()
	execute := func() error { return ch.query(s, req, statement, a) }
	if isInsert {
		execute = func() error { return ch.insert(s, req, statement, insert, a) }
	}
	if files {
		return s.withFiles(execute)
	}
	return execute()
}

// classify parses the statement and refuses what HTTP does not allow.
func classify(s *session, req *request, statement string) (queryClass, error) {
	count, class := s.conn.classifyStatement(statement)
	switch {
	case (&scanner{text: statement}).next().kind == tokenEnd:
		return class, exceptionf(62, "SYNTAX_ERROR", "Empty query")
	case count > 1, count == 0 && hasSecondStatement(statement):
		return class, exceptionf(62, "SYNTAX_ERROR", "Syntax error (Multi-statements are not allowed)")
	case req.readOnly && class != classReadOnly && class != classUnknown:
		return class, exceptionf(164, "READONLY", "Cannot execute query in readonly mode. For queries over HTTP, method GET implies readonly. You should use method POST for modifying queries")
	case req.session && class == classControl && needsSession(statement):
		return class, exceptionf(344, "SUPPORT_IS_DISABLED", "The embedded ClickHouse keeps no sessions: give settings and the database with each request, and use ordinary tables")
	}
	return class, nil
}

// needsSession reports whether a statement is of use only to later ones of
// the same session.
func needsSession(statement string) bool {
	s := scanner{text: statement}
	first, second := s.next(), s.next()
	return first.isWord(statement, "SET") || first.isWord(statement, "USE") ||
		(first.isWord(statement, "CREATE") && second.isWord(statement, "TEMPORARY"))
}

// killWhenDone kills the statement when ctx ends, from another connection for
// its own is busy, until the returned function is called.
func (ch *ClickHouse) killWhenDone(ctx context.Context, id string) (stop func()) {
	done, watcher := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watcher)
		select {
		case <-ctx.Done():
		case <-done:
			return
		}
		// Again and again: the statement may not have begun yet.
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			ch.killStatement(id)
			select {
			case <-tick.C:
			case <-done:
				return
			}
		}
	}()
	return func() {
		close(done)
		<-watcher
	}
}

// insert feeds rows to the engine as they arrive.
func (ch *ClickHouse) insert(s *session, req *request, head string, insert insertParts, a *answer) error {
	stream, err := s.conn.insertStream(head, insert.format, req.params)
	if err != nil {
		return err
	}
	defer stream.close()
	rows := io.MultiReader(strings.NewReader(req.text[insert.data:]), req.rest)
	n, err := io.CopyBuffer(onlyWriter{stream}, io.LimitReader(rows, ch.options.MaxBody+1), make([]byte, 256<<10))
	if err != nil {
		if _, ok := errors.AsType[*Exception](err); ok {
			return err
		}
		return fmt.Errorf("read rows: %w", err)
	}
	if n > ch.options.MaxBody {
		return exceptionf(307, "TOO_MANY_BYTES", "The rows of this INSERT are longer than %d bytes: send them in several", ch.options.MaxBody)
	}
	r, err := stream.commit()
	if err != nil {
		return err
	}
	defer r.close()
	a.summary.addWritten(ch.lib, r)
	return a.finish()
}

// onlyWriter hides every method but Write.
type onlyWriter struct{ io.Writer }

// streamable are the formats whose chunks can be concatenated: the library
// begins each chunk of a streamed result as if it were a whole one.
var streamable = map[string]bool{
	"native": true, "tabseparated": true, "tsv": true, "tabseparatedraw": true, "tsvraw": true, "raw": true,
	"csv": true, "jsoneachrow": true, "jsonlines": true, "ndjson": true, "jsoncompacteachrow": true,
	"jsonstringseachrow": true, "rowbinary": true, "lineasstring": true, "tskv": true, "null": true,
}

// outcome tells the format of a statement's result and whether it can come in
// chunks.
func outcome(req *request, text string, class queryClass) (format string, streams bool) {
	format, selects := outputFormat(text)
	if format == "" {
		format = req.format
	}
	return format, class == classReadOnly && selects && streamable[strings.ToLower(format)]
}

// query runs a statement and answers with its result, streamed where the
// format allows.
func (ch *ClickHouse) query(s *session, req *request, text string, a *answer) error {
	if !a.streams {
		r, err := s.conn.query(text, req.format, req.params)
		if err != nil {
			return err
		}
		defer r.close()
		a.summary.add(ch.lib, r)
		a.summary.addWritten(ch.lib, r)
		if err := a.write(r.bytes()); err != nil {
			return err
		}
		return a.finish()
	}
	stream, err := s.conn.stream(text, req.format, req.params)
	if err != nil {
		return err
	}
	defer stream.close()
	for {
		chunk, err := stream.next()
		if err != nil {
			return err
		}
		if chunk == nil {
			return a.finish()
		}
		a.summary.add(ch.lib, chunk)
		err = a.write(chunk.bytes())
		chunk.close()
		if err != nil {
			return err
		}
	}
}

func exceptionf(code int, name, format string, v ...any) *Exception {
	return &Exception{Code: code, Message: fmt.Sprintf("Code: %d. DB::Exception: %s. (%s)", code, fmt.Sprintf(format, v...), name)}
}
