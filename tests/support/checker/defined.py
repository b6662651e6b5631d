"""All anomalies of a story after the slow definitions, whatever file of it shows them."""

from __future__ import annotations

from collections import Counter

import msgspec

from checker.formats.anomalies import FROM_ABSENCE
from harness.formats.run_info import Promise
from tests.support.checker.definitions import Definitions, Logs
from tests.support.checker.done import joined
from tests.support.checker.evidence_definitions import (
    finished,
    missing,
    unknown_properties,
    watermarks_missing,
)
from tests.support.checker.life_definitions import Leadership, LifeDefinitions
from tests.support.checker.log_definitions import LogDefinitions
from tests.support.checker.story import NODES, Story


def everything(s: Story) -> tuple[Counter[str], Counter[str]]:
    """Every anomaly with its count ("liveness unknown" among them), and how many are allowed for
    their own sake."""
    clients = Definitions(
        joined(s.history),
        logs={partition: logs_of(s, partition) for partition in s.partitions},
        staleness_us=s.run["promise"].get("staleness_ms", -1) * 1000,
        final_reads_due="final_us" in s.run["phases"] or s.run.get("complete_reads", False),
        whole=whole(s),
        established=established(s),
        promise=msgspec.convert(s.run["promise"], Promise),
        external=bool(s.run.get("source")),
    )
    found = clients.counts()
    # Of divergence they know only what reads show.
    del found["divergence"]
    for partition in s.partitions:
        found.update(LogDefinitions(s, partition).counts())
        leadership = Leadership(s, partition).counts()
        controllers = leadership.pop("two-controllers", 0)
        leadership.pop("two-leaders", 0)
        found.update(leadership)
    found["two-controllers"] = controllers
    life = LifeDefinitions(s).counts()
    if not clients.whole:
        life = Counter({name: n for name, n in life.items() if name not in FROM_ABSENCE})
    found.update(life)
    found.update({f"{name} unknown": 1 for name in unknown_properties(s)})
    return +found, clients.excused()


def whole(s: Story) -> bool:
    """Whether what is not in the history did not happen; of an empty one nobody believes that."""
    return bool(s.history) and s.run.get("history_whole", True) and not cut(s)


def cut(s: Story) -> bool:
    """Whether a finished history ends before its final reads, or lacks the end of an operation
    after which its process went on."""
    if s.run["state"] != "finished" or s.run.get("source"):
        return False
    phases = s.run["phases"]
    last_us = max(line.t_us for line in s.history)
    ended = {line.op for line in s.history if line.type != "invoke"}
    open_ = [line for line in s.history if line.op not in ended]
    went_on = any(
        other.process == line.process and other.t_us > line.t_us
        for line in open_
        for other in s.history
    )
    return went_on or last_us < phases.get("final_us", 0) < phases.get("end_us", 0)


def logs_of(s: Story, partition: str) -> Logs:
    """What the dumped logs of a partition hold."""
    lines = [line for node in NODES for line in s.logs[node] if line.partition == partition]
    heads = {line.node: line.hw for line in lines if line.count == 0}
    places = [
        (line.node, (run.offset + k, run.value + k))
        for line in lines
        for run in line.records
        for k in range(run.count)
    ]
    members = s.run["partitions"][partition]
    return Logs(
        records=frozenset(place for _, place in places),
        committed_of=tuple(
            frozenset(place for n, place in places if n == node and place[0] < hw)
            for node, hw in heads.items()
        ),
        of_replicas=tuple(frozenset(v for n, (_, v) in places if n == node) for node in members),
        finished=finished(s, partition) >= set(members),
        listed="records" not in missing(s, partition),
    )


def established(s: Story) -> dict[str, list[tuple[int, int]]]:
    """The HW events of each partition, if the run promises that they are all there."""
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
