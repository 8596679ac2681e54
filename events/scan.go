package events

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"
)

// scanner walks JSON once, checks it as encoding/json does and notes what has to be known of it. It is here because
// every event is checked at each of its doors, and that took as long as all the rest of taking it in. It refuses more
// than encoding/json does (what is nested deeper than [MaxDepth]), never less: what it refuses is given to the standard
// library, which has the last word.
type scanner struct {
	raw []byte
	// blank is set when there is white space between the tokens.
	blank bool
}

// plainText holds the bytes that may stand in a string as they are, and do not end it.
var plainText = func() (table [256]bool) {
	for c := range table {
		table[c] = c >= ' ' && c != '"' && c != '\\'
	}
	return table
}()

// isCompact reports whether raw is one JSON value, without blanks, in valid UTF-8, nested at most [MaxDepth] levels.
func isCompact(raw []byte) bool {
	s := scanner{raw: raw}
	return s.value(0, 0) == len(raw) && !s.blank && utf8.Valid(raw)
}

// skip returns the index of the next token.
func (s *scanner) skip(i int) int {
	end := skipSpace(s.raw, i)
	s.blank = s.blank || end > i
	return end
}

// value returns the index behind the value that begins at i, or -1 when there is none.
func (s *scanner) value(i, level int) int {
	if i < 0 || i >= len(s.raw) {
		return -1
	}
	switch c := s.raw[i]; {
	case c == '"':
		return s.text(i)
	case c == '{' || c == '[':
		if level == MaxDepth {
			return -1
		}
		return s.list(i, level+1, c+2)
	case c == '-' || isDigit(c):
		return s.number(i)
	case c == 't':
		return s.word(i, "true")
	case c == 'f':
		return s.word(i, "false")
	case c == 'n':
		return s.word(i, "null")
	}
	return -1
}

// list walks an object or array that begins at i and ends with the byte closing.
func (s *scanner) list(i, level int, closing byte) int {
	if i = s.skip(i + 1); i < len(s.raw) && s.raw[i] == closing {
		return i + 1
	}
	for {
		if closing == '}' {
			if _, i = s.name(i); i < 0 {
				return -1
			}
		}
		if i = s.value(i, level); i < 0 {
			return -1
		}
		if i = s.skip(i); i >= len(s.raw) {
			return -1
		}
		switch s.raw[i] {
		case closing:
			return i + 1
		case ',':
			i = s.skip(i + 1)
		default:
			return -1
		}
	}
}

// name returns the index behind the name that begins at i, and that of its value, or -1.
func (s *scanner) name(i int) (end, value int) {
	if i >= len(s.raw) || s.raw[i] != '"' {
		return -1, -1
	}
	if end = s.text(i); end < 0 {
		return -1, -1
	}
	if i = s.skip(end); i >= len(s.raw) || s.raw[i] != ':' {
		return -1, -1
	}
	return end, s.skip(i + 1)
}

func (s *scanner) text(i int) int {
	raw := s.raw
	for i++; ; i++ {
		if i = skipPlain(raw, i); i == len(raw) {
			return -1
		}
		c := raw[i]
		if c == '"' {
			return i + 1
		}
		if i++; c != '\\' || i >= len(raw) {
			return -1
		}
		switch raw[i] {
		case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		case 'u':
			if i+4 >= len(raw) || !isHex(raw[i+1]) || !isHex(raw[i+2]) || !isHex(raw[i+3]) || !isHex(raw[i+4]) {
				return -1
			}
			i += 4
		default:
			return -1
		}
	}
}

// skipPlain returns the index of the first byte at or after i that may not stand in a string as it is or ends it: a
// control character, " or \, or the end. It looks at eight bytes at a time.
func skipPlain(raw []byte, i int) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	for i+8 <= len(raw) {
		w := binary.LittleEndian.Uint64(raw[i:])
		quotes, slashes := w^ones*'"', w^ones*'\\'
		if ((w-ones*' ')&^w|(quotes-ones)&^quotes|(slashes-ones)&^slashes)&highs != 0 {
			break
		}
		i += 8
	}
	for i < len(raw) && plainText[raw[i]] {
		i++
	}
	return i
}

func isHex(c byte) bool { return isDigit(c) || c|0x20 >= 'a' && c|0x20 <= 'f' }

