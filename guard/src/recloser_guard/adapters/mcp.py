"""MCP: a client session whose `call_tool` asks first.

    async with Client(server) as client:            # or ClientSession
        session = GuardedSession(client, guard)
        result = await session.call_tool("search", {"q": "x"})

A denied call is answered with a result that is an error and has the guard's text, as a tool's own error would
be. A halt raises `RunHalted`; with `raise_halts=False` it is such a result too, for hosts that end the run
themselves.
"""

from __future__ import annotations

from typing import Any

from mcp.types import CallToolResult

from recloser_guard.errors import CallDenied, RunHalted
from recloser_guard.guard import Guard


class GuardedSession:
    """A client session or client; all but `call_tool` goes to it unchanged.

    `prefix` stands before a tool's name where telemetry names it so, for example `files__`.
    """

    def __init__(self, session: Any, guard: Guard, *, prefix: str = "", raise_halts: bool = True) -> None:
        self._session = session
        self._guard = guard
        self._prefix = prefix
        self._raise_halts = raise_halts

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    async def call_tool(
        self, name: str, arguments: dict[str, Any] | None = None, *more: Any, **options: Any
    ) -> Any:
        """Call a tool if it may be called; the call is cancelled when its run is halted meanwhile."""
        try:
            async with self._guard.permit(self._prefix + name, arguments or {}) as permit:
                result = await self._guard.run(self._session.call_tool(name, arguments, *more, **options))
                if getattr(result, "is_error", getattr(result, "isError", False)):
                    permit.failed()
                return result
        except CallDenied as refusal:
            return _error(refusal.message_for_model)
        except RunHalted as refusal:
            if self._raise_halts:
                raise
            return _error(refusal.message_for_model)


def _error(text: str) -> Any:
    return CallToolResult.model_validate({"content": [{"type": "text", "text": text}], "isError": True})
