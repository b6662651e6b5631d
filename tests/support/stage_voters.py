"""Voters of one data partition, moved by hand through the histories that Raft argues with: a stage.

Every command runs the node's own functions: votes, fetches, truncations, produce. The world is by
hand: who reaches whom, which message is lost or doubled, who dies, and whose patience ends first.

A record is written with a letter and shown with its epoch: `x1 y2`; `*2` is the first record of a
term. `outcome` says in one letter how a history ended:

    T   two nodes led in one term
    L   a record is lost that was committed: below the high watermark of a leader, so that readers
        may have seen it and its producer may have its acknowledgement
    S   a follower is stuck and never has what its leader has
    D   a follower makes progress, and has another record than its leader at some offset
    .   none of these: all logs are one"""

from __future__ import annotations

import random
from typing import NamedTuple

from harness.sim.disk import SimDisk
from node.core import batch as batches
from node.core import bugs, follower, leader, truncation
from node.core.api import NodeConfig
from node.core.context import Context
from node.core.protocol import protocol as protocol_of
from node.core.quorum import Quorum
from node.core.replica import Replica, load
from node.formats.messages import (
    AnyMessage,
    AppendEntries,
    AppendResponse,
    BeginQuorumEpoch,
    EpochEndRequest,
    EpochEndResponse,
    FetchRequest,
    FetchResponse,
    ProduceRequest,
    VoteRequest,
    VoteResponse,
)
from tests.support.stage_histories import Variant
from tests.support.stage_replica import PARTITION

KINDS: dict[str, tuple[type[AnyMessage], ...]] = {
    "": (),
    "votes": (VoteRequest, VoteResponse),
    "requests": (VoteRequest,),
    "questions": (EpochEndRequest, EpochEndResponse),
    "responses": (FetchResponse, AppendEntries),
}


class Mail(NamedTuple):
    """One message under way."""

    source: str
    to: str
    message: AnyMessage
    body: bytes | None


class Node:
    """One voter's process, and its disk, which outlives it."""

    def __init__(self, name: str, variant: Variant, voters: tuple[str, ...]) -> None:
        self.name, self.voters = name, voters
        self.disk = SimDisk()
        self.processes = 0
        self.bugs = bugs.parse(variant.bugs)
        self.protocol = bugs.apply_bugs(variant.protocol, self.bugs)
        self.start(0)

    def start(self, now_us: int) -> None:
        """Start a process on the disk."""
        self.processes += 1
        config = NodeConfig(node=self.name, voters=("v1",), brokers=self.voters)
        jitter = random.Random(f"{self.name}/{self.processes}")
        self.ctx = Context(config, self.disk, self.bugs, jitter, now_us)
        self.r: Replica = load(self.ctx, PARTITION, self.protocol, durable=True)
        self.quorum = Quorum(self.ctx, self.r, self.voters)
        self.quorum.start(self.ctx)

    def takes(self, mail: Mail) -> None:
        """Handle a message as `Broker` does."""
        ctx, message = self.ctx, mail.message
        match message:
            case FetchRequest():
                self.quorum.on_fetch(ctx, mail.source, message)
            case FetchResponse():
                self.quorum.on_fetch_response(ctx, mail.source, message, mail.body)
            case EpochEndRequest():
                truncation.on_request(ctx, self.r, mail.source, message)
            case EpochEndResponse():
                follower.on_epoch_end(ctx, self.r, mail.source, message)
            case AppendEntries():
                self.quorum.on_append(ctx, mail.source, message, mail.body)
            case AppendResponse():
                self.quorum.on_append_response(ctx, mail.source, message)
            case VoteRequest() | VoteResponse() | BeginQuorumEpoch():
                self.quorum.on_message(ctx, mail.source, message)

    def records(self) -> list[str]:
        """Return the log, one text a record."""
        found, _ = self.r.log.read(0, max_bytes=1 << 30, below=self.r.leo)
        views = [batches.view(data) for data in found]
        return [f"{'*' if v.control else v.payload.decode()}{v.epoch}" for v in views]


