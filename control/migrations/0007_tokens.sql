CREATE TABLE tokens (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    digest BLOB NOT NULL UNIQUE,
    payload TEXT NOT NULL,
    created_ns INTEGER NOT NULL,
    revoked_ns INTEGER
) STRICT;
