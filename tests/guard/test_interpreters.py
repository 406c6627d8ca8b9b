"""The guard's own tests on every Python that it promises and that is at hand, without any package."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OLDEST = (3, 9)


def candidates() -> Iterator[Path]:
    named = os.environ.get("RECLOSER_TEST_PYTHONS")
    if named is not None:
        yield from map(Path, named.split(os.pathsep))
        return
    yield Path(sys.executable)
    for minor in range(OLDEST[1], 20):
        found = shutil.which(f"python3.{minor}")
        if found is not None:
            yield Path(found)
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from sorted(pyenv.glob("versions/3.*/bin/python"))


def interpreters() -> dict[str, Path]:
    """One of each minor version."""
    found: dict[str, Path] = {}
    for python in candidates():
        asked = subprocess.run(
            [python, "-c", "import sys; print(*sys.version_info[:2], sys.implementation.name)"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        words = asked.stdout.split()
        if asked.returncode == 0 and (int(words[0]), int(words[1])) >= OLDEST:
            found.setdefault(f"{words[2]}-{words[0]}.{words[1]}", python)
    return found


@pytest.mark.accept
@pytest.mark.short
def test_the_core_passes_on_every_interpreter_at_hand(subtests: pytest.Subtests) -> None:
    at_hand = interpreters()
    assert at_hand
    for name, python in sorted(at_hand.items()):
        with subtests.test(name):
            run = subprocess.run(
                [python, "-I", "-W", "error", "-c", PROGRAM, ROOT / "guard/src", ROOT / "tests/guard/core"],
                capture_output=True, text=True, check=False, timeout=120,
            )  # fmt: skip
            assert run.returncode == 0, run.stderr[-4000:]
            assert "OK" in run.stderr


PROGRAM = """
import sys, unittest
sys.path[:0] = sys.argv[1:]
ran = unittest.main(module=None, argv=["guard", "discover", "-s", sys.argv[2]], exit=False)
sys.exit(not ran.result.wasSuccessful())
"""


def test_adapters_import_their_framework_and_the_guard_only() -> None:
    allowed = {
        "langchain": {"langchain", "langchain_core", "langgraph"},
        "openai_agents": {"agents"},
        "pydantic_ai": {"pydantic_ai"},
        "mcp": {"mcp"},
    }
    files = {path.stem: path for path in (ROOT / "guard/src/recloser_guard/adapters").glob("[!_]*.py")}
    assert files.keys() == allowed.keys()
    for name, path in files.items():
        imported = {
            module.partition(".")[0]
            for node in ast.walk(ast.parse(path.read_text()))
            for module in (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else []
            )
        }
        assert imported - set(sys.stdlib_module_names) == allowed[name] | {"recloser_guard"}


def test_the_guard_imports_nothing_but_the_standard_library() -> None:
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); before = set(sys.modules); import recloser_guard; "
        "names = {name.partition('.')[0] for name in set(sys.modules) - before}; "
        "print(sorted(names - set(sys.stdlib_module_names) - {'recloser_guard'}))"
    )
    run = subprocess.run(
        [sys.executable, "-I", "-c", script, ROOT / "guard/src"], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "[]"
