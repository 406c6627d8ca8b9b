"""A step as detectors read it: each part worked out when it is first asked for, once for all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from collector.step import Kind, Outcome
from detectors.error_family import Family, family_of
from detectors.errors import Verdict, classify
from detectors.evidence import body_of, flags_of, information_of
from detectors.news import words_in
from detectors.operation import operation_of
from detectors.role import Role
from detectors.signature import Call, Names, call_of, hash64, names_for
from detectors.soft_text import SoftFailure, soft_failure_in
from detectors.tool_policy import DEFAULT_POLICY, ToolPolicy
from detectors.tool_role import role_of, role_of_name

if TYPE_CHECKING:
    from collector.step import Step

T = TypeVar("T")

_TOOLS_KEPT = 4096


class once(Generic[T]):  # noqa: N801 - used as `property` is
    """A property that is worked out when first asked for, and kept.

    As `functools.cached_property`, without the lock that makes it cost ten times as much before Python 3.12.
    """

    def __init__(self, work_out: Callable[[Any], T]) -> None:
        self._work_out = work_out
        self._name = work_out.__name__
        self.__doc__ = work_out.__doc__

    @overload
    def __get__(self, owner: None, kind: type) -> once[T]: ...
    @overload
    def __get__(self, owner: object, kind: type) -> T: ...
    def __get__(self, owner: object, kind: type) -> T | once[T]:
        if owner is None:
            return self
        value = owner.__dict__[self._name] = self._work_out(owner)
        return value


class Lens:
    """How steps are read: by what a team says of its tools. Makes one `Reading` a step.

    Who asks for the latest step again gets the same one: all who share a lens share what was worked out.
    """

    def __init__(self, policy: ToolPolicy = DEFAULT_POLICY) -> None:
        self.policy = policy
        self._latest: Reading | None = None
        self._names: dict[str, Names] = {}

    def read(self, step: Step) -> Reading:
        """Wrap a step; nothing is worked out yet."""
        latest = self._latest
        if latest is None or latest.step is not step:
            latest = self._latest = Reading(step, self)
        return latest

    def names_of(self, tool: str) -> Names:
        """Which arguments of a tool are no part of a call's identity."""
        names = self._names.get(tool)
        if names is None:
            if len(self._names) >= _TOOLS_KEPT:
                self._names.clear()
            names = self._names[tool] = names_for(tool, self.policy.volatile_arguments)
        return names


_DEFAULT_LENS = Lens()


class Reading:
    """One step, read. Steps of other kinds than tool calls are read as calls of a tool without arguments."""

    def __init__(self, step: Step, lens: Lens = _DEFAULT_LENS) -> None:
        self.step = step
        self.lens = lens

    @property
    def policy(self) -> ToolPolicy:
        """What the team says of its tools."""
        return self.lens.policy

    @once
    def names(self) -> Names:
        """Which arguments are no part of the call's identity."""
        return self.lens.names_of(self.step.tool or "")

    @once
    def call(self) -> Call:
        """Who the call is: its signature, and whether its arguments are known."""
        step = self.step
        if step.kind is not Kind.TOOL_CALL:
            return Call(hash64(f"{step.kind}\x1e{step.model or ''}"))
        return call_of(step.tool or "", step.arguments, self.names)

    @once
    def role(self) -> Role:
        """What the call is for."""
        tool, policy = self.step.tool, self.lens.policy
        if self.step.kind is not Kind.TOOL_CALL or tool is None:
            return Role.OTHER
        if tool in policy.poll:
            return Role.POLL
        if tool in policy.read:
            return Role.LOOK
        if tool in policy.write or tool in policy.critical:
            return Role.CHANGE
        return role_of(tool, self.step.arguments)

    @once
    def flags(self) -> int:
        """What is known of the call, as bits of `detectors.evidence`."""
        return flags_of(self.step, self.call, self.role)

    @once
    def body(self) -> str | None:
        """What the call brought back: result, or error and result; None: not recorded, or refused."""
        return body_of(self.step)

    @once
    def information(self) -> int:
        """64 bits for what the call brought back, without what changes by itself."""
        makes_things = self.role is Role.CHANGE or self.names.delegates
        return information_of(self.call, self.flags, self.body, makes_things=makes_things)

    @once
    def failed(self) -> bool:
        """Whether the call is recorded as failed. A refusal by a brake is no failure."""
        return self.step.outcome is Outcome.ERROR or self.step.outcome is Outcome.SOFT_ERROR

    @once
    def soft(self) -> SoftFailure | None:
        """What in the result of a call that is not recorded as failed says that it failed."""
        step = self.step
        if (
            step.kind is not Kind.TOOL_CALL
            or self.failed
            or step.outcome is Outcome.DENIED
            or not step.result
        ):
            return None
        return soft_failure_in(step.result, self.role, shell=role_of_name(step.tool or "") is None)

    @once
    def went_wrong(self) -> bool:
        """Whether the call failed, by its record or by its result."""
        return self.failed or self.soft is not None

    @once
    def error_text(self) -> str:
        """What a call that went wrong said; empty for all others."""
        return (self.body or "") if self.went_wrong else ""

    @once
    def verdict(self) -> Verdict | None:
        """Why a call went wrong; None for all others."""
        return classify(self.error_text, tool=self.step.tool) if self.went_wrong else None

    @once
    def family(self) -> Family | None:
        """The error's family, the arguments' values taken out; None for a call that did not go wrong."""
        return family_of(self.error_text, self.step.arguments) if self.went_wrong else None

    @once
    def operation(self) -> str:
        """What is attempted: the tool, for shells the program, subcommand and target."""
        return operation_of(self.step.tool or self.step.kind.value, self.step.arguments)

    @once
    def target(self) -> str:
        """Whom the call depends on: the server, else the model's provider, else the tool of this service.

        Empty for steps that ask nobody.
        """
        step = self.step
        if step.kind is Kind.TOOL_CALL:
            if step.target:
                return step.target
            tool = step.tool or ""
            server = tool.split("__")[1] if tool.startswith("mcp__") and tool.count("__") > 1 else ""
            if server:
                return f"mcp:{server}"
            return f"{step.service}/{tool}" if step.service else tool
        if step.kind is Kind.MODEL_CALL or step.kind is Kind.COMPACTION:
            return step.target or step.provider or step.model or f"{step.service}/model"
        return ""

    @once
    def news(self) -> frozenset[int]:
        """32-bit hashes of the words that the call brought back, of its beginning and end."""
        return words_in(self.body or "")
