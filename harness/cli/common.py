"""Parts that several commands share: tables, JSON, messages on stderr, exit codes.

`run` and `check` exit with the code of the verdict (`checker.formats.verdict.EXIT_CODES`); the
module of any other command says what 0 and 1 mean there. Every command exits with `EXIT_USAGE`
when the request cannot be carried out as written, and with `EXIT_HARNESS` when the harness could
not continue. The error itself decides which (`node.formats.errors`)."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from harness.runs.terminal import PlainStream, plain
from node.formats.errors import FloodmarkError
from node.formats.host_errors import refused

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


EXIT_UNKNOWN: Final = 2
EXIT_USAGE: Final = 64
EXIT_HARNESS: Final = 70
DEBUG: Final = "--debug"
_MOST_SENTENCE: Final = 2000


def exit_code_of(error: Exception) -> tuple[int, str]:
    """Return the exit code for an error that ended a command, and the sentence that explains it."""
    format_message = getattr(error, "format_message", None)
    if format_message is not None:
        # The command line itself was wrong; Typer words that well.
        return EXIT_USAGE, _short(format_message()) or "see floodmark --help"
    text = _short(error)
    if isinstance(error, FloodmarkError) or hasattr(error, "exit_code"):
        return int(getattr(error, "exit_code", EXIT_HARNESS)), text
    if isinstance(error, OSError) and error.filename:
        return EXIT_HARNESS, f"the host refused what the command needs: {refused(error)}"
    return EXIT_HARNESS, f"unexpected {type(error).__name__}: {text} ({DEBUG} shows where)"


def _short(sentence: object) -> str:
    """Return a sentence on one line; a quotation in it may be of any length."""
    text = " ".join(str(sentence)[: 2 * _MOST_SENTENCE].split())
    return text if len(text) <= _MOST_SENTENCE else f"{text[:_MOST_SENTENCE]}..."
