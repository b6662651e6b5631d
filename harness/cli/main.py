"""The command `floodmark`: assembles the commands of this folder, turns errors into exit codes.

A module of this folder is a command: it defines a function of its own name, or `app`, a Typer
application, where a command has subcommands. Such a module imports what is slow inside its
functions, so that `floodmark --help` is fast.

Exit codes: 0 valid, 1 invalid, 2 unknown or not exercised, 64 the request cannot be carried out
as written, 70 the harness itself could not go on. Each error is one sentence on stderr.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Sequence
from typing import Annotated, Final

import typer

from harness import cli
from harness.cli.common import EXIT_UNKNOWN, tell
from harness.runs.interrupts import StopNow
from node.formats.errors import FloodmarkError

EXIT_USAGE: Final = 64
EXIT_HARNESS: Final = 70
DEBUG: Final = "--debug"
_NO_COMMANDS: Final = ("__main__", "common", "main")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and exit with its code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = DEBUG in words
    code = _run_command([word for word in words if word != DEBUG], debug=debug)
    sys.stdout.flush()
    raise SystemExit(code)


def assemble() -> typer.Typer:
    """The application with all commands."""
    app = typer.Typer(
        add_completion=False,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        help="Does a replicated log lose data? `floodmark run` puts one through a storm.",
    )

    @app.callback()
    def options(
        debug: Annotated[bool, typer.Option(DEBUG, help="Show the traceback of an error.")] = False,
    ) -> None:
        """Options of all commands; `--debug` is taken out before, wherever it stands."""

    for found in pkgutil.iter_modules(cli.__path__):
        if found.name in _NO_COMMANDS:
            continue
        module = importlib.import_module(f"{cli.__name__}.{found.name}")
        if hasattr(module, "app"):
            app.add_typer(module.app, name=found.name)
        else:
            app.command(found.name)(getattr(module, found.name))
    return app


def _run_command(words: list[str], *, debug: bool) -> int:
    """The exit code; errors have been printed."""
    try:
        code = assemble()(words, standalone_mode=False, prog_name="floodmark")
    except (StopNow, KeyboardInterrupt):
        tell("floodmark: stopped.")
        return EXIT_UNKNOWN
    except BrokenPipeError:
        return EXIT_HARNESS
    except Exception as error:
        if debug:
            raise
        return _explain(error)
    return code if isinstance(code, int) else 0


def _explain(error: Exception) -> int:
    """Print an error as one sentence; returns the exit code it stands for."""
    format_message = getattr(error, "format_message", None)
    if format_message is not None:
        # The command line itself was wrong; typer words that well.
        message = " ".join(str(format_message()).split())
        tell(f"floodmark: {message}" if message else "floodmark: see floodmark --help")
        return EXIT_USAGE
    text = " ".join(str(error).split())
    if isinstance(error, FloodmarkError) or hasattr(error, "exit_code"):
        tell(f"floodmark: {text}")
        return int(getattr(error, "exit_code", EXIT_HARNESS))
    tell(f"floodmark: unexpected {type(error).__name__}: {text} ({DEBUG} shows where)")
    return EXIT_HARNESS


if __name__ == "__main__":
    main()
