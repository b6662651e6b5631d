"""Draws one small experiment: a cluster, a short workload, and a handful of faults. Pure.

Meant for the simulated world: at most five virtual seconds, about a hundred operations.
Nothing here knows any particular bug. What helps is generic: faults strike *when something
happens* (a role is taken, a high watermark moves, a log is cut), on a role or a node, for times
around the cluster's own timeouts; links lose single kinds of messages; and each experiment draws
a mask first, so that it uses few kinds of faults, but those often (swarm testing, Groce 2012).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

from harness.search.choosing import Chooser
from nemesis.schedule import (
    After,
    Bridge,
    Cluster,
    Cut,
    Fault,
    Isolate,
    Kill,
    Link,
    Pause,
    PowerCut,
    Restart,
    Schedule,
    Timings,
    Workload,
)

MAX_FAULTS_DRAWN: Final = 8
TIMINGS: Final = Timings(
    heartbeat_ms=50, session_ms=300, lag_ms=200, fetch_wait_ms=40, fetch_timeout_ms=120,
    retry_ms=20, election_min_ms=80, election_max_ms=160, hw_checkpoint_ms=100,
)  # fmt: skip
"""Every timeout five times as short as a storm's: five virtual seconds hold many elections."""

_ROLES: Final = ("leader", "follower", "lagging", "any")
_KINDS_BETWEEN_BROKERS: Final = (("fetched",), ("fetch",), ("epoch-ended",), ("epoch-end",))
_KINDS_WITH_CONTROLLER: Final = (
    ("altered",), ("alter",), ("fetched",), ("beaten",), ("heartbeat",), ("registered",),
)  # fmt: skip
_ACTIONS: Final[tuple[Literal["drop", "delay", "hold", "duplicate"], ...]] = (
    "drop", "delay", "hold", "duplicate",
)  # fmt: skip
_EVENTS: Final = ("role", "hw", "append", "truncated", "isr", "proposed", "registered", "ack")


def draw_schedule(choose: Chooser, protocol: str, switches: tuple[str, ...] = ()) -> Schedule:
    """One experiment on `protocol`, with the bugs `switches` turned on."""
    cluster = _cluster(choose, protocol, switches)
    workload = Workload(
        seed=choose.integer(0, 1 << 16),
        clients=choose.integer(1, 2),
        consumers=choose.integer(0, 1),
        rate=choose.pick((10.0, 20.0)),
        batch=choose.pick((1, 3, 5)),
        payload_bytes=16,
        acks=-1,
        timeout_ms=600,
        duration_ms=choose.pick((1500, 1000, 2500)),
    )
    makers = _mask(choose, cluster)
    faults: list[Fault] = []
    while len(faults) < MAX_FAULTS_DRAWN and choose.chance(85):
        faults.append(choose.pick(makers)(choose, cluster, workload))
    return Schedule(cluster=cluster, workload=workload, faults=tuple(faults), drawn=True)


def _cluster(choose: Chooser, protocol: str, switches: tuple[str, ...]) -> Cluster:
    brokers = choose.pick((3, 2, 3, 3, 4))
    factor = min(brokers, choose.pick((3, 2, 3)))
    return Cluster(
        protocol=protocol,
        switches=switches,
        brokers=brokers,
        voters=1,
        partitions=choose.pick((1, 1, 2)),
        replication_factor=factor,
        min_isr=min(factor, choose.pick((2, 1, 2))),
        flush=choose.pick(("sync", "sync", "async")),
        flush_interval_ms=choose.pick((200, 1000)),
        timings=TIMINGS,
    )


_Maker = Callable[[Chooser, Cluster, Workload], Fault]


def _mask(choose: Chooser, cluster: Cluster) -> list[_Maker]:
    """The kinds of faults this experiment uses: each is in or out by a coin, one at least."""
    possible: list[_Maker] = [_kill, _lossy_link, _cut, _isolate, _pause, _restart, _power_cut]
    if cluster.brokers >= 3:
        possible.append(_bridge)
    return [maker for maker in possible if choose.chance(50)] or possible[:2]


