package evaluate

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
)

const (
	// maxSuiteLine is the longest line of an input, in bytes; a longer one is told of and left out.
	maxSuiteLine = 16 << 20
	// maxExamples is how many examples of one kind a report shows.
	maxExamples = 10
)

// ErrInput means that a file holds nothing that a suite could evaluate; the text says why.
var ErrInput = errors.New("nothing to evaluate")

// numbered is a value with the line that it stood on, from 1.
type numbered[T any] struct {
	line  int
	value T
}

// input is what was read of a file: what can be evaluated, and what not, with where it stood and why.
type input[T any] struct {
	path  string
	good  []numbered[T]
	wrong []string
}

// readFile reads a file of one value a line, plain or gzip.
func readFile[T any](path string, parse func(line []byte) (T, error)) (in input[T], err error) {
	file, err := os.Open(path)
	if err != nil {
		return in, fmt.Errorf("read what is to be evaluated: %w", err)
	}
	defer file.Close() //nolint:errcheck // It was only read.
	content, err := unzipped(file)
	if err != nil {
		return in, fmt.Errorf("read %s: %w", path, err)
	}
	return readLines(path, content, parse)
}

// unzipped reads what begins like gzip as gzip.
func unzipped(r io.Reader) (io.Reader, error) {
	buffered := bufio.NewReader(r)
	if head, err := buffered.Peek(2); err == nil && head[0] == 0x1f && head[1] == 0x8b {
		zip, err := gzip.NewReader(buffered)
		if err != nil {
			return nil, fmt.Errorf("unzip: %w", err)
		}
		return zip, nil
	}
	return buffered, nil
}

// readLines reads one value a line. A line that cannot be read is counted and named, and costs no other; blank lines are
// passed over. The error is [ErrInput] when no line can be read.
func readLines[T any](path string, r io.Reader, parse func(line []byte) (T, error)) (input[T], error) {
	in := input[T]{path: path}
	lines := bufio.NewReaderSize(r, 64<<10)
	for number := 1; ; number++ {
		raw, whole, err := nextLine(lines)
		if err != nil && !errors.Is(err, io.EOF) {
			return in, fmt.Errorf("read %s line %d: %w", path, number, err)
		}
		if number == 1 {
			raw = bytes.TrimPrefix(raw, []byte("\xef\xbb\xbf"))
		}
		switch raw = bytes.TrimSpace(raw); {
		case !whole:
			in.refuse(number, fmt.Errorf("longer than %d bytes", maxSuiteLine))
		case len(raw) > 0:
			if value, bad := parse(raw); bad != nil {
				in.refuse(number, bad)
			} else {
				in.good = append(in.good, numbered[T]{number, value})
			}
		}
		if err != nil {
			break
		}
	}
	return in, in.check()
}

func (in *input[T]) refuse(line int, why error) {
	in.wrong = append(in.wrong, fmt.Sprintf("malformed: %s line %d: %v", in.path, line, why))
}

// check says that there is nothing to evaluate.
func (in *input[T]) check() error {
	switch {
	case len(in.good) > 0:
		return nil
	case len(in.wrong) > 0:
		return fmt.Errorf("%w in %s: %d lines are malformed, the first: %s", ErrInput, in.path, len(in.wrong), in.wrong[0])
	default:
		return fmt.Errorf("%w in %s: it is empty", ErrInput, in.path)
	}
}

// tell puts what could not be read into a report.
func (in *input[T]) tell(report *Report) {
	report.Figures["lines_malformed"] += float64(len(in.wrong))
	report.Examples = append(report.Examples, firstOf(in.wrong, maxExamples)...)
}

// nextLine reads up to the next newline. A line that is too long is read over, and whole is false.
func nextLine(r *bufio.Reader) (line []byte, whole bool, err error) {
	whole = true
	for {
		piece, err := r.ReadSlice('\n')
		if len(line)+len(piece) > maxSuiteLine {
			line, whole = nil, false
		}
		if whole {
			line = append(line, piece...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, whole, err //nolint:wrapcheck // The caller says of which line.
		}
	}
}

func firstOf[T any](all []T, n int) []T { return all[:min(len(all), n)] }
