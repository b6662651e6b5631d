"""Calls of an adapter's methods: coroutines or plain functions, each with a deadline.

A method that misses its deadline is abandoned: a coroutine is cancelled, a plain function keeps its
thread. Either way the caller goes on, and the connection is never used again, so a late answer
cannot be taken for that of another request."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final

import msgspec

from harness.systems.adapter import (
    Adapter,
    Delivery,
    LogSlice,
    Node,
    Offset,
    Polled,
    Position,
    Record,
    Refused,
)

CLOSE_TIMEOUT_S: Final = 1.0
GRACE_S: Final = 0.2
"""What a call gets beyond its own timeout, so that an adapter that keeps it can say why."""
MAX_LEFT_BEHIND: Final = 20
MOST_QUOTED: Final = 100
MOST_OF_AN_ERROR: Final = 500
MAX_LOGGED: Final = 40
UNKNOWN_OFFSET: Final = -1
_BYTES: Final = (bytes, bytearray, memoryview)


class Late(Exception):
    """Raised if a method of an adapter did not return in time."""


class WrongAnswer(Exception):
    """Raised if a method of an adapter returned a value that the interface does not allow."""


def in_words(error: BaseException) -> str:
    """Return an exception in one line."""
    text = " ".join(str(error).split())[:MOST_OF_AN_ERROR]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


class CallErrors:
    """The errors of an adapter's methods. The first of each kind is shown with its traceback."""

    def __init__(self, show: Callable[[str], object]) -> None:
        self._show = show
        self._seen: set[str] = set()
        self.last: dict[str, str] = {}

    def note(self, method: str, error: BaseException) -> str:
        """Note an error that `method` raised; return it in one line."""
        words = in_words(error)
        self.last[method] = words
        kind = f"{method} {type(error).__name__}"
        if kind not in self._seen and len(self._seen) < MAX_LOGGED:
            self._seen.add(kind)
            self._show(f"{method} raised {words}\n{''.join(traceback.format_exception(error))}")
        return words


async def call(method: Callable[..., Any], *arguments: Any, timeout_s: float) -> Any:
    """Call `method(*arguments)` and return its result. Raises the method's own error, or Late after
    `timeout_s`."""

    async def to_its_end() -> Any:
        if inspect.iscoroutinefunction(method):
            return await method(*arguments)
        result = await asyncio.wrap_future(in_thread(method, *arguments))
        return await result if inspect.isawaitable(result) else result

    task = asyncio.ensure_future(to_its_end())
    done, _ = await asyncio.wait({task}, timeout=timeout_s)
    if not done:
        task.cancel()
        task.add_done_callback(_look_away)
        raise Late(f"{method.__name__} took more than {timeout_s:g} s")
    try:
        return task.result()
    except asyncio.CancelledError:
        raise Late(f"{method.__name__} was cancelled") from None


def begin(method: Callable[..., Any], *arguments: Any, timeout_s: float) -> Future[Any]:
    """Begin a `call` beside the caller, which has no event loop."""

    def to_its_end() -> Any:
        return asyncio.run(call(method, *arguments, timeout_s=timeout_s))

    return in_thread(to_its_end)


def awaited(answer: Any) -> Any:
    """Return the result of a method that may be a coroutine, in a thread without a loop."""
    return asyncio.run(answer) if inspect.iscoroutine(answer) else answer


def in_thread(method: Callable[..., Any], *arguments: Any) -> Future[Any]:
    """Call a method in a daemon thread: the process can end before the method does."""
    future: Future[Any] = Future()

    def work() -> None:
        try:
            result = method(*arguments)
        except BaseException as error:
            with contextlib.suppress(Exception):
                future.set_exception(error)
        else:
            with contextlib.suppress(Exception):
                future.set_result(result)

    threading.Thread(target=work, daemon=True, name=f"adapter-{method.__name__}").start()
    return future


def _look_away(task: asyncio.Future[Any]) -> None:
    """Ignore the result of a call that was left behind."""
    if not task.cancelled():
        task.exception()


