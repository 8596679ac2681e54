package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/bus"
	"github.com/hindsight-memory/hindsight/internal/importer"
	"github.com/hindsight-memory/hindsight/internal/memory"
	"github.com/hindsight-memory/hindsight/internal/service"
	"github.com/hindsight-memory/hindsight/internal/store"
)

const (
	// importChunk is how many events are compared with the record and published at once, importKeys of how many tasks.
	importChunk = 2000
	importKeys  = 100
	// importChunkBytes ends a chunk earlier, so that memory stays bounded for large events.
	importChunkBytes = 8 << 20
	// publishPatience bounds one try to publish a chunk; publishing twice changes nothing.
	publishPatience = 10 * time.Second
	// waitPause is the least pause between two looks of --wait, waitShare how many times the length of a look it is.
	waitPause = 250 * time.Millisecond
	waitShare = 4
	// waitPatience is how long --wait bears no progress before it fails.
	waitPatience = 2 * time.Minute
	// progressPause is the least time between two lines of progress when stderr is no terminal.
	progressPause = time.Second
	// maxProblems bounds how many problems are kept for the final report; all are counted.
	maxProblems = 1000
)

func (a *app) importCommand() *cobra.Command {
	var r importRun
	cmd := &cobra.Command{
		Use:   "import [flags] FILE…",
		Short: "Import recorded runs from files",
		Long: "Reads files of recorded runs, turns them into trace events and publishes what is not stored yet, so that it may be\n" +
			"interrupted and repeated: importing again changes nothing. A file may be gzip or plain; - is standard input.\n" +
			"A line that can't be used is reported with its number and reason, and the rest goes on.\n" +
			"With --wait it returns when everything that was read is stored, its finished tasks are closed and reflected, and what\n" +
			"was learnt from them can be found. Lessons that say the same are merged within a minute after that.\n\n" +
			"The result counts the lines: read = mapped + skipped + duplicates + failed. files_failed counts files that could not\n" +
			"be read, or not to their end.",
		Example: "  hindsight import --namespace demo --wait runs.jsonl.gz\n  hindsight import --dry-run --json *.jsonl\n  zcat runs.jsonl.gz | hindsight import -",
		Args:    cobra.MinimumNArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return a.runImport(cmd.Context(), &r, args) },
	}
	f := cmd.Flags()
	f.StringVar(&r.options.Format, "format", "auto", "format of the files: "+strings.Join(importer.Formats(), ", "))
	f.StringVar(&r.options.Namespace, "namespace", "", "namespace to import into (default: HINDSIGHT_NAMESPACE)")
	f.BoolVar(&r.options.OverrideNamespace, "override-namespace", false, "put events that name another namespace into this one instead of refusing them")
	f.BoolVar(&r.wait, "wait", false, "return only when everything is stored, reflected and searchable")
	f.BoolVar(&r.dryRun, "dry-run", false, "only read and check: nothing is published, no server is needed")
	return cmd
}

// importReport is the stable shape of `import --json`; fields may be added.
type importReport struct {
	Read       int            `json:"read"`
	Mapped     int            `json:"mapped"`
	Skipped    map[string]int `json:"skipped"`
	Duplicates int            `json:"duplicates"`
	Failed     int            `json:"failed"`
	// FilesFailed counts files that could not be read, or not to their end.
	FilesFailed int `json:"files_failed"`
	// Files, Tasks and Events count what was mapped or already there; Published is the events sent by this run.
	Files     int             `json:"files"`
	Tasks     int             `json:"tasks"`
	Events    int             `json:"events"`
	Published int             `json:"published"`
	Problems  []importProblem `json:"problems"`
	DryRun    bool            `json:"dry_run,omitempty"`
	Seconds   float64         `json:"seconds"`
}

type importProblem struct {
	File   string `json:"file"`
	Line   int    `json:"line,omitempty"`
	Reason string `json:"reason"`
	Error  string `json:"error"`
}

// importRun is one run of the command.
type importRun struct {
	options      importer.Options
	wait, dryRun bool

	app    *app
	began  time.Time
	store  *store.ClickHouse
	conn   *bus.Conn
	report importReport
	meter  *meter

	chunk       []*importer.Record
	chunkEvents int
	chunkBytes  int
	// writes is true when the keeper has to store something.
	writes bool
	// expected is what --wait waits for.
	expected map[memory.TaskKey]*expectation
}

