"""Replicas of one partition, moved by hand through the histories of KIP-101 and KIP-279.

Every step runs the broker's own functions: produce, fetch, OffsetForLeaderEpoch, the transitions.
What is by hand is the world: which message arrives, who dies, who is elected and who hears of it.
The controller is not asked, so that one and the same history is played under every protocol.

How a history ended is one letter:

    L   a record is lost that was acknowledged, and whose promise still held
    S   a follower is stuck: it fetches the same offset for ever and can use no answer
    D   a follower is content, and has another record than its leader at some offset
    .   none of these: all replicas have one log

Logs are in the notation of `replica_bench`. Nothing is owed any more of what a power cut on all
replicas, or an unclean election, took away: `Cluster.forgive`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from node.core import batch as batches
from node.core import follower, idle, leader, partitions, truncation
from node.core.bugs import apply_bugs
from node.core.image import PartitionRecord
from node.core.messages import (
    UNDEFINED,
    AnyMessage,
    EpochEndRequest,
    EpochEndResponse,
    Error,
    FetchRequest,
    FetchResponse,
    PartitionNotification,
    ProduceRequest,
    ProduceResponse,
)
from node.core.protocol import Protocol
from tests.support.replica_bench import PARTITION, Bench, name_of, parse, records, show


class Variant(NamedTuple):
    """What a history is played under."""

    protocol: Protocol
    bugs: tuple[str, ...] = ()


Disk = tuple[str, int]
"""What a disk holds: a log, and the high watermark as of its last checkpoint."""
Mail = tuple[str, str, AnyMessage, bytes | None]
"""From, to, message, body."""


class Node(Bench):
    """One broker's replica; a new process is loaded from the disk."""

    def __init__(self, name: str, variant: Variant, disk: Disk) -> None:
        log, hw = disk
        super().__init__(name, log, switched=variant.bugs)
        self.protocol = apply_bugs(variant.protocol, self.ctx.bugs)
        self.ctx.storage.put(f"hw/{PARTITION}", hw.to_bytes(8, "big"), durable=True)

    def hears(self, record: PartitionRecord) -> None:
        """The metadata now says this."""
        partitions.apply(self.ctx, self.replicas, {}, [record], self.protocol)

    def takes(self, source: str, message: AnyMessage, body: bytes | None) -> None:
        """What `Broker` does with a message."""
        if isinstance(message, FetchRequest):
            leader.on_fetch(self.ctx, self.r, source, message)
        elif isinstance(message, EpochEndRequest):
            truncation.on_request(self.ctx, self.r, source, message)
        elif isinstance(message, EpochEndResponse):
            follower.on_epoch_end(self.ctx, self.r, source, message)
        elif isinstance(message, FetchResponse):
            follower.on_response(self.ctx, self.r, source, message, body)
        elif isinstance(message, PartitionNotification):
            idle.on_notification(self.ctx, self.r, source)
            self.sleep(0)

    def refused(self) -> str:
        """Why the last answer could not be used."""
        events = self.events("refused")
        return str(events[-1]["reason"]).removeprefix(f"{PARTITION}: ") if events else ""


