-- Views for people and programs. The comment before each says what it is for and ends with an example.

-- The current version of each decision snapshot.
-- Example:
--   SELECT task_type, tool_selected, lesson, confidence FROM v_snapshots
--   WHERE status = 'active' AND outcome_status = 'failure' ORDER BY importance DESC LIMIT 20
CREATE VIEW IF NOT EXISTS v_snapshots /* ON CLUSTER */ AS
SELECT *
FROM snapshots FINAL
WHERE (namespace, snapshot_id, task_revision, writer, seq) IN (
    SELECT namespace, snapshot_id, current.1, current.2, current.3
    FROM (
        SELECT namespace, snapshot_id,
            argMax((task_revision, writer, seq), (writer_kind = 'person', task_revision, recorded_at, writer, seq)) AS current
        FROM snapshots
        WHERE run_id = '' OR run_id IN (SELECT run_id FROM consolidation_runs FINAL WHERE status = 'committed')
        GROUP BY namespace, snapshot_id
    )
);

-- The current version of each memory.
-- Example:
--   SELECT entity, value, trust, valid_from FROM v_memories
--   WHERE status = 'active' AND memory_type = 'preference' AND valid_to IS NULL ORDER BY entity LIMIT 20
CREATE VIEW IF NOT EXISTS v_memories /* ON CLUSTER */ AS
SELECT *
FROM memories FINAL
WHERE (namespace, memory_id, task_revision, writer, seq) IN (
    SELECT namespace, memory_id, current.1, current.2, current.3
    FROM (
        SELECT namespace, memory_id,
            argMax((task_revision, writer, seq), (writer_kind = 'person', task_revision, recorded_at, writer, seq)) AS current
        FROM memories
        WHERE run_id = '' OR run_id IN (SELECT run_id FROM consolidation_runs FINAL WHERE status = 'committed')
        GROUP BY namespace, memory_id
    )
);

-- The current version of each rule.
-- Example:
--   SELECT task_type, kind, rule, action, support, refute, lift_low FROM v_rules
--   WHERE status = 'active' ORDER BY task_type, lift_low DESC
CREATE VIEW IF NOT EXISTS v_rules /* ON CLUSTER */ AS
SELECT *
FROM rules FINAL
WHERE (namespace, rule_id, task_revision, writer, seq) IN (
    SELECT namespace, rule_id, current.1, current.2, current.3
    FROM (
        SELECT namespace, rule_id,
            argMax((task_revision, writer, seq), (writer_kind = 'person', task_revision, recorded_at, writer, seq)) AS current
        FROM rules
        WHERE run_id = '' OR run_id IN (SELECT run_id FROM consolidation_runs FINAL WHERE status = 'committed')
        GROUP BY namespace, rule_id
    )
);

-- The current summary of each session.
-- Example:
--   SELECT session_id, summary, pending FROM v_summaries WHERE status = 'active' ORDER BY timestamp DESC LIMIT 20
CREATE VIEW IF NOT EXISTS v_summaries /* ON CLUSTER */ AS
SELECT *
FROM summaries FINAL
WHERE (namespace, session_id, task_revision, writer, seq) IN (
    SELECT namespace, session_id, current.1, current.2, current.3
    FROM (
        SELECT namespace, session_id,
            argMax((task_revision, writer, seq), (writer_kind = 'person', task_revision, recorded_at, writer, seq)) AS current
        FROM summaries
        WHERE run_id = '' OR run_id IN (SELECT run_id FROM consolidation_runs FINAL WHERE status = 'committed')
        GROUP BY namespace, session_id
    )
);

-- What the record holds, a row for each namespace (the empty one: dead letters that do not say theirs). Events are
-- counted once however often they were stored. A task is open until the sweeper has closed it.
-- Example:
--   SELECT namespace, events, tasks_open, tasks_closed, unknown_kinds, dead_letters, last_arrival
--   FROM v_health ORDER BY events DESC
CREATE VIEW IF NOT EXISTS v_health /* ON CLUSTER */ AS
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
        uniqExact(task_id) AS n_tasks,
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

-- How often each tool fails. A call counts once, however often it was stored or reported (a call id that comes twice
-- in a task is one call, and a failure is believed over a success). Calls made by a user or simulator do not count.
-- Example:
--   SELECT tool, calls, failures, round(failure_rate, 3) AS rate, error_types, p95_ms
--   FROM v_tool_failures WHERE calls >= 10 ORDER BY failures DESC LIMIT 20
CREATE VIEW IF NOT EXISTS v_tool_failures /* ON CLUSTER */ AS
SELECT
    namespace,
    tool,
    count() AS calls,
    countIf(failed) AS failures,
    failures / calls AS failure_rate,
    uniqExact(task_id) AS tasks,
    uniqExactIf(task_id, failed) AS tasks_with_failure,
    arraySort(groupUniqArrayIf(20)(call_error_type, failed AND call_error_type != '')) AS error_types,
    round(avg(call_ms), 1) AS avg_ms,
    round(quantile(0.95)(call_ms), 1) AS p95_ms,
    maxIf(last_time, failed) AS last_failure_at,
    argMaxIf(call_error_message, last_time, failed) AS last_error_message
