package storetest

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hindsight-memory/hindsight/internal/memory"
)

// VectorFeatures are the differences between vector indexes that are allowed.
type VectorFeatures struct {
	// Approximate is the share of the true nearest that a search must find, 1 or less. Zero means all of them.
	Approximate float64
	// Entries is how many entries the suite fills a namespace with where number matters. Default: 400.
	Entries int
	// Dimension of the vectors of the suite. Default: 16.
	Dimension int
	// WrongDimension is the error for a vector that does not fit.
	WrongDimension error
	// NoNamespace is the error for a question that names no namespace.
	NoNamespace error
	// NotPrepared is the error before [memory.VectorIndex.Prepare].
	NotPrepared error
	// Many is how many entries one namespace gets where a server might answer with only a page of them. Default: 17,000.
	Many int
}

func (f VectorFeatures) withDefaults() VectorFeatures {
	if f.Approximate == 0 {
		f.Approximate = 1
	}
	if f.Entries == 0 {
		f.Entries = 400
	}
	if f.Dimension == 0 {
		f.Dimension = 16
	}
	if f.Many == 0 {
		f.Many = 17_000
	}
	return f
}

// vectorModel is the model of a test, so that indexes may share a server.
func vectorModel(t testing.TB) string { return "Suite/Model v1.0 (é) of " + t.Name() }

type vectorCase struct {
	name string
	run  func(testing.TB, VectorFeatures, memory.VectorIndex)
}

func vectorCases() []vectorCase {
	return []vectorCase{
		{"NearestFirst", nearestFirst},
		{"LastEntryCounts", lastEntry},
		{"DeletedIsGone", deletedEntry},
		{"FiltersAndLimit", vectorFilters},
		{"NamespacesAreApart", vectorNamespaces},
		{"TwoAtOnce", vectorsAtOnce},
		{"WrongDimension", wrongDimension},
		{"PreparedTwice", preparedTwice},
		{"NothingAskedNothingDone", noVectors},
		{"OddTexts", oddTexts},
		{"MoreThanAPage", manyEntries},
	}
}

// RunVectorIndex checks a vector index. open returns an index for each test, not prepared yet; each test prepares a
// model of its own.
func RunVectorIndex(t *testing.T, f VectorFeatures, open func(*testing.T) memory.VectorIndex) {
	f = f.withDefaults()
	for _, test := range vectorCases() {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			index := open(t)
			if err := index.Prepare(t.Context(), vectorModel(t), f.Dimension); err != nil {
				t.Fatalf("Prepare: %v", err)
			}
			test.run(t, f, index)
		})
	}
	t.Run("NotPrepared", func(t *testing.T) {
		t.Parallel()
		notPrepared(t, f, open(t))
	})
	t.Run("OpenedAgain", func(t *testing.T) {
		t.Parallel()
		openedAgain(t, f, open(t), open(t))
	})
}

// FirstFailingVectorCase runs the cases of [RunVectorIndex] one after another, each with an index of its own, and
// returns the name of the first that fails; empty when none does. Nothing of it fails tb. It is for testing the suite:
// an index with a fault must not pass it.
func FirstFailingVectorCase(tb testing.TB, f VectorFeatures, open func() memory.VectorIndex) string {
	tb.Helper()
	f = f.withDefaults()
	for _, test := range vectorCases() {
		r := &recorder{TB: tb, name: tb.Name() + "/" + test.name}
		done := make(chan struct{})
		go func() {
			defer close(done)
			index := open()
			if err := index.Prepare(tb.Context(), vectorModel(r), f.Dimension); err != nil {
				r.Fatalf("Prepare: %v", err)
			}
			test.run(r, f, index)
		}()
		<-done
		if r.Failed() {
			return test.name
		}
	}
	return ""
}

// recorder notes that a case has failed, and fails no test.
type recorder struct {
	testing.TB

	name   string
	failed atomic.Bool
}

