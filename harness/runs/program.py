"""The words by which this program was called, for command lines that can be copied."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from typing import Final

NAME: Final = "floodmark"
_MODULE: Final = "harness.cli"


def called() -> tuple[str, ...]:
    """Return the words before the subcommand: `floodmark` on the path or from another program, else
    the path or `python -m harness.cli` as it was called."""
    if sys.orig_argv[1:3] == ["-m", _MODULE]:
        return (sys.orig_argv[0], "-m", _MODULE)
    path = sys.argv[0] if sys.argv else ""
    if Path(path).name != NAME:
        return (NAME,)
    found = shutil.which(NAME)
    same = found is not None and Path(found).absolute() == Path(path).absolute()
    return (NAME,) if same else (path,)


def program() -> str:
    """Return the words of `called()`, quoted for the shell."""
    return shlex.join(called())


def command_line(*words: object) -> str:
    """Return a command line to copy: the words of `called()`, then `words`, quoted."""
    return shlex.join((*called(), *map(str, words)))
