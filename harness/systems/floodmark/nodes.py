"""The processes of our own nodes: started, signalled, reaped, and every end recorded.

An end that the harness did not ask for is a finding of the run, so each one is written to
`exits.jsonl` with its cause, here and nowhere else."""

from __future__ import annotations

import os
import signal
from collections import defaultdict
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final, TypeVar

import msgspec
import multiprocess

from harness.systems.node_processes import Codes, EndedBy, NodeProcess, NodeProcesses
from node.formats.errors import FloodmarkError
from node.formats.files import AppendOnlyFile
from node.runtime.breakpoints import SYNCS_OF_A_STOP, Breakpoint, Order, Report
from node.runtime.children import Child
from node.runtime.environment import inherited
from node.runtime.failing_disk import DiskFails
from node.runtime.process import EXIT_HUNG, EXIT_STORAGE, ProcessConfig, spawn

STOP_TIMEOUT_S: Final = 6.0
COPY_S: Final = 5.0
"""How long a process may take to copy its disk, or to come to its first turn before that."""
ENDS_S: Final = 3.0
"""How long a process may take to end after its disk failed."""

PATIENCE_S: Final = 1.0
"""How long a process may take to confirm an order: it does so between two turns."""
_encoder: Final = msgspec.msgpack.Encoder()
_reports: Final = msgspec.msgpack.Decoder(Report)

Held = TypeVar("Held")
MakeConfig = Callable[[str, int], ProcessConfig]


class ProcessOrders:
    """The channel to one process for its breakpoints, disk faults and clock; the process may have
    ended. `writes` counts, by the number of a fault, the writes that it affected; `ended` is the
    last error message of a process that ended by itself; faults delay each of its syncs by
    `slow_s`."""

    def __init__(self, pipe: Connection, slow_ms: int = 0) -> None:
        self.slow_s = slow_ms / 1000
        self._pipe = pipe
        self._version = 0
        self._in_force = -1
        self._reached: set[int] = set()
        self.writes: dict[int, int] = {}
        self.ended = ""

    def order(
        self,
        armed: Mapping[int, Breakpoint],
        disk: Mapping[int, DiskFails],
        *,
        percent: int = 100,
        slow_ms: int = 0,
        copy_to: str = "",
        wait: bool = True,
    ) -> bool:
        """Replace breakpoints, disk faults and clock of the process; return when it has confirmed
        that. `slow_ms` is the delay of each of its syncs by faults.

        Returns False if it has ended. Does not wait for a process before its first turn, which
        applies the order before that turn, nor if `wait` is False. Raises FloodmarkError when it
        does not confirm in time."""
        self._version += 1
        order = Order(
            version=self._version,
            armed=dict(armed),
            disk=dict(disk),
            percent=percent,
            slow_ms=slow_ms,
            copy_to=copy_to,
        )
        # A turn in progress may sync more than once, as slowly as the disk was until now.
        slowest_s = max(slow_ms / 1000, self.slow_s)
        patience_s = (COPY_S if copy_to else PATIENCE_S) + 3 * slowest_s
        self.slow_s = slow_ms / 1000
        try:
            self._pipe.send_bytes(_encoder.encode(order))
            self._read(0)
            begun = -1 if copy_to else 0
            while wait and begun <= self._in_force < self._version:
                if not self._read(patience_s):
                    raise FloodmarkError(
                        "the process did not confirm its breakpoints and disk faults in time"
                    )
        except (EOFError, OSError):
            return False
        return True

    def reached(self) -> set[int]:
        """Return the numbers of the breakpoints that the process has reached so far."""
        try:
            self._read(0)
        except (EOFError, OSError):
            return self._reached
        return self._reached

    def close(self) -> None:
        self._pipe.close()

    def _read(self, patience_s: float) -> bool:
        """Take in reports, waiting for the first; whether there was one."""
        found = False
        while self._pipe.poll(0 if found else patience_s):
            report = _reports.decode(self._pipe.recv_bytes())
            found = True
            if report.ended:
                self.ended = report.ended
                continue
            self._in_force = report.version
            self.writes.update(report.writes)
            if report.stopped >= 0:
                self._reached.add(report.stopped)
        return found


