"""Where the values of a bad result go: into the arguments of later calls, which then succeed on them.

A result is bad when its call failed, when its content says so, or when it has a placeholder where a value
should be. Three sorts of value flow from it: the placeholder itself (under the same name, or inside a path
or a text), its error text used as if it were data, and the ids that it names. What a call made of such a
value brings back is bad, too. A value that a good call brought is clean.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

from detectors.poison import (
    DIGITS,
    HEAD_CHARS,
    ID_KEY,
    KEYS_KEPT,
    LEAST_TEXT,
    LINKS,
    LONG,
    empty_fields,
    has_cue,
    has_inside,
    ids_in,
    is_data,
    is_placeholder,
    leaves,
    text_hash,
)
from detectors.role import Role
from detectors.scope import Recent
from detectors.signature import normal_name
from detectors.spreading import Before, Root, Spread, excerpt
from detectors.tool_role import role_of_name

if TYPE_CHECKING:
    from collector.step import Json, Step
    from detectors.reading import Reading

_GOOD_CHARS: Final = 1024
_SEEN_KEPT: Final = 512
_SOURCES_KEPT: Final = 8
_VALUES_KEPT: Final = 12
_TOOLS_KEPT: Final = 8
_LABEL_CHARS: Final = 40
_LEAST_ID: Final = 5
_SHOWN: Final = 4


@dataclass(slots=True)
class Source:
    """A bad result: what may flow from it, and where it has gone.

    `keys` are names of its empty fields (`*`: all of it is a placeholder), `values` 32-bit hashes of its ids,
    `texts` of its error text's beginning. `derived` are hashes of what calls made of it brought back.
    """

    root: Root
    sort: str
    keys: list[str] = field(default_factory=list)
    values: list[int] = field(default_factory=list)
    texts: list[int] = field(default_factory=list)
    derived: list[int] = field(default_factory=list)
    changes: int = 0
    sure: int = 0
    failures: int = 0
    tools: list[str] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)

    def json(self) -> Json:
        """For a checkpoint."""
        return [
            self.root.json(),
            self.sort,
            list(self.keys),
            list(self.values),
            list(self.texts),
            list(self.derived),
            self.changes,
            self.sure,
            self.failures,
            list(self.tools),
            list(self.shown),
        ]

    @staticmethod
    def load(state: Any) -> Source:  # noqa: ANN401 - JSON that `json` wrote
        """Read what `json` wrote."""
        root, sort, keys, values, texts, derived, changes, sure, failures, tools, shown = state
        lists = (list(keys), list(values), list(texts), list(derived))
        return Source(Root.load(root), sort, *lists, changes, sure, failures, list(tools), list(shown))


@dataclass(frozen=True, slots=True)
class _Use:
    """A tainted argument: its name, a short excerpt, and whether there can be no doubt about it."""

    key: str
    shown: str
    sure: bool


class Taint:
    """The bad results of a session, and where their values have gone."""

    def __init__(self) -> None:
        self._seen = Recent[int, bool](_SEEN_KEPT)
        self._sources: list[Source] = []
        self._has_keys = self._has_texts = self._has_ids = False

    def clear(self) -> None:
        """Forget all bad results."""
        self._sources.clear()
        self._look()

    def _look(self) -> None:
        """Remember what sorts of values there are to look for; looking for one that went costs only time."""
        sources = self._sources
        self._has_keys = any(source.keys for source in sources)
        self._has_texts = any(source.texts for source in sources)
        self._has_ids = any(source.values or source.derived for source in sources)

    def observe(self, reading: Reading, before: Before, threshold: int) -> Spread | None:
        """Take a tool call in; return the flow that it carries on so far as to be worth saying."""
        step = reading.step
        tool = step.tool or ""
        if role_of_name(tool) is None:  # a shell: what it prints and what it is given is code
            return None
        used = self._use_in(reading) if self._sources and step.arguments else None
        spread = None
        if used is not None:
            spread = self._used(reading, *used, threshold)
        elif reading.went_wrong:
            self._bad(reading, before)
        elif step.result:
            self._good(step, step.result, before)
        return spread

    def _good(self, step: Step, result: str, before: Before) -> None:
        """Its values are clean from now on; its empty fields are where a cascade may begin."""
        head = result[:_GOOD_CHARS]
        seen = self._seen
        hashes = [crc32(value.encode()) for value in DIGITS.findall(head)]
        for value in hashes:
            seen.put(value, value=True)
        if self._has_ids:
            good = {*hashes, *ids_in(head)}
            for source in self._sources:
                source.values = [value for value in source.values if value not in good]
        keys = empty_fields(head)
        if keys and not any(one.keys == keys and not one.shown for one in self._sources):
            self._keep(Source(Root.of(step, head, before), "placeholder", keys))

    def _bad(self, reading: Reading, before: Before) -> None:
        """A call that went wrong: its error text and the ids in its fields are no data."""
        step, text = reading.step, reading.error_text[:HEAD_CHARS]
        known = {crc32(value.encode()) for value in DIGITS.findall(str(step.arguments)[:HEAD_CHARS])}
        sort = "soft" if reading.soft is not None else "failed"
        # An error names the file to look at: that is help. An id that it names may be of something half made.
        found = ids_in(text, only_ids=sort == "failed")
        values = [value for value in found if value not in known and value not in self._seen]
        texts = [hashed for hashed in [text_hash(text)] if hashed]
        if values or (texts and sort == "soft"):
            source = Source(Root.of(step, text, before), sort, [], values[:_VALUES_KEPT])
            source.texts = texts if sort == "soft" else []
            # Told again, by whatever it was kept in, it is the same error.
            if not any(one.texts and one.texts == texts for one in self._sources):
                self._keep(source)

    def _keep(self, source: Source) -> None:
        self._sources.append(source)
        self._look()
        if len(self._sources) > _SOURCES_KEPT:
            # What was used already is told of when it goes on; of the others the oldest goes.
            unused = next((at for at, one in enumerate(self._sources) if not one.changes), 0)
            del self._sources[unused]

    def _use_in(self, reading: Reading) -> tuple[Source, _Use] | None:
        """Find a value of a bad result among a call's arguments; the surest one."""
        best: tuple[Source, _Use] | None = None
        for name, value in leaves(reading.step.arguments):
            if not self._may_be_used(value):
                continue
            for source in reversed(self._sources):
                use = use_of(source, name, value, reading)
                if use is not None and (best is None or (use.sure and not best[1].sure)):
                    best = source, use
            if best is not None and best[1].sure:
                break
        return best

    def _may_be_used(self, value: Json) -> bool:
        """A cheap look before every source is asked."""
        if is_placeholder(value):
            return self._has_keys
        text = value if isinstance(value, str) else str(value)
        if self._has_texts and len(text) >= LEAST_TEXT:
            return True
        if self._has_ids and len(text) >= _LEAST_ID:
            return True
        return self._has_keys and len(text) <= LONG and has_cue(text)

    def _used(self, reading: Reading, source: Source, use: _Use, threshold: int) -> Spread | None:
        """A call was made with a bad value."""
        step = reading.step
        tool = step.tool or ""
        if reading.went_wrong:
            source.failures += 1
        elif reading.role in (Role.LOOK, Role.POLL, Role.WAIT, Role.THINK):
            if source.sort == "failed":
                source.values = []  # it is there: an error had named something real
            return None
        else:
            source.changes += 1
            source.sure += use.sure
            for value in ids_in(step.result or "", plain=True):
                if value not in self._seen and len(source.derived) < _VALUES_KEPT:
                    source.derived.append(value)
                    self._has_ids = True
            if source.keys and step.result:
                more = [key for key in empty_fields(step.result[:_GOOD_CHARS]) if key not in source.keys]
                source.keys = [*source.keys, *more][:KEYS_KEPT]
        source.root.add(step)
        if tool not in source.tools:
            source.tools = [*source.tools, tool][-_TOOLS_KEPT:]
        if len(source.shown) < _SHOWN:
            source.shown.append(f"{tool[:30]}.{use.key[:20]}={use.shown[:28]}")
        return _told(source, threshold)

    def json(self) -> Json:
        """For a checkpoint; `restore` reads it."""
        return {"seen": list(self._seen), "sources": [source.json() for source in self._sources]}

    def restore(self, state: Any) -> None:  # noqa: ANN401 - JSON that `json` wrote
        """Take over what `json` wrote."""
        self._seen.clear()
        for value in state["seen"]:
            self._seen.put(value, value=True)
        self._sources = [Source.load(source) for source in state["sources"]]
        self._look()


