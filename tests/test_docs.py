"""Docs that lag behind the code fail here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from api.config import Settings

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


def keys(model: type[BaseModel], prefix: str = "") -> list[str]:
    found = []
    for name, field in model.model_fields.items():
        section = _section(field.annotation)
        if section is not None:
            found += keys(section, f"{prefix}{name}.")
        else:
            found.append(f"{prefix}{name}")
    return found


def _section(annotation: object) -> type[BaseModel] | None:
    for candidate in (annotation, *getattr(annotation, "__args__", ())):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None


@pytest.mark.parametrize("key", keys(Settings))
def test_every_setting_is_documented(key: str) -> None:
    assert f"`{key}`" in (DOCS / "configuration.md").read_text()


def test_every_metric_is_documented() -> None:
    declared = set()
    for path in (*(ROOT / "api").rglob("*.py"), *(ROOT / "control").rglob("*.py")):
        declared |= set(re.findall(r'"(recloser_[a-z_]+)"', path.read_text()))
    documented = (DOCS / "metrics.md").read_text()
    assert {name for name in declared if f"`{name}`" not in documented} == set()


@pytest.mark.parametrize("path", sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md")]), ids=lambda p: p.name)
def test_every_link_leads_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", path.read_text()):
        if "://" not in target:
            assert (path.parent / target).exists(), target


def test_every_file_that_docs_name_exists() -> None:
    for path in (*DOCS.rglob("*.md"), *ROOT.glob("*.md")):
        for name in re.findall(
            r"`((?:api|bench|collector|control|detectors|storage|tests|docs)/[\w/.*-]+\.\w+)`",
            path.read_text(),
        ):
            assert list(ROOT.glob(name)) or name.endswith("my_detector.py"), f"{path.name}: {name}"


def test_decisions_are_numbered_without_gaps() -> None:
    numbers = sorted(int(path.name[:4]) for path in (DOCS / "decisions").glob("*.md"))
    assert numbers == list(range(1, len(numbers) + 1))