func (r *recorder) Name() string          { return r.name }
func (r *recorder) Helper()               {}
func (r *recorder) Failed() bool          { return r.failed.Load() }
func (r *recorder) Fail()                 { r.failed.Store(true) }
func (r *recorder) Error(...any)          { r.Fail() }
func (r *recorder) Errorf(string, ...any) { r.Fail() }
func (r *recorder) FailNow()              { r.Fail(); runtime.Goexit() }
func (r *recorder) Fatal(...any)          { r.FailNow() }
func (r *recorder) Fatalf(string, ...any) { r.FailNow() }

// unit is a vector of length 1, always the same for the same number.
func unit(dimension int, n uint64) []float32 {
	source := rand.New(rand.NewPCG(n, 17)) //nolint:gosec // The same vectors each time are wanted.
	v := make([]float32, dimension)
	var length float64
	for i := range v {
		x := source.NormFloat64()
		v[i] = float32(x)
		length += x * x
	}
	for i := range v {
		v[i] /= float32(math.Sqrt(length))
	}
	return v
}

func cosine(a, b []float32) float64 {
	var sum float64
	for i := range a {
		sum += float64(a[i]) * float64(b[i])
	}
	return sum
}

func entry(f VectorFeatures, namespace string, n int) memory.IndexEntry {
	return memory.IndexEntry{
		ID: fmt.Sprintf("id-%05d", n), Namespace: namespace, Layer: []memory.Layer{memory.LayerSnapshot, memory.LayerMemory, memory.LayerRule}[n%3],
		TaskType: fmt.Sprintf("type %d", n%4), Tools: []string{"always", fmt.Sprintf("tool-%d", n%5)}, ErrorType: "ValueError", Outcome: "failure",
		Trust: memory.TrustAgentInferred, Status: []memory.ItemStatus{memory.ItemActive, memory.ItemForgotten}[n%7/6],
		CreatedAt: start(), TextHash: fmt.Sprintf("hash-%d", n), Vector: unit(f.Dimension, uint64(n)), //nolint:gosec // It is never negative.
	}
}

func upsert(t testing.TB, index memory.VectorIndex, entries ...memory.IndexEntry) {
	t.Helper()
	if err := index.Upsert(t.Context(), entries); err != nil {
		t.Fatalf("Upsert: %v", err)
	}
}

func search(t testing.TB, index memory.VectorIndex, q memory.VectorQuery) []memory.Candidate {
	t.Helper()
	found, err := index.Search(t.Context(), q)
	if err != nil {
		t.Fatalf("Search: %v", err)
	}
	seen := map[string]bool{}
	for i, c := range found {
		if seen[c.ID] {
			t.Errorf("%s was found twice", c.ID)
		}
		seen[c.ID] = true
		if i > 0 && c.Score > found[i-1].Score+1e-6 {
			t.Errorf("hit %d has score %v after %v", i, c.Score, found[i-1].Score)
		}
	}
	return found
}

// fill puts entries into namespace t.
func fill(t testing.TB, f VectorFeatures, index memory.VectorIndex) []memory.IndexEntry {
	t.Helper()
	entries := make([]memory.IndexEntry, f.Entries)
	for i := range entries {
		entries[i] = entry(f, "t", i)
	}
	for chunk := range slices.Chunk(entries, (f.Entries+1)/2) {
		upsert(t, index, chunk...)
	}
	return entries
}

// nearest is what a search should find.
func nearest(entries []memory.IndexEntry, vector []float32, limit int, fits func(memory.IndexEntry) bool) []string {
	all := slices.DeleteFunc(slices.Clone(entries), func(e memory.IndexEntry) bool { return !fits(e) })
	slices.SortFunc(all, func(a, b memory.IndexEntry) int {
		if cosine(a.Vector, vector) > cosine(b.Vector, vector) {
			return -1
		}
		return 1
	})
	var ids []string
	for _, e := range all[:min(limit, len(all))] {
		ids = append(ids, e.ID)
	}
	return ids
}

