"""What `--help` says is what was written: brackets in it are no markup."""

from __future__ import annotations

from typing import Any

import pytest
import typer
from rich.text import Text

from api.cli import app

COMMANDS: dict[str, Any] = vars(typer.main.get_command(app))["commands"]


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_no_help_loses_what_stands_in_brackets(name: str) -> None:
    for parameter in COMMANDS[name].params:
        told = getattr(parameter, "help", None) or ""
        assert Text.from_markup(told).plain == told
