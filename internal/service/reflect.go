package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/bus"
	"github.com/hindsight-memory/hindsight/internal/embed"
	"github.com/hindsight-memory/hindsight/internal/llm"
	"github.com/hindsight-memory/hindsight/internal/memory"
	"github.com/hindsight-memory/hindsight/internal/reflect"
)

const (
	// writeLinger is how long the keeper collects what agents write: they wait for it.
	writeLinger = 20 * time.Millisecond
	// maxReflectBatch is how many tasks are reflected together at most, when no model is asked.
	maxReflectBatch = 25
	// writeBatch is how many writes are stored at once at most.
	writeBatch = 200
	// indexBatch is how many writes get their vectors at once: few enough to be done before a process must end.
	indexBatch = 32
)

// Reflect runs the reflector, which turns closed tasks into snapshots and memories, and the keeper, which stores what
// agents write, until ctx ends and both have drained.
func Reflect(ctx context.Context, p *Parts) error {
	space, err := p.Space()
	if err != nil {
		return err
	}
	// Another model than the stored one is for a person to decide, who needs the engines for that: until then nothing is
	// embedded, and questions are answered by words.
	if err := space.Start(ctx); errors.Is(err, embed.ErrModelChanged) {
		p.Logger.Error("the embedding model is another one than before; what is learnt waits until this is settled", "error", err)
	} else if err != nil {
		return err
	}
	reflector, err := p.reflector(space)
	if err != nil {
		return err
	}
	keeper, err := p.keeper(space)
	if err != nil {
		return err
	}
	tasks, err := p.Bus.NewWorker(bus.WorkerOptions{
		Stream: bus.StreamReflect, Durable: "reflector", BatchSize: p.reflectBatch(), BatchWait: batchWait, Concurrency: p.Config.ReflectConcurrency, AckWait: time.Minute,
		Logger: p.Logger, Registerer: p.Registry,
	}, reflectHandler(reflector))
	if err != nil {
		return fmt.Errorf("set up the reflector's worker: %w", err)
	}
	writes, err := p.Bus.NewWorker(bus.WorkerOptions{
		Stream: bus.StreamWrites, Durable: "keeper", FilterSubject: bus.WriteSubjects, BatchSize: writeBatch, BatchWait: writeLinger, AckWait: time.Minute, MaxBackoff: retryPause,
		Concurrency: 1, Logger: p.Logger, Registerer: p.Registry,
	}, writeHandler(keeper, p.Bus))
	if err != nil {
		return fmt.Errorf("set up the keeper's worker: %w", err)
	}
	vectors, err := p.Bus.NewWorker(bus.WorkerOptions{
		Stream: bus.StreamWrites, Durable: "indexer", FilterSubject: bus.IndexSubjects, BatchSize: indexBatch, BatchWait: writeLinger, AckWait: time.Minute,
		MaxBackoff: retryPause, Concurrency: 1, Logger: p.Logger, Registerer: p.Registry,
	}, indexHandler(keeper))
	if err != nil {
		return fmt.Errorf("set up the indexer's worker: %w", err)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return tasks.Run(ctx) })
	g.Go(func() error { return writes.Run(ctx) })
	g.Go(func() error { return vectors.Run(ctx) })
	if err := g.Wait(); err != nil {
		return fmt.Errorf("reflect: %w", err)
	}
	return nil
}

// reflectBatch is how many tasks are reflected together: reading and writing for many is what costs least, but a model is
// slow, and no task should wait for another's.
func (p *Parts) reflectBatch() int {
	if p.Config.LLMBaseURL != "" {
		return 1
	}
	return maxReflectBatch
}

// Reflector makes what reflects out of the parts, for a person to try by hand.
func (p *Parts) Reflector() (*reflect.Reflector, error) {
	space, err := p.Space()
	if err != nil {
		return nil, err
	}
	return p.reflector(space)
}

func (p *Parts) reflector(space *Space) (*reflect.Reflector, error) {
	o := reflect.Options{Tasks: p.Store, Ledger: p.Store, Items: p.Store, Writer: p.Store, Logger: p.Logger, Registerer: p.Registry}
	if space != nil {
		o.Index, o.Embedder = deferring{space.index}, items{space}
	}
	if p.Config.LLMBaseURL != "" {
		model, err := llm.New(llm.Options{BaseURL: p.Config.LLMBaseURL, Key: p.Config.LLMAPIKey, Model: p.Config.ReflectionModel})
		if err != nil {
			return nil, fmt.Errorf("set up the model that reflects (HINDSIGHT_LLM_BASE_URL, REFLECTION_MODEL): %w", err)
		}
		o.Reflection = model
	}
	reflector, err := reflect.New(o)
	if err != nil {
		return nil, fmt.Errorf("set up the reflector: %w", err)
	}
	return reflector, nil
}

func (p *Parts) keeper(space *Space) (*reflect.Keeper, error) {
	o := reflect.KeeperOptions{Events: p.Store, Items: p.Store, Writer: p.Store, Logger: p.Logger, Registerer: p.Registry}
	if space != nil {
		o.Index, o.Embedder, o.Queue = deferring{space.index}, items{space}, func(ctx context.Context, written []reflect.Written) error { return queueVectors(ctx, p.Bus, written) }
	}
	keeper, err := reflect.NewKeeper(o)
	if err != nil {
		return nil, fmt.Errorf("set up the keeper: %w", err)
	}
	return keeper, nil
}

