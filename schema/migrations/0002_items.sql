-- What was learnt: snapshots, memories, rules and summaries, how they hang together, and their vectors.
--
-- Snapshots, memories, rules and summaries are append-only: a change is a new row, a version, of the same id. Versions
-- are ordered by (task_revision, recorded_at, writer, seq) and the last one is current, except that a person's version
-- outlasts every machine's. A row that a job wrote counts once its run is committed. The current versions are in
-- v_snapshots, v_memories, v_rules and v_summaries.
-- (writer, seq) names one write, so that a write that is repeated does not make a version.
-- Items are read by their ids, a few at a time and far apart, and their rows are wide: small granules are what keeps such
-- a read from decompressing half the table, and compact parts, which hold a granule's columns side by side, from looking
-- for each of 45 columns by itself: 45 of 100,000 snapshots take 65 ms of processor time instead of 170.

-- Decision snapshots: steps worth keeping, with outcome and reflection.
CREATE TABLE IF NOT EXISTS snapshots /* ON CLUSTER */
(
    namespace          LowCardinality(String),
    snapshot_id        String COMMENT 'hash of namespace, task and call: the same when events come late' CODEC(ZSTD(1)),
    task_revision      UInt64 COMMENT 'of the task it was drawn from' CODEC(T64, ZSTD(1)),
    writer             LowCardinality(String) COMMENT 'the program or person that wrote this version',
    writer_kind        LowCardinality(String) COMMENT 'machine, person',
    seq                UInt64 COMMENT 'counts the writes of this writer' CODEC(T64, ZSTD(1)),
    run_id             String COMMENT 'the consolidation run that wrote it, or empty' CODEC(ZSTD(1)),
    timestamp          DateTime64(3, 'UTC') COMMENT 'when the step happened' CODEC(Delta, ZSTD(1)),
    agent_id           LowCardinality(String),
    session_id         String CODEC(ZSTD(1)),
    user_id            String CODEC(ZSTD(1)),
    task_id            String CODEC(ZSTD(1)),
    goal_id            String CODEC(ZSTD(1)),
    step               Int64 CODEC(T64, ZSTD(1)),

    task_type          LowCardinality(String) COMMENT 'task_context',
    input_summary      String COMMENT 'task_context' CODEC(ZSTD(3)),
    available_tools    Array(LowCardinality(String)) COMMENT 'task_context',
    tool_selected      LowCardinality(String) COMMENT 'decision',
    parameters         String COMMENT 'decision, as JSON' CODEC(ZSTD(3)),
    reasoning_path     String COMMENT 'decision' CODEC(ZSTD(3)),
    outcome_status     LowCardinality(String) COMMENT 'outcome: success, failure, partial',
    error_type         LowCardinality(String) COMMENT 'outcome',
    error_message      String COMMENT 'outcome' CODEC(ZSTD(3)),
    execution_time_ms  Int64 COMMENT 'outcome' CODEC(T64, ZSTD(1)),
    is_optimal         Nullable(Bool) COMMENT 'reflection; null: not reflected yet',
    root_cause         String COMMENT 'reflection' CODEC(ZSTD(3)),
    root_cause_class   LowCardinality(String) COMMENT 'reflection: information, tool, parameter, order, result_misread, environment, other',
    alternative        String COMMENT 'reflection' CODEC(ZSTD(3)),
    lesson             String COMMENT 'reflection' CODEC(ZSTD(3)),
    tags               Array(LowCardinality(String)),

    applies_when       String CODEC(ZSTD(3)),
    situation          String COMMENT 'the de-instantiated text that is embedded' CODEC(ZSTD(3)),
    evidence           Array(String) COMMENT 'ids of the events it was drawn from, never empty' CODEC(ZSTD(1)),
    trust              LowCardinality(String) COMMENT 'user_stated, agent_inferred, external',
    confidence         Float64,
    confidence_reasons Array(String) CODEC(ZSTD(3)),
    importance         Float64,
    importance_reasons Array(String) CODEC(ZSTD(3)),
    status             LowCardinality(String) COMMENT 'active, pending_review, quarantined, superseded, archived, forgotten',
    status_reason      String CODEC(ZSTD(3)),
    reflected_by       LowCardinality(String) COMMENT 'critic and model',
    prompt_version     LowCardinality(String),
    extra              Map(String, String) COMMENT 'fields this version does not know, each as JSON' CODEC(ZSTD(3)),
    recorded_at        DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC') CODEC(Delta, ZSTD(1)),

    INDEX by_task task_id TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX by_arrival recorded_at TYPE minmax GRANULARITY 1
)
ENGINE = ReplacingMergeTree(recorded_at)
ORDER BY (namespace, snapshot_id, task_revision, writer, seq)
SETTINGS index_granularity = 128, min_bytes_for_wide_part = 1000000000000
COMMENT 'Decision snapshots, all versions';

