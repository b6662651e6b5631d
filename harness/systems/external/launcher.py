"""A process that becomes a node: `python -I -S launcher.py PARENT_PID [--disk FILE PID]
[--ordinary FILE] COMMAND...`.

It asks the kernel to kill the node, even a stopped one, when the thread that started it dies; that
holds for the command that replaces it. The node's own children are left to `guardian.py`. With
`--disk` it first enters the namespaces of the process PID, which has the node's disk mounted, by
`enter` of FILE; with `--ordinary` it is another user from then on. Standard library only."""

import ctypes
import os
import runpy
import signal
import sys

PR_SET_PDEATHSIG = 1
EXIT_ORPHANED = 70
EXIT_NO_COMMAND = 127
DISK = "--disk"
ORDINARY = "--ordinary"


def starter(*options: str) -> list[str]:
    """Return the words to put before a command line whose process must not outlive this one."""
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *options]


def main(parent_pid: int, command: list[str]) -> None:
    """Replace this process by the command; never return."""
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
    # After that: new rights make the kernel forget it.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(EXIT_ORPHANED)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f"{command[0]}: cannot be executed: {error.strerror}\n")
        sys.stderr.flush()
        os._exit(EXIT_NO_COMMAND)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
