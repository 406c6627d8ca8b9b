-- `seen_ns`: when a check was refused last, or a revision of a finding asked for the breaker again.
-- `source`: the identity of the file that a position belongs to. `identity`: that of this file.
ALTER TABLE breakers ADD COLUMN seen_ns INTEGER NOT NULL DEFAULT 0;
ALTER TABLE cursors ADD COLUMN source TEXT NOT NULL DEFAULT '';
CREATE TABLE identity (id TEXT NOT NULL) STRICT;
INSERT INTO identity (id) VALUES (lower(hex(randomblob(16))));
