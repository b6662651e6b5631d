"""The speed of this machine at the parts of an acknowledgement: a synced append, a round trip over
loopback, a commit of LMDB."""

from __future__ import annotations

import os
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from node.core.batch import EMPTY_CHAIN
from node.runtime.overlay import Overlay
from node.runtime.tables import Tables

_TRIES: Final = 200
_PATIENCE_S: Final = 5.0
_MAP_BYTES: Final = 16 << 20


class MachineLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Medians in microseconds, for one record each."""

    fdatasync_us: float
    loopback_us: float
    lmdb_us: float


def measure_limits(folder: Path, record_bytes: int) -> MachineLimits:
    """Measure on the disk of `folder`. Takes a fraction of a second."""
    record = bytes(record_bytes)
    return MachineLimits(
        fdatasync_us=_fdatasync_us(folder, record),
        loopback_us=_loopback_us(record),
        lmdb_us=_lmdb_us(folder, record),
    )


def _median_us(action: Callable[[], object]) -> float:
    took = []
    for _ in range(_TRIES):
        began_ns = time.perf_counter_ns()
        action()
        took.append(time.perf_counter_ns() - began_ns)
    return round(statistics.median(took) / 1000, 1)


def _fdatasync_us(folder: Path, record: bytes) -> float:
    with tempfile.TemporaryFile(dir=folder) as file:

        def append() -> None:
            os.write(file.fileno(), record)
            os.fdatasync(file.fileno())

        return _median_us(append)


def _loopback_us(record: bytes) -> float:
    """Measure a round trip between two threads of this process, over TCP."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname(), timeout=_PATIENCE_S)
        far, _ = server.accept()
    with near, far:
        for end in (near, far):
            end.settimeout(_PATIENCE_S)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        echo = threading.Thread(target=_echo, args=(far, len(record)), daemon=True)
        echo.start()

        def round_trip() -> None:
            near.sendall(record)
            _receive(near, len(record))

        found = _median_us(round_trip)
        near.shutdown(socket.SHUT_RDWR)
        echo.join(_PATIENCE_S)
    return found


def _echo(end: socket.socket, size: int) -> None:
    while record := _receive(end, size):
        end.sendall(record)


def _receive(end: socket.socket, size: int) -> bytes:
    """`size` bytes, or nothing when the connection ends."""
    found = b""
    while len(found) < size:
        more = end.recv(size - len(found))
        if not more:
            return b""
        found += more
    return found


def _lmdb_us(folder: Path, record: bytes) -> float:
    """Measure a commit of one record to the tables of a broker."""
    offsets = iter(range(_TRIES))
    with tempfile.TemporaryDirectory(dir=folder) as path:
        tables = Tables(Path(path), map_bytes=_MAP_BYTES, map_limit=_MAP_BYTES)

        def commit() -> None:
            written = Overlay()
            written.append("log-0", next(offsets), EMPTY_CHAIN, record)
            tables.write([written], {})

        try:
            return _median_us(commit)
        finally:
            tables.close()
