"""Golden histories: for every anomaly of the catalogue one that has it and one just short of it.

Each is told once, with `bad` for what makes the difference. What it has is written down by hand,
after docs/checks.md: every anomaly by name with its count, lack of exercise left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from harness.formats.history import Read, RecordRun
from tests.support.checker.story import NODES, Batch, P, Story

Q = "log-1"
Tell = Callable[[Story, bool], object]


class Golden(NamedTuple):
    """A pair of histories of one anomaly, and what each of them has."""

    name: str
    tell: Tell
    bad: dict[str, int]
    good: dict[str, int]

    def story(self, bad: bool) -> Story:
        """The history that has the anomaly, or the one just short of it."""
        made = Story(P, Q)
        self.tell(made, bad)
        return made


GOLDENS: dict[str, Golden] = {}


def golden(good: dict[str, int] | None = None, **bad: int) -> Callable[[Tell], Tell]:
    """Register a pair under its function's name; `bad` and `good` say what the two have."""

    def register(tell: Tell) -> Tell:
        name = tell.__name__.replace("_", "-")
        has = {other.replace("_", "-"): count for other, count in bad.items()}
        GOLDENS[name] = Golden(name, tell, has, good or {})
        return tell

    return register


def two(s: Story) -> None:
    """Two records, acknowledged."""
    s.send(10, at=0)
    s.send(20, at=1)


def deleted(s: Story, node: str, start: int, ms: int) -> None:
    """A replica's log begins there from now on."""
    s.event(
        node,
        "deleted",
        from_start=0,
        start=start,
        leo=3,
        leader_epoch=0,
        reason="retention",
        hash="",
        ms=ms,
    )


def gaps(s: Story) -> None:
    """This system may leave gaps between its offsets."""
    s.run["promise"]["contiguous_offsets"] = False


def logs(s: Story, *of: tuple[Batch, ...], **how: int) -> None:
    """The log of each replica in turn; the last one stands for the others too."""
    for i, node in enumerate(NODES):
        s.log(node, *of[min(i, len(of) - 1)], **how)


def healed(s: Story) -> None:
    """Healed 100 ms into the storm and watched for long enough; recovery may take 2 s."""
    s.phase("heal", 100)
    s.phase("end", 5_000)


# -- lost acknowledged writes


@golden(lost=1)
def lost(s: Story, bad: bool) -> None:
    two(s)
    s.poll((1, 20) if bad else (0, 10))


@golden(vanished=1, offset_hole=1)
def vanished(s: Story, bad: bool) -> None:
    s.send(10, 2, at=0)
    s.poll((0, 10, 2))
    s.final((1, 11) if bad else (0, 10))


@golden(tail_lost=1)
def tail_lost(s: Story, bad: bool) -> None:
    two(s)
    logs(s, ((10, 1), (20, 1))[: 1 if bad else 2], ((10, 1),))


@golden(unseen=1)
def unseen(s: Story, bad: bool) -> None:
    two(s)
    s.final(*((0, 10), (1, 20))[: 1 if bad else 2])
    logs(s, ((10, 1), (20, 1)), hw=1)


# -- committed-prefix agreement


@golden(divergence=1)
def divergence(s: Story, bad: bool) -> None:
    s.hw("n1", (10, 1))
    s.hw("n2", (11, 1) if bad else (10, 1))


@golden(committed_truncated=3)
def committed_truncated(s: Story, bad: bool) -> None:
    s.send(10, 2, at=0)
    logs(s, ((10, 2),))
    s.hw("n1", (10, 2), *[(30, 3)] * bad)


@golden(incomplete_leader=1)
def incomplete_leader(s: Story, bad: bool) -> None:
    s.hw("n1", (10, 2), epoch=1, ms=1)
    s.event("n2", "role", role="leader", leader_epoch=2, leo=1 if bad else 2, hw=0, ms=2)


@golden(divergent_tail=1)
def divergent_tail(s: Story, bad: bool) -> None:
    s.send(10, at=0)
    s.send(20, outcome="info")
    s.send(30, outcome="info")
    logs(s, ((10, 1), (20, 1)), ((10, 1), (30, 1)), ((10, 1), (20, 1)), hw=1)
    s.phase("heal", 100)
    s.phase("end", 2_100 - (not bad))


@golden(replicas_differ=1, divergence=2)
def replicas_differ(s: Story, bad: bool) -> None:
    # Two disks more were lost than this system survives; the replicas must agree all the same.
    s.run["promise"] |= {"flush": "async", "durable_acks": False}
    s.send(10, outcome="info")
    s.send(20, outcome="info")
    s.phase("heal")
    s.phase("in_sync")
    s.phase("end")
    logs(s, ((20 if bad else 10, 1),), ((10, 1),))