class Cluster:
    """Replicas, the mail between them, and what was promised. MinISR is 1."""

    def __init__(self, variant: Variant, **disks: Disk) -> None:
        self.nodes = {name: Node(name, variant, disk) for name, disk in disks.items()}
        self.up = list(self.nodes)
        self.mail: list[Mail] = []
        self.record = PartitionRecord(
            partition=PARTITION,
            replicas=tuple(self.nodes),
            isr=tuple(self.nodes),
            leader="",
            leader_epoch=-1,
            partition_epoch=0,
            min_isr=1,
        )
        self.owed: dict[int, str] = {}
        self.story: list[str] = []
        self._writes: dict[int, tuple[int, str]] = {}
        self._told = ""

    def say(self, line: str) -> None:
        """One line of the story; what only repeats is told twice at most."""
        if line == self._told:
            line = f"{line}  (again and again)"
        if not self.story or self.story[-1] != line:
            self.story.append(line)
        self._told = line.removesuffix("  (again and again)")

    def log(self, name: str) -> str:
        return show(self.nodes[name].r.log)

    # -- the world --------------------------------------------------------------------------------

    def elect(self, name: str, epoch: int, isr: str, heard_by: str | None = None) -> None:
        """The controller says who leads. Who is not among `heard_by` learns it later, or never."""
        self.record = PartitionRecord(
            partition=PARTITION,
            replicas=tuple(self.nodes),
            isr=tuple(isr.split()),
            leader=name,
            leader_epoch=epoch,
            partition_epoch=self.record.partition_epoch + 1,
            min_isr=1,
        )
        self.say(f"{name} is elected, epoch {epoch}")
        for each in self.up if heard_by is None else heard_by.split():
            self.hears(each)

    def hears(self, name: str) -> None:
        """The newest metadata reaches a node."""
        node = self.nodes[name]
        cuts = len(node.events("truncated"))
        node.hears(self.record)
        for cut in node.events("truncated")[cuts:]:
            self.say(f"{name} cuts its log from {cut['from_leo']} to its HW: {cut['leo']}")
        self._collect(name)

    def write(self, name: str, count: int = 1) -> None:
        """A client writes one batch, acks=all."""
        node = self.nodes[name]
        base, corr = node.r.leo, len(self._writes) + 1
        text = name_of(base, base + count, node.r.leader_epoch)
        self._writes[corr] = base, text
        self.say(f"{name} writes {text}")
        request = ProduceRequest(partition=PARTITION, acks=-1, corr=corr, timeout_ms=60_000)
        body = batches.build(count, text.encode().ljust(count))
        leader.on_produce(node.ctx, node.r, "c1", request, body)
        self._collect(name)

    def checkpoint(self, name: str) -> None:
        """The high watermark goes to disk, as it does every now and then."""
        self.nodes[name].r.save_hw(self.nodes[name].ctx)

    def crash(self, name: str) -> None:
        """The process is gone, and with it all mail from and to it."""
        asked = {(m[0], isinstance(m[2], EpochEndRequest)) for m in self.mail if m[1] == name}
        open_ = [f"the {'question' if asks else 'fetch'} of {who}" for who, asks in sorted(asked)]
        self.say(f"{name} dies" + (f", {' and '.join(open_)} unanswered" if open_ else ""))
        self._forget(name)
        self.up.remove(name)

    def start(self, name: str) -> None:
        """A new process with what the disk has. It hears the newest metadata at once."""
        self.say(f"{name} starts")
        if name in self.up:
            self._forget(name)
        else:
            self.up.append(name)
        self.nodes[name].replicas.clear()
        self.hears(name)

    def unflushed(self, name: str, offset: int) -> None:
        """A power cut took what this dead node had from `offset` on."""
        node = self.nodes[name]
        node.ctx.storage.truncate(PARTITION, offset, durable=True)
        self.say(f"{name} has lost everything from offset {offset} on")

    def forgive(self, kept: int) -> None:
        """No promise holds any longer for offsets from `kept` on."""
        self.owed = {base: text for base, text in self.owed.items() if base < kept}

    def _forget(self, name: str) -> None:
        self.mail = [m for m in self.mail if name not in (m[0], m[1])]
        self.nodes[name].sent()

    # -- the mail ---------------------------------------------------------------------------------

    def _collect(self, name: str) -> None:
        for to, message, body in self.nodes[name].sent():
            if isinstance(message, ProduceResponse) and message.error is Error.NONE:
                base, text = self._writes[message.corr]
                self.owed[base] = text
                self.say(f"{text} is acknowledged")
            elif to in self.nodes:
                self.mail.append((name, to, message, body))

    def lose(self, source: str, to: str) -> None:
        """All mail on this link is lost."""
        self.mail = [m for m in self.mail if (m[0], m[1]) != (source, to)]

    def deliver(self) -> None:
        """The oldest message arrives."""
        source, to, message, body = self.mail.pop(0)
        if to not in self.up or not self.nodes[to].replicas:
            return
        node = self.nodes[to]
        before = node.r.leo
        node.takes(source, message, body)
        line = self._line(to, message, body, before)
        if line:
            self.say(line)
        self._collect(to)

    def questions(self) -> None:
        """Until what is under way is a fetch: the first one has to wait."""
        while self.mail and isinstance(self.mail[0][2], EpochEndRequest | EpochEndResponse):
            self.deliver()

    def run(self, *, idle: bool = False) -> None:
        """Until no mail is left; then, `idle`, once more after held fetches were answered."""
        while self.mail:
            self.deliver()
        if idle:
            self.pause(150)
            self.run()

    def pause(self, ms: float) -> None:
        """Time passes everywhere."""
        for name in self.up:
            self.nodes[name].sleep(ms)
            self._collect(name)

    def settled(self) -> bool:
        """Whether every follower waits at the end of its leader's log."""
        lead = self.nodes[self.record.leader].r
        waiting = {name: wait.request.offset for name, wait in lead.follower_waits.items()}
        waiting |= {name: lead.peers[name].leo for name in lead.data_waiters}
        return all(
            self.nodes[name].r.leo == lead.leo == waiting.get(name)
            for name in self.up
            if name != self.record.leader
        )

    def outcome(self, most_rounds: int = 12) -> str:
        """Let everything settle and judge it: L, S, D or '.'."""
        for _ in range(most_rounds):
            self.run()
            settled = self.settled()
            if settled:
                break
            self.pause(60)
        leads = self.log(self.record.leader)
        have = dict(zip((base for base, _, _ in parse(leads)), leads.split(), strict=True))
        letter = "."
        if any(have.get(base) != text for base, text in self.owed.items()):
            letter = "L"
        elif not settled:
            letter = "S"
        elif any(self.log(name) != leads for name in self.up):
            letter = "D"
        for name in sorted(self.up):
            self.say(f"{name}: {self.log(name)}")
        return letter

    def _line(self, name: str, message: AnyMessage, body: bytes | None, before: int) -> str:
        """How an answer was taken by the follower it came to."""
        node = self.nodes[name]
        cut = f"cut to {node.r.leo}" if node.r.leo < before else "nothing to cut"
        if isinstance(message, EpochEndResponse):
            ends = f"epoch {message.epoch} ends" if message.version else "it ends"
            if message.end_offset == UNDEFINED:
                return f"{name} asks for the end of epoch {message.asked}: unknown; {cut}, its HW"
            where = f"{ends} at {message.end_offset}"
            return f"{name} asks for the end of epoch {message.asked}: {where}; {cut}"
        if not isinstance(message, FetchResponse):
            return ""
        asked = f"{name} fetches at {message.offset}"
        if message.error is not Error.NONE:
            return f"{asked}: {message.error.value}; {cut}"
        if message.diverging is not None:
            return f"{asked}, last epoch {message.last_epoch}: diverging {message.diverging}; {cut}"
        came = records(body)
        if came and node.r.leo == before:
            return f"{asked}: {came}; refused: {node.refused()}"
        return f"{asked}: {came}" if came else ""


