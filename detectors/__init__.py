"""Pure streaming judgement: steps in, findings out. No clock, no randomness, no I/O, no environment."""
