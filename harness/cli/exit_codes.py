"""Exit codes of `floodmark`, and the one sentence on stderr that goes with an error.

`run` and `check` exit with the code of the verdict (`checker.formats.verdict.EXIT_CODES`); the
module of any other command says what 0 and 1 mean there. Every command exits with `EXIT_USAGE`
when the request cannot be carried out as written, and with `EXIT_HARNESS` when the harness could
not continue. The error itself decides which (`node.formats.errors`)."""

from __future__ import annotations

from typing import Final

from node.formats.errors import FloodmarkError
from node.formats.host_errors import refused

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
