-- Search of items by words, what was reflected, and access tokens.

-- Words of items, to find items by: a row for each word of each text that an item ever had. The words of a version that
-- is not current stay, so that whoever searches looks at the item itself before an answer. The word '' is in every item,
-- so that it counts them. It is a list by word and no text index over texts: measured with 100,000 items of a namespace
-- on two shared cores, how often eleven words occur took 25 ms here, 46 ms with text indexes (of words and of pairs of
-- characters) and 230 ms by scanning. For 111,000 items it takes 96 MB, texts with indexes 49 MB; older servers have none.
CREATE TABLE IF NOT EXISTS item_terms /* ON CLUSTER */
(
    namespace   LowCardinality(String),
    term        String COMMENT 'a word in lower case, or two adjacent characters of a script without spaces' CODEC(ZSTD(1)),
    item_id     String CODEC(ZSTD(1)),
    layer       LowCardinality(String) COMMENT 'snapshot, memory, rule',
    task_type   LowCardinality(String),
    recorded_at DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1))
)
ENGINE = ReplacingMergeTree(recorded_at)
ORDER BY (namespace, term, item_id)
SETTINGS index_granularity = 2048
COMMENT 'Words of items';

-- What of each version of an item is searched by words. It repeats what the tables of the items have, so that a search
-- need not read them: the texts of 60 of 100,000 items took 70 ms of processor time from here and 250 ms from there.
CREATE TABLE IF NOT EXISTS item_texts /* ON CLUSTER */
(
    namespace     LowCardinality(String),
    item_id       String CODEC(ZSTD(1)),
    task_revision UInt64 CODEC(T64, ZSTD(1)),
    writer        LowCardinality(String),
    writer_kind   LowCardinality(String),
    seq           UInt64 CODEC(T64, ZSTD(1)),
    run_id        String CODEC(ZSTD(1)),
    layer         LowCardinality(String) COMMENT 'snapshot, memory, rule',
    task_type     LowCardinality(String),
    status        LowCardinality(String),
    text          String CODEC(ZSTD(1)),
    recorded_at   DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1))
)
ENGINE = ReplacingMergeTree(recorded_at)
ORDER BY (namespace, item_id, task_revision, writer, seq)
SETTINGS index_granularity = 64
COMMENT 'Texts of items, all versions';

-- The program cuts questions into words in the same way; a test compares the two.
CREATE MATERIALIZED VIEW IF NOT EXISTS item_terms_from_texts /* ON CLUSTER */ TO item_terms AS
WITH
    lowerUTF8(text) AS lower_text,
    extractAll(lower_text, '[\\p{Han}\\p{Hiragana}\\p{Katakana}\\p{Hangul}\\p{Thai}\\p{Lao}\\p{Khmer}\\p{Myanmar}ー]+') AS runs,
    extractAll(replaceRegexpAll(lower_text, '[\\p{Han}\\p{Hiragana}\\p{Katakana}\\p{Hangul}\\p{Thai}\\p{Lao}\\p{Khmer}\\p{Myanmar}ー]+', ' '), '[\\p{L}\\p{M}\\p{N}]+') AS words
SELECT
    namespace,
    arrayJoin(arrayDistinct(arrayConcat(
        [''],
        arrayFilter(word -> lengthUTF8(word) > 1 AND length(word) <= 64, words),
        arrayFlatten(arrayMap(run -> if(lengthUTF8(run) = 1, [run], ngrams(run, 2)), runs))
    ))) AS term,
    item_id, layer, task_type, recorded_at
FROM item_texts;

CREATE MATERIALIZED VIEW IF NOT EXISTS item_texts_from_snapshots /* ON CLUSTER */ TO item_texts AS
SELECT
    namespace, snapshot_id AS item_id, task_revision, writer, writer_kind, seq, run_id, 'snapshot' AS layer, task_type, status,
    concat(situation, '\n', lesson, '\n', applies_when, '\n', error_message, '\n', error_type, '\n', tool_selected, '\n', root_cause, '\n', alternative) AS text,
    recorded_at
FROM snapshots;

CREATE MATERIALIZED VIEW IF NOT EXISTS item_texts_from_memories /* ON CLUSTER */ TO item_texts AS
SELECT
    namespace, memory_id AS item_id, task_revision, writer, writer_kind, seq, run_id, 'memory' AS layer, task_type, status,
    concat(content, '\n', entity, '\n', value, '\n', tool, '\n', error_type) AS text,
    recorded_at
FROM memories;

