package engine_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"github.com/hindsight-memory/hindsight/internal/engine/enginetest"
)

func TestHTTPHealth(t *testing.T) {
	t.Parallel()
	serverURL := enginetest.ClickHouse(t)
	for path, want := range map[string]int{"/ping": 200, "/replicas_status": 200, "/play": 404} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, serverURL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, body := do(t, req)
		if resp.StatusCode != want || (want == 200 && body != "Ok.\n") {
			t.Errorf("GET %s = %d %q, want %d", path, resp.StatusCode, body, want)
		}
	}
}

// Each case is one request as a client sends it.
func TestHTTPRequests(t *testing.T) {
	t.Parallel()
	serverURL := enginetest.ClickHouse(t)
	db := enginetest.Database(t, serverURL)
	enginetest.Exec(t, serverURL, "CREATE TABLE "+db+".t (n UInt64, s String DEFAULT 'd') ENGINE = MergeTree ORDER BY n")
	type parameters = map[string]string
	for name, c := range map[string]struct {
		query, body string
		parameters  parameters
		header      []string
		status      int
		want        string // the whole answer; a prefix where it ends in …
		code        string // X-ClickHouse-Exception-Code
	}{
		"query in the parameter":    {query: "SELECT 1", status: 200, want: "1\n"},
		"query in the body":         {body: "SELECT 1", status: 200, want: "1\n"},
		"query in both":             {query: "SELECT", body: "2", status: 200, want: "2\n"},
		"semicolon at the end":      {body: "SELECT 1 ; \n", status: 200, want: "1\n"},
		"comment at the end":        {body: "SELECT 1 -- no more", status: 200, want: "1\n"},
		"parentheses":               {body: "(SELECT 1) UNION ALL (SELECT 1)", status: 200, want: "1\n1\n"},
		"FORMAT clause":             {body: "SELECT 1 AS a FORMAT JSONEachRow", status: 200, want: "{\"a\":1}\n"},
		"FORMAT clause in settings": {body: "SELECT 1 AS a FORMAT JSONEachRow SETTINGS max_threads = 1", status: 200, want: "{\"a\":1}\n"},
		"default_format":            {body: "SELECT 1 AS a", parameters: parameters{"default_format": "CSVWithNames"}, status: 200, want: "\"a\"\n1\n"},
		"format header":             {body: "SELECT 1 AS a", header: []string{"X-ClickHouse-Format", "JSONCompactEachRow"}, status: 200, want: "[1]\n"},
		"no rows":                   {body: "SELECT 1 WHERE 0", status: 200, want: ""},
		"no rows as JSON":           {body: "SELECT 1 AS a WHERE 0 FORMAT JSON", status: 200, want: "{\n\t\"meta\":\n…"},
		"SHOW":                      {body: "SHOW TABLES FROM " + db, status: 200, want: "t\n"},
		"DESCRIBE":                  {body: "DESCRIBE TABLE " + db + ".t", status: 200, want: "n\tUInt64…"},
		"EXISTS":                    {body: "EXISTS TABLE " + db + ".t", status: 200, want: "1\n"},
		"EXPLAIN":                   {body: "EXPLAIN AST SELECT 1", status: 200, want: "SelectWithUnionQuery…"},
		"database parameter":        {body: "SELECT currentDatabase()", parameters: parameters{"database": db}, status: 200, want: db + "\n"},
		"database header":           {body: "SELECT currentDatabase()", header: []string{"X-ClickHouse-Database", db}, status: 200, want: db + "\n"},
		"no database":               {body: "SELECT currentDatabase()", status: 200, want: "default\n"},
		"setting":                   {body: "SELECT getSetting('max_block_size')", parameters: parameters{"max_block_size": "77"}, status: 200, want: "77\n"},
		"setting with quotes":       {body: "SELECT getSetting('log_comment')", parameters: parameters{"log_comment": `a'b\c`}, status: 200, want: "a\\'b\\\\c\n"},
		"no setting left over":      {body: "SELECT getSetting('max_block_size') = 77, getSetting('log_comment'), getSetting('session_timezone')", status: 200, want: "0\t\tUTC\n"},
		"parameters":                {body: "SELECT {n:UInt8} + 1, {s:String}, {a:Array(String)}", parameters: parameters{"param_n": "7", "param_s": `it's\\ a\tb`, "param_a": "['x','y']"}, status: 200, want: "8\tit\\'s\\\\ a\\tb\t['x','y']\n"},
		"parameter as identifier":   {body: "SELECT count() FROM {d:Identifier}.{t:Identifier}", parameters: parameters{"param_d": "system", "param_t": "one"}, status: 200, want: "1\n"},
		"user":                      {body: "SELECT currentUser()", header: []string{"X-ClickHouse-User", "default"}, status: 200, want: "default\n"},
		"session_id":                {body: "SELECT 1", parameters: parameters{"session_id": "x"}, status: 200, want: "1\n"},
		"INFORMATION_SCHEMA":        {body: "SELECT count() > 0 FROM information_schema.tables", status: 200, want: "1\n"},

		"syntax error":             {body: "SELEC 1", status: 400, want: "Code: 62. DB::Exception: …", code: "62"},
		"unknown table":            {body: "SELECT * FROM nothing", status: 404, want: "Code: 60. DB::Exception: …", code: "60"},
		"unknown column":           {body: "SELECT nothing", status: 404, want: "Code: 47. DB::Exception: …", code: "47"},
		"unknown function":         {body: "SELECT nothingKnown()", status: 404, want: "Code: 46. DB::Exception: …", code: "46"},
		"unknown database":         {body: "SELECT 1", parameters: parameters{"database": "nothing"}, status: 404, want: "Code: 81. DB::Exception: …", code: "81"},
		"unknown setting":          {body: "SELECT 1", parameters: parameters{"nothing": "1"}, status: 404, want: "Code: 115. DB::Exception: …", code: "115"},
		"what cannot be a setting": {body: "SELECT 1", parameters: parameters{"a'; DROP": "1"}, status: 404, want: "Code: 115. DB::Exception: …", code: "115"},
		"wrong setting":            {body: "SELECT 1", parameters: parameters{"max_threads": "many"}, status: 400, want: "Code: 27. DB::Exception: …", code: "27"},
		"dialect":                  {body: "SELECT 1", parameters: parameters{"dialect": "kusto"}, status: 500, want: "Code: 344. …", code: "344"},
		"missing parameter":        {body: "SELECT {n:UInt8}", status: 400, want: "Code: 456. …", code: "456"},
		"wrong parameter":          {body: "SELECT {n:UInt8}", parameters: parameters{"param_n": "x"}, status: 400, want: "Code: 457. …", code: "457"},
		"error of a row":           {body: "SELECT throwIf(number = 3) FROM numbers(10)", status: 500, want: "Code: 395. DB::Exception: …", code: "395"},
		"empty query":              {status: 400, want: "Code: 62. DB::Exception: Empty query…", code: "62"},
		"only a comment":           {body: "/* nothing */ -- at all", status: 400, want: "Code: 62. DB::Exception: Empty query…", code: "62"},
		"two statements":           {body: "SELECT 1; SELECT 2", status: 400, want: "Code: 62. …", code: "62"},
		"two, the second wrong":    {body: "CREATE TABLE " + db + ".never (a Int8) ENGINE = Memory; SELEC", status: 400, want: "Code: 62. …", code: "62"},
		"another user":             {body: "SELECT 1", header: []string{"X-ClickHouse-User", "admin"}, status: 403, want: "Code: 516. …", code: "516"},
		"a password":               {body: "SELECT 1", parameters: parameters{"user": "default", "password": "x"}, status: 403, want: "Code: 516. …", code: "516"},
		"SET in a session":         {body: "SET max_threads = 1", parameters: parameters{"session_id": "x"}, status: 500, want: "Code: 344. …", code: "344"},
		"temporary table":          {body: "CREATE TEMPORARY TABLE x (a Int8)", parameters: parameters{"session_id": "x"}, status: 500, want: "Code: 344. …", code: "344"},
		"external table":           {body: "--b\r\n--b--", header: []string{"Content-Type", "multipart/form-data; boundary=b"}, status: 501, want: "Code: 48. …", code: "48"},
		"unknown encoding":         {body: "SELECT 1", header: []string{"Content-Encoding", "snappy"}, status: 501, want: "Code: 48. …", code: "48"},
		"no gzip":                  {body: "SELECT 1", header: []string{"Content-Encoding", "gzip"}, status: 500, want: "Code: 354. …", code: "354"},
		"shutdown":                 {body: "SYSTEM SHUTDOWN", status: 403, want: "Code: 497. …", code: "497"},
		"implicit SELECT":          {body: "1 + 1", status: 400, want: "Code: 62. …", code: "62"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := url.Values{}
			for k, v := range c.parameters {
				p.Set(k, v)
			}
			resp, got := ask(t, serverURL, c.query, p, c.body, c.header...)
			want, prefix := strings.CutSuffix(c.want, "…")
			if resp.StatusCode != c.status || (prefix && !strings.HasPrefix(got, want)) || (!prefix && got != want) {
				t.Errorf("%d %q, want %d %q", resp.StatusCode, got, c.status, c.want)
			}
			if code := resp.Header.Get("X-ClickHouse-Exception-Code"); code != c.code {
				t.Errorf("exception code %q, want %q", code, c.code)
			}
			if resp.Header.Get("X-ClickHouse-Query-Id") == "" || resp.Header.Get("X-ClickHouse-Timezone") != "UTC" {
				t.Errorf("header %v, want a query id and the time zone", resp.Header)
			}
		})
	}
}

