package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/memory"
)

const (
	// maxInsertRows and maxInsertBytes bound the memory of one insert.
	maxInsertRows  = 20_000
	maxInsertBytes = 32 << 20
	// maxInsertMonths stays under the server's max_partitions_per_insert_block, 100 by default.
	maxInsertMonths = 50
	// keysPerQuery is how many tasks are asked for at once by those who want all of them.
	keysPerQuery = 200
	// keyBytesPerQuery bounds the length of a statement that lists tasks, by the length of their keys, of which each may
	// stand there twice; the server takes 256 KiB by default.
	keyBytesPerQuery = 50 << 10
	// maxReadBytes bounds the memory of one read of several tasks' events, and eventOverhead is about what an event takes
	// beside its data.
	maxReadBytes  = 64 << 20
	eventOverhead = 1 << 10
	// maxColumnText is where the text columns for analysts are cut, in bytes.
	maxColumnText = 2000
	// latestYear is the first year that does not fit nanoseconds in 64 bits, which drivers use inside.
	latestYear = 2262
)

// eventColumns are the columns written for each event, in the order of [eventBinding].
const eventColumns = `namespace, time, task_id, event_id, kind, agent_id, session_id, user_id, goal_id, seq,
	task_type, goal, parent_task_id, role, turn, step, tool, actor, call_id, status, error_type, error_message,
	execution_time_ms, score, reason, confirmed_by, feedback_kind, feedback_target, extra, data`

// bodyColumns are those columns that are no copy of something in data, in the order of [scanBody].
const bodyColumns = `namespace, time, task_id, event_id, kind, agent_id, session_id, user_id, goal_id, seq, extra, data, recorded_at`

// eventRow holds the columns that are taken out of an event's data.
type eventRow struct {
	taskType, goal, parentTaskID                       string
	role                                               string
	turn, step                                         int64
	tool, actor, callID, status, errorType, errMessage string
	executionTimeMS                                    int64
	score                                              *float64
	reason, confirmedBy                                string
	feedbackKind, feedbackTarget                       string
}

// columnsOf takes the typed columns out of the data. Data that does not have the form of its kind is stored all the
// same, with empty columns. The texts are parts of the event's data.
func columnsOf(e events.Event) eventRow {
	var r eventRow
	switch e.Kind {
	case events.KindTaskStarted:
		if s, err := events.ViewData[events.TaskStarted](e); err == nil {
			r.taskType, r.goal, r.parentTaskID = s.TaskType, cut(s.Goal), s.ParentTaskID
		}
	case events.KindMessage:
		if m, err := events.ViewData[events.Message](e); err == nil {
			r.role, r.turn = m.Role, int64(m.Turn)
		}
	case events.KindStepFinished:
		if s, err := events.ViewData[events.StepFinished](e); err == nil {
			r.step, r.tool, r.actor, r.callID, r.status = int64(s.Step), s.Tool, s.Actor, s.CallID, string(s.Status)
			r.errorType, r.errMessage, r.executionTimeMS = s.ErrorType, cut(s.ErrorMessage), s.ExecutionTimeMS
		}
	case events.KindTaskFinished:
		if f, err := events.ViewData[events.TaskFinished](e); err == nil {
			r.status, r.score, r.reason, r.confirmedBy = string(f.Status), f.Score, cut(f.Reason), f.ConfirmedBy
		}
	case events.KindFeedback:
		if f, err := events.ViewData[events.Feedback](e); err == nil {
			r.feedbackKind, r.feedbackTarget = f.Kind, f.Target
		}
	case events.KindItemWritten, events.KindItemChanged, events.KindRecallServed:
	default:
		// Kinds that this version does not know have no columns.
	}
	return r
}

// eventBinding hands one event after the other to a batch. It has the values of a row in the order of [eventColumns]:
// pointers to its own fields, which it fills anew for each event, so that a row costs next to no allocation. The columns
// of few values are not bound: the driver keeps their texts, and finds each again by its value.
type eventBinding struct {
	event  events.Event
	row    eventRow
	data   json.RawMessage
	values []any
	// few are the texts of the columns of few values as the driver takes them.
	few map[string]any
	// none stands for the extra fields of the many events that have none.
	none map[string]string
}

func newEventBinding() *eventBinding {
	b := &eventBinding{few: map[string]any{}, none: map[string]string{}}
	e, r := &b.event, &b.row
	b.values = []any{
		nil, &e.Time, &e.TaskID, &e.ID, nil, nil, &e.SessionID, &e.UserID, &e.GoalID, &e.Seq,
		nil, &r.goal, &r.parentTaskID, nil, &r.turn, &r.step, nil, nil, &r.callID, nil, nil,
		&r.errMessage, &r.executionTimeMS, nil, &r.reason, nil, nil, &r.feedbackTarget, nil, &b.data,
	}
	return b
}

