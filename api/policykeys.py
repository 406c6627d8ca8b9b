"""The keys of a policy file, their types and defaults. What they mean is checked in `api.policyfile`."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model

from control.breakers.settings import BreakerSettings

Texts = tuple[str, ...]
Severity = Literal["info", "warning", "critical"]
Action = Literal["replan", "deny", "halt"]
Reach = Literal[
    "session", "session_tool", "session_args", "run", "agent", "service_agent", "tool", "service_tool"
]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Keys(BaseModel):
    """A table; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class TripKeys(Keys):
    """What a rule trips."""

    scope: Reach = Field("session_tool", description="What the breaker covers")
    action: Action = Field("deny", description="How strong it is")
    open_s: Seconds | None = Field(None, description="Seconds until it tries again; none: as breakers do")
    quarantine: bool = Field(default=False, description="The refusal names the tainted steps")
    shadow: bool = Field(default=False, description="Record what would have been stopped, stop nothing")


class RuleKeys(Keys):
    """`[[rule]]`: which findings, who hears of them, what they trip."""

    name: str = Field("", description="Its name in breakers, alerts and audit")
    kinds: Texts = Field((), description="Kinds of findings; empty means all")
    severities: Texts = Field((), description="Exactly these severities, instead of `min_severity`")
    min_severity: Severity | None = Field(
        None, description="Least severity; none: critical where it trips, else warning"
    )
    services: Texts = Field((), description="Patterns of services")
    agents: Texts = Field((), description="Patterns of agents")
    tools: Texts = Field((), description="Patterns of tools")
    sessions: Texts = Field((), description="Patterns of sessions")
    hours: str | Texts = Field((), description="Times of the week at which it holds; empty means always")
    timezone: str = Field("UTC", description="IANA name of the time zone of `hours`")
    alert: Texts | None = Field(None, description="Destinations; empty: nobody; none: it does not say")
    trip: TripKeys | None = Field(None, description="The breaker it opens; none: it trips nothing")
    shadow: bool = Field(default=False, description="Trip in shadow only; `alert` and `stop` do not count")
    stop: bool = Field(default=False, description="Ask no later rule about what this one means")


class ThresholdKeys(Keys):
    """`[[threshold]]`: failed calls in a row that open a breaker."""

    name: str = Field("", description="Its name in breakers and audit")
    scope: Literal["service_tool", "tool", "session_tool", "session", "agent", "service_agent"] = Field(
        "service_tool", description="What is counted together and what the breaker covers"
    )
    failures: int = Field(5, gt=0, description="Failed calls in a row")
    sessions: int | None = Field(
        None,
        gt=0,
        description="So many different sessions at least; none: 3, for scopes of one session 1",
    )
    nature: Texts = Field(("structural",), description="Natures of errors that count")
    services: Texts = Field((), description="Patterns of services")
    agents: Texts = Field((), description="Patterns of agents")
    tools: Texts = Field((), description="Patterns of tools")
    open_s: Seconds = Field(60.0, description="Seconds until it tries again")
    action: Action = Field("deny", description="How strong the breaker is")
    shadow: bool = Field(default=False, description="Record what would have been stopped, stop nothing")


class BudgetKeys(Keys):
    """`[[budget]]`: what clients reserve before they spend it."""

    name: str = Field(min_length=1, description="Its name in the API")
    per: Literal["session", "agent", "service", "tenant"] = Field(
        "session", description="Each of these has one of its own"
    )
    unit: Literal["calls", "tokens", "usd"] = Field(description="What is counted")
    limit: float = Field(gt=0, allow_inf_nan=False, description="How much may be spent in a window")
    window_s: float = Field(0.0, ge=0, allow_inf_nan=False, description="Seconds of a window; 0: for ever")
    ttl_s: Seconds = Field(120.0, description="Seconds after which a reservation is given back")


class WhenKeys(Keys):
    """When a mode holds."""

    kind: str = Field("tool_degraded", description="Kind of finding that says a tool is degraded")
    tools: int = Field(1, gt=0, description="So many tools of the agent's service at least")


class ModeKeys(Keys):
    """`[[mode]]`: how much an agent may do while its tools are degraded."""

    name: str = Field("", description="Its name in the audit")
    agent: str | Texts = Field("*", description="Pattern or patterns of agents")
    services: Texts = Field((), description="Patterns of services whose tools count")
    tools: Texts = Field((), description="Patterns of tools that count")
    when: WhenKeys = Field(WhenKeys(), description="When it holds")
    mode: Literal["minimal", "deterministic"] = Field("minimal", description="The mode")
    hold_s: Seconds = Field(900.0, description="Seconds that a tool counts after its last finding")


class CheckKeys(Keys):
    """`[check]`: what checks refuse besides breakers."""

    known_dead_calls: bool = Field(
        default=False, description="Refuse calls whose failure is known until something changed"
    )


_BREAKER: Any = {field.name: (type(field.default), field.default) for field in fields(BreakerSettings)}
BreakerKeys = create_model("BreakerKeys", __base__=Keys, **_BREAKER)


class FileKeys(Keys):
    """A policy file."""

    rule: tuple[RuleKeys, ...] = ()
    threshold: tuple[ThresholdKeys, ...] = ()
    budget: tuple[BudgetKeys, ...] = ()
    mode: tuple[ModeKeys, ...] = ()
    breaker: BreakerKeys = Field(default_factory=BreakerKeys)
    check: CheckKeys = CheckKeys()
