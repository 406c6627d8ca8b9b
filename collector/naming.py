"""Names as they are kept: of bounded length, without control characters; equal names stay equal."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from typing import Final

from collector.conventions.observation import Answer, Ask, ModelFacts, Observation, OwnFacts, ToolFacts

MAX_NAME: Final = 256  # characters
KEPT: Final = 200  # of a longer one; a hash of the whole tells it from others that begin alike
MAX_PROCESS: Final = MAX_NAME - len("process:")  # it becomes a session's name behind that
_UNFIT: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]+")


def name_kept(name: str, longest: int = MAX_NAME) -> str:
    r"""A name without control characters and halves of characters, at most `longest` characters.

    >>> name_kept("chat\x00-1"), name_kept("x" * 256) == "x" * 256
    ('chat-1', True)
    >>> len(name_kept("x" * 257)), name_kept("x" * 257) == name_kept("x" * 258)
    (217, False)
    """
    if len(name) <= longest and name.isprintable():
        return name
    name = _UNFIT.sub("", name)
    if len(name) <= longest:
        return name
    return f"{name[:KEPT]}~{hashlib.blake2b(name.encode(), digest_size=8).hexdigest()}"


def _fits(name: str) -> bool:
    return len(name) <= MAX_PROCESS and name.isprintable()


def with_names_kept(observation: Observation) -> Observation:
    """A record's facts with their names as they are kept: session, process, user, agent, tool, call ids."""
    tool, model = observation.tool, observation.model
    if not _all_names_fit(observation):
        observation = replace(
            observation,
            session=name_kept(observation.session),
            process=name_kept(observation.process, MAX_PROCESS),
            user=name_kept(observation.user),
            agent=name_kept(observation.agent),
            name=name_kept(observation.name),
            run=name_kept(observation.run),
            version=name_kept(observation.version),
            target=name_kept(observation.target),
        )
    if observation.own is not None:
        observation = replace(observation, own=_own(observation.own))
    if tool is not None and not (_fits(tool.name) and _fits(tool.call_id)):
        observation = replace(observation, tool=_tool(tool))
    if model is not None and not _all_fit(model):
        observation = replace(observation, model=_model(model))
    return observation


def _all_names_fit(observation: Observation) -> bool:
    names = (
        observation.session, observation.process, observation.user, observation.agent, observation.name,
        observation.run, observation.version, observation.target,
    )  # fmt: skip
    return _fits("".join(names)) or all(map(_fits, names))  # together they mostly fit too, which is fast


def _all_fit(model: ModelFacts) -> bool:
    return all(_fits(ask.call_id) and _fits(ask.name) for ask in (*model.asks, *model.told)) and all(
        _fits(answer.call_id) and _fits(answer.name) for answer in model.answers
    )


def _own(own: OwnFacts) -> OwnFacts:
    return replace(own, expected_tool=name_kept(own.expected_tool), task_id=name_kept(own.task_id))


def _tool(tool: ToolFacts) -> ToolFacts:
    return replace(tool, name=name_kept(tool.name), call_id=name_kept(tool.call_id))


def _model(model: ModelFacts) -> ModelFacts:
    return replace(
        model,
        asks=tuple(map(_ask, model.asks)),
        told=tuple(map(_ask, model.told)),
        answers=tuple(map(_answer, model.answers)),
    )


def _ask(ask: Ask) -> Ask:
    return replace(ask, call_id=name_kept(ask.call_id), name=name_kept(ask.name))


def _answer(answer: Answer) -> Answer:
    return replace(answer, call_id=name_kept(answer.call_id), name=name_kept(answer.name))