# -- offsets and values


@golden(inconsistent_offsets=1, duplicate=1, lost=1)
def inconsistent_offsets(s: Story, bad: bool) -> None:
    two(s)
    s.poll((0, 20 if bad else 10))


@golden(duplicate=1)
def duplicate(s: Story, bad: bool) -> None:
    two(s)
    s.poll((0, 10), (1, 20), *[(2, 10)] * bad)


@golden(aborted_read=1)
def aborted_read(s: Story, bad: bool) -> None:
    s.send(10, outcome="fail" if bad else "info")
    s.op("poll", "info", reads=[Read(partition=P, records=(RecordRun(0, 10),))], process=9)


@golden(aborted_write=1)
def aborted_write(s: Story, bad: bool) -> None:
    s.send(10, outcome="fail" if bad else "info")
    s.log("n1", (10, 1), hw=0)


@golden(phantom=1)
def phantom(s: Story, bad: bool) -> None:
    two(s)
    s.poll((0, 10), (1, 20), *[(2, 777)] * bad)


@golden(misrouted=1)
def misrouted(s: Story, bad: bool) -> None:
    s.send(10, at=0)
    s.send(20, at=0, partition=Q)
    s.poll((0, 10), *[(1, 20)] * bad)
    s.poll((0, 20), partition=Q)


@golden(unreadable_record=1)
def unreadable_record(s: Story, bad: bool) -> None:
    two(s)
    s.poll((0, 10), (1, 20), *[(2, -1)] * bad)


@golden(offset_hole=2)
def offset_hole(s: Story, bad: bool) -> None:
    s.send(10, at=3)
    s.poll((3, 10), start=1 if bad else 3)


# -- reads


@golden(read_beyond_hw=1)
def read_beyond_hw(s: Story, bad: bool) -> None:
    two(s)
    s.poll((0, 10), (1, 20), hw=1 if bad else 2)


@golden(stale_read=1)
def stale_read(s: Story, bad: bool) -> None:
    s.run["promise"]["staleness_ms"] = 10
    s.send(10, at=0, begin=0, end=5)
    s.poll(start=0, begin=16 if bad else 15, end=17)


@golden(hw_regression=1)
def hw_regression(s: Story, bad: bool) -> None:
    s.poll(hw=2)
    s.poll(hw=1 if bad else 2)


# -- order of polls


@golden(int_nonmonotonic_poll=1, good={"offset-hole": 1})
def int_nonmonotonic_poll(s: Story, bad: bool) -> None:
    gaps(s)
    s.send(10, 2, at=0)
    s.poll((0, 10), (1, 11), *[(1, 11)] * bad, *[(3, 12)] * (not bad))
    s.send(12, at=3, process=2, begin=0, end=1)


@golden(int_poll_skip=1, offset_hole=1, good={"offset-hole": 1})
def int_poll_skip(s: Story, bad: bool) -> None:
    gaps(s)
    s.send(10, 3, at=0)
    read = Read(partition=P, records=(RecordRun(0, 10), RecordRun(2, 12)))
    s.op("poll", "info", reads=[read], process=9, rebalanced=(Q if bad else P,))


@golden(nonmonotonic_poll=1)
def nonmonotonic_poll(s: Story, bad: bool) -> None:
    s.send(10, 3, at=0)
    s.poll((0, 10, 2))
    s.poll((1, 11, 2) if bad else (2, 12))


@golden(poll_skip=1)
def poll_skip(s: Story, bad: bool) -> None:
    s.send(10, 3, at=0)
    s.poll((0, 10, 3), process=8)
    s.poll((0, 10))
    s.op("assign", "fail" if bad else "info", process=9, partitions=(Q,))
    s.poll((2, 12))


# -- order of sends


@golden(realtime_order=1)
def realtime_order(s: Story, bad: bool) -> None:
    s.send(10, at=1, process=1, begin=0, end=5)
    s.send(20, at=0, process=2, begin=6 if bad else 5, end=9)


@golden(nonmonotonic_send=1)
def nonmonotonic_send(s: Story, bad: bool) -> None:
    s.send(10, at=5, begin=0, end=9)
    s.send(20, at=4 if bad else 6, begin=1, end=9)


@golden(int_nonmonotonic_send=1)
def int_nonmonotonic_send(s: Story, bad: bool) -> None:
    s.send(10, 2, outcome="info")
    s.poll(*((0, 11), (1, 10)) if bad else ((0, 10), (1, 11)))