// reflectHandler reflects the tasks of a batch.
func reflectHandler(reflector *reflect.Reflector) bus.Handler {
	return func(ctx context.Context, batch []bus.Message) []error {
		verdicts := make([]error, len(batch))
		requests := make([]memory.ReflectionRequest, 0, len(batch))
		from := make([]int, 0, len(batch)) // requests[k] is of batch[from[k]]
		for i, m := range batch {
			var request memory.ReflectionRequest
			if err := json.Unmarshal(m.Data, &request); err != nil {
				verdicts[i] = bus.Discard("malformed", fmt.Errorf("read the request: %w", err))
				continue
			}
			requests, from = append(requests, request), append(from, i)
		}
		for k, err := range reflector.ReflectAll(ctx, requests) {
			verdicts[from[k]] = reflectVerdict(err)
		}
		return verdicts
	}
}

// reflectVerdict waits for what is away, and gives up what can never be. Anything else is an attempt that failed.
func reflectVerdict(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, memory.ErrNotFound):
		return bus.Discard("task_not_found", err)
	case errors.Is(err, memory.ErrRejected):
		return bus.Discard("rejected_by_store", err)
	case mayPass(err):
		return bus.Wait(err)
	default:
		return err
	}
}

// mayPass says that an error is no fault of the message: what is away comes back, and what only a person can put right,
// such as another embedding model than the stored one, is put right one day.
func mayPass(err error) bool {
	return errors.Is(err, memory.ErrUnavailable) || errors.Is(err, embed.ErrModelChanged)
}

// writeHandler stores what agents write and answers each as soon as the record holds it.
func writeHandler(keeper *reflect.Keeper, conn *bus.Conn) bus.Handler {
	return func(ctx context.Context, batch []bus.Message) []error {
		verdicts := make([]error, len(batch))
		writes := make([]reflect.Write, 0, len(batch))
		from := make([]int, 0, len(batch)) // from[k] is the message that writes[k] came from
		for i, m := range batch {
			e, err := events.Decode(m.Header, m.Data)
			if err == nil && e.Namespace != namespaceOf(m.Subject) {
				err = fmt.Errorf("%w: the envelope says namespace %q and the subject %s another", events.ErrInvalid, e.Namespace, m.Subject)
			}
			if err != nil {
				answer(conn, m, answered{Error: err.Error()})
				verdicts[i] = bus.Discard("malformed", err)
				continue
			}
			writes = append(writes, reflect.Write{Event: e, Confirm: func(r reflect.Receipt, err error) {
				if err != nil {
					answer(conn, m, answered{Error: err.Error(), Missing: errors.Is(err, memory.ErrNotFound)})
					return
				}
				answer(conn, m, answered{ItemID: r.ItemID, Status: r.Status, Notice: r.Notice})
			}})
			from = append(from, i)
		}
		for k, err := range keeper.Handle(ctx, writes) {
			switch {
			case err == nil:
			case errors.Is(err, memory.ErrNotFound):
				verdicts[from[k]] = bus.Discard("item_not_found", err)
			case errors.Is(err, memory.ErrRejected):
				verdicts[from[k]] = bus.Discard("rejected", err)
			case mayPass(err):
				verdicts[from[k]] = bus.Wait(err)
			default:
				verdicts[from[k]] = err
			}
		}
		return verdicts
	}
}

// queueVectors asks for the vectors of what was written.
func queueVectors(ctx context.Context, conn *bus.Conn, written []reflect.Written) error {
	messages := make([]bus.Message, len(written))
	for i, w := range written {
		data, err := json.Marshal(w)
		if err != nil {
			return fmt.Errorf("encode a request for vectors: %w", err)
		}
		messages[i] = bus.Message{Subject: bus.IndexSubject(w.Namespace), ID: "index/" + w.Namespace + "/" + w.By, Data: data}
	}
	if _, err := conn.PublishAll(ctx, messages); err != nil {
		return fmt.Errorf("%w: ask for vectors: %w", memory.ErrUnavailable, err)
	}
	return nil
}

// indexHandler makes the vectors of what the keeper has stored.
func indexHandler(keeper *reflect.Keeper) bus.Handler {
	return func(ctx context.Context, batch []bus.Message) []error {
		verdicts := make([]error, len(batch))
		var written []reflect.Written
		var from []int // written[k] is of batch[from[k]]
		for i, m := range batch {
			var w reflect.Written
			err := json.Unmarshal(m.Data, &w)
			if err == nil && bus.IndexSubject(w.Namespace) != m.Subject {
				err = fmt.Errorf("it is about namespace %q and came on %s", w.Namespace, m.Subject)
			}
			if err != nil {
				verdicts[i] = bus.Discard("malformed", fmt.Errorf("read a request for vectors: %w", err))
				continue
			}
			written, from = append(written, w), append(from, i)
		}
		if err := keeper.Index(ctx, written); err != nil {
			if mayPass(err) {
				err = bus.Wait(err)
			}
			for _, i := range from {
				verdicts[i] = err
			}
		}
		return verdicts
	}
}

// answer tells a writer what became of its write; one who waits no more is not told.
func answer(conn *bus.Conn, m bus.Message, a answered) {
	raw, err := json.Marshal(a)
	if err == nil {
		err = conn.Answer(m, raw)
	}
	_ = err // The writer asks again; what it wrote has the same id then.
}
