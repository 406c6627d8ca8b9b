from __future__ import annotations

import io
import logging

import pytest

from api.analyze import Problems
from api.printable import printable
from api.process import set_up_logging


def test_ordinary_text_stays_as_it_is() -> None:
    text = "fetch_page: Größe 5 € “quoted” \N{PILE OF POO} \\n"
    assert printable(text) == text


@pytest.mark.parametrize(
    "evil", ["\n", "\r", "\x1b[31m", "\x00", "\x9b", "\u2028", "\u202e", "\ud800", "\x7f"]
)
def test_what_would_break_a_line_or_steer_a_terminal_is_written_out(evil: str) -> None:
    shown = printable(f"a{evil}b")
    assert "\\" in shown
    assert shown.isprintable()


def test_a_forged_line_stays_in_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    before = logging.root.handlers[:], logging.root.level
    try:
        set_up_logging("test", "info")
        logging.getLogger("test").warning("alert: %s", "tool\n2026-01-01 INFO all is well" + "x" * 10_000)
    finally:
        logging.root.handlers[:], logging.root.level = before[0], before[1]
    (line,) = capsys.readouterr().err.splitlines()
    assert "tool\\n2026" in line
    assert len(line) < 2_200


def test_problems_are_one_line_each() -> None:
    told = io.StringIO()
    Problems(told).about("a\nb", "c\x1b[2J")
    assert told.getvalue() == "recloser: a\\nb: c\\x1b[2J\n"
