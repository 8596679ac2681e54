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
	// reads are the statements that a person may give; comments and brackets may stand before them.
	reads = regexp.MustCompile(`(?is)^(?:\s|\(|--[^\n]*\n|/\*.*?\*/)*(?:SELECT|WITH|SHOW|DESC|DESCRIBE|EXPLAIN|EXISTS|FROM)\b`)
	// reaches are the functions that would let a statement send rows out or look around, which readonly does not forbid.
	// The server's own grants are the wall; this is for servers whose user may do more.
	reaches = regexp.MustCompile(`(?i)\b(s3|s3cluster|gcs|oss|cosn|remote|remotesecure|cluster|clusterallreplicas|url|urlcluster|hdfs|hdfscluster|` +
		`azureblobstorage\w*|mysql|postgresql|mongodb|redis|sqlite|jdbc|odbc|iceberg\w*|deltalake\w*|hudi\w*|paimon\w*|arrowflight|ytsaurus|executable|` +
		`file|filecluster)\s*\(`)
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
	if !reads.MatchString(statement) {
		return fmt.Errorf("%w: only statements that read are allowed: SELECT, WITH, SHOW, DESCRIBE, EXPLAIN, EXISTS", ErrQuery)
	}
	if name := reaches.FindStringSubmatch(statement); name != nil {
		return fmt.Errorf("%w: %s() is not allowed, because it reaches beyond the record: files, other servers or programs", ErrQuery, name[1])
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
