CREATE TABLE cursors (name TEXT PRIMARY KEY, position INTEGER NOT NULL) STRICT;

CREATE TABLE findings (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    revision INTEGER NOT NULL,
    session_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    severity TEXT NOT NULL,
    payload TEXT NOT NULL,
    updated_ns INTEGER NOT NULL
) STRICT;
CREATE INDEX findings_by_session ON findings (session_id, seq);
CREATE INDEX findings_by_age ON findings (updated_ns);

CREATE TABLE alerts (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    state TEXT NOT NULL CHECK (state IN ('firing', 'resolved')),
    session_id TEXT NOT NULL,
    payload TEXT NOT NULL,
    updated_ns INTEGER NOT NULL
) STRICT;
CREATE INDEX alerts_by_state ON alerts (state, seq);

CREATE TABLE alert_events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    alert_id TEXT NOT NULL,
    event TEXT NOT NULL,
    payload TEXT NOT NULL,
    created_ns INTEGER NOT NULL
) STRICT;

CREATE TABLE breakers (
    id TEXT PRIMARY KEY,
    state TEXT NOT NULL,
    session_id TEXT NOT NULL,
    revision INTEGER NOT NULL,
    denied INTEGER NOT NULL,
    payload TEXT NOT NULL
) STRICT;
CREATE INDEX breakers_by_session ON breakers (session_id, revision);
CREATE INDEX breakers_by_state ON breakers (state, revision);

CREATE TABLE breaker_events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    breaker_id TEXT NOT NULL,
    event TEXT NOT NULL,
    payload TEXT NOT NULL,
    created_ns INTEGER NOT NULL
) STRICT;

CREATE TABLE destinations (
    name TEXT PRIMARY KEY,
    address TEXT NOT NULL,
    failures INTEGER NOT NULL DEFAULT 0,
    held_until_ns INTEGER NOT NULL DEFAULT 0,
    disabled_ns INTEGER,
    reason TEXT NOT NULL DEFAULT ''
) STRICT;

CREATE TABLE outbox (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    message_id TEXT NOT NULL,
    destination TEXT NOT NULL,
    order_key TEXT NOT NULL,
    type TEXT NOT NULL,
    body BLOB NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('pending', 'delivered', 'dead')),
    attempts INTEGER NOT NULL DEFAULT 0,
    next_ns INTEGER NOT NULL,
    created_ns INTEGER NOT NULL,
    finished_ns INTEGER,
    last_error TEXT NOT NULL DEFAULT '',
    UNIQUE (message_id, destination)
) STRICT;
CREATE INDEX outbox_pending ON outbox (destination, order_key, seq) WHERE state = 'pending';
CREATE INDEX outbox_by_key ON outbox (order_key, seq);
CREATE INDEX outbox_finished ON outbox (finished_ns) WHERE state <> 'pending';

CREATE TABLE attempts (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    outbox_seq INTEGER NOT NULL REFERENCES outbox (seq) ON DELETE CASCADE,
    at_ns INTEGER NOT NULL,
    took_ns INTEGER NOT NULL,
    status INTEGER,
    result TEXT NOT NULL,
    error TEXT NOT NULL,
    body_sha256 TEXT NOT NULL
) STRICT;
CREATE INDEX attempts_by_message ON attempts (outbox_seq);
