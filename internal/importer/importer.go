package importer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"time"
	"unicode/utf8"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/memory"
)

// DefaultMaxLineBytes is the longest line that is read unless the options say otherwise: 16 MiB.
const DefaultMaxLineBytes = 16 << 20

// Options says how to import.
type Options struct {
	// Format is [FormatAuto] or one of [Formats]; empty means [FormatAuto].
	Format string
	// Namespace is whose memory the events become. A trajectory needs one; of native events it completes those that have
	// none, and one of another namespace is a problem.
	Namespace string
	// OverrideNamespace puts native events of any namespace into Namespace.
	OverrideNamespace bool
	// Now is the clock that times are validated against, and what a native event without a time gets; nil means
	// [time.Now].
	Now func() time.Time
	// MaxLineBytes is the longest line that is read, 0 means [DefaultMaxLineBytes]. A longer one is a problem.
	MaxLineBytes int
	// Stdin is what the path - reads; nil means standard input.
	Stdin io.Reader
}

// Record is one translated line.
type Record struct {
	// Path is the file as it was given; Line counts from 1.
	Path string
	Line int
	// Key names the task that all the events belong to.
	Key memory.TaskKey
	// Events are ready to be published, in their order; a line of the format events gives one.
	Events []events.Event
	// Encoded holds the bytes to publish, Encoded[i] for Events[i].
	Encoded [][]byte
}

// Problem is something that was not translated.
type Problem struct {
	Path string
	// Line counts from 1; 0 means the file as a whole.
	Line int
	// Reason is one of the Reason constants, to count by.
	Reason string
	// Skipped means that it was left out on purpose, as a duplicate is; else it failed.
	Skipped bool
	// Err says for a person what happened and, where there is something to do, what. Never nil.
	Err error
}

// Item is one result of reading: exactly one of Record and Problem is set.
type Item struct {
	Record  *Record
	Problem *Problem
	// BytesRead is how much of the file as it is stored (compressed, if it is) was read so far.
	BytesRead int64
	// BytesTotal is the size of the file as it is stored; 0 when it is unknown, as for standard input.
	BytesTotal int64
}

// Importer reads files. One must not be used by several goroutines at once.
type Importer struct {
	options Options
	known   []format
	// fixed is the format that was asked for; nil means that each file's is detected.
	fixed format
	stdin io.Reader
	// seen holds what was delivered so far, by identity.
	seen map[string]origin
}

// origin is where something was read first, and a hash of it.
type origin struct {
	path    string
	line    int
	content [sha256.Size]byte
}

