"""Ways to corrupt a correct world (`model`), each with what it must be called then.

A corruption changes one thing that could really go wrong; `corruption.txt` says which anomaly that
is and which others it may bring along.
"""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from harness.formats.history import Read, RecordRun
from tests.support.checker.model import Did, Q, World
from tests.support.checker.story import NODES, P
from tests.support.checker.story_text import blocks

T = TypeVar("T")
Corrupt = Callable[[World, random.Random], None]


class NothingToCorrupt(Exception):
    """A world without anything that a corruption could change."""


class Corruption(NamedTuple):
    """A change to a world, the anomaly that it causes, and those that may come with it."""

    name: str
    change: Corrupt
    anomaly: str
    companions: frozenset[str]

    def corrupt(self, world: World, rng: random.Random) -> bool:
        """Change a world; return whether there was something to change."""
        with contextlib.suppress(NothingToCorrupt):
            self.change(world, rng)
            return True
        return False


_NAMED = blocks(Path(__file__).with_suffix(".txt"))
CORRUPTIONS: dict[str, Corruption] = {}


def corruption(corrupt: Corrupt) -> Corrupt:
    """Register a corruption under its function's name, with what `corruption.txt` says of it."""
    name = corrupt.__name__
    first, *others = " ".join(_NAMED[name]).removeprefix("finds ").split()
    CORRUPTIONS[name] = Corruption(name, corrupt, first, frozenset(others[2:]))
    return corrupt


# -- what can be found in a world


def reads(world: World, *, final: bool | None = None) -> list[tuple[Did, int]]:
    """Return the ok reads that returned records: operation, number of the read in it."""
    return [
        (did, n)
        for did in world.did
        if did.outcome == "ok" and final in (None, did.final)
        for n, read in enumerate(did.reads)
        if read.records
    ]


def records(read: Read) -> list[tuple[int, int, int]]:
    """(offset, value, epoch) of each record."""
    return [(r.offset + k, r.value + k, r.epoch) for r in read.records for k in range(r.count)]


def final_records(world: World, partition: str) -> list[tuple[int, int, int]]:
    """Return what the final readers of a partition got."""
    found = [d.reads[n] for d, n in reads(world, final=True)]
    return [r for read in found if read.partition == partition for r in records(read)]


def reread(did: Did, n: int, made: list[tuple[int, int, int]]) -> None:
    """Let a read return these records instead."""
    runs = tuple(RecordRun(offset, value, 1, epoch) for offset, value, epoch in made)
    did.reads[n] = replace(did.reads[n], records=runs)


def pick(rng: random.Random, found: Sequence[T]) -> T:
    """Return one of these. Raises NothingToCorrupt if there are none."""
    if not found:
        raise NothingToCorrupt
    return rng.choice(found)


def erase(world: World, partition: str, gone: set[int], *, final_only: bool = False) -> None:
    """Values that no read returned, or no final one."""
    for did in world.did:
        for n, read in enumerate(did.reads):
            if read.partition == partition and (did.final or not final_only):
                reread(did, n, [r for r in records(read) if r[1] not in gone])


def shorten(world: World, partition: str) -> set[int]:
    """Take the last batch from all logs; return its values."""
    for node in NODES:
        value, count, _ = world.logs[partition][node].pop()
    return set(range(value, value + count))


# -- records that are not there any more


def go_on(world: World, partition: str) -> None:
    """Let the final reader begin its second poll after the last record that it got."""
    first, second = (d for d in world.did if d.final and d.reads[0].partition == partition)
    got = records(first.reads[0])
    second.reads[0] = replace(second.reads[0], start=got[-1][0] + 1 if got else 0)


@corruption
def the_tail_is_gone(world: World, rng: random.Random) -> None:
    """Lose the last acknowledged write on every replica."""
    partition = rng.choice([P, Q])
    erase(world, partition, shorten(world, partition))


@corruption
def the_tail_goes_after_it_was_read(world: World, rng: random.Random) -> None:
    """Remove the last record from final reads and logs after a consumer got it."""
    partition = rng.choice([P, Q])
    offset, value, epoch = final_records(world, partition)[-1]
    run = RecordRun(offset, value, 1, epoch)
    early = Read(partition=partition, start=offset, records=(run,), hw=offset + 1)
    begin = world.phases["final"] - 3
    world.did.append(Did("poll", 80, begin, begin + 1, reads=[early]))
    erase(world, partition, shorten(world, partition), final_only=True)


