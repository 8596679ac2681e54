package simulate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/hindsight-memory/hindsight/internal/config"
	"github.com/hindsight-memory/hindsight/internal/engine"
	"github.com/hindsight-memory/hindsight/internal/mcpserver"
	"github.com/hindsight-memory/hindsight/internal/service"
)

// Engines is where the product of a run keeps its data: one ClickHouse, since a process can have no more.
type Engines interface {
	// URL is ClickHouse's.
	URL() string
}

const (
	// stopTimeout bounds the end of an engine.
	stopTimeout = 30 * time.Second
	// patience bounds each wait for the product: a machine may be busy with other things.
	patience = 10 * time.Minute
	// look is the pause between two looks whether something is there.
	look = 150 * time.Millisecond
)

// Embedded is a ClickHouse in a temporary folder.
type Embedded struct {
	*engine.ClickHouse
	dir string
}

// StartEmbedded starts it. settings answers for the settings that say where the engine libraries are.
func StartEmbedded(ctx context.Context, settings func(name string) string, logger *slog.Logger) (*Embedded, error) {
	library, err := engine.FindChDB(settings)
	if err != nil {
		return nil, fmt.Errorf("find the ClickHouse library: %w", err)
	}
	dir, err := os.MkdirTemp("", "hindsight-simulate-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the simulation: %w", err)
	}
	ch, err := engine.StartClickHouse(ctx, engine.ClickHouseOptions{DataDir: dir, Library: library, Queue: 1024, QueueTimeout: 2 * time.Minute, Logger: logger})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start ClickHouse: %w", err), os.RemoveAll(dir))
	}
	return &Embedded{ClickHouse: ch, dir: dir}, nil
}

// Close ends it and removes its data.
func (e *Embedded) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	err := e.Stop(ctx)
	if rm := os.RemoveAll(e.dir); rm != nil {
		err = errors.Join(err, fmt.Errorf("remove the simulation's folder: %w", rm))
	}
	return err
}

// product is a Hindsight of its own: all services in this process, on a database and a broker of their own.
type product struct {
	parts    *service.Parts
	nats     *engine.NATS
	natsURL  string
	mcpURL   string
	database string
	engines  Engines
	dir      string
	stop     context.CancelFunc
	services *errgroup.Group
	ended    <-chan struct{}
}

// startProduct starts the product empty and returns once it answers. The name must be another for each of a process.
func startProduct(ctx context.Context, o Options, name string) (p *product, err error) {
	dir, err := os.MkdirTemp("", "hindsight-simulate-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the product: %w", err)
	}
	p = &product{engines: o.Engines, dir: dir, database: "simulate_" + name, stop: func() {}}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close(ctx))
		}
	}()
	if err := p.sql(ctx, "CREATE DATABASE "+p.database); err != nil {
		return p, fmt.Errorf("make a database: %w", err)
	}
	if p.nats, err = engine.StartNATS(ctx, engine.NATSOptions{DataDir: dir, Logger: o.Logger}); err != nil {
		return p, fmt.Errorf("start NATS: %w", err)
	}
	p.natsURL = p.nats.URL()
	port, err := freePort(ctx)
	if err != nil {
		return p, err
	}
	// What decides about the figures is set here, so that it does not depend on the settings of whoever runs this: tasks
	// close at once, jobs run when the simulation says so, and no search is left out because the machine is slow.
	settings := map[string]string{
		"HINDSIGHT_DATA_DIR": dir, "HINDSIGHT_NATS_URL": p.natsURL, "HINDSIGHT_CLICKHOUSE_URL": o.Engines.URL(), "HINDSIGHT_CLICKHOUSE_DATABASE": p.database,
		"HINDSIGHT_TASK_QUIET": "100ms", "HINDSIGHT_TASK_IDLE": "24h", "HINDSIGHT_SWEEP_INTERVAL": "100ms", "HINDSIGHT_MERGE_SCHEDULE": "0 0 29 2 *",
		"HINDSIGHT_INDUCE_SCHEDULE": "0 0 29 2 *", "HINDSIGHT_RECALL_DEADLINE": "60s", "HINDSIGHT_EMBEDDER": o.Embedder, "HINDSIGHT_EMBEDDING_CACHE": o.Vectors, "HINDSIGHT_ENGINES_DIR": o.EnginesDir,
		"HINDSIGHT_BIND": "127.0.0.1", "HINDSIGHT_MCP_PORT": strconv.Itoa(port), "HINDSIGHT_TRACES_MAX_BYTES": strconv.Itoa(256 << 20), "HINDSIGHT_LOG_LEVEL": "error",
	}
	cfg, err := config.Load(func(name string) string { return settings[name] })
	if err != nil {
		return p, fmt.Errorf("set up the product: %w", err)
	}
	p.mcpURL = "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) + mcpserver.Path
	registry := prometheus.NewRegistry()
	if p.parts, err = service.Open(ctx, &service.Parts{Config: cfg, Registry: registry, Logger: o.Logger, Holder: service.UniqueHolder()}, "simulate", func(error) {}); err != nil {
		return p, fmt.Errorf("open the product: %w", err)
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	services, gctx := errgroup.WithContext(running)
	p.stop, p.services, p.ended = stop, services, gctx.Done()
	door := service.NewDoor(cfg, o.Logger)
	services.Go(func() error { return door.Serve(gctx) })
	for _, s := range []service.Service{service.Ingest, service.Reflect, service.Consolidate, door.Service} {
		services.Go(func() error { return s(gctx, p.parts) })
	}
	return p, nil
}

// sql runs a statement on the engine itself.
func (p *product) sql(ctx context.Context, statement string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.engines.URL()+"/", strings.NewReader(statement))
	if err != nil {
		return fmt.Errorf("ask ClickHouse: %w", err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("ask ClickHouse: %w", err)
	}
	defer res.Body.Close() //nolint:errcheck // the status is what counts
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("ClickHouse refused %q: %s", statement, res.Status)
	}
	return nil
}

// close ends the product and removes its data.
func (p *product) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	var errs []error
	p.stop()
	if p.services != nil {
		if err := p.services.Wait(); err != nil && !errors.Is(err, context.Canceled) {
			errs = append(errs, fmt.Errorf("the product ended: %w", err))
		}
	}
	if p.parts != nil {
		errs = append(errs, p.parts.Close())
	}
	if p.nats != nil {
		errs = append(errs, p.nats.Stop(ctx))
	}
	errs = append(errs, p.sql(ctx, "DROP DATABASE IF EXISTS "+p.database+" SYNC"), os.RemoveAll(p.dir))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("end the product: %w", err)
	}
	return nil
}

// until waits for a condition, or for the product to end.
func (p *product) until(ctx context.Context, what string, met func(ctx context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		ok, err := met(ctx)
		if err != nil {
			return fmt.Errorf("wait for %s: %w", what, err)
		}
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, ctx.Err())
		case <-p.ended:
			return fmt.Errorf("wait for %s: the product ended: %w", what, p.services.Wait())
		case <-tick.C:
		}
	}
}

func freePort(ctx context.Context) (int, error) {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer ln.Close() //nolint:errcheck // Held only to learn its number.
	address, is := ln.Addr().(*net.TCPAddr)
	if !is {
		return 0, fmt.Errorf("find a free port: %s is no TCP address", ln.Addr())
	}
	return address.Port, nil
}
