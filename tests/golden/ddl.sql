CREATE TABLE otel.alerts
(
    `id` String CODEC(ZSTD(1)),
    `seq` UInt64 CODEC(ZSTD(1)),
    `event` LowCardinality(String) CODEC(ZSTD(1)),
    `state` LowCardinality(String) CODEC(ZSTD(1)),
    `kind` LowCardinality(String) CODEC(ZSTD(1)),
    `severity` LowCardinality(String) CODEC(ZSTD(1)),
    `finding_id` String CODEC(ZSTD(1)),
    `session_id` String CODEC(ZSTD(1)),
    `service` LowCardinality(String) CODEC(ZSTD(1)),
    `agent` LowCardinality(Nullable(String)) CODEC(ZSTD(1)),
    `tool` LowCardinality(Nullable(String)) CODEC(ZSTD(1)),
    `opened_at` DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1)),
    `updated_at` DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1)),
    `summary` String CODEC(ZSTD(3)),
    `payload` String CODEC(ZSTD(3)),
    `ingested_at` DateTime DEFAULT now() CODEC(Delta(4), ZSTD(1)),
    INDEX idx_session_id session_id TYPE bloom_filter(0.01) GRANULARITY 1
)
ENGINE = ReplacingMergeTree(seq)
PARTITION BY toYYYYMM(opened_at)
ORDER BY id
SETTINGS index_granularity = 8192, ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000;

CREATE TABLE otel.audit
(
    `seq` UInt64 CODEC(Delta(8), ZSTD(1)),
    `at` DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1)),
    `actor_type` LowCardinality(String) CODEC(ZSTD(1)),
    `actor_id` String CODEC(ZSTD(1)),
    `verb` LowCardinality(String) CODEC(ZSTD(1)),
    `subject` String CODEC(ZSTD(1)),
    `reason` String CODEC(ZSTD(3)),
    `payload` String CODEC(ZSTD(3)),
    `previous` String CODEC(ZSTD(1)),
    `hash` String CODEC(ZSTD(1)),
    `ingested_at` DateTime DEFAULT now() CODEC(Delta(4), ZSTD(1))
)
ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMM(at)
ORDER BY (seq, hash)
SETTINGS index_granularity = 8192, non_replicated_deduplication_window = 1000;

CREATE TABLE otel.breaker_events
(
    `breaker_id` String CODEC(ZSTD(1)),
    `seq` UInt64 CODEC(ZSTD(1)),
    `at` DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1)),
    `event` LowCardinality(String) CODEC(ZSTD(1)),
    `state` LowCardinality(String) CODEC(ZSTD(1)),
    `scope` LowCardinality(String) CODEC(ZSTD(1)),
    `session_id` String CODEC(ZSTD(1)),
    `tool` LowCardinality(Nullable(String)) CODEC(ZSTD(1)),
    `finding_id` String CODEC(ZSTD(1)),
    `actor` LowCardinality(String) CODEC(ZSTD(1)),
    `reason` String CODEC(ZSTD(3)),
    `payload` String CODEC(ZSTD(3)),
    `ingested_at` DateTime DEFAULT now() CODEC(Delta(4), ZSTD(1))
)
ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMM(at)
ORDER BY (breaker_id, seq)
SETTINGS index_granularity = 8192, ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000;

CREATE VIEW otel.definitions_by_version
(
    `service` LowCardinality(String),
    `service_version` LowCardinality(String),
    `definitions_hash` LowCardinality(String),
    `tools` UInt64,
    `first_seen` SimpleAggregateFunction(min, DateTime64(9, 'UTC')),
    `last_seen` SimpleAggregateFunction(max, DateTime64(9, 'UTC'))
)
AS SELECT
    service,
    service_version,
    definitions_hash,
    uniqExact(tool) AS tools,
    min(tool_definitions.first_seen) AS first_seen,
    max(tool_definitions.last_seen) AS last_seen
FROM otel.tool_definitions
GROUP BY
    service,
    service_version,
    definitions_hash;

