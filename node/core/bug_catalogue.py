"""The museum's catalogue: every historical bug that a bug can bring back.

One line of facts a bug: its name and code, what it changes, where it was seen, and the property
that must break. What the bugs do is in the modules that consult them; docs/protocols.md tells
the stories and lists the bugs that this design cannot express.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class KnownBug(NamedTuple):
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
    KnownBug(
        "truncate-to-own-hw",
        "M1",
        "a new follower cuts its log to its own high watermark",
        "Kafka before KIP-101 (0.11)",
        "no-lost-acknowledged-write",
        "kip-279",
    ),
    KnownBug(
        "truncate-to-leader-hw",
        "M1b",
        "a new follower cuts its log to its leader's high watermark",
        "the high-water mark pattern, literally",
        "no-lost-acknowledged-write",
        "kip-279",
    ),
    KnownBug(
        "never-truncate",
        "M1c",
        "a follower cuts only what lies beyond its leader's log end",
        "nobody; the reason for all the others",
        "committed-prefix-agreement",
    ),
    KnownBug(
        "epoch-end-without-epoch",
        "M2",
        "a new follower is told where its last epoch ends, but not of which epoch that is",
        "KAFKA-6361 (before KIP-279, 2.0)",
        "committed-prefix-agreement",
    ),
    KnownBug(
        "undefined-to-own-hw",
        "M2b",
        "a new follower is told the epoch; where the leader knows none that old, the own HW counts",
        "KIP-279 (2.0)",
        "committed-prefix-agreement",
    ),
    KnownBug(
        "one-round-only",
        "M2c",
        "after one cut a follower's fetches name no epoch any more",
        "KIP-279's assumption for clean elections",
        "committed-prefix-agreement",
    ),
    KnownBug(
        "no-local-lookup",
        "M2d",
        "a follower cuts to the leader's offset, whatever its own log says of that epoch",
        "KIP-595's rule, half",
        "committed-prefix-agreement",
    ),
    KnownBug(
        "compare-offsets-only",
        "M2e",
        "a leader compares where the follower's last epoch ends, and not which epoch it found",
        "KIP-595's rule, half",
        "committed-prefix-agreement",
    ),
    KnownBug(
        "lazy-epoch-cache",
        "M3",
        "a leader enters its epoch with its first record, not at its election",
        "KAFKA-7415 (before 2.0.1)",
        "committed-prefix-agreement",
        "kip-279",
    ),
    KnownBug(
        "keep-empty-epoch",
        "M14",
        "a follower names an epoch in which it led and wrote nothing, and keeps it in its cache",
        "KAFKA-10706",
        "liveness",
    ),
    KnownBug(
        "cut-inside-batch",
        "M15",
        "a cut inside a batch removes it all and leaves the log end at the cut, over a hole",
        "Kafka's LocalLog.truncateTo",
        "log-and-metadata",
        "kip-101",
    ),
)
"""How a follower cuts its log (M1-M3, M14, M15)."""

IN_SYNC_SET: Final = (
    KnownBug(
        "expand-stale-process",
        "M4",
        "the fetch of a process before the registered one lets it into the ISR",
        "KIP-903, KAFKA-14139",
        "no-lost-acknowledged-write",
    ),
    KnownBug(
        "expand-fenced",
        "M4b",
        "a fenced replica may enter the ISR",
        "KIP-841, KAFKA-13916",
        "log-and-metadata",
    ),
    KnownBug(
        "expand-at-hw",
        "M5",
        "a follower at the leader's own, perhaps stale, high watermark may enter the ISR",
        "KAFKA-7128",
        "no-lost-acknowledged-write",
    ),
    KnownBug(
        "expand-by-lag-only",
        "M5b",
        "a follower may enter the ISR because of its lag alone, complete or not",
        "Liftbridge",
        "no-lost-acknowledged-write",
    ),
    KnownBug(
        "hw-ignores-min-isr",
        "M6",
        "the high watermark moves while the ISR is below MinISR",
        "KIP-966, KAFKA-15583",
        "no-lost-acknowledged-write",
    ),
    KnownBug(
        "no-epoch-fencing",
        "M7",
        "fetches and answers of another leader epoch count",
        "KAFKA-7395, Liftbridge #183",
        "no-lost-acknowledged-write",
        "kip-279",
    ),
    KnownBug(
        "fetch-without-current-epoch",
        "M7b",
        "a fetch tells the last epoch of the log, but not the leader epoch it is meant for",
        "KIP-320, its first draft",
        "no-lost-acknowledged-write",
    ),
    KnownBug(
        "no-fsync-before-ack",
        "M8",
        "records are acknowledged from memory although flush=sync",
        "NATS #7564, #7567",
        "no-lost-acknowledged-write",
    ),
    KnownBug(
        "unclean-as-clean",
        "M9",
        "a process that lost data keeps its place in ISR and ELR",
        "KAFKA-18635",
        "no-lost-acknowledged-write",
    ),
    KnownBug(
        "no-maximal-isr",
        "M10",
        "the high watermark does not wait for replicas that may already be in the ISR",
        "Kafka before KIP-497",
        "no-lost-acknowledged-write",
    ),
    KnownBug(
        "rollback-on-timeout",
        "M10b",
        "an unanswered proposal counts as refused",
        "KIP-497, rejected design",
        "no-lost-acknowledged-write",
    ),
    KnownBug(
        "count-diverging-fetch",
        "M11",
        "the offset of a fetch is noted before the test for divergence",
        "KAFKA-13141",
        "no-lost-acknowledged-write",
    ),
    KnownBug(
        "hw-from-diverging-response",
        "M12",
        "a follower takes the high watermark of a diverging answer",
        "KAFKA-14704",
        "committed-prefix-agreement",
    ),
    KnownBug(
        "keep-peer-state",
        "M13",
        "a leader keeps what it knew of its followers in an earlier leader epoch",
        "KAFKA-13790",
        "no-lost-acknowledged-write",
    ),
)
"""Who is counted as in sync (M4-M13)."""

HIGH_WATERMARK: Final = (
    KnownBug(
        "stale-epoch-response",
        "M16",
        "a follower takes an answer that a leader gave in an older leader epoch",
        "Kafka before KIP-320",
        "committed-prefix-agreement",
    ),
    KnownBug(
        "ack-on-demotion",
        "M17",
        "a leader that is deposed acknowledges what still waits for the ISR",
        "KAFKA-20634",
        "no-lost-acknowledged-write",
    ),
    KnownBug(
        "ack-before-isr",
        "M18",
        "acks=all is answered after the local append, before the ISR has the batch",
        "Redpanda #6018/#6019",
        "no-lost-acknowledged-write",
    ),
    KnownBug(
        "read-beyond-hw",
        "M19",
        "consumers are served up to the log end instead of the high watermark",
        "Redpanda #14794",
        "reads-below-hw",
    ),
    KnownBug(
        "commit-leader-only",
        "M20",
        "the high watermark is the leader's log end",
        "replication without waiting, as Redis does it",
        "no-lost-acknowledged-write",
    ),
    KnownBug(
        "accept-any-response",
        "M23",
        "a follower takes a late second copy of an answer",
        "Kafka's fetcher, offset test left out",
        "no-lost-acknowledged-write",
    ),
    KnownBug(
        "match-by-offset-only",
        "M23b",
        "a follower knows an answer by its offset alone, without the last epoch",
        "found with this harness",
        "no-lost-acknowledged-write",
    ),
    KnownBug(
        "keep-hw-at-truncation",
        "M26",
        "truncation leaves the high watermark above the log end",
        "KAFKA-3978, KAFKA-16452",
        "log-and-metadata",
    ),
)
"""What counts as committed, and who may see it (M16-M20, M23, M26)."""

CONTROLLER: Final = (
    KnownBug(
        "no-partition-epoch-test",
        "M21",
        "the controller accepts a proposal that rests on an old state of the partition",
        "KAFKA-12686",
        "no-lost-acknowledged-write",
    ),
    KnownBug(
        "elect-any-replica",
        "M22",
        "the controller lets the first replica that lives lead, even outside ISR and ELR",
        "Kafka unclean leader election on by default (before 0.11)",
        "log-and-metadata",
    ),
    KnownBug(
        "reassign-drops-first",
        "M24",
        "a move drops the old replicas at once; the new ones count as in sync, caught up or not",
        "KIP-455, rule left out",
        "no-lost-acknowledged-write",
    ),
    KnownBug(
        "keep-elr-at-min-isr",
        "M25",
        "the ELR is kept when the ISR is at MinISR again",
        "KIP-966, rule left out",
        "no-lost-acknowledged-write",
    ),
)
"""What the controller decides (M9, M21-M25)."""

QUORUM: Final = (
    KnownBug(
        "count-old-terms",
        "R1",
        "a record of an earlier term commits when a majority has it, with none of this term",
        "Raft's figure 8; LogCabin #44",
        "no-lost-acknowledged-write",
        "quorum",
    ),
    KnownBug(
        "forget-vote",
        "R2",
        "the candidate a voter chose is not kept over its restart",
        "PySyncObj",
        "log-and-metadata",
        "quorum",
    ),
    KnownBug(
        "cut-on-every-answer",
        "R3",
        "a follower cuts its log to where an answer begins, late or not",
        "PySyncObj",
        "no-lost-acknowledged-write",
        "quorum",
    ),
    KnownBug(
        "last-index-matches",
        "R4",
        "a follower's log end counts before its log is compared with the leader's",
        "the high-water mark pattern; KAFKA-13141",
        "no-lost-acknowledged-write",
        "quorum",
    ),
    KnownBug(
        "no-previous-check",
        "R4b",
        "records are appended by their index; what precedes them is not compared",
        "the high-water mark pattern, literally",
        "committed-prefix-agreement",
        "quorum",
    ),
    KnownBug(
        "ack-before-commit",
        "R6",
        "an acknowledgement leaves before the leader's own append is on its disk",
        "etcd #14370",
        "no-lost-acknowledged-write",
        "quorum",
    ),
)
"""Votes and majorities (R1-R9)."""

LIFTBRIDGE: Final = (
    KnownBug(
        "liftbridge-epoch-offset",
        "LB1",
        "a leader answers one too high where it learned the next leader epoch from records",
        "Liftbridge 26.01.1, leader epoch cache",
        "committed-prefix-agreement",
        "liftbridge",
    ),
    KnownBug(
        "liftbridge-fallback",
        "LB2",
        "a follower whose LeaderEpoch offset request failed three times cuts to its own HW",
        "Liftbridge 26.01.1, truncation of a follower",
        "no-lost-acknowledged-write",
        "liftbridge",
    ),
    KnownBug(
        "liftbridge-witness",
        "LB3",
        "reports about a leader outlive it and count against its successor",
        "Liftbridge 26.01.1, leader reports",
        "no-lost-acknowledged-write",
        "liftbridge",
    ),
    KnownBug(
        "liftbridge-monotone",
        "LB4",
        "a follower that came back with a shorter log is counted at its old log end",
        "Liftbridge 26.01.1, in-sync offsets",
        "no-lost-acknowledged-write",
        "liftbridge",
    ),
)
"""Defects of Liftbridge's code (LB1-LB4)."""

KNOWN_BUGS: Final = (*TRUNCATION, *IN_SYNC_SET, *HIGH_WATERMARK, *CONTROLLER, *QUORUM, *LIFTBRIDGE)
