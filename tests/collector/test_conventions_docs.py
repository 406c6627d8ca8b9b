from __future__ import annotations

from pathlib import Path

from collector.conventions.catalog import CONVENTIONS

DOCS = Path(__file__).parent.parent.parent / "docs" / "conventions.md"


def test_every_convention_is_described() -> None:
    text = DOCS.read_text()
    missing = {convention.name for convention in CONVENTIONS if f"`{convention.name}`" not in text}
    assert not missing
