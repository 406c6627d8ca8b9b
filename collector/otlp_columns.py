"""Small vectorized steps between decoded OTLP columns and those of `collector.batch`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from collector.arrow_types import Binaries, Column, Dictionary, Lists, Strings, attribute_maps, column
from collector.otlp_values import Note, texts
from collector.redact import Field

Int64s: TypeAlias = npt.NDArray[np.int64]
Uint64s: TypeAlias = npt.NDArray[np.uint64]
Bools: TypeAlias = npt.NDArray[np.bool_]

_HEX: Final = np.frombuffer("".join(f"{byte:02x}" for byte in range(256)).encode(), dtype=np.uint16)
_MIX_1: Final = np.uint64(0xBF58476D1CE4E5B9)  # the constants of splitmix64
_MIX_2: Final = np.uint64(0x94D049BB133111EB)
_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class Attributes:
    """One map a row: row i has the items `offsets[i]:offsets[i + 1]` of keys and values."""

    offsets: Column
    keys: Dictionary
    values: Strings

    @classmethod
    def of(cls, lists: Lists, note: Note) -> Attributes:
        """Return the maps of a column of `repeated KeyValue`: values as text, duplicate keys in order."""
        items = lists.values
        encoded = items.field("key").dictionary_encode()
        return cls(lists.offsets, encoded, texts(items.field("value"), note))

    def column(self) -> Column:
        """Return them as one map a row."""
        keys = self.keys.dictionary.take(self.keys.indices)
        return attribute_maps(self.offsets, keys, self.values)

    def rows_with(self, test: Callable[[str], bool]) -> Bools:
        """Return which rows have a key that passes the test, which is called once for each distinct key."""
        names = self.keys.dictionary.to_pylist()
        wanted = np.fromiter((test(name) for name in names), np.bool_, len(names))
        flags = wanted[numbers(self.keys.indices)] if names else np.zeros(0, np.bool_)
        return any_of_row(flags, numbers(self.offsets))

    def fields(self, prefix: str) -> dict[str, Field]:
        """Return what of them is to be redacted."""
        return {
            f"{prefix}.keys": Field(self.keys.dictionary),
            f"{prefix}.values": Field(self.values, self.keys),
        }

    def redacted(self, prefix: str, cleaned: Mapping[str, Strings]) -> Attributes:
        """Return them with the texts that came back for `fields(prefix)`."""
        keys = pa.DictionaryArray.from_arrays(self.keys.indices, cleaned[f"{prefix}.keys"])
        return Attributes(self.offsets, keys, cleaned[f"{prefix}.values"])


def rows_of(lists: Lists) -> Int64s:
    """Return for each item of a flattened list column the row that it is in."""
    offsets = numbers(lists.offsets)
    return np.repeat(np.arange(len(lists), dtype=np.int64), np.diff(offsets))


def any_of_row(flags: Bools, offsets: Int64s) -> Bools:
    """Return for each row of a list column whether any of its items is flagged."""
    running = np.concatenate([np.zeros(1, np.int64), np.cumsum(flags, dtype=np.int64)])
    return running[offsets[1:]] > running[offsets[:-1]]


def numbers(values: Column) -> Column:
    """Return a column without nulls as a NumPy array."""
    return values.to_numpy(zero_copy_only=False)


def hex_text(ids: Binaries) -> Strings:
    """Return bytes of any length as lower-case hex; empty stays empty."""
    offsets, data = binary_parts(ids)
    digits = np.take(_HEX, data)
    ends = ((offsets - offsets[0]) * 2).astype(np.int32)
    return pa.StringArray.from_buffers(len(ids), pa.py_buffer(ends.data), pa.py_buffer(digits.data))


def lengths(ids: Binaries) -> Int64s:
    """Return the number of bytes in each row."""
    offsets, _ = binary_parts(ids)
    return np.diff(offsets)


def all_zero(ids: Binaries) -> Bools:
    """Return which rows have no byte other than zero (so also the empty ones)."""
    offsets, data = binary_parts(ids)
    return ~any_of_row(data != 0, offsets - offsets[0])


def binary_parts(ids: Binaries) -> tuple[Int64s, npt.NDArray[np.uint8]]:
    """Return offsets (one more than rows) and the bytes that they span."""
    _, offset_buffer, data_buffer = ids.buffers()
    if len(ids) == 0 or offset_buffer is None:
        return np.zeros(len(ids) + 1, np.int64), np.zeros(0, np.uint8)
    stored = np.frombuffer(offset_buffer, np.int32, count=len(ids) + 1, offset=ids.offset * 4)
    offsets = stored.astype(np.int64)
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.zeros(0, np.uint8)
    return offsets, data[offsets[0] : offsets[-1]]


def mixed(*words: Uint64s) -> Uint64s:
    """Return one well-spread 64-bit number a row from several; the same on every machine and version."""
    state = np.zeros(len(words[0]), np.uint64)
    for word in words:
        state = (state ^ word) + _GOLDEN
        state = (state ^ (state >> np.uint64(30))) * _MIX_1
        state = (state ^ (state >> np.uint64(27))) * _MIX_2
        state ^= state >> np.uint64(31)
    return state


def fixed_words(ids: Binaries, words: int) -> Uint64s:
    """Return ids of `words` times eight bytes as an array of shape (rows, words)."""
    _, data = binary_parts(ids)
    return cast("Uint64s", np.ascontiguousarray(data).view("<u8").reshape(len(ids), words).astype(np.uint64))


def labels(codes: Column, names: tuple[str, ...]) -> Strings:
    """Return the name of each code; a code outside the table counts as code 0."""
    known = numbers(codes)
    known = np.where((known >= 0) & (known < len(names)), known, 0)
    return pa.array(names, pa.string()).take(column(known))


def or_empty(column: Column) -> Strings:
    """Return the column with nulls (fields of an absent message) as empty text."""
    if column.null_count == 0:
        return column
    return pc.fill_null(column, "")


def is_in(names: Strings, test: Callable[[str], bool]) -> Bools:
    """Return which rows pass a test of their text, calling it once for each distinct text."""
    encoded = names.dictionary_encode()
    distinct = encoded.dictionary.to_pylist()
    passed = np.fromiter((test(name) for name in distinct), np.bool_, len(distinct))
    return cast("Bools", passed[numbers(encoded.indices)]) if distinct else np.zeros(len(names), np.bool_)
