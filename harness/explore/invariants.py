"""The invariants that an exploration checks after every step, and what they remember of a path.

They are those of the simulated world (`harness.sim.invariant_checker`). Between two steps their
memory is turned into a value, so states of the cluster with equal memories can count as one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from harness.clients.workload import decode_batch
from harness.explore.bounds import Bounds
from harness.explore.node_model import NodeView
from harness.formats.history import Op, Read, Send
from harness.sim.invariant_checker import InvariantChecker, Violation
from harness.systems.floodmark.brokers import promise_of
from nemesis.formats.schedule import Schedule
from node.core import batch as batches
from node.core.protocol import protocol
from node.formats.messages import Error, FetchResponse, ProduceResponse
from node.formats.trace import METADATA_PARTITION
from node.formats.wire import split_fetch_body


class Invariants:
    """Checks the invariants after each step, and carries what they remember to the next: a memory
    is a number, that of its value in `memories`."""

    def __init__(self, bounds: Bounds) -> None:
        # One for all steps: it refers to itself, so that each further one would stay in memory
        # while nobody collects garbage.
        self._views: Callable[[str], Any] = _nobody
        self._checker = InvariantChecker(
            self._view,
            protocol(bounds.protocol),
            promise_of(Schedule(cluster=bounds.cluster())),
            _no_time,
            _nobody,
        )
        # The log of a sole voter cannot differ from another one, so its events prove nothing.
        self._sole_voter = bounds.voters == 1
        self.memories: list[Any] = []
        self._numbers: dict[Any, int] = {}

    def first(self) -> int:
        """Return the memory at the beginning of a path, which is empty."""
        return self._memory(self._reset(((), (), ()), _nobody))

    def turn(
        self,
        memory: int,
        views: Callable[[str], NodeView | None],
        node: str,
        events: Iterable[dict[str, Any]],
        answers: Sequence[tuple[Any, bytes | None]] = (),
    ) -> tuple[int, Violation | None]:
        """Check a step of `node` that traced `events` and sent `answers` to the client. Return the
        memory after it, and the violation that it shows, None if there is none."""
        seen = [e for e in events if not (self._sole_voter and _of_metadata(e))]
        if not seen and not answers:
            return memory, None
        checker = self._reset(self.memories[memory], views)
        checker.turn(node, seen)
        for message, body in answers:
            if (op := operation_of(message, body)) is not None:
                checker.on_history(op)
        self._views = _nobody
        return self._memory(checker), next((v for v in checker.violations if v.visible), None)

    def ended(self, node: str, sentence: str) -> Violation:
        """Return the violation of a process that ended by itself, with its last words."""
        checker = self._reset(((), (), ()), _nobody)
        checker.ended(node, 70, sentence)
        return checker.violations[0]

    def _memory(self, checker: InvariantChecker) -> int:
        """Return the number of what the checker remembers; equal memories have the same one."""
        value = checker.state()
        if value not in self._numbers:
            self._numbers[value] = len(self.memories)
            self.memories.append(value)
        return self._numbers[value]

    def _view(self, name: str) -> Any:
        return self._views(name)

    def _reset(self, memory: Any, views: Callable[[str], Any]) -> InvariantChecker:
        """Return the checker with exactly this memory and a view of these nodes."""
        self._views = views
        self._checker.restore(memory)
        return self._checker


def _nobody(_: object) -> None:
    """Stand for the two callbacks: no node runs, and violations are not reported."""


def _no_time() -> tuple[int, int]:
    """Return step and virtual time of the beginning."""
    return 0, 0


def _of_metadata(event: dict[str, Any]) -> bool:
    return event.get("partition") == METADATA_PARTITION


def operation_of(message: Any, body: bytes | None) -> Op | None:
    """Return the line of a history for an answer to a client, None for one that proves nothing."""
    if isinstance(message, ProduceResponse) and message.error is Error.NONE:
        sends = (Send(partition=message.partition, value=0, offset=message.base_offset),)
        return Op(op=0, t_us=0, process=1, client="c1", type="ok", f="send", sends=sends)
    if isinstance(message, FetchResponse) and message.error is Error.NONE:
        _, _, data = split_fetch_body(body)
        runs = tuple(run for one in batches.split(data) for run in decode_batch(one))
        reads = (Read(partition=message.partition, start=0, records=runs),)
        return Op(op=0, t_us=0, process=1, client="c1", type="ok", f="poll", reads=reads)
    return None
