package engine

import (
	"errors"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestSplitInsert(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		insert             bool
		head, format, rows string
	}{
		"SELECT 1":                                       {},
		"INSERT INTO t VALUES (1)":                       {true, "INSERT INTO t ", "Values", " (1)"},
		"insert into t values(1)":                        {true, "insert into t ", "Values", "(1)"},
		"INSERT INTO t FORMAT Native\n\x00\n\n":          {true, "INSERT INTO t ", "Native", "\x00\n\n"},
		"INSERT INTO t FORMAT Native\n\nx":               {true, "INSERT INTO t ", "Native", "\nx"},
		"INSERT INTO t FORMAT CSV \t 1":                  {true, "INSERT INTO t ", "CSV", "1"},
		"INSERT INTO t FORMAT CSV\r\n1":                  {true, "INSERT INTO t ", "CSV", "1"},
		"INSERT INTO t (values, format) FORMAT CSV 1":    {true, "INSERT INTO t (values, format) ", "CSV", "1"},
		"INSERT INTO values VALUES (1)":                  {true, "INSERT INTO values ", "Values", " (1)"},
		"INSERT INTO d.format FORMAT CSV 1":              {true, "INSERT INTO d.format ", "CSV", "1"},
		"INSERT INTO `FORMAT CSV` FORMAT TSV 1":          {true, "INSERT INTO `FORMAT CSV` ", "TSV", "1"},
		"INSERT INTO {t:Identifier} VALUES (1)":          {true, "INSERT INTO {t:Identifier} ", "Values", " (1)"},
		"INSERT INTO FUNCTION file('FORMAT x') VALUES 1": {true, "INSERT INTO FUNCTION file('FORMAT x') ", "Values", " 1"},
		"INSERT INTO t SETTINGS a = 'VALUES' FORMAT X y": {true, "INSERT INTO t SETTINGS a = 'VALUES' ", "X", "y"},
		"/* INSERT */ INSERT t VALUES":                   {true, "/* INSERT */ INSERT t ", "Values", ""},
		"INSERT INTO t SELECT 1 FORMAT CSV":              {},
		"INSERT INTO t (a) WITH 1 AS b SELECT b":         {},
		"INSERT INTO t (SELECT 1)":                       {true, "INSERT INTO t (SELECT 1)", "Values", ""},
		"INSERT INTO t FROM INFILE 'x' FORMAT CSV":       {},
		"INSERT INTO t":                                  {true, "INSERT INTO t", "Values", ""},
		"INSERT INTO t;":                                 {true, "INSERT INTO t", "Values", ""},
		"EXPLAIN INSERT INTO t VALUES (1)":               {},
		"":                                               {},
	} {
		got, insert := splitInsert(text, true)
		if insert != want.insert || (insert && (got.head != want.head || got.format != want.format || text[got.data:] != want.rows)) {
			t.Errorf("splitInsert(%q) = %+v, %v; want %+v", text, got, insert, want)
		}
	}
	for _, cut := range []string{"INSERT INTO t", "INSERT INTO t FORMAT", "INSERT INTO t FORMAT JSONEach", "INSERT INTO t (a"} {
		if got, insert := splitInsert(cut, false); insert {
			t.Errorf("splitInsert(%q), cut = %+v, want it to wait", cut, got)
		}
	}
}

func TestOutputFormat(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		format  string
		selects bool
	}{
		"SELECT 1":                                       {"", true},
		"SELECT 1 FORMAT JSON":                           {"JSON", true},
		"( SELECT 1 ) format CSV SETTINGS a = 1":         {"CSV", true},
		"WITH 1 AS a SELECT a FORMAT TSV":                {"TSV", true},
		"SELECT 'FORMAT CSV' -- FORMAT TSV":              {"", true},
		"SELECT `FORMAT` FROM (SELECT 1 FORMAT)":         {"", true},
		"SHOW TABLES FORMAT Pretty":                      {"Pretty", false},
		"CREATE TABLE t (format String) ENGINE = Memory": {"", false},
	} {
		format, selects := outputFormat(text)
		if format != want.format || selects != want.selects {
			t.Errorf("outputFormat(%q) = %q, %v; want %+v", text, format, selects, want)
		}
	}
}

