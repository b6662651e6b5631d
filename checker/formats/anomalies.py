"""The catalogue of anomalies: the property that each breaks, and what a run must promise for it to
count.

The order is that of importance: the sentence of a verdict names the first anomaly that counts.
docs/checks.md has definitions and examples.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, Literal, NamedTuple

LOST_WRITES: Final = "no-lost-acknowledged-write"
AGREEMENT: Final = "committed-prefix-agreement"
OFFSETS: Final = "offsets-and-order"
READS: Final = "reads-below-hw"
LOG: Final = "log-and-metadata"
LIVENESS: Final = "liveness"
EXERCISE: Final = "exercise"
DELIVERY: Final = "delivery"
OWNERSHIP: Final = "positions-and-ownership"

OF_GROUPS: Final = (DELIVERY, OWNERSHIP)
"""The properties of consumer groups; a run without groups does not mention them."""
PROPERTIES: Final = (*(LOST_WRITES, AGREEMENT, OFFSETS, READS, LOG, LIVENESS, EXERCISE), *OF_GROUPS)


class Needs(Enum):
    """The promises of a run: an anomaly counts against its system only if the run makes the promise
    that the anomaly needs."""

    NOTHING = "required by every replicated log"
    DURABLE_ACKS = "an acknowledgement promises durability"
    COMMITTED_STAYS = "committed records are never rolled back"
    CLEAN_ELECTION = "only members of ISR or ELR are elected"
    SILENCE_DEPOSES = "a broker that is silent too long leaves every ISR"
    DISKS_KEPT = "disks keep what they synced, but for as many as the protocol survives"
    APPENDED_ONCE = "a record is appended once, however often it is sent"
    CONTIGUOUS = "offsets have no holes"
    DELIVERED = "a group is given every record until it is settled"
    SETTLED_STAYS = "a confirmed ack or commit of a group is not forgotten"
    FENCED = "a commit under an epoch that was superseded is refused"
    EXCLUSIVE = "a partition has one owner in an epoch of a group"
    EPOCHS_RISE = "the epochs of a group never start over"
    COUNTED = "every delivery of a record is counted"
    EXERCISE = "says that the run proved little, not that the system is wrong"
    INFORMATION = "always allowed, reported for information"


class Knows(Enum):
    """Knowledge that a history must give before an anomaly can be concluded from it; else the
    property is unknown. The table in docs/checks.md has the same names."""

    TIMES = "times"
    """The clock of no process goes back."""
    PROCESSES = "processes"
    """Every process does one operation after another."""
    POSITIONS = "positions"
    """Where a read began: it states its start, or continues the read before it."""
    LOG_START = "log start"
    """Where the log began, if the promise lets records be deleted."""
    END = "end"
    """That there was no more to read: by a HW, `at_end`, or final reads that had enough time."""
    VALUES = "values"
    """Which operation sent a value: no two sends have the same one."""


class AnomalyKind(NamedTuple):
    """One row of the catalogue of anomalies. `needs`: the promise without which the anomaly is
    allowed. `jepsen`: the class under which Jepsen's Kafka checker reports it, "" if it does not.
    `from_absence`: the anomaly rests on something that is not in the history, so a history with
    holes cannot show it. (The check of lost writes sees to that itself, because logs can prove a
    loss.) `from_silence`: it rests on something that did not happen, which may also be because
    clients or the cluster could not go on; "without-logs": unless logs prove it. `knows`: what the
    history must show. Without TIMES or PROCESSES the anomaly is concluded of no record of the
    group; the others may be known of some records, and the checks conclude it of these."""

    name: str
    property: str
    needs: Needs
    jepsen: str = ""
    from_absence: bool = False
    from_silence: Literal["", "always", "without-logs"] = ""
    knows: tuple[Knows, ...] = ()


_TIMED: Final = (Knows.TIMES, Knows.VALUES)
_IN_TURN: Final = (Knows.PROCESSES,)
_VALUES: Final = (Knows.VALUES,)
_SENT_IN_TURN: Final = (Knows.PROCESSES, Knows.VALUES)
_PLACED: Final = (Knows.PROCESSES, Knows.POSITIONS, Knows.LOG_START)

CATALOGUE: Final = (
    AnomalyKind(
        "lost",
        LOST_WRITES,
        Needs.DURABLE_ACKS,
        "lost-write",
        from_silence="without-logs",
        knows=(Knows.POSITIONS, Knows.LOG_START),
    ),
    AnomalyKind(
        "vanished",
        LOST_WRITES,
        Needs.COMMITTED_STAYS,
        from_silence="without-logs",
        knows=(Knows.TIMES, Knows.PROCESSES, Knows.POSITIONS, Knows.LOG_START, Knows.END),
    ),
    AnomalyKind(
        "tail-lost", LOST_WRITES, Needs.DURABLE_ACKS, "unseen", from_silence="without-logs"
    ),
    AnomalyKind("divergence", AGREEMENT, Needs.COMMITTED_STAYS),
    AnomalyKind("replicas-differ", AGREEMENT, Needs.DISKS_KEPT),
    AnomalyKind("committed-truncated", AGREEMENT, Needs.COMMITTED_STAYS),
    AnomalyKind("incomplete-leader", AGREEMENT, Needs.COMMITTED_STAYS),
    AnomalyKind("inconsistent-offsets", OFFSETS, Needs.COMMITTED_STAYS, "inconsistent-offsets"),
    AnomalyKind("read-beyond-hw", READS, Needs.NOTHING),
    AnomalyKind("end-below-hw", READS, Needs.NOTHING, knows=(Knows.TIMES, Knows.END)),
    AnomalyKind("stale-read", READS, Needs.COMMITTED_STAYS, knows=(Knows.TIMES, Knows.END)),
    AnomalyKind("aborted-read", OFFSETS, Needs.NOTHING, "G1a", knows=_VALUES),
    AnomalyKind("aborted-write", OFFSETS, Needs.NOTHING, knows=_VALUES),
    AnomalyKind("phantom", OFFSETS, Needs.NOTHING, from_absence=True),
    AnomalyKind("misrouted", OFFSETS, Needs.NOTHING, from_absence=True),
    AnomalyKind("unreadable-record", OFFSETS, Needs.NOTHING),
    AnomalyKind("duplicate", OFFSETS, Needs.APPENDED_ONCE, "duplicate", knows=_VALUES),
    AnomalyKind("int-nonmonotonic-poll", OFFSETS, Needs.COMMITTED_STAYS, "int-nonmonotonic-poll"),
    AnomalyKind(
        "int-poll-skip", OFFSETS, Needs.COMMITTED_STAYS, "int-poll-skip", knows=(Knows.LOG_START,)
    ),
    AnomalyKind(
        "nonmonotonic-poll",
        OFFSETS,
        Needs.COMMITTED_STAYS,
        "nonmonotonic-poll",
        from_absence=True,
        knows=_IN_TURN,
    ),
    AnomalyKind(
        "poll-skip", OFFSETS, Needs.COMMITTED_STAYS, "poll-skip", from_absence=True, knows=_PLACED
    ),
    AnomalyKind("future-read", OFFSETS, Needs.NOTHING, "G1c-realtime", knows=_TIMED),
    AnomalyKind("precommitted-read", OFFSETS, Needs.NOTHING, "precommitted-read", knows=_VALUES),
    AnomalyKind("g1c", OFFSETS, Needs.NOTHING, "G1c", knows=_VALUES),
    AnomalyKind("g1c-process", OFFSETS, Needs.NOTHING, "G1c-process", knows=_SENT_IN_TURN),
    AnomalyKind("g1c-realtime", OFFSETS, Needs.NOTHING, "G1c-realtime", knows=_TIMED),
    AnomalyKind("offset-hole", OFFSETS, Needs.CONTIGUOUS, knows=(Knows.POSITIONS, Knows.LOG_START)),
    AnomalyKind("realtime-order", OFFSETS, Needs.DURABLE_ACKS, "G0-realtime", knows=_TIMED),
    AnomalyKind(
        "nonmonotonic-send", OFFSETS, Needs.DURABLE_ACKS, "nonmonotonic-send", knows=_SENT_IN_TURN
    ),
    AnomalyKind(
        "int-nonmonotonic-send",
        OFFSETS,
        Needs.COMMITTED_STAYS,
        "int-nonmonotonic-send",
        knows=_VALUES,
    ),
    AnomalyKind(
        "unseen",
        LOST_WRITES,
        Needs.DURABLE_ACKS,
        "unseen",
        from_silence="always",
        knows=(Knows.TIMES, Knows.POSITIONS, Knows.LOG_START, Knows.END),
    ),
    AnomalyKind(
        "undelivered",
        DELIVERY,
        Needs.DELIVERED,
        from_absence=True,
        from_silence="always",
        knows=(Knows.TIMES,),
    ),
    AnomalyKind(
        "not-redelivered", DELIVERY, Needs.DELIVERED, from_absence=True, from_silence="always"
    ),
    AnomalyKind(
        *("group-skip", DELIVERY, Needs.DELIVERED),
        from_absence=True,
        from_silence="always",
        knows=(Knows.TIMES,),
    ),
    AnomalyKind(
        *("position-ahead", OWNERSHIP, Needs.DELIVERED),
        from_absence=True,
        from_silence="always",
        knows=(Knows.TIMES,),
    ),
    AnomalyKind(
        "commit-lost", OWNERSHIP, Needs.SETTLED_STAYS, from_absence=True, knows=(Knows.TIMES,)
    ),
    AnomalyKind(
        "position-back", OWNERSHIP, Needs.SETTLED_STAYS, from_absence=True, knows=(Knows.TIMES,)
    ),
    AnomalyKind(
        *("position-phantom", OWNERSHIP, Needs.SETTLED_STAYS),
        from_absence=True,
        from_silence="always",
        knows=(Knows.TIMES,),
    ),
    AnomalyKind(
        "acked-redelivered", DELIVERY, Needs.SETTLED_STAYS, from_absence=True, knows=(Knows.TIMES,)
    ),
    AnomalyKind("zombie-commit", OWNERSHIP, Needs.FENCED, knows=(Knows.TIMES,)),
    AnomalyKind("double-ownership", OWNERSHIP, Needs.EXCLUSIVE),
    AnomalyKind("replay-differs", OWNERSHIP, Needs.NOTHING),
    AnomalyKind("group-replicas-differ", OWNERSHIP, Needs.NOTHING),
    AnomalyKind("epoch-back", OWNERSHIP, Needs.EPOCHS_RISE, knows=(Knows.TIMES,)),
    AnomalyKind("delivery-order", DELIVERY, Needs.NOTHING, from_absence=True, knows=(Knows.TIMES,)),
    AnomalyKind("over-delivered", DELIVERY, Needs.COUNTED),
    AnomalyKind("delivery-count", DELIVERY, Needs.COUNTED, knows=(Knows.TIMES,)),
    AnomalyKind("divergent-tail", AGREEMENT, Needs.COMMITTED_STAYS, from_silence="always"),
    AnomalyKind("corrupt-batch", LOG, Needs.DISKS_KEPT),
    AnomalyKind("log-hole", LOG, Needs.DISKS_KEPT),
    AnomalyKind("epoch-regression", LOG, Needs.DISKS_KEPT),
    AnomalyKind("out-of-order-sequence", LOG, Needs.DISKS_KEPT),
    AnomalyKind("hw-beyond-log", LOG, Needs.DISKS_KEPT),
    AnomalyKind("epoch-cache-mismatch", LOG, Needs.DISKS_KEPT),
    AnomalyKind("early-deletion", LOG, Needs.DISKS_KEPT),
    AnomalyKind("two-leaders", LOG, Needs.DISKS_KEPT),
    AnomalyKind("two-controllers", LOG, Needs.DISKS_KEPT),
    AnomalyKind("membership-differs", LOG, Needs.DISKS_KEPT),
    AnomalyKind("leader-outside-isr", LOG, Needs.CLEAN_ELECTION),
    AnomalyKind("isr-outside-replicas", LOG, Needs.NOTHING),
    AnomalyKind("fenced-in-isr", LOG, Needs.SILENCE_DEPOSES),
    AnomalyKind("incomplete-isr", LOG, Needs.COMMITTED_STAYS),
    AnomalyKind("unexplained-exit", LIVENESS, Needs.DISKS_KEPT),
    AnomalyKind("unclean-stop", LIVENESS, Needs.DISKS_KEPT),
    AnomalyKind(
        "unavailable",
        LIVENESS,
        Needs.DISKS_KEPT,
        from_absence=True,
        from_silence="always",
        knows=(Knows.TIMES,),
    ),
    AnomalyKind(
        "no-progress",
        LIVENESS,
        Needs.DISKS_KEPT,
        from_absence=True,
        from_silence="always",
        knows=(Knows.TIMES,),
    ),
    AnomalyKind(
        "final-reads-stuck",
        LIVENESS,
        Needs.DISKS_KEPT,
        from_absence=True,
        from_silence="always",
        knows=(Knows.END,),
    ),
    AnomalyKind(
        "group-stuck",
        LIVENESS,
        Needs.DISKS_KEPT,
        from_absence=True,
        from_silence="always",
        knows=(Knows.TIMES,),
    ),
    AnomalyKind("not-converged", LIVENESS, Needs.DISKS_KEPT, from_silence="always"),
    AnomalyKind("membership-stuck", LIVENESS, Needs.DISKS_KEPT, from_silence="always"),
    AnomalyKind("few-acks", EXERCISE, Needs.EXERCISE, from_absence=True),
    AnomalyKind("few-deliveries", EXERCISE, Needs.EXERCISE, from_absence=True),
    AnomalyKind("clients-stopped", EXERCISE, Needs.EXERCISE, from_absence=True),
    AnomalyKind("fault-missed", EXERCISE, Needs.EXERCISE, from_absence=True),
    AnomalyKind("few-faults", EXERCISE, Needs.EXERCISE, from_absence=True),
    AnomalyKind("operation-missed", EXERCISE, Needs.EXERCISE, from_absence=True),
    AnomalyKind("hw-regression", READS, Needs.INFORMATION, knows=_IN_TURN),
    AnomalyKind("early-redelivery", DELIVERY, Needs.INFORMATION, knows=(Knows.TIMES,)),
    AnomalyKind("stale-position", OWNERSHIP, Needs.INFORMATION, knows=(Knows.TIMES,)),
    AnomalyKind("int-send-skip", OFFSETS, Needs.INFORMATION, "int-send-skip", knows=_VALUES),
    AnomalyKind("g0", OFFSETS, Needs.INFORMATION, "G0", knows=_VALUES),
    AnomalyKind("g0-process", OFFSETS, Needs.INFORMATION, "G0-process", knows=_SENT_IN_TURN),
    AnomalyKind("g0-realtime", OFFSETS, Needs.INFORMATION, "G0-realtime", knows=_TIMED),
)

FROM_ABSENCE: Final = frozenset(kind.name for kind in CATALOGUE if kind.from_absence)
KINDS: Final = {kind.name: kind for kind in CATALOGUE}
RANK: Final = {kind.name: rank for rank, kind in enumerate(CATALOGUE)}
WITNESS_CAP: Final = 32
