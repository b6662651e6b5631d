r"""Text for a terminal: foreign text shown as text, never obeyed as an escape sequence.

File names, messages of brokers and of other systems, values of a history: any of them may have an
escape sequence that moves the cursor, hides a line or renames the window. So control characters,
bidirectional marks and lone surrogates are shown as `\u001b` is, in the spelling of JSON."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, TextIO, cast

_KEPT: Final = "\n\t"
_CONTROLS: Final = (
    *range(0x20),
    *range(0x7F, 0xA0),
    *(0x061C, 0x200E, 0x200F, 0x2028, 0x2029),
    *range(0x202A, 0x202F),
    *range(0x2066, 0x206A),
    0xFEFF,
    *range(0xD800, 0xE000),
)
_SHOWN: Final = {code: f"\\u{code:04x}" for code in _CONTROLS if chr(code) not in _KEPT}


def plain(text: str) -> str:
    """Return a text with its control characters escaped, so that a terminal only shows it."""
    return text.translate(_SHOWN)


class PlainStream:
    """A text stream that escapes control characters (`plain`) and writes to `beneath`."""

    def __init__(self, beneath: TextIO) -> None:
        self.beneath = beneath

    def write(self, text: str) -> int:
        """Write a text with its control characters escaped."""
        self.beneath.write(plain(text))
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        """Write several texts with their control characters escaped."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.beneath, name)


def open_streams() -> None:
    """Make stdout and stderr usable: a closed one leads nowhere, so that no file which is opened
    later gets its number, and a character that the terminal's encoding lacks is escaped."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
            setattr(sys, name, open(number, "w", closefd=False))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def flush_streams() -> OSError | None:
    """Write what stdout and stderr still hold; return the error of the first that cannot. That one
    leads nowhere from then on: Python would try again at its end, with an exit code of its own."""
    failed = None
    for number, stream in ((1, sys.stdout), (2, sys.stderr)):
        try:
            stream.flush()
        except OSError as error:
            failed = failed or error
            nowhere = os.open(os.devnull, os.O_RDWR)
            os.dup2(nowhere, number)
            os.close(nowhere)
    return failed


@contextmanager
def plain_output() -> Iterator[None]:
    """Escape control characters in all that is printed to stdout and stderr within the context."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast(TextIO, PlainStream(stream)) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def stream_for_display() -> TextIO:
    """Return the stderr below `plain_output`, for displays that pass their texts to `plain`."""
    stream = sys.stderr
    return stream.beneath if isinstance(stream, PlainStream) else stream