// Rows may follow an INSERT in every way that clients use.
func TestHTTPInserts(t *testing.T) {
	t.Parallel()
	serverURL := enginetest.ClickHouse(t)
	db := enginetest.Database(t, serverURL)
	for name, c := range map[string]struct {
		query, body, want string
		params            url.Values
	}{
		"VALUES in the body":           {body: "INSERT INTO t VALUES (1, 'a'), (2, 'b')", want: "1\ta\n2\tb\n"},
		"VALUES in the query":          {query: "INSERT INTO t VALUES (1, 'a')", want: "1\ta\n"},
		"VALUES, rows in the body":     {query: "INSERT INTO t (n, s) VALUES", body: "(1, 'a')", want: "1\ta\n"},
		"blank lines inside":           {body: "INSERT INTO t VALUES (1, 'a\n\nb');\n\n", want: "1\ta\\n\\nb\n"},
		"semicolons inside":            {body: "INSERT INTO t VALUES (1, 'a;b'), (2, ';')", want: "1\ta;b\n2\t;\n"},
		"expressions":                  {body: "INSERT INTO t VALUES (1 + 1, upper('a'))", want: "2\tA\n"},
		"some columns":                 {body: "INSERT INTO t (n) VALUES (1)", want: "1\td\n"},
		"FORMAT and rows":              {body: "INSERT INTO t FORMAT JSONEachRow\n{\"n\":1,\"s\":\"a\\n\\nb\"}\n\n{\"n\":2}\n", want: "1\ta\\n\\nb\n2\td\n"},
		"FORMAT on the same line":      {body: "INSERT INTO t FORMAT CSV 1,a", want: "1\ta\n"},
		"FORMAT in the query":          {query: "INSERT INTO t FORMAT TabSeparated", body: "1\ta\n\t\n2\tb\n", want: "0\t\n1\ta\n2\tb\n"},
		"settings":                     {body: "INSERT INTO t SETTINGS format_csv_delimiter = ';' FORMAT CSV\n1;a\n", want: "1\ta\n"},
		"setting in the URL":           {query: "INSERT INTO t FORMAT CSV", body: "1;a\n", params: url.Values{"format_csv_delimiter": {";"}}, want: "1\ta\n"},
		"comment before":               {body: "/* VALUES */ -- FORMAT CSV\nINSERT INTO t VALUES (1, 'a')", want: "1\ta\n"},
		"database and quotes":          {body: "INSERT INTO `" + db + "`.\"t\" (`n`, \"s\") VALUES (1, 'a')", want: "1\ta\n"},
		"TABLE":                        {body: "INSERT INTO TABLE t VALUES (1, 'a')", want: "1\ta\n"},
		"SELECT":                       {body: "INSERT INTO t SELECT number, 'VALUES' FROM numbers(2)", want: "0\tVALUES\n1\tVALUES\n"},
		"WITH before":                  {body: "WITH 7 AS x INSERT INTO t SELECT x, 'a'", want: "7\ta\n"},
		"WITH inside":                  {body: "INSERT INTO t WITH 7 AS x SELECT x, 'a'", want: "7\ta\n"},
		"parameters":                   {body: "INSERT INTO {tab:Identifier} VALUES (1, 'a')", params: url.Values{"param_tab": {"t"}}, want: "1\ta\n"},
		"no rows at all":               {query: "INSERT INTO t FORMAT JSONEachRow", want: ""},
		"neither rows nor format":      {query: "INSERT INTO t", want: ""},
		"zero bytes":                   {query: "INSERT INTO t FORMAT RowBinary", body: "\x01\x00\x00\x00\x00\x00\x00\x00\x03a\x00\n\n\x00\x00\x00\x00\x00\x00\x00\x00", want: "1\ta\\0\\n\n10\t\n"},
		"long head":                    {body: "INSERT INTO t (n /* " + strings.Repeat("x", 200_000) + " */, s) VALUES (1, 'a')", want: "1\ta\n"},
		"format name at a chunk's end": {body: "INSERT INTO t /*" + strings.Repeat("x", 64<<10-len("INSERT INTO t /**/ FORMAT JSONEach")) + "*/ FORMAT JSONEachRow {\"n\":1}", want: "1\td\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			own := enginetest.Database(t, serverURL)
			enginetest.Exec(t, serverURL, "CREATE TABLE "+own+".t (n UInt64, s String DEFAULT 'd') ENGINE = MergeTree ORDER BY (n, s)")
			p := url.Values{"database": {own}}
			maps.Copy(p, c.params)
			query, body := strings.ReplaceAll(c.query, db, own), strings.ReplaceAll(c.body, db, own)
			if resp, text := ask(t, serverURL, query, p, body); resp.StatusCode != http.StatusOK || text != "" {
				t.Fatalf("insert: %d %s", resp.StatusCode, text)
			}
			if got := enginetest.Exec(t, serverURL, "SELECT * FROM "+own+".t ORDER BY n, s"); got != c.want {
				t.Errorf("table holds %q, want %q", got, c.want)
			}
		})
	}
}