CREATE MATERIALIZED VIEW IF NOT EXISTS item_texts_from_rules /* ON CLUSTER */ TO item_texts AS
SELECT
    namespace, rule_id AS item_id, task_revision, writer, writer_kind, seq, run_id, 'rule' AS layer, task_type, status,
    concat(rule, '\n', condition, '\n', action, '\n', tool, '\n', error_signature) AS text,
    recorded_at
FROM rules;

-- Which revisions of tasks were reflected, and what came of it. Of several rows of a task the highest revision counts,
-- and of one revision the last.
CREATE TABLE IF NOT EXISTS reflections /* ON CLUSTER */
(
    namespace    LowCardinality(String),
    task_id      String CODEC(ZSTD(1)),
    revision     UInt64 COMMENT 'of the task that was reflected' CODEC(T64, ZSTD(1)),
    closed       Bool COMMENT 'false: provisional, while the task was still running',
    reflected_by LowCardinality(String) COMMENT 'critic and model',
    fallback     String COMMENT 'why the evidence critic stands in for the model, or empty' CODEC(ZSTD(1)),
    kept         Int64 COMMENT 'snapshots and memories that were stored' CODEC(T64, ZSTD(1)),
    dropped      Map(String, Int64) COMMENT 'what was not stored, by reason' CODEC(ZSTD(1)),
    recorded_at  DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC') CODEC(Delta, ZSTD(1))
)
ENGINE = ReplacingMergeTree(recorded_at)
ORDER BY (namespace, task_id, revision)
SETTINGS index_granularity = 1024
COMMENT 'Reflections of tasks';

-- Who may do what in which namespace. Only a hash of the secret is kept. The highest version counts (read FINAL).
CREATE TABLE IF NOT EXISTS access_tokens /* ON CLUSTER */
(
    token_id    String CODEC(ZSTD(1)),
    version     UInt64 COMMENT 'counts the states of the token' CODEC(T64, ZSTD(1)),
    hash        String COMMENT 'SHA-256 of the secret, in hexadecimal' CODEC(ZSTD(1)),
    namespace   LowCardinality(String),
    scope       LowCardinality(String) COMMENT 'read, write, review, admin: each may do what those before it may',
    label       String COMMENT 'what it is for' CODEC(ZSTD(1)),
    created_at  DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    expires_at  Nullable(DateTime64(3, 'UTC')) COMMENT 'null: never',
    revoked     Bool,
    recorded_at DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC') CODEC(Delta, ZSTD(1))
)
ENGINE = ReplacingMergeTree(version)
ORDER BY token_id
SETTINGS index_granularity = 1024
COMMENT 'Access tokens, without their secrets';

-- What the record holds, a row for each namespace (the empty one: dead letters that do not say theirs). Events are
-- counted once however often they were stored. A task is open until the sweeper has closed it. Events that belong to no
-- task, whose task id begins with ~, open none.
-- Example:
--   SELECT namespace, events, tasks_open, tasks_closed, unknown_kinds, dead_letters, last_arrival
--   FROM v_health ORDER BY events DESC
CREATE OR REPLACE VIEW v_health /* ON CLUSTER */ AS
SELECT
    namespace,
    sum(n_events) AS events,
    toUInt64(greatest(toInt64(sum(n_tasks)) - toInt64(sum(n_closed)), 0)) AS tasks_open,
    sum(n_closed) AS tasks_closed,
    sum(n_unknown) AS unknown_kinds,
    sum(n_letters) AS dead_letters,
    max(arrival) AS last_arrival
FROM (
    SELECT
        namespace,
        count() AS n_events,
        uniqExactIf(task_id, NOT startsWith(task_id, '~')) AS n_tasks,
        0 AS n_closed,
        countIf(kind NOT IN ('task_started', 'message', 'step_finished', 'task_finished', 'feedback', 'item_written', 'item_changed', 'recall_served')) AS n_unknown,
        0 AS n_letters,
        max(recorded_at) AS arrival
    FROM trace_events FINAL
    GROUP BY namespace
    SETTINGS do_not_merge_across_partitions_select_final = 1
    UNION ALL
    SELECT namespace, 0, 0, countIf(closed), 0, 0, toDateTime64(0, 3, 'UTC')
    FROM tasks FINAL
    GROUP BY namespace
    UNION ALL
    SELECT namespace, 0, 0, 0, 0, count(), toDateTime64(0, 3, 'UTC')
    FROM dead_letters FINAL
    GROUP BY namespace
)
GROUP BY namespace;
