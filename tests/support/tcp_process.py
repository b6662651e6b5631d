"""A process of `tests/support/tcp_node.py`, which listens, dials and sends on command."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, Final

from tests.support.paths import ROOT

PROGRAM: Final = (sys.executable, "-I", "-S", str(ROOT / "tests/support/tcp_node.py"))


class TcpProcess:
    """The process, obeying."""

    def __init__(self, command: Sequence[str], *, own_session: bool = False) -> None:
        """`command` starts the program, in whatever way."""
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=own_session
        )
        assert self._answer() == "ready"

    def __call__(self, *words: Any) -> Any:
        """Have it do something; its answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(words).encode() + b"\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()