func TestHTTPInsertErrors(t *testing.T) {
	t.Parallel()
	serverURL := enginetest.ClickHouse(t)
	db := enginetest.Database(t, serverURL)
	enginetest.Exec(t, serverURL, "CREATE TABLE "+db+".t (n UInt64) ENGINE = MergeTree ORDER BY n")
	for name, c := range map[string]struct {
		sql  string
		code string
	}{
		"no table":     {"INSERT INTO " + db + ".nothing VALUES (1)", "60"},
		"no column":    {"INSERT INTO " + db + ".t (nothing) VALUES (1)", "16"},
		"no format":    {"INSERT INTO " + db + ".t FORMAT Nothing\n1", "73"},
		"wrong row":    {"INSERT INTO " + db + ".t FORMAT CSV\n1\nx\n", "117"},
		"wrong value":  {"INSERT INTO " + db + ".t VALUES (nothing)", "47"},
		"cut":          {"INSERT INTO " + db + ".t FORMAT RowBinary\n\x01\x00", "33"},
		"INFILE":       {"INSERT INTO " + db + ".t FROM INFILE '/etc/passwd' FORMAT LineAsString", "344"},
		"input()":      {"INSERT INTO " + db + ".t SELECT n FROM input('n UInt64') FORMAT CSV\n1\n", "48"},
		"input() none": {"INSERT INTO " + db + ".t SELECT n FROM input('n UInt64') FORMAT CSV", "48"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			resp, text := ask(t, serverURL, "", nil, c.sql)
			if got := resp.Header.Get("X-ClickHouse-Exception-Code"); resp.StatusCode < 400 || got != c.code {
				t.Errorf("%d code %q %q, want code %s", resp.StatusCode, got, text, c.code)
			}
		})
	}
	// A failed insert must not hold the table.
	t.Cleanup(func() { enginetest.Exec(t, serverURL, "DROP TABLE "+db+".t SYNC") })
}

