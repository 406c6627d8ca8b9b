"""The policy in force: one attribute that a reload swaps, and where the policy came from."""

from __future__ import annotations

from dataclasses import dataclass

from control.policy.policy import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a policy came from: a file's path or empty for the settings; when it was loaded (unix ns)."""

    path: str = ""
    sha256: str = ""
    loaded_at: int = 0


class PolicyHolder:
    """Holds the policy in force. `current` is read by any thread at any time; `swap` is for the one reloader.

    Whoever decides something reads `current` once, so that one decision is made under one policy.
    """

    def __init__(self, policy: Policy | None = None, source: Source | None = None) -> None:
        self.current = policy if policy is not None else Policy()
        self.source = source if source is not None else Source()

    def swap(self, policy: Policy, source: Source) -> None:
        """Put another policy in force."""
        self.source = source
        self.current = policy
