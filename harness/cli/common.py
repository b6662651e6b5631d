"""What several commands share: options, messages on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from harness.cli.values import CORES, WORKERS, HeapSize, Whole, WritableFile, WritableFolder, taking

_TABLE_WIDTH: Final = 160

Master = Annotated[
    str | None, typer.Option(help="URL of a Spark cluster [default: Spark on this machine].")
]
Memory = Annotated[
    str,
    typer.Option(
        "--driver-memory", **taking(HeapSize()), help="Heap limit of the Spark driver, such as 3g."
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Do not show progress.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
NoSpark = Annotated[bool, typer.Option("--no-spark", help="Judge without Spark.")]
Bugs = Annotated[
    list[str] | None,
    typer.Option("--bug", help="Turn on a known bug, by name or code; repeatable."),
]
Cores = Annotated[
    int, typer.Option(**taking(CORES), help="Number of worker processes; 0: one per core.")
]
"""See `worker_count`."""
Workers = Annotated[int, typer.Option(**taking(WORKERS), help="Number of worker processes.")]
Jobs = Annotated[
    int,
    typer.Option(
        **taking(Whole(0, 64)),
        help="Of a system: clusters side by side; 0: one for every two cores.",
    ),
]
Page = Annotated[
    Path | None, typer.Option(**taking(WritableFile()), help="File for the table as Markdown.")
]
SystemFile = Annotated[
    str | None,
    typer.Option(
        "--system-file", help="System under test that is not installed: path/to/file.py:Class."
    ),
]
Settings = Annotated[
    list[str] | None, typer.Option("--set", help="A setting of the system, name=value; repeatable.")
]


def results_in(what: str, folders: str) -> Any:
    """The option `--store` of a command whose results go to some folders of it."""
    return typer.Option(
        **taking(WritableFolder()), help=f"Folder for results; {what} go to its {folders}."
    )


def one_system(system: str | None, system_file: str | None) -> str | None:
    """The name of the system that is asked for. Raises UsageError when it is named twice."""
    from node.formats.errors import UsageError

    if system is not None and system_file is not None:
        raise UsageError("--system and --system-file exclude each other")
    if system_file is not None and not (system_file.endswith(".py") or ".py:" in system_file):
        raise UsageError(f"--system-file is '{system_file}', but must be written file.py:Class")
    return system if system_file is None else system_file


def tell(sentence: str) -> None:
    """Print a sentence for a person on stderr; stdout belongs to the result."""
    print(sentence, file=sys.stderr, flush=True)


def print_json(value: Any) -> None:
    """Print a result as one line of JSON."""
    import msgspec

    print(msgspec.json.encode(value).decode())


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, json: bool) -> None:
    """Print rows of text as a table as wide as the terminal, or as a JSON list of objects."""
    if json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
        return
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(*columns, box=SIMPLE_HEAD, pad_edge=False)
    table.columns[0].no_wrap = True
    for row in rows:
        table.add_row(*row)
    # A file or a pipe has no width of its own.
    width = None if sys.stdout.isatty() else _TABLE_WIDTH
    Console(markup=False, highlight=False, emoji=False, width=width).print(table)


def worker_count(cores: int) -> int:
    """`--cores`, where 0 means one worker a core."""
    import os

    return cores or os.cpu_count() or 1