def _when(choose: Chooser, cluster: Cluster, workload: Workload) -> dict[str, object]:
    """A time, or the moment something happens."""
    if choose.chance(50):
        return {"at_ms": choose.integer(0, max(1, workload.duration_ms - 300))}
    event = choose.pick(_EVENTS)
    match: dict[str, object] = {}
    if choose.chance(50):
        match["node"] = f"n{choose.integer(1, cluster.brokers)}"
    if event in ("role", "hw", "append") and choose.chance(50):
        match["role"] = choose.pick(("leader", "follower"))
    nth = choose.pick((1, 2, 3, 5, 8, 15))
    delay_ms = choose.pick((0, 0, 5, 20, 100))
    return {"after": After(event=event, match=match, nth=nth, delay_ms=delay_ms)}


def _span(choose: Chooser, cluster: Cluster) -> int:
    """How long, in ms: below, about or above the timeouts that protocols decide by."""
    timeout = choose.pick((cluster.timings.session_ms, cluster.timings.lag_ms))
    return max(1, timeout * choose.pick((20, 60, 100, 130, 200, 400)) // 100)


def _on(choose: Chooser, cluster: Cluster) -> str:
    """A broker by name or by role."""
    if choose.chance(50):
        return f"n{choose.integer(1, cluster.brokers)}"
    role = choose.pick(_ROLES)
    return role if role == "any" else f"{role}:{choose.pick(cluster.partition_names())}"


def _kill(choose: Chooser, cluster: Cluster, workload: Workload) -> Fault:
    return Kill(
        on=_on(choose, cluster), for_ms=_span(choose, cluster),
        **_when(choose, cluster, workload),  # type: ignore[arg-type]
    )  # fmt: skip


def _power_cut(choose: Chooser, cluster: Cluster, workload: Workload) -> Fault:
    return PowerCut(
        on=_on(choose, cluster), for_ms=_span(choose, cluster),
        keep_percent=choose.pick((None, 0, 50)),
        **_when(choose, cluster, workload),  # type: ignore[arg-type]
    )  # fmt: skip


def _restart(choose: Chooser, cluster: Cluster, workload: Workload) -> Fault:
    return Restart(
        on=_on(choose, cluster),
        **_when(choose, cluster, workload),  # type: ignore[arg-type]
    )


def _pause(choose: Chooser, cluster: Cluster, workload: Workload) -> Fault:
    return Pause(
        on=_on(choose, cluster), for_ms=_span(choose, cluster),
        **_when(choose, cluster, workload),  # type: ignore[arg-type]
    )  # fmt: skip


def _isolate(choose: Chooser, cluster: Cluster, workload: Workload) -> Fault:
    return Isolate(
        on=_on(choose, cluster), clients=choose.chance(30), for_ms=_span(choose, cluster),
        **_when(choose, cluster, workload),  # type: ignore[arg-type]
    )  # fmt: skip


def _bridge(choose: Chooser, cluster: Cluster, workload: Workload) -> Fault:
    return Bridge(
        on=_on(choose, cluster), for_ms=_span(choose, cluster),
        **_when(choose, cluster, workload),  # type: ignore[arg-type]
    )  # fmt: skip


def _cut(choose: Chooser, cluster: Cluster, workload: Workload) -> Fault:
    on = _on(choose, cluster)
    to = choose.pick(("rest", "voters", "n1", "n2"))
    return Cut(
        on=on, to=to if to != on else "rest", two_way=choose.chance(50),
        for_ms=_span(choose, cluster),
        **_when(choose, cluster, workload),  # type: ignore[arg-type]
    )  # fmt: skip


def _lossy_link(choose: Chooser, cluster: Cluster, workload: Workload) -> Fault:
    """One kind of message is lost, late or doubled on some links."""
    with_controller = choose.chance(35)
    on, to = (_on(choose, cluster), "voters" if with_controller else "rest")
    if choose.chance(50):
        on, to = to, on
    kinds = choose.pick(_KINDS_WITH_CONTROLLER if with_controller else _KINDS_BETWEEN_BROKERS)
    action = choose.pick(_ACTIONS)
    delay_ms = choose.pick((10, 50, 200, 500)) if action in ("delay", "duplicate") else 0
    return Link(
        on=on, to=to, action=action, kinds=kinds, delay_ms=delay_ms,
        limit=choose.pick((None, 1, 2, 5)), for_ms=_span(choose, cluster),
        **_when(choose, cluster, workload),  # type: ignore[arg-type]
    )  # fmt: skip
