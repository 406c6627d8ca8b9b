"""Names for columns, to read code by.

They are `Any` to the type checker: pyarrow's stubs type an array by its values, and lose the type at every
field of a struct and every compute function, so that each line would need a cast that checks nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy.typing as npt
import pyarrow as pa

from collector.batch import ATTRIBUTES

Column: TypeAlias = Any
"""An Arrow array of whatever type its field has."""

Strings: TypeAlias = Any
"""A pa.StringArray."""

Binaries: TypeAlias = Any
"""A pa.BinaryArray."""

Dictionary: TypeAlias = Any
"""A pa.DictionaryArray of strings: distinct texts, and for each row the place of its own."""

Lists: TypeAlias = Any
"""A pa.ListArray."""

Structs: TypeAlias = Any
"""A pa.StructArray."""

Json: TypeAlias = Any
"""What a JSON text holds."""

Message: TypeAlias = Any
"""A protobuf message of a class that is built at run time."""


def column(values: Sequence[Any] | npt.NDArray[Any], kind: pa.DataType | None = None) -> Column:
    """Return an Arrow array of these values."""
    return pa.array(values, kind)


def attribute_maps(offsets: Column, keys: Strings, values: Strings) -> Column:
    """Return a column of maps as `collector.batch.ATTRIBUTES` has it."""
    from_arrays: Any = pa.MapArray.from_arrays  # the stubs know no `type` beside keys and items
    return from_arrays(offsets, keys, values, type=ATTRIBUTES)