func TestHTTPGetIsReadOnly(t *testing.T) {
	t.Parallel()
	serverURL := enginetest.ClickHouse(t)
	db := enginetest.Database(t, serverURL)
	get := func(sql string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, serverURL+"/?query="+url.QueryEscape(sql), nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, body := do(t, req)
		return resp.StatusCode, body
	}
	if status, body := get("SELECT 1"); status != 200 || body != "1\n" {
		t.Errorf("SELECT: %d %q, want 1", status, body)
	}
	for _, sql := range []string{"CREATE TABLE " + db + ".t (n UInt8) ENGINE = Memory", "INSERT INTO " + db + ".t VALUES (1)", "DROP DATABASE " + db, "KILL QUERY WHERE 1", "SYSTEM FLUSH LOGS"} {
		if status, body := get(sql); status != http.StatusForbidden || !strings.Contains(body, "READONLY") {
			t.Errorf("GET %s: %d %q, want it refused as READONLY", sql, status, body)
		}
	}
}

// A page in this person's browser must not reach the engine.
func TestHTTPRefusesBrowsers(t *testing.T) {
	t.Parallel()
	serverURL := enginetest.ClickHouse(t)
	for name, c := range map[string]struct {
		header []string
		ok     bool
	}{
		"localhost":       {[]string{"Host", "localhost:8123"}, true},
		"IPv6":            {[]string{"Host", "[::1]:8123"}, true},
		"another name":    {[]string{"Host", "rebound.example:8123"}, false},
		"another address": {[]string{"Host", "192.0.2.1"}, false},
		"no name":         {[]string{"Host", "."}, false},
		"a page's POST":   {[]string{"Origin", "https://page.example"}, false},
		"a local file's":  {[]string{"Origin", "null"}, false},
		"an image":        {[]string{"Sec-Fetch-Site", "cross-site"}, false},
		"a typed address": {[]string{"Sec-Fetch-Site", "none"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			resp, body := ask(t, serverURL, "", nil, "SELECT 1", c.header...)
			if ok := resp.StatusCode == http.StatusOK; ok != c.ok || (!ok && resp.StatusCode != http.StatusForbidden) {
				t.Errorf("%d %q, want success %v", resp.StatusCode, body, c.ok)
			}
		})
	}
}