// expectation is what has to be there of one task.
type expectation struct {
	// ids are hashes of the ids of its events: eight bytes each, since an import may have millions.
	ids      []uint64
	finished bool
}

// idHash is enough to tell the few events of one task apart.
func idHash(id string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id)) // A hash never fails.
	return h.Sum64()
}

func (a *app) runImport(ctx context.Context, r *importRun, paths []string) (err error) {
	r.app, r.began = a, time.Now()
	r.report = importReport{Skipped: map[string]int{}, Problems: []importProblem{}, DryRun: r.dryRun}
	r.expected = map[memory.TaskKey]*expectation{}
	if r.options.Namespace, err = a.namespace(r.options.Namespace); err != nil {
		return err
	}
	r.options.Stdin = a.stdin
	im, err := importer.New(r.options)
	if err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	if !r.dryRun {
		if r.store, err = a.openStore(ctx); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, r.store.Close()) }()
		if r.conn, err = a.openBus(ctx); err != nil {
			return err
		}
		defer r.conn.Close()
	}
	r.meter = newMeter(a)
	err = r.readAll(ctx, im, paths)
	if err == nil && r.wait && !r.dryRun {
		err = r.waitStored(ctx)
	}
	r.meter.finish()
	r.report.Seconds = time.Since(r.began).Seconds()
	if errors.Is(err, context.Canceled) {
		err = fmt.Errorf("interrupted: what was published is kept, and the same command goes on from there: %w", err)
	}
	if printErr := r.print(); printErr != nil {
		return errors.Join(err, printErr)
	}
	if err == nil && r.report.Failed+r.report.FilesFailed > 0 {
		return errReported
	}
	return err
}

func (r *importRun) readAll(ctx context.Context, im *importer.Importer, paths []string) error {
	for _, path := range paths {
		r.report.Files++
		r.meter.file(path)
		for item := range im.Read(ctx, path) {
			r.meter.bytes(item.BytesRead, item.BytesTotal, &r.report)
			if item.Problem != nil {
				r.problem(item.Problem)
				continue
			}
			if item.Record == nil {
				continue
			}
			if err := r.add(ctx, item.Record); err != nil {
				return err
			}
		}
		if err := r.flush(ctx); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
	}
	return nil
}

// problem counts what could not be used. A problem of a whole file (line 0) is no line that was read.
func (r *importRun) problem(p *importer.Problem) {
	if p.Reason == importer.ReasonCancelled {
		return // The command says so itself.
	}
	if p.Line > 0 {
		r.report.Read++
	}
	switch {
	case p.Line == 0 && !p.Skipped:
		r.report.FilesFailed++
	case p.Line == 0:
		r.report.Skipped[p.Reason]++
	case p.Skipped && p.Reason == importer.ReasonDuplicateLine:
		r.report.Duplicates++
	case p.Skipped:
		r.report.Skipped[p.Reason]++
	default:
		r.report.Failed++
	}
	if len(r.report.Problems) < maxProblems {
		r.report.Problems = append(r.report.Problems, importProblem{File: p.Path, Line: p.Line, Reason: p.Reason, Error: p.Err.Error()})
	}
	if !r.app.json {
		place := p.Path
		if p.Line > 0 {
			place = fmt.Sprintf("%s line %d", p.Path, p.Line)
		}
		r.meter.say(fmt.Sprintf("%s: %s: %v", place, p.Reason, p.Err))
	}
}

func (r *importRun) add(ctx context.Context, record *importer.Record) error {
	r.report.Read++
	r.report.Events += len(record.Events)
	e := r.expected[record.Key]
	if e == nil {
		e = &expectation{}
		r.expected[record.Key] = e
		r.report.Tasks++
	}
	for _, event := range record.Events {
		e.ids = append(e.ids, idHash(event.ID))
		e.finished = e.finished || event.Kind == events.KindTaskFinished
		r.writes = r.writes || event.Kind == events.KindItemWritten || event.Kind == events.KindItemChanged
	}
	if r.dryRun {
		r.report.Mapped++
		return nil
	}
	r.chunk = append(r.chunk, record)
	r.chunkEvents += len(record.Events)
	for _, raw := range record.Encoded {
		r.chunkBytes += len(raw)
	}
	if r.chunkEvents >= importChunk || r.chunkBytes >= importChunkBytes {
		return r.flush(ctx)
	}
	return nil
}

