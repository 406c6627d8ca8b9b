"""Whose calls are asked about: what the guard was told, the context, and the call itself."""

from __future__ import annotations

from recloser_guard.context import CURRENT
from recloser_guard.index import Call
from recloser_guard.names import name_kept


class Caller:
    """What is the same for all calls of a guard."""

    def __init__(
        self, tenant: str, service: str | None, agent: str | None, agent_version: str | None
    ) -> None:
        self._tenant = tenant
        self._service = None if service is None else name_kept(service)
        self.agent = None if agent is None else name_kept(agent)
        self._agent_version = agent_version

    @property
    def name(self) -> str:
        """What to call it where a person reads it."""
        return self._service or self.agent or "guard"

    def call(  # noqa: PLR0917 - by position because it is on the fast path
        self,
        tool: str | None,
        session: str | None,
        run: str | None,
        agent: str | None,
        agent_version: str | None,
        model: str | None,
    ) -> Call:
        """Put a call together: itself before the context, the context before the guard."""
        current = CURRENT.get()
        session = session or current.session
        agent = agent or current.agent
        if agent is None:
            agent, version = self.agent, agent_version or current.agent_version or self._agent_version
        else:
            agent, version = name_kept(agent), agent_version or current.agent_version
        run = run or current.run
        model = model or current.model
        return Call(
            self._tenant,
            self._service,
            agent,
            None if session is None else name_kept(session),
            None if run is None else name_kept(run),
            None if tool is None else name_kept(tool),
            None,
            None if model is None else name_kept(model),
            None if agent is None or version is None else f"{agent}@{name_kept(version)}",
        )