def _told(source: Source, threshold: int) -> Spread | None:
    """What a flow amounts to: a note when a change was made of it, an alarm when other tools took it on."""
    count, several = source.changes, len(source.tools) > 1
    if source.sort == "failed":
        count = source.failures
        rank = 1 if several and count > threshold else -1
        threshold += 1
    elif several and count >= threshold and source.sure:
        rank = 2 if count >= 2 * threshold and source.sure > threshold else 1
    elif not source.sure:
        # An empty field may be meant; that three tools took it on is not.
        rank = 1 if count > threshold and len(source.tools) > threshold else -1
        threshold += 1
    else:
        rank = 0
    if rank < 0:
        return None
    what = {"placeholder": "an empty value", "soft": "an error that was reported as success"}.get(
        source.sort, "an id that a failed call named"
    )
    shown = ", ".join(source.shown)
    summary = f"{what} in a result of {source.root.first.tool} went into {count} later calls: {shown}"
    told: dict[str, Json] = {
        "poison": source.sort,
        "values": list(source.shown),
        "tools": [tool[:60] for tool in source.tools],
        "changes": source.changes,
        "failures": source.failures,
    }
    resets = ("a good result that has the value", "a user turn")
    return Spread("value_flow", source.root, rank, count, threshold, summary[:400], told, resets)