class ClientConnection:
    """One client's connection: made when it is needed, closed after any failure."""

    def __init__(
        self, adapter: Adapter, client: str, nodes: Sequence[Node], turn: int, errors: CallErrors
    ) -> None:
        """`turn` says which node is tried first; each new connection begins with the next one."""
        self._adapter = adapter
        self.client = client
        self._nodes = list(nodes)
        self._turn = turn
        self._errors = errors
        self.connection: Any = None
        self._connected = False
        self._closing: set[asyncio.Task[None]] = set()

    async def prepare(self) -> bool:
        """Connect before the first request; return whether that succeeded."""
        try:
            await self._connect()
        except Exception as error:
            self._errors.note("connect", error)
            return False
        return True

    async def send(self, record: Record) -> int:
        """Send a record; return its acknowledged offset, UNKNOWN_OFFSET if the system gives none.
        Raises Refused if the record certainly was not sent or not accepted, else the adapter's
        error."""
        try:
            await self._connect()
        except Exception as error:
            raise Refused(f"not connected: {self._errors.note('connect', error)}") from None
        offset = await self._ask("send", record, timeout_s=record.timeout_s)
        return UNKNOWN_OFFSET if offset is None else int(offset)

    async def read(self, partition: str, offset: int, timeout_s: float) -> LogSlice:
        """Read records from `offset` on. Raises the adapter's error, Late or WrongAnswer."""
        found: LogSlice = await self._ask("read", partition, offset, timeout_s, timeout_s=timeout_s)
        return found

    async def _ask(self, method: str, *arguments: Any, timeout_s: float) -> Any:
        """Return the checked answer of a method that is given the connection first, which is given
        up after an error that may have harmed it."""
        connection, ask = await self._connect(), getattr(self._adapter, method)
        try:
            answer = await call(ask, connection, *arguments, timeout_s=timeout_s + GRACE_S)
            return checked(method, answer)
        except Exception as error:
            if not isinstance(error, Refused) or error.reconnect:
                self.give_up()
            raise

    def give_up(self) -> None:
        """Close the connection without waiting for the end of that."""
        if not self._connected:
            return
        connection, self.connection, self._connected = self.connection, None, False
        if len(self._closing) < MAX_LEFT_BEHIND:
            task = asyncio.ensure_future(self._close(connection))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Close the connection, and wait a little for it and for earlier ones that are being
        closed."""
        self.give_up()
        if self._closing:
            await asyncio.wait(self._closing, timeout=CLOSE_TIMEOUT_S)

    async def _connect(self) -> Any:
        if not self._connected:
            start = self._turn % len(self._nodes)
            self._turn += 1
            nodes = [*self._nodes[start:], *self._nodes[:start]]
            adapter = self._adapter
            self.connection = await call(
                adapter.connect, self.client, nodes, timeout_s=adapter.connect_s
            )
            self._connected = True
        return self.connection

    async def _close(self, connection: Any) -> None:
        try:
            await call(self._adapter.close, connection, timeout_s=CLOSE_TIMEOUT_S)
        except Exception as error:
            self._errors.note("close", error)


class _CheckedSlice(LogSlice, frozen=True):
    """A checked answer of `read`: of another class, so that its fields are looked at."""


class _CheckedDelivery(Delivery, frozen=True):
    """A checked delivery."""


class _CheckedPolled(Polled, frozen=True):
    """A checked answer of `poll`."""

    deliveries: Sequence[_CheckedDelivery] = ()


class _CheckedPosition(Position, frozen=True):
    """A checked position."""


_ANSWERS: Final[Mapping[str, Any]] = {
    "send": Offset | None,
    "read": _CheckedSlice,
    "poll": _CheckedPolled,
    "acknowledge": bool,
    "commit": int,
    "positions": dict[str, _CheckedPosition],
    "dump": list[tuple[Offset, bytes]],
}


def checked(method: str, answer: Any) -> Any:
    """Return an answer of a method of an adapter, with plain bytes, if the interface allows it.
    Raises WrongAnswer."""
    kind = _ANSWERS[method]
    try:
        if isinstance(answer, dict) and method != "positions":
            raise msgspec.ValidationError("Expected `object`, got `dict`")
        return msgspec.convert(answer, kind, from_attributes=True, builtin_types=_BYTES)
    except msgspec.ValidationError as error:
        said = repr(answer)
        said = said if len(said) <= MOST_QUOTED else f"{said[:MOST_QUOTED]}.."
        raise WrongAnswer(f"{method} returned {said}: {error}") from None
