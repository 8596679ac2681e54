package evaluate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/hindsight-memory/hindsight/internal/store"
)

// ProductOptions say how a suite that starts the program starts it. Executable and Logger are required.
type ProductOptions struct {
	// Executable is the program itself.
	Executable string
	// Embedder is the setting HINDSIGHT_EMBEDDER of the measured program; empty means local.
	Embedder string
	// Vectors is the setting HINDSIGHT_EMBEDDING_CACHE: the folder in which vectors are kept for the next run.
	Vectors string
	// Logger is told how far it is.
	Logger *slog.Logger
}

// measured is a program that was started for a suite, with its record.
type measured struct {
	*program
	mcpURL string
	store  *store.ClickHouse
}

// startMeasured starts the program in a temporary folder and waits until it is ready. Nothing is consolidated by itself,
// tasks close at once, and an answer that takes long on a busy machine is still given in full. It must be closed.
func startMeasured(ctx context.Context, o ProductOptions) (m *measured, err error) {
	dir, err := os.MkdirTemp("", "hindsight-eval-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the measured program: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	ports, err := freePorts(ctx, 4)
	if err != nil {
		return nil, err
	}
	embedder := o.Embedder
	if embedder == "" {
		embedder = "local"
	}
	p := &program{
		executable: o.Executable, args: []string{"up"}, dir: dir,
		natsURL:    "nats://127.0.0.1:" + ports[0],
		clickhouse: "http://127.0.0.1:" + ports[1],
		healthURL:  "http://127.0.0.1:" + ports[2],
		environment: append(os.Environ(),
			"HINDSIGHT_DATA_DIR="+filepath.Join(dir, "data"), "HINDSIGHT_CONFIG=", "HINDSIGHT_NATS_URL=", "HINDSIGHT_CLICKHOUSE_URL=", "HINDSIGHT_MILVUS_ADDR=",
			"HINDSIGHT_NATS_PORT="+ports[0], "HINDSIGHT_CLICKHOUSE_PORT="+ports[1], "HINDSIGHT_CONSOLE_PORT="+ports[2], "HINDSIGHT_MCP_PORT="+ports[3],
			"HINDSIGHT_BIND=127.0.0.1", "HINDSIGHT_CLICKHOUSE_DATABASE="+benchDatabase,
			"HINDSIGHT_EMBEDDER="+embedder, "HINDSIGHT_EMBEDDING_CACHE="+o.Vectors, "HINDSIGHT_EMBEDDING_BASE_URL=", "HINDSIGHT_LLM_BASE_URL=",
			"HINDSIGHT_RECALL=on", "HINDSIGHT_CONTROL_SHARE=0", "HINDSIGHT_RECALL_DEADLINE=1m", "HINDSIGHT_MCP_TOOLSET=core",
			"HINDSIGHT_MERGE_SCHEDULE=0 0 29 2 *", "HINDSIGHT_INDUCE_SCHEDULE=0 0 29 2 *",
			"HINDSIGHT_TASK_QUIET=200ms", "HINDSIGHT_SWEEP_INTERVAL=100ms", "HINDSIGHT_REFLECT_CONCURRENCY=1"),
	}
	if err := p.launch(ctx); err != nil {
		return nil, err
	}
	if err := p.ready(ctx, p.healthURL+"/readyz"); err != nil {
		return nil, errors.Join(err, p.end())
	}
	st, err := store.Open(store.Options{URL: p.clickhouse, Database: benchDatabase})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the record: %w", err), p.end())
	}
	return &measured{program: p, mcpURL: "http://127.0.0.1:" + ports[3] + "/mcp", store: st}, nil
}

func (m *measured) close() error { return errors.Join(m.store.Close(), m.stop()) }

// imported imports lines of a format into a namespace, and returns once they are stored, reflected and searchable.
func (m *measured) imported(ctx context.Context, namespace, format string, lines []byte) error {
	_, err := m.command(ctx, lines, "import", "--namespace", namespace, "--format", format, "--wait", "-")
	return err
}

// token makes an access token of a namespace.
func (m *measured) token(ctx context.Context, namespace string) (string, error) {
	raw, err := m.command(ctx, nil, "token", "create", "--namespace", namespace, "--scope", "write", "--json")
	if err != nil {
		return "", err
	}
	var made struct {
		Token string `json:"token"`
	}
	if err := json.Unmarshal(raw, &made); err != nil {
		return "", fmt.Errorf("read a token: %w", err)
	}
	return made.Token, nil
}
