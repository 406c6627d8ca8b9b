"""How much memory what was read takes, in bytes: an estimate that is cheap and never far too low."""

from __future__ import annotations

from sys import getsizeof
from typing import Final

from collector.conventions.observation import Answer, Ask, ModelFacts, Observation
from collector.joining import Entry
from collector.messages import Asked
from collector.step import Json

RECORD_BYTES: Final = 1_500  # of one record without its content, with what refers to it
ENTRY_BYTES: Final = 1_500
SMALL_BYTES: Final = 200  # of a part of a message
_VALUE_BYTES: Final = 64


def weight_of_observation(observation: Observation) -> int:
    """Bytes of one record's facts."""
    weight = RECORD_BYTES
    tool, model = observation.tool, observation.model
    if observation.text:
        weight += getsizeof(observation.text)
    if tool is not None:
        weight += _json(tool.arguments)
        if tool.result:
            weight += getsizeof(tool.result)
        if tool.error:
            weight += getsizeof(tool.error)
    return weight if model is None else weight + _model(model)


def weight_of_entry(entry: Entry) -> int:
    """Bytes of an entry with its records; its step shares their content."""
    weight = ENTRY_BYTES
    for part in entry.parts:
        weight += weight_of_observation(part)
    if entry.ask is not None:
        weight += _ask(entry.ask)
    return weight if entry.answer is None else weight + _answer(entry.answer)


def weight_of_asked(asked: Asked) -> int:
    """Bytes of a call that waits for its own record."""
    weight = SMALL_BYTES + _ask(asked.ask)
    return weight if asked.answer is None else weight + _answer(asked.answer)


def _ask(ask: Ask) -> int:
    return SMALL_BYTES + _json(ask.arguments)


def _answer(answer: Answer) -> int:
    return SMALL_BYTES + getsizeof(answer.text)


def _model(model: ModelFacts) -> int:
    weight = 0
    for text in (model.text, model.user_text, model.error):
        if text:
            weight += getsizeof(text)
    for ask in model.asks:
        weight += _ask(ask)
    for ask in model.told:
        weight += _ask(ask)
    for answer in model.answers:
        weight += _answer(answer)
    for tool in model.offered_tools:
        weight += getsizeof(tool)
    return weight


def _json(value: Json) -> int:
    """Bytes of a JSON value, however deep."""
    weight, rest = 0, [value]
    while rest:
        each = rest.pop()
        if isinstance(each, str):
            weight += getsizeof(each)
        elif isinstance(each, dict):
            weight += _VALUE_BYTES * (1 + len(each))
            for key, item in each.items():
                weight += getsizeof(key)
                rest.append(item)
        elif isinstance(each, list):
            weight += _VALUE_BYTES + 8 * len(each)
            rest.extend(each)
        else:
            weight += _VALUE_BYTES // 2
    return weight
