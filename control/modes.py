"""How much each agent may do: the degradation switch, driven by degraded tools and by people.

A mode by hand wins, in both directions, until its time has passed; else the strictest rule that holds.
What is degraded is known by service and tool; whoever asks for an agent without its service gets the
strictest mode over all services that the rule is about.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from control.actor import Actor
from control.audit import record
from control.policy.rules import Mode, ModeRule, fits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from control.db import ControlDb, Transaction
    from control.metrics import ControlMetrics
    from control.policy import PolicyHolder
    from detectors.protocol import Finding

_log = logging.getLogger(__name__)
_NS: Final = 1_000_000_000
_KEEP_S: Final = 86_400.0
_RULES: Final = Actor(type="system", id="modes")
MAX_TTL_S: Final = 30 * 86_400.0
"""Longest time for which a mode is set by hand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Degraded:
    """A tool that a finding says is degraded; `revised_at` is when it said so last (unix ns)."""

    finding_id: str
    kind: str
    service: str
    tool: str
    revised_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ByHand:
    """A mode that a person set for an agent, from and until when (unix ns)."""

    agent: str
    mode: Mode
    reason: str
    actor: str
    since: int
    until: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """A rule about modes that holds, for which services, because of which tools, since when (unix ns)."""

    rule: ModeRule
    services: tuple[str, ...]
    tools: tuple[str, ...]
    since: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeNow:
    """An agent's mode: `cause` is `default`, `rule:NAME` or `person:NAME`; `until` when it ends for sure."""

    agent: str
    mode: Mode
    cause: str
    until: int | None = None


