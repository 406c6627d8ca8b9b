"""`recloser classify`: what failed calls' messages say about why they failed, one JSON line each."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final, TextIO

from api.printable import printable
from detectors.errors import Verdict, classify

STDIN: Final = Path("-")
_OK: Final = 0
_BAD_INPUT: Final = 2


class BadLineError(Exception):
    """A line that is no message; the text says why."""


def classify_file(path: Path, out: TextIO, err: TextIO) -> int:
    """Class each line of a file (`-`: standard input) and write one JSON line each to `out`.

    Returns 0, or 2 when a line or the file could not be read: `err` then names file and line, and the other
    lines are classed all the same.
    """
    if path == STDIN:
        return _classify_lines("standard input", sys.stdin.buffer, out, err)
    try:
        with path.open("rb") as lines:
            return _classify_lines(str(path), lines, out, err)
    except OSError as error:
        err.write(f"recloser: {printable(str(path))}: {error.strerror or 'cannot be read'}\n")
        return _BAD_INPUT


def _classify_lines(name: str, lines: Iterable[bytes], out: TextIO, err: TextIO) -> int:
    status = _OK
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            out.write(_answer(line) + "\n")
        except BadLineError as error:
            err.write(f"recloser: {printable(name)}:{number}: {error}\n")
            status = _BAD_INPUT
    return status


def _answer(line: bytes) -> str:
    try:
        read = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadLineError("is no JSON") from error
    if not isinstance(read, dict):
        raise BadLineError("is no JSON object")
    identity, message, tool = read.get("id"), read.get("message"), read.get("tool")
    if not isinstance(identity, str | int) or isinstance(identity, bool):
        raise BadLineError("`id` must be a string or a whole number")
    if not isinstance(message, str):
        raise BadLineError("`message` must be a string")
    if not isinstance(tool, str | None):
        raise BadLineError("`tool` must be a string")
    return json.dumps({"id": identity} | _fields(classify(message, tool=tool)))


def _fields(verdict: Verdict) -> dict[str, str | bool | float]:
    return {
        "class": verdict.error_class.value,
        "nature": verdict.nature.value,
        "retry": verdict.retry,
        "change_arguments": verdict.change_arguments,
        "change_plan": verdict.change_plan,
        "prescription": verdict.prescription.value,
        "source": verdict.source,
        "rule": verdict.rule,
        "confidence": round(verdict.confidence, 3),
    }
