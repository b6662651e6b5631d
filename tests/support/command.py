"""The command `floodmark` in this process."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from harness.cli import main
from tests.support import python_process


def exit_code(words: Sequence[str]) -> int:
    """Run a command; return its exit code."""
    with pytest.raises(SystemExit) as ended:
        main.main(words)
    assert isinstance(ended.value.code, int)
    return ended.value.code


def imported_by(statement: str, *before: str) -> tuple[list[str], set[str]]:
    """Return the output of a statement in a new process, and the modules imported by then."""
    script = "\n".join(("import sys", *before, f"try: {statement}", "finally: print(*sys.modules)"))
    *lines, imported = python_process.run("-c", script).stdout.splitlines()
    return lines, set(imported.split())
