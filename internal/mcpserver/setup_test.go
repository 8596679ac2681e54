package mcpserver_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/mcpserver"
	"github.com/hindsight-memory/hindsight/internal/memory"
	"github.com/hindsight-memory/hindsight/internal/recall"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(playRole(role))
	}
	goleak.VerifyTestMain(m)
}

// world stands behind the protocol in these tests, whose point is the protocol itself. It keeps what it is asked, gives
// what it is told to, and remembers writes by namespace; the record is tested with the store.
type world struct {
	memory.ItemReader

	mu        sync.Mutex
	err       error
	answer    recall.Answer
	questions []recall.Question
	actions   []recall.Action
	ruled     []recall.Asker
	events    []events.Event
	memories  []memory.Memory
	snapshots []memory.Snapshot
	rules     []memory.Rule
	summaries []memory.Summary
	working   map[string]string
	panics    bool
}

func (w *world) serve() error {
	if w.panics {
		panic("a fault in a port")
	}
	return w.err
}

func (w *world) Recall(_ context.Context, q recall.Question) (recall.Answer, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.questions = append(w.questions, q)
	if err := w.serve(); err != nil {
		return recall.Answer{}, err
	}
	return w.answer, nil
}

func (w *world) Check(_ context.Context, a recall.Action) (recall.Answer, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.actions = append(w.actions, a)
	if err := w.serve(); err != nil {
		return recall.Answer{}, err
	}
	return w.answer, nil
}

func (w *world) Rules(_ context.Context, _, _ string, _ time.Time, asker recall.Asker) (recall.Answer, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ruled = append(w.ruled, asker)
	if err := w.serve(); err != nil {
		return recall.Answer{}, err
	}
	return w.answer, nil
}

func (w *world) Write(_ context.Context, e events.Event) (mcpserver.Written, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.serve(); err != nil {
		return mcpserver.Written{}, err
	}
	w.events = append(w.events, e)
	switch e.Kind {
	case events.KindItemWritten:
		written, err := events.DecodeData[events.ItemWritten](e)
		if err != nil {
			return mcpserver.Written{}, err
		}
		id := memory.WrittenID(e.Namespace, written.Content+string(written.Snapshot))
		if written.Content != "" {
			w.memories = append(w.memories, memory.Memory{
				MemoryID: id, Namespace: e.Namespace, Timestamp: e.Time, Content: written.Content, Entity: written.Entity, Value: written.Value,
				MemoryType: memory.MemoryType(written.MemoryType), Operation: memory.Operation(written.Operation),
				Judged: memory.Judged{Evidence: []string{e.ID}, Trust: memory.TrustAgentInferred, Status: memory.ItemActive},
			})
		}
		return mcpserver.Written{ItemID: id, Status: "stored"}, nil
	case events.KindItemChanged:
		changed, err := events.DecodeData[events.ItemChanged](e)
		if err != nil {
			return mcpserver.Written{}, err
		}
		for n := range w.memories {
			if m := &w.memories[n]; m.MemoryID == changed.ItemID && m.Namespace == e.Namespace {
				if changed.Change == events.ChangeForget {
					m.Status = memory.ItemForgotten
				}
				return mcpserver.Written{ItemID: m.MemoryID}, nil
			}
		}
		return mcpserver.Written{}, memory.ErrNotFound
	default:
		return mcpserver.Written{}, nil
	}
}

func (w *world) Memories(_ context.Context, f memory.ItemFilter) ([]memory.Memory, error) {
	return chosen(w, &w.memories, f, func(m memory.Memory) (string, string, memory.ItemStatus, bool) {
		return m.Namespace, m.MemoryID, m.Status, f.Entity == "" || f.Entity == m.Entity
	})
}

func (w *world) Snapshots(_ context.Context, f memory.ItemFilter) ([]memory.Snapshot, error) {
	return chosen(w, &w.snapshots, f, func(n memory.Snapshot) (string, string, memory.ItemStatus, bool) {
		return n.Namespace, n.SnapshotID, n.Status, true
	})
}

func (w *world) Rules_(_ context.Context, f memory.ItemFilter) ([]memory.Rule, error) {
	return chosen(w, &w.rules, f, func(r memory.Rule) (string, string, memory.ItemStatus, bool) {
		return r.Namespace, r.RuleID, r.Status, true
	})
}

func (w *world) Summaries(_ context.Context, f memory.ItemFilter) ([]memory.Summary, error) {
	return chosen(w, &w.summaries, f, func(s memory.Summary) (string, string, memory.ItemStatus, bool) {
		return s.Namespace, s.SessionID, s.Status, f.SessionID == "" || f.SessionID == s.SessionID
	})
}

func chosen[T any](w *world, all *[]T, f memory.ItemFilter, of func(T) (namespace, id string, status memory.ItemStatus, fits bool)) ([]T, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.serve(); err != nil {
		return nil, err
	}
	var out []T
	for _, v := range *all {
		namespace, id, status, fits := of(v)
		if fits && namespace == f.Namespace && (len(f.IDs) == 0 || slices.Contains(f.IDs, id)) && (len(f.Statuses) == 0 || slices.Contains(f.Statuses, status)) {
			out = append(out, v)
		}
	}
	if f.Newest {
		slices.Reverse(out)
	}
	if f.Limit > 0 {
		out = out[:min(len(out), f.Limit)]
	}
	return out, nil
}