@golden(int_send_skip=1, g0=1)
def int_send_skip(s: Story, bad: bool) -> None:
    s.txn((10, 0), (12, 2), begin=0, end=9)
    s.send(11, at=1 if bad else 3, process=2, begin=0, end=9)


# -- transactions


@golden(future_read=1)
def future_read(s: Story, bad: bool) -> None:
    s.poll((0, 10), begin=0, end=4)
    s.send(10, at=0, begin=5 if bad else 4, end=6)


@golden(precommitted_read=1)
def precommitted_read(s: Story, bad: bool) -> None:
    s.txn((10, 0), reads=[(0, 10)] if bad else [], process=2)


@golden(g1c=1)
def g1c(s: Story, bad: bool) -> None:
    s.txn((10, 0), reads=[(Q, (0, 20))] if bad else [], begin=0, end=9)
    s.txn((20, 0, Q), reads=[(0, 10)], process=2, begin=0, end=9)


@golden(g1c_process=1)
def g1c_process(s: Story, bad: bool) -> None:
    # The first has read what the same process began to send later.
    s.txn((20, 0, Q), reads=[(0, 10)], process=1, begin=0, end=9)
    s.send(10, at=0, process=1 if bad else 2, begin=1, end=9)


@golden(g1c_realtime=1)
def g1c_realtime(s: Story, bad: bool) -> None:
    # What the reader saw of the transaction rests on a send that only began afterwards.
    s.txn((20, 0, Q), reads=[(0, 10)], process=1, begin=1, end=9)
    s.poll((0, 20), partition=Q, begin=2, end=6)
    s.send(10, at=0, process=3, begin=7 if bad else 6, end=8)


@golden(g0=1, int_send_skip=2)
def g0(s: Story, bad: bool) -> None:
    s.txn((10, 0), (11, 2 if bad else 1), process=1, begin=0, end=9)
    s.txn((12, 1 if bad else 2), (13, 3), process=2, begin=0, end=9)


def ring(s: Story, *, process: int, end: float, begin: float) -> None:
    """B before C in one partition, C before A in the other; is A before B?"""
    s.send(21, at=1, partition=Q, process=1, begin=0, end=end)
    s.txn((11, 1), (20, 0, Q), process=2, begin=0, end=9)
    s.send(10, at=0, process=process, begin=begin, end=9)


@golden(g0_process=1)
def g0_process(s: Story, bad: bool) -> None:
    ring(s, process=1 if bad else 3, end=9, begin=1)


@golden(g0_realtime=1)
def g0_realtime(s: Story, bad: bool) -> None:
    ring(s, process=3, end=3, begin=4 if bad else 3)


# -- logs and metadata


@golden(corrupt_batch=1)
def corrupt_batch(s: Story, bad: bool) -> None:
    s.send(10, 2, at=0)
    s.log("n1", (10, 2))
    batch = s.logs["n1"][1]
    stored = "00000000000000ff" if bad else batch.hash
    s.logs["n1"][1] = msgspec.structs.replace(batch, stored_hash=stored)


@golden(log_hole=1)
def log_hole(s: Story, bad: bool) -> None:
    s.send(10, 2, at=0)
    s.log("n1", (10, 2), hw=0, leo=3 if bad else 2)


@golden(epoch_regression=1)
def epoch_regression(s: Story, bad: bool) -> None:
    two(s)
    s.log("n1", (10, 1, 3), (20, 1, 2 if bad else 3), epochs=[(3, 0), *[(2, 1)] * bad])


@golden(hw_beyond_log=1)
def hw_beyond_log(s: Story, bad: bool) -> None:
    s.send(10, 2, at=0)
    s.log("n1", (10, 2), hw=3 if bad else 2)


@golden(early_deletion=1)
def early_deletion(s: Story, bad: bool) -> None:
    s.run["capabilities"].append("hw")
    s.run["promise"] |= {"retention": True, "retention_records": 2}
    s.send(10, 3, at=0)
    s.hw("n1", (10, 3), ms=1)
    deleted(s, "n1", 2 if bad else 1, ms=1)
    s.poll((1, 11, 2), start=1)


@golden(epoch_cache_mismatch=1)
def epoch_cache_mismatch(s: Story, bad: bool) -> None:
    two(s)
    s.log("n1", (10, 1, 1), (20, 1, 3), epochs=[(1, 0), (3, 0 if bad else 1), (4, 2)])