// sameNearest checks that the hits are as many as they should be and enough of them the right ones.
func sameNearest(t testing.TB, f VectorFeatures, found []memory.Candidate, want []string) bool {
	t.Helper()
	same := len(found) == len(want)
	if !same {
		t.Errorf("found %d, want %d", len(found), len(want))
	}
	right := 0
	for _, c := range found {
		if slices.Contains(want, c.ID) {
			right++
		}
	}
	if float64(right) < f.Approximate*float64(len(want)) {
		t.Errorf("%d of the %d nearest were found: %v, want %v", right, len(want), found, want)
		same = false
	}
	return same
}

func all(memory.IndexEntry) bool { return true }

func nearestFirst(t testing.TB, f VectorFeatures, index memory.VectorIndex) {
	entries := fill(t, f, index)
	for n := range uint64(5) {
		q := unit(f.Dimension, 1_000_000+n)
		found := search(t, index, memory.VectorQuery{Namespace: "t", Vector: q, Limit: 10})
		sameNearest(t, f, found, nearest(entries, q, 10, all))
		for _, c := range found {
			i := slices.IndexFunc(entries, func(e memory.IndexEntry) bool { return e.ID == c.ID })
			if i < 0 || c.Layer != entries[i].Layer || math.Abs(c.Score-cosine(entries[i].Vector, q)) > 1e-2 {
				t.Errorf("hit %+v does not agree with what was written", c)
			}
		}
	}
	itself := search(t, index, memory.VectorQuery{Namespace: "t", Vector: entries[3].Vector, Limit: 1})
	if len(itself) != 1 || itself[0].ID != entries[3].ID || itself[0].Score < 0.99 {
		t.Errorf("nearest to entry 3 is %v", itself)
	}
	away := make([]float32, f.Dimension)
	for i, x := range entries[3].Vector {
		away[i] = -x
	}
	if found := search(t, index, memory.VectorQuery{Namespace: "t", Vector: away, Limit: f.Entries + 1}); len(found) != f.Entries || found[len(found)-1].Score > -0.9 {
		t.Errorf("a search for the opposite found %d entries, want all %d, down to a score of about -1", len(found), f.Entries)
	}
}

func lastEntry(t testing.TB, f VectorFeatures, index memory.VectorIndex) {
	entries := fill(t, f, index)
	a, b := entries[0], entries[0]
	a.Vector, a.TextHash = unit(f.Dimension, 777), "in the same call, before"
	b.Vector, b.TextHash, b.Status, b.TaskType = unit(f.Dimension, 888), "last", "changed", "new"
	upsert(t, index, a, b)
	b.ID = a.ID
	for range 2 {
		for _, gone := range [][]float32{entries[0].Vector, a.Vector} {
			for _, c := range search(t, index, memory.VectorQuery{Namespace: "t", Vector: gone, Limit: 3}) {
				if c.ID == a.ID && c.Score > 0.99 {
					t.Error("a vector that was replaced was found")
				}
			}
		}
		found := search(t, index, memory.VectorQuery{Namespace: "t", Vector: b.Vector, Limit: 1})
		if len(found) != 1 || found[0].ID != b.ID || found[0].Score < 0.99 {
			t.Errorf("the new vector was not found: %v", found)
		}
		// What it was before must not let it pass either.
		for _, q := range []memory.VectorQuery{{TaskType: entries[0].TaskType}, {Statuses: []memory.ItemStatus{entries[0].Status}}} {
			q.Namespace, q.Vector, q.Limit = "t", entries[0].Vector, 5
			for _, c := range search(t, index, q) {
				if c.ID == a.ID {
					t.Errorf("%+v found the entry by what it was before", q.Statuses)
				}
			}
		}
		hashes, err := index.TextHashes(t.Context(), "t")
		if err != nil || len(hashes) != f.Entries || hashes[a.ID] != "last" || hashes[entries[1].ID] != entries[1].TextHash {
			t.Errorf("TextHashes has %d entries, %q of the replaced one (%v)", len(hashes), hashes[a.ID], err)
		}
		upsert(t, index, b) // Again: nothing changes.
	}
}

