"""One file per instrumentation family: span attributes to steps."""
