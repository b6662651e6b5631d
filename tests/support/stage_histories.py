"""Replicas of one partition, moved by hand through the histories of KIP-101 and KIP-279: a stage.

Every command runs the broker's own functions: produce, fetch, OffsetForLeaderEpoch, transitions.
The world is by hand: which message arrives, who dies, who is elected and who hears of it. The
controller is not asked, so one and the same history is played under every protocol. `outcome` says
in one letter how it ended:

    L   a record is lost that was acknowledged, and whose promise still held
    S   a follower is stuck: it fetches the same offset for ever and can use no answer
    D   a follower is content, and has another record than its leader at some offset
    .   none of these: all replicas have one log"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from node.core import batch as batches
from node.core.protocol import Protocol
from node.formats.messages import (
    UNDEFINED,
    AnyMessage,
    EpochEndResponse,
    Error,
    FetchResponse,
    ProduceRequest,
    ProduceResponse,
)
from tests.support.log_notation import PARTITION, name_of, parse, records, show
from tests.support.lone_broker import LoneBroker, placed
from tests.support.mail_by_hand import Mail, MailByHand
from tests.support.world import logs_of


class Variant(NamedTuple):
    """A variant that a history is played under: protocol and bugs."""

    protocol: Protocol
    bugs: tuple[str, ...] = ()


class HistoriesStage(MailByHand):
    """Replicas, the mail between them, and what was promised. MinISR is 1."""

    def __init__(self, protocol: str = "kafka", bugs: str = "") -> None:
        super().__init__(protocol, bugs)
        self.owed: dict[int, str] = {}
        self._lines: list[str] = []
        self._writes: dict[int, tuple[int, str]] = {}
        self._last = ""
        self._cuts: dict[str, int] = {}
        """How many cuts of each log are told."""

    def node(self, name: str, *log: str, hw: int = 0) -> None:
        """Make a replica with this log and high watermark on its disk."""
        self.add(name, " ".join(log), hw)

    def pair(self, leads: str, epoch: int, follows: str, hw: int = 0, isr: str = "n1") -> None:
        """n1 leads `epoch` with its log; n2 starts with its own log. Alone in its ISR n1 has
        everything committed at once; else its high watermark is that of n2."""
        ours, theirs = parse(leads.replace(",", " ")), parse(follows.replace(",", " "))
        self.node("n1", *leads.split(","), hw=hw)
        self.node("n2", *follows.split(","), hw=hw)
        same = [one for one, other in zip(ours, theirs, strict=False) if one == other]
        common = max(
            (end for i, (_, end, _) in enumerate(same) if same[: i + 1] == ours[: i + 1]), default=0
        )
        self.owed = {base: name_of(base, end, of) for base, end, of in ours if end <= common}
        self.elect("n1", epoch, isr)

    def say(self, line: str) -> None:
        """Add a line to the story, unless it repeats the last one."""
        if line != self._last:
            self._lines.append(line)
        self._last = line

    def log(self, name: str) -> str:
        return show(self.nodes[name].r.log)

    # -- the world --------------------------------------------------------------------------------

    def elect(self, name: str, epoch: int, isr: str, heard_by: str = "") -> None:
        """Name the leader, as the controller does; nodes not in `heard_by` learn it later."""
        names, at = ",".join(self.nodes), self.record.partition_epoch + 1
        self.record = placed(name, epoch, isr, at=at, min_isr=1, replicas=names)
        self.say(f"{name} is elected, epoch {epoch}")
        for each in heard_by.split(",") if heard_by else self.up:
            self.hears(each)

    def write(self, name: str, count: int = 1) -> None:
        """Write one batch as a client, acks=all."""
        node = self.nodes[name]
        base, corr = node.r.leo, len(self._writes) + 1
        text = name_of(base, base + count, node.r.leader_epoch)
        self._writes[corr] = base, text
        self.say(f"{name} writes {text}")
        request = ProduceRequest(partition=PARTITION, acks=-1, corr=corr, timeout_ms=60_000)
        node.takes("c1", request, batches.build(count, text.encode().ljust(count)))
        self.collect(name)

    def checkpoint(self, name: str) -> None:
        """Checkpoint the high watermark."""
        self.nodes[name].r.save_hw(self.nodes[name].ctx)

    def crash(self, name: str) -> None:
        """End the process, and lose all mail from and to it."""
        asked = {(m.source, m.is_of("questions")) for m in self.mail if m.to == name}
        open_ = [f"the {'question' if asks else 'fetch'} of {who}" for who, asks in sorted(asked)]
        self.say(f"{name} dies" + (f", {' and '.join(open_)} unanswered" if open_ else ""))
        super().crash(name)

    def start(self, name: str) -> None:
        """Start a process on the disk. It hears the newest metadata at once."""
        self.say(f"{name} starts")
        self._cuts.pop(name, None)
        super().start(name)

    def unflushed(self, name: str, offset: int) -> None:
        """Cut the power of this dead node, which loses everything from `offset` on."""
        self.nodes[name].storage.truncate(PARTITION, offset, durable=True)
        self.say(f"{name} has lost everything from offset {offset} on")

    def forgive(self, kept: int) -> None:
        """No promise holds any longer for offsets from `kept` on."""
        self.owed = {base: text for base, text in self.owed.items() if base < kept}

    # -- the mail ---------------------------------------------------------------------------------

    def collect(self, name: str) -> list[AnyMessage]:
        """Put what a node has sent under way, and its cuts and acknowledgements into the story."""
        cuts = self.nodes[name].events("truncated")
        for cut in cuts[self._cuts.get(name, 0) :]:
            self.say(f"{name} cuts its log from {cut['from_leo']} to its HW: {cut['leo']}")
        self._cuts[name] = len(cuts)
        sent = super().collect(name)
        for message in sent:
            if isinstance(message, ProduceResponse) and message.error is Error.NONE:
                base, text = self._writes[message.corr]
                self.owed[base] = text
                self.say(f"{text} is acknowledged")
        return sent

    def deliver(self, mail: Mail) -> None:
        """Deliver a message, unless its receiver is down or has heard of nothing yet."""
        node = self.nodes[mail.to]
        if mail.to not in self.up or not node.core.replicas:
            return
        before = node.r.leo
        node.takes(mail.source, mail.message, mail.body)
        node.sleep(0)  # it may have been woken to fetch
        self._cuts[mail.to] = len(node.events("truncated"))
        line = self._line(mail.to, mail.message, mail.body, before)
        if line:
            self.say(line)
        self.collect(mail.to)

    def passes(self, source: str, to: str, *, times: int = 1) -> None:
        """Deliver the mail on one link, and then the answers, so often."""
        for a, b in [(source, to), (to, source)] * times if times > 1 else [(source, to)]:
            link = f"{a}>{b}"
            self.run(links=link, most=sum(m.is_on(link) for m in self.mail))

    def idle(self) -> None:
        """Deliver all mail, and then that of followers whose fetches were held."""
        self.run()
        self.pause(150)
        self.run()

    def propose(self, name: str) -> None:
        """Accept the last ISR that this leader has proposed, if any, as the controller."""
        for proposal in self.nodes[name].events("proposed")[-1:]:
            self.record = msgspec.structs.replace(
                self.record, isr=proposal["isr"], partition_epoch=self.record.partition_epoch + 1
            )
            self.say(f"{name} has the ISR {' '.join(self.record.isr)}")
            self.hears(name)

    def settled(self) -> bool:
        """Return whether every follower waits at the end of its leader's log."""
        lead = self.nodes[self.record.leader].r
        waiting = {name: wait.request.offset for name, wait in lead.follower_waits.items()}
        waiting |= {name: lead.peers[name].leo for name in lead.data_waiters}
        return all(
            self.nodes[name].r.leo == lead.leo == waiting.get(name)
            for name in self.up
            if name != self.record.leader
        )

    def outcome(self, most_rounds: int = 12) -> None:
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
        self.say(f"-> {letter}")
        self.letter = letter

    def _line(self, name: str, message: AnyMessage, body: bytes | None, before: int) -> str:
        """Describe how the follower took an answer."""
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
            return f"{asked}: {came}; refused: {self._refusal(name)}"
        return f"{asked}: {came}" if came else ""

    def _refusal(self, name: str) -> str:
        """Return the reason why the last answer could not be used."""
        events = self.nodes[name].events("refused")
        return str(events[-1]["reason"]).removeprefix(f"{PARTITION}: ") if events else ""


