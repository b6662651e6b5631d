"""Requests to another process through a pipe, and its answers. Both have a number, so that an
answer that comes too late is not taken for that of a later request."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

import msgspec

from node.formats.errors import FloodmarkError

Answer = TypeVar("Answer")
Pipe = Any
"""An end of the pipe: a `multiprocess` connection."""
_encoder: Final = msgspec.msgpack.Encoder()


class Requests(Generic[Answer]):
    """The end that asks; `answers` is the type of the answers."""

    def __init__(self, pipe: Pipe, answers: Any) -> None:
        self._pipe = pipe
        self._decoder = msgspec.msgpack.Decoder(tuple[int, answers])
        self._number = 0

    def send(self, request: Any) -> None:
        """Send a request. Raises OSError if the other end is gone."""
        self._number += 1
        self._pipe.send_bytes(_encoder.encode((self._number, request)))

    def answer(self, limit_s: float) -> Answer:
        """Return the answer to the last request, or before any the other end's first words. Raises
        TimeoutError, and another OSError or EOFError if the other end is gone."""
        deadline = time.monotonic() + limit_s
        while self._pipe.poll(max(0.0, deadline - time.monotonic())):
            number, answer = self._decoder.decode(self._pipe.recv_bytes())
            if number == self._number:
                found: Answer = answer
                return found
        raise TimeoutError

    def ask(self, request: Any, limit_s: float) -> Answer:
        """Send a request and return its answer; raises as both do."""
        self.send(request)
        return self.answer(limit_s)


def say(pipe: Pipe, answer: Any) -> None:
    """Send the first words, before any request."""
    pipe.send_bytes(_encoder.encode((0, answer)))


def obey(pipe: Pipe, requests: Any, carry_out: Callable[[Any], Any], refuse: Any) -> bool:
    """Carry out the request that has come and answer it; if that fails, with `refuse(error=...)`.
    Return False if the other end is closed. `requests` is the type of all requests."""
    try:
        number, raw = msgspec.msgpack.decode(pipe.recv_bytes(), type=tuple[int, msgspec.Raw])
        try:
            answer = carry_out(msgspec.msgpack.decode(raw, type=requests))
        except (msgspec.MsgspecError, FloodmarkError) as error:
            answer = refuse(error=str(error))
        pipe.send_bytes(_encoder.encode((number, answer)))
    except (OSError, EOFError):
        return False
    return True