@golden(two_leaders=1)
def two_leaders(s: Story, bad: bool) -> None:
    for node, epoch in (("n1", 1), ("n2", 1 if bad else 2)):
        s.event(node, "role", role="leader", leader_epoch=epoch, leo=0, hw=0)


@golden(two_controllers=1)
def two_controllers(s: Story, bad: bool) -> None:
    s.run["voters"] = ["v1", "v2"]
    s.traces["v2"] = []
    for node, term in (("v1", 1), ("v2", 1 if bad else 2)):
        s.event(node, "controller", None, state="active", term=term)


@golden(leader_outside_isr=1)
def leader_outside_isr(s: Story, bad: bool) -> None:
    for epoch, leader in enumerate(("n1", "n3" if bad else "n2")):
        s.event(
            "v1",
            "partition",
            leader=leader,
            leader_epoch=epoch,
            partition_epoch=epoch,
            isr=["n1", "n2"],
            elr=[],
            replicas=list(NODES),
            ms=epoch,
        )


@golden(isr_outside_replicas=1)
def isr_outside_replicas(s: Story, bad: bool) -> None:
    s.event(
        "v1",
        "partition",
        leader="n1",
        leader_epoch=0,
        partition_epoch=0,
        isr=["n1", "n9" if bad else "n3"],
        elr=[],
        replicas=list(NODES),
    )


@golden(fenced_in_isr=1)
def fenced_in_isr(s: Story, bad: bool) -> None:
    state = "fenced" if bad else "unfenced"
    s.event("v1", "broker", None, broker="n3", broker_epoch=7, state=state, ms=0)
    s.event(
        "v1",
        "partition",
        leader="n1",
        leader_epoch=0,
        partition_epoch=0,
        isr=list(NODES),
        elr=[],
        replicas=list(NODES),
        ms=1,
    )


# -- liveness


@golden(unexplained_exit=1)
def unexplained_exit(s: Story, bad: bool) -> None:
    s.exits = [{"node": "n2", "t_us": 1_200_000, "code": 70, "expected": not bad}]


@golden(no_progress=1)
def no_progress(s: Story, bad: bool) -> None:
    healed(s)
    s.send(11, at=0, begin=300, end=2_101 if bad else 2_100)


@golden(final_reads_stuck=1, unseen=1)
def final_reads_stuck(s: Story, bad: bool) -> None:
    healed(s)
    s.send(10, at=0, begin=200, end=300)
    s.phase("final", 1_000)
    outcome, records = ("info", []) if bad else ("ok", [(0, 10)])
    s.poll(*records, process=99, final=True, outcome=outcome, begin=1_000, end=4_000)  # type: ignore[arg-type]
    logs(s, ((10, 1),))


@golden(not_converged=1)
def not_converged(s: Story, bad: bool) -> None:
    healed(s)
    s.send(10, at=0, begin=200, end=300)
    s.send(11, outcome="info", begin=300, end=400)
    logs(s, ((10, 1), (11, 1)), ((10, 1), (11, 1)), ((10, 1), (11, 1))[: 1 if bad else 2])


# -- exercise


@golden(few_acks=1)
def few_acks(s: Story, bad: bool) -> None:
    s.busy(9 if bad else 10)


@golden(clients_stopped=1)
def clients_stopped(s: Story, bad: bool) -> None:
    s.busy()
    s.send(5, at=12, begin=300, end=301)
    s.phase("heal", 901 if bad else 900)
    s.send(6, at=13, begin=600, end=601)
    s.phase("end", 950)


def scheduled(s: Story, *, drawn: bool, struck: int) -> None:
    """Two faults amid twelve sends."""
    s.schedule = {"drawn": drawn, "faults": [{"what": "kill"}, {"what": "isolate"}]}
    for i in range(12):
        s.send(100 + i, at=i, begin=i * 10, end=i * 10 + 1)
    s.poll((0, 100, 12))
    for index in (0, 1):
        s.fault(index, "kill", "inject" if index < struck else "skipped", 15)


@golden(fault_missed=1)
def fault_missed(s: Story, bad: bool) -> None:
    scheduled(s, drawn=False, struck=1 if bad else 2)


@golden(few_faults=2)
def few_faults(s: Story, bad: bool) -> None:
    scheduled(s, drawn=True, struck=0 if bad else 1)


@golden(operation_missed=1)
def operation_missed(s: Story, bad: bool) -> None:
    s.schedule = {
        "workload": {"clients": 0, "consumers": 0, "operations": [{"what": "send", "must": "ok"}]}
    }
    s.send(10, at=0, outcome="info" if bad else "ok", step=0)
