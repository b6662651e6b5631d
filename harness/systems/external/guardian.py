"""The end of what is left of a run when its harness is gone: `python -I -S guardian.py MARK HOME`.

The harness holds the other end of standard input. However it ends, the kernel closes that, and then
every process that has `MARK` in its environment is killed: nodes, their children, and children that
made a session of their own. Some programs overwrite their environment with their title, so all that
is in the session of a node is killed too: the harness writes "+PID" when a node starts, "-PID" when
it has ended, a line each. Last the folder HOME is removed ("": none). Standard library only, so it
starts in milliseconds.
"""

import os
import shutil
import signal
import sys
import time
from collections.abc import Collection

ROUNDS = 100
PAUSE_S = 0.02
MARK = "FLOODMARK_RUN"


def marked(mark: str) -> list[int]:
    """Return the processes of this user with `mark` (NAME=value) in their environment, but not this
    one.

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


def in_sessions(sessions: Collection[int]) -> list[int]:
    """Return the processes that are in one of these sessions; a zombie is not counted."""
    found = []
    for name in os.listdir("/proc") if sessions else ():
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                state, _, _, session = file.read().rpartition(b")")[2].split()[:4]
        except (OSError, ValueError):
            continue
        if int(session) in sessions and state != b"Z":
            found.append(int(name))
    return found


def kill_marked(mark: str, sessions: Collection[int] = ()) -> None:
    """Send SIGKILL to all marked processes until there are none, because they may be starting
    others meanwhile."""
    for _ in range(ROUNDS):
        found = {*marked(mark), *in_sessions(sessions)}
        if not found:
            return
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                continue
        time.sleep(PAUSE_S)


def main(mark: str, home: str) -> None:
    """Wait for the end of the harness."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sessions: set[int] = set()
    told = b""
    while more := os.read(0, 4096):
        *lines, told = (told + more).split(b"\n")
        for line in lines:
            (sessions.add if line[:1] == b"+" else sessions.discard)(int(line[1:]))
    kill_marked(mark, sessions)
    if home:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
