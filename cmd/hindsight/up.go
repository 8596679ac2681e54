package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/hindsight-memory/hindsight/cmd/internal/process"
	"github.com/hindsight-memory/hindsight/internal/bus"
	"github.com/hindsight-memory/hindsight/internal/engine"
	"github.com/hindsight-memory/hindsight/internal/service"
)

const (
	// stopTimeout bounds the end of each embedded engine.
	stopTimeout = 20 * time.Second
	// otherStreams is the room that the streams and buckets beside TRACES may take, in bytes; minStreamDisk is the least
	// that JetStream is given in all.
	otherStreams  = 4 << 30
	minStreamDisk = 10 << 30
	// watchInterval is the pause between two probes of the streams; after watchFailures of them in a row, with at least
	// watchRoom bytes free, the embedded NATS is restarted.
	watchInterval = 5 * time.Second
	watchFailures = 3
	watchRoom     = 64 << 20
)

func (a *app) upCommand() *cobra.Command {
	var enginesOnly, ingestOnly, healthcheck bool
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run everything in this process, with embedded engines",
		Long: "Runs the services against an embedded NATS and ClickHouse that keep their data in HINDSIGHT_DATA_DIR and listen\n" +
			"on loopback with their ordinary protocols. HINDSIGHT_NATS_URL and HINDSIGHT_CLICKHOUSE_URL use servers instead.\n" +
			"Ends cleanly on Ctrl-C and SIGTERM.",
		Example: "  hindsight up\n  hindsight up --engines-only\n  HINDSIGHT_DATA_DIR=/var/lib/hindsight hindsight up",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if healthcheck {
				return process.Healthcheck(cmd.Context(), a.cfg, a.cfg.ConsolePort) //nolint:wrapcheck // It says what it asked.
			}
			return a.up(cmd.Context(), enginesOnly, ingestOnly)
		},
	}
	cmd.Flags().BoolVar(&enginesOnly, "engines-only", false, "run only NATS and ClickHouse, for services that run as processes of their own")
	cmd.Flags().BoolVar(&ingestOnly, "ingest-only", false, "run the engines and the ingestor only: closed tasks wait for a reflector, nothing is recalled")
	cmd.Flags().BoolVar(&healthcheck, "healthcheck", false, "ask the 'hindsight up' that runs with these settings whether it is ready, and end; for containers")
	cmd.MarkFlagsMutuallyExclusive("engines-only", "ingest-only", "healthcheck")
	return cmd
}

func (a *app) up(ctx context.Context, enginesOnly, ingestOnly bool) (err error) {
	began := time.Now()
	if err := service.CheckAddresses(a.cfg); err != nil {
		return fmt.Errorf("up: %w", err)
	}
	if enginesOnly && a.cfg.NATSURL != "" && a.cfg.ClickHouseURL != "" {
		return fmt.Errorf("%w: --engines-only has nothing to start, since HINDSIGHT_NATS_URL and HINDSIGHT_CLICKHOUSE_URL both name servers: leave out one of the three", errUsage)
	}
	logger := service.NewLogger(a.cfg, a.stderr)
	engines, err := a.startEngines(ctx, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, engines.stop(ctx)) }()
	if enginesOnly {
		a.announce(began, false, false)
		<-ctx.Done()
		return nil
	}
	options := service.Options{
		Config: a.cfg, Name: "hindsight-up", Holder: engines.holder, Logger: logger,
		Port: a.cfg.ConsolePort, PortSetting: "HINDSIGHT_CONSOLE_PORT",
		Ready: func() {
			a.announce(began, true, !ingestOnly)
			debug.FreeOSMemory() // what only the start needed is given back at once
		},
	}
	services := []service.Service{service.Ingest}
	if !ingestOnly {
		options.Door = service.NewDoor(a.cfg, logger)
		services = append(services, service.Reflect, service.Consolidate)
	}
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return engines.watch(gctx, a) })
	g.Go(func() error { return service.Run(gctx, options, services...) })
	if err := g.Wait(); err != nil {
		return fmt.Errorf("up: %w", err)
	}
	return nil
}

// announce tells a person what runs where, on stderr: stdout belongs to protocols.
func (a *app) announce(began time.Time, services, mcp bool) {
	took := time.Since(began).Round(10 * time.Millisecond)
	if !service.IsTerminal(a.stderr) {
		service.NewLogger(a.cfg, a.stderr).Info("ready", "seconds", took.Seconds(), "nats", a.cfg.NATSAddress(), "clickhouse", a.cfg.ClickHouseAddress(), "data_dir", a.cfg.DataDir, "services", services)
		return
	}
	a.sayf("\nHindsight is ready (%s).\n  NATS        %s\n  ClickHouse  %s  (database %s)\n", took, a.cfg.NATSAddress(), a.cfg.ClickHouseAddress(), a.cfg.Database)
	if mcp {
		a.sayf("  MCP         %s\n", a.cfg.MCPAddress())
	}
	if services {
		a.sayf("  health      http://%s/readyz  (metrics at /metrics)\n", net.JoinHostPort(a.cfg.Bind, strconv.Itoa(a.cfg.ConsolePort)))
	}
	a.sayf("  data        %s\n\nIn another terminal:\n  hindsight import --wait FILE…\n  hindsight tasks\n\nCtrl-C ends it.\n\n", a.cfg.DataDir)
}

// engines are the embedded servers that this process runs.
type engines struct {
	lock       *engine.DirLock
	nats       *engine.NATS
	clickhouse *engine.ClickHouse
	holder     string
	logger     *slog.Logger
}

