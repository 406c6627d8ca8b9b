"""What is measured of stored steps, failures and findings: one metric, one query; see `catalog`."""
