"""What a finding leads to: alerts, deliveries, breakers."""
