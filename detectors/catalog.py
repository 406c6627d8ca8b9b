"""The detectors by name, and how third parties add theirs.

A package adds a detector with an entry point in the group `recloser.detectors` whose object is a `Kind`:

    [project.entry-points."recloser.detectors"]
    my_detector = "my_package:KIND"
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, cast

from detectors.budget import Budget, BudgetConfig
from detectors.cascade import Cascade, CascadeConfig
from detectors.context_spiral import ContextSpiral, ContextSpiralConfig
from detectors.dependency_missed import DependencyMissed, DependencyMissedConfig
from detectors.doom_loop import DoomLoop, DoomLoopConfig
from detectors.duplicate_side_effect import DuplicateSideEffect, DuplicateSideEffectConfig
from detectors.engine import DetectorFactory
from detectors.flail import Flail
from detectors.flail_config import FlailConfig
from detectors.fleet_storm import FleetStorm, FleetStormConfig
from detectors.hallucinated_call import HallucinatedCall, HallucinatedCallConfig
from detectors.keys import Key, by_agent, by_service_agent, by_session, by_target, by_tool
from detectors.known_dead_call import KnownDeadCall, KnownDeadCallConfig
from detectors.learned_budget import LearnedBudget, LearnedBudgetConfig
from detectors.no_progress import NoProgress, NoProgressConfig
from detectors.oversized_result import OversizedResult, OversizedResultConfig
from detectors.parameter_drift import ParameterDrift, ParameterDriftConfig
from detectors.result_baseline import ResultBaseline, ResultBaselineConfig
from detectors.retry_storm import RetryStorm, RetryStormConfig
from detectors.schema_drift import SchemaDrift, SchemaDriftConfig
from detectors.soft_failure import SoftFailure, SoftFailureConfig
from detectors.tool_degraded import ToolDegraded, ToolDegradedConfig
from detectors.tool_policy import ToolPolicy
from detectors.tuning import Tuned

if TYPE_CHECKING:
    from detectors.protocol import Detector

ENTRY_POINTS = "recloser.detectors"
POLICY = "tools"
_TRUTH = {
    "true": True,
    "1": True,
    "yes": True,
    "on": True,
    "false": False,
    "0": False,
    "no": False,
    "off": False,
}


@dataclass(frozen=True, slots=True)
class Kind:
    """A sort of detector: `config` is a dataclass with a default for every field.

    `make` builds one from the settings, those that differ for some tools included. `finds` are the kinds of
    findings that it may say, by which policies choose. `key` says whose steps one instance sees together. A
    config field `shadow: bool`, where there is one, is honoured by the engine.
    """

    config: type
    make: Callable[[Tuned[Any]], Detector]
    finds: tuple[str, ...]
    key: Key = by_agent


BUILT_IN: Mapping[str, Kind] = {
    "cascade": Kind(CascadeConfig, Cascade, finds=("cascade",), key=by_session),
    "doom_loop": Kind(DoomLoopConfig, DoomLoop, finds=("doom_loop",)),
    "duplicate_side_effect": Kind(
        DuplicateSideEffectConfig, DuplicateSideEffect, finds=("duplicate_side_effect",), key=by_session
    ),
    "flail": Kind(FlailConfig, Flail, finds=("flail",)),
    "known_dead_call": Kind(KnownDeadCallConfig, KnownDeadCall, finds=("known_dead_call",)),
    "no_progress": Kind(NoProgressConfig, NoProgress, finds=("no_progress",)),
    "context_spiral": Kind(ContextSpiralConfig, ContextSpiral, finds=("context_spiral",)),
    "oversized_result": Kind(OversizedResultConfig, OversizedResult, finds=("oversized_result",)),
    "retry_storm": Kind(RetryStormConfig, RetryStorm, finds=("retry_storm",)),
    "hallucinated_call": Kind(
        HallucinatedCallConfig, HallucinatedCall, finds=("hallucinated_call",), key=by_session
    ),
    "parameter_drift": Kind(ParameterDriftConfig, ParameterDrift, finds=("parameter_drift",)),
    "dependency_missed": Kind(DependencyMissedConfig, DependencyMissed, finds=("dependency_missed",)),
    "schema_drift": Kind(SchemaDriftConfig, SchemaDrift, finds=("schema_drift",), key=by_service_agent),
    "fleet_retry_storm": Kind(FleetStormConfig, FleetStorm, finds=("retry_storm",), key=by_target),
    "soft_failure": Kind(SoftFailureConfig, SoftFailure, finds=("soft_failure",)),
    "result_baseline": Kind(ResultBaselineConfig, ResultBaseline, finds=("soft_failure",), key=by_tool),
    "tool_degraded": Kind(ToolDegradedConfig, ToolDegraded, finds=("tool_degraded",), key=by_tool),
    "budget": Kind(BudgetConfig, Budget, finds=("budget",), key=by_session),
    "learned_budget": Kind(LearnedBudgetConfig, LearnedBudget, finds=("budget",), key=by_service_agent),
}


def third_party() -> dict[str, Kind]:
    """Load the kinds that installed packages offer; raises TypeError when one offers something else."""
    kinds: dict[str, Kind] = {}
    for point in entry_points(group=ENTRY_POINTS):
        kind = point.load()
        if not isinstance(kind, Kind):
            raise TypeError(
                f"entry point {point.name} = {point.value} must be a detectors.catalog.Kind, not {kind!r}"
            )
        kinds[point.name] = kind
    return kinds


def unknown_findings(wanted: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return which of the `wanted` kinds of findings no detector can say, and all that can be said, sorted.

    Packages of third parties are only loaded when a built-in detector does not say one of them.
    """
    known = {kind for detector in BUILT_IN.values() for kind in detector.finds}
    wanted = set(wanted)
    if not wanted <= known:
        known |= {kind for detector in third_party().values() for kind in detector.finds}
    return sorted(wanted - known), sorted(known)


