-- Many messages wait, or lie in the ledger: what is asked at every turn is answered out of an index. The index
-- by destination alone served none of that and was taken in place of better ones.
DROP INDEX outbox_by_destination;
CREATE INDEX outbox_waiting ON outbox (destination, seq, next_ns) WHERE state = 'pending';
CREATE INDEX outbox_waits_since ON outbox (destination, coalesce(replayed_ns, created_ns)) WHERE state = 'pending';
CREATE INDEX outbox_to_divert ON outbox (destination, seq, created_ns) WHERE state = 'pending' AND notice IS NOT NULL;
CREATE INDEX outbox_given_up ON outbox (destination) WHERE state = 'dead' AND type <> 'test';
CREATE INDEX outbox_told ON outbox (destination, seq) WHERE state = 'delivered' AND type = 'alert.firing';
CREATE INDEX outbox_ended ON outbox (destination, finished_ns) WHERE state = 'delivered' AND type = 'alert.resolved';
CREATE INDEX alerts_firing_by_kind ON alerts (kind, seq) WHERE state = 'firing';
