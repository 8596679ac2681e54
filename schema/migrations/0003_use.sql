-- What happens to items: recalls, judgements, and who changed what. Recalls and feedback are trace events; the two
-- materialized views copy them into tables of their own, so that there is one way in. An event that comes twice has the
-- same key here as well.

-- One row is one answer to one question, with what was shown.
CREATE TABLE IF NOT EXISTS recalls /* ON CLUSTER */
(
    namespace   LowCardinality(String),
    time        DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    recall_id   String COMMENT 'the id of its event' CODEC(ZSTD(1)),
    task_id     String COMMENT 'empty: unjoined, the caller named no task' CODEC(ZSTD(1)),
    session_id  String CODEC(ZSTD(1)),
    user_id     String CODEC(ZSTD(1)),
    agent_id    LowCardinality(String),
    goal_id     String CODEC(ZSTD(1)),
    task_type   LowCardinality(String),
    question    String COMMENT 'empty after its time to live' CODEC(ZSTD(3)) TTL toDateTime(recorded_at) + INTERVAL 180 DAY,
    door        LowCardinality(String) COMMENT 'where it was asked: mcp, api, hook, cli, console',
    way         LowCardinality(String) COMMENT 'how it was answered',
    preset      LowCardinality(String) COMMENT 'of the ranking',
    item_ids    Array(String) COMMENT 'shown, or withheld, best first' CODEC(ZSTD(1)),
    item_layers Array(LowCardinality(String)),
    item_scores Array(Float64),
    items       String COMMENT 'with parts of the score and reasons, as JSON; empty after its time to live' CODEC(ZSTD(3)) TTL toDateTime(recorded_at) + INTERVAL 180 DAY,
    answer      String COMMENT 'as it was served; empty after its time to live' CODEC(ZSTD(3)) TTL toDateTime(recorded_at) + INTERVAL 180 DAY,
    withheld    Bool COMMENT 'control group: found, but not shown',
    as_of       Nullable(DateTime64(3, 'UTC')) COMMENT 'asked about a moment in the past',
    notice      String CODEC(ZSTD(3)),
    tokens      Int64 CODEC(T64, ZSTD(1)),
    latency_ms  Float64,
    recorded_at DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC') CODEC(Delta, ZSTD(1)),

    INDEX by_task task_id TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX by_recall recall_id TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX by_item item_ids TYPE bloom_filter(0.01) GRANULARITY 1
)
ENGINE = ReplacingMergeTree(recorded_at)
PARTITION BY toYYYYMM(time)
ORDER BY (namespace, toStartOfHour(time), recall_id)
TTL toDateTime(recorded_at) + INTERVAL 730 DAY
SETTINGS index_granularity = 1024
COMMENT 'Answers of recall';

CREATE MATERIALIZED VIEW IF NOT EXISTS recalls_from_events /* ON CLUSTER */ TO recalls AS
SELECT
    namespace, time, event_id AS recall_id,
    if(JSONHas(data, 'task_id'), JSONExtractString(data, 'task_id'), trace_events.task_id) AS task_id,
    session_id, user_id, agent_id, goal_id,
    JSONExtractString(data, 'task_type') AS task_type,
    JSONExtractString(data, 'question') AS question,
    JSONExtractString(data, 'door') AS door,
    JSONExtractString(data, 'way') AS way,
    JSONExtractString(data, 'preset') AS preset,
    arrayMap(x -> JSONExtractString(x, 'id'), JSONExtractArrayRaw(data, 'items')) AS item_ids,
    arrayMap(x -> JSONExtractString(x, 'layer'), JSONExtractArrayRaw(data, 'items')) AS item_layers,
    arrayMap(x -> JSONExtractFloat(x, 'score'), JSONExtractArrayRaw(data, 'items')) AS item_scores,
    JSONExtractRaw(data, 'items') AS items,
    JSONExtractString(data, 'answer') AS answer,
    JSONExtractBool(data, 'withheld') AS withheld,
    parseDateTime64BestEffortOrNull(JSONExtractString(data, 'as_of'), 3, 'UTC') AS as_of,
    JSONExtractString(data, 'notice') AS notice,
    JSONExtractInt(data, 'tokens') AS tokens,
    JSONExtractFloat(data, 'latency_ms') AS latency_ms,
    recorded_at
