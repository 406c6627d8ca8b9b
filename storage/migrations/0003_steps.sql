-- What agents did, read out of spans and logs. A step that is told again with more known comes as a further row
-- with a higher revision; its session and start may change with that, so readers take the newest revision of each
-- step_id (LIMIT 1 BY) and the engine merges the rest away.
CREATE TABLE IF NOT EXISTS steps
(
    session_id String CODEC(ZSTD(1)),
    start_time DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1)),
    step_id String CODEC(ZSTD(1)),
    revision UInt32 CODEC(T64, ZSTD(1)),
    engine_seq UInt64 CODEC(Delta(8), ZSTD(1)),
    kind LowCardinality(String) CODEC(ZSTD(1)),
    end_time DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1)),
    run_id String CODEC(ZSTD(1)),
    service LowCardinality(String) CODEC(ZSTD(1)),
    agent LowCardinality(Nullable(String)) CODEC(ZSTD(1)),
    parent_agent LowCardinality(Nullable(String)) CODEC(ZSTD(1)),
    user Nullable(String) CODEC(ZSTD(1)),
    tool LowCardinality(Nullable(String)) CODEC(ZSTD(1)),
    arguments Nullable(String) CODEC(ZSTD(3)),
    result Nullable(String) CODEC(ZSTD(3)),
    call_id Nullable(String) CODEC(ZSTD(1)),
    attempt_id Nullable(String) CODEC(ZSTD(1)),
    outcome LowCardinality(String) CODEC(ZSTD(1)),
    error Nullable(String) CODEC(ZSTD(3)),
    model LowCardinality(Nullable(String)) CODEC(ZSTD(1)),
    provider LowCardinality(Nullable(String)) CODEC(ZSTD(1)),
    input_tokens Nullable(UInt64) CODEC(ZSTD(1)),
    output_tokens Nullable(UInt64) CODEC(ZSTD(1)),
    cached_tokens Nullable(UInt64) CODEC(ZSTD(1)),
    cost_usd Nullable(Float64) CODEC(ZSTD(1)),
    offered_tools Array(LowCardinality(String)) CODEC(ZSTD(1)),
    finish_reason LowCardinality(Nullable(String)) CODEC(ZSTD(1)),
    text Nullable(String) CODEC(ZSTD(3)),
    trace_id String CODEC(ZSTD(1)),
    span_id String CODEC(ZSTD(1)),
    parent_span_id String CODEC(ZSTD(1)),
    convention LowCardinality(String) CODEC(ZSTD(1)),
    late Bool CODEC(ZSTD(1)),
    ingested_at DateTime DEFAULT now() CODEC(Delta(4), ZSTD(1)),
    start_ns Int64 ALIAS toUnixTimestamp64Nano(start_time),
    end_ns Int64 ALIAS toUnixTimestamp64Nano(end_time),

    INDEX idx_step_id step_id TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_trace_id trace_id TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_engine_seq engine_seq TYPE minmax GRANULARITY 1
)
ENGINE = ReplacingMergeTree(revision)
PARTITION BY toDate(start_time)
ORDER BY (session_id, start_time, step_id)
SETTINGS index_granularity = 8192, ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000;

-- Sessions that turned out to be one: steps stored under `old` belong to `new`.
CREATE TABLE IF NOT EXISTS session_merges
(
    old String CODEC(ZSTD(1)),
    new String CODEC(ZSTD(1)),
    merged_at DateTime DEFAULT now() CODEC(Delta(4), ZSTD(1)),

    INDEX idx_new new TYPE bloom_filter(0.01) GRANULARITY 1
)
ENGINE = ReplacingMergeTree(merged_at)
PARTITION BY toYYYYMM(merged_at)
ORDER BY (old, new)
SETTINGS index_granularity = 8192, ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000;