class ShortLogs:
    """What a protocol leaves of a follower's log before any record is fetched, for many pairs of
    logs: one leader a log, and one follower whose process starts on every log."""

    def __init__(self, variant: Variant, leader_epoch: int) -> None:
        self.variant = variant
        self.record = PartitionRecord(
            partition=PARTITION,
            replicas=("n1", "n2"),
            isr=("n1", "n2"),
            leader="n1",
            leader_epoch=leader_epoch,
            partition_epoch=1,
            min_isr=1,
        )
        self._leaders: dict[str, Node] = {}
        self._disks: dict[str, dict[int, tuple[bytes, bytes]]] = {}
        self._follower = Node("n2", variant, ("", 0))

    def left(self, leads: str, follows: str, hw: int) -> int:
        """Where the follower's log ends when it begins to fetch what the leader has."""
        leader_, mine = self._leader(leads), self._start(follows, hw)
        leader_.r.hw = hw
        leader_.r.peers.clear()
        for _ in range(10):
            sent = mine.sent()
            if not sent:
                return mine.r.leo  # nothing was cut: it asks the same again for ever
            ((to, request, _),) = sent
            assert to == "n1"
            leader_.takes("n2", request, None)
            answers = [m for m in leader_.sent() if m[0] == "n2"]
            if not answers:
                return mine.r.leo  # the leader holds the fetch: it has nothing to say
            ((_, answer, body),) = answers
            if isinstance(answer, FetchResponse) and answer.diverging is None:
                return mine.r.leo
            mine.takes("n1", answer, body)
        raise AssertionError(f"{leads} against {follows}: no end of it")

    def _leader(self, log: str) -> Node:
        if log not in self._leaders:
            self._leaders[log] = Node("n1", self.variant, (log, 0))
            self._leaders[log].hears(self.record)
            self._leaders[log].sent()
        return self._leaders[log]

    def _start(self, log: str, hw: int) -> Node:
        """A new process of the follower on a disk with this."""
        if log not in self._disks:
            node = Node("n2", self.variant, (log, 0))
            self._disks[log] = node.ctx.storage.logs.get(PARTITION, {})
        node = self._follower
        node.replicas.clear()
        node.ctx.storage.logs[PARTITION] = dict(self._disks[log])
        node.ctx.storage.put(f"hw/{PARTITION}", hw.to_bytes(8, "big"), durable=True)
        node.ctx.effects.trace.clear()
        node.hears(self.record)
        return node


