"""OTLP receivers and readers of recorded traces."""