func deletedEntry(t testing.TB, f VectorFeatures, index memory.VectorIndex) {
	entries := fill(t, f, index)
	upsert(t, index, entry(f, "u", 5))
	upsert(t, index, entries[5]) // A row of it more.
	if err := index.Delete(t.Context(), "t", []string{entries[5].ID, entries[6].ID, "never there"}); err != nil {
		t.Fatalf("Delete: %v", err)
	}
	found := search(t, index, memory.VectorQuery{Namespace: "t", Vector: entries[5].Vector, Limit: f.Entries})
	if len(found) != f.Entries-2 {
		t.Errorf("found %d, want %d", len(found), f.Entries-2)
	}
	for _, c := range found {
		if c.ID == entries[5].ID || c.ID == entries[6].ID {
			t.Errorf("the deleted %s was found", c.ID)
		}
	}
	if hashes, err := index.TextHashes(t.Context(), "t"); err != nil || len(hashes) != f.Entries-2 {
		t.Errorf("TextHashes has %d entries (%v), want %d", len(hashes), err, f.Entries-2)
	}
	if found := search(t, index, memory.VectorQuery{Namespace: "u", Vector: entries[5].Vector, Limit: 2}); len(found) != 1 {
		t.Errorf("the entry of the same id in another namespace: %v", found)
	}
	upsert(t, index, entries[5])
	if found := search(t, index, memory.VectorQuery{Namespace: "t", Vector: entries[5].Vector, Limit: 1}); len(found) != 1 || found[0].ID != entries[5].ID {
		t.Errorf("written again after it was deleted: %v", found)
	}
}

func vectorFilters(t testing.TB, f VectorFeatures, index memory.VectorIndex) {
	entries := fill(t, f, index)
	q := unit(f.Dimension, 4711)
	for _, test := range []struct {
		name  string
		query memory.VectorQuery
		fits  func(memory.IndexEntry) bool
	}{
		{"layers", memory.VectorQuery{Layers: []memory.Layer{memory.LayerMemory, memory.LayerRule}}, func(e memory.IndexEntry) bool { return e.Layer != memory.LayerSnapshot }},
		{"task type", memory.VectorQuery{TaskType: "type 2"}, func(e memory.IndexEntry) bool { return e.TaskType == "type 2" }},
		{"tool", memory.VectorQuery{Tool: "tool-3"}, func(e memory.IndexEntry) bool { return slices.Contains(e.Tools, "tool-3") }},
		{"status", memory.VectorQuery{Statuses: []memory.ItemStatus{memory.ItemForgotten}}, func(e memory.IndexEntry) bool { return e.Status == memory.ItemForgotten }},
		{"all of them", memory.VectorQuery{Layers: []memory.Layer{memory.LayerMemory}, TaskType: "type 2", Tool: "tool-3", Statuses: []memory.ItemStatus{memory.ItemActive}}, func(e memory.IndexEntry) bool {
			return e.Layer == memory.LayerMemory && e.TaskType == "type 2" && slices.Contains(e.Tools, "tool-3") && e.Status == memory.ItemActive
		}},
		{"none fits", memory.VectorQuery{Tool: "' OR 1=1 --"}, func(memory.IndexEntry) bool { return false }},
	} {
		for _, limit := range []int{1, 20, f.Entries} {
			query := test.query
			query.Namespace, query.Vector, query.Limit = "t", q, limit
			if found := search(t, index, query); !sameNearest(t, f, found, nearest(entries, q, limit, test.fits)) {
				t.Errorf("by %s, limit %d", test.name, limit)
			}
		}
	}
}

