package engine

import (
	"strings"
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
		case strings.IndexByte(" \t\n\r\f\v\x00", rest[0]) >= 0:
			s.pos++
		case strings.HasPrefix(rest, "--"), strings.HasPrefix(rest, "#!"), strings.HasPrefix(rest, "# "):
			s.skipPast(rest, "\n")
		case strings.HasPrefix(rest, "/*"):
			s.pos += 2
			s.skipPast(rest[2:], "*/")
		case strings.HasPrefix(rest, "\u00a0"), strings.HasPrefix(rest, "\ufeff"):
			_, n := utf8.DecodeRuneInString(rest)
			s.pos += n
		default:
			return
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
// It is false for everything else, INSERT … SELECT included.
func splitInsert(text string) (insertParts, bool) {
	s := scanner{text: text}
	if !s.next().isWord(text, "INSERT") {
		return insertParts{}, false
	}
	t := s.next()
	if t.isWord(text, "INTO") {
		t = s.next()
	}
	if t.isWord(text, "TABLE") || t.isWord(text, "FUNCTION") {
		s.next() // a name, whatever word it is
	}
	depth := 0
	for {
		t = s.next()
		switch {
		case t.kind == tokenEnd, t.isMark(text, ';') && depth == 0:
			return insertParts{}, false
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
			if name.kind != tokenWord {
				return insertParts{}, false
			}
			return insertParts{head: text[:t.start], format: text[name.start:name.end], data: dataStart(text, name.end)}, true
		}
	}
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
