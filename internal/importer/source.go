package importer

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// stdinPath means standard input.
const stdinPath = "-"

// gzipMagic is how a gzip file begins.
const gzipMagic = "\x1f\x8b"

// readBuffer is the size of the buffers in front of the file and of the text.
const readBuffer = 64 << 10

// source is an open file, uncompressed.
type source struct {
	// text is the uncompressed content.
	text *bufio.Reader
	// stored counts the bytes of the file as it is stored; size is how many there are, 0 when that is unknown.
	stored *countingReader
	size   int64
	closer io.Closer
}

// openSource opens a file, or takes stdin for "-", and looks through gzip. Its errors carry their reason.
func openSource(ctx context.Context, path string, stdin io.Reader) (_ *source, err error) {
	s := &source{}
	raw := stdin
	if path != stdinPath {
		f, size, err := openFile(ctx, path)
		if err != nil {
			return nil, err
		}
		s.closer, s.size, raw = f, size, f
		if size > 0 {
			// What is appended from now on is not ours: it may be half a line, and it may never end.
			raw = io.LimitReader(f, size)
		}
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	s.stored = &countingReader{in: raw}
	stored := bufio.NewReaderSize(s.stored, readBuffer)
	head, err := stored.Peek(8)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, problemf(ReasonReadError, "read: %w", err)
	}
	if name := compression(head); name != "" {
		return nil, problemf(ReasonUnsupportedCompression, "the file is %s: uncompress it, or compress it with gzip", name)
	}
	s.text = stored
	if bytes.HasPrefix(head, []byte(gzipMagic)) {
		z, err := gzip.NewReader(stored)
		if err != nil {
			return nil, s.explain(err, 0)
		}
		s.text = bufio.NewReaderSize(z, readBuffer)
	}
	return s, s.checkText()
}

// openFile opens a regular file, a pipe or the like; size is 0 for what is not regular.
func openFile(ctx context.Context, path string) (*os.File, int64, error) {
	f, err := openInterruptibly(ctx, path)
	switch {
	case ctx.Err() != nil:
		return nil, 0, problemf(ReasonCancelled, "stopped before the file was open: %w", context.Cause(ctx))
	case errors.Is(err, fs.ErrNotExist):
		return nil, 0, problemf(ReasonNotFound, "there is no such file: %w", err)
	case err != nil:
		return nil, 0, problemf(ReasonNotReadable, "the file cannot be read: %w", err)
	}
	info, err := f.Stat()
	switch {
	case err != nil:
		err = problemf(ReasonNotReadable, "the file cannot be read: %w", err)
	case info.IsDir():
		err = directoryError(path)
	case info.Mode().IsRegular():
		return f, info.Size(), nil
	default:
		return f, 0, nil
	}
	return nil, 0, errors.Join(err, f.Close())
}

// openInterruptibly opens a file such that the end of ctx ends both the opening of a pipe that nobody writes to and the
// reading of it.
func openInterruptibly(ctx context.Context, path string) (*os.File, error) {
	if info, err := os.Stat(path); err != nil || info.Mode()&fs.ModeNamedPipe == 0 {
		return os.Open(path) //nolint:wrapcheck // The caller says what it means.
	}
	type opened struct {
		f   *os.File
		err error
	}
	result := make(chan opened, 1)
	go func() { // It ends when a writer comes, at the latest with the process.
		f, err := os.Open(path)
		result <- opened{f, err}
	}()
	select {
	case <-ctx.Done():
		return nil, ctx.Err() //nolint:wrapcheck // The caller looks at the context.
	case r := <-result:
		if r.err == nil {
			context.AfterFunc(ctx, func() { _ = r.f.SetReadDeadline(time.Unix(1, 0)) })
		}
		return r.f, r.err
	}
}

