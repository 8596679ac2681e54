// Package ingest turns trace events into rows and rows into the state of tasks.
//
// Its two workers share nothing but the record. [Ingestor] only writes events; any number of them may run. [Sweeper]
// alone decides when a task is over, asks for its reflection and keeps its working memory; one of them runs at a time,
// under a lease.
//
// It guarantees that an event is reported as taken only after the record has confirmed it, and that doing anything
// twice changes nothing. It never talks to a broker or database itself: both are handed in.
package ingest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/memory"
)

const (
	defaultInsertTimeout = 40 * time.Second
	// maxRejected is how many single rows of a batch of which none is taken may be rejected before the table is to blame.
	maxRejected = 20
	// askFrom is how many events a batch has at least for it to be worth asking who looks at them.
	askFrom = 100
)

// Delivery is one message of the stream TRACES.
type Delivery struct {
	Subject string
	// Header has the message's headers; CloudEvents in binary mode need them.
	Header map[string][]string
	Data   []byte
}

// Rejection means that a message can never be stored. It belongs to the dead letters.
type Rejection struct {
	// Reason is one of a few words to group by: malformed, invalid, too_large, subject_mismatch, rejected_by_store.
	Reason string
	Err    error
}

// Error implements error.
func (r *Rejection) Error() string { return r.Reason + ": " + r.Err.Error() }

// Unwrap gives the cause.
func (r *Rejection) Unwrap() error { return r.Err }

// EventWriter writes events to the record.
type EventWriter interface {
	// InsertEvents writes all or fails: with memory.ErrUnavailable when it may work later, with memory.ErrRejected when
	// one of the events can never be stored. Writing an event twice changes nothing.
	InsertEvents(ctx context.Context, evs []events.Event) error
}

// LiveView shows stored events to whoever looks; losing one loses nothing.
type LiveView interface {
	Show(subject string, data []byte) error
}

// AskingView is a [LiveView] that can tell whether anybody looks, so that a large batch need not be shown to nobody.
type AskingView interface {
	LiveView
	// ShowAsking shows data[k] on subjects[k], and tells for each subject whether anybody may have seen it.
	ShowAsking(ctx context.Context, subjects []string, data [][]byte) (seen []bool, err error)
}

// IngestorOptions are the parts of an [Ingestor]; Writer, Logger and Registerer are required.
type IngestorOptions struct {
	Writer     EventWriter
	Live       LiveView // nil shows nothing
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	// InsertTimeout bounds each single insert; 0 means 40 s. It must be less than 60 s, which is how far the [Sweeper]
	// looks back for inserts that ended late. The context that is handed to [Ingestor.Handle] needs no deadline.
	InsertTimeout time.Duration
	// Now is the clock that events' times are checked against; nil means time.Now.
	Now func() time.Time
}

// Ingestor writes batches of trace events to the record.
type Ingestor struct {
	opts     IngestorOptions
	stored   *prometheus.CounterVec
	rejected *prometheus.CounterVec
	unknown  prometheus.Counter
}

// NewIngestor checks the options and registers the metrics.
func NewIngestor(opts IngestorOptions) (*Ingestor, error) {
	if opts.Writer == nil || opts.Logger == nil || opts.Registerer == nil {
		return nil, errors.New("new ingestor: Writer, Logger and Registerer are required")
	}
	opts.InsertTimeout = cmp.Or(opts.InsertTimeout, defaultInsertTimeout)
	if opts.InsertTimeout < 0 || opts.InsertTimeout >= sweepOverlap {
		return nil, fmt.Errorf("new ingestor: InsertTimeout is %s, must be positive and less than %s", opts.InsertTimeout, sweepOverlap)
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	i := &Ingestor{
		opts: opts,
		stored: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hindsight_ingest_events_total", Help: "Trace events written to the record, by kind; a redelivered event counts again.",
		}, []string{"kind"}),
		rejected: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hindsight_ingest_rejected_total", Help: "Trace events that went to the dead letters, by reason.",
		}, []string{"reason"}),
		unknown: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "hindsight_ingest_unknown_kinds_total", Help: "Trace events of kinds this version does not know; they are stored raw.",
		}),
	}
	for _, c := range []prometheus.Collector{i.stored, i.rejected, i.unknown} {
		if err := opts.Registerer.Register(c); err != nil {
			return nil, fmt.Errorf("register ingest metrics: %w", err)
		}
	}
	return i, nil
}

// Handle writes a batch and gives a verdict for each delivery in order: nil after the record has confirmed it, a
// [*Rejection] when it can never be stored, anything else when it is to be tried again.
func (i *Ingestor) Handle(ctx context.Context, batch []Delivery) []error {
	verdicts := make([]error, len(batch))
	good := make([]events.Event, 0, len(batch))
	from := make([]int, 0, len(batch)) // from[k] is the delivery that good[k] came from
	for n, d := range batch {
		e, err := i.read(d)
		if err != nil {
			verdicts[n] = err
			continue
		}
		good, from = append(good, e), append(from, n)
	}
	taken := good[:0]
	for k, err := range i.write(ctx, good) {
		verdicts[from[k]] = err
		if err == nil {
			taken = append(taken, good[k])
		}
	}
	i.count(taken)
	if i.opts.Live != nil {
		if err := i.show(ctx, taken); err != nil {
			i.opts.Logger.Debug("live view missed events", "error", err)
		}
	}
	for _, err := range verdicts {
		if r := (*Rejection)(nil); errors.As(err, &r) {
			i.rejected.WithLabelValues(r.Reason).Inc()
		}
	}
	return verdicts
}

