"""The museum's catalogue: every historical bug that a switch can bring back.

One line of facts a bug: its name and code, what it changes, where it was seen, and the property
that must break. What the switches do is in the modules that consult them; docs/protocols.md tells
the stories and lists the bugs that this design cannot express.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Exhibit(NamedTuple):
    """One bug of the museum: what it changes, where it was seen, and what must catch it.

    `protocol` is one under which the bug is a bug: the decision it spoils is taken there.
    """

    name: str
    code: str
    summary: str
    seen_in: str
    breaks: str
    protocol: str = "kafka"


TRUNCATION: Final[tuple[Exhibit, ...]] = ()
"""How a follower cuts its log (M1-M3, M14, M15)."""

IN_SYNC_SET: Final[tuple[Exhibit, ...]] = ()
"""Who is counted as in sync (M4-M13)."""

HIGH_WATERMARK: Final = (
    Exhibit(
        "ack-before-isr", "M18",
        "acks=all is answered after the local append, before the ISR has the batch",
        "Redpanda #6018/#6019", "no-lost-acknowledged-write",
    ),
    Exhibit(
        "read-beyond-hw", "M19",
        "consumers are served up to the log end instead of the high watermark",
        "Redpanda #14794", "reads-below-hw",
    ),
)  # fmt: skip
"""What counts as committed, and who may see it (M16-M20, M23, M26)."""

CONTROLLER: Final = (
    Exhibit(
        "elect-any-replica", "M22",
        "the controller lets the first replica that lives lead, even outside ISR and ELR",
        "Kafka unclean leader election on by default (before 0.11)", "log-and-metadata",
    ),
)  # fmt: skip
"""What the controller decides (M9, M21-M25)."""

QUORUM: Final[tuple[Exhibit, ...]] = ()
"""Votes and majorities (R1-R9)."""

LIFTBRIDGE: Final = (
    Exhibit(
        "liftbridge-epoch-offset", "LB1",
        "a leader answers one too high where it learned the next leader epoch from records",
        "Liftbridge 26.01.1, leader epoch cache", "committed-prefix-agreement", "liftbridge",
    ),
    Exhibit(
        "liftbridge-fallback", "LB2",
        "a follower whose LeaderEpoch offset request failed three times cuts to its own HW",
        "Liftbridge 26.01.1, truncation of a follower", "no-lost-acknowledged-write", "liftbridge",
    ),
    Exhibit(
        "liftbridge-expand", "M5b",
        "a follower enters the ISR when it was caught up within the lag time, wherever it is now",
        "Liftbridge 26.01.1, ISR expansion", "no-lost-acknowledged-write", "liftbridge",
    ),
    Exhibit(
        "liftbridge-witness", "LB3",
        "reports about a leader outlive it and count against its successor",
        "Liftbridge 26.01.1, leader reports", "liveness", "liftbridge",
    ),
    Exhibit(
        "liftbridge-monotone", "LB4",
        "a follower that came back with a shorter log is counted at its old log end",
        "Liftbridge 26.01.1, in-sync offsets", "no-lost-acknowledged-write", "liftbridge",
    ),
)  # fmt: skip
"""Defects of Liftbridge's code (LB1, LB2, M5b, LB3, LB4)."""

EXHIBITS: Final = (
    *TRUNCATION, *IN_SYNC_SET, *HIGH_WATERMARK, *CONTROLLER, *QUORUM, *LIFTBRIDGE,
)  # fmt: skip
