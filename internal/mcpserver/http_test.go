package mcpserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/hindsight-memory/hindsight/internal/mcpserver"
	"github.com/hindsight-memory/hindsight/internal/memory"
)

// tokenTable knows tokens by secret.
type tokenTable struct {
	known map[string]mcpserver.Identity
	err   error
}

func (a tokenTable) Authenticate(_ context.Context, secret string) (mcpserver.Identity, error) {
	if a.err != nil {
		return mcpserver.Identity{}, a.err
	}
	who, ok := a.known[secret]
	if !ok {
		return mcpserver.Identity{}, mcpserver.ErrToken
	}
	return who, nil
}

func twoTenants() tokenTable {
	return tokenTable{known: map[string]mcpserver.Identity{
		"alpha-secret":  {TokenID: "a", Namespace: "alpha", Scope: mcpserver.ScopeWrite},
		"beta-secret":   {TokenID: "b", Namespace: "beta", Scope: mcpserver.ScopeWrite},
		"reader-secret": {TokenID: "r", Namespace: "alpha", Scope: mcpserver.ScopeRead},
	}}
}

// daemon serves a world over HTTP on loopback.
func daemon(t *testing.T, w *world, change func(*mcpserver.HTTPOptions)) string {
	t.Helper()
	server := httptest.NewServer(handler(t, w, change))
	t.Cleanup(server.Close)
	return server.URL + mcpserver.Path
}

func handler(tb testing.TB, w *world, change func(*mcpserver.HTTPOptions)) http.Handler {
	tb.Helper()
	o := mcpserver.HTTPOptions{Server: newServer(tb, w), Logger: slog.New(slog.DiscardHandler), Authenticator: twoTenants()}
	if change != nil {
		change(&o)
	}
	h, err := mcpserver.NewHTTPHandler(o)
	if err != nil {
		tb.Fatal(err)
	}
	return h
}

type bearer struct {
	secret string
	next   http.RoundTripper
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.secret)
	return b.next.RoundTrip(r)
}

func overHTTP(t *testing.T, url, secret string) *mcp.ClientSession {
	t.Helper()
	connections := &http.Transport{}
	session := connect(t, &mcp.StreamableClientTransport{
		Endpoint: url, HTTPClient: &http.Client{Transport: bearer{secret, connections}}, MaxRetries: -1,
	})
	t.Cleanup(func() {
		_ = session.Close()
		connections.CloseIdleConnections()
	})
	return session
}

// reply is what a test looks at of an HTTP answer, beside its body.
type reply struct {
	StatusCode int
	Header     http.Header
}

// post sends one request as it is.
func post(t *testing.T, url, body string, header map[string]string) (reply, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for name, value := range header {
		if name == "Host" {
			req.Host = value
			continue
		}
		req.Header.Set(name, value)
	}
	connections := &http.Transport{}
	defer connections.CloseIdleConnections()
	resp, err := (&http.Client{Transport: connections}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header}, string(raw)
}

func callOf(tool, arguments string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, tool, arguments)
}

