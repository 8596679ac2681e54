package engine_test

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"reflect"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/hindsight-memory/hindsight/internal/engine/enginetest"
)

func hostOf(t *testing.T, serverURL string) string {
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

func TestClickHouseGoQueries(t *testing.T) {
	t.Parallel()
	conn, db := openNative(t, nil)
	ctx := t.Context()
	if err := conn.Ping(ctx); err != nil {
		t.Fatalf("ping: %v", err)
	}
	version, err := conn.ServerVersion()
	if err != nil || version.Version.Major < 26 {
		t.Errorf("version %v, %v; want 26 or later", version, err)
	}
	if err := conn.Exec(ctx, wideTable); err != nil {
		t.Fatalf("create: %v", err)
	}
	writeWide(ctx, t, conn, wideRows(10))

	var current string
	var count uint64
	row := conn.QueryRow(ctx, "SELECT currentDatabase(), count() FROM wide WHERE id >= {low:UInt64} AND kind = {kind:String}", clickhouse.Named("low", "4"), clickhouse.Named("kind", "k"))
	if err := row.Scan(&current, &count); err != nil || current != db || count != 6 {
		t.Errorf("named parameters: %q %d, %v; want %s 6", current, count, err, db)
	}
	row = conn.QueryRow(ctx, "SELECT count() FROM wide WHERE id >= $1 AND text = $2", 4, wideRows(1)[0].Text)
	if err := row.Scan(&count); err != nil || count != 6 {
		t.Errorf("positional parameters: %d, %v; want 6", count, err)
	}
	var s string
	if err := conn.QueryRow(ctx, "SELECT {s:String}", clickhouse.Named("s", "tab\tline\nquote'back\\")).Scan(&s); err != nil || s != "tab\tline\nquote'back\\" {
		t.Errorf("awkward parameter: %q, %v", s, err)
	}
	withSetting := clickhouse.Context(ctx, clickhouse.WithSettings(clickhouse.Settings{"max_block_size": 3}), clickhouse.WithQueryID("mine"))
	rows, err := conn.Query(withSetting, "SELECT id FROM wide ORDER BY id")
	if err != nil {
		t.Fatalf("query: %v", err)
	}
	n := uint64(0)
	for rows.Next() {
		var id uint64
		if err := rows.Scan(&id); err != nil || id != n {
			t.Errorf("row %d: %d, %v", n, id, err)
		}
		n++
	}
	if err := rows.Err(); err != nil || n != 10 {
		t.Errorf("%d rows, %v; want 10", n, err)
	}
	if err := rows.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if err := conn.Exec(clickhouse.Context(ctx, clickhouse.WithAsync(true)), "INSERT INTO wide (id) VALUES (99)"); err != nil {
		t.Errorf("async insert: %v", err)
	}
	if err := conn.QueryRow(ctx, "SELECT count() FROM wide").Scan(&count); err != nil || count != 11 {
		t.Errorf("after an async insert: %d, %v; want 11", count, err)
	}
	if err := conn.QueryRow(ctx, "SELECT id FROM wide WHERE 0").Scan(&count); !errors.Is(err, sql.ErrNoRows) {
		t.Errorf("no rows: %v, want sql.ErrNoRows", err)
	}
}

func TestClickHouseGoErrors(t *testing.T) {
	t.Parallel()
	for name, compression := range map[string]*clickhouse.Compression{"plain": nil, "lz4": {Method: clickhouse.CompressionLZ4}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, _ := openNative(t, func(o *clickhouse.Options) { o.Compression = compression })
			ctx := t.Context()
			var n uint8
			for query, code := range map[string]int32{
				"SELECT n FROM nothing": 60,
				"SELEC 1":               62,
				"SELECT throwIf(1)":     395,
				"SELECT toUInt8('x')":   6,
				"SELECT throwIf(number = 3000000) FROM system.numbers LIMIT 4000000": 395,
			} {
				rows, err := conn.Query(ctx, query)
				for err == nil && rows.Next() {
					_ = rows.Scan(&n)
				}
				if err == nil {
					err = rows.Err()
				}
				var e *clickhouse.Exception
				if !errors.As(err, &e) || e.Code != code {
					t.Errorf("%s: %v, want an exception with code %d", query, err, code)
				}
			}
			if err := conn.Exec(ctx, "CREATE TABLE t (n UInt8) ENGINE = MergeTree ORDER BY n"); err != nil {
				t.Fatal(err)
			}
			if _, err := conn.PrepareBatch(ctx, "INSERT INTO nothing"); err == nil {
				t.Error("a batch for no table was prepared")
			}
			batch, err := conn.PrepareBatch(ctx, "INSERT INTO t")
			if err != nil {
				t.Fatal(err)
			}
			if err := batch.Append(uint8(1)); err != nil {
				t.Fatal(err)
			}
			if err := conn.Exec(ctx, "DROP TABLE t SYNC"); err != nil {
				t.Fatal(err)
			}
			var e *clickhouse.Exception
			if err := batch.Send(); !errors.As(err, &e) || e.Code != 60 {
				t.Errorf("send to a dropped table: %v, want code 60", err)
			}
			if err := conn.Ping(ctx); err != nil {
				t.Errorf("ping after errors: %v", err)
			}
		})
	}
}