// flush publishes those events of the chunk that the record does not have.
func (r *importRun) flush(ctx context.Context) error {
	if len(r.chunk) == 0 {
		return nil
	}
	keys := make([]memory.TaskKey, 0, len(r.chunk))
	for _, record := range r.chunk {
		keys = append(keys, record.Key)
	}
	slices.SortFunc(keys, func(a, b memory.TaskKey) int {
		return strings.Compare(a.Namespace+"/"+a.TaskID, b.Namespace+"/"+b.TaskID)
	})
	stored := map[memory.TaskKey]map[string]struct{}{}
	for some := range slices.Chunk(slices.Compact(keys), importKeys) {
		ids, err := r.store.StoredEventIDs(ctx, some)
		if err != nil {
			return fmt.Errorf("ask which events are stored already: %w", err)
		}
		maps.Copy(stored, ids)
	}
	var messages []bus.Message
	for _, record := range r.chunk {
		before := len(messages)
		for i, event := range record.Events {
			if _, found := stored[record.Key][event.ID]; found {
				continue
			}
			messages = append(messages, bus.Message{Subject: subjectOf(event), ID: event.MessageID(), Data: record.Encoded[i]})
		}
		if len(messages) == before {
			r.report.Duplicates++
		} else {
			r.report.Mapped++
		}
	}
	if err := r.publish(ctx, messages); err != nil {
		return err
	}
	r.chunk, r.chunkEvents, r.chunkBytes = r.chunk[:0], 0, 0
	return nil
}

// subjectOf is where an event is published: what is to be stored or changed goes to the keeper, anything else to the
// ingestor.
func subjectOf(e events.Event) string {
	switch e.Kind {
	case events.KindItemWritten, events.KindItemChanged:
		return bus.WriteSubject(e.Namespace)
	default:
		return events.Subject(e.Namespace, e.Kind)
	}
}

// publish sends the messages. A full stream is back-pressure: it is said once and waited for, however long. A broker that
// does not answer is waited for too, but not for ever.
func (r *importRun) publish(ctx context.Context, messages []bus.Message) error {
	if len(messages) == 0 {
		return nil
	}
	began := time.Now()
	saidFull, saidAway := false, false
	for {
		try, cancel := context.WithTimeout(ctx, publishPatience)
		duplicates, err := r.conn.PublishAll(try, messages)
		cancel()
		switch {
		case err == nil:
			r.report.Published += len(messages) - duplicates
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("publish events: %w", ctx.Err())
		case errors.Is(err, bus.ErrFull):
			began = time.Now()
			if !saidFull {
				r.meter.say("the stream TRACES is full: waiting until the ingestor has made room (HINDSIGHT_TRACES_MAX_BYTES sets its size)")
				saidFull = true
			}
		case errors.Is(err, bus.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded):
			if time.Since(began) > waitPatience {
				return fmt.Errorf("NATS has not answered for %s: start 'hindsight up' again and repeat the import, it goes on from there: %w", waitPatience, err)
			}
			if !saidAway {
				r.meter.say("NATS does not answer: waiting for it to come back")
				saidAway = true
			}
		default:
			return fmt.Errorf("publish events: %w", err)
		}
	}
}

