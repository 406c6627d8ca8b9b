"""The detectors by name, and how third parties add theirs.

A package adds a detector with an entry point in the group `recloser.detectors` whose object is a `Kind`:

    [project.entry-points."recloser.detectors"]
    my_detector = "my_package:KIND"
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from detectors.doom_loop import DoomLoop, DoomLoopConfig
from detectors.engine import DetectorFactory

if TYPE_CHECKING:
    from detectors.protocol import Detector

ENTRY_POINTS = "recloser.detectors"
_TRUTH = {
    "true": True,
    "1": True,
    "yes": True,
    "on": True,
    "false": False,
    "0": False,
    "no": False,
    "off": False,
}


@dataclass(frozen=True, slots=True)
class Kind:
    """A sort of detector: `config` is a dataclass with a default for every field, `make` builds from it.

    `finds` are the kinds of findings that it may say, by which policies choose. A config field
    `shadow: bool`, where there is one, is honoured by the engine.
    """

    config: type
    make: Callable[[Any], Detector]
    finds: tuple[str, ...]


BUILT_IN: Mapping[str, Kind] = {
    "doom_loop": Kind(DoomLoopConfig, DoomLoop, finds=("doom_loop",)),
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


def unknown_findings(wanted: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return which of the `wanted` kinds of findings no detector can say, and all that can be said, sorted.

    Packages of third parties are only loaded when a built-in detector does not say one of them.
    """
    known = {kind for detector in BUILT_IN.values() for kind in detector.finds}
    wanted = set(wanted)
    if not wanted <= known:
        known |= {kind for detector in third_party().values() for kind in detector.finds}
    return sorted(wanted - known), sorted(known)


def build(
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    kinds: Mapping[str, Kind] | None = None,
) -> dict[str, DetectorFactory]:
    """Factories for the engine: all kinds, with the settings by name; `enabled = false` leaves one out.

    A text that spells a value of the setting's type is taken for it: environment variables know no other, and
    lists in them are parted by commas. Raises ValueError naming the key that is unknown or out of range.

    >>> "doom_loop" in build(), "doom_loop" in build({"doom_loop": {"enabled": "false"}})
    (True, False)
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
        if _setting(f"detectors.{name}.enabled", values.pop("enabled", True), default=True):
            factories[name] = _factory(name, kind, values)
    return factories


def _factory(name: str, kind: Kind, values: dict[str, Any]) -> DetectorFactory:
    known = {field.name: field for field in dataclasses.fields(kind.config)}
    for key, value in values.items():
        if key not in known:
            raise ValueError(f"unknown setting detectors.{name}.{key}")
        values[key] = _setting(f"detectors.{name}.{key}", value, known[key].default)
    try:
        config = kind.config(**values)
    except ValueError as error:
        raise ValueError(f"detectors.{error}") from error
    return DetectorFactory(lambda: kind.make(config), shadow=bool(getattr(config, "shadow", False)))


def _setting(key: str, given: object, default: object) -> object:
    """Return a setting as a value of its default's type. Raises ValueError naming the key."""
    value = _spelled(given, default) if isinstance(given, str) else given
    if isinstance(default, tuple) and isinstance(value, (list, tuple)):
        return tuple(value)
    if not _alike(value, default):
        raise ValueError(f"{key} must be {type(default).__name__}, not {given!r}")
    return value


def _spelled(text: str, default: object) -> object:
    """Read a text as a value of the default's type; the text itself when it spells none."""
    match default:
        case bool():
            return _TRUTH.get(text.strip().lower(), text)
        case int() | float():
            try:
                return type(default)(text)
            except ValueError:
                return text
        case tuple():
            return [part for part in map(str.strip, text.split(",")) if part]
    return text


def _alike(value: object, default: object) -> bool:
    """Tell whether a setting has its default's type; an integer will do for a float."""
    if isinstance(default, float):
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return type(value) is type(default)
