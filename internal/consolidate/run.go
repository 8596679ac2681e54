package consolidate

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/hindsight-memory/hindsight/internal/memory"
)

// Versions of a run's states. A committed run stays committed, whatever else was written about it.
const (
	versionRunning   = 1
	versionFailed    = 2
	versionCommitted = 3
)

// noteTimeout bounds noting that a run failed, which is done after its context has ended.
const noteTimeout = 5 * time.Second

// work is one run of a job for one namespace. What is written through it counts once it is committed.
type work struct {
	record    Record
	lease     Lease
	clock     func() time.Time
	namespace string

	run memory.Run
	// seq tells the writes of one run from those of another: a run writes each item once.
	seq uint64
	// begun says that the run is written down; one that writes nothing leaves no trace.
	begun bool
	// committing says that the run may be committed, so that it must not be noted as failed.
	committing bool
}

func newWork(record Record, lease Lease, clock func() time.Time, holder, job, namespace string) *work {
	now := clock().UTC()
	return &work{
		record: record, lease: lease, clock: clock, namespace: namespace, seq: uint64(max(0, now.UnixNano())),
		run: memory.Run{
			Job: job, Namespace: namespace, Version: versionRunning, Status: memory.RunRunning, Fence: lease.Fence(), Holder: holder,
			StartedAt: now.Truncate(time.Millisecond), Counts: map[string]uint64{},
			RunID: memory.HashID("run", job, namespace, strconv.FormatUint(lease.Fence(), 10), strconv.FormatInt(now.UnixNano(), 10)),
		},
	}
}

// count adds to what the run reports.
func (w *work) count(name string, n int) {
	if n > 0 {
		w.run.Counts[name] += uint64(n)
	}
}

// begin writes the run down before its first row.
func (w *work) begin(ctx context.Context) error {
	if w.begun {
		return nil
	}
	if err := w.record.InsertRun(ctx, w.run); err != nil {
		return fmt.Errorf("begin the run: %w", err)
	}
	w.begun = true
	return nil
}

// writer is the name of a job among the writers of versions.
func writer(job string) string { return "consolidate/" + job }

// version stamps a version of an item that this run writes: of the same task revision as the one it follows, since a
// later revision of the task counts more.
func (w *work) version(previous memory.Version) memory.Version {
	return memory.Version{
		TaskRevision: previous.TaskRevision, Writer: writer(w.run.Job), WriterKind: memory.WriterMachine, Seq: w.seq, RunID: w.run.RunID,
	}
}

func (w *work) snapshots(ctx context.Context, changed []memory.Snapshot) error {
	changed, err := w.unchanged(ctx, changed)
	if err != nil {
		return err
	}
	return writeVersions(ctx, w, "snapshots", changed, func(s *memory.Snapshot) *memory.Version { return &s.Version }, w.record.InsertSnapshots)
}

// unchanged leaves of snapshots those that are still as this run has read them. What was reflected anew meanwhile must not be
// overwritten by what it was before; a later run looks at it again.
func (w *work) unchanged(ctx context.Context, changed []memory.Snapshot) ([]memory.Snapshot, error) {
	if len(changed) == 0 {
		return nil, nil
	}
	ids := make([]string, len(changed))
	for i, s := range changed {
		ids[i] = s.SnapshotID
	}
	current, err := w.record.Snapshots(ctx, memory.ItemFilter{Namespace: w.namespace, IDs: ids})
	if err != nil {
		return nil, fmt.Errorf("read %d snapshots again: %w", len(ids), err)
	}
	now := make(map[string]memory.Version, len(current))
	for _, s := range current {
		now[s.SnapshotID] = s.Version
	}
	return slices.DeleteFunc(changed, func(s memory.Snapshot) bool {
		v, is := now[s.SnapshotID]
		return is && (v.TaskRevision != s.Version.TaskRevision || v.Writer != s.Version.Writer || v.Seq != s.Version.Seq)
	}), nil
}

func (w *work) memories(ctx context.Context, changed []memory.Memory) error {
	return writeVersions(ctx, w, "memories", changed, func(m *memory.Memory) *memory.Version { return &m.Version }, w.record.InsertMemories)
}

