"""Keep the test collector away: these are dev tools that need packages the project does not have."""

collect_ignore_glob = ["*.py", "frameworks/*"]