FROM (
    SELECT
        namespace,
        tool,
        task_id,
        if(call_id = '', (event_id, ''), ('', call_id)) AS call,
        max(status = 'failure') AS failed,
        max(execution_time_ms) AS call_ms,
        max(time) AS last_time,
        max(error_type) AS call_error_type,
        max(error_message) AS call_error_message
    FROM trace_events
    WHERE kind = 'step_finished' AND actor != 'user'
    GROUP BY namespace, tool, task_id, call
)
GROUP BY namespace, tool;

-- Errors that came back: the same tool and the same error, its values left out, at least twice. Calls are counted as
-- in v_tool_failures. tasks_repeated are tasks that met the error more than once themselves.
-- Example:
--   SELECT task_type, tool, error_type, error_signature, failures, tasks, tasks_repeated, example
--   FROM v_repeat_errors WHERE tasks >= 3 ORDER BY failures DESC LIMIT 20
CREATE VIEW IF NOT EXISTS v_repeat_errors /* ON CLUSTER */ AS
SELECT
    namespace,
    task_type,
    tool,
    error_type,
    error_signature,
    sum(n) AS failures,
    count() AS tasks,
    countIf(n > 1) AS tasks_repeated,
    uniqExactIf(goal, goal != '') AS goals,
    uniqExact(agent) AS agents,
    min(first_time) AS first_seen,
    max(last_time) AS last_seen,
    argMax(message, last_time) AS example,
    argMax(task_id, last_time) AS example_task_id
FROM (
    SELECT
        failed.namespace AS namespace,
        failed.task_id AS task_id,
        any(started.task_type) AS task_type,
        failed.tool AS tool,
        failed.error_type AS error_type,
        failed.error_signature AS error_signature,
        count() AS n,
        any(failed.goal_id) AS goal,
        any(failed.agent_id) AS agent,
        min(failed.first_time) AS first_time,
        max(failed.last_time) AS last_time,
        argMax(failed.error_message, failed.last_time) AS message
    FROM (
        SELECT
            namespace, task_id, tool,
            if(call_id = '', (event_id, ''), ('', call_id)) AS call,
            max(trace_events.error_type) AS error_type,
            max(trace_events.error_signature) AS error_signature,
            max(trace_events.error_message) AS error_message,
            max(trace_events.goal_id) AS goal_id,
            max(trace_events.agent_id) AS agent_id,
            min(time) AS first_time,
            max(time) AS last_time
        FROM trace_events
        WHERE kind = 'step_finished' AND status = 'failure' AND actor != 'user'
        GROUP BY namespace, task_id, tool, call
    ) AS failed
    LEFT JOIN (
        SELECT namespace, task_id, argMin(trace_events.task_type, (time, event_id)) AS task_type
        FROM trace_events
        WHERE kind = 'task_started' AND trace_events.task_type != ''
        GROUP BY namespace, task_id
    ) AS started ON started.namespace = failed.namespace AND started.task_id = failed.task_id
    GROUP BY namespace, task_id, tool, error_type, error_signature
)
GROUP BY namespace, task_type, tool, error_type, error_signature
HAVING failures > 1;

-- What became of tasks that were shown a rule, of those from which it was withheld, and of those of its type that never
-- met it (the base). Only closed tasks with a known outcome count; failed means failure or partial.
-- Example:
--   SELECT rule_id, rule, support, refute, shown_tasks, shown_failed / shown_tasks AS shown_rate, base_failed / base_tasks AS base_rate
--   FROM v_rule_effect WHERE status = 'active' AND shown_tasks >= 5 ORDER BY shown_tasks DESC
CREATE VIEW IF NOT EXISTS v_rule_effect /* ON CLUSTER */ AS
WITH
    outcomes AS (
        SELECT namespace, task_id, task_type, status != 'success' AS failed, withheld, recalled
        FROM tasks FINAL
        WHERE closed AND status IN ('success', 'failure', 'partial')
    ),
    met AS (
        SELECT namespace, arrayJoin(recalled) AS rule_id,
            countIf(NOT withheld) AS shown_tasks,
            countIf(NOT withheld AND failed) AS shown_failed,
            countIf(withheld) AS withheld_tasks,
            countIf(withheld AND failed) AS withheld_failed
        FROM outcomes
        GROUP BY namespace, rule_id
    ),
    of_type AS (
        SELECT namespace, task_type, count() AS all_tasks, countIf(failed) AS all_failed
        FROM outcomes
        GROUP BY namespace, task_type
    ),
    votes AS (
        SELECT namespace, rule_id, countIf(vote = 'support') AS support, countIf(vote = 'refute') AS refute
        FROM (
            SELECT namespace, rule_id, task_id, argMax(rule_votes.vote, (task_revision, recorded_at)) AS vote
            FROM rule_votes
            WHERE run_id = '' OR run_id IN (SELECT run_id FROM consolidation_runs FINAL WHERE status = 'committed')
            GROUP BY namespace, rule_id, task_id
        )
        GROUP BY namespace, rule_id
    ),
    met_in_type AS (
        SELECT namespace, task_type, arrayJoin(recalled) AS rule_id, count() AS met_tasks, countIf(failed) AS met_failed
        FROM outcomes
        GROUP BY namespace, task_type, rule_id
    )
