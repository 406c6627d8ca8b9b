-- Projections of what control decided, for queries and dashboards. The truth of these is control's own database;
-- nothing reads them to decide. `seq` is the position in control's log of events, `payload` the whole record after
-- the change.
CREATE TABLE IF NOT EXISTS alerts
(
    id String CODEC(ZSTD(1)),
    seq UInt64 CODEC(ZSTD(1)),
    event LowCardinality(String) CODEC(ZSTD(1)),
    state LowCardinality(String) CODEC(ZSTD(1)),
    kind LowCardinality(String) CODEC(ZSTD(1)),
    severity LowCardinality(String) CODEC(ZSTD(1)),
    finding_id String CODEC(ZSTD(1)),
    session_id String CODEC(ZSTD(1)),
    service LowCardinality(String) CODEC(ZSTD(1)),
    agent LowCardinality(Nullable(String)) CODEC(ZSTD(1)),
    tool LowCardinality(Nullable(String)) CODEC(ZSTD(1)),
    opened_at DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1)),
    updated_at DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1)),
    summary String CODEC(ZSTD(3)),
    payload String CODEC(ZSTD(3)),
    ingested_at DateTime DEFAULT now() CODEC(Delta(4), ZSTD(1)),

    INDEX idx_session_id session_id TYPE bloom_filter(0.01) GRANULARITY 1
)
ENGINE = ReplacingMergeTree(seq)
PARTITION BY toYYYYMM(opened_at)
ORDER BY id
SETTINGS index_granularity = 8192, ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000;

CREATE TABLE IF NOT EXISTS breaker_events
(
    breaker_id String CODEC(ZSTD(1)),
    seq UInt64 CODEC(ZSTD(1)),
    at DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1)),
    event LowCardinality(String) CODEC(ZSTD(1)),
    state LowCardinality(String) CODEC(ZSTD(1)),
    scope LowCardinality(String) CODEC(ZSTD(1)),
    session_id String CODEC(ZSTD(1)),
    tool LowCardinality(Nullable(String)) CODEC(ZSTD(1)),
    finding_id String CODEC(ZSTD(1)),
    actor LowCardinality(String) CODEC(ZSTD(1)),
    reason String CODEC(ZSTD(3)),
    payload String CODEC(ZSTD(3)),
    ingested_at DateTime DEFAULT now() CODEC(Delta(4), ZSTD(1))
)
ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMM(at)
ORDER BY (breaker_id, seq)
SETTINGS index_granularity = 8192, ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000;
