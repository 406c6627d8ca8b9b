"""AnyValue as text, the way the collector's `Value.AsString` writes it, whole columns at a time.

A string is itself; an int, bool or double as JSON writes it; bytes are base64; an array or kvlist is JSON
with sorted keys; an unset value is the empty string. Where this differs from the Go code: `<`, `>` and `&`
are not escaped (the texts parse to the same value), and NaN and the infinities are `NaN`, `Infinity` and
`-Infinity`, as OTLP/JSON spells them, alone and quoted inside JSON.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.message import DecodeError

from collector.arrow_types import Column, Message, Strings, Structs
from collector.otlp_descriptor import message_class

MAX_DEPTH: Final = 32
"""How many arrays and kvlists may sit inside each other; what is deeper becomes `TOO_DEEP`."""

TOO_DEEP: Final = "[nested too deep]"
MALFORMED: Final = "[malformed value]"

Note = Callable[[str, int], None]
"""Told a reason and a count whenever something was repaired rather than refused."""

_GO_FIXED_BELOW: Final = 1e21  # above it, and below 1e-6, Go's encoding/json writes an exponent
_GO_FIXED_FROM: Final = 1e-6


def texts(values: Structs, note: Note) -> Strings:
    """Return one text a row for a column of AnyValue structs; no row is null."""
    string, boolean, integer, double, array, kvlist, raw = values.flatten()
    if string.null_count == 0:
        return string
    arms: list[Any] = [string]
    if integer.null_count < len(integer):
        arms.append(pc.cast(integer, pa.string()))
    if boolean.null_count < len(boolean):
        arms.append(pc.cast(boolean, pa.string()))
    arms.extend(
        _mapped(arm, text, note)
        for arm, text in (
            (double, _double_text),
            (array, _array_text),
            (kvlist, _kvlist_text),
            (raw, _bytes_text),
        )
        if arm.null_count < len(arm)
    )
    return pc.coalesce(*arms, pa.scalar("", pa.string()))


def double_text(number: float) -> str:
    """Return the number as Go's encoding/json writes it: `1`, `0.1`, `1e+21`, `-0`; NaN as OTLP/JSON does."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    if number == 0 or _GO_FIXED_FROM <= abs(number) < _GO_FIXED_BELOW:
        fixed = format(Decimal(repr(number)), "f")
        return fixed.removesuffix(".0")
    mantissa, _, exponent = repr(number).partition("e")
    if not exponent:
        mantissa, _, exponent = format(Decimal(mantissa).normalize(), "e").partition("e")
    return f"{mantissa.removesuffix('.0')}e{exponent[0]}{exponent[1:].lstrip('0')}"


def _mapped(arm: Column, text: Callable[[Any, Note], str], note: Note) -> Column:
    # The few distinct values are worded once: finish reasons and the like repeat on every span.
    encoded = arm.dictionary_encode()
    words = pa.array([text(value, note) for value in encoded.dictionary.to_pylist()], pa.string())
    return words.take(encoded.indices)


def _double_text(value: float, _note: Note) -> str:
    return double_text(value)


def _bytes_text(value: bytes, _note: Note) -> str:
    return base64.b64encode(value).decode("ascii")


def _array_text(value: bytes, note: Note) -> str:
    return _json_text(lambda: _array(value, 1, note), note)


def _kvlist_text(value: bytes, note: Note) -> str:
    return _json_text(lambda: _kvlist(value, 1, note), note)


def _json_text(build: Callable[[], object], note: Note) -> str:
    try:
        return orjson.dumps(build(), option=orjson.OPT_SORT_KEYS).decode()
    except DecodeError:
        note("malformed_value", 1)
        return MALFORMED


def _array(value: bytes, depth: int, note: Note) -> object:
    if depth > MAX_DEPTH:
        note("too_deep", 1)
        return TOO_DEEP
    parsed = message_class("ArrayValue").FromString(value)
    return [_plain(item, depth, note) for item in parsed.values]


def _kvlist(value: bytes, depth: int, note: Note) -> object:
    if depth > MAX_DEPTH:
        note("too_deep", 1)
        return TOO_DEEP
    parsed = message_class("KeyValueList").FromString(value)
    return {pair.key: _plain(pair.value, depth, note) for pair in parsed.values}


def _plain(value: Message, depth: int, note: Note) -> object:
    arm = value.WhichOneof("value")
    if arm is None:
        return None
    content = getattr(value, arm)
    if arm == "array_value":
        return _array(content, depth + 1, note)
    if arm == "kvlist_value":
        return _kvlist(content, depth + 1, note)
    if arm == "bytes_value":
        return base64.b64encode(content).decode("ascii")
    if arm == "double_value":
        return _json_number(content)
    return content


def _json_number(number: float) -> float | int | str:
    if not math.isfinite(number):
        return double_text(number)
    # Go writes 1, not 1.0; beyond 2^53 the two would differ in digits, so the float stays.
    if number.is_integer() and abs(number) < 2**53 and not (number == 0 and math.copysign(1, number) < 0):
        return int(number)
    return number