// read checks one message. It masks and cuts again what the publisher should have masked and cut, because a foreign
// publisher may not have.
func (i *Ingestor) read(d Delivery) (events.Event, error) {
	e, err := events.Decode(d.Header, d.Data)
	if err != nil {
		return e, &Rejection{Reason: "malformed", Err: err}
	}
	now := i.opts.Now()
	if e.ID == "" || e.Time.IsZero() {
		// Filling in is for the publisher: here it would be something else at each delivery.
		return e, &Rejection{Reason: "invalid", Err: e.Validate(now)}
	}
	accepted, err := events.Accept(e, now)
	switch {
	case errors.Is(err, events.ErrTooLarge):
		return e, &Rejection{Reason: "too_large", Err: err}
	case err != nil:
		return e, &Rejection{Reason: "invalid", Err: err}
	}
	if err := accepted.CheckSubject(d.Subject); err != nil {
		return e, &Rejection{Reason: "subject_mismatch", Err: err}
	}
	return accepted, nil
}

// write stores the events and gives a verdict for each.
func (i *Ingestor) write(ctx context.Context, evs []events.Event) []error {
	b := batch{Ingestor: i, verdicts: make([]error, len(evs))}
	if len(evs) > 0 {
		b.write(ctx, evs, b.verdicts)
	}
	if b.taken > 0 || b.rejected <= maxRejected {
		return b.verdicts
	}
	// So many bad rows and no good one: it is the table that does not fit the program, and no event is to be given up.
	for k, err := range b.verdicts {
		if r := (*Rejection)(nil); errors.As(err, &r) {
			b.verdicts[k] = fmt.Errorf("%w: it rejected %d events and took none, so that the fault is not theirs; compare the table with this program's migrations: %s",
				memory.ErrUnavailable, b.rejected, r.Err.Error())
		}
	}
	return b.verdicts
}

// batch is what is known of a batch while it is written.
type batch struct {
	*Ingestor
	verdicts        []error
	taken, rejected int
	// hung is set when a single event took too long.
	hung error
}

// write stores some of the batch's events. When the store rejects them for one of them, they are halved until that one
// stands alone, so that it takes no neighbour with it. When they take too long they are halved too, since repeated as a
// whole they would take too long for ever; but when one alone takes too long, the store is to blame and the rest waits.
func (b *batch) write(ctx context.Context, evs []events.Event, verdicts []error) {
	err := b.hung
	if err == nil {
		err = b.insert(ctx, evs)
	}
	rejected := errors.Is(err, memory.ErrRejected)
	slow := errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil && b.hung == nil
	switch {
	case err == nil:
		b.taken += len(evs)
		return
	case (rejected || slow) && len(evs) > 1:
		half := len(evs) / 2
		if slow {
			b.opts.Logger.Warn("writing events took too long, trying the halves", "events", len(evs), "timeout", b.opts.InsertTimeout)
		}
		b.write(ctx, evs[:half], verdicts[:half])
		b.write(ctx, evs[half:], verdicts[half:])
		return
	case rejected:
		b.rejected++
		err = &Rejection{Reason: "rejected_by_store", Err: err}
	case slow:
		b.hung = err
	}
	for k := range verdicts {
		verdicts[k] = err
	}
}

// insert gives each insert its own time.
func (i *Ingestor) insert(ctx context.Context, evs []events.Event) error {
	bounded, cancel := context.WithTimeout(ctx, i.opts.InsertTimeout)
	defer cancel()
	if err := i.opts.Writer.InsertEvents(bounded, evs); err != nil {
		return fmt.Errorf("write %d events: %w", len(evs), err)
	}
	return nil
}

// count counts stored events.
func (i *Ingestor) count(taken []events.Event) {
	kinds := map[events.Kind]int{}
	for _, e := range taken {
		kinds[e.Kind]++
	}
	for kind, n := range kinds {
		label := string(kind)
		if !kind.Known() {
			i.unknown.Add(float64(n))
			label = "unknown"
		}
		i.stored.WithLabelValues(label).Add(float64(n))
	}
}

// show shows stored events. A live view that misses one is no reason to deliver it again. Of many events those for which
// nobody looks are left out, which the first of each namespace and kind tells; it may be shown before its time for that.
func (i *Ingestor) show(ctx context.Context, taken []events.Event) error {
	done := map[int]bool{}
	unseen := map[string]bool{}
	if asking, can := i.opts.Live.(AskingView); can && len(taken) >= askFrom {
		first, err := firstOfEach(taken)
		if err != nil {
			return err
		}
		seen, err := asking.ShowAsking(ctx, first.subjects, first.data)
		if err != nil {
			return fmt.Errorf("ask who looks: %w", err)
		}
		for n, k := range first.index {
			done[k], unseen[first.subjects[n]] = true, !seen[n]
		}
	}
	for k, e := range taken {
		subject := events.LiveSubject(e.Namespace, e.Kind)
		if done[k] || unseen[subject] {
			continue
		}
		data, err := e.MarshalJSON()
		if err != nil {
			return fmt.Errorf("encode for the live view: %w", err)
		}
		if err := i.opts.Live.Show(subject, data); err != nil {
			return fmt.Errorf("show: %w", err)
		}
	}
	return nil
}

// shown are events with what shows them.
type shown struct {
	index    []int // in the batch
	subjects []string
	data     [][]byte
}

// firstOfEach picks the first event for each subject.
func firstOfEach(evs []events.Event) (shown, error) {
	var first shown
	have := map[string]bool{}
	for k, e := range evs {
		subject := events.LiveSubject(e.Namespace, e.Kind)
		if have[subject] {
			continue
		}
		have[subject] = true
		data, err := e.MarshalJSON()
		if err != nil {
			return first, fmt.Errorf("encode for the live view: %w", err)
		}
		first.index, first.subjects, first.data = append(first.index, k), append(first.subjects, subject), append(first.data, data)
	}
	return first, nil
}
