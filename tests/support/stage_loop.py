"""The loop of a broker process with nothing real around it: a stage of scripts.

Time moves only when the loop waits. The output of `run` has all that was done, in order: `tick @5`
(at 5 us), `deliver, more @0`, `wait 3` (milliseconds), `commit`, `trace 2` (events), `send a b`."""

from __future__ import annotations

from itertools import groupby
from typing import Any, cast
from unittest.mock import patch

from node.core.api import Deliver, Effects, Event, Mark, Outgoing
from node.formats import wire
from node.formats.errors import InvariantBroken
from node.formats.messages import MetadataRequest
from node.formats.trace import STOPPED, event
from node.runtime import loop as loop_module
from node.runtime.breakpoints import StopRequest
from node.runtime.loop import Loop

MOST_WAITS = 10_000
FRAMES = wire.encode("n1", "c1", MetadataRequest())
START_US = 1_000_000


class LoopStage:
    """A core whose effects are prepared, then stops or breaks; an inbox with prepared mail."""

    def __init__(self) -> None:
        self._done: list[str] = []
        self._mail: list[tuple[list[list[bytes]], bool]] = []
        self._effects: list[Effects] = []
        self._broken = False
        self._waits = 0
        self._now_us = START_US
        self._stop = StopRequest()

    # -- what is prepared

    def mail(self, *turns: int, unread: int = 0, garbage: int = 0) -> None:
        """So many messages come in each of these turns; more are left unread."""
        for messages in turns:
            frames = [[b"garbage"]] if garbage else [FRAMES]
            self._mail.append((frames * messages, not unread))

    def step(
        self,
        *to: str,
        early: str = "",
        deadline_us: int = 0,
        flush: int = 0,
        stopped: int = 0,
        times: int = 1,
    ) -> None:
        """Effects of a step: messages to these nodes, and one to `early` before the commit. With
        messages or with the stop there is one trace event."""
        messages = [Outgoing(name, MetadataRequest()) for name in to]
        if early:
            messages.append(Outgoing(early, MetadataRequest(), mark=Mark.BEFORE_COMMIT))
        trace = [event(STOPPED)] if messages or stopped else []
        deadline = deadline_us and START_US + deadline_us
        made = Effects(messages, trace, deadline, flush=bool(flush), stopped=bool(stopped))
        self._effects += [made] * times

    def breaks(self) -> None:
        """Fail in the core when the effects are used up."""
        self._broken = True

    def ask_to_stop(self) -> None:
        """Ask for the end by a signal."""
        self._stop.asked = True

    def run(self) -> list[str]:
        """Run the loop to its end; equal lines are counted."""
        loop = Loop("n1", *cast(Any, [_Around(self)] * 5), self._stop)
        with patch.object(loop_module, "monotonic_us", lambda: self._now_us):
            try:
                loop.run()
            except InvariantBroken as error:
                self._done.append(f"fails: {error}")
        counted = [(line, len([*same])) for line, same in groupby(self._done)]
        return [
            *(f"{line} ({number}x)" if number > 1 else line for line, number in counted),
            *[f"refused {loop.refused}"] * bool(loop.refused),
            *["gave up"] * loop.gave_up,
        ]


class _Around:
    """Core, storage, inbox, outbox and trace file at once."""

    def __init__(self, stage: LoopStage) -> None:
        self._stage = stage

    def _note(self, *words: object) -> None:
        self._stage._done.append(" ".join(map(str, words)))

    def step(self, now_us: int, happened: Event) -> Effects:
        stage = self._stage
        more = ", more" if isinstance(happened, Deliver) and happened.more else ""
        self._note(f"{type(happened).__name__.lower()}{more} @{now_us - START_US}")
        if stage._broken and not stage._effects:
            raise InvariantBroken("no more")
        return stage._effects.pop(0) if stage._effects else Effects(stopped=True)

    def wait(self, timeout_ms: int) -> None:
        stage = self._stage
        self._note("wait", timeout_ms)
        stage._waits += 1
        assert stage._waits < MOST_WAITS, "the loop waits for what never comes"
        if not stage._mail:
            stage._now_us += timeout_ms * 1000

    def drain(self) -> tuple[list[list[bytes]], bool]:
        return self._stage._mail.pop(0) if self._stage._mail else ([], True)

    def commit(self) -> None:
        self._note("commit")

    def flush(self) -> None:
        self._note("flush")

    def write(self, now_us: int, events: list[Any]) -> None:
        self._note("trace", len(events))

    def show(self, now_us: int, events: list[Any], to: object) -> None:
        self._note("show", len(events))

    def send(self, messages: list[Outgoing]) -> None:
        self._note("send", *(one.to for one in messages))
