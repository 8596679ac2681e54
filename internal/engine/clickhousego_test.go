package engine_test

import (
	"context"
	"net/url"
	"reflect"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/hindsight-memory/hindsight/internal/engine/enginetest"
)

func hostOf(t testing.TB, serverURL string) string {
	t.Helper()
	u, err := url.Parse(serverURL)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// openNative opens clickhouse-go's own interface over HTTP on a database.
func openNative(t *testing.T, change func(*clickhouse.Options)) (driver.Conn, string) {
	t.Helper()
	serverURL := enginetest.ClickHouse(t)
	db := enginetest.Database(t, serverURL)
	o := &clickhouse.Options{
		Protocol: clickhouse.HTTP,
		Addr:     []string{hostOf(t, serverURL)},
		Auth:     clickhouse.Auth{Database: db},
	}
	if change != nil {
		change(o)
	}
	conn, err := clickhouse.Open(o)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn, db
}

type wideRow struct {
	ID     uint64            `ch:"id"`
	At     time.Time         `ch:"at"`
	Labels map[string]string `ch:"labels"`
	Tags   []string          `ch:"tags"`
	Kind   string            `ch:"kind"`
	Note   *string           `ch:"note"`
	Vector []float32         `ch:"vector"`
	Text   string            `ch:"text"`
}

const wideTable = `CREATE TABLE wide (
	id UInt64, at DateTime64(3, 'UTC'), labels Map(LowCardinality(String), String), tags Array(String),
	kind LowCardinality(String), note Nullable(String), vector Array(Float32), text String
) ENGINE = ReplacingMergeTree ORDER BY id`

func wideRows(n int) []wideRow {
	note := "a note\n\nwith a blank line"
	at := time.Date(2026, 8, 22, 10, 11, 12, 345e6, time.UTC)
	rows := make([]wideRow, n)
	for i := range rows {
		rows[i] = wideRow{
			ID: uint64(i), At: at.Add(time.Duration(i) * time.Millisecond),
			Labels: map[string]string{"a": "1", "b\n\n": "2\x00"}, Tags: []string{"x", "日本"}, Kind: "k",
			Vector: []float32{1, 0.5, float32(i)}, Text: "\n\n\x00'quoted' \\ back",
		}
		if i%2 == 0 {
			rows[i].Note = &note
		}
	}
	return rows
}

func TestClickHouseGoBatch(t *testing.T) {
	t.Parallel()
	for name, compression := range map[string]*clickhouse.Compression{
		"none": nil,
		"lz4":  {Method: clickhouse.CompressionLZ4},
		"zstd": {Method: clickhouse.CompressionZSTD},
		"gzip": {Method: clickhouse.CompressionGZIP, Level: 1},
		"br":   {Method: clickhouse.CompressionBrotli, Level: 1},
		"zlib": {Method: clickhouse.CompressionDeflate, Level: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, _ := openNative(t, func(o *clickhouse.Options) { o.Compression = compression })
			ctx := t.Context()
			if err := conn.Exec(ctx, wideTable); err != nil {
				t.Fatalf("create: %v", err)
			}
			want := wideRows(1000)
			writeWide(ctx, t, conn, want)
			var got []wideRow
			if err := conn.Select(ctx, &got, "SELECT * FROM wide ORDER BY id"); err != nil {
				t.Fatalf("select: %v", err)
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("read back %d rows, want the %d written; first: %+v, want %+v", len(got), len(want), got[0], want[0])
			}
		})
	}
}

func writeWide(ctx context.Context, t *testing.T, conn driver.Conn, rows []wideRow) {
	t.Helper()
	batch, err := conn.PrepareBatch(ctx, "INSERT INTO wide")
	if err != nil {
		t.Fatalf("prepare: %v", err)
	}
	for i := range rows {
		if err := batch.AppendStruct(&rows[i]); err != nil {
			t.Fatalf("append: %v", err)
		}
	}
	if err := batch.Send(); err != nil {
		t.Fatalf("send: %v", err)
	}
}
