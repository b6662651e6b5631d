"""The display of a run that is under way."""

from __future__ import annotations

from typing import NamedTuple


class ProgressState(NamedTuple):
    """The state of a run at one moment: operations so far, leaders by partition, active faults."""

    acked: int = 0
    failed: int = 0
    unknown: int = 0
    leaders: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()


class ProgressDisplay:
    """A display of the phases of a run. This base class shows nothing."""

    def phase(self, name: str, limit_s: float = 0.0) -> None:
        """Show that a new phase begins; it should take `limit_s` seconds (0: unknown)."""

    def show(self, moment: ProgressState) -> None:
        """Show the state of the run at one moment."""
