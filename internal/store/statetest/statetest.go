// Package statetest says in lines of text what the record of one namespace has come to, so that two of them can be
// compared: the same input must lead to the same lines, whatever the order and parallelism of processing.
//
// It is for tests, and only reads. Left out is what tells how and when a state came about and not what it is: times of
// recording, versions, writers, runs, and items that a later reflection of their task no longer has.
package statetest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/hindsight-memory/hindsight/internal/memory"
	"github.com/hindsight-memory/hindsight/internal/store"
)

// State is what a namespace has come to: sorted lines, each of one thing, beginning with what it is and its id.
type State struct{ Lines []string }

// Sum names the state: equal for equal states.
func (s State) Sum() string {
	sum := sha256.Sum256([]byte(strings.Join(s.Lines, "\n")))
	return hex.EncodeToString(sum[:8])
}

// Diff lists what only s has, each line after "- ", and what only other has, after "+ ", in the order of the lines.
func (s State) Diff(other State) []string {
	var out []string
	a, b := s.Lines, other.Lines
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0] < b[0]:
			out, a = append(out, "- "+a[0]), a[1:]
		case len(a) == 0 || b[0] < a[0]:
			out, b = append(out, "+ "+b[0]), b[1:]
		default:
			a, b = a[1:], b[1:]
		}
	}
	return out
}

// Without leaves out the lines of some kinds: those whose first word is one of them.
func (s State) Without(kinds ...string) State {
	return State{Lines: slices.DeleteFunc(slices.Clone(s.Lines), func(line string) bool {
		kind, _, _ := strings.Cut(line, " ")
		return slices.Contains(kinds, kind)
	})}
}

// Digest reads the state of a namespace. Its kinds of lines are event, task, reflection (which revision of a task was
// reflected), snapshot, memory, rule, summary, relation, vote and vector (of the current text of an item that can be
// found; "none" where there is none). The record must be read by HTTP.
func Digest(ctx context.Context, record *store.ClickHouse, namespace string) (State, error) {
	d := digest{record: record, namespace: namespace, ids: map[string]bool{}, texts: map[string]string{}}
	for _, part := range []func(context.Context) error{d.events, d.tasks, d.items, d.relations, d.votes, d.vectors} {
		if err := part(ctx); err != nil {
			return State{}, fmt.Errorf("state of namespace %s: %w", namespace, err)
		}
	}
	slices.Sort(d.lines)
	return State{Lines: d.lines}, nil
}

type digest struct {
	record    *store.ClickHouse
	namespace string
	lines     []string
	// ids are the items, rules those that tasks vote on, and texts the hashes of the texts of those that can be found.
	ids   map[string]bool
	rules []string
	texts map[string]string
}

func (d *digest) add(kind, id string, what any) error {
	raw, err := json.Marshal(what)
	if err != nil {
		return fmt.Errorf("encode %s %s: %w", kind, id, err)
	}
	d.lines = append(d.lines, kind+" "+id+" "+string(raw))
	return nil
}

