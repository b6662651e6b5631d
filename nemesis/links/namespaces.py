"""Network namespaces for an ordinary user: a run in one of its own, and one more for each node.

A user namespace gives this process the right to make network namespaces and to filter packets in
them, and nowhere else. Nothing has to be undone: a namespace is gone with the last process in it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

from node.formats import host_tools
from node.formats.errors import FloodmarkError, UsageError
from node.formats.host_errors import reason

INSIDE: Final = "FLOODMARK_NAMESPACE"
"""Set in the environment of a run that has entered its namespaces."""
PROGRAMS: Final = ("unshare", "nsenter", "ip", "nft")
COMMAND_S: Final = 20.0
_OWN: Final = ("--user", "--map-current-user", "--keep-caps", "--net")


def program(name: str) -> str:
    """Return the path of a program. Raises UsageError, which names the package to install."""
    found = host_tools.program(name)
    if found is None:
        raise UsageError(f"--links kernel needs {name}: install {host_tools.DEBIAN[name]}")
    return found


def check_possible() -> None:
    """Raise UsageError if this user cannot make network namespaces on this machine."""
    for name in PROGRAMS:
        program(name)
    if inside():
        return
    tried = subprocess.run(
        [program("unshare"), *_OWN, "--", program("ip"), "link", "set", "lo", "up"],
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
    )
    if tried.returncode != 0:
        why = tried.stderr.strip().splitlines()[-1:] or [f"exit code {tried.returncode}"]
        raise UsageError(
            f"--links kernel needs user namespaces, which are not allowed here ({why[0]}): use "
            "--links proxy"
        )


def inside() -> bool:
    """Return whether this process runs in namespaces of its own."""
    return bool(os.environ.get(INSIDE))


def enter() -> None:
    """Replace this process by the same command in a user and network namespace of its own; do
    nothing if it is in one. Raises UsageError if that is not possible."""
    if inside():
        check_possible()
        run([program("ip"), "link", "set", "lo", "up"])
        return
    words, environment = own([sys.executable, *sys.orig_argv[1:]])
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(words[0], words, environment)


def own(command: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return the words and the environment of a command that shall run in namespaces of its own.
    Raises UsageError if that is not possible."""
    check_possible()
    return [program("unshare"), *_OWN, "--", *command], os.environ | {INSIDE: "1"}


def run(command: Sequence[str], text: str = "") -> str:
    """Run a program on the input `text`; return its output. Raises FloodmarkError if it fails."""
    try:
        done = subprocess.run(
            list(command), input=text, capture_output=True, text=True, timeout=COMMAND_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FloodmarkError(f"{' '.join(command)}: {reason(error)}") from None
    if done.returncode != 0:
        raise FloodmarkError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


class NetworkNamespace:
    """A network namespace without a process of its own: this process holds it open until `close`,
    or its own end."""

    def __init__(self) -> None:
        """Make it. Raises FloodmarkError."""
        # Somebody has to be in it while it is made.
        with subprocess.Popen(
            [program("unshare"), "--net", "--", "sh", "-c", "echo; read line"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as first:
            assert first.stdout is not None
            assert first.stderr is not None
            if not first.stdout.readline():
                raise FloodmarkError(
                    f"cannot make a network namespace: {first.stderr.read().decode()}"
                )
            self._handle = os.open(f"/proc/{first.pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)

    @property
    def path(self) -> str:
        """Its name for other programs, while this process lives."""
        return f"/proc/{os.getpid()}/fd/{self._handle}"

    def prefix(self) -> tuple[str, ...]:
        """Return the words before a command that shall run in it."""
        return (program("nsenter"), f"--net={self.path}", "--")

    def close(self) -> None:
        """Let go of it. May be called twice."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