// bind fills the values for an event. They hold until the next.
func (b *eventBinding) bind(e events.Event) []any {
	b.event, b.row, b.data = e, columnsOf(e), e.Data
	if len(b.data) == 0 {
		b.data = json.RawMessage("{}") // Empty means that the body's time to live has passed.
	}
	extra := b.none
	if len(e.Extra) > 0 {
		extra = make(map[string]string, len(e.Extra))
		for name, value := range e.Extra {
			extra[name] = string(value)
		}
	}
	r := &b.row
	for _, column := range [...]struct {
		at   int
		text string
	}{
		{0, e.Namespace},
		{4, string(e.Kind)},
		{5, e.AgentID},
		{10, r.taskType},
		{13, r.role},
		{16, r.tool},
		{17, r.actor},
		{19, r.status},
		{20, r.errorType},
		{25, r.confirmedBy},
		{26, r.feedbackKind},
	} {
		b.values[column.at] = b.value(column.text)
	}
	b.values[23], b.values[28] = r.score, extra
	return b.values
}

// maxFew bounds how many texts are kept: a column may have more values than it should.
const maxFew = 1000

// value is a text as the driver takes it; nil is the empty text.
func (b *eventBinding) value(text string) any {
	if text == "" {
		return nil
	}
	value, have := b.few[text]
	if !have {
		value = strings.Clone(text)
		if len(b.few) < maxFew {
			b.few[value.(string)] = value //nolint:forcetypeassert // It was made above.
		}
	}
	return value
}

// data gives back what the columns still say of an event whose body has been removed after its time to live.
func (r eventRow) data(kind events.Kind) (json.RawMessage, error) {
	var v any
	switch kind {
	case events.KindTaskStarted:
		v = events.TaskStarted{TaskType: r.taskType, Goal: r.goal, ParentTaskID: r.parentTaskID}
	case events.KindMessage:
		v = events.Message{Role: r.role, Turn: int(r.turn)}
	case events.KindStepFinished:
		v = events.StepFinished{
			Step: int(r.step), Tool: r.tool, Status: events.Status(r.status), ErrorType: r.errorType,
			ErrorMessage: r.errMessage, ExecutionTimeMS: r.executionTimeMS, CallID: r.callID, Actor: r.actor,
		}
	case events.KindTaskFinished:
		v = events.TaskFinished{Status: events.Status(r.status), Score: r.score, Reason: r.reason, ConfirmedBy: r.confirmedBy}
	case events.KindFeedback:
		v = events.Feedback{Target: r.feedbackTarget, Kind: r.feedbackKind}
	case events.KindItemWritten, events.KindItemChanged, events.KindRecallServed:
		return json.RawMessage("{}"), nil
	default:
		return json.RawMessage("{}"), nil
	}
	raw, err := events.EncodeData(v)
	if err != nil {
		return nil, fmt.Errorf("rebuild data of %s: %w", kind, err)
	}
	return raw, nil
}

// cut shortens a text for a column at a character's boundary. The whole text stays in the data.
func cut(s string) string {
	if len(s) <= maxColumnText {
		return s
	}
	end := maxColumnText
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end]
}

// InsertEvents stores events, in one statement as a rule, in several when they are many or of many months. Storing an
// event again changes nothing. When a row can never be stored the error is a [RowError] and nothing was stored; with
// any other error some may have been, and repeating all of them is safe. Data that is empty is stored as `{}`.
func (c *ClickHouse) InsertEvents(ctx context.Context, evs []events.Event) error {
	for i, e := range evs {
		if reason := unstorable(e.Time); reason != "" {
			return &RowError{Index: i, ID: e.ID, Reason: reason}
		}
		if e.ID == "" || e.Namespace == "" || e.TaskID == "" {
			return &RowError{Index: i, ID: e.ID, Reason: "id, namespace and task_id must not be empty: they are its key"}
		}
	}
	binding := newEventBinding()
	for _, chunk := range insertChunks(evs) {
		if err := c.insert(ctx, "trace_events", eventColumns, len(chunk), func(b driver.Batch, i int) error {
			if i == 0 {
				if err := reserveData(b, chunk); err != nil {
					return err
				}
			}
			return b.Append(binding.bind(*chunk[i])...)
		}); err != nil {
			return err
		}
	}
	return nil
}

