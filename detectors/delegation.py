"""Agents that only pass work on: chains without work, children that die alike, hand-offs back and forth."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol
from zlib import crc32

from detectors.role import Role, words
from detectors.scope import Recent
from detectors.spreading import Before, Root, Spread
from detectors.tool_role import words_of

if TYPE_CHECKING:
    from collector.step import Json, Step
    from detectors.reading import Reading

_AGENTS_KEPT: Final = 32
_WORDS_KEPT: Final = 48
_WORDS_CHARS: Final = 600
_DEATHS_KEPT: Final = 8
_CHAIN_MAX: Final = 16
_KEYS_KEPT: Final = 32
_NAMES_KEPT: Final = 8
_NAME_CHARS: Final = 60
_OTHER_BRIEFS: Final = 1  # so many more levels, when the brief is another each time
_MASK: Final = 2**64 - 1

_DELEGATES = words("agent subagent delegate delegation spawn dispatch worker")
_STARTS = words("run start new launch execute invoke call spawn")
_TALKS = words("message messages notify notification reply ask tell wake")
_NOT_TALK = words("list get read fetch search check wait status output stop delete")


_NAME = re.compile(r"\w[\w.-]*")


class Talk(StrEnum):
    """What a tool does with other agents."""

    NONE = ""
    DELEGATE = "delegate"
    HAND_OFF = "hand_off"
    MESSAGE = "message"


@lru_cache(maxsize=4096)
def talk_of(tool: str) -> Talk:
    """What a tool does with other agents, told from its name.

    >>> [talk_of(name).value for name in ("Task", "run_subagent", "handoff", "transfer_to_billing")]
    ['delegate', 'delegate', 'hand_off', 'hand_off']
    >>> [talk_of(name).value for name in ("SendMessage", "list_agents", "create_task", "transfer_money")]
    ['message', '', '', '']
    """
    named = words_of(tool)
    found = set(named)
    if found & _NOT_TALK:
        return Talk.NONE
    if "handoff" in found or {"hand", "off"} <= found or named[:2] in (("transfer", "to"), ("hand", "over")):
        return Talk.HAND_OFF
    if found & _TALKS:
        return Talk.MESSAGE
    if found & _DELEGATES or named == ("task",) or ("task" in found and found & _STARTS):
        return Talk.DELEGATE
    return Talk.NONE


class Limits(Protocol):
    """When passing on is a cascade; see `detectors.cascade.CascadeConfig`."""

    @property
    def depth(self) -> int:
        """Agents below the first that pass work on."""

    @property
    def respawns(self) -> int:
        """Children that die alike."""

    @property
    def handoffs(self) -> int:
        """Hand-offs and messages in a row that say nothing new."""


@dataclass(slots=True)
class _Agent:
    """An agent of the session. `brief` is what it passed on, as the call's signature."""

    parent: str
    first_ns: int
    worked: bool = False
    delegations: int = 0
    brief: int = 0
    root: Root | None = None


@dataclass(slots=True)
class _Deaths:
    """Children of one agent that failed alike, one after the other."""

    root: Root
    last_ns: int
    count: int = 0
    children: list[str] = field(default_factory=list)


class _Now(NamedTuple):
    """The call at hand, and by what it is judged."""

    reading: Reading
    before: Before
    limits: Limits