-- Structured facts: preferences, procedures, facts and corrections.
CREATE TABLE IF NOT EXISTS memories /* ON CLUSTER */
(
    namespace          LowCardinality(String),
    memory_id          String COMMENT 'hash of namespace, source event and ordinal' CODEC(ZSTD(1)),
    task_revision      UInt64 CODEC(T64, ZSTD(1)),
    writer             LowCardinality(String),
    writer_kind        LowCardinality(String) COMMENT 'machine, person',
    seq                UInt64 CODEC(T64, ZSTD(1)),
    run_id             String COMMENT 'the consolidation run that wrote it, or empty' CODEC(ZSTD(1)),
    timestamp          DateTime64(3, 'UTC') COMMENT 'when it was said' CODEC(Delta, ZSTD(1)),
    agent_id           LowCardinality(String),
    session_id         String CODEC(ZSTD(1)),
    user_id            String CODEC(ZSTD(1)),
    task_id            String CODEC(ZSTD(1)),
    source_turn        Int64 COMMENT 'turn of the message it was drawn from' CODEC(T64, ZSTD(1)),

    memory_type        LowCardinality(String) COMMENT 'preference, procedure, fact, correction',
    entity             String CODEC(ZSTD(1)),
    entities           Array(String) COMMENT 'all that it is about' CODEC(ZSTD(1)),
    value              String CODEC(ZSTD(3)),
    old_value          String COMMENT 'what an update or delete replaced' CODEC(ZSTD(3)),
    operation          LowCardinality(String) COMMENT 'add, update, delete',
    content            String COMMENT 'the fact as one sentence' CODEC(ZSTD(3)),
    task_type          LowCardinality(String) COMMENT 'where it applies to one type only',
    tool               LowCardinality(String),
    error_type         LowCardinality(String),
    tags               Array(LowCardinality(String)),
    valid_from         DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    valid_to           Nullable(DateTime64(3, 'UTC')) COMMENT 'null: still valid',

    evidence           Array(String) COMMENT 'ids of the events it was drawn from, never empty' CODEC(ZSTD(1)),
    trust              LowCardinality(String) COMMENT 'user_stated, agent_inferred, external',
    confidence         Float64,
    confidence_reasons Array(String) CODEC(ZSTD(3)),
    importance         Float64,
    importance_reasons Array(String) CODEC(ZSTD(3)),
    status             LowCardinality(String) COMMENT 'active, pending_review, quarantined, superseded, archived, forgotten',
    status_reason      String CODEC(ZSTD(3)),
    extracted_by       LowCardinality(String),
    prompt_version     LowCardinality(String),
    extra              Map(String, String) COMMENT 'fields this version does not know, each as JSON' CODEC(ZSTD(3)),
    recorded_at        DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC') CODEC(Delta, ZSTD(1)),

    INDEX by_entity entity TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX by_task task_id TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX by_arrival recorded_at TYPE minmax GRANULARITY 1
)
ENGINE = ReplacingMergeTree(recorded_at)
ORDER BY (namespace, memory_id, task_revision, writer, seq)
SETTINGS index_granularity = 128, min_bytes_for_wide_part = 1000000000000
COMMENT 'Structured memories, all versions';

