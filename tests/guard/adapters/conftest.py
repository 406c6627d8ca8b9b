"""Keep the test collector away: the programs need packages of environments of their own."""

collect_ignore_glob = ["programs/*"]
