"""Python in a process of its own, in the folder of the project and with it on the path."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.paths import ROOT
from tests.support.waiting import PATIENCE_S


class PythonProcess(subprocess.Popen[str]):
    """A process with pipes for its input and output; `how` are more arguments of `Popen`."""

    def __init__(self, *words: object, env: dict[str, str] | None = None, **how: Any) -> None:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        super().__init__(**(_command(words, env or {}) | pipes | how))

    def line(self) -> str:
        """Return the next line that the process prints."""
        assert self.stdout is not None
        return self.stdout.readline().strip()

    def ask(self, line: str = "") -> str:
        """Give the process a line; return the next one that it prints."""
        assert self.stdin is not None
        self.stdin.write(f"{line}\n")
        self.stdin.flush()
        return self.line()


def run(*words: object, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python to its end; return the exit code and the output."""
    command = _command(words, environment) | {"cwd": cwd}
    return subprocess.run(**command, capture_output=True, timeout=PATIENCE_S, check=False)


def _command(words: tuple[object, ...], environment: dict[str, str]) -> dict[str, Any]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return {"args": [sys.executable, *map(str, words)], "cwd": ROOT, "env": env, "text": True}