class _Running(NodeProcess):
    """A process of ours, with its channel for orders."""

    def __init__(self, process: Child, incarnation: int, orders: ProcessOrders) -> None:
        super().__init__(process.pid, incarnation)
        self.process = process
        self.orders = orders

    def exit_code(self, limit_s: float = 0.0) -> int | None:
        if limit_s:
            self.process.join(limit_s + SYNCS_OF_A_STOP * self.orders.slow_s)
        return self.process.exitcode

    def signal(self, number: signal.Signals) -> bool:
        if self.process.exitcode is not None:
            return False
        os.kill(self.pid, number)
        return True

    def end_hung(self) -> None:
        """Dump the stacks of the process to its output, then kill it."""
        self.signal(signal.SIGUSR1)
        self.process.join(0.2)
        super().end_hung()

    def said(self) -> str:
        return self.orders.ended


class Nodes(NodeProcesses[_Running]):
    """The processes of our own brokers and voters."""

    stop_timeout_s = STOP_TIMEOUT_S
    only_asked = (0,)

    def __init__(
        self,
        make_config: MakeConfig,
        exits: AppendOnlyFile,
        look_at_disk: Callable[[str], None] = lambda node: None,
        environment: Callable[[str], Mapping[str, str]] = lambda node: {},
    ) -> None:
        """`make_config(node, incarnation)` says how to start a node's next process."""
        super().__init__(exits, look_at_disk)
        self._make_config = make_config
        self._environment = environment
        self._armed: dict[str, dict[int, Breakpoint]] = defaultdict(dict)
        self._disk_faults: dict[str, dict[int, DiskFails]] = defaultdict(dict)
        self._slow_ms: dict[str, dict[object, int]] = defaultdict(dict)
        self._deadly: set[int] = set()
        self._writes: dict[int, int] = {}
        self._boots: dict[str, int] = {}
        self._clock_percent: dict[str, int] = defaultdict(lambda: 100)
        self._last_number = 0

    def _started(self, node: str, incarnation: int) -> _Running:
        config = msgspec.structs.replace(
            self._make_config(node, incarnation),
            breakpoints=self._armed[node],
            disk_faults=self._disk_faults[node],
            clock_percent=self._clock_percent[node],
            slow_ms=self._delay_ms(node),
            boots=self._boots.get(node, 0),
        )
        near, far = multiprocess.Pipe()
        with inherited(self._environment(node)):
            process = spawn(config, pipe=far)
        far.close()
        return _Running(process, incarnation, ProcessOrders(near, self._delay_ms(node)))

    def arm(self, node: str, point: Breakpoint) -> int:
        """Arm a breakpoint in the node's present and later processes, until one reaches it; return
        its number. Raises FloodmarkError when the process does not confirm it; then none is
        armed."""
        number = self.next_number()
        self._hold(node, self._armed, self._armed[node] | {number: point})
        return number

    def disarm(self, node: str, number: int) -> None:
        """Remove a breakpoint; a process that has stopped at it continues. Raises FloodmarkError
        when the process does not confirm that yet; it can be asked again."""
        self._armed[node].pop(number, None)
        self._order(node)

    def next_number(self) -> int:
        """Return a new number for a breakpoint, a disk fault or a copy of a disk."""
        self._last_number += 1
        return self._last_number

    def add_disk_fault(self, node: str, fault: DiskFails) -> int:
        """Add a disk fault to the node's present and later processes; return its number. Raises
        FloodmarkError when the process does not confirm it; then the fault is not in force."""
        number = self.next_number()
        if fault.what != "slow":
            self._deadly.add(number)
        self._hold(node, self._disk_faults, self._disk_faults[node] | {number: fault})
        return number

    def remove_disk_fault(self, node: str, number: int) -> int:
        """End a disk fault; return how many writes it affected. Raises FloodmarkError when the
        process does not confirm that yet; it can be asked again."""
        self._disk_faults[node].pop(number, None)
        self._order(node)
        running = self._running.get(node)
        if running is None:
            return self._writes.get(number, 0)
        running.orders.reached()
        if self._is_ending(running):
            # It said that its disk failed: what it still does is to end.
            running.process.join(ENDS_S)
        if running.process.exitcode is not None:
            self._bury(node, "itself")
            return self._writes.get(number, 0)
        return self._writes.get(number, 0) + running.orders.writes.get(number, 0)

    def note_slow(self, node: str, fault: object, delay_ms: int) -> None:
        """Note that a fault, which the process does not know, delays each of its syncs by
        `delay_ms`; 0: it has ended."""
        self._slow_ms[node][fault] = delay_ms

    def _delay_ms(self, node: str) -> int:
        """Return by how much faults delay each sync of the node."""
        own_ms = sum(fault.delay_ms for fault in self._disk_faults[node].values())
        return own_ms + sum(self._slow_ms[node].values())

    def copy_disk(self, node: str, to: Path) -> bool:
        """Have the node's process copy its store to the folder `to`; return False if it has ended.
        Raises FloodmarkError when the process does not confirm it."""
        running = self._running[node]
        return self._give_orders(node, running, copy_to=str(to))

    def set_clock_rate(self, node: str, percent: int) -> None:
        """Run the clocks of the node's present and later processes at `percent` of real time.
        Raises FloodmarkError when the process does not confirm it; then the rate stays."""
        self._hold(node, self._clock_percent, percent)

    def boot_again(self, node: str) -> None:
        self._boots[node] = self._boots.get(node, 0) + 1

    def _is_ending(self, running: _Running) -> bool:
        """Return whether its disk failed in a way that ends the process."""
        return not self._deadly.isdisjoint(running.orders.writes)

    def _hold(self, node: str, held: dict[str, Held], value: Held) -> None:
        """Let `value` hold for the node in `held`. If its process does not confirm that in time,
        what held before goes on. Raises FloodmarkError then."""
        before, held[node] = held[node], value
        try:
            self._order(node)
        except FloodmarkError:
            held[node] = before
            # It will take the refused order after all, and this one right behind it.
            self._order(node, wait=False)
            raise

    def _order(self, node: str, *, wait: bool = True) -> None:
        running = self._running.get(node)
        if running is not None:
            self._give_orders(node, running, wait=wait and not running.paused)

    def _give_orders(
        self, node: str, running: _Running, *, copy_to: str = "", wait: bool = True
    ) -> bool:
        """Tell a process all that holds for its node now; False if it has ended."""
        return running.orders.order(
            self._armed[node],
            self._disk_faults[node],
            percent=self._clock_percent[node],
            slow_ms=self._delay_ms(node),
            copy_to=copy_to,
            wait=wait,
        )

    def _codes_of_disk(self, *, reads: bool) -> Codes:
        # The store is mapped into memory: a page that cannot be read is a signal, not an error.
        return (EXIT_STORAGE, -signal.SIGBUS) if reads else (EXIT_STORAGE,)

    def _buried(self, node: str, running: _Running) -> None:
        reached = running.orders.reached()
        self._armed[node] = {n: p for n, p in self._armed[node].items() if n not in reached}
        running.orders.close()
        for number, count in running.orders.writes.items():
            self._writes[number] = self._writes.get(number, 0) + count

    def _may_end(self, node: str, running: _Running, code: int, by: EndedBy) -> bool:
        if by == "stop" and code in (0, EXIT_HUNG):
            return code == 0 or self.resume_suspended()
        return code == EXIT_STORAGE and self._is_ending(running)