@corruption
def a_record_nobody_gets(world: World, rng: random.Random) -> None:
    """Hide an acknowledged batch in the middle of the logs from every reader."""
    last = {partition: logs["n1"][-1][0] for partition, logs in world.logs.items() if logs["n1"]}
    sent = [
        s
        for d in world.did
        if d.outcome == "ok" and d.process < 90
        for s in d.sends
        if not s.value <= last.get(s.partition, -1) < s.value + s.count
    ]
    send = pick(rng, sent)
    erase(world, send.partition, set(range(send.value, send.value + send.count)))
    go_on(world, send.partition)


@corruption
def the_last_record_is_never_delivered(world: World, rng: random.Random) -> None:
    """All replicas have it, and the final readers stop short of it."""
    partition = rng.choice([P, Q])
    value, count, _ = world.logs[partition]["n1"][-1]
    erase(world, partition, set(range(value, value + count)))


# -- records that are where they should not be


@corruption
def a_record_comes_again(world: World, rng: random.Random) -> None:
    """Let a final reader get an earlier record once more, behind all others."""
    partition = rng.choice([P, Q])
    finals = [f for f in reads(world, final=True) if f[0].reads[0].partition == partition]
    did, n = finals[-1]
    had = records(did.reads[n])
    first = next(records(d.reads[m])[0] for d, m in finals)
    reread(did, n, [*had, (had[-1][0] + 1, first[1], first[2])])


@corruption
def two_records_change_places(world: World, rng: random.Random) -> None:
    """One reader gets two neighbouring records the other way round."""
    found = [f for f in reads(world, final=False) if len(records(f[0].reads[f[1]])) > 1]
    did, n = pick(rng, found)
    had = records(did.reads[n])
    at = rng.randrange(len(had) - 1)
    (o1, v1, e1), (o2, v2, e2) = had[at], had[at + 1]
    reread(did, n, [*had[:at], (o1, v2, e2), (o2, v1, e1), *had[at + 2 :]])


def _instead(world: World, rng: random.Random, value: int) -> None:
    did, n = pick(rng, reads(world, final=False))
    had = records(did.reads[n])
    at = rng.randrange(len(had))
    had[at] = (had[at][0], value, had[at][2])
    reread(did, n, had)


@corruption
def a_record_from_nowhere(world: World, rng: random.Random) -> None:
    """Let a reader get a value that was never sent."""
    _instead(world, rng, 1_000_000)


@corruption
def a_payload_is_damaged(world: World, rng: random.Random) -> None:
    """Let a reader get bytes that are no record."""
    _instead(world, rng, -1)


@corruption
def a_record_of_another_partition(world: World, rng: random.Random) -> None:
    """Let a reader of one partition get a value that was sent to the other."""
    found = [(d, n) for d, n in reads(world, final=False) if d.reads[n].partition == P]
    did, n = pick(rng, found)
    had = records(did.reads[n])
    had[-1] = (had[-1][0], world.logs[Q]["n1"][0][0], had[-1][2])
    reread(did, n, had)


# -- outcomes and times


@corruption
def a_refused_record_is_read(world: World, rng: random.Random) -> None:
    """Let a reader get a record that was refused."""
    sent = [d for d in world.did if d.f == "send" and d.outcome == "ok" and d.process < 90]
    pick(rng, sent).outcome = "fail"


@corruption
def a_record_is_read_before_it_is_sent(world: World, rng: random.Random) -> None:
    """Move the send of a record that a consumer got to the end."""
    early = {r[1] for d, n in reads(world, final=False) for r in records(d.reads[n])}
    sent = [d for d in world.did if d.f == "send" and d.sends[0].value in early]
    did = pick(rng, sent)
    did.begin, did.end = world.phases["end"] - 20, world.phases["end"] - 10
    did.process = 70


# -- order and watermarks


@corruption
def a_consumer_goes_back(world: World, rng: random.Random) -> None:
    """Let the same process get a record again."""
    did, n = reads(world, final=True)[-1]
    # It does not say that it was asked to begin there.
    read = msgspec.structs.replace(did.reads[n], start=-1)
    again = Did("poll", did.process, did.end + 1, did.end + 2, reads=[read], final=True)
    world.did.append(again)


@corruption
def a_consumer_skips(world: World, rng: random.Random) -> None:
    """Let a process skip two offsets."""
    partition = rng.choice([P, Q])
    every = final_records(world, partition)
    at = pick(rng, range(len(every) - 2))
    begin = world.phases["end"] - 20
    for n, (offset, value, epoch) in enumerate((every[at], every[at + 2])):
        run, start = RecordRun(offset, value, 1, epoch), -1 if n else offset
        read = Read(partition=partition, start=start, hw=len(every), records=(run,))
        world.did.append(Did("poll", 71, begin + 3 * n, begin + 3 * n + 1, reads=[read]))


