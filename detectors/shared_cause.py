"""Failures of several tools or agents that have one cause.

A cause is known by what errors name (a tool or agent that failed before, a host), by their text without the
tool's name and the arguments' values, or by their class where that is about what all tools stand on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from detectors.error_family import family_of
from detectors.errors import ErrorClass, Nature
from detectors.operation import parts_of
from detectors.role import Role, words
from detectors.scope import Recent
from detectors.spreading import Before, Root, Spread, excerpt
from detectors.tool_role import role_of_name

if TYPE_CHECKING:
    from collector.step import Json, Step
    from detectors.reading import Reading

_CAUSES_KEPT: Final = 24
_MEMBERS_KEPT: Final = 24
_OPEN_KEPT: Final = 16
_THINGS_KEPT: Final = 4
_TEXT_CHARS: Final = 600
_LEAST_TEXT: Final = 8
_LEAST_LITERAL: Final = 20
_LEAST_NAME: Final = 4
_LEAST_CLAUSE: Final = 10
_CLAUSES: Final = 3
_ROOT_NS: Final = 300 * 10**9
_ATTEMPTS: Final = 3
_SEPARATOR: Final = "\x1f"

# What all tools stand on. Errors of these classes over many tools are one cause, whatever their words.
_BENEATH = frozenset(
    {
        ErrorClass.AUTH,
        ErrorClass.NETWORK,
        ErrorClass.UNAVAILABLE,
        ErrorClass.RESOURCE_EXHAUSTED,
        ErrorClass.ENVIRONMENT,
    }
)
_REACH = frozenset({ErrorClass.NETWORK, ErrorClass.UNAVAILABLE, ErrorClass.TIMEOUT})
_OUTER = _BENEATH | {ErrorClass.TIMEOUT, ErrorClass.RATE_LIMIT, ErrorClass.TOOL_BUG, ErrorClass.UNKNOWN}
# Their values are what they are about: only the very same text is the same cause.
_LITERAL = frozenset({ErrorClass.NOT_FOUND, ErrorClass.PERMISSION, ErrorClass.UNKNOWN})
# What a server's tools fail with when it is the server that does not work.
_SERVES = _REACH | {ErrorClass.AUTH, ErrorClass.ENVIRONMENT, ErrorClass.RESOURCE_EXHAUSTED}
# Causes that one agent's calls can have in common, and how many tools more that takes.
_ALONE = {"host": 0, "text": 0, "server": 0, "words": 1, "clause": 1, "class": 1}
_OWN = frozenset({ErrorClass.APPLICATION, ErrorClass.AMBIGUOUS})

_HOST = re.compile(
    r"""(?x)(?:https?|wss?|postgres(?:ql)?|mysql|redis|amqp|mongodb)://(?:[^\s/@]*@)?(?P<url>[\w.-]+(?::\d+)?)
      | \b(?P<port>(?:[a-z][\w-]*\.)*[a-z][\w-]*:\d{2,5})\b
      | \b(?P<ip>\d{1,3}(?:\.\d{1,3}){3}(?::\d{2,5})?)\b
      | \b(?:host|server|upstream|database|broker|cluster|service|backend)\b[\s:='"`(]{1,3}
        (?P<named>[a-z][\w.-]*\w)
    """,
    re.IGNORECASE,
)
_TOO_MUCH = re.compile(r"(?i)too (?:much|large|long|big)\b|truncated")
_COUNTS = re.compile(r"(?<!port )\b\d{1,4} (?:tests? )?(?:failed|passed|failures?|passing|failing)\b")
_CLAUSE = re.compile(r"[:;,*()\n]| - ")
_PREFIX = re.compile(r"(?:mcp__)?(.{1,60}?)(?:__|[./:])[\w-]+")
_THING = re.compile(r"(?=.*[_./\d-])(?=.*[A-Za-z])[\w./:-]{5,60}")
_SOURCE = re.compile(
    r"\.(?:py|pyx|js|jsx|ts|tsx|go|rs|c|cc|cpp|h|java|rb|php|sh|sql|html?|css|json|ya?ml|md|txt):"
)
_NO_NAMES = words(
    """
    is are was were has not at on in to for from with the error errors name named returned responded failed
    failure unavailable connection terminated closed process side version does did or and may might could
    timeout timed temporarily down database server host broker service backend cluster upstream
    """
)
_ABOUT_SERVERS = re.compile(
    r"(?i)spawn|server|daemon|connect|gateway|database|\bdb\b|\bmcp\b|crash|credential|quota|disk"
)
_CUED = (
    r"(?:upstream|dependenc\w+|depends on|stage|step|task|agent|tool|from|input|parent|by|of)[\s:'\"`]{1,3}"
)


@dataclass(frozen=True, slots=True)
class Limits:
    """When failures are a cascade; see `detectors.cascade.CascadeConfig`."""

    tools: int
    agents: int
    window_ns: int
    alone_tools: int
    alone_window_ns: int


@dataclass(slots=True)
class Cause:
    """Failures with one cause: `members` says for `tool SEP agent` when it failed last, in ns."""

    root: Root
    members: dict[str, int] = field(default_factory=dict)
    attempts: int = 0
    attempt_id: str = ""
    count: int = 0

    def add(self, step: Step, member: str) -> None:
        """Take a failure in."""
        attempt = f"{step.agent}{_SEPARATOR}{step.attempt_id or step.step_id}"
        self.attempts += attempt != self.attempt_id
        self.attempt_id = attempt
        self.count += 1
        self.members.pop(member, None)
        self.members[member] = step.end_ns
        if len(self.members) > _MEMBERS_KEPT:
            del self.members[next(iter(self.members))]
        if step.step_id != self.root.first.step_id:
            self.root.add(step)

    def tools(self, since_ns: int) -> set[str]:
        """The tools themselves that failed since then, a shell as the one that it is."""
        return {member.split(_SEPARATOR)[2] for member, at in self.members.items() if at >= since_ns}

    def within(self, since_ns: int) -> tuple[list[str], list[str]]:
        """Tools and agents that failed since then, in the order of their latest failures."""
        recent = [member.split(_SEPARATOR) for member, at in self.members.items() if at >= since_ns]
        return list(dict.fromkeys(pair[0] for pair in recent)), list(
            dict.fromkeys(pair[1] for pair in recent)
        )


@dataclass(slots=True)
class _Open:
    """The first failure of a tool that has not worked since; `things` are what it was to make."""

    root: Root
    at_ns: int
    error_class: str
    things: list[str] = field(default_factory=list)


class SharedCause:
    """The open failures of a session and their causes."""

    def __init__(self) -> None:
        self._causes = Recent[str, Cause](_CAUSES_KEPT)
        self._open = Recent[str, _Open](_OPEN_KEPT)
        self._led_by = Recent[str, str](_OPEN_KEPT)

    def clear(self) -> None:
        """Forget all failures."""
        self._causes.clear()
        self._open.clear()
        self._led_by.clear()

    @property
    def is_calm(self) -> bool:
        """Whether nothing has failed that has not worked since."""
        return not self._open

    def works(self, reading: Reading) -> None:
        """A tool works (again): it is no part of any cause, and its server is none."""
        tool = reading.step.tool or ""
        server = server_of(reading)
        if server:
            self._causes.pop(f"server:{server}")
        if self._open.pop(tool) is None:
            return
        self._led_by.pop(tool)
        for key, cause in list(self._causes.items()):
            for member in [member for member in cause.members if member.split(_SEPARATOR)[2] == tool]:
                del cause.members[member]
            if not cause.members:
                self._causes.pop(key)

    def fails(self, reading: Reading, before: Before, limits: Limits) -> list[Spread]:
        """Take a failed call in; return the cascades that it completes or carries on."""
        step, verdict = reading.step, reading.verdict
        text = reading.error_text[:_TEXT_CHARS]
        tool, agent = step.tool or "", step.agent or ""
        if verdict is None or not text.strip():
            return []
        unit = parts_of(tool, step.arguments).family if role_of_name(tool) is None else tool
        member = _SEPARATOR.join((unit, agent, tool))
        spreads: list[Spread] = []
        for key in self._keys(reading, text, verdict.error_class):
            cause = self._causes.touch(key)
            if cause is None:
                cause = self._begin(key, step, text, before)
            cause.add(step, member)
            # What may go away by itself has to show that it does not.
            least = limits.tools + (verdict.nature is Nature.TRANSIENT)
            spread = self._judge(key, cause, step, limits) if cause.count >= least else None
            if spread is not None and not spreads:
                spreads.append(spread)
        if self._open.get(tool) is None:
            opened = _Open(Root.of(step, text, before), step.end_ns, verdict.error_class.value)
            if reading.role in (Role.CHANGE, Role.OTHER):
                opened.things = things_in(step.arguments)
            self._open.put(tool, opened)
        return spreads

    def _keys(self, reading: Reading, text: str, error_class: ErrorClass) -> list[str]:
        """What the cause of a failure may be called, the surest first."""
        step = reading.step
        named = self._named(step, text)
        keys = [named] if named else []
        if error_class in _OWN or _COUNTS.search(text) or _TOO_MUCH.search(text):
            return keys
        hosts = sorted(hosts_in(text))[:3] if error_class in _OUTER else []
        keys += [f"host:{host}" for host in hosts]
        server = server_of(reading) if error_class in _SERVES or _is_bare(reading, error_class) else ""
        if server:
            keys.append(f"server:{server}")
        if hosts and any(host in str(step.arguments)[:_TEXT_CHARS].lower() for host in hosts):
            return keys  # it is what was asked for that does not answer, not what all stand on
        template = text_key(text, step.tool or "", step.arguments, literal=error_class in _LITERAL)
        if template:
            sort = "text" if error_class in _BENEATH else "words"
            # One agent's calls that are refused alike are its own mistakes; over several agents they are not.
            own = error_class is ErrorClass.PERMISSION or error_class is ErrorClass.SCHEMA
            keys.append(f"{'refused' if own else sort}:{template}")
        if error_class in _OUTER:
            keys += [f"clause:{clause}" for clause in clauses_of(reading, step.tool or "")]
        if error_class in _REACH:
            keys.append("class:out of reach")
        elif error_class in _BENEATH:
            keys.append(f"class:{error_class.value}")
        return keys

    def _named(self, step: Step, text: str) -> str | None:
        """The cause that an error names: a tool or agent that failed before, or what it was to make."""
        lowered = text.lower()
        own = str(step.arguments)[:_TEXT_CHARS].lower()
        for tool, opened in self._open.items():
            if tool == step.tool:
                continue
            names = [tool] if opened.root.agent == step.agent else [tool, opened.root.agent]
            names += [thing for thing in opened.things if thing in lowered and thing not in own]
            if any(names_it(lowered, name.lower()) for name in names):
                key = self._led_by.get(tool) or f"named:{tool}"
                self._led_by.put(step.tool or "", key)
                return key
        return None

    def _begin(self, key: str, step: Step, text: str, before: Before) -> Cause:
        """A cause seen for the first time, with its root: what it names, else what failed shortly before."""
        sort, _, name = key.partition(":")
        root = Root.of(step, text, before)
        opened = self._open.get(name) if sort == "named" else self._root_of(step)
        cause = Cause(root)
        if opened is not None and opened.root.first.step_id != step.step_id:
            cause.root = Root.load(opened.root.json())
        if opened is not None and sort == "named":
            cause.members[_SEPARATOR.join((name, opened.root.agent, name))] = opened.at_ns
            cause.count = cause.attempts = 1
        self._causes.put(key, cause)
        return cause

    def _root_of(self, step: Step) -> _Open | None:
        """The oldest failure, still open, of what other tools may stand on."""
        for opened in self._open.values():
            if opened.at_ns >= step.end_ns - _ROOT_NS and (
                opened.error_class in _BENEATH or _ABOUT_SERVERS.search(opened.root.excerpt)
            ):
                return opened
        return None

    def _judge(self, key: str, cause: Cause, step: Step, limits: Limits) -> Spread | None:
        sort = key.partition(":")[0]
        tools, agents = cause.within(step.end_ns - limits.window_ns)
        rule, threshold = "failing_together", limits.tools
        if sort == "named":
            tools, agents = cause.within(step.end_ns - limits.alone_window_ns)
            rule = "named_upstream"
            reached = len(tools) >= threshold or (
                len(agents) >= limits.agents and len(cause.members) >= threshold
            )
        else:
            reached = len(tools) >= threshold and len(agents) >= limits.agents
            if not reached and sort in _ALONE:
                tools, agents = cause.within(step.end_ns - limits.alone_window_ns)
                # Words that nobody knows may be anybody's: one tool more.
                threshold = limits.alone_tools + _ALONE[sort]
                rule = "one_cause"
                since_ns = step.end_ns - limits.alone_window_ns
                several = len(cause.tools(since_ns)) if _ALONE[sort] else len(tools)
                reached = several >= threshold and cause.attempts >= _ATTEMPTS
        if not reached:
            return None
        rank = 2 if len(tools) >= threshold and cause.count >= 2 * threshold else 1
        who = f" of {len(agents)} agents" if len(agents) > 1 else ""
        summary = (
            f"{len(tools)} tools{who} fail from one cause that began with {cause.root.first.tool}: "
            f"{cause.root.excerpt}"
        )
        told: dict[str, Json] = {
            "cause": key[:120],
            "tools": [name[:60] for name in tools[:8]],
            "agents": [name[:60] for name in agents[:8]],
            "latest_error": excerpt(step.error or step.result or ""),
        }
        resets = ("success of a tool that had failed", f"no failure for {limits.window_ns / 1e9:g} s")
        return Spread(rule, cause.root, rank, cause.count, threshold, summary, told, resets)

    def json(self) -> Json:
        """For a checkpoint; `restore` reads it."""
        return {
            "causes": [
                [key, cause.root.json(), dict(cause.members), cause.attempts, cause.attempt_id, cause.count]
                for key, cause in self._causes.items()
            ],
            "open": [
                [tool, opened.root.json(), opened.at_ns, opened.error_class, list(opened.things)]
                for tool, opened in self._open.items()
            ],
            "led_by": [[tool, key] for tool, key in self._led_by.items()],
        }

    def restore(self, state: Any) -> None:  # noqa: ANN401 - JSON that `json` wrote
        """Take over what `json` wrote."""
        self.clear()
        for key, root, members, attempts, attempt_id, count in state["causes"]:
            self._causes.put(key, Cause(Root.load(root), dict(members), attempts, attempt_id, count))
        for tool, root, at_ns, error_class, things in state["open"]:
            self._open.put(tool, _Open(Root.load(root), at_ns, error_class, list(things)))
        for tool, key in state["led_by"]:
            self._led_by.put(tool, key)


def hosts_in(text: str) -> set[str]:
    """The hosts and services that an error names as what did not answer.

    >>> sorted(hosts_in("connect ECONNREFUSED 10.0.0.5:5432")), hosts_in("app.py:12: KeyError")
    (['10.0.0.5', '10.0.0.5:5432'], set())
    >>> hosts_in("upstream 'orders-db' timed out"), hosts_in("the server is down")
    ({'orders-db'}, set())
    """
    found = set[str]()
    for match in _HOST.finditer(text):
        name = match[match.lastgroup or 0].lower().rstrip(".")
        if name not in _NO_NAMES and len(name) >= _LEAST_NAME and not _SOURCE.search(f"{name}:"[:80]):
            found.add(name[:60])
            if match.lastgroup == "ip":
                found.add(name.partition(":")[0])
    return {name for name in found if not _SOURCE.search(name)}


def server_of(reading: Reading) -> str:
    """The server that a call went to, by record or by the prefix of the tool's name; empty when not told."""
    step = reading.step
    if step.target:
        return step.target
    found = _PREFIX.fullmatch(step.tool or "")
    return found[1] if found is not None else ""


def clauses_of(reading: Reading, tool: str) -> list[str]:
    """The parts of an error between colons and the like: the last three that say something.

    What broke is said at the end ("cannot deploy: no credentials: the vault is sealed").
    """
    family = reading.family
    if family is None:
        return []
    text = family.template.replace(tool.lower(), "#") if len(tool) >= _LEAST_NAME else family.template
    parts = (" ".join(part.split()) for part in _CLAUSE.split(text))
    telling = [part for part in parts if sum(map(str.isalpha, part)) >= _LEAST_CLAUSE and " " in part]
    return [part[:120] for part in dict.fromkeys(telling[-_CLAUSES:])]


def _is_bare(reading: Reading, error_class: ErrorClass) -> bool:
    """Whether an error that nobody knows says nothing of what its call asked for."""
    family = reading.family if error_class is ErrorClass.UNKNOWN else None
    return family is not None and "#" not in family.template and not family.named


def things_in(arguments: Json) -> list[str]:
    """Names of what a call was about, that no other thing is likely to have, in lower case.

    >>> things_in({"table": "users_v2", "mode": "create", "path": "/srv/a.db"})
    ['users_v2', '/srv/a.db']
    """
    if not isinstance(arguments, Mapping):
        return []
    found = [
        value.lower() for value in arguments.values() if isinstance(value, str) and _THING.fullmatch(value)
    ]
    return found[:_THINGS_KEPT]


def text_key(text: str, tool: str, arguments: Json, *, literal: bool) -> str:
    """An error's text without the tool's name, and unless `literal` without values; empty when too short.

    >>> text_key("Unknown tool: notes_add", "notes_add", {"q": 1}, literal=False)
    'unknown tool: #'
    """
    text = text.replace(tool, "#") if len(tool) >= _LEAST_NAME else text
    key = " ".join(text.lower().split()) if literal else family_of(text, arguments).template
    letters = sum(map(str.isalpha, key[:120]))
    return key[:120] if letters >= (_LEAST_LITERAL if literal else _LEAST_TEXT) else ""


def names_it(text: str, name: str) -> bool:
    """Tell whether an error's text names a tool or an agent as where it comes from; both in lower case.

    >>> names_it("no output of fetch_orders", "fetch_orders"), names_it("'extract' failed", "extract")
    (True, True)
    >>> names_it("cannot read file", "read")
    False
    """
    if len(name) < _LEAST_NAME or name not in text:
        return False
    if any(mark in name for mark in "_-."):
        return re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text) is not None
    return re.search(rf"{_CUED}{re.escape(name)}\b|['\"`]{re.escape(name)}['\"`]", text) is not None
