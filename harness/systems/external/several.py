"""The processes of a node that has several: `python -I -S several.py + COMMAND.. + COMMAND..`.

The plus stands for ASCII's record separator. Standard library only. The processes form one process
group. When the first one ends, the others are killed and this process ends in the same way; but if
the first word is AGAIN, each one that ends is started again. It passes SIGTERM on to all of them,
and then each ends in its own time."""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

PR_SET_PDEATHSIG = 1
EXIT_NO_COMMAND = 127
SEPARATOR = "\x1e"
AGAIN = "again"
AGAIN_S = 1.0


def command_line(commands: Sequence[Sequence[str]], *, again: bool = False) -> list[str]:
    """Return the command line of one process that runs all `commands` as one node; `again`: a
    process that ends is started again."""
    words = [word for command in commands for word in (SEPARATOR, *command)]
    return [sys.executable, "-I", "-S", __file__, *([AGAIN] if again else []), *words]


def _commands(words: list[str]) -> list[list[str]]:
    found: list[list[str]] = []
    for word in words:
        if word == SEPARATOR:
            found.append([])
        else:
            found[-1].append(word)
    return found


def main(commands: list[list[str]], *, again: bool = False) -> None:
    """Run the processes of all `commands` as one node; never return."""
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
    _end_like(status)


def _start(command: list[str]) -> int:
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    try:
        if os.getppid() == parent:
            os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]}: cannot be executed: {error.strerror}\n".encode())
    os._exit(EXIT_NO_COMMAND)


def _end_like(status: int) -> None:
    """End with the same exit code or by the same signal."""
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    given = sys.argv[1:]
    main(_commands(given[given[0] == AGAIN :]), again=given[0] == AGAIN)