func TestHasSecondStatement(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"SELECT 1": false, "SELECT 1;": false, "SELECT 1 ; ;\n-- end": false, "SELECT ';' /* ; */": false,
		"SELECT 1; SELECT 2": true, "SELECT ';'; x": true, "; x": true, "SELECT $$;x$$": false,
	} {
		if got := hasSecondStatement(text); got != want {
			t.Errorf("hasSecondStatement(%q) = %v, want %v", text, got, want)
		}
	}
}

func TestDirErrorSaysWhatToDo(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]string{
		syscall.ENOSPC:  "is full",
		syscall.EDQUOT:  "is full",
		syscall.EACCES:  "cannot be written by this user",
		syscall.EROFS:   "cannot be written by this user",
		syscall.ENOTDIR: "is not a directory",
	} {
		got := dirError("/data", err)
		if !strings.Contains(got.Error(), want) || !strings.Contains(got.Error(), "HINDSIGHT_DATA_DIR") || !errors.Is(got, err) {
			t.Errorf("dirError(%v) = %v, want it to say %q and HINDSIGHT_DATA_DIR", err, got, want)
		}
	}
}

// The scanner reads what anybody sends: it must end, and its tokens must lie
// in order inside the text.
func FuzzScanner(f *testing.F) {
	for _, seed := range []string{
		"SELECT 'a''b\\'c' FROM `x` -- y\n/* z */ $t$ w $t$ #! q\n{p:String}; \u3000", "'", "\"", "$", "$a$", "/*", "\\", "INSERT INTO t FORMAT Native\n\x00\xff",
		"SELECT * FROM file('a.csv') UNION ALL SELECT * FROM file('/etc/passwd')",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s := scanner{text: text}
		at := 0
		for {
			token := s.next()
			if token.kind == tokenEnd {
				break
			}
			if token.start < at || token.end <= token.start || token.end > len(text) {
				t.Fatalf("token %+v after %d in %d bytes", token, at, len(text))
			}
			at = token.end
		}
		if p, ok := splitInsert(text, true); ok && (p.data > len(text) || len(p.head) > p.data) {
			t.Errorf("splitInsert = %+v of %d bytes", p, len(text))
		}
		outputFormat(text)
		hasSecondStatement(text)
	})
}

// Whatever the text, a path that is let through lies inside the directory.
func FuzzFilePaths(f *testing.F) {
	for _, seed := range []string{
		"SELECT * FROM file('a.csv')", "SELECT * FROM file('/root/files/a', 'CSV')", "SELECT file({p:String})", "SELECT FILE ( 'x' , 1)",
		"INSERT INTO FUNCTION file('x/../y') SELECT 1", "SELECT * FROM file('{a,b}')", "SELECT `file`('a')", "SELECT file FROM t",
	} {
		f.Add(seed, "p.csv")
	}
	const root = "/root/files"
	f.Fuzz(func(t *testing.T, text, value string) {
		confined, reaches, err := filePaths(text, root, []param{{"p", value}})
		if err != nil || !reaches {
			return
		}
		s := scanner{text: confined}
		found := false
		for {
			token := s.next()
			if token.kind == tokenEnd {
				break
			}
			if !token.isName(confined, "file") {
				continue
			}
			ahead := s
			if !ahead.next().isMark(confined, '(') {
				continue
			}
			path := ahead.next()
			text := strings.Trim(confined[path.start:path.end], "'")
			if path.kind != tokenString || filepath.Clean(text) == root || !strings.HasPrefix(filepath.Clean(text), root+"/") {
				t.Fatalf("%q became %q, which reaches %q", text, confined, confined[path.start:path.end])
			}
			found = true
		}
		if !found {
			t.Fatalf("%q became %q without a path", text, confined)
		}
	})
}
