"""A process that ends the rest of a run when its harness is gone: `python -I -S guardian.py MARK`.

The harness holds the other end of standard input. However it ends, the kernel closes that pipe, and
then every process that has `MARK` in its environment is killed: nodes, their children, and children
that made a session of their own. Some programs overwrite their environment with their title, so all
processes in the session of a node are killed too: the harness writes "+PID" when a node starts,
"-PID" when it has ended, a line each. Standard library only, so it starts in milliseconds."""

import os
import signal
import sys
import time
from collections.abc import Collection

ROUNDS = 100
PAUSE_S = 0.02
MARK = "FLOODMARK_RUN"


def marked(mark: str) -> list[int]:
    """Return the processes of this user with `mark` (NAME=value) in their environment, except this
    one. A zombie is not among them, because it has no environment."""
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
    """Return the processes whose session id is in `sessions`, except zombies."""
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
    """Send SIGKILL to all processes of a run until none is left, because they may start others.
    They are those with `mark` in their environment and those in `sessions`."""
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


def main(mark: str) -> None:
    """Wait for the end of the harness, then kill its processes."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sessions: set[int] = set()
    rest = b""
    while more := os.read(0, 4096):
        *lines, rest = (rest + more).split(b"\n")
        for line in lines:
            (sessions.add if line[:1] == b"+" else sessions.discard)(int(line[1:]))
    kill_marked(mark, sessions)


if __name__ == "__main__":
    main(*sys.argv[1:])