func TestHTTPSummaryAndQueryID(t *testing.T) {
	t.Parallel()
	serverURL := enginetest.ClickHouse(t)
	db := enginetest.Database(t, serverURL)
	enginetest.Exec(t, serverURL, "CREATE TABLE "+db+".t (n UInt64) ENGINE = MergeTree ORDER BY n")
	read := func(sql string) map[string]string {
		resp, body := ask(t, serverURL, "", url.Values{"query_id": {"my-id"}}, sql)
		if resp.StatusCode != http.StatusOK || resp.Header.Get("X-ClickHouse-Query-Id") != "my-id" {
			t.Fatalf("%d %s, id %q; want my-id", resp.StatusCode, body, resp.Header.Get("X-ClickHouse-Query-Id"))
		}
		var s map[string]string
		if err := json.Unmarshal([]byte(resp.Header.Get("X-ClickHouse-Summary")), &s); err != nil {
			t.Fatalf("summary %q: %v", resp.Header.Get("X-ClickHouse-Summary"), err)
		}
		return s
	}
	if s := read("INSERT INTO " + db + ".t VALUES (1), (2), (3)"); s["written_rows"] != "3" {
		t.Errorf("summary of VALUES = %v, want 3 rows written", s)
	}
	if s := read("INSERT INTO " + db + ".t SELECT number FROM numbers(5)"); s["written_rows"] != "5" {
		t.Errorf("summary of SELECT = %v, want 5 rows written", s)
	}
	if s := read("SELECT n FROM " + db + ".t LIMIT 2"); s["read_rows"] == "0" || s["result_rows"] != "2" {
		t.Errorf("summary = %v, want 2 rows of the result and some read", s)
	}
}