// waitStored returns when every event of this import is stored, and every task that has an end is closed with all of
// them, reflected with regard to all others, and what was learnt from it is searchable. Merging what says the same, and
// rules, come later, as the consolidator's jobs are due. Tasks without an end close later, when they have been silent for HINDSIGHT_TASK_IDLE; they are not waited for.
func (r *importRun) waitStored(ctx context.Context) error {
	missing := slices.SortedFunc(maps.Keys(r.expected), compareKeys)
	unsettled := slices.Clone(missing)
	lastProgress, saidAway := time.Now(), false
	r.meter.waiting(len(r.expected))
	for {
		began := time.Now()
		still, err := r.missing(ctx, missing)
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("wait until everything is stored: %w", ctx.Err())
		case errors.Is(err, store.ErrUnavailable):
			if time.Since(lastProgress) > waitPatience {
				return fmt.Errorf("everything was published, but ClickHouse has not answered for %s: start 'hindsight up' again and repeat the import, it goes on from there: %w", waitPatience, err)
			}
			if !saidAway {
				r.meter.say("ClickHouse does not answer: waiting for it to come back")
				saidAway = true
			}
			still = missing
		case err != nil:
			return err
		}
		if len(still) < len(missing) {
			lastProgress = time.Now()
		}
		missing = still
		r.meter.waited(len(r.expected) - len(missing))
		waiting, err := r.writesWaiting(ctx, len(missing) == 0)
		if err != nil {
			return err
		}
		if len(missing) == 0 && !waiting {
			left, err := r.unsettled(ctx, unsettled)
			if err != nil && !errors.Is(err, store.ErrUnavailable) {
				return err
			}
			if err == nil && len(left) == 0 {
				return nil
			}
			if err == nil && len(left) < len(unsettled) {
				unsettled, lastProgress = left, time.Now()
			}
		}
		if time.Since(lastProgress) > waitPatience {
			return fmt.Errorf("%d of %d tasks are still not stored, closed and reflected, and nothing has changed for %s: is a reflector running ('hindsight up' has one)? See 'hindsight doctor' and 'hindsight deadletter list'",
				max(len(missing), len(unsettled)), len(r.expected), waitPatience)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until everything is stored: %w", ctx.Err())
		case <-time.After(max(waitPause, waitShare*time.Since(began))):
		}
	}
}

// writesWaiting reports whether memories of this import may still wait for their vectors, once all is stored.
func (r *importRun) writesWaiting(ctx context.Context, stored bool) (bool, error) {
	if !stored || !r.writes {
		return false, nil
	}
	stats, err := r.conn.Stats(ctx)
	if err != nil {
		return false, fmt.Errorf("ask what waits in the stream WRITES: %w", err)
	}
	for _, stream := range stats {
		if stream.Stream == bus.StreamWrites {
			return stream.Messages > 0, nil
		}
	}
	return false, nil
}

// unsettled lists those of the tasks whose reflection does not yet take all others into account that concern them.
func (r *importRun) unsettled(ctx context.Context, keys []memory.TaskKey) ([]memory.TaskKey, error) {
	var out []memory.TaskKey
	for chunk := range slices.Chunk(keys, importKeys) {
		outlines, err := r.store.Outlines(ctx, chunk)
		if err != nil {
			return nil, fmt.Errorf("ask for closed tasks: %w", err)
		}
		bases, err := memory.Bases(ctx, r.store, slices.Collect(maps.Values(outlines)))
		if err != nil {
			return nil, fmt.Errorf("ask what reflections rest on: %w", err)
		}
		reflected, err := r.store.Reflections(ctx, chunk)
		if err != nil {
			return nil, fmt.Errorf("ask which tasks are reflected: %w", err)
		}
		for key, basis := range bases {
			if r.expected[key].finished && reflected[key].Revision == outlines[key].Revision && reflected[key].Basis != basis.Hash() {
				out = append(out, key)
			}
		}
	}
	slices.SortFunc(out, compareKeys)
	return out, nil
}

// compareKeys orders tasks, so that those asked for together lie together.
func compareKeys(a, b memory.TaskKey) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.TaskID, b.TaskID))
}

