package evaluate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/bus"
	"github.com/hindsight-memory/hindsight/internal/store"
)

// IngestOptions choose the size of the bench.
type IngestOptions struct {
	// Executable is the program itself.
	Executable string
	// Events is how many events go through; 0 means 200,000.
	Events int
	// Seed makes the events.
	Seed int64
	// Logger is told what is being measured.
	Logger *slog.Logger
}

const (
	benchNamespace = "bench"
	// benchBatch is how many events are published, fetched and inserted at once, by the raw engines as by the product.
	benchBatch = 10_000
	// eventsPerTask is the mean length of the recorded runs that the project is tested with.
	eventsPerTask = 24
	rawStream     = "BENCH"
	rawSubject    = "bench.events"
	rawDatabase   = "bench_raw"
	// stuckAfter is how long nothing may arrive before the bench gives up.
	stuckAfter = time.Minute
)

// rawColumns are the columns that the product writes, in the order of [generator.columns] after the envelope's.
const rawColumns = `namespace, time, task_id, event_id, kind, agent_id, session_id, user_id, goal_id, seq, extra, data,
	task_type, goal, parent_task_id, role, turn, step, tool, actor, call_id, status, error_type, error_message,
	execution_time_ms, score, reason, confirmed_by, feedback_kind, feedback_target`

// Ingest measures events per second from publish to row, beside the raw engines in the same run: JetStream publishing
// and consuming the same bytes, and ClickHouse inserting the same rows in batches of the same size.
func Ingest(ctx context.Context, o IngestOptions) (Report, error) {
	if o.Events <= 0 {
		o.Events = 200_000
	}
	// The raw engines get at most this many: their rate does not depend on it, and it keeps the run short.
	raw := min(o.Events, 200_000)
	jetstreamRate, clickhouseRate, err := rawEngines(ctx, o, raw)
	if err != nil {
		return Report{}, err
	}
	o.Logger.Info("measuring the product", "events", o.Events)
	product, err := productIngest(ctx, o)
	if err != nil {
		return Report{}, err
	}
	slower := min(jetstreamRate, clickhouseRate)
	return Report{Suite: "ingest", Seed: o.Seed, Examples: []string{}, Figures: map[string]float64{
		"events":                     float64(o.Events),
		"event_bytes_mean":           product.meanBytes,
		"events_per_second":          product.rate,
		"raw_jetstream_per_second":   jetstreamRate,
		"raw_clickhouse_per_second":  clickhouseRate,
		"ratio_to_slower_engine":     product.rate / slower,
		"resident_peak_bytes":        float64(product.peak),
		"resident_start_bytes":       float64(product.atStart),
		"cpu_microseconds_per_event": product.cpu,
	}}, nil
}

func rawEngines(ctx context.Context, o IngestOptions, n int) (jetstreamRate, clickhouseRate float64, err error) {
	p, err := start(ctx, o.Executable, "--engines-only")
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	if err := p.ready(ctx, p.clickhouse+"/ping"); err != nil {
		return 0, 0, err
	}
	o.Logger.Info("measuring raw JetStream", "events", n)
	if jetstreamRate, err = rawJetStream(ctx, p.natsURL, newGenerator(o.Seed), n); err != nil {
		return 0, 0, fmt.Errorf("measure raw JetStream: %w", err)
	}
	o.Logger.Info("measuring raw ClickHouse", "events", n)
	if clickhouseRate, err = rawClickHouse(ctx, p.clickhouse, newGenerator(o.Seed), n); err != nil {
		return 0, 0, fmt.Errorf("measure raw ClickHouse: %w", err)
	}
	return jetstreamRate, clickhouseRate, nil
}

// encoded hands the bench's events over in batches. Making them is cheap on purpose (the data are made once, beforehand)
// and the same for all that is measured, so that the rates are those of the engines and not of this program.
func encoded(g *generator, n int, use func(batch []events.Event, raw [][]byte) error) error {
	batch, raw := make([]events.Event, 0, benchBatch), make([][]byte, 0, benchBatch)
	for i := range n {
		e := g.next(i)
		batch, raw = append(batch, e), append(raw, g.encode(e))
		if len(batch) == benchBatch || i == n-1 {
			if err := use(batch, raw); err != nil {
				return err
			}
			batch, raw = batch[:0], raw[:0]
		}
	}
	return nil
}

