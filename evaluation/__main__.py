"""`python -m evaluation`: measure, and write docs/evaluation.md with its plots."""

from __future__ import annotations

from evaluation.command import main

if __name__ == "__main__":
    main()
