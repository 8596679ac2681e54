package engine_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hindsight-memory/hindsight/internal/engine/enginetest"
)

// Recall stands on these two kinds of index.
func TestVectorSimilarityIndex(t *testing.T) {
	t.Parallel()
	serverURL := enginetest.ClickHouse(t)
	db := enginetest.Database(t, serverURL)
	enginetest.Exec(t, serverURL, "CREATE TABLE "+db+".v (id UInt32, namespace LowCardinality(String), vector Array(Float32), INDEX hnsw vector TYPE vector_similarity('hnsw', 'cosineDistance', 16) GRANULARITY 100000000) ENGINE = MergeTree ORDER BY id")
	enginetest.Exec(t, serverURL, "INSERT INTO "+db+".v SELECT number, 'n', arrayMap(i -> sin(number * (i + 1) * 0.37) , range(16)) FROM numbers(5000)")
	question := func(from string) string {
		return "WITH arrayMap(i -> toFloat32(sin(1234 * (i + 1) * 0.37)), range(16)) AS q SELECT id FROM " + from + " ORDER BY cosineDistance(vector, q) LIMIT 5"
	}
	plan := enginetest.Exec(t, serverURL, "EXPLAIN indexes = 1 "+question(db+".v"))
	if !strings.Contains(plan, "hnsw") {
		t.Errorf("the index is not used:\n%s", plan)
	}
	got := strings.Fields(enginetest.Exec(t, serverURL, question(db+".v")))
	exact := strings.Fields(enginetest.Exec(t, serverURL, question(db+".v")+" SETTINGS use_skip_indexes = 0"))
	if len(got) != 5 || got[0] != "1234" || exact[0] != "1234" {
		t.Errorf("nearest by index %v, exactly %v; want 1234 first", got, exact)
	}
	// With a condition the index yields LIMIT rows first and the condition then
	// takes some away, unless it is told otherwise.
	filtered := strings.Replace(question(db+".v"), " ORDER BY", " WHERE namespace = 'n' AND id != 1234 ORDER BY", 1)
	for _, setting := range []string{"vector_search_filter_strategy = 'prefilter'", "vector_search_index_fetch_multiplier = 3"} {
		got := strings.Fields(enginetest.Exec(t, serverURL, filtered+" SETTINGS "+setting))
		if len(got) != 5 || got[0] == "1234" {
			t.Errorf("filtered with %s: %v, want five others", setting, got)
		}
	}
}

func TestTextIndexOfAnyLanguage(t *testing.T) {
	t.Parallel()
	serverURL := enginetest.ClickHouse(t)
	db := enginetest.Database(t, serverURL)
	enginetest.Exec(t, serverURL, "CREATE TABLE "+db+".x (id UInt32, text String, INDEX grams text TYPE text(tokenizer = ngrams(2))) ENGINE = MergeTree ORDER BY id SETTINGS index_granularity = 64")
	enginetest.Exec(t, serverURL, "INSERT INTO "+db+".x SELECT number, concat('row ', toString(number), if(number = 777, ' 返金はできません', ''), if(number = 888, ' Straße ERR-4711', '')) FROM numbers(2000)")
	for words, want := range map[string]string{"返金": "777\n", "ERR-4711": "888\n", "Straße": "888\n", "payment": ""} {
		condition := fmt.Sprintf("hasAllTokens(text, tokens('%s', 'ngrams', 2))", words)
		if got := enginetest.Exec(t, serverURL, "SELECT id FROM "+db+".x WHERE "+condition); got != want {
			t.Errorf("search for %s found %q, want %q", words, got, want)
		}
	}
	if plan := enginetest.Exec(t, serverURL, "EXPLAIN indexes = 1 SELECT id FROM "+db+".x WHERE hasAllTokens(text, tokens('返金', 'ngrams', 2))"); !strings.Contains(plan, "grams") {
		t.Errorf("the index is not used:\n%s", plan)
	}
}

// What the schema is made of.
func TestTableFeatures(t *testing.T) {
	t.Parallel()
	serverURL := enginetest.ClickHouse(t)
	db := enginetest.Database(t, serverURL)
	exec := func(sql string) string { return enginetest.Exec(t, serverURL, strings.ReplaceAll(sql, "$", db)) }
	exec("CREATE TABLE $.events (id String, at DateTime64(3, 'UTC'), kind LowCardinality(String), data Map(LowCardinality(String), String), body String CODEC(ZSTD(3)) TTL toDateTime(at) + INTERVAL 90 DAY, recorded_at DateTime64(6, 'UTC') DEFAULT now64(6), INDEX seen id TYPE bloom_filter(0.01)) ENGINE = ReplacingMergeTree(recorded_at) PARTITION BY toYYYYMM(at) ORDER BY (kind, toStartOfHour(at), id) TTL toDateTime(at) + INTERVAL 10 YEAR")
	exec("INSERT INTO $.events (id, at, kind, data, body) SELECT toString(number % 50), toDateTime64('2026-03-01 00:00:00', 3, 'UTC') + (number % 50) * 86400, 'step', map('a', 'b'), 'x' FROM numbers(100)")
	if got := exec("SELECT count() FROM $.events FINAL"); got != "50\n" {
		t.Errorf("FINAL counts %q, want 50", got)
	}
	exec("CREATE MATERIALIZED VIEW $.hourly ENGINE = AggregatingMergeTree ORDER BY kind AS SELECT kind, uniqState(id) AS ids FROM $.events GROUP BY kind")
	exec("INSERT INTO $.events (id, at, kind) VALUES ('new', now64(3), 'late')")
	if got := exec("SELECT kind, uniqMerge(ids) FROM $.hourly GROUP BY kind"); got != "late\t1\n" {
		t.Errorf("materialised view holds %q, want late 1", got)
	}
	exec("CREATE VIEW $.v AS SELECT kind, count() AS n FROM $.events WHERE kind = {kind:String} GROUP BY kind")
	if got := exec("SELECT n FROM $.v(kind = 'late')"); got != "1\n" {
		t.Errorf("parameterised view gives %q, want 1", got)
	}
	exec("ALTER TABLE $.events ADD COLUMN extra UInt8 DEFAULT 7, MODIFY TTL toDateTime(at) + INTERVAL 5 YEAR")
	exec("DELETE FROM $.events WHERE id = 'new'")
	exec("ALTER TABLE $.events DELETE WHERE id = '1' SETTINGS mutations_sync = 1")
	exec("ALTER TABLE $.events UPDATE body = 'y' WHERE id = '2' SETTINGS mutations_sync = 1")
	exec("OPTIMIZE TABLE $.events FINAL")
	if got := exec("SELECT count(), countIf(body = 'y'), any(extra) FROM $.events"); got != "49\t1\t7\n" {
		t.Errorf("after the mutations %q, want 49 1 7", got)
	}
	if got := exec("SELECT argMax(id, (at, recorded_at)) FROM $.events"); got != "49\n" {
		t.Errorf("argMax of a tuple gives %q, want 49", got)
	}
	exec("ALTER TABLE $.events DROP PARTITION 202603")
}
