"""Functions that several commands share: tables, JSON, messages on stderr."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from harness.runs.terminal import PlainStream, plain

_TABLE_WIDTH: Final = 160
_COLOURS: Final = {"valid": "green", "invalid": "red"}


def tell(sentence: str) -> None:
    """Print a sentence for a person on stderr; stdout belongs to the result. Nothing is raised if
    stderr is full or its reader is gone."""
    with contextlib.suppress(OSError):
        print(sentence, file=sys.stderr, flush=True)


def print_result(text: str, verdict: str) -> None:
    """Print the summary of a run, whose first line has its verdict: on a terminal in colour, unless
    the environment has NO_COLOR."""
    if not sys.stdout.isatty():
        print(text, flush=True)
        return
    from rich.console import Console
    from rich.text import Text

    shown = Text(plain(text))
    at = shown.plain.index(verdict.upper())
    shown.stylize(f"bold {_COLOURS.get(verdict, 'yellow')}", at, at + len(verdict))
    stream = sys.stdout.beneath if isinstance(sys.stdout, PlainStream) else sys.stdout
    Console(file=stream, highlight=False, soft_wrap=True).print(shown)


def output_of(json: bool) -> Callable[[str], None]:
    """Return a function that prints the lines of a command at work; none if it prints JSON."""
    return (lambda line: None) if json else (lambda line: print(line, flush=True))


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
