-- The text of the policy file in force: what is used when the file is broken at the next start.
CREATE TABLE policy_in_force (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    path TEXT NOT NULL,
    text TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    loaded_ns INTEGER NOT NULL
) STRICT;

-- What findings say is degraded; counts until a rule's time has passed since the last revision.
CREATE TABLE degraded_tools (
    finding_id TEXT PRIMARY KEY,
    kind TEXT NOT NULL,
    service TEXT NOT NULL,
    tool TEXT NOT NULL,
    revised_ns INTEGER NOT NULL
) STRICT;

-- Rules about modes that hold, since when: what was told when it began is told when it ends.
CREATE TABLE modes_holding (
    rule TEXT PRIMARY KEY,
    mode TEXT NOT NULL,
    since_ns INTEGER NOT NULL
) STRICT;

-- Modes that people set, until when.
CREATE TABLE modes_by_hand (
    agent TEXT PRIMARY KEY,
    mode TEXT NOT NULL,
    reason TEXT NOT NULL,
    actor TEXT NOT NULL,
    since_ns INTEGER NOT NULL,
    until_ns INTEGER NOT NULL
) STRICT;
