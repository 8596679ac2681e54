package store_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/engine/enginetest"
	"github.com/hindsight-memory/hindsight/internal/memory"
	"github.com/hindsight-memory/hindsight/internal/store"
)

const (
	benchDimension = 384
	benchChunk     = 2000
)

// benchStore is one database with namespaces of several sizes.
func benchStore(b *testing.B) *store.ClickHouse {
	b.Helper()
	url := enginetest.ClickHouse(b)
	c, err := store.Open(store.Options{URL: url, Database: enginetest.Database(b, url)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := c.Close(); err != nil {
			b.Error(err)
		}
	})
	if err := c.Migrate(b.Context(), store.MigrateOptions{}); err != nil {
		b.Fatal(err)
	}
	return c
}

func benchSizes() []int { return []int{1_000, 10_000, 100_000} }

// benchVector is near one of 200 centres, as texts of few kinds of tasks are.
func benchVector(r *rand.Rand) []float32 {
	centre := rand.New(rand.NewPCG(r.Uint64N(200), 1))
	v := make([]float32, benchDimension)
	for i := range v {
		v[i] = float32(centre.NormFloat64() + 0.5*r.NormFloat64())
	}
	return v
}

func benchID(n int) string { return memory.HashID("bench", strconv.Itoa(n)) }

func BenchmarkVectorSearch(b *testing.B) {
	c := benchStore(b)
	r := rand.New(rand.NewPCG(1, 2))
	for _, size := range benchSizes() {
		for _, way := range []string{"exact", "hnsw"} {
			v := store.NewVectors(c)
			v.SetIndexFrom(map[string]uint64{"exact": 1 << 40, "hnsw": 1}[way])
			if err := v.Prepare(b.Context(), fmt.Sprintf("%s %d", way, size), benchDimension); err != nil {
				b.Fatal(err)
			}
			started := time.Now()
			for from := 0; from < size; from += benchChunk {
				entries := make([]memory.IndexEntry, benchChunk)
				for i := range entries {
					entries[i] = memory.IndexEntry{
						ID: benchID(from + i), Namespace: "t", Layer: memory.LayerSnapshot, TaskType: fmt.Sprintf("type %d", i%7), Tools: []string{"tool"},
						Status: memory.ItemActive, CreatedAt: time.Unix(1, 0), TextHash: "h", Vector: benchVector(r),
					}
				}
				if err := v.Upsert(b.Context(), entries[:min(benchChunk, size-from)]); err != nil {
					b.Fatal(err)
				}
			}
			written := time.Since(started)
			table := v.Table()
			enginetest.Exec(b, enginetest.ClickHouse(b), "SYSTEM SYNC MERGES "+c.Database()+"."+table)
			b.Logf("%s %d: written in %s, merged and indexed after %s", way, size, written, time.Since(started))
			for _, filtered := range []bool{false, true} {
				b.Run(fmt.Sprintf("%s/%d/filtered=%t", way, size, filtered), func(b *testing.B) {
					for b.Loop() {
						q := memory.VectorQuery{Namespace: "t", Vector: benchVector(r), Limit: 20}
						if filtered {
							q.TaskType, q.Statuses = "type 3", []memory.ItemStatus{memory.ItemActive}
						}
						if found, err := v.Search(b.Context(), q); err != nil || len(found) != 20 {
							b.Fatal(len(found), err)
						}
					}
				})
			}
		}
	}
}

// benchWords draws words as they are distributed in texts: few are frequent, most are rare.
func benchWords(r *rand.Rand, zipf *rand.Zipf, n int) string {
	var text strings.Builder
	for range n {
		fmt.Fprintf(&text, "w%x ", zipf.Uint64())
	}
	for range 6 {
		text.WriteRune(rune(0x4e00 + r.IntN(800)))
	}
	return text.String()
}

func BenchmarkItems(b *testing.B) {
	c := benchStore(b)
	r := rand.New(rand.NewPCG(1, 2))
	zipf := rand.NewZipf(r, 1.1, 3, 20_000)
	for _, size := range benchSizes() {
		namespace := fmt.Sprintf("n%d", size)
		started := time.Now()
		for from := 0; from < size; from += benchChunk {
			snapshots := make([]memory.Snapshot, min(benchChunk, size-from))
			for i := range snapshots {
				snapshots[i] = memory.Snapshot{
					SnapshotID: benchID(from + i), Namespace: namespace, TaskID: fmt.Sprintf("task %d", (from+i)/5), Timestamp: time.Unix(int64(from+i), 0),
					TaskContext: memory.TaskContext{TaskType: fmt.Sprintf("type %d", i%7), InputSummary: benchWords(r, zipf, 20)},
					Decision:    memory.Decision{ToolSelected: fmt.Sprintf("tool_%d", i%40)},
					Outcome:     memory.Outcome{Status: events.StatusFailure, ErrorType: "ValueError", ErrorMessage: fmt.Sprintf("ERR-%d ", i) + benchWords(r, zipf, 10)},
					Reflection:  &memory.Reflection{Lesson: benchWords(r, zipf, 15), RootCause: benchWords(r, zipf, 8)},
					Situation:   benchWords(r, zipf, 20),
					Judged:      memory.Judged{Evidence: []string{"e"}, Status: memory.ItemActive},
					Version:     memory.Version{TaskRevision: 3, Writer: "bench", WriterKind: memory.WriterMachine, Seq: 1},
				}
			}
			if err := c.InsertSnapshots(b.Context(), snapshots); err != nil {
				b.Fatal(err)
			}
		}
		b.Logf("%d snapshots written in %s", size, time.Since(started))
		ids := make([]string, 50)
		for i := range ids {
			ids[i] = benchID(r.IntN(size))
		}
		run := func(name string, once func() (int, error)) {
			b.Run(fmt.Sprintf("%s/%d", name, size), func(b *testing.B) {
				for b.Loop() {
					if n, err := once(); err != nil || n == 0 {
						b.Fatal(n, err)
					}
				}
			})
		}
		run("current50", func() (int, error) {
			got, err := c.Snapshots(b.Context(), memory.ItemFilter{Namespace: namespace, IDs: ids})
			return len(got), err
		})
		run("task", func() (int, error) {
			got, err := c.Snapshots(b.Context(), memory.ItemFilter{Namespace: namespace, TaskIDs: []string{fmt.Sprintf("task %d", r.IntN(size/5))}})
			return len(got), err
		})
		run("typeAndTool", func() (int, error) {
			got, err := c.Snapshots(b.Context(), memory.ItemFilter{Namespace: namespace, TaskType: "type 3", Tool: "tool_3", Statuses: []memory.ItemStatus{memory.ItemActive}, Newest: true, Limit: 50})
			return len(got), err
		})
		run("uses50", func() (int, error) {
			got, err := c.Uses(b.Context(), namespace, ids)
			return len(got), err
		})
		run("lexical", func() (int, error) {
			got, err := c.Lexical(b.Context(), memory.LexicalQuery{Namespace: namespace, Text: "ERR-77 " + benchWords(r, zipf, 10), Limit: 20})
			return len(got), err
		})
	}
}
