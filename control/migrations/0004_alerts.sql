-- Alerts wait before they fire, and are covered by others; SQLite changes no CHECK, so the table is made anew.
CREATE TABLE alerts_new (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    state TEXT NOT NULL CHECK (state IN ('pending', 'firing', 'resolved')),
    session_id TEXT NOT NULL,
    covered_by TEXT NOT NULL DEFAULT '',
    payload TEXT NOT NULL,
    updated_ns INTEGER NOT NULL
) STRICT;
INSERT INTO alerts_new (seq, id, state, session_id, covered_by, payload, updated_ns)
    SELECT seq, id, state, session_id, coalesce(json_extract(payload, '$.covered_by'), ''), payload, updated_ns
    FROM alerts;
DROP TABLE alerts;
ALTER TABLE alerts_new RENAME TO alerts;
CREATE INDEX alerts_by_state ON alerts (state, seq);
CREATE INDEX alerts_of_fleet ON alerts (state, seq) WHERE session_id = '';
CREATE INDEX alerts_by_session ON alerts (session_id, seq);
CREATE INDEX alerts_by_cover ON alerts (covered_by) WHERE covered_by <> '';

CREATE TABLE silences (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    payload TEXT NOT NULL,
    starts_ns INTEGER NOT NULL,
    ends_ns INTEGER NOT NULL
) STRICT;
CREATE INDEX silences_by_end ON silences (ends_ns);

-- What alerting remembers between two turns: heartbeats sent, sources seen, flap scores.
CREATE TABLE alert_memory (key TEXT PRIMARY KEY, payload TEXT NOT NULL, updated_ns INTEGER NOT NULL) STRICT;
