package bus

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go/jetstream"
)

// Headers of a dead letter. What headers the original had follow under
// headerOriginal.
const (
	headerID        = "Hindsight-Letter-Id"
	headerStream    = "Hindsight-Origin-Stream"
	headerSubject   = "Hindsight-Origin-Subject"
	headerSequence  = "Hindsight-Origin-Sequence"
	headerMessageID = "Hindsight-Origin-Message-Id"
	headerReason    = "Hindsight-Reason"
	headerError     = "Hindsight-Error"
	headerAttempts  = "Hindsight-Attempts"
	headerTime      = "Hindsight-Time"
	headerOriginal  = "Hindsight-Header-"
	// headerEncoding is "gzip" on a payload that did not fit otherwise, and
	// headerCut has the original's size when not even that helped.
	headerEncoding = "Hindsight-Encoding"
	headerCut      = "Hindsight-Cut-From"
)

const (
	maxErrorBytes  = 2 << 10
	maxReasonBytes = 64
	// maxPayloadBytes bounds what a packed payload may unpack to.
	maxPayloadBytes     = 64 << 20
	defaultLetterLimit  = 100
	replayMessagePrefix = "replay/"
	letterMessagePrefix = "deadletter/"
)

// Reasons that the worker itself gives; a handler's own come from [Discard].
const (
	ReasonExhausted = "exhausted" // it failed as often as it may
	ReasonPanic     = "panic"     // the same, and the last failure was a panic
)

// DeadLetter is a message that could not be handled, and why.
type DeadLetter struct {
	// ID is the same however often the letter was written.
	ID string
	// Stream, Subject, Sequence, MessageID, Header and Payload are the
	// original's.
	Stream    string
	Subject   string
	Sequence  uint64
	MessageID string
	Header    map[string][]string
	Payload   []byte
	// Reason is one of a few words to group by, Error the full text, up to
	// 2 kB of it.
	Reason string
	Error  string
	// Attempts that failed for real, as far as the last worker knew.
	Attempts int
	// Time of giving up, in UTC.
	Time time.Time
	// CutFrom is 0 for a complete payload; else the original had so many
	// bytes, too many to be kept whole together with the reason.
	CutFrom int

	position uint64 // its sequence in the stream of dead letters
}

// letterID is the same for each letter about one message, also when the
// stream was deleted and made again and numbers its messages anew.
func letterID(stream string, created time.Time, sequence uint64) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%d\x00%d", stream, created.UnixNano(), sequence))
	return hex.EncodeToString(sum[:16])
}

// message writes the letter down in at most limit bytes (0: no limit).
func (d DeadLetter) message(limit int64) (Message, error) {
	header := map[string][]string{
		headerID:       {d.ID},
		headerStream:   {d.Stream},
		headerSubject:  {d.Subject},
		headerSequence: {strconv.FormatUint(d.Sequence, 10)},
		headerReason:   {cut(d.Reason, maxReasonBytes)},
		headerError:    {cut(d.Error, maxErrorBytes)},
		headerAttempts: {strconv.Itoa(d.Attempts)},
		headerTime:     {d.Time.UTC().Format(time.RFC3339Nano)},
	}
	if d.MessageID != "" {
		header[headerMessageID] = []string{d.MessageID}
	}
	own := maps.Clone(header)
	for key, values := range d.Header {
		header[headerOriginal+key] = values
	}
	m := Message{
		Subject: deadLetterPrefix + strings.TrimPrefix(d.Subject, subjectPrefix),
		ID:      letterMessagePrefix + d.ID, Header: header, Data: d.Payload,
	}
	fits := func() bool { return limit <= 0 || int64(m.size()) <= limit }
	if fits() {
		return m, nil
	}
	var packed bytes.Buffer
	packer := gzip.NewWriter(&packed)
	if _, err := packer.Write(d.Payload); err != nil {
		return m, fmt.Errorf("pack payload: %w", err)
	}
	if err := packer.Close(); err != nil {
		return m, fmt.Errorf("pack payload: %w", err)
	}
	header[headerEncoding] = []string{"gzip"}
	if m.Data = packed.Bytes(); fits() {
		return m, nil
	}
	// A part is better than a message that can never leave its stream.
	own[headerCut] = []string{strconv.Itoa(len(d.Payload))}
	m.Header, m.Data = own, nil
	m.Data = d.Payload[:max(0, min(len(d.Payload), int(limit)-m.size()))]
	return m, nil
}

// cut shortens s to at most n bytes of valid UTF-8.
func cut(s string, n int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// ParseDeadLetter reads a message of the stream [StreamDeadLetter].
func ParseDeadLetter(m Message) (DeadLetter, error) {
	get := func(key string) string {
		if values := m.Header[key]; len(values) > 0 {
			return values[0]
		}
		return ""
	}
	d := DeadLetter{
		ID: get(headerID), Stream: get(headerStream), Subject: get(headerSubject), MessageID: get(headerMessageID),
		Reason: get(headerReason), Error: get(headerError), Payload: m.Data, position: m.Sequence,
	}
	if d.ID == "" || d.Stream == "" || d.Subject == "" {
		return d, fmt.Errorf("read dead letter %d: the headers %s, %s and %s are required", m.Sequence, headerID, headerStream, headerSubject)
	}
	var err error
	if d.Sequence, err = strconv.ParseUint(get(headerSequence), 10, 64); err != nil {
		return d, fmt.Errorf("read dead letter %d: header %s: %w", m.Sequence, headerSequence, err)
	}
	if d.Attempts, err = natural(get(headerAttempts)); err != nil {
		return d, fmt.Errorf("read dead letter %d: header %s: %w", m.Sequence, headerAttempts, err)
	}
	if d.Time, err = time.Parse(time.RFC3339Nano, get(headerTime)); err != nil {
		return d, fmt.Errorf("read dead letter %d: header %s: %w", m.Sequence, headerTime, err)
	}
	d.Time = d.Time.UTC()
	if from := get(headerCut); from != "" {
		if d.CutFrom, err = natural(from); err != nil {
			return d, fmt.Errorf("read dead letter %d: header %s: %w", m.Sequence, headerCut, err)
		}
	}
	if get(headerEncoding) == "gzip" {
		if d.Payload, err = unpack(m.Data); err != nil {
			return d, fmt.Errorf("read dead letter %d: %w", m.Sequence, err)
		}
	}
	for key, values := range m.Header {
		if original, ok := strings.CutPrefix(key, headerOriginal); ok && original != "" {
			if d.Header == nil {
				d.Header = make(map[string][]string)
			}
			d.Header[original] = values
		}
	}
	return d, nil
}

func natural(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 31)
	return int(n), err
}

