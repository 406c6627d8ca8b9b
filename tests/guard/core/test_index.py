from __future__ import annotations

import threading
import unittest
from typing import Any

from recloser_guard.errors import GuardError
from recloser_guard.index import NOTHING, Call, Index
from recloser_guard.record import breaker_from
from scripted import breaker


def call(**said: Any) -> Call:
    said = {"tenant": "default", **said}
    agent, version = said.get("agent"), said.pop("agent_version", None)
    said["agent_at_version"] = f"{agent}@{version}" if agent and version else None
    return Call(**{**dict.fromkeys(Call._fields), **said})


def index(*shown: dict[str, Any]) -> Index:
    return Index(map(breaker_from, shown))


class TheIndex(unittest.TestCase):
    def test_a_call_that_does_not_say_a_part_is_not_covered_by_a_scope_that_names_it(self) -> None:
        known = index(breaker(session="s", tool="t"))
        assert known.find(call(session="s")) is NOTHING
        assert known.find(call(session="s", tool="t")).breaker is not None

    def test_the_tenant_separates(self) -> None:
        assert index(breaker(tenant="other", tool="t")).find(call(tool="t")) is NOTHING

    def test_a_scope_over_a_version_covers_that_version_only(self) -> None:
        known = index(breaker(agent="buyer@2"))
        assert known.find(call(agent="buyer", agent_version="2")).breaker is not None
        assert known.find(call(agent="buyer", agent_version="1")) is NOTHING
        assert known.find(call(agent="buyer")) is NOTHING
        assert index(breaker(agent="buyer")).find(call(agent="buyer", agent_version="1")).breaker is not None

    def test_the_strongest_wins(self) -> None:
        known = index(
            breaker(1, action="deny", session="s"),
            breaker(2, action="halt", tool="t"),
            breaker(3, action="replan", session="s", tool="t"),
        )
        found = known.find(call(session="s", tool="t")).breaker
        assert found is not None
        assert found.strength == "halt"

    def test_an_exception_holds_closed_what_is_as_wide_or_wider(self) -> None:
        wide, exception = breaker(1, tool="t"), breaker(2, state="forced_closed", session="s", tool="t")
        found = index(wide, exception).find(call(session="s", tool="t"))
        assert found.breaker is None
        assert found.override is not None
        assert found.override.id == exception["id"]

    def test_an_exception_for_a_tool_does_not_let_a_stopped_session_go_on(self) -> None:
        stopped, exception = (
            breaker(1, action="halt", session="s"),
            breaker(2, state="forced_closed", tool="t"),
        )
        found = index(stopped, exception).find(call(session="s", tool="t"))
        assert found.breaker is not None

    def test_forced_open_beats_an_exception(self) -> None:
        known = index(breaker(1, state="forced_open", tool="t"), breaker(2, state="forced_closed", tool="t"))
        assert known.find(call(tool="t")).breaker is not None

    def test_an_open_one_answers_before_a_half_open_one(self) -> None:
        known = index(
            breaker(1, state="half_open", action="halt", tool="t"), breaker(2, action="replan", session="s")
        )
        found = known.find(call(session="s", tool="t")).breaker
        assert found is not None
        assert found.state == "open"

    def test_shadow_and_closed_say_nothing(self) -> None:
        known = index(breaker(1, state="shadow", tool="t"), breaker(2, state="closed", tool="t"))
        assert len(known) == 0
        assert known.find(call(tool="t")) is NOTHING

    def test_a_breaker_over_arguments_asks_for_the_sidecar_when_the_rest_fits(self) -> None:
        known = index(breaker(session="s", tool="t", args="00ff00ff00ff00ff"))
        assert known.find(call(session="s", tool="t")).ask
        assert not known.find(call(session="s", tool="u")).ask
        assert known.find(call(session="s", tool="t", args="00ff00ff00ff00ff")).breaker is not None
        known.remove(breaker()["id"], 9)
        assert known.find(call(session="s", tool="t")) is NOTHING

    def test_what_is_older_than_what_is_known_changes_nothing(self) -> None:
        known = index(breaker(1, revision=5, tool="t"))
        known.put(breaker_from(breaker(1, revision=4, state="closed", tool="t")))
        known.remove(breaker(1)["id"], 3)
        assert known.find(call(tool="t")).breaker is not None
        known.put(breaker_from(breaker(1, revision=6, state="closed", tool="t")))
        assert known.find(call(tool="t")) is NOTHING
        assert known.revision == 6

    def test_a_change_is_never_seen_half(self) -> None:
        known = index(breaker(1, 1, tool="t"), breaker(2, 1, tool="t", args="00ff00ff00ff00ff"))
        missed: list[int] = []
        done = threading.Event()

        def read() -> None:
            while not done.is_set():
                found = known.find(call(tool="t"))
                if found.breaker is None or not found.ask:
                    missed.append(known.revision)

        reader = threading.Thread(target=read)
        reader.start()
        for revision in range(2, 3000):
            known.put(breaker_from(breaker(1, revision, tool="t", action=("deny", "halt")[revision % 2])))
            known.put(breaker_from(breaker(2, revision, tool="t", args="00ff00ff00ff00ff")))
        done.set()
        reader.join()
        assert not missed

    def test_nothing_is_left_of_breakers_that_are_gone(self) -> None:
        known = index(*(breaker(n, session=f"s{n}", tool="t", args=("a", None)[n % 2]) for n in range(50)))
        for number in range(50):
            known.remove(breaker(number)["id"], 100)
        assert not known._shapes
        assert not known._of_args
        assert len(known) == 0

    def test_a_strength_that_is_not_known_counts_as_the_strongest(self) -> None:
        found = index(breaker(action="vaporize", tool="t")).find(call(tool="t")).breaker
        assert found is not None
        assert found.strength == "halt"

    def test_what_is_no_breaker_is_refused_with_what_it_is(self) -> None:
        for wrong in ({}, {"id": 1}, {**breaker(), "scope": None}, {**breaker(), "until": "soon"}):
            with self.assertRaises(GuardError):
                breaker_from(wrong)


if __name__ == "__main__":
    unittest.main()
