"""Whose call it is: traces with their spans' parents, and the session and agent that follow from them."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from collector.conventions.observation import Observation, Telling
from collector.step import MAX_EVALUATIONS, Evaluation

MAX_SPANS: Final = 4_096  # of one trace that are remembered, least recently told of first out
MAX_JUDGED: Final = 256  # spans of one trace whose evaluations came before they did
MAX_CLIMB: Final = 64  # generations of parents that are looked at
UNRANKED: Final = 99


@dataclass(slots=True)
class Node:
    """What is remembered of a span: its parent, what it told of, its agent, and its entry."""

    parent: str
    telling: Telling
    agent: str
    session: str = ""
    rank: int = UNRANKED
    entry: int = -1


@dataclass(slots=True)
class Trace:
    """What is known of one trace.

    `group` names the conversation it belongs to: `s:` and a session id, `p:` and a process when the trace is
    only one call, else `t:` and the trace id. `orphans` are entries under a parent that has not been seen.
    `touched` tells which trace was told of last. `task_id` and `task_success` are what our own attributes
    said first and last; `judged` are evaluations, by span, of spans that tell of nothing yet.
    """

    trace_id: str
    group: str
    process: str
    session: str = ""
    rank: int = UNRANKED
    lone: bool = False
    is_run: bool = True
    fallback_used: bool = False
    used: bool = False
    root_ended_ns: int = 0
    user: str = ""
    nodes: OrderedDict[str, Node] = field(default_factory=OrderedDict)
    orphans: dict[str, list[int]] = field(default_factory=dict)
    touched: int = 0
    task_id: str = ""
    task_success: bool | None = None
    judged: dict[str, list[Evaluation]] = field(default_factory=dict)


def remember(trace: Trace, observation: Observation) -> Node:
    """Take a span into its trace: parent link, agent, session, end of the root."""
    agent = ""
    if observation.telling is Telling.AGENT:
        agent = observation.name
    node = trace.nodes.get(observation.span_id)
    if node is None:
        node = Node(
            observation.parent_span_id,
            observation.telling,
            agent,
            observation.session,
            observation.session_rank,
        )
        trace.nodes[observation.span_id] = node
        if len(trace.nodes) > MAX_SPANS:
            trace.nodes.popitem(last=False)
    if not observation.trace_is_run:
        trace.is_run = False
    if not observation.parent_span_id:
        if observation.telling in (Telling.MODEL, Telling.TOOL):
            trace.lone = True
        else:
            trace.root_ended_ns = observation.end_ns
    return node


def learn_session(trace: Trace, observation: Observation) -> bool:
    """Take over a session id that a record shows. True when the trace's session is another one then.

    As long as no call of the trace was joined the best spelling wins; afterwards the first stays.
    """
    if observation.user and not trace.user:
        trace.user = observation.user
    if not observation.session or observation.session_rank >= trace.rank:
        return False
    if trace.session and trace.used:
        return False
    trace.session, trace.rank = observation.session, observation.session_rank
    return True


def learn_task(trace: Trace, observation: Observation) -> bool:
    """Take over what our own attributes say of the task that a trace is. True when its success is news."""
    own = observation.own
    if own is None:
        return False
    trace.task_id = trace.task_id or own.task_id
    if own.task_success is None or own.task_success is trace.task_success:
        return False
    trace.task_success = own.task_success
    return True


def keep_judgement(trace: Trace, observation: Observation) -> None:
    """Keep evaluations of a span that tells of nothing yet until it does."""
    known = trace.judged.setdefault(observation.span_id, [])
    known.extend(observation.evaluations[: MAX_EVALUATIONS - len(known)])
    if len(trace.judged) > MAX_JUDGED:
        del trace.judged[next(iter(trace.judged))]


def session_id(trace: Trace | None, observation: Observation | None, process: str) -> str:
    """The session of a record: what it shows itself in the trace's spelling, the trace's, or a fallback."""
    if (
        observation is not None
        and observation.session
        and (trace is None or observation.session_rank == trace.rank)
    ):
        return observation.session
    if trace is not None and trace.session:
        return trace.session
    if observation is not None and observation.session:
        return observation.session
    if trace is None or trace.lone:
        return f"process:{process}"
    return trace.trace_id


@dataclass(frozen=True, slots=True)
class Climb:
    """What is above a span: the nearest agents' names, and whether an unseen parent cut the view."""

    agent: str
    parent_agent: str
    missing: str
    in_tool: bool
    session: str


def climb(trace: Trace, parent: str, own_agent: str = "") -> Climb:
    """Look at the ancestors of a span. The outermost session counts: agents within may open their own."""
    agent, above, in_tool, session = own_agent, "", False, ""
    for _ in range(MAX_CLIMB):
        if not parent:
            return Climb(agent, above, "", in_tool, session)
        node = trace.nodes.get(parent)
        if node is None:
            return Climb(agent, above, parent, in_tool, session)
        if node.session and node.rank == trace.rank:
            session = node.session
        if node.telling is Telling.TOOL:
            in_tool = True
        if node.agent:
            if not agent:
                agent = node.agent
            elif node.agent != agent and not above:
                above = node.agent
        parent = node.parent
    return Climb(agent, above, "", in_tool, session)


def nearest(trace: Trace, parent: str, wanted: Telling, barriers: tuple[Telling, ...]) -> int:
    """The entry of the nearest ancestor that told of `wanted`, unless a barrier comes first; -1 if none."""
    for _ in range(MAX_CLIMB):
        node = trace.nodes.get(parent) if parent else None
        if node is None:
            return -1
        if node.telling is wanted and node.entry >= 0:
            return node.entry
        if node.telling in barriers:
            return -1
        parent = node.parent
    return -1
