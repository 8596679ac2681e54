// Package process runs one service as a process of its own: settings, signals, logs and exit codes are the same for all
// of them. It decides nothing about what a service does.
package process

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/hindsight-memory/hindsight/internal/config"
	"github.com/hindsight-memory/hindsight/internal/service"
)

// Exit codes of every program.
const (
	exitFailed = 1
	exitUsage  = 2
)

var errUsage = errors.New("wrong use")

// Program is a process with one service.
type Program struct {
	// Name is that of the program, Purpose one sentence about it, Example how it is started.
	Name, Purpose, Example string
	// Services are run; Door, when set, makes the MCP server that is run beside them.
	Services []service.Service
	Door     func(cfg *config.Config, logger *slog.Logger) *service.Door
	// Alone, when it returns true for the arguments, has done all there was to do, instead of the services.
	// Only protocol goes to stdout.
	Alone func(ctx context.Context, args []string, cfg *config.Config, stdin io.Reader, stdout, stderr io.Writer) (done bool, err error)
}

// Main runs the program with the process's arguments and environment, until SIGTERM or an interrupt, and ends the process.
func (p Program) Main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // A second signal ends the process at once.
	err := p.run(ctx, os.Args[1:], os.Getenv, os.Stdin, os.Stdout, os.Stderr)
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
	case errors.Is(err, config.ErrInvalid) || errors.Is(err, errUsage):
		fmt.Fprintf(os.Stderr, "%s: %v\n", p.Name, err)
		os.Exit(exitUsage)
	default:
		fmt.Fprintf(os.Stderr, "%s: %v\n", p.Name, err)
		os.Exit(exitFailed)
	}
}

func (p Program) run(ctx context.Context, args []string, getenv func(string) string, stdin io.Reader, stdout, stderr io.Writer) error {
	cfg, err := config.Load(getenv)
	if err != nil {
		return fmt.Errorf("load settings: %w", err)
	}
	if p.Alone != nil {
		if done, err := p.Alone(ctx, args, cfg, stdin, stdout, stderr); done || err != nil {
			return err
		}
	}
	flags := flag.NewFlagSet(p.Name, flag.ContinueOnError)
	flags.SetOutput(stderr)
	healthcheck := flags.Bool("healthcheck", false, "ask the process that runs with these settings whether it is ready")
	flags.Usage = func() {
		_, _ = fmt.Fprintf(stderr, "%s, until SIGTERM.\nIts settings are variables: 'hindsight config' lists them.\n\nExample:\n  %s\n\n"+
			"With -healthcheck it asks the process that runs with these settings whether it is ready, and ends with 0 or 1.\n", p.Purpose, p.Example)
	}
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%w: it takes no arguments, and got %q", errUsage, flags.Arg(0))
	}
	if *healthcheck {
		return Healthcheck(ctx, cfg, cfg.HealthPort)
	}
	logger := service.NewLogger(cfg, stderr)
	o := service.Options{
		Config: cfg, Name: "hindsight-" + p.Name, Holder: service.UniqueHolder(), Logger: logger,
		Port: cfg.HealthPort, PortSetting: "HINDSIGHT_HEALTH_PORT",
		Ready: func() { logger.Info("ready") },
	}
	if p.Door != nil {
		o.Door = p.Door(cfg, logger)
	}
	return service.Run(ctx, o, p.Services...) //nolint:wrapcheck // The program's name is all that there is to add.
}