CREATE TABLE otel.failures
(
    `step_id` String CODEC(ZSTD(1)),
    `revision` UInt32 CODEC(ZSTD(1)),
    `engine_seq` UInt64 CODEC(Delta(8), ZSTD(1)),
    `failed_at` DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1)),
    `session_id` String CODEC(ZSTD(1)),
    `run_id` String CODEC(ZSTD(1)),
    `service` LowCardinality(String) CODEC(ZSTD(1)),
    `service_version` LowCardinality(String) CODEC(ZSTD(1)),
    `agent` LowCardinality(Nullable(String)) CODEC(ZSTD(1)),
    `tool` LowCardinality(String) CODEC(ZSTD(1)),
    `operation` String CODEC(ZSTD(1)),
    `target` LowCardinality(String) CODEC(ZSTD(1)),
    `model` LowCardinality(String) CODEC(ZSTD(1)),
    `error_class` LowCardinality(String) CODEC(ZSTD(1)),
    `nature` LowCardinality(String) CODEC(ZSTD(1)),
    `source` LowCardinality(String) CODEC(ZSTD(1)),
    `prescription` LowCardinality(String) CODEC(ZSTD(1)),
    `response` LowCardinality(String) CODEC(ZSTD(1)),
    `first_response` LowCardinality(String) CODEC(ZSTD(1)),
    `followed` Nullable(Bool) CODEC(ZSTD(1)),
    `recovered` Bool CODEC(ZSTD(1)),
    `fed_back` Bool CODEC(ZSTD(1)),
    `ure` Bool CODEC(ZSTD(1)),
    `cascaded` Bool DEFAULT false CODEC(ZSTD(1)),
    `earlier` UInt16 CODEC(ZSTD(1)),
    `retries` UInt16 CODEC(ZSTD(1)),
    `perturbations` UInt16 CODEC(ZSTD(1)),
    `calls_to_recovery` Nullable(UInt16) CODEC(ZSTD(1)),
    `ns_to_recovery` Nullable(UInt64) CODEC(ZSTD(1)),
    `calls_spent` UInt16 CODEC(ZSTD(1)),
    `tokens_spent` Nullable(UInt64) CODEC(ZSTD(1)),
    `cost_usd` Nullable(Float64) CODEC(ZSTD(1)),
    `ingested_at` DateTime DEFAULT now() CODEC(Delta(4), ZSTD(1)),
    INDEX idx_session_id session_id TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_failed_at failed_at TYPE minmax GRANULARITY 1
)
ENGINE = ReplacingMergeTree(revision)
PARTITION BY toYYYYMM(failed_at)
ORDER BY step_id
SETTINGS index_granularity = 8192, ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000;

CREATE TABLE otel.findings
(
    `id` String CODEC(ZSTD(1)),
    `revision` UInt32 CODEC(ZSTD(1)),
    `kind` LowCardinality(String) CODEC(ZSTD(1)),
    `severity` LowCardinality(String) CODEC(ZSTD(1)),
    `detector` LowCardinality(String) CODEC(ZSTD(1)),
    `session_id` String CODEC(ZSTD(1)),
    `session_ids` Array(String) CODEC(ZSTD(1)),
    `run_id` String CODEC(ZSTD(1)),
    `service` LowCardinality(String) CODEC(ZSTD(1)),
    `agent` LowCardinality(Nullable(String)) CODEC(ZSTD(1)),
    `tool` LowCardinality(Nullable(String)) CODEC(ZSTD(1)),
    `trace_id` String CODEC(ZSTD(1)),
    `span_id` String CODEC(ZSTD(1)),
    `first_span_id` String CODEC(ZSTD(1)),
    `step_id` String CODEC(ZSTD(1)),
    `started_at` DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1)),
    `detected_at` DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1)),
    `occurrences` UInt64 CODEC(T64, ZSTD(1)),
    `summary` String CODEC(ZSTD(3)),
    `evidence` String CODEC(ZSTD(3)),
    `ingested_at` DateTime DEFAULT now() CODEC(Delta(4), ZSTD(1)),
    INDEX idx_session_id session_id TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_detected_at detected_at TYPE minmax GRANULARITY 1
)
ENGINE = ReplacingMergeTree(revision)
PARTITION BY toYYYYMM(started_at)
ORDER BY id
SETTINGS index_granularity = 8192, ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000;

