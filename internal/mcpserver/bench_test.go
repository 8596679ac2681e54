package mcpserver_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/hindsight-memory/hindsight/internal/mcpserver"
	"github.com/hindsight-memory/hindsight/internal/recall"
)

var _ mcpserver.Recaller = (*recall.Service)(nil)

// From starting the proxy to having its tools, with no daemon: clients give up after ten seconds.
func BenchmarkStdioStart(b *testing.B) {
	for b.Loop() {
		client := mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1"}, nil)
		session, err := client.Connect(context.Background(), &mcp.CommandTransport{
			Command: program(b, roleStdio, endpointVariable+"=http://127.0.0.1:9/mcp"),
		}, nil)
		if err != nil {
			b.Fatal(err)
		}
		if list, err := session.ListTools(context.Background(), nil); err != nil || len(list.Tools) != 8 {
			b.Fatal(list, err)
		}
		if err := session.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// One question over HTTP, without what answering it takes.
func BenchmarkHTTPCall(b *testing.B) {
	server := httptest.NewServer(handler(b, &world{answer: answerWith("a", "b", "c", "d", "e")}, nil))
	defer server.Close()
	connections := &http.Transport{}
	defer connections.CloseIdleConnections()
	session := connect(b, &mcp.StreamableClientTransport{
		Endpoint: server.URL + mcpserver.Path, HTTPClient: &http.Client{Transport: bearer{"alpha-secret", connections}}, MaxRetries: -1,
	})
	defer func() { _ = session.Close() }()
	for b.Loop() {
		res, err := session.CallTool(context.Background(), &mcp.CallToolParams{Name: "memory_search", Arguments: map[string]any{"query": "x"}})
		if err != nil || res.IsError {
			b.Fatal(res, err)
		}
	}
}
