"""The peak of this process's resident memory, as Linux counts it."""

from __future__ import annotations

import re
from pathlib import Path


def reset_peak_kib() -> int:
    """Forget the peak so far and return what is resident now, in KiB."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return peak_kib()


def peak_kib() -> int:
    """Return the peak since the last reset, in KiB."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"))
    assert found
    return int(found[1])