class ShortLogs:
    """The end of a follower's log before any record is fetched, under a protocol, for many pairs of
    logs: one leader a log, and one follower whose process starts on every log."""

    def __init__(self, variant: Variant, leader_epoch: int) -> None:
        self.variant = variant
        self.record = placed("n1", leader_epoch, "n1,n2", min_isr=1, replicas="n1,n2")
        self._leaders: dict[str, LoneBroker] = {}
        self._disks: dict[str, dict[int, tuple[bytes, bytes]]] = {}
        self._follower = self._broker("n2", "")

    def left(self, leads: str, follows: str, hw: int) -> int:
        """Return where the follower's log ends when it begins to fetch from the leader."""
        leader_, mine = self._leader(leads), self._start(follows, hw)
        leader_.r.hw = hw
        leader_.r.peers.clear()
        for _ in range(10):
            sent = mine.sent()
            if not sent:
                return mine.r.leo  # nothing was cut: it asks the same again for ever
            ((to, request, _),) = sent
            assert to == "n1"
            leader_.takes("n2", request)
            answers = [m for m in leader_.sent() if m[0] == "n2"]
            if not answers:
                return mine.r.leo  # the leader holds the fetch: it has nothing to say
            ((_, answer, body),) = answers
            if isinstance(answer, FetchResponse) and answer.diverging is None:
                return mine.r.leo
            mine.takes("n1", answer, body)
        raise AssertionError(f"{leads} against {follows}: no end of it")

    def _broker(self, name: str, log: str) -> LoneBroker:
        bugs, protocol = self.variant.bugs, self.variant.protocol.name
        return LoneBroker(name, log, brokers=("n1", "n2"), protocol=protocol, bugs=bugs)

    def _leader(self, log: str) -> LoneBroker:
        if log not in self._leaders:
            self._leaders[log] = self._broker("n1", log)
            self._leaders[log].hears(self.record)
            self._leaders[log].sent()
        return self._leaders[log]

    def _start(self, log: str, hw: int) -> LoneBroker:
        """Start a process of the follower on a disk with this log."""
        if log not in self._disks:
            node = self._broker("n2", log)
            self._disks[log] = logs_of(node.storage).get(PARTITION, {})
        node = self._follower
        node.core.replicas.clear()
        logs_of(node.storage)[PARTITION] = dict(self._disks[log])
        node.storage.put(f"hw/{PARTITION}", hw.to_bytes(8, "big"), durable=True)
        node.trace.clear()
        node.hears(self.record)
        return node
