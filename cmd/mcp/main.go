// Command mcp serves the memory to agents by the Model Context Protocol: over streamable HTTP, or with --stdio as a thin
// proxy to the server that runs, so that many clients share one.
package main

import (
	"context"
	"io"
	"slices"

	"github.com/hindsight-memory/hindsight/cmd/internal/process"
	"github.com/hindsight-memory/hindsight/internal/config"
	"github.com/hindsight-memory/hindsight/internal/service"
)

func main() {
	process.Program{
		Name:    "mcp",
		Purpose: "Serves the memory to agents by MCP over HTTP (with --stdio: as a proxy for one client)",
		Example: "HINDSIGHT_NATS_URL=nats://nats:4222 HINDSIGHT_CLICKHOUSE_URL=http://clickhouse:8123 mcp",
		Door:    service.NewDoor,
		Alone: func(ctx context.Context, args []string, cfg *config.Config, stdin io.Reader, stdout, stderr io.Writer) (bool, error) {
			if !slices.Equal(args, []string{"--stdio"}) {
				return false, nil
			}
			return true, service.Stdio(ctx, cfg, stdin, stdout, stderr)
		},
	}.Main()
}
