"""Children of the supervisor: started afresh (never forked), told what to do on stdin, gone when it goes.

A child gets one line of JSON on its standard input; it answers with one line of JSON on its standard
output when it is ready; its log goes to standard error. The end of its standard input means that the
supervisor is gone, whatever ended it, and the child ends too.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Final

from api.printable import printable

logger = logging.getLogger(__name__)

ORPHAN_GRACE: Final = 5.0  # seconds for an orderly end after the supervisor is gone


def read_options() -> dict[str, object]:
    """In a child: what the supervisor wants, and from now on end with the supervisor."""
    options: dict[str, object] = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_parent, name="parent-watch", daemon=True).start()
    return options


def _end_with_parent() -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    threading.Timer(ORPHAN_GRACE, os._exit, (1,)).start()
    os.kill(os.getpid(), signal.SIGTERM)


def say_ready(**facts: object) -> None:
    """In a child: tell the supervisor that work can begin."""
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


class _OneLine(logging.Formatter):
    """One event is one line, whatever strangers have put into it; only traces of errors have more."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the base class names it so
        """Make the message fit before it is put into the line."""
        record.message = printable(record.message)
        return super().formatMessage(record)


def set_up_logging(process: str, level: str) -> None:
    """One line an event on standard error, the process named."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_OneLine(f"%(asctime)s %(levelname)-7s {process:7s} %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for chatty in ("httpx", "httpcore", "uvicorn.access", "asyncio"):
        logging.getLogger(chatty).setLevel(max(logging.WARNING, logging.getLogger().level))
    # What these say of a store that is away, we say ourselves, once.
    for noisy in ("urllib3", "clickhouse_connect"):
        logging.getLogger(noisy).setLevel(logging.CRITICAL)


FEW_ARENAS: Final = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "2"}
"""Arrow's own allocator, and an arena a thread, keep what was freed: 240 MiB of ingest's 670 under load."""


class Child:
    """One supervised process: `python -P -c "from MODULE import main; main()"`."""

    def __init__(self, name: str, module: str, options: Mapping[str, object], niceness: int = 0) -> None:
        self.name = name
        self.ready = threading.Event()
        self.facts: dict[str, object] = {}
        niced = ["nice", "-n", str(niceness)] if niceness else []
        self.process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            [*niced, sys.executable, "-P", "-c", f"from {module} import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**FEW_ARENAS, **os.environ},
        )
        assert self.process.stdin is not None  # noqa: S101 - asked for above
        try:
            self.process.stdin.write(json.dumps(options) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            logger.warning("%s ended before it was told what to do", name)
        threading.Thread(target=self._listen, name=f"{name}-ready", daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None  # noqa: S101 - asked for above
        for line in self.process.stdout:
            try:
                self.facts = json.loads(line)
            except ValueError:
                sys.stderr.write(line)
                continue
            self.ready.set()

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self.process.poll() is None

    def stop(self, grace: float) -> None:
        """Ask the process to end; after `grace` seconds end it."""
        if self.alive:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(grace)
            except subprocess.TimeoutExpired:
                logger.warning("%s did not end within %.0f s and is killed", self.name, grace)
                self.process.kill()
                self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    continue


def on_hangup(reload: Callable[[], None], end: Callable[[], None]) -> None:
    """Call `reload` on SIGHUP, or `end` when it came because the terminal that we ran in is gone."""
    in_terminal = sys.stdin is not None and sys.stdin.isatty()

    def handle(_number: int, _frame: object) -> None:
        if in_terminal and not _terminal_is_there():
            end()
        else:
            reload()

    signal.signal(signal.SIGHUP, handle)


def _terminal_is_there() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


def on_signals(act: Callable[[], None]) -> None:
    """Call `act` on SIGTERM and SIGINT."""

    def handle(_number: int, _frame: object) -> None:
        act()

    signal.signal(signal.SIGTERM, handle)
    signal.signal(signal.SIGINT, handle)
