package engine

import (
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"
)

// tokenKind is what a token of SQL text is, as far as this package must know.
type tokenKind uint8

const (
	tokenEnd    tokenKind = iota
	tokenWord             // bare word or number
	tokenString           // '…' or a heredoc
	tokenQuoted           // "…" or `…`
	tokenMark             // any other single character
)

// token is a piece of SQL text: text[start:end].
type token struct {
	kind       tokenKind
	start, end int
}

// invisible are the characters that ClickHouse takes for spaces beyond those
// that Unicode calls so.
const invisible = "\u180e\u200b\u200c\u200d\u2060\ufeff"

// scanner splits ClickHouse's SQL into tokens, skipping spaces and comments.
// It accepts any text: what is not closed ends with the text. It looks at no
// byte beyond the tokens that are asked for, so that the data after an INSERT
// is never scanned.
type scanner struct {
	text string
	pos  int
}

func (s *scanner) next() token {
	s.skipSpace()
	start := s.pos
	if start >= len(s.text) {
		return token{tokenEnd, start, start}
	}
	switch c := s.text[start]; {
	case c == '\'':
		s.quoted('\'')
		return token{tokenString, start, s.pos}
	case c == '"' || c == '`':
		s.quoted(c)
		return token{tokenQuoted, start, s.pos}
	case c == '$':
		if s.heredoc() {
			return token{tokenString, start, s.pos}
		}
		s.pos++
		return token{tokenMark, start, s.pos}
	case isWordByte(c):
		for s.pos < len(s.text) && isWordByte(s.text[s.pos]) {
			s.pos++
		}
		return token{tokenWord, start, s.pos}
	default:
		_, n := utf8.DecodeRuneInString(s.text[start:])
		s.pos += n
		return token{tokenMark, start, s.pos}
	}
}

