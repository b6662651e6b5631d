"""Counts in how many drawn schedules something is asked for, and in how many of their runs it is.

    python -m tests.lab occurrences [--protocol kafka] [--schedules 1000] [--runs 1000]

A search finds nothing in situations that it never makes. Each row of the table is one situation:
*drawn* counts schedules that contain what it takes, *happened* counts runs in which it came about,
as far as traces and messages show. Runs are those of the protocol without any bug. From sources.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from unittest import mock

from harness.search.choice_source import RandomChoices
from harness.search.generator import draw_schedule
from harness.sim import compiled
from harness.sim.run import SimResult, SimRun, no_collections
from nemesis.faults import KINDS, Link, PowerCut, Reassign, SetMinIsr
from nemesis.formats.schedule import Schedule
from node.core.api import Deliver, Effects, Event
from node.core.broker import Broker
from node.core.messages import (
    AlterPartition,
    FetchRequest,
    Heartbeat,
    RegisterBroker,
    RegisterBrokerResponse,
    VoteResponse,
)
from node.formats import trace
from node.formats.trace import METADATA_PARTITION, TraceEvent

SOON_US = 500_000
SITUATIONS = (
    "3 metadata voters",
    "5 metadata voters",
    "a voter takes over as controller",
    "two take over, one after another",
    "4 copies",
    "5 copies",
    "MinISR changes",
    "MinISR changes within 0.5 s of an election",
    "MinISR rises, and the leader leads on",
    "MinISR falls while there is an ELR",
    "a replica of the ELR is elected",
    "a partition recovers from the last-known ELR",
    "a process loses unsynced writes",
    "it dies before it is registered",
    "power fails while the ISR is below MinISR",
    "a partition is moved",
    "a replica is dropped",
    "a dropped replica is taken in again",
    "a move is cancelled",
    "a message of a dead process arrives",
    "a registration of a dead process arrives",
    "a vote arrives a term late",
    "a vote arrives two terms late",
    "a voter is killed within 0.1 s of its vote",
    "a log is truncated",
    "it loses exactly one record",
    "the head of a log is deleted",
    "two ISR proposals within a session",
    "a leader leads again in a later epoch without following between",
    "two batches wait for the ISR on a leader that fails",
)


def drawn(schedule: Schedule) -> Iterator[str]:
    """The situations that a schedule asks for."""
    cluster, faults = schedule.cluster, schedule.faults
    if cluster.voters > 1:
        yield f"{cluster.voters} metadata voters"
    if cluster.replication_factor > 3:
        yield f"{cluster.replication_factor} copies"
    if any(isinstance(fault, SetMinIsr) for fault in faults):
        yield "MinISR changes"
    if cluster.flush == "async" and any(isinstance(fault, PowerCut) for fault in faults):
        yield "a process loses unsynced writes"
    moves = [fault for fault in faults if isinstance(fault, Reassign)]
    names = set(cluster.broker_names()[: cluster.replication_factor])
    if any(move.replicas and set(move.replicas.split(",")) != names for move in moves):
        yield "a partition is moved"
    if any(not move.replicas for move in moves):
        yield "a move is cancelled"
    kinds = {
        kind
        for fault in faults
        if isinstance(fault, Link) and fault.action != "drop"
        for kind in fault.kinds
    }
    if kinds & {"register", "register-response"}:
        yield "a registration of a dead process arrives"
    if kinds & {"fetch", "heartbeat", "alter-partition", "register", "offset-for-leader-epoch"}:
        yield "a message of a dead process arrives"
    if kinds & {"vote", "vote-response"}:
        yield "a vote arrives a term late"
    if cluster.retention_records:
        yield "the head of a log is deleted"


class Messages:
    """Counts what arrives late in one run, as the nodes' cores see it."""

    def __init__(self, run: SimRun) -> None:
        self.found: Counter[str] = Counter()
        self._run = run

    def arrived(self, node: Broker, event: Deliver) -> None:
        """A message is about to be handled."""
        message, sender = event.message, self._run.cluster.nodes.get(event.source)
        if sender is None:
            return
        epoch = -1 if sender.core is None else sender.core.ctx.broker_epoch
        if isinstance(message, RegisterBroker) and message.incarnation < sender.incarnation:
            self.found["a registration of a dead process arrives"] += 1
        elif isinstance(message, RegisterBrokerResponse):
            if message.incarnation < node.ctx.config.incarnation:
                self.found["a registration of a dead process arrives"] += 1
        elif isinstance(message, AlterPartition | FetchRequest | Heartbeat):
            if 0 <= message.broker_epoch < epoch:
                self.found["a message of a dead process arrives"] += 1
        elif isinstance(message, VoteResponse) and not message.pre and message.granted:
            quorum = node.quorums.get(message.partition)
            late = 0 if quorum is None else quorum.r.leader_epoch - message.request_term
            if late > 0:
                self.found["a vote arrives a term late"] += 1
            if late > 1:
                self.found["a vote arrives two terms late"] += 1


