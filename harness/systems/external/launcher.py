"""A process that becomes a node: `python -I -S launcher.py PARENT_PID [--disk FILE PID]
[--ordinary FILE] COMMAND...`. Standard library only.

It asks the kernel to kill the node, even a stopped one, when the thread that started it dies; that
holds for the command that replaces it. The node's own children are left to `guardian.py`. With
`--disk` it first enters the namespaces of the process PID, which has the node's disk mounted, by
`enter` of FILE; with `--ordinary` it is another user from then on.

A node of several processes is `[again] + COMMAND.. + COMMAND..`, where the plus stands for ASCII's
record separator. They form one process group. When the first one ends, the others are killed and
this process ends in the same way; but with `again` each one that ends is started again. It passes
SIGTERM on to all of them, and then each ends in its own time."""

import ctypes
import os
import runpy
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import groupby
from typing import NoReturn

PR_SET_PDEATHSIG = 1
EXIT_ORPHANED = 70
EXIT_NO_COMMAND = 127
DISK = "--disk"
ORDINARY = "--ordinary"
SEPARATOR = "\x1e"
AGAIN = "again"
AGAIN_S = 1.0


def starter(*options: str) -> list[str]:
    """Return the words to put before a command line whose process must not outlive this one."""
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *options]


def together(commands: Sequence[Sequence[str]], *, again: bool = False) -> list[str]:
    """Return the command line of one process that runs all `commands` as one node; `again`: a
    process that ends is started again."""
    words = [word for command in commands for word in (SEPARATOR, *command)]
    return starter(*[AGAIN] * again, *words)


def main(parent_pid: int, command: list[str]) -> NoReturn:
    """Replace this process by the command, or run several."""
    try:
        if command[0] == DISK:
            _, file, pid, *command = command
            runpy.run_path(file)["enter"](int(pid))
        if command[0] == ORDINARY:
            _, file, *command = command
            runpy.run_path(file)["be_ordinary"]()
    except OSError as error:
        sys.stderr.write(f"{error}\n")
        os._exit(EXIT_NO_COMMAND)
    if command[0] not in (AGAIN, SEPARATOR):
        _become(parent_pid, command)
    _die_with(parent_pid)
    again = command[0] == AGAIN
    parts = groupby(command[again:], SEPARATOR.__eq__)
    _keep([[*words] for separates, words in parts if not separates], again=again)


def _die_with(parent_pid: int) -> None:
    """Have the kernel kill this process with its parent; new rights would make it forget that."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(EXIT_ORPHANED)


def _become(parent_pid: int, command: list[str]) -> NoReturn:
    _die_with(parent_pid)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]}: cannot be executed: {error.strerror}\n".encode())
    os._exit(EXIT_NO_COMMAND)


def _keep(commands: list[list[str]], *, again: bool) -> NoReturn:
    """Run the processes of all `commands` as one node."""
    asked = []
    # A handler, unlike an ignored signal, is not handed on to a program that is executed.
    signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))
    running = {_start(command): command for command in commands}
    status = 0

    def pass_on(number: int, frame: object) -> None:
        asked.append(number)
        for pid in tuple(running):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    signal.signal(signal.SIGTERM, pass_on)
    if asked:
        pass_on(signal.SIGTERM, None)
    while running:
        pid, ended = os.wait()
        if pid not in running:
            continue
        command = running.pop(pid)
        if again and not asked:
            code = os.waitstatus_to_exitcode(ended)
            os.write(2, f"{command[0]} ended with code {code}, and is started again\n".encode())
            time.sleep(AGAIN_S)
            if not asked:
                running[_start(command)] = command
                continue
        status = status or ended
        if not asked:
            for other in running:
                os.kill(other, signal.SIGKILL)
            break
    _end_like(os.waitstatus_to_exitcode(status))


def _start(command: list[str]) -> int:
    parent = os.getpid()
    return os.fork() or _become(parent, command)


def _end_like(code: int) -> NoReturn:
    """End with the same exit code or by the same signal."""
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