// reserveData makes room for the bodies of all events, nearly all of what is inserted. A column that grows row by row
// is copied about four times, and there is no other way to tell the driver how large it will be.
func reserveData(b driver.Batch, evs []*events.Event) error {
	size := 0
	for _, e := range evs {
		size += max(len(e.Data), len("{}"))
	}
	columns := b.Columns()
	data := columns[len(columns)-1]
	if err := data.AppendRow(make([]byte, size)); err != nil {
		return fmt.Errorf("make room for %d bytes: %w", size, err)
	}
	data.Reset()
	return nil
}

// unstorable says why a time does not fit its column, or nothing.
func unstorable(t time.Time) string {
	if t.Before(time.Unix(0, 0)) || t.UTC().Year() >= latestYear {
		return fmt.Sprintf("time %s is outside 1970 to %d", t.UTC().Format(events.TimeFormat), latestYear-1)
	}
	return ""
}

// insertChunks orders the events by time and cuts them so that no insert has too many rows, bytes or months.
func insertChunks(evs []events.Event) [][]*events.Event {
	sorted := make([]*events.Event, len(evs))
	for i := range evs {
		sorted[i] = &evs[i]
	}
	slices.SortStableFunc(sorted, func(a, b *events.Event) int { return a.Time.Compare(b.Time) })
	var out [][]*events.Event
	start, size, months, month := 0, 0, 0, -1
	for i, e := range sorted {
		t := e.Time.UTC()
		this := t.Year()*12 + int(t.Month())
		if this != month {
			months++
		}
		if i > start && (i-start >= maxInsertRows || size+len(e.Data) > maxInsertBytes || months > maxInsertMonths) {
			out = append(out, sorted[start:i])
			start, size, months = i, 0, 1
		}
		month = this
		size += len(e.Data)
	}
	if start < len(sorted) {
		out = append(out, sorted[start:])
	}
	return out
}

// insert writes rows, whose values the caller has checked, in one block. Asynchronous inserts are off: an answer means that the rows are stored. So is the
// server's own de-duplication of blocks: rows have keys, and rows that were erased may be stored again.
func (c *ClickHouse) insert(ctx context.Context, table, columns string, rows int, row func(b driver.Batch, i int) error) error {
	if rows == 0 {
		return nil
	}
	doing := "insert into " + table
	bounded, cancel := c.bound(ctx)
	defer cancel()
	bounded = clickhouse.Context(bounded, clickhouse.WithSettings(clickhouse.Settings{"async_insert": 0, "insert_deduplicate": 0}))
	batch, err := c.conn.PrepareBatch(bounded, "INSERT INTO "+table+" ("+columns+")")
	if err != nil {
		return translate(ctx, doing, err)
	}
	defer batch.Close() //nolint:errcheck // It only releases the connection; Send has told whether the rows are stored.
	for i := range rows {
		if err := row(batch, i); err != nil {
			// The values were checked before, so it is the table that is not as the driver expects: no row may be given up.
			return fmt.Errorf("%s: %w: the driver can't fit a row into the table; compare the table with this program's migrations: %s",
				doing, ErrUnavailable, err.Error())
		}
	}
	return translate(ctx, doing, batch.Send())
}