def run_of(schedule: Schedule) -> tuple[SimResult, Counter[str]]:
    """Run a schedule; returns the result and what arrived late."""
    with no_collections():
        run = SimRun(schedule, schedule.workload.seed, stop_at="visible")
        messages, step = Messages(run), Broker.step

        def counted(node: Broker, now_us: int, event: Event) -> Effects:
            if isinstance(event, Deliver):
                messages.arrived(node, event)
            return step(node, now_us, event)

        with mock.patch.object(Broker, "step", counted):
            run.execute()
        return run.result(None), messages.found


def happened(schedule: Schedule, result: SimResult) -> Iterator[str]:
    """The situations that the trace of a run shows."""
    cluster = schedule.cluster
    storm_us = result.info.phases.storm_us
    if cluster.voters > 1:
        yield f"{cluster.voters} metadata voters"
    if cluster.replication_factor > 3:
        yield f"{cluster.replication_factor} copies"
    events = [event for event in result.trace if event["t_us"] >= storm_us]
    took_over = sum(e["event"] == trace.CONTROLLER and e["state"] == "active" for e in events)
    if took_over and cluster.voters > 1:
        yield "a voter takes over as controller"
        if took_over > 1:
            yield "two take over, one after another"
    yield from _processes(result.trace)
    yield from _votes(events, result)
    for name in cluster.partition_names():
        mine = [event for event in events if event.get("partition") == name]
        records = [
            event
            for event in result.trace
            if event["event"] == trace.PARTITION and event["partition"] == name
        ]
        # The first decision of the storm changes what there was before.
        first = sum(event["t_us"] < storm_us for event in records)
        yield from _decisions(records[max(0, first - 1) :])
        yield from _logs(mine)
        yield from _below_min_isr(mine, result)


def _decisions(records: Sequence[TraceEvent]) -> Iterator[str]:
    elections = [b["t_us"] for a, b in pairwise(records) if b["leader_epoch"] > a["leader_epoch"]]
    dropped: set[str] = set()
    for before, after in pairwise(records):
        if after["min_isr"] != before["min_isr"]:
            yield "MinISR changes"
            if any(abs(at - after["t_us"]) <= SOON_US for at in elections):
                yield "MinISR changes within 0.5 s of an election"
            same = after["leader_epoch"] == before["leader_epoch"]
            if after["min_isr"] > before["min_isr"] and same and after["leader"]:
                yield "MinISR rises, and the leader leads on"
            if after["min_isr"] < before["min_isr"] and before["elr"]:
                yield "MinISR falls while there is an ELR"
        if after["leader"] != before["leader"] and after["leader"] in before["elr"]:
            yield "a replica of the ELR is elected"
        if after["unclean"] and after["leader"] in before["last_known_elr"]:
            yield "a partition recovers from the last-known ELR"
        if (after["adding"] or after["removing"]) and not (before["adding"] or before["removing"]):
            yield "a partition is moved"
        gone = set(before["replicas"]) - set(after["replicas"])
        if gone:
            yield "a replica is dropped"
        if before["adding"] and gone >= set(before["adding"]):
            yield "a move is cancelled"
        if dropped & set(after["replicas"]):
            yield "a dropped replica is taken in again"
        dropped = (dropped | gone) - set(after["replicas"])


