"""The edge: OTLP bytes in, steps out. Knows nothing downstream."""