def use_of(source: Source, name: str, value: Json, reading: Reading) -> _Use | None:
    """Tell whether an argument is a value of a bad result."""
    if is_placeholder(value):
        return _empty_use(source, name, value)
    text = str(value).strip()
    if source.keys and isinstance(value, str) and has_inside(name, text, reading.role):
        return _Use(name, excerpt(text), sure=True)
    if source.texts and isinstance(value, str) and len(text) >= LEAST_TEXT and is_data(name, reading):
        label, colon, rest = text[:_LABEL_CHARS].partition(": ")
        for part in (text, text[len(label) + 2 :]) if colon and rest else (text,):
            hashed = text_hash(part)
            if hashed and hashed in source.texts:
                return _Use(name, excerpt(text), sure=True)
    return _id_use(source, name, text) if source.values or source.derived else None


def _id_use(source: Source, name: str, text: str) -> _Use | None:
    """An argument that is, or has in it, an id of a bad result or of what was made of one."""
    for found in DIGITS.findall(text[:LONG]):
        hashed = crc32(found.encode())
        if hashed in source.derived:
            return _Use(name, excerpt(text), sure=True)
        if hashed in source.values:
            return _Use(name, excerpt(text), sure=False)
    if source.values and crc32(text[:80].encode("utf-8", "surrogatepass")) in source.values:
        return _Use(name, excerpt(text), sure=False)
    return None


def _empty_use(source: Source, name: str, value: Json) -> _Use | None:
    """An argument that is a placeholder: of a source, if that had one under this name."""
    if not source.keys:
        return None
    short = normal_name(name)
    named = short in source.keys or any(len(key) > 1 and short.endswith(key) for key in source.keys)
    if value is None or value == "":
        if named and ID_KEY.search(short) and not LINKS.search(short):
            return _Use(name, "null" if value is None else '""', sure=False)
        return None
    if named or "*" in source.keys:
        return _Use(name, str(value), sure=str(value).lower() not in ("n/a", "none"))
    return None
