-- The record of what happened: trace events, the tasks derived from them, and what could not be stored.
--
-- How these files are read: a statement ends with a semicolon at the end of a line, every statement can be repeated
-- (IF NOT EXISTS), `/* ON CLUSTER */` is where the name of a cluster goes, and MergeTree engines are made replicated
-- by the migrator where that is asked for. A file that was released is never changed: a change is a new file.

-- One row is one trace event, immutable. Publishing an event again writes the same key, and the copies are merged away
-- at some time: count with uniqExact(event_id), or read FINAL.
-- An event is read back byte for byte: the envelope from its columns and extra, the data from data. The other columns
-- are taken out of data for analysts, and stand in for it after its time to live.
CREATE TABLE IF NOT EXISTS trace_events /* ON CLUSTER */
(
    namespace         LowCardinality(String) COMMENT 'whose memory: tenant or tenant.team',
    time              DateTime64(3, 'UTC') COMMENT 'when it happened, as the producer says' CODEC(Delta, ZSTD(1)),
    task_id           String CODEC(ZSTD(1)),
    event_id          String COMMENT 'unique in its namespace' CODEC(ZSTD(1)),
    kind              LowCardinality(String) COMMENT 'task_started, message, step_finished, … or a kind this version does not know',
    agent_id          LowCardinality(String),
    session_id        String CODEC(ZSTD(1)),
    user_id           String CODEC(ZSTD(1)),
    goal_id           String CODEC(ZSTD(1)),
    seq               Int64 COMMENT 'order within the task as the producer numbers it, 0: not numbered' CODEC(T64, ZSTD(1)),

    task_type         LowCardinality(String) COMMENT 'task_started',
    goal              String COMMENT 'task_started, cut to 2000 bytes' CODEC(ZSTD(3)),
    parent_task_id    String COMMENT 'task_started' CODEC(ZSTD(1)),
    role              LowCardinality(String) COMMENT 'message: user, assistant, system',
    turn              Int64 COMMENT 'message' CODEC(T64, ZSTD(1)),
    step              Int64 COMMENT 'step_finished, 0: not numbered' CODEC(T64, ZSTD(1)),
    tool              LowCardinality(String) COMMENT 'step_finished',
    actor             LowCardinality(String) COMMENT 'step_finished: who called, empty means the agent',
    call_id           String COMMENT 'step_finished: one call reported twice has one call id' CODEC(ZSTD(1)),
    status            LowCardinality(String) COMMENT 'step_finished: success, failure; task_finished: also partial, cancelled, unknown',
    error_type        LowCardinality(String) COMMENT 'step_finished',
    error_message     String COMMENT 'step_finished, cut to 2000 bytes' CODEC(ZSTD(3)),
    execution_time_ms Int64 COMMENT 'step_finished' CODEC(T64, ZSTD(1)),
    score             Nullable(Float64) COMMENT 'task_finished: the producer''s own measure',
    reason            String COMMENT 'task_finished, cut to 2000 bytes' CODEC(ZSTD(3)),
    confirmed_by      LowCardinality(String) COMMENT 'task_finished: user, system, agent',
    feedback_kind     LowCardinality(String) COMMENT 'feedback: correction, rating, approval, rejection',
    feedback_target   String COMMENT 'feedback: id of what is judged' CODEC(ZSTD(1)),

    extra             Map(String, String) COMMENT 'envelope fields this version does not know, each as JSON' CODEC(ZSTD(3)),
    data              String COMMENT 'the data object as published; empty after its time to live' CODEC(ZSTD(3)) TTL toDateTime(recorded_at) + INTERVAL 180 DAY,
    recorded_at       DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC') COMMENT 'when the store wrote it, by its own clock' CODEC(Delta, ZSTD(1)),

    parameters        String ALIAS JSONExtractRaw(data, 'parameters') COMMENT 'step_finished',
    reasoning         String ALIAS JSONExtractString(data, 'reasoning') COMMENT 'step_finished',
    result            String ALIAS if(JSONType(data, 'result') = 'String', JSONExtractString(data, 'result'), JSONExtractRaw(data, 'result')) COMMENT 'step_finished, task_finished',
    content           String ALIAS JSONExtractString(data, 'content') COMMENT 'message',
    error_signature   String ALIAS substring(trimBoth(replaceRegexpAll(replaceRegexpAll(replaceRegexpAll(lower(error_message), '(^|[\\s(=:,])(''[^'']*''|"[^"]*"|`[^`]*`)', '\\1<text>'), '[^\\s,;:()<>]*@[^\\s,;:()<>]+', '<address>'), '[#\\w.:/-]*[0-9][#\\w.:/-]*', '<value>')), 1, 300) COMMENT 'the error message without its values, so that like errors group',

    INDEX by_task task_id TYPE bloom_filter(0.0001) GRANULARITY 1,
    INDEX by_event event_id TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX by_session session_id TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX by_goal goal_id TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX by_arrival recorded_at TYPE minmax GRANULARITY 1
)
ENGINE = ReplacingMergeTree(recorded_at)
PARTITION BY toYYYYMM(time)
ORDER BY (namespace, toStartOfHour(time), task_id, event_id)
SETTINGS index_granularity = 1024
COMMENT 'Trace events: immutable facts about running tasks';

