"""Ends what is left of a run when its harness is gone: `python -I -S guardian.py MARK`.

The harness holds the other end of standard input. However it ends, the kernel closes that, and then
every process that has `MARK` in its environment is killed: nodes, their children, and children that
made a session of their own. Standard library only, so it starts in milliseconds.
"""

import os
import signal
import sys
import time

ROUNDS = 100
PAUSE_S = 0.02
MARK = "FLOODMARK_RUN"


def marked(mark: str) -> list[int]:
    """The processes of this user with `mark` (NAME=value) in their environment, but not this one.

    A zombie has no environment any more.
    """
    wanted, me, found = mark.encode(), os.getpid(), []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == me:
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                environment = file.read()
        except OSError:
            continue
        if wanted in environment.split(b"\0"):
            found.append(int(name))
    return found


def kill_marked(mark: str) -> None:
    """SIGKILL to all of them, until there are none: they may be starting others meanwhile."""
    for _ in range(ROUNDS):
        found = marked(mark)
        if not found:
            return
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                continue
        time.sleep(PAUSE_S)


def main(mark: str) -> None:
    """Wait for the end of the harness."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while os.read(0, 4096):
        pass
    kill_marked(mark)


if __name__ == "__main__":
    main(sys.argv[1])
