"""What happens to a call when nobody can be asked: by the tool's fail mode."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from recloser_guard.errors import GuardError

MODES = ("open", "closed")


class FailModes:
    """`open` lets a call through, `closed` refuses it.

    `modes` has `default`, `critical`, and patterns of tool names (`"delete_*"`), of which the first that fits
    wins; `critical` are the patterns of tools that are critical without being named at each call. Raises
    `GuardError` naming the key.
    """

    def __init__(self, modes: Mapping[str, str], critical: Iterable[str] = ()) -> None:
        for key, mode in modes.items():
            if mode not in MODES:
                raise GuardError(f"fail_mode.{key}: must be one of {', '.join(MODES)}, not {mode!r}")
        self._default = modes.get("default", "open")
        self._critical_mode = modes.get("critical", "closed")
        self._patterns = [(k, mode) for k, mode in modes.items() if k not in ("default", "critical")]
        self._critical = tuple(critical)

    def closed(self, tool: str | None, *, critical: bool | None) -> bool:
        """Tell whether a call of `tool` is refused when nobody can be asked."""
        name = tool or ""
        if critical is None:
            for pattern, mode in self._patterns:
                if fnmatchcase(name, pattern):
                    return mode == "closed"
            critical = any(fnmatchcase(name, pattern) for pattern in self._critical)
        return (self._critical_mode if critical else self._default) == "closed"


def message_when_unreachable(tool: str | None) -> str:
    """Return what the model is told when a critical call is refused because nobody could be asked."""
    what = f"the tool `{tool}`" if tool else "this step"
    return (
        f"Stopped by Recloser: whether {what} may be used now cannot be checked, because the control plane "
        "does not answer, and it is only allowed when that can be checked. Do not try it again at once. Go "
        "on with what does not need it, or end with what you have and say what is missing."
    )