CREATE TABLE otel.otel_logs
(
    `Timestamp` DateTime64(9) CODEC(Delta(8), ZSTD(1)),
    `TraceId` String CODEC(ZSTD(1)),
    `SpanId` String CODEC(ZSTD(1)),
    `TraceFlags` UInt8,
    `SeverityText` LowCardinality(String) CODEC(ZSTD(1)),
    `SeverityNumber` UInt8,
    `ServiceName` LowCardinality(String) CODEC(ZSTD(1)),
    `Body` String CODEC(ZSTD(1)),
    `ResourceSchemaUrl` LowCardinality(String) CODEC(ZSTD(1)),
    `ResourceAttributes` Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    `ScopeSchemaUrl` LowCardinality(String) CODEC(ZSTD(1)),
    `ScopeName` String CODEC(ZSTD(1)),
    `ScopeVersion` LowCardinality(String) CODEC(ZSTD(1)),
    `ScopeAttributes` Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    `LogAttributes` Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    `EventName` String CODEC(ZSTD(1)),
    `ConversationId` String DEFAULT coalesce(nullIf(LogAttributes['gen_ai.conversation.id'], ''), nullIf(LogAttributes['session.id'], ''), LogAttributes['conversation.id']) CODEC(ZSTD(1)),
    `IngestedAt` DateTime DEFAULT now() CODEC(Delta(4), ZSTD(1)),
    INDEX idx_trace_id TraceId TYPE bloom_filter(0.001) GRANULARITY 1,
    INDEX idx_conversation_id ConversationId TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_log_attr_key mapKeys(LogAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_lower_body lower(Body) TYPE tokenbf_v1(32768, 3, 0) GRANULARITY 8,
    INDEX idx_ingested_at IngestedAt TYPE minmax GRANULARITY 1
)
ENGINE = MergeTree
PARTITION BY toDate(Timestamp)
ORDER BY (toStartOfFiveMinutes(Timestamp), ServiceName, Timestamp)
SETTINGS index_granularity = 8192, ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000;

CREATE TABLE otel.otel_traces
(
    `Timestamp` DateTime64(9) CODEC(Delta(8), ZSTD(1)),
    `TraceId` String CODEC(ZSTD(1)),
    `SpanId` String CODEC(ZSTD(1)),
    `ParentSpanId` String CODEC(ZSTD(1)),
    `TraceState` String CODEC(ZSTD(1)),
    `SpanName` LowCardinality(String) CODEC(ZSTD(1)),
    `SpanKind` LowCardinality(String) CODEC(ZSTD(1)),
    `ServiceName` LowCardinality(String) CODEC(ZSTD(1)),
    `ResourceAttributes` Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    `ScopeName` String CODEC(ZSTD(1)),
    `ScopeVersion` String CODEC(ZSTD(1)),
    `SpanAttributes` Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    `Duration` UInt64 CODEC(T64, ZSTD(1)),
    `StatusCode` LowCardinality(String) CODEC(ZSTD(1)),
    `StatusMessage` String CODEC(ZSTD(1)),
    `Events.Timestamp` Array(DateTime64(9)) CODEC(ZSTD(1)),
    `Events.Name` Array(LowCardinality(String)) CODEC(ZSTD(1)),
    `Events.Attributes` Array(Map(LowCardinality(String), String)) CODEC(ZSTD(1)),
    `Links.TraceId` Array(String) CODEC(ZSTD(1)),
    `Links.SpanId` Array(String) CODEC(ZSTD(1)),
    `Links.TraceState` Array(String) CODEC(ZSTD(1)),
    `Links.Attributes` Array(Map(LowCardinality(String), String)) CODEC(ZSTD(1)),
    `ResourceAttributeItems` Array(String) ALIAS arrayMap(kv -> concat(kv.1, '=', kv.2), CAST(ResourceAttributes, 'Array(Tuple(String, String))')),
    `SpanAttributeItems` Array(String) ALIAS arrayMap(kv -> concat(kv.1, '=', kv.2), CAST(SpanAttributes, 'Array(Tuple(String, String))')),
    `GenAiOperation` LowCardinality(String) DEFAULT SpanAttributes['gen_ai.operation.name'] CODEC(ZSTD(1)),
    `GenAiModel` LowCardinality(String) DEFAULT coalesce(nullIf(SpanAttributes['gen_ai.response.model'], ''), nullIf(SpanAttributes['gen_ai.request.model'], ''), SpanAttributes['llm.model_name']) CODEC(ZSTD(1)),
    `ConversationId` String DEFAULT coalesce(nullIf(SpanAttributes['gen_ai.conversation.id'], ''), SpanAttributes['session.id']) CODEC(ZSTD(1)),
    `InputTokens` UInt64 DEFAULT toUInt64OrZero(coalesce(nullIf(SpanAttributes['gen_ai.usage.input_tokens'], ''), nullIf(SpanAttributes['gen_ai.usage.prompt_tokens'], ''), SpanAttributes['llm.token_count.prompt'])) CODEC(T64, ZSTD(1)),
    `OutputTokens` UInt64 DEFAULT toUInt64OrZero(coalesce(nullIf(SpanAttributes['gen_ai.usage.output_tokens'], ''), nullIf(SpanAttributes['gen_ai.usage.completion_tokens'], ''), SpanAttributes['llm.token_count.completion'])) CODEC(T64, ZSTD(1)),
    `CostUsd` Decimal(18, 9) DEFAULT toDecimal64OrZero(coalesce(nullIf(SpanAttributes['gen_ai.usage.cost'], ''), nullIf(SpanAttributes['operation.cost'], ''), SpanAttributes['llm.cost.total']), 9) CODEC(ZSTD(1)),
    `IngestedAt` DateTime DEFAULT now() CODEC(Delta(4), ZSTD(1)),
    INDEX idx_trace_id TraceId TYPE bloom_filter(0.001) GRANULARITY 1,
    INDEX idx_conversation_id ConversationId TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_span_attr_key mapKeys(SpanAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_duration Duration TYPE minmax GRANULARITY 1,
    INDEX idx_ingested_at IngestedAt TYPE minmax GRANULARITY 1
)
ENGINE = MergeTree
PARTITION BY toDate(Timestamp)
PRIMARY KEY (ServiceName, SpanName, toDateTime(Timestamp))
ORDER BY (ServiceName, SpanName, toDateTime(Timestamp), Timestamp)
SETTINGS index_granularity = 8192, ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000;

CREATE TABLE otel.otel_traces_trace_id_ts
(
    `TraceId` String CODEC(ZSTD(1)),
    `Start` SimpleAggregateFunction(min, DateTime) CODEC(ZSTD(1)),
    `End` SimpleAggregateFunction(max, DateTime) CODEC(ZSTD(1)),
    `Spans` SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    `Errors` SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    `InputTokens` SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    `OutputTokens` SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    `CostUsd` SimpleAggregateFunction(sum, Decimal(38, 9)) CODEC(ZSTD(1)),
    `ServiceName` SimpleAggregateFunction(max, String) CODEC(ZSTD(1)),
    `RootName` SimpleAggregateFunction(max, String) CODEC(ZSTD(1)),
    `ConversationId` SimpleAggregateFunction(max, String) CODEC(ZSTD(1))
)
ENGINE = AggregatingMergeTree
PARTITION BY toStartOfWeek(Start)
ORDER BY TraceId
SETTINGS index_granularity = 8192, ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000;

CREATE MATERIALIZED VIEW otel.otel_traces_trace_id_ts_mv TO otel.otel_traces_trace_id_ts
(
    `TraceId` String,
    `Start` DateTime,
    `End` DateTime,
    `Spans` UInt64,
    `Errors` UInt64,
    `InputTokens` UInt64,
    `OutputTokens` UInt64,
    `CostUsd` Decimal(38, 9),
    `ServiceName` String,
    `RootName` String,
    `ConversationId` String
)
AS SELECT
    TraceId,
    min(toDateTime(Timestamp)) AS Start,
    max(toDateTime(Timestamp)) AS End,
    count() AS Spans,
    countIf(StatusCode = 'Error') AS Errors,
    sum(InputTokens) AS InputTokens,
    sum(OutputTokens) AS OutputTokens,
    sum(CostUsd) AS CostUsd,
    max(toString(ServiceName)) AS ServiceName,
    maxIf(toString(SpanName), ParentSpanId = '') AS RootName,
    max(ConversationId) AS ConversationId
FROM otel.otel_traces
WHERE TraceId != ''
GROUP BY TraceId;

CREATE VIEW otel.recovery_by_class
(
    `day` Date,
    `service` LowCardinality(String),
    `tool` LowCardinality(String),
    `error_class` LowCardinality(String),
    `nature` LowCardinality(String),
    `source` LowCardinality(String),
    `prescription` LowCardinality(String),
    `failures` UInt64,
    `recoveries` UInt64,
    `escalations` UInt64,
    `abandonments` UInt64,
    `fed_back_failures` UInt64,
    `ures` UInt64,
    `followed_failures` UInt64,
    `followed_recoveries` UInt64,
    `ignored_failures` UInt64,
    `ignored_recoveries` UInt64,
    `mean_calls_to_recovery` Nullable(Float64),
    `mean_seconds_to_recovery` Nullable(Float64),
    `calls_lost` UInt64,
    `tokens_lost` Nullable(UInt64),
    `cost_usd_lost` Nullable(Float64)
)
AS SELECT
    toDate(failed_at) AS day,
    service,
    tool,
    error_class,
    nature,
    source,
    prescription,
    count() AS failures,
    countIf(recovered) AS recoveries,
    countIf(response = 'escalate') AS escalations,
    countIf(response = 'abandoned') AS abandonments,
    countIf(fed_back) AS fed_back_failures,
    countIf(ure) AS ures,
    countIf(followed = true) AS followed_failures,
    countIf((followed = true) AND recovered) AS followed_recoveries,
    countIf(followed = false) AS ignored_failures,
    countIf((followed = false) AND recovered) AS ignored_recoveries,
    avg(calls_to_recovery) AS mean_calls_to_recovery,
    avg(ns_to_recovery) / 1000000000. AS mean_seconds_to_recovery,
    sumIf(calls_spent, earlier = 0) AS calls_lost,
    sumIf(tokens_spent, earlier = 0) AS tokens_lost,
    sumIf(failures.cost_usd, earlier = 0) AS cost_usd_lost
FROM otel.failures
FINAL
GROUP BY
    day,
    service,
    tool,
    error_class,
    nature,
    source,
    prescription;

CREATE VIEW otel.recovery_by_day
(
    `day` Date,
    `service` LowCardinality(String),
    `service_version` LowCardinality(String),
    `agent` LowCardinality(Nullable(String)),
    `model` LowCardinality(String),
    `failures` UInt64,
    `recoveries` UInt64,
    `escalations` UInt64,
    `abandonments` UInt64,
    `fed_back_failures` UInt64,
    `ures` UInt64,
    `followed_failures` UInt64,
    `followed_recoveries` UInt64,
    `ignored_failures` UInt64,
    `ignored_recoveries` UInt64,
    `mean_calls_to_recovery` Nullable(Float64),
    `mean_seconds_to_recovery` Nullable(Float64),
    `calls_lost` UInt64,
    `tokens_lost` Nullable(UInt64),
    `cost_usd_lost` Nullable(Float64)
)
AS SELECT
    toDate(failed_at) AS day,
    service,
    service_version,
    agent,
    model,
    count() AS failures,
    countIf(recovered) AS recoveries,
    countIf(response = 'escalate') AS escalations,
    countIf(response = 'abandoned') AS abandonments,
    countIf(fed_back) AS fed_back_failures,
    countIf(ure) AS ures,
    countIf(followed = true) AS followed_failures,
    countIf((followed = true) AND recovered) AS followed_recoveries,
    countIf(followed = false) AS ignored_failures,
    countIf((followed = false) AND recovered) AS ignored_recoveries,
    avg(calls_to_recovery) AS mean_calls_to_recovery,
    avg(ns_to_recovery) / 1000000000. AS mean_seconds_to_recovery,
    sumIf(calls_spent, earlier = 0) AS calls_lost,
    sumIf(tokens_spent, earlier = 0) AS tokens_lost,
    sumIf(failures.cost_usd, earlier = 0) AS cost_usd_lost
FROM otel.failures
FINAL
GROUP BY
    day,
    service,
    service_version,
    agent,
    model;

CREATE VIEW otel.recovery_by_tool
(
    `day` Date,
    `service` LowCardinality(String),
    `service_version` LowCardinality(String),
    `tool` LowCardinality(String),
    `operation` String,
    `target` LowCardinality(String),
    `failures` UInt64,
    `recoveries` UInt64,
    `escalations` UInt64,
    `abandonments` UInt64,
    `fed_back_failures` UInt64,
    `ures` UInt64,
    `followed_failures` UInt64,
    `followed_recoveries` UInt64,
    `ignored_failures` UInt64,
    `ignored_recoveries` UInt64,
    `mean_calls_to_recovery` Nullable(Float64),
    `mean_seconds_to_recovery` Nullable(Float64),
    `calls_lost` UInt64,
    `tokens_lost` Nullable(UInt64),
    `cost_usd_lost` Nullable(Float64)
)
AS SELECT
    toDate(failed_at) AS day,
    service,
    service_version,
    tool,
    operation,
    target,
    count() AS failures,
    countIf(recovered) AS recoveries,
    countIf(response = 'escalate') AS escalations,
    countIf(response = 'abandoned') AS abandonments,
    countIf(fed_back) AS fed_back_failures,
    countIf(ure) AS ures,
    countIf(followed = true) AS followed_failures,
    countIf((followed = true) AND recovered) AS followed_recoveries,
    countIf(followed = false) AS ignored_failures,
    countIf((followed = false) AND recovered) AS ignored_recoveries,
    avg(calls_to_recovery) AS mean_calls_to_recovery,
    avg(ns_to_recovery) / 1000000000. AS mean_seconds_to_recovery,
    sumIf(calls_spent, earlier = 0) AS calls_lost,
    sumIf(tokens_spent, earlier = 0) AS tokens_lost,
    sumIf(failures.cost_usd, earlier = 0) AS cost_usd_lost
FROM otel.failures
FINAL
GROUP BY
    day,
    service,
    service_version,
    tool,
    operation,
    target;

CREATE VIEW otel.responses_by_day
(
    `day` Date,
    `service` LowCardinality(String),
    `agent` LowCardinality(Nullable(String)),
    `model` LowCardinality(String),
    `error_class` LowCardinality(String),
    `first_response` LowCardinality(String),
    `response` LowCardinality(String),
    `failures` UInt64,
    `recoveries` UInt64,
    `escalations` UInt64,
    `abandonments` UInt64,
    `fed_back_failures` UInt64,
    `ures` UInt64,
    `followed_failures` UInt64,
    `followed_recoveries` UInt64,
    `ignored_failures` UInt64,
    `ignored_recoveries` UInt64,
    `mean_calls_to_recovery` Nullable(Float64),
    `mean_seconds_to_recovery` Nullable(Float64),
    `calls_lost` UInt64,
    `tokens_lost` Nullable(UInt64),
    `cost_usd_lost` Nullable(Float64)
)
AS SELECT
    toDate(failed_at) AS day,
    service,
    agent,
    model,
    error_class,
    first_response,
    response,
    count() AS failures,
    countIf(recovered) AS recoveries,
    countIf(response = 'escalate') AS escalations,
    countIf(response = 'abandoned') AS abandonments,
    countIf(fed_back) AS fed_back_failures,
    countIf(ure) AS ures,
    countIf(followed = true) AS followed_failures,
    countIf((followed = true) AND recovered) AS followed_recoveries,
    countIf(followed = false) AS ignored_failures,
    countIf((followed = false) AND recovered) AS ignored_recoveries,
    avg(calls_to_recovery) AS mean_calls_to_recovery,
    avg(ns_to_recovery) / 1000000000. AS mean_seconds_to_recovery,
    sumIf(calls_spent, earlier = 0) AS calls_lost,
    sumIf(tokens_spent, earlier = 0) AS tokens_lost,
    sumIf(failures.cost_usd, earlier = 0) AS cost_usd_lost
FROM otel.failures
FINAL
GROUP BY
    day,
    service,
    agent,
    model,
    error_class,
    first_response,
    response;

CREATE TABLE otel.schema_migrations
(
    `version` UInt32,
    `name` String,
    `checksum` String,
    `applied_at` DateTime DEFAULT now()
)
ENGINE = ReplacingMergeTree
ORDER BY version
SETTINGS index_granularity = 8192;

CREATE TABLE otel.session_merges
(
    `old` String CODEC(ZSTD(1)),
    `new` String CODEC(ZSTD(1)),
    `merged_at` DateTime DEFAULT now() CODEC(Delta(4), ZSTD(1)),
    INDEX idx_new new TYPE bloom_filter(0.01) GRANULARITY 1
)
ENGINE = ReplacingMergeTree(merged_at)
PARTITION BY toYYYYMM(merged_at)
ORDER BY (old, new)
SETTINGS index_granularity = 8192, ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000;

CREATE TABLE otel.steps
(
    `session_id` String CODEC(ZSTD(1)),
    `start_time` DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1)),
    `step_id` String CODEC(ZSTD(1)),
    `revision` UInt32 CODEC(T64, ZSTD(1)),
    `engine_seq` UInt64 CODEC(Delta(8), ZSTD(1)),
    `kind` LowCardinality(String) CODEC(ZSTD(1)),
    `end_time` DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1)),
    `run_id` String CODEC(ZSTD(1)),
    `service` LowCardinality(String) CODEC(ZSTD(1)),
    `service_version` LowCardinality(String) CODEC(ZSTD(1)),
    `agent` LowCardinality(Nullable(String)) CODEC(ZSTD(1)),
    `parent_agent` LowCardinality(Nullable(String)) CODEC(ZSTD(1)),
    `user` Nullable(String) CODEC(ZSTD(1)),
    `tool` LowCardinality(Nullable(String)) CODEC(ZSTD(1)),
    `target` LowCardinality(String) CODEC(ZSTD(1)),
    `operation` String CODEC(ZSTD(1)),
    `arguments` Nullable(String) CODEC(ZSTD(3)),
    `result` Nullable(String) CODEC(ZSTD(3)),
    `call_id` Nullable(String) CODEC(ZSTD(1)),
    `attempt_id` Nullable(String) CODEC(ZSTD(1)),
    `outcome` LowCardinality(String) CODEC(ZSTD(1)),
    `error` Nullable(String) CODEC(ZSTD(3)),
    `error_class` LowCardinality(String) CODEC(ZSTD(1)),
    `model` LowCardinality(Nullable(String)) CODEC(ZSTD(1)),
    `provider` LowCardinality(Nullable(String)) CODEC(ZSTD(1)),
    `input_tokens` Nullable(UInt64) CODEC(ZSTD(1)),
    `output_tokens` Nullable(UInt64) CODEC(ZSTD(1)),
    `cached_tokens` Nullable(UInt64) CODEC(ZSTD(1)),
    `cost_usd` Nullable(Float64) CODEC(ZSTD(1)),
    `offered_tools` Array(LowCardinality(String)) CODEC(ZSTD(1)),
    `expected_tool` LowCardinality(String) CODEC(ZSTD(1)),
    `task_id` String CODEC(ZSTD(1)),
    `task_success` Nullable(Bool) CODEC(ZSTD(1)),
    `definitions_hash` LowCardinality(String) CODEC(ZSTD(1)),
    `offered_count` UInt16 CODEC(ZSTD(1)),
    `definitions_chars` UInt32 CODEC(ZSTD(1)),
    `evaluations.name` Array(LowCardinality(String)) CODEC(ZSTD(1)),
    `evaluations.score` Array(Nullable(Float64)) CODEC(ZSTD(1)),
    `evaluations.label` Array(Nullable(String)) CODEC(ZSTD(1)),
    `finish_reason` LowCardinality(Nullable(String)) CODEC(ZSTD(1)),
    `text` Nullable(String) CODEC(ZSTD(3)),
    `trace_id` String CODEC(ZSTD(1)),
    `span_id` String CODEC(ZSTD(1)),
    `parent_span_id` String CODEC(ZSTD(1)),
    `convention` LowCardinality(String) CODEC(ZSTD(1)),
    `late` Bool CODEC(ZSTD(1)),
    `ingested_at` DateTime DEFAULT now() CODEC(Delta(4), ZSTD(1)),
    `start_ns` Int64 ALIAS toUnixTimestamp64Nano(start_time),
    `end_ns` Int64 ALIAS toUnixTimestamp64Nano(end_time),
    INDEX idx_step_id step_id TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_trace_id trace_id TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_engine_seq engine_seq TYPE minmax GRANULARITY 1
)
ENGINE = ReplacingMergeTree(revision)
PARTITION BY toDate(start_time)
ORDER BY (session_id, start_time, step_id)
SETTINGS index_granularity = 8192, ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000;