// StoredEventIDs tells which events of the tasks are stored, as sets of event ids. Tasks without any are left out.
func (c *ClickHouse) StoredEventIDs(ctx context.Context, keys []memory.TaskKey) (map[memory.TaskKey]map[string]struct{}, error) {
	out := make(map[memory.TaskKey]map[string]struct{}, len(keys))
	err := c.byTask(ctx, "find stored events", `SELECT DISTINCT namespace, task_id, event_id FROM trace_events WHERE `, keys,
		func(rows driver.Rows) error {
			var key memory.TaskKey
			var id string
			if err := rows.Scan(&key.Namespace, &key.TaskID, &id); err != nil {
				return err
			}
			if out[key] == nil {
				out[key] = map[string]struct{}{}
			}
			out[key][id] = struct{}{}
			return nil
		})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// byTask runs a query that ends in WHERE once for every few tasks.
func (c *ClickHouse) byTask(ctx context.Context, doing, query string, keys []memory.TaskKey, row func(driver.Rows) error) error {
	for len(keys) > 0 {
		n, size := 0, 0
		for n < len(keys) && (n == 0 || size < keyBytesPerQuery) {
			size += len(keys[n].Namespace) + len(keys[n].TaskID) + len(`('',''),`)
			n++
		}
		where, args := whereTasks(keys[:n])
		keys = keys[n:]
		if err := c.query(ctx, doing, query+where, args, row); err != nil {
			return err
		}
	}
	return nil
}

// whereTasks restricts to tasks. The first two parts are implied by the third: they let the indexes work.
func whereTasks(keys []memory.TaskKey) (where string, args []any) {
	namespaces := map[string]struct{}{}
	ids := make([]string, 0, len(keys))
	pairs := make([]clickhouse.GroupSet, 0, len(keys))
	for _, k := range keys {
		namespaces[k.Namespace] = struct{}{}
		ids = append(ids, k.TaskID)
		pairs = append(pairs, clickhouse.GroupSet{Value: []any{k.Namespace, k.TaskID}})
	}
	args = []any{slices.Sorted(maps.Keys(namespaces)), ids}
	if len(namespaces) == 1 {
		return "namespace IN ? AND task_id IN ?", args
	}
	return "namespace IN ? AND task_id IN ? AND (namespace, task_id) IN (?)", append(args, pairs)
}

// query runs a statement and hands over its rows one by one.
func (c *ClickHouse) query(ctx context.Context, doing, query string, args []any, row func(driver.Rows) error) error {
	bounded, cancel := c.bound(ctx)
	defer cancel()
	rows, err := c.conn.Query(bounded, query, args...)
	if err != nil {
		return translate(ctx, doing, err)
	}
	defer rows.Close() //nolint:errcheck // Err below has told what went wrong.
	for rows.Next() {
		if err := row(rows); err != nil {
			cancel() // Else closing would read the rest.
			if errors.Is(err, memory.ErrTooMuch) || errors.Is(err, errNoBody) {
				return fmt.Errorf("%s: %w", doing, err)
			}
			return translate(ctx, doing, err)
		}
	}
	return translate(ctx, doing, rows.Err())
}

// Touched returns the tasks of which events were recorded at or after since, by the store's clock, and the time on that
// clock. An insert that began before now may become visible after it: begin the next round a minute before now, and
// expect to see tasks twice.
func (c *ClickHouse) Touched(ctx context.Context, since time.Time) (now time.Time, touched []memory.Touch, err error) {
	const query = `SELECT '' AS namespace, '' AS task_id, now64(3, 'UTC') AS last, 0 AS finished, toDateTime64(0, 3, 'UTC') AS urgent
		UNION ALL
		SELECT namespace, task_id, max(recorded_at),
			uniqExactIf(event_id, kind = 'task_finished'),
			maxIf(recorded_at, (kind = 'step_finished' AND status = 'failure' AND actor != 'user')
				OR (kind = 'feedback' AND feedback_kind = 'correction'))
		FROM trace_events WHERE recorded_at >= fromUnixTimestamp64Milli(?, 'UTC') AND ` + noTask + `
		GROUP BY namespace, task_id`
	err = c.query(ctx, "find touched tasks", query, []any{max(since.UnixMilli(), 0)}, func(rows driver.Rows) error {
		var t memory.Touch
		var finished uint64
		var urgent time.Time
		if err := rows.Scan(&t.Key.Namespace, &t.Key.TaskID, &t.LastRecordedAt, &finished, &urgent); err != nil {
			return err
		}
		t.LastRecordedAt = t.LastRecordedAt.UTC()
		if t.Key == (memory.TaskKey{}) {
			now = t.LastRecordedAt
			return nil
		}
		t.Finished = int(finished)
		if urgent.Unix() > 0 { // The maximum of nothing is the epoch.
			t.UrgentAt = urgent.UTC()
		}
		touched = append(touched, t)
		return nil
	})
	if err != nil {
		return time.Time{}, nil, err
	}
	slices.SortFunc(touched, func(a, b memory.Touch) int {
		return cmp.Or(a.LastRecordedAt.Compare(b.LastRecordedAt), strings.Compare(a.Key.Namespace, b.Key.Namespace), strings.Compare(a.Key.TaskID, b.Key.TaskID))
	})
	return now, touched, nil
}

// TaskEvents returns all events of the tasks, each event once (of copies the one that was recorded first), in order of
// time and id. Tasks without any are left out. An event whose body has passed its time to live has the data that its
// columns still tell. It is fast for tasks that happened at about the same time. The answer is held in memory: for
// several tasks with more than about 64 MiB the error is [memory.ErrTooMuch], and whoever asked divides them. One task
// alone is always read whole.
func (c *ClickHouse) TaskEvents(ctx context.Context, keys []memory.TaskKey) (map[memory.TaskKey][]memory.StoredEvent, error) {
	// Only an event without a body needs the other columns, which take longer to read than the rest.
	out, err := c.taskEvents(ctx, keys, bodyColumns, scanBody)
	if errors.Is(err, errNoBody) {
		return c.taskEvents(ctx, keys, eventColumns+", recorded_at", scanEvent)
	}
	return out, err
}

// errNoBody means that the body of an event has passed its time to live.
var errNoBody = errors.New("the event has no body")

func (c *ClickHouse) taskEvents(ctx context.Context, keys []memory.TaskKey, columns string, scan func(driver.Rows) (memory.StoredEvent, error)) (map[memory.TaskKey][]memory.StoredEvent, error) {
	out := make(map[memory.TaskKey][]memory.StoredEvent, len(keys))
	at := make(map[memory.TaskKey]map[string]int, len(keys)) // Where each event is in out.
	size := 0
	err := c.byTask(ctx, "read events", "SELECT "+columns+" FROM trace_events WHERE ", keys,
		func(rows driver.Rows) error {
			e, err := scan(rows)
			if err != nil {
				return err
			}
			key := memory.TaskKey{Namespace: e.Namespace, TaskID: e.TaskID}
			of := at[key]
			if of == nil {
				of = map[string]int{}
				at[key] = of
			}
			if have, again := of[e.ID]; again {
				if recordedBefore(e, out[key][have]) {
					out[key][have] = e
				}
				return nil
			}
			if size += eventOverhead + len(e.Data); size > c.maxRead && len(keys) > 1 {
				return memory.ErrTooMuch
			}
			of[e.ID] = len(out[key])
			out[key] = append(out[key], e)
			return nil
		})
	if err != nil {
		return nil, err
	}
	for _, evs := range out {
		slices.SortFunc(evs, func(a, b memory.StoredEvent) int {
			return cmp.Or(a.Time.Compare(b.Time), strings.Compare(a.ID, b.ID))
		})
	}
	return out, nil
}

// recordedBefore orders the copies of an event; a producer that breaks the rule that events never change may have
// published different ones.
func recordedBefore(a, b memory.StoredEvent) bool {
	return cmp.Or(a.RecordedAt.Compare(b.RecordedAt), a.Time.Compare(b.Time), strings.Compare(string(a.Data), string(b.Data))) < 0
}

func scanEvent(rows driver.Rows) (memory.StoredEvent, error) {
	var e memory.StoredEvent
	var r eventRow
	var kind string
	var extra map[string]string
	if err := rows.Scan(&e.Namespace, &e.Time, &e.TaskID, &e.ID, &kind, &e.AgentID, &e.SessionID, &e.UserID, &e.GoalID, &e.Seq,
		&r.taskType, &r.goal, &r.parentTaskID, &r.role, &r.turn, &r.step, &r.tool, &r.actor, &r.callID, &r.status, &r.errorType,
		&r.errMessage, &r.executionTimeMS, &r.score, &r.reason, &r.confirmedBy, &r.feedbackKind, &r.feedbackTarget, &extra, &e.Data,
		&e.RecordedAt); err != nil {
		return e, err
	}
	complete(&e, kind, extra)
	if len(e.Data) == 0 {
		rebuilt, err := r.data(e.Kind)
		if err != nil {
			return e, err
		}
		e.Data = rebuilt
	}
	return e, nil
}

// scanBody reads a row of [bodyColumns]. The error is [errNoBody] when that does not suffice.
func scanBody(rows driver.Rows) (memory.StoredEvent, error) {
	var e memory.StoredEvent
	var kind string
	var extra map[string]string
	if err := rows.Scan(&e.Namespace, &e.Time, &e.TaskID, &e.ID, &kind, &e.AgentID, &e.SessionID, &e.UserID, &e.GoalID, &e.Seq,
		&extra, &e.Data, &e.RecordedAt); err != nil {
		return e, err
	}
	if len(e.Data) == 0 {
		return e, errNoBody
	}
	complete(&e, kind, extra)
	return e, nil
}

// complete takes over what the driver gives in other types.
func complete(e *memory.StoredEvent, kind string, extra map[string]string) {
	e.Time, e.RecordedAt, e.Kind = e.Time.UTC(), e.RecordedAt.UTC(), events.Kind(kind)
	if len(extra) == 0 {
		return
	}
	e.Extra = make(map[string]json.RawMessage, len(extra))
	for name, value := range extra {
		e.Extra[name] = json.RawMessage(value)
	}
}
