-- What dashboards read of recovery. Counts, so that a panel may add them up and divide; of a streak of failures only
-- the first adds to what was lost, because it spans the others.

-- How failures ended, day by day.
CREATE VIEW IF NOT EXISTS recovery_by_day AS
SELECT
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
    countIf(followed = true AND recovered) AS followed_recoveries,
    countIf(followed = false) AS ignored_failures,
    countIf(followed = false AND recovered) AS ignored_recoveries,
    avg(calls_to_recovery) AS mean_calls_to_recovery,
    avg(ns_to_recovery) / 1e9 AS mean_seconds_to_recovery,
    sumIf(calls_spent, earlier = 0) AS calls_lost,
    sumIf(tokens_spent, earlier = 0) AS tokens_lost,
    sumIf(failures.cost_usd, earlier = 0) AS cost_usd_lost
FROM failures FINAL
GROUP BY day, service, service_version, agent, model;

-- How failures of each operation ended.
CREATE VIEW IF NOT EXISTS recovery_by_tool AS
SELECT
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
    countIf(followed = true AND recovered) AS followed_recoveries,
    countIf(followed = false) AS ignored_failures,
    countIf(followed = false AND recovered) AS ignored_recoveries,
    avg(calls_to_recovery) AS mean_calls_to_recovery,
    avg(ns_to_recovery) / 1e9 AS mean_seconds_to_recovery,
    sumIf(calls_spent, earlier = 0) AS calls_lost,
    sumIf(tokens_spent, earlier = 0) AS tokens_lost,
    sumIf(failures.cost_usd, earlier = 0) AS cost_usd_lost
FROM failures FINAL
GROUP BY day, service, service_version, tool, operation, target;

-- How failures of each class ended.
CREATE VIEW IF NOT EXISTS recovery_by_class AS
SELECT
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
    countIf(followed = true AND recovered) AS followed_recoveries,
    countIf(followed = false) AS ignored_failures,
    countIf(followed = false AND recovered) AS ignored_recoveries,
    avg(calls_to_recovery) AS mean_calls_to_recovery,
    avg(ns_to_recovery) / 1e9 AS mean_seconds_to_recovery,
    sumIf(calls_spent, earlier = 0) AS calls_lost,
    sumIf(tokens_spent, earlier = 0) AS tokens_lost,
    sumIf(failures.cost_usd, earlier = 0) AS cost_usd_lost
FROM failures FINAL
GROUP BY day, service, tool, error_class, nature, source, prescription;

-- What agents did after failures, what became of those, and what each way cost.
CREATE VIEW IF NOT EXISTS responses_by_day AS
SELECT
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
    countIf(followed = true AND recovered) AS followed_recoveries,
    countIf(followed = false) AS ignored_failures,
    countIf(followed = false AND recovered) AS ignored_recoveries,
    avg(calls_to_recovery) AS mean_calls_to_recovery,
    avg(ns_to_recovery) / 1e9 AS mean_seconds_to_recovery,
    sumIf(calls_spent, earlier = 0) AS calls_lost,
    sumIf(tokens_spent, earlier = 0) AS tokens_lost,
    sumIf(failures.cost_usd, earlier = 0) AS cost_usd_lost
FROM failures FINAL
GROUP BY day, service, agent, model, error_class, first_response, response;

-- Calls of each tool, whatever became of them; each step in its newest revision.
CREATE VIEW IF NOT EXISTS tool_calls_by_day AS
SELECT
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
    countIf(expected_tool != '' AND tool = expected_tool) AS as_expected,
    uniqExact(session_id) AS sessions,
    quantile(0.5)((end_ns - start_ns) / 1e9) AS median_seconds,
    quantile(0.95)((end_ns - start_ns) / 1e9) AS p95_seconds
FROM
(
    SELECT start_time, service, service_version, agent, tool, outcome, error_class, expected_tool, session_id,
        start_ns, end_ns
    FROM steps
    WHERE kind = 'tool_call'
    ORDER BY revision DESC
    LIMIT 1 BY step_id
)
GROUP BY day, service, service_version, agent, tool;

-- Which sets of tools each version of a service offered, and since when.
CREATE VIEW IF NOT EXISTS definitions_by_version AS
SELECT
    service,
    service_version,
    definitions_hash,
    uniqExact(tool) AS tools,
    min(tool_definitions.first_seen) AS first_seen,
    max(tool_definitions.last_seen) AS last_seen
FROM tool_definitions
GROUP BY service, service_version, definitions_hash;