def _logs(events: Sequence[TraceEvent]) -> Iterator[str]:
    proposed: dict[str, int] = {}
    led: dict[str, int] = {}
    for event in events:
        if event["event"] == trace.TRUNCATED and event["leo"] < event["from_leo"]:
            yield "a log is truncated"
            if event["leo"] == event["from_leo"] - 1:
                yield "it loses exactly one record"
        if event["event"] == trace.DELETED:
            yield "the head of a log is deleted"
        if event["event"] == trace.PROPOSED:
            if event["t_us"] - proposed.get(event["node"], -SOON_US) < SOON_US // 2:
                yield "two ISR proposals within a session"
            proposed[event["node"]] = event["t_us"]
        if event["event"] == trace.ROLE:
            if event["role"] == "leader":
                if led.get(event["node"], event["leader_epoch"]) < event["leader_epoch"]:
                    yield "a leader leads again in a later epoch without following between"
                led[event["node"]] = event["leader_epoch"]
            else:
                led.pop(event["node"], None)
        if event["event"] == trace.STARTED:
            led.pop(event["node"], None)


def _below_min_isr(events: Sequence[TraceEvent], result: SimResult) -> Iterator[str]:
    records = [event for event in events if event["event"] == trace.PARTITION]
    for fault in result.faults:
        if fault.action == "inject" and KINDS[fault.what] is PowerCut:
            state = next((e for e in reversed(records) if e["t_us"] <= fault.t_us), None)
            if state is not None and len(state["isr"]) < state["min_isr"]:
                yield "power fails while the ISR is below MinISR"


def _processes(events: Sequence[TraceEvent]) -> Iterator[str]:
    unclean: dict[str, bool] = {}
    for event in events:
        if event["event"] == trace.STARTED:
            if unclean.get(event["node"]):
                yield "it dies before it is registered"
            unclean[event["node"]] = not event["clean"]
            if not event["clean"]:
                yield "a process loses unsynced writes"
        elif event["event"] == trace.REGISTERED:
            unclean[event["node"]] = False


def _votes(events: Sequence[TraceEvent], result: SimResult) -> Iterator[str]:
    votes = [e for e in events if e["event"] == trace.VOTE and not e["pre"]]
    for end in result.exits:
        for vote in votes:
            if vote["node"] == end.node and 0 <= end.t_us - vote["t_us"] <= SOON_US // 5:
                yield "a voter is killed within 0.1 s of its vote"
    waiting = [e for e in events if e["event"] == trace.APPEND and e["role"] == "leader"]
    for end in result.exits:
        last = [e for e in waiting if e["node"] == end.node and e["t_us"] <= end.t_us]
        same = [e for e in last if e["partition"] != METADATA_PARTITION][-2:]
        if len(same) == 2 and end.t_us - same[0]["t_us"] <= 10_000:
            yield "two batches wait for the ISR on a leader that fails"


def count(protocol: str, seed: int, schedules: int, runs: int) -> tuple[Counter[str], Counter[str]]:
    """In how many schedules each situation was drawn, and in how many of the first `runs` it
    happened."""
    asked, came = Counter[str](), Counter[str]()
    for number in range(schedules):
        # The schedules of `floodmark bugs find`.
        choose = RandomChoices(random.Random(f"museum/{seed}/{number}"))
        schedule = draw_schedule(choose, protocol)
        asked.update(set(drawn(schedule)))
        if number < runs:
            result, late = run_of(schedule)
            came.update({*happened(schedule, result), *late})
    return asked, came


def table(counts: dict[str, tuple[Counter[str], Counter[str]]], schedules: int, runs: int) -> str:
    """The counts of several protocols, as Markdown."""
    heads = [
        head
        for name in counts
        for head in (f"{name}: drawn in {schedules:,}", f"happened in {runs:,}")
    ]
    lines = ["| situation | " + " | ".join(heads) + " |"]
    lines.append("| --- |" + " --: |" * len(heads))
    for situation in SITUATIONS:
        cells = [str(counted[situation] or "") for pair in counts.values() for counted in pair]
        if any(cells):
            lines.append(f"| {situation} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the count."""
    parser.add_argument("--protocol", nargs="+", default=["kafka", "quorum"])
    parser.add_argument("--schedules", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)


def run(given: argparse.Namespace) -> int:
    """Count, and print the table."""
    runs = min(given.runs, given.schedules)
    counts = {name: count(name, given.seed, given.schedules, runs) for name in given.protocol}
    print(table(counts, given.schedules, runs))
    return 0


compiled.leave()
