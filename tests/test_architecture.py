"""What the folders promise, read from the code itself."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("api", "attach", "collector", "control", "dashboards", "detectors", "guard", "storage")
PURE = [*sorted((ROOT / "detectors").glob("*.py")), *sorted((ROOT / "collector/conventions").glob("*.py"))]
IMPURE = {"time", "random", "os", "secrets", "socket", "subprocess", "threading", "uuid"}
SOURCES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.split(".")[0])
    return found


@pytest.mark.parametrize("path", PURE, ids=lambda p: str(p.relative_to(ROOT)))
def test_detectors_and_conventions_have_no_clock_no_randomness_and_no_environment(path: Path) -> None:
    assert not imports(path) & IMPURE


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_module_says_what_it_is(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text()))


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_switched_off_check_has_its_reason(path: Path) -> None:
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if "# noqa" in line:
            assert re.search(r"# noqa: [A-Z0-9, ]+ - \S", line), f"{path}:{number}: {line.strip()}"
        if "type: ignore" in line:
            assert re.search(r"type: ignore\[[a-z, -]+\] +# \S", line), f"{path}:{number}: {line.strip()}"


def test_only_the_store_process_imports_the_engine() -> None:
    assert {path.name for path in SOURCES if "chdb" in imports(path)} <= {
        "embedded.py",
        "engine.py",
        "endpoint.py",
    }


def test_only_storage_speaks_clickhouse() -> None:
    assert all(
        path.is_relative_to(ROOT / "storage") for path in SOURCES if "clickhouse_connect" in imports(path)
    )


def test_the_command_line_does_not_load_what_a_command_does_not_need() -> None:
    heavy = "{'pyarrow', 'numpy', 'chdb', 'clickhouse_connect', 'grpc', 'fastapi'}"
    script = f"import sys, api.cli; print(sorted({heavy} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
