"""What an exploration may do, and how often: the bounds within which it is complete."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from nemesis.formats.cluster_spec import Cluster
from node.core import bugs as catalogue
from node.core.protocol import LeaderBy, protocol
from node.formats.errors import UsageError

Times = Annotated[int, msgspec.Meta(ge=0, le=9)]


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """How often each kind of action may happen on one path, and the cluster it happens to.

    `copies` is the number of replicas of the one partition, 0: one on each broker.
    `restarts` None: as often as something was brought down. `records` are batches of one record;
    with `retries` each is of an idempotent producer, which may send its last one again.
    `late_registrations` are second copies of answers to registrations, `delays` messages that
    others overtake, `late_metadata` those of them that go to or come
    from a voter. `crashes` end a process between the commit of a turn and its messages (or, where a
    message did not wait for the commit, before that). `fencings` cut a broker off from the voters,
    `cuts` two brokers from each other, both until they are healed. With `calm` only faults of
    messages, crashes, power cuts and late messages come before the cluster is at rest.
    """

    protocol: str = "kafka"
    bugs: tuple[str, ...] = ()
    brokers: int = 2
    voters: int = 1
    copies: int = 0
    min_isr: int = 1
    flush: str = "sync"
    records: Times = 1
    retries: Times = 0
    reads: Times = 0
    kills: Times = 0
    voter_kills: Times = 0
    power_cuts: Times = 0
    crashes: Times = 0
    restarts: Times | None = None
    losses: Times = 0
    doubles: Times = 0
    late_registrations: Times = 0
    delays: Times = 0
    late_metadata: Times = 0
    cuts: Times = 0
    fencings: Times = 0
    elections: Times = 0
    moves: Times = 0
    calm: bool = False

    def cluster(self) -> Cluster:
        """The cluster that is explored."""
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
        """The same bounds with the names that the catalogues have. Raises UsageError for what there
        is no such cluster of."""
        if self.flush not in ("sync", "async"):
            raise UsageError(f"--flush is '{self.flush}', but must be sync or async")
        bugs = tuple(sorted({catalogue.canonical(name) for name in self.bugs}))
        made = msgspec.structs.replace(self, bugs=bugs, protocol=protocol(self.protocol).name)
        for problem in made.cluster().problems():
            raise UsageError(problem)
        return made

    @property
    def voted(self) -> bool:
        """Whether votes decide which broker leads."""
        return protocol(self.protocol).leader_by is LeaderBy.VOTES

    def budget(self) -> tuple[int, ...]:
        """How often each of `BUDGETS` may happen."""
        down = self.kills + self.voter_kills + self.power_cuts + self.crashes
        restarts = down if self.restarts is None else self.restarts
        return tuple(restarts if n == "restarts" else getattr(self, n) for n in BUDGETS)

    def words(self) -> str:
        """The bounds as a person reads them."""
        had = [
            f"{times} {_WORDS[name][times != 1]}"
            for name, times in zip(BUDGETS, self.budget(), strict=True)
            if times
        ]
        nodes = f"{self.brokers} brokers, {self.voters} {'voter' if self.voters == 1 else 'voters'}"
        bugs = f" with {', '.join(self.bugs)}" if self.bugs else ""
        return (
            f"{self.protocol}{bugs}: {nodes}, min_isr {self.min_isr}, flush {self.flush}; "
            f"at most {', '.join(had) or 'nothing'}{', nodes left alone but at rest' * self.calm}"
        )


BUDGETS: Final = (
    *("records", "retries", "reads", "kills", "voter_kills", "power_cuts", "crashes", "restarts"),
    *("losses", "doubles", "late_registrations", "delays", "late_metadata", "cuts", "fencings"),
    *("elections", "moves"),
)
"""The actions that are counted, in the order in which they are tried."""
_WORDS: Final = {
    "records": ("record", "records"),
    "retries": ("retry of a record", "retries of records"),
    "reads": ("read", "reads"),
    "kills": ("kill", "kills"),
    "voter_kills": ("kill of a voter", "kills of voters"),
    "power_cuts": ("power cut", "power cuts"),
    "crashes": ("crash before sending", "crashes before sending"),
    "restarts": ("restart", "restarts"),
    "losses": ("lost message", "lost messages"),
    "doubles": ("doubled message", "doubled messages"),
    "late_registrations": (
        "late copy of an answer to a registration",
        "late copies of answers to registrations",
    ),
    "delays": ("delayed message", "delayed messages"),
    "late_metadata": ("late message of a voter", "late messages of voters"),
    "cuts": ("cut between brokers", "cuts between brokers"),
    "fencings": ("cut of a broker from the voters", "cuts of brokers from the voters"),
    "elections": ("ordered election", "ordered elections"),
    "moves": ("move of replicas", "moves of replicas"),
}
