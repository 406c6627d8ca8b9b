"""In what a result differs from all that a tool has returned so far."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from detectors.result_shape import FEATURES, Form, Shape

if TYPE_CHECKING:
    from collector.step import Json
    from detectors.result_learner import Learner

_NAMES = (*FEATURES, "known keys")
_WORDS: Final = {
    Form.NOTHING: "nothing",
    Form.OBJECT: "a JSON object",
    Form.LIST: "a JSON list",
    Form.NUMBER: "a number",
    Form.TEXT: "text",
    Form.PAGE: "an HTML page",
    Form.BROKEN: "JSON that cannot be read",
}
_STRUCTURED: Final = frozenset({Form.OBJECT, Form.LIST})
_LOGARITHMS: Final = frozenset({0, 1, 5})
_ORDER: Final = 100  # hundredths
_BEYOND: Final = 70  # hundredths: five times
_KEPT: Final = 4
_NAMED: Final = 8


class Thresholds(NamedTuple):
    """How far a number has to be from its median: in orders of magnitude, and in robust deviations."""

    orders: float
    deviations: float


class Odd(NamedTuple):
    """Why a result is odd: the rule, a few words, what was measured and what it was measured by."""

    rule: str
    words: str
    told: dict[str, Json]


def oddities(shape: Shape, learner: Learner, thresholds: Thresholds) -> list[Odd]:
    """Return in what a result differs from what was learned, the plainest first; most often nothing."""
    normal = learner.normal
    if normal is None:
        return []
    stable = normal.limit is not None
    found = [] if not shape.empty or not stable else _empty(learner)
    if not shape.empty:
        usual = learner.form_is_odd(shape.form)
        if usual is not None and (stable or usual in _STRUCTURED):
            words = f"{_WORDS[shape.form]} where it always was {_WORDS[usual]}"
            found.append(Odd("shape", words, {"form": _WORDS[shape.form], "usual": _WORDS[usual]}))
    if stable or shape.form in _STRUCTURED:
        found += _of_parts(shape, learner, thresholds)
    if not found and normal.limit is not None and not shape.empty and shape.read:
        row = learner.row(shape)
        distance = normal.distance(row)
        if distance > normal.limit:
            at, middle = normal.farthest(row)
            found.append(_outlier(at, row[at], middle, distance, normal.limit))
    return found[:_KEPT]


def _empty(learner: Learner) -> list[Odd]:
    return [Odd("empty", "empty, which it never was", {})] if learner.empty_is_odd() else []


def _of_parts(shape: Shape, learner: Learner, thresholds: Thresholds) -> list[Odd]:
    """What is odd in single parts."""
    found: list[Odd] = []
    gone = learner.missing(shape)
    if gone:
        names = ", ".join(gone[:_NAMED])
        found.append(
            Odd("shape", f"without {names}, which always was there", {"missing_keys": [*gone[:_NAMED]]})
        )
    for part in shape.parts:
        if not part.filled and part.parent is not None and learner.part_is_never_empty(part.name):
            found.append(Odd("empty", f"{part.name} is empty, which it never was", {"key": part.name}))
        told = learner.ranges.get(part.name) if part.magnitude is not None else None
        if told is None or part.magnitude is None:
            continue
        off = abs(part.magnitude - told.median)
        spread = told.above if part.magnitude > told.median else told.below
        if off < max(thresholds.orders * _ORDER, thresholds.deviations * spread):
            continue
        if told.low - _BEYOND <= part.magnitude <= told.high + _BEYOND:
            continue
        found.append(
            Odd(
                "number",
                f"{part.name} is {_number(part.magnitude)}, usually about {_number(told.median)}",
                {
                    "key": part.name,
                    "orders_off": round(off / _ORDER, 1),
                    "usual_from": _number(told.low),
                    "usual_to": _number(told.high),
                },
            )
        )
    return found


def _number(magnitude: int) -> str:
    """A magnitude as a number, roughly.

    >>> _number(200), _number(-131), _number(512)
    ('100', '0.049', '1.32e+05')
    """
    return f"{10 ** (magnitude / _ORDER):.3g}"


def _outlier(at: int, value: int, middle: float, distance: float, limit: float) -> Odd:
    """An outlier, explained by the feature that is farthest off."""
    name = _NAMES[at]
    if at in _LOGARITHMS:
        value, middle = round(2 ** (value / 100)) - 1, 2 ** (middle / 100) - 1
        words = f"{name} {value}, usually about {middle:.0f}"
    else:
        words = f"{name} {value} %, usually about {middle:.0f} %"
    told: dict[str, Json] = {
        "feature": name,
        "value": value,
        "usual": round(middle, 1),
        "distance": round(distance, 1),
        "limit": round(limit, 1),
    }
    return Odd("outlier", f"unlike its other results ({words})", told)