// rawJetStream publishes and consumes at the same time through a work queue, with nothing else done to a message.
func rawJetStream(ctx context.Context, url string, gen *generator, n int) (float64, error) {
	nc, err := nats.Connect(url)
	if err != nil {
		return 0, fmt.Errorf("connect: %w", err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(benchBatch))
	if err != nil {
		return 0, fmt.Errorf("open JetStream: %w", err)
	}
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{
		Name: rawStream, Subjects: []string{rawSubject}, Retention: jetstream.WorkQueuePolicy, Storage: jetstream.FileStorage,
	}); err != nil {
		return 0, fmt.Errorf("create stream: %w", err)
	}
	consumer, err := js.CreateConsumer(ctx, rawStream, jetstream.ConsumerConfig{Durable: "bench", MaxAckPending: 4 * benchBatch})
	if err != nil {
		return 0, fmt.Errorf("create consumer: %w", err)
	}
	began := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return encoded(gen, n, func(batch []events.Event, raw [][]byte) error {
			for i := range raw {
				if _, err := js.PublishMsgAsync(&nats.Msg{Subject: rawSubject, Data: raw[i], Header: nats.Header{nats.MsgIdHdr: {batch[i].MessageID()}}}); err != nil {
					return fmt.Errorf("publish: %w", err)
				}
			}
			select {
			case <-js.PublishAsyncComplete():
				return nil
			case <-ctx.Done():
				return fmt.Errorf("publish: %w", ctx.Err())
			}
		})
	})
	g.Go(func() error {
		for seen := 0; seen < n; {
			batch, err := consumer.Fetch(benchBatch, jetstream.FetchMaxWait(100*time.Millisecond))
			if err != nil {
				return fmt.Errorf("fetch: %w", err)
			}
			for m := range batch.Messages() {
				seen++
				if err := m.Ack(); err != nil {
					return fmt.Errorf("acknowledge: %w", err)
				}
			}
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("consume: %w", err)
			}
		}
		return nil
	})
	if err := g.Wait(); err != nil {
		return 0, err //nolint:wrapcheck // Wrapped above.
	}
	return float64(n) / time.Since(began).Seconds(), nil
}

// rawClickHouse inserts the same rows into a table of the same form, by the driver's own batches. It writes every column
// that the product writes, but does not take them out of the events: that is the product's work, not the engine's.
func rawClickHouse(ctx context.Context, url string, gen *generator, n int) (float64, error) {
	st, err := store.Open(store.Options{URL: url, Database: rawDatabase})
	if err != nil {
		return 0, fmt.Errorf("open: %w", err)
	}
	err = errors.Join(st.Migrate(ctx, store.MigrateOptions{}), st.Close())
	if err != nil {
		return 0, fmt.Errorf("create the table: %w", err)
	}
	conn, err := clickhouse.Open(&clickhouse.Options{
		Addr: []string{strings.TrimPrefix(url, "http://")}, Protocol: clickhouse.HTTP, Auth: clickhouse.Auth{Database: rawDatabase},
		Settings: clickhouse.Settings{"async_insert": 0, "insert_deduplicate": 0},
	})
	if err != nil {
		return 0, fmt.Errorf("open: %w", err)
	}
	defer conn.Close() //nolint:errcheck // The measurement is over.
	var (
		spent time.Duration
		row   int
		extra = map[string]string{}
	)
	err = encoded(gen, n, func(batch []events.Event, _ [][]byte) error {
		began := time.Now()
		rows, err := conn.PrepareBatch(ctx, "INSERT INTO trace_events ("+rawColumns+")")
		if err != nil {
			return fmt.Errorf("prepare: %w", err)
		}
		for _, e := range batch {
			values := append([]any{
				e.Namespace, e.Time, e.TaskID, e.ID, string(e.Kind), e.AgentID, e.SessionID, e.UserID, e.GoalID, e.Seq, extra, string(e.Data),
			}, gen.columns(row)...)
			if err := rows.Append(values...); err != nil {
				return fmt.Errorf("append: %w", err)
			}
			row++
		}
		if err := rows.Send(); err != nil {
			return fmt.Errorf("insert: %w", err)
		}
		spent += time.Since(began)
		return nil
	})
	if err != nil {
		return 0, err
	}
	return float64(n) / spent.Seconds(), nil
}

type ingested struct {
	// cpu is the processor time of the measured program alone, in microseconds an event.
	rate, meanBytes, cpu float64
	peak, atStart        int64
}

