-- Which tasks of a type called a tool and how they ended, by their start: a task that failed is compared with those of its
-- type that made the same calls and succeeded. Tasks that were closed before this are found once their state is written
-- again.

-- Rows of earlier states of a task stay: whoever reads compares with the task's row.
CREATE TABLE IF NOT EXISTS task_calls /* ON CLUSTER */
(
    namespace   LowCardinality(String),
    task_type   LowCardinality(String),
    tool        LowCardinality(String),
    status      LowCardinality(String) COMMENT 'how the task ended, as somebody saw it: success, failure',
    started_at  DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    task_id     String CODEC(ZSTD(1)),
    recorded_at DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1))
)
ENGINE = ReplacingMergeTree(recorded_at)
ORDER BY (namespace, task_type, tool, status, started_at, task_id)
SETTINGS index_granularity = 256
COMMENT 'Tools by the tasks that called them, with the outcome of the task';

CREATE MATERIALIZED VIEW IF NOT EXISTS task_calls_from_tasks /* ON CLUSTER */ TO task_calls AS
SELECT namespace, task_type, called AS tool, status, started_at, task_id, recorded_at
FROM tasks
ARRAY JOIN tools AS called
WHERE closed AND finished AND task_type != '' AND status IN ('success', 'failure') AND certainty != 'inferred';
