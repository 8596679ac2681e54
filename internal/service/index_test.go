package service_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/bus"
	"github.com/hindsight-memory/hindsight/internal/consolidate"
	"github.com/hindsight-memory/hindsight/internal/engine/enginetest"
	"github.com/hindsight-memory/hindsight/internal/memory"
	"github.com/hindsight-memory/hindsight/internal/recall"
	"github.com/hindsight-memory/hindsight/internal/service"
	"github.com/hindsight-memory/hindsight/internal/store"
)

// behindProxy gives the parts a vector index of their own connection, that can be cut while the record answers.
func behindProxy(t *testing.T, p *service.Parts, env map[string]string) *enginetest.Proxy {
	t.Helper()
	between, url := inFrontOf(t, env["HINDSIGHT_CLICKHOUSE_URL"])
	st, err := store.Open(store.Options{URL: url, Database: env["HINDSIGHT_CLICKHOUSE_DATABASE"]})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := service.UseIndex(p, store.NewVectors(st)); err != nil {
		t.Fatal(err)
	}
	return between
}

// outOfStep tells how an index differs from the record, which is asked here item by item.
func outOfStep(t *testing.T, p *service.Parts, index memory.VectorIndex, namespace string) (items int, difference string) {
	t.Helper()
	held, err := index.TextHashes(t.Context(), namespace)
	if err != nil {
		return 0, err.Error()
	}
	snapshots, err := p.Store.Snapshots(t.Context(), memory.ItemFilter{Namespace: namespace})
	if err != nil {
		return 0, err.Error()
	}
	memories, err := p.Store.Memories(t.Context(), memory.ItemFilter{Namespace: namespace})
	if err != nil {
		return 0, err.Error()
	}
	want := map[string]string{}
	for _, s := range snapshots {
		if e, text := memory.SnapshotEntry(s); text != "" {
			e.TextHash = memory.TextHash(text)
			want[e.ID] = e.Stamp()
		}
	}
	for _, m := range memories {
		if e, text := memory.MemoryEntry(m); text != "" {
			e.TextHash = memory.TextHash(text)
			want[e.ID] = e.Stamp()
		}
	}
	missing, stale := 0, 0
	for id, stamp := range want {
		switch have, is := held[id]; {
		case !is:
			missing++
		case have != stamp:
			stale++
		}
		delete(held, id)
	}
	if missing+stale+len(held) == 0 {
		return len(want), ""
	}
	return len(want), fmt.Sprintf("of %d items %d are missing and %d stale, and %d entries are of none: %v", len(want), missing, stale, len(held), slices.Collect(maps.Keys(held)))
}

// inspect is an index that is asked past whatever is in the way of the services.
func inspect(t *testing.T, p *service.Parts) memory.VectorIndex {
	t.Helper()
	index := store.NewVectors(p.Store)
	if err := index.Prepare(t.Context(), fmt.Sprintf("first-model/%d/v1", dimension), dimension); err != nil {
		t.Fatal(err)
	}
	return index
}

func reader(t *testing.T, p *service.Parts) *service.Reader {
	t.Helper()
	r, err := p.Reader()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return r
}

// failing is a task with a failed call that a later one repairs, so that there is something to learn.
func failing(id string, n int) []events.Event {
	at := func(name string, second int, kind events.Kind, data string) events.Event {
		return event(id, name, second, kind, data)
	}
	return []events.Event{
		at("start", 0, events.KindTaskStarted, fmt.Sprintf(`{"task_type":"refund","goal":"refund order %d"}`, n)),
		at("bad", 1, events.KindStepFinished, fmt.Sprintf(`{"tool":"pay","parameters":{"amount":"%d","currency":"x"},"status":"failure","error_type":"invalid","error_message":"currency of order %d is not known"}`, n, n)),
		at("good", 2, events.KindStepFinished, fmt.Sprintf(`{"tool":"pay","parameters":{"amount":"%d","currency":"EUR"},"status":"success","result":"paid"}`, n)),
		at("end", 59, events.KindTaskFinished, `{"status":"success","confirmed_by":"system"}`),
	}
}