func (s *scanner) word(i int, word string) int {
	if bytes.HasPrefix(s.raw[i:], []byte(word)) {
		return i + len(word)
	}
	return -1
}

func (s *scanner) number(i int) int {
	if s.raw[i] == '-' {
		i++
	}
	begin := i
	if i = s.digits(i); i < 0 || s.raw[begin] == '0' && i > begin+1 {
		return -1
	}
	if i < len(s.raw) && s.raw[i] == '.' {
		if i = s.digits(i + 1); i < 0 {
			return -1
		}
	}
	if i < len(s.raw) && s.raw[i]|0x20 == 'e' {
		if i++; i < len(s.raw) && (s.raw[i] == '+' || s.raw[i] == '-') {
			i++
		}
		return s.digits(i)
	}
	return i
}

// digits returns the index behind one or more digits.
func (s *scanner) digits(i int) int {
	begin := i
	for i < len(s.raw) && isDigit(s.raw[i]) {
		i++
	}
	if i == begin {
		return -1
	}
	return i
}

// decodePlain reads an envelope whose names and texts are written without escapes, as nearly all are, in one pass. It
// reports false for any other and for what is no event: [decodeFields] decides about those. raw is not kept.
func decodePlain(raw []byte) (Event, bool) {
	var out Event
	s := scanner{raw: raw}
	i := s.skip(0)
	if i >= len(raw) || raw[i] != '{' || !utf8.Valid(raw) {
		return Event{}, false
	}
	var texts [9][]byte
	i = s.skip(i + 1)
	for more := true; more; {
		end, from := s.name(i)
		name := i + 1
		if i = s.value(from, 1); i < 0 || !takePlain(&out, raw[name:end-1], raw[from:i], &texts) {
			return Event{}, false
		}
		if i = s.skip(i); i >= len(raw) {
			return Event{}, false
		}
		switch raw[i] {
		case ',':
			i = s.skip(i + 1)
		case '}':
			more = false
		default:
			return Event{}, false
		}
	}
	if s.skip(i+1) != len(raw) {
		return Event{}, false
	}
	// All texts share one copy: they live and die together.
	var all strings.Builder
	size := 0
	for _, text := range texts {
		size += len(text)
	}
	all.Grow(size)
	for _, text := range texts {
		all.Write(text)
	}
	var when, kind string
	rest := all.String()
	for at, into := range [...]*string{
		&out.ID, &out.Namespace, &out.AgentID, &out.SessionID, &out.UserID, &out.TaskID, &out.GoalID, &when, &kind,
	} {
		*into, rest = rest[:len(texts[at])], rest[len(texts[at]):]
	}
	out.Kind = Kind(kind)
	if when != "" {
		t, err := ParseTime(when)
		if err != nil {
			return Event{}, false
		}
		out.Time = t
	}
	out.Data = bytes.Clone(out.Data)
	return out, true
}

// takePlain takes one field. Of a name that is given twice the last counts.
func takePlain(e *Event, name, value []byte, texts *[9][]byte) bool {
	null := value[0] == 'n'
	var text int
	switch string(name) {
	case "id":
		text = 0
	case "namespace":
		text = 1
	case "agent_id":
		text = 2
	case "session_id":
		text = 3
	case "user_id":
		text = 4
	case "task_id":
		text = 5
	case "goal_id":
		text = 6
	case "time":
		text = 7
	case "kind":
		text = 8
	case "seq":
		e.Seq = 0
		if null {
			return true
		}
		n, err := strconv.ParseInt(string(value), 10, 64)
		e.Seq = n
		return err == nil
	case "data":
		e.Data = value
		if null {
			e.Data = nil
		}
		return true
	case "specversion": // Perhaps a CloudEvent.
		return false
	default:
		if bytes.IndexByte(name, '\\') >= 0 {
			return false
		}
		if e.Extra == nil {
			e.Extra = map[string]json.RawMessage{}
		}
		e.Extra[string(name)] = bytes.Clone(value)
		return true
	}
	if null {
		texts[text] = nil
		return true
	}
	if value[0] != '"' || bytes.IndexByte(value, '\\') >= 0 {
		return false
	}
	texts[text] = value[1 : len(value)-1]
	return true
}
