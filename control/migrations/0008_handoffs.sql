-- The report as it stood when an alert fired or a breaker opened.
CREATE TABLE handoffs (
    subject TEXT PRIMARY KEY,
    session_id TEXT NOT NULL,
    payload TEXT NOT NULL,
    created_ns INTEGER NOT NULL
) STRICT;
CREATE INDEX handoffs_by_session ON handoffs (session_id, created_ns);
CREATE INDEX handoffs_by_age ON handoffs (created_ns);