// TestTheIndexIsAwayForAWhile cuts the index, in every way that it can be cut, while agents write and tasks are reflected:
// nobody waits for it, nothing queues up, answers say what they lack, and once it is back it is whole.
func TestTheIndexIsAwayForAWhile(t *testing.T) {
	t.Parallel()
	for name, weather := range map[string]enginetest.Weather{"refuses": enginetest.Refused, "hangs": enginetest.Silent} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env, endpoint := environment(t), newEmbeddings(t)
			p := open(t, withModel(env, endpoint, "first-model"), "one")
			between := behindProxy(t, p, env)
			for _, s := range []service.Service{service.Ingest, service.Reflect, service.Consolidate} {
				run(t, p, s)
			}
			theIndexIsAwayForAWhile(t, p, env, func() { between.Turn(weather) }, between.Heal, inspect(t, p))
		})
	}
}

// theIndexIsAwayForAWhile is the test for one index. The services run.
func theIndexIsAwayForAWhile(t *testing.T, p *service.Parts, env map[string]string, cut, heal func(), index memory.VectorIndex) {
	t.Helper()
	const namespace = "acme.support"
	agent := publisher(t, env)
	w, r := service.NewWriter(agent), reader(t, p)
	ask := func(text string) recall.Answer {
		t.Helper()
		a, err := r.Recall(t.Context(), recall.Question{Namespace: namespace, Text: text})
		if err != nil {
			t.Fatalf("recall: %v", err)
		}
		return a
	}
	write := func(n int) string {
		t.Helper()
		written, err := w.Write(t.Context(), event("a", fmt.Sprint("write", n), 1, events.KindItemWritten, fmt.Sprintf(`{"content":"Export number %d takes ISO dates","entity":"export-%d"}`, n, n)))
		if err != nil || written.ItemID == "" {
			t.Fatalf("write: %+v, %v", written, err)
		}
		return written.ItemID
	}
	drained := func() bool {
		return messages(t, agent, bus.StreamWrites) == 0 && messages(t, agent, bus.StreamReflect) == 0 && messages(t, agent, bus.StreamTraces) == 0
	}
	lessons := func() int {
		snapshots, err := p.Store.Snapshots(t.Context(), memory.ItemFilter{Namespace: namespace})
		if err != nil {
			return -1
		}
		return len(snapshots)
	}
	write(0)
	publish(t, agent, failing("before", 0)...)
	eventually(t, "a first lesson", func() bool { return lessons() > 0 && drained() })
	eventually(t, "an index that is whole before", func() bool { _, difference := outOfStep(t, p, index, namespace); return difference == "" })
	if a := ask("which dates does export number 0 take"); a.Notice != "" || len(a.Items) == 0 {
		t.Errorf("before: %d items, notice %q", len(a.Items), a.Notice)
	}
	before := lessons()

	cut()
	const several = 8
	var done sync.WaitGroup
	for n := range several {
		done.Go(func() { publish(t, agent, failing(fmt.Sprint("meanwhile", n), n+1)...) })
	}
	var last string
	for n := range several {
		last = write(n + 1) // Each is answered although the index is away.
	}
	done.Wait()
	forgotten, err := w.Write(t.Context(), event("a", "forget", 2, events.KindItemChanged, fmt.Sprintf(`{"item_id":%q,"change":"forget"}`, last)))
	if err != nil {
		t.Fatalf("forget: %+v, %v", forgotten, err)
	}
	eventually(t, "lessons of all tasks, and empty queues, while the index is away", func() bool { return lessons() >= before+several && drained() })
	if a := ask("which dates does export number 3 take"); !strings.Contains(a.Notice, "the vector index is away") || len(a.Items) == 0 || !strings.Contains(a.Items[0].Text, "number 3") {
		t.Errorf("meanwhile: %+v", a)
	}
	if a := ask("export 需要什么日期格式"); !strings.Contains(a.Notice, "向量索引") {
		t.Errorf("a Chinese question is told %q", a.Notice)
	}
	if up := metric(t, p.Registry, "hindsight_index_up"); up != 0 {
		t.Errorf("hindsight_index_up is %v", up)
	}
	if n := metric(t, p.Registry, "hindsight_index_deferred_total"); n < several {
		t.Errorf("%v entries were deferred, want at least %d", n, several)
	}
	if items, difference := outOfStep(t, p, index, namespace); difference == "" {
		t.Errorf("the index holds all %d items: it was not away", items)
	}
	embedded := metric(t, p.Registry, "hindsight_index_repairs_total")
	heal()
	eventually(t, "an index that is whole again", func() bool {
		_, difference := outOfStep(t, p, index, namespace)
		return difference == ""
	})
	eventually(t, "answers without a notice", func() bool {
		a := ask("which dates does export number 3 take")
		return a.Notice == "" && len(a.Items) > 0
	})
	if n := metric(t, p.Registry, "hindsight_index_repairs_total") - embedded; n < several {
		t.Errorf("%v repairs are told, want at least %d", n, several)
	}
	if n := messages(t, agent, bus.StreamDeadLetter); n != 0 {
		t.Errorf("%d dead letters", n)
	}
	items, difference := outOfStep(t, p, index, namespace)
	t.Logf("%d items, %s", items, difference)
}