SELECT
    r.namespace AS namespace,
    r.rule_id AS rule_id,
    r.task_type AS task_type,
    r.kind AS kind,
    r.rule AS rule,
    r.status AS status,
    v.support AS support,
    v.refute AS refute,
    m.shown_tasks AS shown_tasks,
    m.shown_failed AS shown_failed,
    m.withheld_tasks AS withheld_tasks,
    m.withheld_failed AS withheld_failed,
    t.all_tasks - mt.met_tasks AS base_tasks,
    t.all_failed - mt.met_failed AS base_failed
FROM v_rules AS r
LEFT JOIN votes AS v ON v.namespace = r.namespace AND v.rule_id = r.rule_id
LEFT JOIN met AS m ON m.namespace = r.namespace AND m.rule_id = r.rule_id
LEFT JOIN of_type AS t ON t.namespace = r.namespace AND t.task_type = r.task_type
LEFT JOIN met_in_type AS mt ON mt.namespace = r.namespace AND mt.task_type = r.task_type AND mt.rule_id = r.rule_id;

-- What memory is worth: the share of successful tasks among those that were shown items (treated) against those from
-- which items were withheld (control). uplift is null without a control group: then nothing is known. Tasks of one
-- session are not independent, so that intervals have to be drawn over sessions.
-- Example:
--   SELECT task_type, treated_tasks, treated_rate, control_tasks, control_rate, uplift FROM v_memory_uplift ORDER BY treated_tasks DESC
CREATE VIEW IF NOT EXISTS v_memory_uplift /* ON CLUSTER */ AS
SELECT
    namespace,
    task_type,
    countIf(NOT withheld) AS treated_tasks,
    countIf(NOT withheld AND status = 'success') AS treated_success,
    uniqExactIf(session_id, NOT withheld) AS treated_sessions,
    countIf(withheld) AS control_tasks,
    countIf(withheld AND status = 'success') AS control_success,
    uniqExactIf(session_id, withheld) AS control_sessions,
    treated_success / nullIf(treated_tasks, 0) AS treated_rate,
    control_success / nullIf(control_tasks, 0) AS control_rate,
    treated_rate - control_rate AS uplift
FROM tasks FINAL
WHERE closed AND notEmpty(recalled) AND status IN ('success', 'failure', 'partial')
GROUP BY namespace, task_type;

-- How good the answers of recall are, a row for each namespace and day: how many found nothing, named no task, or were
-- withheld, how they scored, how long they took, and how the items were judged that day.
-- Example:
--   SELECT day, recalls, empty, unjoined, withheld, avg_top_score, p95_ms, helpful, unhelpful
--   FROM v_recall_quality WHERE day >= today() - 30 ORDER BY day
CREATE VIEW IF NOT EXISTS v_recall_quality /* ON CLUSTER */ AS
SELECT
    namespace,
    day,
    sum(n) AS recalls,
    sum(n_empty) AS empty,
    sum(n_unjoined) AS unjoined,
    sum(n_withheld) AS withheld,
    round(sum(n_items) / nullIf(recalls, 0), 2) AS avg_items,
    round(sum(top_scores) / nullIf(recalls - empty, 0), 3) AS avg_top_score,
    round(max(p50), 1) AS p50_ms,
    round(max(p95), 1) AS p95_ms,
    sum(n_helpful) AS helpful,
    sum(n_unhelpful) AS unhelpful
FROM (
    SELECT
        namespace,
        toDate(time) AS day,
        count() AS n,
        countIf(empty(item_ids)) AS n_empty,
        countIf(task_id = '') AS n_unjoined,
        countIf(recalls.withheld) AS n_withheld,
        sum(length(item_ids)) AS n_items,
        sum(if(empty(item_scores), 0, arrayMax(item_scores))) AS top_scores,
        quantile(0.5)(latency_ms) AS p50,
        quantile(0.95)(latency_ms) AS p95,
        0 AS n_helpful,
        0 AS n_unhelpful
    FROM recalls FINAL
    GROUP BY namespace, day
    UNION ALL
    SELECT namespace, toDate(time) AS day, 0, 0, 0, 0, 0, 0, 0, 0, countIf(feedback.helpful), countIf(NOT feedback.helpful)
    FROM feedback FINAL
    WHERE feedback.helpful IS NOT NULL
    GROUP BY namespace, day
)
GROUP BY namespace, day;
