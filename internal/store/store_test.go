package store_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/engine/enginetest"
	"github.com/hindsight-memory/hindsight/internal/memory"
	"github.com/hindsight-memory/hindsight/internal/store"
)

func TestOpenChecksOptions(t *testing.T) {
	t.Parallel()
	for _, opts := range []store.Options{
		{},
		{URL: "127.0.0.1:8123"},
		{URL: "ftp://127.0.0.1:8123"},
		{URL: "http://"},
		{URL: "http://127.0.0.1:8123", Database: "a b"},
		{URL: "http://127.0.0.1:8123/9lives"},
		{URL: "http://127.0.0.1:8123", Timeout: -1},
		{URL: "http://user:topsecret@127.0.0.1:port"},
		{URL: "https://user:topsecret@127.0.0.1:8443/x?dial_timeout=soon"},
	} {
		_, err := store.Open(opts)
		if !errors.Is(err, store.ErrOptions) {
			t.Errorf("Open(%+v) = %v, want ErrOptions", opts, err)
		} else if strings.Contains(err.Error(), "topsecret") {
			t.Errorf("the error shows the password: %v", err)
		}
	}
	for _, test := range []struct{ url, database, want string }{
		{"http://127.0.0.1:8123", "", store.DefaultDatabase},
		{"http://127.0.0.1:8123/other", "", "other"},
		{"https://u:p@127.0.0.1:8443/other?dial_timeout=1s", "mine", "mine"},
		{"clickhouse://u:p@one:9000,two:9000/other", "", "other"},
		{"tcp://one:9000", "", store.DefaultDatabase},
	} {
		c, err := store.Open(store.Options{URL: test.url, Database: test.database})
		if err != nil {
			t.Errorf("Open(%s): %v", test.url, err)
			continue
		}
		if c.Database() != test.want {
			t.Errorf("Open(%s) uses database %q, want %q", test.url, c.Database(), test.want)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestAServerThatIsAwayIsUnavailable(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"http://127.0.0.1:1", "clickhouse://127.0.0.1:1"} {
		c := open(t, url, "")
		e := events.Event{ID: "a", Namespace: "t", TaskID: "t", Time: time.Unix(1, 0), Kind: events.KindMessage}
		if err := c.InsertEvents(t.Context(), []events.Event{e}); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%s: InsertEvents = %v, want ErrUnavailable", url, err)
		}
		if _, err := c.Health(t.Context(), ""); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%s: Health = %v, want ErrUnavailable", url, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		err := c.WaitReady(ctx, nil)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: WaitReady = %v, want the end of its context", url, err)
		}
	}
}

// TestAnswersAreTranslated lets a server give the answers that a real one gives under pressure.
func TestAnswersAreTranslated(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		status int
		body   string
		want   []error
		not    error
	}{
		{"too many parts", 500, "Code: 252. DB::Exception: Too many parts (3000). (TOO_MANY_PARTS)", []error{store.ErrUnavailable}, store.ErrRejected},
		{"memory", 500, "Code: 241. DB::Exception: Memory limit (total) exceeded. (MEMORY_LIMIT_EXCEEDED)", []error{store.ErrUnavailable}, store.ErrRejected},
		{"too many queries", 500, "Code: 202. DB::Exception: Too many simultaneous queries. (TOO_MANY_SIMULTANEOUS_QUERIES)", []error{store.ErrUnavailable}, store.ErrRejected},
		{"gateway", 502, "<html>bad gateway</html>", []error{store.ErrUnavailable}, store.ErrRejected},
		{"unknown code", 500, "Code: 9999. DB::Exception: What is this", []error{store.ErrUnavailable}, store.ErrRejected},
		{"password", 403, "Code: 516. DB::Exception: hindsight: Authentication failed (AUTHENTICATION_FAILED)", []error{store.ErrUnavailable, store.ErrDenied}, store.ErrRejected},
		{"type", 400, "Code: 53. DB::Exception: Type mismatch (TYPE_MISMATCH)", []error{store.ErrRejected}, store.ErrUnavailable},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if code, found := strings.CutPrefix(test.body, "Code: "); found {
					code, _, _ = strings.Cut(code, ".")
					w.Header().Set("X-ClickHouse-Exception-Code", code)
				}
				w.WriteHeader(test.status)
				_, _ = w.Write([]byte(test.body))
			}))
			t.Cleanup(server.Close)
			c := open(t, server.URL, "")
			e := events.Event{ID: "a", Namespace: "t", TaskID: "t", Time: time.Unix(1, 0), Kind: events.KindMessage}
			err := c.InsertEvents(t.Context(), []events.Event{e})
			for _, want := range test.want {
				if !errors.Is(err, want) {
					t.Errorf("InsertEvents = %v, want %v", err, want)
				}
			}
			if errors.Is(err, test.not) {
				t.Errorf("InsertEvents = %v, which is %v too", err, test.not)
			}
		})
	}
}