func (w *world) Relations(context.Context, string, []string) ([]memory.Relation, error) {
	return []memory.Relation{{FromID: "a", Kind: memory.RelationSupersedes, ToID: "b", Weight: 0.5}}, w.err
}

func (w *world) Uses(_ context.Context, _ string, ids []string) (map[string]memory.ItemUse, error) {
	return map[string]memory.ItemUse{ids[0]: {Hits: 3, Helpful: 1, VersionNum: 2, FirstSeen: longAgo()}}, w.err
}

func (w *world) Working(_ context.Context, namespace, taskID string) ([]byte, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.serve(); err != nil {
		return nil, err
	}
	text, ok := w.working[namespace+"/"+taskID]
	if !ok {
		return nil, memory.ErrNotFound
	}
	return []byte(text), nil
}

// itemsOf gives the world as an ItemReader, whose Rules is another than the Recaller's.
type itemsOf struct{ *world }

func (i itemsOf) Rules(ctx context.Context, f memory.ItemFilter) ([]memory.Rule, error) {
	return i.Rules_(ctx, f)
}

func longAgo() time.Time { return time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC) }

// options wires a world.
func (w *world) options() mcpserver.Options {
	return mcpserver.Options{
		Recaller: w, Writer: w, Items: itemsOf{w}, Working: w, Logger: slog.New(slog.DiscardHandler), Version: "1.2.3",
	}
}

func newServer(tb testing.TB, w *world) *mcpserver.Server {
	tb.Helper()
	s, err := mcpserver.New(w.options())
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func admin() mcpserver.Identity {
	return mcpserver.Identity{TokenID: "token-1", Namespace: "acme.ops", Scope: mcpserver.ScopeAdmin}
}

// inMemory connects a client to a server for one caller.
func inMemory(t *testing.T, s *mcpserver.Server, set mcpserver.Toolset, who mcpserver.Identity) *mcp.ClientSession {
	t.Helper()
	near, far := mcp.NewInMemoryTransports()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, far, set, who) }()
	session := connect(t, near)
	t.Cleanup(func() {
		_ = session.Close()
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, io.EOF) {
			t.Errorf("the session ended with %v", err)
		}
	})
	return session
}

func connect(tb testing.TB, transport mcp.Transport) *mcp.ClientSession {
	tb.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	session, err := client.Connect(context.WithoutCancel(tb.Context()), transport, nil)
	if err != nil {
		tb.Fatalf("connect: %v", err)
	}
	return session
}

// called calls a tool and returns both halves of the result, which must be the same.
func called(t *testing.T, session *mcp.ClientSession, tool string, arguments any) (map[string]any, *mcp.CallToolResult) {
	t.Helper()
	res, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: arguments})
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	var text any
	if err := json.Unmarshal([]byte(textOf(t, res)), &text); err != nil {
		t.Fatalf("%s: the text is not JSON: %v\n%s", tool, err, textOf(t, res))
	}
	if !reflect.DeepEqual(text, res.StructuredContent) {
		t.Errorf("%s: the halves differ:\n%v\n%v", tool, text, res.StructuredContent)
	}
	fields, ok := text.(map[string]any)
	if !ok {
		t.Fatalf("%s: the result is no object: %v", tool, text)
	}
	return fields, res
}

// served calls a tool that must succeed.
func served(t *testing.T, session *mcp.ClientSession, tool string, arguments any) map[string]any {
	t.Helper()
	fields, res := called(t, session, tool, arguments)
	if res.IsError {
		t.Fatalf("%s failed: %v", tool, fields)
	}
	return fields
}

// refused calls a tool that must fail with an error result of a kind.
func refused(t *testing.T, session *mcp.ClientSession, tool string, arguments any, kind string) string {
	t.Helper()
	fields, res := called(t, session, tool, arguments)
	failure, _ := fields["error"].(map[string]any)
	if !res.IsError || failure["kind"] != kind {
		t.Fatalf("%s(%v): got %v, want an error result of kind %s", tool, arguments, fields, kind)
	}
	return fmt.Sprint(failure["message"])
}

func textOf(t *testing.T, res *mcp.CallToolResult) string {
	t.Helper()
	if len(res.Content) != 1 {
		t.Fatalf("%d contents, want 1", len(res.Content))
	}
	text, ok := res.Content[0].(*mcp.TextContent)
	if !ok {
		t.Fatalf("content is %T", res.Content[0])
	}
	return text.Text
}

// answerWith is an answer of some items.
func answerWith(texts ...string) recall.Answer {
	a := recall.Answer{RecallID: "recall-1", Way: recall.WayExperience}
	for n, text := range texts {
		a.Items = append(a.Items, recall.Item{
			ID: fmt.Sprintf("item-%d", n), Layer: memory.LayerSnapshot, TaskType: "refund", Text: text, Lesson: "look first", Score: 0.91234, Similarity: 0.8,
			Trust: memory.TrustAgentInferred, Confidence: 0.6, Importance: 0.5, Seen: 2, CreatedAt: longAgo().Add(-time.Duration(n) * time.Hour),
			Parts: map[string]float64{"similarity": 0.4, "recency": 0.1},
		})
	}
	return a
}

func contains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is missing in:\n%s", part, text)
		}
	}
}
