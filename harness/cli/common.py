"""What several commands share: options, exit codes, messages on stderr."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer

EXIT_UNKNOWN: Final = 2
Master = Annotated[str | None, typer.Option(help="A Spark cluster's URL [this machine].")]
Memory = Annotated[str, typer.Option("--driver-memory", help="Limit of Spark's heap, as 3g.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
NoSpark = Annotated[bool, typer.Option("--no-spark", help="Judge in this process.")]
Store = Annotated[Path, typer.Option(help="The folder that keeps all runs.")]
Bugs = Annotated[list[str] | None, typer.Option("--bug", help="Turn a known bug on; repeatable.")]


def tell(sentence: str) -> None:
    """Print a sentence for a person on stderr; stdout belongs to the result."""
    print(sentence, file=sys.stderr, flush=True)


def print_json(value: Any) -> None:
    """Print a result as one line of JSON."""
    import msgspec

    print(msgspec.json.encode(value).decode())


def worker_count(cores: int) -> int:
    """`--cores`, where 0 means one worker a core."""
    import os

    return cores or os.cpu_count() or 1
