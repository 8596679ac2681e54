package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"

	"github.com/spf13/cobra"
)

func (a *app) sqlCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "sql [flags] STATEMENT",
		Short: "Ask ClickHouse: one statement that only reads",
		Long: "Runs one SQL statement on the record's database and prints the result as ClickHouse formats it; - reads the statement\n" +
			"from standard input. Writing is refused. docs/schema.md has the tables and views with an example each.",
		Example: "  hindsight sql \"SELECT task_type, status, count() FROM tasks FINAL GROUP BY ALL ORDER BY ALL\"\n" +
			"  hindsight sql --json \"SELECT * FROM v_tool_failures LIMIT 5\"\n  hindsight sql --format CSVWithNames \"SELECT * FROM v_health\"",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.sql(cmd.Context(), args[0], format) },
	}
	cmd.Flags().StringVar(&format, "format", "", "any output format of ClickHouse (default: a table; with --json, a list of objects)")
	return cmd
}

// ownFormat finds a FORMAT clause, which would win over the one that --json needs.
var ownFormat = regexp.MustCompile(`(?i)\bFORMAT\s+\w+\s*;?\s*$`)

func (a *app) sql(ctx context.Context, statement, format string) (err error) {
	if a.json && format != "" {
		return fmt.Errorf("%w: give either --json or --format", errUsage)
	}
	if statement == "-" {
		raw, err := io.ReadAll(a.stdin)
		if err != nil {
			return fmt.Errorf("read the statement: %w", err)
		}
		statement = string(raw)
	}
	if a.json && ownFormat.MatchString(statement) {
		return fmt.Errorf("%w: the statement has a FORMAT of its own: leave it out, or leave --json out", errUsage)
	}
	st, err := a.openStore(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	if !a.json {
		if err := st.Query(ctx, statement, format, a.stdout); err != nil {
			return fmt.Errorf("query: %w", err)
		}
		return nil
	}
	rows, in := io.Pipe()
	go func() { in.CloseWithError(st.Query(ctx, statement, "JSONEachRow", in)) }()
	return a.joinLines(rows)
}

// joinLines turns one JSON object a line into a JSON list, without holding it in memory.
func (a *app) joinLines(rows io.Reader) error {
	out := bufio.NewWriter(a.stdout)
	in := bufio.NewReader(rows)
	for n := 0; ; n++ {
		line, err := in.ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("query: %w", err)
		}
		if line == "" {
			if n == 0 {
				_, _ = out.WriteString("[")
			}
			_, _ = out.WriteString("]\n")
			if err := out.Flush(); err != nil {
				return fmt.Errorf("write JSON: %w", err)
			}
			return nil
		}
		separator := ","
		if n == 0 {
			separator = "["
		}
		_, _ = out.WriteString(separator + line) // An error of the buffer comes back at Flush.
	}
}
