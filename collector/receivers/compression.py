"""Request bodies out of their content encoding, in steps, so that a bomb is seen before it has grown."""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import zstandard

from collector.consumer import Rejected, TooLarge

_STEP: Final = 1024 * 1024
_FEED: Final = 64 * 1024  # bytes handed over at once; what a member leaves of them is copied
_MAX_MEMBERS: Final = 10_000  # senders make one; each costs a copy of what is left of its feed
_GZIP: Final = 16 + zlib.MAX_WBITS
_ZEROS: Final = re.compile(rb"\x00+")
_MAX_WINDOW: Final = 128 * 1024 * 1024  # zstd --long=27, the most that its own tool takes without asking


def decompressed(encoding: str, body: bytes, limit: int) -> bytes:
    """Return the body in full. `encoding` is a key of `ENCODINGS`.

    Raises TooLarge as soon as more than `limit` bytes have come out, Rejected when the body is damaged, cut
    short, or followed by something else.
    """
    try:
        return b"".join(_bounded(ENCODINGS[encoding](body, limit), limit))
    except (zlib.error, zstandard.ZstdError) as error:
        raise Rejected(f"the body is no valid {encoding}: {error}") from error


def _bounded(steps: Iterable[bytes], limit: int) -> list[bytes]:
    kept: list[bytes] = []
    size = 0
    for step in steps:
        size += len(step)
        if size > limit:
            raise _too_large(limit)
        kept.append(step)
    return kept


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"the request is over {limit} bytes after decompression")


def _identity(body: bytes, _limit: int) -> Iterator[bytes]:
    yield body


def _gzip(body: bytes, _limit: int) -> Iterator[bytes]:
    """Yield what all members of a gzip file hold."""
    at = 0
    for _ in range(_MAX_MEMBERS):
        member = zlib.decompressobj(_GZIP)
        while not member.eof:
            if at >= len(body):
                raise zlib.error("the data ends too early")
            fed = body[at : at + _FEED]
            at += len(fed)
            yield from _inflated(member, fed)
        at -= len(member.unused_data)
        at = _after_padding(body, at)
        if at == len(body):
            return
    raise zlib.error(f"more than {_MAX_MEMBERS} members")


def _after_padding(body: bytes, at: int) -> int:
    """Where the zeros behind a member end; readers of RFC 1952 skip them."""
    zeros = _ZEROS.match(body, at)
    return zeros.end() if zeros else at


def _deflate(body: bytes, _limit: int) -> Iterator[bytes]:
    """Yield zlib data, or the raw deflate that some clients send under that name."""
    with_header = len(body) > 1 and body[0] & 0x0F == zlib.DEFLATED and (body[0] << 8 | body[1]) % 31 == 0
    stream = zlib.decompressobj(zlib.MAX_WBITS if with_header else -zlib.MAX_WBITS)
    yield from _inflated(stream, body)
    if not stream.eof:
        raise zlib.error("the data ends too early")
    if stream.unused_data:
        raise zlib.error("data after the end")


def _inflated(stream: zlib._Decompress, data: bytes) -> Iterator[bytes]:
    """Yield what comes out of `data`, up to the end of the stream or of the data."""
    while True:
        step = stream.decompress(data, _STEP)
        data = stream.unconsumed_tail
        yield step
        if stream.eof or not (data or step):
            return


def _zstd(body: bytes, limit: int) -> Iterator[bytes]:
    """Yield what all frames hold."""
    # The reader bounds its output, but takes a frame that was cut short for its end; the other object sees
    # that, but bounds nothing. So the reader measures first and keeps nothing.
    decompressor = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW)
    reader = decompressor.stream_reader(io.BytesIO(body), read_across_frames=True)
    size = 0
    while step := reader.read(_STEP):
        size += len(step)
        if size > limit:
            raise _too_large(limit)
    at = 0
    for _ in range(_MAX_MEMBERS):
        frame = decompressor.decompressobj()
        while not frame.eof:
            if at >= len(body):
                raise zstandard.ZstdError("the data ends too early")
            fed = body[at : at + _FEED]
            at += len(fed)
            yield frame.decompress(fed)
        at -= len(frame.unused_data)
        if at == len(body):
            return
    raise zstandard.ZstdError(f"more than {_MAX_MEMBERS} frames")


ENCODINGS: Final[Mapping[str, Callable[[bytes, int], Iterator[bytes]]]] = {
    "identity": _identity,
    "": _identity,
    "gzip": _gzip,
    "x-gzip": _gzip,
    "deflate": _deflate,
    "zstd": _zstd,
}
"""The content encodings that are understood."""
