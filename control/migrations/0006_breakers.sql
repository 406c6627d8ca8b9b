-- `until_ns`: when an open, half-open or forced breaker changes by itself; null: never.
ALTER TABLE breakers ADD COLUMN until_ns INTEGER;
CREATE INDEX breaker_events_by_breaker ON breaker_events (breaker_id, event, created_ns);
CREATE INDEX breaker_events_by_time ON breaker_events (event, created_ns);

-- Who did what to what, why: append-only; `hash` is over the entry and the hash of the one before.
CREATE TABLE audit (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    at_ns INTEGER NOT NULL,
    payload TEXT NOT NULL,
    previous TEXT NOT NULL,
    hash TEXT NOT NULL
) STRICT;
CREATE TRIGGER audit_is_not_changed BEFORE UPDATE ON audit
BEGIN SELECT raise(ABORT, 'the audit is append-only'); END;
CREATE TRIGGER audit_is_not_deleted BEFORE DELETE ON audit
BEGIN SELECT raise(ABORT, 'the audit is append-only'); END;

-- Probes of half-open breakers. `result`: '' while under way, else ok, failed, expired, void.
CREATE TABLE leases (
    id TEXT PRIMARY KEY,
    breaker_id TEXT NOT NULL,
    episode INTEGER NOT NULL,
    client TEXT NOT NULL,
    granted_ns INTEGER NOT NULL,
    expires_ns INTEGER NOT NULL,
    result TEXT NOT NULL DEFAULT '',
    finished_ns INTEGER
) STRICT;
CREATE INDEX leases_by_breaker ON leases (breaker_id, episode, result);
CREATE INDEX leases_under_way ON leases (expires_ns) WHERE result = '';

-- Failures in a row of one target, by threshold and scope.
CREATE TABLE failure_rows (
    key TEXT PRIMARY KEY,
    failures INTEGER NOT NULL,
    last_ns INTEGER NOT NULL,
    updated_ns INTEGER NOT NULL
) STRICT;

-- Budgets: what was spent by key, and what is reserved and not yet spent, in millionths of the unit.
CREATE TABLE budgets (
    key TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    owner TEXT NOT NULL,
    window_start_ns INTEGER NOT NULL,
    spent INTEGER NOT NULL,
    updated_ns INTEGER NOT NULL
) STRICT;
CREATE INDEX budgets_by_name ON budgets (name, owner);
CREATE TABLE reservations (
    id TEXT PRIMARY KEY,
    budget_key TEXT NOT NULL,
    amount INTEGER NOT NULL,
    created_ns INTEGER NOT NULL,
    expires_ns INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('reserved', 'committed', 'released', 'expired')),
    finished_ns INTEGER
) STRICT;
CREATE INDEX reservations_open ON reservations (budget_key, expires_ns) WHERE state = 'reserved';
CREATE INDEX reservations_over ON reservations (finished_ns) WHERE state <> 'reserved';

-- Answers kept by Idempotency-Key.
CREATE TABLE idempotency (
    key TEXT NOT NULL,
    caller TEXT NOT NULL,
    route TEXT NOT NULL,
    body_sha256 TEXT NOT NULL,
    status INTEGER NOT NULL,
    answer BLOB NOT NULL,
    headers TEXT NOT NULL,
    created_ns INTEGER NOT NULL,
    PRIMARY KEY (caller, key)
) STRICT;
CREATE INDEX idempotency_by_age ON idempotency (created_ns);