CREATE VIEW otel.tool_calls_by_day
(
    `day` Date,
    `service` LowCardinality(String),
    `service_version` LowCardinality(String),
    `agent` LowCardinality(Nullable(String)),
    `tool` LowCardinality(Nullable(String)),
    `calls` UInt64,
    `succeeded` UInt64,
    `failed` UInt64,
    `denied` UInt64,
    `not_recorded` UInt64,
    `failed_by_schema` UInt64,
    `with_expectation` UInt64,
    `as_expected` UInt64,
    `sessions` UInt64,
    `median_seconds` Float64,
    `p95_seconds` Float64
)
AS SELECT
    toDate(start_time) AS day,
    service,
    service_version,
    agent,
    tool,
    count() AS calls,
    countIf(outcome = 'ok') AS succeeded,
    countIf(outcome IN ('error', 'soft_error')) AS failed,
    countIf(outcome = 'denied') AS denied,
    countIf(outcome = 'unknown') AS not_recorded,
    countIf(error_class = 'schema') AS failed_by_schema,
    countIf(expected_tool != '') AS with_expectation,
    countIf((expected_tool != '') AND (tool = expected_tool)) AS as_expected,
    uniqExact(session_id) AS sessions,
    quantile(0.5)((end_ns - start_ns) / 1000000000.) AS median_seconds,
    quantile(0.95)((end_ns - start_ns) / 1000000000.) AS p95_seconds
