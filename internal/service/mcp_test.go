package service_test

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/hindsight-memory/hindsight/internal/mcpserver"
	"github.com/hindsight-memory/hindsight/internal/memory"
	"github.com/hindsight-memory/hindsight/internal/service"
)

// serveDoor runs a door's listener until the test ends and returns its address.
func serveDoor(t *testing.T, env map[string]string) (*service.Door, string) {
	t.Helper()
	env["HINDSIGHT_MCP_PORT"] = strconv.Itoa(freePort(t))
	door := service.NewDoor(load(t, env), logger(t))
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- door.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the door ended with: %v", err)
		}
	})
	address := "http://127.0.0.1:" + env["HINDSIGHT_MCP_PORT"] + mcpserver.Path
	eventually(t, "an open door", func() bool {
		res, err := http.Get(address)
		if err != nil {
			return false
		}
		return res.Body.Close() == nil
	})
	return door, address
}

// enter connects a client to a door.
func enter(t *testing.T, address string) *mcp.ClientSession {
	t.Helper()
	connections := &http.Transport{}
	t.Cleanup(connections.CloseIdleConnections)
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	session, err := client.Connect(context.WithoutCancel(t.Context()), &mcp.StreamableClientTransport{
		Endpoint: address, HTTPClient: &http.Client{Transport: connections}, DisableStandaloneSSE: true,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	return session
}

// TestADoorIsOpenBeforeThereIsAnythingBehindIt greets a client while no server is there, and serves the same client once
// they are.
func TestADoorIsOpenBeforeThereIsAnythingBehindIt(t *testing.T) {
	t.Parallel()
	env := environment(t)
	door, address := serveDoor(t, env)
	session := enter(t, address)
	listed, err := session.ListTools(t.Context(), nil)
	if err != nil || len(listed.Tools) != 8 {
		t.Fatalf("tools before the servers: %+v, %v", listed, err)
	}
	question := &mcp.CallToolParams{Name: "memory_search", Arguments: map[string]any{"query": "anything"}}
	res, err := session.CallTool(t.Context(), question)
	if err != nil || !res.IsError || !strings.Contains(text(res), "try again") {
		t.Fatalf("a call before the servers: %v, %v", res, err)
	}
	if _, err := session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "memory://recent"}); err == nil {
		t.Error("a resource before the servers was read")
	}
	p := open(t, env, "one")
	run(t, p, door.Service)
	eventually(t, "an answer", func() bool {
		res, err := session.CallTool(t.Context(), question)
		return err == nil && !res.IsError
	})
	// Nobody keeps writes here: the writer is told that it is queued and not yet stored.
	res, err = session.CallTool(t.Context(), &mcp.CallToolParams{Name: "memory_write", Arguments: map[string]any{"content": "The export takes ISO dates"}})
	if err != nil || !res.IsError || !strings.Contains(text(res), "repeating it stores nothing twice") {
		t.Errorf("a write that nobody keeps: %v, %v", res, err)
	}
	run(t, p, service.Reflect)
	eventually(t, "the write", func() bool {
		held, err := p.Store.Memories(t.Context(), memory.ItemFilter{Namespace: "default"})
		return err == nil && len(held) == 1
	})
}

func text(res *mcp.CallToolResult) string {
	var b strings.Builder
	for _, c := range res.Content {
		if part, ok := c.(*mcp.TextContent); ok {
			b.WriteString(part.Text)
		}
	}
	return b.String()
}

// clock is one that a test turns.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time { c.mu.Lock(); defer c.mu.Unlock(); return c.now }

func (c *clock) pass(d time.Duration) { c.mu.Lock(); defer c.mu.Unlock(); c.now = c.now.Add(d) }

// TestARevokedTokenEndsWithinFifteenSeconds uses real tokens of the real record, by a clock that is turned.
func TestARevokedTokenEndsWithinFifteenSeconds(t *testing.T) {
	t.Parallel()
	p := open(t, environment(t), "one")
	now := &clock{now: time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)}
	door := service.NewAuthenticator(p.Store, now.Now)
	issue := func(secret string, expires *time.Time) string {
		hash := memory.TokenHash(secret)
		token := memory.AccessToken{TokenID: hash[:12], Hash: hash, Namespace: "acme", Scope: memory.ScopeWrite, CreatedAt: now.Now(), ExpiresAt: expires}
		if err := p.Store.InsertToken(t.Context(), token); err != nil {
			t.Fatal(err)
		}
		return token.TokenID
	}
	later := now.Now().Add(10 * time.Second)
	id, unused := issue("used", nil), issue("unused", nil)
	issue("short-lived", &later)
	for _, secret := range []string{"used", "short-lived"} {
		who, err := door.Authenticate(t.Context(), secret)
		if err != nil || who.Namespace != "acme" || who.Scope != mcpserver.ScopeWrite {
			t.Fatalf("%s: %+v, %v", secret, who, err)
		}
	}
	if _, err := door.Authenticate(t.Context(), "unknown"); !errors.Is(err, mcpserver.ErrToken) {
		t.Errorf("an unknown token: %v", err)
	}
	for _, revoked := range []string{id, unused} {
		if err := p.Store.RevokeToken(t.Context(), "acme", revoked); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := door.Authenticate(t.Context(), "unused"); !errors.Is(err, mcpserver.ErrToken) {
		t.Errorf("a token that was revoked before its first use: %v", err)
	}
	now.pass(10 * time.Second)
	if _, err := door.Authenticate(t.Context(), "short-lived"); !errors.Is(err, mcpserver.ErrToken) {
		t.Errorf("an expired token that was believed a moment ago: %v", err)
	}
	now.pass(5 * time.Second)
	if _, err := door.Authenticate(t.Context(), "used"); !errors.Is(err, mcpserver.ErrToken) {
		t.Errorf("15 s after it was revoked: %v", err)
	}
}
