"""Commands that fail because of what they are all wrapped in, whatever they do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from detectors.scope import Recent
from detectors.spreading import Before, Root, Spread

if TYPE_CHECKING:
    from collector.step import Json
    from detectors.reading import Reading

_KEPT: Final = 8
_CALLS_KEPT: Final = 32
_HEAD_CHARS: Final = 24
_TEXT_CHARS: Final = 1000
_COMMANDS: Final = ("command", "cmd", "script", "code", "input", "query", "sql", "chars")
_WORDS = re.compile(r"\w+")
_PLAIN = re.compile(r"[\w./~$(\[{\"'@#!-]*")


@dataclass(slots=True)
class _Wrapper:
    root: Root
    calls: list[int] = field(default_factory=list)
    count: int = 0


class Wrapped:
    """The wrappers around failing commands of a session."""

    def __init__(self) -> None:
        self._wrappers = Recent[str, _Wrapper](_KEPT)

    def __len__(self) -> int:
        return len(self._wrappers)

    def clear(self) -> None:
        """Forget all wrappers."""
        self._wrappers.clear()

    def works(self, reading: Reading) -> None:
        """A command in a wrapper works: the wrapper is not what is wrong."""
        key = _key(reading)
        if key is not None:
            self._wrappers.pop(key)

    def fails(self, reading: Reading, before: Before, threshold: int) -> Spread | None:
        """Take a failed call in; return the cascade that it completes or carries on."""
        key = _key(reading)
        if key is None:
            return None
        head = key.rpartition("\x1f")[2]
        if not blames(reading.error_text[:_TEXT_CHARS], head):
            return None
        step = reading.step
        wrapper = self._wrappers.touch(key)
        if wrapper is None:
            wrapper = _Wrapper(Root.of(step, reading.error_text, before))
            self._wrappers.put(key, wrapper)
        else:
            wrapper.root.add(step)
        wrapper.count += 1
        if reading.call.signature not in wrapper.calls:
            wrapper.calls = [*wrapper.calls, reading.call.signature][-_CALLS_KEPT:]
        if len(wrapper.calls) < threshold:
            return None
        summary = (
            f"{step.tool}: {wrapper.count} different commands fail from one cause, all begin with {head}"
        )
        told: dict[str, Json] = {"cause": f"wrapper:{head}", "different_calls": len(wrapper.calls)}
        resets = ("success of a command that begins like this",)
        return Spread("wrapper", wrapper.root, 1, wrapper.count, threshold, summary, told, resets)

    def json(self) -> Json:
        """For a checkpoint; `restore` reads it."""
        return [[key, one.root.json(), list(one.calls), one.count] for key, one in self._wrappers.items()]

    def restore(self, state: Any) -> None:  # noqa: ANN401 - JSON that `json` wrote
        """Take over what `json` wrote."""
        self.clear()
        for key, root, calls, count in state:
            self._wrappers.put(key, _Wrapper(Root.load(root), list(calls), count))


def wrapper_of(command: str) -> str | None:
    r"""What a command begins with that is no command: a fence, or a mark that a prompt or a label has.

    >>> wrapper_of("```BASH\nls -l\n```"), wrapper_of("execute[ls]"), wrapper_of("ls -l")
    ('```BASH', None, None)
    >>> wrapper_of("BASH\nls -l"), wrapper_of("Command: ls"), wrapper_of("cat <<EOF\nx")
    ('BASH', 'Command:', None)
    """
    command = command.lstrip()
    line, newline, rest = command.partition("\n")
    head = line.split(None, 1)[0] if line else ""
    if not head or len(head) > _HEAD_CHARS:
        return None
    if head.startswith("```"):
        return head
    if newline and rest.strip() and head == line.strip() and head.isalpha():
        return head
    return head if _PLAIN.fullmatch(head) is None and head[-1:] in ":>" and len(head) < len(command) else None


def blames(error: str, head: str) -> bool:
    """Tell whether an error speaks of what the command began with.

    >>> blames("bash: line 3: BASH: command not found", "```BASH"), blames("No such file", "```BASH")
    (True, False)
    """
    if head in error or ("`" in head and "`" in error):
        return True
    words = _WORDS.findall(head)
    return any(
        re.search(rf"(?<!\w){re.escape(word)}(?:: (?:command )?not found|['\"`])", error) for word in words
    )


def _key(reading: Reading) -> str | None:
    step = reading.step
    command: Json = step.arguments
    if isinstance(command, Mapping):
        command = next((command[key] for key in _COMMANDS if isinstance(command.get(key), str)), None)
    if not isinstance(command, str):
        return None
    head = wrapper_of(command[:400])
    return None if head is None else f"{step.agent or ''}\x1f{step.tool}\x1f{head}"