func isWordByte(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

func (s *scanner) skipSpace() {
	for s.pos < len(s.text) {
		rest := s.text[s.pos:]
		switch {
		case rest[0] == 0:
			s.pos++
		case strings.HasPrefix(rest, "--"), strings.HasPrefix(rest, "#!"), strings.HasPrefix(rest, "# "):
			s.skipPast(rest, "\n")
		case strings.HasPrefix(rest, "/*"):
			s.pos += 2
			s.skipPast(rest[2:], "*/")
		default:
			r, n := utf8.DecodeRuneInString(rest)
			if !unicode.IsSpace(r) && !strings.ContainsRune(invisible, r) {
				return
			}
			s.pos += n
		}
	}
}

func (s *scanner) skipPast(rest, mark string) {
	if i := strings.Index(rest, mark); i >= 0 {
		s.pos += i + len(mark)
	} else {
		s.pos = len(s.text)
	}
}

// quoted skips a quoted token; inside, a backslash escapes the next byte and
// a doubled quote is one quote.
func (s *scanner) quoted(quote byte) {
	s.pos++
	for s.pos < len(s.text) {
		c := s.text[s.pos]
		s.pos++
		switch {
		case c == '\\' && s.pos < len(s.text):
			s.pos++
		case c == quote:
			if s.pos < len(s.text) && s.text[s.pos] == quote {
				s.pos++
				continue
			}
			return
		}
	}
}

// heredoc skips $tag$…$tag$ and reports whether there was one.
func (s *scanner) heredoc() bool {
	i := s.pos + 1
	for i < len(s.text) && isWordByte(s.text[i]) {
		i++
	}
	if i >= len(s.text) || s.text[i] != '$' {
		return false
	}
	tag := s.text[s.pos : i+1]
	end := strings.Index(s.text[i+1:], tag)
	if end < 0 {
		return false
	}
	s.pos = i + 1 + end + len(tag)
	return true
}

func (t token) isWord(text, word string) bool {
	return t.kind == tokenWord && strings.EqualFold(text[t.start:t.end], word)
}

func (t token) isMark(text string, mark byte) bool {
	return t.kind == tokenMark && t.end == t.start+1 && text[t.start] == mark
}

// insertParts is an INSERT whose rows follow its text.
type insertParts struct {
	head   string // the statement without FORMAT and data
	format string // the input format
	data   int    // where the rows begin in the text
}

// splitInsert finds the end of an INSERT statement that is followed by rows.
// It is false for everything else, INSERT … SELECT included. whole says that
// nothing follows text; an INSERT that ends without a format has no rows then.
func splitInsert(text string, whole bool) (insertParts, bool) {
	s := scanner{text: text}
	if !s.next().isWord(text, "INSERT") {
		return insertParts{}, false
	}
	t := s.next()
	if t.isWord(text, "INTO") {
		t = s.next()
	}
	if t.isWord(text, "TABLE") || t.isWord(text, "FUNCTION") {
		t = s.next()
	}
	if t.kind == tokenMark {
		s.pos = t.start // a parameter instead of a name
	}
	depth := 0
	for t.kind != tokenEnd {
		t = s.next()
		switch {
		case depth == 0 && t.isMark(text, ';'):
			return insertParts{head: text[:t.start], format: "Values", data: len(text)}, whole
		case t.isMark(text, '('), t.isMark(text, '['), t.isMark(text, '{'):
			depth++
		case t.isMark(text, ')'), t.isMark(text, ']'), t.isMark(text, '}'):
			depth--
		case t.isMark(text, '.'):
			s.next() // a name, whatever word it is
		case depth != 0 || t.kind != tokenWord:
		case t.isWord(text, "SELECT"), t.isWord(text, "WITH"), t.isWord(text, "WATCH"), t.isWord(text, "FROM"):
			return insertParts{}, false
		case t.isWord(text, "VALUES"):
			return insertParts{head: text[:t.start], format: "Values", data: t.end}, true
		case t.isWord(text, "FORMAT"):
			name := s.next()
			// The name may go on where the text was cut.
			if name.kind != tokenWord || (name.end == len(text) && !whole) {
				return insertParts{}, false
			}
			return insertParts{head: text[:t.start], format: text[name.start:name.end], data: dataStart(text, name.end)}, true
		}
	}
	return insertParts{head: text, format: "Values", data: len(text)}, whole
}

// dataStart skips what separates a format's name from the rows: spaces, and
// at most one line end.
func dataStart(text string, i int) int {
	for i < len(text) && (text[i] == ' ' || text[i] == '\t' || text[i] == '\f') {
		i++
	}
	if i < len(text) && text[i] == '\r' {
		i++
	}
	if i < len(text) && text[i] == '\n' {
		i++
	}
	return i
}

// outputFormat returns the name in the FORMAT clause of a statement, "" if it
// has none, and whether the statement begins like a SELECT.
func outputFormat(text string) (format string, selects bool) {
	s := scanner{text: text}
	depth, first := 0, true
	for {
		t := s.next()
		if t.kind == tokenEnd {
			return format, selects
		}
		if first && !t.isMark(text, '(') {
			first = false
			selects = t.isWord(text, "SELECT") || t.isWord(text, "WITH")
		}
		switch {
		case t.isMark(text, '('):
			depth++
		case t.isMark(text, ')'):
			depth--
		case depth == 0 && t.isWord(text, "FORMAT"):
			if name := s.next(); name.kind == tokenWord {
				format = text[name.start:name.end]
			}
		}
	}
}

// hasSecondStatement reports whether anything follows a semicolon.
func hasSecondStatement(text string) bool {
	s := scanner{text: text}
	ended := false
	for {
		t := s.next()
		switch {
		case t.kind == tokenEnd:
			return false
		case t.isMark(text, ';'):
			ended = true
		case ended:
			return true
		}
	}
}

// readsFiles are the table functions other than file() that the right to use
// file() would open as well.
var readsFiles = map[string]bool{
	"filecluster": true, "filesystem": true, "sqlite": true, "executable": true, "hudi": true,
	"iceberg": true, "iceberglocal": true, "icebergcluster": true, "iceberglocalcluster": true,
	"deltalake": true, "deltalakelocal": true, "deltalakecluster": true,
	"paimon": true, "paimonlocal": true, "paimoncluster": true,
}

// filePaths confines a statement's file() to the directory root. It returns
// the statement with each path made absolute, and whether there was any. A
// path that is not a plain string, or that leads elsewhere, is an error, and
// so are the clauses that read and write the client's files, for the client
// is elsewhere.
//
// The engine itself refuses whatever else reads a file: only a statement that
// has passed here, and has nothing but file() in it, gets the right to.
func filePaths(text, root string, params []param) (confined string, reaches bool, err error) {
	var out strings.Builder
	s := scanner{text: text}
	first := scanner{text: text}
	inserts := first.next().isWord(text, "INSERT")
	done, other := 0, false
	before := token{}
	for {
		t := s.next()
		if t.kind == tokenEnd {
			out.WriteString(text[done:])
			return out.String(), reaches && !other, nil
		}
		switch {
		case before.isWord(text, "FROM") && t.isWord(text, "INFILE"), before.isWord(text, "INTO") && t.isWord(text, "OUTFILE"):
			return "", false, exceptionf(344, "SUPPORT_IS_DISABLED", "%s names a file of the client, which this server does not reach: send the data over HTTP", strings.ToUpper(text[t.start:t.end]))
		case t.isName(text, "eval"):
			ahead := s
			if ahead.next().isMark(text, '(') {
				return "", false, exceptionf(344, "SUPPORT_IS_DISABLED", "eval() would hide what a statement reads")
			}
		case t.isName(text, "input") && inserts:
			ahead := s
			if ahead.next().isMark(text, '(') {
				return "", false, exceptionf(48, "NOT_IMPLEMENTED", "The embedded ClickHouse takes no rows through input(): insert them into a table and select from it")
			}
		case t.isName(text, "file"):
			ahead := s
			if !ahead.next().isMark(text, '(') {
				break // a column or a table of that name
			}
			path, end, ok := pathArgument(&ahead, params)
			if !ok {
				return "", false, exceptionf(481, "PATH_ACCESS_DENIED", "The path of file() must be a plain string or a parameter, so that it can be checked")
			}
			if path, ok = confine(path, root); !ok {
				return "", false, exceptionf(481, "PATH_ACCESS_DENIED", "File is not inside %s", root)
			}
			open := s.next()
			out.WriteString(text[done:open.end])
			out.WriteString(quoteString(path))
			done, reaches = end, true
			s.pos = end
		case readsFiles[strings.ToLower(strings.Trim(text[t.start:t.end], "\"`"))]:
			other = true
		}
		before = t
	}
}

// pathArgument reads '…' or {name:Type} after the parenthesis of file(.
func pathArgument(s *scanner, params []param) (path string, end int, ok bool) {
	switch t := s.next(); {
	case t.kind == tokenString && s.text[t.start] == '\'' && t.end-t.start >= 2:
		path, end = s.text[t.start+1:t.end-1], t.end
	case t.isMark(s.text, '{'):
		name := s.next()
		colon, kind, brace := s.next(), s.next(), s.next()
		if name.kind != tokenWord || !colon.isMark(s.text, ':') || kind.kind != tokenWord || !brace.isMark(s.text, '}') {
			return "", 0, false
		}
		found := false
		for _, p := range params {
			if p.name == s.text[name.start:name.end] {
				path, found = p.value, true
			}
		}
		if !found {
			return "", 0, false
		}
		end = brace.end
	default:
		return "", 0, false
	}
	// Nothing that has to be unescaped, and the argument ends here.
	after := *s
	next := after.next()
	plain := path != "" && !strings.ContainsAny(path, "'\\\x00")
	return path, end, plain && (next.isMark(s.text, ',') || next.isMark(s.text, ')'))
}

// confine makes a path absolute from root and reports whether it stays there.
func confine(path, root string) (string, bool) {
	// Braces and :: are ClickHouse's, so that no part may lead upwards.
	if strings.Contains(path, "..") {
		return "", false
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(root, path)
	}
	return path, strings.HasPrefix(path, root+string(filepath.Separator))
}

// isName reports whether a token is that name, quoted or not, in any case.
func (t token) isName(text, name string) bool {
	switch t.kind {
	case tokenWord:
		return strings.EqualFold(text[t.start:t.end], name)
	case tokenQuoted:
		// An escape inside would only hide the name, which no client does by
		// chance.
		return t.end-t.start >= 2 && (strings.EqualFold(text[t.start+1:t.end-1], name) || strings.Contains(text[t.start:t.end], "\\"))
	case tokenEnd, tokenString, tokenMark:
	}
	return false
}
