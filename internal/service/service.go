// Package service composes the use cases with their adapters into the services that a program runs: it is the one place
// that knows both, so that a program's main only chooses which services to start.
//
// Every service runs until its context ends and then drains: what was begun is finished or handed back, within a bound.
// The package decides nothing about traces or memories.
package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/bus"
	"github.com/hindsight-memory/hindsight/internal/config"
	"github.com/hindsight-memory/hindsight/internal/ingest"
	"github.com/hindsight-memory/hindsight/internal/memory"
	"github.com/hindsight-memory/hindsight/internal/store"
)

const (
	// sweeperLease is the key of the lease under which one sweeper runs.
	sweeperLease = "sweeper"
	// leaseTTL is how long a leader may be silent before another takes over.
	leaseTTL = 10 * time.Second
	// batchWait is how long the ingestor collects before it writes what it has.
	batchWait = 100 * time.Millisecond
	// lettersTimeout bounds what is done to a batch of dead letters.
	lettersTimeout = 40 * time.Second
	// retryPause is the longest pause before a batch that ClickHouse did not take is tried again, which is how long
	// events may wait once it is back.
	retryPause = 5 * time.Second
	// schemaPause is the pause after ClickHouse answered and then could not be asked for its schema.
	schemaPause = time.Second
	// maxUnderWay is how many events all ingestors together may have in hand: enough for several to fill the largest
	// batches. All replicas must agree on it, since they share the consumer, so it depends on no setting.
	maxUnderWay = 100_000
)

// Parts are the connections that services share.
type Parts struct {
	Config   *config.Config
	Bus      *bus.Conn
	Store    *store.ClickHouse
	Registry *prometheus.Registry
	Logger   *slog.Logger
	// Holder names this process as the holder of leases. A process that replaces a killed one should have the same
	// name if nothing else can have it, so that it need not wait for the lease to expire.
	Holder string

	once     sync.Once
	space    *Space
	spaceErr error
	used     atomic.Pointer[Space] // the same, for who must not be the first to ask
	grace    time.Duration         // of the consistency job; 0, but in tests
	leading  atomic.Bool           // this process runs the consolidation, or is about to
}

// CheckAddresses says which address among the settings can't be one, as a [config.ErrInvalid]. It connects to nothing.
func CheckAddresses(cfg *config.Config) error {
	if err := bus.CheckURL(cfg.NATSAddress()); err != nil {
		return fmt.Errorf("%w: HINDSIGHT_NATS_URL: %w", config.ErrInvalid, err)
	}
	st, err := store.Open(store.Options{URL: cfg.ClickHouseAddress(), Database: cfg.Database})
	if err != nil {
		return fmt.Errorf("%w: HINDSIGHT_CLICKHOUSE_URL: %w", config.ErrInvalid, err)
	}
	if err := st.Close(); err != nil {
		return fmt.Errorf("close ClickHouse: %w", err)
	}
	return nil
}

// Open connects to the broker and the record, waits for both, and brings streams and schema up to date, once both are
// known to fit. It tells waiting what it waits for whenever that changes.
func Open(ctx context.Context, p *Parts, name string, waiting func(why error)) (*Parts, error) {
	if err := CheckAddresses(p.Config); err != nil {
		return nil, err
	}
	st, err := store.Open(store.Options{URL: p.Config.ClickHouseAddress(), Database: p.Config.Database})
	if err != nil {
		return nil, fmt.Errorf("open ClickHouse: %w", err)
	}
	p.Store = st
	if err := p.connect(ctx, name, &waits{tell: waiting}); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// waits are the servers that a process waits for while it starts.
type waits struct {
	tell func(why error)
	mu   sync.Mutex
	why  map[string]error // by server
}

// set notes why a server is waited for, nil when it is there, and tells all that is waited for.
func (w *waits) set(server string, why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.why == nil {
		w.why = map[string]error{}
	}
	w.why[server] = why
	var all []string
	for _, server := range slices.Sorted(maps.Keys(w.why)) {
		if why := w.why[server]; why != nil {
			all = append(all, why.Error())
		}
	}
	if len(all) == 0 {
		all = []string{"all servers are there"}
	}
	w.tell(errors.New("starting: " + strings.Join(all, "; ")))
}

// connect asks both servers at once, so that one that is away does not hide what is wrong with the other, and changes
// nothing in either before both fit.
func (p *Parts) connect(ctx context.Context, name string, w *waits) error {
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return p.untilAvailable(gctx, w, func() error { return p.Store.CheckSchema(gctx) })
	})
	g.Go(func() error { return p.connectBus(gctx, name, w) })
	if err := g.Wait(); err != nil {
		return err //nolint:wrapcheck // Both say what they did.
	}
	err := p.untilAvailable(ctx, w, func() error {
		w.set("ClickHouse", errors.New("bringing the schema of ClickHouse up to date"))
		return p.Store.Migrate(ctx, store.MigrateOptions{Logger: p.Logger})
	})
	if err != nil {
		return err
	}
	if err := p.Bus.EnsureStreams(ctx, bus.StreamConfig{TracesMaxBytes: p.Config.TracesMaxBytes, Replicas: p.Config.Replicas}); err != nil {
		return fmt.Errorf("set up streams: %w", err)
	}
	if err := p.Registry.Register(bus.NewStatsCollector(p.Bus)); err != nil {
		return fmt.Errorf("register stream metrics: %w", err)
	}
	return nil
}

