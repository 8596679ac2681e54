-- How the memory is kept: runs of jobs, what was moved to cold files, and what was erased for ever.

-- One row is the state of one run of a job; the highest version counts (read FINAL). What a run wrote is seen once it
-- is committed.
CREATE TABLE IF NOT EXISTS consolidation_runs /* ON CLUSTER */
(
    job          LowCardinality(String),
    run_id       String CODEC(ZSTD(1)),
    version      UInt64 COMMENT 'counts the states of the run' CODEC(T64, ZSTD(1)),
    status       LowCardinality(String) COMMENT 'running, committed, failed',
    fence        UInt64 COMMENT 'of the lease under which it ran' CODEC(T64, ZSTD(1)),
    holder       String COMMENT 'the program that ran it' CODEC(ZSTD(1)),
    namespace    LowCardinality(String) COMMENT 'empty: all',
    started_at   DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    committed_at Nullable(DateTime64(3, 'UTC')) COMMENT 'the moment from which its rows count',
    counts       Map(String, UInt64) COMMENT 'what it did' CODEC(ZSTD(1)),
    error        String CODEC(ZSTD(3)),
    recorded_at  DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC') CODEC(Delta, ZSTD(1))
)
ENGINE = ReplacingMergeTree(version)
ORDER BY (job, run_id)
SETTINGS index_granularity = 1024
COMMENT 'Runs of consolidation jobs';

-- One row is the state of one cold file; the highest version counts (read FINAL).
CREATE TABLE IF NOT EXISTS archive_manifest /* ON CLUSTER */
(
    namespace   LowCardinality(String),
    archive_id  String CODEC(ZSTD(1)),
    version     UInt64 COMMENT 'counts the states of the file' CODEC(T64, ZSTD(1)),
    source      LowCardinality(String) COMMENT 'the table that the rows come from',
    file        String COMMENT 'where it lies' CODEC(ZSTD(1)),
    format      LowCardinality(String),
    sha256      String CODEC(ZSTD(1)),
    bytes       UInt64 CODEC(T64, ZSTD(1)),
    rows        UInt64 CODEC(T64, ZSTD(1)),
    item_ids    Array(String) CODEC(ZSTD(1)),
    oldest      DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    newest      DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    status      LowCardinality(String) COMMENT 'written, verified, moved, restored, erased',
    run_id      String CODEC(ZSTD(1)),
    recorded_at DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC') CODEC(Delta, ZSTD(1)),

    INDEX by_item item_ids TYPE bloom_filter(0.01) GRANULARITY 1
)
ENGINE = ReplacingMergeTree(version)
ORDER BY (namespace, archive_id)
SETTINGS index_granularity = 1024
COMMENT 'Cold files with checksums';

-- Hashes of what was erased, so that it does not come back by an import, a replay or a restore.
CREATE TABLE IF NOT EXISTS tombstones /* ON CLUSTER */
(
    namespace   LowCardinality(String),
    kind        LowCardinality(String) COMMENT 'what is hashed: event, task, session, item, content',
    hash        String COMMENT 'of the id or content; neither is kept' CODEC(ZSTD(1)),
    receipt_id  String COMMENT 'the order to erase it' CODEC(ZSTD(1)),
    erased_at   DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    recorded_at DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC') CODEC(Delta, ZSTD(1))
)
ENGINE = ReplacingMergeTree(recorded_at)
ORDER BY (namespace, kind, hash)
SETTINGS index_granularity = 1024
COMMENT 'Hashes of what was erased';