// TestReadsOfTasksAreBounded: tasks may be of any size, and there may be any number of them.
func TestReadsOfTasksAreBounded(t *testing.T) {
	t.Parallel()
	c := migrated(t)
	var evs []events.Event
	var keys []memory.TaskKey
	for n := range 30 {
		key := memory.TaskKey{Namespace: "t", TaskID: fmt.Sprintf("task%02d", n)}
		keys = append(keys, key)
		for step := range 5 {
			size := 2000
			if n == 7 {
				size = 20_000
			}
			evs = append(evs, events.Event{
				ID: fmt.Sprint(key.TaskID, "/", step), Namespace: "t", TaskID: key.TaskID, Kind: events.KindMessage,
				Time: time.Unix(int64(1000+n), 0).UTC(), Data: json.RawMessage(`{"role":"user","content":"` + strings.Repeat("x", size) + `"}`),
			})
		}
	}
	for range 3 { // Copies are not kept in memory and do not count.
		if err := c.InsertEvents(t.Context(), evs); err != nil {
			t.Fatal(err)
		}
	}
	c.SetMaxRead(50_000)
	if got, err := c.TaskEvents(t.Context(), keys); !errors.Is(err, memory.ErrTooMuch) || got != nil {
		t.Errorf("TaskEvents of all = %d tasks, %v, want ErrTooMuch", len(got), err)
	}
	if got, err := c.TaskEvents(t.Context(), keys[:3]); err != nil || len(got) != 3 {
		t.Errorf("TaskEvents of three = %d tasks, %v", len(got), err)
	}
	if got, err := c.TaskEvents(t.Context(), keys[7:8]); err != nil || len(got[keys[7]]) != 5 {
		t.Errorf("TaskEvents of a large one alone = %d events, %v", len(got[keys[7]]), err)
	}
	for _, limit := range []int{0, 25} {
		var got []memory.TaskKey
		for task, err := range c.Tasks(t.Context(), memory.TaskFilter{Limit: limit}) {
			if err != nil {
				t.Fatal(err)
			}
			if task.Events != 5 {
				t.Errorf("%s has %d events", task.TaskID, task.Events)
			}
			got = append(got, memory.TaskKey{Namespace: task.Namespace, TaskID: task.TaskID})
		}
		want := keys
		if limit > 0 {
			want = keys[:limit]
		}
		if !slices.Equal(got, want) {
			t.Errorf("Tasks with limit %d = %v", limit, got)
		}
	}
}

// TestATableThatDiffersIsNoFaultOfARow: rows that the driver can't put into the table as it is must wait for a person.
func TestATableThatDiffersIsNoFaultOfARow(t *testing.T) {
	t.Parallel()
	url := enginetest.ClickHouse(t)
	database := enginetest.Database(t, url)
	c := open(t, url, database)
	if err := c.Migrate(t.Context(), store.MigrateOptions{}); err != nil {
		t.Fatal(err)
	}
	enginetest.Exec(t, url, "ALTER TABLE "+database+".trace_events DROP COLUMN turn")
	enginetest.Exec(t, url, "ALTER TABLE "+database+".trace_events ADD COLUMN turn UUID")
	e := events.Event{ID: "a", Namespace: "t", TaskID: "t", Time: time.Unix(1, 0), Kind: events.KindMessage}
	err := c.InsertEvents(t.Context(), []events.Event{e})
	if !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrRejected) || !strings.Contains(err.Error(), "turn") {
		t.Errorf("InsertEvents = %v, want ErrUnavailable that names the column", err)
	}
}

func TestWaitReadyGivesUpWhenAccessIsDenied(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-ClickHouse-Exception-Code", "516")
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte("Code: 516. DB::Exception: default: Authentication failed"))
	}))
	t.Cleanup(server.Close)
	if err := open(t, server.URL, "").WaitReady(t.Context(), nil); !errors.Is(err, store.ErrDenied) {
		t.Errorf("WaitReady = %v, want ErrDenied", err)
	}
}