// directoryError says what a directory holds and how to name it.
func directoryError(path string) error {
	const enough = 1000
	d, err := os.Open(path)
	if err != nil {
		return problemf(ReasonNotReadable, "the directory cannot be read: %w", err)
	}
	entries, err := d.ReadDir(enough)
	if closeErr := d.Close(); err == nil || errors.Is(err, io.EOF) {
		err = closeErr
	}
	if err != nil {
		return problemf(ReasonNotReadable, "the directory cannot be read: %w", err)
	}
	suffixes := []string{".jsonl.gz", ".jsonl", ".ndjson", ".json", ".gz"}
	counts := map[string]int{}
	directories, other := 0, 0
	for _, e := range entries {
		at := 0
		for at < len(suffixes) && !strings.HasSuffix(e.Name(), suffixes[at]) {
			at++
		}
		switch {
		case e.IsDir():
			directories++
		case at < len(suffixes):
			counts[suffixes[at]]++
		default:
			other++
		}
	}
	var holds, patterns []string
	for _, suffix := range suffixes {
		if n := counts[suffix]; n > 0 {
			holds = append(holds, fmt.Sprintf("%d %s", n, suffix))
			patterns = append(patterns, filepath.Join(path, "*"+suffix))
		}
	}
	if other > 0 {
		holds = append(holds, fmt.Sprintf("%d other files", other))
	}
	if directories > 0 {
		holds = append(holds, fmt.Sprintf("%d directories", directories))
	}
	if len(holds) == 0 {
		return problemf(ReasonIsDirectory, "it is an empty directory: give files")
	}
	if len(patterns) == 0 {
		patterns = []string{filepath.Join(path, "FILE")}
	}
	return problemf(ReasonIsDirectory, "it is a directory (%s): give its files, as in %s",
		strings.Join(holds, ", "), strings.Join(patterns, " "))
}

// compression names what a file is compressed with, by its first bytes.
func compression(head []byte) string {
	for magic, name := range map[string]string{
		"\x28\xb5\x2f\xfd": "compressed with zstd",
		"BZh":              "compressed with bzip2",
		"\xfd7zXZ\x00":     "compressed with xz",
		"PK\x03\x04":       "a zip archive",
		"\x04\x22\x4d\x18": "compressed with lz4",
	} {
		if bytes.HasPrefix(head, []byte(magic)) {
			return name
		}
	}
	return ""
}

// checkText refuses what is no text: every line of it would be a problem of its own.
func (s *source) checkText() error {
	head, err := s.text.Peek(512)
	if len(head) == 0 {
		if err != nil && !errors.Is(err, io.EOF) {
			return s.explain(err, 0)
		}
		return nil
	}
	switch {
	case bytes.HasPrefix(head, []byte(gzipMagic)):
		return problemf(ReasonUnsupportedCompression, "the file is compressed with gzip twice: uncompress it once")
	case bytes.HasPrefix(head, []byte{0xff, 0xfe}), bytes.HasPrefix(head, []byte{0xfe, 0xff}):
		return problemf(ReasonBinaryFile, "the file is UTF-16: convert it to UTF-8, as with iconv -f UTF-16 -t UTF-8")
	case bytes.IndexByte(head, 0) >= 0:
		return problemf(ReasonBinaryFile, "the file is binary: it has zero bytes, which JSON text never has")
	}
	return nil
}

// explain turns an error of reading into one for a person; lines is how many complete lines came before it.
func (s *source) explain(err error, lines int) error {
	var corrupt flate.CorruptInputError
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return problemf(ReasonTruncatedGzip,
			"the gzip file is cut after %d complete lines: they were taken, the rest is missing; copy the file again: %w", lines, err)
	case errors.Is(err, gzip.ErrChecksum), errors.Is(err, gzip.ErrHeader), errors.As(err, &corrupt):
		return problemf(ReasonCorruptGzip,
			"the gzip file is damaged after %d complete lines: they were taken, the rest cannot be read: %w", lines, err)
	default:
		return problemf(ReasonReadError, "reading failed after %d complete lines: %w", lines, err)
	}
}

// Close closes the file; standard input stays open.
func (s *source) Close() error {
	if s.closer == nil {
		return nil
	}
	if err := s.closer.Close(); err != nil {
		return problemf(ReasonReadError, "close: %w", err)
	}
	return nil
}
