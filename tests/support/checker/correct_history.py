"""Histories of clients of a log that works (`replicated_log`), in which nothing is wrong.

Clients and log take turns; what a client reports lies between the lines that it writes. Nothing in
here knows a check: a history with a finding that counts is a mistake of the checker.

Producers send again what may have been appended, or do not; what has an unknown outcome takes
effect at once, late or never. Consumers are assigned, subscribed, moved, crash, seek, and get empty
answers. Some read what is not committed, as their operation or the promise says. At the end fresh
readers read everything."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec.structs import replace

from harness.formats.history import Op, Read, RecordRun, Send
from tests.support.checker.replicated_log import Partition, Txn
from tests.support.checker.story import Story

NAMES: Final = ("log-0", "log-1", "7")
REPLACED: Final = 1000
"""What a process's number grows by when its operation ended unknown."""


@dataclass(frozen=True)
class Traits:
    """The traits of a system and of its clients, which make its promise."""

    transactions: bool = False
    groups: bool = False
    """Whether a consumer whose process was replaced stays a member of its group."""
    dirty: str = ""
    """Who reads what is not committed: "", single operations ("op"), or all ("promise")."""
    weak: str = ""
    """Whose acknowledgements promise nothing: "", of single sends ("send"), or all ("promise")."""
    retries: str = ""
    """How a producer repeats a send: "", "idempotent" or "at-least-once"."""
    deletes: str = ""
    """What deletes records: "", "retention" or "compaction"."""
    offsets: bool = True
    starts: bool = True
    watermarks: bool = True
    ends: bool = True
    jepsen: bool = False

    def promise(self) -> dict[str, Any]:
        made: dict[str, Any] = {}
        if self.dirty == "promise":
            made["isolation"] = "read_uncommitted"
        if self.weak == "promise":
            made |= {"acks": 1, "durable_acks": False}
        if self.retries == "at-least-once":
            made["delivery"] = "at-least-once"
        if self.retries == "idempotent":
            made["idempotent"] = True
        if self.deletes:
            made[self.deletes] = True
        return made


def traits(rng: random.Random, *, jepsen: bool) -> Traits:
    """Draw a system. Jepsen's histories can say less."""
    one = rng.random
    return Traits(
        transactions=one() < 0.5,
        groups=one() < 0.5,
        dirty=rng.choice(["", "", "promise"] + ["op"] * (not jepsen)),
        weak=rng.choice(["", "", "", "promise"] + ["send"] * (not jepsen)),
        retries=rng.choice(["", "idempotent", "at-least-once"]),
        deletes=rng.choice(["", "", "", "", "retention", "compaction"]),
        offsets=one() < 0.8,
        starts=not jepsen and one() < 0.7,
        watermarks=not jepsen and one() < 0.6,
        ends=not jepsen and one() < 0.6,
        jepsen=jepsen,
    )


@dataclass
class Client:
    """One thread of operations: its process, where it is, and what it does."""

    kind: str
    process: int
    places: dict[str, int] = field(default_factory=dict)
    """Its position in each partition that it has; it may begin anywhere in the others."""
    polled: dict[str, int] = field(default_factory=dict)
    """Where its own last records ended, if nothing moved it since."""
    subscribed: bool = False
    """It may be moved without a word, as a member of a group."""
    grouped: bool = False
    """It is a member of a group, but an earlier process of it subscribed."""
    held: bool = False
    """It reads the partitions in `places` only."""
    doing: Doing | None = None


@dataclass
class Doing:
    """An operation under way: its steps that are still to come, and what it will report."""

    op: Op
    steps: list[Any]
    outcome: str
    acks: int = -1
    txn: Txn | None = None
    sent: list[Send] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)
    isolation: str = ""
    rebalanced: tuple[str, ...] = ()


