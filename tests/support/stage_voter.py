"""One voter of the metadata partition, with the other voters by hand: a stage of scripts.

A record of its log stands for the first record of a leader. The output has the messages, and role,
term, log end and high watermark if they are others."""

from __future__ import annotations

import random
from typing import Any

from node.core import batch as batches
from node.core.api import Deliver, Event, Mark, NodeConfig, Tick
from node.core.image import LeaderRecord, encode_records
from node.core.log import Log
from node.core.replica import Replica
from node.formats.errors import InvariantBroken
from node.formats.messages import (
    AnyMessage,
    BeginQuorumEpoch,
    FetchRequest,
    FetchResponse,
    VoteRequest,
    VoteResponse,
)
from node.formats.trace import METADATA_PARTITION
from node.formats.wire import fetch_body
from tests.support.log_notation import parse
from tests.support.lone_broker import LoneCore
from tests.support.stage_replica import message_text
from tests.support.world import logs_of


class VoterStage(LoneCore):
    """Voter v1 (or another one) of v1, v2.. with a log in the notation of `stage_replica`."""

    def __init__(self, name: str = "v1", voters: int = 3) -> None:
        voters = tuple(f"v{i}" for i in range(1, voters + 1))
        super().__init__(NodeConfig(node=name, voters=voters, brokers=()))
        self._lines: list[str] = []
        self._state = ""

    @property
    def r(self) -> Replica:
        """The replica of the metadata partition."""
        return self.core.quorum.r

    def start(self, *log: str, hw: int = 0) -> None:
        """Start the first process with this log on its disk."""
        stored = Log(METADATA_PARTITION, self.storage, durable=True)
        for first, _, epoch in parse(" ".join(log)):
            payload = encode_records([LeaderRecord(term=epoch, leader="v9")])
            data = batches.stamp(batches.build(1, payload), first, epoch)
            stored.append_as_follower([batches.view(data)])
        self.storage.put(f"hw/{METADATA_PARTITION}", hw.to_bytes(8, "big"), durable=True)
        self.restart()

    def restart(self) -> None:
        """Start a process on the same disk."""
        self.boot(self.now_us if self._processes else 0)
        self._do(Tick())

    def jitter(self, process: int) -> random.Random:
        return random.Random(process)

    def tick(self, ms: int, times: int = 1, fetcher: str = "") -> None:
        """Time passes, `times` times; a fetcher has all after each. Messages of a long time are
        not shown."""
        for _ in range(times):
            self._do(Tick(), ms)
            if fetcher:
                self.fetched(fetcher, self.r.leo, self.r.log.last_epoch)
        if times > 1:
            self._lines.clear()

    def asked(self, source: str, term: int, log: str = "99,99", pre: int = 0) -> None:
        """Another node asks for a vote; its log is (last epoch, log end)."""
        epoch, end = map(int, log.split(","))
        request = VoteRequest(
            partition=METADATA_PARTITION,
            term=term,
            last_epoch=epoch,
            last_offset=end,
            pre=bool(pre),
        )
        self._hear(source, request)

    def vote(self, source: str, term: int, *, granted: int = 1, pre: int = 0, of: int = -1) -> None:
        """Deliver a vote; `of` is the term of the voter."""
        vote = VoteResponse(
            partition=METADATA_PARTITION,
            term=term - pre if of < 0 else of,
            request_term=term,
            granted=bool(granted),
            pre=bool(pre),
        )
        self._hear(source, vote)

    def elect(self, vote_of: str) -> None:
        """Let it time out, and win with one other vote."""
        for ms in [0] + [100] * 20:
            if any(isinstance(m, VoteRequest) for m in self._do(Tick(), ms)):
                break
        self.vote(vote_of, self.r.leader_epoch + 1, pre=1)
        self.vote(vote_of, self.r.leader_epoch)
        self._lines.clear()

    def led(self, source: str, term: int) -> None:
        """Another voter says that it leads."""
        self._hear(source, BeginQuorumEpoch(partition=METADATA_PARTITION, term=term))

    def fetched(self, source: str, offset: int, last_epoch: int = -1) -> None:
        """Fetch as a node, in the present term."""
        request = FetchRequest(
            partition=METADATA_PARTITION,
            replica=source,
            offset=offset,
            last_epoch=last_epoch,
            leader_epoch=self.r.leader_epoch,
        )
        self._hear(source, request)

    def answered(self, source: str, diverging: str = "", hw: int = 0) -> None:
        """Answer the fetch at the log end, as the leader."""
        response = FetchResponse(
            partition=METADATA_PARTITION,
            offset=self.r.leo,
            last_epoch=self.r.log.last_epoch,
            request_epoch=self.r.leader_epoch,
            diverging=tuple(map(int, diverging.split(","))) if diverging else None,  # type: ignore[arg-type]
            leader=source,
        )
        self._hear(source, response, fetch_body(self.r.leader_epoch, hw, []))

    def log(self) -> str:
        stored = sorted(logs_of(self.storage).get(METADATA_PARTITION, {}).items())
        return " ".join(f"{base}e{batches.view(data).epoch}" for base, (_, data) in stored)

    def _hear(self, source: str, message: AnyMessage, body: bytes | None = None) -> None:
        self._do(Deliver(source, message, body))

    def _do(self, event: Event, after_ms: int = 0) -> list[Any]:
        try:
            out = self.step(event, after_ms)
        except InvariantBroken as error:
            self._lines.append(f"fatal: {error}")
            return []
        for m in out:
            early = "" if m.mark is Mark.AFTER_COMMIT else f" ({m.mark.name.lower()})"
            self._lines.append(f"-> {m.to} {message_text(m.message)}{early}")
        return [m.message for m in out]

    def observe(self) -> list[str]:
        """Messages, and the state if it is another one."""
        lines, self._lines = self._lines, []
        state = f"{self.r.role} of term {self.r.leader_epoch}, LEO {self.r.leo}, HW {self.r.hw}"
        if state != self._state:
            lines.append(state)
            self._state = state
        return lines