func vectorNamespaces(t testing.TB, f VectorFeatures, index memory.VectorIndex) {
	entries := fill(t, f, index)
	for _, e := range entries[:10] {
		e.Namespace = "t.team"
		e.TextHash = "of the team"
		upsert(t, index, e)
	}
	found := search(t, index, memory.VectorQuery{Namespace: "t.team", Vector: entries[20].Vector, Limit: 30})
	if len(found) != 10 {
		t.Errorf("found %d entries of the small namespace, want its 10", len(found))
	}
	if found := search(t, index, memory.VectorQuery{Namespace: "t", Vector: entries[20].Vector, Limit: f.Entries + 10}); len(found) != f.Entries {
		t.Errorf("found %d entries of the large namespace, want its %d", len(found), f.Entries)
	}
	if err := index.Delete(t.Context(), "t.team", []string{entries[0].ID}); err != nil {
		t.Fatal(err)
	}
	if found := search(t, index, memory.VectorQuery{Namespace: "t", Vector: entries[0].Vector, Limit: 1}); len(found) != 1 || found[0].ID != entries[0].ID {
		t.Errorf("deleting in one namespace changed another: %v", found)
	}
	if hashes, err := index.TextHashes(t.Context(), "t"); err != nil || hashes[entries[1].ID] != entries[1].TextHash {
		t.Errorf("TextHashes gives %q (%v)", hashes[entries[1].ID], err)
	}
	if found := search(t, index, memory.VectorQuery{Namespace: "other", Vector: entries[0].Vector, Limit: 5}); len(found) != 0 {
		t.Errorf("an empty namespace has %v", found)
	}
	_, searchErr := index.Search(t.Context(), memory.VectorQuery{Vector: entries[0].Vector, Limit: 1})
	_, hashErr := index.TextHashes(t.Context(), "")
	for _, err := range []error{searchErr, hashErr, index.Delete(t.Context(), "", []string{"a"})} {
		if err == nil || !errors.Is(err, f.NoNamespace) {
			t.Errorf("without a namespace: %v, want %v", err, f.NoNamespace)
		}
	}
}

func vectorsAtOnce(t testing.TB, f VectorFeatures, index memory.VectorIndex) {
	var group sync.WaitGroup
	errs := make(chan error, 8)
	for w := range 4 {
		group.Go(func() {
			for i := range 5 {
				e := entry(f, "t", w*100+i)
				if err := index.Upsert(t.Context(), []memory.IndexEntry{e, entry(f, "shared", 1)}); err != nil {
					errs <- err
					return
				}
				found, err := index.Search(t.Context(), memory.VectorQuery{Namespace: "t", Vector: e.Vector, Limit: 1})
				if err == nil && (len(found) != 1 || found[0].ID != e.ID) {
					err = fmt.Errorf("%s cannot be found after Upsert: %v", e.ID, found)
				}
				if err != nil {
					errs <- err
					return
				}
			}
		})
	}
	group.Wait()
	close(errs)
	for err := range errs {
		t.Error(err)
	}
	if found := search(t, index, memory.VectorQuery{Namespace: "t", Vector: unit(f.Dimension, 1), Limit: 50}); len(found) != 20 {
		t.Errorf("found %d, want 20", len(found))
	}
	if found := search(t, index, memory.VectorQuery{Namespace: "shared", Vector: unit(f.Dimension, 1), Limit: 50}); len(found) != 1 {
		t.Errorf("found %d times what all wrote, want once", len(found))
	}
}

func wrongDimension(t testing.TB, f VectorFeatures, index memory.VectorIndex) {
	good, bad := entry(f, "t", 1), entry(f, "t", 2)
	bad.Vector = bad.Vector[1:]
	err := index.Upsert(t.Context(), []memory.IndexEntry{good, bad})
	if !errors.Is(err, f.WrongDimension) {
		t.Errorf("Upsert = %v, want %v", err, f.WrongDimension)
	}
	if _, err := index.Search(t.Context(), memory.VectorQuery{Namespace: "t", Vector: bad.Vector, Limit: 1}); !errors.Is(err, f.WrongDimension) {
		t.Errorf("Search = %v, want %v", err, f.WrongDimension)
	}
	if err := index.Prepare(t.Context(), vectorModel(t), f.Dimension+1); !errors.Is(err, f.WrongDimension) {
		t.Errorf("Prepare with another dimension = %v, want %v", err, f.WrongDimension)
	}
	for _, vector := range [][]float32{make([]float32, f.Dimension), slices.Repeat([]float32{float32(math.NaN())}, f.Dimension)} {
		e := entry(f, "t", 3)
		e.Vector = vector
		if err := index.Upsert(t.Context(), []memory.IndexEntry{e}); !errors.Is(err, memory.ErrRejected) {
			t.Errorf("Upsert of %v… = %v, want ErrRejected", vector[0], err)
		}
	}
	if found := search(t, index, memory.VectorQuery{Namespace: "t", Vector: good.Vector, Limit: 1}); len(found) != 0 {
		t.Errorf("of a batch with a bad entry there is %v", found)
	}
}