# -- histories ------------------------------------------------------------------------------------


def kip_101_scenario_1(variant: Variant, first: int = 1, second: int = 1) -> Cluster:
    """A follower restarts before it hears that its last record is committed, and leads next."""
    c = Cluster(variant, n1=("", 0), n2=("", 0))
    c.elect("n2", 1, "n1 n2")
    c.run()
    c.write("n2", first)
    c.run()
    c.write("n2", second)
    c.run()  # n1's fetch behind the second batch commits it; the answer is held, n1.HW is behind
    c.checkpoint("n1")
    c.start("n1")
    c.crash("n2")
    c.elect("n1", 2, "n1")
    c.start("n2")
    return c


def stale_high_watermark(variant: Variant, *, saved: bool = False) -> Cluster:
    """A leader restarts as a follower before it saved its high watermark, and leads next."""
    c = Cluster(variant, n1=("", 0), n2=("", 0))
    c.elect("n1", 1, "n1 n2")
    c.write("n1")
    c.run()
    if saved:
        c.checkpoint("n1")
    c.crash("n1")
    c.elect("n2", 2, "n1 n2")
    c.start("n1")
    c.questions()
    c.crash("n2")
    c.elect("n1", 3, "n1")
    c.start("n2")
    return c


def kip_101_scenario_2(variant: Variant, count: int) -> Cluster:
    """Power fails everywhere; who lost a record leads, and writes `count` records in its place."""
    c = Cluster(variant, n1=("", 0), n2=("", 0))
    c.elect("n1", 0, "n1 n2")
    for _ in range(2):
        c.write("n1")
        c.run(idle=True)
    c.checkpoint("n1")
    c.checkpoint("n2")
    c.crash("n1")
    c.crash("n2")
    c.unflushed("n2", 1)
    c.forgive(1)
    c.elect("n2", 1, "n2")
    c.start("n2")
    c.write("n2", count)
    c.start("n1")
    return c


def second_successor(variant: Variant) -> Cluster:
    """A deposed leader with a record of its own follows the successor of its successor."""
    c = Cluster(variant, n1=("", 0), n2=("", 0), n3=("", 0))
    c.elect("n1", 1, "n1 n2 n3")
    c.write("n1", 5)
    c.run(idle=True)
    c.checkpoint("n1")
    c.write("n1")
    c.crash("n1")
    c.elect("n2", 2, "n2 n3")
    c.run()
    c.write("n2")
    c.run(idle=True)
    c.elect("n3", 3, "n2 n3")
    c.run()
    c.start("n1")
    return c