func unpack(packed []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("unpack payload: %w", err)
	}
	payload, err := io.ReadAll(io.LimitReader(r, maxPayloadBytes+1))
	if err != nil {
		return nil, fmt.Errorf("unpack payload: %w", err)
	}
	if len(payload) > maxPayloadBytes {
		return nil, fmt.Errorf("unpack payload: it has more than %d bytes", maxPayloadBytes)
	}
	return payload, nil
}

// DeadLetterQuery selects dead letters; its zero value selects all.
type DeadLetterQuery struct {
	Stream string    // origin stream; empty: any
	Reason string    // empty: any
	Since  time.Time // given up at or after it; zero: any
	// Limit is how many to return at most, oldest first. Default 100.
	Limit int
}

// DeadLetters lists dead letters, oldest first.
func (c *Conn) DeadLetters(ctx context.Context, q DeadLetterQuery) ([]DeadLetter, error) {
	if q.Limit <= 0 {
		q.Limit = defaultLetterLimit
	}
	var letters []DeadLetter
	err := c.scanLetters(ctx, func(d DeadLetter) (bool, error) {
		if (q.Stream == "" || d.Stream == q.Stream) && (q.Reason == "" || d.Reason == q.Reason) && !d.Time.Before(q.Since) {
			letters = append(letters, d)
		}
		return len(letters) < q.Limit, nil
	})
	return letters, err
}

// ReplayDeadLetters publishes the letters with these ids, or all, once more
// where they came from, with their headers but a new message id, and removes
// each from the dead letters after that. It returns how many it replayed. The
// error is [ErrNotFound] when an id has no letter; the others are replayed all
// the same. What the replay runs into while it publishes ([ErrFull]) ends it;
// calling it again goes on.
func (c *Conn) ReplayDeadLetters(ctx context.Context, ids []string, all bool) (int, error) {
	missing := make(map[string]bool, len(ids))
	for _, id := range ids {
		missing[id] = true
	}
	replayed := 0
	var refused []error
	err := c.scanLetters(ctx, func(d DeadLetter) (bool, error) {
		if !all && !missing[d.ID] {
			return len(missing) > 0, nil
		}
		delete(missing, d.ID)
		if d.CutFrom > 0 {
			refused = append(refused, fmt.Errorf("replay dead letter %s: only part of its %d bytes could be kept; publish the original again", d.ID, d.CutFrom))
			return true, nil
		}
		if err := c.replay(ctx, d); err != nil {
			return false, fmt.Errorf("replay dead letter %s: %w", d.ID, err)
		}
		replayed++
		return all || len(missing) > 0, nil
	})
	if err == nil && len(missing) > 0 {
		err = fmt.Errorf("replay dead letters: %w: no letter has the id %s", ErrNotFound, strings.Join(slices.Sorted(maps.Keys(missing)), ", "))
	}
	return replayed, errors.Join(append(refused, err)...)
}

func (c *Conn) replay(ctx context.Context, d DeadLetter) error {
	m := Message{Subject: d.Subject, ID: replayMessagePrefix + d.ID, Data: d.Payload, Header: replayable(d.Header)}
	if _, err := c.Publish(ctx, m); err != nil {
		return err
	}
	stream, err := c.js.Stream(ctx, StreamDeadLetter)
	if err == nil {
		err = stream.DeleteMsg(ctx, d.position)
	}
	if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
		return fmt.Errorf("it was published, but removing it from the dead letters failed: %w", translate(err))
	}
	return nil
}

// scanLetters calls visit for each dead letter that is there now, oldest first,
// until it says stop. Those that come meanwhile are left out, because a replay
// would go round for ever with a message that fails again. It reads one at a
// time: letters are few, and a consumer would have to be cleaned up.
func (c *Conn) scanLetters(ctx context.Context, visit func(DeadLetter) (bool, error)) error {
	stream, err := c.js.Stream(ctx, StreamDeadLetter)
	if err != nil {
		return fmt.Errorf("open stream %s: %w", StreamDeadLetter, translate(err))
	}
	state := stream.CachedInfo().State
	for sequence := max(1, state.FirstSeq); sequence <= state.LastSeq; {
		raw, err := stream.GetMsg(ctx, sequence, jetstream.WithGetMsgSubject(deadLetterPrefix+">"))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read stream %s: %w", StreamDeadLetter, translate(err))
		}
		if sequence = raw.Sequence + 1; raw.Sequence > state.LastSeq {
			return nil
		}
		d, err := ParseDeadLetter(Message{Subject: raw.Subject, Header: raw.Header, Data: raw.Data, Sequence: raw.Sequence})
		if err != nil {
			c.log.Warn("the dead letters hold something else; skipping it", "error", err)
			continue
		}
		if more, err := visit(d); err != nil || !more {
			return err
		}
	}
	return nil
}