FROM
(
    SELECT
        start_time,
        service,
        service_version,
        agent,
        tool,
        outcome,
        error_class,
        expected_tool,
        session_id,
        start_ns,
        end_ns
    FROM otel.steps
    WHERE kind = 'tool_call'
    ORDER BY revision DESC
    LIMIT 1 BY step_id
)
GROUP BY
    day,
    service,
    service_version,
    agent,
    tool;

CREATE TABLE otel.tool_definitions
(
    `service` LowCardinality(String) CODEC(ZSTD(1)),
    `service_version` LowCardinality(String) CODEC(ZSTD(1)),
    `definitions_hash` LowCardinality(String) CODEC(ZSTD(1)),
    `tool` LowCardinality(String) CODEC(ZSTD(1)),
    `tool_hash` SimpleAggregateFunction(any, String) CODEC(ZSTD(1)),
    `description` SimpleAggregateFunction(any, String) CODEC(ZSTD(3)),
    `parameters` SimpleAggregateFunction(any, Nullable(String)) CODEC(ZSTD(3)),
    `read_only` SimpleAggregateFunction(any, Nullable(Bool)) CODEC(ZSTD(1)),
    `destructive` SimpleAggregateFunction(any, Nullable(Bool)) CODEC(ZSTD(1)),
    `idempotent` SimpleAggregateFunction(any, Nullable(Bool)) CODEC(ZSTD(1)),
    `first_seen` SimpleAggregateFunction(min, DateTime64(9, 'UTC')) CODEC(ZSTD(1)),
    `last_seen` SimpleAggregateFunction(max, DateTime64(9, 'UTC')) CODEC(ZSTD(1)),
    INDEX idx_definitions_hash definitions_hash TYPE bloom_filter(0.01) GRANULARITY 1
)
ENGINE = AggregatingMergeTree
PARTITION BY toYYYYMM(last_seen)
ORDER BY (service, service_version, definitions_hash, tool)
SETTINGS index_granularity = 8192, ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000;

