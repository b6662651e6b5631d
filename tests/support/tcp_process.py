"""A process of `tests/support/tcp_node.py`, which listens, dials and sends on command."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any, Final

from tests.support.paths import ROOT
from tests.support.python_process import PythonProcess

PROGRAM: Final = (sys.executable, "-I", "-S", str(ROOT / "tests/support/tcp_node.py"))


class TcpProcess:
    """The process, obeying."""

    def __init__(self, command: Sequence[str], *, own_session: bool = False) -> None:
        """`command` starts the program, in whatever way."""
        self.process = PythonProcess(args=command, start_new_session=own_session)
        assert self.process.line() == '"ready"'

    def __call__(self, *words: Any) -> Any:
        """Have it do something; its answer."""
        return json.loads(self.process.ask(json.dumps(words)))

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()
