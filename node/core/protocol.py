"""A replication protocol is data: one rule chosen at each decision point (design section 3).

No subclass per protocol and no test on a protocol's name anywhere: the core asks these fields.
`expected` says what each protocol is meant to do to each property, with the citation.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal

from node.errors import UsageError


class Truncation(Enum):
    """How a follower finds out where its log leaves the leader's."""

    ON_FETCH = "every fetch carries the last epoch, the answer the diverging one (KIP-595)"


class Commit(Enum):
    """When the high watermark may pass a record."""

    ISR = "all of the maximal ISR have it, and the committed ISR is at least MinISR (KIP-966)"
    MAJORITY = "a majority of the voters has it, or has a later one of the leader's own epoch"


class LeaderBy(Enum):
    """Who decides which replica leads."""

    CONTROLLER = "the controller, from the ISR, then the ELR"
    VOTES = "a majority of the voters"


class Restart(Enum):
    """What a new incarnation of a broker means to the controller."""

    AFTER_FENCING = "registers once the old incarnation is fenced; unclean ones leave ISR and ELR"


Expected = Literal["holds", "violable"]

PROPERTIES: Final = (
    "no-lost-acknowledged-write",
    "committed-prefix-agreement",
    "offsets-and-order",
    "reads-below-hw",
    "log-and-metadata",
    "liveness",
)


@dataclass(frozen=True, slots=True)
class Protocol:
    """One way to replicate a log, as choices at decision points.

    `tells_hw_at_once`: a waiting follower's fetch is answered when the high watermark moves, not
    only with the next data or at the end of its wait.
    """

    name: str
    citation: str
    truncation: Truncation
    commit: Commit
    leader_by: LeaderBy
    restart: Restart
    tells_hw_at_once: bool
    expected: tuple[tuple[str, Expected], ...]


_ALL_HOLD: Final[tuple[tuple[str, Expected], ...]] = tuple((p, "holds") for p in PROPERTIES)

KAFKA: Final = Protocol(
    name="kafka",
    citation="KIP-320, KIP-595 (truncate on fetch), KIP-497, KIP-903, KIP-966 (ISR, ELR)",
    truncation=Truncation.ON_FETCH,
    commit=Commit.ISR,
    leader_by=LeaderBy.CONTROLLER,
    restart=Restart.AFTER_FENCING,
    tells_hw_at_once=False,
    expected=_ALL_HOLD,
)
QUORUM: Final = Protocol(
    name="quorum",
    citation="the high-water mark pattern with Raft's rules, by pull as in KIP-595",
    truncation=Truncation.ON_FETCH,
    commit=Commit.MAJORITY,
    leader_by=LeaderBy.VOTES,
    restart=Restart.AFTER_FENCING,
    tells_hw_at_once=True,
    expected=_ALL_HOLD,
)

METADATA_PROTOCOL: Final = QUORUM
"""The metadata partition is replicated by votes, whatever the data partitions use."""

REGISTRY: Final = {KAFKA.name: KAFKA}
"""Protocols that data partitions can be run under."""


def protocol(name: str) -> Protocol:
    """The protocol of that name. Raises UsageError listing the known ones."""
    found = REGISTRY.get(name)
    if found is None:
        raise UsageError(f"unknown protocol '{name}' (known: {', '.join(REGISTRY)})")
    return found
