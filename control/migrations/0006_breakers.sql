-- `until_ns`: when an open, half-open or forced breaker changes by itself; null: never.
ALTER TABLE breakers ADD COLUMN until_ns INTEGER;
CREATE INDEX breakers_by_until ON breakers (until_ns) WHERE until_ns IS NOT NULL;

-- Who did what to what, why: append-only; `hash` is over the entry and the hash of the one before.
CREATE TABLE audit (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    at_ns INTEGER NOT NULL,
    payload TEXT NOT NULL,
    previous TEXT NOT NULL,
    hash TEXT NOT NULL
) STRICT;

-- Probes of half-open breakers. `result`: '' while under way, else ok, failed, expired.
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
CREATE INDEX leases_by_breaker ON leases (breaker_id, result);

-- Budgets: what was spent by key, and what is reserved and not yet spent.
CREATE TABLE budgets (
    key TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    window_start_ns INTEGER NOT NULL,
    spent REAL NOT NULL
) STRICT;
CREATE TABLE reservations (
    id TEXT PRIMARY KEY,
    budget_key TEXT NOT NULL,
    amount REAL NOT NULL,
    created_ns INTEGER NOT NULL,
    expires_ns INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('reserved', 'committed', 'released', 'expired'))
) STRICT;
CREATE INDEX reservations_open ON reservations (budget_key, expires_ns) WHERE state = 'reserved';

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
