-- Verdicts of detectors. A streak that is reported again comes with the same id and a higher revision.
CREATE TABLE IF NOT EXISTS findings
(
    id String CODEC(ZSTD(1)),
    revision UInt32 CODEC(ZSTD(1)),
    kind LowCardinality(String) CODEC(ZSTD(1)),
    severity LowCardinality(String) CODEC(ZSTD(1)),
    detector LowCardinality(String) CODEC(ZSTD(1)),
    session_id String CODEC(ZSTD(1)),
    session_ids Array(String) CODEC(ZSTD(1)),
    run_id String CODEC(ZSTD(1)),
    service LowCardinality(String) CODEC(ZSTD(1)),
    agent LowCardinality(Nullable(String)) CODEC(ZSTD(1)),
    tool LowCardinality(Nullable(String)) CODEC(ZSTD(1)),
    trace_id String CODEC(ZSTD(1)),
    span_id String CODEC(ZSTD(1)),
    first_span_id String CODEC(ZSTD(1)),
    step_id String CODEC(ZSTD(1)),
    started_at DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1)),
    detected_at DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1)),
    occurrences UInt64 CODEC(T64, ZSTD(1)),
    summary String CODEC(ZSTD(3)),
    evidence String CODEC(ZSTD(3)),
    ingested_at DateTime DEFAULT now() CODEC(Delta(4), ZSTD(1)),

    INDEX idx_session_id session_id TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_detected_at detected_at TYPE minmax GRANULARITY 1
)
ENGINE = ReplacingMergeTree(revision)
PARTITION BY toYYYYMM(started_at)
ORDER BY id
SETTINGS index_granularity = 8192, ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000;