class History:
    """A drawn history: its lines in `ops`; `seeks` are the assignments that begin at the start."""

    def __init__(
        self, seed: int, *, jepsen: bool = False, turns: tuple[int, int] = (100, 400), **fixed: Any
    ) -> None:
        """Draw a history from a seed; `fixed` are traits that are not drawn."""
        self.rng = rng = random.Random(seed)
        self.traits = dataclasses.replace(traits(rng, jepsen=jepsen), **fixed)
        self.partitions = {name: Partition(name) for name in NAMES[: rng.randint(1, 3)]}
        self.ops: list[Op] = []
        self.seeks: set[int] = set()
        self.now_us, self.number, self.value = 1000, 0, 0
        self.late: list[tuple[Doing, bool]] = []
        kinds = ["producer"] * rng.randint(1, 3) + ["consumer"] * rng.randint(1, 3)
        if self.traits.transactions:
            kinds += ["both"] * rng.randint(1, 2)
        self.clients = [Client(kind, n) for n, kind in enumerate(kinds)]
        for _ in range(rng.randint(*turns)):
            self._turn()
        self._finish()

    def story(self) -> Story:
        """Return the history as a story without replicas."""
        s = Story(*self.partitions, capabilities=[], source="own", complete_reads=True, phases={})
        s.run |= {"partitions": {name: [] for name in s.partitions}, "brokers": [], "voters": []}
        s.promise(contiguous_offsets=False, **self.traits.promise())
        s.history, s.ops, s.as_told = list(self.ops), self.number, True
        return s

    # -- turns -----------------------------------------------------------------------------------

    def _turn(self) -> None:
        rng = self.rng
        self.now_us += rng.choice([0, 1, 100, 900])
        drawn = rng.random()
        if drawn < 0.04:
            rng.choice([*self.partitions.values()]).change_leader(rng)
        elif drawn < 0.12 and self.late:
            self._take_effect_late(*self.late.pop(rng.randrange(len(self.late))))
        elif drawn < 0.14 and self.traits.deletes:
            one = rng.choice([*self.partitions.values()])
            (one.trim if self.traits.deletes == "retention" else one.compact)(rng)
        elif drawn < 0.25:
            rng.choice([*self.partitions.values()]).replicate()
        else:
            self._go_on(rng.choice(self.clients))

    def _go_on(self, client: Client) -> None:
        """Begin an operation, take one step of it, or end it."""
        if (doing := client.doing) is None:
            self._begin(client)
        elif doing.steps:
            step = doing.steps.pop(0)
            step()
        else:
            self._end(client, doing)

    def _begin(self, client: Client) -> None:
        rng = self.rng
        if client.kind == "consumer":
            drawn = rng.random()
            if drawn < 0.1:
                return self._move(client)
            if drawn < 0.14:
                return self._crash(client)
            return self._poll(client)
        return self._send(client)

    def _line(self, client: Client, f: Any, **more: Any) -> Op:
        op = Op(
            op=self.number,
            t_us=self.now_us,
            process=client.process,
            client=f"c{client.process % REPLACED}",
            type="invoke",
            f=f,
            **more,
        )
        self.number += 1
        self.ops.append(op)
        return op

    # -- sends -----------------------------------------------------------------------------------

    def _send(self, client: Client) -> None:
        """Begin a send, or a transaction of several sends and polls."""
        rng, traits = self.rng, self.traits
        several = traits.transactions and (client.kind == "both" or rng.random() < 0.3)
        acks = -1
        if traits.weak == "send" and not several:
            acks = rng.choice([-1, 0, 1])
        elif traits.weak == "promise" and not several:
            acks = rng.choice([0, 1])
        stated = acks if traits.weak == "send" else -1
        sends = []
        for _ in range(rng.randint(1, 3) if several else 1):
            count = 1 if traits.jepsen else rng.choice([1, 1, 2, 3])
            name = rng.choice([*self.partitions])
            sends.append(Send(partition=name, value=self.value, count=count, acks=stated))
            self.value += count
        outcome = rng.choice(["ok"] * 6 + ["info", "info", "fail", "open"])
        f = "txn" if client.kind == "both" else "send"
        op = self._line(client, f, sends=tuple(sends), **self._isolation(client))
        doing = Doing(op, [], outcome, acks, isolation=op.isolation)
        if several:
            doing.txn = Txn()
        client.doing = doing
        if outcome in ("info", "open") and rng.random() < 0.6:
            # Its requests are under way: they arrive when this client has given up, or never.
            if rng.random() < 0.6:
                self.late.append((doing, False))
            return
        if outcome == "fail" and doing.txn is None:
            return
        doing.steps = [lambda s=s: self._append(doing, s) for s in sends]
        if client.kind == "both":
            for name in rng.sample([*self.partitions], rng.randint(1, len(self.partitions))):
                at = rng.randint(0, len(doing.steps))
                doing.steps.insert(at, lambda n=name: self._read(client, doing, n))
        if doing.txn is not None:
            doing.steps.append(lambda: self._end_txn(doing, outcome))

    def _isolation(self, client: Client) -> dict[str, str]:
        if self.traits.dirty == "op" and client.kind != "producer" and self.rng.random() < 0.5:
            return {"isolation": "read_uncommitted"}
        return {}

    def _append(self, doing: Doing, send: Send) -> None:
        """Append a batch and wait until it is as safe as its acknowledgement says."""
        one, rng = self.partitions[send.partition], self.rng
        if doing.acks == 0 and rng.random() < 0.2:
            doing.sent.append(send)  # It is lost on its way, and nobody learns of it.
            return
        base = one.append(send.value, send.count, doing.txn)
        again = self.traits.retries == "at-least-once" and doing.txn is None
        if again and rng.random() < 0.3:
            # An answer was lost; any of the copies may be the one that is acknowledged.
            base = rng.choice([base, one.append(send.value, send.count)])
        if again and rng.random() < 0.2:
            self.late.append((replace_sends(doing, [send]), True))
        doing.steps.insert(0, lambda: self._acknowledge(doing, send, base))

    def _acknowledge(self, doing: Doing, send: Send, base: int) -> None:
        """Note where a batch is; if a new leader cut it off, send it again, or do not know."""
        one = self.partitions[send.partition]
        if doing.acks == -1:
            if not one.has(base, send.value):
                if doing.outcome == "ok" and self.traits.retries:
                    self._append(doing, send)
                    return
                doing.outcome = "info"
                return
            if one.hw < base + send.count:
                if doing.outcome != "ok":
                    return
                one.replicate()
        known = self.traits.offsets and doing.acks != 0
        doing.sent.append(replace(send, offset=base) if known else send)

    def _end_txn(self, doing: Doing, outcome: str) -> None:
        """Commit or abort, in all partitions at once."""
        assert doing.txn is not None
        commits = outcome == "ok" or (outcome != "fail" and self.rng.random() < 0.5)
        doing.txn.state = "committed" if commits else "aborted"
        for name in {send.partition for send in doing.op.sends}:
            self.partitions[name].mark(doing.txn)

    def _take_effect_late(self, doing: Doing, copy: bool) -> None:
        """Append what was under way, when its client may long have given up."""
        if doing.txn is not None:
            doing.txn.state = "committed"
        for send in doing.op.sends:
            one = self.partitions[send.partition]
            one.append(send.value, send.count, doing.txn)
        if doing.txn is not None and not copy:
            for name in {send.partition for send in doing.op.sends}:
                self.partitions[name].mark(doing.txn)

    # -- reads -----------------------------------------------------------------------------------

    def _poll(self, client: Client) -> None:
        rng = self.rng
        outcome = rng.choice(["ok"] * 8 + ["fail", "info", "open"])
        op = self._line(client, "poll", **self._isolation(client))
        client.doing = doing = Doing(op, [], outcome, isolation=op.isolation)
        held = [*client.places] if client.held else [*self.partitions]
        if (client.subscribed or client.grouped) and client.places and rng.random() < 0.2:
            self._rebalance(client, doing)
        if outcome != "open":
            for name in rng.sample(held, rng.randint(0, len(held))):
                doing.steps.append(lambda n=name: self._read(client, doing, n))

    def _read(self, client: Client, doing: Doing, name: str) -> None:
        """Read on from where the client is; a place is kept only when the operation ends ok."""
        rng, one = self.rng, self.partitions[name]
        dirty = "read_uncommitted" in (doing.isolation, self.traits.promise().get("isolation"))
        limit = one.hw if dirty else one.stable
        place = doing.places.get(name, client.places.get(name))
        seeks = place is None or (self.traits.starts and rng.random() < 0.1)
        begin = rng.randint(one.start, max(limit, one.start)) if seeks else place
        assert begin is not None
        doing.reads += self._answer(one, begin, limit, dirty, doing, free=seeks)

    def _answer(
        self, one: Partition, begin: int, limit: int, dirty: bool, doing: Doing, *, free: bool
    ) -> Iterator[Read]:
        """Yield what a poll that begins there gets, if anything, and remember how far it came."""
        rng, traits = self.rng, self.traits
        seen = one.visible(begin, limit, dirty)
        got = [] if rng.random() < 0.2 else seen[: rng.randint(0, len(seen))]
        states = traits.starts and (free or rng.random() < 0.8)
        # Only records move a reader: one that sought and got nothing seeks again.
        if got:
            doing.places[one.name] = got[-1][0] + 1
        if not got and rng.random() < 0.3:
            return
        at_end = len(got) == len(seen) and limit == one.hw == one.end
        yield Read(
            partition=one.name,
            start=begin if states else -1,
            records=runs(got),
            hw=one.hw if traits.watermarks and rng.random() < 0.8 else -1,
            at_end=at_end and traits.ends and rng.random() < 0.8,
            node=rng.choice(["", "n1"]),
        )

    def _move(self, client: Client) -> None:
        """Assign or subscribe a consumer; it may begin anywhere in what it did not have."""
        rng = self.rng
        names = tuple(rng.sample([*self.partitions], rng.randint(0, len(self.partitions))))
        outcome = rng.choice(["ok"] * 5 + ["fail", "info"])
        f = rng.choice(["assign", "subscribe"])
        op = self._line(client, f, partitions=names)
        client.doing = Doing(op, [], outcome)
        if self.traits.jepsen and f == "assign" and rng.random() < 0.3:
            self.seeks.add(op.op)

    def _crash(self, client: Client) -> None:
        op = self._line(client, "crash")
        client.doing = Doing(op, [], "info")

    # -- ends ------------------------------------------------------------------------------------

    def _end(self, client: Client, doing: Doing) -> None:
        """Write the end of an operation, or give it up without one."""
        client.doing = None
        outcome, f = doing.outcome, doing.op.f
        if outcome == "ok":
            client.places |= doing.places
            client.polled |= doing.places
        if f in ("assign", "subscribe") and outcome != "fail":
            self._moved(client, doing)
        if outcome != "open":
            sends = self._reported(doing, outcome)
            done = replace(doing.op, t_us=self.now_us, type=outcome, sends=sends, isolation="")
            error = "" if outcome == "ok" else "no answer"
            more = {"reads": tuple(doing.reads), "rebalanced": doing.rebalanced}
            self.ops.append(replace(done, error=error, **more))
        if outcome in ("info", "open"):
            client.process += REPLACED
            member = client.subscribed or client.grouped
            client.grouped = f != "crash" and member and self.traits.groups
            client.places = client.places if client.grouped else {}
            client.polled, client.subscribed, client.held = {}, False, client.grouped

    def _reported(self, doing: Doing, outcome: str) -> tuple[Send, ...]:
        """Return the sends of an operation with the offsets that its client learned."""
        known = {send.value: send for send in doing.sent}
        if outcome != "ok" and self.rng.random() < 0.5:
            return doing.op.sends
        return tuple(known.get(send.value, send) for send in doing.op.sends)

    def _moved(self, client: Client, doing: Doing) -> None:
        """Give a consumer the partitions that it asked for."""
        names = doing.op.partitions
        kept = client.polled if client.subscribed else client.places
        client.subscribed, client.grouped = doing.op.f == "subscribe", False
        client.places = {name: at for name, at in kept.items() if name in names}
        client.polled = {name: at for name, at in client.polled.items() if name in names}
        client.held = client.subscribed or doing.op.op in self.seeks
        if client.subscribed:
            client.places = {name: self._anywhere(name) for name in names}
        elif client.held:
            client.places = dict.fromkeys(names, 0)

    def _anywhere(self, name: str) -> int:
        one = self.partitions[name]
        return self.rng.randint(one.start, max(one.start, one.stable))

    def _rebalance(self, client: Client, doing: Doing) -> None:
        """Give a partition to a member of a group, with or without a word: it goes on where the
        group was."""
        name = self.rng.choice([*client.places])
        client.places[name] = self._anywhere(name)
        if client.grouped or self.rng.random() < 0.7:
            doing.rebalanced = (name,)
            client.polled.pop(name, None)

    # -- the end of a run ------------------------------------------------------------------------

    def _finish(self) -> None:
        """End what is under way; then let fresh clients read everything from the beginning."""
        for client in self.clients:
            while client.doing is not None:
                self.now_us += 10
                self._go_on(client)
        for one in self.partitions.values():
            one.replicate()
        self.now_us += 100_000
        for nth in range(self.rng.randint(1, 2)):
            for number, one in enumerate(self.partitions.values()):
                reader = Client("final", 500 + 10 * nth + number, {one.name: 0}, held=True)
                self._read_all(reader, one)

    def _read_all(self, reader: Client, one: Partition) -> None:
        """Read a partition from its beginning until there is nothing more."""
        rng = self.rng
        if self.traits.jepsen:
            op = self._line(reader, "assign", partitions=(one.name,))
            self.seeks.add(op.op)
            self.ops.append(replace(op, type="ok"))
        place = 0
        while True:
            self.now_us += rng.choice([1, 500])
            op = self._line(reader, "poll", final=not self.traits.jepsen)
            self.now_us += rng.choice([0, 300])
            # A transaction that commits between the final reads of its partitions is seen in one
            # of them only: what became of the rest of it nothing shows.
            if self.late and self.late[-1][0].txn is None and rng.random() < 0.1:
                self._take_effect_late(*self.late.pop())
            doing = Doing(op, [], "ok")
            dirty = self.traits.dirty == "promise"
            limit = one.hw if dirty else one.stable
            seen = one.visible(place, limit, dirty)
            doing.reads += self._answer(one, place, limit, dirty, doing, free=False)
            place = doing.places.get(one.name, place)
            self.ops.append(replace(op, t_us=self.now_us, type="ok", reads=tuple(doing.reads)))
            if not seen:
                return


def replace_sends(doing: Doing, sends: list[Send]) -> Doing:
    """Return an operation that sends only these once more."""
    return Doing(replace(doing.op, sends=tuple(sends)), [], "info")


def runs(records: list[tuple[int, int, int]]) -> tuple[RecordRun, ...]:
    """Return records (offset, value, epoch) as runs in which offsets and values rise together."""
    made: list[RecordRun] = []
    for offset, value, epoch in records:
        last = made[-1] if made else None
        follows = last is not None and last.epoch == epoch
        if (
            last is not None
            and follows
            and (offset, value) == (last.offset + last.count, last.value + last.count)
        ):
            made[-1] = RecordRun(last.offset, last.value, last.count + 1, epoch)
        else:
            made.append(RecordRun(offset, value, 1, epoch))
    return tuple(made)