-- What several snapshots have in common.
CREATE TABLE IF NOT EXISTS rules /* ON CLUSTER */
(
    namespace           LowCardinality(String),
    rule_id             String CODEC(ZSTD(1)),
    task_revision       UInt64 COMMENT '0: no single task' CODEC(T64, ZSTD(1)),
    writer              LowCardinality(String),
    writer_kind         LowCardinality(String) COMMENT 'machine, person',
    seq                 UInt64 CODEC(T64, ZSTD(1)),
    run_id              String COMMENT 'the consolidation run that wrote it, or empty' CODEC(ZSTD(1)),
    timestamp           DateTime64(3, 'UTC') COMMENT 'when this version was drawn' CODEC(Delta, ZSTD(1)),

    task_type           LowCardinality(String),
    kind                LowCardinality(String) COMMENT 'call: predicts that a call fails; task: predicts the outcome of a task',
    tool                LowCardinality(String) COMMENT 'call rules',
    error_signature     String COMMENT 'the error it is about, without values' CODEC(ZSTD(1)),
    rule                String CODEC(ZSTD(3)),
    condition           String CODEC(ZSTD(3)),
    action              String CODEC(ZSTD(3)),
    does_not_apply_when String CODEC(ZSTD(3)),
    predicate           String COMMENT 'the condition for a program, as JSON' CODEC(ZSTD(3)),
    support             Int64 COMMENT 'tasks that support it' CODEC(T64, ZSTD(1)),
    refute              Int64 COMMENT 'tasks that refute it' CODEC(T64, ZSTD(1)),
    lift                Float64 COMMENT 'against the base rate, shrunken toward 1',
    lift_low            Float64 COMMENT 'lower bound of the lift, 90 %',
    goals               Int64 COMMENT 'distinct goals behind it' CODEC(T64, ZSTD(1)),
    voices              Int64 COMMENT 'independent voices behind it' CODEC(T64, ZSTD(1)),
    pinned              Bool COMMENT 'by a person: never retires by itself',
    tags                Array(LowCardinality(String)),

    evidence            Array(String) COMMENT 'ids of the events it was drawn from, never empty' CODEC(ZSTD(1)),
    trust               LowCardinality(String) COMMENT 'user_stated, agent_inferred, external',
    confidence          Float64,
    confidence_reasons  Array(String) CODEC(ZSTD(3)),
    importance          Float64,
    importance_reasons  Array(String) CODEC(ZSTD(3)),
    status              LowCardinality(String) COMMENT 'candidate, active, retired, pending_review, quarantined, superseded, archived, forgotten',
    status_reason       String CODEC(ZSTD(3)),
    extra               Map(String, String) COMMENT 'fields this version does not know, each as JSON' CODEC(ZSTD(3)),
    recorded_at         DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC') CODEC(Delta, ZSTD(1)),

    INDEX by_arrival recorded_at TYPE minmax GRANULARITY 1
)
ENGINE = ReplacingMergeTree(recorded_at)
ORDER BY (namespace, rule_id, task_revision, writer, seq)
SETTINGS index_granularity = 128, min_bytes_for_wide_part = 1000000000000
COMMENT 'Rules, all versions';

-- Where a session stands, in at most 200 characters.
CREATE TABLE IF NOT EXISTS summaries /* ON CLUSTER */
(
    namespace     LowCardinality(String),
    session_id    String CODEC(ZSTD(1)),
    task_revision UInt64 CODEC(T64, ZSTD(1)),
    writer        LowCardinality(String),
    writer_kind   LowCardinality(String) COMMENT 'machine, person',
    seq           UInt64 CODEC(T64, ZSTD(1)),
    run_id        String COMMENT 'the consolidation run that wrote it, or empty' CODEC(ZSTD(1)),
    timestamp     DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    agent_id      LowCardinality(String),
    user_id       String CODEC(ZSTD(1)),
    task_id       String COMMENT 'the task after which it was written' CODEC(ZSTD(1)),
    goal          String CODEC(ZSTD(3)),
    confirmed     Array(String) COMMENT 'what is settled' CODEC(ZSTD(3)),
    pending       Array(String) COMMENT 'what is open, and questions to the user' CODEC(ZSTD(3)),
    summary       String COMMENT 'all of it as one text of at most 200 characters' CODEC(ZSTD(3)),
    evidence      Array(String) COMMENT 'ids of the events it was drawn from, never empty' CODEC(ZSTD(1)),
    status        LowCardinality(String) COMMENT 'active, superseded, archived, forgotten',
    written_by    LowCardinality(String),
    recorded_at   DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC') CODEC(Delta, ZSTD(1)),

    INDEX by_arrival recorded_at TYPE minmax GRANULARITY 1
)
ENGINE = ReplacingMergeTree(recorded_at)
ORDER BY (namespace, session_id, task_revision, writer, seq)
SETTINGS index_granularity = 128, min_bytes_for_wide_part = 1000000000000
COMMENT 'Summaries of sessions, all versions';