// untilAvailable waits for ClickHouse and then does something there, again when it went away meanwhile.
func (p *Parts) untilAvailable(ctx context.Context, w *waits, do func() error) error {
	for {
		if err := p.waitForStore(ctx, w); err != nil {
			return fmt.Errorf("wait for ClickHouse: %w", err)
		}
		err := do()
		switch {
		case err == nil:
			return nil
		case errors.Is(err, store.ErrUnavailable) && !errors.Is(err, store.ErrDenied) && ctx.Err() == nil:
			p.Logger.Warn("ClickHouse went away while its schema was looked at", "error", err)
			if !pause(ctx, schemaPause) {
				return fmt.Errorf("wait for ClickHouse: %w", context.Cause(ctx))
			}
		default:
			return fmt.Errorf("use the schema of ClickHouse: %w", err)
		}
	}
}

// waitForStore returns once ClickHouse answers, or at once with an error that waiting does not heal.
func (p *Parts) waitForStore(ctx context.Context, w *waits) error {
	address := events.MaskText(p.Config.ClickHouseAddress())
	w.set("ClickHouse", fmt.Errorf("waiting for ClickHouse at %s", address))
	err := p.Store.WaitReady(ctx, func(attempt int, err error) {
		w.set("ClickHouse", fmt.Errorf("waiting for ClickHouse at %s: %w", address, err))
		if attempt%10 == 1 {
			p.Logger.Warn("ClickHouse does not answer yet", "url", address, "attempt", attempt, "error", err)
		}
	})
	if err != nil {
		return fmt.Errorf("ask for ClickHouse at %s: %w", address, err)
	}
	w.set("ClickHouse", nil)
	return nil
}

// connectBus returns once NATS and its JetStream answer, or at once with an error that waiting does not heal.
func (p *Parts) connectBus(ctx context.Context, name string, w *waits) error {
	address := events.MaskText(p.Config.NATSAddress())
	w.set("NATS", fmt.Errorf("waiting for NATS at %s", address))
	conn, err := bus.Connect(ctx, bus.Options{
		URL: p.Config.NATSAddress(), Name: name, Logger: p.Logger,
		Waiting: func(why error) { w.set("NATS", fmt.Errorf("waiting for NATS at %s: %w", address, why)) },
	})
	if err != nil {
		return fmt.Errorf("use NATS: %w", err)
	}
	p.Bus = conn
	if err := conn.Check(ctx); err != nil {
		return fmt.Errorf("use NATS at %s: %w", address, err)
	}
	w.set("NATS", nil)
	return nil
}

// pause waits, and reports whether it did before ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Close ends the connections.
func (p *Parts) Close() error {
	if p.space != nil {
		if err := p.space.index.close(); err != nil {
			p.Logger.Warn("the vector index did not end cleanly", "error", err)
		}
		if err := p.space.embedder.Close(); err != nil {
			p.Logger.Warn("the embedding model did not end cleanly", "error", err)
		}
	}
	if p.Bus != nil {
		p.Bus.Close()
	}
	if err := p.Store.Close(); err != nil {
		return fmt.Errorf("close ClickHouse: %w", err)
	}
	return nil
}

