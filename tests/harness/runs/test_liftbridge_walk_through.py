"""Liftbridge's replication protocol as its document tells it, on real processes (slow).

The schedule has no times: each fault waits for the step before it to be committed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.real_run import Event, Reader, trace
from tests.support.running_harness import lines, ran

LOG = "log-0"
BROKERS = ["n1", "n2", "n3"]


def without(*gone: str) -> list[str]:
    return [node for node in BROKERS if node not in gone]


@pytest.mark.nightly
def test_every_stage_of_the_document_happens_in_its_order(tmp_path: Path) -> None:
    folder, _ = ran(tmp_path, "run", "--schedule", "liftbridge-walk-through")
    faults = [each for each in lines(folder / "faults.jsonl") if each["action"] == "inject"]
    assert [each["what"] for each in faults] == [
        "kill",
        "restart",
        "kill",
        "restart",
        "kill",
        "kill",
        "restart",
    ]
    hit = [each["nodes"][0] for each in faults]
    story = Reader(trace(folder))

    created = partition_creation(story)
    leader, follower = created["leader"], hit[0]
    replication(story, leader, follower)

    assert hit[1] == follower != leader
    back = follower_failure_and_return(story, created, follower)

    assert hit[2] == hit[3] == leader
    changed = leader_failure(story, back, leader)

    assert hit[5] == hit[6]
    metadata_leader_failure(story, changed, hit[4], hit[5])


def partition_creation(story: Reader) -> Event:
    """Check that the metadata leader chooses replicas, the first ISR and a leader, and assigns
    epochs."""
    story.then("metadata leader", "controller", state="active", term=1)
    created = story.then("creation", "partition", partition=LOG)
    assert sorted(created["replicas"]) == sorted(created["isr"]) == BROKERS
    assert created["leader"] in created["isr"]
    assert created["leader_epoch"] == created["partition_epoch"], "the offset of one record"
    story.then(
        "the leader begins",
        "role",
        node=created["leader"],
        partition=LOG,
        role="leader",
        leader_epoch=created["leader_epoch"],
        leo=0,
        hw=0,
    )
    return created


def replication(story: Reader, leader: str, follower: str) -> None:
    """Written by the leader, fetched, committed, and only then known to the follower as such."""
    of = {"partition": LOG}
    story.then("written", "append", node=leader, **of, role="leader", base_offset=0)
    story.then("replicated", "append", node=follower, **of, role="follower", base_offset=0)
    hw = story.then("committed", "hw", node=leader, **of, role="leader")["hw"]
    story.then("acknowledged", "ack", node=leader, **of, base_offset=0)
    told = {"at_least": hw}
    story.then("the HW comes with a response", "hw", node=follower, **of, role="follower", hw=told)


def follower_failure_and_return(story: Reader, before: Event, follower: str) -> Event:
    """Out of the ISR by its lag, back by the LeaderEpoch offset request and its catching up."""
    leader, epoch = before["leader"], before["leader_epoch"]
    left = without(follower)
    proposed = story.then("lag", "proposed", node=leader, partition=LOG)
    assert sorted(proposed["isr"]) == left
    shrunk = story.then("shrunk", "partition", partition=LOG)
    assert (sorted(shrunk["isr"]), shrunk["leader"], shrunk["leader_epoch"]) == (
        left,
        leader,
        epoch,
    )
    assert shrunk["partition_epoch"] > before["partition_epoch"], "the Epoch is incremented"
    goes_on = story.then("under-replicated", "ack", node=leader, partition=LOG)
    assert follower not in goes_on["isr"]
    again = {"node": follower, "incarnation": 2}
    story.then("returns", "started", **again)
    story.then("follows", "role", **again, partition=LOG, role="follower", leader_epoch=epoch)
    story.then(
        "offset request", "truncated", **again, partition=LOG, reason="offset-for-leader-epoch"
    )
    story.then("fetches", "append", **again, partition=LOG, role="follower")
    story.then("caught up", "proposed", node=leader, partition=LOG)
    back = story.then("expanded", "partition", partition=LOG, leader_epoch=epoch)
    assert (sorted(back["isr"]), back["leader"]) == (BROKERS, leader)
    assert back["partition_epoch"] > shrunk["partition_epoch"]
    return back


def leader_failure(story: Reader, before: Event, leader: str) -> Event:
    """Both followers report, one is no majority; the successor leads in a higher LeaderEpoch."""
    epochs = {name: before[name] for name in ("leader_epoch", "partition_epoch")}
    about = {"partition": LOG, "leader": leader}
    story.then("a follower suspects", "reported", **about, **epochs)
    one = story.then("no majority yet", "witnessed", **about)
    two = story.then("majority", "witnessed", **about)
    assert (len(one["witnesses"]), sorted(two["witnesses"])) == (1, without(leader))
    elected = story.then("elected", "partition", partition=LOG)
    successor = elected["leader"]
    assert successor in without(leader)
    assert elected["leader_epoch"] > before["leader_epoch"]
    assert elected["partition_epoch"] > before["partition_epoch"]
    assert leader in elected["isr"], "it lags out of it later"
    new = {"node": successor, "partition": LOG}
    story.then("leads", "role", **new, role="leader", leader_epoch=elected["leader_epoch"])
    shrunk = story.then("shrunk", "partition", partition=LOG)
    assert sorted(shrunk["isr"]) == without(leader)
    story.then("acknowledges", "ack", **new)
    story.then("the old leader asks", "truncated", node=leader, incarnation=2, partition=LOG)
    back = story.then("expanded", "partition", partition=LOG)
    assert (sorted(back["isr"]), back["leader"]) == (BROKERS, successor)
    return back


def metadata_leader_failure(story: Reader, before: Event, dead: str, follower: str) -> None:
    """Raft elects another; it knows leader and ISR of the partition, and can change them."""
    active = story.then("metadata leader", "controller", state="active")
    new = active["node"]
    assert new != dead
    assert active["term"] > 1
    shrunk = story.then("shrunk", "partition", node=new, partition=LOG)
    assert sorted(shrunk["isr"]) == without(follower)
    assert shrunk["leader"] == before["leader"]
    assert shrunk["leader_epoch"] == before["leader_epoch"]
    assert shrunk["partition_epoch"] > before["partition_epoch"]
    back = story.then("expanded", "partition", node=new, partition=LOG)
    assert (sorted(back["isr"]), back["leader"]) == (BROKERS, before["leader"])