-- One row is the state of a task at one revision; the highest revision counts (read FINAL). It is derived from the
-- task's events and can be derived again. The steps are not here: they are built from trace_events.
CREATE TABLE IF NOT EXISTS tasks /* ON CLUSTER */
(
    namespace       LowCardinality(String),
    task_id         String CODEC(ZSTD(1)),
    revision        UInt64 COMMENT '2 × distinct events + (1 if closed)' CODEC(T64, ZSTD(1)),
    goal_id         String COMMENT 'tasks with one goal id try the same thing' CODEC(ZSTD(1)),
    session_id      String CODEC(ZSTD(1)),
    user_id         String CODEC(ZSTD(1)),
    agent_id        LowCardinality(String),
    parent_task_id  String CODEC(ZSTD(1)),
    task_type       LowCardinality(String),
    goal            String CODEC(ZSTD(3)),
    input_summary   String CODEC(ZSTD(3)),
    available_tools Array(LowCardinality(String)),
    status          LowCardinality(String) COMMENT 'success, failure, partial, cancelled, unknown',
    certainty       LowCardinality(String) COMMENT 'who says so: confirmed by user or system, reported by the agent, inferred',
    reason          String CODEC(ZSTD(3)),
    score           Nullable(Float64) COMMENT 'the producer''s own measure',
    closed          Bool COMMENT 'the sweeper has decided that it is over',
    finished        Bool COMMENT 'an event says that it is over',
    events          Int64 COMMENT 'distinct events' CODEC(T64, ZSTD(1)),
    steps           Int64 COMMENT 'decisions of the agent' CODEC(T64, ZSTD(1)),
    messages        Int64 CODEC(T64, ZSTD(1)),
    errors          Int64 COMMENT 'failed steps' CODEC(T64, ZSTD(1)),
    corrections     Int64 COMMENT 'corrections by a user' CODEC(T64, ZSTD(1)),
    started_at      DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    ended_at        DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    duration_ms     Int64 CODEC(T64, ZSTD(1)),
    recalled        Array(String) COMMENT 'ids of the items shown during the task' CODEC(ZSTD(1)),
    withheld        Bool COMMENT 'in the control group: items were withheld',
    tools           Array(LowCardinality(String)) COMMENT 'tools used, each once, by first use',
    error_types     Array(LowCardinality(String)) COMMENT 'kinds of errors met, each once, by first occurrence',
    recorded_at     DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC') COMMENT 'when the store wrote it, by its own clock' CODEC(Delta, ZSTD(1)),

    INDEX by_session session_id TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX by_goal goal_id TYPE bloom_filter(0.01) GRANULARITY 1
)
ENGINE = ReplacingMergeTree(revision)
ORDER BY (namespace, task_id)
SETTINGS index_granularity = 1024
COMMENT 'Tasks: what the events of one task say together';

-- What could never be stored, with the reason; replayed by a person. Writing a letter again replaces it.
CREATE TABLE IF NOT EXISTS dead_letters /* ON CLUSTER */
(
    letter_id     String CODEC(ZSTD(1)),
    namespace     LowCardinality(String) COMMENT 'empty where the payload does not say',
    origin_stream LowCardinality(String),
    subject       String CODEC(ZSTD(1)),
    reason        LowCardinality(String) COMMENT 'one of few words, to group by',
    error         String COMMENT 'what happened, as a sentence' CODEC(ZSTD(3)),
    payload       String COMMENT 'the message as it came' CODEC(ZSTD(3)),
    attempts      Int64 COMMENT 'deliveries before it was given up' CODEC(T64, ZSTD(1)),
    time          DateTime64(3, 'UTC') COMMENT 'when it was given up' CODEC(Delta, ZSTD(1)),
    recorded_at   DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC') CODEC(Delta, ZSTD(1))
)
ENGINE = ReplacingMergeTree(recorded_at)
ORDER BY letter_id
TTL toDateTime(recorded_at) + INTERVAL 180 DAY
SETTINGS index_granularity = 1024
COMMENT 'Dead letters: messages that could not be stored';
