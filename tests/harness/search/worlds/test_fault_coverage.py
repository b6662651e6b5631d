"""Counts of faults by the roles of the nodes that they hit and the state of the partition then."""

from __future__ import annotations

from typing import Any

from harness.search.worlds.outcome import fault_coverage
from nemesis.formats.fault_log import Action, FaultLine

ISR = ("n1", "n2", "n3")


def event(name: str, node: str, t_us: int, **fields: Any) -> dict[str, Any]:
    about = {"partition": "log-0", "role": "follower", "incarnation": 1, "elr": []}
    return {"t_us": t_us, "node": node, "event": name} | about | fields


def record(t_us: int, leader: str, epoch: int, isr: tuple[str, ...]) -> dict[str, Any]:
    about = {"leader": leader, "leader_epoch": epoch, "partition_epoch": epoch}
    return event("partition", "v1", t_us, isr=isr, replicas=ISR, **about)


def fault(t_us: int, what: str, action: Action, *nodes: str) -> FaultLine:
    return FaultLine(t_us=t_us, fault=0, what=what, action=action, nodes=nodes)


def test_a_fault_is_counted_by_the_roles_and_the_isr_at_its_moment() -> None:
    begin = {"leader_epoch": 1, "leo": 0, "hw": 0}
    events = [
        event("controller", "v1", 1, state="active", term=1),
        record(2, "n1", 1, ISR),
        *(event("role", n, 3, **begin, role="leader" if n == "n1" else "follower") for n in ISR),
        record(30, "n1", 2, ISR[:2]),
        record(60, "n2", 3, ISR[1:2]),
        event("role", "n2", 61, **begin | {"leader_epoch": 3}, role="leader"),
    ]
    faults = [
        fault(10, "pause", "inject", "n3"),
        fault(20, "pause", "heal", "n3"),
        fault(40, "cut", "inject", "n1", "n3"),
        fault(50, "kill", "inject", "n1"),
        fault(55, "delay", "inject", "v1"),
        fault(70, "reassign", "inject"),
    ]
    assert fault_coverage(events, faults) == {
        "pause/follower/in-sync": 1,
        "cut/leader/isr-short": 1,
        "cut/lagging/isr-short": 1,
        "kill/leader/isr-short": 1,
        "delay/controller/leaderless": 1,
        "reassign/none/isr-short": 1,
    }