class VotersStage:
    """The nodes, the mail between them, and what was committed. All begin empty and connected."""

    def __init__(self, protocol: str = "quorum", bugs: str = "", count: int = 3) -> None:
        names = tuple(f"n{i}" for i in range(1, count + 1))
        variant = Variant(protocol_of(protocol), tuple(bugs.split(",")) if bugs else ())
        self.now_us = 0
        self.mail: list[Mail] = []
        self.kept: list[Mail] = []
        self.up = list(names)
        self.reached = list(names)
        self.committed: dict[int, str] = {}
        self.led: dict[int, set[str]] = {}
        self.letter = ""
        self.nodes = {name: Node(name, variant, names) for name in names}
        for name in names:
            self.nodes[name].ctx.effects.messages.clear()  # no node follows another yet

    def role(self, name: str) -> tuple[str, int]:
        """Return the role of a node, and its term."""
        return self.nodes[name].r.role, self.nodes[name].r.leader_epoch

    # -- the world --------------------------------------------------------------------------------

    def connect(self, *names: str) -> None:
        """Only these reach each other from now on; everything under way is lost."""
        self.reached = list(names)
        self.mail.clear()

    def elect(self, name: str) -> None:
        """Its patience ends until it has won; only votes arrive, all else is lost."""
        for _ in range(5):
            self.patience_ends(name)
            self.run("votes")
            self.mail.clear()
            if self.nodes[name].r.role == "leader":
                self.announces(name)
                return
        raise AssertionError(f"{name} is not elected")

    def campaigns(self, name: str, times: int = 3) -> None:
        """So often its patience ends, and all mail arrives."""
        for _ in range(times):
            self.patience_ends(name)
            self.run()

    def patience_ends(self, name: str) -> None:
        """Time passes everywhere, and this node is the first to act on it."""
        self._sleep(700)
        node = self.nodes[name]
        node.quorum.tick(node.ctx)
        self._collect(name)

    def announces(self, name: str) -> None:
        """Announce again that this node leads."""
        node = self.nodes[name]
        node.quorum._announce(node.ctx)
        self._collect(name)

    def _sleep(self, ms: int) -> None:
        self.now_us += ms * 1000
        for each in self.up:
            self.nodes[each].ctx.now_us = self.now_us

    def write(self, name: str, *letters: str) -> None:
        """Write one record each as a client, acks=all."""
        node = self.nodes[name]
        for letter in letters:
            request = ProduceRequest(partition=PARTITION, acks=-1, timeout_ms=60_000)
            leader.on_produce(node.ctx, node.r, "c1", request, batches.build(1, letter.encode()))
            self._collect(name)

    def crash(self, name: str) -> None:
        """End the process, and lose all mail from and to it."""
        self.up.remove(name)
        self.mail = [m for m in self.mail if name not in (m.source, m.to)]

    def start(self, name: str) -> None:
        """Start a process; it does not know yet which node leads."""
        if name in self.up:
            self.crash(name)
        self.up.append(name)
        self.nodes[name].start(self.now_us)
        self._collect(name)

    # -- the mail ---------------------------------------------------------------------------------

    def run(self, kinds: str = "", links: str = "", most: int = 10_000) -> None:
        """Deliver until nothing is left of these kinds (all, if none is named), or `most` were;
        `links` ("n1-n2", "n1>n2" one way) names the only one that carries anything."""
        for _ in range(most):
            at = next((i for i, m in enumerate(self.mail) if self._goes(m, kinds, links)), None)
            if at is None:
                return
            self._give(self.mail.pop(at))

    def commits(self, name: str, links: str) -> None:
        """Deliver until all that this leader has is committed."""
        while self.nodes[name].r.hw < self.nodes[name].r.leo:
            self.run(links=links, most=1)

    def follows(self, name: str, leads: str, links: str) -> None:
        """Deliver until a node follows this leader."""
        while self.nodes[name].r.leader != leads:
            self.run(links=links, most=1)

    def keep(self, kinds: str, to: str = "") -> None:
        """Keep a copy of each such message under way."""
        self.kept += [
            m for m in self.mail if isinstance(m.message, KINDS[kinds]) and to in ("", m.to)
        ]

    def give(self, *numbers: int) -> None:
        """Kept messages arrive, perhaps a second time."""
        for number in numbers:
            self._give(self.kept[number])

    def lose(self) -> None:
        """All mail is lost."""
        self.mail.clear()

    def _give(self, mail: Mail) -> None:
        if mail.to in self.up:
            self.nodes[mail.to].takes(mail)
            self._collect(mail.to)

    def _goes(self, m: Mail, kinds: str, links: str) -> bool:
        ways = (f"{m.source}>{m.to}", f"{m.source}-{m.to}", f"{m.to}-{m.source}", "")
        return links in ways and (not kinds or isinstance(m.message, KINDS[kinds]))

    def _collect(self, name: str) -> None:
        node = self.nodes[name]
        sent, node.ctx.effects.messages = node.ctx.effects.messages, []
        self.mail += [
            Mail(name, m.to, m.message, m.body)
            for m in sent
            if name in self.reached and m.to in self.reached
        ]
        if node.r.role == "leader":
            self.led.setdefault(node.r.leader_epoch, set()).add(name)
            for offset, record in enumerate(node.records()[: node.r.hw]):
                self.committed.setdefault(offset, record)

    # -- the end ----------------------------------------------------------------------------------

    def logs(self) -> list[str]:
        """Return the log of each node, and what readers may have seen."""
        seen = " ".join(self.committed[at] for at in sorted(self.committed))
        logs = {name: " ".join(node.records()) for name, node in self.nodes.items()}
        return [
            *(f"{name}: {log} (HW {self.nodes[name].r.hw})" for name, log in logs.items()),
            f"committed: {seen}",
        ]

    def outcome(self) -> str:
        """Connect everybody, start who is down, let it settle under one leader, and judge."""
        self.connect(*self.nodes)
        for name in self.nodes:
            if name not in self.up:
                self.start(name)
        for _ in range(60):
            self.run(most=200)
            self._sleep(60)
            for name in self.up:
                self.nodes[name].quorum.tick(self.nodes[name].ctx)
                self._collect(name)
        leads = max(self.up, key=lambda n: (self.role(n)[0] == "leader", self.role(n)[1]))
        assert self.role(leads)[0] == "leader", {n: self.role(n) for n in self.up}
        self.letter = self._judged(self.nodes[leads].records())
        return f"-> {self.letter}"

    def _judged(self, log: list[str]) -> str:
        if any(len(nodes) > 1 for nodes in self.led.values()):
            return "T"
        if any(log[at : at + 1] != [record] for at, record in self.committed.items()):
            return "L"
        if any(node.r.leo != len(log) for node in self.nodes.values()):
            return "S"
        return "." if all(node.records() == log for node in self.nodes.values()) else "D"
