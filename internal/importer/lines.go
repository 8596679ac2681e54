package importer

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// line is one line of a file, without its end.
type line struct {
	// number counts from 1, blank lines included.
	number int
	// text is valid until the next call of next.
	text []byte
	// tooLong means that the line was over the limit; its text was thrown away.
	tooLong bool
	// ended means that a newline followed.
	ended bool
}

// lineReader cuts a stream into lines. It never holds more than limit bytes of one line.
type lineReader struct {
	in     *bufio.Reader
	limit  int
	number int
	buf    []byte
	// err ends the stream; it is kept, because a bufio.Reader reports an error once.
	err error
}

// next returns the next line. At a good end it returns the rest, if there is one, as a line that has not ended, and then
// io.EOF. At a bad end it returns the error and drops the rest: what the line would have been cannot be known.
func (r *lineReader) next() (line, error) {
	r.buf = r.buf[:0]
	tooLong, ended := false, false
	for !ended && r.err == nil {
		chunk, err := r.in.ReadSlice('\n')
		switch {
		case err == nil:
			ended = true
			chunk = chunk[:len(chunk)-1]
		case !errors.Is(err, bufio.ErrBufferFull):
			r.err = err
		}
		if tooLong = tooLong || len(r.buf)+len(chunk) > r.limit; tooLong {
			r.buf = r.buf[:0]
			continue
		}
		r.buf = append(r.buf, chunk...)
	}
	if !ended && (!errors.Is(r.err, io.EOF) || len(r.buf) == 0 && !tooLong) {
		return line{}, r.err
	}
	r.number++
	text := r.buf
	if r.number == 1 {
		text = bytes.TrimPrefix(text, []byte("\uFEFF"))
	}
	return line{number: r.number, text: bytes.TrimSuffix(text, []byte("\r")), tooLong: tooLong, ended: ended}, nil
}

// countingReader counts what is read through it.
type countingReader struct {
	in io.Reader
	n  int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.in.Read(p)
	c.n += int64(n)
	return n, err
}