// TestAnIndexThatIsNotThereYet starts without it: the services run, a process is ready and says what it lacks, and the
// index is used as soon as it is there.
func TestAnIndexThatIsNotThereYet(t *testing.T) {
	t.Parallel()
	env, endpoint := environment(t), newEmbeddings(t)
	p := open(t, withModel(env, endpoint, "first-model"), "one")
	between := behindProxy(t, p, env)
	between.Cut()
	run(t, p, service.Reflect)
	run(t, p, service.Consolidate)
	agent := publisher(t, env)
	written, err := service.NewWriter(agent).Write(t.Context(), event("a", "write", 1, events.KindItemWritten, `{"content":"The export takes ISO dates","entity":"export"}`))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "a vector in the record, and no queue", func() bool {
		vectors, err := p.Store.ItemVectors(t.Context(), "acme.support", fmt.Sprintf("first-model/%d/v1", dimension), []string{written.ItemID})
		return err == nil && len(vectors) == 1 && messages(t, agent, bus.StreamWrites) == 0
	})
	a, err := reader(t, p).Recall(t.Context(), recall.Question{Namespace: "acme.support", Text: "the export takes dates"})
	if err != nil || len(a.Items) != 1 || !strings.Contains(a.Notice, "the vector index is away") {
		t.Errorf("recall: %+v, %v", a, err)
	}
	told := ""
	for _, probe := range p.Probes() {
		if err := probe.Check(t.Context()); err != nil && probe.Optional {
			told = probe.Name + ": " + err.Error()
		} else if err != nil {
			t.Errorf("probe %s: %v", probe.Name, err)
		}
	}
	if !strings.Contains(told, "index: the vector index is away since") {
		t.Errorf("the probes tell %q", told)
	}
	between.Heal()
	eventually(t, "an index that is whole", func() bool {
		items, difference := outOfStep(t, p, inspect(t, p), "acme.support")
		return items == 1 && difference == ""
	})
}

// TestAnIndexThatCannotBeUsed has one that holds vectors of another dimension under the name of the model: no waiting
// heals that, so that services refuse to start.
func TestAnIndexThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	env, endpoint := environment(t), newEmbeddings(t)
	p := open(t, withModel(env, endpoint, "first-model"), "one")
	if err := store.NewVectors(p.Store).Prepare(t.Context(), fmt.Sprintf("first-model/%d/v1", dimension), 8); err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]service.Service{"reflector": service.Reflect, "consolidator": service.Consolidate, "door": service.NewDoor(p.Config, p.Logger).Service} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		if err := s(ctx, p); !errors.Is(err, store.ErrDimension) || !strings.Contains(err.Error(), "reindex") {
			t.Errorf("%s: %v, want to be told of the dimension", name, err)
		}
		cancel()
	}
}