func TestHTTPEncodings(t *testing.T) {
	t.Parallel()
	serverURL := enginetest.ClickHouse(t)
	db := enginetest.Database(t, serverURL)
	pack := map[string]func(io.Writer) io.WriteCloser{
		"gzip": func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) },
		"lz4":  func(w io.Writer) io.WriteCloser { return lz4.NewWriter(w) },
		"zstd": func(w io.Writer) io.WriteCloser {
			e, err := zstd.NewWriter(w)
			if err != nil {
				t.Fatal(err)
			}
			return e
		},
	}
	unpack := map[string]func(io.Reader) (io.Reader, error){
		"gzip": func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) },
		"lz4":  func(r io.Reader) (io.Reader, error) { return lz4.NewReader(r), nil },
		"zstd": func(r io.Reader) (io.Reader, error) { return zstd.NewReader(r) },
	}
	for name := range pack {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			table := db + ".t_" + name
			enginetest.Exec(t, serverURL, "CREATE TABLE "+table+" (n UInt64) ENGINE = MergeTree ORDER BY n")
			var body bytes.Buffer
			w := pack[name](&body)
			for i := range 10000 {
				if _, err := fmt.Fprintln(w, i); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			resp, text := ask(t, serverURL, "INSERT INTO "+table+" FORMAT TSV", nil, body.String(), "Content-Encoding", name)
			if resp.StatusCode != http.StatusOK {
				t.Fatalf("insert: %d %s", resp.StatusCode, text)
			}
			resp, text = ask(t, serverURL, "SELECT n FROM "+table+" ORDER BY n", url.Values{"enable_http_compression": {"1"}}, "", "Accept-Encoding", name)
			if resp.Header.Get("Content-Encoding") != name {
				t.Fatalf("Content-Encoding %q, want %s", resp.Header.Get("Content-Encoding"), name)
			}
			r, err := unpack[name](strings.NewReader(text))
			if err != nil {
				t.Fatal(err)
			}
			plain, err := io.ReadAll(r)
			if err != nil || bytes.Count(plain, []byte{'\n'}) != 10000 {
				t.Errorf("%d lines, %v; want 10000", bytes.Count(plain, []byte{'\n'}), err)
			}
		})
	}
}

// A result of any size comes in pieces: the server must not hold it whole.
func TestHTTPStreamsLargeResults(t *testing.T) {
	t.Parallel()
	serverURL := enginetest.ClickHouse(t)
	const rows = 20_000_000
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, serverURL+"/?query="+url.QueryEscape(fmt.Sprintf("SELECT number FROM numbers(%d) FORMAT RowBinary", rows)), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	before := residentKiB(t)
	most := before
	buf := make([]byte, 1<<20)
	var total int64
	for {
		n, err := resp.Body.Read(buf)
		total += int64(n)
		if total>>20%16 == 0 {
			most = max(most, residentKiB(t))
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatalf("after %d bytes: %v", total, err)
		}
	}
	if total != rows*8 {
		t.Errorf("%d bytes, want %d", total, rows*8)
	}
	t.Logf("%d MiB streamed; resident grew by %d KiB", total>>20, most-before)
}

func residentKiB(t *testing.T) (kib int) {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			if _, err := fmt.Sscan(value, &kib); err != nil {
				t.Fatal(err)
			}
		}
	}
	return kib
}

// An error after the first bytes must not look like the end of the result.
func TestHTTPErrorInsideAResult(t *testing.T) {
	t.Parallel()
	serverURL := enginetest.ClickHouse(t)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, serverURL, strings.NewReader("SELECT number, throwIf(number = 5000000) FROM numbers(10000000) FORMAT TSV"))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK || err == nil {
		t.Errorf("%d, %v; want 200 and then an unexpected end", resp.StatusCode, err)
	}
	tail := string(body[max(0, len(body)-2000):])
	tag := resp.Header.Get("X-ClickHouse-Exception-Tag")
	if len(tag) != 16 || !strings.Contains(tail, "\r\n__exception__\r\n"+tag+"\r\nCode: 395.") {
		t.Errorf("the end is %q, want the framed exception with tag %q", tail, tag)
	}
}