class Modes:
    """Knows every agent's mode. Questions touch memory only and may come from any thread.

    A `Duty`: its turn tells which rules hold now, and ends what was set by hand.
    """

    name: Final = "modes"
    every_s: Final = 5.0

    def __init__(
        self,
        db: ControlDb,
        holder: PolicyHolder,
        metrics: ControlMetrics,
        now_ns: Callable[[], int],
    ) -> None:
        self._db = db
        self._holder = holder
        self._metrics = metrics
        self._now_ns = now_ns
        with db.reading() as connection:
            self._degraded: Mapping[str, Degraded] = {
                row["finding_id"]: Degraded(
                    finding_id=row["finding_id"],
                    kind=row["kind"],
                    service=row["service"],
                    tool=row["tool"],
                    revised_at=row["revised_ns"],
                )
                for row in connection.execute("SELECT * FROM degraded_tools")
            }
            self._by_hand: Mapping[str, ByHand] = {
                row["agent"]: ByHand(
                    agent=row["agent"],
                    mode=Mode(row["mode"]),
                    reason=row["reason"],
                    actor=row["actor"],
                    since=row["since_ns"],
                    until=row["until_ns"],
                )
                for row in connection.execute("SELECT * FROM modes_by_hand")
            }
            rows = connection.execute("SELECT * FROM modes_holding").fetchall()
        self._since: Mapping[str, tuple[Mode, int]] = {
            row["rule"]: (Mode(row["mode"]), row["since_ns"]) for row in rows
        }
        self._show()

    def mode_of(self, agent: str, service: str | None = None) -> Mode:
        """Return an agent's mode now: full, minimal or deterministic."""
        return self.now(agent, service).mode

    def now(self, agent: str, service: str | None = None) -> ModeNow:
        """Return an agent's mode now, and why."""
        at = self._now_ns()
        hand = self._by_hand.get(agent)
        if hand is not None and at < hand.until:
            return ModeNow(agent=agent, mode=hand.mode, cause=f"person:{hand.actor}", until=hand.until)
        found = ModeNow(agent=agent, mode=Mode.FULL, cause="default")
        for rule in self._holder.current.modes:
            if rule.mode.rank <= found.mode.rank or not rule.means(agent):
                continue
            if any(service in (None, affected) for affected in self._affected(rule, at)):
                found = ModeNow(agent=agent, mode=rule.mode, cause=f"rule:{rule.name}")
        return found

    def by_hand(self) -> list[ByHand]:
        """Return what people set and what has not ended, sorted by agent."""
        at = self._now_ns()
        return sorted((each for each in self._by_hand.values() if at < each.until), key=lambda e: e.agent)

    def degraded(self) -> list[Degraded]:
        """Return the tools that findings spoke of lately, sorted by service and tool."""
        return sorted(self._degraded.values(), key=lambda each: (each.service, each.tool))

    def holding(self) -> list[Holding]:
        """Return the rules that hold now, in the policy's order."""
        at = self._now_ns()
        found: list[Holding] = []
        for rule in self._holder.current.modes:
            affected = self._affected(rule, at)
            if affected:
                _, since = self._since.get(rule.name, (rule.mode, at))
                tools = sorted({tool for names in affected.values() for tool in names})
                found.append(
                    Holding(rule=rule, services=tuple(sorted(affected)), tools=tuple(tools), since=since)
                )
        return found

    def take(self, tx: Transaction, finding: Finding, found_ns: int) -> None:
        """Note what a finding says of a tool, if a rule is about its kind. One in shadow says nothing."""
        wanted = {rule.kind for rule in self._holder.current.modes}
        if finding.kind not in wanted or not finding.tool or finding.evidence.get("shadow"):
            return
        said = Degraded(
            finding_id=finding.id,
            kind=finding.kind,
            service=finding.service,
            tool=finding.tool,
            revised_at=found_ns,
        )
        tx.execute(
            "INSERT INTO degraded_tools (finding_id, kind, service, tool, revised_ns) VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT (finding_id) DO UPDATE SET revised_ns = excluded.revised_ns",
            (said.finding_id, said.kind, said.service, said.tool, said.revised_at),
        )
        tx.after_commit(lambda: self._put_degraded(said))

    def set_by_hand(self, agent: str, mode: Mode | None, actor: Actor, reason: str, ttl_s: float) -> ModeNow:
        """Set an agent's mode for `ttl_s` seconds; None hands it back to the rules.

        Raises `ValueError` naming the field.
        """
        if not agent:
            raise ValueError("agent: must not be empty")
        if mode is not None and not 0 < ttl_s <= MAX_TTL_S:
            raise ValueError(f"ttl_s: must be more than 0 and at most {MAX_TTL_S:g}, not {ttl_s:g}")
        at = self._now_ns()
        before = self.now(agent)
        hand = mode and ByHand(
            agent=agent, mode=mode, reason=reason, actor=actor.id, since=at, until=at + int(ttl_s * _NS)
        )
        with self._db.transaction() as tx:
            self._write_by_hand(tx, agent, hand or None)
            record(
                tx,
                at_ns=at,
                actor=actor,
                verb="mode",
                subject=f"agent {agent}",
                reason=reason,
                before={"mode": before.mode.value, "cause": before.cause},
                after={"mode": "by the rules" if mode is None else mode.value},
                extra={} if mode is None else {"ttl_s": ttl_s},
            )
        self._metrics.mode_changes.labels("by_hand").inc()
        self._show()
        return self.now(agent)

    def turn(self) -> None:
        """Tell which rules began and ended to hold, end what was set by hand, forget what is long over."""
        at = self._now_ns()
        holding = {each.rule.name: each for each in self.holding()}
        began = [each for name, each in holding.items() if self._other(name, each)]
        ended = [name for name in self._since if name not in holding]
        over = [each for each in self._by_hand.values() if each.until <= at]
        keep_s = max([_KEEP_S, *(rule.hold_s for rule in self._holder.current.modes)])
        forgotten = [each for each in self._degraded.values() if each.revised_at < at - keep_s * _NS]
        if not (began or ended or over or forgotten):
            return
        with self._db.transaction() as tx:
            for each in began:
                self._begin(tx, each, at)
            for name in ended:
                self._end(tx, name, at)
            for hand in over:
                self._expire(tx, hand, at)
            for tool in forgotten:
                tx.execute("DELETE FROM degraded_tools WHERE finding_id = ?", (tool.finding_id,))
            tx.after_commit(lambda: self._forget(forgotten))
        self._metrics.mode_changes.labels("began").inc(len(began))
        self._metrics.mode_changes.labels("ended").inc(len(ended))
        self._metrics.mode_changes.labels("expired").inc(len(over))
        self._show()

    def _other(self, name: str, holding: Holding) -> bool:
        known = self._since.get(name)
        return known is None or known[0] is not holding.rule.mode

    def _begin(self, tx: Transaction, holding: Holding, at: int) -> None:
        rule = holding.rule
        tx.execute(
            "INSERT INTO modes_holding (rule, mode, since_ns) VALUES (?, ?, ?) "
            "ON CONFLICT (rule) DO UPDATE SET mode = excluded.mode, since_ns = excluded.since_ns",
            (rule.name, rule.mode.value, at),
        )
        record(
            tx,
            at_ns=at,
            actor=_RULES,
            verb="mode",
            subject=f"rule {rule.name}",
            reason=f"{len(holding.tools)} tools are degraded",
            before={"mode": Mode.FULL.value},
            after={"mode": rule.mode.value},
            extra={
                "agents": list(rule.agents),
                "services": list(holding.services),
                "tools": list(holding.tools),
            },
        )
        _log.warning("agents %s are %s: %s are degraded", _any(rule.agents), rule.mode, _any(holding.tools))
        tx.after_commit(lambda: self._put_since(rule.name, (rule.mode, at)))

    def _end(self, tx: Transaction, name: str, at: int) -> None:
        mode, since = self._since[name]
        tx.execute("DELETE FROM modes_holding WHERE rule = ?", (name,))
        record(
            tx,
            at_ns=at,
            actor=_RULES,
            verb="mode",
            subject=f"rule {name}",
            reason="it holds no longer",
            before={"mode": mode.value},
            after={"mode": Mode.FULL.value},
            extra={"since": since},
        )
        _log.info("the rule %r about modes holds no longer", name)
        tx.after_commit(lambda: self._put_since(name, None))

    def _expire(self, tx: Transaction, hand: ByHand, at: int) -> None:
        self._write_by_hand(tx, hand.agent, None)
        record(
            tx,
            at_ns=at,
            actor=_RULES,
            verb="mode",
            subject=f"agent {hand.agent}",
            reason="the time for which it was set by hand has passed",
            before={"mode": hand.mode.value, "cause": f"person:{hand.actor}"},
            after={"mode": "by the rules"},
        )

    def _write_by_hand(self, tx: Transaction, agent: str, hand: ByHand | None) -> None:
        tx.execute("DELETE FROM modes_by_hand WHERE agent = ?", (agent,))
        if hand is not None:
            tx.execute(
                "INSERT INTO modes_by_hand (agent, mode, reason, actor, since_ns, until_ns) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                (agent, hand.mode.value, hand.reason, hand.actor, hand.since, hand.until),
            )
        tx.after_commit(lambda: self._put_by_hand(agent, hand))

    def _affected(self, rule: ModeRule, at: int) -> dict[str, set[str]]:
        """Return the services with enough degraded tools for a rule, and these tools."""
        tools: dict[str, set[str]] = {}
        for each in self._degraded.values():
            if (
                each.kind == rule.kind
                and at - each.revised_at < rule.hold_s * _NS
                and fits(rule.services, each.service)
                and fits(rule.tool_patterns, each.tool)
            ):
                tools.setdefault(each.service, set()).add(each.tool)
        return {service: names for service, names in tools.items() if len(names) >= rule.tools}

    # Mappings are replaced, never changed: other threads are reading them.
    def _put_degraded(self, said: Degraded) -> None:
        self._degraded = {**self._degraded, said.finding_id: said}

    def _forget(self, gone: Iterable[Degraded]) -> None:
        ids = {each.finding_id for each in gone}
        self._degraded = {key: each for key, each in self._degraded.items() if key not in ids}

    def _put_by_hand(self, agent: str, hand: ByHand | None) -> None:
        others = {name: each for name, each in self._by_hand.items() if name != agent}
        self._by_hand = others if hand is None else {**others, agent: hand}

    def _put_since(self, name: str, since: tuple[Mode, int] | None) -> None:
        others = {rule: each for rule, each in self._since.items() if rule != name}
        self._since = others if since is None else {**others, name: since}

    def _show(self) -> None:
        self._metrics.modes_holding.set(len(self._since))
        self._metrics.modes_by_hand.set(len(self._by_hand))


def _any(names: Iterable[str]) -> str:
    return ", ".join(names) or "*"