// TestConsistencyKeepsOutOfTheWay looks at the index all the time while agents write: what is about to be indexed is not
// missing.
func TestConsistencyKeepsOutOfTheWay(t *testing.T) {
	t.Parallel()
	env, endpoint := environment(t), newEmbeddings(t)
	p := open(t, withModel(env, endpoint, "first-model"), "one")
	run(t, p, service.Reflect)
	run(t, p, service.Consolidate)
	agent := publisher(t, env)
	w := service.NewWriter(agent)
	ctx, cancel := context.WithCancel(t.Context())
	var looking sync.WaitGroup
	looked := 0
	looking.Go(func() {
		for ctx.Err() == nil {
			report, err := p.Consolidation(ctx, consolidate.JobConsistency)
			if err == nil && report.Counts["checked"] > 0 {
				looked++
			}
		}
	})
	for n := range 60 {
		e := event("a", fmt.Sprint("write", n), 1, events.KindItemWritten, fmt.Sprintf(`{"content":"Export number %d takes ISO dates","entity":"export-%d"}`, n%20, n%20))
		if n >= 20 { // The same again, with other words.
			e.Data = []byte(fmt.Sprintf(`{"content":"Export number %d takes ISO dates, round %d","entity":"export-%d"}`, n%20, n/20, n%20))
		}
		if _, err := w.Write(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "an index that is whole by its writers alone", func() bool {
		_, difference := outOfStep(t, p, inspect(t, p), "acme.support")
		return difference == ""
	})
	cancel()
	looking.Wait()
	if n := metric(t, p.Registry, "hindsight_index_repairs_total"); n != 0 || looked == 0 {
		t.Errorf("%v repairs in %d looks", n, looked)
	}
}

// large is an index that needs a while to list a namespace, as one of a million entries does.
type large struct {
	memory.VectorIndex

	listing time.Duration
}

func (large) Prepare(context.Context, string, int) error { return nil }
func (large) Ready(context.Context) error                { return nil }

func (l large) TextHashes(ctx context.Context, _ string) (map[string]string, error) {
	select {
	case <-time.After(l.listing):
		return map[string]string{"id": "hash"}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// TestALargeNamespaceIsNoOutage: that it takes long to list what an index holds does not mean that it is away.
func TestALargeNamespaceIsNoOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		index, end, err := service.NewIndex(large{listing: 2 * time.Minute}, logger(t))
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := end(); err != nil {
				t.Error(err)
			}
		}()
		if err := index.Prepare(t.Context(), "model", 2); err != nil {
			t.Fatal(err)
		}
		if held, err := index.TextHashes(t.Context(), "acme"); err != nil || len(held) != 1 {
			t.Errorf("the list is %v, %v", held, err)
		}
		if err := index.Ready(t.Context()); err != nil {
			t.Errorf("after a long list the index counts as away: %v", err)
		}
	})
}

// slow is an index whose first write is not answered in time, while everything else is.
type slow struct {
	memory.VectorIndex

	writes *int
}

func (slow) Prepare(context.Context, string, int) error { return nil }
func (slow) Ready(context.Context) error                { return nil }

func (s slow) Upsert(ctx context.Context, _ []memory.IndexEntry) error {
	if *s.writes++; *s.writes == 1 {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

// TestARebuildOutlivesASlowWrite: whoever fills an index anew waits until it answers again, and does not begin anew. One that
// stays away ends it.
func TestARebuildOutlivesASlowWrite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		writes := 0
		index, end, err := service.NewRebuilt(slow{writes: &writes}, logger(t))
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := end(); err != nil {
				t.Error(err)
			}
		}()
		if err := index.Prepare(t.Context(), "model", 2); err != nil {
			t.Fatal(err)
		}
		if err := index.Upsert(t.Context(), []memory.IndexEntry{{ID: "one"}}); err != nil || writes != 2 {
			t.Errorf("after %d writes: %v", writes, err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		index, end, err := service.NewRebuilt(gone{}, logger(t))
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := end(); err != nil {
				t.Error(err)
			}
		}()
		if err := index.Prepare(t.Context(), "model", 2); err != nil {
			t.Fatal(err)
		}
		if err := index.Upsert(t.Context(), []memory.IndexEntry{{ID: "one"}}); !errors.Is(err, memory.ErrUnavailable) {
			t.Errorf("an index that stays away: %v", err)
		}
	})
}

// gone is an index that has gone away for good.
type gone struct{ memory.VectorIndex }

func (gone) Prepare(context.Context, string, int) error { return nil }
func (gone) Ready(context.Context) error                { return memory.ErrUnavailable }

func (gone) Upsert(context.Context, []memory.IndexEntry) error { return memory.ErrUnavailable }
