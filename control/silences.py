"""Silences: for a time, alerts with certain labels announce nothing new.

What was announced still gets its resolve, and what still fires when a silence ends is announced then.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import orjson

from control.actor import Actor

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Collection, Mapping

    from collector.step import Json
    from control.db import ControlDb, Transaction

LABELS: Final = ("kind", "severity", "service", "agent", "tool", "session_id", "alert_id", "rule")
KIND: Final = "kind"
MAX_MATCHERS: Final = 16
MAX_PATTERN: Final = 200
MAX_VALUE: Final = 500
_COMPARED: Final = 200  # characters of a label that a pattern sees
MAX_LENGTH_NS: Final = 30 * 86_400 * 10**9
MAX_ACTIVE: Final = 1_000
_MAX_REPETITIONS: Final = 3
_UNSAFE: Final = re.compile(
    r"\\[1-9]|\(\?[^:]|[*+?}][+]"  # back references, look-around and the like, possessive repetition
    r"|\([^()]*[*+{][^()]*\)\s*[*+{]"  # a repetition of a repetition
    r"|\)\s*[*+{]"  # any repeated group: what is inside could match in more than one way
)


class UnknownSilence(Exception):  # noqa: N818 - the name says what is missing
    """No silence has this id."""


class SilenceOver(Exception):  # noqa: N818 - says what it is
    """The silence has ended and cannot be changed any more."""


class TooManySilences(Exception):  # noqa: N818 - says what is wrong
    """Every alert would have to be compared with all of them."""


class Op(StrEnum):
    """How a label is compared; patterns have to match the whole value."""

    EQUAL = "="
    NOT_EQUAL = "!="
    MATCHES = "=~"
    NOT_MATCHES = "!~"


@dataclass(frozen=True, slots=True, kw_only=True)
class Matcher:
    """One condition on a label. A label that an alert does not have is empty.

    Raises `ValueError`: no such label, a pattern that is none, or one that could take very long: repeated
    groups, back references and look-around are refused, as RE2 would refuse the last two.
    """

    name: str
    op: Op
    value: str

    def __post_init__(self) -> None:
        """Refuse what could never match or could take for ever."""
        if self.name not in LABELS:
            raise ValueError(f"name: {self.name!r} is no label; there are {', '.join(LABELS)}")
        if self.op in (Op.MATCHES, Op.NOT_MATCHES):
            _check_pattern(self.value)
        elif len(self.value) > MAX_VALUE:
            raise ValueError(f"value: has more than {MAX_VALUE} characters")

    def matches(self, labels: Mapping[str, str], kinds: Collection[str] = ()) -> bool:
        """Tell whether the condition holds; one on `kind` is about the label and each of `kinds`.

        Of these `=` and `=~` need one that fits, `!=` and `!~` none.
        """
        values = (labels.get(self.name, ""), *(kinds if self.name == KIND else ()))
        if self.op in (Op.EQUAL, Op.NOT_EQUAL):
            found = self.value in values
        else:
            pattern = _compiled(self.value)
            found = any(pattern.fullmatch(value[:_COMPARED]) is not None for value in values)
        return found is (self.op in (Op.EQUAL, Op.MATCHES))


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """Alerts for which all `matchers` hold announce nothing new from `starts_at` to `ends_at` (unix ns).

    Raises `ValueError` that names what is wrong: no matcher, one that matches everything there is, an end
    before the start or later than 30 days after it.
    """

    id: str
    matchers: tuple[Matcher, ...]
    starts_at: int
    ends_at: int
    comment: str
    created_by: Actor
    created_at: int

    def __post_init__(self) -> None:
        """Refuse a silence of everything, and one without a near end."""
        if not self.matchers:
            raise ValueError("matchers: at least one is needed")
        if len(self.matchers) > MAX_MATCHERS:
            raise ValueError(f"matchers: {MAX_MATCHERS} at most")
        if all(matcher.matches({}) for matcher in self.matchers):
            raise ValueError("matchers: at least one must not match an empty value, else all is silenced")
        if self.ends_at <= self.starts_at:
            raise ValueError("ends_at: must be later than starts_at")
        if self.ends_at - self.starts_at > MAX_LENGTH_NS:
            raise ValueError("ends_at: 30 days after starts_at at most")

    def active(self, now_ns: int) -> bool:
        """Whether it holds now."""
        return self.starts_at <= now_ns < self.ends_at

    def matches(self, labels: Mapping[str, str], kinds: Collection[str] = ()) -> bool:
        """Whether it is about an alert with these labels, of whose streak `kinds` speak, too."""
        return all(matcher.matches(labels, kinds) for matcher in self.matchers)


class Silences:
    """All silences that are not over: the truth in `control.db`, a copy in memory for every decision."""

    def __init__(self, db: ControlDb, now_ns: Callable[[], int]) -> None:
        self._db = db
        self._now_ns = now_ns
        with db.reading() as connection:
            rows = connection.execute("SELECT payload FROM silences WHERE ends_ns > ?", (now_ns(),))
            self._live = {s.id: s for s in (silence_from_json(row["payload"]) for row in rows)}

    def of(self, labels: Mapping[str, str], kinds: Collection[str] = ()) -> tuple[str, ...]:
        """Return the ids of the silences that hold an alert with these labels back now.

        `kinds`: further ones that speak of its streak.
        """
        now = self._now_ns()
        return tuple(s.id for s in list(self._live.values()) if s.active(now) and s.matches(labels, kinds))

    def put(self, tx: Transaction, silence: Silence) -> None:
        """Keep a silence, new or changed. Raises `TooManySilences`."""
        if silence.id not in self._live and len(self._live) >= MAX_ACTIVE:
            raise TooManySilences(f"there are {MAX_ACTIVE} silences; end some")
        tx.execute(
            "INSERT INTO silences (id, payload, starts_ns, ends_ns) VALUES (?, ?, ?, ?) ON CONFLICT (id) "
            "DO UPDATE SET payload = excluded.payload, starts_ns = excluded.starts_ns, "
            "ends_ns = excluded.ends_ns",
            (silence.id, orjson.dumps(silence).decode(), silence.starts_at, silence.ends_at),
        )
        tx.after_commit(lambda: self._live.update({silence.id: silence}))

    def expire(self, tx: Transaction, silence_id: str) -> Silence:
        """End a silence now. Raises `UnknownSilence`, `SilenceOver` when it is over already."""
        row = tx.one("SELECT payload FROM silences WHERE id = ?", (silence_id,))
        if row is None:
            raise UnknownSilence(silence_id)
        before, now = silence_from_json(row["payload"]), self._now_ns()
        if before.ends_at <= now:
            raise SilenceOver(silence_id)
        start = min(before.starts_at, now - 1)
        after = replace(before, starts_at=start, ends_at=now)
        self.put(tx, after)
        return after

    def forget(self) -> None:
        """Let go of those that are over: they decide nothing any more."""
        now = self._now_ns()
        for silence in [s for s in list(self._live.values()) if s.ends_at <= now]:
            self._live.pop(silence.id, None)


def new_id() -> str:
    """Make an id."""
    return f"si_{secrets.token_hex(8)}"


def to_plain(silence: Silence) -> dict[str, Json]:
    """A silence as plain data."""
    plain: dict[str, Json] = orjson.loads(orjson.dumps(silence))
    return plain


def silence_from_json(payload: str) -> Silence:
    """Read a silence back."""
    fields: dict[str, Any] = orjson.loads(payload)
    fields["matchers"] = tuple(
        Matcher(name=one["name"], op=Op(one["op"]), value=one["value"]) for one in fields["matchers"]
    )
    fields["created_by"] = Actor(**fields["created_by"])
    return Silence(**fields)


def list_silences(
    connection: sqlite3.Connection, *, ends_after: int | None, before: int | None, limit: int
) -> list[tuple[int, Silence]]:
    """Return (position, silence), the newest first; those that end after a moment, or all."""
    rows = connection.execute(
        "SELECT seq, payload FROM silences WHERE (?1 IS NULL OR ends_ns > ?1) AND (?2 IS NULL OR seq < ?2) "
        "ORDER BY seq DESC LIMIT ?3",
        (ends_after, before, limit),
    )
    return [(row["seq"], silence_from_json(row["payload"])) for row in rows]


def get_silence(connection: sqlite3.Connection, silence_id: str) -> Silence:
    """Return one silence; raises `UnknownSilence`."""
    row = connection.execute("SELECT payload FROM silences WHERE id = ?", (silence_id,)).fetchone()
    if row is None:
        raise UnknownSilence(silence_id)
    return silence_from_json(row["payload"])


def _check_pattern(pattern: str) -> None:
    if len(pattern) > MAX_PATTERN:
        raise ValueError(f"value: a pattern has {MAX_PATTERN} characters at most")
    if _UNSAFE.search(pattern):
        raise ValueError("value: repeated groups, back references and look-around are not allowed")
    if len(re.findall(r"(?<!\\)(?:[*+{]|(?<!\()\?)", pattern)) > _MAX_REPETITIONS:
        raise ValueError(f"value: {_MAX_REPETITIONS} repetitions at most")
    try:
        _compiled(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"value: no regular expression: {error}") from error


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.ASCII)
