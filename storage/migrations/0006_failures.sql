-- What recovery is measured by. Steps get what their call was about, why it failed, which version of the service and
-- which tool definitions were in force, and what whoever ran the agent said of the task; '' is "not told" everywhere.
ALTER TABLE steps
    ADD COLUMN IF NOT EXISTS service_version LowCardinality(String) CODEC(ZSTD(1)) AFTER service,
    ADD COLUMN IF NOT EXISTS target LowCardinality(String) CODEC(ZSTD(1)) AFTER tool,
    ADD COLUMN IF NOT EXISTS operation String CODEC(ZSTD(1)) AFTER target,
    ADD COLUMN IF NOT EXISTS error_class LowCardinality(String) CODEC(ZSTD(1)) AFTER error,
    ADD COLUMN IF NOT EXISTS expected_tool LowCardinality(String) CODEC(ZSTD(1)) AFTER offered_tools,
    ADD COLUMN IF NOT EXISTS task_id String CODEC(ZSTD(1)) AFTER expected_tool,
    ADD COLUMN IF NOT EXISTS task_success Nullable(Bool) CODEC(ZSTD(1)) AFTER task_id,
    ADD COLUMN IF NOT EXISTS definitions_hash LowCardinality(String) CODEC(ZSTD(1)) AFTER task_success,
    ADD COLUMN IF NOT EXISTS offered_count UInt16 CODEC(ZSTD(1)) AFTER definitions_hash,
    ADD COLUMN IF NOT EXISTS definitions_chars UInt32 CODEC(ZSTD(1)) AFTER offered_count,
    ADD COLUMN IF NOT EXISTS `evaluations.name` Array(LowCardinality(String)) CODEC(ZSTD(1)) AFTER definitions_chars,
    ADD COLUMN IF NOT EXISTS `evaluations.score` Array(Nullable(Float64)) CODEC(ZSTD(1)) AFTER `evaluations.name`,
    ADD COLUMN IF NOT EXISTS `evaluations.label` Array(Nullable(String)) CODEC(ZSTD(1)) AFTER `evaluations.score`;

-- What became of each failed tool call, written when it is settled. A failure of which more becomes known comes
-- again with a higher revision: readers take the newest of each step_id.
CREATE TABLE IF NOT EXISTS failures
(
    step_id String CODEC(ZSTD(1)),
    revision UInt32 CODEC(ZSTD(1)),
    engine_seq UInt64 CODEC(Delta(8), ZSTD(1)),
    failed_at DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1)),
    session_id String CODEC(ZSTD(1)),
    run_id String CODEC(ZSTD(1)),
    service LowCardinality(String) CODEC(ZSTD(1)),
    service_version LowCardinality(String) CODEC(ZSTD(1)),
    agent LowCardinality(Nullable(String)) CODEC(ZSTD(1)),
    tool LowCardinality(String) CODEC(ZSTD(1)),
    operation String CODEC(ZSTD(1)),
    target LowCardinality(String) CODEC(ZSTD(1)),
    model LowCardinality(String) CODEC(ZSTD(1)),
    error_class LowCardinality(String) CODEC(ZSTD(1)),
    nature LowCardinality(String) CODEC(ZSTD(1)),
    source LowCardinality(String) CODEC(ZSTD(1)),
    prescription LowCardinality(String) CODEC(ZSTD(1)),
    response LowCardinality(String) CODEC(ZSTD(1)),
    first_response LowCardinality(String) CODEC(ZSTD(1)),
    followed Nullable(Bool) CODEC(ZSTD(1)),
    recovered Bool CODEC(ZSTD(1)),
    fed_back Bool CODEC(ZSTD(1)),
    ure Bool CODEC(ZSTD(1)),
    cascaded Bool DEFAULT false CODEC(ZSTD(1)),
    earlier UInt16 CODEC(ZSTD(1)),
    retries UInt16 CODEC(ZSTD(1)),
    perturbations UInt16 CODEC(ZSTD(1)),
    calls_to_recovery Nullable(UInt16) CODEC(ZSTD(1)),
    ns_to_recovery Nullable(UInt64) CODEC(ZSTD(1)),
    calls_spent UInt16 CODEC(ZSTD(1)),
    tokens_spent Nullable(UInt64) CODEC(ZSTD(1)),
    cost_usd Nullable(Float64) CODEC(ZSTD(1)),
    ingested_at DateTime DEFAULT now() CODEC(Delta(4), ZSTD(1)),

    INDEX idx_session_id session_id TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_failed_at failed_at TYPE minmax GRANULARITY 1
)
ENGINE = ReplacingMergeTree(revision)
PARTITION BY toYYYYMM(failed_at)
ORDER BY step_id
SETTINGS index_granularity = 8192, ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000;

-- The tools that a version of a service offered to its models. Told once a day; read with GROUP BY, min(first_seen)
-- and max(last_seen), because parts are merged in the background.
CREATE TABLE IF NOT EXISTS tool_definitions
(
    service LowCardinality(String) CODEC(ZSTD(1)),
    service_version LowCardinality(String) CODEC(ZSTD(1)),
    definitions_hash LowCardinality(String) CODEC(ZSTD(1)),
    tool LowCardinality(String) CODEC(ZSTD(1)),
    tool_hash SimpleAggregateFunction(any, String) CODEC(ZSTD(1)),
    description SimpleAggregateFunction(any, String) CODEC(ZSTD(3)),
    parameters SimpleAggregateFunction(any, Nullable(String)) CODEC(ZSTD(3)),
    read_only SimpleAggregateFunction(any, Nullable(Bool)) CODEC(ZSTD(1)),
    destructive SimpleAggregateFunction(any, Nullable(Bool)) CODEC(ZSTD(1)),
    idempotent SimpleAggregateFunction(any, Nullable(Bool)) CODEC(ZSTD(1)),
    first_seen SimpleAggregateFunction(min, DateTime64(9, 'UTC')) CODEC(ZSTD(1)),
    last_seen SimpleAggregateFunction(max, DateTime64(9, 'UTC')) CODEC(ZSTD(1)),

    INDEX idx_definitions_hash definitions_hash TYPE bloom_filter(0.01) GRANULARITY 1
)
ENGINE = AggregatingMergeTree
PARTITION BY toYYYYMM(last_seen)
ORDER BY (service, service_version, definitions_hash, tool)
SETTINGS index_granularity = 8192, ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000;
