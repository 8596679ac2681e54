package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/bus"
	"github.com/hindsight-memory/hindsight/internal/config"
	"github.com/hindsight-memory/hindsight/internal/store"
)

// Exit codes of every command.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// connectTimeout bounds how long a command waits for a server that should be there.
const connectTimeout = 5 * time.Second

// errUsage marks errors of use: they end with exit code 2.
var errUsage = errors.New("wrong use")

// errReported marks a failure that the command has already told of.
var errReported = errors.New("already reported")

// app is one invocation of the command line and the world it sees.
type app struct {
	getenv         func(string) string
	environ        []string
	stdin          io.Reader
	stdout, stderr io.Writer

	cfg  *config.Config
	json bool
	// started is true once a command's own code runs: an error before that is one of use.
	started bool
}

// run executes the arguments and returns the exit code.
func (a *app) run(ctx context.Context, args []string) int {
	root := a.root() //nolint:contextcheck // cobra hands the context to each command.
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, errReported):
		return exitFailed
	case !a.started || errors.Is(err, errUsage) || errors.Is(err, config.ErrInvalid):
		a.sayf("hindsight: %v\nRun 'hindsight --help' or 'hindsight COMMAND --help' for the right use.\n", err)
		return exitUsage
	default:
		a.sayf("hindsight: %v\n", err)
		return exitFailed
	}
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "hindsight",
		Short: "A memory of decisions for AI agents",
		Long: "Hindsight records what agents did, learns from how it ended, and tells them before they do it again.\n" +
			"Start everything with 'hindsight up', then import or publish traces from another terminal.",
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       config.Version,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			a.started = true
			if ns := cmd.Flags().Lookup("namespace"); ns != nil && ns.Changed && ns.Value.String() == "" {
				return fmt.Errorf("%w: --namespace is empty: a variable that is not set, perhaps?", errUsage)
			}
			cfg, err := config.Load(a.getenv)
			if err != nil {
				return fmt.Errorf("load settings: %w", err)
			}
			a.cfg = cfg
			return nil
		},
	}
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.CompletionOptions.HiddenDefaultCmd = true
	root.PersistentFlags().BoolVar(&a.json, "json", false, "write the result as JSON on standard output")
	root.AddCommand(
		a.upCommand(), a.importCommand(), a.publishCommand(), a.tasksCommand(), a.showCommand(), a.sqlCommand(),
		a.recallCommand(), a.checkCommand(), a.rulesCommand(), a.memoriesCommand(), a.forgetCommand(), a.feedbackCommand(),
		a.reflectCommand(), a.consolidateCommand(), a.reindexCommand(), a.tokenCommand(),
		a.deadletterCommand(), a.doctorCommand(), a.configCommand(), a.benchCommand(), a.evalCommand(), a.versionCommand(),
	)
	return root
}

// openStore connects to the record for one command.
func (a *app) openStore(ctx context.Context) (*store.ClickHouse, error) {
	st, err := store.Open(store.Options{URL: a.cfg.ClickHouseAddress(), Database: a.cfg.Database})
	if err != nil {
		return nil, fmt.Errorf("open ClickHouse: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if err := st.Ready(ctx); err != nil {
		return nil, errors.Join(a.explainStore(err), st.Close())
	}
	return st, nil
}

func (a *app) explainStore(err error) error {
	address := events.MaskText(a.cfg.ClickHouseAddress())
	switch {
	case errors.Is(err, store.ErrSchemaOlder):
		return fmt.Errorf("the database %q at %s has no current schema: 'hindsight up' or 'ingestor' creates it: %w", a.cfg.Database, address, err)
	case errors.Is(err, store.ErrDenied):
		return fmt.Errorf("ClickHouse at %s refuses us: check user and password in HINDSIGHT_CLICKHOUSE_URL: %w", address, err)
	case errors.Is(err, store.ErrUnavailable):
		return fmt.Errorf("ClickHouse does not answer at %s: is 'hindsight up' running? Start it in another terminal, or set HINDSIGHT_CLICKHOUSE_URL (%s): %w",
			address, oneLine(err.Error(), 120), store.ErrUnavailable)
	default:
		return fmt.Errorf("use ClickHouse at %s: %w", address, err)
	}
}

// openBus connects to the broker for one command.
func (a *app) openBus(ctx context.Context) (*bus.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, err := bus.Connect(ctx, bus.Options{URL: a.cfg.NATSAddress(), Name: "hindsight-cli", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, fmt.Errorf("NATS does not answer at %s: is 'hindsight up' running? Start it in another terminal, or set HINDSIGHT_NATS_URL: %w",
			events.MaskText(a.cfg.NATSAddress()), err)
	}
	return conn, nil
}

// namespace is the flag's value if given, else the configured one, checked.
func (a *app) namespace(flag string) (string, error) {
	ns := cmp.Or(flag, a.cfg.Namespace)
	if err := events.ValidateNamespace(ns); err != nil {
		return "", fmt.Errorf("%w: --namespace: %w", errUsage, err)
	}
	return ns, nil
}

// printJSON writes one value, indented, to stdout.
func (a *app) printJSON(v any) error {
	enc := json.NewEncoder(a.stdout)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	return nil
}

// printf writes a line for a person to stdout; a closed pipe is noticed by the writer of the data, not here.
func (a *app) printf(format string, args ...any) { _, _ = fmt.Fprintf(a.stdout, format, args...) }

// sayf writes to stderr, for a person; nothing can be done when even that fails.
func (a *app) sayf(format string, args ...any) { _, _ = fmt.Fprintf(a.stderr, format, args...) }

// table aligns columns; what goes wrong while writing comes back from Flush.
type table struct{ *tabwriter.Writer }

func (a *app) newTable() table { return table{tabwriter.NewWriter(a.stdout, 2, 4, 2, ' ', 0)} }

// rowf writes one row: cells end with a tab, the row with a newline.
func (t table) rowf(format string, args ...any) { _, _ = fmt.Fprintf(t, format, args...) }

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Example: "  hindsight version", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if a.json {
				return a.printJSON(map[string]string{"version": config.Version})
			}
			a.printf("hindsight %s\n", config.Version)
			return nil
		},
	}
}
