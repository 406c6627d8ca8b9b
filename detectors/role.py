"""What a call is for: the vocabulary."""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    """What a call is for.

    `look` only reads. `change` may have changed something. `wait` lets time pass. `poll` asks whether
    something has happened. `move` steps through something that has a position (scroll, next, press a key),
    so that repeating it is how it is used. `think` is a model that talks to itself, as transparent as its
    text. `other`: nothing tells, so it may have changed something.
    """

    LOOK = "look"
    CHANGE = "change"
    WAIT = "wait"
    POLL = "poll"
    MOVE = "move"
    THINK = "think"
    OTHER = "other"


def words(text: str) -> frozenset[str]:
    """A set of words from text.

    >>> sorted(words("read get list"))
    ['get', 'list', 'read']
    """
    return frozenset(text.split())