func (w *work) rules(ctx context.Context, changed []memory.Rule) error {
	return writeVersions(ctx, w, "rules", changed, func(r *memory.Rule) *memory.Version { return &r.Version }, w.record.InsertRules)
}

// writeVersions stamps new versions of items and writes them within the run.
func writeVersions[T any](ctx context.Context, w *work, what string, changed []T, version func(*T) *memory.Version, insert func(context.Context, []T) error) error {
	if len(changed) == 0 {
		return nil
	}
	if err := w.begin(ctx); err != nil {
		return err
	}
	for i := range changed {
		v := version(&changed[i])
		*v = w.version(*v)
	}
	if err := insert(ctx, changed); err != nil {
		return fmt.Errorf("write %s: %w", what, err)
	}
	return nil
}

func (w *work) relations(ctx context.Context, changed []memory.Relation) error {
	if len(changed) == 0 {
		return nil
	}
	if err := w.begin(ctx); err != nil {
		return err
	}
	for i := range changed {
		changed[i].Namespace, changed[i].Writer, changed[i].Seq, changed[i].RunID = w.namespace, writer(w.run.Job), w.seq, w.run.RunID
	}
	if err := w.record.InsertRelations(ctx, changed); err != nil {
		return fmt.Errorf("write relations: %w", err)
	}
	return nil
}

func (w *work) votes(ctx context.Context, changed []memory.Vote) error {
	if len(changed) == 0 {
		return nil
	}
	if err := w.begin(ctx); err != nil {
		return err
	}
	for i := range changed {
		changed[i].Namespace, changed[i].RunID = w.namespace, w.run.RunID
	}
	if err := w.record.InsertVotes(ctx, changed); err != nil {
		return fmt.Errorf("write votes: %w", err)
	}
	return nil
}

// commit makes what was written count. The compare-and-set on the key of the lease decides; the record is told after it,
// and if that fails, by whoever recovers.
func (w *work) commit(ctx context.Context) error {
	if !w.begun {
		return nil
	}
	done := w.run
	at := w.clock().UTC().Truncate(time.Millisecond)
	done.Status, done.Version, done.CommittedAt = memory.RunCommitted, versionCommitted, &at
	data, err := json.Marshal(done)
	if err != nil {
		return fmt.Errorf("encode the run: %w", err)
	}
	w.committing = true
	if err := w.lease.Commit(ctx, data); err != nil {
		return fmt.Errorf("commit the run: %w", err)
	}
	w.run = done
	if err := w.record.InsertRun(ctx, done); err != nil {
		return fmt.Errorf("note that the run is committed: %w", err)
	}
	return nil
}

// fail notes that the run came to nothing, for people to see. It is not needed for anything: rows of a run that is not
// committed never count.
func (w *work) fail(ctx context.Context, cause error) {
	if !w.begun || w.committing {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteTimeout)
	defer cancel()
	failed := w.run
	failed.Status, failed.Version, failed.Error = memory.RunFailed, versionFailed, cause.Error()
	if w.record.InsertRun(ctx, failed) == nil {
		w.run = failed
	}
}

// recoverRuns settles what an earlier holder of the lease left: the run that the lease says is committed is noted as
// such, and all others that seem to be running have failed, since only the holder runs any.
func recoverRuns(ctx context.Context, record RunLog, lease Lease) error {
	running, err := record.RunningRuns(ctx)
	if err != nil {
		return fmt.Errorf("look for runs that did not end: %w", err)
	}
	if len(running) == 0 {
		return nil
	}
	var committed memory.Run
	if data := lease.Data(); len(data) > 0 {
		if err := json.Unmarshal(data, &committed); err != nil {
			return fmt.Errorf("read the last commit: %w", err)
		}
	}
	for _, run := range running {
		if run.Job == committed.Job && run.RunID == committed.RunID {
			run = committed
			run.Version = versionCommitted
		} else {
			run.Status, run.Version, run.Error = memory.RunFailed, versionFailed, "it did not end: its process was stopped or lost the lease"
		}
		if err := record.InsertRun(ctx, run); err != nil {
			return fmt.Errorf("settle run %s: %w", run.RunID, err)
		}
	}
	return nil
}
