package store_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hindsight-memory/hindsight/internal/memory"
	"github.com/hindsight-memory/hindsight/internal/store"
	"github.com/hindsight-memory/hindsight/internal/store/milvustest"
	"github.com/hindsight-memory/hindsight/internal/store/storetest"
)

func openMilvus(t *testing.T, opts store.MilvusOptions) *store.Milvus {
	t.Helper()
	m, err := store.OpenMilvus(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func TestVectorIndexConformanceMilvus(t *testing.T) {
	t.Parallel()
	address := milvustest.Address(t)
	f := vectorFeatures()
	f.Approximate = 0.9
	storetest.RunVectorIndex(t, f, func(t *testing.T) memory.VectorIndex {
		t.Helper()
		return openMilvus(t, store.MilvusOptions{Address: address, Prefix: "test"})
	})
}

func milvusEntry(id string, x float32) memory.IndexEntry {
	return memory.IndexEntry{ID: id, Namespace: "t", Layer: memory.LayerSnapshot, CreatedAt: time.Unix(1, 0), TextHash: "hash of " + id, Vector: []float32{1, x}}
}

func nearestID(ctx context.Context, m *store.Milvus, x float32) (string, error) {
	found, err := m.Search(ctx, memory.VectorQuery{Namespace: "t", Vector: []float32{1, x}, Limit: 1})
	if err != nil || len(found) == 0 {
		return "", err
	}
	return found[0].ID, nil
}

// eventually asks until there is no error; the last one fails the test.
func eventually(t *testing.T, ask func() error) {
	t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for {
		err := ask()
		if err == nil {
			return
		}
		if !errors.Is(err, memory.ErrUnavailable) {
			t.Fatalf("%v, want only that it is unavailable", err)
		}
		if time.Now().After(deadline) {
			t.Fatalf("still after two minutes: %v", err)
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		}
	}
}

// TestMilvusKilled kills the server under an open index. Questions fail as unavailable, and the same index goes on with
// all that was acknowledged once the server is back.
func TestMilvusKilled(t *testing.T) {
	t.Parallel()
	server := milvustest.Start(t)
	m := openMilvus(t, store.MilvusOptions{Address: server.Address(), Timeout: 20 * time.Second})
	eventually(t, func() error { return m.Prepare(t.Context(), "killed", 2) })
	for i := range 20 {
		if err := m.Upsert(t.Context(), []memory.IndexEntry{milvusEntry(fmt.Sprint("id-", i), float32(i))}); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Delete(t.Context(), "t", []string{"id-0"}); err != nil {
		t.Fatal(err)
	}
	server.Kill(t)
	for what, err := range map[string]error{
		"Upsert": m.Upsert(t.Context(), []memory.IndexEntry{milvusEntry("lost", 1)}),
		"Delete": m.Delete(t.Context(), "t", []string{"id-1"}),
		"Ready":  m.Ready(t.Context()),
		"Ping":   m.Ping(t.Context()),
	} {
		if !errors.Is(err, memory.ErrUnavailable) || !strings.Contains(err.Error(), server.Address()) {
			t.Errorf("%s while the server is away: %v, want unavailable, with its address", what, err)
		}
	}
	server.Restart(t)
	eventually(t, func() error { return m.Ready(t.Context()) })
	hashes, err := m.TextHashes(t.Context(), "t")
	if err != nil || len(hashes) != 19 || hashes["id-0"] != "" || hashes["id-19"] != "hash of id-19" {
		t.Errorf("after the restart there are %v (%v)", hashes, err)
	}
	if err := m.Upsert(t.Context(), []memory.IndexEntry{milvusEntry("new", -5)}); err != nil {
		t.Fatal(err)
	}
	if id, err := nearestID(t.Context(), m, -5); err != nil || id != "new" {
		t.Errorf("what was written after the restart: %q, %v", id, err)
	}
}

func TestMilvusRefusesWithReasons(t *testing.T) {
	t.Parallel()
	server := milvustest.Start(t, "COMMON_SECURITY_AUTHORIZATIONENABLED=true")
	right := openMilvus(t, store.MilvusOptions{Address: server.Address(), Token: "root:Milvus"})
	eventually(t, func() error { return right.Prepare(t.Context(), "secured", 2) })
	if err := right.Ready(t.Context()); err != nil {
		t.Errorf("with the right password: %v", err)
	}
	for _, token := range []string{"", "root:wrong", "nobody:Milvus"} {
		m := openMilvus(t, store.MilvusOptions{Address: server.Address(), Token: token})
		for what, err := range map[string]error{"Ping": m.Ping(t.Context()), "Prepare": m.Prepare(t.Context(), "secured", 2)} {
			if !errors.Is(err, store.ErrDenied) || !strings.Contains(err.Error(), "HINDSIGHT_MILVUS_TOKEN") || (token != "" && strings.Contains(err.Error(), token)) {
				t.Errorf("%s with token %q: %v, want denied, with the setting and without the password", what, token, err)
			}
		}
	}
}

func TestMilvusNotThereOrNotMilvus(t *testing.T) {
	t.Parallel()
	var listen net.ListenConfig
	l, err := listen.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := openMilvus(t, store.MilvusOptions{Address: free}).Ping(t.Context()); !errors.Is(err, memory.ErrUnavailable) || errors.Is(err, store.ErrNotMilvus) {
		t.Errorf("where nobody listens: %v, want unavailable", err)
	}
	web := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(web.Close)
	m := openMilvus(t, store.MilvusOptions{Address: web.Listener.Addr().String(), Timeout: time.Second})
	for what, err := range map[string]error{"Ping": m.Ping(t.Context()), "Prepare": m.Prepare(t.Context(), "m", 2)} {
		if !errors.Is(err, store.ErrNotMilvus) || errors.Is(err, memory.ErrUnavailable) || !strings.Contains(err.Error(), "HINDSIGHT_MILVUS_ADDR") {
			t.Errorf("%s of a web server: %v, want that it is not Milvus, and for good", what, err)
		}
	}
	for _, opts := range []store.MilvusOptions{
		{}, {Address: "milvus"}, {Address: "http://milvus:19530"}, {Address: "root:x@milvus:19530"}, {Address: "milvus:19530", Prefix: "A-B"}, {Address: "milvus:19530", Timeout: -1},
	} {
		if m, err := store.OpenMilvus(opts); !errors.Is(err, store.ErrOptions) {
			t.Errorf("OpenMilvus(%+v) = %v, %v, want ErrOptions", opts, m, err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := openMilvus(t, store.MilvusOptions{Address: free}).Ping(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("after the context has ended: %v", err)
	}
}

func TestMilvusVersions(t *testing.T) {
	t.Parallel()
	for said, want := range map[string][2]int{
		"v2.3.5-lite": {2, 3}, "2.5.0": {2, 5}, "v2.6.2": {2, 6}, "3.0": {3, 0}, "Zilliz Cloud Vector Database(Compatible with Milvus 2.4)": {2, 4},
		"2.2.16": {2, 2}, "": {}, "master-20230306-29b3690c": {}, "unknown": {},
	} {
		major, minor, ok := store.ParseMilvusVersion(said)
		if [2]int{major, minor} != want || ok != (want != [2]int{}) {
			t.Errorf("%q is read as %d.%d, %v", said, major, minor, ok)
		}
	}
	for version, want := range map[[2]int]bool{{2, 3}: false, {2, 4}: true, {2, 10}: true, {3, 0}: true, {1, 9}: false} {
		if got := store.UpsertsByPartition(version[0], version[1]); got != want {
			t.Errorf("a partition key on %v: %v", version, got)
		}
	}
}

func TestMilvusRefusesWhatItCannotHold(t *testing.T) {
	t.Parallel()
	m := openMilvus(t, store.MilvusOptions{Address: milvustest.Address(t), Prefix: "test"})
	if err := m.Prepare(t.Context(), t.Name(), 2); err != nil {
		t.Fatal(err)
	}
	for what, spoil := range map[string]func(*memory.IndexEntry){
		"no id":         func(e *memory.IndexEntry) { e.ID = "" },
		"no namespace":  func(e *memory.IndexEntry) { e.Namespace = "" },
		"long id":       func(e *memory.IndexEntry) { e.ID = strings.Repeat("x", 1025) },
		"long type":     func(e *memory.IndexEntry) { e.TaskType = strings.Repeat("x", 65536) },
		"long tool":     func(e *memory.IndexEntry) { e.Tools = []string{strings.Repeat("x", 4097)} },
		"too many":      func(e *memory.IndexEntry) { e.Tools = slices.Repeat([]string{"x"}, 4097) },
		"an early time": func(e *memory.IndexEntry) { e.CreatedAt = time.Time{} },
	} {
		e := milvusEntry("id", 1)
		spoil(&e)
		err := m.Upsert(t.Context(), []memory.IndexEntry{milvusEntry("good", 1), e})
		if row, is := errors.AsType[*store.RowError](err); !is || row.Index != 1 {
			t.Errorf("%s: %v, want the row named", what, err)
		}
	}
	longest := milvusEntry(strings.Repeat("i", 1024), 1)
	longest.TextHash, longest.TaskType, longest.Tools = "hash", strings.Repeat("t", 65535), []string{strings.Repeat("x", 4096)}
	if err := m.Upsert(t.Context(), []memory.IndexEntry{longest}); err != nil {
		t.Errorf("the longest that is allowed: %v", err)
	}
	if found, err := m.Search(t.Context(), memory.VectorQuery{Namespace: "t", Vector: longest.Vector, Limit: 16384}); err != nil || len(found) != 1 {
		t.Errorf("the largest limit found %d, %v", len(found), err)
	}
	if _, err := m.Search(t.Context(), memory.VectorQuery{Namespace: "t", Vector: longest.Vector, Limit: 16385}); !errors.Is(err, store.ErrOptions) {
		t.Errorf("beyond the largest limit: %v", err)
	}
}
