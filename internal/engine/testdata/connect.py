"""Uses the embedded ClickHouse as Python programs do; argv: port, database. Prints one line a check that failed."""

import datetime
import sys
import threading

import clickhouse_connect
from clickhouse_connect.driver.exceptions import DatabaseError

port, database = int(sys.argv[1]), sys.argv[2]
failures = 0


def check(what, got, want):
    global failures
    if got != want:
        failures += 1
        print(f"{what}: {got!r}, want {want!r}")


client = clickhouse_connect.get_client(host="127.0.0.1", port=port, database=database)
check("ping", client.ping(), True)
check("command", client.command("SELECT 1 + 1"), 2)
check("database", client.command("SELECT currentDatabase()"), database)
check("version", int(client.server_version.split(".")[0]) >= 26, True)
check("time zone", str(client.server_tz), "UTC")

client.command(
    "CREATE TABLE t (id UInt64, at DateTime64(3, 'UTC'), labels Map(String, String), tags Array(String), "
    "kind LowCardinality(String), note Nullable(String), vector Array(Float32)) ENGINE = MergeTree ORDER BY id"
)
at = datetime.datetime(2026, 1, 2, 3, 4, 5, 678000)  # the client gives UTC without a zone
rows = [[i, at, {"a": str(i)}, ["x\n\n", "日本"], "k", None if i % 2 else "note\n\n", [0.5, float(i)]] for i in range(1000)]
names = ["id", "at", "labels", "tags", "kind", "note", "vector"]
summary = client.insert("t", rows, column_names=names)
check("written rows", summary.written_rows, 1000)

result = client.query("SELECT * FROM t ORDER BY id")
check("rows", [list(r) for r in result.result_rows[:5]], rows[:5])
check("row count", result.row_count, 1000)
check("no rows", client.query("SELECT id FROM t WHERE 0").result_rows, [])
check("parameters", client.query("SELECT {n:UInt32} + 1, {s:String}", parameters={"n": 4, "s": "it's\t\n\\"}).result_rows, [(5, "it's\t\n\\")])
check("client side parameters", client.query("SELECT count() FROM t WHERE id < %(n)s", parameters={"n": 7}).result_rows, [(7,)])
check("settings", client.command("SELECT getSetting('max_block_size')", settings={"max_block_size": 123}), 123)
check("raw", client.raw_query("SELECT 1 AS a", fmt="JSONEachRow"), b'{"a":1}\n')
client.raw_insert("t", ["id", "kind"], b"5000,k\n5001,k\n", fmt="CSV")
check("raw insert", client.command("SELECT count() FROM t"), 1002)
check("INSERT by command", client.command("INSERT INTO t (id) VALUES (6000)") is not None, True)
with client.query_row_block_stream("SELECT number FROM numbers(1000000)") as stream:
    check("stream", sum(len(block) for block in stream), 1000000)

for sql, code in [("SELECT * FROM nothing", 60), ("SELEC 1", 62), ("SELECT throwIf(number = 900000) FROM numbers(1000000)", 395)]:
    try:
        client.query(sql)
        check(sql, "no error", f"code {code}")
    except DatabaseError as e:
        check(sql, f"code {code}" in str(e).lower() or f"code: {code}." in str(e).lower(), True)

for compress in ("lz4", "zstd", "gzip", False):
    other = clickhouse_connect.get_client(host="127.0.0.1", port=port, database=database, compress=compress, autogenerate_session_id=False)
    other.insert("t", [[7000, "k"]], column_names=["id", "kind"])
    check(f"compression {compress}", other.query("SELECT max(id) FROM t").result_rows, [(7000,)])
    other.close()


def work(n):
    own = clickhouse_connect.get_client(host="127.0.0.1", port=port, database=database)
    for i in range(10):
        check("thread", own.command(f"SELECT {n} * {i}"), n * i)
    own.close()


threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
for t in threads:
    t.start()
for t in threads:
    t.join()
client.close()
sys.exit(1 if failures else 0)
