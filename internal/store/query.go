package store

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/ClickHouse/clickhouse-go/v2"
)

// DefaultFormat is the output format of [ClickHouse.Query] when none is given.
const DefaultFormat = "PrettyCompactMonoBlock"

var (
	formatName   = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]{0,63}$`)
	formatClause = regexp.MustCompile(`(?is)\sFORMAT\s+([a-z][a-z0-9]*)$`)
)

// Query runs one statement that a person wrote and copies the result to w as the server formats it: PrettyCompact,
// JSONEachRow, CSV, Parquet and so on; a FORMAT clause in the statement wins. It can only read. A failure is reported
// before anything is written. The error is [ErrQuery] with the server's text when the statement is wrong, which
// includes every attempt to write. It needs a connection by HTTP, since over the native protocol the client would have
// to know every format. It has no deadline but that of ctx.
func (c *ClickHouse) Query(ctx context.Context, statement, format string, w io.Writer) error {
	if c.protocol != clickhouse.HTTP {
		return fmt.Errorf("%w: free queries need the HTTP interface of ClickHouse: give its URL as http://host:8123", ErrOptions)
	}
	statement = strings.TrimRight(statement, "; \t\r\n")
	if clause := formatClause.FindStringSubmatchIndex(statement); clause != nil {
		statement, format = statement[:clause[0]], statement[clause[2]:clause[3]]
	}
	if format == "" {
		format = DefaultFormat
	}
	if !formatName.MatchString(format) {
		return fmt.Errorf("%w: %q is not the name of a format: it must be one like PrettyCompact, JSONEachRow or CSV", ErrQuery, format)
	}
	if strings.TrimSpace(statement) == "" {
		return fmt.Errorf("%w: the statement is empty", ErrQuery)
	}
	// With readonly 2 a statement may have SETTINGS, but neither write nor become writable again.
	bounded := clickhouse.Context(ctx, clickhouse.WithSettings(clickhouse.Settings{"readonly": 2, "wait_end_of_query": 1}))
	result, err := c.conn.QueryFormat(bounded, format, statement)
	if err != nil {
		return translateQuery(ctx, "run the statement", err)
	}
	defer result.Close() //nolint:errcheck // Everything was read, or the error of reading counts.
	out := &output{w: w}
	if _, err := io.Copy(out, result); err != nil {
		if out.err != nil {
			return fmt.Errorf("write the result: %w", out.err)
		}
		return translateQuery(ctx, "read the result", err)
	}
	return nil
}

// output remembers whether it was the writer that failed and not the server.
type output struct {
	w   io.Writer
	err error
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.w.Write(p)
	o.err = err
	return n, err
}