func preparedTwice(t testing.TB, f VectorFeatures, index memory.VectorIndex) {
	upsert(t, index, entry(f, "t", 1))
	for _, model := range []string{vectorModel(t) + "!", vectorModel(t)} {
		if err := index.Prepare(t.Context(), model, f.Dimension); err != nil {
			t.Fatal(err)
		}
		want := 0
		if model == vectorModel(t) {
			want = 1
		}
		if found := search(t, index, memory.VectorQuery{Namespace: "t", Vector: unit(f.Dimension, 1), Limit: 5}); len(found) != want {
			t.Errorf("under model %s there are %v, want %d", model, found, want)
		}
	}
	if err := index.Ready(t.Context()); err != nil {
		t.Errorf("Ready: %v", err)
	}
}

func noVectors(t testing.TB, f VectorFeatures, index memory.VectorIndex) {
	upsert(t, index)
	if err := index.Delete(t.Context(), "t", nil); err != nil {
		t.Errorf("Delete of nothing: %v", err)
	}
	if hashes, err := index.TextHashes(t.Context(), "t"); err != nil || len(hashes) != 0 {
		t.Errorf("TextHashes = %v, %v", hashes, err)
	}
	vector := unit(f.Dimension, 1)
	if _, err := index.Search(t.Context(), memory.VectorQuery{Namespace: "t", Vector: vector}); err == nil {
		t.Error("a search with limit 0 gave no error")
	}
	e := entry(f, "t", 1)
	upsert(t, index, e)
	e.Vector[0], e.Tools[0] = 9, "changed"
	if found := search(t, index, memory.VectorQuery{Namespace: "t", Vector: vector, Tool: "always", Limit: 1}); len(found) != 1 || found[0].Score < 0.99 {
		t.Errorf("the index kept the caller's slices: %v", found)
	}
}

