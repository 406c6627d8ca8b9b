"""Texts of strangers that are long and nearly match, over and over.

A judgement that looks back at each of their places takes minutes, so that these tests would not end.
"""

from __future__ import annotations

import pytest

from detectors.errors import ErrorClass, classify
from detectors.failing_set import failing_set_in
from detectors.learned import is_unsettled
from detectors.reading import Reading
from detectors.role import Role
from detectors.shell import canonical_command, role_of_command
from detectors.signature import information_text
from tests.detectors.stream import Stream

LONG = 100_000


def long(unit: str) -> str:
    """A text of `LONG` characters that repeats one."""
    return (unit * (LONG // len(unit) + 1))[:LONG]


@pytest.mark.parametrize(
    ("command", "role"),
    [
        (f"make {long(chr(9))} all", Role.OTHER),
        (long("find x "), Role.LOOK),
        (long("find x ") + " -delete", Role.CHANGE),
        (long("curl x "), Role.LOOK),
        (long("curl x ") + " -X POST", Role.CHANGE),
        (long("curl x ") + "/health", Role.POLL),
        (long("sed -"), Role.OTHER),
        ("tail -f" + long(" -a"), Role.POLL),
        ("cut " + long("tail -a "), Role.LOOK),
        (long("\n") + "rm x", Role.CHANGE),
        (long("A=b ") + " rm x", Role.CHANGE),
    ],
)
def test_what_a_long_command_is_for(command: str, role: Role) -> None:
    assert role_of_command(command) is role


@pytest.mark.parametrize("unit", ['\\"', '"\\', "'", "a'\"", "echo $(", "-a -b c/ "])
def test_a_long_command_has_one_spelling(unit: str) -> None:
    command = canonical_command(long(unit))
    assert canonical_command(command.strip()) == command


def test_flags_are_one_word_however_many() -> None:
    assert canonical_command("ls" + " -b -a" * 50_000) == "ls -" + "a" * 50_000 + "b" * 50_000


@pytest.mark.parametrize(
    ("command", "spelled"),
    [
        ('grep "a  b', 'grep "a\x00\x00b'),
        ('grep "a', 'grep "a'),
        ('grep "a\\', 'grep "a\\'),
        ('grep "a" "b', 'grep a "b'),
    ],
)
def test_what_no_quote_closes_is_quoted_to_the_end(command: str, spelled: str) -> None:
    assert canonical_command(command) == spelled


@pytest.mark.parametrize("unit", ["0", "1.", "12:34:", "2024-01-01 ", "_", "task-", "0x"])
def test_a_long_result_is_read(unit: str) -> None:
    assert information_text(f"{long(unit)} took 300 ms").endswith("#")


@pytest.mark.parametrize("unit", ["cannot ", "error ", "missing ", "at line 1 ", "timed out after "])
def test_a_long_error_is_classified(unit: str) -> None:
    assert isinstance(classify(long(unit)).error_class, ErrorClass)


@pytest.mark.parametrize("unit", ["\n", " \n", "\t", "- ", "a", "1", "1)", "error", "a/b:", "FAILED\n"])
def test_what_a_long_result_says_fails(unit: str) -> None:
    failing = Stream().call("run_tests", {}, ok=long(unit)).call("run_tests", {}, error=long(unit)).steps
    assert [is_unsettled(Reading(step)) for step in failing] == [False, False]
    assert failing_set_in("FAILED a.py::test_one\n1 failed\n" + long(unit)) is not None
