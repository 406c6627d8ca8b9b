"""What `--help` says is what was written: brackets in it are no markup."""

from __future__ import annotations

from typing import Any

import pytest
import typer
from rich.text import Text

from api.cli import app


def commands_of(group: Any, prefix: str = "") -> dict[str, Any]:  # noqa: ANN401 - click's, which typer brings
    found: dict[str, Any] = {}
    for name, command in getattr(group, "commands", {}).items():
        found |= {f"{prefix}{name}": command, **commands_of(command, f"{prefix}{name} ")}
    return found


COMMANDS = commands_of(typer.main.get_command(app))


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_no_help_loses_what_stands_in_brackets(name: str) -> None:
    for parameter in COMMANDS[name].params:
        told = getattr(parameter, "help", None) or ""
        assert Text.from_markup(told).plain == told
