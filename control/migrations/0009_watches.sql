-- After a halt: is the run still going on? `payload` has what was seen.
CREATE TABLE watches (
    breaker_id TEXT PRIMARY KEY,
    session_id TEXT NOT NULL,
    halted_ns INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('watching', 'ended', 'still_running')),
    payload TEXT NOT NULL
) STRICT;
CREATE INDEX watches_open ON watches (state);
