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


TRUNCATION: Final = (
    Exhibit(
        "truncate-to-own-hw", "M1",
        "a new follower cuts its log to its own high watermark",
        "Kafka before KIP-101 (0.11)", "no-lost-acknowledged-write", "kip-279",
    ),
    Exhibit(
        "truncate-to-leader-hw", "M1b",
        "a new follower cuts its log to its leader's high watermark",
        "the high-water mark pattern, literally", "no-lost-acknowledged-write", "kip-279",
    ),
    Exhibit(
        "never-truncate", "M1c",
        "a follower cuts only what lies beyond its leader's log end",
        "nobody; the reason for all the others", "committed-prefix-agreement",
    ),
    Exhibit(
        "epoch-end-without-epoch", "M2",
        "a new follower is told where its last epoch ends, but not of which epoch that is",
        "KAFKA-6361 (before KIP-279, 2.0)", "committed-prefix-agreement",
    ),
    Exhibit(
        "undefined-to-own-hw", "M2b",
        "a new follower is told the epoch; where the leader knows none that old, the own HW counts",
        "KIP-279 (2.0)", "committed-prefix-agreement",
    ),
    Exhibit(
        "one-round-only", "M2c",
        "after one cut a follower's fetches name no epoch any more",
        "KIP-279's assumption for clean elections", "committed-prefix-agreement",
    ),
    Exhibit(
        "no-local-lookup", "M2d",
        "a follower cuts to the leader's offset, whatever its own log says of that epoch",
        "KIP-595's rule, half", "committed-prefix-agreement",
    ),
    Exhibit(
        "compare-offsets-only", "M2e",
        "a leader compares where the follower's last epoch ends, and not which epoch it found",
        "KIP-595's rule, half", "committed-prefix-agreement",
    ),
    Exhibit(
        "lazy-epoch-cache", "M3",
        "a leader enters its epoch with its first record, not at its election",
        "KAFKA-7415 (before 2.0.1)", "committed-prefix-agreement", "kip-279",
    ),
    Exhibit(
        "keep-empty-epoch", "M14",
        "a follower names an epoch in which it led and wrote nothing, and keeps it in its cache",
        "KAFKA-10706", "liveness",
    ),
    Exhibit(
        "cut-inside-batch", "M15",
        "a cut inside a batch removes it all and leaves the log end at the cut, over a hole",
        "Kafka's LocalLog.truncateTo", "log-and-metadata", "kip-101",
    ),
)  # fmt: skip
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

QUORUM: Final = (
    Exhibit(
        "count-old-terms", "R1",
        "a record of an earlier term commits when a majority has it, with none of this term",
        "Raft's figure 8; LogCabin #44", "no-lost-acknowledged-write", "quorum",
    ),
    Exhibit(
        "forget-vote", "R2",
        "the candidate a voter chose is not kept over its restart",
        "PySyncObj", "log-and-metadata", "quorum",
    ),
    Exhibit(
        "cut-on-every-answer", "R3",
        "a follower cuts its log to where an answer begins, late or not",
        "PySyncObj", "no-lost-acknowledged-write", "quorum",
    ),
    Exhibit(
        "last-index-matches", "R4",
        "a follower's log end counts before its log is compared with the leader's",
        "the high-water mark pattern; KAFKA-13141", "no-lost-acknowledged-write", "quorum",
    ),
    Exhibit(
        "no-previous-check", "R4b",
        "records are appended by their index; what precedes them is not compared",
        "the high-water mark pattern, literally", "committed-prefix-agreement", "quorum",
    ),
    Exhibit(
        "ack-before-commit", "R6",
        "an acknowledgement leaves before the leader's own append is on its disk",
        "etcd #14370", "no-lost-acknowledged-write", "quorum",
    ),
)  # fmt: skip
"""Votes and majorities (R1-R9)."""

LIFTBRIDGE: Final[tuple[Exhibit, ...]] = ()
"""Defects of Liftbridge's code (LB1, LB2)."""

EXHIBITS: Final = (
    *TRUNCATION, *IN_SYNC_SET, *HIGH_WATERMARK, *CONTROLLER, *QUORUM, *LIFTBRIDGE,
)  # fmt: skip