def kip_279_scenario_1(variant: Variant, n: int) -> Cluster:
    """Two quick elections: n1 leads again before it heard that n2 did. n2 wrote 11..n meanwhile."""
    c = Cluster(variant, n1=("", 0), n2=("", 0))
    c.elect("n1", 1, "n1 n2")
    c.write("n1", 11)
    c.run(idle=True)
    c.checkpoint("n2")
    c.write("n1", 10)
    c.lose("n1", "n2")
    c.elect("n2", 2, "n1 n2", heard_by="n2")
    c.write("n2", n - 10)
    c.mail.clear()
    c.elect("n1", 3, "n1", heard_by="n1")
    c.write("n1", 10)
    c.hears("n2")
    return c


def two_logs(
    variant: Variant, leads: str, epoch: int, follows: str, hw: int, isr: str = "n1"
) -> Cluster:
    """n1 leads `epoch` with its log; n2 starts with its own log and high watermark. Alone in its
    ISR n1 has everything committed at once; else its high watermark is n2's."""
    c = Cluster(variant, n1=(leads, hw), n2=(follows, hw))
    common = 0
    for one, other in zip(parse(leads), parse(follows), strict=False):
        if one != other:
            break
        common = one[1]
    c.owed = {base: name_of(base, end, of) for base, end, of in parse(leads) if end <= common}
    c.elect("n1", epoch, isr)
    return c


def kafka_7415(variant: Variant, hw: int) -> Cluster:
    """The leader has written nothing in its epoch when it is asked, and writes before the fetch."""
    c = two_logs(variant, "0e1 1e1", 3, "0e1 1e1 2e2", hw)
    c.questions()
    c.write("n1")
    return c


Scenario = Callable[[Variant], Cluster]


def _pair(leads: str, epoch: int, follows: str, hw: int, isr: str = "n1") -> Scenario:
    return partial(two_logs, leads=leads, epoch=epoch, follows=follows, hw=hw, isr=isr)


def _case(leads: str, epoch: int, follows: str, hw: int) -> Scenario:
    return _pair(leads, epoch, follows, hw, isr="n1 n2")


SCENARIOS: dict[str, Scenario] = {
    "KIP-101 scenario 1": kip_101_scenario_1,
    "KIP-279 scenario 2 (batches)": partial(kip_101_scenario_1, first=11, second=10),
    "stale high watermark of a leader": stale_high_watermark,
    "KIP-101 scenario 2, single records": partial(kip_101_scenario_2, count=1),
    "KIP-101 scenario 2, a batch of three": partial(kip_101_scenario_2, count=3),
    "second successor": second_successor,
    "KIP-279 scenario 1, n = 15": partial(kip_279_scenario_1, n=15),
    "KIP-279 scenario 1, n = 20": partial(kip_279_scenario_1, n=20),
    "KIP-279 scenario 1, n = 25": partial(kip_279_scenario_1, n=25),
    "KIP-279 scenario 3, HW 0 (unclean)": _pair("0e1 1e3", 3, "0e0 1e2", 0),
    "KIP-279 scenario 3, HW 2 (unclean)": _pair("0e1 1e3", 3, "0e0 1e2", 2),
    "KAFKA-7415, HW at the cut": partial(kafka_7415, hw=2),
    "KAFKA-7415, HW above the cut": partial(kafka_7415, hw=3),
    "alternating epochs 0 2 4 and 1 3 5": _pair("0e1 1e3 2e5", 5, "0e0 1e2 2e4", 0),
    "case A": _case("0e1 1e1 2e1 3e1", 2, "0e1 1e1", 2),
    "case B": _case("0e1 1e1 2e2 3e2", 3, "0e1 1e1", 2),
    "case C": _case("0e1 1e1", 2, "0e1 1e1 2e1 3e1", 2),
    "case D": _case("0e1 1e1", 3, "0e1 1e1 2e2 3e2", 2),
    "case E": _case("0e1 1e1 2e3 3e3", 4, "0e1 1e1 2e2 3e2", 2),
    "case F": _case("0e1 1e1", 3, "0e1 1e2 2e2", 1),
    "case G": _case("0e1 1e3", 4, "0e2", 0),
}
"""In the cases A to G the follower's HW is the end of the common prefix, the best it can be."""