// oddTexts has ids, task types and tools that mean something in the languages of servers.
func oddTexts(t testing.TB, f VectorFeatures, index memory.VectorIndex) {
	texts := []string{
		`"`, `'`, `\`, `\"`, `\\'`, "`", "a b", "tab\tand\nnewline", "percent %_ %d %s", "{id:String}", "?", `" or "" == "`, `' OR '1'='1`,
		"日本語", "naïve é", "🦉", "\u202eright to left", "nul\x00inside", strings.Repeat("long ", 40), "/slash/", "--", "$1", "[a]", "null", "0",
	}
	entries := make([]memory.IndexEntry, len(texts))
	for i, text := range texts {
		entries[i] = entry(f, "t", i)
		entries[i].ID, entries[i].TaskType, entries[i].Tools, entries[i].ErrorType, entries[i].TextHash = text, text, []string{text, "x"}, text, "hash of "+text
	}
	upsert(t, index, entries...)
	upsert(t, index, entries...)
	for i, text := range texts {
		for _, q := range []memory.VectorQuery{{TaskType: text}, {Tool: text}, {TaskType: text, Tool: text}} {
			q.Namespace, q.Vector, q.Limit = "t", entries[i].Vector, len(texts)
			if found := search(t, index, q); len(found) != 1 || found[0].ID != text {
				t.Errorf("by %q: found %v", text, found)
			}
		}
	}
	hashes, err := index.TextHashes(t.Context(), "t")
	if err != nil || len(hashes) != len(texts) {
		t.Fatalf("TextHashes has %d entries (%v), want %d", len(hashes), err, len(texts))
	}
	for _, text := range texts {
		if hashes[text] != "hash of "+text {
			t.Errorf("the text hash of %q is %q", text, hashes[text])
		}
		if err := index.Delete(t.Context(), "t", []string{text}); err != nil {
			t.Errorf("delete %q: %v", text, err)
		}
	}
	if found := search(t, index, memory.VectorQuery{Namespace: "t", Vector: entries[0].Vector, Limit: len(texts)}); len(found) != 0 {
		t.Errorf("after all were deleted, there is %v", found)
	}
}

// manyEntries has more entries than servers give at once, written in one call with some of them twice.
func manyEntries(t testing.TB, f VectorFeatures, index memory.VectorIndex) {
	entries := make([]memory.IndexEntry, 0, f.Many+10)
	for i := range 10 { // They come again, and the last one counts.
		e := entry(f, "t", i)
		e.TextHash = "earlier in the same call"
		entries = append(entries, e)
	}
	for i := range f.Many {
		entries = append(entries, entry(f, "t", i))
	}
	upsert(t, index, append(entries, entry(f, "u", 1))...)
	hashes, err := index.TextHashes(t.Context(), "t")
	if err != nil || len(hashes) != f.Many {
		t.Errorf("TextHashes has %d entries (%v), want %d", len(hashes), err, f.Many)
	}
	for i := range f.Many {
		if id := fmt.Sprintf("id-%05d", i); hashes[id] != fmt.Sprintf("hash-%d", i) {
			t.Fatalf("the text hash of %s is %q", id, hashes[id])
		}
	}
	last := entries[len(entries)-1]
	if found := search(t, index, memory.VectorQuery{Namespace: "t", Vector: last.Vector, Limit: 3}); len(found) != 3 || found[0].ID != last.ID {
		t.Errorf("nearest to the last entry is %v", found)
	}
}

func notPrepared(t *testing.T, f VectorFeatures, index memory.VectorIndex) {
	_, searchErr := index.Search(t.Context(), memory.VectorQuery{Namespace: "t", Vector: unit(f.Dimension, 1), Limit: 1})
	_, hashErr := index.TextHashes(t.Context(), "t")
	for i, err := range []error{
		index.Upsert(t.Context(), []memory.IndexEntry{entry(f, "t", 1)}), index.Delete(t.Context(), "t", []string{"id"}), searchErr, hashErr, index.Ready(t.Context()),
	} {
		if err == nil || !errors.Is(err, f.NotPrepared) {
			t.Errorf("question %d before Prepare: %v, want %v", i, err, f.NotPrepared)
		}
	}
}

// openedAgain has two indexes on the same data, as after a restart or in two processes.
func openedAgain(t *testing.T, f VectorFeatures, first, second memory.VectorIndex) {
	prepare := func(index memory.VectorIndex) error { return index.Prepare(t.Context(), vectorModel(t), f.Dimension) }
	var group sync.WaitGroup
	errs := make([]error, 2)
	for i, index := range []memory.VectorIndex{first, second} { // Both make the collection.
		group.Go(func() { errs[i] = prepare(index) })
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("Prepare by two: %v", err)
	}
	upsert(t, first, entry(f, "t", 1), entry(f, "t", 2))
	changed := entry(f, "t", 1)
	changed.Vector, changed.TextHash = unit(f.Dimension, 99), "changed by the other"
	upsert(t, second, changed)
	for _, index := range []memory.VectorIndex{first, second} {
		found := search(t, index, memory.VectorQuery{Namespace: "t", Vector: changed.Vector, Limit: 5})
		if len(found) != 2 || found[0].ID != changed.ID || found[0].Score < 0.99 {
			t.Errorf("after the other wrote: %v", found)
		}
		if hashes, err := index.TextHashes(t.Context(), "t"); err != nil || hashes[changed.ID] != changed.TextHash {
			t.Errorf("TextHashes = %v, %v", hashes, err)
		}
	}
	if err := second.Delete(t.Context(), "t", []string{changed.ID}); err != nil {
		t.Fatal(err)
	}
	if found := search(t, first, memory.VectorQuery{Namespace: "t", Vector: changed.Vector, Limit: 5}); len(found) != 1 {
		t.Errorf("after the other deleted: %v", found)
	}
}
