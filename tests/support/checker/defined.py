"""All anomalies of a story after the slow definitions, whatever file of it shows them."""

from __future__ import annotations

from collections import Counter

import msgspec

from checker.formats.anomalies import FROM_ABSENCE, KINDS, Knows
from harness.formats.history import Op
from harness.formats.run_info import Promise
from tests.support.checker.definitions import Definitions
from tests.support.checker.done import Logs, fits, joined, pairs
from tests.support.checker.evidence_definitions import (
    finished,
    missing,
    unknown_properties,
    watermarks_missing,
)
from tests.support.checker.life_definitions import Leadership, LifeDefinitions
from tests.support.checker.log_definitions import LogDefinitions, deleted_at, deleted_below
from tests.support.checker.story import NODES, Story

_CLAUSES = ("lost", "vanished", "unseen")


def everything(s: Story) -> tuple[Counter[str], Counter[str]]:
    """Every anomaly with its count ("liveness unknown" among them), and how many are allowed for
    their own sake."""
    clients = Definitions(
        joined(s.history, s.run["promise"].get("acks", -1)),
        logs={partition: logs_of(s, partition) for partition in s.partitions},
        staleness_us=s.run["promise"].get("staleness_ms", -1) * 1000,
        final_reads_due=final_reads_due(s),
        complete_reads=bool(s.run.get("complete_reads", False)),
        flaws=flaws(s),
        by_time=True,
        starts_known=frozenset(p for p in s.partitions if starts_known(s, p)),
        finished=s.run["state"] == "finished",
        whole=whole(s),
        established=established(s),
        promise=msgspec.convert(s.run["promise"], Promise),
        external=bool(s.run.get("source")),
        jepsen=s.run.get("source") in ("edn", "jepsen"),
    )
    found = clients.counts()
    # Of divergence they know only what reads show.
    del found["divergence"]
    for partition in s.partitions:
        found.update(LogDefinitions(s, partition).counts())
        leadership = Leadership(s, partition).counts()
        controllers = leadership.pop("two-controllers", 0)
        found.update(leadership)
    found["two-controllers"] = controllers
    life = LifeDefinitions(s).counts()
    if not clients.whole:
        life = Counter({name: n for name, n in life.items() if name not in FROM_ABSENCE})
    found.update(life)
    for name in [name for name in found if name in KINDS and name not in _CLAUSES]:
        if withheld(clients, s, name):
            del found[name]
            found[f"{KINDS[name].property} unknown"] += 1
    found.update({f"{name} unknown": 1 for name in unknown_properties(s)})
    return +found, clients.excused()


def withheld(clients: Definitions, s: Story, name: str) -> bool:
    """Return whether the history says too little for an anomaly of this name."""
    knows = KINDS[name].knows
    return (Knows.TIMES in knows and not clients.clocks_sound()) or (
        Knows.PROCESSES in knows and not clients.processes_sound()
    )


def flaws(s: Story) -> frozenset[str]:
    """Return whether the clock of a process goes back, whether one does two things at a time, and
    whether an operation ends with sends of another."""
    found = set()
    lines = s.lines()
    last: dict[int, Op] = {}
    begun: dict[int, int] = {}
    for line in lines:
        if line.process in last and line.t_us < last[line.process].t_us:
            found.add("times")
        last[line.process] = line
        if line.type == "invoke":
            # Before it nothing of its process is under way, or ended with an unknown outcome.
            if line.process in begun:
                found.add("processes")
            begun[line.process] = line.op
        elif line.type != "info" or line.f not in ("send", "poll", "txn"):
            begun.pop(line.process, None)
    if not all(fits(*pair) for pair in pairs(lines) if pair[1] is not None):
        found.add("ends")
    return frozenset(found)


def final_reads_due(s: Story) -> bool:
    """Return whether final reads went on until they had everything or got no further."""
    phases = s.run["phases"]
    return 0 < phases.get("final_us", 0) < phases.get("end_us", 0)


def starts_known(s: Story, partition: str) -> bool:
    """Return whether the logs, or the traces, of all replicas say where the log begins."""
    members = set(s.run["partitions"][partition])
    traced = "trace" in s.run["capabilities"] and members <= s.traces.keys()
    return bool(members) and (finished(s, partition) >= members or traced)


def whole(s: Story) -> bool:
    """Return whether the history is complete: what it lacks did not happen. An empty one is not."""
    sound = bool(s.history) and not s.torn and not flaws(s)
    return sound and not cut(s)


def cut(s: Story) -> bool:
    """Return whether a finished history ends before its final reads."""
    phases = s.run["phases"]
    ended = s.run["state"] == "finished" or "end_us" in phases
    if not ended or s.run.get("source"):
        return False
    last_us = max(line.t_us for line in s.history)
    final_us, end_us = phases.get("final_us", 0), phases.get("end_us", 0)
    return bool(last_us < final_us and (not end_us or final_us < end_us))


def logs_of(s: Story, partition: str) -> Logs:
    """Return the contents of the dumped logs of a partition."""
    lines = [line for node in NODES for line in s.logs[node] if line.partition == partition]
    heads = {line.node: line.hw for line in lines if line.count == 0}
    members = s.run["partitions"][partition]
    known = sorted((heads.get(node, -1) for node in members or heads), reverse=True)
    places = [
        (line.node, (run.offset + k, run.value + k))
        for line in lines
        for run in line.records
        for k in range(run.count)
    ]
    return Logs(
        records=frozenset(place for _, place in places),
        committed_of=tuple(
            frozenset(place for n, place in places if n == node and place[0] < hw)
            for node, hw in heads.items()
        ),
        majority_hw=known[len(known) // 2] if known else -1,
        of_replicas=tuple(frozenset(v for n, (_, v) in places if n == node) for node in members),
        finished=bool(members) and finished(s, partition) >= set(members),
        listed="records" not in missing(s, partition),
        deleted_below=deleted_below(s, partition),
        deleted_at=deleted_at(s, partition),
    )


def established(s: Story) -> dict[str, list[tuple[int, int]]]:
    """Return the HW events of each partition, if the run promises that they are all there."""
    if not {"hw", "trace"} <= set(s.run["capabilities"]):
        return {}
    return {
        partition: [
            (event["t_us"], event["hw"])
            for node in NODES
            for event in s.traces[node]
            if event["event"] == "hw" and event.get("partition") == partition
        ]
        for partition in s.partitions
        if not watermarks_missing(s, partition)
    }