class Delegation:
    """Who passed what on to whom in a session."""

    def __init__(self) -> None:
        self._agents = Recent[str, _Agent](_AGENTS_KEPT)
        self._deaths = Recent[str, _Deaths](_DEATHS_KEPT)
        self._last_delegator = ""
        self._last_words: list[int] = []
        self._clear_talk()

    def _clear_talk(self) -> None:
        self._talk_root: Root | None = None
        self._talk_keys: list[int] = []
        self._talkers: list[str] = []
        self._talk_count = self._talk_switches = 0
        self._last_talker = ""

    def clear(self) -> None:
        """Somebody told the agents what to do now."""
        self._agents.clear()
        self._deaths.clear()
        self._last_delegator, self._last_words = "", []
        self._clear_talk()

    def observe(self, reading: Reading, before: Before, limits: Limits) -> list[Spread]:
        """Take a tool call in; return the cascades that it completes or carries on."""
        step = reading.step
        talk = talk_of(step.tool or "")
        name = step.agent or ""
        agent = self._agents.touch(name)
        if talk is Talk.NONE and not reading.went_wrong:
            if agent is not None:
                agent.worked = True
            if self._talk_count:
                self._clear_talk()
            if agent is not None or not self._last_delegator:
                return []
        now = _Now(reading, before, limits)
        if agent is None:
            agent = self._arrives(step, name)
        if talk is Talk.NONE:
            return self._works(now, agent, name)
        spreads = [self._passes(now, agent, name) if talk is Talk.DELEGATE else None]
        spreads.append(self._talks(now, name))
        return [spread for spread in spreads if spread is not None]

    def _arrives(self, step: Step, name: str) -> _Agent:
        parent = step.parent_agent or ""
        if not parent and name and self._last_delegator != name and _hash(name.lower()) in self._last_words:
            parent = self._last_delegator
        agent = _Agent(parent, step.start_ns)
        self._agents.put(name, agent)
        return agent

    def _works(self, now: _Now, agent: _Agent, name: str) -> list[Spread]:
        """A call that is work. One that fails may be how a child dies."""
        if not now.reading.went_wrong:
            agent.worked = True
            return []
        if now.reading.role not in (Role.THINK, Role.WAIT):
            self._clear_talk()
        if agent.worked or not agent.parent:
            return []
        spread = self._dies(now, agent.parent, name, agent.first_ns)
        return [] if spread is None else [spread]

    def _passes(self, now: _Now, agent: _Agent, name: str) -> Spread | None:
        """A delegation: the next link of a chain, or the next child after one that died."""
        step = now.reading.step
        agent.delegations += 1
        brief = now.reading.call.signature if now.reading.call.known else 0
        if not agent.parent and agent.root is None and self._last_delegator not in ("", name):
            giver = self._agents.get(self._last_delegator)
            if giver is not None and brief and giver.brief == brief:
                agent.parent = self._last_delegator
        agent.brief = brief
        if agent.root is None:
            agent.root = Root.of(step, str(step.arguments), now.before)
        self._last_delegator = name
        self._last_words = [_hash(word) for word in _names_in(step.arguments)]
        if now.reading.went_wrong:
            return self._dies(now, name, "", step.start_ns)
        for key in [key for key in self._deaths if key.startswith(f"{name}\x1fp")]:
            self._deaths.pop(key)
        return self._chain(now, agent, name)

    def _chain(self, now: _Now, agent: _Agent, name: str) -> Spread | None:
        """Follow who passed on to whom, up to an agent that worked."""
        links, same, top = [name], True, agent
        while not top.worked and top.parent and len(links) < _CHAIN_MAX:
            above = self._agents.get(top.parent)
            if above is None or not above.delegations or top.parent in links:
                break
            same = same and bool(agent.brief) and above.brief == agent.brief
            if above.worked and above.parent:
                break
            if above.delegations > 1 and not same:
                break
            links.append(top.parent)
            top = above
        # The first link had the work from outside: it passes on, the others pass on what was passed to them.
        depth = len(links) - 1
        threshold = now.limits.depth if same else now.limits.depth + _OTHER_BRIEFS
        if depth < threshold or agent.worked or top.root is None:
            return None
        root = Root.load(top.root.json())
        for link in reversed(links[:-1]):
            passed = self._agents.get(link)
            if passed is not None and passed.root is not None and link != name:
                root.spans.append(passed.root.first.span_id)
                root.steps.append(passed.root.first.step_id)
        root.add(now.reading.step)
        root.spans, root.steps = root.spans[-8:], root.steps[-8:]
        what = "the same brief" if same else "the work"
        summary = f"{what} was passed on {depth + 1} times down a chain of agents, and none did any work"
        told: dict[str, Json] = {
            "agents": [*(link[:_NAME_CHARS] for link in reversed(links[-_NAMES_KEPT:]))],
            "same_brief": same,
        }
        resets = ("work by an agent of the chain",)
        return Spread("delegation_chain", root, 1, depth + 1, threshold + 1, summary, told, resets)

    def _dies(self, now: _Now, parent: str, child: str, first_ns: int) -> Spread | None:
        """A child failed, as its parent's call or by itself; count those that came after one had failed."""
        family = now.reading.family
        if family is None:
            return None
        step = now.reading.step
        key = f"{parent}\x1f{'c' if child else 'p'}\x1f{family.hash:016x}"
        deaths = self._deaths.touch(key)
        if deaths is None:
            root = Root.of(step, now.reading.error_text, now.before)
            deaths = _Deaths(root, step.end_ns, 1, [child] if child else [])
            self._deaths.put(key, deaths)
            return None
        if first_ns < deaths.last_ns or (child and child in deaths.children):
            if child in deaths.children[-1:]:
                deaths.last_ns = max(deaths.last_ns, step.end_ns)
            return None
        deaths.last_ns = max(deaths.last_ns, step.end_ns)
        deaths.count += 1
        deaths.root.add(step)
        if child:
            deaths.children = [*deaths.children, child][-_NAMES_KEPT:]
        if deaths.count < now.limits.respawns:
            return None
        who = parent or "an agent"
        summary = f"{who} started {deaths.count} children one after the other, all died of the same failure"
        told: dict[str, Json] = {
            "parent": parent[:_NAME_CHARS],
            "children": [name[:_NAME_CHARS] for name in deaths.children],
            "cause": deaths.root.excerpt,
        }
        rank = 2 if deaths.count >= 2 * now.limits.respawns else 1
        resets = ("a child that works",)
        return Spread("respawn", deaths.root, rank, deaths.count, now.limits.respawns, summary, told, resets)

    def _talks(self, now: _Now, name: str) -> Spread | None:
        """Agents that talk to each other, nothing said that was not said before, no work in between."""
        step = now.reading.step
        if self._talk_root is None:
            self._talk_root = Root.of(step, str(step.arguments), now.before)
        else:
            self._talk_root.add(step)
            self._talk_switches += name != self._last_talker
        self._last_talker = name
        self._talk_count += 1
        if name not in self._talkers:
            self._talkers = [*self._talkers, name][-_NAMES_KEPT:]
        key = (now.reading.call.signature * 31 + _hash(name)) & _MASK
        if key not in self._talk_keys:
            self._talk_keys = [*self._talk_keys, key][-_KEYS_KEPT:]
        count = self._talk_count
        if count < now.limits.handoffs or len(self._talkers) < 2 or not now.reading.call.known:  # noqa: PLR2004 - it takes two
            return None
        if 2 * len(self._talk_keys) > count or 2 * self._talk_switches < count:
            return None
        summary = (
            f"{count} hand-offs and messages between {len(self._talkers)} agents, the same ones again, "
            "no work in between"
        )
        told: dict[str, Json] = {
            "agents": [talker[:_NAME_CHARS] for talker in self._talkers],
            "different_calls": len(self._talk_keys),
        }
        rank = 2 if count >= 2 * now.limits.handoffs else 1
        resets = ("work by any of the agents",)
        return Spread("ping_pong", self._talk_root, rank, count, now.limits.handoffs, summary, told, resets)

    def json(self) -> Json:
        """For a checkpoint; `restore` reads it."""
        return {
            "agents": [
                [
                    name,
                    agent.parent,
                    agent.first_ns,
                    agent.worked,
                    agent.delegations,
                    agent.brief,
                    None if agent.root is None else agent.root.json(),
                ]
                for name, agent in self._agents.items()
            ],
            "deaths": [
                [key, deaths.root.json(), deaths.last_ns, deaths.count, list(deaths.children)]
                for key, deaths in self._deaths.items()
            ],
            "last": [self._last_delegator, list(self._last_words), self._last_talker],
            "talk": [
                None if self._talk_root is None else self._talk_root.json(),
                list(self._talk_keys),
                list(self._talkers),
                self._talk_count,
                self._talk_switches,
            ],
        }

    def restore(self, state: Any) -> None:  # noqa: ANN401 - JSON that `json` wrote
        """Take over what `json` wrote."""
        self.clear()
        for name, parent, first_ns, worked, delegations, brief, root in state["agents"]:
            loaded = None if root is None else Root.load(root)
            self._agents.put(name, _Agent(parent, first_ns, worked, delegations, brief, loaded))
        for key, root, last_ns, count, children in state["deaths"]:
            self._deaths.put(key, _Deaths(Root.load(root), last_ns, count, list(children)))
        self._last_delegator, last_words, self._last_talker = state["last"]
        self._last_words = list(last_words)
        root, keys, talkers, self._talk_count, self._talk_switches = state["talk"]
        self._talk_root = None if root is None else Root.load(root)
        self._talk_keys, self._talkers = list(keys), list(talkers)


def _names_in(arguments: Json) -> list[str]:
    """The words of a delegation that may name an agent, in lower case."""
    return list(dict.fromkeys(_NAME.findall(str(arguments)[:_WORDS_CHARS].lower())))[:_WORDS_KEPT]


def _hash(text: str) -> int:
    return crc32(text.encode("utf-8", "surrogatepass"))
