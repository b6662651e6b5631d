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

from node.core import batch as batches
from node.core.api import Tick
from node.formats.messages import AnyMessage, ProduceRequest
from tests.support.log_notation import PARTITION
from tests.support.lone_broker import LoneBroker, placed
from tests.support.mail_by_hand import MailByHand


class VotersStage(MailByHand):
    """The nodes, the mail between them, and what was committed. All begin empty and connected."""

    def __init__(self, protocol: str = "quorum", bugs: str = "", count: int = 3) -> None:
        super().__init__(protocol, bugs)
        names = tuple(f"n{i}" for i in range(1, count + 1))
        self.record = placed(isr=",".join(names), replicas=",".join(names))
        self.committed: dict[int, str] = {}
        self.led: dict[int, set[str]] = {}
        for name in names:
            self.add(name, brokers=names)
            self.hears(name)
        self.mail.clear()  # no node follows another yet

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
        self.now_us += 700_000
        for each in self.up:
            self.nodes[each].ctx.now_us = self.now_us
        self.nodes[name].step(Tick())
        self.collect(name)

    def announces(self, name: str) -> None:
        """Announce again that this node leads."""
        node = self.nodes[name]
        node.core.quorums[PARTITION]._announce(node.ctx)
        self.collect(name)

    def write(self, name: str, *letters: str) -> None:
        """Write one record each as a client, acks=all."""
        for letter in letters:
            request = ProduceRequest(partition=PARTITION, acks=-1, timeout_ms=60_000)
            self.nodes[name].takes("c1", request, batches.build(1, letter.encode()))
            self.collect(name)

    # -- the mail ---------------------------------------------------------------------------------

    def commits(self, name: str, links: str) -> None:
        """Deliver until all that this leader has is committed."""
        while self.nodes[name].r.hw < self.nodes[name].r.leo:
            self.run(links=links, most=1)

    def follows(self, name: str, leads: str, links: str) -> None:
        """Deliver until a node follows this leader."""
        while self.nodes[name].r.leader != leads:
            self.run(links=links, most=1)

    def collect(self, name: str) -> list[AnyMessage]:
        """Put what a node has sent under way, and note what it leads and has committed."""
        node = self.nodes[name]
        if node.r.role == "leader":
            self.led.setdefault(node.r.leader_epoch, set()).add(name)
            for offset, record in enumerate(records(node)[: node.r.hw]):
                self.committed.setdefault(offset, record)
        return super().collect(name)

    # -- the end ----------------------------------------------------------------------------------

    def logs(self) -> list[str]:
        """Return the log of each node, and what readers may have seen."""
        seen = " ".join(self.committed[at] for at in sorted(self.committed))
        logs = {name: " ".join(records(node)) for name, node in self.nodes.items()}
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
            self.pause(60)
        leads = max(self.up, key=lambda n: (self.role(n)[0] == "leader", self.role(n)[1]))
        assert self.role(leads)[0] == "leader", {n: self.role(n) for n in self.up}
        self.letter = self._judged(records(self.nodes[leads]))
        return f"-> {self.letter}"

    def _judged(self, log: list[str]) -> str:
        if any(len(nodes) > 1 for nodes in self.led.values()):
            return "T"
        if any(log[at : at + 1] != [record] for at, record in self.committed.items()):
            return "L"
        if any(node.r.leo != len(log) for node in self.nodes.values()):
            return "S"
        return "." if all(records(node) == log for node in self.nodes.values()) else "D"


def records(node: LoneBroker) -> list[str]:
    """Return the log of a voter, one text a record."""
    found, _ = node.r.log.read(0, max_bytes=1 << 30, below=node.r.leo)
    views = [batches.view(data) for data in found]
    return [f"{'*' if v.control else v.payload.decode()}{v.epoch}" for v in views]
