"""What tests share lies in tests/support and is imported by name."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent / "support"))

# The default run searches the same examples every time; HYPOTHESIS_PROFILE=search looks for new ones.
settings.register_profile("fixed", derandomize=True)
settings.register_profile("search", print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))


@pytest.fixture(autouse=True)
def _a_closed_pipe_ends_no_test() -> Iterator[None]:
    """Commands let SIGPIPE end them, as others do; run in this process they leave that behind."""
    yield
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
