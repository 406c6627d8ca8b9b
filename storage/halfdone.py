"""Settles what a crash of the store process left half done, before the engine opens its folder.

An INSERT puts a part of a table in place and notes its token in the table's deduplication log, in one order
or the other depending on the engine's version (ClickHouse `MergeTreeSink`, `MergeTreeDeduplicationLog`). A
kill -9 between the two leaves one without the other. Nobody was told that such a batch is stored, so it will
be sent again with its token, and

* a part without a token would then be there twice: it is moved to the table's `detached` folder;
* a token without a part would then keep the batch out for good: its line is taken out of the log.

A line that was cut off is taken out too: the engine would append to it, and read nothing behind it.

A part may be without its token only after the end of a process, when the files are as it left them. After a
power cut the log, which is not synced, may lack lines of parts that were acknowledged, and no part is moved.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_PART: Final = re.compile(r"([0-9a-z]+)_(\d+)_(\d+)_(\d+)(_\d+)?")
_LOG: Final = re.compile(r"deduplication_log_(\d+)\.txt")
_ADDED: Final = re.compile(r"1\t([0-9a-z]+)_(\d+)_\d+_\d+\t.+")
_UNDER_WAY: Final = 256  # far more than inserts can be at once, far fewer than the tokens that a log keeps
_UNDER_WAY_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Settled:
    """What was done: where parts without a token are now, and the log lines of tokens without a part."""

    detached: tuple[Path, ...] = ()
    forgotten: tuple[str, ...] = ()


class _Block(NamedTuple):
    partition: str
    number: int


@dataclass(frozen=True, slots=True)
class _Part:
    folder: Path
    partition: str
    first: int
    last: int
    fresh: bool

    def covers(self, block: _Block) -> bool:
        return self.partition == block.partition and self.first <= block.number <= self.last


@dataclass(frozen=True, slots=True)
class _Line:
    log: Path
    text: str
    block: _Block


def settle(data_dir: Path, engine_dir: Path) -> Settled:
    """Settle all tables. Call it with the folder locked and the engine not running.

    Notes the present boot of the machine in `data_dir`, to know the next time whether there was a power cut.
    """
    noted = data_dir / "boot_id"
    boot = _BOOT_ID.read_text() if _BOOT_ID.exists() else ""
    same_boot = bool(boot) and noted.exists() and noted.read_text() == boot
    detached: list[Path] = []
    forgotten: list[str] = []
    for logs in sorted(engine_dir.glob("store/*/*/deduplication_logs")):
        table, files = logs.parent, sorted(logs.iterdir(), key=_log_number)
        for file in files:
            _cut_to_whole_lines(file)
        parts, lines = list(_parts(table)), [line for file in files for line in _added(file)]
        forgotten.extend(_forget(table, parts, lines))
        if same_boot and files:
            detached.extend(_detach(table, parts, lines, files))
    noted.write_text(boot)
    return Settled(tuple(detached), tuple(forgotten))


def _forget(table: Path, parts: Sequence[_Part], lines: Sequence[_Line]) -> list[str]:
    gone = [line for line in lines[-_UNDER_WAY:] if not any(part.covers(line.block) for part in parts)]
    for log in {line.log for line in gone}:
        texts = {line.text for line in gone if line.log == log}
        kept = [text for text in log.read_text().splitlines(keepends=True) if text.rstrip("\n") not in texts]
        # Beside the folder of logs: the engine would take it for one.
        fresh = table / "tmp_deduplication_log"
        fresh.write_text("".join(kept))
        fresh.replace(log)
    return [line.text for line in gone]


def _detach(table: Path, parts: Sequence[_Part], lines: Sequence[_Line], files: Sequence[Path]) -> list[Path]:
    known = {line.block for line in lines}
    tail = [line.block.number for line in lines[-_UNDER_WAY:]]
    whole = _log_number(files[0]) == 1 and len(lines) < _UNDER_WAY
    if not whole and not tail:
        return []
    oldest = -1 if whole else min(tail)
    since = files[-1].stat().st_mtime - _UNDER_WAY_S
    detached = []
    for part in parts:
        unknown = part.fresh and _Block(part.partition, part.first) not in known
        if unknown and part.first > oldest and part.folder.stat().st_mtime >= since:
            place = table / "detached" / f"unacknowledged_{part.folder.name}"
            place.parent.mkdir(exist_ok=True)
            detached.append(part.folder.rename(place))
    return detached


def _cut_to_whole_lines(log: Path) -> None:
    data = log.read_bytes()
    if data and not data.endswith(b"\n"):
        with log.open("r+b") as file:
            file.truncate(data.rfind(b"\n") + 1)


def _parts(table: Path) -> Iterator[_Part]:
    for folder in sorted(table.iterdir()):
        told = _PART.fullmatch(folder.name)
        if told:
            first, last = int(told[2]), int(told[3])
            # Rows that the engine has folded together while inserting make a part of level 1.
            fresh = first == last and told[4] in "01" and told[5] is None
            yield _Part(folder, told[1], first, last, fresh)


def _added(log: Path) -> Iterator[_Line]:
    for text in log.read_text().splitlines():
        told = _ADDED.fullmatch(text)
        if told:
            yield _Line(log, text, _Block(told[1], int(told[2])))


def _log_number(log: Path) -> int:
    told = _LOG.fullmatch(log.name)
    return int(told[1]) if told else 0
