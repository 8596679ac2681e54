package engine_test

import (
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hindsight-memory/hindsight/internal/engine/enginetest"
)

// file() is how cold memories leave and come back: it must work as on a
// server, inside one directory.
func TestParquetByFile(t *testing.T) {
	t.Parallel()
	serverURL := enginetest.ClickHouse(t)
	db := enginetest.Database(t, serverURL)
	enginetest.Exec(t, serverURL, "CREATE TABLE "+db+".t (id UInt64, at DateTime64(3, 'UTC'), labels Map(String, String), tags Array(LowCardinality(String)), note Nullable(String), vector Array(Float32)) ENGINE = MergeTree ORDER BY id")
	enginetest.Exec(t, serverURL, "INSERT INTO "+db+".t SELECT number, toDateTime64('2026-01-02 03:04:05.678', 3, 'UTC') + number, map('k', toString(number)), ['a', '日本'], if(number % 2, NULL, 'n'), [number, 0.5] FROM numbers(1000)")
	path := "archive/" + db + "/2026-01.parquet"
	enginetest.Exec(t, serverURL, "INSERT INTO FUNCTION file('"+path+"', 'Parquet') SELECT * FROM "+db+".t")
	const figures = "SELECT count(), sum(id), min(at), max(at), sum(cityHash64(labels['k'], arrayStringConcat(tags), note, vector)) FROM "
	want := enginetest.Exec(t, serverURL, figures+db+".t")
	if got := enginetest.Exec(t, serverURL, figures+"file('"+path+"')"); got != want {
		t.Errorf("the archive holds %q, the table %q", got, want)
	}
	if got := enginetest.Exec(t, serverURL, figures+"file('archive/"+db+"/*.parquet', 'Parquet')"); got != want {
		t.Errorf("by a pattern: %q, want %q", got, want)
	}
	enginetest.Exec(t, serverURL, "TRUNCATE TABLE "+db+".t")
	enginetest.Exec(t, serverURL, "INSERT INTO "+db+".t SELECT * FROM file('"+path+"', 'Parquet')")
	if got := enginetest.Exec(t, serverURL, figures+db+".t"); got != want {
		t.Errorf("restored %q, want %q", got, want)
	}
	if resp, text := ask(t, serverURL, "SELECT count() FROM file({p:String}, {f:String})", url.Values{"param_p": {path}, "param_f": {"Parquet"}}, ""); text != "1000\n" {
		t.Errorf("by parameters: %d %q, want 1000", resp.StatusCode, text)
	}
	// A second write must not silently double an archive.
	if resp, text := ask(t, serverURL, "INSERT INTO FUNCTION file('"+path+"', 'Parquet') SELECT * FROM "+db+".t", nil, ""); resp.StatusCode == http.StatusOK {
		t.Errorf("writing over an archive: %d %q, want a refusal", resp.StatusCode, text)
	}
}

