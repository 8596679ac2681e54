-- What was shown, by item: every answer counts how often its items were shown before, and must not look through all
-- earlier answers for that.

CREATE TABLE IF NOT EXISTS item_hits /* ON CLUSTER */
(
    namespace   LowCardinality(String),
    item_id     String CODEC(ZSTD(1)),
    time        DateTime64(3, 'UTC') COMMENT 'of the answer' CODEC(Delta, ZSTD(1)),
    recall_id   String COMMENT 'the answer, in recalls' CODEC(ZSTD(1)),
    recorded_at DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1))
)
ENGINE = ReplacingMergeTree(recorded_at)
ORDER BY (namespace, item_id, time, recall_id)
TTL toDateTime(recorded_at) + INTERVAL 730 DAY
SETTINGS index_granularity = 128
COMMENT 'Which answers showed an item, and did not withhold it';

CREATE MATERIALIZED VIEW IF NOT EXISTS item_hits_from_recalls /* ON CLUSTER */ TO item_hits AS
SELECT namespace, arrayJoin(arrayDistinct(item_ids)) AS item_id, time, recall_id, recorded_at
FROM recalls
WHERE NOT recalls.withheld;
