-- What the reflection of a task rests on beside the task itself, so that it is made again when that changes, and only
-- then: the same tasks lead to the same lessons, in whatever order they were closed and reflected.

-- The errors of a task, each once: the i-th of the three columns belong together.
ALTER TABLE tasks /* ON CLUSTER */ ADD COLUMN IF NOT EXISTS failed_tools Array(LowCardinality(String)) COMMENT 'tools that failed, one entry for each error signature' AFTER error_types;

ALTER TABLE tasks /* ON CLUSTER */ ADD COLUMN IF NOT EXISTS failed_signatures Array(String) COMMENT 'the error signature of each entry of failed_tools' AFTER failed_tools;

ALTER TABLE tasks /* ON CLUSTER */ ADD COLUMN IF NOT EXISTS failed_at Array(DateTime64(3, 'UTC')) COMMENT 'when each entry of failed_tools was first met in the task' AFTER failed_signatures;

-- Which task met an error first. Rows of earlier states of a task stay: whoever reads compares with the task's row.
CREATE TABLE IF NOT EXISTS task_errors /* ON CLUSTER */
(
    namespace   LowCardinality(String),
    task_type   LowCardinality(String),
    tool        LowCardinality(String),
    signature   String COMMENT 'the error without its values' CODEC(ZSTD(1)),
    first_at    DateTime64(3, 'UTC') COMMENT 'when the task first met it' CODEC(Delta, ZSTD(1)),
    task_id     String CODEC(ZSTD(1)),
    recorded_at DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1))
)
ENGINE = ReplacingMergeTree(recorded_at)
ORDER BY (namespace, task_type, tool, signature, first_at, task_id)
SETTINGS index_granularity = 256
COMMENT 'Errors by the tasks that met them, the earliest first';

CREATE MATERIALIZED VIEW IF NOT EXISTS task_errors_from_tasks /* ON CLUSTER */ TO task_errors AS
SELECT namespace, task_type, failed.1 AS tool, failed.2 AS signature, failed.3 AS first_at, task_id, recorded_at
FROM tasks
ARRAY JOIN arrayZip(failed_tools, failed_signatures, failed_at) AS failed
WHERE closed;

ALTER TABLE reflections /* ON CLUSTER */ ADD COLUMN IF NOT EXISTS basis String COMMENT 'hash of what it rests on beside the task: its siblings, and which of its errors were met before' CODEC(ZSTD(1)) AFTER dropped;
