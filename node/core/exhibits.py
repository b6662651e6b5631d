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

IN_SYNC_SET: Final = (
    Exhibit(
        "expand-stale-process", "M4",
        "the fetch of a process before the registered one lets it into the ISR",
        "KIP-903, KAFKA-14139", "no-lost-acknowledged-write",
    ),
    Exhibit(
        "expand-fenced", "M4b",
        "a fenced replica may enter the ISR",
        "KIP-841, KAFKA-13916", "log-and-metadata",
    ),
    Exhibit(
        "expand-at-hw", "M5",
        "a follower at the leader's own, perhaps stale, high watermark may enter the ISR",
        "KAFKA-7128", "no-lost-acknowledged-write",
    ),
    Exhibit(
        "expand-by-lag-only", "M5b",
        "a follower may enter the ISR because of its lag alone, complete or not",
        "Liftbridge", "no-lost-acknowledged-write",
    ),
    Exhibit(
        "hw-ignores-min-isr", "M6",
        "the high watermark moves while the ISR is below MinISR",
        "KIP-966, KAFKA-15583", "no-lost-acknowledged-write",
    ),
    Exhibit(
        "no-epoch-fencing", "M7",
        "fetches and answers of another leader epoch count",
        "KAFKA-7395, Liftbridge #183", "no-lost-acknowledged-write", "kip-279",
    ),
    Exhibit(
        "fetch-without-current-epoch", "M7b",
        "a fetch tells the last epoch of the log, but not the leader epoch it is meant for",
        "KIP-320, its first draft", "no-lost-acknowledged-write",
    ),
    Exhibit(
        "no-fsync-before-ack", "M8",
        "records are acknowledged from memory although flush=sync",
        "NATS #7564, #7567", "no-lost-acknowledged-write",
    ),
    Exhibit(
        "unclean-as-clean", "M9",
        "a process that lost data keeps its place in ISR and ELR",
        "KAFKA-18635", "no-lost-acknowledged-write",
    ),
    Exhibit(
        "no-maximal-isr", "M10",
        "the high watermark does not wait for replicas that may already be in the ISR",
        "Kafka before KIP-497", "no-lost-acknowledged-write",
    ),
    Exhibit(
        "rollback-on-timeout", "M10b",
        "an unanswered proposal counts as refused",
        "KIP-497, rejected design", "no-lost-acknowledged-write",
    ),
    Exhibit(
        "count-diverging-fetch", "M11",
        "the offset of a fetch is noted before the test for divergence",
        "KAFKA-13141", "no-lost-acknowledged-write",
    ),
    Exhibit(
        "hw-from-diverging-response", "M12",
        "a follower takes the high watermark of a diverging answer",
        "KAFKA-14704", "committed-prefix-agreement",
    ),
    Exhibit(
        "keep-peer-state", "M13",
        "a leader keeps what it knew of its followers in an earlier leader epoch",
        "KAFKA-13790", "no-lost-acknowledged-write",
    ),
)  # fmt: skip
"""Who is counted as in sync (M4-M13)."""

HIGH_WATERMARK: Final = (
    Exhibit(
        "stale-epoch-response", "M16",
        "a follower takes an answer that a leader gave in an older leader epoch",
        "Kafka before KIP-320", "committed-prefix-agreement",
    ),
    Exhibit(
        "ack-on-demotion", "M17",
        "a leader that is deposed acknowledges what still waits for the ISR",
        "KAFKA-20634", "no-lost-acknowledged-write",
    ),
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
    Exhibit(
        "commit-leader-only", "M20",
        "the high watermark is the leader's log end",
        "replication without waiting, as Redis does it", "no-lost-acknowledged-write",
    ),
    Exhibit(
        "accept-any-response", "M23",
        "a follower takes a late second copy of an answer",
        "Kafka's fetcher, offset test left out", "no-lost-acknowledged-write",
    ),
    Exhibit(
        "match-by-offset-only", "M23b",
        "a follower knows an answer by its offset alone, without the last epoch",
        "found with this harness", "no-lost-acknowledged-write",
    ),
    Exhibit(
        "keep-hw-at-truncation", "M26",
        "truncation leaves the high watermark above the log end",
        "KAFKA-3978, KAFKA-16452", "log-and-metadata",
    ),
)  # fmt: skip
"""What counts as committed, and who may see it (M16-M20, M23, M26)."""

CONTROLLER: Final = (
    Exhibit(
        "no-partition-epoch-test", "M21",
        "the controller accepts a proposal that rests on an old state of the partition",
        "KAFKA-12686", "no-lost-acknowledged-write",
    ),
    Exhibit(
        "elect-any-replica", "M22",
        "the controller lets the first replica that lives lead, even outside ISR and ELR",
        "Kafka unclean leader election on by default (before 0.11)", "log-and-metadata",
    ),
    Exhibit(
        "keep-elr-at-min-isr", "M25",
        "the ELR is kept when the ISR is at MinISR again",
        "KIP-966, rule left out", "no-lost-acknowledged-write",
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
"""Defects of Liftbridge's code (LB1-LB4)."""

EXHIBITS: Final = (
    *TRUNCATION, *IN_SYNC_SET, *HIGH_WATERMARK, *CONTROLLER, *QUORUM, *LIFTBRIDGE,
)  # fmt: skip
