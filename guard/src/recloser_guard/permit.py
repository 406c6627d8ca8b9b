"""A call that is made under the guard's eyes: admitted before it, its outcome told after it."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from recloser_guard.decision import Decision

if TYPE_CHECKING:
    from recloser_guard.guard import Guard


class Permit:
    """`with guard.permit("search", {"q": "x"}):` or `async with`. Raises `CallDenied` and `RunHalted`.

    Where the call is a probe of a half-open breaker, how it ended is reported: an exception is a failure,
    and so is `failed()` for a tool that returns its errors. A generator that nobody wants more of is none.
    """

    def __init__(self, guard: Guard, tool: str | None, args: Any, how: Mapping[str, Any]) -> None:
        self._guard = guard
        self._tool = tool
        self._args = args
        self._how = how
        self._failed = False
        self.decision: Decision | None = None

    def failed(self) -> None:
        """Say that the call failed although it raised nothing."""
        self._failed = True

    def __enter__(self) -> Permit:
        return self._admitted(self._guard.check(self._tool, self._args, lease=True, **self._how))

    async def __aenter__(self) -> Permit:
        return self._admitted(await self._guard.acheck(self._tool, self._args, lease=True, **self._how))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.decision is not None:
            raised = kind is not None and not issubclass(kind, GeneratorExit)
            self._guard.report(self.decision, ok=not raised and not self._failed)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.__exit__(kind, error, trace)

    def _admitted(self, decision: Decision) -> Permit:
        self._guard.raise_for(decision)
        self.decision = decision
        return self
