"""Bodies in pieces: every member and frame is read, however they are cut, and their number is bounded."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from collector.consumer import Rejected
from collector.receivers.compression import decompressed

MIB = 1024 * 1024
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "zstd": zstandard.ZstdCompressor().compress,
}
NOISE = zlib.compress(bytes(range(256)), 0) * 1000  # larger than what is handed over at once, and stays so


@pytest.mark.parametrize("encoding", COMPRESS)
@given(parts=st.lists(st.sampled_from([b"", b"x", b"0" * MIB, NOISE]), min_size=1, max_size=6))
def test_all_parts_come_out(encoding: str, parts: list[bytes]) -> None:
    body = b"".join(map(COMPRESS[encoding], parts))
    assert decompressed(encoding, body, 64 * MIB) == b"".join(parts)


@pytest.mark.parametrize("encoding", COMPRESS)
@pytest.mark.parametrize("cut", [1, 5, 70_000])
def test_a_part_that_was_cut_short_is_refused(encoding: str, cut: int) -> None:
    body = COMPRESS[encoding](b"first") + COMPRESS[encoding](NOISE)
    with pytest.raises(Rejected):
        decompressed(encoding, body[:-cut], 64 * MIB)


@pytest.mark.parametrize("cut", [1, 4])
def test_deflate_that_was_cut_short_is_refused(cut: int) -> None:
    with pytest.raises(Rejected):
        decompressed("deflate", zlib.compress(NOISE)[:-cut], 64 * MIB)


@pytest.mark.parametrize("encoding", COMPRESS)
def test_nobody_makes_the_receiver_open_parts_without_end(encoding: str) -> None:
    with pytest.raises(Rejected, match="more than"):
        decompressed(encoding, COMPRESS[encoding](b"") * 20_000, 64 * MIB)


def test_zeros_behind_a_member_are_padding() -> None:
    body = gzip.compress(b"a") + bytes(MIB) + gzip.compress(b"b") + bytes(3)
    assert decompressed("gzip", body, 64 * MIB) == b"ab"
