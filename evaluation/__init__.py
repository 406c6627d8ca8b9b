"""How well stuck runs are seen, measured on real ones: `python -m evaluation` writes docs/evaluation.md."""
