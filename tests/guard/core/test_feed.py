from __future__ import annotations

import json
import unittest
from typing import Any

from recloser_guard.errors import GuardError
from recloser_guard.feed import Feed
from recloser_guard.stream import Event, EventReader
from scripted import breaker, event, snapshot


def told(feed: Feed, name: str, data: Any) -> bool:
    return feed.apply(Event(name, json.dumps(data), None))


def begun(*breakers: dict[str, Any], revision: int = 10) -> Feed:
    feed = Feed()
    told(feed, "snapshot", {"revision": revision, "breakers": list(breakers)})
    return feed


class TheFeed(unittest.TestCase):
    def test_a_snapshot_replaces_everything(self) -> None:
        feed = begun(breaker(1, 3, tool="t"))
        told(feed, "snapshot", {"revision": 11, "breakers": [breaker(2, 11, tool="u")]})
        assert [b.id for b in feed.index] == [breaker(2)["id"]]
        assert list(feed.shown) == [breaker(2)["id"]]
        assert feed.index.revision == 11

    def test_what_is_as_old_as_the_snapshot_is_skipped(self) -> None:
        feed = begun(revision=10)
        assert not told(feed, "upsert", breaker(1, 9, tool="t"))
        assert not told(feed, "remove", {"id": "br_x", "revision": 10})
        assert len(feed.index) == 0

    def test_upsert_and_remove(self) -> None:
        feed = begun(revision=10)
        assert told(feed, "upsert", breaker(1, 11, tool="t"))
        assert len(feed.index) == len(feed.shown) == 1
        assert told(feed, "remove", {"id": breaker(1)["id"], "revision": 12})
        assert len(feed.index) == len(feed.shown) == 0
        assert feed.index.revision == 12

    def test_a_heartbeat_with_a_lower_revision_is_of_another_file(self) -> None:
        feed = begun(revision=10)
        told(feed, "heartbeat", {"revision": 10})
        assert not feed.refetch
        told(feed, "heartbeat", {"revision": 4})
        assert feed.refetch

    def test_what_a_heartbeat_names_and_did_not_come_until_the_next_one_concerns_others(self) -> None:
        feed = begun(revision=10)
        told(feed, "heartbeat", {"revision": 12})
        assert feed.index.revision == 10
        told(feed, "upsert", breaker(1, 11, tool="t"))
        told(feed, "heartbeat", {"revision": 12})
        assert feed.index.revision == 12
        assert not feed.refetch

    def test_after_a_reset_only_a_snapshot_helps(self) -> None:
        feed = begun(revision=10)
        told(feed, "reset", {})
        assert not feed.refetch
        told(feed, "upsert", breaker(1, 11, tool="t"))
        assert feed.refetch
        told(feed, "snapshot", {"revision": 11, "breakers": [breaker(1, 11, tool="t")]})
        assert not feed.refetch

    def test_events_of_a_later_version_are_ignored(self) -> None:
        assert not told(begun(), "something_new", {"x": 1})

    def test_what_makes_no_sense_is_said(self) -> None:
        for name, data in (
            ("snapshot", {}),
            ("upsert", {"id": "x"}),
            ("remove", {"id": "x", "revision": "y"}),
            ("upsert", []),
        ):
            with self.assertRaises(GuardError):
                told(begun(), name, data)
        with self.assertRaises(GuardError):
            Feed().apply(Event("upsert", "{", None))


class TheReader(unittest.TestCase):
    def test_events_come_out_of_lines_of_any_ends(self) -> None:
        reader = EventReader()
        lines = (snapshot() + event("remove", {"id": "x"}, 7).replace(b"\n", b"\r\n")).splitlines(
            keepends=True
        )
        events = [found for found in map(reader.take, lines) if found]
        assert [(e.name, e.id) for e in events] == [("snapshot", "0"), ("remove", "7")]

    def test_data_of_several_lines_and_no_data(self) -> None:
        reader = EventReader()
        lines = (b"event: x\n", b"\n", b"data: [1,\n", b"data: 2]\n", b"\n")
        events = [found for found in map(reader.take, lines) if found]
        assert events == [Event("message", "[1,\n2]", None)]


if __name__ == "__main__":
    unittest.main()
