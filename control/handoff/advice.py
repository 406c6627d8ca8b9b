"""What was not tried, and what to do next by the prescription of the error's class: from the records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from control.handoff.onset import STREAK
from control.handoff.record import NextStep, Untried
from detectors.errors import Prescription
from detectors.role import Role
from detectors.tool_role import role_of_name

if TYPE_CHECKING:
    from detectors.notes import FailingPath, Notes
    from detectors.protocol import Finding

ASKING: Final = "asking a person"
SHOWN: Final = 6
TOOLS_SHOWN: Final = 10
LONG_WAIT_NS: Final = 30 * 10**9
_BY_KIND: Final = {
    "doom_loop": Prescription.REPLAN,
    "flail": Prescription.REPLAN,
    "retry_storm": Prescription.BACKOFF_RETRY,
    "known_dead_call": Prescription.REPLAN,
    "cascade": Prescription.REPLAN,
    "no_progress": Prescription.REPLAN,
    "context_spiral": Prescription.ESCALATE,
    "budget": Prescription.ESCALATE,
    "hallucinated_call": Prescription.REWRITE_ARGUMENTS,
    "parameter_drift": Prescription.REWRITE_ARGUMENTS,
    "schema_drift": Prescription.REWRITE_ARGUMENTS,
    "duplicate_side_effect": Prescription.ESCALATE,
    "tool_degraded": Prescription.SWITCH_CHANNEL,
}
_DO: Final = {
    Prescription.BACKOFF_RETRY: (
        "Stop the run, look whether {what} is up, and start it again when it answers; let tries be minutes "
        "apart, each pause twice the last."
    ),
    Prescription.REWRITE_ARGUMENTS: (
        "Give it the arguments of {what} right: compare one of the failed calls with the tool's schema and "
        "the error, then let it go on with the corrected call."
    ),
    Prescription.REFRESH_THEN_RETRY: "Renew the credentials that {what} uses, then let it try once more.",
    Prescription.SWITCH_CHANNEL: (
        "Do not try {what} again: mend what it lacks, or let it reach the same end with another tool."
    ),
    Prescription.REPLAN: (
        "Do not let it try {what} again in this way: say what the errors show, and let it make another plan "
        "that does without."
    ),
    Prescription.ESCALATE: (
        "Decide yourself how to go on with {what}: nothing that was recorded says that trying again helps."
    ),
}
_CREDENTIALS: Final = ("auth", "login", "signin", "credential", "token", "refresh", "secret")


def next_step(notes: Notes, finding: Finding | None, path: FailingPath | None) -> NextStep | None:
    """What to do next; None when nothing failed and nothing was found."""
    if path is not None:
        prescription = Prescription(path.prescription)
        because = f"{path.count} failures of class {path.error_class}"
        what = path.operation
    elif finding is not None:
        told = finding.evidence.get("prescription")
        known = isinstance(told, str) and told in set(Prescription)
        prescription = Prescription(str(told)) if known else _BY_KIND.get(finding.kind, Prescription.ESCALATE)
        because = f"{finding.kind}, {finding.occurrences} occurrences"
        what = finding.tool or "what it was doing"
    else:
        return None
    text = _DO[prescription].format(what=what)
    if path is not None and path.recovered_ns:
        text = f"{what} has worked since; look whether the run came to its end. Should it fail again: {text}"
    if path is not None and path.error:
        text += f" The error: {path.error}"
    risky = [one.tool for one in notes.effects if one.level in ("critical", "write") and not one.keyed]
    if risky:
        names = ", ".join(dict.fromkeys(risky))
        text += f" Before anything is started again: {names} worked already and must not happen twice."
    return NextStep(text=text, prescription=prescription.value, because=because)


def not_tried(notes: Notes, path: FailingPath | None) -> tuple[Untried, ...]:
    """What was not tried: first what the prescription asks for, then looking, other tools, asking."""
    if not notes.calls:
        return ()
    untried = _another_plan(notes, path)
    if path is not None:
        untried += _of_prescription(notes, path)
        untried += _another_tool(notes, path)
        if not notes.diagnoses:
            looks = "no call that only reads worked while something was failing"
            untried.append(Untried(what="looking for the cause", evidence=looks))
    if notes.not_tried:
        names = ", ".join(notes.not_tried[:TOOLS_SHOWN])
        more = len(notes.not_tried) - TOOLS_SHOWN
        what = f"tools that were offered: {names}" + (f" and {more} more" if more > 0 else "")
        counts = f"{len(notes.offered)} were offered, {len(notes.tried)} were called"
        untried.append(Untried(what=what, evidence=counts))
    if not notes.asked:
        untried.append(Untried(what=ASKING, evidence=f"none of {notes.calls} calls asks a person"))
    return tuple(untried[:SHOWN])


def _of_prescription(notes: Notes, path: FailingPath) -> list[Untried]:
    prescription = Prescription(path.prescription)
    untried: list[Untried] = []
    if prescription is Prescription.BACKOFF_RETRY:
        if path.longest_gap_ns < LONG_WAIT_NS:
            gap = f"the longest pause between two tries was {path.longest_gap_ns / 1e9:.1f} s"
            untried.append(Untried(what="waiting longer between tries", evidence=gap))
    elif prescription is Prescription.REWRITE_ARGUMENTS:
        if len(path.signatures) == 1 and path.count > 1:
            same = f"all {path.count} failures are of the same call"
            untried.append(Untried(what="other arguments", evidence=same))
    elif prescription is Prescription.REFRESH_THEN_RETRY and not any(
        word in tool.lower() for tool in notes.tried for word in _CREDENTIALS
    ):
        none = "no tool that was called renews any"
        untried.append(Untried(what="fresh credentials", evidence=none))
    return untried


def _another_plan(notes: Notes, path: FailingPath | None) -> list[Untried]:
    """A plan without what most calls since went to; the agent always came back to it."""
    ways = [] if path is None or not path.run else [(path.run, path.run_first_number, path.operation)]
    ways += [
        (one.same, one.run_first_number, f"{one.tool}({one.arguments})")
        for one in notes.repeats
        if one.same >= STREAK
    ]
    for times, first, what in sorted(ways, reverse=True):
        since = notes.calls - first + 1
        if times >= STREAK and 2 * times >= since:
            share = f"{times} of the {since} calls since call {first} went there, to the same end"
            return [Untried(what=f"a plan without {what}", evidence=share)]
    return []


def _another_tool(notes: Notes, path: FailingPath) -> list[Untried]:
    """Another tool of the same use (looks, changes), as far as their names tell."""
    use = role_of_name(path.tool)
    if use is None or use is Role.OTHER:
        return []
    others = [tool for tool in notes.tried if tool != path.tool and role_of_name(tool) is use]
    if others or path.count < STREAK:
        return []
    verb = {Role.LOOK: "looks", Role.CHANGE: "changes something"}.get(use)
    if verb is None:
        return []
    only = f"no other tool that {verb} was called"
    return [Untried(what=f"another tool than {path.tool}", evidence=only)]