// startEngines starts those servers for which no other address is given.
func (a *app) startEngines(ctx context.Context, logger *slog.Logger) (*engines, error) {
	e := &engines{logger: logger, holder: service.UniqueHolder()}
	if a.cfg.NATSURL != "" && a.cfg.ClickHouseURL != "" {
		return e, nil
	}
	lock, err := engine.LockDataDir(a.cfg.DataDir)
	if err != nil {
		return nil, fmt.Errorf("use the data directory (HINDSIGHT_DATA_DIR): %w", err)
	}
	e.lock = lock
	if err := e.start(ctx, a); err != nil {
		return nil, errors.Join(err, e.stop(ctx))
	}
	return e, nil
}

func (e *engines) start(ctx context.Context, a *app) error {
	library := ""
	if a.cfg.ClickHouseURL == "" {
		path, err := engine.FindChDB(a.engineSetting)
		if err != nil {
			return fmt.Errorf("find the ClickHouse library: %w", err)
		}
		library = path
	}
	g, ctx := errgroup.WithContext(ctx)
	if a.cfg.NATSURL == "" {
		// The lock makes this process the only one of its name, so that after a crash it need not wait for its own lease.
		if absolute, err := filepath.Abs(a.cfg.DataDir); err == nil {
			e.holder = "up:" + absolute
		}
		g.Go(func() error { return e.startNATS(ctx, a) })
	}
	if a.cfg.ClickHouseURL == "" {
		g.Go(func() (err error) {
			e.clickhouse, err = engine.StartClickHouse(ctx, engine.ClickHouseOptions{
				DataDir: a.cfg.DataDir, Library: library, Port: a.cfg.ClickHousePort, MaxMemory: a.cfg.ClickHouseMaxMemory, Logger: e.logger,
			})
			if err != nil {
				return fmt.Errorf("start ClickHouse: %w", err)
			}
			return nil
		})
	}
	return g.Wait() //nolint:wrapcheck // Both are wrapped above.
}

func (e *engines) startNATS(ctx context.Context, a *app) (err error) {
	e.nats, err = engine.StartNATS(ctx, engine.NATSOptions{
		DataDir: a.cfg.DataDir, Port: a.cfg.NATSPort, Logger: e.logger, MaxDisk: max(minStreamDisk, a.cfg.TracesMaxBytes+otherStreams),
	})
	if err != nil {
		return fmt.Errorf("start NATS: %w", err)
	}
	return nil
}

// watch restarts the embedded NATS when its streams take no writes any more although there is room: after a full disk a
// stream stays as it is until it is opened anew. Clients reconnect by themselves, and nothing that was acknowledged is
// lost by a restart.
func (e *engines) watch(ctx context.Context, a *app) error {
	if e.nats == nil {
		return nil
	}
	conn, err := bus.Connect(ctx, bus.Options{URL: a.cfg.NATSAddress(), Name: "hindsight-watch"})
	if err != nil {
		return nil // The context has ended: there is nothing to watch.
	}
	defer conn.Close()
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	for failed := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		err := probeWrite(ctx, conn)
		switch {
		case err == nil || errors.Is(err, bus.ErrNotFound): // Before the services have made the buckets there is nothing to write to.
			failed = 0
			continue
		case ctx.Err() != nil:
			return nil
		}
		failed++
		free, freeErr := freeSpace(a.cfg.DataDir)
		e.logger.Error("the streams take no writes", "error", err, "free_bytes", free)
		if failed < watchFailures || freeErr != nil || free < watchRoom {
			continue
		}
		e.logger.Warn("restarting the embedded NATS: there is room, but its streams still take no writes")
		if err := e.restartNATS(ctx, a); err != nil {
			return err
		}
		failed = 0
	}
}

func (e *engines) restartNATS(ctx context.Context, a *app) error {
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if err := e.nats.Stop(stopping); err != nil {
		return fmt.Errorf("restart NATS after its streams stopped taking writes: start 'hindsight up' again: %w", err)
	}
	return e.startNATS(ctx, a)
}

func probeWrite(ctx context.Context, conn *bus.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, watchInterval)
	defer cancel()
	if err := conn.SaveState(ctx, "watch", []byte("ok")); err != nil {
		return fmt.Errorf("write to the streams' store: %w", err)
	}
	return nil
}

// freeSpace is what a user may still write below a folder, in bytes.
func freeSpace(dir string) (uint64, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return 0, fmt.Errorf("ask for the free space of %s: %w", dir, err)
	}
	return fs.Bavail * uint64(fs.Bsize), nil //nolint:gosec // A block size is positive.
}

// stop ends the engines, the last started first, within a bound of its own: the command's context has ended by then.
func (e *engines) stop(ctx context.Context) error {
	var errs []error
	end := func(stop func(context.Context) error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		errs = append(errs, stop(ctx))
	}
	if e.clickhouse != nil {
		end(e.clickhouse.Stop)
	}
	if e.nats != nil {
		end(e.nats.Stop)
	}
	if e.lock != nil {
		errs = append(errs, e.lock.Unlock())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("stop the engines: %w", err)
	}
	return nil
}

// engineSetting answers for the settings that say where the engine libraries are, whether they came from the
// environment or from the file.
func (a *app) engineSetting(name string) string {
	switch name {
	case "HINDSIGHT_CHDB_LIBRARY":
		return a.cfg.ChDBLibrary
	case "HINDSIGHT_ENGINES_DIR":
		return a.cfg.EnginesDir
	default:
		return ""
	}
}
