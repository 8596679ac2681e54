package storetest_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hindsight-memory/hindsight/internal/engine/enginetest"
	"github.com/hindsight-memory/hindsight/internal/memory"
	"github.com/hindsight-memory/hindsight/internal/store"
	"github.com/hindsight-memory/hindsight/internal/store/storetest"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if err := enginetest.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stop the shared engine:", err)
		code = 1
	}
	http.DefaultClient.CloseIdleConnections()
	os.Exit(code)
}

// faulty is a real index with a fault: each function that is set stands before or behind the index's own.
type faulty struct {
	memory.VectorIndex

	model  func(string) string
	entry  func(*memory.IndexEntry)
	upsert func(f *faulty, ctx context.Context, entries []memory.IndexEntry) error
	query  func(*memory.VectorQuery)
	found  func([]memory.Candidate) []memory.Candidate
	// deletes is what is deleted instead.
	deletes func(namespace string, ids []string) (string, []string)
	hashes  func(map[string]string) map[string]string

	mu   sync.Mutex
	kept []memory.IndexEntry
	seen map[string]bool
}

func (f *faulty) Prepare(ctx context.Context, model string, dimension int) error {
	if f.model != nil {
		model = f.model(model)
	}
	return f.VectorIndex.Prepare(ctx, model, dimension)
}

func (f *faulty) Upsert(ctx context.Context, entries []memory.IndexEntry) error {
	if f.entry != nil {
		entries = slices.Clone(entries)
		for i := range entries {
			f.entry(&entries[i])
		}
	}
	if f.upsert != nil {
		return f.upsert(f, ctx, entries)
	}
	return f.VectorIndex.Upsert(ctx, entries)
}

func (f *faulty) Search(ctx context.Context, q memory.VectorQuery) ([]memory.Candidate, error) {
	if f.query != nil {
		f.query(&q)
	}
	found, err := f.VectorIndex.Search(ctx, q)
	if f.found != nil {
		found = f.found(found)
	}
	return found, err
}

func (f *faulty) Delete(ctx context.Context, namespace string, ids []string) error {
	if f.deletes != nil {
		namespace, ids = f.deletes(namespace, ids)
	}
	return f.VectorIndex.Delete(ctx, namespace, ids)
}

func (f *faulty) TextHashes(ctx context.Context, namespace string) (map[string]string, error) {
	hashes, err := f.VectorIndex.TextHashes(ctx, namespace)
	if f.hashes != nil && err == nil {
		hashes = f.hashes(hashes)
	}
	return hashes, err
}

// fit gives a vector the dimension that it should have.
func fit(v []float32, dimension int) []float32 {
	return append(slices.Clone(v), make([]float32, dimension)...)[:dimension]
}