func TestWaitReadyWaitsForTheServer(t *testing.T) {
	t.Parallel()
	proxy := newSilentProxy(t, enginetest.ClickHouse(t))
	proxy.silent.Store(true)
	c := open(t, proxy.URL, "")
	done := make(chan error, 1)
	go func() { done <- c.WaitReady(t.Context(), nil) }()
	select {
	case err := <-done:
		t.Fatalf("WaitReady = %v before the server was there", err)
	case <-time.After(200 * time.Millisecond):
	}
	proxy.silent.Store(false)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestABodyPastItsTimeToLive is what TTL leaves of an event: the columns.
func TestABodyPastItsTimeToLive(t *testing.T) {
	t.Parallel()
	url := enginetest.ClickHouse(t)
	database := enginetest.Database(t, url)
	c := open(t, url, database)
	if err := c.Migrate(t.Context(), store.MigrateOptions{}); err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	evs := []events.Event{
		{ID: "1", Kind: events.KindTaskStarted, Data: json.RawMessage(`{"task_type":"refund","goal":"refund it","parent_task_id":"p","input_summary":"gone"}`)},
		{ID: "2", Kind: events.KindMessage, Data: json.RawMessage(`{"role":"user","content":"gone","turn":4}`)},
		{ID: "3", Kind: events.KindStepFinished, Data: json.RawMessage(`{"step":1,"tool":"pay","status":"failure","error_type":"E","error_message":"` + strings.Repeat("é", 3000) + `","execution_time_ms":5,"call_id":"c"}`)},
		{ID: "4", Kind: events.KindFeedback, Data: json.RawMessage(`{"kind":"correction","target":"x"}`)},
		{ID: "5", Kind: events.KindTaskFinished, Data: json.RawMessage(`{"status":"partial","score":0.25,"reason":"half","confirmed_by":"user"}`)},
		{ID: "6", Kind: "dream", Data: json.RawMessage(`{"x":1}`)},
	}
	for i := range evs {
		evs[i].Namespace, evs[i].TaskID, evs[i].Time = "t", "a", at.Add(time.Duration(i)*time.Second)
	}
	if err := c.InsertEvents(t.Context(), evs); err != nil {
		t.Fatal(err)
	}
	before := memory.BuildTask(evs, false)
	if err := c.InsertTasks(t.Context(), []memory.Task{before}); err != nil {
		t.Fatal(err)
	}
	enginetest.Exec(t, url, "ALTER TABLE "+database+".trace_events UPDATE data = '' WHERE true SETTINGS mutations_sync = 1")
	after, err := c.Task(t.Context(), memory.TaskKey{Namespace: "t", TaskID: "a"})
	if err != nil {
		t.Fatal(err)
	}
	message := after.Steps[0].ErrorMessage
	if !utf8.ValidString(message) || len(message) < 1900 || len(message) > 2000 {
		t.Errorf("the error message was cut to %d bytes, valid %v", len(message), utf8.ValidString(message))
	}
	before.Steps[0].ErrorMessage = message
	if got, want := fmt.Sprintf("%+v", withoutScore(after)), fmt.Sprintf("%+v", withoutScore(before)); got != want {
		t.Errorf("the task changed\ngot  %s\nwant %s", got, want)
	}
	if *after.Score != 0.25 {
		t.Errorf("score %v", *after.Score)
	}
}

func withoutScore(t memory.Task) memory.Task {
	t.Score = nil
	t.AvailableTools = nil
	return t
}

// FuzzEventRoundTrip stores whatever comes and wants the same bytes back.
func FuzzEventRoundTrip(f *testing.F) {
	f.Add("id", "task", "s", "message", `{"role":"user","content":"退款 🧾"}`, "later", `{"a":[1]}`, int64(1_700_000_000_123), int64(7))
	f.Add("\x00\xff'\\", "`?`", "\u2028", "step_finished", `{"tool":"a","status":"failure","error_message":"\u0000\ud83d"}`, "", `null`, int64(0), int64(-1))
	f.Add("x", "y", "", "task_finished", `{"status":"success","score":1e308}`, "a.b", `1.50`, int64(9_214_646_399_999), int64(1<<62))
	f.Add("x", "y", "", "feedback", `{"kind":"rating","value":true}`, "z", `"z"`, int64(951_782_400_000), int64(0))
	f.Add("x", "y", "", "recall_served", `{"items":[{"id":"a","score":"x"},7,null],"as_of":"never","withheld":1}`, "z", `"z"`, int64(1), int64(0))
	url := enginetest.ClickHouse(f)
	c, err := store.Open(store.Options{URL: url, Database: enginetest.Database(f, url)})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = c.Close() })
	if err := c.Migrate(context.Background(), store.MigrateOptions{}); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, id, task, session, kind, data, extra, value string, ms, seq int64) {
		// A namespace of its own keeps earlier inputs out.
		key := memory.TaskKey{Namespace: rand.Text(), TaskID: task}
		e := events.Event{
			ID: id, Namespace: key.Namespace, AgentID: session, SessionID: session, UserID: session, TaskID: task, GoalID: session, Seq: seq,
			Time: time.UnixMilli(ms).UTC(), Kind: events.Kind(kind), Data: json.RawMessage(data),
			Extra: map[string]json.RawMessage{extra: json.RawMessage(value)},
		}
		err := c.InsertEvents(t.Context(), []events.Event{e})
		if id == "" || task == "" || ms < 0 || e.Time.Year() > 2261 {
			if !errors.Is(err, store.ErrRejected) {
				t.Fatalf("InsertEvents = %v, want ErrRejected", err)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.TaskEvents(t.Context(), []memory.TaskKey{key})
		if err != nil || len(got[key]) != 1 {
			t.Fatalf("TaskEvents = %d events, %v, want one", len(got[key]), err)
		}
		if data == "" {
			e.Data = json.RawMessage("{}")
		}
		if !reflect.DeepEqual(got[key][0].Event, e) {
			t.Fatalf("got  %+v\nwant %+v", got[key][0].Event, e)
		}
		for task, err := range c.Tasks(t.Context(), memory.TaskFilter{Namespace: key.Namespace}) {
			if err != nil || task.Events != 1 {
				t.Fatalf("Tasks = %+v, %v", task, err)
			}
		}
	})
}
