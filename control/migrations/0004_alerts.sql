-- Alerts wait before they fire, and are covered by others; SQLite changes no CHECK, so the table is made anew.
-- `key`: what receivers merge by; that of alerts of earlier versions was their id.
CREATE TABLE alerts_new (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    state TEXT NOT NULL CHECK (state IN ('pending', 'firing', 'resolved')),
    session_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    severity TEXT NOT NULL,
    key TEXT NOT NULL,
    covered_by TEXT NOT NULL DEFAULT '',
    payload TEXT NOT NULL,
    updated_ns INTEGER NOT NULL
) STRICT;
INSERT INTO alerts_new (seq, id, state, session_id, kind, severity, key, covered_by, payload, updated_ns)
    SELECT seq, id, state, session_id, json_extract(payload, '$.finding.kind'),
    json_extract(payload, '$.finding.severity'), id, coalesce(json_extract(payload, '$.covered_by'), ''), payload,
    updated_ns FROM alerts;
DROP TABLE alerts;
ALTER TABLE alerts_new RENAME TO alerts;
CREATE INDEX alerts_by_state ON alerts (state, seq);
CREATE INDEX alerts_of_fleet ON alerts (state, seq) WHERE session_id = '';
CREATE INDEX alerts_by_session ON alerts (session_id, seq);
CREATE INDEX alerts_by_key ON alerts (key, state);
CREATE INDEX alerts_by_cover ON alerts (covered_by) WHERE covered_by <> '';
CREATE INDEX alerts_live ON alerts (seq) WHERE state <> 'resolved';

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
CREATE INDEX alert_memory_by_age ON alert_memory (updated_ns);
