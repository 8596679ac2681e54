package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/hindsight-memory/hindsight/internal/bus"
)

func (a *app) deadletterCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "deadletter",
		Short: "List and replay messages that could not be processed",
		Long: "A message that can never be processed is kept with its reason in the stream DEADLETTER for 30 days, and as a row of\n" +
			"the table dead_letters for longer.",
		Example: "  hindsight deadletter list\n  hindsight deadletter replay --all",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return fmt.Errorf("%w: say list or replay", errUsage)
		},
	}
	var limit int
	list := &cobra.Command{
		Use: "list", Short: "List the letters that wait in the stream, the oldest first", Args: cobra.NoArgs,
		Example: "  hindsight deadletter list\n  hindsight deadletter list --json",
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.listLetters(cmd.Context(), limit) },
	}
	list.Flags().IntVar(&limit, "limit", 100, "most letters to list")
	var all bool
	replay := &cobra.Command{
		Use: "replay [ID…]", Short: "Publish letters again where they came from, under a new message id",
		Example: "  hindsight deadletter replay 9c1185a5c5e9\n  hindsight deadletter replay --all",
		RunE: func(cmd *cobra.Command, ids []string) error {
			if all == (len(ids) > 0) {
				return fmt.Errorf("%w: give the ids of letters, or --all", errUsage)
			}
			return a.replayLetters(cmd.Context(), ids, all)
		},
	}
	replay.Flags().BoolVar(&all, "all", false, "replay every letter")
	cmd.AddCommand(list, replay)
	return cmd
}

// letterLine is the shape of one element of `deadletter list --json`.
type letterLine struct {
	ID           string    `json:"id"`
	OriginStream string    `json:"origin_stream"`
	Subject      string    `json:"subject"`
	Reason       string    `json:"reason"`
	Error        string    `json:"error"`
	Attempts     int       `json:"attempts"`
	Time         time.Time `json:"time"`
	Payload      string    `json:"payload"`
}

func (a *app) listLetters(ctx context.Context, limit int) error {
	if limit < 1 {
		return fmt.Errorf("%w: --limit must be at least 1", errUsage)
	}
	conn, err := a.openBus(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	letters, err := conn.DeadLetters(ctx, bus.DeadLetterQuery{Limit: limit})
	if err != nil {
		return fmt.Errorf("list dead letters: %w", err)
	}
	lines := make([]letterLine, len(letters))
	for i, l := range letters {
		lines[i] = letterLine{l.ID, l.Stream, l.Subject, l.Reason, l.Error, l.Attempts, l.Time, string(l.Payload)}
	}
	if a.json {
		return a.printJSON(lines)
	}
	if len(lines) == 0 {
		a.printf("no dead letters\n")
		return nil
	}
	table := a.newTable()
	table.rowf("TIME\tID\tFROM\tREASON\tERROR\n")
	for _, l := range lines {
		table.rowf("%s\t%s\t%s\t%s\t%s\n", l.Time.UTC().Format(time.DateTime), l.ID, l.Subject, l.Reason, oneLine(l.Error, 120))
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	if len(lines) == limit {
		a.sayf("the oldest %d; --limit shows more\n", limit)
	}
	return nil
}

func (a *app) replayLetters(ctx context.Context, ids []string, all bool) error {
	conn, err := a.openBus(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	n, err := conn.ReplayDeadLetters(ctx, ids, all)
	if err != nil {
		return fmt.Errorf("replay dead letters (%d done): %w", n, err)
	}
	if a.json {
		return a.printJSON(map[string]int{"replayed": n})
	}
	a.printf("replayed %d\n", n)
	return nil
}
