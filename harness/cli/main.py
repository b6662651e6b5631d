"""The command `floodmark`: assembles the commands of this folder, turns errors into exit codes.

A module of this folder is a command: it defines a function of its own name, and in `SUBCOMMANDS`
those of its subcommands. Each takes the request that is made of its options (`options.py`). Such a
module imports slow modules inside its functions. Only the module of the requested command is
imported; `floodmark --help` needs none, because the summaries are here (`_SUMMARIES`)."""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer
import typer.core

from floodmark import __version__
from harness import cli
from harness.cli.common import DEBUG, EXIT_HARNESS, exit_code_of, tell
from harness.runs.interrupts import EXIT_STOPPED, StopNow, ended_by_signals
from harness.runs.terminal import flush_streams, open_streams, plain_output
from node.formats.host_errors import reason

COMPLETE: Final = "_FLOODMARK_COMPLETE"
HELPERS: Final = ("__main__", "common", "main", "options", "values")
_TYPERS_INTERRUPTED: Final = 130
"""What Typer makes of a KeyboardInterrupt; no command has this code."""
_SUMMARIES: Final = {
    "demo": "Lose a write of an old Kafka, and keep it with the repair.",
    "run": "Run a cluster through a storm of faults and judge it.",
    "check": "Judge run folders, stores or histories of other tools.",
    "report": "Build the HTML page of runs and findings.",
    "compare": "Show the facts of two runs side by side.",
    "explore": "Explore everything that can happen within bounds.",
    "search": "Search for a schedule that breaks a protocol or a system.",
    "shrink": "Look for the smallest schedule that fails like a failed run.",
    "bisect": "Find the version since which a schedule fails.",
    "replay": "Run a schedule again, simulated or on real processes.",
    "bugs": "List the known bugs; `bugs find` searches for each of them.",
    "nightly": "Search, storm and replay within a budget of time.",
    "systems": "List the systems under test; check an adapter.",
    "faults": "List the kinds of faults and what each does.",
    "protocols": "List the replication protocols and what each may break.",
}
"""The commands that `--help` lists, in the order of use; others follow by name."""


class _InOrder(typer.core.TyperGroup):
    """Lists the commands in the order of use."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names, in the order of the help."""
        known = [name for name in _SUMMARIES if name in self.commands]
        return known + sorted(set(self.commands) - set(known))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and exit with its code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if COMPLETE in os.environ:  # A shell asks how the words that were typed go on.
        typed = (os.environ.get("_TYPER_COMPLETE_ARGS") or os.environ.get("COMP_WORDS", "")).split()
        words = typed[1:] if set(typed[1:2]) & set(command_names()) else []
    debug = DEBUG in words
    open_streams()
    with plain_output(), ended_by_signals(for_good=arguments is None):
        code = _run_command([w for w in words if w != DEBUG] or ["--help"], debug=debug)
    if error := flush_streams():
        tell(f"floodmark: the output could not be written: {reason(error)}")
        flush_streams()
        code = EXIT_HARNESS
    raise SystemExit(code)


def assemble(words: Sequence[str] | None = None) -> typer.Typer:
    """Return the application with the commands that the words of a command line need."""
    app = typer.Typer(
        cls=_InOrder,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        help="Test replicated logs for lost writes. `floodmark run` injects faults into a cluster "
        "and judges what it kept; `floodmark search` looks for a schedule that loses a write.",
    )

    @app.callback()
    def options(
        debug: Annotated[bool, typer.Option(DEBUG, help="Show the traceback of an error.")] = False,
        version: Annotated[
            bool, typer.Option("--version", help="Show the version.", callback=_show_version)
        ] = False,
    ) -> None:
        """Options of all commands; `--debug` is taken out before, wherever it stands."""

    names = command_names()
    listed = words is not None and (not words or words[0] in ("-h", "--help", "--version"))
    if words and words[0] in names:
        names = [words[0]]
    for name in names:
        if listed and name in _SUMMARIES:
            app.command(name, help=_SUMMARIES[name])(_only_listed)
        else:
            _add(app, name)
    return app


def command_names() -> list[str]:
    names = [each.name for each in pkgutil.iter_modules(cli.__path__)]
    return [name for name in names if name not in HELPERS]


def _add(app: typer.Typer, name: str) -> None:
    """Import the module of a command and add the command."""
    from harness.cli.options import as_command

    module = importlib.import_module(f"{cli.__name__}.{name}")
    command = as_command(getattr(module, name))
    if not hasattr(module, "SUBCOMMANDS"):
        app.command(name)(command)
        return
    group = typer.Typer(invoke_without_command=True)
    group.callback()(command)
    for word, subcommand in module.SUBCOMMANDS.items():
        group.command(word)(as_command(subcommand))
    app.add_typer(group, name=name)


def _show_version(wanted: bool) -> None:
    """Print the version of the installed package, and end."""
    if wanted:
        print(f"floodmark {__version__}")
        raise typer.Exit


def _only_listed() -> None:
    """Stand for a command of which only the summary is needed."""


def _keep_libraries_quiet() -> None:
    """Hide the log lines of client libraries, which are no sentences for a person."""
    import logging

    logging.getLogger().addHandler(logging.NullHandler())


def _run_command(words: list[str], *, debug: bool) -> int:
    """Run the command, print its error, and return the exit code."""
    if words and words[0] not in ("-h", "--help") and not debug:
        _keep_libraries_quiet()
    try:
        code = assemble(words)(words, standalone_mode=False, prog_name="floodmark")
    except (StopNow, KeyboardInterrupt):
        code = _TYPERS_INTERRUPTED
    except BrokenPipeError:
        return EXIT_HARNESS
    except SystemExit as end:
        # typer takes any broken pipe for that of the output, and ends with what means "invalid".
        if isinstance(end.__context__, BrokenPipeError):
            return EXIT_HARNESS
        raise
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
