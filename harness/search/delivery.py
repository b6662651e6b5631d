"""Chooses when messages arrive: adds late links to a drawn schedule. Pure.

Two ways, both known from the testing of threads. *Priorities* (PCT: Burckhardt et al., "A
Randomized Scheduler with Probabilistic Guarantees of Finding Bugs", 2010): links have priorities at
random, and a few times in a run, at an event drawn at random, a link falls to the lowest; its
messages then come after all others. *Sampling* of partial orders (Yuan, Yang and Gu, "Partial Order
Aware Concurrency Sampling", 2018): each message has a priority of its own; here it is late by a
time drawn while the run goes on. Links stay in order, as TCP is.

What was chosen is in the schedule: the faults say which links are late, from which event on and by
how much, and the seed of the workload draws the time of each message. So a find is replayed, shrunk
and explained like any other.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from harness.search.choice_source import ChoiceSource
from nemesis.faults import Link
from nemesis.formats.schedule import After, Fault, Schedule
from node.core.protocol import LeaderBy
from node.core.protocol import protocol as protocol_of

_LATE_MS: Final = (1, 3, 10, 30)
_MOST_CHANGES: Final = 3
_MOST_FAULTS: Final = 18


def choose_delivery(choose: ChoiceSource, schedule: Schedule) -> Schedule:
    """The schedule with late links: by priorities, or each message by itself."""
    added = _each_message(choose) if choose.chance(40) else _priorities(choose, schedule)
    room = max(0, _MOST_FAULTS - len(schedule.faults))
    return replace(schedule, faults=(*schedule.faults, *added[:room]))


def _each_message(choose: ChoiceSource) -> list[Fault]:
    """Every message between nodes is late by up to twice a time that is the same for all."""
    late_ms = choose.pick(_LATE_MS)
    return [Link(on="all", to="all", action="delay", delay_ms=late_ms, jitter_ms=late_ms, at_ms=0)]


def _priorities(choose: ChoiceSource, schedule: Schedule) -> list[Fault]:
    """One to three links fall to the lowest priority, each at an event drawn at random."""
    timings = schedule.cluster.timings
    lowest_ms = choose.pick((timings.retry_ms, timings.fetch_timeout_ms, timings.session_ms // 2))
    return [
        _lowest(choose, schedule, lowest_ms + 10 * number)
        for number in range(choose.integer(1, _MOST_CHANGES))
    ]


def _lowest(choose: ChoiceSource, schedule: Schedule, late_ms: int) -> Fault:
    """A link whose messages come after all others from some event on."""
    cluster = schedule.cluster
    brokers = cluster.broker_names()
    sender = choose.pick(brokers)
    others: list[str] = [name for name in brokers if name != sender]
    if protocol_of(cluster.protocol).leader_by is LeaderBy.CONTROLLER:
        others.append("voters")
    receiver = choose.pick(others)
    if choose.chance(50):
        sender, receiver = receiver, sender
    return Link(
        on=sender,
        to=receiver,
        action="delay",
        delay_ms=late_ms,
        for_ms=choose.pick((2, 4, 8)) * cluster.timings.session_ms,
        **_change(choose, schedule),
    )


def _change(choose: ChoiceSource, schedule: Schedule) -> dict[str, Any]:
    """A moment: at the beginning, or at the n-th of the events that order a partition."""
    if choose.chance(25):
        return {"at_ms": 0}
    partition = choose.pick(schedule.cluster.partition_names())
    event = choose.pick(("role", "append", "hw", "isr", "truncated", "proposed", "partition"))
    if event in ("isr", "proposed", "partition") and (
        protocol_of(schedule.cluster.protocol).leader_by is not LeaderBy.CONTROLLER
    ):
        event = "role"
    most = 12 if event in ("append", "hw") else 6
    match = {"partition": partition}
    return {"after": After(event=event, match=match, nth=choose.integer(1, most))}
