"""The detectors by name, and how third parties add theirs.

A package adds a detector with an entry point in the group `recloser.detectors` whose object is a `Kind`:

    [project.entry-points."recloser.detectors"]
    my_detector = "my_package:KIND"
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from detectors.doom_loop import DoomLoop, DoomLoopConfig
from detectors.engine import DetectorFactory

if TYPE_CHECKING:
    from detectors.protocol import Detector

ENTRY_POINTS = "recloser.detectors"


@dataclass(frozen=True, slots=True)
class Kind:
    """A sort of detector: `config` is a dataclass with a default for every field, `make` builds from it.

    A config field `shadow: bool`, where there is one, is honoured by the engine.
    """

    config: type
    make: Callable[[Any], Detector]


BUILT_IN: Mapping[str, Kind] = {
    "doom_loop": Kind(DoomLoopConfig, DoomLoop),
}


def third_party() -> dict[str, Kind]:
    """Load the kinds that installed packages offer; raises TypeError when one offers something else."""
    kinds: dict[str, Kind] = {}
    for point in entry_points(group=ENTRY_POINTS):
        kind = point.load()
        if not isinstance(kind, Kind):
            raise TypeError(
                f"entry point {point.name} = {point.value} must be a detectors.catalog.Kind, not {kind!r}"
            )
        kinds[point.name] = kind
    return kinds


def build(
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    kinds: Mapping[str, Kind] | None = None,
) -> dict[str, DetectorFactory]:
    """Factories for the engine: all kinds, with the settings by name; `enabled = false` leaves one out.

    Raises ValueError naming the key that is unknown or out of range.

    >>> sorted(build()), sorted(build({"doom_loop": {"enabled": False}}))
    (['doom_loop'], [])
    >>> build({"doom_loop": {"errorz": 3}})
    Traceback (most recent call last):
    ValueError: unknown setting detectors.doom_loop.errorz
    """
    settings = settings or {}
    kinds = {**BUILT_IN, **third_party()} if kinds is None else kinds
    for name in settings:
        if name not in kinds:
            raise ValueError(f"unknown detector detectors.{name}; there are {', '.join(sorted(kinds))}")
    factories: dict[str, DetectorFactory] = {}
    for name, kind in kinds.items():
        values = dict(settings.get(name, {}))
        if values.pop("enabled", True):
            factories[name] = _factory(name, kind, values)
    return factories


def _factory(name: str, kind: Kind, values: dict[str, Any]) -> DetectorFactory:
    known = {field.name: field for field in dataclasses.fields(kind.config)}
    for key, value in values.items():
        if key not in known:
            raise ValueError(f"unknown setting detectors.{name}.{key}")
        default = known[key].default
        if isinstance(default, tuple) and isinstance(value, (list, tuple)):
            values[key] = tuple(value)
        elif not _alike(value, default):
            raise ValueError(f"detectors.{name}.{key} must be {type(default).__name__}, not {value!r}")
    try:
        config = kind.config(**values)
    except ValueError as error:
        raise ValueError(f"detectors.{error}") from error
    return DetectorFactory(lambda: kind.make(config), shadow=bool(getattr(config, "shadow", False)))


def _alike(value: object, default: object) -> bool:
    """Tell whether a setting has its default's type; an integer will do for a float."""
    if isinstance(default, float):
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return type(value) is type(default)
