-- Alerts of a whole fleet belong to no session; every alert of a session looks for them.
CREATE INDEX alerts_of_fleet ON alerts (state, seq) WHERE session_id = '';
