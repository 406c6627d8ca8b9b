-- Copy of control's audit: who did what to what, and why. Append-only and kept for ever; `hash` is over `previous`
-- and `payload`, so that the chain can be checked here as in control's own database. An entry that is copied twice
-- is one, another entry in its place stands beside it.
CREATE TABLE IF NOT EXISTS audit
(
    seq UInt64 CODEC(Delta(8), ZSTD(1)),
    at DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1)),
    actor_type LowCardinality(String) CODEC(ZSTD(1)),
    actor_id String CODEC(ZSTD(1)),
    verb LowCardinality(String) CODEC(ZSTD(1)),
    subject String CODEC(ZSTD(1)),
    reason String CODEC(ZSTD(3)),
    payload String CODEC(ZSTD(3)),
    previous String CODEC(ZSTD(1)),
    hash String CODEC(ZSTD(1)),
    ingested_at DateTime DEFAULT now() CODEC(Delta(4), ZSTD(1))
)
ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMM(at)
ORDER BY (seq, hash)
SETTINGS index_granularity = 8192, non_replicated_deduplication_window = 1000;
