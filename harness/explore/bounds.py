"""The bounds of an exploration, which is complete within them, and its limits and request."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from harness.formats.options import READABLE, Budget, Bugs, Json, Quiet, Store
from nemesis.formats.cluster_spec import Cluster
from node.core import bugs as catalogue
from node.core.protocol import LeaderBy, protocol
from node.formats.errors import UsageError


def _times(what: str) -> msgspec.Meta:
    """Return the meta of a bound: how often something may happen."""
    return msgspec.Meta(ge=0, le=9, description=what)


def _number(le: int, what: str, *, ge: int = 1) -> msgspec.Meta:
    return msgspec.Meta(ge=ge, le=le, description=what)


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster, and how often each kind of action may happen to it on one path. Each of the
    `records` is a batch of one record. With `retries`, each has an idempotent producer of its own,
    and the last one may be sent again. `delays` are messages that arrive after later ones.
    `crashes` are ends of a process between a commit and the sending of its messages; if messages of
    the step are sent before the commit, the process ends before the commit."""

    protocol: Annotated[str, msgspec.Meta(description="The protocol to explore.")] = "kafka"
    bugs: Bugs = ()
    brokers: Annotated[int, _number(5, "Number of brokers.")] = 2
    voters: Annotated[int, _number(5, "Number of voters.")] = 1
    copies: Annotated[int, _number(5, "Replicas; 0: one on each broker.", ge=0)] = 0
    min_isr: Annotated[int, _number(5, "min.insync.replicas.")] = 1
    flush: Annotated[str, msgspec.Meta(description="sync or async.")] = "sync"
    records: Annotated[int, _times("Records that clients send.")] = 1
    retries: Annotated[int, _times("Records of idempotent producers that are sent again.")] = 0
    reads: Annotated[int, _times("Reads by clients.")] = 0
    kills: Annotated[int, _times("Kills of brokers.")] = 0
    voter_kills: Annotated[int, _times("Kills of voters.")] = 0
    power_cuts: Annotated[int, _times("Power cuts.")] = 0
    crashes: Annotated[int, _times("Ends of a process between its commit and its messages.")] = 0
    restarts: (
        Annotated[int, _times("Restarts [default: one for each process that ended].")] | None
    ) = None
    losses: Annotated[int, _times("Messages that are lost.")] = 0
    doubles: Annotated[int, _times("Messages with a second, late copy.")] = 0
    delays: Annotated[int, _times("Messages that others overtake.")] = 0
    cuts: Annotated[int, _times("Cuts between two brokers.")] = 0
    fencings: Annotated[int, _times("Cuts of a live broker from the voters.")] = 0
    elections: Annotated[int, _times("Elections by an operator.")] = 0
    moves: Annotated[int, _times("Moves of replicas by an operator.")] = 0
    calm: bool = False
    """Kills, records, reads and starts come only when no message is under way."""

    def cluster(self) -> Cluster:
        """Return the cluster that is explored, as a schedule would declare it."""
        return Cluster(
            protocol=self.protocol,
            bugs=self.bugs,
            brokers=self.brokers,
            voters=self.voters,
            partitions=1,
            replication_factor=self.copies or self.brokers,
            min_isr=self.min_isr,
            flush="async" if self.flush == "async" else "sync",
        )

    def checked(self) -> Bounds:
        """Return the bounds with the protocol and the bugs under their full names (a bug may be
        given by its code). Raises UsageError for a cluster that cannot exist."""
        if self.flush not in ("sync", "async"):
            raise UsageError(f"--flush is '{self.flush}', but must be sync or async")
        bugs = tuple(sorted({catalogue.canonical(name) for name in self.bugs}))
        made = msgspec.structs.replace(self, bugs=bugs, protocol=protocol(self.protocol).name)
        for problem in made.cluster().problems():
            raise UsageError(problem)
        return made

    @property
    def voted(self) -> bool:
        """Return whether replicas vote on the leader of the topic's partition."""
        return protocol(self.protocol).leader_by is LeaderBy.VOTES

    def budget(self) -> tuple[int, ...]:
        """Return how often each kind of action may happen, in the order of `BUDGETS`."""
        down = self.kills + self.voter_kills + self.power_cuts + self.crashes
        restarts = down if self.restarts is None else self.restarts
        return tuple(restarts if n == "restarts" else getattr(self, n) for n in BUDGETS)

    def words(self) -> str:
        """Return the bounds as one line of text for a person."""
        had = [
            f"{name.replace('_', ' ')} {times}"
            for name, times in zip(BUDGETS, self.budget(), strict=True)
            if times
        ]
        nodes = f"{self.brokers} brokers, {self.voters} {'voter' if self.voters == 1 else 'voters'}"
        bugs = f" with {', '.join(self.bugs)}" if self.bugs else ""
        return (
            f"{self.protocol}{bugs}: {nodes}, min_isr {self.min_isr}, flush {self.flush}; "
            f"at most: {', '.join(had) or 'nothing'}{', nodes left alone but at rest' * self.calm}"
        )


BUDGETS: Final = (
    *("records", "retries", "reads", "kills", "voter_kills", "power_cuts", "crashes", "restarts"),
    *("losses", "doubles", "delays", "cuts", "fencings", "elections", "moves"),
)
"""The kinds of actions that the bounds count, in the order in which they are tried."""


class ExploreRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to explore. `breaks`: the property that must be violated, "" for any."""

    bounds: Bounds = Bounds()
    breaks: str = ""
    memory: Annotated[int, Meta(ge=0, le=10**6, extra={"unit": "MiB"})] = 6000
    """Stop at this many MiB, or such as 2GB; 0: no limit."""
    budget_s: Budget = 0.0
    """Stop after this much processor time; 0s: no limit."""
    store: Store = Path("store")
    """Folder for results; they go to its explored/."""
    replay: Annotated[Path | None, Meta(extra=READABLE)] = None
    """Follow the path of this run folder of an earlier exploration again."""
    quiet: Quiet = False
    json: Json = False