// Ingest runs the ingestor, the recorder of dead letters and, while it holds the lease, the sweeper, until ctx ends and
// all have drained.
func Ingest(ctx context.Context, p *Parts) error {
	traces, err := p.traceWorker(p.traceOptions(), 0)
	if err != nil {
		return err
	}
	letters, err := p.Bus.NewWorker(bus.WorkerOptions{
		Stream: bus.StreamDeadLetter, Durable: "recorder", BatchSize: 100, BatchWait: batchWait,
		AckWait: time.Minute, Concurrency: 1, Logger: p.Logger, Registerer: p.Registry,
	}, letterHandler(p.Store))
	if err != nil {
		return fmt.Errorf("set up the dead letters' worker: %w", err)
	}
	sweeper, err := ingest.NewSweeper(ingest.SweeperOptions{
		Store: p.Store, Reflections: reflections{p.Bus}, Working: working{p.Bus}, Bookmark: bookmark{p.Bus},
		Logger: p.Logger, Registerer: p.Registry,
		Idle: p.Config.TaskIdle, Quiet: p.Config.TaskQuiet, Interval: p.Config.SweepInterval,
	})
	if err != nil {
		return fmt.Errorf("set up the sweeper: %w", err)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return traces.Run(ctx) })
	g.Go(func() error { return letters.Run(ctx) })
	g.Go(func() error {
		err := p.Bus.Lead(ctx, sweeperLease, p.Holder, leaseTTL, func(ctx context.Context, _ uint64) error { return sweeper.Run(ctx) })
		if ctx.Err() != nil {
			return nil //nolint:nilerr // It was asked to end, and says so.
		}
		return err
	})
	if err := g.Wait(); err != nil {
		return fmt.Errorf("ingest: %w", err)
	}
	return nil
}

func (p *Parts) traceOptions() bus.WorkerOptions {
	return bus.WorkerOptions{
		Stream: bus.StreamTraces, Durable: "ingestor", BatchSize: p.Config.IngestBatch, BatchWait: batchWait,
		AckWait: time.Minute, Concurrency: 1, MaxAckPending: maxUnderWay, MaxBackoff: retryPause,
		Logger: p.Logger, Registerer: p.Registry,
	}
}

// traceWorker sets up the ingestor, with a timeout for each of its inserts; 0 is the ingestor's own.
func (p *Parts) traceWorker(o bus.WorkerOptions, timeout time.Duration) (*bus.Worker, error) {
	ingestor, err := ingest.NewIngestor(ingest.IngestorOptions{
		Writer: p.Store, Live: live{p.Bus}, Logger: p.Logger, Registerer: p.Registry, InsertTimeout: timeout,
	})
	if err != nil {
		return nil, fmt.Errorf("set up the ingestor: %w", err)
	}
	worker, err := p.Bus.NewWorker(o, traceHandler(ingestor, p.Bus))
	if err != nil {
		return nil, fmt.Errorf("set up the ingestor's worker: %w", err)
	}
	return worker, nil
}

// traceHandler translates between the worker's messages and verdicts and the ingestor's, and hands over what is for the
// keeper.
func traceHandler(ingestor *ingest.Ingestor, conn *bus.Conn) bus.Handler {
	return func(ctx context.Context, batch []bus.Message) []error {
		deliveries := make([]ingest.Delivery, len(batch))
		for i, m := range batch {
			deliveries[i] = ingest.Delivery{Subject: m.Subject, Header: m.Header, Data: m.Data}
		}
		verdicts := ingestor.Handle(ctx, deliveries)
		for i, err := range verdicts {
			verdicts[i] = verdict(err)
		}
		handOver(ctx, conn, batch, verdicts)
		return verdicts
	}
}

// verdict gives up what was rejected, and waits for anything else: a store that is away, and one that does not answer in
// time, are no fault of a message.
func verdict(err error) error {
	rejection := (*ingest.Rejection)(nil)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &rejection):
		return bus.Discard(rejection.Reason, rejection.Err)
	default:
		return bus.Wait(err)
	}
}

