"""Metadata of a run: what its files say of it as a whole, as far as verdicts depend on that."""

from __future__ import annotations

from typing import Final

import msgspec

from harness.formats.problem import Problem
from harness.formats.run_info import MemberRecord, Phases, Promise

RECOVERY_LIMIT_MS: Final = 7500


class RunMeta(msgspec.Struct, frozen=True, kw_only=True):
    """The part of `run.json` and `schedule.json` that verdicts depend on."""

    run: str = ""
    protocol: str = ""
    state: str = "finished"
    world: str = ""
    seal: str = ""
    # The files that the system says it leaves; `declared`: whether run.json lists them at all.
    capabilities: tuple[str, ...] = ()
    declared: bool = False
    promise: Promise = Promise()
    # Whether every field of the promise is known: one that is not might allow anything.
    promise_understood: bool = True
    partitions: dict[str, tuple[str, ...]] = {}
    brokers: tuple[str, ...] = ()
    voters: tuple[str, ...] = ()
    phases: Phases = msgspec.field(default_factory=Phases)
    recovery_limit_ms: int = RECOVERY_LIMIT_MS
    problems: list[Problem] = []
    bypassed: tuple[str, ...] = ()
    membership: MemberRecord | None = None
    # "" for our own runs; else the form of the history of another tool, "edn", "jepsen" or "own".
    source: str = ""
    # Clients read until they had everything or gave up: records not read by then are unseen.
    complete_reads: bool = False
    drawn: bool = False
    faults: tuple[str, ...] = ()
    min_isr: int = 0
    scripted: bool = False
    operations: tuple[tuple[str, str], ...] = ()
    """The operations that the schedule itself names, and how each must end ("ok" or "any")."""

    @property
    def is_jepsen(self) -> bool:
        """Return whether the history is Jepsen's: its values are unique within a partition."""
        return self.source in ("edn", "jepsen")

    @property
    def impaired(self) -> bool:
        """Return whether a problem of the run may have stopped the cluster or its clients. Then an
        operation that did not happen proves nothing."""
        return any(problem.impairs for problem in self.problems)

    @property
    def broken(self) -> bool:
        """Return whether a problem may have ended a part of the run, not only delayed it."""
        return any(problem.breaks for problem in self.problems)

    @property
    def final_reads_had_time(self) -> bool:
        """Return whether the final reads went on until they had everything or made no more
        progress. They did if the cluster was stopped after them; a harness that was killed did not
        wait for them."""
        return self.phases.end_us > self.phases.final_us > 0

    def is_undeclared(self, capability: str) -> bool:
        """Return whether files of the kind `capability` are no evidence, because run.json does not
        declare it. If run.json cannot be read, all files are examined."""
        return self.declared and capability not in self.capabilities

    def nodes(self) -> tuple[str, ...]:
        """Return the brokers and voters, which all leave a trace."""
        return self.brokers + self.voters

    @property
    def convergence_due_us(self) -> int:
        """The time from which replicas must not contradict each other: all are in sync again after
        the heal, or the recovery limit has passed."""
        return min(self._limit_us, self.phases.in_sync_us or self._limit_us)

    @property
    def copied_due_us(self) -> int:
        """The time from which all replicas must have the whole log: `convergence_due_us`; for a
        system without traces the recovery limit, because it may call a replica in sync that still
        copies."""
        return self._limit_us if self.is_undeclared("trace") else self.convergence_due_us

    @property
    def _limit_us(self) -> int:
        return self.phases.heal_us + self.recovery_limit_ms * 1000

    def since_storm(self, t_us: int) -> str:
        """Format a time as seconds since the storm began."""
        origin = self.phases.storm_us or self.phases.start_us
        return f"{(t_us - origin) / 1e6:.3f} s"
