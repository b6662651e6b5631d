"""The link hub: a process between all nodes, which forwards messages link by link under rules.

Every node sends everything to the hub's one PULL socket; the hub has one PUSH socket to the address
of each node. It knows receiver and sender of a message (they begin its first frame) and looks into
the header only if a rule of that link needs it. A message goes on whole and unchanged, or not at
all.

A receiver that does not read may be:

* dead: messages to it are dropped and counted, never queued for its next process. Not connected
  means not queued (IMMEDIATE), and a broken connection drops its queue;
* paused: the kernel's buffers and a queue of `QUEUE_MESSAGES` fill up, the rest is dropped;
* cut off by a rule: that rule drops the messages; the connection stays up, so the first message
  after the heal passes at once. For the same reason the hub uses no ZeroMQ heartbeats: they would
  take a paused node for a dead one."""

from __future__ import annotations

import contextlib
import os
import random
import sys
import time
from typing import Any, Final

import msgspec
import zmq

from nemesis.formats.message_log import Fate, MessageSampler
from nemesis.links.hub_control import HubConfig, HubStats
from nemesis.links.link_process import AddRule, GetStats, LinkAnswer, RemoveRule
from nemesis.links.pipeline import LinkPipeline
from nemesis.links.rule import Counts
from node.formats import wire
from node.formats.errors import FloodmarkError, WireError
from node.formats.host_errors import reason
from node.runtime.children import settle_in
from node.runtime.mailbox import MAX_FRAMES, MORE, NOW, Context, Socket, bind_pull, connect_push
from node.runtime.requests import Pipe, obey

QUEUE_MESSAGES: Final = 1000
DRAIN_MESSAGES: Final = 256
LONGEST_WAIT_MS: Final = 60_000
Frames = list[zmq.Frame]
_Command = AddRule | RemoveRule | GetStats


def main(config: HubConfig, pipe: Pipe) -> None:
    """Run the hub's process: forward messages until the harness closes the pipe."""
    settle_in(config.parent_pid, config.output_file)
    try:
        hub = Hub(config, pipe)
    except FloodmarkError as error:
        sys.stderr.write(f"link hub: {error}\n")
        sys.exit(error.exit_code)
    hub.run()