// query gives the rows of a statement in which %s stands for the namespace as a literal.
func query[T any](ctx context.Context, d *digest, statement string) ([]T, error) {
	literal := "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(d.namespace) + "'"
	var out bytes.Buffer
	if err := d.record.Query(ctx, fmt.Sprintf(statement, literal), "JSONEachRow", &out); err != nil {
		return nil, fmt.Errorf("query: %w", err)
	}
	var rows []T
	for line := range bytes.Lines(out.Bytes()) {
		var row T
		if err := json.Unmarshal(line, &row); err != nil {
			return nil, fmt.Errorf("read a row: %w", err)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func (d *digest) events(ctx context.Context) error {
	type row struct {
		Event string `json:"event"`
		Kind  string `json:"event_kind"`
		Hash  string `json:"hash"`
	}
	rows, err := query[row](ctx, d, `SELECT event_id AS event, any(kind) AS event_kind,
			min(hex(sipHash128(toString(time), task_id, kind, agent_id, session_id, user_id, goal_id, seq,
				arrayStringConcat(arraySort(arrayMap((k, v) -> concat(k, '=', v), mapKeys(extra), mapValues(extra))), '\n'), data))) AS hash
		FROM trace_events WHERE namespace = %s GROUP BY event_id`)
	if err != nil {
		return err
	}
	for _, r := range rows {
		d.lines = append(d.lines, "event "+r.Event+" "+r.Kind+" "+r.Hash)
	}
	return nil
}

func (d *digest) tasks(ctx context.Context) error {
	var keys []memory.TaskKey
	for t, err := range d.record.Tasks(ctx, memory.TaskFilter{Namespace: d.namespace}) {
		if err != nil {
			return fmt.Errorf("read tasks: %w", err)
		}
		keys = append(keys, memory.TaskKey{Namespace: t.Namespace, TaskID: t.TaskID})
		if err := d.add("task", t.TaskID, t); err != nil {
			return err
		}
	}
	reflections, err := d.record.Reflections(ctx, keys)
	if err != nil {
		return fmt.Errorf("read reflections: %w", err)
	}
	for key, r := range reflections {
		d.lines = append(d.lines, fmt.Sprintf("reflection %s %d closed=%t", key.TaskID, r.Revision, r.Closed))
	}
	return nil
}

func (d *digest) items(ctx context.Context) error {
	all := memory.ItemFilter{Namespace: d.namespace}
	snapshots, err := d.record.Snapshots(ctx, all)
	if err != nil {
		return fmt.Errorf("read snapshots: %w", err)
	}
	for _, s := range snapshots {
		if gone(s.Judged) {
			continue
		}
		_, text := memory.SnapshotEntry(s)
		s.Judged = exact(s.Judged)
		if err := d.item("snapshot", s.SnapshotID, text, s); err != nil {
			return err
		}
	}
	memories, err := d.record.Memories(ctx, all)
	if err != nil {
		return fmt.Errorf("read memories: %w", err)
	}
	for _, m := range memories {
		if gone(m.Judged) {
			continue
		}
		_, text := memory.MemoryEntry(m)
		m.Judged = exact(m.Judged)
		if err := d.item("memory", m.MemoryID, text, m); err != nil {
			return err
		}
	}
	rules, err := d.record.Rules(ctx, all)
	if err != nil {
		return fmt.Errorf("read rules: %w", err)
	}
	for _, r := range rules {
		d.rules = append(d.rules, r.RuleID)
		r.Timestamp = time.Time{} // when it was drawn
		r.Judged = exact(r.Judged)
		r.Lift, r.LiftLow = rounded(r.Lift), rounded(r.LiftLow)
		if err := d.item("rule", r.RuleID, "", r); err != nil {
			return err
		}
	}
	summaries, err := d.record.Summaries(ctx, all)
	if err != nil {
		return fmt.Errorf("read summaries: %w", err)
	}
	for _, s := range summaries {
		if err := d.item("summary", s.SessionID, "", s); err != nil {
			return err
		}
	}
	return nil
}

// gone reports an item that its task no longer has: that it ever had it, tells of the way here.
func gone(j memory.Judged) bool {
	return j.Status == memory.ItemSuperseded && j.StatusReason == memory.ReasonNotDerived
}

// exact gives numbers one form: sums of floating-point numbers differ in the last digits by their order.
func exact(j memory.Judged) memory.Judged {
	j.Confidence, j.Importance = rounded(j.Confidence), rounded(j.Importance)
	return j
}

func rounded(x float64) float64 { return math.Round(x*1e9) / 1e9 }

func (d *digest) item(kind, id, text string, what any) error {
	d.ids[id] = true
	if text != "" {
		d.texts[id] = memory.TextHash(text)
	}
	return d.add(kind, id, what)
}

func (d *digest) sortedIDs() []string {
	ids := make([]string, 0, len(d.ids))
	for id := range d.ids {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func (d *digest) relations(ctx context.Context) error {
	relations, err := d.record.Relations(ctx, d.namespace, d.sortedIDs())
	if err != nil {
		return fmt.Errorf("read relations: %w", err)
	}
	for _, r := range relations {
		if d.ids[r.FromID] && d.ids[r.ToID] {
			d.lines = append(d.lines, fmt.Sprintf("relation %s %s %s %.3f %s", r.FromID, r.Kind, r.ToID, r.Weight, r.Reason))
		}
	}
	return nil
}

func (d *digest) votes(ctx context.Context) error {
	votes, err := d.record.Votes(ctx, d.namespace, d.rules)
	if err != nil {
		return fmt.Errorf("read votes: %w", err)
	}
	for _, v := range votes {
		v.RunID = ""
		if err := d.add("vote", v.RuleID+" "+v.TaskID, v); err != nil {
			return err
		}
	}
	return nil
}

func (d *digest) vectors(ctx context.Context) error {
	type row struct {
		Model string `json:"model"`
	}
	models, err := query[row](ctx, d, "SELECT DISTINCT model FROM item_vectors WHERE namespace = %s ORDER BY model")
	if err != nil {
		return err
	}
	for _, m := range models {
		found := map[string]string{}
		for v, err := range d.record.VectorsOf(ctx, d.namespace, m.Model) {
			if err != nil {
				return fmt.Errorf("read vectors of %s: %w", m.Model, err)
			}
			found[v.ItemID+" "+v.TextHash] = hashOf(v.Vector)
		}
		for id, text := range d.texts {
			key := id + " " + text
			hash := found[key]
			if hash == "" {
				hash = "none"
			}
			d.lines = append(d.lines, "vector "+key+" "+m.Model+" "+hash)
		}
	}
	return nil
}

func hashOf(vector []float32) string {
	h := sha256.New()
	for _, x := range vector {
		_ = binary.Write(h, binary.LittleEndian, x) // A hash never fails.
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}