// productIngest publishes the events to a running `hindsight up --ingest-only` and waits until all of them are rows. What
// comes after the row is not part of it: reflection on the closed tasks would take its processor time from whatever else
// runs beside it.
func productIngest(ctx context.Context, o IngestOptions) (result ingested, err error) {
	p, err := start(ctx, o.Executable, "--ingest-only")
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	if err := p.ready(ctx, p.healthURL+"/readyz"); err != nil {
		return result, err
	}
	result.atStart = p.resident()
	watching, stopWatching := context.WithCancel(ctx)
	peak := make(chan int64, 1)
	go func() { peak <- p.watch(watching) }()
	idle := p.cpu()
	took, total, err := p.ingest(ctx, o)
	busy := p.cpu() - idle
	stopWatching()
	result.peak = <-peak
	if err != nil {
		return result, fmt.Errorf("measure the product: %w; it said:\n%s", err, p.output.String())
	}
	result.rate, result.meanBytes = float64(o.Events)/took.Seconds(), float64(total)/float64(o.Events)
	result.cpu = float64(busy.Microseconds()) / float64(o.Events)
	return result, nil
}

// ingest publishes the events to the program and tells how long it took until all were rows, and their size.
func (p *program) ingest(ctx context.Context, o IngestOptions) (took time.Duration, bytes int64, err error) {
	conn, err := bus.Connect(ctx, bus.Options{URL: p.natsURL, Name: "bench", Logger: o.Logger})
	if err != nil {
		return 0, 0, fmt.Errorf("connect to the measured program: %w", err)
	}
	defer conn.Close()
	st, err := store.Open(store.Options{URL: p.clickhouse, Database: benchDatabase})
	if err != nil {
		return 0, 0, fmt.Errorf("open the measured program's record: %w", err)
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	gen := newGenerator(o.Seed)
	began := time.Now()
	if bytes, err = publishAll(ctx, conn, gen, o); err != nil {
		return 0, 0, err
	}
	published := time.Since(began)
	waited, err := waitRows(ctx, st, o.Events, stuckAfter)
	return published + waited, bytes, err
}

func publishAll(ctx context.Context, conn *bus.Conn, gen *generator, o IngestOptions) (bytes int64, err error) {
	err = encoded(gen, o.Events, func(batch []events.Event, raw [][]byte) error {
		messages := make([]bus.Message, len(batch))
		for i, e := range batch {
			bytes += int64(len(raw[i]))
			messages[i] = bus.Message{Subject: events.Subject(e.Namespace, e.Kind), ID: e.MessageID(), Data: raw[i]}
		}
		for began := time.Now(); ; {
			_, err := conn.PublishAll(ctx, messages)
			if !errors.Is(err, bus.ErrFull) || time.Since(began) > stuckAfter {
				return err //nolint:wrapcheck // Wrapped by the caller.
			}
		}
	})
	return bytes, err
}

// waitRows returns once every event is a row. It counts in a way that costs the engine next to nothing, since what the
// bench itself asks would otherwise be measured too, and makes sure in the end that each is counted once. It gives up when
// no row has come for as long as stuck.
func waitRows(ctx context.Context, st *store.ClickHouse, want int, stuck time.Duration) (took time.Duration, err error) {
	began := time.Now()
	for last, moved := -1, began; ; {
		var out bytes.Buffer
		if err := st.Query(ctx, "SELECT count() FROM trace_events", "TSV", &out); err != nil {
			return 0, fmt.Errorf("count rows: %w", err)
		}
		rows, err := strconv.Atoi(strings.TrimSpace(out.String()))
		if err != nil {
			return 0, fmt.Errorf("count rows: %w", err)
		}
		if rows >= want {
			took = time.Since(began)
			break
		}
		if rows != last {
			last, moved = rows, time.Now()
		}
		if time.Since(moved) >= stuck {
			return 0, fmt.Errorf("%d of %d events are rows and no more has come for %s: the ingestor is stuck or has given them up as dead letters", rows, want, stuck)
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("wait for rows (%d of %d): %w", rows, want, ctx.Err())
		case <-time.After(pollPause):
		}
	}
	health, err := st.Health(ctx, benchNamespace)
	if err != nil {
		return 0, fmt.Errorf("count events: %w", err)
	}
	if health.Events != int64(want) {
		return 0, fmt.Errorf("%d rows hold %d events instead of %d: some were delivered twice and others are still missing", want, health.Events, want)
	}
	return took, nil
}

// generator makes runs of a small shop's agent: the sizes and kinds are those of real runs, the words are not.
type generator struct {
	base   time.Time
	prefix string
	// start, end and middles are made once.
	start, end sample
	middles    []sample
}

// sample is what an event tells beside its envelope.
type sample struct {
	kind events.Kind
	data []byte
	// columns are those that the product takes out of the data, in the order of [rawColumns].
	columns []any
}

// samples is how many different data a generator makes.
const samples = 3000

func newGenerator(seed int64) *generator {
	random := rand.New(rand.NewPCG(uint64(seed), 0)) //nolint:gosec // Reproducible, not secret.
	var words strings.Builder
	for words.Len() < 4096 {
		fmt.Fprintf(&words, "item %d size %d colour %d; ", random.IntN(9999), random.IntN(50), random.IntN(16))
	}
	text := func(mean int) string {
		length := random.IntN(2 * mean)
		from := random.IntN(words.Len() - length)
		return words.String()[from : from+length]
	}
	g := &generator{
		base:   time.Now().UTC().Truncate(time.Hour).Add(-24 * time.Hour),
		prefix: fmt.Sprintf("%d-%d", seed, time.Now().UnixNano()),
	}
	begin := events.TaskStarted{TaskType: "shop/orders", Goal: "change an order"}
	g.start = sample{events.KindTaskStarted, data(begin), columns(begin, events.Message{}, events.StepFinished{}, "")}
	finish := events.TaskFinished{Status: events.StatusSuccess, ConfirmedBy: events.ConfirmedBySystem}
	g.end = sample{events.KindTaskFinished, data(finish), columns(events.TaskStarted{}, events.Message{}, events.StepFinished{Status: finish.Status}, finish.ConfirmedBy)}
	for i := range samples {
		if i%3 != 0 {
			role := []string{events.RoleUser, events.RoleAssistant}[i%2]
			message := events.Message{Role: role, Content: text(400), Turn: i}
			g.middles = append(g.middles, sample{events.KindMessage, data(message), columns(events.TaskStarted{}, message, events.StepFinished{}, "")})
			continue
		}
		step := events.StepFinished{
			Tool: fmt.Sprintf("tool_%d", random.IntN(12)), Parameters: fmt.Appendf(nil, `{"order":"o-%d"}`, random.IntN(1e6)),
			Status: events.StatusSuccess, ExecutionTimeMS: int64(random.IntN(900)),
		}
		if random.IntN(20) == 0 {
			step.Status, step.ErrorType, step.ErrorMessage = events.StatusFailure, "ValueError", fmt.Sprintf("order o-%d is not open", random.IntN(1e6))
		} else {
			step.Result = []byte(`"` + text(1200) + `"`)
		}
		g.middles = append(g.middles, sample{events.KindStepFinished, data(step), columns(events.TaskStarted{}, events.Message{}, step, "")})
	}
	return g
}

// columns are the values of the columns for what an event tells; those that no event of the bench fills are empty.
func columns(begin events.TaskStarted, message events.Message, step events.StepFinished, confirmedBy string) []any {
	return []any{
		begin.TaskType, begin.Goal, begin.ParentTaskID, message.Role, int64(message.Turn), int64(step.Step), step.Tool, step.Actor,
		step.CallID, string(step.Status), step.ErrorType, step.ErrorMessage, step.ExecutionTimeMS, (*float64)(nil), "", confirmedBy, "", "",
	}
}

// data encodes plain structs, which always succeeds.
func data(v any) []byte {
	raw, err := events.EncodeData(v)
	if err != nil {
		panic(err)
	}
	return raw
}

// sample is what the i-th event tells: each task has a start, messages and steps in turn, and an end.
func (g *generator) sample(i int) sample {
	switch i % eventsPerTask {
	case 0:
		return g.start
	case eventsPerTask - 1:
		return g.end
	default:
		return g.middles[i%samples]
	}
}

// columns are the values of the i-th event's columns that are not of its envelope.
func (g *generator) columns(i int) []any { return g.sample(i).columns }

// next is the i-th event.
func (g *generator) next(i int) events.Event {
	task, s := i/eventsPerTask, g.sample(i)
	return events.Event{
		ID: fmt.Sprintf("%s-%d", g.prefix, i), Namespace: benchNamespace, AgentID: fmt.Sprintf("agent-%d", task%8),
		SessionID: fmt.Sprintf("session-%d", task), TaskID: fmt.Sprintf("task-%s-%d", g.prefix, task),
		GoalID: fmt.Sprintf("goal-%d", task%500), Seq: int64(i%eventsPerTask + 1), Time: g.base.Add(time.Duration(i) * time.Millisecond),
		Kind: s.kind, Data: s.data,
	}
}

// encode writes the event as it travels. Its texts need no escaping.
func (g *generator) encode(e events.Event) []byte {
	return fmt.Appendf(make([]byte, 0, 400+len(e.Data)),
		`{"id":"%s","namespace":"%s","agent_id":"%s","session_id":"%s","task_id":"%s","goal_id":"%s","seq":%d,"time":"%s","kind":"%s","data":%s}`,
		e.ID, e.Namespace, e.AgentID, e.SessionID, e.TaskID, e.GoalID, e.Seq, e.Time.Format(events.TimeFormat), e.Kind, e.Data)
}