def build(
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    kinds: Mapping[str, Kind] | None = None,
) -> dict[str, DetectorFactory]:
    """Factories for the engine: all kinds, with the settings by name; `enabled = false` leaves one out.

    Within a detector's settings, `tools` and `agents` hold by name the ones that differ there. The name
    `tools` beside the detectors' is `tool_policy`'s. A text that spells a value of the setting's type is
    taken for it: environment variables know no other, and lists in them are parted by commas. Raises
    ValueError naming the key that is unknown or out of range.

    >>> "doom_loop" in build(), "doom_loop" in build({"doom_loop": {"enabled": "false"}})
    (True, False)
    >>> build({"doom_loop": {"tools": {"bash": {"errorz": 3}}}})
    Traceback (most recent call last):
    ValueError: unknown setting detectors.doom_loop.tools.bash.errorz
    """
    settings = settings or {}
    kinds = {**BUILT_IN, **third_party()} if kinds is None else kinds
    for name in settings:
        if name not in kinds and name != POLICY:
            raise ValueError(f"unknown detector detectors.{name}; there are {', '.join(sorted(kinds))}")
    factories: dict[str, DetectorFactory] = {}
    for name, kind in kinds.items():
        values = dict(settings.get(name, {}))
        agents = _table(f"detectors.{name}.agents", values.pop("agents", {}))
        base = _factory(f"detectors.{name}", kind, values)
        if agents and not kind.key.of_agent:
            raise ValueError(f"detectors.{name}.agents: this detector does not judge agents one by one")
        apart = {
            agent: _factory(f"detectors.{name}.agents.{agent}", kind, {**values, **changed})
            for agent, changed in agents.items()
        }
        if base is not None:
            factories[name] = dataclasses.replace(base, agents=apart)
        elif any(apart.values()):
            raise ValueError(f"detectors.{name}.agents: the detector itself is off; set shadow there instead")
    return factories