class Hub:
    """The hub's sockets and its loop; `LinkPipeline` decides about messages and keeps them."""

    def __init__(self, config: HubConfig, pipe: Pipe) -> None:
        """Bind and connect the sockets. Raises FloodmarkError for an unusable address."""
        self._context: Context = zmq.Context()
        self._inbox = bind_pull(self._context, config.bind, QUEUE_MESSAGES, wire.MAX_FRAME_BYTES)
        self._pipe = pipe
        self._poller = zmq.Poller()
        self._poller.register(self._inbox, zmq.POLLIN)
        self._poller.register(pipe.fileno(), zmq.POLLIN)
        self._outboxes: dict[bytes, Socket] = {}
        for name, address in config.nodes.items():
            self._outboxes[name.encode()] = connect_push(self._context, address, QUEUE_MESSAGES)
        self._pipeline: LinkPipeline[Frames] = LinkPipeline(_peek, random.Random(config.seed))
        if config.messages_file:
            self._record_into(config.messages_file)
        self._forwarded = 0
        self._garbage = 0
        self._unreachable: dict[bytes, int] = {}

    def run(self) -> None:
        """Forward messages until the harness closes the pipe."""
        while True:
            ready = dict(self._poller.poll(self._patience_ms()))
            self._flush(_now_us())
            if self._pipe.fileno() in ready and not obey(
                self._pipe, _Command, self._answer, LinkAnswer
            ):
                break
            if self._inbox in ready:
                self._drain()
        self._context.destroy(linger=0)

    def _patience_ms(self) -> int | None:
        """Return how long the loop may sleep: until the next delayed message, rounded up."""
        due = self._pipeline.delay_queue.next_due()
        return None if due is None else min(LONGEST_WAIT_MS, max(0, -((_now_us() - due) // 1000)))

    def _record_into(self, path: str) -> None:
        """Write down messages that rules drop or hold. Raises FloodmarkError."""
        try:
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise FloodmarkError(f"{path} cannot be written: {reason(error)}") from None
        kept = MessageSampler()

        def affected(sender: str, receiver: str, load: Frames, fate: Fate) -> None:
            line = kept.line(_now_us(), sender, receiver, fate, _peek(load))
            if line is not None:
                # What a full disk costs here is a line of the page, not the run.
                with contextlib.suppress(OSError):
                    os.write(file, msgspec.json.encode(line) + b"\n")

        self._pipeline.on_affected = affected

    def _flush(self, now_us: int) -> None:
        for kept in self._pipeline.due(now_us):
            self._forward(kept.receiver.encode(), kept.load)

    def _drain(self) -> None:
        """Carry what has arrived, at most DRAIN_MESSAGES, so that commands get their turn."""
        receive, names = self._inbox.recv, wire.names
        # One reading of the clock for all of them; `_flush` before it, or order would be lost.
        now_us = _now_us()
        self._flush(now_us)
        idle = self._pipeline.is_idle(now_us)
        try:
            for _ in range(DRAIN_MESSAGES):
                frame = receive(NOW, False)
                frames = [frame]
                while frame.more:
                    frame = receive(NOW, False)
                    if len(frames) <= MAX_FRAMES:
                        frames.append(frame)
                if len(frames) > MAX_FRAMES:
                    self._garbage += 1
                    continue
                try:
                    receiver, sender, _ = names(frames[0].bytes)
                except WireError:
                    self._garbage += 1
                    continue
                if idle:
                    self._forward(receiver, frames)
                else:
                    self._carry(receiver, sender, frames, now_us)
        except zmq.Again:
            return

    def _carry(self, receiver: bytes, sender: bytes, frames: Frames, now_us: int) -> None:
        """Ask the table what becomes of a message that was sent now."""
        to, source = _name(receiver), _name(sender)
        size = sum(map(len, frames))
        for _ in range(self._pipeline.carry(source, to, frames, size, now_us)):
            self._forward(receiver, frames)

    def _forward(self, receiver: bytes, frames: Frames) -> None:
        """Send a message on, or drop it if its receiver does not take it."""
        outbox = self._outboxes.get(receiver)
        if outbox is None:
            self._garbage += 1
            return
        send = outbox.send
        try:
            for frame in frames[:-1]:
                send(frame, MORE, False)
            send(frames[-1], NOW, False)
        except zmq.Again:
            # Only the first frame can meet a full queue: nothing of the message has gone.
            self._unreachable[receiver] = self._unreachable.get(receiver, 0) + 1
            return
        self._forwarded += 1

    def _answer(self, command: AddRule | RemoveRule | GetStats) -> LinkAnswer[HubStats]:
        match command:
            case AddRule(rule=rule):
                return LinkAnswer(number=self._pipeline.add(rule))
            case RemoveRule(number=number):
                counts = self._remove(number)
                if counts is None:
                    raise FloodmarkError(f"there is no link rule {number}")
                return LinkAnswer(counts=counts)
            case GetStats():
                return LinkAnswer(stats=self._stats())

    def _remove(self, number: int) -> Counts | None:
        """End a rule; the messages that it held are decided again, as if they were sent now."""
        now_us = _now_us()
        self._flush(now_us)
        counts, released = self._pipeline.remove(number)
        for kept in released:
            self._carry(kept.receiver.encode(), kept.sender.encode(), kept.load, now_us)
        return counts

    def _stats(self) -> HubStats:
        return HubStats(
            forwarded=self._forwarded,
            garbage=self._garbage,
            overflow=self._pipeline.delay_queue.overflow,
            delayed=len(self._pipeline.delay_queue) - self._pipeline.delay_queue.held,
            held=self._pipeline.delay_queue.held,
            unreachable={name.decode(): count for name, count in self._unreachable.items()},
            rules=self._pipeline.table.counts(),
        )


def _now_us() -> int:
    return time.monotonic_ns() // 1000


def _peek(frames: Frames) -> dict[str, Any]:
    return wire.peek([frame.bytes for frame in frames])


def _name(text: bytes) -> str:
    """Return a node's name; bytes that are no name become one that no node has."""
    return text.decode(errors="replace")
