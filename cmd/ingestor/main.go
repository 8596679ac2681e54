// Command ingestor writes trace events from NATS JetStream to ClickHouse and closes tasks. Any number may run at once.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/hindsight-memory/hindsight/internal/config"
	"github.com/hindsight-memory/hindsight/internal/service"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // A second signal ends the process at once.
	err := run(ctx, os.Args[1:], os.Getenv, os.Stderr)
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
	case errors.Is(err, config.ErrInvalid) || errors.Is(err, errUsage):
		fmt.Fprintln(os.Stderr, "ingestor:", err)
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "ingestor:", err)
		os.Exit(1)
	}
}

var errUsage = errors.New("wrong use")

func run(ctx context.Context, args []string, getenv func(string) string, stderr io.Writer) error {
	flags := flag.NewFlagSet("ingestor", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		_, _ = fmt.Fprint(stderr, "Writes trace events from NATS to ClickHouse and closes tasks, until SIGTERM.\n"+
			"It has no flags: 'hindsight config' lists the settings and their variables.\n\n"+
			"Example:\n  HINDSIGHT_NATS_URL=nats://nats:4222 HINDSIGHT_CLICKHOUSE_URL=http://clickhouse:8123 ingestor\n")
	}
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%w: it takes no arguments", errUsage)
	}
	cfg, err := config.Load(getenv)
	if err != nil {
		return fmt.Errorf("load settings: %w", err)
	}
	logger := service.NewLogger(cfg, stderr)
	err = service.Run(ctx, service.Options{
		Config: cfg, Name: "hindsight-ingestor", Holder: service.UniqueHolder(), Logger: logger,
		Port: cfg.HealthPort, PortSetting: "HINDSIGHT_HEALTH_PORT",
		Ready: func() { logger.Info("ready") },
	}, service.Ingest)
	if err != nil {
		return fmt.Errorf("ingestor: %w", err)
	}
	return nil
}