// TestTheSuiteCatchesAFaultyIndex breaks a real index in the ways in which adapters are broken. Each must fail the suite.
func TestTheSuiteCatchesAFaultyIndex(t *testing.T) {
	t.Parallel()
	const dimension = 16
	features := storetest.VectorFeatures{
		WrongDimension: store.ErrDimension, NoNamespace: store.ErrNamespace, NotPrepared: store.ErrNotPrepared, Dimension: dimension, Entries: 60, Many: 300,
	}
	url := enginetest.ClickHouse(t)
	c, err := store.Open(store.Options{URL: url, Database: enginetest.Database(t, url)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := c.Migrate(t.Context(), store.MigrateOptions{}); err != nil {
		t.Fatal(err)
	}
	oneSpace := func(namespace string) string {
		if namespace == "" {
			return ""
		}
		return "all"
	}
	for name, spoil := range map[string]func(*faulty){
		"no fault": func(*faulty) {},
		"namespaces are one": func(f *faulty) {
			f.entry = func(e *memory.IndexEntry) { e.Namespace = oneSpace(e.Namespace) }
			f.query = func(q *memory.VectorQuery) { q.Namespace = oneSpace(q.Namespace) }
		},
		"deleting crosses namespaces": func(f *faulty) {
			f.deletes = func(namespace string, ids []string) (string, []string) {
				if namespace == "t.team" {
					namespace = "t"
				}
				return namespace, ids
			}
		},
		"deleting does nothing": func(f *faulty) {
			f.deletes = func(namespace string, _ []string) (string, []string) { return namespace, nil }
		},
		"deleting only the first": func(f *faulty) {
			f.deletes = func(namespace string, ids []string) (string, []string) { return namespace, ids[:min(1, len(ids))] }
		},
		"any status passes":        func(f *faulty) { f.query = func(q *memory.VectorQuery) { q.Statuses = nil } },
		"any layer passes":         func(f *faulty) { f.query = func(q *memory.VectorQuery) { q.Layers = nil } },
		"any task type passes":     func(f *faulty) { f.query = func(q *memory.VectorQuery) { q.TaskType = "" } },
		"any tool passes":          func(f *faulty) { f.query = func(q *memory.VectorQuery) { q.Tool = "" } },
		"only the first layer":     func(f *faulty) { f.query = func(q *memory.VectorQuery) { q.Layers = q.Layers[:min(1, len(q.Layers))] } },
		"only the first tool kept": func(f *faulty) { f.entry = func(e *memory.IndexEntry) { e.Tools = e.Tools[:min(1, len(e.Tools))] } },
		"the limit is ignored":     func(f *faulty) { f.query = func(q *memory.VectorQuery) { q.Limit *= 2 } },
		"one less than the limit":  func(f *faulty) { f.query = func(q *memory.VectorQuery) { q.Limit = min(q.Limit, max(1, q.Limit-1)) } },
		"the farthest first": func(f *faulty) {
			f.found = func(c []memory.Candidate) []memory.Candidate { slices.Reverse(c); return c }
		},
		"the score is a distance": func(f *faulty) {
			f.found = func(c []memory.Candidate) []memory.Candidate {
				each(c, func(c *memory.Candidate) { c.Score = 1 - c.Score })
				return c
			}
		},
		"the score is squeezed": func(f *faulty) {
			f.found = func(c []memory.Candidate) []memory.Candidate {
				each(c, func(c *memory.Candidate) { c.Score = (1 + c.Score) / 2 })
				return c
			}
		},
		"no score": func(f *faulty) {
			f.found = func(c []memory.Candidate) []memory.Candidate {
				each(c, func(c *memory.Candidate) { c.Score = 1 })
				return c
			}
		},
		"no layer": func(f *faulty) {
			f.found = func(c []memory.Candidate) []memory.Candidate {
				each(c, func(c *memory.Candidate) { c.Layer = "" })
				return c
			}
		},
		"found twice": func(f *faulty) {
			f.found = func(c []memory.Candidate) []memory.Candidate { return append(c, c[:min(1, len(c))]...) }
		},
		"opposites are not found": func(f *faulty) {
			f.found = func(c []memory.Candidate) []memory.Candidate {
				return slices.DeleteFunc(c, func(c memory.Candidate) bool { return c.Score < 0 })
			}
		},
		"models share a collection": func(f *faulty) { f.model = func(model string) string { return strings.TrimSuffix(model, "!") } },
		"the first version stays": func(f *faulty) {
			f.upsert = func(f *faulty, ctx context.Context, entries []memory.IndexEntry) error {
				f.mu.Lock()
				fresh := slices.DeleteFunc(slices.Clone(entries), func(e memory.IndexEntry) bool { return f.seen[e.Namespace+"/"+e.ID] })
				for _, e := range fresh {
					f.seen[e.Namespace+"/"+e.ID] = true
				}
				f.mu.Unlock()
				return f.VectorIndex.Upsert(ctx, fresh)
			}
		},
		"the first of a call counts": func(f *faulty) {
			f.upsert = func(f *faulty, ctx context.Context, entries []memory.IndexEntry) error {
				entries = slices.Clone(entries)
				slices.Reverse(entries)
				return f.VectorIndex.Upsert(ctx, entries)
			}
		},
		"visible one write later": func(f *faulty) {
			f.upsert = func(f *faulty, ctx context.Context, entries []memory.IndexEntry) error {
				f.mu.Lock()
				before := f.kept
				f.kept = slices.Clone(entries)
				f.mu.Unlock()
				return f.VectorIndex.Upsert(ctx, before)
			}
		},
		"stored up to the bad entry": func(f *faulty) {
			f.upsert = func(f *faulty, ctx context.Context, entries []memory.IndexEntry) error {
				for chunk := range slices.Chunk(entries, max(1, len(entries)-1)) {
					if err := f.VectorIndex.Upsert(ctx, chunk); err != nil {
						return err
					}
				}
				return nil
			}
		},
		"any dimension is written":  func(f *faulty) { f.entry = func(e *memory.IndexEntry) { e.Vector = fit(e.Vector, dimension) } },
		"any dimension is searched": func(f *faulty) { f.query = func(q *memory.VectorQuery) { q.Vector = fit(q.Vector, dimension) } },
		"a page of text hashes": func(f *faulty) {
			f.hashes = func(all map[string]string) map[string]string {
				for id := range all {
					if len(all) <= 256 {
						break
					}
					delete(all, id)
				}
				return all
			}
		},
		"text hashes are lost": func(f *faulty) { f.entry = func(e *memory.IndexEntry) { e.TextHash = "" } },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			failing := storetest.FirstFailingVectorCase(t, features, func() memory.VectorIndex {
				f := &faulty{VectorIndex: store.NewVectors(c), seen: map[string]bool{}}
				spoil(f)
				return f
			})
			if (failing == "") != (name == "no fault") {
				t.Errorf("the first case that fails is %q", failing)
			}
			t.Logf("caught by %s", failing)
		})
	}
}

func each(list []memory.Candidate, change func(*memory.Candidate)) {
	for i := range list {
		change(&list[i])
	}
}
