"""What the watcher finds: the breach of an invariant, as a value."""

from __future__ import annotations

from typing import Final

import msgspec

from checker.formats.anomalies import AGREEMENT, LIVENESS, LOG, LOST_WRITES, OFFSETS, READS
from checker.formats.verdict import Witness

PROPERTY_OF: Final = {
    "acknowledged-lost": LOST_WRITES,
    "leader-completeness": AGREEMENT,
    "log-matching": AGREEMENT,
    "candidate-completeness": AGREEMENT,
    "consistent-read": OFFSETS,
    "read-below-hw": READS,
    "one-leader-per-epoch": LOG,
    "one-vote-per-term": LOG,
    "clean-election": LOG,
    "valid-isr-and-elr": LOG,
    "quorum-superset": LOG,
    "process-lives": LIVENESS,
}
"""The property of the catalogue that each invariant stands for."""

PRECURSORS: Final = frozenset({"candidate-completeness", "quorum-superset", "valid-isr-and-elr"})
"""Invariants inside the cluster: once broken, data *can* be lost, and nobody has noticed yet."""


class Breach(msgspec.Struct, frozen=True, kw_only=True):
    """One invariant that did not hold. `step` counts the run's events; `t_us` is virtual time."""

    invariant: str
    step: int
    t_us: int
    sentence: str
    partition: str = ""
    witnesses: tuple[Witness, ...] = ()

    @property
    def visible(self) -> bool:
        """Whether clients, traces or logs show it: whether the checker should see it too."""
        return self.invariant not in PRECURSORS

    @property
    def property(self) -> str:
        """The property that is broken, as the checker names it."""
        return PROPERTY_OF[self.invariant]
