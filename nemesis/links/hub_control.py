"""The control of the link hub: commands and answers (msgpack), and the harness's end of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Annotated, Final, Self

import msgspec
import zmq

from nemesis.links.rule import Counts, LinkRule
from node.formats.errors import FloodmarkError
from node.formats.wire import NOT_A_HEADER
from node.runtime.curve import CurveKeys, speak

DEADLINE_MS: Final = 5000
START_MS: Final = 30_000
"""How long a hub may take to start."""
MAX_CONTROL_BYTES: Final = 4 << 20
"""Of one command or answer."""
MAX_RULES: Final = 10_000
"""In force at once."""
_LOOK_MS: Final = 100

RuleNumber = Annotated[int, msgspec.Meta(ge=0, le=2**62)]


class _Command(msgspec.Struct, frozen=True, kw_only=True, tag_field="do"):
    """Base of all commands."""


class AddRule(_Command, frozen=True, kw_only=True, tag="add"):
    """The command that puts `rule` in force; it is answered with the rule's number."""

    rule: LinkRule


class RemoveRule(_Command, frozen=True, kw_only=True, tag="remove"):
    """The command that ends a rule; the answer counts its effects. It lets held messages go on."""

    number: RuleNumber


class GetStats(_Command, frozen=True, kw_only=True, tag="stats"):
    """The question how many messages have passed so far."""


class StopHub(_Command, frozen=True, kw_only=True, tag="stop"):
    """The command that ends the hub; messages that it holds are lost."""


Command = AddRule | RemoveRule | GetStats | StopHub
_commands: Final = msgspec.msgpack.Decoder(Command)


def decode_command(frames: Sequence[bytes]) -> Command:
    """Return the command in these frames. Raises FloodmarkError for anything else."""
    if len(frames) != 1:
        raise FloodmarkError(f"a command is one frame, not {len(frames)}")
    try:
        command: Command = _commands.decode(frames[0])
    except NOT_A_HEADER as error:
        raise FloodmarkError(f"command not understood: {error}") from None
    return command


class HubStats(msgspec.Struct, kw_only=True):
    """The messages that the hub has handled since its start. Messages dropped by a rule are only in
    the counts of that rule.

    `unreachable` counts, by receiver, messages dropped because it was not connected or its queue
    was full; `garbage` data that is no message to a known receiver; `unauthenticated` connections
    and messages of processes outside this run, or under another's name; `broken_off` connections
    that ended during the handshake; `overflow` messages that found no room in the queue of delayed
    and held ones. `delayed` and `held` are in that queue now. `rules` are the counts of the rules
    in force."""

    forwarded: int = 0
    garbage: int = 0
    unauthenticated: int = 0
    broken_off: int = 0
    overflow: int = 0
    delayed: int = 0
    held: int = 0
    unreachable: dict[str, int] = {}
    rules: dict[int, Counts] = {}


class HubAnswer(msgspec.Struct, kw_only=True):
    """The hub's answer to any command; `error` says why it was refused, "" if it was not."""

    error: str = ""
    numbers: tuple[int, ...] = ()
    counts: Counts | None = None
    stats: HubStats | None = None


_answers: Final = msgspec.msgpack.Decoder(HubAnswer)


class HubGone(FloodmarkError):
    """The hub does not answer: it could not start, or it died."""


class HubControl:
    """The harness's connection to one hub. Not for two threads at once. `control` is the address in
    the hub's config. Every call waits at most `deadline_ms` and then raises HubGone; the wait also
    ends if `is_alive` returns False (the hub's process has ended). The first call also waits for a
    hub that is just starting. `keys` are this process's, in a run with keys."""

    def __init__(
        self,
        control: str,
        *,
        deadline_ms: int = DEADLINE_MS,
        is_alive: Callable[[], bool] = lambda: True,
        keys: CurveKeys | None = None,
    ) -> None:
        self._address = control
        self._deadline_ms = deadline_ms
        self._is_alive = is_alive
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.REQ)
        self._socket.set(zmq.LINGER, 0)
        # A call that ran out of time must not bar the next one, nor lend it its answer.
        self._socket.set(zmq.REQ_RELAXED, 1)
        self._socket.set(zmq.REQ_CORRELATE, 1)
        self._socket.set(zmq.RECONNECT_IVL, 20)
        self._socket.set(zmq.MAXMSGSIZE, MAX_CONTROL_BYTES)
        speak(keys, self._socket, control)
        self._socket.connect(control)

    def wait_ready(self) -> None:
        """Return once the hub is up, which takes long on a busy machine. Raises HubGone."""
        self._ask(GetStats(), max(self._deadline_ms, START_MS))

    def add(self, rule: LinkRule) -> int:
        """Put a rule in force; return its number."""
        return self._ask(AddRule(rule=rule)).numbers[0]

    def remove(self, number: int) -> Counts:
        """End a rule and return its effects; messages that it held go on at once."""
        counts = self._ask(RemoveRule(number=number)).counts
        assert counts is not None
        return counts

    def stats(self) -> HubStats:
        """Return the counts of messages so far."""
        stats = self._ask(GetStats()).stats
        assert stats is not None
        return stats

    def ping(self, deadline_ms: int) -> None:
        """Raise HubGone if the hub does not answer within `deadline_ms`."""
        self._ask(GetStats(), deadline_ms)

    def stop(self) -> None:
        """End the hub; return when it has agreed."""
        self._ask(StopHub())

    def close(self) -> None:
        """Close the connection; the hub keeps running."""
        self._context.destroy(linger=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, command: Command, deadline_ms: int = 0) -> HubAnswer:
        """Send a command, return the answer. Raises HubGone, or FloodmarkError if it is refused."""
        deadline_ms = deadline_ms or self._deadline_ms
        self._socket.send(msgspec.msgpack.encode(command))
        started = time.monotonic()
        while True:
            waited_ms = (time.monotonic() - started) * 1000
            alive = self._is_alive()
            # A hub that has ended may have answered before: look once more.
            if self._socket.poll(max(0, min(_LOOK_MS, deadline_ms - round(waited_ms)))):
                break
            if not alive:
                raise HubGone("the link hub has ended: see its output file")
            if waited_ms >= deadline_ms:
                raise HubGone(
                    f"the link hub did not answer at {self._address} within {deadline_ms} ms"
                )
        try:
            answer = _answers.decode(self._socket.recv())
        except NOT_A_HEADER as error:
            raise HubGone(f"the answer of the link hub is not understood: {error}") from None
        if answer.error:
            raise FloodmarkError(f"link hub: {answer.error}")
        return answer
