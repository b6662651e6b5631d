"""The command `floodmark`: assembles the commands of this folder, turns errors into exit codes.

A module of this folder is a command: it defines a function of its own name, or `app`, a Typer
application, where a command has subcommands. Such a module imports what is slow inside its
functions, so that `floodmark --help` is fast.
"""

from __future__ import annotations

import importlib
import logging
import pkgutil
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer
import typer.core

from harness import cli
from harness.cli.common import tell
from harness.cli.exit_codes import DEBUG, EXIT_HARNESS, exit_code_of
from harness.runs.interrupts import EXIT_STOPPED, StopNow, ended_by_signals
from harness.runs.terminal import plain_output

_NO_COMMANDS: Final = ("__main__", "common", "exit_codes", "main", "values")
_TYPERS_INTERRUPTED: Final = 130
"""What Typer makes of a KeyboardInterrupt; no command has this code."""
_ORDER: Final = (
    *("run", "check", "report", "search", "replay", "bugs", "nightly", "serve", "bench"),
    *("systems", "faults", "protocols"),
)
"""The commands as `--help` lists them, in the order of use; others follow by name."""


class _InOrder(typer.core.TyperGroup):
    """Lists the commands in the order of use."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names, in the order of the help."""
        known = [name for name in _ORDER if name in self.commands]
        return known + sorted(set(self.commands) - set(known))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and exit with its code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = DEBUG in words
    if not debug:
        # What a client library logs is no sentence for a person.
        logging.getLogger().addHandler(logging.NullHandler())
    with plain_output(), ended_by_signals(for_good=arguments is None):
        code = _run_command([word for word in words if word != DEBUG], debug=debug)
        sys.stdout.flush()
    raise SystemExit(code)


def assemble() -> typer.Typer:
    """The application with all commands."""
    app = typer.Typer(
        cls=_InOrder,
        add_completion=False,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        help="Test replicated logs for lost writes. `floodmark run` injects faults into a cluster "
        "and judges what it kept; `floodmark search` looks for a schedule that loses a write.",
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
        code = _TYPERS_INTERRUPTED
    except BrokenPipeError:
        return EXIT_HARNESS
    except Exception as error:
        if debug:
            raise
        code, sentence = exit_code_of(error)
        tell(f"floodmark: {sentence}")
        return code
    if code == _TYPERS_INTERRUPTED:
        tell("floodmark: stopped.")
        return EXIT_STOPPED
    return code if isinstance(code, int) else 0


if __name__ == "__main__":
    main()