// letterHandler stores dead letters as rows, so that they outlive the stream and can be asked for in SQL. What is no
// letter, or one that the store never takes, stays in the stream alone: a letter about a letter would help nobody.
func letterHandler(st *store.ClickHouse) bus.Handler {
	return func(ctx context.Context, batch []bus.Message) []error {
		ctx, cancel := context.WithTimeout(ctx, lettersTimeout)
		defer cancel()
		verdicts := make([]error, len(batch))
		letters := make([]memory.DeadLetter, 0, len(batch))
		from := make([]int, 0, len(batch)) // from[k] is the message that letters[k] came from
		for i, m := range batch {
			letter, err := bus.ParseDeadLetter(m)
			if err != nil {
				verdicts[i] = bus.Discard("malformed", err)
				continue
			}
			letters, from = append(letters, memory.DeadLetter{
				ID: letter.ID, Namespace: namespaceOf(letter.Subject), OriginStream: letter.Stream, Subject: letter.Subject,
				Reason: letter.Reason, Error: letter.Error, Payload: letter.Payload, Attempts: letter.Attempts, Time: letter.Time,
			}), append(from, i)
		}
		err := st.InsertDeadLetters(ctx, letters)
		for k := range letters {
			one := err
			if errors.Is(err, memory.ErrRejected) { // For one of them: which, shows each by itself.
				one = st.InsertDeadLetters(ctx, letters[k:k+1])
			}
			switch {
			case errors.Is(one, memory.ErrRejected):
				verdicts[from[k]] = bus.Discard("rejected_by_store", one)
			case one != nil:
				verdicts[from[k]] = bus.Wait(one)
			}
		}
		return verdicts
	}
}

// namespaceOf reads whose message it was from its subject, empty when that does not say. The envelope is not asked: it
// may claim anything, while the broker checks who publishes where.
func namespaceOf(subject string) string {
	tokens := strings.Split(subject, ".")
	length := 5 // hindsight.v1.write.<tenant>.<team>
	if strings.HasPrefix(subject, "hindsight.v1.trace.") || len(tokens) > length && tokens[2] == "write" && tokens[length] == "index" {
		length++ // the kind, or that vectors are asked for
	}
	if len(tokens) != length || tokens[0] != "hindsight" {
		return ""
	}
	namespace, err := events.ParseNamespaceTokens(tokens[3], tokens[4])
	if err != nil {
		return ""
	}
	return namespace
}

// live shows stored events on core NATS.
type live struct{ conn *bus.Conn }

func (l live) Show(subject string, data []byte) error { return l.conn.PublishCore(subject, data) }

// reflections puts requests on the stream REFLECT.
type reflections struct{ conn *bus.Conn }

func (r reflections) Request(ctx context.Context, requests []memory.ReflectionRequest) error {
	messages := make([]bus.Message, 0, len(requests))
	for _, request := range requests {
		data, err := json.Marshal(request)
		if err != nil {
			return fmt.Errorf("encode reflection request: %w", err)
		}
		messages = append(messages, bus.Message{Subject: bus.ReflectSubject(request.Namespace), ID: request.MessageID(), Data: data})
	}
	_, err := r.conn.PublishAll(ctx, messages)
	switch {
	case errors.Is(err, bus.ErrFull):
		return fmt.Errorf("publish reflection requests: %w: %w", memory.ErrQueueFull, err)
	case err != nil:
		return fmt.Errorf("publish reflection requests: %w", err)
	}
	return nil
}

// working keeps working memory in the broker's key-value store.
type working struct{ conn *bus.Conn }

func (w working) PutWorking(ctx context.Context, m memory.Working) error {
	data, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode working memory: %w", err)
	}
	if err := w.conn.PutWorking(ctx, m.Namespace, m.TaskID, data); err != nil {
		return fmt.Errorf("put working memory: %w", err)
	}
	return nil
}

func (w working) DeleteWorking(ctx context.Context, key memory.TaskKey) error {
	if err := w.conn.DeleteWorking(ctx, key.Namespace, key.TaskID); err != nil && !errors.Is(err, bus.ErrNotFound) {
		return fmt.Errorf("delete working memory: %w", err)
	}
	return nil
}

// bookmark keeps the sweeper's place in the broker's key-value store.
type bookmark struct{ conn *bus.Conn }

const bookmarkKey = "sweeper.bookmark"

func (b bookmark) Load(ctx context.Context) (time.Time, error) {
	raw, err := b.conn.LoadState(ctx, bookmarkKey)
	if errors.Is(err, bus.ErrNotFound) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("load state: %w", err)
	}
	t, err := time.Parse(time.RFC3339Nano, string(raw))
	if err != nil {
		return time.Time{}, nil //nolint:nilerr // A bookmark that can't be read costs one full look, nothing else.
	}
	return t, nil
}

func (b bookmark) Save(ctx context.Context, t time.Time) error {
	if err := b.conn.SaveState(ctx, bookmarkKey, []byte(t.UTC().Format(time.RFC3339Nano))); err != nil {
		return fmt.Errorf("save state: %w", err)
	}
	return nil
}