// missing lists those of the tasks that are not complete yet.
func (r *importRun) missing(ctx context.Context, keys []memory.TaskKey) ([]memory.TaskKey, error) {
	var out []memory.TaskKey
	for chunk := range slices.Chunk(keys, importKeys) {
		states, err := r.store.TaskStates(ctx, chunk)
		if err != nil {
			return nil, fmt.Errorf("ask for the tasks' states: %w", err)
		}
		// Which events are stored is asked only where the answer may be that all is done.
		var candidates []memory.TaskKey
		for _, key := range chunk {
			if state, want := states[key], r.expected[key]; !want.finished || (state.Closed && state.Events >= len(want.ids)) {
				candidates = append(candidates, key)
			} else {
				out = append(out, key)
			}
		}
		if len(candidates) == 0 {
			continue
		}
		stored, err := r.store.StoredEventIDs(ctx, candidates)
		if err != nil {
			return nil, fmt.Errorf("ask which events are stored: %w", err)
		}
		reflected, err := r.store.Reflections(ctx, candidates)
		if err != nil {
			return nil, fmt.Errorf("ask which tasks are reflected: %w", err)
		}
		for _, key := range candidates {
			want, have := r.expected[key], make(map[uint64]bool, len(stored[key]))
			for id := range stored[key] {
				have[idHash(id)] = true
			}
			all := !slices.ContainsFunc(want.ids, func(id uint64) bool { return !have[id] })
			// A state that counts fewer events than are stored was written before the last of them came, and a reflection
			// of an earlier revision was made before that.
			if !all || (want.finished && (states[key].Events < len(stored[key]) || reflected[key].Revision < states[key].Revision)) {
				out = append(out, key)
			}
		}
	}
	return out, nil
}

func (r *importRun) print() error {
	if r.app.json {
		return r.app.printJSON(r.report)
	}
	rep := r.report
	r.app.printf("read %d lines of %d files in %.1f s: %d mapped, %d already there or repeated, %d skipped, %d failed; %d files could not be read to their end\n",
		rep.Read, rep.Files, rep.Seconds, rep.Mapped, rep.Duplicates, sum(rep.Skipped), rep.Failed, rep.FilesFailed)
	if rep.DryRun {
		r.app.printf("dry run: %d tasks with %d events would be imported; nothing was published\n", rep.Tasks, rep.Events)
		return nil
	}
	r.app.printf("%d tasks, %d events, of which %d were published now\n", rep.Tasks, rep.Events, rep.Published)
	return nil
}

func sum(counts map[string]int) int {
	total := 0
	for _, n := range counts {
		total += n
	}
	return total
}

// meter shows progress on stderr: a bar on a terminal, JSON lines otherwise.
type meter struct {
	out  io.Writer
	bar  *progressbar.ProgressBar
	tty  bool
	name string
	last time.Time
}

func newMeter(a *app) *meter { return &meter{out: a.stderr, tty: service.IsTerminal(a.stderr)} }

func (m *meter) file(path string) { m.name, m.bar = path, nil }

func (m *meter) bytes(read, total int64, report *importReport) {
	if m.tty {
		if m.bar == nil {
			m.start(total, m.name, true)
		}
		_ = m.bar.Set64(min(read, max(total, 1)))
		return
	}
	m.line(map[string]any{
		"progress": "read", "file": m.name, "bytes": read, "total": total, "read": report.Read, "mapped": report.Mapped,
		"duplicates": report.Duplicates, "failed": report.Failed,
	})
}

func (m *meter) waiting(tasks int) {
	if m.tty {
		m.start(int64(tasks), "stored and reflected", false)
	}
}

func (m *meter) waited(tasks int) {
	if m.tty {
		_ = m.bar.Set(tasks)
		return
	}
	m.line(map[string]any{"progress": "wait", "tasks_done": tasks})
}

func (m *meter) start(total int64, name string, isBytes bool) {
	m.finish()
	m.bar = progressbar.NewOptions64(max(total, 1), progressbar.OptionSetWriter(m.out), progressbar.OptionSetDescription(name),
		progressbar.OptionShowBytes(isBytes), progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish())
}

// say writes a line for a person without breaking the bar.
func (m *meter) say(text string) {
	if m.bar != nil {
		_ = m.bar.Clear()
	}
	_, _ = fmt.Fprintln(m.out, text)
}

func (m *meter) line(fields map[string]any) {
	if time.Since(m.last) < progressPause {
		return
	}
	m.last = time.Now()
	if raw, err := json.Marshal(fields); err == nil {
		_, _ = fmt.Fprintln(m.out, string(raw))
	}
}

func (m *meter) finish() {
	if m.bar != nil {
		_ = m.bar.Finish()
		m.bar = nil
	}
}