@corruption
def a_reader_leaves_one_out(world: World, rng: random.Random) -> None:
    """One poll passes over a record that others got."""
    found = [f for f in reads(world, final=False) if len(records(f[0].reads[f[1]])) > 2]
    did, n = pick(rng, found)
    had = records(did.reads[n])
    del had[rng.randrange(1, len(had) - 1)]
    reread(did, n, had)


@corruption
def an_answer_reaches_beyond_its_watermark(world: World, rng: random.Random) -> None:
    """State a HW in an answer that does not cover its last record."""
    did, n = rng.choice(reads(world))
    did.reads[n] = replace(did.reads[n], hw=records(did.reads[n])[-1][0])


@corruption
def the_end_goes_back(world: World, rng: random.Random) -> None:
    """State an earlier end of the log to a reader, long after the last write."""
    partition = rng.choice([P, Q])
    process = next(d.process for d in world.did if d.final and d.reads[0].partition == partition)
    end = world.phases["end"] - 10
    read = Read(partition=partition, hw=0)
    world.did.append(Did("poll", process, end, end + 1, reads=[read], final=True))


@corruption
def a_producer_is_overtaken_by_itself(world: World, rng: random.Random) -> None:
    """Two sends of a process are acknowledged in the wrong order."""
    by_process: dict[int, list[Did]] = {}
    for did in world.did:
        if did.f == "send" and did.outcome == "ok" and did.sends[0].partition == P:
            by_process.setdefault(did.process, []).append(did)
    pairs = [(a, b) for own in by_process.values() for a, b in itertools.pairwise(own)]
    first, second = pick(rng, pairs)
    a, b = first.sends[0], second.sends[0]
    first.sends[0], second.sends[0] = replace(a, offset=b.offset), replace(b, offset=a.offset)


# -- replicas


@corruption
def a_replica_has_another_batch(world: World, rng: random.Random) -> None:
    """One replica has a batch of another leader epoch in its committed log."""
    log = world.logs[rng.choice([P, Q])][rng.choice(NODES)]
    at = rng.randrange(len(log))
    value, count, epoch = log[at]
    log[at] = (value, count, epoch + 1)


@corruption
def a_replica_stays_behind(world: World, rng: random.Random) -> None:
    """One replica never gets the last batch."""
    world.logs[rng.choice([P, Q])][rng.choice(NODES)].pop()


def _last_role(world: World, partition: str) -> tuple[str, dict[str, int]]:
    found = [e for e in world.events if e[1] == "role" and e[2] == partition]
    found = [e for e in found if e[3]["role"] == "leader"]
    return found[-1][0], found[-1][3]


@corruption
def two_nodes_lead(world: World, rng: random.Random) -> None:
    """Another node becomes leader in the epoch of the present one."""
    partition = rng.choice([P, Q])
    node, fields = _last_role(world, partition)
    other = next(n for n in NODES if n != node)
    world.events.append((other, "role", partition, dict(fields)))


@corruption
def a_leader_begins_with_less(world: World, rng: random.Random) -> None:
    """Elect a node whose log ends below what was committed."""
    partition = rng.choice([P, Q])
    highest = max(e[3]["hw"] for e in world.events if e[1] == "hw" and e[2] == partition)
    _, fields = _last_role(world, partition)
    late = {"leader_epoch": 1_000, "leo": highest - 1, "ms": world.phases["end"] - 1}
    world.events.append((rng.choice(NODES), "role", partition, {**fields, **late}))


@corruption
def an_outsider_is_elected(world: World, rng: random.Random) -> None:
    """Elect a broker that the controller had just put out of the ISR."""
    partition = rng.choice([P, Q])
    last = next(e for e in reversed(world.events) if e[1] == "partition" and e[2] == partition)[3]
    number, ms = last["partition_epoch"] + 1, world.phases["end"] - 9
    isr = [n for n in NODES if n == last["leader"]]
    other = next(n for n in NODES if n != last["leader"])
    for n, (leader, epoch) in enumerate(((isr[0], last["leader_epoch"]), (other, 1_000))):
        change = {"partition_epoch": number + n, "isr": isr if n == 0 else [other], "ms": ms + n}
        led = {**last, **change, "leader": leader, "leader_epoch": epoch}
        world.events.append(("v1", "partition", partition, led))
