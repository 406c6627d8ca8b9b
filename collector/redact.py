"""Redaction before anything is written: secrets out, identity of what they were kept.

A secret becomes `[REDACTED:<kind>:<8 hex digits of its SHA-256>]`: equal secrets stay equal, different ones
stay different, and redacting again changes nothing. All texts of a request are searched by one RE2 pattern
in one call; Python looks only at rows that it finds.

In hash-only mode whatever agents and people wrote becomes a hash as well, see `collector.redact_hash`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from collector.arrow_types import Column, Dictionary, Strings, attribute_maps
from collector.redact_hash import hashed, is_content_key
from collector.redact_patterns import candidates
from collector.redact_text import TextRedactor

_IDS: Final = frozenset(
    {"TraceId", "SpanId", "ParentSpanId", "SpanKind", "StatusCode", "Links.TraceId", "Links.SpanId"}
)
_SHORT: Final = 64  # characters of a name that is worth remembering
_SENTENCES: Final = frozenset({"StatusMessage", "Body"})


@dataclass(frozen=True, slots=True)
class RedactionSettings:
    """What to take out beyond secrets of common shapes, which always go.

    `extra_keys`: names (any case) whose whole value is secret, of attributes and inside texts.
    `extra_patterns`: regular expressions in the common subset of RE2 and Python; their matches are secret.
    `hash_only`: keep no content of messages, arguments and results, only hashes.
    """

    extra_keys: tuple[str, ...] = ()
    extra_patterns: tuple[str, ...] = ()
    hash_only: bool = False


@dataclass(frozen=True, slots=True)
class Field:
    """A column of texts to redact. With `keys` each text is the value of an attribute of that name.

    `sentence` marks status messages and log bodies, which hash-only mode hashes.
    """

    texts: Strings
    keys: Dictionary | None = None
    sentence: bool = False


class Redactor:
    """Takes secrets out of texts and columns; immutable, thread-safe. ValueError on a bad pattern."""

    def __init__(self, settings: RedactionSettings) -> None:
        self._text = TextRedactor(settings.extra_keys, settings.extra_patterns)
        self._hash_only = settings.hash_only
        self._short_name = lru_cache(maxsize=4096)(self._text.redacted)
        self._candidates = candidates(settings.extra_keys, settings.extra_patterns)
        try:
            pc.match_substring_regex(pa.array([""]), self._candidates)
        except pa.ArrowInvalid as error:
            raise ValueError(f"redaction pattern: {error}") from error

    def text(self, text: str) -> str:
        """Return the text with its secrets replaced."""
        return self._text.redacted(text)

    def value(self, key: str, text: str) -> str:
        """Return the value of an attribute of this name, redacted."""
        if self._text.is_secret(key):
            return self._text.secret_value(key, text)
        if self._hash_only and is_content_key(key):
            return hashed(text, self._name)
        return self.text(text)

    def _name(self, name: str) -> str:
        """Return a name inside JSON without secrets; names repeat, so short ones are remembered."""
        return self._short_name(name) if len(name) <= _SHORT else self._text.redacted(name)

    def fields(self, fields: Mapping[str, Field]) -> dict[str, Strings]:
        """Return each field's texts redacted, under its name."""
        named = [self._by_name(field) for field in fields.values()]
        cleaned = self._searched(named)
        return dict(zip(fields, cleaned, strict=True))

    def columns(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows of `collector.batch.SPAN_SCHEMA` or `LOG_SCHEMA` with every text redacted."""
        cleaned = [self._column(name, batch.column(name)) for name in batch.schema.names]
        return pa.RecordBatch.from_arrays(cleaned, schema=batch.schema)

    def _column(self, name: str, column: Column) -> Column:
        if name in _IDS:
            return column
        if pa.types.is_string(column.type):
            return self.fields({name: Field(column, sentence=name in _SENTENCES)})[name]
        if pa.types.is_map(column.type):
            return self._maps(column)
        if pa.types.is_list(column.type) and not pa.types.is_timestamp(column.type.value_type):
            return pa.ListArray.from_arrays(
                column.offsets, self._column(name, column.values), type=column.type
            )
        return column

    def _maps(self, maps: Column) -> Column:
        encoded = maps.keys.dictionary_encode()
        cleaned = self.fields({"names": Field(encoded.dictionary), "values": Field(maps.items, encoded)})
        keys = cleaned["names"].take(encoded.indices)
        return attribute_maps(maps.offsets, keys, cleaned["values"])

    def _by_name(self, field: Field) -> Strings:
        """Replace what a name alone condemns: secret attributes, and content in hash-only mode."""
        if field.keys is None:
            if not (self._hash_only and field.sentence):
                return field.texts
            return pa.array([hashed(text, self._name) for text in field.texts.to_pylist()], pa.string())
        names = field.keys.dictionary.to_pylist()
        chosen = np.fromiter((self._is_chosen(name) for name in names), np.bool_, len(names))
        if not chosen.any():
            return field.texts
        indices = field.keys.indices.to_numpy(zero_copy_only=False)
        rows = np.flatnonzero(chosen[indices])
        texts = field.texts.take(pa.array(rows)).to_pylist()
        cleaned = [
            self.value(names[index], text) for index, text in zip(indices[rows].tolist(), texts, strict=True)
        ]
        return _put(field.texts, rows, cleaned)

    def _is_chosen(self, key: str) -> bool:
        return self._text.is_secret(key) or (self._hash_only and is_content_key(key))

    def _searched(self, columns: list[Strings]) -> list[Strings]:
        # Arrow compiles the pattern for each call, which costs as much as searching 100 spans: so one call.
        together = pa.concat_arrays(columns)
        found = pc.match_substring_regex(together, self._candidates)
        if not pc.any(found).as_py():
            return columns
        hits = np.flatnonzero(found.to_numpy(zero_copy_only=False))
        bounds = np.cumsum([0, *(len(column) for column in columns)])
        places = np.searchsorted(hits, bounds)
        return [
            self._replaced(column, hits[places[turn] : places[turn + 1]] - bounds[turn])
            for turn, column in enumerate(columns)
        ]

    def _replaced(self, texts: Strings, rows: npt.NDArray[np.int64]) -> Strings:
        if not len(rows):
            return texts
        return _put(texts, rows, [self.text(text) for text in texts.take(pa.array(rows)).to_pylist()])


def _put(texts: Strings, rows: npt.NDArray[np.int64], replacements: list[str]) -> Strings:
    mask = np.zeros(len(texts), np.bool_)
    mask[rows] = True
    return pc.replace_with_mask(texts, pa.array(mask), pa.array(replacements, pa.string()))
