"""The count of faults by kind, role of the affected node, and state of the partition at that time.
Pure.

A nightly run shows from these counts which combinations it never tried. Roles and states come from
the traces of the nodes, not from the schedule; `harness.formats.nightly_run` lists them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

from nemesis.faults import KINDS
from nemesis.formats.fault_log import FaultLine
from nemesis.view import ClusterView
from node.formats import trace as names

_VIEW_EVENTS: Final = frozenset(
    {names.STARTED, names.STOPPED, names.CONTROLLER, names.ROLE, names.ISR, names.PARTITION}
)
"""The events that a view of the cluster needs, without the frequent ones."""


def fault_coverage(trace: Iterable[Mapping[str, Any]], faults: Iterable[FaultLine]) -> Counter[str]:
    """Count the faults by `kind/role/phase`. A fault on several nodes counts once for each role.
    `trace` has the events of all nodes in the order of time, `faults` the lines of `faults.jsonl`.
    """
    view, found = ClusterView(), Counter[str]()
    due = sorted((f for f in faults if f.action == "inject"), key=lambda f: f.t_us)
    events = (event for event in trace if event["event"] in _VIEW_EVENTS)
    event = next(events, None)
    for fault in due:
        while event is not None and event["t_us"] <= fault.t_us:
            view.observe(event)
            event = next(events, None)
        phase = _phase(view)
        nodes = fault.nodes
        roles = dict.fromkeys(_role(view, node) for node in nodes) or {"none": None}
        found.update(f"{fault.what}/{role}/{phase}" for role in roles)
        for node in nodes if KINDS[fault.what].ends_process else ():
            # A killed process traces nothing more.
            view.lost(node)
    return found


def _role(view: ClusterView, node: str) -> str:
    if node == view.controller():
        return "controller"
    if not node.startswith("n"):
        return "voter"
    partitions = view.partitions()
    if any(view.leader(p) == node for p in partitions):
        return "leader"
    return "lagging" if any(node in view.lagging(p) for p in partitions) else "follower"


def _phase(view: ClusterView) -> str:
    partitions = view.partitions()
    if not all(view.leader(p) for p in partitions):
        return "leaderless"
    short = any(0 < len(view.isr(p)) < len(view.replicas(p)) for p in partitions)
    return "isr-short" if short else "in-sync"