func TestHTTPLimitsAndQueue(t *testing.T) {
	t.Parallel()
	// A server of its own, with small limits, in a process of its own.
	c := startChild(t, t.TempDir(), childSmall+"=1")
	enginetest.Exec(t, c.ClickHouse, "CREATE TABLE t (s String) ENGINE = MergeTree ORDER BY s")
	resp, body := ask(t, c.ClickHouse, "INSERT INTO t FORMAT TSV", nil, strings.Repeat("x", 2<<20))
	if resp.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("a body over the limit: %d %s, want 413", resp.StatusCode, body)
	}
	resp, body = ask(t, c.ClickHouse, "", nil, "SELECT '"+strings.Repeat("x", 2<<20)+"'")
	if resp.StatusCode != http.StatusBadRequest {
		t.Errorf("a statement over the limit: %d %s, want 400", resp.StatusCode, body)
	}
	if got := enginetest.Exec(t, c.ClickHouse, "SELECT count() FROM t"); got != "0\n" {
		t.Errorf("%s rows of the refused insert", got)
	}
	resp, body = ask(t, c.ClickHouse, "", nil, "SELECT groupArray(number) FROM numbers(1000000000) FORMAT Null")
	if resp.Header.Get("X-ClickHouse-Exception-Code") != "241" {
		t.Errorf("a query over the memory limit: %d %s, want code 241", resp.StatusCode, body)
	}
	for format, want := range map[string]string{"JSON": "396", "JSONEachRow": ""} {
		resp, body := ask(t, c.ClickHouse, "", nil, "SELECT number FROM numbers(1000000) FORMAT "+format)
		if got := resp.Header.Get("X-ClickHouse-Exception-Code"); got != want {
			t.Errorf("8 MB as %s: %d %.200s, want code %q", format, resp.StatusCode, body, want)
		}
	}

	// One may run and one may wait; of five at once, three are refused.
	var wg sync.WaitGroup
	statuses := make(chan int, 5)
	for range 5 {
		wg.Go(func() {
			resp, err := client.Post(c.ClickHouse, "", strings.NewReader("SELECT sleep(1)"))
			if err != nil {
				t.Errorf("ask: %v", err)
				return
			}
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusServiceUnavailable && (resp.Header.Get("X-ClickHouse-Exception-Code") != "202" || resp.Header.Get("Retry-After") == "") {
				t.Errorf("header of the refusal: %v", resp.Header)
			}
			statuses <- resp.StatusCode
		})
	}
	wg.Wait()
	close(statuses)
	count := map[int]int{}
	for s := range statuses {
		count[s]++
	}
	if count[200] != 2 || count[503] != 3 {
		t.Errorf("statuses %v, want two 200 and three 503", count)
	}
}

// When a client goes away its statement must not go on.
func TestHTTPClientGoesAway(t *testing.T) {
	t.Parallel()
	serverURL := enginetest.ClickHouse(t)
	for name, sql := range map[string]string{
		"aggregate": "SELECT max(sipHash64(number)) FROM numbers(1000000000000) SETTINGS max_threads = 1, log_comment = 'aggregate'",
		"stream":    "SELECT sipHash64(number) FROM numbers(1000000000000) FORMAT RowBinary SETTINGS max_threads = 1, log_comment = 'stream'",
		"ddl":       "CREATE TABLE gone ENGINE = Memory AS SELECT sipHash64(number) FROM numbers(1000000000000) WHERE sipHash64(number) = 1 SETTINGS max_threads = 1, log_comment = 'ddl'",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runs := func() bool {
				return enginetest.Exec(t, serverURL, "SELECT count() FROM system.processes WHERE Settings['log_comment'] = '"+name+"'") != "0\n"
			}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, serverURL, strings.NewReader(sql))
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := contextOf(t)
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				if resp, err := client.Do(req.WithContext(ctx)); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
			}()
			waitFor(t, "the statement to run", runs)
			cancel()
			<-ended
			waitFor(t, "the statement to end", func() bool { return !runs() })
		})
	}
}