const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":%q,"capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`

func TestHTTPServesTheNewAndTheOldProtocol(t *testing.T) {
	t.Parallel()
	url := daemon(t, &world{answer: answerWith("a lesson")}, nil)
	session := overHTTP(t, url, "alpha-secret")
	if got := session.InitializeResult().ProtocolVersion; got != "2026-07-28" {
		t.Errorf("the newest client speaks %s", got)
	}
	served(t, session, "retrieve_similar", map[string]any{"current_context": "x"})

	token := map[string]string{"Authorization": "Bearer alpha-secret"}
	for _, version := range []string{"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"} {
		resp, body := post(t, url, fmt.Sprintf(initialize, version), token)
		if resp.StatusCode != http.StatusOK || !strings.Contains(body, `"protocolVersion":"`+version+`"`) {
			t.Errorf("%s: %d %s", version, resp.StatusCode, body)
		}
		with := map[string]string{"Authorization": token["Authorization"], "MCP-Protocol-Version": version}
		if resp, body = post(t, url, callOf("retrieve_similar", `{"current_context":"x"}`), with); resp.StatusCode != http.StatusOK || !strings.Contains(body, "structuredContent") {
			t.Errorf("%s: %d %s", version, resp.StatusCode, body)
		}
	}
}

func TestHTTPRefusesStrangers(t *testing.T) {
	t.Parallel()
	w := &world{}
	url := daemon(t, w, nil)
	open := daemon(t, w, func(o *mcpserver.HTTPOptions) {
		o.Anonymous = &mcpserver.Identity{Namespace: "local", Scope: mcpserver.ScopeWrite}
		o.TrustedOrigins = []string{"http://localhost:6274"}
	})
	down := daemon(t, w, func(o *mcpserver.HTTPOptions) { o.Authenticator = tokenTable{err: memory.ErrUnavailable} })
	ask := callOf("retrieve_similar", `{"current_context":"x"}`)
	for _, c := range []struct {
		name, url, body string
		header          map[string]string
		status          int
		answer          map[string]string
	}{
		{"no token", url, ask, nil, 401, map[string]string{"WWW-Authenticate": "Bearer"}},
		{"wrong token", url, ask, map[string]string{"Authorization": "Bearer nope"}, 401, map[string]string{"WWW-Authenticate": "invalid_token"}},
		{"other scheme", url, ask, map[string]string{"Authorization": "Basic alpha-secret"}, 401, map[string]string{"WWW-Authenticate": "Bearer"}},
		{"bare secret", url, ask, map[string]string{"Authorization": "alpha-secret"}, 401, nil},
		{"wrong token where none is needed", open, ask, map[string]string{"Authorization": "Bearer nope"}, 401, nil},
		{"none needed", open, ask, nil, 200, nil},
		{"tokens cannot be checked", down, ask, map[string]string{"Authorization": "Bearer alpha-secret"}, 503, map[string]string{"Retry-After": "2"}},
		{"foreign page", open, ask, map[string]string{"Origin": "https://evil.example"}, 403, nil},
		{"foreign page by fetch", open, ask, map[string]string{"Sec-Fetch-Site": "cross-site"}, 403, nil},
		{"trusted page", open, ask, map[string]string{"Origin": "http://localhost:6274"}, 200, nil},
		{"foreign name", open, ask, map[string]string{"Host": "evil.example"}, 403, nil},
		{"too large", url, `{"x":"` + strings.Repeat("a", 1<<20) + `"}`, map[string]string{"Authorization": "Bearer alpha-secret"}, 413, nil},
		{"unknown toolset", open + "?toolset=all", ask, nil, 400, nil},
		{"other toolset", open + "?toolset=compat", callOf("recall_memory", `{"query":"x"}`), nil, 200, nil},
		{"no JSON", open, `{`, nil, 400, nil},
	} {
		resp, body := post(t, c.url, c.body, c.header)
		if resp.StatusCode != c.status {
			t.Errorf("%s: %d %s, want %d", c.name, resp.StatusCode, body, c.status)
		}
		for name, part := range c.answer {
			if !strings.Contains(resp.Header.Get(name), part) {
				t.Errorf("%s: %s is %q, want %q", c.name, name, resp.Header.Get(name), part)
			}
		}
	}
	for _, q := range w.questions {
		if q.Namespace != "local" {
			t.Errorf("a stranger asked %+v", q)
		}
	}
}

func TestHTTPKeepsNamespacesApart(t *testing.T) {
	t.Parallel()
	w := &world{}
	url := daemon(t, w, nil)
	alpha, beta := overHTTP(t, url+"?toolset=full", "alpha-secret"), overHTTP(t, url+"?toolset=full", "beta-secret")
	written := served(t, alpha, "memory_write", map[string]any{"key": "region", "value": "eu-west", "namespace": "beta"})
	id, _ := written["memory_id"].(string)
	served(t, alpha, "explain", map[string]any{"item_id": id})
	refused(t, beta, "explain", map[string]any{"item_id": id, "namespace": "alpha"}, "not_found")
	refused(t, beta, "memory_forget", map[string]any{"memory_id": id}, "not_found")
	if got := served(t, beta, "memory_history", map[string]any{"entity": "region"}); len(got["items"].([]any)) != 0 {
		t.Errorf("beta sees %v", got)
	}
	if _, err := beta.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "memory://item/" + id}); err == nil {
		t.Error("beta reads alpha's item")
	}
	for _, e := range w.events {
		if e.Namespace != map[string]string{"a": "alpha", "b": "beta"}[e.AgentID] {
			t.Errorf("%s wrote to %s", e.AgentID, e.Namespace)
		}
	}
}

func TestHTTPKeepsToScopes(t *testing.T) {
	t.Parallel()
	w := &world{}
	reader := overHTTP(t, daemon(t, w, nil), "reader-secret")
	served(t, reader, "memory_search", map[string]any{"query": "x"})
	for tool, arguments := range map[string]any{
		"memory_write":    map[string]any{"content": "x"},
		"memory_forget":   map[string]any{"memory_id": "x"},
		"memory_feedback": map[string]any{"item_id": "x", "helpful": true},
		"store_snapshot":  map[string]any{},
	} {
		contains(t, refused(t, reader, tool, arguments, "not_allowed"), "write", "read")
	}
	if len(w.events) != 0 {
		t.Errorf("a reader wrote %v", w.events)
	}
}

func TestHTTPBudgets(t *testing.T) {
	t.Parallel()
	w := &world{}
	url := daemon(t, w, func(o *mcpserver.HTTPOptions) {
		o.ReadsPerSecond, o.ReadBurst, o.WritesPerSecond, o.WriteBurst = 0.001, 4, 0.001, 2
	})
	write, read := callOf("memory_write", `{"content":"x"}`), callOf("memory_search", `{"query":"x"}`)
	alpha, beta := map[string]string{"Authorization": "Bearer alpha-secret"}, map[string]string{"Authorization": "Bearer beta-secret"}
	var got []int
	for _, body := range []string{write, write, write, read, read, read} {
		resp, _ := post(t, url, body, alpha)
		got = append(got, resp.StatusCode)
		if resp.StatusCode == http.StatusTooManyRequests && resp.Header.Get("Retry-After") == "" {
			t.Error("429 without Retry-After")
		}
	}
	// The third write is over its budget and costs nothing, so that two reads are left.
	if fmt.Sprint(got) != "[200 200 429 200 200 429]" {
		t.Errorf("statuses %v", got)
	}
	if resp, _ := post(t, url, write, beta); resp.StatusCode != http.StatusOK {
		t.Errorf("another token pays too: %d", resp.StatusCode)
	}
	batch := "[" + write + "," + write + "," + write + "]"
	if resp, _ := post(t, url, batch, beta); resp.StatusCode != http.StatusTooManyRequests {
		t.Errorf("a batch goes round the budget: %d", resp.StatusCode)
	}
}

func TestHTTPWithoutSessionsOrStreams(t *testing.T) {
	t.Parallel()
	url := daemon(t, &world{}, nil)
	resp, _ := post(t, url, fmt.Sprintf(initialize, "2025-06-18"), map[string]string{"Authorization": "Bearer alpha-secret"})
	if id := resp.Header.Get("Mcp-Session-Id"); id != "" {
		t.Errorf("a session %q is held", id)
	}
	resp, body := post(t, url, `{"jsonrpc":"2.0","id":7,"method":"tools/list"}`, map[string]string{"Authorization": "Bearer alpha-secret"})
	if !json.Valid([]byte(body)) || !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") {
		t.Errorf("%s: %s", resp.Header.Get("Content-Type"), body)
	}
}

func TestHTTPOptionsAreChecked(t *testing.T) {
	t.Parallel()
	s, logger := newServer(t, &world{}), slog.New(slog.DiscardHandler)
	for name, o := range map[string]mcpserver.HTTPOptions{
		"nobody could call": {Server: s, Logger: logger},
		"no server":         {Logger: logger, Authenticator: twoTenants()},
		"negative rate":     {Server: s, Logger: logger, Authenticator: twoTenants(), WriteBurst: -1},
		"toolset":           {Server: s, Logger: logger, Authenticator: twoTenants(), Toolset: "all"},
		"origin":            {Server: s, Logger: logger, Authenticator: twoTenants(), TrustedOrigins: []string{"localhost"}},
	} {
		if _, err := mcpserver.NewHTTPHandler(o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