def tool_policy(settings: Mapping[str, Mapping[str, Any]] | None = None) -> ToolPolicy:
    """What the settings under `tools` say of a team's tools, for all detectors.

    Raises ValueError naming the key that is unknown or ill-typed.

    >>> tool_policy({"tools": {"poll": "ci_state, job"}}).poll
    ('ci_state', 'job')
    """
    given = dict((settings or {}).get(POLICY, {}))
    return cast("ToolPolicy", _config(f"detectors.{POLICY}", ToolPolicy, given))


def _factory(path: str, kind: Kind, given: Mapping[str, Any]) -> DetectorFactory | None:
    """The factory that a detector's settings ask for; None when they switch it off."""
    values = dict(given)
    tools = _table(f"{path}.tools", values.pop("tools", {}))
    enabled = _setting(f"{path}.enabled", values.pop("enabled", True), default=True)
    config: Any = _config(path, kind.config, values)
    configs: dict[str, Any] = {}
    switched: dict[str, bool | None] = {}
    for tool, changed in tools.items():
        of_tool = dict(changed)
        on = _setting(f"{path}.tools.{tool}.enabled", of_tool.pop("enabled", True), default=True)
        configs[tool] = _config(f"{path}.tools.{tool}", kind.config, {**values, **of_tool})
        switched[tool] = bool(getattr(configs[tool], "shadow", False)) if on else None
    if not enabled:
        return None
    tuned = Tuned(config, configs)
    shadow = bool(getattr(config, "shadow", False))
    return DetectorFactory(lambda: kind.make(tuned), shadow=shadow, key=kind.key, tools=switched)


def _table(key: str, value: object) -> Mapping[str, Mapping[str, Any]]:
    """Return settings by name. Raises ValueError naming the key that holds something else."""
    if not isinstance(value, Mapping):
        raise ValueError(f"{key} must be a table of names, not {value!r}")  # noqa: TRY004 - settings: one error for all
    for name, inner in value.items():
        if not isinstance(inner, Mapping):
            raise ValueError(f"{key}.{name} must be a table, not {inner!r}")  # noqa: TRY004 - as above
    return value


def _config(path: str, config: type, values: Mapping[str, Any]) -> object:
    """Make a config dataclass. Raises ValueError naming a key that is unknown, ill-typed or out of range."""
    known = {field.name: field for field in dataclasses.fields(config)}
    typed: dict[str, object] = {}
    for key, value in values.items():
        if key not in known:
            raise ValueError(f"unknown setting {path}.{key}")
        typed[key] = _setting(f"{path}.{key}", value, known[key].default)
    try:
        return config(**typed)
    except ValueError as error:
        name, dot, rest = str(error).partition(".")
        raise ValueError(f"{path}.{rest}" if dot and " " not in name else f"{path}: {error}") from error


def _setting(key: str, given: object, default: object) -> object:
    """Return a setting as a value of its default's type. Raises ValueError naming the key."""
    value = _spelled(given, default) if isinstance(given, str) else given
    if isinstance(default, tuple) and isinstance(value, (list, tuple)):
        if not all(isinstance(item, str) for item in value):
            raise ValueError(f"{key} must be a list of texts, not {given!r}")
        return tuple(value)
    if not _alike(value, default):
        raise ValueError(f"{key} must be {type(default).__name__}, not {given!r}")
    return value


def _spelled(text: str, default: object) -> object:
    """Read a text as a value of the default's type; the text itself when it spells none."""
    match default:
        case bool():
            return _TRUTH.get(text.strip().lower(), text)
        case int() | float():
            try:
                return type(default)(text)
            except ValueError:
                return text
        case tuple():
            return _spelled_list(text)
    return text


def _spelled_list(text: str) -> object:
    """Read a text as a list: JSON, or parts with commas between them."""
    if not text.lstrip().startswith("["):
        return [part for part in map(str.strip, text.split(",")) if part]
    try:
        return json.loads(text)
    except ValueError:
        return text


def _alike(value: object, default: object) -> bool:
    """Tell whether a setting has its default's type; an integer will do for a float."""
    if isinstance(default, float):
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return type(value) is type(default)