// Nothing outside that directory may be read or written, in whatever words.
func TestFilesElsewhereAreOutOfReach(t *testing.T) {
	t.Parallel()
	serverURL := enginetest.ClickHouse(t)
	db := enginetest.Database(t, serverURL)
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret.csv")
	if err := os.WriteFile(secret, []byte("secret,1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	enginetest.Exec(t, serverURL, "INSERT INTO FUNCTION file('"+db+".csv', 'CSV', 'a String, b UInt8') VALUES ('mine', 1)")
	allowed := "file('" + db + ".csv', 'CSV', 'a String, b UInt8')"
	if got := enginetest.Exec(t, serverURL, "SELECT a FROM "+allowed); got != "mine\n" {
		t.Fatalf("the allowed file holds %q", got)
	}
	for name, sql := range map[string]string{
		"read":                "SELECT * FROM file('" + secret + "')",
		"upper case":          "SELECT * FROM FILE('" + secret + "', 'CSV')",
		"quoted name":         "SELECT * FROM `file`('" + secret + "')",
		"escaped name":        "SELECT `f\\x69le`('" + secret + "')",
		"scalar":              "SELECT file('" + secret + "')",
		"scalar with default": "SELECT file('" + secret + "', 'x')",
		"comment between":     "SELECT * FROM file /* x */ ('" + secret + "')",
		"wide space between":  "SELECT * FROM file\u3000('" + secret + "')",
		"upwards":             "SELECT * FROM file('../../../../../../.." + secret + "')",
		"upwards in braces":   "SELECT * FROM file('{x,../../../../../../.." + secret + "}')",
		"an expression":       "SELECT * FROM file(concat('" + secret + "', ''))",
		"an alias":            "WITH '" + secret + "' AS p SELECT * FROM file(p)",
		"an escape":           "SELECT * FROM file('\\x2f" + secret[1:] + "')",
		"a heredoc":           "SELECT * FROM file($$" + secret + "$$)",
		"adjacent":            "SELECT * FROM file('x' || '" + secret + "')",
		"a descriptor":        "SELECT * FROM file(0)",
		"beside an allowed":   "SELECT * FROM " + allowed + " UNION ALL SELECT * FROM file('" + secret + "', 'CSV', 'a String, b UInt8')",
		"cluster of files":    "SELECT * FROM " + allowed + " UNION ALL SELECT * FROM fileCluster('default', '" + secret + "', 'CSV', 'a String, b UInt8')",
		"file system":         "SELECT name FROM filesystem('" + dir + "')",
		"file system beside":  "SELECT a FROM " + allowed + " UNION ALL SELECT name FROM filesystem('" + dir + "')",
		"eval":                "SELECT * FROM eval('SELECT file(''" + secret + "'')')",
		"table by name":       "SELECT * FROM `" + secret + "`",
		"overlay by name":     "SELECT * FROM _file_names.`" + secret + "`",
		"overlay beside":      "SELECT a FROM " + allowed + " UNION ALL SELECT a FROM _file_names.`" + secret + "`",
		"table engine":        "CREATE TABLE " + db + ".f (a String, b UInt8) ENGINE = File(CSV, '" + secret + "')",
		"database engine":     "CREATE DATABASE " + db + "_fs ENGINE = Filesystem('" + dir + "')",
		"SQLite":              "SELECT * FROM sqlite('" + filepath.Join(dir, "x.db") + "', 't')",
		"dictionary":          "CREATE DICTIONARY " + db + ".d (a String) PRIMARY KEY a SOURCE(EXECUTABLE(COMMAND 'echo x' FORMAT 'CSV')) LAYOUT(COMPLEX_KEY_DIRECT())",
		"command":             "SELECT * FROM executable('x.sh', 'TSV', 'a String')",
		"URL":                 "SELECT * FROM url('file://" + secret + "', 'CSV', 'a String, b UInt8')",
		"INFILE":              "INSERT INTO FUNCTION null('a String, b UInt8') FROM INFILE '" + secret + "' FORMAT CSV",
		"OUTFILE":             "SELECT 1 INTO OUTFILE '" + filepath.Join(dir, "out") + "'",
		"write":               "INSERT INTO FUNCTION file('" + filepath.Join(dir, "out") + "', 'CSV', 'a UInt8') VALUES (1)",
		"write by SELECT":     "INSERT INTO FUNCTION file('" + filepath.Join(dir, "out") + "', 'CSV') SELECT 1",
		"backup":              "BACKUP DATABASE " + db + " TO File('" + filepath.Join(dir, "out") + "')",
		"the role":            "SET ROLE files",
		"a default":           "CREATE TABLE " + db + ".t (a String DEFAULT file('" + secret + "')) ENGINE = Memory",
		"a function":          "CREATE FUNCTION " + db + "_f AS (p) -> file(p)",
		"iceberg":             "SELECT * FROM icebergLocal('" + dir + "')",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			resp, text := ask(t, serverURL, "", nil, sql)
			if strings.Contains(text, "secret,") || strings.Contains(text, "secret\t") || strings.Contains(text, "secret.csv\n") {
				t.Fatalf("it read the file: %q", text)
			}
			if resp.StatusCode == http.StatusOK && name != "the role" {
				t.Errorf("%d %q, want a refusal", resp.StatusCode, text)
			}
		})
	}
	t.Cleanup(func() {
		if _, err := os.Stat(filepath.Join(dir, "out")); !os.IsNotExist(err) {
			t.Errorf("it wrote a file: %v", err)
		}
		if text := enginetest.Exec(t, serverURL, "SHOW CURRENT ROLES"); text != "" {
			t.Errorf("roles left: %q", text)
		}
	})
}
