"""A hand-off report out of what is known: pure, and silent where nobody recorded anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from control.action import Action
from control.breakers.states import State
from control.handoff import advice, causes
from control.handoff.cost import cost_of
from control.handoff.holding import held_by
from control.handoff.onset import STREAK, onset_of, trace_of
from control.handoff.record import FIELDS, NO_NEWS, Cost, Effect, Effects, Handoff, Held, Link, Onset, Path
from control.handoff.timeline import timeline_of
from detectors.notes import Notes

if TYPE_CHECKING:
    from control.breakers.record import Breaker
    from detectors.notes import FailingPath, Repeat
    from detectors.protocol import Finding

PATHS_SHOWN: Final = 8
EFFECTS_SHOWN: Final = 12
LINKS_SHOWN: Final = 12
_MARKS: Final = ("first_failure", "last_success")
_CRITICAL: Final = ("critical", "write")
_STOPS: Final = frozenset({State.OPEN, State.FORCED_OPEN})


def build(
    notes: Notes | None,
    findings: Sequence[Finding],
    breakers: Sequence[Breaker],
    now_ns: int,
    wide: Sequence[Breaker] = (),
) -> Handoff:
    """Make the report of a session, as of `now_ns` (unix nanoseconds).

    `notes` is None when they are gone: what only they tell is unknown then. `findings` are those of the
    session at their newest revision, `breakers` those that its findings opened, `wide` those over more than
    one session, which may hold it, too. Raises `ValueError` when
    there is neither a note nor a finding.
    """
    told = sorted((one for one in findings if not one.evidence.get("shadow")), key=_gravity)
    first = told[0] if told else None
    if notes is None:
        if first is None:
            raise ValueError("there is nothing that a report could be made of")
        notes = Notes(session_id=first.session_id, service=first.service, agent=first.agent)
    onset = onset_of(notes, told)
    reason = causes.reason(notes, first, onset)
    untried = advice.not_tried(notes, reason)
    held = held_by(notes, (*breakers, *wide))
    report = {
        "goal": notes.goal,
        "timeline": timeline_of(notes, told, breakers, onset),
        "failing_paths": _paths(notes),
        "causes": causes.of(notes, told),
        "onset": onset,
        "side_effects": _effects(notes),
        "not_tried": untried,
        "next_step": advice.next_step(notes, first, reason),
        "cost": cost_of(notes, onset, now_ns),
        "links": _links(notes, told, onset),
    }
    return Handoff(
        session_id=notes.session_id,
        run_id=notes.run_id or (first.run_id if first else ""),
        service=notes.service or (first.service if first else ""),
        agent=(first.agent if first else None) or notes.agent,
        made_ns=now_ns,
        state=_state(notes, held),
        kind=first.kind if first else "",
        severity=first.severity.value if first else "",
        headline=first.summary if first else "",
        held_by=held,
        unknown=tuple(name for name in FIELDS if not _is_filled(name, report)),
        **report,  # type: ignore[arg-type]  # the fields of the class, by name
    )


def _is_filled(name: str, report: Mapping[str, object]) -> bool:
    """Whether there is evidence behind a field."""
    value = report[name]
    match value:
        case causes.Causes(confirmed=confirmed, suspected=suspected):
            return bool(confirmed or suspected)
        case Effects(done=done, unclear=unclear):
            return bool(done) or not unclear
        case Cost(tokens=tokens, usd=usd):
            return tokens is not None or usd is not None
        case _ if name == "timeline":
            return isinstance(value, tuple) and len(value) > 1
        case _ if name == "not_tried":
            return isinstance(value, tuple) and any(one.what != advice.ASKING for one in value)
        case _:
            return bool(value)


def _gravity(finding: Finding) -> tuple[int, int]:
    return -finding.severity.rank, finding.started_at


def _state(notes: Notes, held: Sequence[Held]) -> str:
    if notes.ended_ns:
        return "ended"
    halts = any(one.action == Action.HALT and one.state in _STOPS for one in held)
    return "stopped" if halts else "running"


def _paths(notes: Notes) -> tuple[Path, ...]:
    """The paths, what goes on first, then the most frequent."""
    paths = [_path(path) for path in notes.paths]
    paths += [_idle(one) for one in notes.repeats if one.same >= STREAK and not one.failed]
    paths.sort(key=lambda path: (-path.in_a_row, -path.failures, path.first_ns))
    return tuple(paths[:PATHS_SHOWN])


def _idle(repeat: Repeat) -> Path:
    return Path(
        tool=repeat.tool,
        operation=repeat.tool,
        error_class=NO_NEWS,
        prescription="",
        failures=repeat.same,
        in_a_row=repeat.same,
        different=1,
        first_number=repeat.run_first_number,
        last_number=repeat.last_number,
        first_ns=repeat.run_first_ns,
        last_ns=repeat.last_ns,
        arguments=repeat.arguments,
        error="",
        recovered=False,
        step_ids=(repeat.run_first_step_id, repeat.last_step_id),
    )


def _path(path: FailingPath) -> Path:
    return Path(
        tool=path.tool,
        operation=path.operation,
        error_class=path.error_class,
        prescription=path.prescription,
        failures=path.count,
        in_a_row=path.run,
        different=len(path.signatures),
        first_number=path.first_number,
        last_number=path.last_number,
        first_ns=path.first_ns,
        last_ns=path.last_ns,
        arguments=path.arguments,
        error=path.error,
        recovered=bool(path.recovered_ns),
        step_ids=tuple(dict.fromkeys((path.first_step_id, path.last_step_id))),
    )


def _effects(notes: Notes) -> Effects | None:
    if not notes.calls:
        return None
    grave = sorted(notes.effects, key=lambda one: (one.level not in _CRITICAL, -one.last_ns))
    done = tuple(
        Effect(
            tool=one.tool,
            level=one.level,
            arguments=one.arguments,
            times=one.count,
            last_ns=one.last_ns,
            repeat_safe=one.keyed,
            step_id=one.step_id,
            span_id=one.span_id,
        )
        for one in grave[:EFFECTS_SHOWN]
    )
    return Effects(
        done=done,
        more=len(grave) - len(done) + notes.effects_forgotten,
        unclear=notes.unclear,
        unclear_tools=notes.unclear_tools,
        reads=notes.looks,
    )


def _links(notes: Notes, findings: Sequence[Finding], onset: Onset | None) -> tuple[Link, ...]:
    trace = trace_of(notes)
    links: list[Link] = []
    if onset is not None and onset.span_id:
        links.append(Link(what="onset", trace_id=onset.trace_id or trace, span_id=onset.span_id))
    links += [
        Link(what=f"found: {one.kind}", trace_id=one.trace_id, span_id=one.span_id)
        for one in findings
        if one.span_id
    ]
    links += [
        Link(what=mark.what.replace("_", " "), trace_id=trace, span_id=mark.span_id)
        for mark in notes.marks
        if mark.span_id and mark.what in _MARKS
    ]
    seen: dict[tuple[str, str], Link] = {}
    for link in links:
        seen.setdefault((link.what, link.span_id), link)
    return tuple(seen.values())[:LINKS_SHOWN]