func TestClickHouseGoDatabaseSQL(t *testing.T) {
	t.Parallel()
	serverURL := enginetest.ClickHouse(t)
	db := clickhouse.OpenDB(&clickhouse.Options{
		Protocol: clickhouse.HTTP,
		Addr:     []string{hostOf(t, serverURL)},
		Auth:     clickhouse.Auth{Database: enginetest.Database(t, serverURL), Username: "default"},
		Settings: clickhouse.Settings{"max_execution_time": 60},
	})
	t.Cleanup(func() { _ = db.Close() })
	ctx := t.Context()
	if _, err := db.ExecContext(ctx, "CREATE TABLE t (n Int64, s Nullable(String), at DateTime64(3)) ENGINE = MergeTree ORDER BY n"); err != nil {
		t.Fatalf("create: %v", err)
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	insert, err := tx.PrepareContext(ctx, "INSERT INTO t")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = insert.Close() }()
	at := time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC)
	for i := range 100 {
		if _, err := insert.ExecContext(ctx, int64(i), sql.NullString{String: "s", Valid: i > 0}, at); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatalf("commit: %v", err)
	}
	var n int64
	var s sql.NullString
	var got time.Time
	if err := db.QueryRowContext(ctx, "SELECT n, s, at FROM t WHERE n = ?", 0).Scan(&n, &s, &got); err != nil || s.Valid || !got.Equal(at) || got.Location().String() != "UTC" {
		t.Errorf("row: %d %v %v, %v; want 0, NULL, %v", n, s, got, err, at)
	}
	if err := db.QueryRowContext(ctx, "SELECT n FROM t WHERE n = 1000").Scan(&n); !errors.Is(err, sql.ErrNoRows) {
		t.Errorf("no row: %v, want sql.ErrNoRows", err)
	}
}

// More clients than the engine runs at once, reading and writing.
func TestClickHouseGoManyClients(t *testing.T) {
	t.Parallel()
	conn, _ := openNative(t, func(o *clickhouse.Options) { o.MaxOpenConns, o.MaxIdleConns = 16, 16 })
	ctx := t.Context()
	if err := conn.Exec(ctx, wideTable); err != nil {
		t.Fatal(err)
	}
	const clients, rounds, size = 16, 5, 50
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			for r := range rounds {
				batch, err := conn.PrepareBatch(ctx, "INSERT INTO wide")
				if err != nil {
					t.Errorf("prepare: %v", err)
					return
				}
				for i, row := range wideRows(size) {
					row.ID = uint64((c*rounds+r)*size + i)
					if err := batch.AppendStruct(&row); err != nil {
						t.Errorf("append: %v", err)
						return
					}
				}
				if err := batch.Send(); err != nil {
					t.Errorf("send: %v", err)
					return
				}
				own := clickhouse.Context(ctx, clickhouse.WithSettings(clickhouse.Settings{"log_comment": strconv.Itoa(c)}))
				var comment string
				var n uint64
				if err := conn.QueryRow(own, "SELECT getSetting('log_comment'), count() FROM wide").Scan(&comment, &n); err != nil || comment != strconv.Itoa(c) || n < size {
					t.Errorf("client %d read comment %q and %d rows, %v", c, comment, n, err)
				}
			}
		})
	}
	wg.Wait()
	var n uint64
	if err := conn.QueryRow(ctx, "SELECT uniqExact(id) FROM wide").Scan(&n); err != nil || n != clients*rounds*size {
		t.Errorf("%d rows, %v; want %d", n, err, clients*rounds*size)
	}
}

func TestClickHouseGoCancel(t *testing.T) {
	t.Parallel()
	conn, _ := openNative(t, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	var n uint64
	err := conn.QueryRow(ctx, "SELECT max(sipHash64(number)) FROM numbers(1000000000000)").Scan(&n)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a query past its deadline: %v, want context.DeadlineExceeded", err)
	}
}