// New makes an importer. Its error says which option is wrong.
func New(o Options) (*Importer, error) {
	if o.Format == "" {
		o.Format = FormatAuto
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.MaxLineBytes == 0 {
		o.MaxLineBytes = DefaultMaxLineBytes
	}
	if o.Stdin == nil {
		o.Stdin = os.Stdin
	}
	im := &Importer{options: o, known: formats(o), stdin: o.Stdin, seen: map[string]origin{}}
	if o.Format != FormatAuto {
		f, err := formatByName(o)
		if err != nil {
			return nil, err
		}
		im.fixed = f
	}
	if o.MaxLineBytes < 0 {
		return nil, fmt.Errorf("longest line of %d bytes: it must not be negative", o.MaxLineBytes)
	}
	if o.Namespace != "" {
		if err := events.ValidateNamespace(o.Namespace); err != nil {
			return nil, fmt.Errorf("import options: %w", err)
		}
	}
	if o.OverrideNamespace && o.Namespace == "" {
		return nil, errors.New("override of the namespace without a namespace: give the one to import into")
	}
	return im, nil
}

// Read reads one file, or standard input for "-", and yields what its lines give, in their order. It never stops for a
// problem of a line. A file that cannot be read, or not to its end, yields a problem with line 0 after what was read.
//
// Duplicates are recognised across all calls on one importer: the first line of an identity is delivered, and a later
// one is a skipped problem. When ctx ends, the last item is a problem with [ReasonCancelled]; a read that blocks (on
// standard input) is not interrupted.
func (im *Importer) Read(ctx context.Context, path string) iter.Seq[Item] {
	return func(yield func(Item) bool) {
		r := reading{im: im, path: path, format: im.fixed, yield: yield}
		if err := r.run(ctx); err != nil && !errors.Is(err, errStopped) {
			_ = r.problem(0, false, err) // The last item: it makes no difference whether the caller wants more.
		}
	}
}

// errStopped means that the caller wants no more items.
var errStopped = errors.New("the caller stopped")

// reading is one call of Read.
type reading struct {
	im   *Importer
	path string
	src  *source
	// format is nil until it is detected.
	format format
	yield  func(Item) bool
	// waiting holds lines that were read before the format was known, waitingBytes their size.
	waiting      []line
	waitingBytes int
}

// maxDetectLines is how many lines that are not blank are looked at to detect the format: a file whose first lines are
// broken should still be recognised.
const maxDetectLines = 100

// run reads the file; its error is about the file as a whole.
func (r *reading) run(ctx context.Context) (err error) {
	if r.src, err = openSource(ctx, r.path, r.im.stdin); err != nil {
		return err
	}
	defer func() {
		if closeErr := r.src.Close(); closeErr != nil && err == nil {
			err = closeErr
		}
	}()
	in := &lineReader{in: r.src.text, limit: r.im.options.MaxLineBytes}
	complete, filled := 0, 0
	for {
		if ctx.Err() != nil {
			return problemf(ReasonCancelled, "stopped after %d lines: %w", complete, context.Cause(ctx))
		}
		l, err := in.next()
		switch {
		case errors.Is(err, io.EOF) && filled == 0:
			return problemf(ReasonEmptyFile, "the file is empty: there is nothing to import")
		case errors.Is(err, io.EOF) && r.format == nil:
			return r.unknownFormat()
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return r.src.explain(err, complete)
		}
		if l.ended {
			complete++
		}
		if !l.tooLong && len(bytes.TrimSpace(l.text)) == 0 {
			continue
		}
		filled++
		if filled == 1 && bytes.HasPrefix(bytes.TrimSpace(l.text), []byte("[")) {
			return problemf(ReasonUnknownFormat,
				"the file is one JSON array: write each of its objects on a line of its own, as with jq -c '.[]'")
		}
		if err := r.take(l); err != nil {
			return err
		}
	}
}

// take handles one line that is not blank, or keeps it until the format is known.
func (r *reading) take(l line) error {
	if r.format != nil {
		return r.translate(l)
	}
	if !l.tooLong {
		r.format = detect(r.im.known, l.text)
	}
	l.text = bytes.Clone(l.text)
	r.waiting = append(r.waiting, l)
	r.waitingBytes += len(l.text)
	if r.format == nil {
		if len(r.waiting) >= maxDetectLines || r.waitingBytes > r.im.options.MaxLineBytes {
			return r.unknownFormat()
		}
		return nil
	}
	waiting := r.waiting
	r.waiting = nil
	for _, l := range waiting {
		if err := r.translate(l); err != nil {
			return err
		}
	}
	return nil
}

// unknownFormat says what was seen and what can be read.
func (r *reading) unknownFormat() error {
	saw := "is a JSON object of no known format"
	switch first := r.waiting[0]; {
	case first.tooLong:
		saw = fmt.Sprintf("is longer than %d bytes", r.im.options.MaxLineBytes)
	case !utf8.Valid(first.text):
		saw = "is not UTF-8 text"
	case !json.Valid(first.text):
		saw = "is not JSON (each line has to be one whole JSON object)"
	case bytes.TrimSpace(first.text)[0] != '{':
		saw = "is not a JSON object"
	}
	return problemf(ReasonUnknownFormat, "the format is not recognised: line %d %s; formats that can be read: %s; name one to read the file as such",
		r.waiting[0].number, saw, describeFormats(r.im.known))
}

// translate yields what one line gives. Its only error is errStopped.
func (r *reading) translate(l line) error {
	switch {
	case l.tooLong:
		return r.problem(l.number, false, problemf(ReasonLineTooLong, "the line is longer than %d bytes", r.im.options.MaxLineBytes))
	case !l.ended && !json.Valid(l.text):
		return r.problem(l.number, false, problemf(ReasonCutLine,
			"the last line is cut: it has no newline and is not whole JSON; import the file again when it is complete"))
	case !utf8.Valid(l.text):
		return r.problem(l.number, false, problemf(ReasonInvalidUTF8, "the line is not valid UTF-8"))
	}
	evs, err := r.format.mapLine(l.text)
	if err != nil {
		return r.problem(l.number, false, err)
	}
	record := Record{Path: r.path, Line: l.number}
	record.Events, record.Encoded, err = prepare(evs, r.im.options.Now())
	if err != nil {
		return r.problem(l.number, false, err)
	}
	first := record.Events[0]
	record.Key = memory.TaskKey{Namespace: first.Namespace, TaskID: first.TaskID}
	if err := r.im.remember(r.format.identity(record.Events), record); err != nil {
		return r.problem(l.number, true, err)
	}
	return r.emit(Item{Record: &record})
}

// remember notes a record; its error says that it was there before.
func (im *Importer) remember(identity string, record Record) error {
	now := origin{path: record.Path, line: record.Line, content: contentHash(record.Encoded)}
	before, again := im.seen[identity]
	if !again {
		im.seen[identity] = now
		return nil
	}
	where := fmt.Sprintf("line %d of %s", before.line, before.path)
	if before.path == record.Path {
		where = fmt.Sprintf("line %d", before.line)
	}
	if before.content == now.content {
		return problemf(ReasonDuplicateLine, "line %d gives the same events as %s", now.line, where)
	}
	return problemf(ReasonDuplicateLineDiffers,
		"line %d and %s name the same, but their content differs: the first was taken", now.line, where)
}

// contentHash compares two records. Events are not joined to one text first, so that their sizes are hashed as well.
func contentHash(encoded [][]byte) [sha256.Size]byte {
	h := sha256.New()
	for _, raw := range encoded {
		_, _ = fmt.Fprintf(h, "%d:%s", len(raw), raw) // Writing to a hash never fails.
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// problem yields a problem. Its only error is errStopped.
func (r *reading) problem(number int, skipped bool, err error) error {
	return r.emit(Item{Problem: &Problem{
		Path: r.path, Line: number, Reason: reasonOf(err), Skipped: skipped, Err: err,
	}})
}

// emit yields an item. Its only error is errStopped.
func (r *reading) emit(i Item) error {
	if r.src != nil {
		i.BytesRead, i.BytesTotal = r.src.stored.n, r.src.size
	}
	if !r.yield(i) {
		return errStopped
	}
	return nil
}
