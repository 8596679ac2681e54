package service_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/hindsight-memory/hindsight/internal/engine/enginetest"
	"github.com/hindsight-memory/hindsight/internal/memory"
	"github.com/hindsight-memory/hindsight/internal/recall"
	"github.com/hindsight-memory/hindsight/internal/service"
	"github.com/hindsight-memory/hindsight/internal/store"
	"github.com/hindsight-memory/hindsight/internal/store/milvustest"
)

// withMilvus names a Milvus, with collections of this test alone.
func withMilvus(env map[string]string, address string) map[string]string {
	out := maps.Clone(env)
	out["HINDSIGHT_MILVUS_ADDR"], out["HINDSIGHT_MILVUS_PREFIX"] = address, "test_"+strings.ToLower(rand.Text()[:12])
	return out
}

// inspectMilvus asks the server itself, past whatever is in the way of the services.
func inspectMilvus(t *testing.T, env map[string]string, address string) memory.VectorIndex {
	t.Helper()
	index, err := store.OpenMilvus(store.MilvusOptions{Address: address, Prefix: env["HINDSIGHT_MILVUS_PREFIX"]})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := index.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := index.Prepare(t.Context(), fmt.Sprintf("first-model/%d/v1", dimension), dimension); err != nil {
		t.Fatal(err)
	}
	return index
}

// TestMilvusIsAwayForAWhile cuts the connections to a real Milvus, or ends it, while agents write and tasks are
// reflected.
func TestMilvusIsAwayForAWhile(t *testing.T) {
	t.Parallel()
	begin := func(t *testing.T, address string) (*service.Parts, map[string]string) {
		t.Helper()
		env := withMilvus(withModel(environment(t), newEmbeddings(t), "first-model"), address)
		p := open(t, env, "one")
		if err := service.UseIndex(p, nil); err != nil {
			t.Fatal(err)
		}
		for _, s := range []service.Service{service.Ingest, service.Reflect, service.Consolidate} {
			run(t, p, s)
		}
		return p, env
	}
	for name, weather := range map[string]enginetest.Weather{"refuses": enginetest.Refused, "hangs": enginetest.Silent} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := milvustest.Address(t)
			between := enginetest.NewProxy(t, address)
			p, env := begin(t, between.Addr())
			theIndexIsAwayForAWhile(t, p, env, func() { between.Turn(weather) }, between.Heal, inspectMilvus(t, env, address))
		})
	}
	t.Run("killed", func(t *testing.T) {
		t.Parallel()
		server := milvustest.Start(t)
		p, env := begin(t, server.Address())
		theIndexIsAwayForAWhile(t, p, env, func() { server.Kill(t) }, func() { server.Restart(t) }, inspectMilvus(t, env, server.Address()))
	})
}

// TestReindexFillsMilvus goes over from the index in ClickHouse to one in Milvus, and embeds nothing for it.
func TestReindexFillsMilvus(t *testing.T) {
	t.Parallel()
	address := milvustest.Address(t)
	endpoint := newEmbeddings(t)
	env := withModel(environment(t), endpoint, "first-model")
	before := open(t, env, "one")
	stop := run(t, before, service.Reflect)
	agent := publisher(t, env)
	w := service.NewWriter(agent)
	const several = 30
	for n := range several {
		if _, err := w.Write(t.Context(), event("a", fmt.Sprint("write", n), 1, "item_written", fmt.Sprintf(`{"content":"Export number %d takes ISO dates","entity":"export-%d"}`, n, n))); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "an index that is whole", func() bool {
		items, difference := outOfStep(t, before, inspect(t, before), "acme.support")
		return items == several && difference == ""
	})
	stop()
	asked := endpoint.asked()

	env = withMilvus(env, address)
	p := open(t, env, "two")
	state, err := p.CheckIndex(t.Context())
	if err != nil || state.Missing+state.Items < several {
		t.Errorf("before: %+v, %v", state, err)
	}
	done, err := p.Reindex(t.Context(), nil)
	if err != nil || done.Indexed != several || done.Embedded != 0 || done.Removed != 0 {
		t.Errorf("reindex: %+v, %v", done, err)
	}
	if items, difference := outOfStep(t, p, inspectMilvus(t, env, address), "acme.support"); items != several || difference != "" {
		t.Errorf("Milvus holds %d items: %s", items, difference)
	}
	if state, err = p.CheckIndex(t.Context()); err != nil || state != (service.IndexState{Model: done.Model, Items: state.Items}) {
		t.Errorf("after: %+v, %v", state, err)
	}
	if now := endpoint.asked(); now > asked+2 {
		t.Errorf("%d texts were embedded again", now-asked)
	}
	a, err := reader(t, p).Recall(t.Context(), recall.Question{Namespace: "acme.support", Text: "Export number 7 takes ISO dates"})
	if err != nil || a.Notice != "" || len(a.Items) == 0 || !strings.Contains(a.Items[0].Text, "number 7") {
		t.Errorf("recall: %+v, %v", a, err)
	}
}

// TestWhatIsNoMilvusIsRefused: no waiting makes a Milvus of another server.
func TestWhatIsNoMilvusIsRefused(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(web.Close)
	env := withMilvus(withModel(environment(t), newEmbeddings(t), "first-model"), strings.TrimPrefix(web.URL, "http://"))
	p := open(t, env, "one")
	for name, s := range map[string]service.Service{"reflector": service.Reflect, "consolidator": service.Consolidate, "door": service.NewDoor(p.Config, p.Logger).Service} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		if err := s(ctx, p); !errors.Is(err, store.ErrNotMilvus) || !strings.Contains(err.Error(), "HINDSIGHT_MILVUS_ADDR") {
			t.Errorf("%s: %v, want to be told that this is no Milvus", name, err)
		}
		cancel()
	}
}
