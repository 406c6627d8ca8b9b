"""A batch as bytes and back: Arrow IPC with zstd, the form in which the spool keeps it."""

from __future__ import annotations

from typing import Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from collector.batch import Batch, Signal

_IDENTITY: Final = "recloser.identity"
_AGENT: Final = "recloser.agent"
_SIGNAL: Final = b"recloser.signal"
_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", compression_level=1))


def _agent_flags(batch: Batch) -> npt.NDArray[np.bool_]:
    flags = np.zeros(batch.columns.num_rows, dtype=np.bool_)
    flags[batch.agent_rows.to_numpy()] = True
    return flags


def encode(batch: Batch) -> bytes:
    """Bytes of a batch; `decode` gives an equal one back."""
    columns = batch.columns.append_column(_IDENTITY, batch.identity)
    columns = columns.append_column(_AGENT, pa.array(_agent_flags(batch), pa.bool_()))
    columns = columns.replace_schema_metadata({_SIGNAL: batch.signal.value.encode()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, columns.schema, options=_OPTIONS) as writer:
        writer.write_batch(columns)
    return sink.getvalue().to_pybytes()


def decode(payload: bytes) -> Batch:
    """The batch that `encode` wrote. Raises `pyarrow.ArrowInvalid` for bytes that it did not write."""
    with pa.ipc.open_stream(payload) as reader:
        columns = reader.read_next_batch()
    signal = Signal((columns.schema.metadata or {})[_SIGNAL].decode())
    agent = pa.array(columns.column(_AGENT).to_numpy(zero_copy_only=False).nonzero()[0], pa.uint32())
    data = columns.select([n for n in columns.schema.names if n not in {_IDENTITY, _AGENT}])
    identity = cast("pa.UInt64Array", columns.column(_IDENTITY))
    return Batch(signal, data.replace_schema_metadata(None), identity, agent)


def keep(batch: Batch, rows: pa.BooleanArray) -> Batch:
    """The rows of `batch` where `rows` is true, everything else in step."""
    kept = _agent_flags(batch)[rows.to_numpy(zero_copy_only=False)]
    return Batch(
        batch.signal,
        batch.columns.filter(rows),
        batch.identity.filter(rows),
        pa.array(kept.nonzero()[0], pa.uint32()),
    )