-- Vectors of all items, of every model and text they ever had, so that an index can be rebuilt without embedding again
-- and a question can be answered as of a moment. Of equal rows the first counts: min(recorded_at).
CREATE TABLE IF NOT EXISTS item_vectors /* ON CLUSTER */
(
    namespace   LowCardinality(String),
    model       LowCardinality(String) COMMENT 'name and version of the embedding model',
    item_id     String CODEC(ZSTD(1)),
    text_hash   String COMMENT 'of the text that was embedded' CODEC(ZSTD(1)),
    layer       LowCardinality(String) COMMENT 'snapshot, memory, rule, summary',
    vector      Array(Float32) COMMENT 'of length 1' CODEC(NONE),
    recorded_at DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    keep_first  UInt64 DEFAULT 18446744073709551615 - toUInt64(toUnixTimestamp64Milli(recorded_at)) COMMENT 'makes the merge of equal rows keep the first' CODEC(T64, ZSTD(1)),

    INDEX by_arrival recorded_at TYPE minmax GRANULARITY 1
)
ENGINE = ReplacingMergeTree(keep_first)
ORDER BY (namespace, model, item_id, text_hash)
SETTINGS index_granularity = 64
COMMENT 'Vectors of items';

-- The graph between items. The last row of (from_id, kind, to_id) counts; a removed relation stays as a row.
CREATE TABLE IF NOT EXISTS item_relations /* ON CLUSTER */
(
    namespace   LowCardinality(String),
    from_id     String CODEC(ZSTD(1)),
    kind        LowCardinality(String) COMMENT 'same_entity, merged_into, derived_from, contradicts, supersedes',
    to_id       String CODEC(ZSTD(1)),
    writer      LowCardinality(String),
    seq         UInt64 CODEC(T64, ZSTD(1)),
    run_id      String COMMENT 'the consolidation run that wrote it, or empty' CODEC(ZSTD(1)),
    removed     Bool,
    weight      Float64 COMMENT 'similarity or strength, 0 to 1',
    reason      String CODEC(ZSTD(3)),
    recorded_at DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC') CODEC(Delta, ZSTD(1)),

    INDEX by_to to_id TYPE bloom_filter(0.01) GRANULARITY 1
)
ENGINE = ReplacingMergeTree(recorded_at)
ORDER BY (namespace, from_id, kind, to_id, writer, seq)
SETTINGS index_granularity = 1024
COMMENT 'Relations between items';

-- Whether a task supports or refutes a rule. A task votes once: of several rows the highest task_revision counts.
CREATE TABLE IF NOT EXISTS rule_votes /* ON CLUSTER */
(
    namespace     LowCardinality(String),
    rule_id       String CODEC(ZSTD(1)),
    task_id       String CODEC(ZSTD(1)),
    run_id        String COMMENT 'the consolidation run that wrote it, or empty' CODEC(ZSTD(1)),
    task_revision UInt64 CODEC(T64, ZSTD(1)),
    vote          LowCardinality(String) COMMENT 'support, refute',
    goal_id       String CODEC(ZSTD(1)),
    agent_id      LowCardinality(String),
    confirmed_by  LowCardinality(String) COMMENT 'who confirmed the outcome of the task: user, system, agent',
    shown         Bool COMMENT 'the rule was shown during the task, so that it does not count for the base rate',
    event_id      String COMMENT 'the event that decides' CODEC(ZSTD(1)),
    recorded_at   DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC') CODEC(Delta, ZSTD(1))
)
ENGINE = ReplacingMergeTree(task_revision)
ORDER BY (namespace, rule_id, task_id, run_id)
SETTINGS index_granularity = 1024
COMMENT 'Votes of tasks on rules';
