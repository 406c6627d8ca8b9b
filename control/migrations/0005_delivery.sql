-- A message can be overtaken by what happened since ('superseded'); SQLite changes no CHECK, so the tables
-- are made anew. `fallback_of`: the destination that should have taken it. `unsure`: it may have been taken
-- although nobody said so. `fresh`: whether what came before it must still be looked at. `group_key`: what the
-- destination counts as one incident. `brief`: the body when its firing was never taken. `notice`: what a
-- fallback would have to be told. `replayed_ns`: when somebody had it sent again.
CREATE TABLE outbox_new (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    message_id TEXT NOT NULL,
    destination TEXT NOT NULL,
    order_key TEXT NOT NULL,
    type TEXT NOT NULL,
    body BLOB NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('pending', 'delivered', 'dead', 'superseded')),
    attempts INTEGER NOT NULL DEFAULT 0,
    next_ns INTEGER NOT NULL,
    created_ns INTEGER NOT NULL,
    finished_ns INTEGER,
    last_error TEXT NOT NULL DEFAULT '',
    fallback_of TEXT NOT NULL DEFAULT '',
    unsure INTEGER NOT NULL DEFAULT 0,
    fresh INTEGER NOT NULL DEFAULT 0,
    group_key TEXT NOT NULL DEFAULT '',
    brief BLOB,
    notice BLOB,
    replayed_ns INTEGER,
    UNIQUE (message_id, destination)
) STRICT;
INSERT INTO outbox_new (seq, message_id, destination, order_key, type, body, state, attempts, next_ns,
    created_ns, finished_ns, last_error, unsure)
    SELECT seq, message_id, destination, order_key, type, body, state, attempts, next_ns, created_ns,
    finished_ns, last_error, state = 'pending' AND attempts > 0 FROM outbox;
CREATE TABLE attempts_new (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    outbox_seq INTEGER NOT NULL REFERENCES outbox_new (seq) ON DELETE CASCADE,
    at_ns INTEGER NOT NULL,
    took_ns INTEGER NOT NULL,
    status INTEGER,
    result TEXT NOT NULL,
    error TEXT NOT NULL,
    body_sha256 TEXT NOT NULL
) STRICT;
INSERT INTO attempts_new SELECT seq, outbox_seq, at_ns, took_ns, status, result, error, body_sha256 FROM attempts;
DROP TABLE attempts;
DROP TABLE outbox;
ALTER TABLE outbox_new RENAME TO outbox;
ALTER TABLE attempts_new RENAME TO attempts;
CREATE INDEX outbox_pending ON outbox (destination, order_key, seq) WHERE state = 'pending';
CREATE INDEX outbox_fresh ON outbox (destination, seq) WHERE fresh = 1;
CREATE INDEX outbox_by_key ON outbox (order_key, seq);
CREATE INDEX outbox_by_destination ON outbox (destination, seq);
CREATE INDEX outbox_by_group ON outbox (destination, group_key, seq) WHERE group_key <> '';
CREATE INDEX outbox_finished ON outbox (finished_ns) WHERE state <> 'pending';
CREATE INDEX attempts_by_message ON attempts (outbox_seq);

-- Since when a destination takes nothing; null while it does.
ALTER TABLE destinations ADD COLUMN failing_since_ns INTEGER;
