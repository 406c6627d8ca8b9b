from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from control.breakers.settings import BreakerSettings


def test_the_defaults_are_those_of_the_specification() -> None:
    settings = BreakerSettings()
    assert (settings.base_open_s, settings.cap_open_s, settings.probes, settings.probe_ttl_s) == (
        60, 3600, 1, 30,
    )  # fmt: skip
    assert (settings.flap_trips, settings.flap_window_s, settings.decay_s) == (4, 3600, 600)
    assert (settings.blast_per_minute, settings.blast_share, settings.blast_min) == (30, 0.2, 5)


@pytest.mark.parametrize("key", [field.name for field in fields(BreakerSettings)])
@pytest.mark.parametrize("value", [-1, float("nan"), float("inf")])
def test_a_value_that_makes_no_sense_is_refused_by_its_key(key: str, value: Any) -> None:  # noqa: ANN401 - a table
    with pytest.raises(ValueError, match=rf"^breaker\.{key}: must be"):
        BreakerSettings(**{key: value})


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"base_open_s": 0}, "base_open_s"),
        ({"probes": 0}, "probes"),
        ({"successes": 0}, "successes"),
        ({"flap_trips": 1}, "flap_trips"),
        ({"cap_open_s": 59.0}, "cap_open_s"),
        ({"blast_share": 1.1}, "blast_share"),
    ],
)
def test_bounds(changes: dict[str, Any], key: str) -> None:
    with pytest.raises(ValueError, match=rf"^breaker\.{key}: "):
        BreakerSettings(**changes)


@pytest.mark.parametrize("key", ["escalate_after", "replan_budget", "blast_per_minute", "halt_grace_s"])
def test_what_may_be_switched_off(key: str) -> None:
    assert getattr(BreakerSettings(**{key: 0}), key) == 0