FROM trace_events
WHERE trace_events.kind = 'recall_served';

-- One row is one judgement of a task, step or item.
CREATE TABLE IF NOT EXISTS feedback /* ON CLUSTER */
(
    namespace   LowCardinality(String),
    time        DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    feedback_id String COMMENT 'the id of its event' CODEC(ZSTD(1)),
    target      String COMMENT 'id of the task, step or item that is judged' CODEC(ZSTD(1)),
    kind        LowCardinality(String) COMMENT 'correction, rating, approval, rejection',
    task_id     String CODEC(ZSTD(1)),
    session_id  String CODEC(ZSTD(1)),
    user_id     String CODEC(ZSTD(1)),
    agent_id    LowCardinality(String),
    value       String COMMENT 'as JSON' CODEC(ZSTD(3)),
    number      Nullable(Float64) COMMENT 'the value where it is a number',
    helpful     Nullable(Bool) COMMENT 'the value where it is yes or no',
    comment     String COMMENT 'empty after its time to live' CODEC(ZSTD(3)) TTL toDateTime(recorded_at) + INTERVAL 180 DAY,
    recorded_at DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC') CODEC(Delta, ZSTD(1)),

    INDEX by_target target TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX by_task task_id TYPE bloom_filter(0.01) GRANULARITY 1
)
ENGINE = ReplacingMergeTree(recorded_at)
PARTITION BY toYYYYMM(time)
ORDER BY (namespace, toStartOfHour(time), feedback_id)
TTL toDateTime(recorded_at) + INTERVAL 730 DAY
SETTINGS index_granularity = 1024
COMMENT 'Judgements of tasks, steps and items';

CREATE MATERIALIZED VIEW IF NOT EXISTS feedback_from_events /* ON CLUSTER */ TO feedback AS
SELECT
    namespace, time, event_id AS feedback_id,
    if(feedback_target = '', trace_events.task_id, feedback_target) AS target,
    feedback_kind AS kind,
    task_id, session_id, user_id, agent_id,
    JSONExtractRaw(data, 'value') AS value,
    if(JSONType(data, 'value') IN ('Int64', 'UInt64', 'Double'), JSONExtractFloat(data, 'value'), NULL) AS number,
    if(JSONType(data, 'value') = 'Bool', JSONExtractBool(data, 'value'), NULL) AS helpful,
    JSONExtractString(data, 'comment') AS comment,
    recorded_at
FROM trace_events
WHERE trace_events.kind = 'feedback';

-- Who did what to which item, and why.
CREATE TABLE IF NOT EXISTS audit /* ON CLUSTER */
(
    namespace   LowCardinality(String),
    time        DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    audit_id    String CODEC(ZSTD(1)),
    actor       String COMMENT 'person, agent or program' CODEC(ZSTD(1)),
    actor_kind  LowCardinality(String) COMMENT 'person, agent, machine',
    door        LowCardinality(String) COMMENT 'where it came in: mcp, api, cli, console, job',
    action      LowCardinality(String) COMMENT 'what was done',
    target      String COMMENT 'id of the item' CODEC(ZSTD(1)),
    target_kind LowCardinality(String) COMMENT 'snapshot, memory, rule, summary, task, event, namespace',
    reason      String CODEC(ZSTD(3)),
    before      String COMMENT 'as JSON; empty after its time to live' CODEC(ZSTD(3)) TTL toDateTime(recorded_at) + INTERVAL 180 DAY,
    after       String COMMENT 'as JSON; empty after its time to live' CODEC(ZSTD(3)) TTL toDateTime(recorded_at) + INTERVAL 180 DAY,
    recorded_at DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC') CODEC(Delta, ZSTD(1)),

    INDEX by_target target TYPE bloom_filter(0.01) GRANULARITY 1
)
ENGINE = ReplacingMergeTree(recorded_at)
PARTITION BY toYYYYMM(time)
ORDER BY (namespace, toStartOfHour(time), audit_id)
TTL toDateTime(recorded_at) + INTERVAL 1095 DAY
SETTINGS index_granularity = 1024
COMMENT 'Audit: who changed what';
